/* test_quant_write.c: quantisers: zeros stay zero, same bits, refusals, and errors no larger than
 * ggml's. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/mem.h"
#include "base/num.h"
#include "base/rng.h"
#include "kern/quant.h"

#define ROW 4096

static float src[ROW], out[ROW];
static uint8_t packed[ROW * 4];

static const struct quant_traits *next_writable(size_t *i)
{
    const struct quant_traits *t;
    while ((t = quant_traits_at((*i)++)) != NULL && !t->can_write) continue;
    return t;
}

/* Sum of four uniforms: bell-shaped, and the same bits on every machine. */
static float bell(struct rng *r)
{
    float sum = 0;
    for (int i = 0; i < 4; i++) sum += (float)(rng_u32(r) >> 8) * 0x1p-24f - 0.5f;
    return sum;
}

static void round_trip(const struct quant_traits *t)
{
    zp_err err = {0};
    if (quant_quantize_row(t, src, packed, ROW, &err) != ZP_OK) fail_msg("%s", err.message);
    quant_dequantize_row(t, packed, out, ROW);
}

/* ---- Q3 */

enum zero_pattern {
    SPRINKLED, ONE_IN_NEGATIVE, AMONG_POSITIVE, WHOLE_GROUPS, HALF_THE_ROW, PATTERNS
};

static void fill_with_zeros(enum zero_pattern pattern, float size, struct rng *r)
{
    for (size_t k = 0; k < ROW; k++) {
        float x = bell(r) * size;
        size_t group = k / 16;
        if (pattern == SPRINKLED && rng_below(r, 4) == 0) x = rng_below(r, 2) ? 0.0f : -0.0f;
        if (pattern == ONE_IN_NEGATIVE) x = k % 32 == group % 32 ? 0 : -fabsf(x) - 0.3f * size;
        if (pattern == AMONG_POSITIVE) x = k % 3 == 0 ? 0 : fabsf(x);
        if (pattern == WHOLE_GROUPS && rng_unit_at(3, 1, group / 2) < 0.5) x = 0;
        if (pattern == HALF_THE_ROW && k >= ROW / 2) x = 0;
        src[k] = x;
    }
}

static void test_a_zero_stays_exactly_zero_in_every_type(void **state)
{
    (void)state;
    static const float sizes[] = {1, 0.02f, 3e-5f, 1e-7f, 1e-20f, 3000, 30000};
    const struct quant_traits *t;
    for (size_t i = 0; (t = next_writable(&i)) != NULL;) {
        for (int pattern = 0; pattern < PATTERNS; pattern++) {
            for (size_t s = 0; s < ZP_COUNT(sizes); s++) {
                struct rng r = rng_stream(11, s);
                size_t zeros = 0;
                fill_with_zeros((enum zero_pattern)pattern, sizes[s], &r);
                round_trip(t);
                for (size_t k = 0; k < ROW; k++) {
                    zeros += src[k] == 0;
                    if (src[k] == 0 && out[k] != 0)
                        fail_msg("%s pattern %d size %g: weight %zu became %g", t->name, pattern,
                                 (double)sizes[s], k, (double)out[k]);
                }
                assert_true(zeros >= ROW / 32);
            }
        }
    }
}

/* ---- accuracy */

/* Relative errors of llama.cpp's own quantisers (ggml_quantize_chunk without importance matrix,
 * llama-cpp-python 0.3.36) on the same 65536 weights: plain, and with squared weights x^2. */
static const struct { const char *name; double flat, energy; } ggml_error[] = {
    {"Q8_0", 0.005058, 0.002906}, {"Q4_0", 0.081332, 0.049548}, {"Q4_1", 0.075566, 0.041456},
    {"Q5_0", 0.040422, 0.023933}, {"Q5_1", 0.036740, 0.020225}, {"Q4_K", 0.068845, 0.039551},
    {"Q5_K", 0.034850, 0.020581}, {"Q6_K", 0.017034, 0.008945}};

static void test_errors_are_not_larger_than_ggml(void **state)
{
    (void)state;
    for (size_t i = 0; i < ZP_COUNT(ggml_error); i++) {
        const struct quant_traits *t = quant_traits_by_name(ggml_error[i].name);
        struct rng r = rng_stream(21, 0);
        double e2 = 0, x2 = 0, e2x2 = 0, x4 = 0;
        for (int row = 0; row < 16; row++) {
            for (size_t k = 0; k < ROW; k++) src[k] = 0.05f * bell(&r);
            round_trip(t);
            for (size_t k = 0; k < ROW; k++) {
                double x = (double)src[k], e = (double)out[k] - x;
                e2 += e * e;
                x2 += x * x;
                e2x2 += e * e * x * x;
                x4 += x * x * x * x;
            }
        }
        double flat = sqrt(e2 / x2), energy = sqrt(e2x2 / x4);
        if (!(flat <= ggml_error[i].flat) || !(energy <= ggml_error[i].energy))
            fail_msg("%s: errors %.6f and %.6f", t->name, flat, energy);
        assert_true(flat > ggml_error[i].flat / 2); /* the measure itself works */
    }
}

static void test_zeros_inside_groups_cost_little_accuracy(void **state)
{
    (void)state;
    for (size_t i = 0; i < ZP_COUNT(ggml_error); i++) {
        struct rng r = rng_stream(12, i);
        double error = 0, energy = 0;
        fill_with_zeros(SPRINKLED, 0.02f, &r);
        round_trip(quant_traits_by_name(ggml_error[i].name));
        for (size_t k = 0; k < ROW; k++) {
            error += pow((double)out[k] - (double)src[k], 2);
            energy += pow((double)src[k], 2);
        }
        if (!(sqrt(error / energy) <= 1.05 * ggml_error[i].flat))
            fail_msg("%s: error %.4f", ggml_error[i].name, sqrt(error / energy));
    }
}

static void test_values_on_the_grid_are_kept(void **state)
{
    (void)state;
    static const char *const names[] = {"F32", "F16", "BF16", "Q8_0", "Q4_0", "Q5_0"};
    for (size_t i = 0; i < ZP_COUNT(names); i++) {
        const struct quant_traits *t = quant_traits_by_name(names[i]);
        struct rng r = rng_stream(31, i);
        float first[ROW];
        for (size_t k = 0; k < ROW; k++) src[k] = bell(&r);
        round_trip(t);
        memcpy(first, out, sizeof first);
        memcpy(src, out, sizeof src);
        round_trip(t);
        for (size_t k = 0; k < ROW; k++) {
            if (out[k] != first[k]) fail_msg("%s: weight %zu moved", t->name, k);
        }
    }
}

/* ---- Q4 */

static void test_same_weights_give_same_bits_on_every_machine(void **state)
{
    (void)state;
    static const struct { const char *name; uint64_t hash; } known[] = {
        {"F16", 0x32dfbd3487aef6fdu}, {"BF16", 0x63dff53116cd17e3u},
        {"Q8_0", 0x4b95cd315a3b977bu}, {"Q4_0", 0x8287f1bce453e004u},
        {"Q4_1", 0xcea0b14377b800deu}, {"Q5_0", 0xc4be2f41614eaa77u},
        {"Q5_1", 0xab0e2073bc0b2e82u}, {"Q4_K", 0x0c2af5318e955ae0u},
        {"Q5_K", 0x50c08eceb524d174u}, {"Q6_K", 0x1fa0459eb51e1031u}};
    int bad = 0;
    for (size_t i = 0; i < ZP_COUNT(known); i++) {
        const struct quant_traits *t = quant_traits_by_name(known[i].name);
        struct rng r = rng_stream(41, 0);
        for (size_t k = 0; k < ROW; k++) src[k] = k < 512 && k % 7 == 0 ? 0 : bell(&r);
        memset(packed, 0xee, sizeof packed); /* every bit of a block is written */
        round_trip(t);
        uint64_t h = 0xCBF29CE484222325u;
        for (size_t k = 0; k < quant_row_bytes(t, ROW); k++)
            h = (h ^ packed[k]) * 0x100000001B3u;
        if (h != known[i].hash)
            print_error("{\"%s\", 0x%016llxu}\n", t->name, (unsigned long long)h);
        bad += h != known[i].hash;
    }
    assert_int_equal(bad, 0);
}

/* ---- refusals */

static void test_nan_and_infinity_are_refused_with_their_index(void **state)
{
    (void)state;
    const struct quant_traits *t;
    for (size_t i = 0; (t = next_writable(&i)) != NULL;) {
        zp_err err = {0};
        for (size_t k = 0; k < 512; k++) src[k] = 0.5f;
        src[300] = NAN;
        src[400] = INFINITY;
        assert_int_equal(quant_quantize_row(t, src, packed, 512, &err), ZP_BAD_INPUT);
        assert_non_null(strstr(err.message, "weight 300 of the row is NaN"));
        err = (zp_err){0};
        src[300] = -INFINITY;
        assert_int_equal(quant_quantize_row(t, src, packed, 512, &err), ZP_BAD_INPUT);
        assert_non_null(strstr(err.message, "weight 300 of the row is infinite"));
    }
}

static void test_weights_too_large_for_a_type_are_refused(void **state)
{
    (void)state;
    static const char *const names[] = {"F16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1",
                                        "Q4_K", "Q5_K", "Q6_K"};
    for (size_t i = 0; i < ZP_COUNT(names); i++) {
        const struct quant_traits *t = quant_traits_by_name(names[i]);
        for (int sign = -1; sign <= 1; sign += 2) {
            zp_err err = {0};
            for (size_t k = 0; k < 512; k++) src[k] = k % 3 ? 0.5f : 0;
            src[333] = 3e38f * (float)sign;
            assert_int_equal(quant_quantize_row(t, src, packed, 512, &err), ZP_BAD_INPUT);
            assert_non_null(strstr(err.message, "weight 333 of the row is"));
            assert_non_null(strstr(err.message, t->name));
        }
    }
}

static void test_types_without_writer_are_refused_by_name(void **state)
{
    (void)state;
    const struct quant_traits *t;
    size_t refused = 0;
    for (size_t i = 0; (t = quant_traits_at(i)) != NULL; i++) {
        zp_err err = {0};
        if (t->can_write) continue;
        refused++;
        assert_int_equal(quant_quantize_row(t, src, packed, 256, &err), ZP_UNSUPPORTED);
        assert_non_null(strstr(err.message, t->name));
    }
    assert_int_equal(refused, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_zero_stays_exactly_zero_in_every_type),
        cmocka_unit_test(test_zeros_inside_groups_cost_little_accuracy),
        cmocka_unit_test(test_errors_are_not_larger_than_ggml),
        cmocka_unit_test(test_values_on_the_grid_are_kept),
        cmocka_unit_test(test_same_weights_give_same_bits_on_every_machine),
        cmocka_unit_test(test_nan_and_infinity_are_refused_with_their_index),
        cmocka_unit_test(test_weights_too_large_for_a_type_are_refused),
        cmocka_unit_test(test_types_without_writer_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
