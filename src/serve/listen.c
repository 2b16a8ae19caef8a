/* listen.c: addresses into listening sockets.
 * S1 a file is removed only if it is a socket nobody listens on, or the one that was made here.
 * S2 what came from systemd is closed at the end, but its file is systemd's. */
#include "listen.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/mem.h"

#define BACKLOG 1024
#define SYSTEMD_FIRST 3 /* SD_LISTEN_FDS_START */

static zp_status status_of(int code)
{
    if (code == EMFILE || code == ENFILE || code == ENOMEM || code == ENOBUFS) return ZP_NO_MEMORY;
    return code == EACCES || code == EADDRINUSE || code == EADDRNOTAVAIL ? ZP_RUN : ZP_IO;
}

static const char *hint_of(int code)
{
    if (code == EADDRINUSE) return "; another program listens there";
    if (code == EACCES) return "; ports below 1024 and the folder of a socket need rights";
    return "";
}

void listen_name_address(const struct sockaddr_storage *a, char *out, size_t room)
{
    char host[INET6_ADDRSTRLEN] = "?";
    if (a->ss_family == AF_INET) {
        const struct sockaddr_in *v4 = (const void *)a;
        (void)inet_ntop(AF_INET, &v4->sin_addr, host, sizeof host);
        (void)snprintf(out, room, "%s:%u", host, ntohs(v4->sin_port));
    } else if (a->ss_family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const void *)a;
        (void)inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof host);
        (void)snprintf(out, room, "[%s]:%u", host, ntohs(v6->sin6_port));
    } else {
        (void)snprintf(out, room, "unix");
    }
}

static void set_name(struct listen_socket *s)
{
    struct sockaddr_storage a = { 0 };
    socklen_t size = sizeof a;
    (void)getsockname(s->fd, (struct sockaddr *)&a, &size);
    listen_name_address(&a, s->name, sizeof s->name);
}

uint16_t listen_port(const struct listen_socket *s)
{
    struct sockaddr_storage a = { 0 };
    socklen_t size = sizeof a;
    if (getsockname(s->fd, (struct sockaddr *)&a, &size) != 0) return 0;
    if (a.ss_family == AF_INET)
        return ntohs(((const struct sockaddr_in *)(const void *)&a)->sin_port);
    if (a.ss_family != AF_INET6) return 0;
    return ntohs(((const struct sockaddr_in6 *)(const void *)&a)->sin6_port);
}

void listen_close(struct listen_socket *s)
{
    struct stat st;
    if (s->path != NULL && lstat(s->path, &st) == 0 && S_ISSOCK(st.st_mode) &&
        st.st_dev == s->dev && st.st_ino == s->ino)
        (void)unlink(s->path); // S1: while it listens, so that nobody has replaced it meanwhile
    if (s->fd >= 0) (void)close(s->fd);
    s->fd = -1;
    mem_free(s->path);
    s->path = NULL;
}

/* ---- TCP ---- */

/* Returns 0 or errno. */
static int open_address(const struct addrinfo *a, int *out)
{
    int one = 1;
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return errno;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one); /* after a restart */
    if (a->ai_family == AF_INET6) /* "::" and "0.0.0.0" beside each other */
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
    int code = bind(fd, a->ai_addr, a->ai_addrlen) != 0 || listen(fd, BACKLOG) != 0 ? errno : 0;
    if (code != 0) (void)close(fd);
    *out = fd;
    return code;
}

static void set_port(const struct addrinfo *a, uint16_t port)
{
    if (a->ai_family == AF_INET) ((struct sockaddr_in *)(void *)a->ai_addr)->sin_port = htons(port);
    else ((struct sockaddr_in6 *)(void *)a->ai_addr)->sin6_port = htons(port);
}

/* Some name services give an address twice. */
static bool is_there(const struct addrinfo *a, const struct listen_socket *out, size_t n)
{
    struct sockaddr_storage address = { 0 };
    char name[sizeof out->name];
    memcpy(&address, a->ai_addr, a->ai_addrlen);
    listen_name_address(&address, name, sizeof name);
    while (n-- != 0)
        if (strcmp(out[n].name, name) == 0) return true;
    return false;
}

static zp_status open_all(const struct addrinfo *list, const char *host, uint16_t port,
                          struct listen_socket *out, size_t *n, zp_err *err)
{
    int code = EADDRNOTAVAIL;
    for (const struct addrinfo *a = list; a != NULL && *n < LISTEN_MOST; a = a->ai_next) {
        if (a->ai_family != AF_INET && a->ai_family != AF_INET6) continue;
        set_port(a, *n == 0 ? port : listen_port(&out[0]));
        if (is_there(a, out, *n)) continue;
        int fd = -1, now = open_address(a, &fd);
        if (now == EADDRNOTAVAIL || now == EAFNOSUPPORT) continue; /* no IPv6 here, say */
        code = now;
        if (code != 0) break;
        out[*n] = (struct listen_socket){ .fd = fd };
        set_name(&out[(*n)++]);
    }
    ZP_FAIL_IF(code != 0, err, status_of(code), "cannot listen on %s port %u: %s%s", host, port,
               strerror(code), hint_of(code));
    return ZP_OK;
}

zp_status listen_tcp(const char *host, uint16_t port, struct listen_socket out[LISTEN_MOST],
                     size_t *n, zp_err *err)
{
    struct addrinfo *list, wanted = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM,
                                      .ai_flags = AI_PASSIVE };
    *n = 0;
    int code = getaddrinfo(host, "0", &wanted, &list);
    ZP_FAIL_IF(code != 0, err, ZP_USAGE, "%s: not an address to listen on: %s", host,
               gai_strerror(code));
    zp_status status = open_all(list, host, port, out, n, err);
    freeaddrinfo(list);
    while (status != ZP_OK && *n != 0) listen_close(&out[--*n]);
    return status;
}

/* ---- unix ---- */

/* Whether somebody takes connections there. */
static bool is_served(const struct sockaddr_un *a)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return true;
    bool refused = connect(fd, (const struct sockaddr *)a, sizeof *a) != 0 && errno == ECONNREFUSED;
    (void)close(fd);
    return !refused;
}

static zp_status remove_stale(const struct sockaddr_un *a, zp_err *err)
{
    struct stat st;
    if (lstat(a->sun_path, &st) != 0) return ZP_OK; /* bind says what else is wrong */
    ZP_FAIL_IF(!S_ISSOCK(st.st_mode), err, ZP_RUN,
               "%s: is there and not a socket; it is not replaced", a->sun_path);
    ZP_FAIL_IF(is_served(a), err, ZP_RUN, "%s: another program listens there", a->sun_path);
    ZP_FAIL_IF(unlink(a->sun_path) != 0, err, ZP_IO, "%s: nobody listens there, but it cannot be "
               "removed: %s", a->sun_path, strerror(errno));
    return ZP_OK;
}

static zp_status open_path(const struct sockaddr_un *a, unsigned mode, struct listen_socket *s,
                           zp_err *err)
{
    struct stat st;
    s->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    ZP_FAIL_IF(s->fd < 0, err, status_of(errno), "%s: no socket: %s", a->sun_path, strerror(errno));
    ZP_FAIL_IF(bind(s->fd, (const struct sockaddr *)a, sizeof *a) != 0, err, status_of(errno),
               "%s: cannot listen: %s%s", a->sun_path, strerror(errno), hint_of(errno));
    bool found = lstat(a->sun_path, &st) == 0;
    s->dev = found ? st.st_dev : 0;
    s->ino = found ? st.st_ino : 0;
    ZP_FAIL_IF(mode != 0 && chmod(a->sun_path, mode) != 0, err, ZP_IO, "%s: rights not set: %s",
               a->sun_path, strerror(errno));
    ZP_FAIL_IF(listen(s->fd, BACKLOG) != 0, err, status_of(errno), "%s: cannot listen: %s",
               a->sun_path, strerror(errno));
    return ZP_OK;
}

zp_status listen_unix(const char *path, unsigned mode, struct listen_socket *out, zp_err *err)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    *out = (struct listen_socket){ .fd = -1 };
    size_t size = strlen(path);
    ZP_FAIL_IF(size == 0 || size >= sizeof a.sun_path, err, ZP_USAGE,
               "a socket's path has 1 to %zu bytes, this one %zu: %s", sizeof a.sun_path - 1, size,
               path);
    memcpy(a.sun_path, path, size);
    (void)snprintf(out->name, sizeof out->name, "unix:%s", path);
    ZP_TRY(remove_stale(&a, err));
    out->path = mem_strdup(MEM_SERVE, path);
    ZP_FAIL_IF(out->path == NULL, err, ZP_NO_MEMORY, "%s: not enough memory for the path", path);
    zp_status status = open_path(&a, mode, out, err);
    if (status != ZP_OK) listen_close(out); // S1: without a file of ours, nothing is removed
    return status;
}

/* ---- systemd ---- */

static bool read_number(const char *text, long most, long *out)
{
    char *end;
    errno = 0;
    *out = text[0] >= '0' && text[0] <= '9' ? strtol(text, &end, 10) : -1;
    return *out >= 0 && *out <= most && errno == 0 && *end == '\0';
}

static zp_status adopt(int fd, struct listen_socket *s, zp_err *err)
{
    int type = 0, listens = 0;
    socklen_t size = sizeof type;
    bool fits = getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_STREAM &&
                getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens != 0;
    ZP_FAIL_IF(!fits, err, ZP_USAGE, "descriptor %d from systemd is not a stream socket that "
               "listens (ListenStream=, Accept=no)", fd);
    int flags = fcntl(fd, F_GETFL);
    bool set = flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0 &&
               fcntl(fd, F_SETFD, FD_CLOEXEC) == 0;
    ZP_FAIL_IF(!set, err, ZP_IO, "descriptor %d from systemd cannot be set up: %s", fd,
               strerror(errno));
    *s = (struct listen_socket){ .fd = fd }; // S2
    set_name(s);
    return ZP_OK;
}

zp_status listen_systemd(const char *pid, const char *fds, struct listen_socket out[LISTEN_MOST],
                         size_t *n, zp_err *err)
{
    long process, count;
    *n = 0;
    if (pid == NULL || fds == NULL) return ZP_OK;
    ZP_FAIL_IF(!read_number(pid, INT_MAX, &process), err, ZP_USAGE,
               "LISTEN_PID is \"%s\", not a process", pid);
    if (process != (long)getpid()) return ZP_OK;
    ZP_FAIL_IF(!read_number(fds, LISTEN_MOST, &count), err, ZP_USAGE,
               "LISTEN_FDS is \"%s\", not a number of sockets up to %d", fds, LISTEN_MOST);
    zp_status status = ZP_OK;
    for (long i = 0; i < count && status == ZP_OK; i++) {
        status = adopt(SYSTEMD_FIRST + (int)i, &out[i], err);
        if (status == ZP_OK) ++*n;
    }
    while (status != ZP_OK && *n != 0) listen_close(&out[--*n]);
    return status;
}
