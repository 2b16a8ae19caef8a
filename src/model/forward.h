/* forward.h: the layer program over one micro-batch of ragged rows. */
#ifndef MODEL_FORWARD_H
#define MODEL_FORWARD_H

#include "base/pool.h"
#include "kern/kern.h"
#include "model/kvcache.h"
#include "model/structhead.h"
#include "model/weights.h"

/* Consecutive tokens of one sequence; their pages are reserved. */
struct forward_run {
    struct kv_table *kv;
    const int32_t *ids; /* (n) */
    zp_seq *seq;        /* the engine's; unknown here */
    struct embed *embed; /* likewise: where its wanted rows go; NULL: logits are made of them */
    uint32_t first, n;  /* index in the sequence of the first token; tokens */
    uint32_t staged;    /* 8-bit KV: where its full tiles begin in forward.staged */
    uint32_t n_wanted;  /* the stream after the last layer is wanted of the last so many */
    uint64_t offset;    /* added to the index for angles and position gates only */
    const zp_anchor *anchors; /* (n_anchors), rising: positions of gates alone */
    size_t n_anchors;
    /* With a structure head, detectors of the sequence's tokens, (STRUCT_TYPES,
     * forward_detected_step): those of its first n_detected are there; past: ids before `first`. */
    float *detected;
    uint32_t n_detected;
    const int32_t *past;
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

enum {
    FORWARD_PANEL = 64, /* rows of a matrix whose products stay in a core's cache */
    FORWARD_LONE = 2     /* up to so many tokens every worker keeps its own rows */
};

/* The tokens' rows as one worker sees them. Workers share those of worker 0, each owning some
 * tokens; a lone batch is so small that each computes all rows for itself, which costs less than
 * waiting for the others. */
struct forward_rows {
    float *x;      /* (n, d_model): the residual stream */
    float *normed; /* (n, d_model) where products read f32; else one row, this worker's own */
    float *heads;  /* (n, n_head d_head): attention's output; NULL where it is quantised at once */
    struct kern_act act_model, act_heads; /* inputs of products, n rows */
    float *pairs;                         /* (2 n, d_model) or NULL */
    struct kern_act act_pairs; /* rows 2 t, 2 t + 1: the parts of row t of the output's input */
};

/* Scratch and tables of the layer program, sized once for micro_batch tokens. */
struct forward {
    const struct hparams *h;
    const struct position *position;
    const struct structhead *structure;
    const struct weights *weights;
    const struct kern_table *kern;
    struct pool *pool;
    uint32_t micro_batch, n_ctx, n_threads;
    struct weights_inputs reads; /* what the products read */
    bool identity;               /* rotate closed pairs by (1, 0) (tests of I2) */
    enum kv_form form;
    uint32_t n_seq; /* sequences the KV cache is made for */
    const uint8_t *gates; /* (n_layer, n_kv, n_pair) 0 = closed for now, or NULL */
    const uint32_t
        *windows;    /* (n_layer, n_kv) replaces the heads' own reach while scanning, or NULL */
    uint32_t n_sink; /* sinks that go with it */
    struct forward_hooks hooks;
    /* scratch */
    struct forward_rows *rows; /* (n_threads); [0] has micro_batch rows, the others FORWARD_LONE */
    float *q, *k, *v, *sum;    /* (micro_batch, width): products */
    float **panel;             /* (2, n_threads): panels of the feed-forward's two products */
    float **tile;              /* (n_threads): (2 micro_batch, FORWARD_PANEL) or NULL: of pairs */
    struct kern_act act_ff;    /* what the feed-forward's second half reads */
    float *ff;                 /* (micro_batch, d_ff) where products read f32, or NULL */
    float *cs[2];              /* (micro_batch, n_pair, 2) or NULL */
    float *phi;                /* (micro_batch, POSGATE_STEPS) or NULL: of position gates */
    float **bias;              /* (n_layer * n_head) reversed tables of n_ctx distances, or NULL */
    struct attend *attend;
    uint8_t *staged; /* 8-bit KV: (tiles of a batch, n_kv) bf16 tiles of the layer in work */
    uint8_t *scratch, *tables; /* one block each for all of the above */
    uint64_t scratch_bytes, position_bytes;
    /* the batch in work */
    const struct forward_batch *batch;
    uint32_t n_tok;
    bool lone;
    uint32_t *token_run, *token_at; /* (micro_batch) */
    uint64_t n_rotated; /* layer x KV head x pair x token, counted where the rotation runs */
};

/* Layers [layer_begin, layer_end) over runs of together n_tok <= micro_batch tokens. */
struct forward_batch {
    struct forward_run *runs;
    size_t n_runs;
    uint32_t layer_begin, layer_end;
    const float *x_in; /* (n_tok, d_model): the stream before layer_begin; NULL: the embeddings */
    bool all;          /* leave the stream of all tokens, not of the wanted ones alone */
};
/* Leaves the stream in f->rows[0].x, wanted rows or all, and returns how many; writes KV, not
 * lengths. What only unwanted rows of the last layer would need is not computed. */
size_t forward_layers(struct forward *f, const struct forward_batch *batch);
/* The tile that a run's positions of one head are written to, and that queries of the same tile
 * read: K, and V half of the bytes behind. forward_tile_bytes: of both. */
uint8_t *forward_tile(const struct forward *f, const struct forward_run *run, uint32_t layer,
                      uint32_t kv, uint32_t tile);
size_t forward_tile_bytes(const struct forward *f);
/* From one detector's list of a sequence to the next: n_ctx in whole tiles. */
static inline size_t forward_detected_step(uint32_t n_ctx)
{
    return ((size_t)n_ctx + KERN_TILE - 1) / KERN_TILE * KERN_TILE;
}
/* The final norm of one row x (d_model), in place. */
void forward_norm(const struct forward *f, float *x);
/* Final norm and output matrix of n rows x (n, d_model): logits (n, n_vocab). n <= micro_batch. */
void forward_logits(struct forward *f, const float *x, size_t n, float *logits);
#endif
