/* loss.h: output layer and loss in one, for training: cross entropy, and KL from a teacher, without
 * ever holding the logits of all rows. Labels may be drawn from the model itself. */
#ifndef TRAIN_LOSS_H
#define TRAIN_LOSS_H

#include <stddef.h>
#include <stdint.h>
#include "base/status.h"
#include "kern/kern.h"
#include "train/gemm.h"

struct loss;
struct loss_shape {
    size_t n_vocab, d;
    size_t teacher_d; /* 0: no teacher */
    bool in_pieces;   /* an output matrix comes in pieces */
};
/* Scratch for rows of n_vocab logits, twice with a teacher: at most 64 MiB each, more only where 16
 * rows take more; and 16 MiB for pieces of an output matrix, likewise. g stays the caller's. Fails
 * with ZP_NO_MEMORY. */
zp_status loss_open(struct loss **out, struct gemm *g, const struct loss_shape *shape,
                    zp_err *err);
/* Bytes that loss_open takes under MEM_PRODUCT, without what it reserves of g (gemm.h): products
 * whose operands have so many numbers together. */
uint64_t loss_bytes(const struct loss_shape *shape);
size_t loss_operands(const struct loss_shape *shape);
void loss_close(struct loss *l); /* NULL is fine */

/* Labels drawn from softmax(logits): that of row r is the first token at which the running sum of
 * probabilities passes rng_unit_at(seed, stream, r). */
struct loss_draw {
    uint64_t seed, stream;
    int32_t *label; /* (n_rows) set, -1 where the row counts nothing; or NULL */
};

/* An output matrix (n_vocab, d). */
struct loss_matrix {
    const float *w; /* NULL: it comes in pieces */
    /* Rows [first, first + n), written to room (n, d) or elsewhere. */
    const float *(*rows)(void *arg, size_t first, size_t n, float *room);
    void *arg;
};

/* logits = hidden w_out^T; the teacher's likewise, with its own width. */
struct loss_batch {
    size_t n_rows, d;
    const float *hidden;  /* (n_rows, d) */
    struct loss_matrix w_out;
    const int32_t *target; /* (n_rows) token, or < 0: the row counts nothing */
    const float *weight;   /* (n_rows) or NULL: ones */
    const struct loss_draw *draw; /* in place of the targets, of which only the sign counts; NULL */
    size_t teacher_d;
    const float *teacher_hidden; /* (n_rows, teacher_d), NULL: no teacher */
    struct loss_matrix teacher_w_out;
    /* gradients of grad_scale * sum weight (ce_weight CE + kl_weight KL(teacher || student)) */
    float ce_weight, kl_weight, grad_scale;
    float *dhidden; /* (n_rows, d) set; NULL: no gradients */
    float *dw_out;  /* (n_vocab, d) added to, or NULL: w_out is frozen */
};

/* Sums over the rows that count, each times its weight; nats. */
struct loss_sums {
    double ce, kl, weight;
    double tags; /* the caller's: cross entropy of a structure head's detectors */
    size_t n_rows; /* that count */
    size_t same_top; /* rows whose largest logit is the teacher's; the first of equals */
};

/* Same bits for any number of threads. */
void loss_run(struct loss *l, const struct loss_batch *b, struct loss_sums *out);

#endif
