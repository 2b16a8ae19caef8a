/* scheduler_parts.h: what the two sides of the scheduler share: its thread, and the caller's. */
#ifndef SERVE_SCHEDULER_PARTS_H
#define SERVE_SCHEDULER_PARTS_H

#include <pthread.h>

#include "serve/lane.h"

/* From the caller to the thread, in order. */
struct message {
    struct job *job;   /* a new one; or NULL: */
    struct lane *lane; /* takes the jobs of a slot from now on, or NULL: nobody */
    uint32_t slot;
};

/* Where an id leads. */
struct place {
    struct job *job; /* NULL: free */
    uint32_t next;   /* of the free ones */
};

struct sched {
    struct sched_options o; /* resolved */
    /* both sides */
    struct ring inbox;
    sem_t signal; /* there is something new for the thread */
    struct outbox out;
    _Atomic bool closing, paused, drops_cache;
    _Atomic double drain_until; /* 0: no drain */
    _Atomic double retry_seconds;
    struct sched_counters counters;
    struct {
        _Atomic uint64_t sequences, kv_pages, kv_pages_used, kv_pages_kept;
        _Atomic uint64_t position_done, position_skipped;
    } slots[SCHED_SLOTS];
    _Atomic double beat;
    _Atomic uint64_t sent, taken; /* messages: the thread has work while they differ */
    /* the thread's */
    struct lane *lanes; /* all that have jobs or may get some */
    struct lane *heads[SCHED_SLOTS];
    double tokens, seconds; /* of the last steps, fading */
    bool told_paused, told_drained;
    /* the caller's */
    pthread_t thread;
    bool started;
    struct lane *sisters; /* all that are not released */
    struct lane *fronts[SCHED_SLOTS];
    struct place *places;
    uint32_t n_places, free_place;
    uint64_t serial;
    bool draining;
    struct job *first_refused, *last_refused; /* not yet told */
    struct sched_event shown; /* what sched_next gave last */
    struct job *shown_job;    /* of which it was the last */
    struct lane *shown_lane;  /* which it released */
    bool in_outbox;           /* it lies there */
};

void *sched_run(void *s);

#endif
