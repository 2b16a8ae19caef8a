/* gguf.h: a model's keys and tensors, read from GGUF v2/v3 (one file or a split) or, through
 * hfconfig.h, from a Hugging Face folder; all of it views into mappings or memory that struct gguf
 * owns until gguf_close. Reading is const and thread safe. Writing lives in gguf_write.h.
 * G1 every key and tensor name is unique, NUL-terminated and within its limit.
 * G2 every value and tensor lies inside its mapping; tensor data is aligned to >= 8 bytes and does
 *    not overlap.
 * G3 sizes agree: bytes == rows * row bytes of the type, ne[d] >= 1, ne[0] % block == 0. */
#ifndef MODEL_GGUF_H
#define MODEL_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/bytes.h"
#include "base/mem.h"
#include "base/os.h"

#define GGUF_MAX_DIMS 4
#define GGUF_MAX_NAME 64 /* tensor names: bytes with the NUL */
#define GGUF_MAX_KEY 65535
#define GGUF_MAX_KV 65536
#define GGUF_MAX_TENSORS (1u << 20)
#define GGUF_DEFAULT_ALIGNMENT 32

/* Value types; numbers as in the file. */
enum gguf_type {
    GGUF_U8, GGUF_I8, GGUF_U16, GGUF_I16, GGUF_U32, GGUF_I32, GGUF_F32, GGUF_BOOL,
    GGUF_STR, GGUF_ARRAY, GGUF_U64, GGUF_I64, GGUF_F64, GGUF_TYPE_COUNT
};
const char *gguf_type_name(enum gguf_type type); /* "u32"; "?" beyond the list */

/* A string of a file: not NUL-terminated, may hold NULs, not necessarily UTF-8. */
struct gguf_str {
    const char *data;
    size_t size;
};
bool gguf_str_is(struct gguf_str s, const char *text);

struct gguf_kv {
    const char *name;
    enum gguf_type type; /* type of the value, or of the items when is_array; never GGUF_ARRAY */
    bool is_array;
    uint64_t count;      /* items; 1 for a scalar */
    const uint8_t *data; /* the value as in the file, little endian, unaligned: use gguf_item_* */
    size_t bytes;        /* of data, string length prefixes included */
    const uint32_t *offsets; /* strings: where in data item i (its length) begins; else NULL */
};

struct gguf_tensor {
    const char *name;
    uint32_t type; /* ggml type number, see kern/quant.h; always one that quant_traits_find knows */
    uint32_t n_dims;            /* 1..4 */
    uint64_t ne[GGUF_MAX_DIMS]; /* ne[0] = row length (fastest); 1 beyond n_dims */
    const uint8_t *data;
    uint64_t bytes;
    uint64_t offset; /* of data in its file; 0 for memory made while loading */
    uint32_t shard;  /* which file of a split */
};

struct gguf_index; /* name -> position, private */
struct gguf {
    char *path;       /* as given (a split: the shard that was named) */
    const char *arch; /* general.architecture; "" if the file has none */
    uint32_t version, alignment;
    struct gguf_kv *kvs; /* file order; a split: those of shard 1 */
    uint32_t n_kv;
    struct gguf_tensor *tensors; /* file order, shard after shard */
    uint32_t n_tensors;
    uint64_t file_bytes; /* all shards */
    /* Hugging Face folder: its path and the files the tokenizer needs (NULL where missing); all
     * NULL for GGUF. */
    const char *folder, *tokenizer_json, *tokenizer_config_json, *chat_template_jinja;
    /* private */
    struct os_map *maps;
    uint32_t n_maps;
    void **blocks; /* memory made while loading (permuted rows and the like) */
    uint32_t n_blocks;
    struct gguf_index *kv_index, *tensor_index;
    struct arena arena;
};

/* Opens path; for `base-00001-of-0000N.gguf` (any shard) all N files. On failure *g is empty. */
zp_status gguf_open(struct gguf *g, const char *path, zp_err *err);
/* The same over bytes in memory, which must outlive g (tests, fuzzing). name is for messages. */
zp_status gguf_open_bytes(struct gguf *g, const void *data, size_t size, const char *name,
                          zp_err *err);
void gguf_close(struct gguf *g); /* accepts a zeroed or half-built object */

/* ---- keys. A key that begins with "%." stands for the architecture's: "%.block_count" ->
 * "llama.block_count". get: must exist ("key llama.block_count is missing"); get_or: *out =
 * fallback when absent. A value of the wrong type or out of range is an error in both. Integers:
 * any integer type in range. f32: f32, f64 or integer. */
const struct gguf_kv *gguf_find_key(const struct gguf *g, const char *key);
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
/* Item i < count of a scalar or array whose type was checked (asserted). */
/* Integers and bool; a u64 above INT64_MAX saturates. */
int64_t gguf_item_int(const struct gguf_kv *kv, uint64_t i);
double gguf_item_float(const struct gguf_kv *kv, uint64_t i);        /* f32, f64 */
struct gguf_str gguf_item_str(const struct gguf_kv *kv, uint64_t i); /* O(1) */

/* Keys that are one number or one per layer (head_count_kv, feed_forward_length): fills out[0..n).
 * An array must have exactly n items. *found = false and out untouched when absent. Integers also
 * accept bools as 0/1. */
zp_status gguf_get_u32_layers(const struct gguf *g, const char *key, uint32_t n, uint32_t *out,
                              bool *found, zp_err *err);
zp_status gguf_get_f32_layers(const struct gguf *g, const char *key, uint32_t n, float *out,
                              bool *found, zp_err *err);

/* ---- tensors */
const struct gguf_tensor *gguf_find_tensor(const struct gguf *g, const char *name); /* or NULL */
/* Must exist ("tensor blk.0.attn_q.weight is missing"). */
zp_status gguf_get_tensor(const struct gguf *g, const char *name, const struct gguf_tensor **out,
                          zp_err *err);
uint64_t gguf_tensor_rows(const struct gguf_tensor *t);      /* ne[1] * ne[2] * ne[3] */
uint64_t gguf_tensor_row_bytes(const struct gguf_tensor *t); /* bytes / rows */
/* "576 x 49152" for messages; returns out. */
char *gguf_tensor_shape(const struct gguf_tensor *t, char *out, size_t size);

/* ---- building blocks shared with gguf_write.c and hfconfig.c */
/* Bytes of one value of a fixed-size type; 0 for strings and arrays. */
size_t gguf_type_bytes(enum gguf_type type);
/* Rebuilds both indexes over g->kvs and g->tensors; fails on duplicate names. Sets g->arch. */
zp_status gguf_build_indexes(struct gguf *g, zp_err *err);

#endif
