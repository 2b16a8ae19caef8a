/* adapter.h: low-rank adapters (LoRA; Hu et al. 2021): chosen matrices learn as
 * W = W0 + alpha / rank * B A, with A (rank, n_in) and B (n_out, rank), and W0 stays as it is.
 * L1 W0 is what the model's file has, widened to f32 when it is needed; nothing holds W. Where B is
 *    0, W equals W0.
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
    size_t a, b; /* A and B in x */
};

struct adapter {
    struct adapter_options options;
    const struct netparam *param;
    struct adapter_matrix *matrices; /* by layer, then target */
    size_t n_matrices;
    float *x; /* (n) what learns; tensors begin at multiples of 16 floats, between them are zeros */
    size_t n;
    float *scaled; /* (n_out, rank) of the largest: room for alpha / rank * B */
    size_t n_scaled;
    struct gemm *gemm; /* the caller's; products in f32 whatever its precision */
};

/* "q,v" <-> bits; ZP_USAGE names what is unknown or there twice. */
zp_status adapter_read_targets(const char *list, uint32_t *targets, zp_err *err);
void adapter_write_targets(uint32_t targets, char list[ADAPTER_LIST]);
/* Name of a matrix in a file: "blk.%u.attn_q.weight". */
const char *adapter_target_tensor(enum adapter_target target);

/* The layout alone, x and scaled NULL; p must outlive a. A rank of 0 or beyond a matrix, an alpha
 * that is not above 0, targets without a matrix: ZP_USAGE. */
zp_status adapter_open(struct adapter *a, const struct netparam *p,
                       const struct adapter_options *o, zp_err *err);
/* Takes n floats under MEM_PARAMETER and n_scaled under MEM_PRODUCT; values as of L2. g must
 * outlive a. */
zp_status adapter_begin(struct adapter *a, struct gemm *g, zp_err *err);
void adapter_close(struct adapter *a); /* accepts a half-built or zeroed object */
/* Whether this tensor of p has an adapter. */
bool adapter_has(const struct adapter *a, const struct netparam_tensor *t);
/* segments (2 * n_matrices): all of x, A and B of each matrix, with weight decay. */
void adapter_segments(const struct adapter *a, struct opt_segment *segments);

/* w (n_out, n_in), W0 of t, becomes W; nothing where t has no adapter. */
void adapter_add(const struct adapter *a, const struct netparam_tensor *t, float *w);
/* The gradients of t's A and B that follow from that of W, dw (n_out, n_in), to their places in dx
 * (n, laid out like x). t has an adapter. */
void adapter_gradients(const struct adapter *a, const struct netparam_tensor *t, const float *dw,
                       float *dx);

#endif
