/* quant.h: the tensor types of model files: sizes, exact meaning of each block, conversions.
 * A row is a whole number of blocks, one after the other; all values are little endian. The
 * functions check only what they say they check: lengths against the file are the caller's (I7).
 * Q1 dequantised values are ggml's, bit for bit.  Q2 unpacking loses nothing.
 * Q3 a zero weight is written as an exact zero.  Q4 same input, same bits. */
#ifndef KERN_QUANT_H
#define KERN_QUANT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/status.h"

enum quant_type { /* numbers as stored in GGUF */
    QUANT_F32 = 0,
    QUANT_F16 = 1,
    QUANT_Q4_0 = 2,
    QUANT_Q4_1 = 3,
    QUANT_Q5_0 = 6,
    QUANT_Q5_1 = 7,
    QUANT_Q8_0 = 8,
    QUANT_Q2_K = 10,
    QUANT_Q3_K = 11,
    QUANT_Q4_K = 12,
    QUANT_Q5_K = 13,
    QUANT_Q6_K = 14,
    QUANT_IQ4_NL = 20,
    QUANT_IQ4_XS = 23,
    QUANT_BF16 = 30,
    QUANT_MXFP4 = 39
};

enum quant_form {
    QUANT_FLOAT,   /* F32 F16 BF16 */
    QUANT_AFFINE,  /* w = scale * q + min, q unsigned, scale and min per group */
    QUANT_CODEBOOK /* w = scale * codes[q], q < 16, scale per group */
};

/* How a block holds the scales of its groups, and mins if has_min. */
enum quant_scaling {
    QUANT_SCALE_F16,  /* one group a block: d, dmin */
    QUANT_SCALE_E8M0, /* one group a block: 2^(sub - 128) */
    QUANT_SCALE_SUB8, /* d * sub, sub signed; dmin * sub_min, sub_min < 64 */
    QUANT_SCALE_SUB4  /* d * sub, dmin * sub_min, both < 16 */
};
struct quant_scales {
    uint16_t d, dmin; /* f16 */
    uint8_t sub[16], sub_min[16];
};

struct quant_traits {
    const char *name;     /* "Q4_K" */
    uint32_t type;        /* enum quant_type */
    uint32_t block;       /* weights in a block: 1, 32 or 256 */
    uint32_t bytes;       /* bytes of a block */
    uint32_t file_type;   /* general.file_type of a file mostly of this type (K types: "_S") */
    enum quant_form form;
    bool can_write;       /* quant_quantize_row knows it */
    /* What unpacking yields (AFFINE and CODEBOOK; all 0 for FLOAT): */
    uint8_t group;        /* weights that share a scale: 32, or 16 for Q2_K Q3_K Q6_K */
    uint8_t bits;         /* q < 2^bits */
    uint8_t offset;       /* AFFINE, !has_min: min is exactly -offset * scale; else 0 */
    bool has_min;         /* the file stores a min per group */
    enum quant_scaling scaling;
    const int8_t *codes;  /* CODEBOOK: the 16 values by q; else NULL */
};

/* Traits live as long as the program. NULL when number or name is unknown. Names ignore case. */
const struct quant_traits *quant_traits_find(uint32_t ggml_type);
const struct quant_traits *quant_traits_by_name(const char *name);
/* Known type number i, NULL past the end: for help texts and tests. */
const struct quant_traits *quant_traits_at(size_t i);

/* Bytes of a row of n weights, n a multiple of t->block. Cannot overflow for n <= SIZE_MAX / 4. */
size_t quant_row_bytes(const struct quant_traits *t, size_t n);

/* n a multiple of t->block; src needs no alignment. NaN and infinity pass through (Q1). */
void quant_dequantize_row(const struct quant_traits *t, const void *src, float *dst, size_t n);

/* AFFINE and CODEBOOK types: one block in its parts, q (block) in natural order (Q2). */
void quant_unpack_block(const struct quant_traits *t, const void *src, uint8_t *q,
                        struct quant_scales *s);
/* Scales, and mins if has_min, of the block's groups; min may be NULL without. AFFINE: scale * q +
 * min (or - offset * scale) equals the dequantised value exactly, with an FMA or without; only the
 * sign of a zero may differ. */
void quant_scale_values(const struct quant_traits *t, const struct quant_scales *s, float *scale,
                        float *min);
/* The scale of an e8m0 exponent. */
float quant_e8m0(uint8_t e);

/* True if all dequantised values, unpacked scales and mins are finite. Block types: reads the
 * scales only. */
bool quant_row_is_finite(const struct quant_traits *t, const void *src, size_t n);

/* Quantises one row (Q3, Q4). ZP_BAD_INPUT names the index of the first NaN, infinity or value too
 * large for the type; dst is then undefined. ZP_UNSUPPORTED if !t->can_write. */
zp_status quant_quantize_row(const struct quant_traits *t, const float *src, void *dst, size_t n,
                             zp_err *err);

#endif
