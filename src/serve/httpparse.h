/* httpparse.h: bytes of a connection into one request, or into the reason why they are none. */
#ifndef SERVE_HTTPPARSE_H
#define SERVE_HTTPPARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "http.h"

/* What a head says, from HTTPPARSE_HEAD on; after HTTPPARSE_BAD what was understood before. Good
 * until httpparse_close. */
struct httpmessage {
    const char *method, *path, *query; /* NULL: not known; as in struct http_request */
    const char *host;                  /* "": none */
    const struct http_header *headers;
    size_t n_headers;
    bool http10, keep_alive;
    bool unknown_method;    /* llhttp does not know it, so nothing behind the first line is read */
    bool framed, chunked;   /* framed: it has Content-Length or Transfer-Encoding */
    uint64_t length;        /* Content-Length; 0: none */
    bool expects_continue;
    bool complete;          /* no body is to come */
    const uint8_t *body;    /* NUL-terminated */
    size_t body_size;
    enum http_fault fault;  /* of HTTPPARSE_BAD */
};

/* Bytes of bodies that several parsers hold. */
struct httpbudget {
    size_t now, most;
};

enum httpparse_event {
    HTTPPARSE_MORE, /* all bytes are taken, the request is not complete */
    HTTPPARSE_HEAD, /* once a request; if it is `complete`, there is nothing more to feed */
    HTTPPARSE_DONE, /* a body is complete */
    HTTPPARSE_BAD,
};

struct httpparse;
/* For one request. limits: complete; both are kept. NULL: no memory. */
struct httpparse *httpparse_open(const struct http_limits *limits, struct httpbudget *budget);
/* Takes bytes up to an event; *used tells how many. Nothing may be fed after BAD or the end. */
enum httpparse_event httpparse_feed(struct httpparse *p, const uint8_t *data, size_t size,
                                    size_t *used);
/* Between HTTPPARSE_HEAD and the body: most bytes of the body, instead of limits->body_bytes. */
void httpparse_limit_body(struct httpparse *p, size_t most);
const struct httpmessage *httpparse_message(const struct httpparse *p);
/* Value of the first header of that name (in lower case), NULL: none. */
const char *httpmessage_header(const struct httpmessage *m, const char *name);
/* Whether the head is complete. */
bool httpparse_has_head(const struct httpparse *p);
void httpparse_close(struct httpparse *p); /* NULL is fine */

#endif
