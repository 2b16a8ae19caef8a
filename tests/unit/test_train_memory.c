/* test_train_memory.c: the memory of training runs: what is planned before any of it is taken is
 * what is counted, tag by tag, for runs of every kind; what does not learn stays in its file, and a
 * quantised model's adapters learn what those of its de-quantised copy do; runs beyond a limit are
 * refused with both numbers. */
#include "golden.h"
#include "in_folder.h"
#include "train_fixture.h"

#include <sys/stat.h>

#include <zerope/evap.h>
#include <zerope/train.h>

#include "live_bytes.h"
#include "train/netparam.h"
#include "train/newmodel.h"
#include "train/trainplan.h"

enum { CTX = 48, N_STEPS = 3, D = 256 };

static struct train_fixture fixture;
static const char *tokens_path;

/* Rows of 256: every block type fits. */
static const char *new_model(const char *kind)
{
    char config[256];
    const char *path = in_folder(kind);
    snprintf(config, sizeof config,
             "{\"n_layer\":2,\"d_model\":%d,\"n_head\":4,\"n_kv\":2,\"d_head\":64,\"d_ff\":256,"
             "\"n_ctx\":64,\"position\":\"%s\"}", D, kind);
    FINE(newmodel_write(config, "config", in_folder("fixture.gguf"), 7, path, err));
    return path;
}

static const char *of_type(const char *model, const char *type)
{
    const char *path = in_folder(type);
    FINE(zp_quantize(model, path, type, NULL, NULL, err));
    return path;
}

static zp_train_options usual(void)
{
    return (zp_train_options){ .tokens = N_STEPS * 4 * CTX, .n_ctx = CTX, .batch_rows = 4,
                               .n_threads = 2, .eval_windows = 3 };
}

static json_t *document(char *json)
{
    json_t *root = json_loads(json, 0, NULL);
    assert_non_null(root);
    zp_free(json);
    return root;
}

static json_t *run(const char *model, const zp_train_options *o)
{
    char *json;
    FINE(zp_train_run(model, tokens_path, in_folder("out.gguf"), o, &json, err));
    return document(json);
}

static json_int_t bytes_of(const json_t *report, const char *which, const char *tag)
{
    const json_t *memory = json_object_get(report, "memory");
    return json_integer_value(json_object_get(json_object_get(memory, which), tag));
}

/* T1; and everything is given back. */
static void check_report(json_t *report, const char *what, uint64_t before)
{
    static const char *const tags[] = { "weights", "parameters", "gradients", "optimiser",
                                        "activations", "products" };
    for (size_t i = 0; i < ZP_COUNT(tags); i++) {
        json_int_t predicted = bytes_of(report, "predicted", tags[i]);
        json_int_t counted = bytes_of(report, "counted", tags[i]);
        if (predicted != counted)
            fail_msg("%s: %s: %lld bytes predicted, %lld counted", what, tags[i],
                     (long long)predicted, (long long)counted);
    }
    json_int_t predicted = bytes_of(report, "predicted", "total");
    json_int_t rest = bytes_of(report, "counted", "total") - predicted;
    if (predicted <= 0 || rest < 0 || rest > TRAINPLAN_REST)
        fail_msg("%s: %lld bytes predicted, %lld more counted", what, (long long)predicted,
                 (long long)rest);
    json_decref(report);
    assert_int_equal(live_bytes(), before);
}

static void check_run(const char *model, const zp_train_options *o, const char *what)
{
    uint64_t before = live_bytes();
    check_report(run(model, o), what, before);
}

/* ---- predicted and counted ------------------------------------------------------------------- */

static void test_models_of_every_kind(void **state)
{
    (void)state;
    static const char *const kinds[] = { "rope", "alibi", "t5", "mlp", "none" };
    for (size_t i = 0; i < ZP_COUNT(kinds); i++) {
        zp_train_options o = usual();
        o.n_threads = 1 + (uint32_t)i % 3;
        o.recompute = i % 2;
        o.micro_batches = i > 2 ? 2 : 1;
        check_run(new_model(kinds[i]), &o, kinds[i]);
    }
}

static bool stop_at_two(void *arg, const char *phase, uint64_t done, uint64_t total)
{
    (void)arg, (void)phase, (void)total;
    return done < 2;
}

static void test_runs_of_every_kind(void **state)
{
    (void)state;
    const char *model = new_model("rope"), *q4 = of_type(model, "Q4_K");
    zp_train_options o = usual();
    o.original = model;
    check_run(model, &o, "KL to the original");
    o.micro_batches = 2, o.recompute = true, o.task_share = 0.5;
    check_run(q4, &o, "KL of a quantised model, micro-batches, tasks");
    o.match = true, o.learn = "qk";
    check_run(model, &o, "matching");
    o = usual();
    o.learn = "qko";
    check_run(q4, &o, "queries, keys and outputs of a quantised model");
    o = usual();
    o.run = in_folder("recorded"), o.save_every = 1, o.eval_every = 1;
    check_run(model, &o, "a recorded run");
    o.run = in_folder("stopped"), o.progress.fn = stop_at_two;
    assert_int_equal(zp_train_run(model, tokens_path, in_folder("out.gguf"), &o, NULL, NULL),
                     ZP_INTERRUPTED);
    o.resume = true, o.progress.fn = NULL;
    check_run(model, &o, "a run gone on with");
}

static void test_gates_and_structure_heads(void **state)
{
    (void)state;
    static const char *const learn[] = { "all", "gate", "structure", "parts", "qk" };
    const char *out = in_folder("extended.gguf");
    zp_extend_options e = { .position_gate = true, .structure_head = true, .head_size = "all" };
    FINE(zp_model_extend(of_type(new_model("rope"), "Q4_0"), out, &e, err));
    for (size_t i = 0; i < ZP_COUNT(learn); i++) {
        zp_train_options o = usual();
        o.learn = learn[i], o.recompute = i % 2;
        check_run(out, &o, learn[i]);
    }
    zp_train_options o = usual();
    o.lora_rank = 2;
    check_run(out, &o, "adapters beside them");
}

static void test_adapters_of_every_type(void **state)
{
    (void)state;
    static const char *const types[] = { "F32", "BF16", "Q8_0", "Q4_0", "Q4_K", "Q6_K" };
    const char *model = new_model("rope");
    for (size_t i = 0; i < ZP_COUNT(types); i++) {
        zp_train_options o = usual();
        o.lora_rank = 2 + (uint32_t)i;
        o.lora_targets = i % 2 ? "q,k,v,o,gate,up,down" : "q,v";
        o.micro_batches = i % 3 ? 2 : 1;
        o.original = i == 1 ? model : NULL;
        o.adapter_out = i == 2 ? in_folder("adapters") : NULL;
        check_run(of_type(model, types[i]), &o, types[i]);
    }
}

static void test_policies(void **state)
{
    (void)state;
    static const char *const policies[] = { "abrupt", "staged", "dropout", "l1", "l0" };
    const char *model = new_model("rope"), *q4 = of_type(model, "Q4_0");
    for (size_t i = 0; i < ZP_COUNT(policies); i++) {
        char *json;
        uint64_t before = live_bytes();
        zp_anneal_options o = { .policy = policies[i], .train = usual() };
        o.train.original = model;
        o.train.lora_rank = i % 2 ? 4 : 0;
        o.pic_steps = i > 2 ? 1 : 0;
        FINE(zp_anneal_run(i % 2 ? q4 : model, tokens_path, in_folder("free.gguf"), &o, &json,
                           err));
        check_report(document(json), policies[i], before);
    }
}

/* ---- what stays in the file ------------------------------------------------------------------ */

/* The base costs what its file has, and one matrix: nothing for each parameter. */
static void test_the_base_of_adapters_is_not_widened(void **state)
{
    (void)state;
    const char *model = new_model("rope"), *q4 = of_type(model, "Q4_K");
    zp_train_options o = usual();
    struct stat file;
    o.memory_plan = true;
    json_t *whole = run(q4, &o);
    o.lora_rank = 2;
    json_t *adapters = run(q4, &o);
    assert_int_equal(stat(q4, &file), 0);
    json_int_t floats = bytes_of(whole, "predicted", "parameters");
    json_int_t base = bytes_of(adapters, "predicted", "weights");
    assert_int_equal(bytes_of(whole, "predicted", "weights"), 0);
    assert_true(base < file.st_size && base > file.st_size / 2);
    assert_true(bytes_of(adapters, "predicted", "parameters") < floats / 20);
    assert_true(bytes_of(adapters, "predicted", "gradients") < floats / 20);
    json_int_t room = bytes_of(adapters, "predicted", "activations") -
                      bytes_of(whole, "predicted", "activations");
    assert_int_equal(room, D * D * (json_int_t)sizeof(float));
    json_decref(whole);
    json_decref(adapters);
}

/* Values of all tensors, whatever their types in the file. */
static float *values_of(const char *path, size_t *n)
{
    struct netparam p;
    zp_model *m;
    FINE(zp_model_open(&m, path, NULL, err));
    FINE(netparam_open(&p, m, err));
    float *w = test_calloc(p.n, sizeof *w);
    FINE(netparam_read(&p, w, err));
    *n = p.n;
    netparam_close(&p);
    zp_model_close(m);
    return w;
}

static void assert_same_values(const char *a, const char *b, const char *what)
{
    size_t n, n_b;
    float *x = values_of(a, &n), *y = values_of(b, &n_b);
    assert_int_equal(n, n_b);
    if (memcmp(x, y, n * sizeof *x) != 0) fail_msg("%s: other values", what);
    test_free(x);
    test_free(y);
}

static void test_quantised_bases_learn_what_widened_ones_do(void **state)
{
    (void)state;
    static const char *const types[] = { "F16", "BF16", "Q8_0", "Q4_0", "Q5_1", "Q4_K", "Q6_K" };
    static const char *const learn[] = { "all", "qk" };
    const char *model = new_model("rope"), *one = in_folder("one.gguf"),
               *two = in_folder("two.gguf"), *wide = in_folder("wide.gguf");
    for (size_t i = 0; i < ZP_COUNT(types); i++)
        for (size_t k = 0; k < ZP_COUNT(learn); k++) {
            zp_train_options o = usual();
            const char *narrow = of_type(model, types[i]);
            o.original = i % 2 ? narrow : NULL;
            if (k == 0) o.lora_rank = 3, o.lora_targets = i % 2 ? "q,v" : "q,k,o,gate,down";
            else o.learn = learn[k];
            FINE(zp_quantize(narrow, wide, "F32", NULL, NULL, err));
            FINE(zp_train_run(narrow, tokens_path, one, &o, NULL, err));
            FINE(zp_train_run(wide, tokens_path, two, &o, NULL, err));
            assert_same_values(one, two, types[i]);
        }
}

/* ---- limits ---------------------------------------------------------------------------------- */

static void test_a_run_beyond_its_limit_is_refused(void **state)
{
    (void)state;
    const char *model = new_model("rope"), *out = in_folder("refused.gguf");
    zp_train_options o = usual();
    zp_err error = { 0 };
    uint64_t before = live_bytes();
    o.memory_plan = true;
    json_t *plan = run(model, &o);
    json_int_t total = bytes_of(plan, "predicted", "total");
    assert_null(json_object_get(json_object_get(plan, "memory"), "counted"));
    json_decref(plan);
    o.memory_plan = false;
    o.memory = (uint64_t)total - 1;
    assert_int_equal(zp_train_run(model, tokens_path, out, &o, NULL, &error), ZP_NO_MEMORY);
    assert_non_null(strstr(error.message, "are needed to train on 4 rows of 48 tokens"));
    assert_non_null(strstr(error.message, "granted (--memory)"));
    assert_false(os_exists(out));
    assert_int_equal(live_bytes(), before);
    o.memory = (uint64_t)total;
    check_run(model, &o, "all that is granted");
}

static int open_fixture(void **state)
{
    enum { DOCS = 9 };
    static const size_t n_words[DOCS] = { 90, 40, 200, 60, 150, 30, 80, 120, 70 };
    int failed = make_folder(state);
    tokens_path = strdup(in_folder("fixture.zpt"));
    fixture_open(&fixture, 320, n_words, DOCS);
    return failed;
}

static int close_fixture(void **state)
{
    fixture_close(&fixture);
    free((void *)(uintptr_t)tokens_path);
    return remove_folder(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_models_of_every_kind),
        cmocka_unit_test(test_runs_of_every_kind),
        cmocka_unit_test(test_gates_and_structure_heads),
        cmocka_unit_test(test_adapters_of_every_type),
        cmocka_unit_test(test_policies),
        cmocka_unit_test(test_the_base_of_adapters_is_not_widened),
        cmocka_unit_test(test_quantised_bases_learn_what_widened_ones_do),
        cmocka_unit_test(test_a_run_beyond_its_limit_is_refused),
    };
    return cmocka_run_group_tests(tests, open_fixture, close_fixture);
}
