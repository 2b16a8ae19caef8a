/* lane.h: one engine and the jobs it computes: those that wait for it, and those under way. */
#ifndef SERVE_LANE_H
#define SERVE_LANE_H

#include "serve/outbox.h"
#include "serve/schedjob.h"

/* What the scheduler's thread counts for all to read. */
struct sched_counters {
#define SCHED_COUNTER(name) _Atomic uint64_t name;
    SCHED_FIGURES(SCHED_COUNTER)
#undef SCHED_COUNTER
};

struct lane {
    zp_engine *engine;
    uint32_t slot;
    const struct sched_options *o;
    struct outbox *out;
    struct sched_counters *counters;
    struct job_list waiting, running;
    size_t n_sequences; /* seats taken: answers of those running that have not ended */
    size_t room;        /* pages that nobody holds or may still want */
    bool changed;       /* one that waits may be able to begin now */
    bool retired;       /* no new jobs come */
    /* a step */
    struct choice **batch, **prompts; /* (n_seq) */
    size_t *left, *share;             /* (n_seq): of prompts */
    zp_item *items;                   /* (n_seq) */
    struct embed **embeds;            /* (n_seq): their pools */
    float *logits;                    /* (lane_rows, n_vocab) */
    struct buffer bytes;              /* of tokens */
    struct sched_logprob top[SCHED_MOST_TOP];
    struct lane *next;   /* of the scheduler's */
    struct lane *sister; /* of the caller's */
};

zp_status lane_open(struct lane **out, zp_engine *e, uint32_t slot, const struct sched_options *o,
                    struct outbox *box, struct sched_counters *counters, zp_err *err);
void lane_close(struct lane *l); /* no job is left; the engine stays open */
uint64_t lane_bytes(const zp_engine *e);
/* Rows of logits that a step may give. */
size_t lane_rows(const zp_engine *e);

/* A job that has come: begins at once, or waits behind the others. Returns whether it waits. */
bool lane_take(struct lane *l, struct job *job, bool may_begin);
/* A job that has just come is given up again. */
void lane_refuse(struct lane *l, struct job *job);
/* Begins what can begin. */
void lane_begin(struct lane *l);
/* Ends jobs that are cancelled or late; all of them with a reason other than SCHED_WHY_NONE. */
void lane_sweep(struct lane *l, double now, enum sched_why all);
/* When the next job is late; INFINITY: none. */
double lane_deadline(const struct lane *l);
bool lane_draws(const struct lane *l);
/* Gives up what the engine keeps for reuse alone. */
void lane_drop_cache(struct lane *l);
/* One run of the engine: budget tokens, but every sequence that draws. Returns their number, 0
 * where nothing is under way; and that of the sequences. */
size_t lane_step(struct lane *l, size_t budget, size_t *n_sequences);
/* The last event of a job that has come to its end. */
void lane_end(struct lane *l, struct job *job, enum sched_kind kind, enum sched_why why);

static inline void counter_add(_Atomic uint64_t *counter, uint64_t n)
{
    atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

#endif
