/* test_scheduler_models.c: jobs of a real model in company give what they give alone. The small
 * models: test_scheduler_bits.c. */
#include "sched_harness.h"

enum { N_JOBS = 10, N_CTX = 700 };

static int32_t *prose_ids(const zp_model *m, size_t least)
{
    static char text[20000];
    FILE *f = fopen(ZP_TEST_DATA "/prose.txt", "rb");
    int32_t *ids = NULL;
    size_t n = 0;
    assert_non_null(f);
    size_t size = fread(text, 1, sizeof text, f);
    fclose(f);
    GOLDEN_OK(zp_tokenize(m, text, size, ZP_TOKENS_BOS, &ids, &n, err));
    assert_true(n >= least);
    return ids;
}

/* Prompts of 1 to 500 tokens, half of which begin alike; greedy and drawn; one with answers that
 * fork, one that is cancelled. */
static void test_smollm2(void **state)
{
    struct harness *h = harness_open((struct sched_options){ .step_tokens = 96 }, false);
    struct sched_job jobs[N_JOBS];
    zp_model *m = golden_model(SMOLLM2_FILE);
    int32_t *ids = prose_ids(m, 2000);
    zp_engine *e = golden_engine(m, (zp_engine_options){ .n_ctx = N_CTX, .n_seq = 6,
                                                         .n_threads = 2, .prefix_cache = true });
    zp_engine *alone = golden_engine(m, (zp_engine_options){ .n_ctx = N_CTX, .n_threads = 1 });
    (void)state;
    harness_engine(h, 0, e);
    for (size_t i = 0; i < N_JOBS; i++) {
        jobs[i] = (struct sched_job){ .prompt = ids + (i % 2 ? 0 : i * 100),
                                      .n_prompt = 1 + i * 173 % 500,
                                      .n_predict = 16,
                                      .n_choices = i == 3 ? 3 : 1 };
        if (i % 3 == 0)
            jobs[i].sampler =
                (zp_sampler_options){ .temperature = 0.8f, .top_p = 0.95f, .seed = i };
        harness_submit(h, jobs[i]);
    }
    harness_until(h, SCHED_TOKEN, &h->jobs[4]);
    sched_cancel(h->s, h->jobs[4].id);
    harness_finish(h);
    for (size_t i = 0; i < N_JOBS; i++)
        for (uint32_t k = 0; k < (jobs[i].n_choices ? jobs[i].n_choices : 1) && i != 4; k++)
            harness_compare(alone, &jobs[i], &h->jobs[i], k, ZP_MODE_FULL);
    assert_int_equal(h->jobs[4].last.kind, SCHED_CANCELLED);
    assert_true(harness_figures(h).reused_tokens > 0);
    harness_close(h);
    zp_free(ids);
    zp_engine_close(e);
    zp_engine_close(alone);
    zp_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_smollm2) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
