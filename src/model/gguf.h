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
#include "model/gguf_get.h"
#include "model/gguf_value.h"

#define GGUF_MAX_DIMS 4
#define GGUF_MAX_NAME 64 /* tensor names: bytes with the NUL */
#define GGUF_MAX_KV 65536
#define GGUF_MAX_TENSORS (1u << 20)
#define GGUF_DEFAULT_ALIGNMENT 32

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
    const char *folder;  /* of a Hugging Face model; NULL for GGUF */
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
/* Whether path leads to one of the files that opening model reads as parts of a split. */
bool gguf_is_part_of(const char *path, const char *model);
/* Whether opening a file of this name asks for others beside it, or refuses the name. */
bool gguf_is_part_name(const char *path);
void gguf_close(struct gguf *g); /* accepts a zeroed or half-built object */

/* ---- tensors */
const struct gguf_tensor *gguf_find_tensor(const struct gguf *g, const char *name); /* or NULL */
/* Must exist ("tensor blk.0.attn_q.weight is missing"). */
zp_status gguf_get_tensor(const struct gguf *g, const char *name, const struct gguf_tensor **out,
                          zp_err *err);
/* Values of an f32 tensor of ne0 x ne1 (1: a vector), all finite, where the file has it; absent:
 * *out = NULL. */
zp_status gguf_find_f32(const struct gguf *g, const char *name, uint64_t ne0, uint64_t ne1,
                        const float **out, zp_err *err);
uint64_t gguf_tensor_rows(const struct gguf_tensor *t);      /* ne[1] * ne[2] * ne[3] */
uint64_t gguf_tensor_row_bytes(const struct gguf_tensor *t); /* bytes / rows */
/* "576 x 49152" for messages; returns out. */
char *gguf_tensor_shape(const struct gguf_tensor *t, char *out, size_t size);

/* Gives the pages of the mappings back; who looks at one again reads it from the file. */
void gguf_drop_pages(const struct gguf *g);

/* ---- building blocks shared with gguf_write.c and hfconfig.c */
/* Checks name, type, dims and sizes of *t (G1, G3); sets bytes, and unused ne to 1. where: the
 * file, for messages. */
zp_status gguf_tensor_check(struct gguf_tensor *t, const char *where, zp_err *err);
/* Rebuilds both indexes over g->kvs and g->tensors, sets g->arch; duplicate names are errors. */
zp_status gguf_build_indexes(struct gguf *g, zp_err *err);
zp_status gguf_check_arch(struct gguf_str arch, const char *where, zp_err *err);
/* kv: the key general.alignment or NULL (default 32). */
zp_status gguf_check_alignment(const struct gguf_kv *kv, const char *where, uint32_t *out,
                               zp_err *err);
const char *gguf_label(const char *path); /* path, or its end when it is too long for a message */

#endif
