/* http.c: the server object: listeners, limits of time, draining.
 * V1 timers and sockets belong to the loop's thread; nothing here blocks but http_listen_tcp, which
 *    may ask for an address of a name. */
#include "http.h"

#include "httpaccept.h"
#include "httproute.h"
#include "httpsock.h"

#define TICK_LEAST_MS 10
#define TICK_MOST_MS 1000

/* ---- time ---- */

/* A fourth of the shortest limit: none is overdrawn by more. */
static uint32_t tick_for(const struct http_limits *l)
{
    const uint32_t limits[] = { l->header_ms, l->body_ms,     l->idle_ms,   l->send_ms,
                                l->linger_ms, l->exchange_ms, l->comment_ms };
    uint32_t least = 4 * TICK_MOST_MS;
    for (size_t i = 0; i < ZP_COUNT(limits); i++)
        if (limits[i] != 0 && limits[i] < least) least = limits[i];
    return least / 4 < TICK_LEAST_MS ? TICK_LEAST_MS : least / 4;
}

static void on_tick(void *arg)
{
    struct http_server *s = arg;
    s->core.now = evloop_now(s->loop);
    struct httpsock *next;
    for (struct httpsock *k = s->socks; k != NULL; k = next) {
        next = httpsock_next(k);
        httpconn_tick(httpsock_conn(k));
        if (httpsock_conn(k)->state == HTTPCONN_OVER) httpsock_settle(k);
    }
}

static void on_soon(void *arg)
{
    struct http_server *s = arg;
    s->core.now = evloop_now(s->loop);
    httpsock_settle_due(s);
    if (!s->core.draining || s->core.counts.open != 0 || s->drained == NULL) return;
    void (*drained)(void *arg) = s->drained;
    s->drained = NULL;
    evtimer_stop(s->drain);
    drained(s->drained_arg); /* may close the server */
}

static void on_retry(void *arg)
{
    struct http_server *s = arg;
    httpaccept_resume(s);
}

static void cut_all(struct http_server *s)
{
    while (s->socks != NULL) httpsock_close(s->socks, HTTP_GONE_CUT);
}

static void on_drain_end(void *arg)
{
    struct http_server *s = arg;
    s->core.now = evloop_now(s->loop);
    cut_all(s);
}

/* ---- the object ---- */

static zp_status fill(struct http_server *s, const struct http_options *o, zp_err *err)
{
    ZP_TRY(httproute_check(o, err));
    ZP_TRY(httpcore_init(&s->core, o, err));
    s->tick_ms = tick_for(&s->core.o.limits);
    ZP_TRY(evtimer_open(&s->soon, s->loop, on_soon, s, err));
    ZP_TRY(evtimer_open(&s->tick, s->loop, on_tick, s, err));
    ZP_TRY(evtimer_open(&s->retry, s->loop, on_retry, s, err));
    ZP_TRY(evtimer_open(&s->drain, s->loop, on_drain_end, s, err));
    ZP_FAIL_IF((o->certificate == NULL) != (o->key == NULL), err, ZP_USAGE,
               "TLS needs both a certificate and a key");
    return o->certificate == NULL ? ZP_OK : tls_open(&s->tls, o->certificate, o->key, err);
}

zp_status http_open(struct http_server **out, struct evloop *loop, const struct http_options *o,
                    zp_err *err)
{
    *out = NULL;
    struct http_server *s = mem_zalloc(MEM_SERVE, sizeof *s);
    ZP_FAIL_IF(s == NULL, err, ZP_NO_MEMORY, "not enough memory for a server");
    s->loop = loop;
    s->core.now = evloop_now(loop);
    zp_status status = fill(s, o, err);
    if (status == ZP_OK) *out = s;
    else http_close(s);
    return status;
}

void http_close(struct http_server *s)
{
    if (s == NULL) return;
    s->core.now = evloop_now(s->loop);
    if (s->listeners != NULL) httpaccept_close_all(s);
    cut_all(s);
    httpsock_settle_due(s); /* gives back what was due */
    evtimer_close(s->soon);
    evtimer_close(s->tick);
    evtimer_close(s->retry);
    evtimer_close(s->drain);
    tls_close(s->tls);
    httpcore_free(&s->core);
    mem_free(s);
}

void http_turn(struct http_server *s)
{
    s->core.now = evloop_now(s->loop);
}

const struct http_counts *http_counts(struct http_server *s)
{
    s->core.counts.bodies_bytes = s->core.bodies.now;
    return &s->core.counts;
}

/* ---- listening ---- */

/* Takes the sockets, also on failure. */
static zp_status accept_from(struct http_server *s, struct listen_socket *sockets, size_t n,
                             bool tls, zp_err *err)
{
    zp_status status = ZP_OK;
    if (tls && s->tls == NULL) {
        status = ZP_USAGE;
        status_fail(err, status, __FILE__, __LINE__, "TLS needs a certificate and a key");
    }
    for (size_t i = 0; i < n; i++) {
        if (status == ZP_OK) status = httpaccept_open(s, &sockets[i], tls, err);
        else listen_close(&sockets[i]);
    }
    return status;
}

zp_status http_listen_tcp(struct http_server *s, const char *host, uint16_t port, bool tls,
                          uint16_t *bound, zp_err *err)
{
    struct listen_socket sockets[LISTEN_MOST];
    size_t n;
    ZP_TRY(listen_tcp(host, port, sockets, &n, err));
    if (bound != NULL) *bound = listen_port(&sockets[0]);
    return accept_from(s, sockets, n, tls, err);
}

zp_status http_listen_unix(struct http_server *s, const char *path, unsigned mode, zp_err *err)
{
    struct listen_socket socket;
    ZP_TRY(listen_unix(path, mode, &socket, err));
    return accept_from(s, &socket, 1, false, err);
}

zp_status http_listen_systemd(struct http_server *s, const char *listen_pid,
                              const char *listen_fds, bool tls, size_t *n, zp_err *err)
{
    struct listen_socket sockets[LISTEN_MOST];
    ZP_TRY(listen_systemd(listen_pid, listen_fds, sockets, n, err));
    return accept_from(s, sockets, *n, tls, err);
}

zp_status http_reload_tls(struct http_server *s, zp_err *err)
{
    return s->tls == NULL ? ZP_OK : tls_reload(s->tls, err);
}

/* ---- the end ---- */

void http_drain(struct http_server *s, uint64_t ms, void (*done)(void *arg), void *arg)
{
    s->core.now = evloop_now(s->loop);
    s->core.draining = true;
    s->drained = done;
    s->drained_arg = arg;
    httpaccept_close_all(s);
    for (struct httpsock *k = s->socks; k != NULL; k = httpsock_next(k))
        httpconn_drain(httpsock_conn(k));
    evtimer_start(s->drain, ms, 0);
    /* Whichever comes: connections that are over now, or that there are none. */
    if (s->core.counts.open != 0) evtimer_start(s->tick, 0, s->tick_ms);
    else evtimer_start(s->soon, 0, 0);
}
