/* hfkeys.h: Hugging Face families as data, and config.json translated into GGUF keys.
 * The numbers that shape the tensors come out in struct hf_config as well. */
#ifndef MODEL_HFKEYS_H
#define MODEL_HFKEYS_H

#include "model/gguf_write.h"
#include "model/json_read.h"

#define HF_MAX_LAYERS 1024
#define HF_MAX_EOS 64
#define HF_EOS_KEY "zerope.tokenizer.eos_ids" /* i32[]: every token that ends a generation */

/* What absent members of config.json mean, as transformers documents it, and how weights differ
 * from GGUF's. */
struct hf_family {
    const char *model_type; /* "gemma3_text" */
    const char *arch;       /* general.architecture: "gemma3" */
    const char *class_name; /* for "architectures" when writing */
    const char *act;        /* the only activation known */
    bool permuted;          /* GGUF interleaves the rows of q and k that RoPE pairs */
    bool gemma;             /* norm gains stored minus 1; norms after each sublayer */
    bool qk_norm;
    bool tied;              /* tie_word_embeddings when absent */
    bool kv_is_heads;       /* num_key_value_heads may be absent */
    uint32_t d_head;        /* head_dim when absent; 0: hidden_size / num_attention_heads */
    double theta, theta_local; /* when absent; 0: required */
    enum hf_windows {
        HF_WINDOW_NONE,     /* the family knows no window */
        HF_WINDOW_ALL,      /* mistral: every layer */
        HF_WINDOW_UPPER,    /* qwen: layers from max_window_layers, if use_sliding_window */
        HF_WINDOW_NOPE,     /* smollm3: layers without RoPE, if use_sliding_window */
        HF_WINDOW_PERIOD    /* gemma3: all but every sixth */
    } windows;
};
const struct hf_family *hf_family_by_type(const char *model_type); /* or NULL */
const struct hf_family *hf_family_at(size_t i);                    /* NULL past the end */

struct hf_config {
    const struct hf_family *family;
    uint32_t n_layer, n_head, n_kv, d_model, d_head, n_rot, d_ff, n_vocab, n_ctx;
    bool tied;
};

/* Appends the keys (and rope_freqs.weight where the scaling is llama3) to e. root: config.json.
 * where: its path, for messages. */
zp_status hfkeys_read(const json_t *root, const char *where, struct gguf_edit *e,
                      struct hf_config *c, zp_err *err);
/* eos_token_id (number or list) of config.json or generation_config.json; the last call wins. */
zp_status hfkeys_read_eos(const json_t *root, const char *where, struct gguf_edit *e, zp_err *err);

#endif
