/* test_schedule.c: learning rates at the steps where they bend, gates on their way to zero, wrong
 * numbers. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "train/schedule.h"

static void near(double found, double expected)
{
    if (!(fabs(found - expected) <= 1e-12 * (1 + fabs(expected))))
        fail_msg("%.17g, expected %.17g", found, expected);
}

static void test_rates_at_the_steps_where_they_bend(void **state)
{
    (void)state;
    struct schedule s = { SCHEDULE_WSD, 2, 0.1, 100, 10, 0.2 };
    assert_int_equal(schedule_check(&s, NULL), ZP_OK);
    near(schedule_rate(&s, 0), 0.2);
    near(schedule_rate(&s, 9), 2);
    near(schedule_rate(&s, 79), 2);
    near(schedule_rate(&s, 84), 2 * (0.1 + 0.9 * 0.5)); /* a quarter of the decay */
    near(schedule_rate(&s, 99), 0.2);
    near(schedule_rate(&s, 1000), 0.2);

    s.kind = SCHEDULE_COSINE;
    near(schedule_rate(&s, 9), 2);
    near(schedule_rate(&s, 54), 2 * 0.55); /* half of the way */
    near(schedule_rate(&s, 99), 0.2);
    near(schedule_rate(&s, UINT64_MAX), 0.2);

    s.kind = SCHEDULE_CONSTANT;
    near(schedule_rate(&s, 4), 1);
    near(schedule_rate(&s, 10), 2);
    near(schedule_rate(&s, 99), 2);
}

static void test_rates_never_rise_after_the_warmup(void **state)
{
    (void)state;
    for (int kind = 0; kind < SCHEDULE_KINDS; kind++)
        for (uint64_t steps = 1; steps < 40; steps++)
            for (uint64_t warmup = 0; warmup <= steps; warmup += 3) {
                struct schedule s = { (enum schedule_kind)kind, 1, 0.05, steps, warmup, 0.3 };
                if (schedule_check(&s, NULL) != ZP_OK) continue;
                for (uint64_t i = 0; i <= steps + 2; i++) {
                    double a = schedule_rate(&s, i), b = schedule_rate(&s, i + 1);
                    assert_true(a > 0 && a <= 1);
                    assert_true(i + 1 < warmup ? b > a : b <= a || i < warmup);
                }
            }
}

static void test_schedules_have_names(void **state)
{
    (void)state;
    for (int kind = 0; kind < SCHEDULE_KINDS; kind++) {
        enum schedule_kind found;
        assert_int_equal(schedule_find(schedule_name((enum schedule_kind)kind), &found, NULL), 0);
        assert_int_equal(found, kind);
    }
    enum schedule_kind found;
    zp_err err = { 0 };
    assert_int_equal(schedule_find("linear", &found, &err), ZP_USAGE);
    assert_non_null(strstr(err.message, "linear"));
}

static void test_wrong_schedules_are_refused(void **state)
{
    (void)state;
    const struct schedule wrong[] = {
        { SCHEDULE_KINDS, 1, 0, 10, 0, 0 },    { SCHEDULE_WSD, -1, 0, 10, 0, 0 },
        { SCHEDULE_WSD, NAN, 0, 10, 0, 0 },    { SCHEDULE_WSD, 1, 1.5, 10, 0, 0 },
        { SCHEDULE_WSD, 1, NAN, 10, 0, 0 },    { SCHEDULE_WSD, 1, 0, 0, 0, 0 },
        { SCHEDULE_WSD, 1, 0, 10, 6, 0.5 },    { SCHEDULE_COSINE, 1, 0, 10, 11, 0 },
        { SCHEDULE_WSD, 1, 0, 10, 0, 1.01 },   { SCHEDULE_WSD, 1, 0, UINT64_MAX, 0, 0.5 },
        { SCHEDULE_WSD, INFINITY, 0, 10, 0, 0 },
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(schedule_check(&wrong[i], NULL), ZP_USAGE);
    struct gate_ramp r;
    assert_int_equal(gate_ramp_make(&r, 0, 10, 1.1, 4, 1, 0, NULL), ZP_USAGE);
    assert_int_equal(gate_ramp_make(&r, 0, 10, 1, 4, -0.1, 0, NULL), ZP_USAGE);
    assert_int_equal(gate_ramp_make(&r, 0, 10, 1, 4, 1, NAN, NULL), ZP_USAGE);
}

/* ---- gates ----------------------------------------------------------------------------------- */

static double closed_share(const struct gate_ramp *r, size_t n, uint64_t step)
{
    double open = 0;
    for (size_t i = 0; i < n; i++) open += gate_ramp_value(r, i, step);
    return 1 - open / (double)n;
}

static void test_closed_share_grows_linearly_and_ends_at_zero(void **state)
{
    (void)state;
    enum { N = 40, STEPS = 700, BEGIN = 13 };
    const double overlaps[] = { 0, 1 };
    for (int i = 0; i < 2; i++) {
        struct gate_ramp r;
        assert_int_equal(gate_ramp_make(&r, BEGIN, STEPS, 0.6, N, 0.5, overlaps[i], NULL), ZP_OK);
        assert_int_equal(r.steps, 420);
        assert_int_equal(r.n_close, 20);
        for (uint64_t s = 0; s < 420; s++) near(closed_share(&r, N, BEGIN + s), 0.5 * s / 420.0);
        for (size_t g = 0; g < N; g++)
            assert_true(gate_ramp_value(&r, g, BEGIN + 420) == (g < 20 ? 0 : 1));
    }
}

static void test_gates_close_in_their_order(void **state)
{
    (void)state;
    const double overlaps[] = { 0, 0.05, 0.3, 1 };
    for (size_t i = 0; i < 4; i++)
        for (size_t n = 1; n < 30; n += 7) {
            struct gate_ramp r;
            assert_int_equal(gate_ramp_make(&r, 5, 100, 1, n, 1, overlaps[i], NULL), ZP_OK);
            for (uint64_t s = 0; s <= 110; s++) {
                size_t closed = gate_ramp_closed(&r, s), counted = 0;
                for (size_t g = 0; g < n; g++) {
                    double v = gate_ramp_value(&r, g, s);
                    assert_true(v >= 0 && v <= 1);
                    assert_true(g == 0 || v >= gate_ramp_value(&r, g - 1, s));
                    assert_true(gate_ramp_value(&r, g, s + 1) <= v);
                    counted += v == 0;
                }
                assert_int_equal(closed, counted);
            }
            assert_int_equal(gate_ramp_closed(&r, 5), 0);
            assert_int_equal(gate_ramp_closed(&r, 105), n);
        }
    struct gate_ramp at_once; /* no steps: closed when it begins */
    assert_int_equal(gate_ramp_make(&at_once, 3, 100, 0, 8, 0.5, 0, NULL), ZP_OK);
    assert_int_equal(gate_ramp_closed(&at_once, 2), 0);
    assert_int_equal(gate_ramp_closed(&at_once, 3), 4);
}

static void test_geometric_ramp_grows_by_equal_factors(void **state)
{
    (void)state;
    near(schedule_geometric(1e-4, 1e-2, 10, 0), 1e-4);
    near(schedule_geometric(1e-4, 1e-2, 10, 5), 1e-3);
    assert_true(schedule_geometric(1e-4, 1e-2, 10, 10) == 1e-2);
    assert_true(schedule_geometric(1e-4, 1e-2, 10, 999) == 1e-2);
    assert_true(schedule_geometric(1e-4, 1e-2, 0, 0) == 1e-2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rates_at_the_steps_where_they_bend),
        cmocka_unit_test(test_rates_never_rise_after_the_warmup),
        cmocka_unit_test(test_schedules_have_names),
        cmocka_unit_test(test_wrong_schedules_are_refused),
        cmocka_unit_test(test_closed_share_grows_linearly_and_ends_at_zero),
        cmocka_unit_test(test_gates_close_in_their_order),
        cmocka_unit_test(test_geometric_ramp_grows_by_equal_factors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
