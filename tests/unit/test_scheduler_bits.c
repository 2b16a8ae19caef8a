/* test_scheduler_bits.c: many jobs at a time, of all lengths, modes and options, some of which are
 * cancelled: each gives what it gives alone (I1, I8). The seed is printed. */
#include "sched_harness.h"

#include "base/rng.h"
#include "half_plan.h"
#include "in_folder.h"

enum { SEED = 1701, N_CTX = 2304, LONGEST = 2048 };
/* Sanitizers slow this ten times down; they look for races and overruns, which fewer jobs show. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { N_JOBS = 24 };
#else
enum { N_JOBS = 64 };
#endif

static int32_t ids[2 * LONGEST];

struct mix {
    const char *model; /* NULL: one with a plan of mode half */
    zp_kv_type kv;
    bool cached;
    uint32_t n_seq, micro_batch, step_tokens, reserve;
    double pool; /* of the pages that n_seq sequences need */
};

/* Mostly short, some of all lengths; a third begins as another one does. */
static struct sched_job random_job(struct rng *r, const struct mix *mix, uint64_t i)
{
    static const char *const stops[] = { "th", "zq" };
    static const zp_mode modes[] = { ZP_MODE_FULL, ZP_MODE_ZERO, ZP_MODE_HALF, ZP_MODE_AUTO };
    struct sched_job job = { .prompt = ids + (i % 3 ? rng_below(r, LONGEST) : 0),
                             .n_prompt = 1 + rng_below(r, i % 4 ? 200 : LONGEST),
                             .n_predict = 1 + (uint32_t)rng_below(r, 60),
                             .ignore_end = i % 5 != 0,
                             .n_choices = i % 6 ? 1 : 2 + (uint32_t)rng_below(r, 3),
                             .no_reuse = i % 7 == 3,
                             .logprobs = i % 8 == 5,
                             .n_top = 4,
                             .prompt_logprobs = i % 16 == 9,
                             .salt = i % 9 == 8,
                             .mode = mix->model ? ZP_MODE_FULL : modes[rng_below(r, 4)],
                             .context_length_hint = (uint32_t)rng_below(r, 2000) };
    if (i % 3 == 1) job.sampler = (zp_sampler_options){ .temperature = 0.8f, .seed = i };
    if (i % 3 == 2)
        job.sampler = (zp_sampler_options){ .temperature = 1.2f, .seed = i, .top_k = 30,
                                            .top_p = 0.9f, .repeat_penalty = 1.2f };
    if (i % 10 == 4) job.stop = stops, job.n_stop = 2;
    return job;
}

struct cancel_some {
    struct rng r;
    bool cancelled[N_JOBS];
    size_t n;
};

/* Every seventh job, at a random one of its events. */
static void cancel_some(struct harness *h, const struct sched_event *e, void *arg)
{
    struct cancel_some *c = arg;
    size_t i = e->id ? (size_t)((struct harness_job *)e->arg - h->jobs) : 0;
    if (i % 7 != 6 || e->kind >= SCHED_DONE || rng_below(&c->r, 8)) return;
    sched_cancel(h->s, e->id);
    c->n += !c->cancelled[i];
    c->cancelled[i] = true;
}

static zp_model *open_model(const struct mix *mix)
{
    if (mix->model) return golden_small(mix->model);
    return half_plan_model(in_folder("half.gguf"), "full", "half\",\"zero", 300);
}

static zp_engine *open_engine(const zp_model *m, const struct mix *mix)
{
    zp_engine_options o = { .n_ctx = N_CTX, .n_seq = mix->n_seq, .n_threads = 2, .kv_type = mix->kv,
                            .prefix_cache = mix->cached, .micro_batch = mix->micro_batch };
    struct engine_plan plan;
    GOLDEN_OK(engine_plan(m, &o, &plan, err));
    o.kv_bytes = (uint64_t)((double)plan.kv * mix->pool);
    return golden_engine(m, o);
}

static void check_mix(const struct mix *mix)
{
    zp_model *m = open_model(mix);
    zp_engine *e = open_engine(m, mix);
    zp_engine *alone = golden_engine(
        m, (zp_engine_options){ .n_ctx = N_CTX, .n_threads = 1, .kv_type = mix->kv });
    struct harness *h = harness_open(
        (struct sched_options){ .step_tokens = mix->step_tokens, .reserve = mix->reserve }, false);
    struct rng r = rng_stream(SEED, mix->n_seq);
    struct cancel_some c = { .r = rng_stream(SEED, 99) };
    struct sched_job jobs[N_JOBS];
    size_t modes[3] = { 0 };
    h->on_event = cancel_some, h->arg = &c;
    harness_engine(h, 0, e);
    for (size_t i = 0; i < N_JOBS; i++) harness_submit(h, jobs[i] = random_job(&r, mix, i));
    harness_finish(h);
    for (size_t i = 0; i < N_JOBS; i++) {
        const struct harness_job *j = &h->jobs[i];
        if (j->last.kind != (c.cancelled[i] ? SCHED_CANCELLED : SCHED_DONE))
            fail_msg("job %zu ends with %d: %s", i, (int)j->last.kind, j->err.message);
        for (uint32_t k = 0; k < jobs[i].n_choices && !c.cancelled[i]; k++)
            harness_compare(alone, &jobs[i], j, k, j->last.usage.mode);
        modes[j->last.usage.mode]++;
    }
    struct sched_figures f = harness_figures(h);
    print_message("  %s, kv %d: %zu cancelled, %llu reused, %llu tokens in %llu steps, modes %zu "
                  "%zu %zu\n",
                  mix->model ? mix->model : "half", (int)mix->kv, c.n,
                  (unsigned long long)f.reused_tokens, (unsigned long long)f.step_tokens,
                  (unsigned long long)f.steps, modes[0], modes[1], modes[2]);
    assert_true(c.n > 0 && mix->cached == (f.reused_tokens > 0));
    if (!mix->model) assert_true(modes[0] && modes[1] && modes[2]);
    harness_close(h);
    zp_engine_close(e);
    zp_engine_close(alone);
    zp_model_close(m);
}

static void test_company_changes_nothing(void **state)
{
    static const struct mix mixes[] = {
        { NULL, ZP_KV_BF16, true, 64, 0, 0, 0, 1 },
        { NULL, ZP_KV_Q8, false, 16, 100, 48, 0, 0.4 },
        { "llama", ZP_KV_Q8, true, 64, 64, 64, 0, 0.1 },
        { "gguf-gemma3", ZP_KV_BF16, true, 12, 256, 77, 0, 0.5 },
        { "zerope-local", ZP_KV_BF16, true, 7, 33, 4, 0, 1 },
    };
    (void)state;
    for (size_t i = 0; i < ZP_COUNT(mixes); i++) check_mix(&mixes[i]);
}

static int setup(void **state)
{
    struct rng r = rng_stream(SEED, 0);
    for (size_t i = 0; i < ZP_COUNT(ids); i++) ids[i] = 1 + (int32_t)rng_below(&r, 120);
    return make_folder(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_company_changes_nothing) };
    printf("seed %d\n", SEED);
    return cmocka_run_group_tests(tests, setup, remove_folder);
}
