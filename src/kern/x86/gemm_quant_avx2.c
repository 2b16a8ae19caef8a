/* gemm_quant_avx2.c: products with weights of 2 to 8 bits without dot instructions, 8 rows a
 * register. vpmaddubsw adds two byte products in 16 bits and saturates, so operands are chosen such
 * that it cannot:
 *   8 bit, codes   |q - 128| <= 128, |x| <= 127: |w| times x with the sign of w, 2 * 128 * 127
 *                  fits; 128 * sum(x) is given back with the offset.
 *   2 to 6 bit     q <= 15: the eight pairs of a group of 32 add up to 8 * 2 * 15 * 127 = 30480;
 *                  four pairs of q <= 31 and two of q <= 63 to less than 32767.
 * Integer parts are exact, float steps are those of the avx512 file: same bits (I1). */
#include <immintrin.h>
#include <string.h>
#include "kern/kern_impl.h"

enum { R = PACK_ROWS, HALF = 8, MAX_TOK = 4 };

/* f32 scales and mins of the k-groups of a slice, (k-group, half of the rows). */
struct wide_scales {
    __m256 scale[PACK_SLICE / 16][2], min[PACK_SLICE / 16][2];
};

struct tile {
    const uint8_t *w; /* first block */
    size_t block_bytes, n_blocks;
    struct wide_scales *scales;
    __m256i codes;         /* C4 */
    int32_t offset;        /* on top of what the byte products subtract */
    bool has_min, goes_on; /* goes_on: y holds the sums of the slices before */
    struct kern_group x;   /* first token, first block */
    size_t x_stride;
    float *y;
    size_t y_step, n_rows;
    const uint8_t *fetch; /* what to prefetch, fetch_step bytes a block */
    size_t fetch_step;
};

ZP_INLINE __m256i broadcast4(const int8_t *x)
{
    int32_t quad;
    memcpy(&quad, x, 4);
    return _mm256_set1_epi32(quad);
}

/* Eight rows x four k of 16-bit pair sums to 32-bit sums. */
ZP_INLINE __m256i widen_pairs(__m256i pairs)
{
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

/* ---- scales ---------------------------------------------------------------------------------- */

ZP_INLINE __m256 load_halves(const uint8_t *from)
{
    return _mm256_cvtph_ps(_mm_load_si128((const __m128i *)(const void *)from));
}

ZP_INLINE __m256i load_bytes(const uint8_t *from)
{
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)from));
}

/* 2^(e - 128): the exponent field is e - 1 from 2 on; 0 and 1 are subnormal. */
ZP_INLINE __m256 exponents(__m256i e)
{
    e = _mm256_and_si256(e, _mm256_set1_epi32(255));
    __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
    __m256i tiny = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
    return _mm256_castsi256_ps(
        _mm256_blendv_epi8(normal, tiny, _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e)));
}

/* Scales and mins of a slice of half a row group. */
static void widen_scales(const struct kern_mat *m, const struct pack_slice *s,
                         const uint8_t *row_group, int half, struct wide_scales *out)
{
    const uint8_t *at = row_group + s->head_at;
    const bool has_min = m->has_min, nibbles = m->scaling == QUANT_SCALE_SUB4;
    if (m->scaling == QUANT_SCALE_E8M0) {
        for (size_t g = 0; g < s->n_groups; g++)
            out->scale[g][half] = exponents(load_bytes(at + g * R + half * HALF));
        return;
    }
    if (m->scaling == QUANT_SCALE_F16) {
        for (size_t g = 0; g < s->n_groups; g++, at += s->group_bytes) {
            out->scale[g][half] = load_halves(at + half * R);
            if (has_min) out->min[g][half] = load_halves(at + R * 2 + half * R);
        }
        return;
    }
    for (size_t g = 0; g < s->n_groups;) {
        __m256 d = load_halves(at + half * R), dmin = d;
        if (has_min) dmin = load_halves(at + R * 2 + half * R);
        at += s->d_bytes;
        for (size_t end = g + s->per_super; g < end; g++, at += s->group_bytes) {
            __m256i sub = load_bytes(at + half * HALF), low = sub;
            if (nibbles) low = _mm256_and_si256(sub, _mm256_set1_epi32(15));
            out->scale[g][half] = _mm256_mul_ps(d, _mm256_cvtepi32_ps(low));
            if (!has_min) continue;
            sub = nibbles ? _mm256_srli_epi32(_mm256_and_si256(sub, _mm256_set1_epi32(0xf0)), 4)
                          : load_bytes(at + R + half * HALF);
            out->min[g][half] = _mm256_mul_ps(dmin, _mm256_cvtepi32_ps(sub));
        }
    }
}

/* ---- tiles ----------------------------------------------------------------------------------- */

/* Loads stay in ascending order: the compiler's own costs products of 4 bits 5 %. */
ZP_INLINE __m256i load_in_order(const uint8_t *from)
{
    __m256i v;
    __asm__ volatile("vmovdqa %1, %0" : "=x"(v) : "m"(*(const __m256i *)(const void *)from));
    return v;
}

/* Moves bits from place `from` of every byte to place `to`; what else is there stays. */
ZP_INLINE __m256i move_bits(__m256i v, int from, int to)
{
    if (from > to) return _mm256_srli_epi16(v, from - to);
    return from < to ? _mm256_slli_epi16(v, to - from) : v;
}

/* Weight vector v of eight rows as bytes, unsigned, or signed (8 bit and codes), from the bytes
 * that hold its low and its high bits. */
ZP_INLINE __m256i weights(const struct tile *t, enum kern_form form, __m256i low, __m256i high,
                          int v)
{
    const struct pack_form f = pack_forms[form];
    if (f.low == 8) return _mm256_xor_si256(low, _mm256_set1_epi8((char)0x80));
    __m256i q = _mm256_and_si256(move_bits(low, v * f.low % 8, 0),
                                 _mm256_set1_epi8((char)((1 << f.low) - 1)));
    if (form == KERN_C4) return _mm256_shuffle_epi8(t->codes, q);
    if (f.high == 0) return q;
    __m256i mask = _mm256_set1_epi8((char)(((1 << f.high) - 1) << f.low));
    return _mm256_or_si256(q, _mm256_and_si256(move_bits(high, v * f.high % 8, f.low), mask));
}

/* Adds the products of k-group `part` of a block: sum q x, or sum (q - 128) x. */
ZP_INLINE void dot(__m256i acc[MAX_TOK], const struct tile *t, enum kern_form form,
                   const uint8_t *block, const int8_t *x, int part, int n_tok)
{
    const struct pack_form f = pack_forms[form];
    const int n = f.k_group / 4, first = part * n, bits = f.low + f.high;
    const bool is_signed = form == KERN_Q8 || form == KERN_C4;
    const int fit = is_signed ? 1 : bits <= 4 ? n : bits == 5 ? 4 : 2; /* pairs in 16 bits */
    __m256i pairs[MAX_TOK], low = _mm256_setzero_si256(), high = low;
    ZP_UNROLL
    for (int v = first; v < first + n; v++) {
        if (f.high && (v == first || v * f.high % 8 == 0))
            high = load_in_order(block + pack_high_at(&f, v) * 64);
        if (v * f.low % 8 == 0) low = load_in_order(block + pack_low_at(&f, v) * 64);
        __m256i w = weights(t, form, low, high, v);
        __m256i size = is_signed ? _mm256_abs_epi8(w) : w; /* -128 stays 128 as unsigned */
        ZP_UNROLL
        for (int i = 0; i < n_tok; i++) {
            __m256i xv = broadcast4(x + (size_t)i * t->x_stride + v * 4);
            if (is_signed) xv = _mm256_sign_epi8(xv, w);
            __m256i pair = _mm256_maddubs_epi16(size, xv);
            pairs[i] = v % fit == 0 ? pair : _mm256_add_epi16(pairs[i], pair);
            if (v % fit != fit - 1) continue;
            acc[i] = _mm256_add_epi32(acc[i], widen_pairs(pairs[i]));
            __asm__("" : "+x"(acc[i])); /* one chain of sums: gcc 12 makes several and spills */
        }
    }
}

ZP_INLINE bool adds_min(const struct tile *t, enum kern_form form)
{
    const enum pack_mins mins = pack_forms[form].mins;
    return mins == PACK_MIN || (mins == PACK_MAY_HAVE_MIN && t->has_min);
}

/* One k-group of all rows and tokens of the tile: part `part` of block b. */
ZP_INLINE void add_group(const struct tile *t, __m256 total[MAX_TOK], enum kern_form form,
                         const uint8_t *block, size_t b, int part, int half, int n_tok)
{
    __m256i acc[MAX_TOK];
    const bool whole = pack_forms[form].k_group == 32;
    const size_t x_step = t->x_stride / 32, k_group = whole ? b : b * 2 + (size_t)part;
    ZP_UNROLL
    for (int i = 0; i < n_tok; i++) {
        size_t at = (size_t)i * x_step + b;
        int32_t minus = whole ? t->x.minus32[at] : t->x.minus16[at * 2 + (size_t)part];
        acc[i] = _mm256_set1_epi32(minus * t->offset);
    }
    dot(acc, t, form, block + half * 32, t->x.q + b * PACK_BLOCK, part, n_tok);
    __m256 scale = t->scales->scale[k_group][half];
    ZP_UNROLL
    for (int i = 0; i < n_tok; i++) {
        __m256 xs = _mm256_broadcast_ss(t->x.scale + (size_t)i * x_step + b);
        total[i] = _mm256_fmadd_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(acc[i]), xs), scale, total[i]);
    }
    if (!adds_min(t, form)) return;
    __m256 min = t->scales->min[k_group][half];
    ZP_UNROLL
    for (int i = 0; i < n_tok; i++) {
        size_t at = (size_t)i * x_step + b;
        if (whole) {
            total[i] = _mm256_fmadd_ps(_mm256_set1_ps(t->x.scaled32[at]), min, total[i]);
        } else {
            float minus = t->x.scale[at] * (float)t->x.minus16[at * 2 + (size_t)part];
            total[i] = _mm256_fnmadd_ps(_mm256_set1_ps(minus), min, total[i]);
        }
    }
}

/* Eight rows: half 0 or 1 of the row group. */
ZP_INLINE void multiply_half(const struct tile *t, enum kern_form form, int half, int n_tok)
{
    __m256 total[MAX_TOK];
    float rows[HALF] = { 0 };
    size_t first = (size_t)half * HALF;
    if (t->n_rows <= first) return;
    size_t n = t->n_rows - first < HALF ? t->n_rows - first : HALF;
    ZP_UNROLL
    for (int i = 0; i < n_tok; i++) {
        if (t->goes_on) memcpy(rows, t->y + (size_t)i * t->y_step + first, n * sizeof *rows);
        total[i] = _mm256_loadu_ps(rows);
    }
    const uint8_t *block = t->w, *fetch = t->fetch;
    for (size_t b = 0; b < t->n_blocks; b++, block += t->block_bytes, fetch += t->fetch_step) {
        for (size_t line = 0; half == 0 && line < t->fetch_step; line += 64)
            _mm_prefetch((const char *)fetch + line, _MM_HINT_T1);
        add_group(t, total, form, block, b, 0, half, n_tok);
        if (pack_forms[form].k_group == 16) add_group(t, total, form, block, b, 1, half, n_tok);
    }
    ZP_UNROLL
    for (int i = 0; i < n_tok; i++) {
        _mm256_storeu_ps(rows, total[i]);
        memcpy(t->y + (size_t)i * t->y_step + first, rows, n * sizeof *rows);
    }
}

ZP_INLINE void multiply_form(const struct tile *t, enum kern_form form, int n_tok)
{
    for (int half = 0; half < 2; half++) switch (n_tok) {
        case 1: multiply_half(t, form, half, 1); break;
        case 2: multiply_half(t, form, half, 2); break;
        case 3: multiply_half(t, form, half, 3); break;
        default: multiply_half(t, form, half, 4); break;
        }
}

typedef void tile_fn(const struct tile *t, int n_tok);

/* ---- all rows and tokens --------------------------------------------------------------------- */

/* All tokens with one row group; t has what all row groups share. The first tile of a slice pulls
 * the next row group into L2. */
static void multiply_row_group(struct tile *t, tile_fn *run, const struct kern_mat *w,
                               const uint8_t *row_group, const struct kern_act *x, size_t n_tok,
                               float *y)
{
    const size_t share = (w->row_group_bytes / (w->n_in / PACK_BLOCK) + 63) / 64 * 64;
    for (size_t s = 0; s < pack_slices(w); s++) {
        const struct pack_slice slice = pack_slice_of(w, s);
        const size_t b = s * (PACK_SLICE / PACK_BLOCK);
        t->n_blocks = slice.n_blocks;
        t->block_bytes = slice.block_bytes;
        t->goes_on = s > 0;
        t->w = row_group + slice.block_at;
        t->fetch = row_group + w->row_group_bytes + b * share;
        for (int half = 0; half < 2; half++) widen_scales(w, &slice, row_group, half, t->scales);
        for (size_t i = 0; i < n_tok; i += MAX_TOK) {
            t->x = kern_group_at(x, i, b);
            t->y = y + i * t->y_step;
            t->fetch_step = i == 0 ? share : 0;
            run(t, (int)(n_tok - i < MAX_TOK ? n_tok - i : MAX_TOK));
        }
    }
}

static void multiply_all(tile_fn *run, const struct kern_mat *w, size_t row_begin, size_t row_end,
                         const struct kern_act *x, size_t n_tok, float *y, size_t y_stride)
{
    struct wide_scales scales;
    struct tile t = { .scales = &scales,
                      .offset = w->has_min ? 0 : pack_forms[w->form].offset,
                      .has_min = w->has_min,
                      .x_stride = x->stride,
                      .y_step = y_stride };
    if (w->form == KERN_Q8 || w->form == KERN_C4) t.offset -= 128;
    if (w->codes)
        t.codes = _mm256_broadcastsi128_si256(
            _mm_loadu_si128((const __m128i *)(const void *)w->codes));
    for (size_t row = row_begin; row < row_end; row += R) {
        t.n_rows = row_end - row < R ? row_end - row : R;
        multiply_row_group(&t, run, w, w->data + row / R * w->row_group_bytes, x, n_tok, y + row);
    }
}

#define FORM(name, form)                                                                           \
    static ZP_NOINLINE void tile_##name(const struct tile *t, int n_tok)                           \
    {                                                                                              \
        multiply_form(t, form, n_tok);                                                             \
    }                                                                                              \
    void gemm_##name##_avx2(const struct kern_mat *w, size_t row_begin, size_t row_end,            \
                            const struct kern_act *x, size_t n_tok, float *y, size_t y_stride)     \
    {                                                                                              \
        multiply_all(tile_##name, w, row_begin, row_end, x, n_tok, y, y_stride);                   \
    }
FORM(q8, KERN_Q8)
FORM(q6, KERN_Q6)
FORM(q5, KERN_Q5)
FORM(q4, KERN_Q4)
FORM(c4, KERN_C4)
FORM(q3, KERN_Q3)
FORM(q2, KERN_Q2)
