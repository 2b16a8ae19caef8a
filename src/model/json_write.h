/* json_write.h: jansson values as text in a buffer. */
#ifndef MODEL_JSON_WRITE_H
#define MODEL_JSON_WRITE_H

#include <jansson.h>
#include "base/bytes.h"

/* Appends the text; flags: jansson's (JSON_COMPACT, JSON_INDENT(2), ...). */
zp_status json_write_text(const json_t *value, size_t flags, struct buffer *out, zp_err *err);

#endif
