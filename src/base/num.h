/* num.h: scalar f16 and bf16 conversions (round to nearest even, NaN stays NaN), bit casts. */
#ifndef BASE_NUM_H
#define BASE_NUM_H

#include <stdint.h>
#include <string.h>
#include "compiler.h"

ZP_INLINE uint32_t f32_bits(float x) { uint32_t u; memcpy(&u, &x, 4); return u; }
ZP_INLINE float f32_from_bits(uint32_t u) { float x; memcpy(&x, &u, 4); return x; }
ZP_INLINE float bf16_to_f32(uint16_t h) { return f32_from_bits((uint32_t)h << 16); }
/* Without branches: loops over it become vector code. */
ZP_INLINE uint16_t f32_to_bf16(float x)
{
    uint32_t u = f32_bits(x), nan = (u & 0x7fffffffu) > 0x7f800000u;
    return (uint16_t)(nan ? u >> 16 | 0x40u : (u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}
float f16_to_f32(uint16_t h);
uint16_t f32_to_f16(float x);

#endif
