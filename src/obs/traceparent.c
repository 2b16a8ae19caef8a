/* traceparent.c: the header of W3C Trace Context, read and written, and new ids.
 * P1 what was read can be written, and reads the same.  P2 ids are never all zero. */
#include "traceparent.h"

#include <string.h>

/* Places of the fields, and of what stands between them. */
enum { AT_TRACE = 3, AT_SPAN = 36, AT_FLAGS = 53, SIZE = 55 };

/* n bytes of lower-case hex; false for anything else. */
static bool read_hex(const char *text, size_t n, uint8_t *out)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < 2 * n; i++) {
        const char *digit = memchr(digits, text[i], 16);
        if (digit == NULL) return false;
        int value = (int)(digit - digits);
        out[i / 2] = (uint8_t)(i % 2 == 0 ? value << 4 : out[i / 2] | value);
    }
    return true;
}

void traceparent_hex(const uint8_t *bytes, size_t n, char *out)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < 2 * n; i++) out[i] = digits[bytes[i / 2] >> (i % 2 == 0 ? 4 : 0) & 15];
}

static bool is_zero(const uint8_t *bytes, size_t n)
{
    while (n != 0 && bytes[n - 1] == 0) n--;
    return n == 0;
}

bool traceparent_read(const char *header, struct traceparent *out)
{
    struct traceparent t;
    uint8_t version, flags;
    if (header == NULL || strnlen(header, SIZE) < SIZE) return false;
    if (!read_hex(header, 1, &version) || version == 0xff) return false;
    if (header[SIZE] != '\0' && (version == 0 || header[SIZE] != '-')) return false;
    if (header[AT_TRACE - 1] != '-' || header[AT_SPAN - 1] != '-' || header[AT_FLAGS - 1] != '-')
        return false;
    if (!read_hex(header + AT_TRACE, sizeof t.trace, t.trace) ||
        !read_hex(header + AT_SPAN, sizeof t.span, t.span) ||
        !read_hex(header + AT_FLAGS, 1, &flags))
        return false;
    if (is_zero(t.trace, sizeof t.trace) || is_zero(t.span, sizeof t.span)) return false; // P2
    t.sampled = (flags & 1) != 0;
    *out = t;
    return true;
}

void traceparent_write(const struct traceparent *t, char out[TRACEPARENT_ROOM])
{
    memcpy(out, "00-", AT_TRACE);
    traceparent_hex(t->trace, sizeof t->trace, out + AT_TRACE);
    out[AT_SPAN - 1] = '-';
    traceparent_hex(t->span, sizeof t->span, out + AT_SPAN);
    memcpy(out + AT_FLAGS - 1, t->sampled ? "-01" : "-00", 4);
}

static void draw(struct rng *random, uint8_t *out, size_t n)
{
    do {
        for (size_t i = 0; i < n; i++) out[i] = (uint8_t)rng_u32(random);
    } while (is_zero(out, n)); // P2
}

/* By the last 7 bytes, which level 2 asks to be random. */
static bool is_in_share(const uint8_t trace[16], double share)
{
    uint64_t x = 0;
    for (size_t i = 9; i < 16; i++) x = x << 8 | trace[i];
    return (double)x < share * 0x1p56;
}

struct traceparent traceparent_new(struct rng *random, double share)
{
    struct traceparent t;
    draw(random, t.trace, sizeof t.trace);
    draw(random, t.span, sizeof t.span);
    t.sampled = is_in_share(t.trace, share);
    return t;
}

struct traceparent traceparent_child(const struct traceparent *parent, struct rng *random)
{
    struct traceparent t = *parent;
    draw(random, t.span, sizeof t.span);
    return t;
}
