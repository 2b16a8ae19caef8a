/* gguf_write.c: editing keys and tensors in memory, and writing them as one GGUF v3 file.
 * Owns: made values and names (arena), the two lists. Does not own: tensor data and the values of
 * the source, which are views. Does not know: what keys mean, except general.architecture,
 * alignment and split.*. Layout written: header, keys, tensor infos, padding; then each tensor,
 * padded to the alignment: offsets are contiguous in list order, as ggml demands. */
#include "model/gguf_write.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include "base/status.h"
#include "kern/quant.h"

#define FILL_BYTES ((size_t)1 << 20) /* rows asked for at once */
#define COPY_BYTES ((size_t)8 << 20) /* written at once from a view */

/* ---- lists */

/* list: address of the list's pointer, of whatever item type. */
static zp_status grow(void *list, uint32_t *room, uint32_t needed, size_t stride, zp_err *err)
{
    void *items;
    if (needed <= *room) return ZP_OK;
    uint32_t wanted = needed < 64 ? 64 : needed + needed / 2;
    memcpy(&items, list, sizeof items);
    items = mem_resize(MEM_META, items, (size_t)wanted * stride);
    ZP_FAIL_IF(items == NULL, err, ZP_NO_MEMORY, "not enough memory for %u list entries", wanted);
    memcpy(list, &items, sizeof items);
    *room = wanted;
    return ZP_OK;
}

static zp_status copy_name(struct gguf_edit *e, const char *name, const char **out, zp_err *err)
{
    *out = arena_strndup(&e->arena, name, strlen(name));
    ZP_FAIL_IF(*out == NULL, err, ZP_NO_MEMORY, "not enough memory for the name %.100s", name);
    return ZP_OK;
}

static const char *arch_of(const struct gguf_edit *e, char *out, size_t size)
{
    const struct gguf_kv *kv = gguf_edit_find_key(e, "general.architecture");
    out[0] = 0;
    if (kv == NULL || kv->type != GGUF_STR || kv->is_array) return out;
    struct gguf_str s = gguf_item_str(kv, 0);
    if (s.size < size) {
        memcpy(out, s.data, s.size);
        out[s.size] = 0;
    }
    return out;
}

static const char *expand(const struct gguf_edit *e, const char *key, char room[GGUF_KEY_ROOM])
{
    char arch[GGUF_MAX_NAME];
    if (strncmp(key, "%.", 2) != 0) return key;
    return gguf_expand_key(arch_of(e, arch, sizeof arch), key, room, GGUF_KEY_ROOM);
}

static struct gguf_kv *find_key(const struct gguf_edit *e, const char *name)
{
    for (uint32_t i = 0; i < e->n_kv; i++)
        if (strcmp(e->kvs[i].name, name) == 0) return &e->kvs[i];
    return NULL;
}

const struct gguf_kv *gguf_edit_find_key(const struct gguf_edit *e, const char *key)
{
    char room[GGUF_KEY_ROOM];
    const char *name = expand(e, key, room);
    return name == NULL ? NULL : find_key(e, name);
}

bool gguf_edit_remove_key(struct gguf_edit *e, const char *key)
{
    char room[GGUF_KEY_ROOM];
    const char *name = expand(e, key, room);
    struct gguf_kv *kv = name == NULL ? NULL : find_key(e, name);
    if (kv == NULL) return false;
    if (strcmp(kv->name, "general.alignment") == 0) e->alignment = GGUF_DEFAULT_ALIGNMENT;
    uint32_t at = (uint32_t)(kv - e->kvs);
    memmove(kv, kv + 1, (e->n_kv - at - 1) * sizeof *kv);
    e->n_kv--;
    return true;
}

struct gguf_edit_tensor *gguf_edit_find_tensor(struct gguf_edit *e, const char *name)
{
    for (uint32_t i = 0; i < e->n_tensors; i++)
        if (strcmp(e->tensors[i].name, name) == 0) return &e->tensors[i];
    return NULL;
}

bool gguf_edit_remove_tensor(struct gguf_edit *e, const char *name)
{
    struct gguf_edit_tensor *t = gguf_edit_find_tensor(e, name);
    if (t == NULL) return false;
    uint32_t at = (uint32_t)(t - e->tensors);
    memmove(t, t + 1, (e->n_tensors - at - 1) * sizeof *t);
    e->n_tensors--;
    return true;
}

/* ---- setting keys */

/* Puts a value whose data outlives e into the list. kv->name: expanded, not yet copied. */
static zp_status put_kv(struct gguf_edit *e, const struct gguf_kv *kv, zp_err *err)
{
    if (strcmp(kv->name, "general.alignment") == 0)
        ZP_TRY(gguf_check_alignment(kv, "the file to write", &e->alignment, err));
    struct gguf_kv *old = find_key(e, kv->name);
    if (old != NULL) {
        const char *name = old->name;
        *old = *kv;
        old->name = name;
        return ZP_OK;
    }
    size_t size = strlen(kv->name);
    ZP_FAIL_IF(size < 1 || size > GGUF_MAX_KEY, err, ZP_BAD_INPUT,
               "key name of %zu bytes, expected 1 to %d", size, GGUF_MAX_KEY);
    ZP_FAIL_IF(e->n_kv >= GGUF_MAX_KV, err, ZP_BAD_INPUT, "more than %d keys", GGUF_MAX_KV);
    ZP_TRY(grow(&e->kvs, &e->kv_room, e->n_kv + 1, sizeof *e->kvs, err));
    struct gguf_kv made = *kv;
    ZP_TRY(copy_name(e, kv->name, &made.name, err));
    e->kvs[e->n_kv++] = made;
    return ZP_OK;
}

static zp_status set_value(struct gguf_edit *e, const char *key, enum gguf_type type, bool is_array,
                           const void *items, uint64_t count, zp_err *err)
{
    char room[GGUF_KEY_ROOM];
    struct gguf_kv kv = {.name = expand(e, key, room)};
    ZP_FAIL_IF(kv.name == NULL, err, ZP_BAD_INPUT, "key %.100s is too long", key);
    ZP_TRY(gguf_value_make(&kv, type, is_array, items, count, &e->arena, err));
    return put_kv(e, &kv, err);
}

static zp_status set_strings(struct gguf_edit *e, const char *key, bool is_array,
                             const struct gguf_str *items, uint64_t count, zp_err *err)
{
    char room[GGUF_KEY_ROOM];
    struct gguf_kv kv = {.name = expand(e, key, room)};
    ZP_FAIL_IF(kv.name == NULL, err, ZP_BAD_INPUT, "key %.100s is too long", key);
    ZP_TRY(gguf_value_make_strs(&kv, is_array, items, count, &e->arena, err));
    return put_kv(e, &kv, err);
}

zp_status gguf_edit_set_u32(struct gguf_edit *e, const char *key, uint32_t value, zp_err *err)
{
    return set_value(e, key, GGUF_U32, false, &value, 1, err);
}

zp_status gguf_edit_set_i32(struct gguf_edit *e, const char *key, int32_t value, zp_err *err)
{
    return set_value(e, key, GGUF_I32, false, &value, 1, err);
}

zp_status gguf_edit_set_u64(struct gguf_edit *e, const char *key, uint64_t value, zp_err *err)
{
    return set_value(e, key, GGUF_U64, false, &value, 1, err);
}

zp_status gguf_edit_set_f32(struct gguf_edit *e, const char *key, float value, zp_err *err)
{
    return set_value(e, key, GGUF_F32, false, &value, 1, err);
}

zp_status gguf_edit_set_bool(struct gguf_edit *e, const char *key, bool value, zp_err *err)
{
    uint8_t byte = value;
    return set_value(e, key, GGUF_BOOL, false, &byte, 1, err);
}

zp_status gguf_edit_set_str(struct gguf_edit *e, const char *key, const char *text, zp_err *err)
{
    return gguf_edit_set_strn(e, key, text, strlen(text), err);
}

zp_status gguf_edit_set_strn(struct gguf_edit *e, const char *key, const char *text, size_t size,
                             zp_err *err)
{
    struct gguf_str s = {text, size};
    return set_strings(e, key, false, &s, 1, err);
}

zp_status gguf_edit_set_array(struct gguf_edit *e, const char *key, enum gguf_type type,
                              const void *items, uint64_t count, zp_err *err)
{
    return set_value(e, key, type, true, items, count, err);
}

zp_status gguf_edit_set_strs(struct gguf_edit *e, const char *key, const struct gguf_str *items,
                             uint64_t count, zp_err *err)
{
    return set_strings(e, key, true, items, count, err);
}

zp_status gguf_edit_set_kv(struct gguf_edit *e, const struct gguf_kv *kv, zp_err *err)
{
    struct gguf_kv made = *kv;
    uint8_t *data = arena_alloc(&e->arena, kv->bytes > 0 ? kv->bytes : 1);
    size_t index_bytes = kv->offsets == NULL ? 0 : (size_t)kv->count * sizeof *kv->offsets;
    uint32_t *offsets = arena_alloc(&e->arena, index_bytes > 0 ? index_bytes : 1);
    ZP_FAIL_IF(data == NULL || offsets == NULL, err, ZP_NO_MEMORY,
               "not enough memory for key %.100s (%zu bytes)", kv->name, kv->bytes);
    if (kv->bytes > 0) memcpy(data, kv->data, kv->bytes);
    if (index_bytes > 0) memcpy(offsets, kv->offsets, index_bytes);
    made.data = data;
    made.offsets = kv->offsets == NULL ? NULL : offsets;
    return put_kv(e, &made, err);
}

/* "OLD.x" -> "ARCH.x" for one key; *kv keeps its place. */
static zp_status rename_key(struct gguf_edit *e, struct gguf_kv *kv, size_t old_size,
                            const char *arch, zp_err *err)
{
    size_t room = strlen(arch) + strlen(kv->name) - old_size + 1;
    char *name = arena_alloc(&e->arena, room);
    ZP_FAIL_IF(name == NULL, err, ZP_NO_MEMORY, "not enough memory for a key name");
    snprintf(name, room, "%s%s", arch, kv->name + old_size);
    ZP_FAIL_IF(find_key(e, name) != NULL, err, ZP_BAD_INPUT,
               "key %.100s cannot be renamed to %.100s: that key exists", kv->name, name);
    kv->name = name;
    return ZP_OK;
}

zp_status gguf_edit_rename_arch(struct gguf_edit *e, const char *arch, zp_err *err)
{
    char old[GGUF_MAX_NAME];
    struct gguf_str text = {arch, strlen(arch)};
    ZP_TRY(gguf_check_arch(text, "the file to write", err));
    arch_of(e, old, sizeof old);
    size_t old_size = strlen(old);
    if (strcmp(old, arch) == 0) return ZP_OK;
    for (uint32_t i = 0; old_size > 0 && i < e->n_kv; i++) {
        struct gguf_kv *kv = &e->kvs[i];
        if (strncmp(kv->name, old, old_size) == 0 && kv->name[old_size] == '.')
            ZP_TRY(rename_key(e, kv, old_size, arch, err));
    }
    return gguf_edit_set_str(e, "general.architecture", arch, err);
}

/* ---- setting tensors */

zp_status gguf_edit_set_tensor(struct gguf_edit *e, const struct gguf_edit_tensor *t, zp_err *err)
{
    struct gguf_tensor checked = {.name = t->name, .type = t->type, .n_dims = t->n_dims};
    memcpy(checked.ne, t->ne, sizeof checked.ne);
    ZP_TRY(gguf_tensor_check(&checked, "the file to write", err));
    assert(t->data != NULL || t->fill != NULL);
    struct gguf_edit_tensor made = *t;
    memcpy(made.ne, checked.ne, sizeof made.ne);
    made.bytes = checked.bytes;
    struct gguf_edit_tensor *old = gguf_edit_find_tensor(e, t->name);
    if (old != NULL) {
        made.name = old->name;
        *old = made;
        return ZP_OK;
    }
    ZP_FAIL_IF(e->n_tensors >= GGUF_MAX_TENSORS, err, ZP_BAD_INPUT, "more than %u tensors",
               GGUF_MAX_TENSORS);
    ZP_TRY(grow(&e->tensors, &e->tensor_room, e->n_tensors + 1, sizeof *e->tensors, err));
    ZP_TRY(copy_name(e, t->name, &made.name, err));
    e->tensors[e->n_tensors++] = made;
    return ZP_OK;
}

zp_status gguf_edit_set_tensor_f32(struct gguf_edit *e, const char *name, uint32_t n_dims,
                                   const uint64_t *ne, const float *data, zp_err *err)
{
    struct gguf_tensor checked = {.name = name, .type = QUANT_F32, .n_dims = n_dims};
    for (uint32_t d = 0; d < n_dims && d < GGUF_MAX_DIMS; d++) checked.ne[d] = ne[d];
    ZP_TRY(gguf_tensor_check(&checked, "the file to write", err));
    float *copy = arena_alloc(&e->arena, checked.bytes);
    ZP_FAIL_IF(copy == NULL, err, ZP_NO_MEMORY, "not enough memory for tensor %s", name);
    memcpy(copy, data, checked.bytes);
    struct gguf_edit_tensor t = {.name = name, .type = QUANT_F32, .n_dims = n_dims, .data = copy};
    memcpy(t.ne, checked.ne, sizeof t.ne);
    return gguf_edit_set_tensor(e, &t, err);
}

/* ---- beginning and end */

static zp_status take_source(struct gguf_edit *e, const struct gguf *g, zp_err *err)
{
    ZP_TRY(grow(&e->kvs, &e->kv_room, g->n_kv, sizeof *e->kvs, err));
    ZP_TRY(grow(&e->tensors, &e->tensor_room, g->n_tensors, sizeof *e->tensors, err));
    for (uint32_t i = 0; i < g->n_kv; i++)
        if (strncmp(g->kvs[i].name, "split.", 6) != 0) e->kvs[e->n_kv++] = g->kvs[i];
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        const struct gguf_tensor *t = &g->tensors[i];
        struct gguf_edit_tensor *to = &e->tensors[e->n_tensors++];
        *to = (struct gguf_edit_tensor){.name = t->name,
                                        .type = t->type,
                                        .n_dims = t->n_dims,
                                        .data = t->data,
                                        .bytes = t->bytes};
        memcpy(to->ne, t->ne, sizeof to->ne);
    }
    return gguf_check_alignment(find_key(e, "general.alignment"), gguf_label(g->path),
                                &e->alignment, err);
}

zp_status gguf_edit_init(struct gguf_edit *e, const struct gguf *source, zp_err *err)
{
    *e = (struct gguf_edit){.alignment = GGUF_DEFAULT_ALIGNMENT, .arena.tag = MEM_META};
    if (source == NULL) return ZP_OK;
    zp_status status = take_source(e, source, err);
    if (status != ZP_OK) gguf_edit_free(e);
    return status;
}

void gguf_edit_free(struct gguf_edit *e)
{
    mem_free(e->kvs);
    mem_free(e->tensors);
    arena_free(&e->arena);
    *e = (struct gguf_edit){.alignment = GGUF_DEFAULT_ALIGNMENT};
}

zp_status gguf_edit_view(const struct gguf_edit *e, struct gguf *view, zp_err *err)
{
    *view = (struct gguf){.arch = "", .kvs = e->kvs, .n_kv = e->n_kv, .arena.tag = MEM_META};
    zp_status status = gguf_build_indexes(view, err);
    if (status != ZP_OK) gguf_edit_view_free(view);
    return status;
}

void gguf_edit_view_free(struct gguf *view)
{
    view->kvs = NULL; /* the edit's */
    gguf_close(view);
}

zp_status gguf_from_edit(struct gguf *g, struct gguf_edit *e, zp_err *err)
{
    ZP_ALLOC(g->tensors, MEM_META, e->n_tensors, err, "the tensor table");
    for (uint32_t i = 0; i < e->n_tensors; i++) {
        const struct gguf_edit_tensor *t = &e->tensors[i];
        assert(t->data != NULL);
        g->tensors[i] = (struct gguf_tensor){.name = t->name,
                                             .type = t->type,
                                             .n_dims = t->n_dims,
                                             .data = t->data,
                                             .bytes = t->bytes};
        memcpy(g->tensors[i].ne, t->ne, sizeof t->ne);
    }
    g->n_tensors = e->n_tensors;
    g->kvs = e->kvs;
    g->n_kv = e->n_kv;
    g->version = 3;
    g->alignment = e->alignment;
    g->arena = e->arena;
    e->kvs = NULL;
    e->arena.head = NULL;
    gguf_edit_free(e);
    return ZP_OK;
}

/* ---- writing */

static bool pad_up(size_t at, uint32_t alignment, size_t *out)
{
    if (!size_add(at, alignment - 1, out)) return false;
    *out &= ~(size_t)(alignment - 1);
    return true;
}

/* Sizes up to the tensor data and in all; cannot be wrong for lists that passed the set calls, but
 * sums of views may overflow on hostile sizes. */
static bool measure(const struct gguf_edit *e, size_t *data_begin, size_t *total)
{
    size_t at = 4 + 4 + 8 + 8;
    for (uint32_t i = 0; i < e->n_kv; i++) {
        const struct gguf_kv *kv = &e->kvs[i];
        if (!size_add(at, 8 + strlen(kv->name) + (kv->is_array ? 16 : 4), &at)) return false;
        if (!size_add(at, kv->bytes, &at)) return false;
    }
    for (uint32_t i = 0; i < e->n_tensors; i++)
        at += 8 + strlen(e->tensors[i].name) + 4 + 8 * (size_t)e->tensors[i].n_dims + 4 + 8;
    if (!pad_up(at, e->alignment, data_begin)) return false;
    at = *data_begin;
    for (uint32_t i = 0; i < e->n_tensors; i++)
        if (!size_add(at, e->tensors[i].bytes, &at) || !pad_up(at, e->alignment, &at)) return false;
    *total = at;
    return true;
}

zp_status gguf_edit_file_bytes(const struct gguf_edit *e, uint64_t *bytes, zp_err *err)
{
    size_t data_begin, total;
    ZP_FAIL_IF(!measure(e, &data_begin, &total), err, ZP_BAD_INPUT, "the file would be too large");
    *bytes = total;
    return ZP_OK;
}

static zp_status put_u32(struct os_file *f, uint32_t value, zp_err *err)
{
    return os_file_write(f, &value, 4, err);
}

static zp_status put_u64(struct os_file *f, uint64_t value, zp_err *err)
{
    return os_file_write(f, &value, 8, err);
}

static zp_status put_name(struct os_file *f, const char *name, zp_err *err)
{
    ZP_TRY(put_u64(f, strlen(name), err));
    return os_file_write(f, name, strlen(name), err);
}

static zp_status put_padding(struct os_file *f, size_t size, zp_err *err)
{
    static const uint8_t zeros[256];
    for (; size > sizeof zeros; size -= sizeof zeros)
        ZP_TRY(os_file_write(f, zeros, sizeof zeros, err));
    return os_file_write(f, zeros, size, err);
}

static zp_status write_key(struct os_file *f, const struct gguf_kv *kv, zp_err *err)
{
    ZP_TRY(put_name(f, kv->name, err));
    ZP_TRY(put_u32(f, kv->is_array ? GGUF_ARRAY : kv->type, err));
    if (kv->is_array) {
        ZP_TRY(put_u32(f, kv->type, err));
        ZP_TRY(put_u64(f, kv->count, err));
    }
    return os_file_write(f, kv->data, kv->bytes, err);
}

static zp_status write_head(struct os_file *f, const struct gguf_edit *e, zp_err *err)
{
    ZP_TRY(os_file_write(f, "GGUF", 4, err));
    ZP_TRY(put_u32(f, 3, err));
    ZP_TRY(put_u64(f, e->n_tensors, err));
    ZP_TRY(put_u64(f, e->n_kv, err));
    for (uint32_t i = 0; i < e->n_kv; i++) ZP_TRY(write_key(f, &e->kvs[i], err));
    size_t offset = 0;
    for (uint32_t i = 0; i < e->n_tensors; i++) {
        const struct gguf_edit_tensor *t = &e->tensors[i];
        ZP_TRY(put_name(f, t->name, err));
        ZP_TRY(put_u32(f, t->n_dims, err));
        for (uint32_t d = 0; d < t->n_dims; d++) ZP_TRY(put_u64(f, t->ne[d], err));
        ZP_TRY(put_u32(f, t->type, err));
        ZP_TRY(put_u64(f, offset, err));
        (void)pad_up(offset + t->bytes, e->alignment, &offset); /* measured before: no overflow */
    }
    return ZP_OK;
}

static zp_status write_view(struct os_file *f, const struct gguf_edit_tensor *t, zp_err *err)
{
    const uint8_t *data = t->data;
    for (size_t at = 0; at < t->bytes; at += COPY_BYTES) {
        size_t left = t->bytes - at;
        ZP_TRY(os_file_write(f, data + at, left < COPY_BYTES ? left : COPY_BYTES, err));
    }
    return ZP_OK;
}

static zp_status write_rows(struct os_file *f, const struct gguf_edit_tensor *t, void *rows,
                            uint64_t at_once, size_t row_bytes, zp_err *err)
{
    uint64_t n_rows = t->bytes / row_bytes;
    for (uint64_t row = 0; row < n_rows; row += at_once) {
        uint64_t n = n_rows - row < at_once ? n_rows - row : at_once;
        ZP_TRY(t->fill(t->fill_arg, row, n, rows, err));
        ZP_TRY(os_file_write(f, rows, (size_t)n * row_bytes, err));
    }
    return ZP_OK;
}

static zp_status write_tensor(struct os_file *f, const struct gguf_edit_tensor *t, zp_err *err)
{
    if (t->data != NULL) return write_view(f, t, err);
    size_t row_bytes = (size_t)(t->bytes / (t->ne[1] * t->ne[2] * t->ne[3]));
    uint64_t at_once = row_bytes < FILL_BYTES ? FILL_BYTES / row_bytes : 1;
    uint8_t *rows = mem_array(MEM_SCRATCH, at_once, row_bytes);
    ZP_FAIL_IF(rows == NULL, err, ZP_NO_MEMORY, "not enough memory for rows of tensor %s", t->name);
    zp_status status = write_rows(f, t, rows, at_once, row_bytes, err);
    mem_free(rows);
    return status;
}

static zp_status write_all(struct os_file *f, const struct gguf_edit *e, size_t data_begin,
                           zp_err *err)
{
    ZP_TRY(write_head(f, e, err));
    size_t at = (size_t)f->at + f->used, end;
    assert(at <= data_begin && data_begin - at < e->alignment);
    ZP_TRY(put_padding(f, data_begin - at, err));
    for (uint32_t i = 0; i < e->n_tensors; i++) {
        const struct gguf_edit_tensor *t = &e->tensors[i];
        ZP_TRY(write_tensor(f, t, err));
        (void)pad_up(t->bytes, e->alignment, &end);
        ZP_TRY(put_padding(f, end - t->bytes, err));
    }
    return os_file_finish(f, err);
}

zp_status gguf_check_output(const char *path, zp_err *err)
{
    ZP_FAIL_IF(gguf_is_part_name(path), err, ZP_USAGE,
               "%s: named like one part of several, and would not be found as one file; give it a "
               "name without -00001-of-00002", gguf_label(path));
    return ZP_OK;
}

zp_status gguf_edit_write_temp(struct gguf_edit *e, const char *path, struct os_file *f,
                               zp_err *err)
{
    size_t data_begin, total;
    ZP_TRY(gguf_check_output(path, err));
    ZP_FAIL_IF(!measure(e, &data_begin, &total), err, ZP_BAD_INPUT,
               "%s: the file would be too large", path);
    ZP_TRY(os_file_create(f, path, total, err));
    zp_status status = write_all(f, e, data_begin, err);
    if (status != ZP_OK) os_file_abort(f);
    return status;
}

zp_status gguf_edit_write(struct gguf_edit *e, const char *path, zp_err *err)
{
    struct os_file f;
    ZP_TRY(gguf_edit_write_temp(e, path, &f, err));
    return os_file_commit(&f, err);
}
