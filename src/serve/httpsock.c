/* httpsock.c: a connection's socket: moves bytes between the kernel, TLS and httpconn.c.
 * K1 bytes of answers count as taken when the kernel has them, with TLS all of their encrypted
 *    form.
 * K2 a socket that is due stays in memory until httpsock_settle_due has passed it.
 * K3 the client's leaving is watched for in every state: by reading, or where nothing is read, by
 *    the hang-up alone. */
#include "httpsock.h"

#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#define ENCRYPT_AT_ONCE ((size_t)16 << 10) /* one TLS record */

struct httpsock {
    struct httpconn conn;
    struct http_server *server;
    struct httpsock *prev, *next, *next_due;
    struct evpoll *poll;
    struct tls_session *tls; /* NULL: none */
    size_t sealed;           /* bytes of the answer whose encrypted form is not yet sent (K1) */
    int fd, watched;
    bool due, dead, ended;
};

struct httpsock *httpsock_next(struct httpsock *k)
{
    return k->next;
}

struct httpconn *httpsock_conn(struct httpsock *k)
{
    return &k->conn;
}

/* ---- sending ---- */

/* Returns how many bytes the kernel took; what is wrong with the socket loses the connection. */
static size_t send_some(struct httpsock *k, const uint8_t *data, size_t size)
{
    size_t at = 0;
    while (at < size) {
        ssize_t n = send(k->fd, data + at, size - at, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK)
            httpconn_lose(&k->conn, HTTP_GONE_CLIENT);
        if (n < 0) break;
        at += (size_t)n;
    }
    k->server->core.counts.bytes_out += at;
    return at;
}

/* True: nothing encrypted waits. */
static bool send_sealed(struct httpsock *k)
{
    const uint8_t *data;
    size_t pending = tls_session_pending(k->tls, &data);
    if (pending == SIZE_MAX) {
        httpconn_lose(&k->conn, HTTP_GONE_MEMORY);
        return false;
    }
    if (pending == 0) return true;
    size_t sent = send_some(k, data, pending);
    tls_session_sent(k->tls, sent);
    return sent == pending;
}

static void send_tls(struct httpsock *k)
{
    struct httpout *out = &k->conn.out;
    while (send_sealed(k)) {
        httpconn_taken(&k->conn, k->sealed); // K1
        size_t pending = httpout_pending(out);
        size_t some = pending < ENCRYPT_AT_ONCE ? pending : ENCRYPT_AT_ONCE;
        k->sealed = some == 0 ? 0 : tls_session_write(k->tls, httpout_data(out), some);
        if (k->sealed == 0) return;
    }
}

static void push(void *arg)
{
    struct httpsock *k = arg;
    struct httpout *out = &k->conn.out;
    if (k->conn.lost) return;
    if (k->tls != NULL) send_tls(k);
    else if (httpout_pending(out) != 0)
        httpconn_taken(&k->conn, send_some(k, httpout_data(out), httpout_pending(out)));
}

static bool is_blocked(struct httpsock *k)
{
    const uint8_t *data;
    if (k->tls != NULL) return tls_session_pending(k->tls, &data) != 0;
    return httpout_pending(&k->conn.out) != 0;
}

/* Tells the client that no more comes. */
static void end(struct httpsock *k)
{
    k->ended = true;
    if (k->tls != NULL) {
        tls_session_end(k->tls);
        (void)send_sealed(k);
    }
    (void)shutdown(k->fd, SHUT_WR);
}

/* ---- receiving ---- */

static void take_sealed(struct httpsock *k, const uint8_t *data, size_t size)
{
    struct http_server *s = k->server;
    size_t n;
    enum tls_read what = TLS_BROKEN;
    if (tls_session_take(k->tls, data, size)) {
        while ((what = tls_session_read(k->tls, s->plain_room, sizeof s->plain_room, &n)) ==
               TLS_DATA)
            httpconn_input(&k->conn, s->plain_room, n);
    }
    if (what == TLS_END) httpconn_eof(&k->conn);
    if (what != TLS_BROKEN) return;
    s->core.counts.tls_errors++;
    (void)send_sealed(k); /* an alert, if there is one */
    httpconn_lose(&k->conn, HTTP_GONE_CLIENT);
}

static void receive(struct httpsock *k)
{
    struct http_server *s = k->server;
    ssize_t n = recv(k->fd, s->read_room, sizeof s->read_room, MSG_DONTWAIT);
    if (n < 0) {
        if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
            httpconn_lose(&k->conn, HTTP_GONE_CLIENT);
        return;
    }
    if (n == 0) {
        httpconn_eof(&k->conn);
        return;
    }
    s->core.counts.bytes_in += (size_t)n;
    if (k->tls != NULL) take_sealed(k, s->read_room, (size_t)n);
    else httpconn_input(&k->conn, s->read_room, (size_t)n);
}

static void on_events(void *arg, int events)
{
    struct httpsock *k = arg;
    k->server->core.now = evloop_now(k->server->loop);
    if (events & EV_BROKEN) httpconn_lose(&k->conn, HTTP_GONE_CLIENT);
    else if (events & EV_READ) receive(k);
    else if (events & EV_HANGUP) httpconn_eof(&k->conn); // K3
    httpsock_settle(k);
}

/* ---- course ---- */

static void watch(struct httpsock *k)
{
    int events = is_blocked(k) ? EV_WRITE : 0;
    if (httpconn_wants_input(&k->conn)) events |= EV_READ;
    else if (!k->conn.eof) events |= EV_HANGUP; // K3
    if (events == k->watched) return;
    k->watched = events;
    if (evpoll_watch(k->poll, events, NULL) != ZP_OK) httpconn_lose(&k->conn, HTTP_GONE_MEMORY);
}

void httpsock_settle(struct httpsock *k)
{
    do {
        httpconn_settle(&k->conn);
        push(k);
    } while (httpconn_is_due(&k->conn));
    if (k->conn.state == HTTPCONN_LINGER && !k->ended) end(k);
    if (k->conn.state == HTTPCONN_OVER) httpsock_close(k, HTTP_GONE_CLIENT);
    else watch(k);
}

static void attend(void *arg)
{
    struct httpsock *k = arg;
    if (k->due) return;
    k->due = true;
    k->next_due = k->server->due;
    k->server->due = k;
    if (!evtimer_runs(k->server->soon)) evtimer_start(k->server->soon, 0, 0);
}

void httpsock_settle_due(struct http_server *s)
{
    struct httpsock *list = s->due;
    s->due = NULL;
    while (list != NULL) {
        struct httpsock *k = list;
        list = k->next_due;
        k->due = false;
        if (k->dead) mem_free(k); // K2
        else httpsock_settle(k);
    }
}

void httpsock_close(struct httpsock *k, enum http_gone why)
{
    struct http_server *s = k->server;
    evpoll_close(k->poll);
    (void)close(k->fd);
    if (k->prev != NULL) k->prev->next = k->next;
    else s->socks = k->next;
    if (k->next != NULL) k->next->prev = k->prev;
    if (--s->core.counts.open == 0) {
        evtimer_stop(s->tick);
        evtimer_start(s->soon, 0, 0); /* the end of a drain */
    }
    httpconn_free(&k->conn, why);
    tls_session_close(k->tls);
    k->dead = true;
    if (!k->due) mem_free(k); // K2
}

static bool fill(struct httpsock *k, bool tls)
{
    if (evpoll_open(&k->poll, k->server->loop, k->fd, on_events, k, NULL) != ZP_OK) return false;
    if (tls) k->tls = tls_session_open(k->server->tls);
    return !tls || k->tls != NULL;
}

void httpsock_open(struct http_server *s, int fd, const char *peer, bool tls, bool refused)
{
    struct httpsock *k = mem_zalloc(MEM_SERVE, sizeof *k);
    if (k != NULL) {
        k->server = s;
        k->fd = fd;
        k->conn = (struct httpconn){ .core = &s->core, .attend = attend, .push = push, .arg = k,
                                     .tls = tls };
        (void)snprintf(k->conn.peer, sizeof k->conn.peer, "%s", peer);
    }
    if (k == NULL || !fill(k, tls)) {
        s->core.counts.refused++;
        if (k != NULL) evpoll_close(k->poll);
        mem_free(k);
        (void)close(fd);
        return;
    }
    k->next = s->socks;
    if (k->next != NULL) k->next->prev = k;
    s->socks = k;
    if (s->core.counts.open++ == 0) evtimer_start(s->tick, s->tick_ms, s->tick_ms);
    httpconn_init(&k->conn);
    if (refused) httpconn_refuse(&k->conn, HTTP_FAULT_CONNECTIONS);
    httpsock_settle(k);
}
