/* jinja_text.c: strings of a chat template: UTF-8 with the origin of every byte, and builders.
 * The origin travels with the bytes through slices, case mapping and concatenation, so that the
 * tokenizer never takes user text for a special token. Most strings have one origin; only mixed
 * ones carry a mark for each byte.
 * T1 a block has marks exactly when its origin is ORIGIN_MIXED.  T2 used <= room. */
#include "model/jinja_text.h"

#include <assert.h>
#include <string.h>

#define BLOCK_MIN 64

static zp_status grow_block(struct jinja *c, struct jblock *b, size_t size)
{
    J_FAIL_IF(size > c->max_text || b->used > c->max_text - size, c,
              "the template makes a text of more than %zu bytes", c->max_text);
    size_t need = b->used + size;
    if (need <= b->room) return ZP_OK;
    size_t room = need + need / 2 + BLOCK_MIN;
    char *data;
    uint8_t *marks = NULL;
    J_NEW(data, c, room);
    if (b->marks != NULL) J_NEW(marks, c, room);
    if (b->used != 0) memcpy(data, b->data, b->used);
    if (b->used != 0 && marks != NULL) memcpy(marks, b->marks, b->used);
    b->data = data;
    b->marks = marks;
    b->room = room;
    return ZP_OK;
}

/* Makes the block able to hold bytes of another origin. */
static zp_status mix_block(struct jinja *c, struct jblock *b)
{
    if (b->origin == ORIGIN_MIXED) return ZP_OK;
    J_NEW(b->marks, c, b->room);
    memset(b->marks, b->origin, b->used);
    b->origin = ORIGIN_MIXED;
    return ZP_OK;
}

static zp_status append_to_block(struct jinja *c, struct jblock *b, const char *data, size_t size,
                                 enum jorigin origin, const uint8_t *marks)
{
    if (size == 0) return ZP_OK;
    ZP_TRY(grow_block(c, b, size));
    if (b->used == 0 && origin != ORIGIN_MIXED && b->origin != ORIGIN_MIXED) b->origin = origin;
    if (origin != b->origin) ZP_TRY(mix_block(c, b));
    memcpy(b->data + b->used, data, size);
    if (b->origin == ORIGIN_MIXED) {
        assert(b->marks != NULL); // T1
        if (marks != NULL) memcpy(b->marks + b->used, marks, size);
        else memset(b->marks + b->used, origin, size);
    }
    b->used += size;
    assert(b->used <= b->room); // T2
    return ZP_OK;
}

zp_status jtext_append(struct jtext *t, const char *data, size_t size, enum jorigin origin,
                       const uint8_t *marks)
{
    if (t->block == NULL) J_NEW(t->block, t->c, 1);
    return append_to_block(t->c, t->block, data, size, origin, marks);
}

zp_status jtext_append_str(struct jtext *t, const struct jstr *s)
{
    return jtext_append(t, s->data, s->size, s->origin, s->marks);
}

zp_status jtext_append_slice(struct jtext *t, const struct jstr *s, size_t at, size_t size)
{
    assert(at <= s->size && size <= s->size - at);
    return jtext_append(t, s->data + at, size, s->origin, s->marks ? s->marks + at : NULL);
}

zp_status jtext_append_ascii(struct jtext *t, const char *text)
{
    return jtext_append(t, text, strlen(text), ORIGIN_TEMPLATE, NULL);
}

zp_status jtext_append_char(struct jtext *t, uint32_t cp, enum jorigin origin)
{
    char bytes[4];
    return jtext_append(t, bytes, jchar_encode(cp, bytes), origin, NULL);
}

static zp_status string_of_block(struct jinja *c, struct jblock *b, struct jv *out)
{
    struct jstr *s;
    J_NEW(s, c, 1);
    s->data = b->data ? b->data : "";
    s->size = b->used;
    s->n_char = SIZE_MAX;
    s->origin = b->origin;
    s->marks = b->marks;
    s->block = b;
    *out = jv_str(s);
    return ZP_OK;
}

zp_status jtext_finish(struct jtext *t, struct jv *out)
{
    if (t->block == NULL) J_NEW(t->block, t->c, 1);
    return string_of_block(t->c, t->block, out);
}

zp_status jstr_new(struct jinja *c, const char *data, size_t size, enum jorigin origin,
                   const struct jstr **out)
{
    struct jstr *s;
    J_NEW(s, c, 1);
    *s = (struct jstr){ .data = data, .size = size, .n_char = SIZE_MAX, .origin = origin };
    *out = s;
    return ZP_OK;
}

zp_status jstr_value(struct jinja *c, const char *text, struct jv *out)
{
    struct jtext t = { .c = c };
    ZP_TRY(jtext_append_ascii(&t, text));
    return jtext_finish(&t, out);
}

zp_status jstr_slice(struct jinja *c, const struct jstr *s, size_t at, size_t size, struct jv *out)
{
    assert(at <= s->size && size <= s->size - at);
    if (size == s->size) {
        *out = jv_str(s);
        return ZP_OK;
    }
    struct jstr *part;
    J_NEW(part, c, 1);
    *part = (struct jstr){
        .data = s->data + at, .size = size, .n_char = SIZE_MAX, .origin = s->origin
    };
    if (s->marks != NULL) part->marks = s->marks + at;
    *out = jv_str(part);
    return ZP_OK;
}

/* Appends in place when a is the whole of its block, so that a text built piece by piece costs its
 * length once. */
zp_status jstr_concat(struct jinja *c, const struct jstr *a, const struct jstr *b, struct jv *out)
{
    if (a->size == 0 || b->size == 0) {
        *out = jv_str(a->size == 0 ? b : a);
        return ZP_OK;
    }
    struct jblock *block = a->block;
    bool whole = block != NULL && block->data == a->data && block->used == a->size;
    if (!whole) {
        J_NEW(block, c, 1);
        ZP_TRY(append_to_block(c, block, a->data, a->size, a->origin, a->marks));
    }
    /* b may lie in the same block (x ~ x): its bytes stay where they are when the block moves (V1).
     */
    ZP_TRY(append_to_block(c, block, b->data, b->size, b->origin, b->marks));
    return string_of_block(c, block, out);
}

bool jstr_is(const struct jstr *s, const char *text)
{
    return strlen(text) == s->size && memcmp(s->data, text, s->size) == 0;
}

bool jstr_equal(const struct jstr *a, const struct jstr *b)
{
    return a->size == b->size && memcmp(a->data, b->data, a->size) == 0;
}

bool jstr_starts(const struct jstr *s, size_t at, const struct jstr *with)
{
    return at <= s->size && with->size <= s->size - at &&
           memcmp(s->data + at, with->data, with->size) == 0;
}

size_t jstr_find(const struct jstr *s, const struct jstr *needle, size_t from)
{
    if (from > s->size || needle->size > s->size - from) return SIZE_MAX;
    if (needle->size == 0) return from;
    const char *hit = memmem(s->data + from, s->size - from, needle->data, needle->size);
    return hit == NULL ? SIZE_MAX : (size_t)(hit - s->data);
}

/* The C library searches forwards only. Quadratic at worst, so it pays as it goes. */
zp_status jstr_find_last(struct jinja *c, const struct jstr *s, const struct jstr *needle,
                         size_t end, size_t *at)
{
    if (end > s->size) end = s->size;
    *at = SIZE_MAX;
    if (needle->size > end) return ZP_OK;
    for (size_t i = end - needle->size + 1, n = 0; i-- > 0; n++) {
        if (n % 256 == 255) ZP_TRY(jinja_step(c, 1 + needle->size / 16));
        if (memcmp(s->data + i, needle->data, needle->size) != 0) continue;
        *at = i;
        return ZP_OK;
    }
    return ZP_OK;
}

/* The count is not stored: constants of a template are shared by threads (V3). */
size_t jstr_chars(const struct jstr *s)
{
    return s->n_char != SIZE_MAX ? s->n_char : jchar_count(s->data, s->size);
}

size_t jstr_byte_of(const struct jstr *s, size_t char_index)
{
    if (s->n_char == s->size) return char_index < s->size ? char_index : s->size;
    size_t at = 0;
    while (at < s->size) {
        if (((uint8_t)s->data[at] & 0xC0) != 0x80 && char_index-- == 0) return at;
        at++;
    }
    return s->size;
}

uint32_t jstr_char_at(const struct jstr *s, size_t at, size_t *size)
{
    uint32_t cp;
    *size = jchar_decode(s->data + at, s->data + s->size, &cp);
    return cp;
}

uint32_t jstr_char_before(const struct jstr *s, size_t at, size_t *size)
{
    size_t start = at - 1;
    while (start > 0 && ((uint8_t)s->data[start] & 0xC0) == 0x80) start--;
    uint32_t cp;
    *size = at - start;
    jchar_decode(s->data + start, s->data + at, &cp);
    return cp;
}

/* Capital sigma becomes final sigma after a cased letter when none follows; case-ignorable
 * characters are skipped. */
static bool is_final_sigma(const struct jstr *s, size_t at)
{
    size_t size;
    bool cased_before = false, cased_after = false;
    for (size_t i = at; i > 0 && !cased_before;) {
        uint32_t cp = jstr_char_before(s, i, &size);
        if (!jchar_is_case_ignorable(cp)) {
            cased_before = jchar_is_upper(cp) || jchar_is_lower(cp) || jchar_is_title(cp);
            break;
        }
        i -= size;
    }
    if (!cased_before) return false;
    for (size_t i = at + 2; i < s->size && !cased_after; i += size) {
        uint32_t cp = jstr_char_at(s, i, &size);
        if (!jchar_is_case_ignorable(cp)) {
            cased_after = jchar_is_upper(cp) || jchar_is_lower(cp) || jchar_is_title(cp);
            break;
        }
    }
    return !cased_after;
}

zp_status jtext_append_cased(struct jtext *t, const struct jstr *s, size_t at, enum jchar_case to,
                             size_t *size)
{
    enum jorigin origin = jstr_origin_at(s, at);
    uint32_t cp = jstr_char_at(s, at, size), mapped[3];
    size_t n = jchar_map_case(cp, to, mapped);
    if (cp == 0x3A3 && to == CASE_LOWER && is_final_sigma(s, at)) mapped[0] = 0x3C2;
    for (size_t i = 0; i < n; i++) ZP_TRY(jtext_append_char(t, mapped[i], origin));
    return ZP_OK;
}

zp_status jstr_to_case(struct jinja *c, const struct jstr *s, enum jchar_case to, struct jv *out)
{
    struct jtext t = { .c = c };
    size_t size;
    for (size_t at = 0; at < s->size; at += size) ZP_TRY(jtext_append_cased(&t, s, at, to, &size));
    return jtext_finish(&t, out);
}

static bool strips(uint32_t cp, const char *bytes, size_t size, const struct jstr *chars)
{
    if (chars == NULL) return jchar_is_space(cp);
    if (size > chars->size) return false;
    const char *hit = memmem(chars->data, chars->size, bytes, size);
    return hit != NULL;
}

zp_status jstr_strip(struct jinja *c, const struct jstr *s, const struct jstr *chars,
                     enum jstrip_side side, struct jv *out)
{
    size_t begin = 0, end = s->size, size;
    while ((side & STRIP_LEFT) && begin < end) {
        uint32_t cp = jstr_char_at(s, begin, &size);
        if (!strips(cp, s->data + begin, size, chars)) break;
        if (chars != NULL) ZP_TRY(jinja_scan(c, chars->size));
        begin += size;
    }
    while ((side & STRIP_RIGHT) && begin < end) {
        uint32_t cp = jstr_char_before(s, end, &size);
        if (!strips(cp, s->data + end - size, size, chars)) break;
        if (chars != NULL) ZP_TRY(jinja_scan(c, chars->size));
        end -= size;
    }
    return jstr_slice(c, s, begin, end - begin, out);
}
