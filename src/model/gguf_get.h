/* gguf_get.h: typed reading of a model's keys; included by gguf.h. */
#ifndef MODEL_GGUF_GET_H
#define MODEL_GGUF_GET_H

#include <stdbool.h>
#include <stdint.h>
#include "model/gguf_value.h"

struct gguf;
#define GGUF_KEY_ROOM 256 /* bytes of an expanded key */

/* A key that begins with "%." stands for the architecture's: "%.block_count" ->
 * "llama.block_count". get: must exist ("key llama.block_count is missing"); get_or: *out =
 * fallback when absent. A value of the wrong type or out of range is an error in both. Integers:
 * any integer type in range. f32: f32, f64 or integer. */
const struct gguf_kv *gguf_find_key(const struct gguf *g, const char *key); /* or NULL */
zp_status gguf_get_u32(const struct gguf *g, const char *key, uint32_t *out, zp_err *err);
zp_status gguf_get_u32_or(const struct gguf *g, const char *key, uint32_t fallback, uint32_t *out,
                          zp_err *err);
zp_status gguf_get_u64(const struct gguf *g, const char *key, uint64_t *out, zp_err *err);
zp_status gguf_get_u64_or(const struct gguf *g, const char *key, uint64_t fallback, uint64_t *out,
                          zp_err *err);
zp_status gguf_get_f32(const struct gguf *g, const char *key, float *out, zp_err *err);
zp_status gguf_get_f32_or(const struct gguf *g, const char *key, float fallback, float *out,
                          zp_err *err);
zp_status gguf_get_bool(const struct gguf *g, const char *key, bool *out, zp_err *err);
zp_status gguf_get_bool_or(const struct gguf *g, const char *key, bool fallback, bool *out,
                           zp_err *err);
zp_status gguf_get_str(const struct gguf *g, const char *key, struct gguf_str *out, zp_err *err);
/* Absent: out->data = NULL, size 0. */
zp_status gguf_get_str_or_null(const struct gguf *g, const char *key, struct gguf_str *out,
                               zp_err *err);

/* Arrays. kind: what the caller will read; integers of any width pass for GGUF_ANY_INT. *out = NULL
 * when absent (find) or an error (get). */
enum gguf_array_kind { GGUF_ANY_INT, GGUF_ANY_FLOAT, GGUF_BOOLS, GGUF_STRS };
zp_status gguf_get_array(const struct gguf *g, const char *key, enum gguf_array_kind kind,
                         const struct gguf_kv **out, zp_err *err);
zp_status gguf_find_array(const struct gguf *g, const char *key, enum gguf_array_kind kind,
                          const struct gguf_kv **out, zp_err *err);
/* Keys that are one number or one per layer (head_count_kv, feed_forward_length): fills out[0..n).
 * An array must have exactly n items. *found = false and out untouched when absent. Integers also
 * accept bools as 0/1. */
zp_status gguf_get_u32_layers(const struct gguf *g, const char *key, uint32_t n, uint32_t *out,
                              bool *found, zp_err *err);
zp_status gguf_get_f32_layers(const struct gguf *g, const char *key, uint32_t n, float *out,
                              bool *found, zp_err *err);

/* Writes key with a leading "%." replaced by "ARCH."; NULL if it does not fit into size bytes. */
const char *gguf_expand_key(const char *arch, const char *key, char *out, size_t size);

#endif
