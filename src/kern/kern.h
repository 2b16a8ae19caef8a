/* kern.h: the arithmetic operations, their contracts, and the table that holds the chosen implementation of each.
 * Knows nothing of models. Tables are const values owned by an engine, never globals.
 *
 * Same bits (I1): every result row depends only on its own inputs. Reductions have a fixed order inside a level that
 * does not depend on n_tok, on the row range or on the thread: a product is an exact int32 dot per group of k, then one
 * f32 multiply-add a group in ascending k (quantised forms), or one multiply-add a k in ascending k (float forms).
 * Contracts between levels: EXACT (same bits), ULP(c), DOT(c): |d| <= c * 2^-24 * (2 + sqrt(k)) * sum |a_i b_i|. */
#ifndef KERN_KERN_H
#define KERN_KERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/status.h"
#include "kern/quant.h"

enum kern_level { KERN_REF, KERN_AVX2, KERN_AVX512, KERN_LEVEL_COUNT };

/* ---- packed weights: y = W x, W (n_out, n_in) --------------------------------------------------------------
 * Rows in groups of 16 (one zmm lane = one row), the last group padded with zero rows; k padded to 32 with zeros.
 * F32   (group, k, 16) f32.                F16, BF16  (group, k, 16) 16 bit, widened exactly, f32 arithmetic.
 * Q8    (group, k/4, 16, 4) u8; w = scale * q + min, f32 or f16 scale (and min) per row and k-group of 32 or 16.
 *       A file type with signed values stores q + 128 and min = -128 * scale is folded exactly: see pack.c.
 * Q4    the same with nibbles: per k-group of 32: 256 bytes, low nibbles hold k quads 0..3, high nibbles 4..7.
 * The exact order inside a group of rows is private to pack.c and the gemm kernels. */
enum kern_form { KERN_F32, KERN_F16, KERN_BF16, KERN_Q8, KERN_Q4, KERN_FORM_COUNT };

struct kern_mat {
    enum kern_form form;
    uint32_t k_group;        /* elements per scale: 32 or 16; 0 in float forms */
    bool scale_f16, has_min; /* quantised forms; offset128: q holds value + 128, no stored min */
    bool offset128;
    size_t n_out, n_in;      /* true sizes */
    size_t row_group_bytes;  /* bytes of one group of 16 rows, all planes together; multiple of 64 */
    uint8_t *data;           /* 64-byte aligned; row group g starts at data + g * row_group_bytes */
};

/* Chooses the smallest form that loses nothing of the file type (exact: always F32). Fills all but data; bytes needed
 * are kern_mat_bytes(m). */
zp_status kern_mat_plan(struct kern_mat *m, uint32_t file_type, size_t n_out, size_t n_in, bool exact, zp_err *err);
size_t kern_mat_bytes(const struct kern_mat *m);
/* Packs row groups [group_begin, group_end) from file rows (row r at src + r * row_bytes of file_type); threads may
 * pack disjoint ranges. row_map (n_out entries or NULL): packed row i comes from source row row_map[i].
 * scratch: kern_mat_pack_scratch(m) bytes, 64-byte aligned, one per thread. */
size_t kern_mat_pack_scratch(const struct kern_mat *m);
void kern_mat_pack(struct kern_mat *m, const uint8_t *src, uint32_t file_type, const uint32_t *row_map,
                   size_t group_begin, size_t group_end, void *scratch);
/* Packed row as f32 (n_in): embedding look-up, tests. */
void kern_mat_unpack_row(const struct kern_mat *m, size_t row, float *out);
/* Replaces one row of an F32 form (calibration of exact engines). */
void kern_mat_set_row_f32(struct kern_mat *m, size_t row, const float *values);

/* ---- activations -------------------------------------------------------------------------------------------
 * One row a token. Quantised per token in groups of 32 of k: q = round(x / scale), scale = max|x| / 127 (0 for a zero
 * group); sums of q per 16 serve offsets and mins. Float forms read f32 only. */
struct kern_act {
    size_t n_in, stride;     /* true width; padded width = multiple of 64 */
    const float *f32;        /* (n_tok, n_in), row distance f32_stride */
    size_t f32_stride;
    int8_t *q;               /* (n_tok, stride), padding zero */
    float *scale;            /* (n_tok, stride / 32) */
    int32_t *sum16;          /* (n_tok, stride / 16) */
};
size_t kern_act_bytes(size_t n_tok, size_t n_in);                 /* for q, scale and sum16 together */
void kern_act_place(struct kern_act *a, void *memory, size_t n_tok, size_t n_in);

/* Rows [t0, t1) of a->f32 into q, scale, sum16. EXACT between levels. */
typedef void (*kern_act_quantize_fn)(struct kern_act *a, size_t t0, size_t t1);

/* y[t * y_stride + r] = sum_k W[r][k] x[t][k] for rows [row_begin, row_end) and all n_tok tokens. row_begin is a
 * multiple of 16; row_end too or equals n_out. DOT(c) in float forms, EXACT int part + ULP in quantised ones. */
typedef void (*kern_gemm_fn)(const struct kern_mat *w, size_t row_begin, size_t row_end, const struct kern_act *x,
                             size_t n_tok, float *y, size_t y_stride);

/* ---- attention over 64-position tiles ----------------------------------------------------------------------
 * One KV head, one segment of tiles. KV tiles (KERN_TILE positions), d even:
 *   f32  K (d, 64)        V (64, d)          bf16 K (d/2, 64, 2)     V (32, d, 2): position pairs by channel.
 * Row r sees position j iff j < n_sink or lo[r] <= j, and j < hi[r] (hi = own position + 1).
 * Online softmax tile by tile in ascending order; state per row: m (running max, start -INFINITY), l (sum, start 0),
 * o (d, start 0). A tile that a row does not see leaves its state untouched. Masked positions count as exact zeros.
 * bias, where not NULL: bias[r][j] is added to the logit of position j (readable for every visible j only). */
enum { KERN_TILE = 64, KERN_SEGMENT = 1024 };
struct kern_attend {
    size_t d, n_rows;
    const float *q;              /* (n_rows, d), softmax scale already in; row distance q_stride */
    size_t q_stride;
    const uint32_t *lo, *hi;     /* (n_rows) */
    uint32_t n_sink;
    const float *const *bias;    /* (n_rows) or NULL */
    const void *const *k_tile;   /* tile t of the sequence at index t */
    const void *const *v_tile;
    size_t tile_begin, tile_end;
    float *m, *l, *o;            /* (n_rows), (n_rows), (n_rows, d) */
};
/* DOT-like: levels agree within 2e-6 relative of the largest |o| (f32), same for bf16 tiles (values widened exactly). */
typedef void (*kern_attend_fn)(const struct kern_attend *a);
/* Merges segment state b into a: both (m, l, o (d)); ascending segments. EXACT. */
typedef void (*kern_attend_merge_fn)(float *m, float *l, float *o, float mb, float lb, const float *ob, size_t d);
/* Writes one position (slot 0..63) of one KV head into its tiles; bf16 rounds to nearest even. EXACT. */
typedef void (*kern_kv_append_fn)(void *k_tile, void *v_tile, size_t slot, const float *k, const float *v, size_t d);

/* ---- rows --------------------------------------------------------------------------------------------------- */
/* y = x * gain / sqrt(mean(x^2) + eps); gain may be NULL (ones). x may equal y. */
typedef void (*kern_rmsnorm_fn)(const float *x, const float *gain, float eps, size_t n, float *y);
/* Rotates pairs (x[2j], x[2j+1]) by (cs[2j], cs[2j+1]) = (cos, sin), j < n_pairs, in place. cs = (1, 0) keeps the bits. */
typedef void (*kern_rotate_fn)(float *x, const float *cs, size_t n_pairs);
/* y[i] = act(gate[i]) * up[i]; y may equal gate. */
typedef void (*kern_gated_act_fn)(const float *gate, const float *up, float *y, size_t n);
/* x[i] += scale * y[i], one multiply-add each. EXACT. */
typedef void (*kern_add_scaled_fn)(float *x, const float *y, float scale, size_t n);
/* Largest value and sum of exp(x - max) in double, error <= 1e-7 relative. NaN anywhere -> *sum is NaN. */
typedef void (*kern_expsum_fn)(const float *x, size_t n, float *max, double *sum);
/* KL(p || q) of two logit rows with their max and sums as above; >= -1e-7 by rounding. */
typedef double (*kern_kl_row_fn)(const float *p, float p_max, double p_sum, const float *q, float q_max, double q_sum,
                                 size_t n);

struct kern_table {
    const char *names[64];       /* chosen implementation of each operation in kern_ops.inc order */
#define KERN_OP(op, fn_type, contract) fn_type op;
#include "kern/kern_ops.inc"
#undef KERN_OP
    enum kern_level level;
};

/* Fills the table with the best variants this CPU has, not above max_level. missing: what limits the level, or "". */
void kern_table_init(struct kern_table *t, enum kern_level max_level);
enum kern_level kern_cpu_level(void);             /* by CPUID and XGETBV */
const char *kern_level_name(enum kern_level level);
void kern_cpu_features(char *out, size_t size);   /* "avx2 fma f16c avx512f avx512_vnni avx512_bf16 ..." */
size_t kern_op_count(void);
const char *kern_op_name(size_t i);

#endif
