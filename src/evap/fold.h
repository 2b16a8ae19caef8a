/* fold.h: the best position-free stand-in for closed pairs: one complex factor a pair and query
 * head, folded into the rows of W_q. Costs nothing at run time. Not for models with norms on q and
 * k. */
#ifndef EVAP_FOLD_H
#define EVAP_FOLD_H

#include "evap/calib.h"

struct fold {
    uint32_t n_layer, n_head, n_pair;
    float *
        w; /* (n_layer, n_head, n_pair, 2): factor of the pair's q; (1, 0) where the pair is open */
    float *backup; /* W_q rows of the exact engine as loaded (n_layer, n_head * d_head, d_model) */
    float *bias_backup; /* (n_layer, n_head * d_head); zeros where the model has no biases */
    float *mixed; /* (2, d_model): room for two rows, so that installing and removing cannot fail */
};

bool fold_is_possible(const struct calib *c);
zp_status fold_open(struct fold *f, struct calib *c, zp_err *err);
void fold_free(struct fold *f);
/* Fits the factors of every pair that `set` closes and the file has open, on the first n_windows
 * planning windows. */
zp_status fold_fit(struct fold *f, struct calib *c, const struct gateset *set, uint32_t n_windows,
                   uint32_t n_queries, zp_err *err);
/* Puts the factors into the exact engine's W_q and q biases, or takes them out again. */
void fold_install(const struct fold *f, struct calib *c);
void fold_remove(const struct fold *f, struct calib *c);
/* Whether a factor differs from 1 in a layer, in any layer. f may be NULL: nothing does. */
bool fold_touches(const struct fold *f, uint32_t layer);
bool fold_is_used(const struct fold *f);

#endif
