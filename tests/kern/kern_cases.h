/* kern_cases.h: what the kernel tests share: levels of this machine, seeded numbers, guarded
 * memory, distances between floats, packed matrices of every file type with their true values. */
#ifndef TESTS_KERN_CASES_H
#define TESTS_KERN_CASES_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/mem.h"
#include "base/num.h"
#include "base/rng.h"
#include "kern/kern.h"

enum { GUARD = 64 };
static const uint8_t guard_byte = 0xa5;

/* Printed once a test; set ZEROPE_TEST_SEED to try others. */
static inline struct rng seeded(const char *test)
{
    const char *text = getenv("ZEROPE_TEST_SEED");
    uint64_t seed = text ? strtoull(text, NULL, 10) : 20260101;
    print_message("%s: seed %llu\n", test, (unsigned long long)seed);
    return rng_stream(seed, 7);
}

static inline float uniform(struct rng *r, float size)
{
    return (float)(2 * rng_unit(r) - 1) * size;
}

/* Zero-filled, with guard bytes behind; size in bytes. */
static inline void *guarded(size_t size)
{
    uint8_t *p = mem_alloc(MEM_SCRATCH, size + GUARD);
    assert_non_null(p);
    memset(p, 0, size);
    memset(p + size, guard_byte, GUARD);
    return p;
}

static inline void assert_guard(const void *p, size_t size)
{
    const uint8_t *g = (const uint8_t *)p + size;
    for (size_t i = 0; i < GUARD; i++)
        if (g[i] != guard_byte) fail_msg("byte %zu behind %zu was overwritten", i, size);
}

static inline float *floats(struct rng *r, size_t n, float size)
{
    float *x = guarded(n * sizeof *x);
    for (size_t i = 0; i < n; i++) x[i] = uniform(r, size);
    return x;
}

static inline void assert_same_bits(const void *a, const void *b, size_t n, const char *what)
{
    const uint32_t *x = a, *y = b;
    for (size_t i = 0; i < n; i++)
        if (x[i] != y[i])
            fail_msg("%s: value %zu of %zu: %08x (%g) is not %08x (%g)", what, i, n, x[i],
                     (double)f32_from_bits(x[i]), y[i], (double)f32_from_bits(y[i]));
}

/* Distance in units of the last place of the true value; below 1e-37 everything counts as equal. */
static inline double ulps(double got, double want)
{
    int exponent;
    if (isnan(got) && isnan(want)) return 0;
    if (isnan(got) != isnan(want)) return INFINITY;
    if (fabs(want) < 1e-37 && fabs(got) < 1e-37) return 0;
    if (fabs(want) > 3.4028235e38) return isinf(got) && (got > 0) == (want > 0) ? 0 : INFINITY;
    frexp(want, &exponent);
    return fabs(got - want) / ldexp(1, exponent - 24);
}

/* A packed matrix and its true weights. */
struct case_mat {
    const struct quant_traits *type;
    struct kern_mat m;
    uint8_t *rows;   /* file bytes */
    double *weights; /* (n_out, n_in) */
    double *parts;   /* (n_out, n_in): |scale q| + |min|: what rounding errors scale with */
};

static inline void fill_block(struct rng *r, const struct quant_traits *t, uint8_t *out,
                              bool extreme)
{
    do {
        for (size_t i = 0; i < t->bytes; i++)
            out[i] = (uint8_t)(extreme && rng_below(r, 4) ? 0xff * rng_below(r, 2) : rng_u32(r));
        if (t->type == QUANT_MXFP4) out[0] = (uint8_t)(100 + rng_below(r, 50));
    } while (!quant_row_is_finite(t, out, t->block));
}

static inline void fill_rows(struct rng *r, struct case_mat *c, bool extreme)
{
    size_t n = c->m.n_in, row_bytes = quant_row_bytes(c->type, n);
    for (size_t row = 0; row < c->m.n_out; row++)
        for (size_t b = 0; b < n / c->type->block; b++) {
            uint8_t *at = c->rows + row * row_bytes + b * c->type->bytes;
            if (c->type->type == QUANT_F32) {
                float w = uniform(r, 1);
                memcpy(at, &w, 4);
            } else if (c->type->form == QUANT_FLOAT) {
                uint16_t h = c->type->type == QUANT_F16 ? f32_to_f16(uniform(r, 1))
                                                        : f32_to_bf16(uniform(r, 1));
                memcpy(at, &h, 2);
            } else {
                fill_block(r, c->type, at, extreme);
            }
        }
}

/* |scale q| + |min| of one row. */
static inline void fill_parts(const struct quant_traits *t, const uint8_t *row, double *parts,
                              size_t n)
{
    uint8_t q[256];
    float scale[16], min[16];
    struct quant_scales s;
    for (size_t b = 0; b < n / t->block; b++) {
        quant_unpack_block(t, row + b * t->bytes, q, &s);
        quant_scale_values(t, &s, scale, min);
        for (size_t k = 0; k < t->block; k++) {
            size_t g = k / t->group;
            parts[b * t->block + k] = fabs((double)scale[g] * q[k]) + fabs((double)min[g]);
        }
    }
}

static inline void fill_truth(struct case_mat *c)
{
    size_t n = c->m.n_in, row_bytes = quant_row_bytes(c->type, n);
    float *row = mem_array(MEM_SCRATCH, n, sizeof *row);
    for (size_t r = 0; r < c->m.n_out; r++) {
        quant_dequantize_row(c->type, c->rows + r * row_bytes, row, n);
        for (size_t k = 0; k < n; k++) {
            c->weights[r * n + k] = (double)row[k];
            c->parts[r * n + k] = fabs((double)row[k]);
        }
        if (c->type->has_min) fill_parts(c->type, c->rows + r * row_bytes, c->parts + r * n, n);
    }
    mem_free(row);
}

/* After the file bytes changed. */
static inline void pack_rows(struct case_mat *c)
{
    void *scratch = mem_alloc(MEM_SCRATCH, kern_mat_pack_scratch(&c->m));
    assert_non_null(scratch);
    fill_truth(c);
    kern_mat_pack(&c->m, c->rows, c->type->type, NULL, 0, (c->m.n_out + PACK_ROWS - 1) / PACK_ROWS,
                  scratch);
    mem_free(scratch);
}

static inline struct case_mat make_mat(struct rng *r, const struct quant_traits *t, size_t n_out,
                                       size_t n_in, bool exact, bool extreme)
{
    struct case_mat c = { .type = t };
    zp_err err = { 0 };
    if (kern_mat_plan(&c.m, t->type, n_out, n_in, exact, &err)) fail_msg("%s", err.message);
    c.rows = mem_alloc(MEM_SCRATCH, n_out * quant_row_bytes(t, n_in));
    c.weights = mem_array(MEM_SCRATCH, n_out * n_in, sizeof *c.weights);
    c.parts = mem_array(MEM_SCRATCH, n_out * n_in, sizeof *c.parts);
    c.m.data = mem_alloc(MEM_SCRATCH, kern_mat_bytes(&c.m));
    assert_true(c.rows && c.weights && c.parts && c.m.data);
    fill_rows(r, &c, extreme);
    pack_rows(&c);
    return c;
}

static inline void free_mat(struct case_mat *c)
{
    mem_free(c->rows);
    mem_free(c->weights);
    mem_free(c->parts);
    mem_free(c->m.data);
}

/* Tables of every level this machine has; returns their number. */
static inline size_t all_levels(struct kern_table out[KERN_LEVEL_COUNT])
{
    size_t n = 0;
    for (; n <= (size_t)kern_cpu_level(); n++) kern_table_init(&out[n], (enum kern_level)n);
    return n;
}

#endif
