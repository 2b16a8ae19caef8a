/* softexp.h: exp of four floats at a time, for loops over rows.
 * The kernels' polynomial without fused steps: at most 2 ULP; 0 below -87.7, infinity from 88.4 on;
 * NaN stays NaN. Vectors of the compiler, since of a plain loop gcc 12 makes branches, depending on
 * what stands around it: 6 ns a value instead of 0.6. */
#ifndef TRAIN_SOFTEXP_H
#define TRAIN_SOFTEXP_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include "base/compiler.h"

enum { SOFTEXP_LANES = 4 };
typedef float softexp_lanes __attribute__((vector_size(16)));
typedef int32_t softexp_bits __attribute__((vector_size(16)));

/* a where the mask is set, else b. */
ZP_INLINE softexp_lanes softexp_choose(softexp_bits mask, softexp_lanes a, softexp_lanes b)
{
    return (softexp_lanes)((mask & (softexp_bits)a) | (~mask & (softexp_bits)b));
}

ZP_INLINE softexp_lanes softexp(softexp_lanes x)
{
    const softexp_lanes most = { 89, 89, 89, 89 }, lowest = -most + 1;
    const float shift = 12582912.0f; /* 1.5 * 2^23: the sum's low bits are the nearest integer */
    softexp_lanes y = softexp_choose(x > most, most, x);
    y = softexp_choose(y < lowest, lowest, y);
    softexp_lanes t = y * 0x1.715476p+0f + shift, n = t - shift;
    softexp_lanes r = y - n * 0x1.62e4p-1f; /* ln 2 in two parts, the first product is exact */
    r = r - n * 0x1.7f7d1cp-20f;
    softexp_lanes q = 0x1.6a243ap-10f * r + 0x1.1239e0p-7f;
    q = q * r + 0x1.5558f2p-5f;
    q = q * r + 0x1.555492p-3f;
    q = q * r + 0x1.fffffcp-2f;
    q = r * r * q + r + 1.0f;
    /* 2^n: what shift itself adds to the bits falls off; 0 for n = -127, infinity for 128 */
    typedef uint32_t unsigned_bits __attribute__((vector_size(16)));
    return q * (softexp_lanes)(((unsigned_bits)t + 127u) << 23);
}

/* Up to four values from x; the rest are zeros. */
ZP_INLINE softexp_lanes softexp_load(const float *x, size_t n)
{
    softexp_lanes v = { 0 };
    if (n >= SOFTEXP_LANES) memcpy(&v, x, sizeof v);
    else memcpy(&v, x, n * sizeof *x);
    return v;
}

ZP_INLINE void softexp_store(float *x, size_t n, softexp_lanes v)
{
    if (n >= SOFTEXP_LANES) memcpy(x, &v, sizeof v);
    else memcpy(x, &v, n * sizeof *x);
}

/* x becomes exp(x - shift). */
ZP_INLINE void softexp_row(float *x, size_t n, float shift)
{
    size_t i = 0;
    for (; i + SOFTEXP_LANES <= n; i += SOFTEXP_LANES)
        softexp_store(x + i, SOFTEXP_LANES, softexp(softexp_load(x + i, SOFTEXP_LANES) - shift));
    if (i < n) softexp_store(x + i, n - i, softexp(softexp_load(x + i, n - i) - shift));
}

ZP_INLINE float softexp_one(float x)
{
    return softexp((softexp_lanes){ x })[0];
}

#endif
