/* outcome.h: how a request ended, in the numbers that the rules of the roll-out look at. */
#ifndef SERVE_OUTCOME_H
#define SERVE_OUTCOME_H

#include <stdbool.h>
#include <stdint.h>

enum variant { VARIANT_BASELINE, VARIANT_CANDIDATE, VARIANTS };

/* By tokens of the prompt: latencies are compared among their like. */
enum length_class { LENGTH_SHORT, LENGTH_MEDIUM, LENGTH_LONG, LENGTHS };

#define OUTCOMES(X)                                                                                \
    X(DONE, "done")                                                                                \
    X(CANCELLED, "cancelled") /* the client went away, the server drained, or what was asked */    \
                              /* for left no token to draw: it says nothing of a model */          \
    X(MOVED, "moved")         /* the stream goes on at the baseline */                             \
    X(LATE, "late")           /* its deadline passed */                                            \
    X(FAILED, "failed")       /* the engine's fault; what the client did wrong never begins */     \
    X(NONFINITE, "non_finite") /* NaN or infinite logits */

enum outcome_end {
#define OUTCOME_ENUM(name, text) OUTCOME_##name,
    OUTCOMES(OUTCOME_ENUM)
#undef OUTCOME_ENUM
    OUTCOME_ENDS
};

/* Shorter answers say too little of their spread; shorter runs of repeated tokens are no loops. */
enum { OUTCOME_LEAST_TOKENS = 16, OUTCOME_LOOP_TOKENS = 32 };
/* Requests of a variant that are all equal leave so much room for a deviation of theirs. */
#define OUTCOME_LEAST_SIGMA 0.01

struct outcome {
    enum outcome_end end;
    uint64_t n_computed, n_drawn;        /* tokens of the prompt without those reused; drawn */
    double queue_seconds;                /* arrived .. begun, or .. its end if it never did */
    double first_seconds;                /* arrived .. first token; 0: not reached */
    double total_seconds;                /* arrived .. last token; OUTCOME_LATE: .. the deadline */
    double top1_mean, top1_std;          /* of the drawn tokens' largest probabilities */
    uint32_t loop;                       /* longest run of tokens that repeat (quality.h) */
};

struct sched_event;
/* By a job's last event, which is not REFUSED. */
struct outcome outcome_of_event(const struct sched_event *e);

const char *variant_name(enum variant v);
const char *length_name(enum length_class l);
const char *outcome_name(enum outcome_end end);
/* Failed, late or not finite. */
bool outcome_is_error(enum outcome_end end);
/* The same in numbers that rules may rely on: probabilities that are not finite make it
 * OUTCOME_NONFINITE, times that are not, or negative, are 0. */
struct outcome outcome_checked(const struct outcome *o);
/* Long enough for a statement on its top-1 probabilities and loops. */
bool outcome_has_quality(const struct outcome *o);
/* Seconds as the client sees them: INFINITY where the deadline passed before, 0: not reached. */
double outcome_first(const struct outcome *o);
double outcome_total(const struct outcome *o);
/* Seconds for each computed token of the prompt (32 at least), without the queue, and for each
 * token behind the first: what two models can be compared by, whatever their queues, their caches
 * and the lengths asked for. INFINITY: so few tokens came before the deadline that there is no
 * pace. */
double outcome_prompt_pace(const struct outcome *o);
double outcome_token_pace(const struct outcome *o);

#endif
