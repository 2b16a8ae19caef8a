/* hfwrite.h: a Hugging Face folder from GGUF keys and float tensors: the reverse of hf_open. */
#ifndef MODEL_HFWRITE_H
#define MODEL_HFWRITE_H

#include "model/gguf_write.h"

/* A file to place in the folder beside what hf_write makes; it may replace a text made from a
 * key. */
struct hf_file {
    const char *name;      /* without '/' */
    const char *copy_from; /* a path; or NULL and */
    const void *data;      /* size bytes */
    size_t size;
};

struct hf_write_options {
    uint64_t max_shard_bytes; /* 0: one model.safetensors */
    const struct hf_file *files;
    uint32_t n_files;
};

/* Whether readers of a folder (transformers, vLLM, hf_open) may take a file of this name as part of
 * its model. */
bool hf_is_model_file(const char *name);

/* e: architecture llama, qwen2, qwen3, gemma3, smollm3 or granite, rows in GGUF's order, every
 * tensor F32, F16 or BF16. options may be NULL. What the folder's format cannot say is an error:
 * zerope.position.* and zerope.attention.* keys, rope patterns outside smollm3, quantised tensors,
 * unknown tensors. rope_freqs.weight becomes llama3 scaling where that gives the same divisors: all
 * pairs closed (>= 1e29) or a real llama3 scaling. Rotation is written in the old spelling
 * (rope_theta, rope_scaling), which transformers 4 and 5 both read. Texts that hf_open keeps as
 * keys become files again. Each file is written atomically
 * and config.json last; the folder is made if needed. Files of an older model in the same folder
 * that this one lacks stay, and readers would mix them: see hf_is_model_file. */
zp_status hf_write(const char *folder, struct gguf_edit *e, const struct hf_write_options *options,
                   zp_err *err);

#endif
