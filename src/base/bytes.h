/* bytes.h: a growable buffer with a mandatory maximum, and a bounds-checked cursor for untrusted
 * bytes. */
#ifndef BASE_BYTES_H
#define BASE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "mem.h"
#include "status.h"

struct buffer {
    uint8_t *data;       /* NUL-terminated after each append, the NUL not counted in size */
    size_t size, room;
    size_t max;          /* appends beyond fail with ZP_BAD_INPUT; must be set before use */
    enum mem_tag tag;
};
struct buffer buffer_with_max(enum mem_tag tag, size_t max);
zp_status buffer_append(struct buffer *b, const void *data, size_t size, zp_err *err);
zp_status buffer_append_text(struct buffer *b, const char *text, zp_err *err);
zp_status buffer_printf(struct buffer *b, zp_err *err, const char *fmt, ...) ZP_PRINTF(3, 4);
void buffer_clear(struct buffer *b);  /* keeps the memory */
void buffer_free(struct buffer *b);

/* Little-endian reads; each read checks, moves on success, and leaves the cursor where it was on
 * failure.
 * `what` names the item in the error text: "tensor count", "key 3 name". */
struct cursor {
    const uint8_t *data;
    size_t size, at;
    const char *name;    /* file name or other source for messages; not owned */
};
struct cursor cursor_over(const void *data, size_t size, const char *name);
size_t cursor_left(const struct cursor *c);
bool cursor_match(struct cursor *c, const void *bytes, size_t size);  /* consumes on match */
zp_status cursor_skip(struct cursor *c, size_t size, const char *what, zp_err *err);
zp_status cursor_view(struct cursor *c, size_t size, const uint8_t **out, const char *what,
                      zp_err *err);
zp_status cursor_u8(struct cursor *c, uint8_t *out, const char *what, zp_err *err);
zp_status cursor_u16(struct cursor *c, uint16_t *out, const char *what, zp_err *err);
zp_status cursor_u32(struct cursor *c, uint32_t *out, const char *what, zp_err *err);
zp_status cursor_u64(struct cursor *c, uint64_t *out, const char *what, zp_err *err);
zp_status cursor_f32(struct cursor *c, float *out, const char *what, zp_err *err);
zp_status cursor_f64(struct cursor *c, double *out, const char *what, zp_err *err);

/* "2.5 GiB" for people; returns room->text. */
struct bytes_text { char text[32]; };
const char *bytes_in_words(uint64_t bytes, struct bytes_text *room);

/* Checked arithmetic on sizes from files (I7): false on overflow. */
bool size_add(size_t a, size_t b, size_t *out);
bool size_mul(size_t a, size_t b, size_t *out);

/* True if the bytes are well-formed UTF-8 (no surrogates, no overlongs, <= U+10FFFF). On false *bad
 * = first bad offset. */
bool utf8_is_valid(const char *text, size_t size, size_t *bad);
/* Length in bytes of the longest prefix that ends on a complete scalar (hold-back of streams). */
size_t utf8_complete_prefix(const char *text, size_t size);

/* 64-bit FNV-1a style fast hash for tables (not adversarial); SHA-256 for file identity. */
uint64_t hash_bytes(const void *data, size_t size, uint64_t seed);
struct sha256 { uint32_t h[8]; uint64_t length; uint8_t block[64]; };
void sha256_init(struct sha256 *s);
void sha256_update(struct sha256 *s, const void *data, size_t size);
void sha256_final(struct sha256 *s, char hex[65]);

#endif
