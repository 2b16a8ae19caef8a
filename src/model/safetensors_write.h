/* safetensors_write.h: writing .safetensors files and sharded folders. */
#ifndef MODEL_SAFETENSORS_WRITE_H
#define MODEL_SAFETENSORS_WRITE_H

#include "model/safetensors.h"

/* Rows: everything but the last dimension. Called in ascending order, each row once. */
typedef zp_status (*safetensors_fill)(void *arg, uint64_t first, uint64_t n, void *out,
                                      zp_err *err);
struct safetensors_out {
    const char *name;
    enum safetensors_dtype dtype;
    uint32_t n_dims;
    uint64_t shape[SAFETENSORS_MAX_DIMS];
    const void *data; /* all bytes, or NULL: then fill is called */
    safetensors_fill fill;
    void *fill_arg;
};

/* One file with __metadata__ {"format": "pt"}, atomically. */
zp_status safetensors_write(const char *path, const struct safetensors_out *tensors, uint32_t n,
                            zp_err *err);
/* folder/model.safetensors, or shards of at most max_bytes of data (one tensor at least) and their
 * index, which is written last; max_bytes 0: one file. */
zp_status safetensors_write_folder(const char *folder, const struct safetensors_out *tensors,
                                   uint32_t n, uint64_t max_bytes, zp_err *err);

#endif
