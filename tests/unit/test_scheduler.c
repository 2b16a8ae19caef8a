/* test_scheduler.c: what a job of the scheduler gives: answers, log-probabilities, usage, figures;
 * what it shares with others. Ends before the end: test_scheduler_ends; who begins when:
 * test_scheduler_queue; many at a time: test_scheduler_bits. */
#include "sched_harness.h"

#include "half_plan.h"
#include "in_folder.h"
#include "model/sample.h"

enum { N_CTX = 300, N_IDS = 280 };

static int32_t ids[N_IDS];

static struct sched_job job_of(size_t n_prompt, uint32_t n_predict)
{
    return (struct sched_job){ .prompt = ids, .n_prompt = n_prompt, .n_predict = n_predict,
                               .ignore_end = true };
}

struct fixture {
    zp_model *m;
    zp_engine *e, *alone;
    zp_engine_options eo;
    struct harness *h;
};

static void open_all(struct fixture *f, const char *model, zp_engine_options eo,
                     struct sched_options o, bool lock_step)
{
    f->m = golden_small(model);
    f->eo = eo;
    f->e = golden_engine(f->m, eo);
    eo.prefix_cache = false;
    f->alone = golden_engine(f->m, eo);
    f->h = harness_open(o, lock_step);
    harness_engine(f->h, 0, f->e);
}

static void close_all(struct fixture *f)
{
    harness_close(f->h);
    zp_engine_close(f->e);
    zp_engine_close(f->alone);
    zp_model_close(f->m);
}

static const zp_engine_options usual = { .n_ctx = N_CTX, .n_seq = 8, .n_threads = 2 };

/* ---- answers --------------------------------------------------------------------------------- */

static void check_usage(const struct sched_usage *u, size_t n_prompt, size_t n_drawn)
{
    assert_int_equal(u->n_prompt, n_prompt);
    assert_int_equal(u->n_drawn, n_drawn);
    assert_int_equal(u->n_reused, 0);
    assert_int_equal(u->phase, SCHED_DRAWING);
    assert_int_equal(u->mode, ZP_MODE_FULL);
    assert_true(u->queue_seconds >= 0 && u->prompt_seconds > 0 && u->draw_seconds >= 0);
    assert_true(u->first_seconds >= u->queue_seconds && u->total_seconds >= u->first_seconds);
    if (n_drawn) assert_true(u->top1_mean > 0 && u->top1_mean <= 1 && u->top1_std >= 0);
}

/* Options of all kinds, one after another. */
static void test_answers_are_those_of_a_generation_alone(void **state)
{
    static const char *const stops[] = { "never there", "e" };
    static const zp_bias bias[] = { { 50, 4 }, { 51, 4 } };
    struct sched_job jobs[] = {
        job_of(1, 20),
        job_of(70, 1),
        job_of(5, 0), /* to the end of the context */
        { .prompt = ids, .n_prompt = 60, .n_predict = 40 },
        { .prompt = ids, .n_prompt = 60, .n_predict = 40, .stop = stops, .n_stop = 2 },
        { .prompt = ids,
          .n_prompt = 200,
          .n_predict = 30,
          .sampler = { .temperature = 1, .seed = 4 } },
        { .prompt = ids + 9,
          .n_prompt = 30,
          .n_predict = 30,
          .ignore_end = true,
          .sampler = { .temperature = 0.7f,
                       .seed = 9,
                       .top_k = 40,
                       .top_p = 0.9f,
                       .min_p = 0.01f,
                       .repeat_penalty = 1.2f,
                       .penalty_last_n = 20,
                       .bias = bias,
                       .n_bias = 2 } },
    };
    struct fixture f;
    (void)state;
    open_all(&f, "llama", usual, (struct sched_options){ .step_tokens = 40 }, false);
    for (size_t i = 0; i < ZP_COUNT(jobs); i++) {
        struct harness_job *j = harness_submit(f.h, jobs[i]);
        harness_finish(f.h);
        assert_int_equal(j->last.kind, SCHED_DONE);
        assert_int_equal(j->n_accepted, 1);
        check_usage(&j->last.usage, jobs[i].n_prompt, j->choices[0].n);
        harness_compare(f.alone, &jobs[i], j, 0, ZP_MODE_FULL);
    }
    close_all(&f);
}

static void test_end_names_the_stop_string(void **state)
{
    static const char *const stops[] = { "never there", "e", "neither" };
    struct sched_job job = job_of(20, 200);
    struct fixture f;
    (void)state;
    job.sampler = (zp_sampler_options){ .temperature = 1, .seed = 3 };
    job.ignore_end = true;
    open_all(&f, "llama", usual, (struct sched_options){ 0 }, false);
    for (size_t first = 0; first < 2; first++) {
        job.stop = stops + first, job.n_stop = 3 - first;
        struct harness_job *j = harness_submit(f.h, job);
        harness_finish(f.h);
        assert_string_equal(j->choices[0].reason, "stop");
        assert_int_equal(j->choices[0].stop, 1 - first);
    }
    close_all(&f);
}

/* What a job points to may go as soon as it is submitted. */
static void test_jobs_are_copied(void **state)
{
    struct fixture f;
    int32_t own[50];
    char stop[] = "th";
    const char *stops[] = { stop };
    zp_bias bias[] = { { 60, 3 } };
    struct sched_job job = job_of(50, 30), same;
    (void)state;
    open_all(&f, "llama", usual, (struct sched_options){ 0 }, true);
    memcpy(own, ids, sizeof own);
    job.stop = stops, job.n_stop = 1, job.sampler.bias = bias, job.sampler.n_bias = 1;
    same = job;
    same.prompt = own;
    struct harness_job *j = harness_submit(f.h, same);
    memset(own, 0, sizeof own);
    stop[0] = '\0', stops[0] = NULL, bias[0].id = 0;
    harness_finish(f.h);
    strcpy(stop, "th"), stops[0] = stop, bias[0].id = 60;
    harness_compare(f.alone, &job, j, 0, ZP_MODE_FULL);
    close_all(&f);
}

static void close_its_grammar(struct harness *h, const struct sched_event *e, void *arg)
{
    zp_grammar **own = arg;
    if (e->kind < SCHED_DONE || e->kind > SCHED_REFUSED) return;
    zp_grammar_close(own[(struct harness_job *)e->arg - h->jobs]);
}

/* Texts of grammars come in company as alone, and a grammar may go with its job's last event: of
 * one that finished, waited, or was cancelled on its way. */
static void test_grammars_live_until_the_last_event(void **state)
{
    enum { N = 6 };
    static const char schema[] = "{\"type\":\"array\",\"items\":{\"enum\":[\"one\",2,true]},"
                                 "\"minItems\":2,\"maxItems\":9}";
    struct fixture f;
    zp_grammar *own[N], *same;
    struct sched_job jobs[N];
    struct harness_job *j[N];
    json_error_t error;
    (void)state;
    open_all(&f, "llama", (zp_engine_options){ .n_ctx = N_CTX, .n_seq = 3, .n_threads = 2 },
             (struct sched_options){ 0 }, true);
    f.h->on_event = close_its_grammar, f.h->arg = own;
    GOLDEN_OK(zp_grammar_open_schema(&same, f.m, schema, strlen(schema), err));
    for (int i = 0; i < N; i++) {
        GOLDEN_OK(zp_grammar_open_schema(&own[i], f.m, schema, strlen(schema), err));
        jobs[i] = job_of(20 + (size_t)i, 100);
        jobs[i].ignore_end = false, jobs[i].n_choices = i == 2 ? 2 : 1;
        jobs[i].sampler = (zp_sampler_options){ .temperature = 1, .seed = 7, .grammar = own[i] };
        j[i] = harness_submit(f.h, jobs[i]);
    }
    harness_until(f.h, SCHED_TOKEN, j[1]);
    sched_cancel(f.h->s, j[1]->id);
    harness_finish(f.h);
    for (int i = 0; i < N; i++) {
        jobs[i].sampler.grammar = same;
        assert_int_equal(j[i]->last.kind, i == 1 ? SCHED_CANCELLED : SCHED_DONE);
        for (uint32_t k = 0; k < jobs[i].n_choices && i != 1; k++) {
            const struct buffer *text = &j[i]->choices[k].text;
            json_t *value = json_loadb((const char *)text->data, text->size, 0, &error);
            assert_true(json_array_size(value) >= 2 && json_array_size(value) <= 9);
            json_decref(value);
            harness_compare(f.alone, &jobs[i], j[i], k, ZP_MODE_FULL);
        }
    }
    zp_grammar_close(same);
    close_all(&f);
}

/* Choices are jobs of their own with the seeds that follow; the prompt is computed once, but for
 * its last token. */
static void check_choices(size_t n_prompt, zp_kv_type kv, bool cached)
{
    enum { N = 5 };
    struct fixture f;
    zp_engine_options eo = usual;
    eo.kv_type = kv;
    eo.prefix_cache = cached;
    open_all(&f, "llama", eo, (struct sched_options){ .step_tokens = 50 }, false);
    struct sched_job job = job_of(n_prompt, 70);
    job.n_choices = N;
    job.sampler = (zp_sampler_options){ .temperature = 1, .seed = 77, .repeat_penalty = 1.1f };
    struct harness_job *j = harness_submit(f.h, job);
    harness_finish(f.h);
    assert_int_equal(j->last.usage.n_drawn, N * 70);
    for (uint32_t i = 0; i < N; i++) harness_compare(f.alone, &job, j, i, ZP_MODE_FULL);
    assert_true(memcmp(j->choices[0].ids, j->choices[1].ids, 70 * sizeof(int32_t)) != 0);
    assert_int_equal(harness_figures(f.h).prompt_tokens, n_prompt + N - 1);
    close_all(&f);
}

static void test_choices_share_their_prompt(void **state)
{
    static const size_t lengths[] = { 1, 2, 64, 65, 130 };
    (void)state;
    for (size_t i = 0; i < ZP_COUNT(lengths); i++) {
        check_choices(lengths[i], ZP_KV_BF16, i % 2);
        check_choices(lengths[i], ZP_KV_Q8, i % 2 == 0);
    }
}

/* ---- log-probabilities ----------------------------------------------------------------------- */

struct watch {
    zp_model *m;
    const float *logits; /* (n, n_vocab): row i is of token `first` + i */
    size_t first, n_seen;
    uint32_t n_top;
    enum sched_kind kind;
};

static void check_logprob(const struct watch *w, const struct sched_logprob *p, const float *row)
{
    double wanted;
    char *text;
    size_t size;
    GOLDEN_OK(sample_logprob_of(row, w->m->h.n_vocab, p->id, &wanted, err));
    assert_true(fabs(p->logprob - wanted) < 1e-12);
    GOLDEN_OK(zp_detokenize(w->m, &p->id, 1, true, &text, &size, err));
    assert_int_equal(p->n_bytes, size);
    assert_memory_equal(p->bytes, text, size);
    zp_free(text);
}

static void see_logprobs(struct harness *h, const struct sched_event *e, void *arg)
{
    struct watch *w = arg;
    (void)h;
    if (e->kind != w->kind || e->token.id < 0) return;
    const struct sched_token *t = &e->token;
    const float *row = w->logits + w->n_seen++ * w->m->h.n_vocab;
    assert_int_equal(t->index, w->kind == SCHED_PROMPT_TOKEN ? w->n_seen : w->n_seen - 1);
    assert_true(t->has_logprob);
    assert_int_equal(t->own.id, t->id);
    assert_int_equal(t->n_top, w->n_top);
    check_logprob(w, &t->own, row);
    for (uint32_t i = 0; i < t->n_top; i++) {
        check_logprob(w, &t->top[i], row);
        assert_true(i == 0 || t->top[i].logprob <= t->top[i - 1].logprob);
    }
    if (t->n_top) assert_true(fabs(exp(t->top[0].logprob) - t->top1) < 1e-6);
}

/* Rows of the prompt and the tokens that followed it. */
static float *logits_of(struct fixture *f, size_t n_prompt, const struct harness_choice *c)
{
    int32_t all[N_CTX];
    memcpy(all, ids, n_prompt * sizeof *all);
    memcpy(all + n_prompt, c->ids, (c->n - 1) * sizeof *all);
    return golden_logits(f->alone, f->m, all, n_prompt + c->n - 1);
}

static void test_log_probabilities_of_drawn_tokens(void **state)
{
    static const uint32_t tops[] = { 0, 1, 5, SCHED_MOST_TOP };
    (void)state;
    for (size_t i = 0; i < ZP_COUNT(tops); i++) {
        struct fixture f;
        open_all(&f, "llama", usual, (struct sched_options){ .step_tokens = 30 }, false);
        struct sched_job job = job_of(100, 30);
        job.sampler = (zp_sampler_options){ .temperature = 2, .seed = i };
        struct harness_job *first = harness_submit(f.h, job);
        harness_finish(f.h);
        float *logits = logits_of(&f, 100, &first->choices[0]);
        struct watch w = { .m = f.m, .logits = logits + 99 * f.m->h.n_vocab, .n_top = tops[i],
                           .kind = SCHED_TOKEN };
        f.h->on_event = see_logprobs, f.h->arg = &w;
        job.logprobs = true, job.n_top = tops[i];
        struct harness_job *j = harness_submit(f.h, job);
        harness_finish(f.h);
        assert_int_equal(w.n_seen, 30);
        assert_memory_equal(j->choices[0].ids, first->choices[0].ids, 30 * sizeof(int32_t));
        free(logits);
        close_all(&f);
    }
}

/* All but the first token, whatever other prompts take of the rows; nothing of it is reused. */
static void test_log_probabilities_of_the_prompt(void **state)
{
    struct fixture f;
    zp_engine_options eo = usual;
    (void)state;
    eo.prefix_cache = true;
    open_all(&f, "llama", eo, (struct sched_options){ 0 }, true);
    float *logits = golden_logits(f.alone, f.m, ids, 200);
    struct watch w = { .m = f.m, .logits = logits, .n_top = 3, .kind = SCHED_PROMPT_TOKEN };
    struct sched_job job = job_of(200, 5), other = job_of(150, 5);
    harness_submit(f.h, other);
    harness_finish(f.h);
    f.h->on_event = see_logprobs, f.h->arg = &w;
    job.prompt_logprobs = true, job.n_top = 3, job.n_choices = 2;
    struct harness_job *j = harness_submit(f.h, job), *beside = harness_submit(f.h, other);
    harness_finish(f.h);
    assert_int_equal(w.n_seen, 199);
    assert_int_equal(j->n_prompt_tokens, 199);
    assert_int_equal(j->last.usage.n_reused, 0);
    assert_int_equal(beside->last.usage.n_reused, 128);
    for (uint32_t i = 0; i < 2; i++) harness_compare(f.alone, &job, j, i, ZP_MODE_FULL);
    /* two of them share the rows */
    f.h->on_event = NULL;
    struct harness_job *a = harness_submit(f.h, job), *b = harness_submit(f.h, job);
    harness_finish(f.h);
    assert_int_equal(a->n_prompt_tokens + b->n_prompt_tokens, 2 * 199);
    free(logits);
    close_all(&f);
}

/* ---- modes ----------------------------------------------------------------------------------- */

static zp_mode mode_of(struct fixture *f, struct sched_job job)
{
    struct harness_job *j = harness_submit(f->h, job);
    harness_finish(f->h);
    if (j->last.kind == SCHED_REFUSED) return ZP_MODE_AUTO;
    assert_int_equal(j->last.kind, SCHED_DONE);
    harness_compare(f->alone, &job, j, 0, j->last.usage.mode);
    return j->last.usage.mode;
}

static struct sched_job with_mode(struct sched_job job, zp_mode mode, uint32_t hint)
{
    job.mode = mode;
    job.context_length_hint = hint;
    return job;
}

/* Auto: half from 101 expected tokens on. */
static void test_modes_are_resolved_before_the_first_token(void **state)
{
    struct fixture f = { .eo = usual };
    struct sched_job job = job_of(40, 20);
    (void)state;
    f.m = half_plan_model(in_folder("half.gguf"), "full", "half\",\"zero", 100);
    f.e = golden_engine(f.m, f.eo);
    f.alone = golden_engine(f.m, f.eo);
    f.h = harness_open((struct sched_options){ 0 }, false);
    harness_engine(f.h, 0, f.e);
    assert_int_equal(mode_of(&f, with_mode(job, ZP_MODE_FULL, 0)), ZP_MODE_FULL);
    assert_int_equal(mode_of(&f, with_mode(job, ZP_MODE_ZERO, 0)), ZP_MODE_ZERO);
    assert_int_equal(mode_of(&f, with_mode(job, ZP_MODE_HALF, 0)), ZP_MODE_HALF);
    assert_int_equal(mode_of(&f, with_mode(job, ZP_MODE_AUTO, 0)), ZP_MODE_FULL);
    assert_int_equal(mode_of(&f, with_mode(job, ZP_MODE_AUTO, 100)), ZP_MODE_FULL);
    assert_int_equal(mode_of(&f, with_mode(job, ZP_MODE_AUTO, 101)), ZP_MODE_HALF);
    assert_int_equal(mode_of(&f, with_mode(job_of(40, 61), ZP_MODE_AUTO, 0)), ZP_MODE_HALF);
    assert_int_equal(mode_of(&f, with_mode(job_of(40, 60), ZP_MODE_AUTO, 0)), ZP_MODE_FULL);
    assert_int_equal(mode_of(&f, with_mode(job_of(101, 2), ZP_MODE_AUTO, 1)), ZP_MODE_HALF);
    assert_int_equal(mode_of(&f, with_mode(job_of(40, 0), ZP_MODE_AUTO, 0)), ZP_MODE_HALF);
    assert_int_equal(mode_of(&f, with_mode(job, (zp_mode)9, 0)), ZP_MODE_AUTO);
    assert_int_equal(harness_figures(f.h).refused, 1);
    close_all(&f);
}

static void test_modes_without_evidence_are_refused(void **state)
{
    struct fixture f;
    struct sched_job job = job_of(40, 20);
    (void)state;
    open_all(&f, "zerope-partial", usual, (struct sched_options){ 0 }, false);
    job.mode = ZP_MODE_ZERO;
    struct harness_job *j = harness_submit(f.h, job);
    harness_finish(f.h);
    assert_int_equal(j->last.kind, SCHED_REFUSED);
    assert_int_equal(j->last.why, SCHED_INVALID);
    assert_non_null(strstr(j->err.message, "evidence for position mode zero"));
    close_all(&f);
}

/* ---- reuse ----------------------------------------------------------------------------------- */

static size_t reused_by(struct fixture *f, struct sched_job job)
{
    struct harness_job *j = harness_submit(f->h, job);
    harness_finish(f->h);
    harness_compare(f->alone, &job, j, 0, ZP_MODE_FULL);
    return j->last.usage.n_reused;
}

static void test_tenants_share_nothing(void **state)
{
    struct fixture f;
    zp_engine_options eo = usual;
    struct sched_job job = job_of(200, 10);
    (void)state;
    eo.prefix_cache = true;
    open_all(&f, "llama", eo, (struct sched_options){ 0 }, false);
    job.salt = 5;
    assert_int_equal(reused_by(&f, job), 0);
    assert_int_equal(reused_by(&f, job), 192);
    job.salt = 6;
    assert_int_equal(reused_by(&f, job), 0);
    job.salt = 0;
    assert_int_equal(reused_by(&f, job), 0);
    job.salt = 5, job.no_reuse = true;
    assert_int_equal(reused_by(&f, job), 0);
    job.no_reuse = false, job.n_prompt = 193;
    assert_int_equal(reused_by(&f, job), 192);
    harness_pause(f.h);
    struct sched_figures figures = harness_figures(f.h);
    assert_int_equal(figures.reused_tokens, 2 * 192);
    assert_int_equal(figures.prompt_tokens, 5 * 200 + 193 - 2 * 192);
    assert_int_equal(figures.drawn_tokens, 6 * 10);
    assert_int_equal(figures.slots[0].kv_pages_used, 0);
    assert_true(figures.slots[0].kv_pages_kept > 0);
    close_all(&f);
}

/* Jobs that come together: what they begin with is computed by the first; whoever shares nothing
 * with it does not wait; and if it is cancelled, the next goes on from there. */
static void check_common_beginnings(bool cancel)
{
    struct fixture f;
    zp_engine_options eo = usual;
    struct harness_job *j[4];
    struct sched_job jobs[4] = { job_of(250, 4), job_of(220, 4), job_of(140, 4), job_of(200, 4) };
    eo.prefix_cache = true;
    eo.micro_batch = 32;
    open_all(&f, "llama", eo, (struct sched_options){ 0 }, true);
    jobs[0].progress = jobs[3].progress = true;
    jobs[3].prompt = ids + 64;
    harness_pause(f.h);
    for (int i = 0; i < 4; i++) j[i] = harness_submit(f.h, jobs[i]);
    sched_resume(f.h->s);
    harness_until(f.h, SCHED_PROGRESS, j[0]);
    if (cancel) sched_cancel(f.h->s, j[0]->id);
    harness_until(f.h, SCHED_PROGRESS, j[3]);
    assert_false(j[0]->over && !cancel);
    harness_finish(f.h);
    for (int i = cancel; i < 4; i++) harness_compare(f.alone, &jobs[i], j[i], 0, ZP_MODE_FULL);
    assert_int_equal(j[3]->last.usage.n_reused, 0);
    assert_int_equal(j[2]->last.usage.n_reused, 128);
    if (!cancel) assert_int_equal(j[1]->last.usage.n_reused, 192);
    close_all(&f);
}

static void test_common_beginnings_are_computed_once(void **state)
{
    (void)state;
    check_common_beginnings(false);
    check_common_beginnings(true);
}

/* ---- numbers --------------------------------------------------------------------------------- */

static void test_quality_tells_of_loops_and_doubt(void **state)
{
    static const zp_bias one[] = { { 50, 1e5f } };
    struct fixture f;
    struct sched_job job = job_of(30, 60), loop = job;
    double sum = 0;
    (void)state;
    open_all(&f, "llama", usual, (struct sched_options){ 0 }, false);
    loop.sampler = (zp_sampler_options){ .bias = one, .n_bias = 1 };
    job.sampler = (zp_sampler_options){ .temperature = 3, .seed = 1 };
    struct harness_job *a = harness_submit(f.h, loop), *b = harness_submit(f.h, job);
    harness_finish(f.h);
    assert_int_equal(a->last.usage.loop, 59);
    assert_in_range(b->last.usage.loop, 0, 5);
    float *logits = logits_of(&f, 30, &b->choices[0]);
    for (size_t i = 0; i < 60; i++) {
        struct sample_logprob top;
        GOLDEN_OK(sample_top(logits + (29 + i) * f.m->h.n_vocab, f.m->h.n_vocab, 1, &top, err));
        sum += exp(top.logprob);
    }
    assert_true(fabs(b->last.usage.top1_mean - sum / 60) < 1e-6);
    assert_true(b->last.usage.top1_std > 0);
    free(logits);
    close_all(&f);
}

/* Progress of a long prompt, and the budget that holds it back while others draw. */
static void test_prompts_go_on_beside_those_that_draw(void **state)
{
    struct fixture f;
    struct sched_job drawing = job_of(10, 150), prompt = job_of(250, 5);
    (void)state;
    open_all(&f, "llama", usual, (struct sched_options){ .step_tokens = 33 }, true);
    prompt.progress = true;
    struct harness_job *a = harness_submit(f.h, drawing);
    harness_until(f.h, SCHED_TOKEN, a);
    struct harness_job *b = harness_submit(f.h, prompt);
    for (size_t done = 32; done < 250; done += 32) {
        const struct sched_event *e = harness_until(f.h, SCHED_PROGRESS, b);
        assert_int_equal(e->progress.n_prompt, 250);
        assert_int_equal(e->progress.n_done, done); /* one of 33 draws */
    }
    size_t before = a->choices[0].n;
    assert_in_range(before, 7, 10); /* a token with every part */
    harness_finish(f.h);
    harness_compare(f.alone, &drawing, a, 0, ZP_MODE_FULL);
    harness_compare(f.alone, &prompt, b, 0, ZP_MODE_FULL);
    close_all(&f);
}

static void test_heart_beats_with_every_step(void **state)
{
    struct fixture f;
    struct sched_beat first, last;
    (void)state;
    open_all(&f, "llama", usual, (struct sched_options){ 0 }, true);
    sched_read_beat(f.h->s, &first);
    assert_int_equal(first.steps, 0);
    struct harness_job *j = harness_submit(f.h, job_of(10, 20));
    harness_until(f.h, SCHED_TOKEN, j);
    sched_read_beat(f.h->s, &last);
    assert_true(last.busy && last.steps == 1 && last.at >= first.at && last.at <= os_now());
    harness_finish(f.h);
    harness_pause(f.h);
    sched_read_beat(f.h->s, &last);
    assert_false(last.busy);
    assert_int_equal(last.steps, 20);
    struct sched_figures figures = harness_figures(f.h);
    assert_int_equal(figures.steps, 20);
    assert_int_equal(figures.step_tokens, 10 + 19);
    assert_int_equal(figures.step_sequences, 20);
    assert_true(figures.step_nanoseconds > 0);
    assert_int_equal(figures.slots[0].kv_pages, f.e->kv.pages.n_pages);
    assert_int_equal(figures.slots[0].kv_pages_used, 0);
    assert_int_equal(figures.running + figures.waiting + figures.sequences, 0);
    close_all(&f);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void test_memory_is_planned_and_given_back(void **state)
{
    struct sched *s = NULL;
    uint64_t id, before = live_bytes();
    (void)state;
    sched_close(NULL);
    GOLDEN_OK(sched_open(&s, NULL, err));
    sched_close(s);
    assert_int_equal(live_bytes(), before);
    zp_model *m = golden_small("llama");
    zp_engine *e = golden_engine(m, usual);
    uint64_t with_engine = live_bytes();
    GOLDEN_OK(sched_open(&s, NULL, err));
    uint64_t open = live_bytes();
    GOLDEN_OK(sched_set_engine(s, 0, e, err));
    assert_int_equal(live_bytes() - open, sched_engine_bytes(e));
    for (int i = 0; i < 40; i++) { /* some wait, some draw, nobody reads */
        struct sched_job job = job_of(100, 0);
        job.logprobs = true, job.n_top = 20, job.n_choices = 3;
        GOLDEN_OK(sched_submit(s, &job, &id, err));
    }
    sched_close(s);
    assert_int_equal(live_bytes(), with_engine);
    zp_engine_close(e);
    zp_model_close(m);
    assert_int_equal(live_bytes(), before);
}

static uint64_t count_allocations(void)
{
    struct mem_stats stats;
    mem_stats_read(&stats);
    return stats.allocations;
}

/* I5: tokens take no memory once the first ones are drawn. */
static void test_tokens_take_no_memory(void **state)
{
    struct fixture f;
    uint64_t before = 0;
    struct harness_job *j[4];
    (void)state;
    open_all(&f, "llama", usual, (struct sched_options){ 0 }, true);
    for (int i = 0; i < 4; i++) {
        struct sched_job job = job_of(20, 200);
        job.logprobs = true, job.n_top = 20;
        job.sampler = (zp_sampler_options){ .temperature = 1, .seed = (uint64_t)i };
        j[i] = harness_submit(f.h, job);
        for (int k = 0; k < HARNESS_CHOICES; k++) /* of the test itself */
            assert_int_equal(buffer_append(&j[i]->choices[k].text, (char[4000]){ 0 }, 4000, NULL),
                             0);
        for (int k = 0; k < HARNESS_CHOICES; k++) buffer_clear(&j[i]->choices[k].text);
    }
    while (j[3]->choices[0].n < 190) {
        harness_next(f.h);
        if (before == 0 && j[3]->choices[0].n == 50) before = count_allocations();
    }
    assert_true(before > 0);
    assert_int_equal(count_allocations(), before);
    close_all(&f);
}

static int setup(void **state)
{
    for (int i = 0; i < N_IDS; i++) ids[i] = 30 + i * 37 % 90 + i % 7;
    return make_folder(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers_are_those_of_a_generation_alone),
        cmocka_unit_test(test_end_names_the_stop_string),
        cmocka_unit_test(test_jobs_are_copied),
        cmocka_unit_test(test_grammars_live_until_the_last_event),
        cmocka_unit_test(test_choices_share_their_prompt),
        cmocka_unit_test(test_log_probabilities_of_drawn_tokens),
        cmocka_unit_test(test_log_probabilities_of_the_prompt),
        cmocka_unit_test(test_modes_are_resolved_before_the_first_token),
        cmocka_unit_test(test_modes_without_evidence_are_refused),
        cmocka_unit_test(test_tenants_share_nothing),
        cmocka_unit_test(test_common_beginnings_are_computed_once),
        cmocka_unit_test(test_quality_tells_of_loops_and_doubt),
        cmocka_unit_test(test_prompts_go_on_beside_those_that_draw),
        cmocka_unit_test(test_heart_beats_with_every_step),
        cmocka_unit_test(test_memory_is_planned_and_given_back),
        cmocka_unit_test(test_tokens_take_no_memory),
    };
    return cmocka_run_group_tests(tests, setup, remove_folder);
}
