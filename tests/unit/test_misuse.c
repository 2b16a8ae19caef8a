/* test_misuse.c: calls with values outside their range or with NULL in place of objects are refused
 * before any work, as usage errors. */
#include "golden.h"

#include <limits.h>
#include <unistd.h>

#include <zerope/evap.h>

#include "model/engine.h"
#include "in_folder.h"

#define MODEL ZP_TEST_DATA "/arch/gguf/gguf-llama-linear.gguf"
#define TEXT ZP_TEST_DATA "/prose.txt"

static zp_model *model;

static void refuse(zp_status status, const zp_err *err, const char *part)
{
    if (status != ZP_USAGE) fail_msg("%s: %s", zp_status_name(status), err->message);
    if (!strstr(err->message, part)) fail_msg("'%s' lacks '%s'", err->message, part);
}

static void refuse_engine(zp_engine_options o, const char *part)
{
    zp_engine *e = NULL;
    zp_err err = { 0 };
    o.n_ctx = 64;
    refuse(zp_engine_open(&e, model, &o, &err), &err, part);
    assert_null(e);
}

static void engine_options_outside_their_enumeration(void **state)
{
    (void)state;
    static const int outside[] = { -1, ZP_LEVEL_AVX512BF16 + 1, 77, INT_MAX, INT_MIN };
    for (size_t i = 0; i < ZP_COUNT(outside); i++) {
        refuse_engine((zp_engine_options){ .kv_type = (zp_kv_type)outside[i] }, "KV type");
        refuse_engine((zp_engine_options){ .level = (zp_level)outside[i] }, "kernel level");
    }
    refuse_engine((zp_engine_options){ .kv_type = (zp_kv_type)(ZP_KV_Q8 + 1) }, "KV type 4");
    refuse_engine((zp_engine_options){ .exact = true, .kv_type = ZP_KV_BF16 }, "f32");
}

/* 2^24 positions times 2^8 sequences is 0 in 32 bits. */
static void products_of_options_do_not_wrap(void **state)
{
    (void)state;
    zp_engine_options o = { .n_ctx = 1u << 24, .n_seq = 1u << 8, .kv_bytes = 1 << 20 };
    struct engine_plan plan;
    GOLDEN_OK(engine_plan(model, &o, &plan, err));
    assert_int_equal(o.micro_batch, 512);
    zp_err refused = { 0 };
    o.n_seq = UINT32_MAX;
    assert_int_equal(engine_plan(model, &o, &plan, &refused), ZP_BAD_INPUT);
}

static void modes_outside_their_enumeration(void **state)
{
    (void)state;
    static const int outside[] = { -1, ZP_MODE_AUTO + 1, 9, INT_MAX, INT_MIN };
    zp_engine *e = golden_engine(model, (zp_engine_options){ .n_ctx = 64 });
    for (size_t i = 0; i < ZP_COUNT(outside); i++) {
        zp_seq_options o = { .mode = (zp_mode)outside[i] };
        zp_seq *s = NULL;
        zp_err err = { 0 };
        refuse(zp_seq_open(&s, e, &o, &err), &err, "position mode");
        assert_null(s);
    }
    zp_engine_close(e);
}

static void items_that_lack_a_part(void **state)
{
    (void)state;
    static const int32_t ids[] = { 1, 2, 3 };
    zp_engine *e = golden_engine(model, (zp_engine_options){ .n_ctx = 64, .n_seq = 2 });
    zp_seq *s = NULL;
    GOLDEN_OK(zp_seq_open(&s, e, NULL, err));
    float *logits = malloc(3 * model->h.n_vocab * sizeof *logits);
    assert_non_null(logits);
    const struct {
        zp_item item;
        bool room;
        const char *part;
    } cases[] = {
        { { NULL, ids, 3, ZP_WANT_NONE }, true, "the sequence is missing" },
        { { NULL, ids, 0, ZP_WANT_NONE }, true, "the sequence is missing" },
        { { s, NULL, 3, ZP_WANT_NONE }, true, "the ids are missing" },
        { { s, ids, 3, (zp_want)55 }, true, "wanted logits 55" },
        { { s, ids, 3, (zp_want)-1 }, true, "wanted logits -1" },
        { { s, ids, 3, ZP_WANT_ALL }, false, "3 logit rows wanted" },
        { { s, ids, 3, ZP_WANT_LAST }, false, "1 logit rows wanted" },
    };
    for (size_t i = 0; i < ZP_COUNT(cases); i++) {
        zp_err err = { 0 };
        zp_status status = zp_engine_run(e, &cases[i].item, 1, cases[i].room ? logits : NULL, 3,
                                         NULL, &err);
        refuse(status, &err, cases[i].part);
        assert_int_equal(zp_seq_length(s), 0);
        zp_item pair[] = { { s, ids, 3, ZP_WANT_LAST }, cases[i].item }; /* behind a good one */
        if (pair[1].seq == s) continue;
        zp_err second = { 0 };
        refuse(zp_engine_run(e, pair, 2, logits, 3, NULL, &second), &second, cases[i].part);
        assert_int_equal(zp_seq_length(s), 0);
    }
    zp_err none = { 0 };
    refuse(zp_engine_run(e, NULL, 1, logits, 3, NULL, &none), &none, "items is missing");
    zp_item nothing = { s, NULL, 0, ZP_WANT_ALL };
    GOLDEN_OK(zp_engine_run(e, &nothing, 1, NULL, 0, NULL, err));
    free(logits);
    zp_seq_close(s);
    zp_engine_close(e);
}

static void budgets_that_are_none(void **state)
{
    (void)state;
    static const double budgets[] = { 0.0, -0.0, -1.0, NAN, INFINITY, -INFINITY };
    zp_scan_options scan = { .n_ctx = 64, .n_windows_local = 2, .n_windows_kl = 1 };
    GOLDEN_OK(zp_scan_run(MODEL, TEXT, &scan, in_folder("s.json"), err));
    for (size_t i = 0; i < ZP_COUNT(budgets); i++) {
        zp_err refused[2] = { 0 };
        zp_plan_options p = { .budget_kl = budgets[i] };
        zp_evaporate_options e = { .scan = scan, .plan = p };
        refuse(zp_plan_run(in_folder("s.json"), &p, in_folder("p.json"), &refused[0]), &refused[0],
               "budget");
        refuse(zp_evaporate_run(MODEL, TEXT, &e, in_folder("o.gguf"), NULL, &refused[1]),
               &refused[1], "budget");
    }
    assert_int_not_equal(access(in_folder("p.json"), F_OK), 0);
}

/* The first ones stop before any work, for want of a budget or through the progress. */
static void options_and_documents_may_be_null(void **state)
{
    (void)state;
    zp_err refused[6] = { 0 };
    zp_scan_options scan = { .n_ctx = 64, .n_windows_local = 2, .n_windows_kl = 1 };
    zp_evaporate_options e = { .scan = scan, .plan = { .budget_kl = 1.0 }, .n_windows_check = 2 };
    zp_verify_options v = { .n_ctx = 64, .budget_kl = 1.0, .quick = true };
    refuse(zp_plan_run(in_folder("s.json"), NULL, in_folder("p.json"), &refused[0]), &refused[0],
           "budget");
    refuse(zp_evaporate_run(MODEL, TEXT, NULL, in_folder("o.gguf"), NULL, &refused[1]), &refused[1],
           "budget");
    assert_int_equal(zp_scan_run("none.gguf", TEXT, NULL, in_folder("x"), &refused[2]),
                     ZP_BAD_INPUT);
    assert_int_equal(zp_verify_run("none.gguf", MODEL, TEXT, NULL, NULL, &refused[3]),
                     ZP_BAD_INPUT);
    GOLDEN_OK(zp_evaporate_run(MODEL, TEXT, &e, in_folder("o.gguf"), NULL, err));
    zp_status checked = zp_verify_run(in_folder("o.gguf"), MODEL, TEXT, &v, NULL, &refused[4]);
    if (checked != ZP_OK && checked != ZP_VERIFY) fail_msg("%s", refused[4].message);
    GOLDEN_OK(zp_export_run(in_folder("o.gguf"), "gguf", in_folder("e.gguf"), NULL, NULL, err));
    assert_int_equal(zp_export_run(MODEL, "gguf", in_folder("n.gguf"), NULL, NULL, &refused[5]),
                     ZP_BAD_INPUT); /* found out in the middle */
    GOLDEN_OK(zp_quantize(MODEL, in_folder("q.gguf"), "Q8_0", NULL, NULL, err));
    GOLDEN_OK(zp_inspect_json(model, NULL, NULL, err));
    GOLDEN_OK(zp_features_json(NULL, err));
    GOLDEN_OK(zp_doctor_json(NULL, 1, true, err));
    zp_ppl_options ppl = { .n_ctx = 64, .max_windows = 1 };
    GOLDEN_OK(zp_ppl_json(model, NULL, TEXT, &ppl, NULL, err));
    zp_engine *engine = golden_engine(model, (zp_engine_options){ .n_ctx = 64 });
    GOLDEN_OK(zp_logits_json(engine, (const int32_t[]){ 1, 2 }, 2, NULL, NULL, err));
    zp_engine_close(engine);
}

static int setup(void **state)
{
    if (make_folder(state) != 0) return -1;
    return zp_model_open(&model, MODEL, NULL, NULL) == ZP_OK ? 0 : -1;
}

static int teardown(void **state)
{
    zp_model_close(model);
    return remove_folder(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(engine_options_outside_their_enumeration),
        cmocka_unit_test(products_of_options_do_not_wrap),
        cmocka_unit_test(modes_outside_their_enumeration),
        cmocka_unit_test(items_that_lack_a_part),
        cmocka_unit_test(budgets_that_are_none),
        cmocka_unit_test(options_and_documents_may_be_null),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
