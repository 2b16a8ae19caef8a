/* quant_write_k.c: encoders of the 256-weight blocks Q4_K, Q5_K and Q6_K.
 * First each group gets its own best grid; the block's halves follow from the largest; then the
 * small integers of each group are searched around their ideal with the real, rounded halves. */
#include "kern/quant_write.h"

#include <math.h>
#include <string.h>

#include "base/num.h"
#include "kern/quant_fit.h"
#include "kern/quant_k.h"

#define GROUPS 8

struct affine_block {
    struct fit_group group[GROUPS];
    struct fit_grid fit[GROUPS];
    int top;                 /* 15 or 31 */
    int half;                /* middle code: 8 or 16 */
    bool tied;               /* dmin = half * d, so that grids through zero exist (Q3) */
    float d, dmin;           /* as a reader sees them */
    uint8_t scale[GROUPS], min[GROUPS]; /* 0..63 */
};

static uint16_t to_half(float x, float *rounded)
{
    uint16_t h = f32_to_f16(x);
    *rounded = half_expand(h);
    return h;
}

static int nearest_in(float x, int low, int high)
{
    if (!(x > (float)low)) return low;
    return x < (float)high ? (int)floorf(x + 0.5f) : high;
}

static void load_groups(struct affine_block *k, const float *src)
{
    for (int i = 0; i < GROUPS; i++) {
        struct fit_group *g = &k->group[i];
        fit_load(g, src + 32 * i, 32);
        k->tied |= g->zero_inside;
        if (g->zero_inside || g->zero_lowest)
            k->fit[i] = fit_symmetric(g, k->top, g->zero_inside ? k->half : 0, false);
        else
            k->fit[i] = fit_affine(g, k->top, 0);
    }
}

/* d and dmin such that the largest scale and the largest min are 63 of them. */
static void choose_halves(struct affine_block *k, uint8_t *b)
{
    float scale = 0, min = 0;
    for (int i = 0; i < GROUPS; i++) {
        float s = k->fit[i].scale * k->group[i].amax, m = -k->fit[i].min * k->group[i].amax;
        scale = s > scale ? s : scale;
        min = m > min ? m : min;
    }
    if (k->tied && min / (float)k->half > scale) scale = min / (float)k->half;
    uint16_t d = to_half(scale / 63, &k->d);
    uint16_t dmin = to_half(k->tied ? (float)k->half * k->d : min / 63, &k->dmin);
    memcpy(b, &d, 2);
    memcpy(b + 2, &dmin, 2);
}

static struct fit_grid grid_of(const struct affine_block *k, int i, int scale, int min)
{
    float amax = k->group[i].amax;
    return (struct fit_grid){k->d * (float)scale / amax, -k->dmin * (float)min / amax, k->top};
}

static void keep_better(struct affine_block *k, int i, int scale, int min, float *best)
{
    float error = fit_error(&k->group[i], grid_of(k, i, scale, min));
    if (error < *best) {
        *best = error;
        k->scale[i] = (uint8_t)scale;
        k->min[i] = (uint8_t)min;
    }
}

static void search_free(struct affine_block *k, int i)
{
    const float amax = k->group[i].amax;
    const int s0 = k->d > 0 ? nearest_in(k->fit[i].scale * amax / k->d, 0, 63) : 0;
    const int m0 = k->dmin > 0 ? nearest_in(-k->fit[i].min * amax / k->dmin, 0, 63) : 0;
    float best = INFINITY;
    const int m_end = k->group[i].zero_lowest ? 0 : m0 < 63 ? m0 + 1 : 63;
    for (int s = s0 > 0 ? s0 - 1 : 0; s <= s0 + 1 && s <= 63; s++) {
        for (int m = m0 > 0 ? m0 - 1 : 0; m <= m_end; m++)
            keep_better(k, i, s, m, &best);
    }
}

/* Zero at code z needs scale * z = half * min in the small integers. */
static void search_through_zero(struct affine_block *k, int i)
{
    const struct fit_group *g = &k->group[i];
    const int near = fit_zero_code(g, k->top);
    float best = INFINITY;
    for (int z = 0; z <= k->top; z++) {
        if (z != k->half && (z < near - 2 || z > near + 2)) continue;
        float ideal = fit_symmetric(g, k->top, z, false).scale * g->amax;
        int s0 = k->d > 0 ? nearest_in(ideal / k->d, 0, 63) : 0;
        for (int s = 0; s <= 63; s++) {
            bool possible = s * z % k->half == 0 && s * z / k->half <= 63;
            if (possible && s > s0 - k->half && s < s0 + k->half)
                keep_better(k, i, s, s * z / k->half, &best);
        }
    }
}

static void encode_affine_k(const float *src, uint8_t *b, int top, uint8_t *code)
{
    struct affine_block k = {.top = top, .half = (top + 1) / 2};
    float q[FIT_MAX];
    load_groups(&k, src);
    choose_halves(&k, b);
    memset(code, 0, 256);
    for (int i = 0; i < GROUPS; i++) {
        if (k.group[i].amax == 0) continue; /* scale, min and codes 0 */
        if (k.group[i].zero_inside)
            search_through_zero(&k, i);
        else
            search_free(&k, i);
        fit_assign(&k.group[i], grid_of(&k, i, k.scale[i], k.min[i]), q);
        for (int l = 0; l < 32; l++) code[32 * i + l] = (uint8_t)q[l];
    }
    quant_k_scales_put(b + 4, k.scale, k.min);
}

static void store_nibble_rows(uint8_t *p, const uint8_t *code)
{
    for (int c = 0; c < 4; c++) {
        for (int l = 0; l < 32; l++)
            p[32 * c + l] = (uint8_t)((code[64 * c + l] & 15) | (code[64 * c + 32 + l] & 15) << 4);
    }
}

void quant_write_q4_k(const float *src, uint8_t *b)
{
    uint8_t code[256];
    encode_affine_k(src, b, 15, code);
    store_nibble_rows(b + 16, code);
}

void quant_write_q5_k(const float *src, uint8_t *b)
{
    uint8_t code[256];
    encode_affine_k(src, b, 31, code);
    memset(b + 16, 0, 32);
    for (int i = 0; i < 256; i++) b[16 + i % 32] |= (uint8_t)(code[i] >> 4 << i / 32);
    store_nibble_rows(b + 48, code);
}

/* The small integer of one Q6_K group and its codes. */
static int8_t encode_q6_group(const struct fit_group *g, float ideal, float d, uint8_t *code)
{
    float best = INFINITY, q[FIT_MAX];
    int scale = 0;
    const int near = d != 0 ? nearest_in(ideal / d, -128, 127) : 0;
    for (int s = near - 1; s <= near + 1; s++) {
        if (s < -128 || s > 127) continue;
        float step = d * (float)s / g->amax;
        float error = fit_error(g, (struct fit_grid){step, -32 * step, 63});
        if (error < best) {
            best = error;
            scale = s;
        }
    }
    float step = d * (float)scale / g->amax;
    fit_assign(g, (struct fit_grid){step, -32 * step, 63}, q);
    for (int l = 0; l < 16; l++) code[l] = scale != 0 ? (uint8_t)q[l] : 32;
    return (int8_t)scale;
}

static void store_q6_codes(uint8_t *b, const uint8_t *code)
{
    for (int half = 0; half < 2; half++) {
        const uint8_t *c = code + 128 * half;
        uint8_t *low = b + 64 * half, *high = b + 128 + 32 * half;
        for (int l = 0; l < 32; l++) {
            low[l] = (uint8_t)((c[l] & 15) | (c[l + 64] & 15) << 4);
            low[l + 32] = (uint8_t)((c[l + 32] & 15) | (c[l + 96] & 15) << 4);
            high[l] = (uint8_t)(c[l] >> 4 | c[l + 32] >> 4 << 2 | c[l + 64] >> 4 << 4
                                | c[l + 96] >> 4 << 6);
        }
    }
}

void quant_write_q6_k(const float *src, uint8_t *b)
{
    struct fit_group group[16];
    float ideal[16], largest = 0, d;
    uint8_t code[256];
    for (int i = 0; i < 16; i++) {
        fit_load(&group[i], src + 16 * i, 16);
        ideal[i] = fit_symmetric(&group[i], 63, 32, true).scale * group[i].amax;
        if (fabsf(ideal[i]) > fabsf(largest)) largest = ideal[i];
    }
    uint16_t h = to_half(largest / -128, &d); /* the largest becomes -128: one more step than 127 */
    memcpy(b + 208, &h, 2);
    memset(code, 32, sizeof code);
    memset(b + 192, 0, 16);
    for (int i = 0; i < 16; i++) {
        if (group[i].amax > 0)
            b[192 + i] = (uint8_t)encode_q6_group(&group[i], ideal[i], d, code + 16 * i);
    }
    store_q6_codes(b, code);
}
