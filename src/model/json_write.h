/* json_write.h: jansson values as text in a buffer. */
#ifndef MODEL_JSON_WRITE_H
#define MODEL_JSON_WRITE_H

#include <jansson.h>
#include "base/bytes.h"

/* Values that jansson would refuse: text that is not UTF-8 gets U+FFFD in place of the bad bytes
 * (paths are such texts), a number that is not finite becomes null. NULL: no memory. */
json_t *json_of_text(const char *text);
json_t *json_of_real(double x);

/* Appends the text; flags: jansson's (JSON_COMPACT, JSON_INDENT(2), ...). */
zp_status json_write_text(const json_t *value, size_t flags, struct buffer *out, zp_err *err);

#endif
