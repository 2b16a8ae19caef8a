/* test_quality.c: mean, deviation and loops of an answer's tokens. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/rng.h"
#include "serve/quality.h"

enum { SEED = 5, N = 500 };

static struct quality of(const double *top1, const int32_t *ids, size_t begin, size_t end)
{
    struct quality q = { 0 };
    for (size_t i = begin; i < end; i++)
        quality_add(&q, top1[i], ids + begin, i - begin, ids[i]);
    return q;
}

/* By definition, in two passes. */
static void check(const struct quality *q, const double *x, size_t n)
{
    double mean = 0, sum = 0;
    for (size_t i = 0; i < n; i++) mean += x[i] / (double)n;
    for (size_t i = 0; i < n; i++) sum += (x[i] - mean) * (x[i] - mean);
    assert_int_equal(q->n, n);
    assert_true(fabs(q->mean - mean) < 1e-12);
    assert_true(fabs(quality_std(q) - sqrt(sum / (double)n)) < 1e-12);
}

static void test_mean_and_deviation_in_any_parts(void **state)
{
    double x[N];
    int32_t ids[N];
    struct rng r = rng_stream(SEED, 0);
    (void)state;
    for (size_t i = 0; i < N; i++)
        x[i] = 0.999 + 1e-3 * rng_unit_at(SEED, 1, i), ids[i] = (int32_t)rng_below(&r, 1000);
    for (size_t cut = 0; cut <= N; cut += 50) {
        struct quality a = of(x, ids, 0, cut), b = of(x, ids, cut, N);
        quality_merge(&a, &b);
        check(&a, x, N);
    }
    struct quality none = { 0 };
    assert_true(quality_std(&none) == 0);
}

/* `n` tokens of a cycle of `period` after some others. */
static uint32_t loop_of(size_t period, size_t n)
{
    double x[N] = { 0 };
    int32_t ids[N];
    for (size_t i = 0; i < 20; i++) ids[i] = 1000 + (int32_t)i;
    for (size_t i = 0; i < n; i++) ids[20 + i] = (int32_t)(i % period);
    for (size_t i = 0; i < 20; i++) ids[20 + n + i] = 2000 + (int32_t)i;
    return of(x, ids, 0, 40 + n).loop;
}

static void test_loops_of_any_period_are_counted(void **state)
{
    (void)state;
    for (size_t period = 1; period <= QUALITY_MOST_PERIOD; period++) {
        assert_int_equal(loop_of(period, 200), 200 - period);
        assert_int_equal(loop_of(period, period), 0);
    }
    assert_int_equal(loop_of(QUALITY_MOST_PERIOD + 1, 200), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mean_and_deviation_in_any_parts),
        cmocka_unit_test(test_loops_of_any_period_are_counted),
    };
    printf("seed %d\n", SEED);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
