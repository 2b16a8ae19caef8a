/* safetensors.c: reading .safetensors files and folders of shards; every byte is hostile.
 * Owns: mappings, names, the table. Does not know: what tensors mean. S1-S3: see safetensors.h. */
#include "model/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/num.h"
#include "base/status.h"
#include "model/json_read.h"

#define MAX_SHARDS 10000

static const struct {
    const char *name;
    uint8_t bytes;
} dtype_table[ST_DTYPE_COUNT] = {
    [ST_F32] = {"F32", 4}, [ST_F16] = {"F16", 2}, [ST_BF16] = {"BF16", 2},
    [ST_I32] = {"I32", 4}, [ST_I64] = {"I64", 8}, [ST_U8] = {"U8", 1},
};

const char *safetensors_dtype_name(enum safetensors_dtype dtype)
{
    return (unsigned)dtype < ST_DTYPE_COUNT ? dtype_table[dtype].name : "?";
}

size_t safetensors_dtype_bytes(enum safetensors_dtype dtype)
{
    return (unsigned)dtype < ST_DTYPE_COUNT ? dtype_table[dtype].bytes : 0;
}

/* The file being read. */
struct part {
    const char *name;    /* for messages */
    const uint8_t *data; /* data section */
    size_t size;         /* of it */
    uint32_t shard;
};

/* ---- one tensor's entry */

static zp_status read_dtype(const json_t *entry, const struct part *p, struct safetensors_tensor *t,
                            zp_err *err)
{
    const char *text = json_string_value(json_object_get(entry, "dtype"));
    ZP_FAIL_IF(text == NULL, err, ZP_BAD_FILE, "%s: tensor %.100s has no dtype", p->name, t->name);
    for (unsigned d = 0; d < ST_DTYPE_COUNT; d++)
        if (strcmp(dtype_table[d].name, text) == 0) {
            t->dtype = (enum safetensors_dtype)d;
            return ZP_OK;
        }
    ZP_FAIL(err, ZP_UNSUPPORTED,
            "%s: tensor %.100s has dtype %.20s; F32, F16, BF16, I32, I64 and U8 are read", p->name,
            t->name, text);
}

static zp_status read_shape(const json_t *entry, const struct part *p, struct safetensors_tensor *t,
                            zp_err *err)
{
    const json_t *shape = json_object_get(entry, "shape");
    ZP_FAIL_IF(!json_is_array(shape) || json_array_size(shape) > SAFETENSORS_MAX_DIMS, err,
               ZP_BAD_FILE, "%s: tensor %.100s: shape is not a list of at most %d numbers", p->name,
               t->name, SAFETENSORS_MAX_DIMS);
    size_t bytes = safetensors_dtype_bytes(t->dtype);
    t->n_dims = (uint32_t)json_array_size(shape);
    for (uint32_t d = 0; d < t->n_dims; d++) {
        const json_t *item = json_array_get(shape, d);
        ZP_FAIL_IF(!json_is_integer(item) || json_integer_value(item) < 0, err, ZP_BAD_FILE,
                   "%s: tensor %.100s: dimension %u is not a number from 0", p->name, t->name, d);
        t->shape[d] = (uint64_t)json_integer_value(item);
        ZP_FAIL_IF(!size_mul(bytes, t->shape[d], &bytes), err, ZP_BAD_FILE,
                   "%s: tensor %.100s: its size overflows", p->name, t->name);
    }
    t->bytes = bytes;
    return ZP_OK;
}

static zp_status read_offsets(const json_t *entry, const struct part *p,
                              struct safetensors_tensor *t, zp_err *err)
{
    const json_t *pair = json_object_get(entry, "data_offsets");
    const json_t *first = json_array_get(pair, 0), *last = json_array_get(pair, 1);
    ZP_FAIL_IF(json_array_size(pair) != 2 || !json_is_integer(first) || !json_is_integer(last), err,
               ZP_BAD_FILE, "%s: tensor %.100s: data_offsets is not a pair of numbers", p->name,
               t->name);
    json_int_t begin = json_integer_value(first), end = json_integer_value(last);
    ZP_FAIL_IF(begin < 0 || end < begin, err, ZP_BAD_FILE,
               "%s: tensor %.100s: data_offsets %lld, %lld are not a range", p->name, t->name,
               (long long)begin, (long long)end);
    ZP_FAIL_IF((uint64_t)end > p->size, err, ZP_BAD_FILE,
               "%s: tensor %.100s ends at %lld of the data but the file has %zu bytes of it: the "
               "download is incomplete",
               p->name, t->name, (long long)end, p->size);
    ZP_FAIL_IF((uint64_t)(end - begin) != t->bytes, err, ZP_BAD_FILE,
               "%s: tensor %.100s: data_offsets hold %lld bytes, shape and dtype need %llu",
               p->name, t->name, (long long)(end - begin), (unsigned long long)t->bytes);
    t->data = p->data + begin;
    return ZP_OK;
}

static zp_status check_metadata(const json_t *entry, const struct part *p, zp_err *err)
{
    const char *key;
    json_t *value;
    ZP_FAIL_IF(!json_is_object(entry), err, ZP_BAD_FILE, "%s: __metadata__ is not an object",
               p->name);
    json_object_foreach((json_t *)(uintptr_t)entry, key, value)
        ZP_FAIL_IF(!json_is_string(value), err, ZP_BAD_FILE,
                   "%s: __metadata__ %.100s is not a string", p->name, key);
    return ZP_OK;
}

static zp_status read_entry(struct safetensors *s, const struct part *p, const char *name,
                            const json_t *entry, zp_err *err)
{
    struct safetensors_tensor *t = &s->tensors[s->n_tensors];
    *t = (struct safetensors_tensor){.name = name, .shard = p->shard};
    ZP_FAIL_IF(!json_is_object(entry), err, ZP_BAD_FILE, "%s: tensor %.100s is not an object",
               p->name, name);
    ZP_TRY(read_dtype(entry, p, t, err));
    ZP_TRY(read_shape(entry, p, t, err));
    ZP_TRY(read_offsets(entry, p, t, err));
    t->name = arena_strndup(&s->arena, name, strlen(name));
    ZP_FAIL_IF(t->name == NULL, err, ZP_NO_MEMORY, "not enough memory for a tensor name");
    s->n_tensors++;
    return ZP_OK;
}

/* ---- one file */

static int by_place(const void *a, const void *b)
{
    const struct safetensors_tensor *x = a, *y = b;
    if (x->data != y->data) return x->data < y->data ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

static int by_name(const void *a, const void *b)
{
    const struct safetensors_tensor *x = a, *y = b;
    return strcmp(x->name, y->name);
}

/* S1 */
static zp_status check_coverage(const struct safetensors *s, uint32_t first, const struct part *p,
                                zp_err *err)
{
    const uint8_t *at = p->data;
    qsort(s->tensors + first, s->n_tensors - first, sizeof *s->tensors, by_place);
    for (uint32_t i = first; i < s->n_tensors; i++) {
        const struct safetensors_tensor *t = &s->tensors[i];
        ZP_FAIL_IF(t->data < at, err, ZP_BAD_FILE, "%s: tensors %.80s and %.80s overlap", p->name,
                   s->tensors[i - 1].name, t->name);
        ZP_FAIL_IF(t->data > at, err, ZP_BAD_FILE,
                   "%s: %zu bytes before tensor %.100s belong to no tensor", p->name,
                   (size_t)(t->data - at), t->name);
        at += t->bytes;
    }
    ZP_FAIL_IF(at != p->data + p->size, err, ZP_BAD_FILE,
               "%s: %zu bytes after the last tensor belong to none", p->name,
               (size_t)(p->data + p->size - at));
    return ZP_OK;
}

static zp_status read_entries(struct safetensors *s, const struct part *p, json_t *header,
                              zp_err *err)
{
    uint32_t first = s->n_tensors;
    ZP_FAIL_IF(!json_is_object(header), err, ZP_BAD_FILE, "%s: the header is not a JSON object",
               p->name);
    size_t total = first + json_object_size(header);
    ZP_FAIL_IF(total > SAFETENSORS_MAX_TENSORS, err, ZP_BAD_FILE, "%s: more than %u tensors",
               p->name, SAFETENSORS_MAX_TENSORS);
    struct safetensors_tensor *grown = mem_resize(MEM_META, s->tensors,
                                                  (total + 1) * sizeof *grown);
    ZP_FAIL_IF(grown == NULL, err, ZP_NO_MEMORY, "not enough memory for %zu tensors", total);
    s->tensors = grown;
    const char *name;
    json_t *entry;
    json_object_foreach(header, name, entry)
    {
        if (strcmp(name, "__metadata__") == 0)
            ZP_TRY(check_metadata(entry, p, err));
        else
            ZP_TRY(read_entry(s, p, name, entry, err));
    }
    return check_coverage(s, first, p, err);
}

static zp_status read_part(struct safetensors *s, const void *data, size_t size, const char *path,
                           uint32_t shard, zp_err *err)
{
    struct cursor c = cursor_over(data, size, path);
    uint64_t header_size;
    const uint8_t *text;
    json_t *header;
    ZP_TRY(cursor_u64(&c, &header_size, "the header size", err));
    ZP_FAIL_IF(header_size > SAFETENSORS_MAX_HEADER, err, ZP_BAD_FILE,
               "%s: a header of %llu bytes, at most %zu are read: not a safetensors file?", path,
               (unsigned long long)header_size, SAFETENSORS_MAX_HEADER);
    ZP_TRY(cursor_view(&c, (size_t)header_size, &text, "the header", err));
    struct part p = {.name = path, .data = c.data + c.at, .size = cursor_left(&c), .shard = shard};
    ZP_TRY(json_read_text((const char *)text, (size_t)header_size, path, &header, err));
    zp_status status = read_entries(s, &p, header, err);
    json_decref(header);
    return status;
}

static zp_status map_part(struct safetensors *s, const char *path, zp_err *err)
{
    struct os_map *maps = mem_resize(MEM_META, s->maps, (s->n_maps + 1) * sizeof *maps);
    ZP_FAIL_IF(maps == NULL, err, ZP_NO_MEMORY, "not enough memory for %u files", s->n_maps + 1);
    s->maps = maps;
    struct os_map *map = &maps[s->n_maps];
    *map = (struct os_map){0};
    zp_status status = os_map_file(map, path, err);
    if (status == ZP_BAD_FILE) status_add_hint(err, ": the download may have failed"); /* empty */
    ZP_TRY(status);
    s->n_maps++;
    return read_part(s, map->data, map->size, path, s->n_maps - 1, err);
}

/* S2, and the order that safetensors_find needs. */
static zp_status sort_names(struct safetensors *s, const char *name, zp_err *err)
{
    if (s->n_tensors > 0) qsort(s->tensors, s->n_tensors, sizeof *s->tensors, by_name);
    for (uint32_t i = 1; i < s->n_tensors; i++)
        ZP_FAIL_IF(strcmp(s->tensors[i - 1].name, s->tensors[i].name) == 0, err, ZP_BAD_FILE,
                   "%s: tensor %.100s is in two files", name, s->tensors[i].name);
    return ZP_OK;
}

/* ---- folders */

static zp_status join(char **out, const char *folder, const char *name, zp_err *err)
{
    size_t size = strlen(folder) + strlen(name) + 2;
    *out = mem_alloc(MEM_META, size);
    ZP_FAIL_IF(*out == NULL, err, ZP_NO_MEMORY, "not enough memory for a path");
    snprintf(*out, size, "%s/%s", folder, name);
    return ZP_OK;
}

static zp_status map_named(struct safetensors *s, const char *folder, const char *name, zp_err *err)
{
    char *path;
    ZP_TRY(join(&path, folder, name, err));
    zp_status status = map_part(s, path, err);
    mem_free(path);
    return status;
}

/* A name in the index must stay in the folder. */
static zp_status check_file_name(const char *file, const char *index, zp_err *err)
{
    static const char tail[] = ".safetensors";
    size_t size = file == NULL ? 0 : strlen(file);
    bool fine = size > sizeof tail - 1 && size < 256 && strchr(file, '/') == NULL &&
                strchr(file, '\\') == NULL && file[0] != '.' &&
                strcmp(file + size - (sizeof tail - 1), tail) == 0;
    ZP_FAIL_IF(!fine, err, ZP_BAD_FILE,
               "%s: \"%.100s\" is not the plain name of a .safetensors file in this folder", index,
               file == NULL ? "" : file);
    return ZP_OK;
}

/* Position of the file in the list, which grows when it is new. */
static zp_status shard_number(json_t *files, const char *file, uint32_t *out, zp_err *err)
{
    json_t *known = json_object_get(files, file);
    if (known != NULL) {
        *out = (uint32_t)json_integer_value(known);
        return ZP_OK;
    }
    size_t n = json_object_size(files);
    ZP_FAIL_IF(n >= MAX_SHARDS, err, ZP_BAD_FILE, "more than %d shards", MAX_SHARDS);
    ZP_FAIL_IF(json_object_set_new(files, file, json_integer((json_int_t)n)) != 0, err,
               ZP_NO_MEMORY, "not enough memory for the list of shards");
    *out = (uint32_t)n;
    return ZP_OK;
}

static zp_status open_shards(struct safetensors *s, const char *folder, const char *index,
                             json_t *map, json_t *files, zp_err *err)
{
    const char *name, *file;
    json_t *value;
    uint32_t shard;
    json_object_foreach(map, name, value)
    {
        ZP_TRY(check_file_name(json_string_value(value), index, err));
        ZP_TRY(shard_number(files, json_string_value(value), &shard, err));
    }
    json_object_foreach(files, file, value) ZP_TRY(map_named(s, folder, file, err));
    ZP_TRY(sort_names(s, index, err));
    json_object_foreach(map, name, value)
    {
        const struct safetensors_tensor *t = safetensors_find(s, name);
        ZP_TRY(shard_number(files, json_string_value(value), &shard, err));
        ZP_FAIL_IF(t == NULL || t->shard != shard, err, ZP_BAD_FILE,
                   "%s: tensor %.100s is not in %.100s", index, name, json_string_value(value));
    }
    return ZP_OK;
}

static zp_status open_index(struct safetensors *s, const char *folder, const char *index,
                            zp_err *err)
{
    json_t *root, *files = NULL;
    ZP_TRY(json_read_file(index, SAFETENSORS_MAX_HEADER, &root, err));
    json_t *map = json_object_get(root, "weight_map");
    zp_status status = ZP_OK;
    if (!json_is_object(map))
        status = status_fail(err, ZP_BAD_FILE, __FILE__, __LINE__,
                             "%s: weight_map is missing or not an object", index);
    if (status == ZP_OK && (files = json_object()) == NULL)
        status = status_fail(err, ZP_NO_MEMORY, __FILE__, __LINE__,
                             "not enough memory for the list of shards");
    if (status == ZP_OK) status = open_shards(s, folder, index, map, files, err);
    json_decref(files);
    json_decref(root);
    return status;
}

static zp_status open_any(struct safetensors *s, const char *folder, const char *single,
                          const char *index, zp_err *err)
{
    if (os_exists(single)) {
        ZP_TRY(map_part(s, single, err));
        return sort_names(s, single, err);
    }
    ZP_FAIL_IF(!os_exists(index), err, ZP_BAD_INPUT,
               "%s: has neither model.safetensors nor model.safetensors.index.json", folder);
    return open_index(s, folder, index, err);
}

static zp_status fill_folder(struct safetensors *s, const char *folder, zp_err *err)
{
    char *single = NULL, *index = NULL;
    zp_status status = join(&single, folder, "model.safetensors", err);
    if (status == ZP_OK) status = join(&index, folder, "model.safetensors.index.json", err);
    if (status == ZP_OK) status = open_any(s, folder, single, index, err);
    mem_free(single);
    mem_free(index);
    return status;
}

zp_status safetensors_open_folder(struct safetensors *s, const char *folder, zp_err *err)
{
    *s = (struct safetensors){.arena.tag = MEM_META};
    zp_status status = fill_folder(s, folder, err);
    if (status != ZP_OK) safetensors_close(s);
    return status;
}

zp_status safetensors_open(struct safetensors *s, const char *path, zp_err *err)
{
    *s = (struct safetensors){.arena.tag = MEM_META};
    zp_status status = map_part(s, path, err);
    if (status == ZP_OK) status = sort_names(s, path, err);
    if (status != ZP_OK) safetensors_close(s);
    return status;
}

zp_status safetensors_open_bytes(struct safetensors *s, const void *data, size_t size,
                                 const char *name, zp_err *err)
{
    *s = (struct safetensors){.arena.tag = MEM_META};
    zp_status status = read_part(s, data, size, name, 0, err);
    if (status == ZP_OK) status = sort_names(s, name, err);
    if (status != ZP_OK) safetensors_close(s);
    return status;
}

void safetensors_close(struct safetensors *s)
{
    for (uint32_t i = 0; i < s->n_maps; i++) os_unmap(&s->maps[i]);
    mem_free(s->maps);
    mem_free(s->tensors);
    arena_free(&s->arena);
    *s = (struct safetensors){0};
}

const struct safetensors_tensor *safetensors_find(const struct safetensors *s, const char *name)
{
    struct safetensors_tensor wanted = {.name = name};
    if (s->n_tensors == 0) return NULL;
    return bsearch(&wanted, s->tensors, s->n_tensors, sizeof *s->tensors, by_name);
}

float safetensors_value(const struct safetensors_tensor *t, uint64_t i)
{
    float f;
    uint16_t half;
    if (t->dtype == ST_F32) {
        memcpy(&f, t->data + 4 * i, 4);
        return f;
    }
    memcpy(&half, t->data + 2 * i, 2);
    return t->dtype == ST_F16 ? f16_to_f32(half) : bf16_to_f32(half);
}
