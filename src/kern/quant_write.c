/* quant_write.c: quantising rows: checks, float types, 32-weight blocks; quant_write_k.c has the
 * 256-weight blocks. Scales come from least squares fits (quant_fit.c) and are rounded to halves
 * before codes are chosen, so that codes are nearest to what a reader will compute.
 * Q3 (a zero stays zero) holds by construction: a grid with min = -z * scale hits zero at code z,
 * and a group with a zero among negative weights only gets such grids, with z * scale a half. */
#include "kern/quant_write.h"

#include <math.h>
#include <string.h>

#include "base/num.h"
#include "kern/quant.h"
#include "kern/quant_fit.h"
#include "kern/quant_k.h"

static void store_half(uint8_t *p, float x)
{
    uint16_t h = f32_to_f16(x);
    memcpy(p, &h, 2);
}

/* Codes of the group on the grid the block's halves give: q * scale + min. */
static void choose_codes(const struct fit_group *g, float scale, float min, int top, uint8_t *code)
{
    float q[FIT_MAX];
    struct fit_grid grid = {0, 0, top};
    if (g->amax > 0) {
        grid.scale = scale / g->amax;
        grid.min = min / g->amax;
    }
    fit_assign(g, grid, q);
    for (int i = 0; i < g->n; i++) code[i] = (uint8_t)q[i];
}

static void store_nibbles(uint8_t *p, const uint8_t code[32])
{
    for (int j = 0; j < 16; j++) p[j] = (uint8_t)((code[j] & 15) | (code[j + 16] & 15) << 4);
}

static void store_fifth_bits(uint8_t *p, const uint8_t code[32])
{
    uint32_t bits = 0;
    for (int j = 0; j < 32; j++) bits |= (uint32_t)(code[j] >> 4) << j;
    memcpy(p, &bits, 4);
}

/* Scale half at b, codes out. */
static void encode_symmetric(const float *src, uint8_t *b, int top, uint8_t *code)
{
    struct fit_group g;
    const int zero = (top + 1) / 2;
    fit_load(&g, src, 32);
    store_half(b, fit_symmetric(&g, top, zero, true).scale * g.amax);
    float d = load_half(b);
    choose_codes(&g, d, -(float)zero * d, top, code);
    if (d == 0) memset(code, zero, 32);
}

/* The half nearest to d of which z times is a half as well: drops low bits until it is. */
static float half_with_multiple(float d, int z)
{
    uint32_t h = f32_to_f16(d);
    float value = half_expand((uint16_t)h), product = value * (float)z;
    for (int drop = 1; drop <= 5 && half_expand(f32_to_f16(product)) != product; drop++) {
        value = half_expand((uint16_t)((h + (1u << (drop - 1))) >> drop << drop));
        product = value * (float)z;
    }
    return value;
}

/* Best (scale, min) in halves, in source units, that has zero among its values; infinite where the
 * weights are too large for halves. */
static void fit_through_zero(const struct fit_group *g, int top, float *scale, float *min)
{
    const int near = fit_zero_code(g, top);
    float best = INFINITY;
    *scale = *min = INFINITY;
    for (int z = near - 2; z <= near + 2; z++) {
        if (z < 0 || z > top) continue;
        float d = half_with_multiple(fit_symmetric(g, top, z, false).scale * g->amax, z);
        struct fit_grid grid = {d / g->amax, -(float)z * d / g->amax, top};
        float error = fit_error(g, grid);
        if (error < best) {
            best = error;
            *scale = d;
            *min = -(float)z * d;
        }
    }
}

/* Scale half at b, min half at b + 2, codes out. */
static void encode_affine(const float *src, uint8_t *b, int top, uint8_t *code)
{
    struct fit_group g;
    float scale = 0, min = 0;
    fit_load(&g, src, 32);
    if (g.zero_inside) {
        fit_through_zero(&g, top, &scale, &min);
    } else if (g.zero_lowest) {
        scale = fit_symmetric(&g, top, 0, false).scale * g.amax;
    } else {
        struct fit_grid grid = fit_affine(&g, top, INFINITY);
        scale = grid.scale * g.amax;
        min = grid.min * g.amax;
    }
    store_half(b, scale);
    store_half(b + 2, min);
    choose_codes(&g, load_half(b), load_half(b + 2), top, code);
}

static void write_q4_0(const float *src, uint8_t *b)
{
    uint8_t code[32];
    encode_symmetric(src, b, 15, code);
    store_nibbles(b + 2, code);
}

static void write_q5_0(const float *src, uint8_t *b)
{
    uint8_t code[32];
    encode_symmetric(src, b, 31, code);
    store_fifth_bits(b + 2, code);
    store_nibbles(b + 6, code);
}

static void write_q4_1(const float *src, uint8_t *b)
{
    uint8_t code[32];
    encode_affine(src, b, 15, code);
    store_nibbles(b + 4, code);
}

static void write_q5_1(const float *src, uint8_t *b)
{
    uint8_t code[32];
    encode_affine(src, b, 31, code);
    store_fifth_bits(b + 4, code);
    store_nibbles(b + 8, code);
}

/* 255 steps leave nothing to search for: the largest magnitude is code +-127. */
static void write_q8_0(const float *src, uint8_t *b)
{
    float amax = 0;
    for (int i = 0; i < 32; i++) amax = fabsf(src[i]) > amax ? fabsf(src[i]) : amax;
    store_half(b, amax / 127);
    float d = load_half(b), inverse = d > 0 ? 1 / d : 0;
    for (int i = 0; i < 32; i++) {
        float v = src[i] * inverse;
        v = v > -128 ? v : -128; /* also where v is NaN, for which a conversion is undefined */
        v = v < 127 ? v : 127;
        int code = (int)(v + (v < 0 ? -0.5f : 0.5f));
        b[2 + i] = (uint8_t)(int8_t)code;
    }
}

typedef void (*write_fn)(const float *src, uint8_t *b);

static write_fn find_writer(uint32_t type)
{
    switch (type) {
    case QUANT_Q4_0: return write_q4_0;
    case QUANT_Q4_1: return write_q4_1;
    case QUANT_Q5_0: return write_q5_0;
    case QUANT_Q5_1: return write_q5_1;
    case QUANT_Q8_0: return write_q8_0;
    case QUANT_Q4_K: return quant_write_q4_k;
    case QUANT_Q5_K: return quant_write_q5_k;
    case QUANT_Q6_K: return quant_write_q6_k;
    default: return NULL;
    }
}

static void write_floats(uint32_t type, const float *restrict src, uint8_t *restrict dst, size_t n)
{
    if (type == QUANT_F32) {
        memcpy(dst, src, n * sizeof *src);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        uint16_t h = type == QUANT_F16 ? f32_to_f16(src[i]) : f32_to_bf16(src[i]);
        memcpy(dst + 2 * i, &h, 2);
    }
}

static zp_status check_source(const struct quant_traits *t, const float *src, size_t n, zp_err *err)
{
    if (quant_row_is_finite(quant_traits_find(QUANT_F32), src, n)) return ZP_OK;
    for (size_t i = 0; i < n; i++) {
        ZP_FAIL_IF(!isfinite(src[i]), err, ZP_BAD_INPUT,
                   "weight %zu of the row is %s, expected a finite number for %s: the source is "
                   "damaged", i, isnan(src[i]) ? "NaN" : "infinite", t->name);
    }
    return ZP_OK;
}

/* Names the largest weight of the first block whose scales or values became infinite. */
static zp_status check_result(const struct quant_traits *t, const float *src, const uint8_t *dst,
                              size_t n, zp_err *err)
{
    if (quant_row_is_finite(t, dst, n)) return ZP_OK;
    size_t first = 0;
    while (quant_row_is_finite(t, dst + first / t->block * t->bytes, t->block)) first += t->block;
    size_t worst = first;
    for (size_t i = first; i < first + t->block; i++) {
        if (fabsf(src[i]) > fabsf(src[worst])) worst = i;
    }
    ZP_FAIL(err, ZP_BAD_INPUT,
            "weight %zu of the row is %g, too large for %s; keep this tensor in F32 or BF16", worst,
            (double)src[worst], t->name);
}

zp_status quant_quantize_row(const struct quant_traits *t, const float *src, void *dst, size_t n,
                             zp_err *err)
{
    uint8_t *b = dst;
    write_fn write = find_writer(t->type);
    ZP_FAIL_IF(!t->can_write, err, ZP_UNSUPPORTED,
               "%s can be read but not written; types to write: F32 F16 BF16 Q8_0 Q4_0 Q4_1 Q5_0 "
               "Q5_1 Q4_K Q5_K Q6_K", t->name);
    ZP_TRY(check_source(t, src, n, err));
    if (t->form == QUANT_FLOAT) {
        write_floats(t->type, src, b, n);
    } else {
        for (size_t i = 0; i < n; i += t->block) write(src + i, b + i / t->block * t->bytes);
    }
    return check_result(t, src, b, n, err);
}
