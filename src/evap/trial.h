/* trial.h: token sequences through one engine or two, many at a time, and what the models make of
 * the tokens that come next (teacher forcing: each is asked for behind the true ones). */
#ifndef EVAP_TRIAL_H
#define EVAP_TRIAL_H

#include "eval/score.h"

struct trial {
    const int32_t *tokens; /* (n + 1): n are computed, each asks for the one behind it */
    uint32_t n, first;     /* of the n, [first, n) are scored; first < n */
};
static inline uint32_t trial_rows(const struct trial *t)
{
    return t->n - t->first;
}

struct trial_side {
    struct zp_engine *e, *base; /* base may be NULL; both have the same n_seq */
    zp_mode mode;               /* of e; the base runs in full */
    const zp_progress *progress;
    uint64_t done, total; /* sequences; trial_run counts on */
};

/* rows: those of all trials, in their order. */
zp_status trial_run(struct trial_side *by, const struct trial *trials, size_t n,
                    struct score_row *rows, zp_err *err);

#endif
