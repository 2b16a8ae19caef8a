/* test_extend.c: position gates and structure heads of a model's file: what is added changes no bit
 * until it learns, sizes, half and hostile parts, what other commands make of such a model, and
 * runs in which nothing but the parts learns. Their arithmetic: test_arch_golden, test_same_bits,
 * test_grad_net, test_grad_parts. */
#include "golden.h"
#include "in_folder.h"
#include "train_fixture.h"

#include <zerope/evap.h>

#include "base/log.h"
#include "evap/extend.h"
#include "live_bytes.h"
#include "model/gguf_write.h"
#include "model/posgate.h"
#include "train/netparam.h"
#include "train/newmodel.h"

enum { N_IDS = 90 };

#define GGUF(name) ZP_TEST_DATA "/arch/gguf/" name ".gguf"
#define REFUSED(call, code_, part)                                                             \
    do {                                                                                       \
        zp_err why_ = { 0 }, *err = &why_;                                                     \
        zp_status status_ = (call);                                                            \
        if (status_ != (code_) || !strstr(why_.message, part))                                 \
            fail_msg("%s: %s: %s", #call, zp_status_name(status_), why_.message);              \
    } while (0)

static const zp_extend_options both = { .position_gate = true, .structure_head = true,
                                        .head_size = "all" };

static zp_model *open_model(const char *path)
{
    zp_model *m = NULL;
    GOLDEN_OK(zp_model_open(&m, path, NULL, err));
    return m;
}

static void assert_same_file(const char *a, const char *b)
{
    struct os_map x, y;
    GOLDEN_OK(os_map_file(&x, a, err));
    GOLDEN_OK(os_map_file(&y, b, err));
    assert_int_equal(x.size, y.size);
    assert_memory_equal(x.data, y.data, x.size);
    os_unmap(&x);
    os_unmap(&y);
}

/* ---- what is added --------------------------------------------------------------------------- */

static float *logits_of(const zp_model *m, bool exact, zp_kv_type kv, uint64_t offset)
{
    zp_engine *e = golden_engine(m, (zp_engine_options){ .n_ctx = N_IDS, .n_threads = 2,
                                                         .exact = exact, .kv_type = kv });
    zp_seq_options so = { .position_offset = offset };
    size_t n_vocab = m->h.n_vocab;
    float *out = malloc(N_IDS * n_vocab * sizeof *out);
    int32_t ids[N_IDS];
    zp_seq *s;
    struct rng r = rng_stream(20260101, 3);
    assert_non_null(out);
    for (size_t i = 0; i < N_IDS; i++) ids[i] = (int32_t)rng_below(&r, n_vocab);
    GOLDEN_OK(zp_seq_open(&s, e, &so, err));
    zp_item item = { s, ids, N_IDS, ZP_WANT_ALL };
    GOLDEN_OK(zp_engine_run(e, &item, 1, out, N_IDS, NULL, err));
    zp_seq_close(s);
    zp_engine_close(e);
    return out;
}

static bool same_logits(const zp_model *a, const zp_model *b, bool exact, zp_kv_type kv)
{
    float *x = logits_of(a, exact, kv, 0), *y = logits_of(b, exact, kv, 0);
    bool same = memcmp(x, y, (size_t)N_IDS * a->h.n_vocab * sizeof *x) == 0;
    free(x);
    free(y);
    return same;
}

static void test_new_parts_change_no_bit(void **state)
{
    (void)state;
    static const char *const paths[] = {
        GGUF("gguf-llama-yarn"), GGUF("gguf-qwen3"),   GGUF("gguf-gemma3"),
        GGUF("gguf-qwen2"),      GGUF("zerope-alibi"), GGUF("zerope-partial"),
        GGUF("zerope-local"),    GGUF("gguf-llama-closed"), ZP_TEST_DATA "/arch/qwen2",
    };
    for (size_t i = 0; i < ZP_COUNT(paths); i++) {
        const char *out = in_folder("extended.gguf"), *again = in_folder("again.gguf");
        uint64_t live = live_bytes();
        GOLDEN_OK(zp_model_extend(paths[i], out, &both, err));
        GOLDEN_OK(zp_model_extend(paths[i], again, &both, err));
        assert_int_equal(live_bytes(), live);
        assert_same_file(out, again);
        zp_model *a = open_model(paths[i]), *b = open_model(out);
        assert_true(b->h.ours && b->structure.weight && position_has_gate(&b->position));
        if (!same_logits(a, b, true, ZP_KV_F32) || !same_logits(a, b, false, ZP_KV_Q8) ||
            !same_logits(a, b, false, ZP_KV_BF16))
            fail_msg("%s: other logits", paths[i]);
        zp_model_close(a);
        zp_model_close(b);
    }
}

static void test_as_many_layers_listen_as_asked(void **state)
{
    (void)state;
    zp_model *m = open_model(GGUF("gguf-gemma3"));
    uint32_t all = m->h.n_layer, n;
    static const char *const wrong[] = { "0", "none", "99", "-1", "2x", "" };
    assert_int_equal(all, 7);
    for (size_t i = 0; i < ZP_COUNT(wrong); i++)
        REFUSED(extend_head_layers(m, wrong[i], &n, err), ZP_USAGE, wrong[i]);
    GOLDEN_OK(extend_head_layers(m, "all", &n, err));
    assert_int_equal(n, all);
    for (uint32_t want = 1; want <= all; want++) {
        char size[8];
        snprintf(size, sizeof size, "%u", want);
        zp_extend_options o = { .structure_head = true, .head_size = size };
        GOLDEN_OK(zp_model_extend(GGUF("gguf-gemma3"), in_folder("sized.gguf"), &o, err));
        zp_model *x = open_model(in_folder("sized.gguf"));
        uint32_t listen = 0, last = 0;
        for (uint32_t l = 0; l < all; l++)
            if (structhead_bias(&x->structure, l)) listen++, last = l;
        assert_int_equal(listen, want);
        assert_int_equal(last, all - 1);
        assert_int_equal(structhead_count(&x->structure),
                         9 * m->h.d_model + 8 * want * m->h.n_head);
        assert_false(position_has_gate(&x->position));
        zp_model_close(x);
    }
    zp_model_close(m);
}

/* By itself a head takes at most 0.3 % of the parameters, or one layer where that is more. */
static void test_size_by_itself_is_small(void **state)
{
    (void)state;
    zp_model *m = open_model(GGUF("gguf-gemma3"));
    uint64_t before = m->n_params;
    for (uint64_t params = 100; params < (uint64_t)1 << 40; params *= 3) {
        uint32_t n;
        m->n_params = params;
        GOLDEN_OK(extend_head_layers(m, params % 2 ? "auto" : NULL, &n, err));
        uint64_t head = 9 * m->h.d_model + 8 * (uint64_t)n * m->h.n_head;
        assert_true(n >= 1 && n <= m->h.n_layer);
        assert_true(n == 1 || (double)head <= 0.003 * (double)params);
    }
    m->n_params = before;
    zp_model_close(m);
}

static void test_what_is_there_is_not_added(void **state)
{
    (void)state;
    const char *out = in_folder("none.gguf");
    zp_extend_options o = { .position_gate = true };
    REFUSED(zp_model_extend(GGUF("zerope-gate"), out, &o, err), ZP_USAGE, "has position gates");
    o = (zp_extend_options){ .structure_head = true };
    REFUSED(zp_model_extend(GGUF("zerope-struct"), out, &o, err), ZP_USAGE, "has a structure head");
    GOLDEN_OK(zp_model_extend(GGUF("zerope-gate"), out, &o, err));
    REFUSED(zp_model_extend(GGUF("zerope-gate"), out, NULL, err), ZP_USAGE, "nothing to extend");
    o = (zp_extend_options){ .position_gate = true, .head_size = "all" };
    REFUSED(zp_model_extend(GGUF("gguf-qwen2"), out, &o, err), ZP_USAGE, "size");
}

/* ---- files ----------------------------------------------------------------------------------- */

/* A model's file with a tensor taken out, or put in (n values of `value`), as one that opens. */
static zp_status open_changed(const char *path, const char *out_of_it, const char *in,
                              uint64_t ne0, uint64_t ne1, float value, zp_err *failure)
{
    struct gguf g;
    struct gguf_edit e;
    zp_model *m = NULL;
    float values[1024];
    const uint64_t ne[] = { ne0, ne1 };
    for (size_t i = 0; i < ne0 * ne1; i++) values[i] = value;
    GOLDEN_OK(gguf_open(&g, path, err));
    GOLDEN_OK(gguf_edit_init(&e, &g, err));
    if (out_of_it) assert_true(gguf_edit_remove_tensor(&e, out_of_it));
    if (in) GOLDEN_OK(gguf_edit_set_tensor_f32(&e, in, 2, ne, values, err));
    GOLDEN_OK(gguf_edit_write(&e, in_folder("changed.gguf"), err));
    gguf_edit_free(&e);
    gguf_close(&g);
    zp_status status = zp_model_open(&m, in_folder("changed.gguf"), NULL, failure);
    zp_model_close(m);
    return status;
}

static void test_half_a_head_is_refused(void **state)
{
    (void)state;
    const char *path = GGUF("zerope-struct");
    REFUSED(open_changed(path, "struct_head.weight", NULL, 0, 0, 0, err), ZP_BAD_FILE,
            "half a structure head");
    REFUSED(open_changed(path, "struct_head.gate", NULL, 0, 0, 0, err), ZP_BAD_FILE,
            "struct_head.gate is missing");
    GOLDEN_OK(open_changed(path, "blk.0.struct_bias", NULL, 0, 0, 0, err)); /* layer 2 listens */
    REFUSED(open_changed(GGUF("zerope-local"), NULL, "blk.0.struct_bias", 8, 4, 1, err),
            ZP_BAD_FILE, "half a structure head");
}

static void test_parts_of_another_shape_are_refused(void **state)
{
    (void)state;
    const char *path = GGUF("zerope-struct");
    static const float bad[] = { NAN, INFINITY, 2e6f };
    REFUSED(open_changed(path, NULL, "struct_head.weight", 8, 32, 1, err), ZP_BAD_FILE,
            "expected f32 32 x 8");
    REFUSED(open_changed(path, NULL, "struct_head.gate", 31, 1, 1, err), ZP_BAD_FILE,
            "expected f32 32 x 1");
    REFUSED(open_changed(path, NULL, "blk.2.struct_bias", 8, 3, 1, err), ZP_BAD_FILE,
            "expected f32 8 x 4");
    REFUSED(open_changed(path, NULL, "blk.2.pos_gate.weight", 4, 8, 0, err), ZP_BAD_FILE,
            "expected f32 8 x 4");
    for (size_t i = 0; i < ZP_COUNT(bad); i++) {
        REFUSED(open_changed(path, NULL, "blk.2.struct_bias", 8, 4, bad[i], err), ZP_BAD_FILE,
                "blk.2.struct_bias holds");
        REFUSED(open_changed(path, NULL, "blk.2.pos_gate.weight", 8, 4, bad[i], err), ZP_BAD_FILE,
                "blk.2.pos_gate.weight");
    }
    REFUSED(open_changed(path, NULL, "blk.2.pos_gate.weight", 8, 4, 2.0f, err), ZP_BAD_FILE,
            "add up to 16");
    GOLDEN_OK(open_changed(path, NULL, "blk.2.pos_gate.weight", 8, 4, 1.5f, err));
}

static void test_other_commands_say_what_they_cannot(void **state)
{
    (void)state;
    char *json = NULL;
    static const char *const targets[] = { "stock-gguf", "hf" };
    for (size_t i = 0; i < ZP_COUNT(targets); i++) {
        REFUSED(zp_export_run(GGUF("zerope-struct"), targets[i], in_folder("stock"), NULL, &json,
                              err), ZP_UNSUPPORTED, "structure head");
        REFUSED(zp_export_run(GGUF("zerope-gate"), targets[i], in_folder("stock"), NULL, &json,
                              err), ZP_UNSUPPORTED, "pos_gate");
    }
    REFUSED(zp_scan_run(GGUF("zerope-struct"), ZP_TEST_DATA "/prose.txt", NULL, in_folder("scan"),
                        err),
            ZP_UNSUPPORTED, "before a structure head is added");
}

/* The gate reads positions, the structure head does not. */
static void test_offsets_move_gates_alone(void **state)
{
    (void)state;
    zp_extend_options o = { .structure_head = true };
    GOLDEN_OK(zp_model_extend(GGUF("gguf-granite-none"), in_folder("free.gguf"), &o, err));
    GOLDEN_OK(open_changed(in_folder("free.gguf"), NULL, "blk.1.struct_bias", 8, 4, 2, err));
    zp_model *m = open_model(in_folder("changed.gguf"));
    size_t n = (size_t)N_IDS * m->h.n_vocab;
    float *here = logits_of(m, false, ZP_KV_BF16, 0), *far = logits_of(m, false, ZP_KV_BF16, 777);
    assert_memory_equal(here, far, n * sizeof *here);
    free(here), free(far);
    zp_model_close(m);
    GOLDEN_OK(open_changed(in_folder("free.gguf"), NULL, "blk.1.pos_gate.weight", 8, 4, 0.3f, err));
    m = open_model(in_folder("changed.gguf"));
    assert_false(position_is_free(&m->position, ZP_MODE_FULL));
    here = logits_of(m, false, ZP_KV_BF16, 0), far = logits_of(m, false, ZP_KV_BF16, 777);
    assert_memory_not_equal(here, far, n * sizeof *here);
    free(here), free(far);
    zp_model_close(m);
}

/* ---- runs ------------------------------------------------------------------------------------ */

static struct train_fixture fixture;
static char model_path[128], tokens_path[128], plain_path[128];

static int start(void **state)
{
    static const size_t n_words[] = { 30, 30, 30 };
    static const char config[] =
        "{\"n_layer\":2,\"d_model\":32,\"n_head\":4,\"n_kv\":2,\"d_head\":8,\"d_ff\":48,"
        "\"n_ctx\":64,\"position\":\"none\"}";
    make_folder(state);
    fixture_open(&fixture, 300, n_words, 3);
    snprintf(plain_path, sizeof plain_path, "%s", in_folder("plain.gguf"));
    snprintf(model_path, sizeof model_path, "%s", in_folder("model.gguf"));
    snprintf(tokens_path, sizeof tokens_path, "%s", in_folder("structured.zpt"));
    fixture_structured_corpus(tokens_path, fixture.tokenizer, 12);
    FINE(newmodel_write(config, "config", in_folder("fixture.gguf"), 7, plain_path, err));
    FINE(zp_model_extend(plain_path, model_path, &both, err));
    return 0;
}

static int stop(void **state)
{
    fixture_close(&fixture);
    return remove_folder(state);
}

static zp_train_options few_steps(void)
{
    return (zp_train_options){ .tokens = 12 * 4 * 48, .n_ctx = 48, .batch_rows = 4,
                               .micro_batches = 2, .learning_rate = 0.02, .learn = "parts",
                               .n_threads = 2, .seed = 5, .save_every = 5 };
}

static float *values_of(const char *path, struct netparam *p, zp_model **m)
{
    *m = open_model(path);
    FINE(netparam_open(p, *m, err));
    float *w = test_malloc(p->n * sizeof *w);
    FINE(netparam_read(p, w, err));
    return w;
}

/* Which tensors a run has moved: those with one of the parts in their name, each of them, and no
 * other. */
static void check_moved(const char *path, const char *const *parts, size_t n_parts)
{
    struct netparam before, after;
    zp_model *a, *b;
    float *x = values_of(model_path, &before, &a), *y = values_of(path, &after, &b);
    assert_int_equal(before.n_tensors, after.n_tensors);
    for (size_t i = 0; i < before.n_tensors; i++) {
        const struct netparam_tensor *t = &before.tensors[i];
        bool same = memcmp(x + t->at, y + t->at, t->n * sizeof *x) == 0, named = false;
        for (size_t k = 0; k < n_parts; k++) named |= strstr(t->name, parts[k]) != NULL;
        if (same == named) fail_msg("%s: %s", t->name, same ? "has not moved" : "has moved");
    }
    test_free(x);
    test_free(y);
    netparam_close(&before);
    netparam_close(&after);
    zp_model_close(a);
    zp_model_close(b);
}

static void test_nothing_but_the_parts_learns(void **state)
{
    (void)state;
    static const char *const gate[] = { ".pos_gate." }, *const head[] = { "struct_" };
    static const char *const parts[] = { ".pos_gate.", "struct_" };
    static const struct {
        const char *learn, *const *parts;
        size_t n;
    } cases[] = { { "gate", gate, 1 }, { "structure", head, 1 }, { "parts", parts, 2 } };
    for (size_t i = 0; i < ZP_COUNT(cases); i++) {
        zp_train_options o = few_steps();
        o.learn = cases[i].learn;
        FINE(zp_train_run(model_path, tokens_path, in_folder("learned.gguf"), &o, NULL, err));
        check_moved(in_folder("learned.gguf"), cases[i].parts, cases[i].n);
    }
}

static bool stop_at_seven(void *arg, const char *phase, uint64_t done, uint64_t total)
{
    (void)arg, (void)total;
    return strcmp(phase, "train") != 0 || done < 7;
}

static void test_runs_give_the_same_bits(void **state)
{
    (void)state;
    const char *one = in_folder("one.gguf"), *two = in_folder("two.gguf");
    zp_train_options o = few_steps();
    FINE(zp_train_run(model_path, tokens_path, one, &o, NULL, err));
    o.n_threads = 3, o.recompute = true;
    FINE(zp_train_run(model_path, tokens_path, two, &o, NULL, err));
    assert_same_file(one, two);
    o.run = in_folder("run"), o.progress = (zp_progress){ .fn = stop_at_seven };
    REFUSED(zp_train_run(model_path, tokens_path, two, &o, NULL, err), ZP_INTERRUPTED, "");
    o.progress = (zp_progress){ 0 }, o.resume = true, o.tag_dropout = 0.5;
    REFUSED(zp_train_run(model_path, tokens_path, two, &o, NULL, err), ZP_BAD_INPUT,
            "tag-dropout");
    o.tag_dropout = 0;
    FINE(zp_train_run(model_path, tokens_path, two, &o, NULL, err));
    assert_same_file(one, two);
}

static double member(const char *json, const char *name)
{
    const char *at = strstr(json, name);
    assert_non_null(at);
    return strtod(at + strlen(name) + 2, NULL);
}

static void test_detectors_learn_from_the_documents(void **state)
{
    (void)state;
    char *json;
    zp_train_options o = few_steps();
    o.tokens = 100 * 4 * 48;
    FINE(zp_train_run(model_path, tokens_path, in_folder("d.gguf"), &o, &json, err));
    double after = member(json, "\"tag_loss\"");
    assert_true(after > 0 && after < 0.8); /* at first 8 ln(4/3) = 2.3: all detectors say 1/4 */
    assert_true(member(json, "\"list\"") > 10 && member(json, "\"section\"") == 0);
    assert_true(member(json, "\"unstructured_tokens\"") > 0);
    zp_free(json);
    o.tokens = 4 * 48, o.tag_weight = -1;
    FINE(zp_train_run(model_path, tokens_path, in_folder("d.gguf"), &o, &json, err));
    assert_null(strstr(json, "tag_loss"));
    zp_free(json);
}

static void test_wishes_without_a_part_are_refused(void **state)
{
    (void)state;
    static const char *const learn[] = { "gate", "structure", "parts" };
    const char *out = in_folder("no.gguf");
    zp_train_options o = few_steps();
    for (size_t i = 0; i < ZP_COUNT(learn); i++) {
        o.learn = learn[i];
        REFUSED(zp_train_run(plain_path, tokens_path, out, &o, NULL, err), ZP_USAGE,
                "--structure-head");
    }
    o.learn = "heads";
    REFUSED(zp_train_run(model_path, tokens_path, out, &o, NULL, err), ZP_USAGE, "'heads'");
    o.learn = "parts", o.tag_dropout = 1;
    REFUSED(zp_train_run(model_path, tokens_path, out, &o, NULL, err), ZP_USAGE, "dropout");
    o.tag_dropout = (double)NAN;
    REFUSED(zp_train_run(model_path, tokens_path, out, &o, NULL, err), ZP_USAGE, "dropout");
    o.tag_dropout = 0, o.tag_weight = (double)NAN;
    REFUSED(zp_train_run(model_path, tokens_path, out, &o, NULL, err), ZP_USAGE, "weight of tags");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_new_parts_change_no_bit),
        cmocka_unit_test(test_as_many_layers_listen_as_asked),
        cmocka_unit_test(test_size_by_itself_is_small),
        cmocka_unit_test(test_what_is_there_is_not_added),
        cmocka_unit_test(test_half_a_head_is_refused),
        cmocka_unit_test(test_parts_of_another_shape_are_refused),
        cmocka_unit_test(test_other_commands_say_what_they_cannot),
        cmocka_unit_test(test_offsets_move_gates_alone),
        cmocka_unit_test(test_nothing_but_the_parts_learns),
        cmocka_unit_test(test_runs_give_the_same_bits),
        cmocka_unit_test(test_detectors_learn_from_the_documents),
        cmocka_unit_test(test_wishes_without_a_part_are_refused),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
