/* httpexchange.h: an exchange from inside: what it shares with its connection and its server. */
#ifndef SERVE_HTTPEXCHANGE_H
#define SERVE_HTTPEXCHANGE_H

#include <time.h>
#include "http.h"
#include "httpparse.h"
#include "httpreply.h"

enum { HTTP_ID_MOST = 128, HTTP_PEER_ROOM = 56 };

/* What all connections of a server share; zero-initialised before httpcore_init. */
struct httpcore {
    struct http_options o;          /* limits without a 0 that means a default */
    struct http_counts counts;
    uint64_t (*requests)[HTTP_CLASSES];
    struct httpbudget bodies;
    struct http_exchange *exchanges; /* all that are not ended */
    struct buffer scratch;          /* one event, or one body of an error, being written */
    struct httpreply_date date;
    time_t date_of;
    uint64_t now; /* milliseconds; set before each event of a connection; while any
                                     * is open, at most a tick old when handlers write later */
    bool draining;
};
zp_status httpcore_init(struct httpcore *core, const struct http_options *o, zp_err *err);
/* Exchanges not ended go with it. */
void httpcore_free(struct httpcore *core);

struct httpconn;
struct http_exchange {
    struct httpcore *core;
    struct httpconn *conn;          /* NULL: the client cannot be reached any more */
    struct http_exchange *prev, *next;
    size_t route;                   /* number in the table, n_routes: none */
    char id[HTTP_ID_MOST + 1];
    char *method, *path;            /* NULL: not known */
    const char *origin;             /* whose page it is, if allowed; of the options */
    bool head, http10, keep_alive;
    bool handed;                    /* its handler was called and has to end it */
    bool ended;                     /* and has */
    bool begun, events;
    enum httpreply_body body;
    int status;
    uint64_t since, wrote;          /* milliseconds: end of the head; the last byte written */
    uint64_t bytes_in, bytes_out;
    void (*on_gone)(void *arg, struct http_exchange *x, enum http_gone why);
    void *gone_arg;
};

/* m: NULL, or what is known of the request. NULL: no memory. */
struct http_exchange *httpexchange_open(struct httpconn *conn, const struct httpmessage *m);
/* Writes a whole answer; the exchange goes on existing. */
void httpexchange_answer(struct http_exchange *x, const struct http_reply *r);
/* The same for a fault; limit: words for its text; further headers as in a reply. */
void httpexchange_answer_fault(struct http_exchange *x, enum http_fault fault, const char *limit,
                               const struct http_header *headers, size_t n_headers);
/* A comment in a stream of events. */
void httpexchange_comment(struct http_exchange *x);
/* It leaves its connection, answered; is freed unless its handler still has it. */
void httpexchange_finish(struct http_exchange *x);
/* It leaves its connection before its end; a handler that has it is told. */
void httpexchange_lose(struct http_exchange *x, enum http_gone why);

#endif
