/* softexp.h: exp for loops over rows, written so that compilers make vectors of it.
 * The kernels' polynomial without fused steps: at most 2 ULP; 0 below -87, infinity from
 * 88.4 on; NaN stays NaN. */
#ifndef TRAIN_SOFTEXP_H
#define TRAIN_SOFTEXP_H

#include <stdint.h>
#include <string.h>
#include "base/compiler.h"

ZP_INLINE float softexp(float x)
{
    const float shift = 12582912.0f; /* 1.5 * 2^23: the sum's low bits are the nearest integer */
    float y = x > 89.0f ? 89.0f : x;
    y = y < -87.0f ? -87.0f : y;
    float t = y * 0x1.715476p+0f + shift, n = t - shift;
    float r = y - n * 0x1.62e4p-1f; /* ln 2 in two parts, the first product is exact */
    r = r - n * 0x1.7f7d1cp-20f;
    float q = 0x1.6a243ap-10f * r + 0x1.1239e0p-7f;
    q = q * r + 0x1.5558f2p-5f;
    q = q * r + 0x1.555492p-3f;
    q = q * r + 0x1.fffffcp-2f;
    q = r * r * q + r + 1.0f;
    uint32_t bits;
    memcpy(&bits, &t, sizeof bits);
    bits = (bits + 127u) << 23; /* 2^n: what shift itself adds to the bits falls off */
    float power;
    memcpy(&power, &bits, sizeof power);
    return x < -87.0f ? 0.0f : q * power;
}

#endif
