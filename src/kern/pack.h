/* pack.h: weights and activations in the layouts that the gemm kernels read.
 *
 * y = W x, W (n_out, n_in). Rows in groups of PACK_ROWS (one zmm lane = one row), the last group
 * padded with zero rows.
 * F32         (group, k, 16) f32.
 * F16, BF16   (group, k, 16) 16 bit, widened exactly, f32 arithmetic.
 * The others  (group, slice of 1024 k): a head of scales, then the weights in blocks of 32 k.
 *             w = scale * (q - offset), scale * q + min, or scale * code[q], scale and min of a
 *             k-group as the file holds them:
 *   head      (k-group): 16 scales, 16 mins, f16 or e8m0 bytes. Types with sub-scales: (256 k): 16
 *             d, 16 dmin (f16), then by k-group 16 sub-scales, 16 sub-scales of mins (bytes; SUB4:
 *             one byte for both, the min's high).
 *   block     eight weight vectors, vector v: byte (4 r + i) is k = 4 v + i of row r. The low bits
 *             of q stand in fields of `low` bits, the rest in fields of `high` bits: in fields of
 *             w bits vector v is bits v w % 8 .. of 64 bytes number v w / 8. High ones stand
 *             before the low ones that belong to them: a block is read in ascending order.
 * P1 every row group, slice and block starts at a multiple of 64 bytes.  P2 rows of padding have
 * scale = min = q = 0. */
#ifndef KERN_PACK_H
#define KERN_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/compiler.h"
#include "base/status.h"
#include "kern/quant.h"

enum { PACK_ROWS = 16, PACK_BLOCK = 32, PACK_SUPER = 256, PACK_SLICE = 1024 };
/* Number of this layout together with the order in which weights.c lays out a model. Packed bytes
 * are kept between runs (packfile.h): any change of them takes a new number. */
enum { PACK_LAYOUT = 2 };

enum kern_form {
    KERN_F32,
    KERN_F16,
    KERN_BF16,
    KERN_Q8,
    KERN_Q6,
    KERN_Q5,
    KERN_Q4,
    KERN_C4, /* nibbles are numbers of codes */
    KERN_Q3,
    KERN_Q2,
    KERN_FORM_COUNT
};

/* The quantised forms, whose low bits are not 0. */
enum pack_mins { PACK_NO_MIN, PACK_MIN, PACK_MAY_HAVE_MIN };
struct pack_form {
    uint8_t low, high;   /* bits in a field: 8, 4 or 2; 0, 1 or 2 */
    uint8_t k_group;     /* weights that share a scale: 32 or 16 */
    uint8_t offset;      /* subtracted from q (C4: from code + 128) where there is no min */
    enum pack_mins mins;
};
static const struct pack_form pack_forms[KERN_FORM_COUNT] = {
    [KERN_Q8] = { 8, 0, 32, 128, PACK_NO_MIN },
    [KERN_Q6] = { 4, 2, 16, 32, PACK_NO_MIN },
    [KERN_Q5] = { 4, 1, 32, 16, PACK_MAY_HAVE_MIN },
    [KERN_Q4] = { 4, 0, 32, 8, PACK_MAY_HAVE_MIN },
    [KERN_C4] = { 4, 0, 32, 128, PACK_NO_MIN },
    [KERN_Q3] = { 2, 1, 16, 4, PACK_NO_MIN },
    [KERN_Q2] = { 2, 0, 16, 0, PACK_MIN },
};
/* Which 64 bytes of a block hold the low, or high, bits of weight vector v. */
ZP_INLINE int pack_low_at(const struct pack_form *f, int v)
{
    int at = v * f->low / 8;
    return f->high ? at + at * f->high / f->low + 1 : at;
}
ZP_INLINE int pack_high_at(const struct pack_form *f, int v)
{
    return v * f->high / 8 * (f->low / f->high + 1);
}

struct kern_mat {
    enum kern_form form;
    size_t n_out, n_in;     /* true sizes */
    size_t row_group_bytes; /* bytes of one group of 16 rows; multiple of 64 */
    uint8_t *data;          /* 64-byte aligned; row group g starts at data + g * row_group_bytes */
    /* quantised forms: */
    enum quant_scaling scaling;
    bool has_min;
    const int8_t *codes; /* C4: 16, live as long as the program */
};

/* Chooses the smallest form that loses nothing of the file type (exact: always F32). Fills all but
 * data; bytes needed are kern_mat_bytes(m). Fails with ZP_UNSUPPORTED (unknown type) or ZP_BAD_FILE
 * (empty, n_in no whole number of blocks, larger than the address space). */
zp_status kern_mat_plan(struct kern_mat *m, uint32_t file_type, size_t n_out, size_t n_in,
                        bool exact, zp_err *err);
size_t kern_mat_bytes(const struct kern_mat *m);
/* Whether products with it read quantised activations, or f32 ones. */
bool kern_mat_is_quantised(const struct kern_mat *m);
/* Packs row groups [group_begin, group_end) from file rows (row r at src + r * row bytes of
 * file_type); threads may pack disjoint ranges. row_map (n_out entries or NULL): packed row i comes
 * from source row row_map[i]. scratch: kern_mat_pack_scratch(m) bytes, 64-byte aligned, one per
 * thread. */
size_t kern_mat_pack_scratch(const struct kern_mat *m);
void kern_mat_pack(struct kern_mat *m, const uint8_t *src, uint32_t file_type,
                   const uint32_t *row_map, size_t group_begin, size_t group_end, void *scratch);
/* Packed row as f32 (n_in), the values of quant_dequantize_row but for the sign of zeros: embedding
 * look-up, tests. */
void kern_mat_unpack_row(const struct kern_mat *m, size_t row, float *out);
/* Replaces one row of an F32 form (calibration of exact engines). */
void kern_mat_set_row_f32(struct kern_mat *m, size_t row, const float *values);

/* Places of slice s (k 1024 s ..) of a quantised form inside its row group. Scales of k-group g:
 * head_at + g / per_super * super_bytes + d_bytes + g % per_super * group_bytes; its mins, and dmin
 * behind d, stand half of group_bytes or d_bytes further. */
struct pack_slice {
    size_t n_blocks, n_groups;
    size_t per_super, super_bytes, d_bytes, group_bytes;
    size_t head_at, block_at, block_bytes;
};
struct pack_slice pack_slice_of(const struct kern_mat *m, size_t s);
ZP_INLINE bool pack_has_subs(const struct kern_mat *m)
{
    return m->scaling == QUANT_SCALE_SUB8 || m->scaling == QUANT_SCALE_SUB4;
}
ZP_INLINE size_t pack_slices(const struct kern_mat *m)
{
    return (m->n_in + PACK_SLICE - 1) / PACK_SLICE;
}
/* What a row group holds, widened: q of block b of a slice, weight vector by weight vector, C4 as
 * code + 128; scales and mins (0 without) of its k-group g, by row. */
void pack_widen_block(const struct kern_mat *m, const struct pack_slice *s,
                      const uint8_t *row_group, size_t b, uint8_t q[8][64]);
void pack_widen_scales(const struct kern_mat *m, const struct pack_slice *s,
                       const uint8_t *row_group, size_t g, float scale[PACK_ROWS],
                       float min[PACK_ROWS]);

/* ---- activations -----------------------------------------------------------------------------
 * One row a token. Quantised per token in groups of 32 of k. Sums of q serve offsets and mins:
 * negated as they are, or times the scale. Float forms read f32 only. */
struct kern_act {
    size_t n_in, stride; /* true width; padded width = multiple of 64 */
    const float *f32;    /* (n_tok, n_in), row distance f32_stride */
    size_t f32_stride;
    int8_t *q;        /* (n_tok, stride), padding zero */
    float *scale;     /* (n_tok, stride / 32) */
    float *scaled32;  /* (n_tok, stride / 32): scale * sum of q */
    int32_t *minus32; /* (n_tok, stride / 32): - sum of q */
    int32_t *minus16; /* (n_tok, stride / 16): - sum of q */
};
/* For all but f32 together; a multiple of 64. The memory is 64-byte aligned. */
size_t kern_act_bytes(size_t n_tok, size_t n_in);
void kern_act_place(struct kern_act *a, void *memory, size_t n_tok, size_t n_in);
/* Row t of a becomes a copy of row u of b, which has the same width; f32 is not touched. */
void kern_act_copy_row(struct kern_act *a, size_t t, const struct kern_act *b, size_t u);

#endif
