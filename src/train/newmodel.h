/* newmodel.h: a model from nothing, for training from scratch.
 * A1 a value depends on (seed, tensor name, place in the tensor) alone, but for the scale of its
 *    tensor: models that differ in their kind of position share all other tensors, bit by bit.
 * A2 what is written opens as a model and as a net, and runs in the engine. */
#ifndef TRAIN_NEWMODEL_H
#define TRAIN_NEWMODEL_H

#include <zerope/train.h>

/* Writes a GGUF file of f32 tensors with the tokenizer's keys, atomically.
 * config_json: one object, nothing in it but these members; config_name is for messages:
 *     n_layer, d_model, n_head, d_ff  sizes
 *     n_kv, d_head                    default: n_head, d_model / n_head
 *     n_ctx                           tokens the model is for
 *     position                        rope, partial, alibi, t5, mlp or none
 *     rope_base                       rope and partial alone; default 10000
 *     n_rot                           partial alone: channels of a head that are rotated
 *     buckets, max_distance           t5 alone; default 32, 128
 *     qk_norm                         norms of each head's q and k; default false
 * Architecture: llama (qwen3 with qk_norm) where stock files can say it, that is rope and partial,
 * else zerope-llama (zerope-qwen3). Output matrix and embeddings are one.
 * Initial values: matrices normal(0, 0.02), those that write into the stream (attn_output,
 * ffn_down) normal(0, 0.02 / sqrt(2 n_layer)) as GPT-2's; gains 1; ALiBi slopes as Press et al.
 * 2021 (arXiv:2108.12409) give them; T5's table normal(0, 0.02); the MLP of distances normal(0,
 * 0.5) in its first layer, normal(0, 0.02) in its second, biases 0.
 * ZP_BAD_FILE: a wrong member (named, with what was found and expected) or tokenizer. ZP_USAGE:
 * out_path is the tokenizer's. */
zp_status newmodel_write(const char *config_json, const char *config_name,
                         const char *tokenizer_path, uint64_t seed, const char *out_path,
                         zp_err *err);

#endif
