/* quant_k.c: the 256-weight blocks (Q2_K to Q6_K, IQ4_XS) taken apart, q in natural order.
 * Each group scale is the product of the block's half and a small integer: at most 11 + 7 bits, so
 * it is exact in f32, as is its product with q (at most 24 bits). Hence Q2 of quant.h. */
#include "kern/quant_k.h"

static uint16_t negative(uint16_t half) { return half ^ 0x8000u; }

/* scales 16 x (4-bit scale, 4-bit min), qs 64 x 4 x 2 bits, d, dmin. */
void quant_k_unpack_q2(const uint8_t *restrict b, uint8_t *restrict q,
                       struct quant_scales *restrict s)
{
    s->d = load_u16(b + 80);
    s->dmin = negative(load_u16(b + 82));
    for (int g = 0; g < 16; g++) {
        s->sub[g] = b[g] & 15;
        s->sub_min[g] = b[g] >> 4;
    }
    for (int half = 0; half < 2; half++) {
        const uint8_t *in = b + 16 + 32 * half;
        uint8_t *out = q + 128 * half;
        for (int l = 0; l < 32; l++) {
            out[l] = in[l] & 3;
            out[l + 32] = (in[l] >> 2) & 3;
            out[l + 64] = (in[l] >> 4) & 3;
            out[l + 96] = in[l] >> 6;
        }
    }
}

/* hmask 32 (bit j of byte l: weight 32 j + l), qs 64 x 4 x 2 bits, scales 12 (16 x 6 bits), d. */
void quant_k_unpack_q3(const uint8_t *restrict b, uint8_t *restrict q,
                       struct quant_scales *restrict s)
{
    const uint8_t *packed = b + 96;
    s->d = load_u16(b + 108);
    for (int g = 0; g < 16; g++) {
        int low = (packed[g % 8] >> (g < 8 ? 0 : 4)) & 15;
        int high = (packed[8 + g % 4] >> (2 * (g / 4))) & 3;
        s->sub[g] = (uint8_t)((low | high << 4) - 32);
    }
    for (int j = 0; j < 8; j++) {
        const uint8_t *in = b + 32 + 32 * (j / 4);
        uint8_t *out = q + 32 * j;
        const int shift = 2 * (j % 4);
        for (int l = 0; l < 32; l++)
            out[l] = (uint8_t)(((in[l] >> shift) & 3) | ((b[l] >> j) & 1) << 2);
    }
}

void quant_k_scales_get(const uint8_t *packed, uint8_t scale[8], uint8_t min[8])
{
    for (int i = 0; i < 4; i++) {
        uint8_t a = packed[i], b = packed[i + 4], c = packed[i + 8];
        scale[i] = a & 63;
        min[i] = b & 63;
        scale[i + 4] = (uint8_t)((c & 15) | (a >> 6) << 4);
        min[i + 4] = (uint8_t)((c >> 4) | (b >> 6) << 4);
    }
}

void quant_k_scales_put(uint8_t *packed, const uint8_t scale[8], const uint8_t min[8])
{
    for (int i = 0; i < 4; i++) {
        packed[i] = (uint8_t)(scale[i] | (scale[i + 4] >> 4) << 6);
        packed[i + 4] = (uint8_t)(min[i] | (min[i + 4] >> 4) << 6);
        packed[i + 8] = (uint8_t)((scale[i + 4] & 15) | (min[i + 4] & 15) << 4);
    }
}

/* d, dmin, scales 12: the part that Q4_K and Q5_K begin with. */
static void unpack_scales(const uint8_t *restrict b, struct quant_scales *restrict s)
{
    s->d = load_u16(b);
    s->dmin = negative(load_u16(b + 2));
    quant_k_scales_get(b + 4, s->sub, s->sub_min);
}

/* qs 128: byte 32 c + l holds weights 64 c + l and 64 c + 32 + l. */
static void unpack_nibble_rows(const uint8_t *restrict in, uint8_t *restrict q)
{
    for (int c = 0; c < 4; c++) {
        for (int l = 0; l < 32; l++) {
            q[64 * c + l] = in[32 * c + l] & 15;
            q[64 * c + 32 + l] = in[32 * c + l] >> 4;
        }
    }
}

void quant_k_unpack_q4(const uint8_t *restrict b, uint8_t *restrict q,
                       struct quant_scales *restrict s)
{
    unpack_scales(b, s);
    unpack_nibble_rows(b + 16, q);
}

/* As Q4_K with qh 32 before qs: bit j of byte l tops weight 32 j + l. */
void quant_k_unpack_q5(const uint8_t *restrict b, uint8_t *restrict q,
                       struct quant_scales *restrict s)
{
    const uint8_t *high = b + 16;
    unpack_scales(b, s);
    unpack_nibble_rows(b + 48, q);
    for (int j = 0; j < 8; j++) {
        for (int l = 0; l < 32; l++)
            q[32 * j + l] |= (uint8_t)(((high[l] >> j) & 1) << 4);
    }
}

/* ql 128, qh 64, scales 16 x i8, d. */
void quant_k_unpack_q6(const uint8_t *restrict b, uint8_t *restrict q,
                       struct quant_scales *restrict s)
{
    s->d = load_u16(b + 208);
    memcpy(s->sub, b + 192, 16);
    for (int half = 0; half < 2; half++) {
        const uint8_t *low = b + 64 * half, *high = b + 128 + 32 * half;
        uint8_t *out = q + 128 * half;
        for (int l = 0; l < 32; l++) {
            out[l] = (uint8_t)((low[l] & 15) | (high[l] & 3) << 4);
            out[l + 32] = (uint8_t)((low[l + 32] & 15) | ((high[l] >> 2) & 3) << 4);
            out[l + 64] = (uint8_t)(low[l] >> 4 | ((high[l] >> 4) & 3) << 4);
            out[l + 96] = (uint8_t)(low[l + 32] >> 4 | (high[l] >> 6) << 4);
        }
    }
}

/* d, scales_h u16 (2 bits each), scales_l 4 (nibbles), qs 128 (16 bytes a group). */
void quant_k_unpack_iq4xs(const uint8_t *restrict b, uint8_t *restrict q,
                       struct quant_scales *restrict s)
{
    s->d = load_u16(b);
    const uint32_t high = load_u16(b + 2);
    for (int g = 0; g < 8; g++) {
        int low = (b[4 + g / 2] >> (4 * (g % 2))) & 15;
        s->sub[g] = (uint8_t)((low | (int)((high >> (2 * g)) & 3) << 4) - 32);
        for (int l = 0; l < 16; l++) {
            q[32 * g + l] = b[8 + 16 * g + l] & 15;
            q[32 * g + 16 + l] = b[8 + 16 * g + l] >> 4;
        }
    }
}
