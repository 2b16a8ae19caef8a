/* serving.h: an HTTP server on a thread of its own and blocking clients beside it. Waiting is for
 * something that happens; PATIENCE only ends a test that hangs. Include after cmocka.h. */
#ifndef TESTS_SERVING_H
#define TESTS_SERVING_H

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "serve/http.h"

enum { PATIENCE = 60 }; /* seconds */

struct serving {
    struct evloop *loop;
    struct http_server *server;
    struct evwake *wake;
    pthread_t thread;
    uint16_t port;
    void (*job)(void *arg); /* for the loop's thread */
    void *job_arg;
    sem_t job_done;
    sem_t arrived, gone; /* posted by serving_later and serving_gone */
    /* of the loop's thread */
    struct http_exchange *kept[8];
    size_t n_kept;
    enum http_gone why;
    bool drained;
};

static inline void serving_wait(sem_t *s)
{
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += PATIENCE;
    int code;
    while ((code = sem_timedwait(s, &end)) != 0 && errno == EINTR) {
    }
    if (code != 0) fail_msg("nothing happened for %d s", PATIENCE);
}

/* ---- handlers; their argument is the serving ---- */

static inline void serving_echo(void *arg, const struct http_request *r, struct http_exchange *x)
{
    (void)arg;
    http_reply(x, &(struct http_reply){ .status = 200, .type = "text/plain", .body = r->body,
                                        .size = r->body_size });
}

static inline void serving_peer(void *arg, const struct http_request *r, struct http_exchange *x)
{
    (void)arg;
    http_reply(x, &(struct http_reply){ .status = 200, .body = r->peer, .size = strlen(r->peer) });
}

static inline void serving_gone(void *arg, struct http_exchange *x, enum http_gone why)
{
    struct serving *s = arg;
    for (size_t i = 0; i < s->n_kept; i++)
        if (s->kept[i] == x) s->kept[i] = s->kept[--s->n_kept];
    s->why = why;
    http_abort(x);
    sem_post(&s->gone);
}

static inline void serving_later(void *arg, const struct http_request *r, struct http_exchange *x)
{
    struct serving *s = arg;
    (void)r;
    if (s->n_kept == 8) abort();
    s->kept[s->n_kept++] = x;
    http_on_gone(x, serving_gone, s);
    sem_post(&s->arrived);
}

static inline void serving_events(void *arg, const struct http_request *r, struct http_exchange *x)
{
    http_sse_begin(x, NULL);
    serving_later(arg, r, x);
}

#define SERVING_ROUTES(s)                                                                          \
    {                                                                                              \
        { .method = "GET", .path = "/echo", .handle = serving_echo, .arg = (s) },                  \
        { .method = "POST", .path = "/echo", .handle = serving_echo, .arg = (s) },                 \
        { .method = "GET", .path = "/peer", .handle = serving_peer, .arg = (s) },                  \
        { .method = "POST", .path = "/later", .handle = serving_later, .arg = (s) },               \
        { .method = "GET", .path = "/events", .handle = serving_events, .arg = (s) },              \
        { .method = "GET", .path = "/below/", .handle = serving_echo, .arg = (s) },                \
    }

/* ---- the server ---- */

static inline void serving_run_job(void *arg)
{
    struct serving *s = arg;
    void (*job)(void *arg) = __atomic_exchange_n(&s->job, NULL, __ATOMIC_ACQUIRE);
    if (job == NULL) return;
    job(s->job_arg);
    sem_post(&s->job_done);
}

/* Calls the function on the loop's thread and waits for its end. */
static inline void serving_do(struct serving *s, void (*job)(void *arg), void *arg)
{
    s->job_arg = arg;
    __atomic_store_n(&s->job, job, __ATOMIC_RELEASE);
    evwake_send(s->wake);
    serving_wait(&s->job_done);
}

static inline void *serving_thread(void *arg)
{
    evloop_run(((struct serving *)arg)->loop);
    return NULL;
}

/* Opens loop and server; listeners can be added before serving_start. */
static inline void serving_open(struct serving *s, const struct http_options *o)
{
    zp_err err = { 0 };
    *s = (struct serving){ 0 };
    sem_init(&s->job_done, 0, 0);
    sem_init(&s->arrived, 0, 0);
    sem_init(&s->gone, 0, 0);
    if (evloop_open(&s->loop, &err) != ZP_OK ||
        evwake_open(&s->wake, s->loop, serving_run_job, s, &err) != ZP_OK ||
        http_open(&s->server, s->loop, o, &err) != ZP_OK)
        fail_msg("%s", err.message);
}

static inline void serving_start(struct serving *s)
{
    assert_int_equal(pthread_create(&s->thread, NULL, serving_thread, s), 0);
}

/* All of it, on a free port of 127.0.0.1. */
static inline void serving_begin(struct serving *s, const struct http_options *o, bool tls)
{
    zp_err err = { 0 };
    serving_open(s, o);
    if (http_listen_tcp(s->server, "127.0.0.1", 0, tls, &s->port, &err) != ZP_OK)
        fail_msg("%s", err.message);
    serving_start(s);
}

static inline void serving_end_job(void *arg)
{
    struct serving *s = arg;
    http_close(s->server);
    evwake_close(s->wake);
    evloop_stop(s->loop);
}

static inline void serving_end(struct serving *s)
{
    serving_do(s, serving_end_job, s);
    pthread_join(s->thread, NULL);
    evloop_close(s->loop);
    sem_destroy(&s->job_done);
    sem_destroy(&s->arrived);
    sem_destroy(&s->gone);
}

struct serving_counts {
    struct serving *s;
    struct http_counts now;
};

static inline void serving_count_job(void *arg)
{
    struct serving_counts *c = arg;
    c->now = *http_counts(c->s->server);
}

static inline struct http_counts serving_counts(struct serving *s)
{
    struct serving_counts c = { .s = s };
    serving_do(s, serving_count_job, &c);
    return c.now;
}

/* ---- clients ---- */

static inline int client_socket(int family)
{
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct timeval most = { .tv_sec = PATIENCE };
    assert_true(fd >= 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof most);
    return fd;
}

static inline int client_dial(uint16_t port)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int fd = client_socket(AF_INET);
    if (connect(fd, (struct sockaddr *)&a, sizeof a) != 0) fail_msg("connect: %s", strerror(errno));
    return fd;
}

static inline int client_dial_path(const char *path)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    int fd = client_socket(AF_UNIX);
    if (connect(fd, (struct sockaddr *)&a, sizeof a) != 0) fail_msg("connect: %s", strerror(errno));
    return fd;
}

static inline void client_send(int fd, const void *data, size_t size)
{
    for (size_t at = 0; at < size;) {
        ssize_t n = send(fd, (const char *)data + at, size - at, MSG_NOSIGNAL);
        if (n < 0) fail_msg("send: %s", strerror(errno));
        at += (size_t)n;
    }
}

static inline void client_say(int fd, const char *text)
{
    client_send(fd, text, strlen(text));
}

enum { CLIENT_TEXT = 1 << 17 };

/* Reads until the text holds `mark`, or with NULL until the other side has ended. Good until the
 * next call. */
static inline const char *client_read(int fd, const char *mark)
{
    static char text[CLIENT_TEXT];
    size_t size = 0;
    text[0] = '\0';
    while (mark == NULL || strstr(text, mark) == NULL) {
        ssize_t n = recv(fd, text + size, sizeof text - 1 - size, 0);
        if (n < 0) fail_msg("recv: %s, after: %s", strerror(errno), text);
        if (n == 0 && mark != NULL) fail_msg("the end came before %s: %s", mark, text);
        if (n == 0) break;
        size += (size_t)n;
        text[size] = '\0';
    }
    return text;
}

/* Closes with a reset instead of an end. */
static inline void client_reset(int fd)
{
    struct linger now = { .l_onoff = 1 };
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close(fd);
}

#endif
