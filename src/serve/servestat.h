/* servestat.h: figures of the whole server. */
#ifndef SERVE_SERVESTAT_H
#define SERVE_SERVESTAT_H

#include "serve/service.h"

/* Gauges, and counters that are counted elsewhere. */
void servestat_refresh(zp_serve *s);
zp_status servestat_write(zp_serve *s, enum metrics_format format, struct buffer *out, zp_err *err);
/* The scheduler makes steps, or has nothing to do. */
bool servestat_is_alive(const zp_serve *s);
/* Of an http_server: counts and logs an exchange. arg: the zp_serve. */
void servestat_on_access(void *arg, const struct http_access *a);

#endif
