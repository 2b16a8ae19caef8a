/* quant_k.h: block-level helpers shared by quant.c and the quantisers, and the 256-weight types.
 * Internal to kern/quant*.c; everybody else uses quant.h. */
#ifndef KERN_QUANT_K_H
#define KERN_QUANT_K_H

#include <stdint.h>
#include <string.h>
#include "base/num.h"
#include "kern/quant.h"

/* Branch-free, so that rows of halves vectorise; no f32 subnormals on the way, so that the
 * processor's flush modes cannot change a weight. */
ZP_INLINE float half_expand(uint16_t h)
{
    uint32_t m = h & 0x7fffu;
    uint32_t tiny = f32_bits((float)(int32_t)m * 0x1p-24f);
    uint32_t wide = (m << 13) + (112u << 23) + (m >= 0x7c00u ? 112u << 23 : 0);
    return f32_from_bits((m < 0x400u ? tiny : wide) | (uint32_t)(h & 0x8000u) << 16);
}

ZP_INLINE uint16_t load_u16(const uint8_t *p) { uint16_t v; memcpy(&v, p, 2); return v; }
ZP_INLINE uint32_t load_u32(const uint8_t *p) { uint32_t v; memcpy(&v, p, 4); return v; }
ZP_INLINE float load_half(const uint8_t *p) { return half_expand(load_u16(p)); }

/* Takes one block apart; q in natural order, CODEBOOK types nibbles. */
typedef void quant_unpack_op(const uint8_t *restrict b, uint8_t *restrict q,
                             struct quant_scales *restrict s);
typedef quant_unpack_op *quant_unpack_fn;
quant_unpack_op quant_k_unpack_q2, quant_k_unpack_q3, quant_k_unpack_q4, quant_k_unpack_q5,
    quant_k_unpack_q6, quant_k_unpack_iq4xs;

/* The eight 6-bit (scale, min) pairs in the 12 bytes that Q4_K and Q5_K share. */
void quant_k_scales_get(const uint8_t *packed, uint8_t scale[8], uint8_t min[8]);
void quant_k_scales_put(uint8_t *packed, const uint8_t scale[8], const uint8_t min[8]);

#endif
