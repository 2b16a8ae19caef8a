/* scheduler_front.c: the caller's side of the scheduler: ids, submissions, events, figures.
 * Owns: the table of jobs, and each job's memory again once its last event is read.
 * E1 who was told of an end, and which, is counted here, where a cancellation overtakes whatever
 *    else is on its way: accepted = completed + cancelled + failed + the jobs in the table that
 *    were accepted.
 * E2 an id is a number of its own; its low bits are the place in the table. */
#include <assert.h>

#include "base/os.h"
#include "serve/scheduler_parts.h"

enum { PLACE_BITS = 20 };
#define NO_PLACE UINT32_MAX

/* ---- ids ------------------------------------------------------------------------------------- */

static zp_status add_places(struct sched *s, zp_err *err)
{
    uint32_t n = s->n_places ? 2 * s->n_places : 64;
    ZP_FAIL_IF(n > 1u << PLACE_BITS, err, ZP_RUN, "%u jobs at a time are too many", s->n_places);
    struct place *places = mem_resize(MEM_SERVE, s->places, n * sizeof *places);
    ZP_FAIL_IF(!places, err, ZP_NO_MEMORY, "not enough memory for %u jobs", n);
    for (uint32_t i = s->n_places; i < n; i++)
        places[i] = (struct place){ NULL, i + 1 < n ? i + 1 : NO_PLACE };
    s->free_place = s->n_places;
    s->places = places;
    s->n_places = n;
    return ZP_OK;
}

/* There is a free place. */
static void add_job(struct sched *s, struct job *job)
{
    uint32_t at = s->free_place;
    s->free_place = s->places[at].next;
    s->places[at].job = job;
    job->id = ++s->serial << PLACE_BITS | at;
}

static uint32_t place_of(uint64_t id)
{
    return (uint32_t)(id & ((1u << PLACE_BITS) - 1));
}

static struct job *find_job(const struct sched *s, uint64_t id)
{
    uint32_t at = place_of(id);
    struct job *job = at < s->n_places ? s->places[at].job : NULL;
    return job && job->id == id ? job : NULL;
}

static void remove_job(struct sched *s, uint64_t id)
{
    uint32_t at = place_of(id);
    s->places[at] = (struct place){ NULL, s->free_place };
    s->free_place = at;
}

/* ---- messages -------------------------------------------------------------------------------- */

static bool send_message(struct sched *s, struct message m)
{
    struct message *room = ring_reserve(&s->inbox, sizeof m);
    if (!room) return false;
    *room = m;
    atomic_fetch_add(&s->sent, 1);
    ring_commit(&s->inbox);
    sem_post(&s->signal);
    return true;
}

/* The refusal is the job's only event; the thread never hears of it. */
static void tell_refusal(struct sched *s, struct job *job)
{
    job->refusal.id = job->id;
    if (s->last_refused) s->last_refused->refused = job;
    else s->first_refused = job;
    s->last_refused = job;
    if (s->o.wake) s->o.wake(s->o.wake_arg);
}

static void refuse(struct sched *s, struct job *job, enum sched_why why, const char *text)
{
    uint64_t waiting = atomic_load(&s->counters.waiting);
    job_refuse(job, why, waiting, s->o.most_waiting);
    job->refusal.refusal.retry_seconds = atomic_load(&s->retry_seconds);
    status_fail(&job->err, ZP_RUN, __FILE__, __LINE__, "%s", text);
    tell_refusal(s, job);
}

zp_status sched_submit(struct sched *s, const struct sched_job *given, uint64_t *id, zp_err *err)
{
    struct job *job;
    *id = 0;
    ZP_FAIL_IF(given->slot >= SCHED_SLOTS, err, ZP_USAGE, "slot %u; there are %d", given->slot,
               SCHED_SLOTS);
    if (s->free_place == NO_PLACE) ZP_TRY(add_places(s, err));
    ZP_TRY(job_open(&job, given, s->fronts[given->slot], &s->o, err));
    add_job(s, job);
    *id = job->id;
    if (s->draining && !given->goes_on)
        refuse(s, job, SCHED_DRAINING, "no new jobs are taken: the end is near");
    else if (job->refusal.kind == SCHED_REFUSED) tell_refusal(s, job);
    else if (!send_message(s, (struct message){ .job = job }))
        refuse(s, job, SCHED_QUEUE_FULL, "too many jobs come at a time");
    return ZP_OK;
}

void sched_cancel(struct sched *s, uint64_t id)
{
    struct job *job = find_job(s, id);
    if (!job) return;
    job->gone = true;
    atomic_store(&job->cancelled, true);
    sem_post(&s->signal);
}

zp_status sched_set_engine(struct sched *s, uint32_t slot, zp_engine *e, zp_err *err)
{
    struct lane *l = NULL;
    ZP_FAIL_IF(slot >= SCHED_SLOTS, err, ZP_USAGE, "slot %u; there are %d", slot, SCHED_SLOTS);
    for (const struct lane *other = s->sisters; other && e; other = other->sister)
        ZP_FAIL_IF(other->engine == e, err, ZP_USAGE,
                   "the engine takes jobs of slot %u, or its last ones have not ended yet",
                   other->slot);
    if (!e && !s->fronts[slot]) return ZP_OK;
    if (e) ZP_TRY(lane_open(&l, e, slot, &s->o, &s->out, &s->counters, err));
    bool sent = send_message(s, (struct message){ .lane = l, .slot = slot });
    if (!sent && l) lane_close(l);
    ZP_FAIL_IF(!sent, err, ZP_RUN, "too many messages wait for the scheduler; try again");
    s->fronts[slot] = l;
    if (l) l->sister = s->sisters, s->sisters = l;
    return ZP_OK;
}

uint64_t sched_engine_bytes(const zp_engine *e)
{
    return lane_bytes(e);
}

void sched_drain(struct sched *s, double until)
{
    s->draining = true;
    atomic_store(&s->drain_until, until != 0 ? until : -1);
    sem_post(&s->signal);
}

void sched_pause(struct sched *s)
{
    atomic_store(&s->paused, true);
    sem_post(&s->signal);
}

void sched_resume(struct sched *s)
{
    atomic_store(&s->paused, false);
    sem_post(&s->signal);
}

void sched_drop_cache(struct sched *s)
{
    atomic_store(&s->drops_cache, true);
    sem_post(&s->signal);
}

/* ---- events ---------------------------------------------------------------------------------- */

/* What the last call showed is read. */
static void release_shown(struct sched *s)
{
    if (s->in_outbox) outbox_release(&s->out);
    if (s->shown_job) job_close(s->shown_job);
    if (s->shown_lane) lane_close(s->shown_lane);
    s->in_outbox = false;
    s->shown_job = NULL;
    s->shown_lane = NULL;
}

static _Atomic uint64_t *counter_of(struct sched_counters *c, const struct sched_event *e)
{
    _Atomic uint64_t *const cancelled[] = { &c->cancelled_queued, &c->cancelled_prompt,
                                            &c->cancelled_drawing };
    if (e->kind == SCHED_DONE) return &c->completed;
    if (e->kind == SCHED_FAILED) return &c->failed;
    return e->kind == SCHED_REFUSED ? &c->refused : cancelled[e->usage.phase];
}

/* The last event of one that was cancelled, whatever it was before (E1). */
static void make_cancelled(struct sched *s, const struct job *job, struct sched_event *e)
{
    struct sched_usage usage = { .slot = job->o.slot, .mode = job->mode,
                                 .n_prompt = job->o.n_prompt };
    if (e->kind == SCHED_REFUSED) {
        counter_add(&s->counters.accepted, 1);
        e->usage = usage;
    }
    e->kind = SCHED_CANCELLED;
    e->why = SCHED_BY_CALLER;
    e->err = NULL;
    e->embedding = NULL;
}

static void remove_lane(struct sched *s, const zp_engine *e)
{
    struct lane **at = &s->sisters;
    while (*at && (*at)->engine != e) at = &(*at)->sister;
    assert(*at);
    s->shown_lane = *at;
    *at = (*at)->sister;
}

/* Makes it what the next call shows; false: nobody wants to see it. */
static bool show(struct sched *s, const struct sched_event *e)
{
    s->shown = *e;
    if (e->kind == SCHED_RELEASED) remove_lane(s, e->engine);
    if (e->id == 0) return true;
    struct job *job = find_job(s, e->id);
    bool last = e->kind >= SCHED_DONE;
    assert(job);
    if (e->kind == SCHED_ACCEPTED) counter_add(&s->counters.accepted, 1);
    if (!last) return !job->gone;
    if (job->gone && e->kind != SCHED_CANCELLED) make_cancelled(s, job, &s->shown);
    counter_add(counter_of(&s->counters, &s->shown), 1);
    remove_job(s, job->id);
    s->shown_job = job;
    return true;
}

const struct sched_event *sched_next(struct sched *s)
{
    const struct sched_event *e;
    struct job *refused = s->first_refused;
    release_shown(s);
    if (refused) {
        s->first_refused = refused->refused;
        if (!s->first_refused) s->last_refused = NULL;
        show(s, &refused->refusal);
        return &s->shown;
    }
    while ((e = outbox_front(&s->out))) {
        s->in_outbox = true;
        if (show(s, e)) return &s->shown;
        release_shown(s);
    }
    return NULL;
}

/* ---- figures --------------------------------------------------------------------------------- */

void sched_read_figures(const struct sched *s, struct sched_figures *out)
{
#define SCHED_READ(name) out->name = atomic_load(&s->counters.name);
    SCHED_FIGURES(SCHED_READ)
#undef SCHED_READ
    for (uint32_t i = 0; i < SCHED_SLOTS; i++) {
        out->slots[i].sequences = atomic_load(&s->slots[i].sequences);
        out->slots[i].kv_pages = atomic_load(&s->slots[i].kv_pages);
        out->slots[i].kv_pages_used = atomic_load(&s->slots[i].kv_pages_used);
        out->slots[i].kv_pages_kept = atomic_load(&s->slots[i].kv_pages_kept);
        out->slots[i].position_done = atomic_load(&s->slots[i].position_done);
        out->slots[i].position_skipped = atomic_load(&s->slots[i].position_skipped);
    }
}

void sched_read_beat(const struct sched *s, struct sched_beat *out)
{
    uint64_t sent = atomic_load(&s->sent), taken = atomic_load(&s->taken);
    uint64_t jobs = atomic_load(&s->counters.running) + atomic_load(&s->counters.waiting);
    *out = (struct sched_beat){ .steps = atomic_load(&s->counters.steps),
                                .at = atomic_load(&s->beat),
                                .busy = sent != taken || (jobs && !atomic_load(&s->paused)) };
}
