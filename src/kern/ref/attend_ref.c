/* attend_ref.c: attention over 64-position tiles and the KV tiles' layout, in plain C: the
 * definition of correct. Products of bf16 are exact in f32, so that multiplying and adding apart is
 * one fused step: bf16 tiles give the bits of the other levels. f32 tiles do not (see
 * gemm_ref.c). */
#include <math.h>
#include "base/num.h"
#include "kern/kern_impl.h"
#include "kern/ref/soften_ref.h"

static float k_at(const void *tile, bool is_bf16, size_t i, size_t j)
{
    if (!is_bf16) return ((const float *)tile)[i * TILE + j];
    return bf16_to_f32(((const uint16_t *)tile)[i / 2 * (2 * TILE) + j * 2 + i % 2]);
}

static float q_at(const struct kern_attend *a, bool is_bf16, size_t r, size_t i)
{
    const uint8_t *row = (const uint8_t *)a->q + r * a->q_stride;
    if (!is_bf16) return ((const float *)(const void *)row)[i];
    return bf16_to_f32(((const uint16_t *)(const void *)row)[i]);
}

static float v_at(const void *tile, bool is_bf16, size_t d, size_t j, size_t c)
{
    if (!is_bf16) return ((const float *)tile)[j * d + c];
    return bf16_to_f32(((const uint16_t *)tile)[j / 2 * (2 * d) + c * 2 + j % 2]);
}

/* Ascending channels; of a bf16 pair the odd one first. */
static void score_tile(const struct kern_attend *a, size_t r, size_t t, bool is_bf16, float s[TILE])
{
    for (size_t j = 0; j < TILE; j++) s[j] = 0;
    for (size_t step = 0; step < a->d; step++) {
        size_t i = is_bf16 ? step ^ 1 : step;
        float q = q_at(a, is_bf16, r, i);
        for (size_t j = 0; j < TILE; j++) s[j] += q * k_at(a->k_tile[t], is_bf16, i, j);
    }
}

/* Ascending positions; of a bf16 pair the odd one first. */
static void attend_row_tile(const struct kern_attend *a, size_t r, size_t t, bool is_bf16)
{
    float p[TILE], *o = a->o + r * a->d;
    bool seen[TILE];
    if (!see_tile(a, r, t, seen)) return;
    score_tile(a, r, t, is_bf16, p);
    float keep = soften_tile(a, r, t, seen, is_bf16, p);
    for (size_t c = 0; c < a->d; c++) o[c] *= keep;
    for (size_t step = 0; step < TILE; step++) {
        size_t j = is_bf16 ? step ^ 1 : step;
        if (!seen[j]) continue; /* unseen positions may hold anything */
        for (size_t c = 0; c < a->d; c++) o[c] += p[j] * v_at(a->v_tile[t], is_bf16, a->d, j, c);
    }
}

static void attend(const struct kern_attend *a, bool is_bf16)
{
    for (size_t t = a->tile_begin; t < a->tile_end; t++)
        for (size_t r = 0; r < a->n_rows; r++) attend_row_tile(a, r, t, is_bf16);
}

void attend_f32_ref(const struct kern_attend *a)
{
    attend(a, false);
}

void attend_bf16_ref(const struct kern_attend *a)
{
    attend(a, true);
}

void attend_merge_ref(float *m, float *l, float *o, float mb, float lb, const float *ob, size_t d)
{
    if (mb == -INFINITY) return; /* b saw nothing */
    float max = *m > mb ? *m : mb;
    float keep_a = *m == max ? 1.0f : exp_ref(*m - max);
    float keep_b = mb == max ? 1.0f : exp_ref(mb - max);
    *m = max;
    *l = *l * keep_a + lb * keep_b;
    for (size_t c = 0; c < d; c++) o[c] = o[c] * keep_a + ob[c] * keep_b;
}

void kv_append_f32_ref(void *k_tile, void *v_tile, size_t slot, const float *k, const float *v,
                       size_t d)
{
    float *kt = k_tile, *vt = v_tile;
    for (size_t i = 0; i < d; i++) kt[i * TILE + slot] = k[i];
    for (size_t c = 0; c < d; c++) vt[slot * d + c] = v[c];
}

void kv_append_bf16_ref(void *k_tile, void *v_tile, size_t slot, const float *k, const float *v,
                        size_t d)
{
    uint16_t *kt = k_tile, *vt = v_tile;
    for (size_t i = 0; i < d; i++) kt[i / 2 * (2 * TILE) + slot * 2 + i % 2] = f32_to_bf16(k[i]);
    for (size_t c = 0; c < d; c++) vt[slot / 2 * (2 * d) + c * 2 + slot % 2] = f32_to_bf16(v[c]);
}
