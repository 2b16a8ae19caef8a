/* gaterows.h: position gates (model/posgate.h) on the queries of training rows, and their
 * gradients. Same bits for any number of threads; factors are the engine's. */
#ifndef TRAIN_GATEROWS_H
#define TRAIN_GATEROWS_H

#include <stddef.h>
#include "base/pool.h"

struct gaterows {
    size_t n_rows, n_head, d_head;
    const float *phi; /* (n_rows, POSGATE_STEPS) */
    const float *w;   /* (n_head, POSGATE_STEPS) */
};

/* q (n_rows, n_head, d_head) becomes exp(w . phi) q. */
void gaterows_scale(struct pool *pool, const struct gaterows *a, float *q);
/* q: as gaterows_scale left it, or turned since. dq, its gradient, becomes that of the query before
 * the gate. dw (n_head, POSGATE_STEPS) += sum over rows, in ascending order, of phi (q . dq); NULL:
 * not wanted. scratch (n_rows, n_head). */
void gaterows_back(struct pool *pool, const struct gaterows *a, const float *q, float *dq,
                   float *dw, float *scratch);

#endif
