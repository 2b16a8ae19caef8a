/* test_paces.c: the breaker's rule `slow` over made-up series: like is held against like, so that a
 * healthy candidate stays whatever the mixture of requests and however busy the machine, and a slow
 * one goes. */
#include "outcomes.h"

#include "base/compiler.h"
#include "serve/breaker.h"

enum { SEED = 77 };

static struct breaker the; /* large */

/* A machine: seconds of a step, and of a token of the prompt; its load multiplies both. */
struct machine {
    struct rng r;
    double load, now;
};

/* Chance: most steps take as long as they should, some much longer (another process ran). */
static double jitter(struct machine *m)
{
    double x = exp(0.2 * rng_normal(&m->r));
    return rng_unit(&m->r) < 0.05 ? x + 0.03 * -log(1 - rng_unit(&m->r)) / 0.005 : x;
}

/* slow: times as slow as the baseline. */
static struct outcome answer(struct machine *m, uint64_t n_computed, uint64_t n_drawn, double slow)
{
    double step = 0.005 * m->load * slow;
    struct outcome o = { .end = OUTCOME_DONE, .n_computed = n_computed, .n_drawn = n_drawn,
                         .top1_mean = 0.6, .top1_std = 0.25 };
    o.first_seconds = step * jitter(m) + (double)n_computed * 2e-4 * m->load * slow;
    o.total_seconds = o.first_seconds;
    for (uint64_t i = 1; i < n_drawn; i++) o.total_seconds += step * jitter(m);
    m->now += 0.05;
    return o;
}

static void begin(struct machine *m, uint64_t stream)
{
    const struct breaker_options o = { .least_sample = 1 << 30 }; /* nothing else may trip */
    *m = (struct machine){ .r = rng_stream(SEED, stream), .load = 1, .now = 100 };
    breaker_init(&the, &o);
    breaker_new_candidate(&the, m->now);
}

static void baseline(struct machine *m, uint64_t n_computed, uint64_t n_drawn)
{
    struct outcome o = answer(m, n_computed, n_drawn, 1);
    breaker_baseline_ended(&the, LENGTH_SHORT, &o, m->now);
}

/* False: it is out. */
static bool candidate(struct machine *m, uint64_t n_computed, uint64_t n_drawn, double slow)
{
    struct breaker_pass pass;
    struct outcome o = answer(m, n_computed, n_drawn, slow);
    assert_true(breaker_admit(&the, m->now, &pass));
    return !breaker_ended(&the, &pass, LENGTH_SHORT, &o, m->now);
}

static uint64_t draw_length(struct machine *m, uint64_t most)
{
    return 1 + (uint64_t)((double)(most - 1) * pow(rng_unit(&m->r), 3));
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* Their pace is 50 times that of a long prompt, and says nothing against one. */
static void test_short_requests_are_not_held_against_long_ones(void **state)
{
    struct machine m;
    (void)state;
    begin(&m, 1);
    for (int i = 0; i < 500; i++) baseline(&m, 400, 200);
    for (int i = 0; i < 500; i++) assert_true(candidate(&m, 1, 1, 1));
    for (int i = 0; i < 500; i++) assert_true(candidate(&m, 1, 2, 1));
    for (int i = 0; i < 500; i++) assert_true(candidate(&m, 400, 200, 1));
    assert_int_equal(the.trips[BREAKER_BY_SLOW], 0);
}

static void test_a_mixture_on_a_busy_machine_does_not_trip(void **state)
{
    enum { REQUESTS = 100000 };
    struct machine m;
    (void)state;
    begin(&m, 2);
    for (int i = 0; i < REQUESTS; i++) {
        /* Minutes of more or less company, up to 40 times. */
        if (i % 2000 == 0) m.load = exp(log(40) * pow(rng_unit(&m.r), 2));
        bool one = rng_unit(&m.r) < 0.5;
        uint64_t n = one ? 1 : draw_length(&m, 500), drawn = one ? 1 : draw_length(&m, 60);
        if (i < 1000 || i % 5 != 0) baseline(&m, n, drawn);
        else if (!candidate(&m, n, drawn, 1)) fail_msg("off after %d, load %g", i, m.load);
    }
}

/* Jumps of the load, seen by both: the baseline's own slowness tells of it. */
static void test_what_both_are_is_no_fault(void **state)
{
    struct machine m;
    (void)state;
    begin(&m, 3);
    for (int i = 0; i < 300; i++) baseline(&m, 200, 20);
    m.load = 6;
    for (int i = 0; i < 8; i++) baseline(&m, 200, 20);
    for (int i = 0; i < 50; i++) {
        baseline(&m, 200, 20);
        assert_true(candidate(&m, 200, 20, 1));
    }
}

static void test_a_slow_one_is_off_after_five(void **state)
{
    static const struct {
        uint64_t n_computed, n_drawn;
    } kinds[] = { { 200, 20 }, { 1000, 2 }, { 20, 100 }, { 500, 500 } };
    (void)state;
    for (size_t k = 0; k < ZP_COUNT(kinds); k++)
        for (uint64_t stream = 0; stream < 50; stream++) {
            struct machine m;
            begin(&m, 100 + stream);
            for (int i = 0; i < 400; i++) {
                baseline(&m, 1, 1);
                baseline(&m, draw_length(&m, 500), draw_length(&m, 60));
                baseline(&m, kinds[k].n_computed, kinds[k].n_drawn);
            }
            int n = 1;
            while (candidate(&m, kinds[k].n_computed, kinds[k].n_drawn, 8)) n++;
            assert_int_equal(n, 5);
            assert_int_equal(the.trips[BREAKER_BY_SLOW], 1);
        }
}

/* What is little known is judged by a smaller kind, never by a larger one. */
static void test_kinds_that_are_not_known(void **state)
{
    struct machine m;
    (void)state;
    begin(&m, 4);
    for (int i = 0; i < 100; i++) baseline(&m, 100, 1);
    for (int i = 0; i < 20; i++) assert_true(candidate(&m, 10, 1, 40));
    int n = 1;
    while (candidate(&m, 1500, 1, 8)) n++;
    assert_int_equal(n, 5);
}

/* Three times as long as it should be, and nobody could tell. */
static void test_little_time_is_no_time(void **state)
{
    struct machine m;
    (void)state;
    begin(&m, 5);
    for (int i = 0; i < 400; i++) baseline(&m, 1, 2);
    for (int i = 0; i < 400; i++) assert_true(candidate(&m, 1, 2, 3));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_short_requests_are_not_held_against_long_ones),
        cmocka_unit_test(test_a_mixture_on_a_busy_machine_does_not_trip),
        cmocka_unit_test(test_what_both_are_is_no_fault),
        cmocka_unit_test(test_a_slow_one_is_off_after_five),
        cmocka_unit_test(test_kinds_that_are_not_known),
        cmocka_unit_test(test_little_time_is_no_time),
    };
    printf("seed %d\n", SEED);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
