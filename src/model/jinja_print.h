/* jinja_print.h: values of a chat template as text: Python's str() and repr(), and json.dumps. */
#ifndef MODEL_JINJA_PRINT_H
#define MODEL_JINJA_PRINT_H

#include "model/jinja_text.h"

zp_status jtext_append_value(struct jtext *t, struct jv v); /* str(v); undefined is empty */
zp_status jtext_append_repr(struct jtext *t, struct jv v);
zp_status jv_to_str(struct jinja *c, struct jv v,
                    const struct jstr **out); /* strings as they are */

/* Shortest digits that read back as the same number, laid out as Python's repr(float). */
#define FLOAT_TEXT_SIZE 48
void jinja_float_text(double f, char out[FLOAT_TEXT_SIZE]);

/* json.dumps with Hugging Face's defaults: not escaped for HTML, non-ASCII kept. */
struct jjson_style {
    bool ensure_ascii, sort_keys;
    const struct jstr *indent;                         /* NULL: one line */
    const struct jstr *item_separator, *key_separator; /* NULL: Python's defaults */
};
zp_status jv_to_json(struct jinja *c, struct jv v, const struct jjson_style *style, struct jv *out);

#endif
