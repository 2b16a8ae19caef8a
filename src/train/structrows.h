/* structrows.h: a structure head (model/structhead.h) on the rows of training, its gradients, and
 * the loss of its detectors against tags. Lists by detector: (STRUCT_TYPES, n_rows). Same bits for
 * any number of threads; detectors and biases are the engine's bits. */
#ifndef TRAIN_STRUCTROWS_H
#define TRAIN_STRUCTROWS_H

#include "base/pool.h"
#include "kern/kern.h"
#include "model/structhead.h"

struct structrows {
    size_t n_rows, d;
    float eps;
    const float *weight, *gate; /* (STRUCT_TYPES, d), (d) */
    const float *x;             /* (n_rows, d) embeddings as they enter the first layer */
    /* Dropout: bit k of a row clear: nobody hears its detector k; the others count `kept` times.
     * NULL: all are heard. */
    const uint8_t *keep; /* (n_rows) */
    float kept;
    /* Loss: bit k of a row's tags: it is of type k. target (n_rows): rows below 0 do not count.
     * NULL tags: no loss. */
    const uint8_t *tags;
    const int32_t *target;
    float tag_weight; /* of the loss's gradient */
};

/* p: what detectors say; heard: what is left of it. Returns the sum over rows and detectors of the
 * cross entropy of p against the tags. scratch (n_rows). */
double structrows_detect(struct pool *pool, const struct structrows *a, float *p, float *heard,
                         double *scratch);
/* out (n_head, n_rows) = bias heard, bias (n_head, STRUCT_TYPES). */
void structrows_bias(struct pool *pool, const struct kern_table *t, size_t n_head, size_t n_rows,
                     const float *bias, const float *heard, float *out);
/* From dout: dbias is added to, or NULL; dheard is added to. Sums over rows and heads ascend. */
void structrows_bias_back(struct pool *pool, size_t n_head, size_t n_rows, const float *bias,
                          const float *heard, const float *dout, float *dbias, float *dheard);
/* From dheard and the loss: dweight, dgate (NULL: not wanted) and dx, like x, are added to.
 * scratch (n_rows, STRUCT_LOGITS + 1). */
void structrows_back(struct pool *pool, const struct structrows *a, const float *dheard,
                     float *dweight, float *dgate, float *dx, double *scratch);

#endif
