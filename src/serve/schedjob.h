/* schedjob.h: a job of the scheduler: what was asked for, copied and checked, and how far it is. */
#ifndef SERVE_SCHEDJOB_H
#define SERVE_SCHEDJOB_H

#include "model/generate.h"
#include "serve/quality.h"
#include "serve/scheduler.h"

struct lane;
struct job;

/* One answer on its way. */
struct choice {
    struct gen g;
    zp_generate_options o;
    struct job *job;
    uint32_t index, n_shown; /* tokens of which the caller was told */
    bool ended;              /* it has no sequence any more */
    struct quality quality;
};

struct job {
    /* made by the caller's thread, then fixed */
    struct sched_job o; /* what it points to lies in the arena */
    struct arena arena;
    uint64_t id;
    struct lane *lane;
    zp_mode mode;         /* resolved */
    uint32_t n_positions; /* that a choice has pages for */
    size_t n_pages;       /* that all of them take at most */
    struct choice *choices; /* (o.n_choices) */
    struct embed embed;     /* of one that embeds */
    float *embedding;       /* (its width), once it is done */
    struct sched_event refusal; /* id != 0: it is refused */
    zp_err err;           /* of a refusal; later the scheduler's: of what failed */
    _Atomic bool cancelled;
    /* the caller's */
    bool gone;           /* it has cancelled */
    struct job *refused; /* the next of those refused */
    /* the scheduler's */
    struct job *next, *before;
    uint32_t overtaken; /* jobs that came later and have begun */
    uint32_t n_open;    /* choices that have a sequence; the first of them computes the prompt */
    uint32_t n_ended;
    bool forked; /* all choices have begun */
    bool failed;
    enum sched_why why; /* it failed; SCHED_ERROR until more is known */
    size_t n_reused, n_drawn;
    double begun, first; /* 0: not yet */
};

/* Copies, checks and plans it for the lane of its slot, or NULL. What cannot be computed there is
 * refused: job->refusal tells, but for its id. Fails for want of memory. */
zp_status job_open(struct job **out, const struct sched_job *given, struct lane *lane,
                   const struct sched_options *o, zp_err *err);
void job_close(struct job *job);
void job_refuse(struct job *job, enum sched_why why, uint64_t found, uint64_t most);

/* The first choice takes over what the prefix cache holds, and goes on with the prompt. */
zp_status job_begin(struct job *job, zp_err *err);
/* Whether the prompt is computed up to its last token, which every choice computes for itself. */
bool job_may_fork(const struct job *job);
zp_status job_fork(struct job *job, zp_err *err);
/* Gives back what a choice holds. */
void job_end_choice(struct choice *c);
/* The same of all, whatever has failed; the job may begin again. */
void job_unbegin(struct job *job);

/* Tokens of the prompt that a choice may compute now; 0 where it draws. */
size_t job_prompt_left(const struct choice *c);
/* Pages that the pool must still hold for it. */
size_t job_pages_wanted(const struct job *job);
/* Tokens that its first full tiles have in common with another's prompt. */
size_t job_common(const struct job *job, const struct job *other);
/* Tells how far it came. */
void job_tell_usage(const struct job *job, double now, struct sched_usage *out);

/* A list in order of arrival. */
struct job_list {
    struct job *first, *last;
    size_t n, n_tokens; /* jobs; tokens of their prompts */
};
void job_list_add(struct job_list *l, struct job *job);
void job_list_remove(struct job_list *l, struct job *job);

#endif
