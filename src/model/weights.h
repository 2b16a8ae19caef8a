/* weights.h: a model's tensors bound by name, checked, and packed for the kernels. */
#ifndef MODEL_WEIGHTS_H
#define MODEL_WEIGHTS_H

#include "base/pool.h"
#include "kern/kern.h"
#include "model/position.h"

enum weights_mat { W_Q, W_K, W_V, W_O, W_GATE, W_UP, W_DOWN, W_MAT_COUNT };

struct layer_weights {
    struct kern_mat mat[W_MAT_COUNT];
    /* gains and biases as f32, rows of q and k in slot order; NULL where the model has none */
    const float *attn_norm, *post_attn_norm, *ffn_norm, *post_ffn_norm; /* (d_model) */
    const float *q_norm;                                                /* (n_head, d_head) */
    const float *k_norm;                                                /* (n_kv, d_head) */
    const float *q_bias, *k_bias, *v_bias, *o_bias;
};

struct weights {
    struct layer_weights *layers;        /* (n_layer) */
    struct kern_mat output;              /* (n_vocab, d_model), the embedding where tied */
    const float *output_norm;            /* (d_model) */
    const struct gguf_tensor *embedding; /* rows are read from the file's mapping */
    bool tied;
    uint8_t *packed;                 /* all packed matrices, then gains and biases; huge pages */
    size_t packed_bytes, vectors_at; /* vectors_at: where the next gain goes while loading */
    struct os_map side;              /* the side file, where packed lies in it: read-only then */
    bool from_side_file;             /* mapped, or copied from there */
    struct arena arena;              /* the layer table */
};

/* Name of a matrix in layer l: "blk.3.attn_q.weight". out: >= 64 bytes. */
char *weights_tensor_name(enum weights_mat mat, uint32_t layer, char *out);
/* ZP_UNSUPPORTED: the file has a tensor that no code reads, which would make a silently different
 * model. */
zp_status weights_check_names(const struct gguf *g, const struct hparams *h, zp_err *err);
/* What the products of a model read: f32 rows (float forms), quantised rows, or both. */
struct weights_inputs {
    bool f32, q8;
};
/* Bytes of `packed`, and what products read (for plans). */
zp_status weights_plan(const struct gguf *g, const struct hparams *h, bool exact, uint64_t *bytes,
                       struct weights_inputs *reads, zp_err *err);
/* cache: folder of packed side files, or NULL. */
zp_status weights_open(struct weights *w, const struct gguf *g, const struct hparams *h,
                       const struct position *p, bool exact, const char *cache, struct pool *pool,
                       zp_err *err);
void weights_free(struct weights *w);
/* Row id of the embedding as f32 (d_model), unscaled. */
void weights_embed(const struct weights *w, uint32_t id, float *out);

#endif
