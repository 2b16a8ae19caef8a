/* wire.h: a connection of the HTTP server without a socket, for tests and for the fuzz target: what
 * goes in is given by calls, what comes out is collected, time is set. */
#ifndef TESTS_WIRE_H
#define TESTS_WIRE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/httpconn.h"

enum { WIRE_CALLS = 64 };

struct wire {
    struct httpcore core;
    struct httpconn conn;
    char *got;                /* bytes the client took, in memory that no test lets fail */
    size_t got_size, got_room;
    size_t room;              /* how many more it takes before it stops; SIZE_MAX: no end */
    bool attended;
    /* What handlers saw. */
    size_t n_calls, n_gone, n_access;
    char calls[WIRE_CALLS][512]; /* "POST /path?query body" */
    char host[64];               /* of the last request */
    enum http_gone why;
    int status;               /* of the last access record */
    bool cut;
    struct http_exchange *kept[WIRE_CALLS]; /* by wire_keep, not answered yet */
    size_t n_kept;
};

static inline void wire_attend(void *arg)
{
    ((struct wire *)arg)->attended = true;
}

static inline void wire_push(void *arg)
{
    struct wire *w = arg;
    size_t n = httpout_pending(&w->conn.out);
    if (n > w->room) n = w->room;
    if (w->room != SIZE_MAX) w->room -= n;
    if (n == 0) return;
    if (n >= w->got_room - w->got_size) {
        w->got_room = 2 * (w->got_size + n);
        w->got = realloc(w->got, w->got_room);
        if (w->got == NULL) abort();
    }
    memcpy(w->got + w->got_size, httpout_data(&w->conn.out), n);
    w->got_size += n;
    httpconn_taken(&w->conn, n);
}

/* What a socket does after each round of events. */
static inline void wire_settle(struct wire *w)
{
    do {
        w->attended = false;
        do {
            httpconn_settle(&w->conn);
            wire_push(w);
        } while (httpconn_is_due(&w->conn));
    } while (w->attended);
}

static inline void wire_log(struct wire *w, const struct http_request *r)
{
    snprintf(w->host, sizeof w->host, "%s", r->host);
    if (w->n_calls < WIRE_CALLS)
        snprintf(w->calls[w->n_calls], sizeof w->calls[0], "%s %s%s%s %.*s", r->method, r->path,
                 r->query[0] == '\0' ? "" : "?", r->query, (int)r->body_size,
                 (const char *)r->body);
    w->n_calls++;
}

/* Handlers: all have the wire as argument. */
static inline void wire_echo(void *arg, const struct http_request *r, struct http_exchange *x)
{
    wire_log(arg, r);
    struct http_reply reply = { .status = 200, .type = "text/plain", .body = r->body,
                                .size = r->body_size };
    http_reply(x, &reply);
    (void)strlen(r->path); /* the request outlives its answer */
}

static inline void wire_gone(void *arg, struct http_exchange *x, enum http_gone why)
{
    struct wire *w = arg;
    (void)x;
    w->n_gone++;
    w->why = why;
}

static inline void wire_keep(void *arg, const struct http_request *r, struct http_exchange *x)
{
    struct wire *w = arg;
    wire_log(w, r);
    if (w->n_kept == WIRE_CALLS) abort();
    w->kept[w->n_kept++] = x;
    http_on_gone(x, wire_gone, w);
}

static inline void wire_events(void *arg, const struct http_request *r, struct http_exchange *x)
{
    wire_keep(arg, r, x);
    http_sse_begin(x, NULL);
}

static inline void wire_access(void *arg, const struct http_access *a)
{
    struct wire *w = arg;
    w->n_access++;
    w->status = a->status;
    w->cut = a->cut;
}

#define WIRE_ROUTES(w)                                                                             \
    {                                                                                              \
        { .method = "GET", .path = "/echo", .handle = wire_echo, .arg = (w) },                     \
        { .method = "POST", .path = "/echo", .handle = wire_echo, .arg = (w) },                    \
        { .method = "POST", .path = "/small", .handle = wire_echo, .arg = (w), .body_bytes = 8,    \
          .needs_body = true },                                                                    \
        { .method = "POST", .path = "/later", .handle = wire_keep, .arg = (w) },                   \
        { .method = "GET", .path = "/events", .handle = wire_events, .arg = (w) },                 \
        { .method = "GET", .path = "/below/", .handle = wire_echo, .arg = (w) },                   \
        { .method = "POST", .path = "/below/exact", .handle = wire_echo, .arg = (w) },             \
    }

/* The options' routes must outlive the wire; its arg is the wire. */
static inline zp_status wire_open(struct wire *w, const struct http_options *o)
{
    *w = (struct wire){ .room = SIZE_MAX };
    w->core.now = 1000;
    zp_status status = httpcore_init(&w->core, o, NULL);
    if (status != ZP_OK) return status;
    w->conn = (struct httpconn){ .core = &w->core, .attend = wire_attend, .push = wire_push,
                                 .arg = w, .peer = "test" };
    httpconn_init(&w->conn);
    return ZP_OK;
}

static inline void wire_send(struct wire *w, const void *data, size_t size)
{
    httpconn_input(&w->conn, data, size);
    wire_settle(w);
}

static inline void wire_say(struct wire *w, const char *text)
{
    wire_send(w, text, strlen(text));
}

static inline void wire_eof(struct wire *w)
{
    httpconn_eof(&w->conn);
    wire_settle(w);
}

static inline void wire_wait(struct wire *w, uint64_t ms)
{
    w->core.now += ms;
    httpconn_tick(&w->conn);
    wire_settle(w);
}

static inline bool wire_is_over(const struct wire *w)
{
    return w->conn.state == HTTPCONN_OVER;
}

/* Nothing more will be answered, and the client knows. */
static inline bool wire_is_closed(const struct wire *w)
{
    return w->conn.state == HTTPCONN_OVER || w->conn.state == HTTPCONN_LINGER;
}

/* Ends what handlers kept. */
static inline void wire_close(struct wire *w)
{
    httpconn_free(&w->conn, HTTP_GONE_CUT);
    while (w->n_kept != 0) http_abort(w->kept[--w->n_kept]);
    httpcore_free(&w->core);
    free(w->got);
}

/* What the client has got since the last call, as text; good until it gets more. */
static inline const char *wire_got(struct wire *w)
{
    if (w->got_size == 0) return "";
    w->got[w->got_size] = '\0';
    w->got_size = 0;
    return w->got;
}

#endif
