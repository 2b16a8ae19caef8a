/* httpreply.h: the bytes of answers: heads, chunks, events, dates. */
#ifndef SERVE_HTTPREPLY_H
#define SERVE_HTTPREPLY_H

#include <time.h>
#include "http.h"

enum httpreply_body {
    HTTPREPLY_SIZED,   /* Content-Length */
    HTTPREPLY_CHUNKED,
    HTTPREPLY_TO_CLOSE, /* until the connection closes */
};
struct httpreply_head {
    int status;
    const char *type;   /* NULL: none */
    enum httpreply_body body;
    size_t size;        /* of HTTPREPLY_SIZED */
    bool http10, keep_alive;
    bool events;        /* an event stream: nobody may store it or hold it back */
    const char *date, *id;
    const char *origin; /* allowed, NULL: none */
};
/* The head without the empty line at its end. */
zp_status httpreply_head(struct buffer *out, const struct httpreply_head *h, zp_err *err);
/* One more line of it; control bytes become "?". */
zp_status httpreply_header(struct buffer *out, const char *name, const char *value, zp_err *err);
/* Statuses whose answers have no body whatever the request. */
bool httpreply_is_bare(int status);

/* size 0: the last one. */
zp_status httpreply_chunk(struct buffer *out, const void *data, size_t size, zp_err *err);
/* event: NULL or one line. */
zp_status httpreply_event(struct buffer *out, const char *event, const char *data, size_t size,
                          zp_err *err);
/* "Sun, 06 Nov 1994 08:49:37 GMT", whatever the locale. */
struct httpreply_date {
    char text[80]; /* of any time_t; 29 of one in our days */
};
struct httpreply_date httpreply_date(time_t moment);

#endif
