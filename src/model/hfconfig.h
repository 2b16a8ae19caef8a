/* hfconfig.h: Hugging Face folders opened as if they were GGUF files.
 * The result has GGUF's keys, names and row orders (q and k interleaved where the architecture's
 * GGUF has them so, norm gains of gemma plus 1, vectors as f32), so that arch.c and weights.c need
 * one kind of input. Texts become keys as they are, so that what is written from a folder has them:
 * tokenizer.json `tokenizer.huggingface.json` (GGUF's own name for it), tokenizer_config.json
 * `zerope.tokenizer.config`, and chat_template.jinja, or the template tokenizer_config.json holds,
 * `tokenizer.chat_template`. Keys of ours: `<arch>.attention.rope_pattern` bool[n_layer], true: the
 * layer HAS RoPE (smollm3's no_rope_layers; granite_swa's GGUF key of the same name);
 * `zerope.tokenizer.eos_ids` i32[] where config.json or generation_config.json list several. */
#ifndef MODEL_HFCONFIG_H
#define MODEL_HFCONFIG_H

#include "model/gguf.h"

/* folder: config.json, model.safetensors or its shards. Close with gguf_close. */
zp_status hf_open(struct gguf *g, const char *folder, zp_err *err);
/* The same with another configuration of the folder ("config_v5.json"). */
zp_status hf_open_config(struct gguf *g, const char *folder, const char *config_name, zp_err *err);
/* A folder by hf_open, a file by gguf_open. */
zp_status hf_or_gguf_open(struct gguf *g, const char *path, zp_err *err);

#endif
