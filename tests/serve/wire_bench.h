/* wire_bench.h: a wire with the routes of wire.h and a test's options, and what tests of
 * connections ask of what came out of it. Include after cmocka.h. */
#ifndef TESTS_WIRE_BENCH_H
#define TESTS_WIRE_BENCH_H

#include "live_bytes.h"
#include "serve/wire.h"

/* A wire with its routes and the options of a test. */
struct bench {
    struct wire w;
    struct http_route routes[7];
    struct http_options o;
    uint64_t live;
};

static struct bench b;

static inline void open_bench(void)
{
    const struct http_route routes[] = WIRE_ROUTES(&b.w);
    b.live = live_bytes();
    memcpy(b.routes, routes, sizeof routes);
    b.o.routes = b.routes;
    b.o.n_routes = ZP_COUNT(routes);
    b.o.arg = &b.w;
    b.o.on_access = wire_access;
    assert_int_equal(wire_open(&b.w, &b.o), ZP_OK);
}

static inline void close_bench(void)
{
    wire_close(&b.w);
    b.o = (struct http_options){ 0 };
    assert_int_equal(live_bytes(), b.live);
}

static inline int clear(void **state)
{
    (void)state;
    b.o = (struct http_options){ 0 };
    return 0;
}

#define GET(path) "GET " path " HTTP/1.1\r\nHost: a\r\n\r\n"

static inline void expect_in(const char *text, const char *part)
{
    if (strstr(text, part) == NULL) fail_msg("not there: %s\nin: %s", part, text);
}

static inline void expect_not_in(const char *text, const char *part)
{
    if (strstr(text, part) != NULL) fail_msg("there: %s\nin: %s", part, text);
}

static inline const char *say(const char *text)
{
    wire_say(&b.w, text);
    return wire_got(&b.w);
}

#endif
