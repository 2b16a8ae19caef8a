/* gguf.c: GGUF v2/v3 files: parsing, splits, the name index; every byte is hostile.
 * Owns: the mappings, the key and tensor tables and their names. Does not know: what keys mean.
 * Typed access to keys is in gguf_get.c. G1-G3: see gguf.h. */
#include "model/gguf.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/status.h"
#include "kern/quant.h"

#define MIN_KV_BYTES 14     /* name length 8, one byte of name, type 4, value 1 */
#define MIN_TENSOR_BYTES 33 /* name length 8, one byte, dims 4, ne 8, type 4, offset 8 */
#define MAX_ALIGNMENT (1u << 20)

/* One file being read. Its tables move to struct gguf when it is complete. */
struct shard {
    struct cursor c;
    struct gguf_kv *kvs;
    struct gguf_tensor *tensors;
    uint64_t n_kv, n_tensors;
    uint32_t version, alignment, number;
    size_t data_begin;
};

/* ---- index: open addressing, a slot holds position + 1; at most half full. Both tables keep the
 * name as their first member. */

struct gguf_index {
    uint32_t mask;
    uint32_t slots[];
};

static const char *name_at(const void *items, size_t stride, uint32_t i)
{
    const char *name;
    memcpy(&name, (const char *)items + stride * i, sizeof name);
    return name;
}

/* The slot of the name: holds it, or is the empty one where it belongs. */
static uint32_t *index_slot(struct gguf_index *index, const void *items, size_t stride,
                            const char *name)
{
    uint32_t at = (uint32_t)hash_bytes(name, strlen(name), 0) & index->mask;
    while (index->slots[at] != 0 && strcmp(name_at(items, stride, index->slots[at] - 1), name) != 0)
        at = (at + 1) & index->mask;
    return &index->slots[at];
}

static zp_status index_build(struct gguf_index **out, const void *items, size_t stride, uint32_t n,
                             const char *what, const char *where, zp_err *err)
{
    uint32_t room = 8;
    while (room < 2 * (uint64_t)n) room *= 2;
    struct gguf_index *index = mem_zalloc(MEM_META,
                                          sizeof *index + (size_t)room * sizeof index->slots[0]);
    ZP_FAIL_IF(index == NULL, err, ZP_NO_MEMORY, "not enough memory for an index of %u names", n);
    mem_free(*out);
    *out = index;
    index->mask = room - 1;
    for (uint32_t i = 0; i < n; i++) {
        const char *name = name_at(items, stride, i);
        uint32_t *slot = index_slot(index, items, stride, name);
        ZP_FAIL_IF(*slot != 0, err, ZP_BAD_FILE, "%s: %s %.100s appears twice", where, what, name);
        *slot = i + 1;
    }
    return ZP_OK;
}

static uint32_t index_find(const struct gguf_index *index, const void *items, size_t stride,
                           const char *name)
{
    if (index == NULL) return 0;
    /* index_slot only looks; the cast saves a second copy of the probe loop. */
    return *index_slot((struct gguf_index *)(uintptr_t)index, items, stride, name);
}

const struct gguf_kv *gguf_find_key(const struct gguf *g, const char *key)
{
    char room[GGUF_KEY_ROOM];
    const char *name = gguf_expand_key(g->arch, key, room, sizeof room);
    if (name == NULL) return NULL;
    uint32_t at = index_find(g->kv_index, g->kvs, sizeof *g->kvs, name);
    return at == 0 ? NULL : &g->kvs[at - 1];
}

const struct gguf_tensor *gguf_find_tensor(const struct gguf *g, const char *name)
{
    uint32_t at = index_find(g->tensor_index, g->tensors, sizeof *g->tensors, name);
    return at == 0 ? NULL : &g->tensors[at - 1];
}

zp_status gguf_check_arch(struct gguf_str arch, const char *where, zp_err *err)
{
    bool fine = arch.size >= 1 && arch.size < GGUF_MAX_NAME;
    for (size_t i = 0; fine && i < arch.size; i++) {
        char ch = arch.data[i];
        fine = (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') || (ch >= '0' && ch <= '9') ||
               ch == '-' || ch == '_' || ch == '.';
    }
    ZP_FAIL_IF(!fine, err, ZP_BAD_FILE,
               "%s: general.architecture is not a name of 1 to 63 letters, digits, '-', '_', '.'",
               where);
    return ZP_OK;
}

static zp_status index_keys(struct gguf *g, zp_err *err)
{
    return index_build(&g->kv_index, g->kvs, sizeof *g->kvs, g->n_kv, "key", gguf_label(g->path),
                       err);
}

zp_status gguf_build_indexes(struct gguf *g, zp_err *err)
{
    const char *where = gguf_label(g->path);
    ZP_TRY(index_keys(g, err));
    ZP_TRY(index_build(&g->tensor_index, g->tensors, sizeof *g->tensors, g->n_tensors, "tensor",
                       where, err));
    struct gguf_str arch;
    g->arch = "";
    ZP_TRY(gguf_get_str_or_null(g, "general.architecture", &arch, err));
    if (arch.data == NULL) return ZP_OK;
    ZP_TRY(gguf_check_arch(arch, where, err));
    g->arch = arena_strndup(&g->arena, arch.data, arch.size);
    ZP_FAIL_IF(g->arch == NULL, err, ZP_NO_MEMORY, "not enough memory for the architecture name");
    return ZP_OK;
}

/* ---- tensors */

zp_status gguf_tensor_check(struct gguf_tensor *t, const char *where, zp_err *err)
{
    const struct quant_traits *traits = quant_traits_find(t->type);
    char ne[28];
    ZP_FAIL_IF(t->name[0] == 0 || strlen(t->name) >= GGUF_MAX_NAME, err, ZP_BAD_FILE,
               "%s: tensor name %.70s: expected 1 to %d bytes", where, t->name, GGUF_MAX_NAME - 1);
    ZP_FAIL_IF(traits == NULL, err, ZP_UNSUPPORTED,
               "%s: tensor %s has the unknown type number %u: re-quantise the model to a type that "
               "`zerope quantize --help` lists",
               where, t->name, t->type);
    ZP_FAIL_IF(t->n_dims < 1 || t->n_dims > GGUF_MAX_DIMS, err, ZP_BAD_FILE,
               "%s: tensor %s has %u dimensions, expected 1 to %d", where, t->name, t->n_dims,
               GGUF_MAX_DIMS);
    size_t rows = 1, bytes, count;
    for (uint32_t d = 0; d < GGUF_MAX_DIMS; d++) {
        if (d >= t->n_dims) t->ne[d] = 1;
        ZP_FAIL_IF(t->ne[d] == 0 || t->ne[d] > INT64_MAX, err, ZP_BAD_FILE,
                   "%s: tensor %s: dimension %u is %s, expected 1 or more", where, t->name, d,
                   gguf_commas(t->ne[d], ne));
        if (d > 0)
            ZP_FAIL_IF(!size_mul(rows, t->ne[d], &rows), err, ZP_BAD_FILE,
                       "%s: tensor %s: its size overflows", where, t->name);
    }
    ZP_FAIL_IF(t->ne[0] % traits->block != 0, err, ZP_BAD_FILE,
               "%s: tensor %s: rows of %s weights are not a multiple of %u, the block of type %s",
               where, t->name, gguf_commas(t->ne[0], ne), traits->block, traits->name);
    ZP_FAIL_IF(!size_mul(t->ne[0] / traits->block, traits->bytes, &bytes) ||
                   !size_mul(bytes, rows, &bytes) || !size_mul(rows, t->ne[0], &count) ||
                   bytes > INT64_MAX || count > INT64_MAX,
               err, ZP_BAD_FILE, "%s: tensor %s: its size overflows", where, t->name);
    t->bytes = bytes;
    return ZP_OK;
}

zp_status gguf_get_tensor(const struct gguf *g, const char *name, const struct gguf_tensor **out,
                          zp_err *err)
{
    *out = gguf_find_tensor(g, name);
    ZP_FAIL_IF(*out == NULL, err, ZP_BAD_FILE, "%s: tensor %s is missing", gguf_label(g->path),
               name);
    return ZP_OK;
}

zp_status gguf_find_f32(const struct gguf *g, const char *name, uint64_t ne0, uint64_t ne1,
                        const float **out, zp_err *err)
{
    const struct gguf_tensor *t = gguf_find_tensor(g, name);
    *out = NULL;
    if (!t) return ZP_OK;
    char shape[80];
    ZP_FAIL_IF(t->type != 0 || t->ne[0] != ne0 || t->ne[1] != ne1 || gguf_tensor_rows(t) != ne1,
               err, ZP_BAD_FILE, "tensor %s is %s; expected f32 %llu x %llu", name,
               gguf_tensor_shape(t, shape, sizeof shape), (unsigned long long)ne0,
               (unsigned long long)ne1);
    *out = (const float *)(const void *)t->data;
    for (uint64_t i = 0; i < ne0 * ne1; i++)
        ZP_FAIL_IF(!isfinite((*out)[i]), err, ZP_BAD_FILE, "tensor %s holds %g at %llu", name,
                   (double)(*out)[i], (unsigned long long)i);
    return ZP_OK;
}

uint64_t gguf_tensor_rows(const struct gguf_tensor *t) { return t->ne[1] * t->ne[2] * t->ne[3]; }

uint64_t gguf_tensor_row_bytes(const struct gguf_tensor *t)
{
    return t->bytes / gguf_tensor_rows(t);
}

char *gguf_tensor_shape(const struct gguf_tensor *t, char *out, size_t size)
{
    size_t at = 0;
    if (size > 0) out[0] = 0;
    for (uint32_t d = 0; d < t->n_dims && at < size; d++) {
        int n = snprintf(out + at, size - at, "%s%llu", d == 0 ? "" : " x ",
                         (unsigned long long)t->ne[d]);
        at += n > 0 ? (size_t)n : 0;
    }
    return out;
}

/* ---- one file */

/* The end of the path that fits a message: error texts are short, and what was found matters more.
 */
const char *gguf_label(const char *path)
{
    size_t size = path == NULL ? 0 : strlen(path);
    if (size == 0) return "model";
    return size > 160 ? path + size - 160 : path;
}

static zp_status read_name(struct shard *s, struct arena *arena, size_t max, const char *what,
                           const char **out, zp_err *err)
{
    uint64_t size;
    const uint8_t *bytes;
    char have[28];
    size_t bad;
    ZP_TRY(cursor_u64(&s->c, &size, what, err));
    ZP_FAIL_IF(size < 1 || size > max, err, ZP_BAD_FILE,
               "%s: %s of %s bytes at offset %zu, expected 1 to %zu: the file is damaged",
               s->c.name, what, gguf_commas(size, have), s->c.at, max);
    ZP_TRY(cursor_view(&s->c, (size_t)size, &bytes, what, err));
    bool fine = utf8_is_valid((const char *)bytes, (size_t)size, &bad);
    for (size_t i = 0; fine && i < size; i++) fine = bytes[i] >= 0x20 && bytes[i] != 0x7f;
    ZP_FAIL_IF(!fine, err, ZP_BAD_FILE,
               "%s: %s at offset %zu is not printable UTF-8: the file is damaged", s->c.name, what,
               s->c.at - (size_t)size);
    *out = arena_strndup(arena, (const char *)bytes, (size_t)size);
    ZP_FAIL_IF(*out == NULL, err, ZP_NO_MEMORY, "not enough memory for %s", what);
    return ZP_OK;
}

static zp_status read_version(struct shard *s, zp_err *err)
{
    ZP_FAIL_IF(!cursor_match(&s->c, "GGUF", 4), err, ZP_BAD_FILE,
               "%s: not a GGUF file: the first bytes are not \"GGUF\"", s->c.name);
    ZP_TRY(cursor_u32(&s->c, &s->version, "the version", err));
    ZP_FAIL_IF(s->version != 0 && (s->version & 0xffff) == 0, err, ZP_UNSUPPORTED,
               "%s: a big-endian GGUF file: convert it with gguf-convert-endian", s->c.name);
    ZP_FAIL_IF(s->version == 1, err, ZP_UNSUPPORTED,
               "%s: GGUF version 1 (of 2023): convert the model again; versions 2 and 3 are read",
               s->c.name);
    ZP_FAIL_IF(s->version < 2 || s->version > 3, err, ZP_UNSUPPORTED,
               "%s: GGUF version %u, versions 2 and 3 are read", s->c.name, s->version);
    return ZP_OK;
}

static zp_status check_count(const struct shard *s, const char *what, uint64_t count, uint64_t max,
                             size_t min_bytes, zp_err *err)
{
    char have[28], most[28], left[28];
    ZP_FAIL_IF(count > max, err, ZP_BAD_FILE, "%s: %s %s, at most %s are read: the file is damaged",
               s->c.name, gguf_commas(count, have), what, gguf_commas(max, most));
    ZP_FAIL_IF(count * min_bytes > cursor_left(&s->c), err, ZP_BAD_FILE,
               "%s: %s %s do not fit into the %s bytes left: damaged or incomplete", s->c.name,
               gguf_commas(count, have), what, gguf_commas(cursor_left(&s->c), left));
    return ZP_OK;
}

zp_status gguf_check_alignment(const struct gguf_kv *kv, const char *where, uint32_t *out,
                               zp_err *err)
{
    *out = GGUF_DEFAULT_ALIGNMENT;
    if (kv == NULL) return ZP_OK;
    ZP_FAIL_IF(kv->type != GGUF_U32 || kv->is_array, err, ZP_BAD_FILE,
               "%s: general.alignment has the type %s, expected u32", where,
               kv->is_array ? "array" : gguf_type_name(kv->type));
    uint32_t a = (uint32_t)gguf_item_int(kv, 0);
    ZP_FAIL_IF(a < 8 || a > MAX_ALIGNMENT || (a & (a - 1)) != 0, err, ZP_BAD_FILE,
               "%s: general.alignment is %u, expected a power of two from 8 to %u", where, a,
               MAX_ALIGNMENT);
    *out = a;
    return ZP_OK;
}

static zp_status read_keys(struct shard *s, struct arena *arena, zp_err *err)
{
    const struct gguf_kv *alignment = NULL;
    ZP_ALLOC(s->kvs, MEM_META, s->n_kv, err, "the key table");
    for (uint64_t i = 0; i < s->n_kv; i++) {
        struct gguf_kv *kv = &s->kvs[i];
        ZP_TRY(read_name(s, arena, GGUF_MAX_KEY, "a key name", &kv->name, err));
        ZP_TRY(gguf_value_read(&s->c, kv, arena, err));
        if (strcmp(kv->name, "general.alignment") == 0) alignment = kv;
    }
    return gguf_check_alignment(alignment, s->c.name, &s->alignment, err);
}

static zp_status read_tensor(struct shard *s, struct gguf_tensor *t, struct arena *arena,
                             zp_err *err)
{
    char what[28];
    *t = (struct gguf_tensor){.shard = s->number};
    ZP_TRY(read_name(s, arena, GGUF_MAX_NAME - 1, "a tensor name", &t->name, err));
    ZP_TRY(cursor_u32(&s->c, &t->n_dims, t->name, err));
    ZP_FAIL_IF(t->n_dims < 1 || t->n_dims > GGUF_MAX_DIMS, err, ZP_BAD_FILE,
               "%s: tensor %s has %s dimensions, expected 1 to %d", s->c.name, t->name,
               gguf_commas(t->n_dims, what), GGUF_MAX_DIMS);
    for (uint32_t d = 0; d < t->n_dims; d++) ZP_TRY(cursor_u64(&s->c, &t->ne[d], t->name, err));
    ZP_TRY(cursor_u32(&s->c, &t->type, t->name, err));
    ZP_TRY(cursor_u64(&s->c, &t->offset, t->name, err));
    ZP_TRY(gguf_tensor_check(t, s->c.name, err));
    ZP_FAIL_IF(t->offset % s->alignment != 0, err, ZP_BAD_FILE,
               "%s: tensor %s begins at %s, not a multiple of the alignment %u", s->c.name, t->name,
               gguf_commas(t->offset, what), s->alignment);
    return ZP_OK;
}

/* Turns offsets of the data section into offsets of the file and checks that they lie in it. */
static zp_status place_tensor(struct shard *s, struct gguf_tensor *t, zp_err *err)
{
    size_t begin, end;
    char at[28], have[28];
    ZP_FAIL_IF(!size_add(s->data_begin, t->offset, &begin) || !size_add(begin, t->bytes, &end), err,
               ZP_BAD_FILE, "%s: tensor %s: its place overflows: the file is damaged", s->c.name,
               t->name);
    ZP_FAIL_IF(end > s->c.size, err, ZP_BAD_FILE,
               "%s: tensor %s ends at %s but the file has %s bytes: the download is incomplete",
               s->c.name, t->name, gguf_commas(end, at), gguf_commas(s->c.size, have));
    t->offset = begin;
    t->data = s->c.data + begin;
    return ZP_OK;
}

static int by_offset(const void *a, const void *b)
{
    const struct gguf_tensor *x = *(const struct gguf_tensor *const *)a;
    const struct gguf_tensor *y = *(const struct gguf_tensor *const *)b;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static zp_status check_overlap(const struct shard *s, zp_err *err)
{
    bool ascending = true; /* the usual file needs no sorting */
    for (uint64_t i = 1; ascending && i < s->n_tensors; i++)
        ascending = s->tensors[i - 1].offset + s->tensors[i - 1].bytes <= s->tensors[i].offset;
    if (ascending) return ZP_OK;
    const struct gguf_tensor **order;
    ZP_ALLOC(order, MEM_META, s->n_tensors, err, "sorting the tensors");
    for (uint64_t i = 0; i < s->n_tensors; i++) order[i] = &s->tensors[i];
    qsort(order, s->n_tensors, sizeof *order, by_offset);
    const struct gguf_tensor *first = NULL, *second = NULL;
    for (uint64_t i = 1; first == NULL && i < s->n_tensors; i++)
        if (order[i - 1]->offset + order[i - 1]->bytes > order[i]->offset) {
            first = order[i - 1];
            second = order[i];
        }
    mem_free(order);
    ZP_FAIL_IF(first != NULL, err, ZP_BAD_FILE, "%s: tensors %s and %s overlap", s->c.name,
               first->name, second->name);
    return ZP_OK;
}

static zp_status read_tensors(struct shard *s, struct arena *arena, zp_err *err)
{
    ZP_ALLOC(s->tensors, MEM_META, s->n_tensors, err, "the tensor table");
    for (uint64_t i = 0; i < s->n_tensors; i++) ZP_TRY(read_tensor(s, &s->tensors[i], arena, err));
    size_t end;
    ZP_FAIL_IF(!size_add(s->c.at, s->alignment - 1, &end), err, ZP_BAD_FILE, "%s: too large",
               s->c.name);
    s->data_begin = end & ~(size_t)(s->alignment - 1);
    for (uint64_t i = 0; i < s->n_tensors; i++) ZP_TRY(place_tensor(s, &s->tensors[i], err));
    return check_overlap(s, err);
}

static zp_status read_shard(struct shard *s, struct arena *arena, zp_err *err)
{
    ZP_TRY(read_version(s, err));
    ZP_TRY(cursor_u64(&s->c, &s->n_tensors, "the tensor count", err));
    ZP_TRY(cursor_u64(&s->c, &s->n_kv, "the key count", err));
    ZP_TRY(check_count(s, "keys", s->n_kv, GGUF_MAX_KV, MIN_KV_BYTES, err));
    ZP_TRY(check_count(s, "tensors", s->n_tensors, GGUF_MAX_TENSORS, MIN_TENSOR_BYTES, err));
    ZP_TRY(read_keys(s, arena, err));
    return read_tensors(s, arena, err);
}

static void shard_free(struct shard *s)
{
    mem_free(s->kvs);
    mem_free(s->tensors);
    s->kvs = NULL;
    s->tensors = NULL;
}

/* Shard 0 gives its tables away; later shards append their tensors. */
static zp_status take_shard(struct gguf *g, struct shard *s, zp_err *err)
{
    g->file_bytes += s->c.size;
    if (s->number == 0) {
        g->version = s->version;
        g->alignment = s->alignment;
        g->kvs = s->kvs;
        g->n_kv = (uint32_t)s->n_kv;
        g->tensors = s->tensors;
        g->n_tensors = (uint32_t)s->n_tensors;
        s->kvs = NULL;
        s->tensors = NULL;
        return ZP_OK;
    }
    uint64_t total = g->n_tensors + s->n_tensors;
    ZP_FAIL_IF(total > GGUF_MAX_TENSORS, err, ZP_BAD_FILE, "%s: more than %u tensors", s->c.name,
               GGUF_MAX_TENSORS);
    struct gguf_tensor *grown = mem_resize(MEM_META, g->tensors, total * sizeof *grown);
    ZP_FAIL_IF(grown == NULL, err, ZP_NO_MEMORY, "not enough memory for %llu tensors",
               (unsigned long long)total);
    g->tensors = grown;
    if (s->n_tensors > 0) /* tensors may be NULL-like storage of size 0 */
        memcpy(grown + g->n_tensors, s->tensors, s->n_tensors * sizeof *grown);
    g->n_tensors = (uint32_t)total;
    return ZP_OK;
}

static zp_status add_shard(struct gguf *g, const void *data, size_t size, const char *name,
                           struct shard *s, zp_err *err)
{
    s->c = cursor_over(data, size, gguf_label(name));
    ZP_TRY(read_shard(s, &g->arena, err));
    return ZP_OK;
}

/* ---- splits */

static zp_status split_number(const struct shard *s, const char *key, int64_t *out, zp_err *err)
{
    *out = -1;
    for (uint64_t i = 0; i < s->n_kv; i++) {
        const struct gguf_kv *kv = &s->kvs[i];
        if (strcmp(kv->name, key) != 0) continue;
        ZP_FAIL_IF(kv->is_array || !gguf_type_is_int(kv->type), err, ZP_BAD_FILE,
                   "%s: key %s has the type %s, expected an integer", s->c.name, key,
                   gguf_type_name(kv->type));
        *out = gguf_item_int(kv, 0);
        return ZP_OK;
    }
    return ZP_OK;
}

/* "base-00002-of-00005.gguf": number 2, count 5, and the length of "base-". */
static bool split_name_parse(const char *path, size_t *stem, uint32_t *number, uint32_t *count)
{
    static const char pattern[] = "-00000-of-00000.gguf";
    size_t size = strlen(path), tail = sizeof pattern - 1;
    if (size < tail) return false;
    const char *p = path + size - tail;
    uint32_t value[2] = {0, 0};
    for (size_t i = 0; i < tail; i++) {
        bool digit = p[i] >= '0' && p[i] <= '9';
        if (pattern[i] == '0' ? !digit : p[i] != pattern[i]) return false;
        if (pattern[i] == '0') value[i > 6] = value[i > 6] * 10 + (uint32_t)(p[i] - '0');
    }
    *stem = size - tail + 1;
    *number = value[0];
    *count = value[1];
    return true;
}

static zp_status map_shard(struct gguf *g, const char *path, struct os_map **out, zp_err *err)
{
    struct os_map *maps = mem_resize(MEM_META, g->maps, (g->n_maps + 1) * sizeof *maps);
    ZP_FAIL_IF(maps == NULL, err, ZP_NO_MEMORY, "not enough memory for %u files", g->n_maps + 1);
    g->maps = maps;
    maps[g->n_maps] = (struct os_map){0};
    zp_status status = os_map_file(&maps[g->n_maps], path, err);
    if (status == ZP_BAD_FILE) status_add_hint(err, ": the download may have failed"); /* empty */
    ZP_TRY(status);
    *out = &maps[g->n_maps++];
    return ZP_OK;
}

/* -1: the key is absent. */
static zp_status check_split(const struct shard *s, uint32_t number, uint32_t count, zp_err *err)
{
    int64_t no, n;
    ZP_TRY(split_number(s, "split.no", &no, err));
    ZP_TRY(split_number(s, "split.count", &n, err));
    ZP_FAIL_IF(no < 0 || n < 0, err, ZP_BAD_FILE,
               "%s: named like part %u of %u, but split.no or split.count is missing: not a part",
               s->c.name, number + 1, count);
    ZP_FAIL_IF(n != count, err, ZP_BAD_FILE,
               "%s: split.count is %lld, but the file name says %u parts", s->c.name, (long long)n,
               count);
    ZP_FAIL_IF(no != number, err, ZP_BAD_FILE,
               "%s: split.no is %lld, but the file name says part %u (from 0)", s->c.name,
               (long long)no, number);
    return ZP_OK;
}

/* Parts behind the first may repeat its keys; what they say of their own would be lost. Which part
 * it is and how its tensors are aligned are a file's own matters. */
static zp_status check_keys_of_part(const struct gguf *g, const struct shard *s, zp_err *err)
{
    char found[GGUF_SHOWN_SIZE], expected[GGUF_SHOWN_SIZE];
    for (uint64_t i = 0; i < s->n_kv; i++) {
        const struct gguf_kv *kv = &s->kvs[i];
        if (strcmp(kv->name, "split.no") == 0 || strcmp(kv->name, "general.alignment") == 0)
            continue;
        uint32_t at = index_find(g->kv_index, g->kvs, sizeof *g->kvs, kv->name);
        ZP_FAIL_IF(at == 0, err, ZP_BAD_FILE,
                   "%s: key %.80s is %s, but part 1 does not have it: parts of two models?",
                   s->c.name, kv->name, gguf_value_show(kv, found));
        const struct gguf_kv *first = &g->kvs[at - 1];
        ZP_FAIL_IF(!gguf_value_same(kv, first), err, ZP_BAD_FILE,
                   "%s: key %.80s is %s, but part 1 says %s: parts of two models?", s->c.name,
                   kv->name, gguf_value_show(kv, found), gguf_value_show(first, expected));
    }
    return ZP_OK;
}

static zp_status open_part(struct gguf *g, const char *path, struct shard *s, uint32_t count,
                           zp_err *err)
{
    struct os_map *map = NULL;
    ZP_TRY(map_shard(g, path, &map, err));
    ZP_TRY(add_shard(g, map->data, map->size, path, s, err));
    if (count > 0) ZP_TRY(check_split(s, s->number, count, err));
    return ZP_OK;
}

static zp_status open_parts(struct gguf *g, size_t stem, uint32_t count, zp_err *err)
{
    size_t size = strlen(g->path) + 1;
    int64_t expected = -1;
    char *part = arena_alloc(&g->arena, size);
    ZP_FAIL_IF(part == NULL, err, ZP_NO_MEMORY, "not enough memory for a path");
    for (uint32_t i = 0; i < count; i++) {
        struct shard s = {.number = i};
        snprintf(part, size, "%.*s%05u-of-%05u.gguf", (int)stem, g->path, i + 1, count);
        zp_status status = open_part(g, part, &s, count, err);
        if (status == ZP_OK && i == 0)
            status = split_number(&s, "split.tensors.count", &expected, err);
        if (status == ZP_OK && i > 0) status = check_keys_of_part(g, &s, err);
        if (status == ZP_OK) status = take_shard(g, &s, err);
        if (status == ZP_OK && i == 0) status = index_keys(g, err);
        shard_free(&s);
        ZP_TRY(status);
    }
    ZP_FAIL_IF(expected >= 0 && expected != g->n_tensors, err, ZP_BAD_FILE,
               "%s: the parts hold %u tensors, split.tensors.count says %lld", gguf_label(g->path),
               g->n_tensors, (long long)expected);
    return ZP_OK;
}

static zp_status open_single(struct gguf *g, const char *path, zp_err *err)
{
    struct shard s = {0};
    int64_t parts = 0;
    zp_status status = open_part(g, path, &s, 0, err);
    if (status == ZP_OK) status = split_number(&s, "split.count", &parts, err);
    if (status == ZP_OK && parts > 1)
        status = status_fail(err, ZP_BAD_FILE, __FILE__, __LINE__,
                             "%s: one of %lld parts: give it its name back "
                             "(MODEL-00001-of-%05lld.gguf) beside the others",
                             s.c.name, (long long)parts, (long long)parts);
    if (status == ZP_OK) status = take_shard(g, &s, err);
    shard_free(&s);
    return status;
}

static bool names_a_part(const char *path, size_t *stem, uint32_t *count)
{
    uint32_t number;
    return split_name_parse(path, stem, &number, count) && *count > 1 && number >= 1 &&
           number <= *count;
}

bool gguf_is_part_name(const char *path)
{
    size_t stem;
    uint32_t number, count;
    return split_name_parse(path, &stem, &number, &count) && (number != 1 || count != 1);
}

bool gguf_is_part_of(const char *path, const char *model)
{
    size_t stem, size = strlen(model) + 1;
    uint32_t count;
    if (!names_a_part(model, &stem, &count)) return false;
    char *part = mem_alloc(MEM_META, size);
    bool same = false;
    for (uint32_t i = 1; part != NULL && i <= count && !same; i++) {
        snprintf(part, size, "%.*s%05u-of-%05u.gguf", (int)stem, model, i, count);
        same = os_same_file(path, part);
    }
    mem_free(part);
    return same;
}

static zp_status fill(struct gguf *g, const char *path, zp_err *err)
{
    size_t stem;
    uint32_t count;
    g->path = mem_strdup(MEM_META, path);
    ZP_FAIL_IF(g->path == NULL, err, ZP_NO_MEMORY, "not enough memory for a path");
    uint32_t number;
    bool named = split_name_parse(path, &stem, &number, &count);
    ZP_FAIL_IF(named && (number < 1 || number > count), err, ZP_BAD_FILE,
               "%s: named like part %u of %u, which there cannot be", path, number, count);
    if (names_a_part(path, &stem, &count))
        ZP_TRY(open_parts(g, stem, count, err));
    else
        ZP_TRY(open_single(g, path, err));
    return gguf_build_indexes(g, err);
}

zp_status gguf_open(struct gguf *g, const char *path, zp_err *err)
{
    *g = (struct gguf){.arch = "", .arena.tag = MEM_META};
    zp_status status = fill(g, path, err);
    if (status != ZP_OK) gguf_close(g);
    return status;
}

static zp_status fill_bytes(struct gguf *g, const void *data, size_t size, const char *name,
                            zp_err *err)
{
    struct shard s = {0};
    g->path = mem_strdup(MEM_META, name);
    ZP_FAIL_IF(g->path == NULL, err, ZP_NO_MEMORY, "not enough memory for a path");
    zp_status status = add_shard(g, data, size, name, &s, err);
    if (status == ZP_OK) status = take_shard(g, &s, err);
    shard_free(&s);
    ZP_TRY(status);
    return gguf_build_indexes(g, err);
}

zp_status gguf_open_bytes(struct gguf *g, const void *data, size_t size, const char *name,
                          zp_err *err)
{
    *g = (struct gguf){.arch = "", .arena.tag = MEM_META};
    zp_status status = fill_bytes(g, data, size, name, err);
    if (status != ZP_OK) gguf_close(g);
    return status;
}

void gguf_drop_pages(const struct gguf *g)
{
    for (uint32_t i = 0; i < g->n_maps; i++) os_map_drop(&g->maps[i], 0, SIZE_MAX);
}

void gguf_close(struct gguf *g)
{
    for (uint32_t i = 0; i < g->n_maps; i++) os_unmap(&g->maps[i]);
    for (uint32_t i = 0; i < g->n_blocks; i++) mem_free(g->blocks[i]);
    mem_free(g->maps);
    mem_free(g->blocks);
    mem_free(g->kvs);
    mem_free(g->tensors);
    mem_free(g->kv_index);
    mem_free(g->tensor_index);
    mem_free(g->path);
    arena_free(&g->arena);
    *g = (struct gguf){.arch = ""};
}
