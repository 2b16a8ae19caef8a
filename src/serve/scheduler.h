/* scheduler.h: one thread that computes for many: jobs in, events out.
 *
 * A job is a prompt and what to draw behind it. One thread, the scheduler's, owns the engines and
 * all sequences; step by step it computes the next token of every sequence that draws, and parts of
 * prompts as far as a budget goes. Another thread, the caller's, submits, cancels and reads events;
 * all calls are its own but those that say "any thread". Nothing here waits for the scheduler.
 *
 * A job's events: ACCEPTED, then PROGRESS, PROMPT_TOKEN, TOKEN and ENDED in their order (PROGRESS
 * alone of one that embeds), and one of DONE, FAILED, CANCELLED as the last; or REFUSED as the only
 * one. At any time accepted = completed + cancelled + failed + those under way.
 *
 * Same bits: ids and vectors do not depend on company, chunks, reuse, or the number of choices;
 * choice i of a job with seed s draws what a job of its own with seed s + i draws. Times are of
 * os_now(). */
#ifndef SERVE_SCHEDULER_H
#define SERVE_SCHEDULER_H

#include <zerope/zerope.h>

struct sched;

enum { SCHED_SLOTS = 2 };    /* engines that take new jobs: baseline, candidate */
enum { SCHED_MOST_TOP = 20 }; /* log-probabilities of a token beside its own */

struct sched_options {
    uint32_t most_waiting;        /* jobs that may wait; default 256 */
    uint64_t most_waiting_tokens; /* of their prompts; default 1048576. One job may always wait */
    /* Tokens of a step while a sequence draws: what is left beside the drawn ones goes to prompts,
     * a quarter at least. Without any that draws: four times as many. Never more than the engine's
     * micro-batch. Default 64: fewer cost prompts processor time, more save none (docs/SPEED.md) */
    uint32_t step_tokens;
    /* Drawn tokens of a choice that pages are set aside for. Default: all it may draw; with less,
     * more jobs run together, and one may fail for want of pages. */
    uint32_t reserve;
    uint32_t most_overtaken; /* jobs that may begin before one that came earlier; default 32 */
    size_t event_bytes;      /* of the events not yet read; default 1 MiB */
    /* When there are new events: from the scheduler's thread, or from a sched_submit that refuses.
     * Must not call back. May be NULL. */
    void (*wake)(void *arg);
    void *wake_arg; /* of both */
    /* After each step, from the scheduler's thread. May be NULL. */
    void (*stepped)(void *arg, double seconds, size_t tokens, size_t sequences);
};

zp_status sched_open(struct sched **out, const struct sched_options *options, zp_err *err);
/* Cancels what is under way and ends the thread. Engines are the caller's again. NULL is fine. */
void sched_close(struct sched *s);

/* New jobs of a slot go to this engine from now on; NULL: to none. Jobs of the one before finish on
 * it; after the last it is given back by RELEASED, and may be closed then or after sched_close.
 * Until then it has no sequences but the scheduler's. */
zp_status sched_set_engine(struct sched *s, uint32_t slot, zp_engine *e, zp_err *err);
/* Bytes that the scheduler takes for an engine, beside the engine's own. */
uint64_t sched_engine_bytes(const zp_engine *e);

struct sched_job {
    uint32_t slot;
    const int32_t *prompt; /* (n_prompt); copied, as the bias and the stop strings */
    size_t n_prompt;
    zp_sampler_options sampler; /* its grammar lives until the last event, or sched_close */
    const char *const *stop;
    size_t n_stop;
    /* The last so many ids of the prompt are the answer's first, drawn before: it goes on behind
     * them (grammar, stop strings, text). With one choice only. */
    size_t n_begun;
    uint32_t n_predict; /* default: until the context ends */
    bool ignore_end;    /* go on after an end token */
    uint32_t n_choices; /* answers to the prompt, which is computed once; default 1 */
    bool logprobs;      /* of each drawn token */
    uint32_t n_top;     /* with them, of the most likely ones: at most SCHED_MOST_TOP */
    bool prompt_logprobs; /* the same of the prompt but its first token; nothing is reused then */
    bool progress;        /* events while the prompt is computed */
    /* The prompt's vector is made (zp_embed), nothing is drawn: of what is above only `progress`
     * means something. It may fill the context. */
    bool embeds;
    zp_pooling pooling;
    bool raw; /* the vector is not scaled to length 1 */
    zp_mode mode;
    uint32_t context_length_hint; /* tokens expected in all, for mode auto */
    const zp_anchor *anchors;     /* (n_anchors): for models with a position gate */
    size_t n_anchors;
    uint64_t salt;                /* tenant: jobs of other salts share nothing */
    bool no_reuse;                /* takes nothing over from the prefix cache */
    bool goes_on; /* of something that was taken before: a drain does not refuse it */
    double arrived, deadline;     /* default: now; none */
    void *arg;                    /* comes with its events */
};

/* The job's events follow; those of a refusal too. Fails for want of memory or of what cannot be
 * named: then there is no job. */
zp_status sched_submit(struct sched *s, const struct sched_job *job, uint64_t *id, zp_err *err);
/* Ends a job within a step. Of its events only the last is still to come, and it is CANCELLED.
 * Unknown ids, those of jobs that have ended among them, are fine. */
void sched_cancel(struct sched *s, uint64_t id);
/* No new jobs any more, but what goes on; those under way are cancelled at a time. DRAINED follows.
 * Called again: another time. */
void sched_drain(struct sched *s, double until);
/* Nothing is computed from PAUSED on until resumed; jobs are still taken, cancelled and late. */
void sched_pause(struct sched *s);
void sched_resume(struct sched *s);
/* Gives up what engines keep for reuse alone; before the next step. */
void sched_drop_cache(struct sched *s);

/* ---- events ---------------------------------------------------------------------------------- */
enum sched_kind {
    SCHED_ACCEPTED,
    SCHED_PROGRESS,
    SCHED_PROMPT_TOKEN, /* log-probabilities of one */
    SCHED_TOKEN,
    SCHED_ENDED, /* a choice has */
    SCHED_DONE,
    SCHED_FAILED,
    SCHED_CANCELLED,
    SCHED_REFUSED,
    SCHED_RELEASED, /* of the scheduler, id 0: an engine */
    SCHED_PAUSED,
    SCHED_DRAINED
};

struct sched_logprob {
    int32_t id;
    double logprob;
    const char *bytes; /* of the token, maybe a part of a character; NULL without a tokenizer */
    size_t n_bytes;
};

/* index: of the token in the answer, or in the prompt. text: what can be shown since the last one,
 * whole characters, maybe none. id -1: no token, but text that was held back. */
struct sched_token {
    uint32_t choice, index;
    int32_t id;
    const char *text;
    size_t size;
    double top1; /* largest probability of the distribution, by the model itself */
    bool has_logprob;
    struct sched_logprob own;
    const struct sched_logprob *top; /* (n_top), best first */
    uint32_t n_top;
};

struct sched_progress {
    size_t n_prompt, n_reused, n_done; /* done: those reused among them */
    double seconds;                    /* since it began */
};

enum sched_why {
    SCHED_WHY_NONE,
    /* refused */
    SCHED_TOO_LONG,   /* found: tokens, most: what the context or the KV budget holds */
    SCHED_QUEUE_FULL, /* found, most: jobs that wait, or tokens; retry after `retry_seconds` */
    SCHED_DRAINING,
    SCHED_NO_ENGINE,
    SCHED_INVALID, /* err says what. FAILED too, where bias and grammar leave no token to draw */
    /* cancelled */
    SCHED_BY_CALLER,
    SCHED_BY_DRAIN,
    SCHED_BY_CLOSE,
    /* failed */
    SCHED_LATE,      /* the deadline */
    SCHED_NONFINITE, /* logits were NaN or infinite: the model is damaged; no token came of them */
    SCHED_ERROR      /* err says what */
};

enum sched_phase { SCHED_QUEUED, SCHED_PROMPT, SCHED_DRAWING };

/* Of a job that has ended. */
struct sched_usage {
    uint32_t slot;
    zp_mode mode;                         /* resolved */
    enum sched_phase phase;               /* how far it came */
    size_t n_prompt, n_reused, n_drawn;   /* n_drawn: of all choices */
    double queue_seconds;                 /* arrived .. begun */
    double prompt_seconds, draw_seconds;  /* begun .. first token .. last */
    double first_seconds, total_seconds;  /* arrived .. first token; .. last. 0: not reached */
    double top1_mean, top1_std;           /* of all drawn tokens */
    uint32_t loop;                        /* longest run of tokens that repeat (quality.h) */
};

struct sched_event {
    enum sched_kind kind;
    enum sched_why why; /* REFUSED, CANCELLED, FAILED */
    uint64_t id;
    void *arg; /* the job's */
    union {
        struct sched_progress progress;
        struct sched_token token;
        struct {
            uint32_t choice;
            const char *reason; /* "stop" "length" "end" */
            uint32_t stop;      /* of "stop": which of the job's stop strings */
        } ended;
        struct sched_usage usage; /* DONE, FAILED, CANCELLED; ACCEPTED: slot, mode, n_prompt */
        struct {
            uint64_t found, most;
            double retry_seconds; /* until what waits now may have ended, by the speed so far */
        } refusal;
        zp_engine *engine; /* RELEASED */
    };
    const zp_err *err;      /* FAILED, REFUSED; else NULL */
    const float *embedding; /* DONE, of one that embeds: (d_model); else NULL */
};

/* The next event, or NULL. Valid until the next call. */
const struct sched_event *sched_next(struct sched *s);

/* ---- figures --------------------------------------------------------------------------------- */
/* Counters since sched_open, but for the first group, which is of now. */
#define SCHED_FIGURES(X)                                                                           \
    X(waiting) X(waiting_tokens) X(running) X(sequences)                                           \
    X(accepted) X(refused) X(completed) X(failed)                                                  \
    X(cancelled_queued) X(cancelled_prompt) X(cancelled_drawing)                                   \
    X(prompt_tokens) X(reused_tokens) X(drawn_tokens)                                              \
    X(steps) X(step_tokens) X(step_sequences) X(step_nanoseconds)

struct sched_slot {
    uint64_t sequences, kv_pages, kv_pages_used, kv_pages_kept; /* kept: for reuse alone */
    uint64_t position_done, position_skipped; /* rotations, since the engine was opened */
};

struct sched_figures {
#define SCHED_FIGURE(name) uint64_t name;
    SCHED_FIGURES(SCHED_FIGURE)
#undef SCHED_FIGURE
    struct sched_slot slots[SCHED_SLOTS];
};
/* Any thread. Each figure is whole; they need not be of one moment. */
void sched_read_figures(const struct sched *s, struct sched_figures *out);

/* Any thread. For watchdogs: while there is work, `at` is never older than a step. */
struct sched_beat {
    uint64_t steps;
    double at; /* when the thread was last seen between two steps */
    bool busy; /* there is work that could be done now */
};
void sched_read_beat(const struct sched *s, struct sched_beat *out);

#endif
