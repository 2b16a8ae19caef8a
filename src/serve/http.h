/* http.h: the HTTP/1.1 server as its handlers see it: requests, exchanges, routes, limits, counts.
 * It knows nothing of models. TCP, TLS, unix sockets and sockets from systemd carry it.
 *
 * A request is read completely, then its route's handler is called, which answers on the exchange
 * it was given: at once or later, with one whole reply or with a stream. Each exchange is ended by
 * its handler exactly once (http_reply, http_stream_end or http_abort), also when the client is
 * gone: until then the pointer is good, and what is written to nobody is ignored.
 *
 * Threads: everything on the thread of the event loop. Handlers and on_gone are called from the
 * loop only, never from inside a call of this header but http_close. */
#ifndef SERVE_HTTP_H
#define SERVE_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/bytes.h"
#include "base/status.h"
#include "evloop.h"
#include "httpfault.h"

/* ---- requests and exchanges ---- */

struct http_header {
    const char *name, *value; /* of requests: the name in lower case, the value without blanks at
                               * its ends and without control bytes but tabs */
};

/* Everything in it is good until the handler returns. */
struct http_request {
    const char *method; /* "POST"; a HEAD that comes to the route of GET is "HEAD" */
    const char *path;   /* UTF-8, decoded once, without the prefix, "." and "..": "/v1/models" */
    const char *query;  /* as it came, without "?"; "": none */
    const char *host;   /* "": none */
    const struct http_header *headers;
    size_t n_headers;
    const uint8_t *body; /* complete; NUL-terminated, the NUL not counted */
    size_t body_size;
    const char *id;      /* of the client's x-request-id, or random */
    const char *peer;    /* "127.0.0.1:50312", "[::1]:50312" or "unix" */
    bool tls;
};
/* Value of the first header of that name (in lower case), NULL: none. */
const char *http_header(const struct http_request *r, const char *name);
/* Decoded value of the first query field of that name ("" where it has none); false: there is no
 * such field, it is no text, or `room` bytes cannot hold it. */
bool http_query(const struct http_request *r, const char *name, char *out, size_t room);

struct http_exchange;
typedef void (*http_handler)(void *arg, const struct http_request *r, struct http_exchange *x);

enum http_gone {
    HTTP_GONE_CLIENT,  /* it closed, or broke, or will send no more: nobody waits for the answer */
    HTTP_GONE_TIME,    /* exchange_ms are over; it was answered with 504, or cut */
    HTTP_GONE_SLOW,    /* it did not take what was written: queue_bytes or send_ms */
    HTTP_GONE_CUT,     /* the server ends: drain's time is over, or http_close */
    HTTP_GONE_MEMORY,  /* no memory for the answer */
};
/* Called once, if the exchange can no longer reach its client before its handler ended it. The
 * handler still has to end it, then or later. */
void http_on_gone(struct http_exchange *x,
                  void (*call)(void *arg, struct http_exchange *x, enum http_gone why), void *arg);
bool http_is_gone(const struct http_exchange *x);
const char *http_id(const struct http_exchange *x);

struct http_reply {
    int status;
    const char *type;                  /* content-type; NULL: none */
    const void *body;                  /* whole replies only; copied */
    size_t size;
    const struct http_header *headers; /* further ones; control bytes become "?" */
    size_t n_headers;
};
void http_reply(struct http_exchange *x, const struct http_reply *r);

/* A stream: begin, writes, end. HTTP/1.1 gets it in chunks, HTTP/1.0 until the connection closes.
 * More than queue_bytes that the client has not taken: it is cut off. */
void http_stream_begin(struct http_exchange *x, const struct http_reply *r);
/* The same as text/event-stream, not to be stored nor held back by proxies; comments keep it alive
 * in silence (comment_ms). r->type is not used; r may be NULL: 200. */
void http_sse_begin(struct http_exchange *x, const struct http_reply *r);
void http_stream_write(struct http_exchange *x, const void *data, size_t size);
/* One event; each line of the data is a field of its own. event: one line, NULL: no such field. */
void http_sse_event(struct http_exchange *x, const char *event, const char *data, size_t size);
void http_stream_end(struct http_exchange *x);
/* Ends the exchange without an answer, or without the rest of it: before a reply has begun the
 * client gets a 500, later a connection that breaks. */
void http_abort(struct http_exchange *x);

/* ---- what a server is made of ---- */

struct http_route {
    const char *method, *path; /* "GET", "/v1/models"; "/v1/models/": all below it that has no
                                * route of its own ("/" is only itself). GET serves HEAD, too */
    http_handler handle;
    void *arg;
    size_t body_bytes; /* most bytes of a body; 0: the server's limit */
    bool needs_body;   /* a request with neither length nor chunks gets a 411 */
};

struct http_limits {       /* 0: the default */
    size_t header_bytes;   /* of a request's head: 32 KiB */
    size_t n_headers;      /* 100 */
    size_t uri_bytes;      /* 8 KiB */
    size_t body_bytes;     /* of a request: 32 MiB */
    size_t bodies_bytes;   /* of all requests being read: 1 GiB */
    size_t queue_bytes;    /* of a stream, not taken by the client: 1 MiB */
    size_t n_connections;  /* 4096; beyond: 503 */
    size_t n_requests;     /* of a connection: 10000 */
    uint32_t header_ms;    /* from the first byte of a request (of a connection: from its start)
                            * to the end of its head: 10 s */
    uint32_t body_ms;      /* from there to the end of its body: 120 s */
    uint32_t idle_ms;      /* between requests: 75 s */
    uint32_t send_ms;      /* without a byte taken by the client: 30 s */
    uint32_t linger_ms;    /* after the last answer, for the client to read it and to close: 2 s */
    uint32_t exchange_ms;  /* from the complete request to the end of its answer: no limit */
    uint32_t comment_ms;   /* of silence in an event stream: 15 s */
};

/* An answer that is an error of this layer, for who writes its body. */
struct http_error {
    enum http_fault fault;
    int status;
    const char *code;    /* "body_too_large" */
    const char *message; /* UTF-8, one line, with the limit where there is one */
    const char *path;    /* NULL: not known */
    const char *id;      /* of the request */
};

/* What one exchange was; texts are good during the call. */
struct http_access {
    const char *id, *method, *path, *peer; /* method and path: "" where not known */
    int status;         /* 499: the client was gone before an answer began */
    bool cut;           /* the answer did not reach its end */
    uint64_t bytes_in, bytes_out; /* body of the request, bytes of the answer */
    uint64_t ms;        /* from the end of its head to the end of the answer's writing */
};

struct http_options {
    const struct http_route *routes; /* as all that is pointed to here: not copied */
    size_t n_routes;
    const char *prefix;              /* "/llm"; NULL or "": none */
    const char *const *origins;      /* "https://a.example", or "*": all; who else may use it from
                                      * pages of other origins */
    size_t n_origins;
    struct http_limits limits;
    /* Writes the body of an error and may change *type, which is application/json. NULL, or
     * failure: {"error":{"message":...,"type":...,"code":...}} */
    zp_status (*write_error)(void *arg, const struct http_error *e, struct buffer *body,
                             const char **type, zp_err *err);
    /* Called when an exchange ends, also from inside the call that ends it. NULL: not wanted. */
    void (*on_access)(void *arg, const struct http_access *a);
    void *arg;                       /* of both */
    const char *certificate, *key;   /* PEM files for listeners with TLS; NULL: there are none */
};

/* ---- the server ---- */

struct http_server;
zp_status http_open(struct http_server **out, struct evloop *loop, const struct http_options *o,
                    zp_err *err);
/* Listens on each address of the host: "127.0.0.1", "::1", "localhost", "0.0.0.0". port 0: one that
 * is free. *bound, if not NULL: the port. */
zp_status http_listen_tcp(struct http_server *s, const char *host, uint16_t port, bool tls,
                          uint16_t *bound, zp_err *err);
/* A socket file that nobody listens on is replaced; any other file is left and refused. mode: its
 * rights, 0: as the process makes files. It is removed when listening ends. */
zp_status http_listen_unix(struct http_server *s, const char *path, unsigned mode, zp_err *err);
/* Sockets that systemd opened: the values of LISTEN_PID and LISTEN_FDS, NULL where not set. They
 * are taken only if meant for this process; *n: how many. */
zp_status http_listen_systemd(struct http_server *s, const char *listen_pid,
                              const char *listen_fds, bool tls, size_t *n, zp_err *err);
/* Reads certificate and key again, for connections to come; on failure the old ones stay. */
zp_status http_reload_tls(struct http_server *s, zp_err *err);
/* Listens no more, closes what is idle, finishes what is under way; what is not finished after
 * `ms` is cut. done is called once, when no connection is left, and may close the server. Called
 * again: the new time. */
void http_drain(struct http_server *s, uint64_t ms, void (*done)(void *arg), void *arg);
/* Cuts all there is and calls their on_gone. Exchanges that handlers have not ended are gone with
 * it. Not from inside a handler or on_gone. NULL is fine. */
void http_close(struct http_server *s);

enum { HTTP_CLASS_GONE, HTTP_CLASS_2XX = 2, HTTP_CLASS_3XX, HTTP_CLASS_4XX, HTTP_CLASS_5XX,
       HTTP_CLASSES };
struct http_counts {
    uint64_t open;        /* connections now; all else: since the start */
    uint64_t accepted;    /* connections; refused ones among them */
    uint64_t refused;     /* answered with 503, or closed, for want of room */
    uint64_t accept_errors; /* times the listeners paused: no descriptors or no memory */
    uint64_t tls_errors;  /* connections that ended in one */
    uint64_t cut_slow;    /* connections cut because nobody took what was written */
    uint64_t bytes_in, bytes_out; /* of the network: with TLS, encrypted ones */
    uint64_t exchanges;   /* now: not yet ended by their handlers */
    uint64_t bodies_bytes; /* now: of requests being read */
    uint64_t faults[HTTP_FAULT_COUNT]; /* errors of this layer that were answered, by kind */
    /* (n_routes + 1, HTTP_CLASSES): answers begun, by route and first digit of the status; the last
     * row: those that came to no route. Class 0: the client was gone before an answer began. */
    const uint64_t (*requests)[HTTP_CLASSES];
    size_t n_routes;
};
/* To be called before exchanges are written to from elsewhere than a handler:
 * looks at the clock. */
void http_turn(struct http_server *s);
const struct http_counts *http_counts(struct http_server *s);

#endif
