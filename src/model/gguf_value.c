/* gguf_value.c: one key's value: reading it from hostile bytes, making it, taking items out.
 * Does not know: files, tensors, which keys exist. Values stay little endian and unaligned, so an
 * item is always copied out. V1, V2: see gguf_value.h. */
#include "model/gguf_value.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include "base/numtext.h"
#include "base/status.h"

static const struct {
    const char *name;
    uint8_t bytes;
} type_table[GGUF_TYPE_COUNT] = {
    [GGUF_U8] = {"u8", 1},       [GGUF_I8] = {"i8", 1},     [GGUF_U16] = {"u16", 2},
    [GGUF_I16] = {"i16", 2},     [GGUF_U32] = {"u32", 4},   [GGUF_I32] = {"i32", 4},
    [GGUF_F32] = {"f32", 4},     [GGUF_BOOL] = {"bool", 1}, [GGUF_STR] = {"string", 0},
    [GGUF_ARRAY] = {"array", 0}, [GGUF_U64] = {"u64", 8},   [GGUF_I64] = {"i64", 8},
    [GGUF_F64] = {"f64", 8},
};
static const uint32_t offset_zero[1] = {0}; /* string index of every scalar string */

const char *gguf_type_name(enum gguf_type type)
{
    return (unsigned)type < GGUF_TYPE_COUNT ? type_table[type].name : "?";
}

size_t gguf_type_bytes(enum gguf_type type)
{
    return (unsigned)type < GGUF_TYPE_COUNT ? type_table[type].bytes : 0;
}

bool gguf_type_is_int(enum gguf_type type)
{
    return type <= GGUF_I32 || type == GGUF_U64 || type == GGUF_I64;
}

bool gguf_str_is(struct gguf_str s, const char *text)
{
    size_t size = strlen(text);
    return s.data != NULL && s.size == size && memcmp(s.data, text, size) == 0;
}

bool gguf_value_same(const struct gguf_kv *a, const struct gguf_kv *b)
{
    if (!a->is_array && !b->is_array && gguf_type_is_int(a->type) && gguf_type_is_int(b->type))
        return gguf_item_int(a, 0) == gguf_item_int(b, 0);
    return a->is_array == b->is_array && a->type == b->type && a->count == b->count &&
           a->bytes == b->bytes && (a->bytes == 0 || memcmp(a->data, b->data, a->bytes) == 0);
}

char *gguf_value_show(const struct gguf_kv *kv, char out[GGUF_SHOWN_SIZE])
{
    if (kv->is_array) {
        snprintf(out, GGUF_SHOWN_SIZE, "%llu items of %s", (unsigned long long)kv->count,
                 gguf_type_name(kv->type));
    } else if (kv->type == GGUF_STR) {
        struct gguf_str s = gguf_item_str(kv, 0);
        size_t size = utf8_complete_prefix(s.data, s.size < 50 ? s.size : 50);
        snprintf(out, GGUF_SHOWN_SIZE, "'%.*s'", (int)size, s.data);
    } else if (kv->type == GGUF_F32 || kv->type == GGUF_F64) {
        numtext_printf(out, GGUF_SHOWN_SIZE, "%g", gguf_item_float(kv, 0));
    } else {
        snprintf(out, GGUF_SHOWN_SIZE, "%lld", (long long)gguf_item_int(kv, 0));
    }
    return out;
}

char *gguf_commas(uint64_t value, char out[28])
{
    char digits[28];
    int n = 0, at = 0;
    do {
        digits[n++] = (char)('0' + value % 10);
        value /= 10;
    } while (value != 0);
    while (n > 0) {
        out[at++] = digits[--n];
        if (n > 0 && n % 3 == 0) out[at++] = ',';
    }
    out[at] = 0;
    return out;
}

/* ---- items */

int64_t gguf_item_int(const struct gguf_kv *kv, uint64_t i)
{
    assert(i < kv->count);
    const uint8_t *p = kv->data + i * gguf_type_bytes(kv->type);
    uint8_t u1 = p[0];
    uint16_t u2 = 0;
    uint32_t u4 = 0;
    uint64_t u8 = 0;
    switch (kv->type) {
    case GGUF_U8:
    case GGUF_BOOL:
        return u1;
    case GGUF_I8:
        return (int8_t)u1;
    case GGUF_U16:
        memcpy(&u2, p, 2);
        return u2;
    case GGUF_I16:
        memcpy(&u2, p, 2);
        return (int16_t)u2;
    case GGUF_U32:
        memcpy(&u4, p, 4);
        return u4;
    case GGUF_I32:
        memcpy(&u4, p, 4);
        return (int32_t)u4;
    case GGUF_U64:
        memcpy(&u8, p, 8);
        return u8 > INT64_MAX ? INT64_MAX : (int64_t)u8;
    case GGUF_I64:
        memcpy(&u8, p, 8);
        return (int64_t)u8;
    default:
        assert(!"integer type");
        return 0;
    }
}

double gguf_item_float(const struct gguf_kv *kv, uint64_t i)
{
    assert(i < kv->count && (kv->type == GGUF_F32 || kv->type == GGUF_F64));
    if (kv->type == GGUF_F64) {
        double d;
        memcpy(&d, kv->data + i * 8, 8);
        return d;
    }
    float f;
    memcpy(&f, kv->data + i * 4, 4);
    return (double)f;
}

struct gguf_str gguf_item_str(const struct gguf_kv *kv, uint64_t i)
{
    assert(i < kv->count && kv->type == GGUF_STR);
    const uint8_t *p = kv->data + kv->offsets[i];
    uint64_t size;
    memcpy(&size, p, 8);
    return (struct gguf_str){(const char *)p + 8, (size_t)size}; /* V1: checked when read */
}

/* ---- reading */

static size_t string_limit(const char *key)
{
    static const char *const long_keys[] = {"tokenizer.chat_template",
                                            "tokenizer.huggingface.json"};
    for (size_t i = 0; i < ZP_COUNT(long_keys); i++)
        if (strncmp(key, long_keys[i], strlen(long_keys[i])) == 0) return GGUF_MAX_LONG_STR;
    return GGUF_MAX_STR;
}

static zp_status skip_string(struct cursor *c, const char *key, size_t limit, zp_err *err)
{
    uint64_t size;
    char have[28], most[28];
    ZP_TRY(cursor_u64(c, &size, "a string's length", err));
    ZP_FAIL_IF(size > limit, err, ZP_BAD_FILE,
               "%s: key %.100s: a string of %s bytes, at most %s are read: the file is damaged",
               c->name, key, gguf_commas(size, have), gguf_commas(limit, most));
    return cursor_skip(c, (size_t)size, "a string", err);
}

static zp_status read_strings(struct cursor *c, struct gguf_kv *kv, struct arena *arena,
                              zp_err *err)
{
    uint32_t *offsets = arena_array(arena, kv->count > 0 ? kv->count : 1, sizeof *offsets);
    ZP_FAIL_IF(offsets == NULL, err, ZP_NO_MEMORY,
               "not enough memory for %llu strings of key %.100s", (unsigned long long)kv->count,
               kv->name);
    size_t begin = c->at, limit = string_limit(kv->name);
    for (uint64_t i = 0; i < kv->count; i++) {
        ZP_FAIL_IF(c->at - begin > UINT32_MAX, err, ZP_UNSUPPORTED,
                   "%s: key %.100s: more than 4 GiB of strings", c->name, kv->name);
        offsets[i] = (uint32_t)(c->at - begin);
        ZP_TRY(skip_string(c, kv->name, limit, err));
    }
    kv->bytes = c->at - begin;
    kv->offsets = offsets;
    return ZP_OK;
}

static zp_status check_bools(const struct cursor *c, const struct gguf_kv *kv, zp_err *err)
{
    for (uint64_t i = 0; i < kv->count; i++)
        ZP_FAIL_IF(kv->data[i] > 1, err, ZP_BAD_FILE,
                   "%s: key %.100s: bool %llu has the value %u, expected 0 or 1", c->name, kv->name,
                   (unsigned long long)i, kv->data[i]);
    return ZP_OK;
}

static zp_status read_items(struct cursor *c, struct gguf_kv *kv, struct arena *arena, zp_err *err)
{
    size_t each = kv->type == GGUF_STR ? 8 : gguf_type_bytes(kv->type), bytes;
    char have[28], left[28];
    ZP_FAIL_IF(!size_mul(kv->count, each, &bytes) || bytes > cursor_left(c), err, ZP_BAD_FILE,
               "%s: key %.100s: %s items of type %s, but only %s bytes are left in the file: "
               "damaged or incomplete",
               c->name, kv->name, gguf_commas(kv->count, have), gguf_type_name(kv->type),
               gguf_commas(cursor_left(c), left));
    kv->data = c->data + c->at;
    if (kv->type == GGUF_STR) return read_strings(c, kv, arena, err);
    kv->bytes = bytes;
    ZP_TRY(cursor_skip(c, bytes, "an array", err));
    return kv->type == GGUF_BOOL ? check_bools(c, kv, err) : ZP_OK;
}

zp_status gguf_value_read(struct cursor *c, struct gguf_kv *kv, struct arena *arena, zp_err *err)
{
    uint32_t type;
    ZP_TRY(cursor_u32(c, &type, "a value type", err));
    kv->is_array = type == GGUF_ARRAY;
    kv->count = 1;
    kv->offsets = NULL;
    if (kv->is_array) {
        ZP_TRY(cursor_u32(c, &type, "an array's item type", err));
        ZP_TRY(cursor_u64(c, &kv->count, "an array's length", err));
        ZP_FAIL_IF(type == GGUF_ARRAY, err, ZP_BAD_FILE,
                   "%s: key %.100s: an array of arrays, which no model needs", c->name, kv->name);
    }
    ZP_FAIL_IF(type >= GGUF_TYPE_COUNT, err, ZP_BAD_FILE,
               "%s: key %.100s: value type %u, expected 0 to %d: the file is damaged", c->name,
               kv->name, type, GGUF_TYPE_COUNT - 1);
    kv->type = (enum gguf_type)type;
    if (kv->is_array || kv->type != GGUF_STR) return read_items(c, kv, arena, err);
    kv->data = c->data + c->at; /* a scalar string needs no index of its own */
    size_t begin = c->at;
    ZP_TRY(skip_string(c, kv->name, string_limit(kv->name), err));
    kv->bytes = c->at - begin;
    kv->offsets = offset_zero;
    return ZP_OK;
}

/* ---- making */

static zp_status alloc_value(struct gguf_kv *kv, size_t bytes, struct arena *arena, uint8_t **out,
                             zp_err *err)
{
    *out = arena_alloc(arena, bytes > 0 ? bytes : 1);
    ZP_FAIL_IF(*out == NULL, err, ZP_NO_MEMORY, "not enough memory for key %.100s (%zu bytes)",
               kv->name, bytes);
    kv->data = *out;
    kv->bytes = bytes;
    return ZP_OK;
}

zp_status gguf_value_make(struct gguf_kv *kv, enum gguf_type type, bool is_array, const void *items,
                          uint64_t count, struct arena *arena, zp_err *err)
{
    size_t bytes;
    uint8_t *data;
    ZP_FAIL_IF(gguf_type_bytes(type) == 0 || (!is_array && count != 1) ||
                   !size_mul(count, gguf_type_bytes(type), &bytes),
               err, ZP_BAD_INPUT, "key %.100s: cannot hold %llu items of type %s", kv->name,
               (unsigned long long)count, gguf_type_name(type));
    struct gguf_kv made = {.name = kv->name, .type = type, .is_array = is_array, .count = count};
    ZP_TRY(alloc_value(&made, bytes, arena, &data, err));
    if (bytes > 0) memcpy(data, items, bytes); /* little endian host: see the check in gguf.c */
    for (uint64_t i = 0; type == GGUF_BOOL && i < count; i++) data[i] = data[i] != 0;
    *kv = made;
    return ZP_OK;
}

zp_status gguf_value_make_strs(struct gguf_kv *kv, bool is_array, const struct gguf_str *items,
                               uint64_t count, struct arena *arena, zp_err *err)
{
    size_t bytes = 0, limit = string_limit(kv->name);
    uint8_t *data;
    for (uint64_t i = 0; i < count; i++)
        ZP_FAIL_IF(items[i].size > limit || !size_add(bytes, items[i].size + 8, &bytes) ||
                       bytes > UINT32_MAX,
                   err, ZP_BAD_INPUT, "key %.100s: string %llu is too long (%zu bytes)", kv->name,
                   (unsigned long long)i, items[i].size);
    struct gguf_kv made = {
        .name = kv->name, .type = GGUF_STR, .is_array = is_array, .count = count};
    uint32_t *offsets = arena_array(arena, count > 0 ? count : 1, sizeof *offsets);
    ZP_FAIL_IF(offsets == NULL, err, ZP_NO_MEMORY, "not enough memory for key %.100s", kv->name);
    ZP_TRY(alloc_value(&made, bytes, arena, &data, err));
    size_t at = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t size = items[i].size;
        offsets[i] = (uint32_t)at;
        memcpy(data + at, &size, 8);
        if (size > 0) memcpy(data + at + 8, items[i].data, size);
        at += 8 + (size_t)size;
    }
    made.offsets = offsets;
    *kv = made;
    return ZP_OK;
}
