/* test_httpflow.c: the course of a connection without its socket: order of answers, streams,
 * clients that leave or do not read, draining, pages of other origins. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "serve/wire_bench.h"

/* ---- order ---- */

static void test_pipelined_requests_are_answered_in_order(void **state)
{
    (void)state;
    open_bench();
    const char *got = say("POST /later HTTP/1.1\r\nHost: a\r\n\r\n"
                          "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\nsecond"
                          "POST /later HTTP/1.1\r\nHost: a\r\n\r\n" GET("/echo"));
    assert_string_equal(got, "");
    assert_int_equal(b.w.n_calls, 1); /* one at a time */
    http_reply(b.w.kept[0], &(struct http_reply){ .status = 201 });
    assert_int_equal(b.w.n_calls, 1); /* never from inside a call */
    wire_settle(&b.w);
    assert_int_equal(b.w.n_calls, 3);
    got = wire_got(&b.w);
    expect_in(got, "HTTP/1.1 201 ");
    expect_in(strstr(got, "201"), "second");
    http_reply(b.w.kept[1], &(struct http_reply){ .status = 202 });
    wire_settle(&b.w);
    b.w.n_kept = 0;
    got = wire_got(&b.w);
    expect_in(got, "HTTP/1.1 202 ");
    expect_in(strstr(got, "202 "), "HTTP/1.1 200 ");
    close_bench();
}

static void test_a_thousand_requests_at_once(void **state)
{
    (void)state;
    open_bench();
    struct buffer text = buffer_with_max(MEM_META, SIZE_MAX / 4);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(buffer_append_text(&text, GET("/echo"), NULL), ZP_OK);
    b.w.room = 0; /* a client that sends and does not read */
    wire_send(&b.w, text.data, text.size);
    size_t begun = b.w.n_calls;
    assert_in_range(begun, 50, 500);
    assert_true(httpout_pending(&b.w.conn.out) < (20u << 10)); // C3
    wire_send(&b.w, text.data, text.size);
    assert_int_equal(b.w.n_calls, begun);
    b.w.room = SIZE_MAX;
    wire_settle(&b.w);
    assert_int_equal(b.w.n_calls, 2000);
    buffer_free(&text);
    close_bench();
}

static void test_bytes_behind_a_working_handler_are_bounded(void **state)
{
    (void)state;
    open_bench();
    say("POST /later HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_true(httpconn_wants_input(&b.w.conn));
    static char more[64 << 10];
    memset(more, 'G', sizeof more);
    wire_send(&b.w, more, sizeof more);
    assert_false(httpconn_wants_input(&b.w.conn)); // C3
    wire_eof(&b.w);                                /* seen all the same */
    assert_int_equal(b.w.n_gone, 1);
    close_bench();
}

/* ---- streams ---- */

static void test_stream_of_events(void **state)
{
    (void)state;
    open_bench();
    const char *got = say(GET("/events"));
    expect_in(got, "\r\ncontent-type: text/event-stream; charset=utf-8\r\n");
    expect_in(got, "\r\ncache-control: no-store\r\nx-accel-buffering: no\r\n");
    expect_in(got, "\r\ntransfer-encoding: chunked\r\n");
    expect_not_in(got, "content-length");
    struct http_exchange *x = b.w.kept[--b.w.n_kept];
    http_sse_event(x, NULL, "{\"a\":1}", 7);
    wire_settle(&b.w);
    assert_string_equal(wire_got(&b.w), "f\r\ndata: {\"a\":1}\n\n\r\n");
    http_sse_event(x, "ping\nevil: 1", "a\r\nb\rc\n", 7);
    wire_settle(&b.w);
    assert_string_equal(wire_got(&b.w),
                        "2c\r\nevent: ping\ndata: a\ndata: b\ndata: c\ndata: \n\n\r\n");
    http_sse_event(x, NULL, "", 0);
    http_stream_write(x, "", 0); /* would be the last chunk */
    http_stream_end(x);
    wire_settle(&b.w);
    assert_string_equal(wire_got(&b.w), "8\r\ndata: \n\n\r\n0\r\n\r\n");
    expect_in(say(GET("/echo")), "HTTP/1.1 200 OK"); /* the connection goes on */
    assert_int_equal(b.w.n_gone, 0);
    close_bench();
}

static void test_stream_for_old_clients_ends_with_the_connection(void **state)
{
    (void)state;
    open_bench();
    const char *got = say("GET /events HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    expect_not_in(got, "transfer-encoding");
    expect_in(got, "\r\nconnection: close\r\n");
    struct http_exchange *x = b.w.kept[--b.w.n_kept];
    http_sse_event(x, NULL, "x", 1);
    http_stream_end(x);
    wire_settle(&b.w);
    assert_string_equal(wire_got(&b.w), "data: x\n\n");
    assert_true(wire_is_closed(&b.w));
    close_bench();
}

static void test_silent_streams_get_comments(void **state)
{
    (void)state;
    b.o.limits.comment_ms = 100;
    open_bench();
    say(GET("/events"));
    wire_wait(&b.w, 99);
    assert_string_equal(wire_got(&b.w), "");
    wire_wait(&b.w, 1);
    assert_string_equal(wire_got(&b.w), "e\r\n: keep-alive\n\n\r\n");
    wire_wait(&b.w, 60);
    http_sse_event(b.w.kept[0], NULL, "x", 1);
    wire_settle(&b.w);
    wire_got(&b.w);
    wire_wait(&b.w, 99);
    assert_string_equal(wire_got(&b.w), "");
    wire_wait(&b.w, 1);
    assert_string_equal(wire_got(&b.w), "e\r\n: keep-alive\n\n\r\n");
    close_bench();
}

static void test_slow_reader_of_a_stream_is_cut(void **state)
{
    (void)state;
    b.o.limits.queue_bytes = 1000;
    open_bench();
    say(GET("/events"));
    static const char data[100];
    for (int i = 0; i < 1000; i++) http_stream_write(b.w.kept[0], data, sizeof data);
    assert_false(httpconn_is_lost(&b.w.conn)); /* a client that reads is not cut in a burst */
    wire_settle(&b.w);
    b.w.room = 0;
    for (int i = 0; i < 9; i++) http_stream_write(b.w.kept[0], data, sizeof data);
    wire_settle(&b.w);
    assert_int_equal(b.w.n_gone, 0);
    http_stream_write(b.w.kept[0], data, sizeof data);
    assert_int_equal(b.w.n_gone, 0); /* never from inside a call */
    http_stream_write(b.w.kept[0], data, sizeof data);
    wire_settle(&b.w);
    assert_int_equal(b.w.n_gone, 1);
    assert_int_equal(b.w.why, HTTP_GONE_SLOW);
    assert_true(wire_is_over(&b.w));
    assert_int_equal(b.w.core.counts.cut_slow, 1);
    size_t pending = httpout_pending(&b.w.conn.out);
    http_stream_write(b.w.kept[0], data, sizeof data); /* to nobody */
    assert_int_equal(httpout_pending(&b.w.conn.out), pending);
    close_bench();
}

static void test_client_that_takes_nothing_is_cut_in_time(void **state)
{
    (void)state;
    b.o.limits.send_ms = 100;
    open_bench();
    b.w.room = 0;
    say("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab");
    wire_wait(&b.w, 99);
    b.w.room = 1; /* one byte is progress */
    wire_settle(&b.w);
    wire_wait(&b.w, 99);
    assert_false(wire_is_over(&b.w));
    wire_wait(&b.w, 1);
    assert_true(wire_is_over(&b.w));
    assert_int_equal(b.w.core.counts.cut_slow, 1);
    close_bench();
}

/* ---- leaving ---- */

static void test_client_leaves_while_a_handler_works(void **state)
{
    (void)state;
    open_bench();
    say("POST /later HTTP/1.1\r\nHost: a\r\n\r\n");
    wire_eof(&b.w);
    assert_int_equal(b.w.n_gone, 1);
    assert_int_equal(b.w.why, HTTP_GONE_CLIENT);
    assert_true(wire_is_over(&b.w));
    assert_int_equal(b.w.status, 499);
    assert_int_equal(b.w.core.requests[3][HTTP_CLASS_GONE], 1);
    http_sse_begin(b.w.kept[0], NULL); /* to nobody */
    http_sse_event(b.w.kept[0], "x", "y", 1);
    http_stream_end(b.w.kept[--b.w.n_kept]);
    wire_settle(&b.w);
    assert_int_equal(b.w.n_gone, 1);
    assert_int_equal(b.w.core.counts.exchanges, 0);
    assert_string_equal(wire_got(&b.w), "");
    close_bench();
}

static void test_client_leaves_in_a_body(void **state)
{
    (void)state;
    open_bench();
    say("POST /later HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nab");
    wire_eof(&b.w);
    assert_true(wire_is_over(&b.w));
    assert_int_equal(b.w.n_calls, 0);
    assert_int_equal(b.w.n_access, 1);
    assert_int_equal(b.w.status, 499);
    assert_int_equal(b.w.core.bodies.now, 0);
    close_bench();
}

static void test_answers_are_sent_to_a_client_that_sends_no_more(void **state)
{
    (void)state;
    open_bench();
    b.w.room = 10;
    say("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc");
    wire_eof(&b.w);
    assert_false(wire_is_over(&b.w));
    b.w.room = SIZE_MAX;
    wire_settle(&b.w);
    expect_in(wire_got(&b.w), "\r\n\r\nabc");
    assert_true(wire_is_over(&b.w)); /* nobody is there to linger for */
    close_bench();
}

static void test_loss_is_told_once_whatever_follows(void **state)
{
    (void)state;
    open_bench();
    say(GET("/events"));
    httpconn_lose(&b.w.conn, HTTP_GONE_CLIENT);
    httpconn_lose(&b.w.conn, HTTP_GONE_SLOW);
    assert_int_equal(b.w.n_gone, 0);
    wire_settle(&b.w);
    wire_eof(&b.w);
    wire_wait(&b.w, 1000000);
    assert_int_equal(b.w.n_gone, 1);
    assert_int_equal(b.w.why, HTTP_GONE_CLIENT);
    close_bench();

    open_bench();
    say(GET("/events"));
    httpconn_lose(&b.w.conn, HTTP_GONE_CLIENT);
    http_stream_end(b.w.kept[--b.w.n_kept]); /* the end comes before the loss was told */
    wire_settle(&b.w);
    assert_int_equal(b.w.n_gone, 0);
    assert_int_equal(b.w.core.counts.exchanges, 0);
    close_bench();
}

static void test_aborted_exchanges(void **state)
{
    (void)state;
    open_bench();
    say("POST /later HTTP/1.1\r\nHost: a\r\n\r\n");
    http_abort(b.w.kept[--b.w.n_kept]);
    wire_settle(&b.w);
    expect_in(wire_got(&b.w), "HTTP/1.1 500 ");
    say(GET("/events"));
    http_abort(b.w.kept[--b.w.n_kept]);
    wire_settle(&b.w);
    assert_string_equal(wire_got(&b.w), ""); /* no last chunk: the client sees that it broke */
    assert_true(wire_is_over(&b.w));
    assert_int_equal(b.w.n_gone, 0);
    close_bench();
}

static void test_draining(void **state)
{
    (void)state;
    open_bench();
    b.w.core.draining = true;
    httpconn_drain(&b.w.conn);
    assert_true(wire_is_over(&b.w)); /* idle */
    close_bench();

    open_bench();
    say("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\na");
    b.w.core.draining = true;
    httpconn_drain(&b.w.conn);
    assert_false(wire_is_closed(&b.w)); /* under way */
    expect_in(say("b" GET("/echo")), "\r\nconnection: close\r\n");
    assert_int_equal(b.w.n_calls, 1);
    assert_true(wire_is_closed(&b.w));
    close_bench();

    open_bench();
    say(GET("/events"));
    b.w.core.draining = true;
    httpconn_drain(&b.w.conn);
    http_stream_end(b.w.kept[--b.w.n_kept]);
    wire_settle(&b.w);
    assert_true(wire_is_closed(&b.w)); /* although its head promised more */
    close_bench();
}

/* ---- pages of other origins ---- */

#define PREFLIGHT                                                                                  \
    "OPTIONS /echo HTTP/1.1\r\nHost: a\r\nOrigin: https://p.example\r\n"                           \
    "Access-Control-Request-Method: POST\r\n"                                                      \
    "Access-Control-Request-Headers: authorization, x-stainless-os\r\n\r\n"

static void test_origins_are_closed_by_default(void **state)
{
    (void)state;
    open_bench();
    const char *got = say(PREFLIGHT);
    expect_in(got, "HTTP/1.1 403 ");
    expect_not_in(got, "access-control-");
    got = say("GET /echo HTTP/1.1\r\nHost: a\r\nOrigin: https://p.example\r\n\r\n");
    expect_in(got, "origin_not_allowed");
    expect_in(say("GET /echo HTTP/1.1\r\nHost: a:80\r\nOrigin: http://A:80\r\n\r\n"),
              "HTTP/1.1 200 ");
    got = say("OPTIONS /echo HTTP/1.1\r\nHost: a\r\n\r\n");
    expect_in(got, "HTTP/1.1 204 No Content\r\n");
    expect_in(got, "\r\nallow: GET, HEAD, POST, OPTIONS\r\n");
    expect_not_in(got, "content-length");
    assert_int_equal(b.w.n_calls, 1);
    close_bench();
}

static void test_origins_of_the_list_are_let_in(void **state)
{
    (void)state;
    static const char *const origins[] = { "https://q.example", "https://p.example" };
    b.o.origins = origins;
    b.o.n_origins = 2;
    open_bench();
    const char *got = say(PREFLIGHT);
    expect_in(got, "HTTP/1.1 204 ");
    expect_in(got, "\r\naccess-control-allow-origin: https://p.example\r\n");
    expect_in(got, "\r\naccess-control-allow-methods: GET, HEAD, POST, OPTIONS\r\n");
    expect_in(got, "\r\naccess-control-allow-headers: authorization, x-stainless-os\r\n");
    expect_in(got, "\r\nvary: origin\r\n");
    got = say("GET /echo HTTP/1.1\r\nHost: a\r\nOrigin: https://p.example\r\n\r\n");
    expect_in(got, "\r\naccess-control-allow-origin: https://p.example\r\n");
    got = say("GET /nowhere HTTP/1.1\r\nHost: a\r\nOrigin: https://p.example\r\n\r\n");
    expect_in(got, "HTTP/1.1 404 "); /* an error is readable, too */
    expect_in(got, "\r\naccess-control-allow-origin: https://p.example\r\n");
    got = say("GET /echo HTTP/1.1\r\nHost: a\r\nOrigin: https://r.example\r\n\r\n");
    expect_in(got, "HTTP/1.1 403 ");
    close_bench();

    static const char *const all[] = { "*" };
    b.o.origins = all;
    b.o.n_origins = 1;
    open_bench();
    got = say("GET /echo HTTP/1.1\r\nHost: a\r\nOrigin: null\r\n\r\n");
    expect_in(got, "\r\naccess-control-allow-origin: *\r\n");
    close_bench();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_pipelined_requests_are_answered_in_order, clear),
        cmocka_unit_test_setup(test_a_thousand_requests_at_once, clear),
        cmocka_unit_test_setup(test_bytes_behind_a_working_handler_are_bounded, clear),
        cmocka_unit_test_setup(test_stream_of_events, clear),
        cmocka_unit_test_setup(test_stream_for_old_clients_ends_with_the_connection, clear),
        cmocka_unit_test_setup(test_silent_streams_get_comments, clear),
        cmocka_unit_test_setup(test_slow_reader_of_a_stream_is_cut, clear),
        cmocka_unit_test_setup(test_client_that_takes_nothing_is_cut_in_time, clear),
        cmocka_unit_test_setup(test_client_leaves_while_a_handler_works, clear),
        cmocka_unit_test_setup(test_client_leaves_in_a_body, clear),
        cmocka_unit_test_setup(test_answers_are_sent_to_a_client_that_sends_no_more, clear),
        cmocka_unit_test_setup(test_loss_is_told_once_whatever_follows, clear),
        cmocka_unit_test_setup(test_aborted_exchanges, clear),
        cmocka_unit_test_setup(test_draining, clear),
        cmocka_unit_test_setup(test_origins_are_closed_by_default, clear),
        cmocka_unit_test_setup(test_origins_of_the_list_are_let_in, clear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
