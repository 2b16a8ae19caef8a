/* test_score.c: 95 % intervals: bootstrap ones hold the true mean about as often as they say,
 * Wilson's are the published formula; one row's numbers against arithmetic in double. */
#include "golden.h"

#include "base/rng.h"
#include "eval/score.h"

static void test_bootstrap_intervals_hold_the_mean_as_often_as_they_say(void **state)
{
    (void)state;
    enum { SAMPLES = 400, N = 40 };
    struct score_mean m[N];
    size_t held = 0;
    for (uint64_t s = 0; s < SAMPLES; s++) {
        struct rng r = rng_stream(11, s);
        /* documents of many lengths, each with an offset of its own */
        for (int i = 0; i < N; i++) {
            uint64_t n = 1 + rng_below(&r, 30);
            double offset = (double)rng_normal(&r), sum = 0;
            for (uint64_t k = 0; k < n; k++) sum += 2.0 + offset + (double)rng_normal(&r);
            m[i] = (struct score_mean){ sum, n };
        }
        struct score_interval i = score_interval95(m, N, s);
        assert_true(i.lo < i.hi);
        assert_true(i.hi >= score_average(m, N) && i.lo <= score_average(m, N));
        held += i.lo <= 2.0 && 2.0 <= i.hi;
    }
    print_message("held %d of %d (seed 11)\n", (int)held, SAMPLES);
    assert_in_range(held, SAMPLES * 90 / 100, SAMPLES * 98 / 100);
}

static void test_bootstrap_is_the_same_for_the_same_seed(void **state)
{
    (void)state;
    struct score_mean m[] = { { 3, 2 }, { 1, 4 }, { 9, 5 }, { 2, 1 } };
    struct score_interval a = score_interval95(m, 4, 7), b = score_interval95(m, 4, 7);
    assert_true(a.lo == b.lo && a.hi == b.hi);
    assert_true(a.lo >= 0.25 && a.hi <= 2.0); /* between the least entry and the largest */
    assert_true(isnan(score_interval95(m, 1, 7).lo) && isnan(score_interval95(m, 0, 7).hi));
}

/* Newcombe (1998), Two-sided confidence intervals for the single proportion, table I, method 3. */
static void test_wilson_intervals_are_the_published_ones(void **state)
{
    (void)state;
    static const struct { uint64_t right, n; double lo, hi; } rows[] = {
        { 81, 263, 0.2553, 0.3662 },
        { 15, 148, 0.0624, 0.1605 },
        { 0, 20, 0.0, 0.1611 },
        { 1, 29, 0.0061, 0.1718 },
    };
    for (size_t i = 0; i < ZP_COUNT(rows); i++) {
        struct score_interval w = score_wilson95(rows[i].right, rows[i].n);
        assert_true(fabs(w.lo - rows[i].lo) < 5.1e-5 && fabs(w.hi - rows[i].hi) < 5.1e-5);
        struct score_interval other = score_wilson95(rows[i].n - rows[i].right, rows[i].n);
        assert_true(fabs(other.lo + w.hi - 1.0) < 1e-12 && fabs(other.hi + w.lo - 1.0) < 1e-12);
    }
    assert_true(isnan(score_wilson95(0, 0).lo));
}

static void test_paired_intervals_hold_the_difference_as_often_as_they_say(void **state)
{
    (void)state;
    enum { SAMPLES = 2000, N = 60 };
    static const struct { double more, fewer; } rates[] = { { 0.02, 0.02 }, { 0.3, 0.1 },
                                                            { 0.05, 0.5 }, { 0.9, 0.05 } };
    for (uint64_t k = 0; k < ZP_COUNT(rates); k++) {
        struct rng r = rng_stream(13, k);
        double truth = rates[k].more - rates[k].fewer;
        size_t held = 0;
        for (int s = 0; s < SAMPLES; s++) {
            uint64_t more = 0, fewer = 0;
            for (int i = 0; i < N; i++) {
                double x = rng_unit(&r);
                more += x < rates[k].more;
                fewer += x >= rates[k].more && x < rates[k].more + rates[k].fewer;
            }
            struct score_interval w = score_paired95(more, fewer, N);
            double found = ((double)more - (double)fewer) / N;
            assert_true(w.lo <= found && found <= w.hi && w.lo >= -1 && w.hi <= 1);
            held += w.lo <= truth && truth <= w.hi;
        }
        print_message("held %d of %d (seed 13)\n", (int)held, SAMPLES);
        assert_in_range(held, SAMPLES * 93 / 100, SAMPLES);
    }
    struct score_interval none = score_paired95(0, 0, 200);
    assert_true(none.lo < 0 && fabs(none.lo + none.hi) < 1e-15 && none.hi < 0.01);
    assert_true(isnan(score_paired95(0, 0, 0).lo));
}

static double log_sum(const float *x, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += exp((double)x[i]);
    return log(sum);
}

static void test_row_is_that_of_double_arithmetic(void **state)
{
    (void)state;
    enum { N = 300 };
    struct kern_table kern;
    struct score_row row;
    struct rng r = rng_stream(12, 0);
    float a[N], b[N];
    size_t best = 0;
    double kl = 0;
    kern_table_init(&kern, KERN_LEVEL_COUNT);
    for (size_t i = 0; i < N; i++) {
        a[i] = rng_normal(&r), b[i] = rng_normal(&r);
        if (a[i] > a[best]) best = i;
    }
    for (size_t i = 0; i < N; i++) {
        double p = (double)b[i] - log_sum(b, N), q = (double)a[i] - log_sum(a, N);
        kl += exp(p) * (p - q);
    }
    for (int32_t target = 0; target < N; target++) {
        score_row(&kern, a, b, N, target, &row);
        assert_true(fabs(row.nll - (log_sum(a, N) - (double)a[target])) < 1e-5);
        assert_true(fabs(row.nll_base - (log_sum(b, N) - (double)b[target])) < 1e-5);
        assert_true(fabs(row.kl - kl) < 1e-5 && kl > 0.1);
        assert_int_equal(row.right, (size_t)target == best);
        assert_int_equal(row.same, 0);
    }
    score_row(&kern, a, a, N, (int32_t)best, &row);
    assert_true(row.same && row.right && row.right_base && row.kl == 0);
}

/* Of equal logits the first is the most likely one, as greedy decoding takes it. */
static void test_first_of_equal_logits_is_right(void **state)
{
    (void)state;
    struct kern_table kern;
    struct score_row row;
    float x[40] = { 0 };
    kern_table_init(&kern, KERN_LEVEL_COUNT);
    for (int32_t target = 0; target < 40; target++) {
        score_row(&kern, x, NULL, 40, target, &row);
        assert_int_equal(row.right, target == 0);
    }
    x[5] = x[30] = 2;
    score_row(&kern, x, NULL, 40, 30, &row);
    assert_false(row.right);
    score_row(&kern, x, NULL, 40, 5, &row);
    assert_true(row.right && row.kl == 0 && row.nll_base == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bootstrap_intervals_hold_the_mean_as_often_as_they_say),
        cmocka_unit_test(test_bootstrap_is_the_same_for_the_same_seed),
        cmocka_unit_test(test_wilson_intervals_are_the_published_ones),
        cmocka_unit_test(test_paired_intervals_hold_the_difference_as_often_as_they_say),
        cmocka_unit_test(test_row_is_that_of_double_arithmetic),
        cmocka_unit_test(test_first_of_equal_logits_is_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
