/* test_generate_many.c: jobs in company give what each gives alone, and what ended is kept. */
#include "golden.h"

#include "live_bytes.h"
#include "model/engine.h"

enum { N_CTX = 150, N_JOBS = 9, MOST_PROMPT = 70 };

static const char *const stops[] = { "e" };
static const zp_bias loop[] = { { 50, 4 }, { 51, 4 }, { 52, 4 } }; /* repeats itself */
static const zp_generate_options kinds[] = {
    { .n_predict = 20 },
    { .n_predict = 1, .ignore_end = true },
    { .n_predict = 40, .ignore_end = true, .n_draft = 8, .sampler = { .bias = loop, .n_bias = 3 } },
    { .n_predict = 60, .sampler = { .temperature = 0.9f, .seed = 5 } },
    { .ignore_end = true, .stop = stops, .n_stop = 1 },
};

struct fixture {
    zp_model *m;
    int32_t ids[N_JOBS * MOST_PROMPT];
    zp_job jobs[N_JOBS];
};

/* Prompts of 1 to MOST_PROMPT tokens, the options above in turn, the last job without any. */
static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    GOLDEN_OK(zp_model_open(&f->m, ZP_TEST_DATA "/arch/llama", NULL, err));
    for (size_t i = 0; i < ZP_COUNT(f->ids); i++) f->ids[i] = 30 + (int32_t)(i * 37 % 90);
    for (size_t i = 0; i < N_JOBS; i++)
        f->jobs[i] = (zp_job){ .prompt = f->ids + i * MOST_PROMPT,
                               .n_prompt = 1 + i * 23 % MOST_PROMPT,
                               .options = i + 1 < N_JOBS ? &kinds[i % ZP_COUNT(kinds)] : NULL };
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    zp_model_close(f->m);
    free(f);
    return 0;
}

static void free_result(zp_generated *r)
{
    zp_free(r->ids);
    zp_free(r->text);
    *r = (zp_generated){ 0 };
}

static void check_same(const zp_generated *a, const zp_generated *b)
{
    assert_int_equal(a->n_ids, b->n_ids);
    assert_memory_equal(a->ids, b->ids, a->n_ids * sizeof *a->ids);
    assert_string_equal(a->text, b->text);
    assert_string_equal(a->reason, b->reason);
    assert_int_equal(a->n_prompt, b->n_prompt);
    assert_int_equal(a->n_reused, 0);
}

static void test_company_changes_nothing(void **state)
{
    struct fixture *f = *state;
    static const uint32_t n_seq[] = { 1, 2, 4, 9, 20 };
    for (size_t i = 0; i < ZP_COUNT(n_seq); i++) {
        zp_engine_options o = { .n_ctx = N_CTX,
                                .n_seq = n_seq[i],
                                .n_threads = 2,
                                .micro_batch = i % 2 ? 16 : 0,
                                .kv_type = i % 2 ? ZP_KV_Q8 : ZP_KV_BF16 };
        zp_engine *e = golden_engine(f->m, o);
        GOLDEN_OK(zp_generate_many(e, NULL, f->jobs, N_JOBS, NULL, err));
        for (size_t k = 0; k < N_JOBS; k++) {
            zp_generated alone;
            zp_seq *s = NULL;
            zp_job *job = &f->jobs[k];
            GOLDEN_OK(zp_seq_open(&s, e, NULL, err));
            GOLDEN_OK(zp_generate(e, s, job->prompt, job->n_prompt, job->options, &alone, err));
            check_same(&job->result, &alone);
            free_result(&alone);
            free_result(&job->result);
            zp_seq_close(s);
        }
        zp_engine_close(e);
    }
}

enum { N_ALIKE = 5, N_PROMPT = 140, COMMON = 130 };

/* Jobs that begin alike on n_seq sequences; the first ends with its first token. */
static void check_common_beginnings(struct fixture *f, uint32_t n_seq)
{
    static const zp_generate_options o = { .n_predict = 8, .sampler = { .repeat_penalty = 1.3f } },
                                     one = { .n_predict = 1 };
    int32_t ids[N_ALIKE][N_PROMPT];
    zp_job jobs[2][N_ALIKE];
    for (size_t k = 0; k < N_ALIKE; k++) {
        memcpy(ids[k], f->ids, sizeof ids[k]);
        for (size_t i = COMMON; i < N_PROMPT; i++) ids[k][i] = f->ids[i + k + 1];
        for (int cached = 0; cached < 2; cached++)
            jobs[cached][k] = (zp_job){ ids[k], N_PROMPT, k == 0 ? &one : &o, { 0 } };
    }
    for (int cached = 0; cached < 2; cached++) {
        zp_engine *e = golden_engine(f->m, (zp_engine_options){ .n_ctx = N_CTX,
                                                                .n_seq = n_seq,
                                                                .prefix_cache = cached != 0 });
        GOLDEN_OK(zp_generate_many(e, NULL, jobs[cached], N_ALIKE, NULL, err));
        zp_engine_close(e);
    }
    for (size_t k = 0; k < N_ALIKE; k++) {
        zp_generated *plain = &jobs[0][k].result, *cached = &jobs[1][k].result;
        assert_int_equal(plain->n_prompt, N_PROMPT);
        assert_int_equal(cached->n_reused, k == 0 ? 0 : COMMON / 64 * 64);
        assert_int_equal(cached->n_reused + cached->n_prompt, N_PROMPT);
        assert_int_equal(cached->n_ids, plain->n_ids);
        assert_memory_equal(cached->ids, plain->ids, plain->n_ids * sizeof *plain->ids);
        free_result(plain);
        free_result(cached);
    }
}

/* What the first computed is taken over, also by those that could begin beside it, and answers stay
 * what they are. */
static void test_common_beginnings_are_computed_once(void **state)
{
    static const uint32_t n_seq[] = { 1, 2, N_ALIKE };
    for (size_t i = 0; i < 3; i++) check_common_beginnings(*state, n_seq[i]);
}

/* A KV budget for two of five: the others wait, and nothing fails. */
static void test_jobs_wait_for_pages(void **state)
{
    enum { N = 5 };
    struct fixture *f = *state;
    static const zp_generate_options o = { .n_predict = 40, .ignore_end = true };
    zp_generated free_of_want[N];
    for (int scarce = 0; scarce < 2; scarce++) {
        zp_engine_options options = { .n_ctx = N_CTX, .n_seq = N };
        struct engine_plan plan;
        zp_job jobs[N];
        GOLDEN_OK(engine_plan(f->m, &options, &plan, err));
        options.kv_bytes = scarce ? plan.kv * 2 / N : 0;
        zp_engine *e = golden_engine(f->m, options);
        for (size_t k = 0; k < N; k++)
            jobs[k] = (zp_job){ f->ids + k * MOST_PROMPT, MOST_PROMPT, k == 3 ? NULL : &o, { 0 } };
        GOLDEN_OK(zp_generate_many(e, NULL, jobs, N, NULL, err));
        for (size_t k = 0; k < N; k++) {
            if (scarce) check_same(&free_of_want[k], &jobs[k].result);
            else free_of_want[k] = jobs[k].result;
            if (scarce) free_result(&jobs[k].result), free_result(&free_of_want[k]);
        }
        zp_engine_close(e);
    }
}

/* ---- endings --------------------------------------------------------------------------------- */

static void check_kept(struct fixture *f, size_t n_ended)
{
    size_t n = 0;
    for (size_t i = 0; i < N_JOBS; i++) {
        n += f->jobs[i].result.reason != NULL;
        if (!f->jobs[i].result.reason) assert_null(f->jobs[i].result.ids);
        free_result(&f->jobs[i].result);
    }
    assert_int_equal(n, n_ended);
}

static void test_a_bad_job_ends_all_and_keeps_what_ended(void **state)
{
    struct fixture *f = *state;
    zp_err why = { 0 };
    zp_engine *e = golden_engine(f->m, (zp_engine_options){ .n_ctx = N_CTX });
    uint64_t before = live_bytes();
    f->jobs[3].n_prompt = 0;
    assert_int_equal(zp_generate_many(e, NULL, f->jobs, N_JOBS, NULL, &why), ZP_BAD_INPUT);
    assert_non_null(strstr(why.message, "the prompt is empty"));
    check_kept(f, 3); /* one at a time, in their order */
    assert_int_equal(live_bytes(), before);
    GOLDEN_OK(zp_generate_many(e, NULL, NULL, 0, NULL, err)); /* no work is none */
    zp_engine_close(e);
}

/* Four end with the same token: beside one that cannot be drawn, or before one that cannot
 * begin. */
static void test_what_ends_beside_a_failure_is_kept(void **state)
{
    struct fixture *f = *state;
    static const int32_t outside = 1 << 30;
    static const zp_generate_options fails = { .history = &outside, .n_history = 1,
                                               .sampler = { .repeat_penalty = 2,
                                                            .penalty_last_n = 100 } };
    for (size_t at = 1; at <= 4; at++) {
        for (size_t i = 0; i < N_JOBS; i++) f->jobs[i].options = &kinds[1];
        zp_engine *e = golden_engine(f->m, (zp_engine_options){ .n_ctx = N_CTX, .n_seq = 4 });
        zp_err err = { 0 };
        uint64_t before = live_bytes();
        size_t n_prompt = f->jobs[at].n_prompt;
        if (at == 4) f->jobs[at].n_prompt = 0;
        else f->jobs[at].options = &fails;
        assert_true(zp_generate_many(e, NULL, f->jobs, N_JOBS, NULL, &err) != ZP_OK);
        for (size_t i = 0; i < N_JOBS; i++)
            assert_int_equal(f->jobs[i].result.n_ids, i < at ? 1 : 0);
        check_kept(f, at);
        assert_int_equal(live_bytes(), before);
        f->jobs[at].n_prompt = n_prompt;
        zp_engine_close(e);
    }
}

/* Jobs begin together or later, fail at their beginning or at a draw: the failure names its job. */
static void test_failures_name_their_job(void **state)
{
    struct fixture *f = *state;
    static const int32_t outside[] = { 30, 31, 1 << 30 };
    static const zp_generate_options draft = { .n_draft = 33 },
                                     history = { .history = outside, .n_history = 3,
                                                 .sampler = { .repeat_penalty = 2 } };
    const zp_job bad[] = { { .prompt = f->ids, .n_prompt = 0 },
                           { .prompt = f->ids, .n_prompt = N_CTX },
                           { .prompt = NULL, .n_prompt = 2 },
                           { .prompt = outside, .n_prompt = 3 },
                           { .prompt = f->ids, .n_prompt = 3, .options = &draft },
                           { .prompt = f->ids, .n_prompt = 3, .options = &history } };
    static const char *const parts[] = { "the prompt is empty", "the prompt of 150 tokens",
                                         "ids of the prompt are missing",
                                         "id 1073741824 at 2 of the prompt", "drafts of 33",
                                         "of the history is outside" };
    for (size_t i = 0; i < 2 * ZP_COUNT(bad) * N_JOBS; i++) {
        size_t k = i / 2 % ZP_COUNT(bad), at = i / 2 / ZP_COUNT(bad);
        zp_engine *e = golden_engine(
            f->m, (zp_engine_options){ .n_ctx = N_CTX, .n_seq = i % 2 ? 4 : 1 });
        zp_job own = f->jobs[at];
        zp_err err = { 0 };
        char head[32];
        f->jobs[at] = bad[k];
        assert_true(zp_generate_many(e, NULL, f->jobs, N_JOBS, NULL, &err) != ZP_OK);
        snprintf(head, sizeof head, "job %zu: ", at);
        if (strncmp(err.message, head, strlen(head)) != 0 || !strstr(err.message, parts[k]))
            fail_msg("'%s', expected '%s...%s'", err.message, head, parts[k]);
        for (size_t j = 0; j < N_JOBS; j++) free_result(&f->jobs[j].result);
        f->jobs[at] = own;
        zp_engine_close(e);
    }
}

struct stop_at {
    uint64_t last, at;
};

static bool stop(void *arg, const char *what, uint64_t done, uint64_t total)
{
    struct stop_at *s = arg;
    assert_string_equal(what, "answers");
    assert_int_equal(total, N_JOBS);
    assert_true(done >= s->last && done <= total);
    s->last = done;
    return done < s->at;
}

static void test_progress_counts_answers_and_may_stop(void **state)
{
    struct fixture *f = *state;
    zp_engine *e = golden_engine(f->m, (zp_engine_options){ .n_ctx = N_CTX, .n_seq = 3 });
    uint64_t before = live_bytes();
    for (uint64_t at = 1; at <= N_JOBS; at += 4) {
        struct stop_at s = { .at = at };
        zp_progress progress = { stop, &s };
        zp_err err = { 0 };
        zp_status status = zp_generate_many(e, NULL, f->jobs, N_JOBS, &progress, &err);
        assert_int_equal(status, at == N_JOBS ? ZP_OK : ZP_INTERRUPTED);
        check_kept(f, (size_t)s.last);
    }
    assert_int_equal(live_bytes(), before);
    zp_engine_close(e);
}

static bool stop_text(void *arg, const char *text, size_t size)
{
    size_t *left = arg;
    (void)text;
    (void)size;
    return --*left > 0;
}

static void test_one_job_stopped_leaves_the_others(void **state)
{
    struct fixture *f = *state;
    size_t left = 3;
    zp_generate_options o = kinds[2];
    o.on_text = stop_text;
    o.arg = &left;
    f->jobs[2].options = &o;
    zp_engine *e = golden_engine(f->m, (zp_engine_options){ .n_ctx = N_CTX, .n_seq = 4 });
    GOLDEN_OK(zp_generate_many(e, NULL, f->jobs, N_JOBS, NULL, err));
    assert_string_equal(f->jobs[2].result.reason, "stopped");
    assert_int_equal(f->jobs[2].result.n_ids, 3);
    for (size_t i = 0; i < N_JOBS; i++)
        if (i != 2) assert_string_not_equal(f->jobs[i].result.reason, "stopped");
    check_kept(f, N_JOBS);
    zp_engine_close(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_company_changes_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(test_common_beginnings_are_computed_once, setup, teardown),
        cmocka_unit_test_setup_teardown(test_jobs_wait_for_pages, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_bad_job_ends_all_and_keeps_what_ended, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_what_ends_beside_a_failure_is_kept, setup, teardown),
        cmocka_unit_test_setup_teardown(test_failures_name_their_job, setup, teardown),
        cmocka_unit_test_setup_teardown(test_progress_counts_answers_and_may_stop, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_one_job_stopped_leaves_the_others, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
