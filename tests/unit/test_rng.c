/* test_rng.c: Philox against published vectors, and that draws are pure functions of their
 * number. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/rng.h"

/* philox4x32-10 rows of the kat_vectors file of the Random123 library (D. E. Shaw Research). */
static void test_blocks_equal_the_published_vectors(void **state)
{
    (void)state;
    static const struct {
        uint32_t counter[4], key[2], out[4];
    } rows[] = {
        { { 0, 0, 0, 0 }, { 0, 0 }, { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } },
        { { 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff },
          { 0xffffffff, 0xffffffff },
          { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } },
        { { 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344 },
          { 0xa4093822, 0x299f31d0 },
          { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const uint32_t *c = rows[i].counter, *k = rows[i].key;
        uint32_t out[4];
        rng_block((uint64_t)k[1] << 32 | k[0], (uint64_t)c[3] << 32 | c[2],
                  (uint64_t)c[1] << 32 | c[0], out);
        assert_memory_equal(out, rows[i].out, sizeof out);
    }
}

static void test_draw_depends_on_its_number_only(void **state)
{
    (void)state;
    struct rng a = rng_stream(7, 3), b = rng_stream(7, 3);
    for (uint64_t i = 0; i < 100; i++) assert_true(rng_unit(&a) == rng_unit_at(7, 3, i));
    b.at = 50;
    struct rng c = rng_stream(7, 3);
    for (int i = 0; i < 50; i++) (void)rng_normal(&c);
    assert_true(rng_u64(&b) == rng_u64(&c));
    assert_true(rng_unit_at(7, 3, 0) != rng_unit_at(7, 4, 0));
    assert_true(rng_unit_at(7, 3, 0) != rng_unit_at(8, 3, 0));
}

static void test_units_fill_the_interval_evenly(void **state)
{
    (void)state;
    enum { N = 100000, CELLS = 20 };
    unsigned cells[CELLS] = { 0 };
    struct rng r = rng_stream(1, 1);
    for (int i = 0; i < N; i++) {
        double x = rng_unit(&r);
        assert_true(x >= 0 && x < 1);
        cells[(int)(x * CELLS)]++;
    }
    double chi = 0, expected = (double)N / CELLS;
    for (int i = 0; i < CELLS; i++) chi += (cells[i] - expected) * (cells[i] - expected) / expected;
    assert_true(chi < 43.8); /* 19 degrees of freedom, one in a thousand; the seed is fixed */
}

static void test_below_is_unbiased_and_in_range(void **state)
{
    (void)state;
    unsigned counts[3] = { 0 };
    struct rng r = rng_stream(2, 9);
    for (int i = 0; i < 30000; i++) counts[rng_below(&r, 3)]++;
    for (int i = 0; i < 3; i++) assert_true(counts[i] > 9700 && counts[i] < 10300);
    assert_int_equal(rng_below(&r, 1), 0);
    uint64_t huge = UINT64_MAX / 2 + 2; /* nearly half of the draws are thrown away */
    for (int i = 0; i < 100; i++) assert_true(rng_below(&r, huge) < huge);
}

static void test_normals_have_their_moments(void **state)
{
    (void)state;
    enum { N = 200000 };
    double sum = 0, square = 0, fourth = 0;
    struct rng r = rng_stream(3, 5);
    for (int i = 0; i < N; i++) {
        double x = rng_normal(&r);
        assert_true(isfinite(x));
        sum += x;
        square += x * x;
        fourth += x * x * x * x;
    }
    assert_true(fabs(sum / N) < 0.01);
    assert_true(fabs(square / N - 1) < 0.02);
    assert_true(fabs(fourth / N - 3) < 0.15);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks_equal_the_published_vectors),
        cmocka_unit_test(test_draw_depends_on_its_number_only),
        cmocka_unit_test(test_units_fill_the_interval_evenly),
        cmocka_unit_test(test_below_is_unbiased_and_in_range),
        cmocka_unit_test(test_normals_have_their_moments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
