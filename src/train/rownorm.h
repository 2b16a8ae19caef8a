/* rownorm.h: RMSNorm of rows for training, and its gradients. */
#ifndef TRAIN_ROWNORM_H
#define TRAIN_ROWNORM_H

#include <stdbool.h>
#include "base/pool.h"
#include "kern/kern.h"

/* Sums over rows are taken in blocks of so many, then block by block. */
enum { ROWNORM_BLOCK = 64 };

/* y = x gain / rms, rms = sqrt(mean(x^2) + eps), for each row: the engine's bits. */
struct rownorm {
    size_t n_rows, n;
    const float *x;    /* (n_rows, n) */
    const float *gain; /* (n_gains, n), row r has r % n_gains; or NULL: ones */
    float eps;
    float *inverse; /* (n_rows) 1 / rms: written forward, read backward */
    size_t n_gains; /* 0: 1; heads with gains of their own */
};

/* y (n_rows, n), may be x. */
void rownorm_forward(struct pool *pool, const struct kern_table *t, const struct rownorm *a,
                     float *y);

/* Floats of scratch that backward needs where there is a dgain. */
size_t rownorm_scratch(const struct rownorm *a);
/* dx (n_rows, n) is set, or added to with `add`; it may be dy. dgain, like gain, is added to; NULL
 * with no gain or where it is not wanted. Same bits for any number of threads. */
void rownorm_backward(struct pool *pool, const struct kern_table *t, const struct rownorm *a,
                      const float *dy, float *dx, bool add, float *dgain, float *scratch);

#endif
