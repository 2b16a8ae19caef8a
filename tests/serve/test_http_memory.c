/* test_http_memory.c: the HTTP server when allocation number n fails, for all n: opening says so
 * and leaves nothing, connections are lost alone, handlers are told once, and it works
 * afterwards. */
#include "fault/alloc_failures.h"

#include "in_folder.h"
#include "serve/serving.h"
#include "serve/wire.h"

#define GET(path) "GET " path " HTTP/1.1\r\nHost: a\r\n\r\n"

/* ---- opening ---- */

static zp_status open_all(void *arg, zp_err *why)
{
    static const struct http_route routes[] = { { .method = "GET", .path = "/" } };
    struct http_options o = { .routes = routes, .n_routes = 1 };
    struct evloop *loop;
    struct http_server *s = NULL;
    ZP_TRY(evloop_open(&loop, why));
    zp_status status = http_open(&s, loop, &o, why);
    if (status == ZP_OK) status = http_listen_tcp(s, "127.0.0.1", 0, false, NULL, why);
    if (status == ZP_OK) status = http_listen_unix(s, arg, 0, why);
    http_close(s);
    evloop_close(loop);
    return status;
}

static void test_opening(void **state)
{
    (void)state;
    char path[128];
    snprintf(path, sizeof path, "%s", in_folder("a.sock"));
    struct fail_call call = { .what = "open and listen", .run = open_all, .arg = path };
    fail_each(&call, 10);
    assert_int_not_equal(access(path, F_OK), 0);
}

/* ---- a connection ---- */

static struct wire w;

/* Everything a connection does; it may end anywhere. */
static void run_session(void)
{
    char many[3000] = "", request[256];
    for (int i = 0; i < 40; i++)
        snprintf(many + strlen(many), 64, "x-header-%d: some words that take room\r\n", i);
    wire_say(&w, GET("/echo") "HEAD /echo HTTP/1.1\r\nHost: a\r\nX-Request-Id: abc\r\n\r\n");
    wire_say(&w, "GET /echo HTTP/1.1\r\nHost: a\r\n");
    wire_say(&w, many);
    wire_say(&w, "\r\nPOST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < 4; i++) {
        int n = snprintf(request, sizeof request, "80\r\n%.*s\r\n", 128, many);
        wire_send(&w, request, (size_t)n);
    }
    wire_say(&w, "0\r\n\r\n" GET("/nowhere") "OPTIONS /echo HTTP/1.1\r\nHost: a\r\n\r\n");
    wire_say(&w, "POST /later HTTP/1.1\r\nHost: a\r\n\r\n" GET("/events") GET("/echo"));
    if (w.n_kept != 0) {
        http_reply(w.kept[--w.n_kept], &(struct http_reply){ .status = 200, .body = many,
                                                             .size = strlen(many) });
        wire_settle(&w);
    }
    if (w.n_kept != 0) {
        for (int i = 0; i < 20; i++) http_sse_event(w.kept[0], "e", many, 200);
        wire_wait(&w, 20000); /* a comment */
        http_stream_end(w.kept[--w.n_kept]);
        wire_settle(&w);
    }
    wire_say(&w, "GET / HTTP/9.9\r\n");
}

static void test_connections(void **state)
{
    (void)state;
    const struct http_route routes[] = WIRE_ROUTES(&w);
    struct http_options o = { .routes = routes, .n_routes = ZP_COUNT(routes),
                              .on_access = wire_access, .arg = &w };
    size_t n = 0, calls = 0;
    for (int for_ever = 0; for_ever <= 1; for_ever++) {
        uint64_t failed = 1;
        for (n = 1; failed != 0; n++) {
            uint64_t live = live_bytes();
            assert_int_equal(wire_open(&w, &o), ZP_OK);
            mem_fail_at(n, for_ever);
            run_session();
            failed = mem_fail_count();
            mem_fail_at(0, false);
            calls = w.n_calls;
            assert_true(w.n_gone <= 1);
            assert_true(wire_is_closed(&w));
            wire_close(&w);
            if (live_bytes() != live) fail_msg("allocation %zu: bytes stay behind", n);
        }
        assert_int_equal(calls, 7); /* the last session lacked nothing */
    }
    printf("%zu allocations failed\n", n - 2);
    assert_true(n > 40);
}

/* ---- sockets ---- */

static void test_sockets(void **state)
{
    (void)state;
    static struct serving s;
    const struct http_route routes[] = SERVING_ROUTES(&s);
    struct http_options o = { .routes = routes, .n_routes = ZP_COUNT(routes) };
    uint64_t live = live_bytes(), failed = 1, n;
    serving_begin(&s, &o, false);
    for (n = 1; failed != 0; n++) {
        int fd = client_dial(s.port); /* accepted with the failure, or just before it */
        mem_fail_at(n, false);
        client_say(fd, "GET /echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        char text[512];
        while (recv(fd, text, sizeof text, 0) > 0) {
        }
        close(fd);
        while (serving_counts(&s).open != 0) {
        }
        failed = mem_fail_count();
        mem_fail_at(0, false);
        assert_int_equal(serving_counts(&s).exchanges, 0);
    }
    int fd = client_dial(s.port);
    client_say(fd, GET("/echo"));
    client_read(fd, "HTTP/1.1 200 ");
    close(fd);
    assert_true(n > 5);
    serving_end(&s);
    assert_int_equal(live_bytes(), live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_opening),
        cmocka_unit_test(test_connections),
        cmocka_unit_test(test_sockets),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
