/* forward.h: the layer program over one micro-batch of ragged rows. */
#ifndef MODEL_FORWARD_H
#define MODEL_FORWARD_H

#include "base/pool.h"
#include "kern/kern.h"
#include "model/kvcache.h"
#include "model/weights.h"

/* Consecutive tokens of one sequence; their pages are reserved. */
struct forward_run {
    struct kv_table *kv;
    const int32_t *ids; /* (n) */
    uint32_t first, n;  /* index in the sequence of the first token; tokens */
    uint64_t offset;    /* added to the index for angles only */
    zp_mode mode;
};

/* Called by worker 0 between phases; rows are those of the micro-batch. Any may be NULL. */
struct forward_hooks {
    void *arg;
    void (*at_layer)(void *arg, uint32_t layer, size_t n_tok,
                     const float *x); /* x (n_tok, d_model), before it */
    void (*at_qkv)(void *arg, uint32_t layer, size_t n_tok, const float *q, const float *k,
                   const float *v);
};

enum { PAIR_TILE = 64 }; /* rows of the output matrix computed at a time */

/* Scratch and tables of the layer program, sized once for micro_batch tokens. */
struct forward {
    const struct hparams *h;
    const struct position *position;
    const struct weights *weights;
    const struct kern_table *kern;
    struct pool *pool;
    uint32_t micro_batch, n_ctx;
    bool exact, identity; /* identity: rotate closed pairs by (1, 0) (tests of I2) */
    size_t element;       /* bytes of a KV number: 4 or 2 */
    const uint8_t *gates; /* (n_layer, n_kv, n_pair) 0 = closed for now, or NULL */
    const uint32_t
        *windows;    /* (n_layer, n_kv) replaces the heads' own reach while scanning, or NULL */
    uint32_t n_sink; /* sinks that go with it */
    struct forward_hooks hooks;
    /* scratch */
    float *x, *normed, *q, *k, *v, *heads, *gate, *up, *sum; /* (micro_batch, width) */
    float *cs[2];                                            /* (micro_batch, n_pair, 2) or NULL */
    struct kern_act act_model, act_heads, act_ff;
    float *pairs, *pair_tiles; /* (2 micro_batch, d_model); (n_threads, 2 micro_batch, 64) */
    struct kern_act act_pairs; /* rows 2 t, 2 t + 1: the parts of row t; NULL: int8 alone */
    float **bias;              /* (n_layer * n_head) reversed tables of n_ctx distances, or NULL */
    struct attend *attend;
    void *blocks[24];
    uint32_t n_blocks;
    uint64_t scratch_bytes, position_bytes;
    /* the batch in work */
    const struct forward_run *runs;
    size_t n_runs;
    uint32_t n_tok;
    uint32_t *token_run, *token_at; /* (micro_batch) */
    uint32_t layer_begin, layer_end;
    uint64_t n_rotated; /* layer x KV head x pair x token, counted where the rotation runs */
};

/* Everything but scratch is set by the caller before. */
zp_status forward_open(struct forward *f, zp_err *err);
void forward_free(struct forward *f);
/* Bytes forward_open will take. */
void forward_plan(const struct hparams *h, const struct position *p, uint32_t micro_batch,
                  uint32_t n_ctx, bool exact, uint32_t n_threads, uint64_t *scratch,
                  uint64_t *position);

/* Runs layers [layer_begin, layer_end) over runs of together <= micro_batch tokens, n_tok of them.
 * x_in (n_tok, d_model): the stream before layer_begin, or NULL for the embeddings. Leaves the
 * stream in f->x; writes KV, not lengths. */
void forward_layers(struct forward *f, const struct forward_run *runs, size_t n_runs,
                    uint32_t layer_begin, uint32_t layer_end, const float *x_in);
/* Final norm and output matrix of n rows x (n, d_model): logits (n, n_vocab). n <= micro_batch. */
void forward_logits(struct forward *f, const float *x, size_t n, float *logits);

#endif
