/* test_alloc_failures_serve.c: the scheduler when allocation number n fails, for all n: who wanted
 * the memory is told so, all others get their answers, no byte stays behind. */
#include "alloc_failures.h"

#include <semaphore.h>

#include "model/engine.h"
#include "serve/scheduler.h"

enum { N_JOBS = 5, MOST = 40, N_CHOICES = 3, WIDTH = 64 };

struct answer {
    int32_t ids[N_CHOICES][MOST];
    size_t n[N_CHOICES];
    float vector[WIDTH];
    enum sched_kind last;
};

struct fixture {
    zp_engine *e;
    int32_t ids[150];
    sem_t news;
    struct answer answers[N_JOBS], good[N_JOBS];
    bool known; /* good */
    size_t n_failed;
};

static void wake(void *arg)
{
    sem_post(&((struct fixture *)arg)->news);
}

/* Takes an event; true: the last of its job. */
static bool take(struct fixture *f, const struct sched_event *e, zp_err *why)
{
    struct answer *a = e->arg;
    if (e->kind == SCHED_TOKEN && e->token.id >= 0)
        a->ids[e->token.choice][a->n[e->token.choice]++] = e->token.id;
    if (e->kind < SCHED_DONE) return false;
    a->last = e->kind;
    if (e->embedding) memcpy(a->vector, e->embedding, sizeof a->vector);
    if (e->kind == SCHED_DONE) return true;
    assert_int_equal(e->kind, SCHED_FAILED);
    f->n_failed++;
    if (why->code == ZP_OK) *why = *e->err;
    return true;
}

static zp_status run_jobs(struct fixture *f, struct sched *s, zp_err *why)
{
    static const char *const stops[] = { "zq" };
    static const zp_bias bias[] = { { 40, 1 } };
    size_t n_open = 0;
    const struct sched_event *e;
    if (sched_set_engine(s, 0, f->e, why) != ZP_OK) return why->code;
    for (uint32_t i = 0; i < N_JOBS; i++) {
        struct sched_job job = { .prompt = f->ids + i, .n_prompt = 20 + 30 * i, .n_predict = 25,
                                 .ignore_end = true, .stop = stops, .n_stop = i > 1,
                                 .n_choices = i == 1 ? N_CHOICES : 1, .logprobs = i == 2,
                                 .n_top = 5, .prompt_logprobs = i == 3, .arg = &f->answers[i] };
        uint64_t id;
        if (i == 4)
            job = (struct sched_job){ .prompt = f->ids, .n_prompt = 140, .embeds = true,
                                      .pooling = ZP_POOL_MEAN, .arg = &f->answers[i] };
        if (i == 2) job.sampler = (zp_sampler_options){ .bias = bias, .n_bias = 1 };
        if (sched_submit(s, &job, &id, why) == ZP_OK) n_open++;
        else f->n_failed++;
    }
    while (n_open > 0) {
        if ((e = sched_next(s))) n_open -= take(f, e, why);
        else sem_wait(&f->news);
    }
    return why->code;
}

static zp_status run(void *arg, zp_err *why)
{
    struct fixture *f = arg;
    struct sched *s;
    memset(f->answers, 0, sizeof f->answers);
    f->n_failed = 0;
    zp_status status =
        sched_open(&s, &(struct sched_options){ .wake = wake, .wake_arg = f }, why);
    if (status != ZP_OK) return status;
    status = run_jobs(f, s, why);
    sched_close(s);
    for (size_t i = 0; i < N_JOBS && f->known; i++)
        if (f->answers[i].last == SCHED_DONE)
            assert_memory_equal(&f->answers[i], &f->good[i], sizeof f->good[i]);
    return status;
}

static uint64_t result(void *arg)
{
    const struct fixture *f = arg;
    return hash_bytes(f->answers, sizeof f->answers, FAIL_SEED);
}

static void test_memory_that_is_missing_fails_whom_it_is_missing(void **state)
{
    struct fixture f = { .known = false };
    struct fail_call call = { .what = "scheduler", .run = run, .arg = &f, .result = result };
    (void)state;
    for (int i = 0; i < 150; i++) f.ids[i] = 30 + i * 37 % 90;
    sem_init(&f.news, 0, 0);
    zp_model *m = golden_small("llama");
    zp_engine_options o = { .n_ctx = 300, .n_seq = 8, .n_threads = 1 };
    f.e = golden_engine(m, o);
    zp_err why = { 0 };
    assert_int_equal(run(&f, &why), ZP_OK);
    memcpy(f.good, f.answers, sizeof f.good);
    f.known = true;
    fail_each(&call, 100);
    zp_engine_close(f.e);
    zp_model_close(m);
    sem_destroy(&f.news);
}

/* One failure is of one job. */
static void test_one_failure_is_of_one_job(void **state)
{
    struct fixture f = { .known = false };
    uint64_t failed, with_jobs = 0;
    (void)state;
    for (int i = 0; i < 150; i++) f.ids[i] = 30 + i * 37 % 90;
    sem_init(&f.news, 0, 0);
    zp_model *m = golden_small("llama");
    f.e = golden_engine(m, (zp_engine_options){ .n_ctx = 300, .n_seq = 8, .n_threads = 1 });
    for (uint64_t n = 1;; n++) {
        zp_err why = { 0 };
        mem_fail_at(n, false);
        run(&f, &why);
        failed = mem_fail_count();
        mem_fail_at(0, false);
        if (failed == 0) break;
        assert_in_range(f.n_failed, 0, 1);
        with_jobs += f.n_failed;
    }
    assert_true(with_jobs > 80);
    zp_engine_close(f.e);
    zp_model_close(m);
    sem_destroy(&f.news);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_that_is_missing_fails_whom_it_is_missing),
        cmocka_unit_test(test_one_failure_is_of_one_job),
    };
    fail_watch_jansson();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
