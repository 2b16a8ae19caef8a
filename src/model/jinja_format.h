/* jinja_format.h: Python's '%' formatting and str.format for template values. */
#ifndef MODEL_JINJA_FORMAT_H
#define MODEL_JINJA_FORMAT_H

#include "model/jinja_value.h"

/* args: a tuple for several values, a dictionary for %(name)s, else the one value. */
zp_status jinja_percent_format(struct jinja *c, const struct jstr *format, struct jv args,
                               struct jv *out);
zp_status jinja_brace_format(struct jinja *c, const struct jstr *format, const struct jargs *args,
                             struct jv *out);

#endif
