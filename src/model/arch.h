/* arch.h: architectures as data, and the hyper-parameters read from a model's keys. */
#ifndef MODEL_ARCH_H
#define MODEL_ARCH_H

#include <zerope/zerope.h>

#include "model/gguf.h"

enum arch_pairing {
    ARCH_INTERLEAVED, /* file rows 2i, 2i+1 form pair i (llama and relatives) */
    ARCH_HALVES       /* file rows i, i + n_rot/2 form pair i */
};
enum arch_act { ARCH_SILU, ARCH_GELU };
/* Where rope is absent by the architecture's own rule. */
enum arch_nope { ARCH_NOPE_NONE, ARCH_NOPE_EVERY_4TH, ARCH_NOPE_UNLESS_FINETUNED };

struct arch_row {
    const char *name;
    enum arch_pairing pairing;
    enum arch_act act;
    enum arch_nope nope;
    bool qkv_bias;    /* biases are required */
    bool qk_norm;     /* RMS norm of each head's q and k, before the rotation */
    bool post_norms;  /* norms after attention and after the feed-forward, before the residual */
    bool embed_sqrt;  /* embeddings times sqrt(d_model) */
    bool multipliers; /* granite: embedding, residual, attention and logit scales */
    uint32_t
        swa_pattern; /* default period: layer i is windowed iff (i + 1) % period != 0; 0 = all */
    float rope_base; /* default; 0 = the key is required */
    float rope_base_swa; /* of windowed layers; 0 = same as the others */
};

/* Dynamic: the base grows with the context beyond the original one (NTK), fixed by an engine's
 * n_ctx. */
enum arch_scaling {
    ARCH_SCALING_NONE,
    ARCH_SCALING_LINEAR,
    ARCH_SCALING_YARN,
    ARCH_SCALING_DYNAMIC
};

/* Everything but weights; filled from keys, checked for sense. Arrays live in the model's arena. */
struct hparams {
    const struct arch_row *arch;
    bool ours; /* file architecture is zerope-<arch> */
    uint32_t n_layer, n_head, n_kv, d_head, d_model, d_ff, n_vocab, n_ctx_train;
    uint32_t n_rot; /* channels that RoPE may rotate: first n_rot of each head, even */
    float norm_eps;
    float attn_scale, embed_scale, residual_scale,
        logit_scale;  /* logits are multiplied by logit_scale */
    uint32_t *window; /* (n_layer) 0 = unlimited; W: sees the last W positions, itself included */
    bool *rope;       /* (n_layer) the layer rotates, by architecture and file keys */
    float rope_base, rope_base_swa;
    enum arch_scaling scaling;
    float scaling_factor; /* linear, yarn, dynamic */
    float orig_ctx;       /* yarn, dynamic: context length before the scaling */
    float yarn_attn_factor, yarn_beta_fast, yarn_beta_slow, yarn_ext_factor;
    const struct gguf_tensor *rope_freqs; /* divisors of each pair's angle, or NULL */
    zp_pooling pooling; /* of embeddings: never the default */
};

const struct arch_row *arch_find(const char *name); /* NULL when unknown */
/* "llama, qwen2, ..." for messages. */
const char *arch_known_names(void);
/* Reads and checks; arrays are taken from arena. */
zp_status arch_read(struct hparams *h, const struct gguf *g, struct arena *arena, zp_err *err);
/* The architecture that `zerope-llama` stands for: "llama"; the name itself otherwise. */
const char *arch_base_name(const char *name);

#endif
