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
    QUANT_CODEBOOK /* w = scale * codes[nibble], scale per group */
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
    uint8_t bits;         /* unpacked q < 2^bits: 2 3 4 5 6 8; CODEBOOK 8, its nibbles 4 */
    uint8_t pack_bits;    /* 4 if q (CODEBOOK: the nibble) fits a nibble, else 8 */
    uint8_t offset;       /* !has_min: min is exactly -offset * scale; has_min: 0 */
    bool has_min;         /* the file stores a min per group */
    bool scale_is_f16;    /* every scale and stored min is exactly an f16; -offset * scale is one
                           * too unless it overflows (|scale| > 65504 / offset) */
    const int8_t *codes;  /* CODEBOOK: the 16 values by nibble; else NULL */
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

/* AFFINE and CODEBOOK types: q (n), scale (n / group), min (n / group, may be NULL).
 * scale[g] * q[k] + min[g] equals the dequantised value exactly, with an FMA or without, for every
 * type; only the sign of a zero may differ (Q2). CODEBOOK: q = code + 128. */
void quant_unpack_affine(const struct quant_traits *t, const void *src, size_t n, uint8_t *q,
                         float *scale, float *min);
/* CODEBOOK types: nibble (n) 0..15, scale (n / group); w is exactly scale * t->codes[nibble]. */
void quant_unpack_codebook(const struct quant_traits *t, const void *src, size_t n,
                           uint8_t *nibble, float *scale);

/* True if all dequantised values, unpacked scales and mins are finite. Block types: reads the
 * scales only. */
bool quant_row_is_finite(const struct quant_traits *t, const void *src, size_t n);

/* Quantises one row (Q3, Q4). ZP_BAD_INPUT names the index of the first NaN, infinity or value too
 * large for the type; dst is then undefined. ZP_UNSUPPORTED if !t->can_write. */
zp_status quant_quantize_row(const struct quant_traits *t, const float *src, void *dst, size_t n,
                             zp_err *err);

#endif
