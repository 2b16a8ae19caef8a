/* jinja_filter_text.h: filters that make texts and numbers. The table is jinja_text_filters of
 * jinja_builtin.h. */
#ifndef MODEL_JINJA_FILTER_TEXT_H
#define MODEL_JINJA_FILTER_TEXT_H

#include "model/jinja_builtin.h"
#include "model/jinja_text.h"

/* Shared with the methods of strings. */
zp_status jstr_capitalize(struct jinja *c, const struct jstr *s, struct jv *out);
/* limit < 0: all */
zp_status jstr_replace(struct jinja *c, const struct jstr *s, const struct jstr *from,
                       const struct jstr *to, int64_t limit, struct jv *out);
/* str.center: pads with spaces to a width in characters. */
zp_status jstr_pad(struct jinja *c, const struct jstr *s, int64_t left, int64_t right,
                   const struct jstr *fill, struct jv *out);
zp_status jstr_center(struct jinja *c, const struct jstr *s, int64_t width, const struct jstr *fill,
                      struct jv *out);
/* End of the line that begins at `at`, and the start of the next one (str.splitlines). */
size_t jstr_line_end(const struct jstr *s, size_t at, size_t *next);
/* int(text, base) and float(text): false when Python would raise ValueError. */
bool jstr_to_int(const struct jstr *s, int base, int64_t *out, bool *overflow);
bool jstr_to_float(const struct jstr *s, double *out);

#endif
