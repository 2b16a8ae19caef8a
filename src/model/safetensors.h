/* safetensors.h: tensors of one .safetensors file or of a folder's shards, read as views into the
 * mappings. Writing: safetensors_write.h.
 * S1 each file's data section is covered completely, without overlap, by its tensors.
 * S2 every name is unique over all shards.  S3 bytes == product(shape) * size of dtype. */
#ifndef MODEL_SAFETENSORS_H
#define MODEL_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/mem.h"
#include "base/os.h"

#define SAFETENSORS_MAX_HEADER ((size_t)100 << 20)
#define SAFETENSORS_MAX_DIMS 8
#define SAFETENSORS_MAX_TENSORS (1u << 20)

enum safetensors_dtype { ST_F32, ST_F16, ST_BF16, ST_I32, ST_I64, ST_U8, ST_DTYPE_COUNT };
const char *safetensors_dtype_name(enum safetensors_dtype dtype); /* "BF16" */
size_t safetensors_dtype_bytes(enum safetensors_dtype dtype);

struct safetensors_tensor {
    const char *name;
    enum safetensors_dtype dtype;
    uint32_t n_dims;                      /* 0 (a scalar) to 8 */
    uint64_t shape[SAFETENSORS_MAX_DIMS]; /* slowest first; a 0 means no data */
    const uint8_t *data;                  /* not aligned: the format promises nothing */
    uint64_t bytes;
    uint32_t shard;
};

struct safetensors {
    struct safetensors_tensor *tensors; /* sorted by name */
    uint32_t n_tensors;
    struct os_map *maps; /* one a shard; a caller may take them over (n_maps = 0 afterwards) */
    uint32_t n_maps;
    struct arena arena; /* names */
};

zp_status safetensors_open(struct safetensors *s, const char *path, zp_err *err);
/* model.safetensors, or all shards that model.safetensors.index.json names. */
zp_status safetensors_open_folder(struct safetensors *s, const char *folder, zp_err *err);
/* Bytes in memory that outlive s; name is for messages. */
zp_status safetensors_open_bytes(struct safetensors *s, const void *data, size_t size,
                                 const char *name, zp_err *err);
void safetensors_close(struct safetensors *s); /* accepts a zeroed or half-built object */
const struct safetensors_tensor *safetensors_find(const struct safetensors *s, const char *name);
/* Value i of a tensor of F32, F16 or BF16. */
float safetensors_value(const struct safetensors_tensor *t, uint64_t i);

#endif
