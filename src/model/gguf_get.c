/* gguf_get.c: typed reading of keys, with errors that name the key, what it holds and what was
 * expected. Does not know: which keys exist, how files look. */
#include "model/gguf_get.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/status.h"
#include "model/gguf.h"

const char *gguf_expand_key(const char *arch, const char *key, char *out, size_t size)
{
    if (strncmp(key, "%.", 2) != 0) return key;
    int n = snprintf(out, size, "%s%s", arch, key + 1);
    return n > 0 && (size_t)n < size ? out : NULL;
}

/* The key's real name for messages. */
static const char *shown(const struct gguf *g, const char *key, char room[GGUF_KEY_ROOM])
{
    const char *name = gguf_expand_key(g->arch, key, room, GGUF_KEY_ROOM);
    return name == NULL ? key : name;
}

static zp_status fail_missing(const struct gguf *g, const char *key, zp_err *err)
{
    char room[GGUF_KEY_ROOM];
    ZP_FAIL(err, ZP_BAD_FILE, "%s: key %.100s is missing", gguf_label(g->path),
            shown(g, key, room));
}

static zp_status fail_type(const struct gguf *g, const char *key, const struct gguf_kv *kv,
                           const char *expected, zp_err *err)
{
    char room[GGUF_KEY_ROOM];
    ZP_FAIL(err, ZP_BAD_FILE, "%s: key %.100s holds %s%s, expected %s", gguf_label(g->path),
            shown(g, key, room), kv->is_array ? "an array of " : "a ", gguf_type_name(kv->type),
            expected);
}

/* *kv = NULL when absent and not required. */
static zp_status find_scalar(const struct gguf *g, const char *key, bool required,
                             const struct gguf_kv **kv, const char *expected, zp_err *err)
{
    *kv = gguf_find_key(g, key);
    if (*kv == NULL) return required ? fail_missing(g, key, err) : ZP_OK;
    return (*kv)->is_array ? fail_type(g, key, *kv, expected, err) : ZP_OK;
}

static zp_status get_uint(const struct gguf *g, const char *key, bool required, uint64_t max,
                          uint64_t *out, zp_err *err)
{
    const struct gguf_kv *kv;
    char room[GGUF_KEY_ROOM];
    ZP_TRY(find_scalar(g, key, required, &kv, "an integer", err));
    if (kv == NULL) return ZP_OK;
    if (!gguf_type_is_int(kv->type)) return fail_type(g, key, kv, "an integer", err);
    uint64_t value;
    if (kv->type == GGUF_U64)
        memcpy(&value, kv->data, 8);
    else
        value = (uint64_t)gguf_item_int(kv, 0); /* negative: beyond every max */
    if (kv->type != GGUF_U64 && gguf_item_int(kv, 0) < 0)
        ZP_FAIL(err, ZP_BAD_FILE, "%s: key %.100s is %lld, expected 0 to %llu", gguf_label(g->path),
                shown(g, key, room), (long long)gguf_item_int(kv, 0), (unsigned long long)max);
    ZP_FAIL_IF(value > max, err, ZP_BAD_FILE, "%s: key %.100s is %llu, expected 0 to %llu",
               gguf_label(g->path), shown(g, key, room), (unsigned long long)value,
               (unsigned long long)max);
    *out = value;
    return ZP_OK;
}

zp_status gguf_get_u32(const struct gguf *g, const char *key, uint32_t *out, zp_err *err)
{
    uint64_t value = 0;
    ZP_TRY(get_uint(g, key, true, UINT32_MAX, &value, err));
    *out = (uint32_t)value;
    return ZP_OK;
}

zp_status gguf_get_u32_or(const struct gguf *g, const char *key, uint32_t fallback, uint32_t *out,
                          zp_err *err)
{
    uint64_t value = fallback;
    ZP_TRY(get_uint(g, key, false, UINT32_MAX, &value, err));
    *out = (uint32_t)value;
    return ZP_OK;
}

zp_status gguf_get_u64(const struct gguf *g, const char *key, uint64_t *out, zp_err *err)
{
    return get_uint(g, key, true, UINT64_MAX, out, err);
}

zp_status gguf_get_u64_or(const struct gguf *g, const char *key, uint64_t fallback, uint64_t *out,
                          zp_err *err)
{
    *out = fallback;
    return get_uint(g, key, false, UINT64_MAX, out, err);
}

static bool item_number(const struct gguf_kv *kv, uint64_t i, float *out)
{
    if (kv->type == GGUF_F32 || kv->type == GGUF_F64)
        *out = (float)gguf_item_float(kv, i);
    else if (gguf_type_is_int(kv->type))
        *out = (float)gguf_item_int(kv, i);
    else
        return false;
    return true;
}

static zp_status get_number(const struct gguf *g, const char *key, bool required, float *out,
                            zp_err *err)
{
    const struct gguf_kv *kv;
    char room[GGUF_KEY_ROOM];
    float value;
    ZP_TRY(find_scalar(g, key, required, &kv, "a number", err));
    if (kv == NULL) return ZP_OK;
    if (!item_number(kv, 0, &value)) return fail_type(g, key, kv, "a number", err);
    ZP_FAIL_IF(isnan(value), err, ZP_BAD_FILE, "%s: key %.100s is not a number (NaN)",
               gguf_label(g->path), shown(g, key, room));
    *out = value;
    return ZP_OK;
}

zp_status gguf_get_f32(const struct gguf *g, const char *key, float *out, zp_err *err)
{
    return get_number(g, key, true, out, err);
}

zp_status gguf_get_f32_or(const struct gguf *g, const char *key, float fallback, float *out,
                          zp_err *err)
{
    *out = fallback;
    return get_number(g, key, false, out, err);
}

static zp_status get_bool(const struct gguf *g, const char *key, bool required, bool *out,
                          zp_err *err)
{
    const struct gguf_kv *kv;
    ZP_TRY(find_scalar(g, key, required, &kv, "a bool", err));
    if (kv == NULL) return ZP_OK;
    if (kv->type != GGUF_BOOL) return fail_type(g, key, kv, "a bool", err);
    *out = kv->data[0] != 0;
    return ZP_OK;
}

zp_status gguf_get_bool(const struct gguf *g, const char *key, bool *out, zp_err *err)
{
    return get_bool(g, key, true, out, err);
}

zp_status gguf_get_bool_or(const struct gguf *g, const char *key, bool fallback, bool *out,
                           zp_err *err)
{
    *out = fallback;
    return get_bool(g, key, false, out, err);
}

static zp_status get_str(const struct gguf *g, const char *key, bool required, struct gguf_str *out,
                         zp_err *err)
{
    const struct gguf_kv *kv;
    *out = (struct gguf_str){0};
    ZP_TRY(find_scalar(g, key, required, &kv, "a string", err));
    if (kv == NULL) return ZP_OK;
    if (kv->type != GGUF_STR) return fail_type(g, key, kv, "a string", err);
    *out = gguf_item_str(kv, 0);
    return ZP_OK;
}

zp_status gguf_get_str(const struct gguf *g, const char *key, struct gguf_str *out, zp_err *err)
{
    return get_str(g, key, true, out, err);
}

zp_status gguf_get_str_or_null(const struct gguf *g, const char *key, struct gguf_str *out,
                               zp_err *err)
{
    return get_str(g, key, false, out, err);
}

/* ---- arrays */

static bool kind_matches(enum gguf_array_kind kind, enum gguf_type type)
{
    switch (kind) {
    case GGUF_ANY_INT:
        return gguf_type_is_int(type);
    case GGUF_ANY_FLOAT:
        return type == GGUF_F32 || type == GGUF_F64;
    case GGUF_BOOLS:
        return type == GGUF_BOOL;
    case GGUF_STRS:
        return type == GGUF_STR;
    }
    return false;
}

zp_status gguf_find_array(const struct gguf *g, const char *key, enum gguf_array_kind kind,
                          const struct gguf_kv **out, zp_err *err)
{
    static const char *const expected[] = {
        [GGUF_ANY_INT] = "an array of integers",
        [GGUF_ANY_FLOAT] = "an array of numbers with a fraction",
        [GGUF_BOOLS] = "an array of bool",
        [GGUF_STRS] = "an array of strings",
    };
    const struct gguf_kv *kv = gguf_find_key(g, key);
    *out = NULL;
    if (kv != NULL && (!kv->is_array || !kind_matches(kind, kv->type)))
        return fail_type(g, key, kv, expected[kind], err);
    *out = kv;
    return ZP_OK;
}

zp_status gguf_get_array(const struct gguf *g, const char *key, enum gguf_array_kind kind,
                         const struct gguf_kv **out, zp_err *err)
{
    ZP_TRY(gguf_find_array(g, key, kind, out, err));
    return *out == NULL ? fail_missing(g, key, err) : ZP_OK;
}

static zp_status find_layers(const struct gguf *g, const char *key, uint32_t n,
                             const struct gguf_kv **out, zp_err *err)
{
    const struct gguf_kv *kv = *out = gguf_find_key(g, key);
    char room[GGUF_KEY_ROOM];
    ZP_FAIL_IF(kv != NULL && kv->is_array && kv->count != n, err, ZP_BAD_FILE,
               "%s: key %.100s has %llu items, expected one for each of %u layers",
               gguf_label(g->path), shown(g, key, room), (unsigned long long)kv->count, n);
    return ZP_OK;
}

zp_status gguf_get_u32_layers(const struct gguf *g, const char *key, uint32_t n, uint32_t *out,
                              bool *found, zp_err *err)
{
    const struct gguf_kv *kv;
    char room[GGUF_KEY_ROOM];
    ZP_TRY(find_layers(g, key, n, &kv, err));
    *found = kv != NULL;
    if (kv == NULL) return ZP_OK;
    if (!gguf_type_is_int(kv->type) && kv->type != GGUF_BOOL)
        return fail_type(g, key, kv, "integers", err);
    for (uint32_t i = 0; i < n; i++) {
        int64_t value = gguf_item_int(kv, kv->is_array ? i : 0);
        ZP_FAIL_IF(value < 0 || value > UINT32_MAX, err, ZP_BAD_FILE,
                   "%s: key %.100s is %lld for layer %u, expected 0 to %u", gguf_label(g->path),
                   shown(g, key, room), (long long)value, i, UINT32_MAX);
        out[i] = (uint32_t)value;
    }
    return ZP_OK;
}

zp_status gguf_get_f32_layers(const struct gguf *g, const char *key, uint32_t n, float *out,
                              bool *found, zp_err *err)
{
    const struct gguf_kv *kv;
    char room[GGUF_KEY_ROOM];
    ZP_TRY(find_layers(g, key, n, &kv, err));
    *found = kv != NULL;
    if (kv == NULL) return ZP_OK;
    for (uint32_t i = 0; i < n; i++) {
        if (!item_number(kv, kv->is_array ? i : 0, &out[i]))
            return fail_type(g, key, kv, "numbers", err);
        ZP_FAIL_IF(isnan(out[i]), err, ZP_BAD_FILE,
                   "%s: key %.100s is not a number (NaN) for layer %u", gguf_label(g->path),
                   shown(g, key, room), i);
    }
    return ZP_OK;
}
