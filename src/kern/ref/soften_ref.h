/* soften_ref.h: what a row sees of a tile, and how scores become softmax weights, shared by the ref
 * attend files. */
#ifndef KERN_REF_SOFTEN_REF_H
#define KERN_REF_SOFTEN_REF_H

#include <float.h>
#include "base/num.h"
#include "kern/kern.h"
#include "kern/ref/lanes_ref.h"

enum { TILE = KERN_TILE };

/* Which positions of tile t row r sees; false if none. */
ZP_INLINE bool see_tile(const struct kern_attend *a, size_t r, size_t t, bool seen[TILE])
{
    bool any = false;
    for (size_t j = 0; j < TILE; j++) {
        size_t at = t * TILE + j;
        seen[j] = (at < a->n_sink || a->lo[r] <= at) && at < a->hi[r];
        any |= seen[j];
    }
    return any;
}

/* To the nearest bf16; what bf16 has no normal number for is 0. */
ZP_INLINE float round_weight(float p)
{
    return p < FLT_MIN ? 0 : bf16_to_f32(f32_to_bf16(p));
}

/* Scores of row r against tile t become weights exp(score - max), 0 where unseen; m and l of the
 * row move on. Returns the factor of the old state. Maximum and sum in 16 lanes: the maximum in
 * ascending positions (NaN may get lost there, its weight is NaN anyway), the sum as
 * (p[j] + p[j + 16]) + (p[j + 32] + p[j + 48]). */
ZP_INLINE float soften_tile(const struct kern_attend *a, size_t r, size_t t, const bool seen[TILE],
                            bool is_bf16, float p[TILE])
{
    float top[LANES], sum[LANES], old = a->m[r];
    for (size_t i = 0; i < LANES; i++) top[i] = -INFINITY;
    for (size_t j = 0; j < TILE; j++) {
        if (seen[j] && a->bias && a->bias[r]) p[j] += a->bias[r][t * TILE + j];
        if (seen[j] && a->key_bias) p[j] += a->key_bias[r][(t - a->tile_begin) * TILE + j];
        if (!seen[j]) p[j] = -INFINITY;
        top[j % LANES] = larger_ref(top[j % LANES], p[j]);
    }
    float max = larger_ref(max_lanes_ref(top), old);
    for (size_t j = 0; j < TILE; j++) {
        p[j] = seen[j] ? exp_ref(p[j] - max) : 0;
        if (is_bf16) p[j] = round_weight(p[j]);
    }
    for (size_t i = 0; i < LANES; i++) sum[i] = (p[i] + p[i + 16]) + (p[i + 32] + p[i + 48]);
    float keep = max == old ? 1.0f : exp_ref(old - max);
    a->m[r] = max;
    a->l[r] = a->l[r] * keep + sum_lanes_ref(sum);
    return keep;
}

#endif
