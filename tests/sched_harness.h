/* sched_harness.h: a scheduler under test: events are waited for, gathered job by job, and compared
 * with what zp_generate gives alone. In lock-step the scheduler's thread stands still whenever it
 * has told something, until the test asks for more: what is asserted then depends on no clock. */
#ifndef TESTS_SCHED_HARNESS_H
#define TESTS_SCHED_HARNESS_H

#include "golden.h"

#include <pthread.h>
#include <semaphore.h>

#include "base/bytes.h"
#include "base/os.h"
#include "live_bytes.h"
#include "model/engine.h"
#include "serve/scheduler.h"

enum { HARNESS_JOBS = 256, HARNESS_CHOICES = 8 };

struct harness_choice {
    int32_t *ids; /* grows */
    size_t n;
    struct buffer text;
    const char *reason;
    uint32_t stop;
};

struct harness_job {
    uint64_t id;
    size_t n_events, n_accepted, n_last, n_progress, n_prompt_tokens;
    bool over;
    struct sched_event last; /* its pointers are void, but: */
    zp_err err;
    struct harness_choice choices[HARNESS_CHOICES];
};

struct harness {
    struct sched *s;
    sem_t news, go;
    _Atomic bool lock_step, held;
    pthread_t owner;
    struct harness_job jobs[HARNESS_JOBS]; /* arg of a job points here */
    size_t n_jobs, n_over, n_released, n_paused, n_drained;
    zp_engine *released;
    void (*on_event)(struct harness *h, const struct sched_event *e, void *arg);
    void *arg;
};

static inline void harness_wake(void *arg)
{
    struct harness *h = arg;
    bool hold = atomic_load(&h->lock_step) && !pthread_equal(pthread_self(), h->owner);
    if (hold) atomic_store(&h->held, true);
    sem_post(&h->news);
    while (hold && sem_wait(&h->go) != 0) {
    }
}

static inline void harness_go(struct harness *h)
{
    if (atomic_exchange(&h->held, false)) sem_post(&h->go);
}

static inline struct harness *harness_open(struct sched_options o, bool lock_step)
{
    struct harness *h = calloc(1, sizeof *h);
    assert_non_null(h);
    sem_init(&h->news, 0, 0);
    sem_init(&h->go, 0, 0);
    atomic_store(&h->lock_step, lock_step);
    h->owner = pthread_self();
    o.wake = harness_wake;
    o.wake_arg = h;
    GOLDEN_OK(sched_open(&h->s, &o, err));
    return h;
}

static inline void harness_engine(struct harness *h, uint32_t slot, zp_engine *e)
{
    GOLDEN_OK(sched_set_engine(h->s, slot, e, err));
}

/* ---- events ---------------------------------------------------------------------------------- */

static inline void harness_token(struct harness_choice *c, const struct sched_token *t)
{
    assert_int_equal(buffer_append(&c->text, t->text, t->size, NULL), ZP_OK);
    assert_true(utf8_is_valid(t->text, t->size, NULL));
    assert_int_equal(t->index, c->n);
    if (t->id < 0) return;
    assert_true(t->top1 > 0 && t->top1 <= 1);
    c->ids = realloc(c->ids, (c->n + 1) * sizeof *c->ids);
    assert_non_null(c->ids);
    c->ids[c->n++] = t->id;
}

/* Rules of every job's events: one beginning, one end, nothing beside. */
static inline void harness_take(struct harness *h, const struct sched_event *e)
{
    struct harness_job *j = e->arg;
    assert_true(j >= h->jobs && j < h->jobs + h->n_jobs);
    assert_int_equal(e->id, j->id);
    assert_false(j->over);
    j->n_events++;
    if (e->kind == SCHED_ACCEPTED) assert_int_equal(j->n_events, 1);
    j->n_accepted += e->kind == SCHED_ACCEPTED;
    j->n_progress += e->kind == SCHED_PROGRESS;
    j->n_prompt_tokens += e->kind == SCHED_PROMPT_TOKEN;
    if (e->kind == SCHED_TOKEN) harness_token(&j->choices[e->token.choice], &e->token);
    if (e->kind == SCHED_ENDED) {
        struct harness_choice *c = &j->choices[e->ended.choice];
        assert_null(c->reason);
        c->reason = e->ended.reason;
        c->stop = e->ended.stop;
    }
    if (e->kind < SCHED_DONE) return;
    j->over = true;
    j->last = *e;
    if (e->err) j->err = *e->err;
    h->n_over++;
}

/* The next event, waited for. */
static inline const struct sched_event *harness_next(struct harness *h)
{
    const struct sched_event *e;
    while (!(e = sched_next(h->s))) {
        harness_go(h);
        while (sem_wait(&h->news) != 0) {
        }
    }
    if (e->id) harness_take(h, e);
    h->n_released += e->kind == SCHED_RELEASED;
    h->n_paused += e->kind == SCHED_PAUSED;
    h->n_drained += e->kind == SCHED_DRAINED;
    if (e->kind == SCHED_RELEASED) h->released = e->engine;
    if (h->on_event) h->on_event(h, e, h->arg);
    return e;
}

/* Nothing is under way but what waits; figures are of now. */
static inline void harness_pause(struct harness *h)
{
    size_t before = h->n_paused;
    sched_pause(h->s);
    while (h->n_paused == before) harness_next(h);
}

/* Until all jobs submitted so far are over. */
static inline void harness_finish(struct harness *h)
{
    while (h->n_over < h->n_jobs) harness_next(h);
}

/* Until there is an event of a kind; of a job, or of any (NULL). */
static inline const struct sched_event *harness_until(struct harness *h, enum sched_kind kind,
                                                      const struct harness_job *j)
{
    const struct sched_event *e;
    do e = harness_next(h);
    while (e->kind != kind || (j && e->arg != j));
    return e;
}

/* ---- jobs ------------------------------------------------------------------------------------ */

static inline struct harness_job *harness_submit(struct harness *h, struct sched_job job)
{
    assert_true(h->n_jobs < HARNESS_JOBS);
    struct harness_job *j = &h->jobs[h->n_jobs++];
    for (size_t i = 0; i < HARNESS_CHOICES; i++)
        j->choices[i].text = buffer_with_max(MEM_META, 1 << 20);
    job.arg = j;
    GOLDEN_OK(sched_submit(h->s, &job, &j->id, err));
    assert_true(j->id != 0);
    return j;
}

static inline uint64_t harness_ended(const struct sched_figures *f)
{
    return f->completed + f->failed + f->cancelled_queued + f->cancelled_prompt +
           f->cancelled_drawing;
}

static inline struct sched_figures harness_figures(const struct harness *h)
{
    struct sched_figures f;
    sched_read_figures(h->s, &f);
    return f;
}

/* With all jobs over: the books are even, by what was seen too; then all memory is given back. */
static inline void harness_close(struct harness *h)
{
    struct sched_figures f = harness_figures(h);
    uint64_t seen[SCHED_REFUSED + 1] = { 0 };
    harness_finish(h);
    for (size_t i = 0; i < h->n_jobs; i++) seen[h->jobs[i].last.kind]++;
    f = harness_figures(h);
    assert_int_equal(f.accepted, harness_ended(&f));
    assert_int_equal(f.accepted + f.refused, h->n_jobs);
    assert_int_equal(f.completed, seen[SCHED_DONE]);
    assert_int_equal(f.failed, seen[SCHED_FAILED]);
    assert_int_equal(f.refused, seen[SCHED_REFUSED]);
    atomic_store(&h->lock_step, false);
    harness_go(h);
    sched_close(h->s);
    for (size_t i = 0; i < h->n_jobs; i++)
        for (size_t k = 0; k < HARNESS_CHOICES; k++) {
            free(h->jobs[i].choices[k].ids);
            buffer_free(&h->jobs[i].choices[k].text);
        }
    sem_destroy(&h->news);
    sem_destroy(&h->go);
    free(h);
}

/* ---- alone ----------------------------------------------------------------------------------- */

/* A choice is what zp_generate draws on a sequence of its own, by an engine with the same
 * options. */
static inline void harness_compare(zp_engine *alone, const struct sched_job *job,
                                   const struct harness_job *j, uint32_t choice, zp_mode mode)
{
    const struct harness_choice *c = &j->choices[choice];
    zp_generate_options o = { .n_predict = job->n_predict, .sampler = job->sampler,
                              .stop = job->stop, .n_stop = job->n_stop,
                              .ignore_end = job->ignore_end };
    zp_generated out;
    zp_seq *seq = NULL;
    o.sampler.seed += choice;
    GOLDEN_OK(zp_seq_open(&seq, alone, &(zp_seq_options){ .mode = mode }, err));
    GOLDEN_OK(zp_generate(alone, seq, job->prompt, job->n_prompt, &o, &out, err));
    assert_int_equal(c->n, out.n_ids);
    assert_memory_equal(c->ids ? c->ids : out.ids, out.ids, out.n_ids * sizeof *out.ids);
    assert_string_equal(c->text.data ? (const char *)c->text.data : "", out.text);
    assert_string_equal(c->reason, out.reason);
    zp_free(out.ids);
    zp_free(out.text);
    zp_seq_close(seq);
}

#endif
