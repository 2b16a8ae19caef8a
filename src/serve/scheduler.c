/* scheduler.c: the thread that computes: messages in, a step of every engine, figures out.
 * Owns: the thread and what both sides share. Does not know: HTTP, JSON, who asks.
 * D1 what stands in struct sched under a side's name is touched by that side only; between them go
 *    rings, atomics and a semaphore.
 * D2 between two steps every message, cancellation and deadline is looked at: each takes effect
 *    within a step.
 * D3 the thread sleeps only where nothing is under way, or paused, until a message or a
 *    deadline. */
#include "serve/scheduler.h"

#include <math.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#include "base/os.h"
#include "serve/scheduler_parts.h"

enum { INBOX_BYTES = 1 << 18, LEAST_EVENT_BYTES = 1 << 14 };

/* ---- messages -------------------------------------------------------------------------------- */

static size_t count_waiting(const struct sched *s, size_t *tokens)
{
    size_t n = 0;
    *tokens = 0;
    for (const struct lane *l = s->lanes; l; l = l->next)
        n += l->waiting.n, *tokens += l->waiting.n_tokens;
    return n;
}

/* Whether one more that waits is one too many: job->refusal says so. */
static bool is_full(const struct sched *s, struct job *job)
{
    size_t tokens, n = count_waiting(s, &tokens);
    if (n > s->o.most_waiting) job_refuse(job, SCHED_QUEUE_FULL, n - 1, s->o.most_waiting);
    else if (n > 1 && tokens > s->o.most_waiting_tokens)
        job_refuse(job, SCHED_QUEUE_FULL, tokens, s->o.most_waiting_tokens);
    else return false;
    struct sched_event *e = &job->refusal;
    e->refusal.retry_seconds = atomic_load(&s->retry_seconds);
    status_fail(&job->err, ZP_RUN, __FILE__, __LINE__,
                "too much waits already: %llu %s, at most %llu",
                (unsigned long long)e->refusal.found,
                n > s->o.most_waiting ? "jobs" : "tokens of prompts with this one",
                (unsigned long long)e->refusal.most);
    return true;
}

static void take_job(struct sched *s, struct job *job)
{
    bool waits = lane_take(job->lane, job, !atomic_load(&s->paused));
    if (waits && is_full(s, job)) {
        struct sched_event e = job->refusal;
        e.id = job->id;
        lane_refuse(job->lane, job);
        outbox_put(&s->out, &e, NULL);
        return;
    }
    struct sched_event e = { .kind = SCHED_ACCEPTED, .id = job->id, .arg = job->o.arg,
                             .usage = { .slot = job->o.slot, .mode = job->mode,
                                        .n_prompt = job->o.n_prompt } };
    outbox_put(&s->out, &e, NULL);
}

static void take_lane(struct sched *s, struct lane *l, uint32_t slot)
{
    if (s->heads[slot]) s->heads[slot]->retired = true;
    s->heads[slot] = l;
    if (!l) return;
    l->next = s->lanes;
    s->lanes = l;
}

static void take_messages(struct sched *s)
{
    const struct message *next;
    while (sem_trywait(&s->signal) == 0) {
    }
    while ((next = ring_front(&s->inbox))) {
        struct message m = *next;
        ring_release(&s->inbox);
        if (m.job) take_job(s, m.job);
        else take_lane(s, m.lane, m.slot);
        atomic_fetch_add(&s->taken, 1);
    }
}

/* ---- between steps --------------------------------------------------------------------------- */

static void tell(struct sched *s, enum sched_kind kind)
{
    outbox_put(&s->out, &(struct sched_event){ .kind = kind }, NULL);
}

static bool is_empty(const struct lane *l)
{
    return !l->waiting.first && !l->running.first;
}

/* Engines whose last job has ended are the caller's again, who frees the lane. */
static void release_lanes(struct sched *s)
{
    for (struct lane **at = &s->lanes; *at;) {
        struct lane *l = *at;
        if (!l->retired || !is_empty(l)) {
            at = &l->next;
            continue;
        }
        struct sched_event e = { .kind = SCHED_RELEASED, .engine = l->engine };
        *at = l->next;
        outbox_put(&s->out, &e, NULL);
    }
}

static bool all_empty(const struct sched *s)
{
    for (const struct lane *l = s->lanes; l; l = l->next)
        if (!is_empty(l)) return false;
    return true;
}

static void drop_caches(struct sched *s)
{
    if (!atomic_exchange(&s->drops_cache, false)) return;
    for (struct lane *l = s->lanes; l; l = l->next) lane_drop_cache(l);
}

/* Cancellations, deadlines, and the end of a drain. */
static void sweep(struct sched *s, double until)
{
    double now = os_now();
    bool over = until != 0 && now >= until;
    for (struct lane *l = s->lanes; l; l = l->next)
        lane_sweep(l, now, over ? SCHED_BY_DRAIN : SCHED_WHY_NONE);
}

static void tell_states(struct sched *s, bool paused, double until)
{
    bool drained = until != 0 && all_empty(s);
    if (drained && !s->told_drained) tell(s, SCHED_DRAINED);
    if (paused && !s->told_paused) tell(s, SCHED_PAUSED);
    s->told_drained = drained;
    s->told_paused = paused;
}

/* Until what waits now may have ended: each job takes its prompt and what jobs drew on average, at
 * the speed of the last steps. */
static double guess_wait(const struct sched *s, size_t n, size_t tokens)
{
    uint64_t completed = atomic_load(&s->counters.completed),
             drawn = atomic_load(&s->counters.drawn_tokens);
    double each = completed ? (double)drawn / (double)completed : 64;
    double seconds = ((double)tokens + (double)n * each) * s->seconds;
    seconds = s->tokens > 0 ? seconds / s->tokens : 1;
    return seconds < 1 ? 1 : seconds > 3600 ? 3600 : seconds;
}

static void publish_slot(struct sched *s, uint32_t slot)
{
    const struct lane *l = s->heads[slot];
    const struct page_pool *p = l ? &l->engine->kv.pages : NULL;
    atomic_store(&s->slots[slot].sequences, l ? l->n_sequences : 0);
    atomic_store(&s->slots[slot].kv_pages, p ? p->n_pages : 0);
    atomic_store(&s->slots[slot].kv_pages_used, p ? p->n_pages - p->n_free - p->n_idle : 0);
    atomic_store(&s->slots[slot].kv_pages_kept, p ? p->n_idle : 0);
    atomic_store(&s->slots[slot].position_done, l ? l->engine->position_done : 0);
    atomic_store(&s->slots[slot].position_skipped, l ? l->engine->position_skipped : 0);
}

static void publish(struct sched *s)
{
    size_t tokens, n = count_waiting(s, &tokens), running = 0, sequences = 0;
    for (const struct lane *l = s->lanes; l; l = l->next)
        running += l->running.n, sequences += l->n_sequences;
    atomic_store(&s->counters.waiting, n);
    atomic_store(&s->counters.waiting_tokens, tokens);
    atomic_store(&s->counters.running, running);
    atomic_store(&s->counters.sequences, sequences);
    atomic_store(&s->retry_seconds, guess_wait(s, n + running, tokens));
    for (uint32_t i = 0; i < SCHED_SLOTS; i++) publish_slot(s, i);
    atomic_store(&s->beat, os_now());
}

/* ---- steps ----------------------------------------------------------------------------------- */

static void count_step(struct sched *s, size_t tokens, size_t sequences, double seconds)
{
    const double keep = 0.95;
    counter_add(&s->counters.steps, 1);
    counter_add(&s->counters.step_tokens, tokens);
    counter_add(&s->counters.step_nanoseconds, (uint64_t)(seconds * 1e9));
    s->tokens = keep * s->tokens + (double)tokens;
    s->seconds = keep * s->seconds + seconds;
    if (s->o.stepped) s->o.stepped(s->o.wake_arg, seconds, tokens, sequences);
}

/* Tokens of each engine's step. */
static size_t budget_of(const struct sched *s, const struct lane *l, bool draws, size_t n_busy)
{
    size_t most = l->engine->options.micro_batch, n = (draws ? 1 : 4) * (size_t)s->o.step_tokens;
    n /= n_busy;
    return n > most ? most : n ? n : 1;
}

/* A run of every engine that has jobs; false if none has. */
static bool step(struct sched *s)
{
    bool draws = false;
    size_t n_busy = 0;
    for (struct lane *l = s->lanes; l; l = l->next) {
        lane_begin(l);
        draws |= lane_draws(l);
        n_busy += l->running.first != NULL;
    }
    for (struct lane *l = s->lanes; l; l = l->next) {
        if (!l->running.first) continue;
        double begin = os_now();
        size_t sequences, tokens = lane_step(l, budget_of(s, l, draws, n_busy), &sequences);
        count_step(s, tokens, sequences, os_now() - begin);
        outbox_tell(&s->out);
    }
    return n_busy > 0;
}

/* Until a message comes, or a moment; or for no reason. */
static void sleep_until(struct sched *s, double moment)
{
    double most = os_now() + 3600; /* a moment may be no number of seconds there are */
    if (!(moment < most)) moment = most;
    double whole = floor(moment);
    struct timespec t = { .tv_sec = (time_t)whole, .tv_nsec = (long)((moment - whole) * 1e9) };
    sem_clockwait(&s->signal, CLOCK_MONOTONIC, &t);
}

static double next_moment(const struct sched *s, double until)
{
    double first = until != 0 && !all_empty(s) ? until : INFINITY;
    for (const struct lane *l = s->lanes; l; l = l->next) {
        double deadline = lane_deadline(l);
        if (deadline < first) first = deadline;
    }
    return first;
}

void *sched_run(void *arg)
{
    struct sched *s = arg;
    while (!atomic_load(&s->closing)) {
        double until = atomic_load(&s->drain_until); /* first: behind it comes only what goes on */
        bool paused = atomic_load(&s->paused);
        take_messages(s);
        sweep(s, until);
        drop_caches(s);
        release_lanes(s);
        publish(s);
        tell_states(s, paused, until);
        outbox_tell(&s->out);
        if (paused || !step(s)) sleep_until(s, next_moment(s, until)); /* D3 */
    }
    take_messages(s);
    for (struct lane *l = s->lanes; l; l = l->next) lane_sweep(l, 0, SCHED_BY_CLOSE);
    return NULL;
}

/* ---- opening --------------------------------------------------------------------------------- */

static void set_defaults(struct sched_options *o)
{
    if (o->most_waiting == 0) o->most_waiting = 256;
    if (o->most_waiting_tokens == 0) o->most_waiting_tokens = 1 << 20;
    if (o->step_tokens == 0) o->step_tokens = 64;
    if (o->most_overtaken == 0) o->most_overtaken = 32;
    if (o->event_bytes == 0) o->event_bytes = 1 << 20;
    if (o->event_bytes < LEAST_EVENT_BYTES) o->event_bytes = LEAST_EVENT_BYTES;
}

/* Signals belong to the caller's thread; faults are a thread's own. */
static zp_status start_thread(struct sched *s, zp_err *err)
{
    static const int faults[] = { SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP };
    sigset_t blocked, before;
    sigfillset(&blocked);
    for (size_t i = 0; i < ZP_COUNT(faults); i++) sigdelset(&blocked, faults[i]);
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    int code = pthread_create(&s->thread, NULL, sched_run, s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    s->started = code == 0;
    ZP_FAIL_IF(code != 0, err, ZP_RUN, "the scheduler's thread cannot start: %s", strerror(code));
    return ZP_OK;
}

static zp_status fill(struct sched *s, zp_err *err)
{
    set_defaults(&s->o);
    s->free_place = UINT32_MAX;
    ZP_TRY(ring_open(&s->inbox, INBOX_BYTES, err));
    ZP_TRY(outbox_open(&s->out, &s->o, &s->signal, err));
    atomic_store(&s->retry_seconds, 1);
    atomic_store(&s->beat, os_now());
    return start_thread(s, err);
}

zp_status sched_open(struct sched **out, const struct sched_options *options, zp_err *err)
{
    *out = NULL;
    struct sched *s = mem_zalloc(MEM_SERVE, sizeof *s);
    ZP_FAIL_IF(!s, err, ZP_NO_MEMORY, "not enough memory for a scheduler");
    if (options) s->o = *options;
    sem_init(&s->signal, 0, 0);
    zp_status status = fill(s, err);
    if (status != ZP_OK) sched_close(s);
    else *out = s;
    return status;
}

void sched_close(struct sched *s)
{
    if (!s) return;
    atomic_store(&s->closing, true);
    if (s->started) {
        outbox_close(&s->out);
        pthread_join(s->thread, NULL);
    }
    for (uint32_t i = 0; i < s->n_places; i++)
        if (s->places[i].job) job_close(s->places[i].job);
    if (s->shown_job) job_close(s->shown_job);
    for (struct lane *l = s->sisters, *next; l; l = next) {
        next = l->sister;
        lane_close(l);
    }
    mem_free(s->places);
    outbox_free(&s->out);
    ring_free(&s->inbox);
    sem_destroy(&s->signal);
    mem_free(s);
}
