/* test_guard.c: numbers that are not finite, losses that jump, norms that grow. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/rng.h"
#include "train/guard.h"

static void test_three_bad_steps_in_a_row_ask_for_a_roll_back(void **state)
{
    (void)state;
    struct guard g = { 0 };
    assert_int_equal(guard_step(&g, 2.5, 1), GUARD_GO);
    assert_int_equal(guard_step(&g, NAN, 1), GUARD_SKIP);
    assert_int_equal(guard_step(&g, 2.5, INFINITY), GUARD_SKIP);
    assert_int_equal(guard_step(&g, 2.5, 1), GUARD_GO); /* not in a row */
    assert_int_equal(guard_step(&g, -INFINITY, 1), GUARD_SKIP);
    assert_int_equal(guard_step(&g, 2.5, NAN), GUARD_SKIP);
    assert_int_equal(guard_step(&g, NAN, NAN), GUARD_ROLL_BACK);
    assert_int_equal(guard_step(&g, NAN, 1), GUARD_SKIP);
    assert_int_equal(g.bad, 6);
    assert_int_equal(g.roll_backs, 1);
}

static void test_too_many_roll_backs_stop(void **state)
{
    (void)state;
    struct guard g = { .options = { .bad_in_a_row = 2, .roll_backs = 2 } };
    for (int i = 0; i < 2; i++) {
        assert_int_equal(guard_step(&g, NAN, 1), GUARD_SKIP);
        assert_int_equal(guard_step(&g, NAN, 1), GUARD_ROLL_BACK);
    }
    assert_int_equal(guard_step(&g, NAN, 1), GUARD_SKIP);
    assert_int_equal(guard_step(&g, NAN, 1), GUARD_STOP);
}

static void test_a_jump_of_the_loss_is_found_and_noise_is_not(void **state)
{
    (void)state;
    enum { SEED = 7 };
    printf("seed %d\n", SEED);
    struct rng r = rng_stream(SEED, 0);
    struct guard g = { 0 };
    for (int i = 0; i < 1000; i++) /* falls from 8 to 3 with noise */
        assert_false(guard_is_spike(&g, 3 + 5 * exp(-i / 200.0) + 0.05 * rng_normal(&r)));
    double mean = g.mean;
    assert_true(fabs(mean - 3) < 0.1);
    assert_true(guard_is_spike(&g, 4.5));
    assert_true(g.mean == mean); /* a spike does not move the measure */
    assert_false(guard_is_spike(&g, 3.1));
    assert_false(guard_is_spike(&g, NAN)); /* of guard_step */
    assert_false(guard_is_spike(&g, 0.5)); /* downwards is good */
    assert_int_equal(g.spikes, 1);
}

static void test_a_loss_that_stays_high_is_the_new_measure(void **state)
{
    (void)state;
    struct guard g = { .options = { .memory = 20 } };
    for (int i = 0; i < 50; i++) assert_false(guard_is_spike(&g, 2));
    for (int i = 0; i < 20; i++) assert_true(guard_is_spike(&g, 5));
    for (int i = 0; i < 50; i++) assert_false(guard_is_spike(&g, 5));
    assert_true(guard_is_spike(&g, 9));
}

static void test_first_losses_are_no_spikes(void **state)
{
    (void)state;
    struct guard g = { 0 };
    const double losses[] = { 1, 50, 3, 90, 2, 7 };
    for (size_t i = 0; i < ZP_COUNT(losses); i++) assert_false(guard_is_spike(&g, losses[i]));
}

static void test_norms_beyond_four_times_the_start_name_their_layer(void **state)
{
    (void)state;
    struct guard g = { 0 };
    const struct guard_norms start[] = { { 10, 20 }, { 5, 8 }, { 0, 3 } };
    struct guard_norms now[] = { { 39, 20 }, { 5, 32 }, { 9, 3 } };
    struct guard_growth found = guard_compare_norms(&g, start, now, 3, 0);
    assert_int_equal(found.layer, 3); /* exactly four times is within; 0 has no measure */
    assert_true(found.factor == 4);
    now[1].k = 33;
    found = guard_compare_norms(&g, start, now, 3, 0);
    assert_int_equal(found.layer, 1);
    assert_true(found.of_keys && found.factor > 4);
    now[0].q = NAN;
    found = guard_compare_norms(&g, start, now, 3, 0);
    assert_int_equal(found.layer, 0);
    assert_false(found.of_keys);
    now[0].q = 10;
    g.options.growth = 5;
    assert_int_equal(guard_compare_norms(&g, start, now, 3, 0).layer, 3);
    assert_int_equal(guard_compare_norms(&g, start, now, 0, 0).layer, 0);
}

static void test_growth_counts_from_where_scores_matter(void **state)
{
    (void)state;
    struct guard g = { 0 };
    const struct guard_norms fresh = { 1, 4 }; /* 2 and 8 at a product of 16 */
    struct guard_norms now = { 1, 32 };
    assert_int_equal(guard_compare_norms(&g, &fresh, &now, 1, 16).layer, 1);
    now.k = 33;
    struct guard_growth found = guard_compare_norms(&g, &fresh, &now, 1, 16);
    assert_int_equal(found.layer, 0);
    assert_true(found.of_keys && found.factor == 33.0 / 8);
    const struct guard_norms grown = { 4, 5 }; /* beyond the product: counts as it is */
    now.k = 19;
    assert_int_equal(guard_compare_norms(&g, &grown, &now, 1, 16).layer, 1);
    now.k = 21;
    assert_int_equal(guard_compare_norms(&g, &grown, &now, 1, 16).layer, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_three_bad_steps_in_a_row_ask_for_a_roll_back),
        cmocka_unit_test(test_too_many_roll_backs_stop),
        cmocka_unit_test(test_a_jump_of_the_loss_is_found_and_noise_is_not),
        cmocka_unit_test(test_a_loss_that_stays_high_is_the_new_measure),
        cmocka_unit_test(test_first_losses_are_no_spikes),
        cmocka_unit_test(test_norms_beyond_four_times_the_start_name_their_layer),
        cmocka_unit_test(test_growth_counts_from_where_scores_matter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
