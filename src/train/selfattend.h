/* selfattend.h: causal attention of packed rows for training, and its gradients, in memory that
 * grows with the rows alone. Same bits for any number of threads. */
#ifndef TRAIN_SELFATTEND_H
#define TRAIN_SELFATTEND_H

#include <stddef.h>
#include <stdint.h>
#include "base/status.h"
#include "train/gemm.h"

struct selfattend;
struct selfattend_shape {
    size_t most_rows, n_head, n_kv;
    size_t dk, dv;  /* widths of keys and values of a head; dk = 2 dv with a score mix */
    size_t n_bias;  /* distances of a bias table; 0: none */
};

/* Bytes that selfattend_open takes with that many threads. */
uint64_t selfattend_bytes(const struct selfattend_shape *shape, uint32_t n_threads);
/* Scratch for each worker of g's pool; g stays the caller's. Fails with ZP_NO_MEMORY. */
zp_status selfattend_open(struct selfattend **out, struct gemm *g,
                          const struct selfattend_shape *shape, zp_err *err);
void selfattend_close(struct selfattend *s); /* NULL is fine */

/* Row i of KV head h sees rows [first, i] and its document's sinks, the rows before `first` in
 * [doc_start, doc_start + n_sink[h]). first of all rows of head h: first + h * first_stride.
 * logit = scale * row_scale[i] * q.k + bias[head][i - j] + key_bias[head][j]. */
struct selfattend_batch {
    size_t n_rows;
    const uint32_t *first;     /* doc_start[i] <= first[i] <= i */
    size_t first_stride;       /* 0: the same for all KV heads */
    const uint32_t *doc_start; /* (n_rows), NULL without sinks */
    const uint32_t *n_sink;    /* (n_kv), NULL: none */
    float scale;
    const float *row_scale; /* (n_rows) or NULL: ones */
    const float *bias;      /* (n_head, n_bias) or NULL; n_bias exceeds every visible distance */
    const float *key_bias;  /* (n_head, n_rows) or NULL */
    const float *q;         /* (n_rows, n_head, dk) */
    const float *k;         /* (n_rows, n_kv, dk) */
    const float *v;         /* (n_rows, n_kv, dv) */
};

/* o (n_rows, n_head, dv), lse (n_head, n_rows): logarithm of each softmax's sum. */
void selfattend_forward(struct selfattend *s, const struct selfattend_batch *b, float *o,
                        float *lse);
/* dq, dk, dv like q, k, v and dkey_bias like key_bias: set; dbias (n_head, n_bias): added to. The
 * last two may be NULL. Threads share KV heads and segments: stretches of at least 128 rows that
 * see nothing before them. */
void selfattend_backward(struct selfattend *s, const struct selfattend_batch *b, const float *o,
                         const float *lse, const float *d_o, float *dq, float *dk, float *dv,
                         float *dbias, float *dkey_bias);

#endif
