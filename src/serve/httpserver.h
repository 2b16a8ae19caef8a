/* httpserver.h: a server from inside: what its listeners, its sockets and its timers share. */
#ifndef SERVE_HTTPSERVER_H
#define SERVE_HTTPSERVER_H

#include "httpconn.h"
#include "tls.h"

struct httpaccept;
struct httpsock;

struct http_server {
    struct httpcore core;
    struct evloop *loop;
    struct tls *tls;               /* NULL: none */
    struct httpaccept *listeners;
    struct httpsock *socks;        /* all connections */
    struct httpsock *due;          /* to be settled by `soon` */
    struct evtimer *soon;          /* after what is happening now */
    struct evtimer *tick;          /* limits of time, while connections are open */
    struct evtimer *retry;         /* ends a pause of the listeners */
    struct evtimer *drain;         /* the end of its time */
    uint32_t tick_ms;
    void (*drained)(void *arg);    /* NULL: not draining, or told already */
    void *drained_arg;
    uint8_t read_room[64 << 10];   /* what a socket has; nothing stays in it */
    uint8_t plain_room[16 << 10];  /* the same decrypted */
};

#endif
