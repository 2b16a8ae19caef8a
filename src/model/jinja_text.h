/* jinja_text.h: strings of a chat template: UTF-8 with the origin of every byte, and builders. */
#ifndef MODEL_JINJA_TEXT_H
#define MODEL_JINJA_TEXT_H

#include "model/jinja_char.h"
#include "model/jinja_value.h"

struct jblock {
    char *data;
    uint8_t *marks;
    size_t used, room;
    enum jorigin origin;
};

/* A string under construction. Zero-initialise with the context set. */
struct jtext {
    struct jinja *c;
    struct jblock *block;
};
/* marks: (size) origins, only when origin is ORIGIN_MIXED. */
zp_status jtext_append(struct jtext *t, const char *data, size_t size, enum jorigin origin,
                       const uint8_t *marks);
zp_status jtext_append_str(struct jtext *t, const struct jstr *s);
zp_status jtext_append_slice(struct jtext *t, const struct jstr *s, size_t at, size_t size);
zp_status jtext_append_ascii(struct jtext *t, const char *text); /* origin template */
zp_status jtext_append_char(struct jtext *t, uint32_t cp, enum jorigin origin);
ZP_INLINE size_t jtext_size(const struct jtext *t)
{
    return t->block ? t->block->used : 0;
}
zp_status jtext_finish(struct jtext *t, struct jv *out);

zp_status jstr_new(struct jinja *c, const char *data, size_t size, enum jorigin origin,
                   const struct jstr **out);
zp_status jstr_value(struct jinja *c, const char *text,
                     struct jv *out); /* copied, origin template */
/* Bytes [at, at + size), sharing the memory. */
zp_status jstr_slice(struct jinja *c, const struct jstr *s, size_t at, size_t size, struct jv *out);
zp_status jstr_concat(struct jinja *c, const struct jstr *a, const struct jstr *b, struct jv *out);
ZP_INLINE enum jorigin jstr_origin_at(const struct jstr *s, size_t at)
{
    return s->origin == ORIGIN_MIXED ? (enum jorigin)s->marks[at] : s->origin;
}
bool jstr_is(const struct jstr *s, const char *text);
bool jstr_equal(const struct jstr *a, const struct jstr *b);
bool jstr_starts(const struct jstr *s, size_t at, const struct jstr *with);
/* First byte offset of needle at or after `from`; last one that ends at or before `end`. SIZE_MAX
 * if absent. */
size_t jstr_find(const struct jstr *s, const struct jstr *needle, size_t from);
zp_status jstr_find_last(struct jinja *c, const struct jstr *s, const struct jstr *needle,
                         size_t end, size_t *at);
size_t jstr_chars(const struct jstr *s); /* code points */
size_t jstr_byte_of(const struct jstr *s,
                    size_t char_index); /* offset of a character; size at the end */
uint32_t jstr_char_at(const struct jstr *s, size_t at, size_t *size);
uint32_t jstr_char_before(const struct jstr *s, size_t at, size_t *size);

/* Appends the full case mapping of the character at byte `at`, keeping its origin; *size = its
 * bytes in s. */
zp_status jtext_append_cased(struct jtext *t, const struct jstr *s, size_t at, enum jchar_case to,
                             size_t *size);
zp_status jstr_to_case(struct jinja *c, const struct jstr *s, enum jchar_case to, struct jv *out);

/* Takes characters off the ends: chars = NULL for Python's white space, else any of these
 * characters. */
enum jstrip_side { STRIP_LEFT = 1, STRIP_RIGHT = 2, STRIP_BOTH = 3 };
zp_status jstr_strip(struct jinja *c, const struct jstr *s, const struct jstr *chars,
                     enum jstrip_side side, struct jv *out);

#endif
