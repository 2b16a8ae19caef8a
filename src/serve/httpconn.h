/* httpconn.h: one connection without its socket: bytes go in by a call, bytes come out of a queue,
 * time is told. What carries it (httpsock.c, or a test) calls httpconn_settle after each round. */
#ifndef SERVE_HTTPCONN_H
#define SERVE_HTTPCONN_H

#include "httpexchange.h"
#include "httpout.h"

enum httpconn_state {
    HTTPCONN_READ,   /* reads a request, or waits for one */
    HTTPCONN_WORK,   /* a handler has it */
    HTTPCONN_FLUSH,  /* sends what is left and then no more */
    HTTPCONN_LINGER, /* nothing more will be sent; throws away what comes until the client closes,
                      * so that it reads the last answer before it learns of unread bytes */
    HTTPCONN_OVER,   /* to be closed */
};

struct httpconn {
    struct httpcore *core;
    void (*attend)(void *arg); /* bytes wait, or a loss: settle after what is happening now */
    void (*push)(void *arg);   /* send what goes without waiting, now */
    void *arg;
    struct httpparse *parse;   /* of the request being read; NULL: it has not begun */
    struct http_exchange *x;   /* from the end of its head to the end of its answer */
    struct buffer in;          /* bytes of later requests */
    struct httpout out;
    uint64_t since;            /* milliseconds: when the state, or the part of it, began */
    uint64_t out_since;        /* since when nothing waiting was taken */
    uint64_t n_requests;       /* begun */
    uint8_t state;
    bool eof;                  /* the client will send no more */
    bool lost, tls;
    enum http_gone why;        /* it is lost */
    char peer[HTTP_PEER_ROOM];
};

/* core->now is set. Zero-initialised before, with core, attend, push, arg, tls and peer set. */
void httpconn_init(struct httpconn *c);
void httpconn_input(struct httpconn *c, const uint8_t *data, size_t size);
void httpconn_eof(struct httpconn *c);
/* Bytes that wait for the client are httpout_data(&c->out); so many of them were taken. */
void httpconn_taken(struct httpconn *c, size_t size);
/* Does what events have left to do: gives up what is lost, reads on, changes state. */
void httpconn_settle(struct httpconn *c);
/* Whether it would find something to do. */
bool httpconn_is_due(const struct httpconn *c);
/* Whether bytes should come in; otherwise only the client's leaving is of interest. */
bool httpconn_wants_input(const struct httpconn *c);
void httpconn_tick(struct httpconn *c);  /* limits of time */
/* The server drains: goes away if it is idle. */
void httpconn_drain(struct httpconn *c);
/* Answers with a fault and closes. */
void httpconn_refuse(struct httpconn *c, enum http_fault fault);
/* Tells a handler that has its exchange. */
void httpconn_free(struct httpconn *c, enum http_gone why);

/* For exchanges. */
bool httpconn_is_lost(const struct httpconn *c);
void httpconn_lose(struct httpconn *c, enum http_gone why); /* settled later */
void httpconn_wrote(struct httpconn *c, size_t pending_before, zp_status status, bool stream);
void httpconn_answered(struct httpconn *c);

#endif
