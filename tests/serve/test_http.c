/* test_http.c: the HTTP server on real sockets: listeners, the corpus of smuggling, clients that
 * leave or do not read, refused and many connections, draining. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <cmocka.h>

#include "in_folder.h"
#include "live_bytes.h"
#include "serve/serving.h"
#include "serve/smuggling.h"

#define GET(path) "GET " path " HTTP/1.1\r\nHost: a\r\n\r\n"
#define POST(path) "POST " path " HTTP/1.1\r\nHost: a\r\n\r\n"

/* A server with the routes of serving.h. */
struct house {
    struct serving s;
    struct http_route routes[6];
    struct http_options o;
    uint64_t live;
};

static struct house h;

static void prepare(const struct http_limits *limits)
{
    const struct http_route routes[] = SERVING_ROUTES(&h.s);
    h.live = live_bytes();
    memcpy(h.routes, routes, sizeof routes);
    h.o = (struct http_options){ .routes = h.routes, .n_routes = 6 };
    if (limits != NULL) h.o.limits = *limits;
}

static void begin(const struct http_limits *limits)
{
    prepare(limits);
    serving_begin(&h.s, &h.o, false);
}

static void end(void)
{
    serving_end(&h.s);
    assert_int_equal(live_bytes(), h.live);
}

static void expect_in(const char *text, const char *part)
{
    if (strstr(text, part) == NULL) fail_msg("not there: %s\nin: %s", part, text);
}

/* ---- listeners ---- */

static void test_tcp(void **state)
{
    (void)state;
    begin(NULL);
    int fd = client_dial(h.s.port);
    client_say(fd, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
    expect_in(client_read(fd, "hello"), "HTTP/1.1 200 OK\r\n");
    client_say(fd, GET("/peer"));
    char expected[64];
    struct sockaddr_in own;
    socklen_t size = sizeof own;
    assert_int_equal(getsockname(fd, (struct sockaddr *)&own, &size), 0);
    snprintf(expected, sizeof expected, "\r\n\r\n127.0.0.1:%u", ntohs(own.sin_port));
    client_read(fd, expected);
    close(fd);
    end();
}

static void test_all_addresses_of_a_name(void **state)
{
    (void)state;
    prepare(NULL);
    serving_open(&h.s, &h.o);
    zp_err err = { 0 };
    if (http_listen_tcp(h.s.server, "localhost", 0, false, &h.s.port, &err) != ZP_OK)
        fail_msg("%s", err.message);
    assert_int_equal(http_listen_tcp(h.s.server, "no.such.name.invalid", 0, false, NULL, &err),
                     ZP_USAGE);
    uint16_t port6 = 0;
    zp_err none = { 0 };
    bool six = http_listen_tcp(h.s.server, "::1", 0, false, &port6, &none) == ZP_OK;
    serving_start(&h.s);
    int fd = client_dial(h.s.port);
    client_say(fd, GET("/echo"));
    client_read(fd, "\r\n\r\n");
    close(fd);
    if (six) {
        struct sockaddr_in6 a = { .sin6_family = AF_INET6, .sin6_port = htons(port6),
                                  .sin6_addr = IN6ADDR_LOOPBACK_INIT };
        fd = client_socket(AF_INET6);
        assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
        client_say(fd, GET("/peer"));
        expect_in(client_read(fd, "\r\n\r\n["), "\r\n\r\n[::1]:");
        close(fd);
    } else {
        printf("no IPv6 on this machine: %s\n", none.message);
    }
    end();
}

static void listen_with_tls(void *arg)
{
    (void)http_listen_tcp(h.s.server, "127.0.0.1", 0, true, NULL, arg);
}

static void test_a_port_is_not_shared(void **state)
{
    (void)state;
    begin(NULL);
    zp_err err = { 0 };
    struct serving other;
    serving_open(&other, &h.o);
    assert_int_equal(http_listen_tcp(other.server, "127.0.0.1", h.s.port, false, NULL, &err),
                     ZP_RUN);
    expect_in(err.message, "another program listens there");
    serving_start(&other);
    serving_end(&other);
    end();
}

static void expect_no_server(const struct http_options *o, const char *words)
{
    struct evloop *loop;
    struct http_server *s;
    zp_err err = { 0 };
    uint64_t live = live_bytes();
    assert_int_equal(evloop_open(&loop, NULL), ZP_OK);
    assert_int_equal(http_open(&s, loop, o, &err), ZP_USAGE);
    assert_null(s);
    expect_in(err.message, words);
    evloop_close(loop);
    assert_int_equal(live_bytes(), live);
}

static void test_options_that_cannot_work(void **state)
{
    (void)state;
    static const char *const origins[] = { "https://a.example/", "a.example", "null", "https://" };
    static const char *const prefixes[] = { "llm", "/llm/", "/" };
    for (size_t i = 0; i < ZP_COUNT(origins); i++)
        expect_no_server(&(struct http_options){ .origins = &origins[i], .n_origins = 1 },
                         "is no origin");
    for (size_t i = 0; i < ZP_COUNT(prefixes); i++)
        expect_no_server(&(struct http_options){ .prefix = prefixes[i] }, "is no prefix");
    expect_no_server(&(struct http_options){ .key = "key.pem" }, "both a certificate and a key");
    begin(NULL);
    zp_err err = { 0 };
    serving_do(&h.s, listen_with_tls, &err);
    expect_in(err.message, "TLS needs a certificate and a key");
    end();
}

static void test_unix_socket(void **state)
{
    (void)state;
    const char *path = in_folder("a.sock");
    prepare(NULL);
    serving_open(&h.s, &h.o);
    zp_err err = { 0 };
    if (http_listen_unix(h.s.server, path, 0600, &err) != ZP_OK) fail_msg("%s", err.message);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    serving_start(&h.s);
    int fd = client_dial_path(path);
    client_say(fd, GET("/peer"));
    client_read(fd, "\r\n\r\nunix");
    close(fd);
    end();
    assert_int_not_equal(access(path, F_OK), 0);
}

static void test_systemd_socket(void **state)
{
    (void)state;
    prepare(NULL);
    serving_open(&h.s, &h.o);
    zp_err err = { 0 };
    char self[32], other[32];
    size_t n;
    snprintf(self, sizeof self, "%ld", (long)getpid());
    snprintf(other, sizeof other, "%ld", (long)getpid() + 1);
    assert_int_equal(http_listen_systemd(h.s.server, NULL, NULL, false, &n, &err), ZP_OK);
    assert_int_equal(n, 0);
    assert_int_equal(http_listen_systemd(h.s.server, other, "1", false, &n, &err), ZP_OK);
    assert_int_equal(n, 0);
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t size = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(fd, 8), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &size), 0);
    pid_t child = fork(); /* where descriptor 3 is free to be that of systemd */
    if (child == 0) {
        char pid[32];
        snprintf(pid, sizeof pid, "%ld", (long)getpid());
        struct serving s = { 0 };
        if (dup2(fd, 3) != 3) _exit(2);
        if (evloop_open(&s.loop, &err) != ZP_OK) _exit(3);
        if (http_open(&s.server, s.loop, &h.o, &err) != ZP_OK) _exit(4);
        if (http_listen_systemd(s.server, pid, "1", false, &n, &err) != ZP_OK || n != 1) _exit(5);
        evloop_run(s.loop); /* until it is killed */
    }
    assert_true(child > 0);
    close(fd);
    fd = client_dial(ntohs(a.sin_port));
    client_say(fd, GET("/echo"));
    client_read(fd, "HTTP/1.1 200 OK");
    close(fd);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    serving_start(&h.s);
    end();
}

/* ---- strictness ---- */

static void use_case(void *arg, const struct smuggling_case *c)
{
    (void)arg;
    int fd = client_dial(h.s.port);
    client_send(fd, c->bytes, c->size);
    /* What closes is read to its end; what goes on answers one more. */
    if (c->open) client_say(fd, "GET /echo?last HTTP/1.1\r\nHost: a\r\nX-Request-Id: last\r\n\r\n");
    const char *text = client_read(fd, c->open ? "x-request-id: last" : NULL);
    size_t n = 0;
    for (const char *at = text; (at = strstr(at, "HTTP/1.1 ")) != NULL; at++) {
        /* An echoed body may hold one, too, but not at the begin of a line with a status. */
        int status = (int)strtol(at + 9, NULL, 10);
        if (status < 100) continue;
        if (n < c->n_status && status != c->status[n])
            fail_msg("%s: answer %zu is %d, not %d", c->name, n + 1, status, c->status[n]);
        n++;
    }
    if (n != c->n_status + c->open) fail_msg("%s: %zu answers: %s", c->name, n, text);
    close(fd);
}

static void test_corpus_of_smuggling(void **state)
{
    (void)state;
    static const char *const names[] = { "framing", "chunks", "lines", "headers", "targets",
                                         "versions" };
    begin(NULL);
    for (size_t i = 0; i < ZP_COUNT(names); i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s.txt", ZP_SMUGGLING, names[i]);
        assert_true(smuggling_each(path, use_case, NULL) > 10);
    }
    struct http_counts n = serving_counts(&h.s);
    assert_true(n.faults[HTTP_FAULT_CHUNK] >= 10);
    assert_int_equal(n.refused, 0);
    end();
}

static void test_refusal_is_read_although_the_body_was_not(void **state)
{
    (void)state;
    begin(&(struct http_limits){ .body_bytes = 1000 });
    int fd = client_dial(h.s.port);
    client_say(fd, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3000000\r\n\r\n");
    char *body = calloc(1, 3000000);
    client_send(fd, body, 3000000);
    free(body);
    const char *text = client_read(fd, NULL);
    expect_in(text, "HTTP/1.1 413 ");
    expect_in(text, "larger than 1000 bytes");
    close(fd);
    end();
}

/* ---- leaving ---- */

enum way { CLOSE, RESET, HALF };

static void leave(int fd, enum way way)
{
    if (way == CLOSE) close(fd);
    if (way == RESET) client_reset(fd);
    if (way == HALF) shutdown(fd, SHUT_WR);
}

static void expect_gone(const char *request, enum way way)
{
    int fd = client_dial(h.s.port);
    client_say(fd, request);
    serving_wait(&h.s.arrived);
    leave(fd, way);
    serving_wait(&h.s.gone);
    assert_int_equal(h.s.why, HTTP_GONE_CLIENT);
    if (way != HALF) return;
    (void)client_read(fd, NULL); /* the server has closed, too */
    close(fd);
}

static void test_leaving_is_noticed_at_every_stage(void **state)
{
    (void)state;
    begin(NULL);
    for (enum way way = CLOSE; way <= HALF; way++) {
        expect_gone(POST("/later"), way);
        expect_gone(GET("/events"), way);
        expect_gone(POST("/later") GET("/echo"), way);
    }
    struct http_counts n = serving_counts(&h.s);
    assert_int_equal(n.exchanges, 0);
    assert_int_equal(n.requests[3][HTTP_CLASS_GONE], 6);
    assert_int_equal(n.requests[4][2], 3);
    int extra;
    assert_int_equal(sem_getvalue(&h.s.gone, &extra), 0);
    assert_int_equal(extra, 0); /* once each */
    end();
}

static void test_leaving_is_noticed_behind_unread_bytes(void **state)
{
    (void)state;
    begin(NULL);
    int fd = client_dial(h.s.port);
    client_say(fd, POST("/later"));
    serving_wait(&h.s.arrived);
    /* More than the server reads ahead, so that it stops reading, and not more than the kernel then
     * takes: an end behind what does not fit is not sent before there is room. */
    static char more[100 << 10];
    memset(more, 'G', sizeof more);
    client_send(fd, more, sizeof more);
    shutdown(fd, SHUT_WR);
    serving_wait(&h.s.gone);
    close(fd);
    end();
}

static void test_leaving_in_a_body_frees_it(void **state)
{
    (void)state;
    begin(NULL);
    int fd = client_dial(h.s.port);
    client_say(fd, "GET /ec"); /* in a head there is not even an exchange */
    client_reset(fd);
    while (serving_counts(&h.s).open != 0) {
    }
    fd = client_dial(h.s.port);
    client_say(fd, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n");
    static const char some[50000];
    client_send(fd, some, sizeof some);
    while (serving_counts(&h.s).bodies_bytes != sizeof some) {
    }
    close(fd);
    while (serving_counts(&h.s).open != 0) {
    }
    struct http_counts n = serving_counts(&h.s);
    assert_int_equal(n.bodies_bytes, 0);
    assert_int_equal(n.requests[1][HTTP_CLASS_GONE], 1);
    end();
}

static void write_much(void *arg)
{
    static const char data[1 << 14];
    (void)arg;
    if (h.s.n_kept != 0) http_stream_write(h.s.kept[0], data, sizeof data);
}

static void test_reader_that_is_too_slow_is_cut(void **state)
{
    (void)state;
    begin(&(struct http_limits){ .queue_bytes = 100000 });
    int fd = client_dial(h.s.port);
    client_say(fd, GET("/events"));
    serving_wait(&h.s.arrived);
    size_t written = 0; /* until the kernel's buffers are full, and ours */
    while (sem_trywait(&h.s.gone) != 0 && written < ((size_t)1 << 30)) {
        serving_do(&h.s, write_much, NULL);
        written += 1 << 14;
    }
    printf("cut after %zu bytes\n", written);
    assert_int_equal(h.s.why, HTTP_GONE_SLOW);
    assert_int_equal(serving_counts(&h.s).cut_slow, 1);
    close(fd);
    end();
}

static void write_event(void *arg)
{
    http_sse_event(h.s.kept[0], NULL, arg, strlen(arg));
}

static void end_stream(void *arg)
{
    (void)arg;
    http_stream_end(h.s.kept[--h.s.n_kept]);
}

static void test_stream_arrives_event_by_event(void **state)
{
    (void)state;
    begin(NULL);
    int fd = client_dial(h.s.port);
    client_say(fd, GET("/events") GET("/echo"));
    serving_wait(&h.s.arrived);
    client_read(fd, "\r\n\r\n");
    serving_do(&h.s, write_event, "one");
    client_read(fd, "data: one\n\n");
    serving_do(&h.s, write_event, "two");
    client_read(fd, "data: two\n\n");
    serving_do(&h.s, end_stream, NULL);
    expect_in(client_read(fd, "HTTP/1.1 200 OK"), "0\r\n\r\nHTTP/1.1 200 OK");
    close(fd);
    end();
}

static void test_silence_is_filled_with_comments(void **state)
{
    (void)state;
    begin(&(struct http_limits){ .comment_ms = 20 });
    int fd = client_dial(h.s.port);
    client_say(fd, GET("/events"));
    serving_wait(&h.s.arrived);
    client_read(fd, ": keep-alive\n\n");
    client_read(fd, ": keep-alive\n\n");
    client_reset(fd);
    serving_wait(&h.s.gone);
    end();
}

static void test_limits_of_time(void **state)
{
    (void)state;
    begin(&(struct http_limits){ .header_ms = 40, .body_ms = 40, .idle_ms = 40,
                                 .exchange_ms = 40 });
    int fd = client_dial(h.s.port);
    client_say(fd, "GET /ec");
    expect_in(client_read(fd, NULL), "HTTP/1.1 408 ");
    close(fd);
    fd = client_dial(h.s.port);
    client_say(fd, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab");
    expect_in(client_read(fd, NULL), "body_timeout");
    close(fd);
    fd = client_dial(h.s.port);
    client_say(fd, GET("/echo"));
    expect_in(client_read(fd, NULL), "HTTP/1.1 200 ");
    close(fd);
    fd = client_dial(h.s.port);
    client_say(fd, POST("/later"));
    expect_in(client_read(fd, NULL), "HTTP/1.1 504 ");
    serving_wait(&h.s.gone);
    assert_int_equal(h.s.why, HTTP_GONE_TIME);
    close(fd);
    end();
}

/* ---- many ---- */

static void test_connections_beyond_the_limit_are_told_so(void **state)
{
    (void)state;
    begin(&(struct http_limits){ .n_connections = 2 });
    int a = client_dial(h.s.port), b = client_dial(h.s.port);
    client_say(a, GET("/echo"));
    client_read(a, "\r\n\r\n");
    client_say(b, GET("/echo"));
    client_read(b, "\r\n\r\n");
    int c = client_dial(h.s.port);
    const char *text = client_read(c, NULL);
    expect_in(text, "HTTP/1.1 503 ");
    expect_in(text, "\r\nretry-after: 1\r\n");
    expect_in(text, "more than 2 connections are open");
    close(c);
    close(b);
    while (serving_counts(&h.s).open != 1) {
    }
    c = client_dial(h.s.port);
    client_say(c, GET("/echo"));
    client_read(c, "HTTP/1.1 200 ");
    struct http_counts n = serving_counts(&h.s);
    assert_int_equal(n.accepted, 4);
    assert_int_equal(n.refused, 1);
    close(a);
    close(c);
    end();
}

static void test_connections_far_beyond_the_limit_are_closed(void **state)
{
    (void)state;
    enum { TRIED = 200 };
    begin(&(struct http_limits){ .n_connections = 1, .linger_ms = 1000000 });
    int fd[TRIED];
    size_t answered = 0, n = 0;
    char byte;
    for (; n < TRIED; n++) { /* each is told, and does not leave */
        fd[n] = client_dial(h.s.port);
        if (n == 0) client_say(fd[n], GET("/echo"));
        if (recv(fd[n], &byte, 1, 0) == 1) answered++;
    }
    assert_int_equal(answered, 1 + 64);
    assert_int_equal(serving_counts(&h.s).open, 1 + 64);
    assert_int_equal(serving_counts(&h.s).refused, TRIED - 1);
    while (n != 0) close(fd[--n]);
    end();
}

static void test_no_descriptors_left(void **state)
{
    (void)state;
    begin(NULL);
    int waiting = client_dial(h.s.port);
    client_say(waiting, GET("/echo"));
    client_read(waiting, "\r\n\r\n");
    /* Just one descriptor, for this side of a connection. */
    struct rlimit before, few;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    int fd = client_socket(AF_INET);
    few = before;
    few.rlim_cur = (rlim_t)fd + 1;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(h.s.port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    client_say(fd, GET("/echo"));
    while (serving_counts(&h.s).accept_errors < 2) { /* it pauses, looks again, pauses */
    }
    uint64_t errors = serving_counts(&h.s).accept_errors;
    for (int i = 0; i < 200; i++) { /* others are served meanwhile */
        client_say(waiting, GET("/echo"));
        client_read(waiting, "\r\n\r\n");
    }
    assert_true(serving_counts(&h.s).accept_errors < errors + 100); /* and no loop runs hot */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    client_read(fd, "HTTP/1.1 200 ");
    close(fd);
    close(waiting);
    end();
}

/* In a process of its own, as both sides need a descriptor: opens n connections that each have had
 * an answer, says so, and holds them until it is told to go. */
static void hold_connections(int from, int to, size_t n)
{
    uint16_t port;
    char byte = 'x';
    if (read(from, &port, sizeof port) != sizeof port) _exit(1);
    for (size_t i = 0; i < n; i++) {
        int fd = client_dial(port);
        client_say(fd, GET("/echo"));
        client_read(fd, "\r\n\r\n");
    }
    if (write(to, &byte, 1) != 1) _exit(2);
    _exit(read(from, &byte, 1) == 0 ? 0 : 3);
}

static void test_ten_thousand_idle_connections(void **state)
{
    (void)state;
    enum { WANTED = 10000, OTHERS = 100 };
    struct rlimit most;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &most), 0);
    most.rlim_cur = most.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &most), 0);
    size_t n = most.rlim_cur > WANTED + OTHERS ? WANTED : most.rlim_cur - OTHERS;
    if (n < WANTED) printf("room for %zu connections only\n", n);
    int to[2], from[2];
    assert_int_equal(pipe(to), 0);
    assert_int_equal(pipe(from), 0);
    pid_t child = fork();
    if (child == 0) {
        close(to[1]);
        hold_connections(to[0], from[1], n);
    }
    close(to[0]);
    close(from[1]);
    begin(&(struct http_limits){ .n_connections = WANTED });
    uint64_t before = live_bytes();
    char byte;
    assert_int_equal(write(to[1], &h.s.port, sizeof h.s.port), sizeof h.s.port);
    assert_int_equal(read(from[0], &byte, 1), 1);
    assert_int_equal(serving_counts(&h.s).open, n);
    uint64_t each = (live_bytes() - before) / n;
    printf("%zu idle connections, %llu bytes each\n", n, (unsigned long long)each);
    assert_true(each < 4096);
    close(to[1]);
    int how;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    close(from[0]);
    while (serving_counts(&h.s).open != 0) {
    }
    end();
}

/* ---- the end ---- */

static void set_drained(void *arg)
{
    struct serving *s = arg;
    s->drained = true;
    sem_post(&s->gone);
}

static void drain_long(void *arg)
{
    http_drain(((struct serving *)arg)->server, 1000000, set_drained, arg);
}

static void drain_short(void *arg)
{
    http_drain(((struct serving *)arg)->server, 10, set_drained, arg);
}

static void test_drain_finishes_what_is_under_way(void **state)
{
    (void)state;
    begin(NULL);
    int idle = client_dial(h.s.port), busy = client_dial(h.s.port);
    client_say(idle, GET("/echo"));
    client_read(idle, "\r\n\r\n");
    client_say(busy, GET("/events"));
    serving_wait(&h.s.arrived);
    serving_do(&h.s, drain_long, &h.s);
    assert_string_equal(client_read(idle, NULL), "");
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(h.s.port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int late = client_socket(AF_INET);
    assert_int_equal(connect(late, (struct sockaddr *)&a, sizeof a), -1);
    assert_int_equal(errno, ECONNREFUSED);
    close(late);
    serving_do(&h.s, write_event, "last");
    serving_do(&h.s, end_stream, NULL);
    expect_in(client_read(busy, NULL), "data: last\n\n\r\n0\r\n\r\n");
    close(busy);
    close(idle);
    serving_wait(&h.s.gone);
    assert_true(h.s.drained);
    end();
}

static void test_drain_cuts_what_takes_too_long(void **state)
{
    (void)state;
    begin(NULL);
    int fd = client_dial(h.s.port);
    client_say(fd, POST("/later"));
    serving_wait(&h.s.arrived);
    serving_do(&h.s, drain_short, &h.s);
    serving_wait(&h.s.gone);
    assert_int_equal(h.s.why, HTTP_GONE_CUT);
    serving_wait(&h.s.gone);
    assert_true(h.s.drained);
    close(fd);
    end();
}

static void test_drain_of_nothing(void **state)
{
    (void)state;
    begin(NULL);
    serving_do(&h.s, drain_long, &h.s);
    serving_wait(&h.s.gone);
    assert_true(h.s.drained);
    end();
}

static void test_close_cuts_all(void **state)
{
    (void)state;
    begin(NULL);
    int a = client_dial(h.s.port), b = client_dial(h.s.port);
    client_say(a, POST("/later"));
    serving_wait(&h.s.arrived);
    client_say(b, GET("/events"));
    serving_wait(&h.s.arrived);
    end();
    assert_int_equal(h.s.why, HTTP_GONE_CUT);
    close(a);
    close(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tcp),
        cmocka_unit_test(test_all_addresses_of_a_name),
        cmocka_unit_test(test_a_port_is_not_shared),
        cmocka_unit_test(test_options_that_cannot_work),
        cmocka_unit_test(test_unix_socket),
        cmocka_unit_test(test_systemd_socket),
        cmocka_unit_test(test_corpus_of_smuggling),
        cmocka_unit_test(test_refusal_is_read_although_the_body_was_not),
        cmocka_unit_test(test_leaving_is_noticed_at_every_stage),
        cmocka_unit_test(test_leaving_is_noticed_behind_unread_bytes),
        cmocka_unit_test(test_leaving_in_a_body_frees_it),
        cmocka_unit_test(test_reader_that_is_too_slow_is_cut),
        cmocka_unit_test(test_stream_arrives_event_by_event),
        cmocka_unit_test(test_silence_is_filled_with_comments),
        cmocka_unit_test(test_limits_of_time),
        cmocka_unit_test(test_connections_beyond_the_limit_are_told_so),
        cmocka_unit_test(test_connections_far_beyond_the_limit_are_closed),
        cmocka_unit_test(test_no_descriptors_left),
        cmocka_unit_test(test_ten_thousand_idle_connections),
        cmocka_unit_test(test_drain_finishes_what_is_under_way),
        cmocka_unit_test(test_drain_cuts_what_takes_too_long),
        cmocka_unit_test(test_drain_of_nothing),
        cmocka_unit_test(test_close_cuts_all),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
