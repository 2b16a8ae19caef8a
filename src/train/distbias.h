/* distbias.h: bias tables by distance for training, and the gradients of their parameters: ALiBi,
 * T5 buckets, MLP; the values of the engine (model/position.c). */
#ifndef TRAIN_DISTBIAS_H
#define TRAIN_DISTBIAS_H

#include <stddef.h>
#include <stdint.h>
#include "base/pool.h"

enum distbias_kind { DISTBIAS_ALIBI, DISTBIAS_T5, DISTBIAS_MLP };
enum { DISTBIAS_HIDDEN = 32 };

/* b[h][d] = gate[h] * value:
 *   ALIBI  -slope[h] d
 *   T5     table[h][bucket of d]: buckets / 2 exact ones, then logarithmic ones up to `most`
 *   MLP    out_bias[h] + sum_i out_weight[h][i] GELU(in_weight[i] ln(1 + d) + in_bias[i]), erf
 *   form */
struct distbias {
    enum distbias_kind kind;
    size_t n_head, n_dist;
    const float *gate;  /* (n_head) or NULL: ones */
    const float *slope; /* (n_head) */
    const float *table; /* (n_head, buckets) */
    uint32_t buckets, most; /* buckets >= 2, most > buckets / 2 */
    const float *in_weight, *in_bias; /* (32) */
    const float *out_weight;          /* (n_head, 32) */
    const float *out_bias;            /* (n_head) */
};
/* Gradients, shaped like what they belong to; added to; NULL: not wanted. */
struct distbias_gradients {
    float *gate, *slope, *table, *in_weight, *in_bias, *out_weight, *out_bias;
};

/* Doubles of scratch of both functions; 0 but for MLP. */
size_t distbias_scratch(const struct distbias *a);
/* b (n_head, n_dist). */
void distbias_fill(struct pool *pool, const struct distbias *a, float *b, double *scratch);
/* From db (n_head, n_dist). Each gradient is one sum in ascending distances, in double: same bits
 * for any number of threads. */
void distbias_backward(struct pool *pool, const struct distbias *a, const float *db,
                       const struct distbias_gradients *out, double *scratch);

#endif
