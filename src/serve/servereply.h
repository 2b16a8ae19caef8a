/* servereply.h: bodies of answers that come at once. */
#ifndef SERVE_SERVEREPLY_H
#define SERVE_SERVEREPLY_H

#include "serve/service.h"

enum { SERVEREPLY_MOST = 1 << 30 };
enum api servereply_api_of(const char *path);
void servereply_fault(struct http_exchange *x, enum api api, const struct apifault *fault);
/* 200 with the JSON of a buffer, which is freed; status: of what was written to it. */
void servereply_json(struct http_exchange *x, enum api api, zp_status status, struct buffer *body,
                      const zp_err *err);

#endif
