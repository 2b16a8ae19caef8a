/* bytes.c: growable buffers, checked cursors, checked sizes, UTF-8 form, hashes: everything that
 * touches untrusted bytes.
 * B1 buffer.size <= buffer.max, and data[size] is NUL once anything was appended.
 * B2 a failed read leaves the cursor where it was.  B3 cursor.at <= cursor.size. */
#include "bytes.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "num.h"
#include "numtext.h"

#define FIRST_ROOM 64

const char *bytes_in_words(uint64_t bytes, struct bytes_text *room)
{
    static const char *const units[] = { "bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
    double x = (double)bytes;
    size_t u = 0;
    for (; x >= 1024.0 && u + 1 < sizeof units / sizeof *units; u++) x /= 1024.0;
    (void)numtext_printf(room->text, sizeof room->text, u == 0 ? "%.0f %s" : "%.1f %s", x,
                         units[u]);
    return room->text;
}

bool size_add(size_t a, size_t b, size_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

bool size_mul(size_t a, size_t b, size_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

/* ---- buffer ---- */

struct buffer buffer_with_max(enum mem_tag tag, size_t max)
{
    return (struct buffer){ .max = max, .tag = tag };
}

/* Makes room for `extra` more bytes and the NUL. */
static zp_status reserve(struct buffer *b, size_t extra, zp_err *err)
{
    ZP_FAIL_IF(extra > b->max - b->size, err, ZP_BAD_INPUT,
               "%zu bytes and %zu more exceed the limit of %zu bytes", b->size, extra, b->max);
    size_t needed = b->size + extra + 1;
    if (needed <= b->room) return ZP_OK;
    size_t room = b->room < FIRST_ROOM ? FIRST_ROOM : b->room;
    while (room < needed) room = room > SIZE_MAX / 2 ? needed : room * 2;
    /* No more than the limit can ever use. */
    if (b->max < SIZE_MAX && room > b->max + 1) room = b->max + 1;
    uint8_t *data = mem_resize(b->tag, b->data, room);
    ZP_FAIL_IF(data == NULL, err, ZP_NO_MEMORY, "not enough memory for a buffer of %zu bytes",
               room);
    b->data = data;
    b->room = room;
    return ZP_OK;
}

zp_status buffer_append(struct buffer *b, const void *data, size_t size, zp_err *err)
{
    ZP_TRY(reserve(b, size, err));
    if (size != 0) memcpy(b->data + b->size, data, size);
    b->size += size;
    b->data[b->size] = 0; // B1
    return ZP_OK;
}

zp_status buffer_append_text(struct buffer *b, const char *text, zp_err *err)
{
    return buffer_append(b, text, strlen(text), err);
}

zp_status buffer_printf(struct buffer *b, zp_err *err, const char *fmt, ...)
{
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int wanted = numtext_vprintf(NULL, 0, fmt, args);
    va_end(args);
    zp_status status = ZP_BAD_INPUT;
    if (wanted >= 0) status = reserve(b, (size_t)wanted, err);
    else status_fail(err, status, __FILE__, __LINE__, "text cannot be formatted with \"%s\"", fmt);
    if (status == ZP_OK) {
        (void)numtext_vprintf((char *)b->data + b->size, (size_t)wanted + 1, fmt, again);
        b->size += (size_t)wanted;
    }
    va_end(again);
    return status;
}

void buffer_clear(struct buffer *b)
{
    b->size = 0;
    if (b->data != NULL) b->data[0] = 0;
}

void buffer_free(struct buffer *b)
{
    mem_free(b->data);
    b->data = NULL;
    b->size = b->room = 0;
}

/* ---- cursor ---- */

struct cursor cursor_over(const void *data, size_t size, const char *name)
{
    return (struct cursor){ .data = data, .size = size, .at = 0, .name = name };
}

size_t cursor_left(const struct cursor *c)
{
    assert(c->at <= c->size); // B3
    return c->size - c->at;
}

bool cursor_match(struct cursor *c, const void *bytes, size_t size)
{
    if (size > cursor_left(c) || (size != 0 && memcmp(c->data + c->at, bytes, size) != 0))
        return false;
    c->at += size;
    return true;
}

zp_status cursor_view(struct cursor *c, size_t size, const uint8_t **out, const char *what,
                      zp_err *err)
{
    ZP_FAIL_IF(size > cursor_left(c), err, ZP_BAD_FILE,
               "%s: %s needs %zu bytes at offset %zu but only %zu are left: the file is cut short "
               "or damaged",
               c->name, what, size, c->at, cursor_left(c));
    *out = c->data == NULL ? (const uint8_t *)"" : c->data + c->at;
    c->at += size;
    return ZP_OK;
}

zp_status cursor_skip(struct cursor *c, size_t size, const char *what, zp_err *err)
{
    const uint8_t *ignored;
    return cursor_view(c, size, &ignored, what, err);
}

static zp_status read_little(struct cursor *c, size_t size, uint64_t *out, const char *what,
                             zp_err *err)
{
    const uint8_t *p;
    ZP_TRY(cursor_view(c, size, &p, what, err));
    uint64_t value = 0;
    for (size_t i = 0; i < size; i++) value |= (uint64_t)p[i] << 8 * i;
    *out = value;
    return ZP_OK;
}

zp_status cursor_u8(struct cursor *c, uint8_t *out, const char *what, zp_err *err)
{
    uint64_t value;
    ZP_TRY(read_little(c, 1, &value, what, err));
    *out = (uint8_t)value;
    return ZP_OK;
}

zp_status cursor_u16(struct cursor *c, uint16_t *out, const char *what, zp_err *err)
{
    uint64_t value;
    ZP_TRY(read_little(c, 2, &value, what, err));
    *out = (uint16_t)value;
    return ZP_OK;
}

zp_status cursor_u32(struct cursor *c, uint32_t *out, const char *what, zp_err *err)
{
    uint64_t value;
    ZP_TRY(read_little(c, 4, &value, what, err));
    *out = (uint32_t)value;
    return ZP_OK;
}

zp_status cursor_u64(struct cursor *c, uint64_t *out, const char *what, zp_err *err)
{
    return read_little(c, 8, out, what, err);
}

zp_status cursor_f32(struct cursor *c, float *out, const char *what, zp_err *err)
{
    uint32_t bits;
    ZP_TRY(cursor_u32(c, &bits, what, err));
    *out = f32_from_bits(bits);
    return ZP_OK;
}

zp_status cursor_f64(struct cursor *c, double *out, const char *what, zp_err *err)
{
    uint64_t bits;
    ZP_TRY(cursor_u64(c, &bits, what, err));
    memcpy(out, &bits, sizeof *out);
    return ZP_OK;
}

/* ---- UTF-8 ---- */

/* Length of the sequence a lead byte announces, 0 if it cannot lead; [*low, *high] bounds its
 * second byte
 * (Unicode 15, table 3-7: this excludes overlongs, surrogates and values past U+10FFFF). */
static size_t lead_length(uint8_t lead, uint8_t *low, uint8_t *high)
{
    *low = 0x80;
    *high = 0xbf;
    if (lead < 0x80) return 1;
    if (lead < 0xc2 || lead > 0xf4) return 0;
    if (lead < 0xe0) return 2;
    if (lead == 0xe0) *low = 0xa0;
    if (lead == 0xed) *high = 0x9f;
    if (lead == 0xf0) *low = 0x90;
    if (lead == 0xf4) *high = 0x8f;
    return lead < 0xf0 ? 3 : 4;
}

/* How many of the `left` bytes at p continue the character that p[0] leads (1..length), 0 if p[0]
 * leads none. */
static size_t matched_length(const uint8_t *p, size_t left, size_t *length)
{
    uint8_t low, high;
    *length = lead_length(p[0], &low, &high);
    if (*length == 0) return 0;
    size_t n = 1;
    while (n < *length && n < left && p[n] >= (n == 1 ? low : 0x80) &&
           p[n] <= (n == 1 ? high : 0xbf))
        n++;
    return n;
}

bool utf8_is_valid(const char *text, size_t size, size_t *bad)
{
    const uint8_t *p = (const uint8_t *)text;
    for (size_t at = 0, length; at < size; at += length) {
        if (matched_length(p + at, size - at, &length) == length && length != 0) continue;
        if (bad != NULL) *bad = at;
        return false;
    }
    return true;
}

size_t utf8_complete_prefix(const char *text, size_t size)
{
    const uint8_t *p = (const uint8_t *)text;
    for (size_t back = 1; back <= 3 && back <= size; back++) {
        uint8_t byte = p[size - back];
        if (byte >= 0x80 && byte < 0xc0) continue;
        size_t length, matched = matched_length(p + size - back, back, &length);
        /* Held back only if more bytes could still complete it; malformed bytes never get
         * better. */
        return matched == back && matched < length ? size - back : size;
    }
    return size;
}

/* ---- hashes ---- */

#define MIX 0x9e3779b97f4a7c15u

uint64_t hash_bytes(const void *data, size_t size, uint64_t seed)
{
    const uint8_t *p = data;
    uint64_t h = seed ^ (size * MIX);
    for (; size >= 8; p += 8, size -= 8) {
        uint64_t word = 0;
        for (unsigned i = 0; i < 8; i++) word |= (uint64_t)p[i] << 8 * i;
        h = (h ^ word) * MIX;
        h ^= h >> 29;
    }
    uint64_t tail = 0;
    for (size_t i = 0; i < size; i++) tail |= (uint64_t)p[i] << 8 * i;
    h = (h ^ tail) * MIX;
    h ^= h >> 32;
    h *= MIX;
    return h ^ h >> 29;
}

/* SHA-256, FIPS 180-4. */
static const uint32_t sha_k[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t turn_right(uint32_t x, unsigned n)
{
    return x >> n | x << (32 - n);
}

static void sha_block(uint32_t h[8], const uint8_t *p)
{
    uint32_t w[64];
    for (size_t i = 0; i < 16; i++)
        w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 |
               (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
    for (size_t i = 16; i < 64; i++) {
        uint32_t s0 = turn_right(w[i - 15], 7) ^ turn_right(w[i - 15], 18) ^ w[i - 15] >> 3;
        uint32_t s1 = turn_right(w[i - 2], 17) ^ turn_right(w[i - 2], 19) ^ w[i - 2] >> 10;
        w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    uint32_t a = h[0], b = h[1], c = h[2], d = h[3], e = h[4], f = h[5], g = h[6], last = h[7];
    for (size_t i = 0; i < 64; i++) {
        uint32_t s1 = turn_right(e, 6) ^ turn_right(e, 11) ^ turn_right(e, 25);
        uint32_t t1 = last + s1 + ((e & f) ^ (~e & g)) + sha_k[i] + w[i];
        uint32_t s0 = turn_right(a, 2) ^ turn_right(a, 13) ^ turn_right(a, 22);
        uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
        last = g;
        g = f;
        f = e;
        e = d + t1;
        d = c;
        c = b;
        b = a;
        a = t1 + t2;
    }
    const uint32_t sum[8] = { a, b, c, d, e, f, g, last };
    for (size_t i = 0; i < 8; i++) h[i] += sum[i];
}

void sha256_init(struct sha256 *s)
{
    *s = (struct sha256){ .h = { 0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f,
                                 0x9b05688c, 0x1f83d9ab, 0x5be0cd19 } };
}

void sha256_update(struct sha256 *s, const void *data, size_t size)
{
    const uint8_t *p = data;
    size_t used = (size_t)(s->length % 64);
    s->length += size;
    while (size != 0) {
        if (used == 0 && size >= 64) {
            sha_block(s->h, p);
            p += 64;
            size -= 64;
            continue;
        }
        size_t take = 64 - used < size ? 64 - used : size;
        memcpy(s->block + used, p, take);
        used = (used + take) % 64;
        p += take;
        size -= take;
        if (used == 0) sha_block(s->h, s->block);
    }
}

void sha256_final(struct sha256 *s, char hex[65])
{
    static const uint8_t padding[64] = { 0x80 };
    static const char digits[] = "0123456789abcdef";
    uint64_t bits = s->length * 8;
    size_t used = (size_t)(s->length % 64);
    sha256_update(s, padding, used < 56 ? 56 - used : 120 - used);
    uint8_t tail[8];
    for (unsigned i = 0; i < 8; i++) tail[i] = (uint8_t)(bits >> (56 - 8 * i));
    sha256_update(s, tail, sizeof tail);
    for (unsigned i = 0; i < 64; i++) hex[i] = digits[s->h[i / 8] >> (28 - 4 * (i % 8)) & 15u];
    hex[64] = '\0';
}
