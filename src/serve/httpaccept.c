/* httpaccept.c: takes connections of listening sockets.
 * A1 where descriptors or memory run out, all listeners pause: they would be told again and again
 *    of connections nobody can take. They go on after RETRY_MS.
 * A2 beyond n_connections there are SPARE that get a 503; beyond those, connections are closed. */
#include "httpaccept.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include "httpsock.h"

#define AT_ONCE 64 /* then others have their turn */
#define RETRY_MS 100
#define SPARE 64

struct httpaccept {
    struct http_server *server;
    struct httpaccept *next;
    struct listen_socket socket;
    struct evpoll *poll;
    bool tls;
};

static void watch_all(struct http_server *s, int events)
{
    for (struct httpaccept *a = s->listeners; a != NULL; a = a->next)
        (void)evpoll_watch(a->poll, events, NULL); /* if not now, then after RETRY_MS */
}

static void pause_all(struct http_server *s)
{
    s->core.counts.accept_errors++;
    watch_all(s, 0); // A1
    evtimer_start(s->retry, RETRY_MS, 0);
}

void httpaccept_resume(struct http_server *s)
{
    watch_all(s, EV_READ);
}

/* What went wrong with one connection that is gone; the next may be fine. */
static bool is_of_connection(int code)
{
    return code == EINTR || code == ECONNABORTED || code == EPROTO || code == ENETDOWN ||
           code == ENETUNREACH || code == EHOSTDOWN || code == EHOSTUNREACH || code == ENONET ||
           code == ENOPROTOOPT || code == EOPNOTSUPP || code == ETIMEDOUT || code == EPERM;
}

static void take(struct httpaccept *a, int fd, const struct sockaddr_storage *from)
{
    struct http_server *s = a->server;
    struct http_counts *n = &s->core.counts;
    size_t most = s->core.o.limits.n_connections;
    char peer[HTTP_PEER_ROOM];
    int one = 1;
    n->accepted++;
    bool full = n->open >= most;
    if (full) n->refused++;
    if (full && n->open >= most + SPARE) { // A2
        (void)close(fd);
        return;
    }
    if (from->ss_family != AF_UNIX) /* events leave when they are written */
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    listen_name_address(from, peer, sizeof peer);
    httpsock_open(s, fd, peer, a->tls, full);
}

static void on_connections(void *arg, int events)
{
    struct httpaccept *a = arg;
    struct http_server *s = a->server;
    s->core.now = evloop_now(s->loop);
    for (int i = 0; i < AT_ONCE; i++) {
        struct sockaddr_storage from = { 0 };
        socklen_t size = sizeof from;
        int fd = accept4(a->socket.fd, (struct sockaddr *)&from, &size,
                         SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            take(a, fd, &from);
        } else if (!is_of_connection(errno)) {
            bool none = errno == EAGAIN || errno == EWOULDBLOCK;
            if (!none || (events & EV_BROKEN)) pause_all(s);
            return;
        }
    }
}

zp_status httpaccept_open(struct http_server *s, const struct listen_socket *socket, bool tls,
                          zp_err *err)
{
    struct httpaccept *a = mem_zalloc(MEM_SERVE, sizeof *a);
    if (a != NULL) *a = (struct httpaccept){ .server = s, .socket = *socket, .tls = tls };
    zp_status status = ZP_NO_MEMORY;
    if (a != NULL) status = evpoll_open(&a->poll, s->loop, a->socket.fd, on_connections, a, err);
    else status_fail(err, status, __FILE__, __LINE__, "not enough memory for a listener");
    if (status == ZP_OK) status = evpoll_watch(a->poll, EV_READ, err);
    if (status != ZP_OK) {
        struct listen_socket unused = *socket;
        if (a != NULL) evpoll_close(a->poll);
        mem_free(a);
        listen_close(&unused);
        return status;
    }
    a->next = s->listeners;
    s->listeners = a;
    return ZP_OK;
}

void httpaccept_close_all(struct http_server *s)
{
    while (s->listeners != NULL) {
        struct httpaccept *a = s->listeners;
        s->listeners = a->next;
        evpoll_close(a->poll);
        listen_close(&a->socket);
        mem_free(a);
    }
    evtimer_stop(s->retry);
}
