/* test_httpconn.c: requests and whole answers of a connection without its socket: the corpus of
 * smuggling in whole and in parts, limits, time, errors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "serve/wire_bench.h"
#include "serve/smuggling.h"

/* Statuses of the answers in a text, up to 8; what is not an answer fails. */
static size_t read_statuses(const char *text, int status[8], const char **last)
{
    size_t n = 0;
    *last = "";
    while (*text != '\0') {
        if (strncmp(text, "HTTP/1.1 ", 9) != 0) fail_msg("no answer: %.60s", text);
        status[n++ % 8] = (int)strtol(text + 9, NULL, 10);
        const char *end = strstr(text, "\r\n\r\n");
        const char *length = strstr(text, "content-length: ");
        assert_non_null(end);
        *last = text;
        bool sized = length != NULL && length < end;
        text = end + 4 + (sized ? strtoul(length + 16, NULL, 10) : 0);
    }
    return n;
}

static void expect_answers(const struct smuggling_case *c, const char *how)
{
    int status[8];
    const char *last;
    size_t n = read_statuses(wire_got(&b.w), status, &last);
    for (size_t i = 0; i < c->n_status && i < n; i++)
        if (status[i] != c->status[i])
            fail_msg("%s, %s: answer %zu is %d, not %d", c->name, how, i + 1, status[i],
                     c->status[i]);
    if (n != c->n_status) fail_msg("%s, %s: %zu answers, not %zu", c->name, how, n, c->n_status);
    if (c->code[0] != '\0' && strstr(last, c->code) == NULL)
        fail_msg("%s, %s: not %s: %s", c->name, how, c->code, last);
    if (wire_is_closed(&b.w) == c->open)
        fail_msg("%s, %s: the connection is %s", c->name, how, c->open ? "closed" : "open");
    for (size_t i = 0; i < b.w.n_calls; i++)
        if (strncmp(strchr(b.w.calls[i], ' '), " /smuggled", 10) == 0)
            fail_msg("%s, %s: %s", c->name, how, b.w.calls[i]);
}

static void run_case(void *arg, const struct smuggling_case *c)
{
    (void)arg;
    open_bench();
    wire_send(&b.w, c->bytes, c->size);
    expect_answers(c, "whole");
    close_bench();
    open_bench();
    for (size_t i = 0; i < c->size; i++) wire_send(&b.w, c->bytes + i, 1);
    expect_answers(c, "byte by byte");
    close_bench();
    for (size_t cut = 1; cut < c->size; cut++) {
        open_bench();
        wire_send(&b.w, c->bytes, cut);
        wire_send(&b.w, c->bytes + cut, c->size - cut);
        expect_answers(c, "in two parts");
        close_bench();
    }
}

static void test_corpus_of_smuggling(void **state)
{
    (void)state;
    static const char *const names[] = { "framing", "chunks", "lines", "headers", "targets",
                                         "versions" };
    size_t n = 0;
    for (size_t i = 0; i < ZP_COUNT(names); i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s.txt", ZP_SMUGGLING, names[i]);
        size_t some = smuggling_each(path, run_case, NULL);
        assert_true(some > 10);
        n += some;
    }
    printf("%zu cases\n", n);
}

/* ---- answers ---- */

static void test_whole_answer(void **state)
{
    (void)state;
    open_bench();
    const char *got = say("POST /echo?q=1 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
    assert_true(strncmp(got, "HTTP/1.1 200 OK\r\ndate: ", 23) == 0);
    expect_in(got, "\r\ncontent-type: text/plain\r\n");
    expect_in(got, "\r\ncontent-length: 5\r\n");
    expect_in(got, "\r\nx-request-id: ");
    expect_in(got, "\r\n\r\nhello");
    expect_not_in(got, "connection:");
    expect_not_in(got, "access-control");
    assert_string_equal(b.w.calls[0], "POST /echo?q=1 hello");
    assert_int_equal(b.w.n_access, 1);
    assert_int_equal(b.w.status, 200);
    assert_false(b.w.cut);
    assert_null(b.w.conn.out.bytes.data); /* an idle connection holds no memory */
    assert_null(b.w.conn.in.data);
    assert_null(b.w.conn.parse);
    close_bench();
}

#define ID_HEAD "GET /echo HTTP/1.1\r\nHost: a\r\nX-Request-Id: "

static void test_lines_end_where_the_server_ends_them(void **state)
{
    (void)state;
    const struct http_header headers[] = { { "x-one", "a\r\nevil: 1" }, { "x-two", "b" } };
    open_bench();
    say("POST /later HTTP/1.1\r\nHost: a\r\n\r\n");
    http_reply(b.w.kept[--b.w.n_kept], &(struct http_reply){ .status = 200, .type = "c\nd",
                                                             .headers = headers, .n_headers = 2 });
    wire_settle(&b.w);
    const char *got = wire_got(&b.w);
    expect_in(got, "\r\nx-one: a??evil: 1\r\nx-two: b\r\n\r\n");
    expect_in(got, "\r\ncontent-type: c?d\r\n");
    close_bench();
}

static void test_request_ids_are_kept_or_made(void **state)
{
    (void)state;
    static const struct {
        const char *sent;
        bool kept;
    } cases[] = { { "abc-1.2_3:4", true }, { "", false }, { "a b", false }, { "a\xc3\xa9", false },
                  { "a,b", false } };
    open_bench();
    char request[512], expected[256], before[64] = "";
    for (size_t i = 0; i < ZP_COUNT(cases); i++) {
        snprintf(request, sizeof request, ID_HEAD "%s\r\n\r\n", cases[i].sent);
        snprintf(expected, sizeof expected, "\r\nx-request-id: %s\r\n", cases[i].sent);
        const char *got = say(request), *id = strstr(got, "\r\nx-request-id: ");
        assert_non_null(id);
        assert_int_equal(strncmp(id, expected, strlen(expected)) == 0, cases[i].kept);
        if (cases[i].kept) continue;
        assert_int_equal(strspn(id + 16, "0123456789abcdef"), 32);
        assert_int_not_equal(strncmp(id + 16, before, 32), 0);
        snprintf(before, sizeof before, "%.32s", id + 16);
    }
    char longest[HTTP_ID_MOST + 2];
    memset(longest, 'x', sizeof longest);
    for (size_t size = HTTP_ID_MOST; size <= HTTP_ID_MOST + 1; size++) {
        snprintf(request, sizeof request, ID_HEAD "%.*s\r\n\r\n", (int)size, longest);
        assert_int_equal(strstr(say(request), "xxxx") != NULL, size == HTTP_ID_MOST);
    }
    close_bench();
}

static void test_head_has_no_body(void **state)
{
    (void)state;
    open_bench();
    const char *got = say("HEAD /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc");
    expect_in(got, "\r\ncontent-length: 3\r\n");
    assert_string_equal(strstr(got, "\r\n\r\n"), "\r\n\r\n");
    assert_string_equal(b.w.calls[0], "HEAD /echo abc");
    got = say("HEAD /nowhere HTTP/1.1\r\nHost: a\r\n\r\n");
    expect_in(got, "HTTP/1.1 404 ");
    assert_string_equal(strstr(got, "\r\n\r\n"), "\r\n\r\n");
    got = say("HEAD /events HTTP/1.1\r\nHost: a\r\n\r\n");
    http_sse_event(b.w.kept[0], NULL, "x", 1);
    http_stream_end(b.w.kept[--b.w.n_kept]);
    wire_settle(&b.w);
    assert_string_equal(strstr(got, "\r\n\r\n"), "\r\n\r\n");
    assert_string_equal(wire_got(&b.w), "");
    assert_int_equal(strncmp(say(GET("/echo")), "HTTP/1.1 200", 12), 0);
    close_bench();
}

static void test_unknown_paths_and_methods(void **state)
{
    (void)state;
    open_bench();
    const char *got = say(GET("/nowhere"));
    expect_in(got, "HTTP/1.1 404 Not Found\r\n");
    expect_in(got, "\r\ncontent-type: application/json\r\n");
    expect_in(got, "{\"error\": {\"message\": \"there is nothing at this path\", "
                   "\"type\": \"invalid_request_error\", \"code\": \"not_found\"}}");
    got = say("PUT /echo HTTP/1.1\r\nHost: a\r\n\r\n");
    expect_in(got, "HTTP/1.1 405 ");
    expect_in(got, "\r\nallow: GET, HEAD, POST, OPTIONS\r\n");
    expect_in(got, "it takes GET, HEAD, POST, OPTIONS");
    got = say("FROB /later HTTP/1.1\r\nHost: a\r\n\r\n");
    expect_in(got, "\r\nallow: POST, OPTIONS\r\n");
    expect_in(got, "\r\nconnection: close\r\n");
    assert_int_equal(b.w.n_calls, 0);
    assert_int_equal(b.w.core.counts.faults[HTTP_FAULT_METHOD], 2);
    assert_int_equal(b.w.core.requests[b.o.n_routes][HTTP_CLASS_4XX], 3);
    close_bench();
}

static void test_paths_below(void **state)
{
    (void)state;
    open_bench();
    say(GET("/below/x/y%20z"));
    assert_string_equal(b.w.calls[0], "GET /below/x/y z ");
    assert_int_equal(strncmp(say(GET("/below/")), "HTTP/1.1 200", 12), 0);
    assert_int_equal(strncmp(say(GET("/below")), "HTTP/1.1 404", 12), 0);
    expect_in(say(GET("/below/exact")), "\r\nallow: POST, OPTIONS\r\n"); /* it has its own */
    close_bench();
}

static void test_host_of_a_url_goes_before(void **state)
{
    (void)state;
    open_bench();
    say("GET /echo HTTP/1.1\r\nHost: a:1\r\n\r\n");
    assert_string_equal(b.w.host, "a:1");
    say("GET http://b:2/echo HTTP/1.1\r\nHost: a:1\r\n\r\n");
    assert_string_equal(b.w.host, "b:2");
    close_bench();
}

static void test_prefix(void **state)
{
    (void)state;
    b.o.prefix = "/llm";
    open_bench();
    say(GET("/llm/echo"));
    assert_string_equal(b.w.calls[0], "GET /echo ");
    expect_in(say(GET("/echo")), "HTTP/1.1 404");
    expect_in(say(GET("/llmecho")), "HTTP/1.1 404");
    expect_in(say(GET("/llm")), "HTTP/1.1 404");
    close_bench();
}

static zp_status write_error(void *arg, const struct http_error *e, struct buffer *body,
                             const char **type, zp_err *err)
{
    (void)arg;
    if (e->path != NULL && strcmp(e->path, "/fails") == 0) return ZP_RUN;
    *type = "text/x-error";
    return buffer_printf(body, err, "%d %s at %s: %s", e->status, e->code,
                         e->path == NULL ? "?" : e->path, e->message);
}

static void test_errors_are_written_by_the_caller(void **state)
{
    (void)state;
    b.o.write_error = write_error;
    b.o.limits.header_bytes = 200;
    open_bench();
    const char *got = say(GET("/v1/messages"));
    expect_in(got, "\r\ncontent-type: text/x-error\r\n");
    expect_in(got, "404 not_found at /v1/messages: there is nothing at this path");
    expect_in(say(GET("/fails")), "{\"error\": {\"message\":");
    char request[400] = "GET /v1/messages HTTP/1.1\r\nHost: a\r\nX: ";
    memset(request + strlen(request), 'x', 250);
    expect_in(say(request), "431 head_too_large at /v1/messages: the head of the request is larger "
                            "than 200 bytes (200 bytes)");
    close_bench();
}

/* ---- limits ---- */

static void expect_limit(const char *request, const char *status, const char *words)
{
    open_bench();
    const char *got = say(request);
    expect_in(got, status);
    expect_in(got, words);
    expect_in(got, "\r\nconnection: close\r\n");
    wire_settle(&b.w);
    assert_true(wire_is_closed(&b.w));
    close_bench();
}

static void test_limits_of_size(void **state)
{
    (void)state;
    const struct http_limits l = { .header_bytes = 100, .uri_bytes = 20, .n_headers = 3,
                                   .body_bytes = 1024, .bodies_bytes = 1536 };
    b.o.limits = l;
    expect_limit("GET /echo?xxxxxxxxxxxxxxx HTTP/1.1\r\n", "HTTP/1.1 414 ", "longer than 20 bytes");
    b.o.limits = l;
    expect_limit("GET /echo HTTP/1.1\r\na:\r\nb:\r\nc:\r\nd:\r\n", "HTTP/1.1 431 ",
                 "more than 3 headers");
    b.o.limits = l;
    expect_limit("GET /echo HTTP/1.1\r\na: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
                 "xxxxxxxxxxxxxxxxxxxxxxxxx", "HTTP/1.1 431 ", "larger than 100 bytes");
    b.o.limits = l;
    expect_limit("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 1025\r\n\r\n", "HTTP/1.1 413 ",
                 "larger than 1.0 KiB (1024 bytes)");
    b.o.limits = l;
    expect_limit("POST /small HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n", "HTTP/1.1 413 ",
                 "larger than 8 bytes");
    b.o.limits = l;
    expect_limit("POST /small HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
                 "5\r\nhello\r\n4\r\nhell\r\n0\r\n\r\n", "HTTP/1.1 413 ", "larger than 8 bytes");
    b.o.limits = l;
    open_bench();
    expect_in(say("POST /small HTTP/1.1\r\nHost: a\r\n\r\n"), "HTTP/1.1 411 ");
    expect_in(say("POST /small HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\n12345678"),
              "HTTP/1.1 200 ");
    b.w.core.bodies.now = 1000; /* of others */
    wire_say(&b.w, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 800\r\n\r\n");
    char part[600];
    memset(part, 'x', sizeof part);
    wire_send(&b.w, part, 500);
    assert_int_equal(b.w.core.bodies.now, 1500);
    wire_send(&b.w, part, 300);
    const char *got = wire_got(&b.w);
    expect_in(got, "HTTP/1.1 503 ");
    expect_in(got, "\r\nretry-after: 1\r\n");
    assert_int_equal(b.w.core.bodies.now, 1000);
    close_bench();
}

static void test_chunks_that_are_mostly_framing_are_refused(void **state)
{
    (void)state;
    b.o.limits.header_bytes = 100;
    open_bench();
    say("POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < 200; i++) wire_say(&b.w, "1\r\nx\r\n");
    assert_string_equal(wire_got(&b.w), "");
    for (int i = 0; i < 40 && !wire_is_closed(&b.w); i++)
        wire_say(&b.w, "1;aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
                       "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\nx\r\n");
    expect_in(wire_got(&b.w), "bad_chunk");
    close_bench();
}

static void test_requests_of_a_connection_are_limited(void **state)
{
    (void)state;
    b.o.limits.n_requests = 3;
    open_bench();
    expect_not_in(say(GET("/echo")), "connection: close");
    expect_not_in(say(GET("/nowhere")), "connection: close");
    expect_in(say(GET("/echo") GET("/echo")), "\r\nconnection: close\r\n");
    assert_int_equal(b.w.n_calls, 2);
    assert_true(wire_is_closed(&b.w));
    close_bench();
}

static void test_expect_continue(void **state)
{
    (void)state;
    open_bench();
    const char *head = "POST /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n"
                       "Content-Length: 2\r\n\r\n";
    assert_string_equal(say(head), "HTTP/1.1 100 Continue\r\n\r\n");
    expect_in(say("ok"), "HTTP/1.1 200 ");
    const char *got = say("POST /nowhere HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n"
                          "Content-Length: 2\r\n\r\n");
    assert_int_equal(strncmp(got, "HTTP/1.1 404 ", 13), 0);
    expect_in(got, "\r\nconnection: close\r\n");
    close_bench();
}

/* ---- time ---- */

static void expect_timeout(const char *request, uint32_t ms, const char *answer)
{
    open_bench();
    wire_say(&b.w, request);
    wire_got(&b.w);
    wire_wait(&b.w, ms - 1);
    assert_false(wire_is_closed(&b.w));
    assert_string_equal(wire_got(&b.w), "");
    wire_wait(&b.w, 1);
    expect_in(wire_got(&b.w), answer);
    assert_true(wire_is_closed(&b.w));
    wire_wait(&b.w, 400); /* a client that does not close is not waited for */
    assert_true(wire_is_over(&b.w));
    close_bench();
}

static void test_limits_of_time(void **state)
{
    (void)state;
    const struct http_limits l = { .header_ms = 100, .body_ms = 200, .idle_ms = 300,
                                   .linger_ms = 400 };
    b.o.limits = l;
    expect_timeout("", 100, "");
    b.o.limits = l;
    expect_timeout("GET /ec", 100, "head_timeout");
    b.o.limits = l;
    expect_timeout("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nab", 200,
                   "the body of the request took longer than 200 ms");
    b.o.limits = l;
    expect_timeout(GET("/echo"), 300, "");
    b.o.limits = l;
    expect_timeout(GET("/echo") "GET /ec", 100, "head_timeout");
    b.o.limits = l;
    open_bench();
    wire_wait(&b.w, 60); /* the first head's time begins with the connection */
    wire_say(&b.w, "GET /ec");
    wire_wait(&b.w, 40);
    expect_in(wire_got(&b.w), "head_timeout");
    close_bench();
}

static void test_bytes_that_trickle_do_not_help(void **state)
{
    (void)state;
    b.o.limits.header_ms = 100;
    open_bench();
    const char *request = "GET /echo HTTP/1.1\r\n";
    for (int i = 0; request[i] != '\0' && !wire_is_closed(&b.w); i++) {
        wire_send(&b.w, request + i, 1);
        wire_wait(&b.w, 10);
    }
    assert_true(wire_is_closed(&b.w));
    expect_in(wire_got(&b.w), "HTTP/1.1 408 ");
    close_bench();
}

static void test_exchanges_end_in_time(void **state)
{
    (void)state;
    b.o.limits.exchange_ms = 500;
    open_bench();
    say("POST /later HTTP/1.1\r\nHost: a\r\n\r\n");
    wire_wait(&b.w, 499);
    assert_int_equal(b.w.n_gone, 0);
    wire_wait(&b.w, 1);
    expect_in(wire_got(&b.w), "HTTP/1.1 504 ");
    assert_int_equal(b.w.n_gone, 1);
    assert_int_equal(b.w.why, HTTP_GONE_TIME);
    assert_true(http_is_gone(b.w.kept[0]));
    http_reply(b.w.kept[--b.w.n_kept], &(struct http_reply){ .status = 200 });
    wire_settle(&b.w);
    assert_string_equal(wire_got(&b.w), "");
    close_bench();

    b.o.limits.exchange_ms = 500;
    open_bench();
    say(GET("/events"));
    wire_wait(&b.w, 500); /* its stream has begun: it breaks */
    assert_string_equal(wire_got(&b.w), "");
    assert_true(wire_is_over(&b.w));
    assert_int_equal(b.w.n_gone, 1);
    assert_int_equal(b.w.status, 200);
    assert_true(b.w.cut);
    close_bench();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_corpus_of_smuggling, clear),
        cmocka_unit_test_setup(test_whole_answer, clear),
        cmocka_unit_test_setup(test_lines_end_where_the_server_ends_them, clear),
        cmocka_unit_test_setup(test_request_ids_are_kept_or_made, clear),
        cmocka_unit_test_setup(test_head_has_no_body, clear),
        cmocka_unit_test_setup(test_unknown_paths_and_methods, clear),
        cmocka_unit_test_setup(test_paths_below, clear),
        cmocka_unit_test_setup(test_host_of_a_url_goes_before, clear),
        cmocka_unit_test_setup(test_prefix, clear),
        cmocka_unit_test_setup(test_errors_are_written_by_the_caller, clear),
        cmocka_unit_test_setup(test_limits_of_size, clear),
        cmocka_unit_test_setup(test_chunks_that_are_mostly_framing_are_refused, clear),
        cmocka_unit_test_setup(test_requests_of_a_connection_are_limited, clear),
        cmocka_unit_test_setup(test_expect_continue, clear),
        cmocka_unit_test_setup(test_limits_of_time, clear),
        cmocka_unit_test_setup(test_bytes_that_trickle_do_not_help, clear),
        cmocka_unit_test_setup(test_exchanges_end_in_time, clear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
