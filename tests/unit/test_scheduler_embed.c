/* test_scheduler_embed.c: embeddings beside answers that are drawn: each job gives what it gives
 * alone (I1, I8), is cancelled and counted like others, and takes no more than its prompt. The seed
 * is printed. */
#include "sched_harness.h"

#include "base/rng.h"
#include "model/model.h"

enum { SEED = 77, N_CTX = 1100, LONGEST = 1000, N_JOBS = 48, WIDEST = 128 };

static int32_t ids[2 * LONGEST];

struct vectors {
    float at[HARNESS_JOBS][WIDEST];
    size_t width;
    bool cancels; /* every fifth job, at its second event */
    size_t n_cancelled;
};

static void keep_vector(struct harness *h, const struct sched_event *e, void *arg)
{
    struct vectors *v = arg;
    size_t i = e->id ? (size_t)((struct harness_job *)e->arg - h->jobs) : 0;
    if (e->kind != SCHED_DONE) assert_null(e->embedding);
    if (e->embedding) memcpy(v->at[i], e->embedding, v->width * sizeof(float));
    if (!v->cancels || !e->id || e->kind >= SCHED_DONE || i % 5 != 4) return;
    if (h->jobs[i].n_events != 2) return;
    sched_cancel(h->s, e->id);
    v->n_cancelled++;
}

static void check_alone(zp_engine *alone, const struct sched_job *job, const struct harness_job *j,
                        const float *got)
{
    const zp_embed_options o = { .pooling = job->pooling, .raw = job->raw };
    float want[WIDEST];
    GOLDEN_OK(zp_embed(alone, job->prompt, job->n_prompt, &o, want, err));
    assert_memory_equal(got, want, alone->model->h.d_model * sizeof *got);
    assert_int_equal(j->last.usage.n_drawn, 0);
    assert_int_equal(j->last.usage.n_prompt, job->n_prompt);
    assert_int_equal(j->n_accepted, 1);
    assert_null(j->choices[0].reason);
}

static struct sched_job random_job(struct rng *r, uint64_t i)
{
    struct sched_job job = { .prompt = ids + (i % 3 ? rng_below(r, LONGEST) : 0),
                             .n_prompt = 1 + rng_below(r, i % 4 ? 200 : LONGEST),
                             .progress = true, .no_reuse = i % 7 == 3, .salt = i % 9 == 8 };
    if (i % 2) {
        job.embeds = true;
        job.pooling = (zp_pooling)(1 + i / 2 % 3);
        job.raw = i % 8 == 5;
    } else {
        job.n_predict = 1 + (uint32_t)rng_below(r, 40);
        job.ignore_end = true;
    }
    return job;
}

static void check_mix(const char *model, zp_kv_type kv, bool cached, uint32_t n_seq,
                      uint32_t step_tokens, bool cancels)
{
    zp_model *m = golden_small(model);
    zp_engine *e = golden_engine(m, (zp_engine_options){ .n_ctx = N_CTX, .n_seq = n_seq,
                                                         .n_threads = 2, .kv_type = kv,
                                                         .micro_batch = 128,
                                                         .prefix_cache = cached });
    zp_engine *alone = golden_engine(m, (zp_engine_options){ .n_ctx = N_CTX, .n_threads = 1,
                                                             .kv_type = kv });
    struct harness *h = harness_open((struct sched_options){ .step_tokens = step_tokens }, false);
    struct rng r = rng_stream(SEED, n_seq);
    struct sched_job jobs[N_JOBS];
    static struct vectors v;
    v = (struct vectors){ .width = m->h.d_model, .cancels = cancels };
    h->on_event = keep_vector, h->arg = &v;
    harness_engine(h, 0, e);
    for (size_t i = 0; i < N_JOBS; i++) harness_submit(h, jobs[i] = random_job(&r, i));
    harness_finish(h);
    size_t n_cancelled = 0;
    for (size_t i = 0; i < N_JOBS; i++) {
        const struct harness_job *j = &h->jobs[i];
        n_cancelled += j->last.kind == SCHED_CANCELLED;
        if (j->last.kind == SCHED_CANCELLED) continue;
        if (j->last.kind != SCHED_DONE) fail_msg("job %zu: %s", i, j->err.message);
        if (jobs[i].embeds) check_alone(alone, &jobs[i], j, v.at[i]);
        else harness_compare(alone, &jobs[i], j, 0, ZP_MODE_FULL);
    }
    struct sched_figures f = harness_figures(h);
    assert_int_equal(n_cancelled, v.n_cancelled);
    assert_true(!cancels || n_cancelled > 0);
    assert_int_equal(f.accepted, N_JOBS);
    assert_true(cached == (f.reused_tokens > 0));
    assert_true(f.step_sequences > f.steps); /* together, not one after the other */
    harness_close(h);
    zp_engine_close(e);
    zp_engine_close(alone);
    zp_model_close(m);
}

static void test_company_changes_nothing(void **state)
{
    (void)state;
    check_mix("llama", ZP_KV_BF16, true, 16, 64, false);
    check_mix("gguf-gemma3", ZP_KV_Q8, false, 5, 33, false);
    check_mix("zerope-local", ZP_KV_BF16, true, 8, 100, true);
    check_mix("zerope-struct", ZP_KV_BF16, false, 3, 7, true);
}

/* ---- one at a time --------------------------------------------------------------------------- */

struct fixture {
    zp_model *m;
    zp_engine *e;
    struct harness *h;
    struct vectors v;
};

static void open_all(struct fixture *f)
{
    f->m = golden_small("llama");
    f->e = golden_engine(f->m, (zp_engine_options){ .n_ctx = 300, .n_seq = 4, .n_threads = 1,
                                                    .micro_batch = 32 });
    f->h = harness_open((struct sched_options){ .step_tokens = 16 }, true);
    f->v = (struct vectors){ .width = f->m->h.d_model };
    f->h->on_event = keep_vector, f->h->arg = &f->v;
    harness_engine(f->h, 0, f->e);
}

static void close_all(struct fixture *f)
{
    harness_close(f->h);
    assert_int_equal(f->e->kv.pages.n_free, f->e->kv.pages.n_pages);
    zp_engine_close(f->e);
    zp_model_close(f->m);
}

static const struct sched_job mean = { .prompt = ids, .n_prompt = 250, .embeds = true,
                                       .pooling = ZP_POOL_MEAN, .progress = true };

static void test_cancel_between_parts_of_the_prompt(void **state)
{
    struct fixture f;
    (void)state;
    open_all(&f);
    struct harness_job *j = harness_submit(f.h, mean);
    harness_until(f.h, SCHED_PROGRESS, j);
    size_t n_events = j->n_events;
    sched_cancel(f.h->s, j->id);
    while (!j->over) harness_next(f.h);
    assert_int_equal(j->last.kind, SCHED_CANCELLED);
    assert_int_equal(j->last.usage.phase, SCHED_PROMPT);
    assert_int_equal(j->n_events, n_events + 1);
    assert_int_equal(harness_figures(f.h).cancelled_prompt, 1);
    close_all(&f);
}

static void test_a_deadline_ends_it(void **state)
{
    struct fixture f;
    struct sched_job job = mean;
    (void)state;
    open_all(&f);
    job.deadline = os_now() - 1;
    struct harness_job *j = harness_submit(f.h, job);
    harness_finish(f.h);
    assert_int_equal(j->last.kind, SCHED_FAILED);
    assert_int_equal(j->last.why, SCHED_LATE);
    assert_null(j->last.embedding);
    close_all(&f);
}

static void refuse(struct fixture *f, struct sched_job job, enum sched_why why, const char *words)
{
    struct harness_job *j = harness_submit(f->h, job);
    harness_finish(f->h);
    assert_int_equal(j->last.kind, SCHED_REFUSED);
    assert_int_equal(j->last.why, why);
    if (strstr(j->err.message, words) == NULL) fail_msg("%s: no %s", j->err.message, words);
}

/* Nothing is drawn behind it: the last position of the context may be the text's. */
static void test_a_text_may_fill_the_context(void **state)
{
    struct fixture f;
    struct sched_job job = mean;
    float want[WIDEST];
    (void)state;
    open_all(&f);
    job.n_prompt = 300;
    struct harness_job *j = harness_submit(f.h, job);
    harness_finish(f.h);
    assert_int_equal(j->last.kind, SCHED_DONE);
    zp_engine *alone = golden_engine(f.m, (zp_engine_options){ .n_ctx = 300, .n_threads = 1 });
    const zp_embed_options o = { .pooling = ZP_POOL_MEAN };
    GOLDEN_OK(zp_embed(alone, ids, 300, &o, want, err));
    assert_memory_equal(f.v.at[0], want, f.v.width * sizeof *want);
    zp_engine_close(alone);
    job.n_prompt = 301;
    refuse(&f, job, SCHED_TOO_LONG, "301 tokens does not fit into the context of 300");
    assert_int_equal(f.h->jobs[1].last.refusal.found, 301);
    assert_int_equal(f.h->jobs[1].last.refusal.most, 300);
    job.n_prompt = 0;
    refuse(&f, job, SCHED_INVALID, "at least one token");
    job.n_prompt = 9, job.n_choices = 2;
    refuse(&f, job, SCHED_INVALID, "one embedding");
    job.n_choices = 1, job.pooling = (zp_pooling)9;
    refuse(&f, job, SCHED_INVALID, "pooling 9");
    close_all(&f);
}

/* A list of texts is one request: a drain lets all of it end. */
static void test_a_drain_lets_go_on_what_was_taken(void **state)
{
    struct fixture f;
    struct sched_job job = mean;
    (void)state;
    open_all(&f);
    harness_submit(f.h, job);
    sched_drain(f.h->s, os_now() + 1000);
    struct harness_job *j = harness_submit(f.h, job);
    job.goes_on = true;
    struct harness_job *rest = harness_submit(f.h, job);
    harness_finish(f.h);
    assert_int_equal(f.h->jobs[0].last.kind, SCHED_DONE);
    assert_int_equal(j->last.why, SCHED_DRAINING);
    assert_int_equal(rest->last.kind, SCHED_DONE);
    sched_drain(f.h->s, os_now() - 1); /* the time is over */
    rest = harness_submit(f.h, job);
    harness_finish(f.h);
    assert_int_equal(rest->last.kind, SCHED_CANCELLED);
    assert_int_equal(rest->last.why, SCHED_BY_DRAIN);
    close_all(&f);
}

enum { BAD_ID = 200 };

/* The row of one token in the embedding is no number: its texts fail, and no other job does. */
static void test_vectors_that_are_not_numbers_fail_alone(void **state)
{
    struct fixture f;
    struct sched_job drawn = { .prompt = ids, .n_prompt = 20, .n_predict = 60,
                               .ignore_end = true }, job = mean;
    int32_t bad[250];
    (void)state;
    open_all(&f);
    zp_engine *alone = golden_engine(f.m, (zp_engine_options){ .n_ctx = 300, .n_threads = 1 });
    const struct gguf_tensor *embedding = f.e->weights.embedding;
    struct gguf_tensor copy = *embedding;
    size_t row = (size_t)gguf_tensor_row_bytes(embedding);
    uint8_t *data = malloc((size_t)copy.bytes);
    assert_non_null(data);
    memcpy(data, copy.data, (size_t)copy.bytes);
    memset(data + BAD_ID * row, 0xff, row);
    copy.data = data;
    f.e->weights.embedding = &copy;
    memcpy(bad, ids, sizeof bad);
    bad[249] = BAD_ID;
    job.prompt = bad;
    struct harness_job *other = harness_submit(f.h, drawn), *j = harness_submit(f.h, job),
                       *good = harness_submit(f.h, mean);
    harness_finish(f.h);
    assert_int_equal(j->last.kind, SCHED_FAILED);
    assert_int_equal(j->last.why, SCHED_NONFINITE);
    assert_non_null(strstr(j->err.message, "not finite"));
    harness_compare(alone, &drawn, other, 0, ZP_MODE_FULL);
    check_alone(alone, &mean, good, f.v.at[2]);
    f.e->weights.embedding = embedding;
    free(data);
    zp_engine_close(alone);
    close_all(&f);
}

static int setup(void **state)
{
    struct rng r = rng_stream(SEED, 0);
    (void)state;
    for (size_t i = 0; i < ZP_COUNT(ids); i++) ids[i] = 1 + (int32_t)rng_below(&r, 120);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_company_changes_nothing),
        cmocka_unit_test(test_cancel_between_parts_of_the_prompt),
        cmocka_unit_test(test_a_deadline_ends_it),
        cmocka_unit_test(test_a_text_may_fill_the_context),
        cmocka_unit_test(test_a_drain_lets_go_on_what_was_taken),
        cmocka_unit_test(test_vectors_that_are_not_numbers_fail_alone),
    };
    printf("seed %d\n", SEED);
    return cmocka_run_group_tests(tests, setup, NULL);
}
