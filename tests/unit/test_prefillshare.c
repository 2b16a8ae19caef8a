/* test_prefillshare.c: a step's tokens among prompts: none lost, none too many, nobody
 * forgotten. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/rng.h"
#include "serve/prefillshare.h"

enum { SEED = 3, MOST = 40 };

static size_t sum_of(const size_t *x, size_t n)
{
    size_t sum = 0;
    for (size_t i = 0; i < n; i++) sum += x[i];
    return sum;
}

static void expect(const size_t *left, size_t n, size_t budget, const size_t *wanted)
{
    size_t share[MOST];
    prefill_share(left, share, n, budget);
    for (size_t i = 0; i < n; i++) assert_int_equal(share[i], wanted[i]);
}

static void test_oldest_gets_half_and_short_ones_the_rest(void **state)
{
    (void)state;
    expect((size_t[]){ 1000, 500, 30 }, 3, 128, (size_t[]){ 64, 34, 30 });
    expect((size_t[]){ 1000, 30, 500 }, 3, 128, (size_t[]){ 64, 30, 34 });
    expect((size_t[]){ 1000, 2000 }, 2, 128, (size_t[]){ 128, 0 }); /* it has the least left */
    expect((size_t[]){ 2000, 1000, 1000 }, 3, 128, (size_t[]){ 64, 64, 0 }); /* the older */
    expect((size_t[]){ 10, 1000, 20 }, 3, 128, (size_t[]){ 10, 98, 20 });
    expect((size_t[]){ 1000 }, 1, 128, (size_t[]){ 128 });
    expect((size_t[]){ 5, 6 }, 2, 128, (size_t[]){ 5, 6 });
    expect((size_t[]){ 9, 0, 3 }, 3, 1, (size_t[]){ 1, 0, 0 });
    expect((size_t[]){ 9, 3 }, 2, 3, (size_t[]){ 2, 1 });
    prefill_share(NULL, NULL, 0, 128);
}

static void test_all_is_given_and_nobody_gets_too_much(void **state)
{
    struct rng r = rng_stream(SEED, 0);
    (void)state;
    for (int round = 0; round < 2000; round++) {
        size_t left[MOST], share[MOST], n = 1 + rng_below(&r, MOST);
        size_t budget = 1 + rng_below(&r, 600);
        for (size_t i = 0; i < n; i++) left[i] = rng_below(&r, 300);
        prefill_share(left, share, n, budget);
        size_t all = sum_of(left, n);
        assert_int_equal(sum_of(share, n), all < budget ? all : budget);
        for (size_t i = 0; i < n; i++) assert_true(share[i] <= left[i]);
    }
}

/* F1: however many short ones come, it is through after 2 n / budget steps. */
static void test_a_long_prompt_ends_beside_any_number_of_short_ones(void **state)
{
    enum { N = 5000, BUDGET = 127 };
    size_t left[MOST] = { N }, share[MOST], steps = 0;
    (void)state;
    for (; left[0]; steps++) {
        for (size_t i = 1; i < MOST; i++) left[i] = 1 + (i + steps) % 50;
        prefill_share(left, share, MOST, BUDGET);
        left[0] -= share[0];
    }
    assert_in_range(steps, N / BUDGET, 2 * N / BUDGET + 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_oldest_gets_half_and_short_ones_the_rest),
        cmocka_unit_test(test_all_is_given_and_nobody_gets_too_much),
        cmocka_unit_test(test_a_long_prompt_ends_beside_any_number_of_short_ones),
    };
    printf("seed %d\n", SEED);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
