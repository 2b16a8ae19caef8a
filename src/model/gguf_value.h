/* gguf_value.h: one key's value: its types, its bytes as in the file, reading with limits, making.
 * V1 data holds exactly count items of the type; every string lies inside data.
 * V2 bools are 0 or 1; arrays do not nest. */
#ifndef MODEL_GGUF_VALUE_H
#define MODEL_GGUF_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/bytes.h"
#include "base/mem.h"

#define GGUF_MAX_KEY 65535
#define GGUF_MAX_STR (16u << 20)       /* bytes of a string */
#define GGUF_MAX_LONG_STR (256u << 20) /* of chat templates and embedded tokenizer files, by name */

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

/* Bytes of one value of a fixed-size type; 0 for strings and arrays. */
size_t gguf_type_bytes(enum gguf_type type);
bool gguf_type_is_int(enum gguf_type type); /* u8..i64, not bool */

/* Item i < count of a scalar or array of a type that was checked before (asserted). */
int64_t gguf_item_int(const struct gguf_kv *kv, uint64_t i); /* integers, bool; u64 saturates */
double gguf_item_float(const struct gguf_kv *kv, uint64_t i);        /* f32, f64 */
struct gguf_str gguf_item_str(const struct gguf_kv *kv, uint64_t i); /* O(1) */

/* Reads type and value at the cursor; kv->name is set by the caller. The string index comes from
 * the arena, the value stays a view. */
zp_status gguf_value_read(struct cursor *c, struct gguf_kv *kv, struct arena *arena, zp_err *err);
/* Makes the value in the arena; kv->name is set by the caller. items: native values of a fixed-size
 * type. A scalar has count 1. */
zp_status gguf_value_make(struct gguf_kv *kv, enum gguf_type type, bool is_array, const void *items,
                          uint64_t count, struct arena *arena, zp_err *err);
zp_status gguf_value_make_strs(struct gguf_kv *kv, bool is_array, const struct gguf_str *items,
                               uint64_t count, struct arena *arena, zp_err *err);

/* Integers of different widths are the same if they are one number. */
bool gguf_value_same(const struct gguf_kv *a, const struct gguf_kv *b);
/* "10000", "'llama'", "8 items of f32", for messages; returns out. */
#define GGUF_SHOWN_SIZE 64
char *gguf_value_show(const struct gguf_kv *kv, char out[GGUF_SHOWN_SIZE]);

/* "41,230,336"; returns out. */
char *gguf_commas(uint64_t value, char out[28]);

#endif
