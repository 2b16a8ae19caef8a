/* pic.h: a bridge over the loss of positions: each layer gets an MLP of the token's index, added to
 * what its feed-forward adds, that learns while positions still count, fades out once they are gone
 * and is absent from the result.
 *   p[c] = out_bias[c] + sum_i out_weight[c][i] GELU(in_weight[i] ln(1 + index) + in_bias[i]), 32
 *   hidden units: distbias.h's MLP with a channel for each head and the index for the distance. */
#ifndef TRAIN_PIC_H
#define TRAIN_PIC_H

#include "base/mem.h"
#include "train/distbias.h"
#include "train/optimiser.h"

struct pic {
    size_t n_layer, d_model, n_ctx;
    size_t n_of_layer, n; /* parameters */
    float *p, *dp, *sum;  /* (n) sum: over micro-batches, the caller's */
    float *tables;        /* (n_layer, d_model, n_ctx) */
    float *dtable;        /* (d_model, n_ctx) of the layer at hand */
    double *room;
    struct optimiser opt;
    float weight;         /* of the step at hand */
    struct pool *pool;    /* the caller's */
};

/* in_weight normal(0, 0.5), all else 0: it begins by adding nothing. Fails with ZP_NO_MEMORY. */
zp_status pic_open(struct pic *p, struct pool *pool, size_t n_layer, size_t d_model, size_t n_ctx,
                   uint64_t seed, zp_err *err);
/* Adds what pic_open takes. */
void pic_plan(size_t n_layer, size_t d_model, size_t n_ctx, uint64_t bytes[MEM_TAG_COUNT]);
void pic_free(struct pic *p); /* accepts a zeroed or half-built object */

/* Tables of the parameters as they are, and the weight that they count with: before the first call,
 * and with a weight of 0, nothing is added and nothing learns. */
void pic_begin(struct pic *p, float weight);
/* sum (n_rows, d_model) += weight * the table's values at the rows' indices. */
void pic_add(struct pic *p, uint32_t layer, size_t n_rows, const int32_t *index, float *sum);
/* Adds to dp what follows from dsum, the gradient of sum. */
void pic_back(struct pic *p, uint32_t layer, size_t n_rows, const int32_t *index,
              const float *dsum);

#endif
