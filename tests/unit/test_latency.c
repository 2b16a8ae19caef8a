/* test_latency.c: quantiles of histograms against those of the sorted times, windows that forget,
 * moments against their definition, and which times of a request are compared. */
#include "outcomes.h"

#include <stdlib.h>

#include "base/compiler.h"
#include "serve/latency.h"
#include "serve/moments.h"

enum { SEED = 11, N = 5000 };

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void test_quantiles_are_those_of_the_sorted_times(void **state)
{
    static const double qs[] = { 0.001, 0.5, 0.9, 0.95, 0.99, 1 };
    static const size_t sizes[] = { 1, 2, 19, 20, 21, N };
    struct rng r = rng_stream(SEED, 0);
    double x[N];
    (void)state;
    for (size_t s = 0; s < ZP_COUNT(sizes); s++) {
        struct latency l = { 0 };
        size_t n = sizes[s];
        for (size_t i = 0; i < n; i++)
            latency_add(&l, x[i] = 1e-7 * exp(22 * rng_unit(&r))); /* 0.1 us .. 6 min */
        qsort(x, n, sizeof *x, by_size);
        assert_int_equal(l.n, n);
        for (size_t i = 0; i < ZP_COUNT(qs); i++) {
            double exact = x[(size_t)ceil(qs[i] * (double)n) - 1];
            double off = latency_quantile(&l, qs[i]) / exact - 1;
            assert_true(fabs(off) <= 0.032);
        }
    }
}

static void test_times_beyond_the_buckets_count(void **state)
{
    struct latency l = { 0 };
    (void)state;
    assert_true(latency_quantile(&l, 0.5) == 0);
    latency_add(&l, 0);
    latency_add(&l, -1);
    latency_add(&l, 1e-12);
    latency_add(&l, 1e9);
    latency_add(&l, INFINITY);
    latency_add(&l, NAN);
    assert_int_equal(l.n, 6);
    assert_true(latency_quantile(&l, 0.5) < 1e-7);
    assert_true(isinf(latency_quantile(&l, 0.51)));
    l.counts[0] = UINT32_MAX;
    latency_add(&l, 0);
    assert_int_equal(l.counts[0], UINT32_MAX);
    assert_int_equal(l.n, 6);
}

static void test_bounds_of_buckets_are_in_the_upper_one(void **state)
{
    (void)state;
    for (int e = LATENCY_FIRST; e < LATENCY_LAST; e++)
        for (int step = 0; step < LATENCY_STEPS; step++) {
            double low = ldexp(1 + (double)step / LATENCY_STEPS, e);
            struct latency l = { 0 }, below = { 0 };
            latency_add(&l, low);
            latency_add(&below, nextafter(low, 0));
            unsigned i = (unsigned)((e - LATENCY_FIRST) * LATENCY_STEPS + step);
            assert_int_equal(l.counts[i], 1);
            assert_int_equal(below.counts[i ? i - 1 : 0], 1);
        }
}

/* Of times that came at each second, those of the last 50 to 60 seconds are known. */
static void test_windows_forget(void **state)
{
    struct latency_window w = { 0 };
    struct latency sum;
    (void)state;
    for (int t = 1000; t < 1300; t++) {
        latency_window_add(&w, 60, t, 1);
        latency_window_sum(&w, 60, t, &sum);
        assert_true(sum.n <= 60);
        assert_true(sum.n >= 50 || sum.n == (uint64_t)(t - 999));
    }
    latency_window_sum(&w, 60, 1330, &sum);
    assert_true(sum.n >= 20 && sum.n <= 30);
    latency_window_sum(&w, 60, 1360, &sum);
    assert_int_equal(sum.n, 0);
    latency_window_add(&w, 60, 1e7, 2); /* after a long pause */
    latency_window_sum(&w, 60, 1e7, &sum);
    assert_int_equal(sum.n, 1);
}

static void test_moments_of_all_and_of_the_last(void **state)
{
    struct moments all = { 0 }, last = { 0 };
    struct rng r = rng_stream(SEED, 1);
    double x[N], mean = 0, sum = 0;
    (void)state;
    for (size_t i = 0; i < N; i++) {
        x[i] = (i < N / 2 ? 0.2 : 0.4) + 0.05 * rng_normal(&r);
        mean += x[i] / N;
        moments_add(&all, x[i], 0);
        moments_add(&last, x[i], 100);
        if (i == 49) assert_true(last.mean == all.mean && last.variance == all.variance);
    }
    for (size_t i = 0; i < N; i++) sum += (x[i] - mean) * (x[i] - mean);
    assert_int_equal(all.n, N);
    assert_true(fabs(all.mean - mean) < 1e-12 && fabs(all.variance - sum / N) < 1e-12);
    assert_true(fabs(last.mean - 0.4) < 0.02); /* 4 of its standard errors */
    assert_true(fabs(moments_std(&last) - 0.05) < 0.015);
}

static void test_paces_leave_queue_cache_and_length_out(void **state)
{
    struct outcome o = { .n_computed = 100, .n_drawn = 11, .queue_seconds = 2, .first_seconds = 3,
                         .total_seconds = 5 };
    (void)state;
    assert_true(fabs(outcome_prompt_pace(&o) - 0.01) < 1e-12);
    assert_true(fabs(outcome_token_pace(&o) - 0.2) < 1e-12);
    assert_true(outcome_first(&o) == 3 && outcome_total(&o) == 5);
    o.n_computed = 1; /* the rest was reused: as 32 */
    assert_true(fabs(outcome_prompt_pace(&o) - 1.0 / 32) < 1e-12);
    o.n_drawn = 1;
    assert_true(outcome_token_pace(&o) == 0);
    o.end = OUTCOME_LATE;
    assert_true(isinf(outcome_token_pace(&o)) && isinf(outcome_total(&o)));
    assert_true(outcome_first(&o) == 3);
    o.n_drawn = 11; /* late, for its length: its pace is as before */
    assert_true(fabs(outcome_token_pace(&o) - 0.2) < 1e-12);
    o.first_seconds = 0;
    assert_true(isinf(outcome_first(&o)) && isinf(outcome_prompt_pace(&o)));
    assert_true(outcome_token_pace(&o) == 0);
    o.queue_seconds = o.total_seconds; /* late in the queue: no model's fault */
    assert_true(outcome_prompt_pace(&o) == 0 && isinf(outcome_first(&o)));
    o.end = OUTCOME_CANCELLED;
    assert_true(outcome_first(&o) == 0 && outcome_prompt_pace(&o) == 0 && outcome_total(&o) == 0);
}

static void test_figures_that_are_no_numbers_are_kept_out(void **state)
{
    struct outcome o = { .top1_mean = 0.5, .top1_std = 0.2, .first_seconds = NAN,
                         .queue_seconds = -1, .total_seconds = INFINITY };
    (void)state;
    struct outcome good = outcome_checked(&o);
    assert_int_equal(good.end, OUTCOME_DONE);
    assert_true(good.first_seconds == 0 && good.queue_seconds == 0 && good.total_seconds == 0);
    assert_true(good.top1_std == 0.2);
    o.top1_std = NAN;
    good = outcome_checked(&o);
    assert_int_equal(good.end, OUTCOME_NONFINITE);
    assert_true(good.top1_std == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quantiles_are_those_of_the_sorted_times),
        cmocka_unit_test(test_times_beyond_the_buckets_count),
        cmocka_unit_test(test_bounds_of_buckets_are_in_the_upper_one),
        cmocka_unit_test(test_windows_forget),
        cmocka_unit_test(test_moments_of_all_and_of_the_last),
        cmocka_unit_test(test_paces_leave_queue_cache_and_length_out),
        cmocka_unit_test(test_figures_that_are_no_numbers_are_kept_out),
    };
    printf("seed %d\n", SEED);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
