/* serveroutes.h: the table of routes, and the handlers that answer at once. */
#ifndef SERVE_SERVEROUTES_H
#define SERVE_SERVEROUTES_H

#include "serve/service.h"

zp_status serveroutes_open(zp_serve *s, size_t *n, zp_err *err);
zp_status serveroutes_write_error(void *arg, const struct http_error *e, struct buffer *body,
                                  const char **type, zp_err *err);

#endif
