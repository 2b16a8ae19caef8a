/* test_num.c: half-precision conversions against their definitions. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/num.h"
#include "base/rng.h"

/* The value of an f16 by its definition. */
static double f16_value(uint16_t h)
{
    int exponent = h >> 10 & 31, mantissa = h & 1023;
    double magnitude = exponent == 0    ? ldexp(mantissa, -24)
                       : exponent == 31 ? (mantissa ? NAN : INFINITY)
                                        : ldexp(1024 + mantissa, exponent - 25);
    return h & 0x8000 ? -magnitude : magnitude;
}

static void test_all_f16_values_are_exact_and_return(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        float x = f16_to_f32((uint16_t)h);
        double expected = f16_value((uint16_t)h);
        if (isnan(expected)) {
            assert_true(isnan(x));
            /* NaN keeps sign and payload and becomes quiet. */
            assert_int_equal(f32_to_f16(x), h | 0x200);
            continue;
        }
        assert_true((double)x == expected);
        assert_int_equal(signbit(x) != 0, h >> 15);
        assert_int_equal(f32_to_f16(x), h);
    }
}

/* Nearest f16 of a finite x, ties to even, by comparing with both neighbours. */
static uint16_t nearest_f16(float x)
{
    uint16_t sign = signbit(x) ? 0x8000 : 0;
    double magnitude = fabs((double)x);
    if (magnitude >= 65520) return sign | 0x7c00;
    uint16_t low = 0, high = 0x7bff;
    while (low < high) { /* the largest f16 <= magnitude */
        uint16_t middle = (uint16_t)((low + high + 1) / 2);
        if (f16_value(middle) <= magnitude) low = middle;
        else high = (uint16_t)(middle - 1);
    }
    double below = magnitude - f16_value(low);
    double next = low == 0x7bff ? 65536 : f16_value((uint16_t)(low + 1));
    double above = next - magnitude;
    int up = above < below || (above == below && low % 2 == 1);
    return (uint16_t)(sign | (low + up));
}

static void test_f32_rounds_to_the_nearest_even_f16(void **state)
{
    (void)state;
    struct rng r = rng_stream(20240607, 1);
    for (int i = 0; i < 200000; i++) {
        uint32_t bits = rng_u32(&r);
        /* Half of the draws fall into the range where f16 is dense. */
        if (i % 2) bits = (bits & 0x807fffffu) | (0x60u + bits % 0x2fu) << 23;
        float x = f32_from_bits(bits);
        if (isnan(x)) continue;
        assert_int_equal(f32_to_f16(x), nearest_f16(x));
    }
    for (uint32_t h = 0; h < 0x7bff;
         h++) { /* exact ties between neighbours, and just beside them */
        float tie = (float)((f16_value((uint16_t)h) + f16_value((uint16_t)(h + 1))) / 2);
        assert_int_equal(f32_to_f16(tie), h + h % 2);
        assert_int_equal(f32_to_f16(nextafterf(tie, 0)), h);
        assert_int_equal(f32_to_f16(nextafterf(tie, INFINITY)), h + 1);
    }
}

static void test_f16_limits(void **state)
{
    (void)state;
    assert_int_equal(f32_to_f16(65504), 0x7bff);
    assert_int_equal(f32_to_f16(nextafterf(65520, 0)), 0x7bff);
    assert_int_equal(f32_to_f16(65520), 0x7c00);
    assert_int_equal(f32_to_f16(-INFINITY), 0xfc00);
    assert_int_equal(f32_to_f16(-0.0f), 0x8000);
    assert_int_equal(f32_to_f16(0x1p-25f), 0);
    assert_int_equal(f32_to_f16(nextafterf(0x1p-25f, 1)), 1);
    assert_int_equal(f32_to_f16(0x1p-149f), 0);
}

static void test_bf16_rounds_to_nearest_even(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        float x = bf16_to_f32((uint16_t)h);
        uint32_t bits = h << 16;
        int nan = (bits & 0x7fffffff) > 0x7f800000;
        assert_int_equal(isnan(x) != 0, nan);
        assert_int_equal(f32_to_bf16(x), nan ? h | 0x40 : h);
        if (nan || (h & 0x7fff) >= 0x7f80) continue;
        assert_int_equal(f32_to_bf16(f32_from_bits(bits | 0x7fff)), h);
        assert_int_equal(f32_to_bf16(f32_from_bits(bits | 0x8000)), h + h % 2);
        assert_int_equal(f32_to_bf16(f32_from_bits(bits | 0x8001)), h + 1);
    }
    /* A NaN whose payload lies in the dropped half stays a NaN. */
    assert_true(isnan(bf16_to_f32(f32_to_bf16(f32_from_bits(0x7f800001)))));
    assert_true(isnan(bf16_to_f32(f32_to_bf16(f32_from_bits(0xffffffff)))));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_f16_values_are_exact_and_return),
        cmocka_unit_test(test_f32_rounds_to_the_nearest_even_f16),
        cmocka_unit_test(test_f16_limits),
        cmocka_unit_test(test_bf16_rounds_to_nearest_even),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
