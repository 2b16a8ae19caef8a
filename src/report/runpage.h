/* runpage.h: the document of a training run as one self-contained HTML page. */
#ifndef REPORT_RUNPAGE_H
#define REPORT_RUNPAGE_H

#include <jansson.h>
#include "base/bytes.h"

/* Appends the page; doc: of zp_train_run_json. */
zp_status runpage_write(json_t *doc, struct buffer *out, zp_err *err);

#endif
