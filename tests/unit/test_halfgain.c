/* test_halfgain.c: the gain of mode half is measured where there is a limit, a plan and evidence,
 * and is told as unknown, with a reason, where there is not. Its size is the machine's affair. */
#include "half_plan.h"

#include "in_folder.h"
#include "serve/halfgain.h"

static const struct sla_options limits = { .limits[LENGTH_SHORT] = { .first_p95 = 0.3 },
                                           .limits[LENGTH_LONG] = { .total_p90 = 9 },
                                           .medium_from = 512, .long_from = 4096 };

static struct halfgain measure(const char *verified, const struct sla_options *o)
{
    struct halfgain out;
    zp_engine *e;
    zp_engine_stats before, after;
    zp_model *m = half_plan_model(in_folder("half.gguf"), "full", verified, 0);
    GOLDEN_OK(zp_engine_open(&e, m, &(zp_engine_options){ .n_ctx = 256, .n_threads = 1,
                                                          .prefix_cache = true }, err));
    zp_engine_describe(e, &before);
    halfgain_measure(e, o, &out);
    zp_engine_describe(e, &after);
    /* Nothing is taken over from another run. */
    assert_int_equal(after.tokens_reused, before.tokens_reused);
    if (out.gain[LENGTH_SHORT] > 0)
        assert_int_equal(after.tokens - before.tokens, 11 * (out.n_prompt[LENGTH_SHORT] + 16));
    zp_engine_close(e);
    zp_model_close(m);
    return out;
}

static void test_it_is_measured_where_there_is_a_limit(void **state)
{
    (void)state;
    struct halfgain h = measure("half", &limits);
    assert_true(h.gain[LENGTH_SHORT] > 0 && isfinite(h.gain[LENGTH_SHORT]));
    assert_int_equal(h.n_prompt[LENGTH_SHORT], 128);
    assert_true(h.gain[LENGTH_MEDIUM] == 0); /* no limit */
    assert_true(h.gain[LENGTH_LONG] == 0);   /* longer than the context */
    assert_string_equal(h.why, "");
    const struct sla_options none = { .medium_from = 512, .long_from = 4096 };
    h = measure("half", &none);
    assert_true(h.gain[LENGTH_SHORT] == 0 && h.n_prompt[LENGTH_SHORT] == 0);
}

static void test_without_evidence_there_is_none(void **state)
{
    (void)state;
    struct halfgain h = measure("zero", &limits);
    assert_true(h.gain[LENGTH_SHORT] == 0);
    assert_non_null(strstr(h.why, "no passing evidence for position mode half"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_it_is_measured_where_there_is_a_limit),
        cmocka_unit_test(test_without_evidence_there_is_none),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
