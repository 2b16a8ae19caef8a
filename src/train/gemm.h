/* gemm.h: f32 matrix products of row-major operands on a pool of workers, for training.
 * By oneDNN where its library can be opened, else by the engine's own kernels.
 * Same bits for any number of threads: the output is cut into blocks by its shape alone, and one
 * thread computes a block over the whole k. The two backends differ in the last bits (DOT(1)). */
#ifndef TRAIN_GEMM_H
#define TRAIN_GEMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/pool.h"
#include "base/status.h"

struct gemm;
enum gemm_precision { GEMM_F32, GEMM_BF16 };
enum gemm_kind { GEMM_NT, GEMM_NN, GEMM_TN };

struct gemm_options {
    enum gemm_precision precision;
    bool own;        /* never open oneDNN */
    bool emulate;    /* bf16 even where AVX-512 lacks such instructions: slow, for tests */
};

/* GEMM_BF16 rounds both operands to bf16 and sums in f32; without avx512_bf16, or without oneDNN,
 * it means GEMM_F32. The pool stays the caller's and must outlive g. Opening oneDNN takes 3 ms and
 * stays for the life of the process. OpenMP: products set the calling thread's number of OpenMP
 * threads to 1. Fails with ZP_NO_MEMORY. */
zp_status gemm_open(struct gemm **out, struct pool *pool, enum gemm_precision precision,
                    zp_err *err);
zp_status gemm_open_with(struct gemm **out, struct pool *pool, const struct gemm_options *options,
                         zp_err *err);
void gemm_close(struct gemm *g); /* NULL is fine */
enum gemm_precision gemm_precision_used(const struct gemm *g);
const char *gemm_backend(const struct gemm *g); /* "onednn" or "own" */
struct pool *gemm_pool(const struct gemm *g);
/* In bf16: room for products whose operands have `count` numbers together, so that none takes
 * memory when it comes (but for what oneDNN asks for). */
zp_status gemm_reserve(struct gemm *g, size_t count, zp_err *err);
/* What g holds with room for so many, under MEM_PRODUCT. */
uint64_t gemm_bytes(const struct gemm *g, size_t count);

/* y (n, m) = product, or += with `add`. Operands may not overlap y. ld: distance of rows.
 *   NT  x (n, k)  w (m, k)   y = x w^T
 *   NN  x (n, k)  w (k, m)   y = x w
 *   TN  x (k, n)  w (k, m)   y = x^T w */
struct gemm_product {
    enum gemm_kind kind;
    bool add;
    size_t n, m, k;
    const float *x;
    size_t ldx;
    const float *w;
    size_t ldw;
    float *y;
    size_t ldy;
};

/* Shared by all workers of the pool; called outside pool functions. */
void gemm_run(struct gemm *g, const struct gemm_product *p);
/* The same in f32 whatever g's precision. */
void gemm_run_f32(struct gemm *g, const struct gemm_product *p);
/* One thread's own product, in f32; called inside a pool function with that worker's number. */
void gemm_block(struct gemm *g, uint32_t thread, const struct gemm_product *p);

ZP_INLINE void gemm_nt(struct gemm *g, size_t n, size_t m, size_t k, const float *x, size_t ldx,
                       const float *w, size_t ldw, float *y, size_t ldy, bool add)
{
    gemm_run(g, &(struct gemm_product){ GEMM_NT, add, n, m, k, x, ldx, w, ldw, y, ldy });
}
ZP_INLINE void gemm_nn(struct gemm *g, size_t n, size_t m, size_t k, const float *x, size_t ldx,
                       const float *w, size_t ldw, float *y, size_t ldy, bool add)
{
    gemm_run(g, &(struct gemm_product){ GEMM_NN, add, n, m, k, x, ldx, w, ldw, y, ldy });
}
ZP_INLINE void gemm_tn(struct gemm *g, size_t n, size_t m, size_t k, const float *x, size_t ldx,
                       const float *w, size_t ldw, float *y, size_t ldy, bool add)
{
    gemm_run(g, &(struct gemm_product){ GEMM_TN, add, n, m, k, x, ldx, w, ldw, y, ldy });
}

#endif
