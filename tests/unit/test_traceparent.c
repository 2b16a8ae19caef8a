/* test_traceparent.c: headers of W3C Trace Context: which are taken, what is written, whose traces
 * are recorded. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "obs/traceparent.h"

#define TRACE "4bf92f3577b34da6a3ce929d0e0e4736"
#define SPAN "00f067aa0ba902b7"

static void test_headers_that_are_taken(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        bool sampled;
    } cases[] = { { "00-" TRACE "-" SPAN "-01", true },
                  { "00-" TRACE "-" SPAN "-00", false },
                  { "00-" TRACE "-" SPAN "-ff", true }, /* flags of later levels */
                  { "00-" TRACE "-" SPAN "-02", false },
                  { "01-" TRACE "-" SPAN "-01", true }, /* a later version, with more and without */
                  { "cc-" TRACE "-" SPAN "-01-what-comes", true } };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct traceparent t;
        char text[TRACEPARENT_ROOM];
        assert_true(traceparent_read(cases[i].header, &t));
        assert_int_equal(t.sampled, cases[i].sampled);
        traceparent_write(&t, text);
        assert_string_equal(text, cases[i].sampled ? "00-" TRACE "-" SPAN "-01"
                                                   : "00-" TRACE "-" SPAN "-00");
    }
}

static void test_headers_that_are_not(void **state)
{
    (void)state;
    static const char zero_trace[] = "00-00000000000000000000000000000000-" SPAN "-01";
    static const char *const wrong[] = { NULL,
                                         "",
                                         "00",
                                         "00-" TRACE "-" SPAN "-0",
                                         "00-" TRACE "-" SPAN "-01-",
                                         "00-" TRACE "-" SPAN "-01 ",
                                         "00-" TRACE "-" SPAN "-0g",
                                         " 00-" TRACE "-" SPAN "-01",
                                         "ff-" TRACE "-" SPAN "-01",
                                         "0x-" TRACE "-" SPAN "-01",
                                         "01-" TRACE "-" SPAN "-01x",
                                         "00_" TRACE "-" SPAN "-01",
                                         "00-" TRACE "_" SPAN "-01",
                                         "00-" TRACE "-" SPAN "_01",
                                         "00-4BF92F3577B34DA6A3CE929D0E0E4736-" SPAN "-01",
                                         zero_trace,
                                         "00-" TRACE "-0000000000000000-01" };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct traceparent t, untouched;
        memset(&t, 0x5a, sizeof t);
        untouched = t;
        if (traceparent_read(wrong[i], &t)) fail_msg("taken: %s", wrong[i]);
        assert_memory_equal(&t, &untouched, sizeof t);
    }
}

static void test_children_keep_trace_and_decision(void **state)
{
    (void)state;
    struct rng r = rng_stream(0x7ace, 1);
    print_message("seed 0x7ace\n");
    for (int i = 0; i < 100; i++) {
        struct traceparent t = traceparent_new(&r, i % 2), child = traceparent_child(&t, &r), back;
        char text[TRACEPARENT_ROOM];
        assert_int_equal(t.sampled, i % 2);
        assert_memory_equal(child.trace, t.trace, sizeof t.trace);
        assert_memory_not_equal(child.span, t.span, sizeof t.span);
        assert_int_equal(child.sampled, t.sampled);
        traceparent_write(&child, text);
        assert_true(traceparent_read(text, &back));
        assert_memory_equal(back.span, child.span, sizeof back.span);
    }
}

/* The same trace is recorded by all who have the same share, and by all with a larger one. */
static void test_a_share_of_traces_is_recorded(void **state)
{
    (void)state;
    enum { N = 4000 };
    int n = 0;
    print_message("seed 0x54a7\n");
    for (uint64_t i = 0; i < N; i++) {
        struct rng a = rng_stream(0x54a7, i), b = a, c = a;
        bool sampled = traceparent_new(&a, 0.25).sampled;
        assert_int_equal(traceparent_new(&b, 0.25).sampled, sampled);
        if (sampled) assert_true(traceparent_new(&c, 0.5).sampled);
        n += sampled;
    }
    assert_in_range(n, N / 4 - 150, N / 4 + 150); /* 5.5 standard deviations */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_headers_that_are_taken),
        cmocka_unit_test(test_headers_that_are_not),
        cmocka_unit_test(test_children_keep_trace_and_decision),
        cmocka_unit_test(test_a_share_of_traces_is_recorded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
