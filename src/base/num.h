/* num.h: scalar f16 and bf16 conversions (round to nearest even, NaN stays NaN), bit casts. */
#ifndef BASE_NUM_H
#define BASE_NUM_H

#include <stdint.h>
#include <string.h>
#include "compiler.h"

ZP_INLINE uint32_t f32_bits(float x) { uint32_t u; memcpy(&u, &x, 4); return u; }
ZP_INLINE float f32_from_bits(uint32_t u) { float x; memcpy(&x, &u, 4); return x; }
ZP_INLINE float bf16_to_f32(uint16_t h) { return f32_from_bits((uint32_t)h << 16); }
uint16_t f32_to_bf16(float x);
float f16_to_f32(uint16_t h);
uint16_t f32_to_f16(float x);

#endif
