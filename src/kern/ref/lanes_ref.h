/* lanes_ref.h: exp, sums and maxima of 16 lanes in plain C: the definition that every level follows
 * to the bit.
 * Lanes: values 0, 16, 32, .. of a row go to lane 0, values 1, 17, .. to lane 1. Then the lanes are
 * folded: 8..15 onto 0..7, 4..7 onto 0..3, 2..3 onto 0..1, 1 onto 0. */
#ifndef KERN_REF_LANES_REF_H
#define KERN_REF_LANES_REF_H

#include <math.h>
#include "base/compiler.h"

enum { LANES = 16 };

/* exp(x) = 2^n * (1 + r + r^2 Q(r)), x = n ln 2 + r; where Q comes from: vec_avx512.h.
 * Multiply-adds are fused, so that no C library's own exp decides about bits. At most 1.01 ULP;
 * exp(0) = 1, -inf gives 0, large x infinity, NaN stays NaN. */
ZP_INLINE float exp_ref(float x)
{
    if (isnan(x)) return x;
    x = x < -150.0f ? -150.0f : x > 100.0f ? 100.0f : x;
    float n = rintf(x * 0x1.715476p+0f);
    float r = fmaf(-n, 0x1.7f7d1cp-20f, fmaf(-n, 0x1.62e4p-1f, x)); /* ln 2 in two parts */
    float q = fmaf(0x1.6a243ap-10f, r, 0x1.1239e0p-7f);
    q = fmaf(q, r, 0x1.5558f2p-5f);
    q = fmaf(q, r, 0x1.555492p-3f);
    q = fmaf(q, r, 0x1.fffffcp-2f);
    return ldexpf(fmaf(r * r, q, r) + 1.0f, (int)n);
}

/* Of two values the larger; the second where they are equal or one is NaN, as maxps does. */
ZP_INLINE float larger_ref(float a, float b)
{
    return a > b ? a : b;
}

/* The three below use the lanes up. */
ZP_INLINE float sum_lanes_ref(float x[LANES])
{
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++) x[i] += x[i + half];
    return x[0];
}

ZP_INLINE double sum_wide_lanes_ref(double x[LANES])
{
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++) x[i] += x[i + half];
    return x[0];
}

ZP_INLINE float max_lanes_ref(float x[LANES])
{
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++) x[i] = larger_ref(x[i], x[i + half]);
    return x[0];
}

#endif
