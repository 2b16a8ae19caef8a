/* rowops.h: what training does with rows between products: scaled sums, biases, embeddings, and
 * their gradients. Same bits for any number of threads. */
#ifndef TRAIN_ROWOPS_H
#define TRAIN_ROWOPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/pool.h"
#include "kern/kern.h"

/* y (n) = scale x; y may be x. */
void rowops_scale(struct pool *pool, const struct kern_table *t, size_t n, const float *x,
                  float scale, float *y);
/* out (n) = x + scale y; out may be one of them. */
void rowops_add(struct pool *pool, const struct kern_table *t, size_t n, const float *x,
                const float *y, float scale, float *out);
/* x (n_rows, n) += bias (n). */
void rowops_add_bias(struct pool *pool, size_t n_rows, size_t n, const float *bias, float *x);
/* dbias (n) += the sum of dx's rows, in ascending order. */
void rowops_sum_bias(struct pool *pool, size_t n_rows, size_t n, const float *dx, float *dbias);
/* x (n_rows, n_heads, n) *= scale (n_heads). */
void rowops_scale_heads(struct pool *pool, size_t n_rows, size_t n_heads, size_t n,
                        const float *scale, float *x);
/* x (n_rows, n) = scale table[id]. */
void rowops_embed(struct pool *pool, size_t n_rows, size_t n, const int32_t *ids,
                  const float *table, float scale, float *x);
/* dtable[id] += scale dx, rows in ascending order. */
void rowops_embed_back(struct pool *pool, size_t n_rows, size_t n, const int32_t *ids,
                       const float *dx, float scale, float *dtable);
/* d (n_rows, n) = scale (x - target); sums (n_rows, 2): squares of x - target, of target. */
void rowops_differ(struct pool *pool, size_t n_rows, size_t n, const float *x, const float *target,
                   float scale, float *d, double *sums);
/* The largest 2-norm of x's rows (n_rows, n); not a number where one of them is. */
double rowops_largest_norm(struct pool *pool, size_t n_rows, size_t n, const float *x);

#endif
