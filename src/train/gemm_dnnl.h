/* gemm_dnnl.h: products by oneDNN, opened at run time; each call runs on the calling thread alone.
 * Without its headers at build time, or its library at run time, there is none. */
#ifndef TRAIN_GEMM_DNNL_H
#define TRAIN_GEMM_DNNL_H

#include "train/gemm.h"

struct gemm_dnnl;
/* *out NULL: not there; the caller has its own kernels. Only want of memory fails: products by
 * other kernels would have other last bits. */
zp_status gemm_dnnl_open(struct gemm_dnnl **out, uint32_t n_threads, zp_err *err);
void gemm_dnnl_close(struct gemm_dnnl *d); /* NULL is fine */
/* Its memory, but for what the library asks for at products in bf16. NULL: 0. */
uint64_t gemm_dnnl_bytes(const struct gemm_dnnl *d);

/* false: not done, y is as before. */
bool gemm_dnnl_f32(struct gemm_dnnl *d, const struct gemm_product *p);
/* The same with x and w of p replaced by bf16 ones of the same shape and distances. */
bool gemm_dnnl_bf16(struct gemm_dnnl *d, uint32_t thread, const struct gemm_product *p,
                    const uint16_t *x, const uint16_t *w);

#endif
