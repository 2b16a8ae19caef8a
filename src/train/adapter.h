/* adapter.h: low-rank adapters (LoRA; Hu et al. 2021): chosen matrices learn as
 * W = W0 + alpha / rank * B A, with A (rank, n_in) and B (n_out, rank), and W0 stays as it is.
 * L1 W0 is a copy in f32 of what the matrix was at opening; it is never written. Where B is 0,
 *    W equals W0.
 * L2 A begins uniform in +-1 / sqrt(n_in), as PEFT's does (kaiming_uniform with a = sqrt(5)), B at
 *    0: values depend on (seed, the matrix's name and row length, index) alone.
 * L3 W and the gradients are functions of their operands, in f32, with the same bits for any number
 *    of threads. */
#ifndef TRAIN_ADAPTER_H
#define TRAIN_ADAPTER_H

#include "train/gemm.h"
#include "train/netparam.h"
#include "train/optimiser.h"

enum adapter_target {
    ADAPTER_Q, ADAPTER_K, ADAPTER_V, ADAPTER_O, ADAPTER_GATE, ADAPTER_UP, ADAPTER_DOWN,
    ADAPTER_TARGETS
};
enum { ADAPTER_LIST = 32 }; /* bytes of all names in a list */

struct adapter_options {
    uint32_t rank; /* at most the smaller side of each matrix */
    double alpha;
    uint32_t targets; /* 1 << enum adapter_target, of all layers */
    uint64_t seed;
};

struct adapter_matrix {
    const struct netparam_tensor *of;
    enum adapter_target target;
    size_t a, b, base; /* A and B in x, W0 in base */
};

struct adapter {
    struct adapter_options options;
    const struct netparam *param;
    struct adapter_matrix *matrices; /* by layer, then target */
    size_t n_matrices;
    float *x; /* (n) what learns; tensors begin at multiples of 16 floats, between them are zeros */
    size_t n;
    float *base;       /* W0 of each matrix */
    float *scaled;     /* (n_out, rank) room for alpha / rank * B */
    struct gemm *gemm; /* of its own: f32 whatever the rest computes in */
};

/* "q,v" <-> bits; ZP_USAGE names what is unknown or there twice. */
zp_status adapter_read_targets(const char *list, uint32_t *targets, zp_err *err);
void adapter_write_targets(uint32_t targets, char list[ADAPTER_LIST]);
/* Name of a matrix in a file: "blk.%u.attn_q.weight". */
const char *adapter_target_tensor(enum adapter_target target);

/* w (p->n): the model's parameters, W0 among them; p and pool must outlive a. A rank of 0 or beyond
 * a matrix, an alpha that is not above 0, targets without a matrix: ZP_USAGE. */
zp_status adapter_open(struct adapter *a, const struct netparam *p, const float *w,
                       struct pool *pool, const struct adapter_options *o, zp_err *err);
void adapter_close(struct adapter *a); /* accepts a half-built or zeroed object */
/* Whether this tensor of p has an adapter. */
bool adapter_has(const struct adapter *a, const struct netparam_tensor *t);
/* segments (2 * n_matrices): all of x, A and B of each matrix, with weight decay. */
void adapter_segments(const struct adapter *a, struct opt_segment *segments);

/* The matrices in w (p->n) become W. */
void adapter_merge(struct adapter *a, float *w);
/* The matrices' places in dw (p->n) become 0, for net_backward to add to. */
void adapter_clear(const struct adapter *a, float *dw);
/* dx (n, laid out like x) = gradients of A and B that follow from those of W in dw (p->n). */
void adapter_gradients(struct adapter *a, const float *dw, float *dx);

#endif
