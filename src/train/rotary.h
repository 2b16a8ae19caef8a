/* rotary.h: rotation of the queries and keys of training rows, in the two forms that evaporation
 * uses, and its gradients. Channel pair j of a head is (2j, 2j + 1); channels from 2 n_pair on have
 * no angle. All query heads of a KV head share its gates. */
#ifndef TRAIN_ROTARY_H
#define TRAIN_ROTARY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/pool.h"
#include "kern/kern.h"

enum { ROTARY_MOST_PAIRS = 512 };

struct rotary {
    size_t n_rows, n_head, n_kv, d_head, n_pair;
    const float *cs; /* (n_rows, n_pair, 2) cos and sin */
};

/* cs of rows at `position` (n_rows), angles (n_pair) in radians a position, in double. */
void rotary_table(struct pool *pool, size_t n_rows, const int32_t *position, size_t n_pair,
                  const double *angle, float *cs);

/* Hard form, in place: x (n_rows, n_heads, d_head) with n_heads = n_head or n_kv; open (n_kv,
 * n_pair): 0 leaves the pair as it is; NULL: all are open. `back` turns the other way: the gradient
 * of x from that of its rotation. The engine's bits. */
void rotary_turn(struct pool *pool, const struct kern_table *t, const struct rotary *a,
                 size_t n_heads, const uint8_t *open, bool back, float *x);

/* Score mix: wide rows of 2 d_head whose product is g q.R k + (1 - g) q.k for each pair:
 *   q' = [g R q, (1 - g) q]   k' = [R k, k]
 * gate (n_kv, n_pair); channels without an angle count in the first half only, as with g = 1.
 * q (n_rows, n_head, d_head), wide_q (n_rows, n_head, 2 d_head); k likewise with n_kv. */
void rotary_mix(struct pool *pool, const struct rotary *a, const float *gate, const float *q,
                const float *k, float *wide_q, float *wide_k);

/* Floats of scratch of rotary_mix_back. */
size_t rotary_mix_scratch(const struct rotary *a);
/* dq and dk are set; dgate (n_kv, n_pair) is added to, or NULL. Sums over rows: blocks of 64, then
 * blocks in ascending order: same bits for any number of threads. q as given to rotary_mix. */
void rotary_mix_back(struct pool *pool, const struct rotary *a, const float *gate, const float *q,
                     const float *dwide_q, const float *dwide_k, float *dq, float *dk, float *dgate,
                     float *scratch);

#endif
