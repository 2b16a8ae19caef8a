/* page.h: a verify document as one self-contained HTML page: no script, nothing fetched. */
#ifndef REPORT_PAGE_H
#define REPORT_PAGE_H

#include <jansson.h>
#include "base/bytes.h"

/* Appends the page; doc: {"status", "checks": [...], "buckets"?, "position"?, ...}. */
zp_status page_write(json_t *doc, struct buffer *out, zp_err *err);

#endif
