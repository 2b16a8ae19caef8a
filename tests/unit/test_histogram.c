/* test_histogram.c: counts at the bounds asked for are exact, quantiles within their error, and
 * bounds that are none are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "obs/histogram.h"

#define MOST 4096
static const double bounds[] = { 0.005, 0.01, 0.3, 0.5, 1, 10, 7680 };
#define N_BOUNDS (sizeof bounds / sizeof bounds[0])

static struct histogram_scale open_scale(const double *b, size_t n)
{
    struct histogram_scale s;
    zp_err err = { 0 };
    if (histogram_open(&s, b, n, &err) != ZP_OK) fail_msg("%s", err.message);
    assert_true(s.n_cells <= MOST);
    return s;
}

static void test_edges_rise_finely_and_hold_the_bounds(void **state)
{
    (void)state;
    struct histogram_scale s = open_scale(bounds, N_BOUNDS);
    for (size_t i = 1; i < s.n_cells - 1; i++) {
        assert_true(s.edges[i] > s.edges[i - 1]);
        assert_true(s.edges[i] <= s.edges[i - 1] * 1.0625000001);
    }
    for (size_t i = 0; i < N_BOUNDS; i++) assert_true(s.edges[s.shown[i]] == bounds[i]);
    assert_int_equal(s.shown[N_BOUNDS - 1], s.n_cells - 2);
    histogram_free(&s);
}

/* As Prometheus has it: a bucket holds what is at most its bound. */
static void test_a_value_at_a_bound_is_below_it(void **state)
{
    (void)state;
    struct histogram_scale s = open_scale(bounds, N_BOUNDS);
    for (size_t i = 0; i < N_BOUNDS; i++) {
        uint64_t counts[MOST] = { 0 };
        counts[histogram_cell(&s, nextafter(bounds[i], 0))]++;
        counts[histogram_cell(&s, bounds[i])]++;
        counts[histogram_cell(&s, nextafter(bounds[i], INFINITY))]++;
        assert_int_equal(histogram_up_to(&s, counts, i), 2);
        assert_int_equal(histogram_total(&s, counts), 3);
        if (i > 0) assert_int_equal(histogram_up_to(&s, counts, i - 1), 0);
        if (i + 1 < N_BOUNDS) assert_int_equal(histogram_up_to(&s, counts, i + 1), 3);
    }
    histogram_free(&s);
}

static void test_extreme_values_have_their_cells(void **state)
{
    (void)state;
    struct histogram_scale s = open_scale(bounds, N_BOUNDS);
    const double low[] = { 0, -1, -INFINITY, 5e-324 }, high[] = { 7681, 1e300, INFINITY, NAN };
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(histogram_cell(&s, low[i]), 0);
        assert_int_equal(histogram_cell(&s, high[i]), s.n_cells - 1);
    }
    histogram_free(&s);
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Against the values themselves, of several shapes. */
static void test_quantiles_are_within_their_error(void **state)
{
    (void)state;
    static const double qs[] = { 0.01, 0.5, 0.9, 0.95, 0.99, 0.999, 1 };
    enum { N = 2000 };
    struct histogram_scale s = open_scale(bounds, N_BOUNDS);
    struct rng r = rng_stream(0x4157, 2);
    print_message("seed 0x4157\n");
    for (int round = 0; round < 30; round++) {
        double values[N], scale = pow(10, rng_unit(&r) * 4 - 2), spread = 3 * rng_unit(&r);
        uint64_t counts[MOST] = { 0 };
        for (size_t i = 0; i < N; i++) {
            values[i] = scale * exp(spread * (double)rng_normal(&r));
            if (values[i] <= 0.005) values[i] = 0.0051;
            if (values[i] > 7680) values[i] = 7680;
            counts[histogram_cell(&s, values[i])]++;
        }
        qsort(values, N, sizeof values[0], by_size);
        for (size_t i = 0; i < sizeof qs / sizeof qs[0]; i++) {
            double truth = values[(size_t)fmax(0, ceil(qs[i] * N) - 1)];
            double found = histogram_quantile(&s, counts, qs[i]);
            if (fabs(found / truth - 1) > HISTOGRAM_ERROR)
                fail_msg("q %g: %g instead of %g", qs[i], found, truth);
        }
    }
    histogram_free(&s);
}

static void test_quantiles_beyond_the_bounds_say_so(void **state)
{
    (void)state;
    struct histogram_scale s = open_scale(bounds, N_BOUNDS);
    uint64_t counts[MOST] = { 0 };
    assert_true(isnan(histogram_quantile(&s, counts, 0.5)));
    counts[histogram_cell(&s, 0)] = 3;
    assert_true(histogram_quantile(&s, counts, 1) == 0.0025);
    counts[histogram_cell(&s, 1e9)] = 1;
    assert_true(histogram_quantile(&s, counts, 0.75) == 0.0025);
    assert_true(isinf(histogram_quantile(&s, counts, 0.76)));
    histogram_free(&s);
}

static void test_bounds_that_are_none_are_refused(void **state)
{
    (void)state;
    static const double wrong[][2] = { { 0, 1 },   { -1, 1 },  { 2, 1 },        { 1, 1 },
                                       { NAN, 1 }, { 1, NAN }, { 1, INFINITY }, { 1e-300, 1e300 } };
    struct histogram_scale s;
    assert_int_equal(histogram_open(&s, bounds, 0, NULL), ZP_USAGE);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(histogram_open(&s, wrong[i], 2, NULL), ZP_USAGE);
    for (uint64_t n = 1; n <= 2; n++) {
        zp_err err = { 0 };
        mem_fail_at(n, false);
        assert_int_equal(histogram_open(&s, bounds, N_BOUNDS, &err), ZP_NO_MEMORY);
        mem_fail_at(0, false);
        histogram_free(&s); /* of nothing */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_edges_rise_finely_and_hold_the_bounds),
        cmocka_unit_test(test_a_value_at_a_bound_is_below_it),
        cmocka_unit_test(test_extreme_values_have_their_cells),
        cmocka_unit_test(test_quantiles_are_within_their_error),
        cmocka_unit_test(test_quantiles_beyond_the_bounds_say_so),
        cmocka_unit_test(test_bounds_that_are_none_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
