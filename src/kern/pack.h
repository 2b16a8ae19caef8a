/* pack.h: weights and activations in the layouts that the gemm kernels read.
 *
 * y = W x, W (n_out, n_in). Rows in groups of PACK_ROWS (one zmm lane = one row), the last group
 * padded with zero rows.
 * F32         (group, k, 16) f32.
 * F16, BF16   (group, k, 16) 16 bit, widened exactly, f32 arithmetic.
 * Q8, Q4      (group, block of 64 k): the weights, then 16 scales per k-group, then 16 mins per
 *             k-group (has_min). w = scale * (q - offset) or scale * q + min; scale and min f16 or
 *             f32 as the file's type allows. The last block is padded with q = scale = min = 0.
 *   Q8        16 vectors of 64 bytes: byte (4 r + i) of vector v is k = 4 v + i of row r.
 *   Q4        8 vectors of 64 bytes; in the half of 32 k number h, byte (4 r + i) of its vector v
 *             (0..3) holds k = 32 h + 4 v + i (low nibble) and k = 32 h + 16 + 4 v + i (high).
 * P1 every row group starts at a multiple of 64 bytes.  P2 padding contributes exact zeros. */
#ifndef KERN_PACK_H
#define KERN_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/status.h"
#include "kern/quant.h"

enum { PACK_ROWS = 16, PACK_BLOCK = 64 };
/* Number of this layout together with the order in which weights.c lays out a model. Packed bytes
 * are kept between runs (packfile.h): any change of them takes a new number. */
enum { PACK_LAYOUT = 1 };

enum kern_form { KERN_F32, KERN_F16, KERN_BF16, KERN_Q8, KERN_Q4, KERN_FORM_COUNT };

struct kern_mat {
    enum kern_form form;
    uint32_t k_group;        /* elements per scale: 32 or 16; 0 in float forms */
    uint8_t offset;          /* quantised forms without min: subtracted from q */
    bool scale_f16, has_min; /* quantised forms */
    size_t n_out, n_in;      /* true sizes */
    size_t row_group_bytes;  /* bytes of one group of 16 rows; multiple of 64 */
    uint8_t *data;           /* 64-byte aligned; row group g starts at data + g * row_group_bytes */
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

/* Places inside one 64-k block of a quantised form. */
struct pack_block {
    size_t scale_at, min_at, bytes;
    size_t scale_step; /* bytes of the 16 scales of one k-group */
};
struct pack_block pack_block_of(const struct kern_mat *m);

/* ---- activations -----------------------------------------------------------------------------
 * One row a token. Quantised per token in groups of 32 of k. Sums of q serve offsets and mins:
 * sum16 and minus32 as they are, scaled32 times the scale. Float forms read f32 only. */
struct kern_act {
    size_t n_in, stride; /* true width; padded width = multiple of 64 */
    const float *f32;    /* (n_tok, n_in), row distance f32_stride */
    size_t f32_stride;
    int8_t *q;        /* (n_tok, stride), padding zero */
    float *scale;     /* (n_tok, stride / 32) */
    float *scaled32;  /* (n_tok, stride / 32): scale * sum of q */
    int32_t *minus32; /* (n_tok, stride / 32): - sum of q */
    int32_t *sum16;   /* (n_tok, stride / 16): sum of q */
};
/* For all but f32 together; a multiple of 64. The memory is 64-byte aligned. */
size_t kern_act_bytes(size_t n_tok, size_t n_in);
void kern_act_place(struct kern_act *a, void *memory, size_t n_tok, size_t n_in);
/* Row t of a becomes a copy of row u of b, which has the same width; f32 is not touched. */
void kern_act_copy_row(struct kern_act *a, size_t t, const struct kern_act *b, size_t u);

#endif
