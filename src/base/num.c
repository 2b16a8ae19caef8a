/* num.c: f16 and bf16 by integer arithmetic: the definition the vector kernels are compared with.
 * NaN keeps its sign and upper payload and becomes quiet, as F16C and AVX512-BF16 do; subnormals
 * are kept. */
#include "num.h"

float f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = h >> 10 & 0x1fu,
             mantissa = h & 0x3ffu;
    if (exponent == 0) {
        float tiny = (float)mantissa * 0x1p-24f; /* exact: at most 10 bits */
        return f32_from_bits(f32_bits(tiny) | sign);
    }
    if (exponent == 0x1fu)
        return f32_from_bits(sign | 0x7f800000u | mantissa << 13 | (mantissa ? 0x400000u : 0u));
    return f32_from_bits(sign | (exponent + 112u) << 23 | mantissa << 13);
}

uint16_t f32_to_f16(float x)
{
    uint32_t u = f32_bits(x), sign = u >> 16 & 0x8000u, magnitude = u & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
    if (magnitude >= 0x477ff000u)
        return (uint16_t)(sign | 0x7c00u); /* >= 65520 rounds to infinity */
    if (magnitude < 0x38800000u) {         /* below 2^-14: a multiple of 2^-24 */
        /* Adding 0.5 puts the unit of the last place at 2^-24, so the FPU rounds to nearest
         * even. */
        float shifted = f32_from_bits(magnitude) + 0.5f;
        return (uint16_t)(sign | (f32_bits(shifted) - 0x3f000000u));
    }
    uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1u);
    return (uint16_t)(sign | ((rounded - 0x38000000u) >> 13));
}
