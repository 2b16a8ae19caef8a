/* test_scheduler_queue.c: which jobs are refused, which wait, and in which order they begin. */
#include "sched_harness.h"

enum { N_CTX = 300, N_IDS = 320 };

static int32_t ids[N_IDS];

static struct sched_job job_of(size_t n_prompt, uint32_t n_predict)
{
    return (struct sched_job){ .prompt = ids, .n_prompt = n_prompt, .n_predict = n_predict,
                               .ignore_end = true };
}

struct fixture {
    zp_model *m;
    zp_engine *e, *alone;
    struct harness *h;
};

/* tiles: of the pages a head has; 0: what n_seq sequences need. */
static void open_all(struct fixture *f, const char *name, zp_engine_options eo, size_t tiles,
                     struct sched_options o)
{
    f->m = golden_small(name);
    f->alone = golden_engine(f->m, eo);
    if (tiles) {
        size_t n = tiles * f->alone->kv.n_heads;
        eo.kv_bytes = n * f->alone->kv.pages.page_bytes +
                      f->alone->kv.open.n_pages * f->alone->kv.open.page_bytes;
    }
    f->e = golden_engine(f->m, eo);
    f->h = harness_open(o, true);
    harness_engine(f->h, 0, f->e);
}

static void close_all(struct fixture *f)
{
    harness_close(f->h);
    zp_engine_close(f->e);
    zp_engine_close(f->alone);
    zp_model_close(f->m);
}

static const zp_engine_options usual = { .n_ctx = N_CTX, .n_seq = 8, .n_threads = 1 };

/* ---- refusals -------------------------------------------------------------------------------- */

/* Told at once, by the caller's own thread: the scheduler's may be in the middle of a step. */
static struct harness_job *refused_at_once(struct fixture *f, struct sched_job job,
                                           enum sched_why why)
{
    struct harness_job *j = harness_submit(f->h, job);
    const struct sched_event *e = sched_next(f->h->s);
    assert_non_null(e);
    assert_ptr_equal(e->arg, j);
    assert_int_equal(e->kind, SCHED_REFUSED);
    assert_int_equal(e->why, why);
    harness_take(f->h, e);
    return j;
}

static void check_numbers(const struct harness_job *j, uint64_t found, uint64_t most,
                          const char *text)
{
    assert_int_equal(j->last.refusal.found, found);
    assert_int_equal(j->last.refusal.most, most);
    if (!strstr(j->err.message, text)) fail_msg("'%s' is not in: %s", text, j->err.message);
}

static void test_prompts_beyond_the_context_are_refused_with_both_numbers(void **state)
{
    struct fixture f;
    (void)state;
    open_all(&f, "llama", usual, 0, (struct sched_options){ 0 });
    check_numbers(refused_at_once(&f, job_of(N_CTX, 1), SCHED_TOO_LONG), 300, 300, "300 tokens");
    struct harness_job *j = refused_at_once(&f, job_of(1 << 30, 1), SCHED_TOO_LONG); /* unread */
    check_numbers(j, 1 << 30, 300, "context of 300");
    j = harness_submit(f.h, job_of(N_CTX - 1, 1));
    harness_finish(f.h);
    assert_int_equal(j->last.kind, SCHED_DONE);
    close_all(&f);
}

/* What the pool could not hold if it were empty. */
static void check_pool(const char *name, zp_kv_type kv)
{
    struct fixture f;
    zp_engine_options eo = usual;
    eo.kv_type = kv;
    eo.micro_batch = 64;
    open_all(&f, name, eo, 3, (struct sched_options){ 0 });
    uint32_t most = 192;
    check_numbers(refused_at_once(&f, job_of(150, 43), SCHED_TOO_LONG), 193, most, "193 positions");
    check_numbers(refused_at_once(&f, job_of(150, 0), SCHED_TOO_LONG), 300, most, "holds 192");
    check_numbers(refused_at_once(&f, job_of(299, 1), SCHED_TOO_LONG), 300, 298, "");
    struct sched_job job = job_of(150, 42), two = job_of(70, 10);
    struct harness_job *a = harness_submit(f.h, job);
    two.n_choices = 3; /* 2 + 1 + 1 tiles */
    refused_at_once(&f, two, SCHED_TOO_LONG);
    two.n_choices = 2;
    struct harness_job *b = harness_submit(f.h, two);
    harness_finish(f.h);
    harness_compare(f.alone, &job, a, 0, ZP_MODE_FULL);
    for (uint32_t i = 0; i < 2; i++) harness_compare(f.alone, &two, b, i, ZP_MODE_FULL);
    close_all(&f);
}

static void test_jobs_that_never_fit_are_refused(void **state)
{
    (void)state;
    check_pool("llama", ZP_KV_BF16);
    check_pool("llama", ZP_KV_Q8);
}

static void test_jobs_that_make_no_sense_are_refused(void **state)
{
    static const char *const empty[] = { "" };
    static const zp_bias outside[] = { { -1, 1 } };
    struct fixture f;
    struct sched_job bad[14];
    zp_model *other = golden_small("gemma3");
    zp_grammar *strange, *own;
    static const int32_t wrong[] = { 5, -1 };
    (void)state;
    open_all(&f, "llama", usual, 0, (struct sched_options){ 0 });
    for (size_t i = 0; i < ZP_COUNT(bad); i++) bad[i] = job_of(10, 5);
    bad[0].n_prompt = 0;
    bad[1].prompt = NULL;
    bad[2].prompt = wrong, bad[2].n_prompt = 2;
    bad[3].sampler.temperature = -1;
    bad[4].sampler.bias = outside, bad[4].sampler.n_bias = 1;
    bad[5].stop = empty, bad[5].n_stop = 1;
    bad[6].n_stop = 2;
    bad[7].n_choices = 9;
    bad[8].n_top = SCHED_MOST_TOP + 1;
    bad[9].mode = (zp_mode)-1;
    bad[10].mode = ZP_MODE_HALF;
    bad[11].n_choices = UINT32_MAX;
    GOLDEN_OK(zp_grammar_open_json(&strange, other, err));
    GOLDEN_OK(zp_grammar_open_json(&own, f.m, err));
    bad[12].sampler.grammar = strange, bad[12].ignore_end = false;
    bad[13].sampler.grammar = own;
    for (size_t i = 0; i < ZP_COUNT(bad); i++) {
        struct harness_job *j = refused_at_once(&f, bad[i], SCHED_INVALID);
        assert_true(j->err.code != ZP_OK && j->err.message[0]);
    }
    struct sched_job job = job_of(10, 5);
    uint64_t id;
    job.slot = 1;
    refused_at_once(&f, job, SCHED_NO_ENGINE);
    job.slot = SCHED_SLOTS;
    assert_int_equal(sched_submit(f.h->s, &job, &id, NULL), ZP_USAGE);
    zp_grammar_close(strange);
    zp_grammar_close(own);
    zp_model_close(other);
    close_all(&f);
}

/* ---- limits ---------------------------------------------------------------------------------- */

static void test_queue_has_limits(void **state)
{
    struct fixture f;
    struct harness_job *j[20];
    (void)state;
    open_all(&f, "llama", usual, 0,
             (struct sched_options){ .most_waiting = 3, .most_waiting_tokens = 500 });
    for (int i = 0; i < 8; i++) j[i] = harness_submit(f.h, job_of(30, 100)); /* all seats */
    harness_until(f.h, SCHED_TOKEN, j[7]);
    j[8] = harness_submit(f.h, job_of(290, 5));
    j[9] = harness_submit(f.h, job_of(290, 5)); /* too many tokens */
    j[10] = harness_submit(f.h, job_of(100, 5));
    j[11] = harness_submit(f.h, job_of(110, 5));
    j[12] = harness_submit(f.h, job_of(1, 5)); /* too many jobs */
    harness_until(f.h, SCHED_REFUSED, j[12]);
    assert_int_equal(j[9]->last.why, SCHED_QUEUE_FULL);
    check_numbers(j[9], 580, 500, "tokens of prompts");
    check_numbers(j[12], 3, 3, "3 jobs");
    assert_true(j[9]->last.refusal.retry_seconds >= 1);
    harness_finish(f.h);
    struct sched_figures figures = harness_figures(f.h);
    assert_int_equal(figures.completed, 11);
    assert_int_equal(figures.refused, 2);
    close_all(&f);
}

static void test_one_large_job_may_always_wait(void **state)
{
    struct fixture f;
    (void)state;
    open_all(&f, "llama", usual, 0, (struct sched_options){ .most_waiting_tokens = 10 });
    harness_pause(f.h);
    struct harness_job *a = harness_submit(f.h, job_of(200, 5)),
                       *b = harness_submit(f.h, job_of(1, 5));
    harness_until(f.h, SCHED_REFUSED, b);
    sched_resume(f.h->s);
    harness_finish(f.h);
    assert_int_equal(a->last.kind, SCHED_DONE);
    close_all(&f);
}

/* More than a pause's messages have room for: refused by the caller's side, and none is lost. */
static void test_a_flood_is_refused(void **state)
{
    enum { N = HARNESS_JOBS };
    struct fixture f;
    (void)state;
    open_all(&f, "llama", usual, 0, (struct sched_options){ .most_waiting = 10 });
    struct harness_job *first = harness_submit(f.h, job_of(5, 5));
    harness_until(f.h, SCHED_TOKEN, first);
    for (int i = 1; i < N; i++) harness_submit(f.h, job_of(5, 5));
    harness_finish(f.h);
    struct sched_figures figures = harness_figures(f.h);
    assert_int_equal(figures.completed + figures.refused, N);
    assert_in_range(figures.completed, 11, N - 1);
    close_all(&f);
}

/* ---- order ----------------------------------------------------------------------------------- */

static size_t order[HARNESS_JOBS], n_order;

/* Jobs in the order of their first tokens. */
static void see_order(struct harness *h, const struct sched_event *e, void *arg)
{
    (void)arg;
    if (e->kind != SCHED_TOKEN || e->token.index != 0 || e->token.choice != 0) return;
    order[n_order++] = (size_t)((const struct harness_job *)e->arg - h->jobs);
}

static void submit_paused(struct fixture *f, const struct sched_job *jobs, size_t n)
{
    n_order = 0;
    f->h->on_event = see_order;
    harness_pause(f->h);
    for (size_t i = 0; i < n; i++) harness_submit(f->h, jobs[i]);
    harness_until(f->h, SCHED_ACCEPTED, &f->h->jobs[n - 1]);
    sched_resume(f->h->s);
}

static void expect_order(const size_t *wanted, size_t n)
{
    assert_int_equal(n_order, n);
    for (size_t i = 0; i < n; i++) assert_int_equal(order[i], wanted[i]);
}

static void test_jobs_begin_in_their_order(void **state)
{
    struct fixture f;
    struct sched_job jobs[12];
    size_t wanted[12];
    zp_engine_options eo = usual;
    (void)state;
    eo.n_seq = 2;
    open_all(&f, "llama", eo, 0, (struct sched_options){ 0 });
    for (size_t i = 0; i < 12; i++) jobs[i] = job_of(20, 5), wanted[i] = i;
    submit_paused(&f, jobs, 12);
    harness_finish(f.h);
    expect_order(wanted, 12);
    close_all(&f);
}

/* A pool of 5 tiles: the first job has 2, the second wants all 5; of the small ones, one tile each,
 * two may begin before it. */
static void test_a_large_job_is_overtaken_a_few_times_only(void **state)
{
    enum { N = 7 };
    static const size_t wanted[N] = { 0, 2, 3, 1, 4, 5, 6 };
    struct fixture f;
    struct sched_job jobs[N] = { job_of(30, 90), job_of(250, 50) };
    (void)state;
    open_all(&f, "llama", usual, 5, (struct sched_options){ .most_overtaken = 2 });
    for (size_t i = 2; i < N; i++) jobs[i] = job_of(10, 10);
    submit_paused(&f, jobs, N);
    harness_until(f.h, SCHED_TOKEN, &f.h->jobs[1]);
    for (size_t i = 0; i < 4; i++)
        if (i != 1) assert_true(f.h->jobs[i].over);
    for (size_t i = 4; i < N; i++) assert_int_equal(f.h->jobs[i].n_events, 1);
    harness_finish(f.h);
    expect_order(wanted, N);
    for (size_t i = 0; i < N; i++)
        harness_compare(f.alone, &jobs[i], &f.h->jobs[i], 0, ZP_MODE_FULL);
    close_all(&f);
}

/* The same for those that come while it waits already. */
static void test_newcomers_overtake_a_few_times_only(void **state)
{
    struct fixture f;
    struct harness_job *small[4];
    (void)state;
    open_all(&f, "llama", usual, 5, (struct sched_options){ .most_overtaken = 2 });
    struct harness_job *first = harness_submit(f.h, job_of(30, 90));
    harness_until(f.h, SCHED_TOKEN, first);
    struct harness_job *large = harness_submit(f.h, job_of(250, 50));
    for (int i = 0; i < 4; i++) small[i] = harness_submit(f.h, job_of(10, 10));
    harness_until(f.h, SCHED_TOKEN, large);
    assert_true(first->over && small[0]->over && small[1]->over);
    assert_int_equal(small[2]->n_events + small[3]->n_events, 2);
    harness_finish(f.h);
    close_all(&f);
}

/* The seats of an engine are for answers: three of them wait for three, while one begins. */
static void test_answers_need_seats_together(void **state)
{
    enum { N = 4 };
    static const size_t wanted[N] = { 0, 2, 1, 3 };
    struct fixture f;
    struct sched_job jobs[N] = { job_of(20, 60), job_of(20, 10), job_of(20, 10), job_of(20, 10) };
    zp_engine_options eo = usual;
    (void)state;
    eo.n_seq = 3;
    open_all(&f, "llama", eo, 0, (struct sched_options){ .most_overtaken = 1 });
    jobs[1].n_choices = 3;
    submit_paused(&f, jobs, N);
    harness_finish(f.h);
    expect_order(wanted, N);
    for (uint32_t i = 0; i < 3; i++)
        harness_compare(f.alone, &jobs[1], &f.h->jobs[1], i, ZP_MODE_FULL);
    close_all(&f);
}

/* Seats of answers that have ended are free, though others of their job go on. */
static void test_seats_are_free_as_answers_end(void **state)
{
    static const char *const stops[] = { "e" };
    struct fixture f;
    zp_engine_options eo = usual;
    struct sched_job job = job_of(20, 200);
    size_t n_ended = 0;
    (void)state;
    eo.n_seq = 4;
    open_all(&f, "llama", eo, 0, (struct sched_options){ 0 });
    job.n_choices = 4;
    job.sampler = (zp_sampler_options){ .temperature = 1, .seed = 3 };
    job.stop = stops, job.n_stop = 1;
    struct harness_job *a = harness_submit(f.h, job), *b = harness_submit(f.h, job_of(10, 1));
    while (!b->over) n_ended += harness_next(f.h)->kind == SCHED_ENDED;
    assert_in_range(n_ended, 2, 4); /* its own among them */
    assert_false(a->over);
    harness_finish(f.h);
    for (uint32_t i = 0; i < 4; i++) harness_compare(f.alone, &job, a, i, ZP_MODE_FULL);
    close_all(&f);
}

/* A pool for one and a half: two that begin alike run side by side, since the second takes what the
 * first has computed. */
static void test_shared_pages_are_counted_once(void **state)
{
    struct fixture f;
    struct sched_job job = job_of(250, 40), long_first = job_of(250, 49);
    zp_engine_options eo = usual;
    (void)state;
    eo.prefix_cache = true;
    open_all(&f, "llama", eo, 7, (struct sched_options){ 0 });
    struct harness_job *a = harness_submit(f.h, long_first);
    harness_until(f.h, SCHED_TOKEN, a);
    struct harness_job *b = harness_submit(f.h, job);
    harness_until(f.h, SCHED_TOKEN, b);
    assert_false(a->over);
    harness_finish(f.h);
    assert_int_equal(b->last.usage.n_reused, 192);
    harness_compare(f.alone, &long_first, a, 0, ZP_MODE_FULL);
    harness_compare(f.alone, &job, b, 0, ZP_MODE_FULL);
    close_all(&f);
}

/* Windows, a scarce pool, shared beginnings, answers that fork: no run ever finds it empty (L1). */
static void check_promises(const char *name, zp_kv_type kv)
{
    enum { N = 40 };
    struct fixture f;
    struct sched_job jobs[N];
    zp_engine_options eo = usual;
    eo.kv_type = kv, eo.prefix_cache = true, eo.micro_batch = 32;
    open_all(&f, name, eo, 11, (struct sched_options){ .step_tokens = 24 });
    atomic_store(&f.h->lock_step, false);
    for (int i = 0; i < N; i++) {
        jobs[i] = job_of(1 + (size_t)i * 53 % 200, 1 + (uint32_t)i * 31 % 60);
        jobs[i].prompt = ids + (i % 3 ? 0 : i);
        jobs[i].n_choices = i % 5 ? 1 : 2;
        harness_submit(f.h, jobs[i]);
        if (i % 4 == 0) harness_next(f.h);
    }
    harness_finish(f.h);
    for (int i = 0; i < N; i++) {
        const struct harness_job *j = &f.h->jobs[i];
        if (j->last.kind != SCHED_DONE) fail_msg("%s, job %d: %s", name, i, j->err.message);
        for (uint32_t k = 0; k < jobs[i].n_choices; k++)
            harness_compare(f.alone, &jobs[i], &f.h->jobs[i], k, ZP_MODE_FULL);
    }
    assert_true(harness_figures(f.h).reused_tokens > 0);
    close_all(&f);
}

static void test_promised_pages_are_there(void **state)
{
    static const char *const names[] = { "llama", "gguf-gemma3", "zerope-local" };
    (void)state;
    for (size_t i = 0; i < ZP_COUNT(names); i++) {
        check_promises(names[i], ZP_KV_BF16);
        check_promises(names[i], ZP_KV_Q8);
    }
}

static int setup(void **state)
{
    (void)state;
    for (int i = 0; i < N_IDS; i++) ids[i] = 30 + i * 37 % 90 + i % 7;
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prompts_beyond_the_context_are_refused_with_both_numbers),
        cmocka_unit_test(test_jobs_that_never_fit_are_refused),
        cmocka_unit_test(test_jobs_that_make_no_sense_are_refused),
        cmocka_unit_test(test_queue_has_limits),
        cmocka_unit_test(test_one_large_job_may_always_wait),
        cmocka_unit_test(test_a_flood_is_refused),
        cmocka_unit_test(test_jobs_begin_in_their_order),
        cmocka_unit_test(test_a_large_job_is_overtaken_a_few_times_only),
        cmocka_unit_test(test_newcomers_overtake_a_few_times_only),
        cmocka_unit_test(test_answers_need_seats_together),
        cmocka_unit_test(test_seats_are_free_as_answers_end),
        cmocka_unit_test(test_shared_pages_are_counted_once),
        cmocka_unit_test(test_promised_pages_are_there),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
