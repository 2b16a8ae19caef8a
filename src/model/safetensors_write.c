/* safetensors_write.c: writing .safetensors, one file or shards with their index.
 * Owns: the header text being built. Layout: the tensors in the order
 * given, without gaps; the header is padded with spaces to a multiple of 8. */
#include "model/safetensors_write.h"

#include <stdio.h>
#include <string.h>
#include "base/json_tree.h"
#include "base/status.h"
#include "model/json_write.h"

#define FILL_BYTES ((size_t)1 << 20)

static zp_status measure(const struct safetensors_out *t, uint64_t *bytes, uint64_t *rows,
                         zp_err *err)
{
    size_t total = safetensors_dtype_bytes(t->dtype), n_rows = 1;
    ZP_FAIL_IF(total == 0 || t->n_dims > SAFETENSORS_MAX_DIMS, err, ZP_BAD_INPUT,
               "tensor %.100s: bad dtype or more than %d dimensions", t->name,
               SAFETENSORS_MAX_DIMS);
    for (uint32_t d = 0; d < t->n_dims; d++) {
        ZP_FAIL_IF(!size_mul(total, t->shape[d], &total) || total > INT64_MAX, err, ZP_BAD_INPUT,
                   "tensor %.100s: its size overflows", t->name);
        if (d + 1 < t->n_dims) n_rows *= t->shape[d];
    }
    *bytes = total;
    *rows = n_rows;
    return ZP_OK;
}

/* ---- header */

static json_t *entry_of(const struct safetensors_out *t, uint64_t begin, uint64_t end)
{
    json_t *shape = json_array();
    for (uint32_t d = 0; d < t->n_dims; d++)
        shape = json_tree_add(shape, json_integer((json_int_t)t->shape[d]));
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", safetensors_dtype_name(t->dtype), "shape",
                     shape, "data_offsets", (json_int_t)begin, (json_int_t)end);
}

static zp_status make_header(const struct safetensors_out *tensors, uint32_t n, json_t **out,
                             uint64_t *data_bytes, zp_err *err)
{
    json_t *root = *out = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
    uint64_t at = 0, bytes, rows;
    for (uint32_t i = 0; i < n; i++) {
        ZP_TRY(measure(&tensors[i], &bytes, &rows, err));
        ZP_FAIL_IF(bytes > INT64_MAX - at, err, ZP_BAD_INPUT, "the file would be too large");
        ZP_FAIL_IF(json_object_get(root, tensors[i].name) != NULL, err, ZP_BAD_INPUT,
                   "tensor %.100s appears twice", tensors[i].name);
        json_t *entry = entry_of(&tensors[i], at, at + bytes);
        ZP_FAIL_IF(json_object_set_new(root, tensors[i].name, entry) != 0, err, ZP_NO_MEMORY,
                   "not enough memory for the header, or tensor name %.100s is not UTF-8",
                   tensors[i].name);
        at += bytes;
    }
    *data_bytes = at;
    return ZP_OK;
}

static zp_status header_text(const json_t *root, struct buffer *out, zp_err *err)
{
    static const char spaces[8] = {' ', ' ', ' ', ' ', ' ', ' ', ' ', ' '};
    ZP_TRY(json_write_text(root, JSON_COMPACT, out, err));
    return buffer_append(out, spaces, (8 - out->size % 8) % 8, err);
}

/* ---- data */

static zp_status write_rows(struct os_file *f, const struct safetensors_out *t, uint8_t *room,
                            uint64_t at_once, uint64_t rows, size_t row_bytes, zp_err *err)
{
    for (uint64_t row = 0; row < rows; row += at_once) {
        uint64_t n = rows - row < at_once ? rows - row : at_once;
        ZP_TRY(t->fill(t->fill_arg, row, n, room, err));
        ZP_TRY(os_file_write(f, room, (size_t)n * row_bytes, err));
    }
    return ZP_OK;
}

static zp_status write_tensor(struct os_file *f, const struct safetensors_out *t, zp_err *err)
{
    uint64_t bytes, rows;
    ZP_TRY(measure(t, &bytes, &rows, err));
    if (bytes == 0) return ZP_OK;
    if (t->data != NULL) return os_file_write(f, t->data, (size_t)bytes, err);
    size_t row_bytes = (size_t)(bytes / rows);
    uint64_t at_once = row_bytes < FILL_BYTES ? FILL_BYTES / row_bytes : 1;
    uint8_t *room = mem_array(MEM_SCRATCH, (size_t)at_once, row_bytes);
    ZP_FAIL_IF(room == NULL, err, ZP_NO_MEMORY, "not enough memory for rows of tensor %.100s",
               t->name);
    zp_status status = write_rows(f, t, room, at_once, rows, row_bytes, err);
    mem_free(room);
    return status;
}

static zp_status write_all(struct os_file *f, const struct buffer *header,
                           const struct safetensors_out *tensors, uint32_t n, zp_err *err)
{
    uint64_t size = header->size;
    ZP_TRY(os_file_write(f, &size, 8, err));
    ZP_TRY(os_file_write(f, header->data, header->size, err));
    for (uint32_t i = 0; i < n; i++) ZP_TRY(write_tensor(f, &tensors[i], err));
    return os_file_commit(f, err);
}

zp_status safetensors_write(const char *path, const struct safetensors_out *tensors, uint32_t n,
                            zp_err *err)
{
    struct buffer header = buffer_with_max(MEM_META, SAFETENSORS_MAX_HEADER);
    struct os_file f;
    json_t *root = NULL;
    uint64_t data_bytes = 0;
    zp_status status = make_header(tensors, n, &root, &data_bytes, err);
    if (status == ZP_OK) status = header_text(root, &header, err);
    json_decref(root);
    if (status == ZP_OK) status = os_file_create(&f, path, 8 + header.size + data_bytes, err);
    if (status == ZP_OK) {
        status = write_all(&f, &header, tensors, n, err);
        if (status != ZP_OK) os_file_abort(&f);
    }
    buffer_free(&header);
    return status;
}

/* ---- folders */

static zp_status write_named(const char *folder, const char *name,
                             const struct safetensors_out *tensors, uint32_t n, zp_err *err)
{
    struct buffer path = buffer_with_max(MEM_META, 1 << 16);
    zp_status status = buffer_printf(&path, err, "%s/%s", folder, name);
    if (status == ZP_OK) status = safetensors_write((const char *)path.data, tensors, n, err);
    buffer_free(&path);
    return status;
}

/* Tensors [first, result) make the next shard: as many as fit, one at least. */
static zp_status shard_end(const struct safetensors_out *tensors, uint32_t n, uint32_t first,
                           uint64_t max_bytes, uint32_t *end, uint64_t *total, zp_err *err)
{
    uint64_t used = 0, bytes, rows;
    for (*end = first; *end < n; (*end)++) {
        ZP_TRY(measure(&tensors[*end], &bytes, &rows, err));
        if (*end > first && (bytes > max_bytes || used > max_bytes - bytes)) break;
        used += bytes;
    }
    *total += used;
    return ZP_OK;
}

/* A reader takes model.safetensors where there is one: beside shards it would be a stale model. */
static zp_status check_no_single(const char *folder, zp_err *err)
{
    struct buffer path = buffer_with_max(MEM_META, 1 << 16);
    zp_status status = buffer_printf(&path, err, "%s/model.safetensors", folder);
    if (status == ZP_OK && os_exists((const char *)path.data))
        status = status_fail(err, ZP_BAD_INPUT, __FILE__, __LINE__,
                             "%s: exists, and would hide the shards to be written: remove it first",
                             (const char *)path.data);
    buffer_free(&path);
    return status;
}

static zp_status count_shards(const struct safetensors_out *tensors, uint32_t n, uint64_t max_bytes,
                              uint32_t *count, uint64_t *total, zp_err *err)
{
    *count = 0;
    *total = 0;
    for (uint32_t first = 0, end; first < n; first = end, (*count)++)
        ZP_TRY(shard_end(tensors, n, first, max_bytes, &end, total, err));
    return ZP_OK;
}

static zp_status write_shards(const char *folder, const struct safetensors_out *tensors, uint32_t n,
                              uint64_t max_bytes, uint32_t count, json_t *map, zp_err *err)
{
    char name[64];
    uint64_t total = 0;
    for (uint32_t first = 0, end, i = 1; first < n; first = end, i++) {
        ZP_TRY(shard_end(tensors, n, first, max_bytes, &end, &total, err));
        snprintf(name, sizeof name, "model-%05u-of-%05u.safetensors", i, count);
        ZP_TRY(write_named(folder, name, tensors + first, end - first, err));
        for (uint32_t t = first; t < end; t++)
            ZP_FAIL_IF(json_object_set_new(map, tensors[t].name, json_string(name)) != 0, err,
                       ZP_NO_MEMORY, "not enough memory for the index");
    }
    return ZP_OK;
}

static zp_status write_index(const char *folder, const json_t *root, zp_err *err)
{
    struct buffer path = buffer_with_max(MEM_META, 1 << 16);
    struct buffer text = buffer_with_max(MEM_META, SAFETENSORS_MAX_HEADER);
    zp_status status = buffer_printf(&path, err, "%s/model.safetensors.index.json", folder);
    if (status == ZP_OK) status = json_write_text(root, JSON_INDENT(2), &text, err);
    if (status == ZP_OK) status = os_write_file((const char *)path.data, text.data, text.size, err);
    buffer_free(&path);
    buffer_free(&text);
    return status;
}

zp_status safetensors_write_folder(const char *folder, const struct safetensors_out *tensors,
                                   uint32_t n, uint64_t max_bytes, zp_err *err)
{
    uint32_t count;
    uint64_t total;
    ZP_TRY(count_shards(tensors, n, max_bytes > 0 ? max_bytes : UINT64_MAX, &count, &total, err));
    if (count <= 1) return write_named(folder, "model.safetensors", tensors, n, err);
    ZP_TRY(check_no_single(folder, err));
    json_t *root = json_pack("{s:{s:I}, s:{}}", "metadata", "total_size", (json_int_t)total,
                             "weight_map");
    ZP_FAIL_IF(root == NULL, err, ZP_NO_MEMORY, "not enough memory for the index");
    zp_status status = write_shards(folder, tensors, n, max_bytes, count,
                                    json_object_get(root, "weight_map"), err);
    if (status == ZP_OK) status = write_index(folder, root, err);
    json_decref(root);
    return status;
}
