/* textstream.c: two hold-backs in a row: bytes until they are characters, characters until no stop
 * string can begin among them. Both are short, so plain scans do. */
#include "model/textstream.h"
#include <string.h>
#include "base/mem.h"

#define MAX_HELD ((size_t)64 << 20)
#define REPLACEMENT "\xEF\xBF\xBD"

zp_status textstream_init(struct textstream *s, const struct tokenizer *t, unsigned flags,
                          const char *const *stops, size_t n_stops, zp_err *err)
{
    *s = (struct textstream){ .tokenizer = t, .flags = flags };
    s->bytes = buffer_with_max(MEM_SCRATCH, MAX_HELD);
    s->held = buffer_with_max(MEM_SCRATCH, MAX_HELD);
    s->stops = buffer_with_max(MEM_SCRATCH, TEXTSTREAM_MAX_STOPS * TEXTSTREAM_MAX_STOP_SIZE);
    ZP_FAIL_IF(n_stops > TEXTSTREAM_MAX_STOPS, err, ZP_USAGE, "%zu stop strings; at most %d",
               n_stops, TEXTSTREAM_MAX_STOPS);
    for (size_t i = 0; i < n_stops; i++) {
        size_t size = strlen(stops[i]), bad;
        ZP_FAIL_IF(size == 0 || size > TEXTSTREAM_MAX_STOP_SIZE, err, ZP_BAD_INPUT,
                   "stop string %zu has %zu bytes (expected 1 to %d)", i + 1, size,
                   TEXTSTREAM_MAX_STOP_SIZE);
        ZP_FAIL_IF(!utf8_is_valid(stops[i], size, &bad), err, ZP_BAD_INPUT,
                   "stop string %zu is not UTF-8 at offset %zu", i + 1, bad);
        ZP_TRY(buffer_append(&s->stops, stops[i], size, err));
        s->stop_ends[s->n_stops++] = s->stops.size;
    }
    return ZP_OK;
}

void textstream_free(struct textstream *s)
{
    buffer_free(&s->bytes);
    buffer_free(&s->held);
    buffer_free(&s->stops);
    s->n_stops = 0;
}

/* Bytes a character with this lead byte has; 0: no character begins so. */
static size_t lead_size(uint8_t lead)
{
    if (lead < 0x80) return 1;
    if (lead < 0xC2 || lead > 0xF4) return 0;
    return lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

/* The second byte's range depends on the first: no overlong forms, no surrogates, no
 * more than U+10FFFF. */
static bool may_follow(uint8_t lead, size_t index, uint8_t byte)
{
    uint8_t low = 0x80, high = 0xBF;
    if (index == 1) {
        low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
        high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    }
    return byte >= low && byte <= high;
}

static void drop_front(struct buffer *b, size_t size)
{
    if (size == 0) return;
    memmove(b->data, b->data + size, b->size - size + 1); /* with the NUL */
    b->size -= size;
}

/* Moves whole characters from bytes to held; what can never be one becomes U+FFFD (one for each
 * maximal part, as the Unicode standard advises). */
static zp_status take_characters(struct textstream *s, bool at_end, zp_err *err)
{
    size_t at = 0;
    while (at < s->bytes.size) {
        const uint8_t *text = s->bytes.data + at;
        size_t left = s->bytes.size - at, size = lead_size(text[0]), n = 1;
        while (n < size && n < left && may_follow(text[0], n, text[n])) n++;
        if (n < size && n == left && !at_end) break; /* the rest may still come */
        if (n == size) ZP_TRY(buffer_append(&s->held, text, size, err));
        else ZP_TRY(buffer_append_text(&s->held, REPLACEMENT, err));
        at += n;
    }
    drop_front(&s->bytes, at);
    return ZP_OK;
}

static const uint8_t *stop_text(const struct textstream *s, size_t i, size_t *size)
{
    size_t begin = i == 0 ? 0 : s->stop_ends[i - 1];
    *size = s->stop_ends[i] - begin;
    return s->stops.data + begin;
}

/* First place where the held text has a stop string (*whole) or, unless at the end, ends with the
 * beginning of one. Returns held.size if there is none. */
static size_t find_stop(struct textstream *s, bool at_end, bool *whole)
{
    *whole = false;
    for (size_t at = 0; at < s->held.size; at++) {
        size_t left = s->held.size - at;
        bool partial = false;
        for (size_t i = 0; i < s->n_stops; i++) {
            size_t size;
            const uint8_t *stop = stop_text(s, i, &size);
            if (memcmp(s->held.data + at, stop, size < left ? size : left) != 0) continue;
            *whole = size <= left;
            s->stop_index = i;
            if (*whole) return at;
            partial = !at_end;
        }
        if (partial) return at;
    }
    return s->held.size;
}

static zp_status release(struct textstream *s, bool at_end, struct buffer *out, zp_err *err)
{
    bool whole;
    size_t size = find_stop(s, at_end, &whole);
    ZP_TRY(buffer_append(out, s->held.data, size, err));
    drop_front(&s->held, size);
    if (whole) {
        s->stopped = true;
        buffer_clear(&s->held);
        buffer_clear(&s->bytes);
    }
    return ZP_OK;
}

zp_status textstream_push(struct textstream *s, int32_t id, struct buffer *out, bool *stopped,
                          zp_err *err)
{
    *stopped = s->stopped;
    if (s->stopped) return ZP_OK;
    size_t before = s->bytes.size;
    unsigned flags = s->started ? s->flags | DETOKENIZE_CONTINUES : s->flags;
    ZP_TRY(tokenizer_decode(s->tokenizer, &id, 1, flags, &s->bytes, err));
    s->started |= s->bytes.size > before;
    ZP_TRY(take_characters(s, false, err));
    ZP_TRY(release(s, false, out, err));
    *stopped = s->stopped;
    return ZP_OK;
}

zp_status textstream_flush(struct textstream *s, struct buffer *out, zp_err *err)
{
    if (s->stopped) return ZP_OK;
    ZP_TRY(take_characters(s, true, err));
    return release(s, true, out, err);
}
