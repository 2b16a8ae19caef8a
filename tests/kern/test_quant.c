/* test_quant.c: tensor types against the numpy reference (tests/data/quant_blocks.h), and the
 * promises of quant.h about unpacking and finiteness. */
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
#include "data/quant_blocks.h"
#include "kern/quant.h"
#include "scale_fields.h"

#define MANY 4096

/* The generator of the Python tool. */
static void splitmix_fill(uint64_t seed, uint8_t *out, size_t size)
{
    for (size_t i = 0; i < size; i += 8) {
        uint64_t z = seed + (i / 8 + 1) * 0x9E3779B97F4A7C15u;
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
        z = (z ^ z >> 27) * 0x94D049BB133111EBu;
        z ^= z >> 31;
        memcpy(out + i, &z, size - i < 8 ? size - i : 8);
    }
}

/* Random blocks whose float fields are finite; keep = AND mask of their high byte. */
static uint8_t *random_blocks(const struct quant_traits *t, uint64_t seed, size_t n, uint8_t keep)
{
    const struct field *f = field_of(t);
    uint8_t *b = mem_alloc(MEM_SCRATCH, n * t->bytes);
    assert_non_null(b);
    splitmix_fill(seed, b, n * t->bytes);
    for (size_t i = 0; i < n; i++) {
        for (int k = 0; k < f->n; k++) b[i * t->bytes + (size_t)f->at[k] + 1] &= keep;
        if (f->n == 0) b[i * t->bytes] &= 0x7f;
    }
    return b;
}

static uint32_t hex_digit(char c) { return (uint32_t)(c <= '9' ? c - '0' : c - 'a' + 10); }

static void test_values_equal_the_reference_to_the_bit(void **state)
{
    (void)state;
    for (size_t i = 0; i < ZP_COUNT(quant_cases); i++) {
        const struct quant_case *c = &quant_cases[i];
        const struct quant_traits *t = quant_traits_by_name(c->name);
        assert_non_null(t);
        uint8_t block[1024];
        float value[256];
        size_t bytes = strlen(c->block) / 2;
        assert_int_equal(bytes, quant_row_bytes(t, c->n));
        for (size_t k = 0; k < bytes; k++) /* odd address: no alignment is needed */
            block[k + 1] =
                (uint8_t)(hex_digit(c->block[2 * k]) << 4 | hex_digit(c->block[2 * k + 1]));
        quant_dequantize_row(t, block + 1, value, c->n);
        for (size_t k = 0; k < c->n; k++) {
            uint32_t expected = 0;
            for (size_t d = 0; d < 8; d++)
                expected = expected << 4 | hex_digit(c->value[8 * k + d]);
            if (f32_bits(value[k]) != expected)
                fail_msg("%s weight %zu: %08x, expected %08x", c->name, k,
                         (unsigned)f32_bits(value[k]), (unsigned)expected);
        }
    }
    assert_int_equal(ZP_COUNT(quant_cases), 16);
}

static void test_many_random_blocks_hash_to_the_reference(void **state)
{
    (void)state;
    for (size_t i = 0; i < ZP_COUNT(quant_cases); i++) {
        const struct quant_traits *t = quant_traits_by_name(quant_cases[i].name);
        uint8_t *b = random_blocks(t, t->type, MANY, 0xbf);
        float *value = mem_array(MEM_SCRATCH, (size_t)MANY * t->block, sizeof *value);
        assert_non_null(value);
        quant_dequantize_row(t, b, value, (size_t)MANY * t->block);
        uint64_t h = 0xCBF29CE484222325u;
        for (size_t k = 0; k < (size_t)MANY * t->block; k++)
            h = (h ^ f32_bits(value[k])) * 0x100000001B3u;
        if (h != quant_cases[i].hash) fail_msg("%s: hash differs", t->name);
        mem_free(value);
        mem_free(b);
    }
}

/* One rounding (fma) and two must both give the dequantised value, for scales of any size. */
static void check_affine(const struct quant_traits *t, const uint8_t *b)
{
    float value[256], scale[16], min[16];
    uint8_t q[256];
    struct quant_scales parts;
    quant_dequantize_row(t, b, value, t->block);
    quant_unpack_block(t, b, q, &parts);
    quant_scale_values(t, &parts, scale, min);
    for (size_t k = 0; k < t->block; k++) {
        float s = scale[k / t->group],
              m = t->has_min ? min[k / t->group] : -(float)t->offset * s;
        float product = s * (float)q[k], two = product + m, one = fmaf(s, (float)q[k], m);
        if (two != value[k] || one != value[k] || q[k] >> t->bits)
            fail_msg("%s weight %zu: q %d scale %a min %a gives %a or %a, not %a", t->name, k, q[k],
                     (double)s, (double)m, (double)two, (double)one, (double)value[k]);
    }
}

static void check_codes(const struct quant_traits *t, const uint8_t *b)
{
    float value[256], scale[16];
    uint8_t q[256];
    struct quant_scales parts;
    quant_dequantize_row(t, b, value, t->block);
    quant_unpack_block(t, b, q, &parts);
    quant_scale_values(t, &parts, scale, NULL);
    for (size_t k = 0; k < t->block; k++) {
        assert_true(q[k] < 16);
        float w = scale[k / t->group] * (float)t->codes[q[k]];
        assert_int_equal(f32_bits(w), f32_bits(value[k]));
    }
}

static void test_unpacking_loses_nothing(void **state)
{
    (void)state;
    const struct quant_traits *t;
    size_t codebooks = 0;
    for (size_t i = 0; (t = quant_traits_at(i)) != NULL; i++) {
        if (t->form == QUANT_FLOAT) continue;
        codebooks += t->form == QUANT_CODEBOOK;
        assert_int_equal(t->form == QUANT_CODEBOOK, t->codes != NULL);
        for (uint64_t seed = 100; seed < 104; seed++) {
            uint8_t keep = seed % 2 ? 0xbf : 0xfb; /* small scales; scales up to 65504 */
            uint8_t *b = random_blocks(t, seed, 512, keep);
            for (size_t n = 0; n < 512; n++)
                (t->codes ? check_codes : check_affine)(t, b + n * t->bytes);
            mem_free(b);
        }
    }
    assert_int_equal(codebooks, 3);
}

static void test_every_half_expands_as_base_does(void **state)
{
    (void)state;
    const struct quant_traits *t = quant_traits_find(QUANT_F16);
    for (uint32_t h = 0; h < 65536; h++) {
        uint16_t half = (uint16_t)h;
        float value, expected = f16_to_f32(half);
        quant_dequantize_row(t, &half, &value, 1);
        if (expected != expected)
            assert_true(value != value);
        else
            assert_int_equal(f32_bits(value), f32_bits(expected));
    }
}

static void test_finite_check_finds_one_bad_scale(void **state)
{
    (void)state;
    static const uint8_t top[] = {0x7c, 0xfc, 0x7e, 0xff}; /* infinities and NaNs of f16 */
    const struct quant_traits *t;
    for (size_t i = 0; (t = quant_traits_at(i)) != NULL; i++) {
        const struct field *f = field_of(t);
        uint8_t *b = random_blocks(t, 9, 37, 0x3b);
        size_t n = 37 * (size_t)t->block;
        assert_true(quant_row_is_finite(t, b, n));
        for (size_t bad = 0; bad < 37; bad += 9) {
            for (int k = 0; k < f->n; k++) {
                uint8_t *p = b + bad * t->bytes + f->at[k], old[2] = {p[0], p[1]};
                p[0] = t->form == QUANT_FLOAT ? 0x80 : 0; /* the low exponent bit of BF16, F32 */
                p[1] = top[bad % 4] | (t->form == QUANT_FLOAT ? 0x7f : 0);
                assert_false(quant_row_is_finite(t, b, n));
                memcpy(p, old, 2);
            }
        }
        assert_true(quant_row_is_finite(t, b, n));
        mem_free(b);
    }
}

static void test_finite_check_knows_the_range_of_mxfp4(void **state)
{
    (void)state;
    const struct quant_traits *t = quant_traits_find(QUANT_MXFP4);
    uint8_t b[17];
    float value[32];
    for (int e = 0; e < 256; e++) {
        b[0] = (uint8_t)e;
        memset(b + 1, 0x77, 16);
        quant_dequantize_row(t, b, value, 32);
        assert_int_equal(quant_row_is_finite(t, b, 32), isfinite(value[0]) != 0);
    }
}

static void test_traits_name_sizes_and_unknown_types(void **state)
{
    (void)state;
    static const struct { uint32_t type; const char *name; size_t bytes_256; } known[] = {
        {0, "F32", 1024}, {1, "F16", 512},   {2, "Q4_0", 144},    {3, "Q4_1", 160},
        {6, "Q5_0", 176}, {7, "Q5_1", 192},  {8, "Q8_0", 272},    {10, "Q2_K", 84},
        {11, "Q3_K", 110}, {12, "Q4_K", 144}, {13, "Q5_K", 176},  {14, "Q6_K", 210},
        {20, "IQ4_NL", 144}, {23, "IQ4_XS", 136}, {30, "BF16", 512}, {39, "MXFP4", 136}};
    size_t found = 0;
    for (size_t i = 0; i < ZP_COUNT(known); i++) {
        const struct quant_traits *t = quant_traits_find(known[i].type);
        assert_non_null(t);
        assert_string_equal(t->name, known[i].name);
        assert_int_equal(quant_row_bytes(t, 256), known[i].bytes_256);
        assert_ptr_equal(quant_traits_by_name(known[i].name), t);
    }
    while (quant_traits_at(found) != NULL) found++;
    assert_int_equal(found, ZP_COUNT(known));
    for (uint32_t type = 0; type < 300; type++) {
        size_t i = 0;
        while (i < ZP_COUNT(known) && known[i].type != type) i++;
        assert_int_equal(quant_traits_find(type) != NULL, i < ZP_COUNT(known));
    }
    assert_null(quant_traits_find(UINT32_MAX));
    assert_ptr_equal(quant_traits_by_name("q4_k"), quant_traits_find(12));
    assert_null(quant_traits_by_name("Q4_"));
    assert_null(quant_traits_by_name("Q4_K_M"));
    assert_null(quant_traits_by_name(""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_equal_the_reference_to_the_bit),
        cmocka_unit_test(test_many_random_blocks_hash_to_the_reference),
        cmocka_unit_test(test_unpacking_loses_nothing),
        cmocka_unit_test(test_every_half_expands_as_base_does),
        cmocka_unit_test(test_finite_check_finds_one_bad_scale),
        cmocka_unit_test(test_finite_check_knows_the_range_of_mxfp4),
        cmocka_unit_test(test_traits_name_sizes_and_unknown_types),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
