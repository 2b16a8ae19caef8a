/* attend_q8_ref.c: attention over 8-bit tiles in plain C, the query rows it reads, and the closing
 * of bf16 tiles into 8-bit ones: the definition of correct. */
#include <math.h>
#include <string.h>
#include "base/num.h"
#include "kern/kern_impl.h"
#include "kern/ref/soften_ref.h"

enum { GROUP = KERN_Q8_GROUP, MOST = 127, WEIGHT_BITS = 15 };

/* ---- tiles and rows -------------------------------------------------------------------------- */

/* Channels of one position as bytes; returns the scale to store. */
static uint16_t close_group(const float *x, size_t n, int8_t *q)
{
    float max = 0, none = 0;
    for (size_t i = 0; i < n; i++) {
        max = fabsf(x[i]) > max ? fabsf(x[i]) : max;
        none += isnan(x[i]) ? NAN : 0;
    }
    uint16_t stored = f32_to_f16(max / MOST + none);
    float scale = f16_to_f32(stored), inverse = scale > 0 && isfinite(scale) ? 1 / scale : 0;
    for (size_t i = 0; i < n; i++) {
        float y = inverse > 0 ? rintf(x[i] * inverse) : 0; /* the scale's rounding may reach 128 */
        q[i] = (int8_t)(y > MOST ? MOST : y < -MOST ? -MOST : y);
    }
    return stored;
}

void kv_close_ref(const void *k_bf16, const void *v_bf16, void *k_q8, void *v_q8, size_t d)
{
    const uint16_t *k = k_bf16, *v = v_bf16;
    size_t width = kern_q8_width(d);
    uint8_t *kq = k_q8;
    int8_t *vq = v_q8;
    uint16_t *k_scale = (uint16_t *)(void *)(kq + TILE * width),
             *v_scale = (uint16_t *)(void *)(vq + TILE * width);
    memset(kq, 128, TILE * width);
    memset(vq, 0, TILE * width);
    for (size_t j = 0; j < TILE; j++)
        for (size_t g = 0; g < kern_q8_groups(d); g++) {
            size_t c0 = g * GROUP, n = d - c0 < GROUP ? d - c0 : GROUP;
            float kx[GROUP], vx[GROUP];
            int8_t q[GROUP];
            for (size_t i = 0; i < n; i++) {
                size_t c = c0 + i;
                kx[i] = bf16_to_f32(k[c / 2 * (2 * TILE) + j * 2 + c % 2]);
                vx[i] = bf16_to_f32(v[j / 2 * (2 * d) + c * 2 + j % 2]);
            }
            k_scale[g * TILE + j] = close_group(kx, n, q);
            for (size_t i = 0; i < n; i++)
                kq[(c0 + i) / 4 * (4 * TILE) + j * 4 + (c0 + i) % 4] = (uint8_t)(q[i] + 128);
            v_scale[g * TILE + j] = close_group(vx, n, q);
            for (size_t i = 0; i < n; i++) vq[j / 4 * (4 * width) + (c0 + i) * 4 + j % 4] = q[i];
        }
}

void q8_row_ref(const float *x, size_t d, void *row)
{
    size_t width = kern_q8_width(d), groups = kern_q8_groups(d);
    int8_t *q = row;
    float *scale = (float *)(void *)(q + width);
    int32_t *start = (int32_t *)(void *)(scale + groups);
    memset(q, 0, width);
    for (size_t g = 0; g < groups; g++) {
        size_t c1 = (g + 1) * GROUP < d ? (g + 1) * GROUP : d;
        float max = 0;
        bool finite = true;
        for (size_t c = g * GROUP; c < c1; c++) {
            finite &= isfinite(x[c]);
            max = fabsf(x[c]) > max ? fabsf(x[c]) : max;
        }
        scale[g] = finite ? max / MOST : NAN;
        start[g] = 0;
        if (!finite || max < 1e-30f) continue; /* 127 / max would overflow */
        float inverse = MOST / max;
        for (size_t c = g * GROUP; c < c1; c++) {
            q[c] = (int8_t)lrintf(x[c] * inverse);
            start[g] -= 128 * q[c];
        }
    }
}

/* ---- attention ------------------------------------------------------------------------------- */

static void score_tile(const struct kern_attend *a, size_t r, const uint8_t *k, float s[TILE])
{
    size_t width = kern_q8_width(a->d), groups = kern_q8_groups(a->d);
    const int8_t *q = (const int8_t *)a->q + r * a->q_stride;
    const float *q_scale = (const float *)(const void *)(q + width);
    const int32_t *start = (const int32_t *)(const void *)(q_scale + groups);
    const uint16_t *k_scale = (const uint16_t *)(const void *)(k + TILE * width);
    for (size_t j = 0; j < TILE; j++) s[j] = 0;
    for (size_t g = 0; g < groups; g++) {
        size_t c1 = (g + 1) * GROUP < width ? (g + 1) * GROUP : width;
        for (size_t j = 0; j < TILE; j++) {
            int32_t dot = start[g];
            for (size_t c = g * GROUP; c < c1; c++)
                dot += k[c / 4 * (4 * TILE) + j * 4 + c % 4] * q[c];
            s[j] = fmaf((float)dot * f16_to_f32(k_scale[g * TILE + j]), q_scale[g], s[j]);
        }
    }
}

/* o of one group of channels takes the tile's weights. */
static void add_values(const float p[TILE], const int8_t *v, size_t width, size_t g, size_t c1,
                       float keep, float *o)
{
    const uint16_t *v_scale = (const uint16_t *)(const void *)(v + TILE * width);
    const float top = (float)((1 << WEIGHT_BITS) - 1);
    float scaled[TILE], max = 0, none = 0;
    int32_t weight[TILE];
    for (size_t j = 0; j < TILE; j++) {
        scaled[j] = p[j] != 0 ? p[j] * f16_to_f32(v_scale[g * TILE + j]) : 0;
        max = scaled[j] > max ? scaled[j] : max;
        if (!isfinite(scaled[j])) none = NAN, scaled[j] = 0;
    }
    float inverse = max < 1e-30f ? 0 : top / max, unit = max / top + none;
    for (size_t j = 0; j < TILE; j++) weight[j] = (int32_t)lrintf(scaled[j] * inverse);
    for (size_t c = g * GROUP; c < c1; c++) {
        int32_t dot = 0;
        for (size_t j = 0; j < TILE; j++) dot += weight[j] * v[j / 4 * (4 * width) + c * 4 + j % 4];
        o[c] = fmaf((float)dot, unit, o[c] * keep);
    }
}

static void attend_row_tile(const struct kern_attend *a, size_t r, size_t t)
{
    float p[TILE];
    bool seen[TILE];
    if (!see_tile(a, r, t, seen)) return;
    score_tile(a, r, a->k_tile[t], p);
    float keep = soften_tile(a, r, t, seen, false, p);
    for (size_t g = 0; g < kern_q8_groups(a->d); g++) {
        size_t c1 = (g + 1) * GROUP < a->d ? (g + 1) * GROUP : a->d;
        add_values(p, a->v_tile[t], kern_q8_width(a->d), g, c1, keep, a->o + r * a->d);
    }
}

void attend_q8_ref(const struct kern_attend *a)
{
    for (size_t t = a->tile_begin; t < a->tile_end; t++)
        for (size_t r = 0; r < a->n_rows; r++) attend_row_tile(a, r, t);
}
