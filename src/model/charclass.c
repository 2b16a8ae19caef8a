/* charclass.c: sets of characters, and their bytes. */
#include "model/charclass.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool charclass_add(struct charclass *c, uint32_t low, uint32_t high)
{
    if (c->n == CHARCLASS_MAX) charclass_sort(c); /* may join some */
    if (c->n == CHARCLASS_MAX) return false;
    c->ranges[c->n++] = (struct char_range){ low, high };
    return true;
}

static int compare_ranges(const void *a, const void *b)
{
    const struct char_range *x = a, *y = b;
    return (x->low > y->low) - (x->low < y->low);
}

void charclass_sort(struct charclass *c)
{
    uint32_t n = 0;
    if (c->n > 1) qsort(c->ranges, c->n, sizeof *c->ranges, compare_ranges);
    for (uint32_t i = 0; i < c->n; i++) {
        struct char_range r = c->ranges[i], *last = n ? &c->ranges[n - 1] : NULL;
        if (r.low > r.high) continue;
        if (last && r.low <= last->high + 1) last->high = r.high > last->high ? r.high : last->high;
        else c->ranges[n++] = r;
    }
    c->n = n;
}

bool charclass_invert(struct charclass *c)
{
    struct charclass out = { .n = 0 };
    uint32_t low = 0;
    for (uint32_t i = 0; i < c->n; i++) {
        struct char_range r = c->ranges[i];
        if (low < r.low && !charclass_add(&out, low, r.low - 1)) return false;
        low = r.high + 1;
    }
    if (low <= CHARCLASS_LAST && !charclass_add(&out, low, CHARCLASS_LAST)) return false;
    *c = out;
    return true;
}

/* ---- bytes ---------------------------------------------------------------------------------- */

size_t charclass_utf8_text(uint32_t c, char out[8])
{
    static const uint8_t lead[] = { 0, 0, 0xC0, 0xE0, 0xF0 };
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    out[n] = '\0';
    for (size_t i = n; i-- > 1; c >>= 6) out[i] = (char)(0x80 | (c & 0x3F));
    out[0] = (char)(lead[n] | c);
    return n;
}

uint32_t charclass_read(const char *text, size_t *size)
{
    const uint8_t *s = (const uint8_t *)text;
    *size = s[0] < 0x80 ? 1 : s[0] < 0xE0 ? 2 : s[0] < 0xF0 ? 3 : 4;
    if (*size == 1) return s[0];
    uint32_t c = s[0] & (0x7Fu >> *size);
    for (size_t i = 1; i < *size; i++) c = c << 6 | (s[i] & 0x3Fu);
    return c;
}

size_t charclass_json_text(uint32_t c, char out[8])
{
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    const char *found = c != 0 && c < 0x80 ? strchr(from, (int)c) : NULL;
    if (found) return (size_t)snprintf(out, 8, "\\%c", to[found - from]);
    if (c < 0x20) return (size_t)snprintf(out, 8, "\\u%04x", (unsigned)c);
    return charclass_utf8_text(c, out);
}

/* Characters low..high, whose n bytes from one place on are these; those before are the same in all
 * of them. Cut such that the last bytes of each piece run through all their values, or its first
 * byte is a single one. */
static uint32_t byte_runs(struct grammar *g, const uint8_t *low, const uint8_t *high, size_t n,
                          uint32_t next)
{
    static const uint8_t least[] = { 0x80, 0x80, 0x80 }, most[] = { 0xBF, 0xBF, 0xBF };
    uint8_t first = low[0], last = high[0];
    uint32_t node = GRAMMAR_NEVER;
    if (n == 1) return grammar_bytes(g, first, last, next);
    if (first == last)
        return grammar_bytes(g, first, first, byte_runs(g, low + 1, high + 1, n - 1, next));
    if (memcmp(low + 1, least, n - 1) != 0) {
        node = grammar_bytes(g, first, first, byte_runs(g, low + 1, most, n - 1, next));
        first++;
    }
    if (memcmp(high + 1, most, n - 1) != 0) {
        uint32_t tail = byte_runs(g, least, high + 1, n - 1, next);
        node = grammar_either(g, node, grammar_bytes(g, last, last, tail));
        last--;
    }
    if (first > last) return node;
    for (size_t i = 1; i < n; i++) next = grammar_bytes(g, 0x80, 0xBF, next);
    return grammar_either(g, node, grammar_bytes(g, first, last, next));
}

static uint32_t utf8_range(struct grammar *g, uint32_t low, uint32_t high, uint32_t next)
{
    static const uint32_t ends[] = { 0x7F, 0x7FF, 0xD7FF, 0xDFFF, 0xFFFF, CHARCLASS_LAST };
    uint32_t node = GRAMMAR_NEVER;
    for (size_t i = 0; i < ZP_COUNT(ends) && low <= high; i++) {
        uint32_t end = high < ends[i] ? high : ends[i];
        char a[8], b[8];
        if (low > end) continue;
        size_t n = charclass_utf8_text(low, a);
        charclass_utf8_text(end, b);
        if (ends[i] != 0xDFFF) /* surrogates */
            node = grammar_either(
                g, node, byte_runs(g, (const uint8_t *)a, (const uint8_t *)b, n, next));
        low = end + 1;
    }
    return node;
}

uint32_t charclass_utf8(struct grammar *g, struct charclass *c, uint32_t next)
{
    uint32_t node = GRAMMAR_NEVER;
    charclass_sort(c);
    for (uint32_t i = c->n; i-- > 0;)
        node = grammar_either(g, utf8_range(g, c->ranges[i].low, c->ranges[i].high, next), node);
    return node;
}

/* What a JSON string may hold as it is of the range. */
static uint32_t plain_range(struct grammar *g, uint32_t low, uint32_t high, uint32_t next)
{
    static const struct char_range plain[] = { { 0x20, '"' - 1 }, { '"' + 1, '\\' - 1 },
                                               { '\\' + 1, CHARCLASS_LAST } };
    uint32_t node = GRAMMAR_NEVER;
    for (size_t i = 0; i < ZP_COUNT(plain); i++) {
        uint32_t from = low > plain[i].low ? low : plain[i].low;
        uint32_t to = high < plain[i].high ? high : plain[i].high;
        if (from <= to) node = grammar_either(g, node, utf8_range(g, from, to, next));
    }
    return node;
}

uint32_t charclass_json(struct grammar *g, struct charclass *c, uint32_t next)
{
    struct grammar_word words[34];
    char texts[34][8];
    size_t n = 0;
    uint32_t node = GRAMMAR_NEVER;
    charclass_sort(c);
    for (uint32_t i = 0; i < c->n; i++) {
        struct char_range r = c->ranges[i];
        node = grammar_either(g, node, plain_range(g, r.low, r.high, next));
        for (uint32_t ch = r.low ? r.low : 1; ch <= r.high && ch <= '\\'; ch++) {
            if (ch >= 0x20 && ch != '"' && ch != '\\') continue;
            size_t size = charclass_json_text(ch, texts[n]);
            words[n] = (struct grammar_word){ (const uint8_t *)texts[n], size };
            n++;
        }
    }
    return grammar_either(g, node, grammar_words(g, words, n, next));
}
