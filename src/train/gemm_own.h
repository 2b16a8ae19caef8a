/* gemm_own.h: one thread's f32 product by the engine's kernels: packs panels of w, then gemm_f32.
 * Each output is a sum over slices of GEMM_OWN_K of k, each slice one chain in ascending k. */
#ifndef TRAIN_GEMM_OWN_H
#define TRAIN_GEMM_OWN_H

#include "kern/kern.h"
#include "train/gemm.h"

enum {
    GEMM_OWN_K = 512, /* a packed panel of 256 columns takes 512 KiB: it stays in L2 */
    GEMM_OWN_M = 256,
    GEMM_OWN_N = 128
};
/* Scratch of one thread. */
struct gemm_own {
    float panel[GEMM_OWN_K * GEMM_OWN_M]; /* (m / 16, k, 16) */
    float turned[GEMM_OWN_N * GEMM_OWN_K];
    float sum[GEMM_OWN_N * GEMM_OWN_M];
} ZP_ALIGN(ZP_CACHE_LINE);

void gemm_own_product(kern_gemm_fn gemm, struct gemm_own *room, const struct gemm_product *p);

#endif
