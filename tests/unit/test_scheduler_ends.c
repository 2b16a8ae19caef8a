/* test_scheduler_ends.c: what ends a job of the scheduler before its time: cancellation in every
 * phase, deadlines, failures, drains; and what must not: another job's end, a pause, a new
 * engine. */
#include "sched_harness.h"

#include "base/rng.h"
#include "model/model.h"
#include "serve/outcome.h"
#include "serve/scheduler_parts.h"

enum { N_CTX = 300, N_IDS = 280, SEED = 11 };

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

static const zp_engine_options usual = { .n_ctx = N_CTX, .n_seq = 4, .n_threads = 1,
                                         .micro_batch = 32 };

static void open_all(struct fixture *f, zp_engine_options eo, struct sched_options o)
{
    f->m = golden_small("llama");
    f->e = golden_engine(f->m, eo);
    f->alone = golden_engine(f->m, eo);
    f->h = harness_open(o, true);
    harness_engine(f->h, 0, f->e);
}

static void close_all(struct fixture *f)
{
    harness_close(f->h);
    assert_int_equal(f->e->kv.pages.n_free, f->e->kv.pages.n_pages);
    zp_engine_close(f->e);
    zp_engine_close(f->alone);
    zp_model_close(f->m);
}

/* What the rules of the roll-out get to see of it. */
static void check_outcome(const struct harness_job *j, enum outcome_end end)
{
    const struct sched_usage *u = &j->last.usage;
    struct outcome o = outcome_of_event(&j->last);
    assert_int_equal(o.end, end);
    assert_int_equal(outcome_checked(&o).end, end); /* all are numbers */
    assert_int_equal(o.n_computed, u->n_prompt - u->n_reused);
    assert_int_equal(o.n_drawn, u->n_drawn);
    assert_true(o.queue_seconds == u->queue_seconds && o.total_seconds == u->total_seconds);
    assert_int_equal(o.first_seconds > 0, u->phase == SCHED_DRAWING);
    assert_true(o.top1_mean == u->top1_mean && o.top1_std == u->top1_std && o.loop == u->loop);
}

static void check_end(const struct harness_job *j, enum sched_kind kind, enum sched_why why,
                      enum sched_phase phase)
{
    static const enum outcome_end ends[] = { [SCHED_INVALID] = OUTCOME_CANCELLED,
                                             [SCHED_BY_CALLER] = OUTCOME_CANCELLED,
                                             [SCHED_BY_DRAIN] = OUTCOME_CANCELLED,
                                             [SCHED_LATE] = OUTCOME_LATE,
                                             [SCHED_NONFINITE] = OUTCOME_NONFINITE,
                                             [SCHED_ERROR] = OUTCOME_FAILED };
    assert_int_equal(j->last.kind, kind);
    assert_int_equal(j->last.why, why);
    assert_int_equal(j->last.usage.phase, phase);
    check_outcome(j, ends[why]);
}

/* ---- cancellation ---------------------------------------------------------------------------- */

/* One job is cancelled where the event is its own, beside others that draw; nothing more of it is
 * computed, and of its events the last alone is to come. */
static void check_cancel(enum sched_kind at, uint32_t n_choices, enum sched_phase phase)
{
    struct fixture f;
    struct harness_job *others[2];
    struct sched_job job = job_of(250, 100), other = job_of(20, 60);
    open_all(&f, usual, (struct sched_options){ .step_tokens = 20 });
    for (int i = 0; i < 2; i++) others[i] = harness_submit(f.h, other);
    harness_until(f.h, SCHED_TOKEN, others[1]);
    job.progress = true, job.n_choices = n_choices;
    struct harness_job *j = harness_submit(f.h, job);
    harness_until(f.h, at, j);
    struct sched_figures before = harness_figures(f.h);
    size_t n_events = j->n_events;
    sched_cancel(f.h->s, j->id);
    sched_cancel(f.h->s, j->id);
    while (!j->over) harness_next(f.h);
    check_end(j, SCHED_CANCELLED, SCHED_BY_CALLER, phase);
    assert_int_equal(j->n_events, n_events + 1);
    struct sched_figures after = harness_figures(f.h);
    assert_int_equal(after.prompt_tokens, before.prompt_tokens);
    assert_in_range(after.steps, before.steps, before.steps + 1);
    harness_finish(f.h);
    for (int i = 0; i < 2; i++) harness_compare(f.alone, &other, others[i], 0, ZP_MODE_FULL);
    sched_cancel(f.h->s, j->id); /* long gone */
    sched_cancel(f.h->s, 0);
    sched_cancel(f.h->s, UINT64_MAX);
    after = harness_figures(f.h);
    assert_int_equal(after.cancelled_prompt, phase == SCHED_PROMPT);
    assert_int_equal(after.cancelled_drawing, phase == SCHED_DRAWING);
    close_all(&f);
}

static void test_cancel_between_parts_of_the_prompt(void **state)
{
    (void)state;
    check_cancel(SCHED_PROGRESS, 1, SCHED_PROMPT);
    check_cancel(SCHED_PROGRESS, 2, SCHED_PROMPT);
}

static void test_cancel_while_drawing(void **state)
{
    (void)state;
    check_cancel(SCHED_TOKEN, 1, SCHED_DRAWING);
    check_cancel(SCHED_TOKEN, 2, SCHED_DRAWING);
}

/* Those that wait, first, last and between, while nothing runs and while all seats are taken. */
static void check_cancel_queued(bool paused)
{
    struct fixture f;
    struct harness_job *j[9];
    struct sched_job job = job_of(30, 40);
    open_all(&f, usual, (struct sched_options){ 0 });
    if (paused) harness_pause(f.h);
    for (int i = 0; i < 9; i++) j[i] = harness_submit(f.h, job);
    harness_until(f.h, SCHED_ACCEPTED, j[8]);
    for (int i = 4; i < 9; i += 2) sched_cancel(f.h->s, j[i]->id);
    for (int i = 4; i < 9; i += 2) {
        while (!j[i]->over) harness_next(f.h);
        check_end(j[i], SCHED_CANCELLED, SCHED_BY_CALLER, SCHED_QUEUED);
        assert_int_equal(j[i]->last.usage.n_drawn, 0);
    }
    if (paused) assert_int_equal(harness_figures(f.h).prompt_tokens, 0);
    sched_resume(f.h->s);
    harness_finish(f.h);
    for (int i = 0; i < 9; i++)
        if (i < 4 || i % 2) harness_compare(f.alone, &job, j[i], 0, ZP_MODE_FULL);
    assert_int_equal(harness_figures(f.h).cancelled_queued, 3);
    close_all(&f);
}

static void test_cancel_while_waiting(void **state)
{
    (void)state;
    check_cancel_queued(true);
    check_cancel_queued(false);
}

/* Its end, or its refusal, is on its way already: it is a cancellation all the same. */
static void test_cancel_overtakes_what_is_on_its_way(void **state)
{
    struct fixture f;
    (void)state;
    open_all(&f, usual, (struct sched_options){ 0 });
    struct harness_job *j = harness_submit(f.h, job_of(5, 2));
    harness_until(f.h, SCHED_TOKEN, j);
    harness_go(f.h); /* the last step; then it stands still again */
    while (sem_wait(&f.h->news) != 0) {
    }
    struct harness_job *refused = harness_submit(f.h, job_of(N_CTX, 1));
    struct harness_job *unseen = harness_submit(f.h, job_of(5, 1));
    for (struct harness_job *each = j; each <= unseen; each++) sched_cancel(f.h->s, each->id);
    harness_finish(f.h);
    check_end(j, SCHED_CANCELLED, SCHED_BY_CALLER, SCHED_DRAWING);
    check_end(refused, SCHED_CANCELLED, SCHED_BY_CALLER, SCHED_QUEUED);
    assert_int_equal(refused->n_events, 1);
    assert_int_equal(unseen->n_events, 1);
    struct sched_figures figures = harness_figures(f.h);
    assert_int_equal(figures.accepted, 3);
    assert_int_equal(figures.completed + figures.refused, 0);
    close_all(&f);
}

/* Jobs come, are cancelled at random moments, or end; seeds of moments are printed by main. */
static void test_cancelling_at_any_time_leaves_the_others(void **state)
{
    enum { N = 60 };
    struct fixture f;
    struct harness_job *j[N];
    struct sched_job jobs[N];
    struct rng r = rng_stream(SEED, 0);
    bool cancelled[N] = { false };
    (void)state;
    open_all(&f, usual, (struct sched_options){ .step_tokens = 24 });
    atomic_store(&f.h->lock_step, false);
    for (int i = 0; i < N; i++) {
        jobs[i] = job_of(1 + rng_below(&r, 200), 1 + (uint32_t)rng_below(&r, 30));
        jobs[i].n_choices = 1 + (uint32_t)rng_below(&r, 2);
        jobs[i].sampler = (zp_sampler_options){ .temperature = 1, .seed = (uint64_t)i };
        j[i] = harness_submit(f.h, jobs[i]);
        for (uint64_t k = rng_below(&r, 20); k > 0 && f.h->n_over < f.h->n_jobs; k--)
            harness_next(f.h);
        int victim = (int)rng_below(&r, (uint64_t)i + 1);
        if (i % 2 || j[victim]->over) continue;
        sched_cancel(f.h->s, j[victim]->id);
        cancelled[victim] = true;
    }
    harness_finish(f.h);
    for (int i = 0; i < N; i++) {
        assert_int_equal(j[i]->last.kind, cancelled[i] ? SCHED_CANCELLED : SCHED_DONE);
        for (uint32_t k = 0; k < jobs[i].n_choices && !cancelled[i]; k++)
            harness_compare(f.alone, &jobs[i], j[i], k, ZP_MODE_FULL);
    }
    close_all(&f);
}

/* ---- deadlines ------------------------------------------------------------------------------- */

/* A deadline that has just passed, of a job under way while the scheduler's thread stands still. */
static void make_late(struct harness *h, uint64_t id)
{
    struct job *job = h->s->lanes->running.first;
    while (job->id != id) job = job->next;
    job->o.deadline = os_now();
}

/* One that waits in a pause: the thread sleeps until its deadline. */
static void check_deadline(enum sched_kind at, enum sched_phase phase)
{
    struct fixture f;
    struct sched_job job = job_of(250, 0), other = job_of(20, 50);
    open_all(&f, usual, (struct sched_options){ .step_tokens = 20 });
    struct harness_job *beside = harness_submit(f.h, other);
    harness_until(f.h, SCHED_TOKEN, beside);
    if (phase == SCHED_QUEUED) harness_pause(f.h);
    job.progress = true;
    job.deadline = phase == SCHED_QUEUED ? os_now() + 0.02 : 0;
    struct harness_job *j = harness_submit(f.h, job);
    harness_until(f.h, at, j);
    size_t n_events = j->n_events;
    if (phase != SCHED_QUEUED) make_late(f.h, j->id);
    while (!j->over) harness_next(f.h);
    check_end(j, SCHED_FAILED, SCHED_LATE, phase);
    assert_int_equal(j->n_events, n_events + 1);
    assert_non_null(strstr(j->err.message, "deadline"));
    sched_resume(f.h->s);
    harness_finish(f.h);
    harness_compare(f.alone, &other, beside, 0, ZP_MODE_FULL);
    assert_int_equal(harness_figures(f.h).failed, 1);
    close_all(&f);
}

static void test_deadlines_end_jobs_in_every_phase(void **state)
{
    (void)state;
    check_deadline(SCHED_ACCEPTED, SCHED_QUEUED);
    check_deadline(SCHED_PROGRESS, SCHED_PROMPT);
    check_deadline(SCHED_TOKEN, SCHED_DRAWING);
}

static void test_far_deadlines_are_no_trouble(void **state)
{
    static const double far[] = { 1e300, INFINITY, 1e18, 4e9 };
    struct fixture f;
    (void)state;
    open_all(&f, usual, (struct sched_options){ 0 });
    harness_pause(f.h);
    for (size_t i = 0; i < ZP_COUNT(far); i++) {
        struct sched_job job = job_of(5, 5);
        job.deadline = far[i];
        harness_submit(f.h, job);
    }
    sched_resume(f.h->s);
    harness_finish(f.h);
    assert_int_equal(harness_figures(f.h).completed, ZP_COUNT(far));
    close_all(&f);
}

/* ---- drain, pause ---------------------------------------------------------------------------- */

/* Until the jobs are through, or only until the next step. */
static void check_drain(bool long_enough)
{
    struct fixture f;
    struct harness_job *j[7];
    struct sched_job job = job_of(30, 40);
    open_all(&f, usual, (struct sched_options){ 0 });
    for (int i = 0; i < 6; i++) j[i] = harness_submit(f.h, job); /* two of them wait */
    harness_until(f.h, SCHED_TOKEN, j[3]);
    sched_drain(f.h->s, long_enough ? INFINITY : os_now());
    j[6] = harness_submit(f.h, job);
    const struct sched_event *e = harness_next(f.h);
    assert_ptr_equal(e->arg, j[6]); /* at once */
    assert_int_equal(j[6]->last.kind, SCHED_REFUSED);
    assert_int_equal(j[6]->last.why, SCHED_DRAINING);
    harness_until(f.h, SCHED_DRAINED, NULL);
    assert_int_equal(f.h->n_over, 7);
    for (int i = 0; i < 6; i++) {
        if (long_enough) harness_compare(f.alone, &job, j[i], 0, ZP_MODE_FULL);
        else check_end(j[i], SCHED_CANCELLED, SCHED_BY_DRAIN, i < 4 ? SCHED_DRAWING : SCHED_QUEUED);
    }
    assert_int_equal(f.h->n_drained, 1);
    close_all(&f);
}

static void test_drain_lets_jobs_finish_until_a_time(void **state)
{
    (void)state;
    check_drain(true);
    check_drain(false);
}

static void test_drain_may_be_cut_short(void **state)
{
    struct fixture f;
    (void)state;
    open_all(&f, usual, (struct sched_options){ 0 });
    struct harness_job *j = harness_submit(f.h, job_of(30, 0));
    harness_until(f.h, SCHED_TOKEN, j);
    sched_drain(f.h->s, os_now() + 3600);
    harness_until(f.h, SCHED_TOKEN, j);
    sched_drain(f.h->s, 0);
    harness_until(f.h, SCHED_DRAINED, NULL);
    check_end(j, SCHED_CANCELLED, SCHED_BY_DRAIN, SCHED_DRAWING);
    close_all(&f);
}

static void test_nothing_is_computed_in_a_pause(void **state)
{
    struct fixture f;
    struct sched_job job = job_of(30, 40);
    (void)state;
    open_all(&f, usual, (struct sched_options){ 0 });
    struct harness_job *a = harness_submit(f.h, job);
    harness_until(f.h, SCHED_TOKEN, a);
    harness_pause(f.h);
    struct sched_figures before = harness_figures(f.h);
    struct harness_job *b = harness_submit(f.h, job);
    harness_until(f.h, SCHED_ACCEPTED, b);
    struct harness_job *c = harness_submit(f.h, job);
    sched_cancel(f.h->s, c->id);
    while (!c->over) harness_next(f.h);
    struct sched_figures after = harness_figures(f.h);
    assert_int_equal(after.steps, before.steps);
    assert_int_equal(after.prompt_tokens, before.prompt_tokens);
    sched_resume(f.h->s);
    harness_finish(f.h);
    harness_compare(f.alone, &job, a, 0, ZP_MODE_FULL);
    harness_compare(f.alone, &job, b, 0, ZP_MODE_FULL);
    close_all(&f);
}

/* ---- engines --------------------------------------------------------------------------------- */

/* Jobs under way, waiting and new around a swap: each is its engine's. */
static void test_a_new_engine_takes_the_new_jobs(void **state)
{
    struct fixture f;
    struct harness_job *old[6], *new[3];
    struct sched_job job = job_of(30, 40);
    zp_model *other = golden_small("gguf-qwen2");
    zp_engine *e = golden_engine(other, usual), *alone = golden_engine(other, usual);
    (void)state;
    open_all(&f, usual, (struct sched_options){ .step_tokens = 16 });
    for (int i = 0; i < 6; i++) old[i] = harness_submit(f.h, job); /* two of them wait */
    harness_until(f.h, SCHED_TOKEN, old[0]);
    assert_int_equal(sched_set_engine(f.h->s, 0, f.e, NULL), ZP_USAGE);
    assert_int_equal(sched_set_engine(f.h->s, SCHED_SLOTS, e, NULL), ZP_USAGE);
    harness_engine(f.h, 0, e);
    assert_int_equal(sched_set_engine(f.h->s, 1, f.e, NULL), ZP_USAGE); /* still at work */
    for (int i = 0; i < 3; i++) new[i] = harness_submit(f.h, job);
    harness_until(f.h, SCHED_TOKEN, new[0]);
    assert_false(old[5]->over); /* both at a time */
    harness_until(f.h, SCHED_RELEASED, NULL);
    assert_ptr_equal(f.h->released, f.e);
    for (int i = 0; i < 6; i++) harness_compare(f.alone, &job, old[i], 0, ZP_MODE_FULL);
    harness_finish(f.h);
    for (int i = 0; i < 3; i++) harness_compare(alone, &job, new[i], 0, ZP_MODE_FULL);
    /* none any more; and the first again */
    harness_engine(f.h, 0, NULL);
    struct harness_job *refused = harness_submit(f.h, job);
    harness_until(f.h, SCHED_RELEASED, NULL);
    assert_ptr_equal(f.h->released, e);
    assert_int_equal(refused->last.why, SCHED_NO_ENGINE);
    harness_engine(f.h, 0, NULL); /* nothing to do */
    harness_engine(f.h, 0, f.e);
    struct harness_job *again = harness_submit(f.h, job);
    harness_finish(f.h);
    harness_compare(f.alone, &job, again, 0, ZP_MODE_FULL);
    assert_int_equal(f.h->n_released, 2);
    close_all(&f);
    zp_engine_close(e);
    zp_engine_close(alone);
    zp_model_close(other);
}

static void test_two_slots_share_the_thread(void **state)
{
    struct fixture f;
    struct harness_job *j[8];
    struct sched_job jobs[8];
    zp_model *other = golden_small("gguf-qwen2");
    zp_engine *e = golden_engine(other, usual), *alone = golden_engine(other, usual);
    (void)state;
    open_all(&f, usual, (struct sched_options){ .step_tokens = 16 });
    harness_engine(f.h, 1, e);
    for (uint32_t i = 0; i < 8; i++) {
        jobs[i] = job_of(20 + 20 * i, 30);
        jobs[i].slot = i % 2;
        j[i] = harness_submit(f.h, jobs[i]);
    }
    harness_until(f.h, SCHED_TOKEN, j[1]);
    struct sched_figures figures = harness_figures(f.h);
    assert_true(figures.slots[0].sequences > 0 && figures.slots[1].sequences > 0);
    assert_int_equal(figures.slots[1].kv_pages, e->kv.pages.n_pages);
    harness_finish(f.h);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(j[i]->last.usage.slot, i % 2);
        harness_compare(i % 2 ? alone : f.alone, &jobs[i], j[i], 0, ZP_MODE_FULL);
    }
    close_all(&f);
    zp_engine_close(e);
    zp_engine_close(alone);
    zp_model_close(other);
}

/* ---- failures -------------------------------------------------------------------------------- */

enum { BAD_ID = 200 };

/* The row of one token in the embedding is no number: whoever says that token fails. */
static uint8_t *damage(zp_engine *e, struct gguf_tensor *copy)
{
    size_t row = (size_t)gguf_tensor_row_bytes(e->weights.embedding);
    *copy = *e->weights.embedding;
    uint8_t *data = malloc((size_t)copy->bytes);
    assert_non_null(data);
    memcpy(data, copy->data, (size_t)copy->bytes);
    memset(data + BAD_ID * row, 0xff, row);
    copy->data = data;
    e->weights.embedding = copy;
    return data;
}

/* In the prompt, or as a token that was drawn: before it is sent it is found. */
static void test_logits_that_are_no_numbers_fail_one_job(void **state)
{
    static const zp_bias draw[] = { { BAD_ID, 1e5f } };
    struct fixture f;
    struct gguf_tensor copy;
    struct harness_job *j[6];
    struct sched_job job = job_of(100, 50), said = job, drawn = job;
    int32_t bad[100];
    (void)state;
    open_all(&f, usual, (struct sched_options){ .step_tokens = 40 });
    const struct gguf_tensor *embedding = f.e->weights.embedding;
    uint8_t *data = damage(f.e, &copy);
    memcpy(bad, ids, sizeof bad);
    bad[50] = BAD_ID;
    said.prompt = bad, said.n_choices = 2;
    drawn.sampler = (zp_sampler_options){ .bias = draw, .n_bias = 1 };
    for (int i = 0; i < 6; i++) j[i] = harness_submit(f.h, i == 1 ? said : i == 4 ? drawn : job);
    harness_finish(f.h);
    for (int i = 0; i < 6; i++) {
        if (i != 1 && i != 4) {
            harness_compare(f.alone, &job, j[i], 0, ZP_MODE_FULL);
            check_outcome(j[i], OUTCOME_DONE);
            continue;
        }
        check_end(j[i], SCHED_FAILED, SCHED_NONFINITE, i == 1 ? SCHED_PROMPT : SCHED_DRAWING);
        assert_int_equal(j[i]->err.code, ZP_RUN);
        assert_non_null(strstr(j[i]->err.message, "not a number"));
        assert_int_equal(j[i]->choices[0].n, i == 4);
    }
    f.e->weights.embedding = embedding;
    free(data);
    close_all(&f);
}

/* No model can help it: that the job fails is not to be held against one. */
static void test_options_that_leave_no_token_fail_one_job(void **state)
{
    static const char schema[] = "{\"enum\":[true,false]}";
    struct fixture f;
    struct sched_job job = job_of(40, 30), banned = job;
    zp_grammar *g;
    int32_t *letters;
    size_t n;
    (void)state;
    open_all(&f, usual, (struct sched_options){ 0 });
    GOLDEN_OK(zp_grammar_open_schema(&g, f.m, schema, strlen(schema), err));
    GOLDEN_OK(zp_tokenize(f.m, "tf", 2, 0, &letters, &n, err));
    assert_int_equal(n, 2);
    zp_bias bans[] = { { letters[0], -INFINITY }, { letters[1], -INFINITY } };
    banned.ignore_end = false;
    banned.sampler = (zp_sampler_options){ .grammar = g, .bias = bans, .n_bias = 2 };
    struct harness_job *other = harness_submit(f.h, job), *j = harness_submit(f.h, banned);
    harness_finish(f.h);
    check_end(j, SCHED_FAILED, SCHED_INVALID, SCHED_PROMPT);
    assert_non_null(strstr(j->err.message, "the bias bans those that the grammar allows"));
    harness_compare(f.alone, &job, other, 0, ZP_MODE_FULL);
    zp_free(letters);
    zp_grammar_close(g);
    close_all(&f);
}

/* Less is set aside than is drawn: the pool runs out, and who finds no page fails alone. */
static void check_out_of_pages(uint32_t n_choices)
{
    enum { N = 4 };
    struct fixture f;
    struct harness_job *j[N];
    struct engine_plan plan;
    struct sched_job job = job_of(60, 150);
    zp_model *m = golden_small("llama");
    zp_engine_options eo = usual;
    eo.n_seq = N * n_choices;
    GOLDEN_OK(engine_plan(m, &eo, &plan, err));
    zp_model_close(m);
    eo.kv_bytes = plan.kv * 9 / 20;
    open_all(&f, eo, (struct sched_options){ .reserve = 1 });
    job.n_choices = n_choices;
    for (int i = 0; i < N; i++) j[i] = harness_submit(f.h, job);
    harness_finish(f.h);
    size_t failed = 0;
    for (int i = 0; i < N; i++) {
        if (j[i]->last.kind == SCHED_DONE) {
            for (uint32_t k = 0; k < n_choices; k++)
                harness_compare(f.alone, &job, j[i], k, ZP_MODE_FULL);
            continue;
        }
        check_end(j[i], SCHED_FAILED, SCHED_ERROR, SCHED_DRAWING);
        assert_int_equal(j[i]->err.code, ZP_NO_MEMORY);
        failed++;
    }
    assert_in_range(failed, 1, N - 1);
    assert_int_equal(j[0]->last.kind, SCHED_DONE); /* the oldest is served first */
    close_all(&f);
}

static void test_who_finds_no_page_fails_alone(void **state)
{
    (void)state;
    check_out_of_pages(1);
    check_out_of_pages(2);
}

/* What the engine refuses for another reason, which only a broken scheduler could give it. */
static void test_a_refused_run_fails_the_job_concerned(void **state)
{
    struct fixture f;
    struct harness_job *j[3];
    struct sched_job job = job_of(30, 40);
    (void)state;
    open_all(&f, usual, (struct sched_options){ 0 });
    for (int i = 0; i < 3; i++) j[i] = harness_submit(f.h, job);
    harness_until(f.h, SCHED_TOKEN, j[2]); /* its thread stands still */
    struct job *broken = f.h->s->lanes->running.first->next;
    assert_int_equal(broken->id, j[1]->id);
    broken->choices[0].g.run[0] = 1 << 30;
    harness_finish(f.h);
    check_end(j[1], SCHED_FAILED, SCHED_ERROR, SCHED_DRAWING);
    assert_non_null(strstr(j[1]->err.message, "outside the vocabulary"));
    harness_compare(f.alone, &job, j[0], 0, ZP_MODE_FULL);
    harness_compare(f.alone, &job, j[2], 0, ZP_MODE_FULL);
    close_all(&f);
}

/* Nobody reads for a while: the thread waits, nothing is lost. */
static void test_a_late_reader_loses_nothing(void **state)
{
    enum { N = 12 };
    struct fixture f;
    struct harness_job *j[N];
    struct sched_job job = job_of(40, 60);
    (void)state;
    open_all(&f, usual, (struct sched_options){ .event_bytes = 1 });
    atomic_store(&f.h->lock_step, false);
    job.logprobs = true, job.n_top = 20;
    for (int i = 0; i < N; i++) j[i] = harness_submit(f.h, job);
    while (!atomic_load(&f.h->s->out.wants_room)) sched_yield(); /* it stands */
    harness_finish(f.h);
    for (int i = 0; i < N; i++) harness_compare(f.alone, &job, j[i], 0, ZP_MODE_FULL);
    close_all(&f);
}

static int setup(void **state)
{
    for (int i = 0; i < N_IDS; i++) ids[i] = 30 + i * 37 % 90 + i % 7;
    (void)state;
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cancel_between_parts_of_the_prompt),
        cmocka_unit_test(test_cancel_while_drawing),
        cmocka_unit_test(test_cancel_while_waiting),
        cmocka_unit_test(test_cancel_overtakes_what_is_on_its_way),
        cmocka_unit_test(test_cancelling_at_any_time_leaves_the_others),
        cmocka_unit_test(test_deadlines_end_jobs_in_every_phase),
        cmocka_unit_test(test_far_deadlines_are_no_trouble),
        cmocka_unit_test(test_drain_lets_jobs_finish_until_a_time),
        cmocka_unit_test(test_drain_may_be_cut_short),
        cmocka_unit_test(test_nothing_is_computed_in_a_pause),
        cmocka_unit_test(test_a_new_engine_takes_the_new_jobs),
        cmocka_unit_test(test_two_slots_share_the_thread),
        cmocka_unit_test(test_logits_that_are_no_numbers_fail_one_job),
        cmocka_unit_test(test_options_that_leave_no_token_fail_one_job),
        cmocka_unit_test(test_who_finds_no_page_fails_alone),
        cmocka_unit_test(test_a_refused_run_fails_the_job_concerned),
        cmocka_unit_test(test_a_late_reader_loses_nothing),
    };
    printf("seed %d\n", SEED);
    return cmocka_run_group_tests(tests, setup, NULL);
}
