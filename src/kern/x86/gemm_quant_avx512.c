/* gemm_quant_avx512.c: products with weights of 2 to 8 bits, unsigned weights times signed
 * activations by vpdpbusd, one zmm lane = one row.
 *
 * Tile 32 rows x 6 tokens: 12 integer and 12 float accumulators stay in registers. A k-group starts
 * at -offset * sum(x) (offsets are powers of two: a shift), so that offsets cost next to nothing.
 * Every output takes the steps of the contract in kern.h, scale and min each as one fused
 * multiply-add, in ascending k whatever the tile (I1). Scales and mins become f32 once for all
 * tokens, a slice of k at a time, so that tiles know one kind of them.
 * vpdpbusd is written as one-instruction asm: gcc 12 copies the accumulator around its builtin. */
#include <assert.h>
#include <immintrin.h>
#include <string.h>
#include "kern/kern_impl.h"

enum {
    R = PACK_ROWS,
    MAX_TOK = 6,
    MAX_GROUPS = 2, /* groups of 16 rows */
    MAX_SUMS = 256  /* tokens of more than one slice that stay in L2: at most 250 */
};

/* f32 scales and mins of the k-groups of a slice. */
struct wide_scales {
    __m512 scale[PACK_SLICE / 16][MAX_GROUPS], min[PACK_SLICE / 16][MAX_GROUPS];
};

/* Sums of a slice wait beside each other: y's rows of a wide matrix share few sets of the cache. */
struct work {
    struct wide_scales scales;
    ZP_ALIGN(64) float sums[MAX_SUMS][MAX_GROUPS * R];
};

struct tile {
    const uint8_t *w; /* first block, first row group */
    size_t w_step;    /* bytes from one row group to the next */
    size_t n_blocks;
    struct work *work;
    __m512i codes; /* C4: codes + 128 in every 16 bytes */
    bool has_min;
    struct kern_group x; /* first token, first block */
    size_t x_stride;
    const float *from; /* sums of the slices before, NULL before the first */
    float *to;
    size_t to_step;        /* from token to token */
    __mmask16 to_rows;     /* of the last group */
    const uint8_t *fetch;  /* what to prefetch, fetch_step bytes a block */
    size_t fetch_step;
};

ZP_INLINE __m512i dot4(__m512i acc, __m512i weights, __m512i x)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(weights), "v"(x));
    return acc;
}

ZP_INLINE __m512i broadcast4(const int8_t *x)
{
    int32_t quad;
    memcpy(&quad, x, 4);
    return _mm512_set1_epi32(quad);
}

/* ---- scales ---------------------------------------------------------------------------------- */

ZP_INLINE __m512 load_halves(const uint8_t *from)
{
    return _mm512_cvtph_ps(_mm256_load_si256((const __m256i *)(const void *)from));
}

ZP_INLINE __m512i load_bytes(const uint8_t *from)
{
    return _mm512_cvtepi8_epi32(_mm_load_si128((const __m128i *)(const void *)from));
}

/* 2^(e - 128): the exponent field is e - 1 from 2 on; 0 and 1 are subnormal. */
ZP_INLINE __m512 exponents(__m512i e)
{
    e = _mm512_and_si512(e, _mm512_set1_epi32(255));
    __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
    return _mm512_castsi512_ps(
        _mm512_mask_sllv_epi32(normal, _mm512_cmplt_epi32_mask(e, _mm512_set1_epi32(2)),
                               _mm512_set1_epi32(0x00200000), e));
}

/* Scales and mins of a slice of one row group to column `column` of out. */
static void widen_scales(const struct kern_mat *m, const struct pack_slice *s,
                         const uint8_t *row_group, int column, struct wide_scales *out)
{
    const uint8_t *at = row_group + s->head_at;
    const bool has_min = m->has_min, nibbles = m->scaling == QUANT_SCALE_SUB4;
    if (m->scaling == QUANT_SCALE_E8M0) {
        for (size_t g = 0; g < s->n_groups; g++)
            out->scale[g][column] = exponents(load_bytes(at + g * R));
        return;
    }
    if (m->scaling == QUANT_SCALE_F16) {
        for (size_t g = 0; g < s->n_groups; g++, at += s->group_bytes) {
            out->scale[g][column] = load_halves(at);
            if (has_min) out->min[g][column] = load_halves(at + R * 2);
        }
        return;
    }
    for (size_t g = 0; g < s->n_groups;) {
        __m512 d = load_halves(at), dmin = has_min ? load_halves(at + R * 2) : d;
        at += s->d_bytes;
        for (size_t end = g + s->per_super; g < end; g++, at += s->group_bytes) {
            __m512i sub = load_bytes(at), low = sub;
            if (nibbles) low = _mm512_and_si512(sub, _mm512_set1_epi32(15));
            out->scale[g][column] = _mm512_mul_ps(d, _mm512_cvtepi32_ps(low));
            if (!has_min) continue;
            sub = nibbles ? _mm512_srli_epi32(_mm512_and_si512(sub, _mm512_set1_epi32(0xf0)), 4)
                          : load_bytes(at + R);
            out->min[g][column] = _mm512_mul_ps(dmin, _mm512_cvtepi32_ps(sub));
        }
    }
}

/* ---- tiles ----------------------------------------------------------------------------------- */

/* Loads of weights stay in ascending order: the compiler's own order halves what the hardware's
 * prefetcher reaches (two tokens: 20 instead of 30 GB/s). */
ZP_INLINE __m512i load_in_order(const uint8_t *from)
{
    __m512i v;
    __asm__ volatile("vmovdqa64 %1, %0" : "=v"(v) : "m"(*(const __m512i *)(const void *)from));
    return v;
}

/* Moves bits from place `from` of every byte to place `to`; what else is there stays. */
ZP_INLINE __m512i move_bits(__m512i v, int from, int to)
{
    if (from > to) return _mm512_srli_epi16(v, (unsigned)(from - to));
    return from < to ? _mm512_slli_epi16(v, (unsigned)(to - from)) : v;
}

/* Weight vector v as bytes, from the bytes that hold its low and its high bits. */
ZP_INLINE __m512i weights(const struct tile *t, enum kern_form form, __m512i low, __m512i high,
                          int v)
{
    const struct pack_form f = pack_forms[form];
    if (f.low == 8) return low;
    __m512i q = _mm512_and_si512(move_bits(low, v * f.low % 8, 0),
                                 _mm512_set1_epi8((char)((1 << f.low) - 1)));
    if (form == KERN_C4) return _mm512_shuffle_epi8(t->codes, q);
    if (f.high == 0) return q;
    /* q | (high & mask) */
    return _mm512_ternarylogic_epi32(q, move_bits(high, v * f.high % 8, f.low),
                                     _mm512_set1_epi8((char)(((1 << f.high) - 1) << f.low)), 0xf8);
}

/* Adds the products of k-group `part` of a block to the integer accumulators. */
ZP_INLINE void dot(__m512i acc[MAX_GROUPS][MAX_TOK], const struct tile *t, enum kern_form form,
                   const uint8_t *block, const int8_t *x, int part, int n_groups, int n_tok)
{
    const struct pack_form f = pack_forms[form];
    const int first = part * f.k_group / 4;
    __m512i low[MAX_GROUPS], high[MAX_GROUPS], w[MAX_GROUPS];
    ZP_UNROLL
    for (int v = first; v < first + f.k_group / 4; v++) {
        ZP_UNROLL
        for (int g = 0; g < n_groups; g++) {
            const uint8_t *from = block + (size_t)g * t->w_step;
            if (f.high && (v == first || v * f.high % 8 == 0))
                high[g] = load_in_order(from + pack_high_at(&f, v) * 64);
            if (v * f.low % 8 == 0) low[g] = load_in_order(from + pack_low_at(&f, v) * 64);
            w[g] = weights(t, form, low[g], f.high ? high[g] : low[g], v);
        }
        ZP_UNROLL
        for (int i = 0; i < n_tok; i++) {
            __m512i xv = broadcast4(x + (size_t)i * t->x_stride + v * 4);
            ZP_UNROLL
            for (int g = 0; g < n_groups; g++) acc[g][i] = dot4(acc[g][i], w[g], xv);
        }
    }
}

/* One k-group of all rows and tokens of the tile: part `part` of a block; x: first token's group of
 * 32, scale and min: the k-group's. */
ZP_INLINE void add_group(const struct tile *t, __m512 total[MAX_GROUPS][MAX_TOK],
                         enum kern_form form, bool has_min, const uint8_t *block,
                         const struct kern_group *x, const __m512 *scale, const __m512 *min,
                         int part, int n_groups, int n_tok)
{
    const struct pack_form f = pack_forms[form];
    const size_t x_step = t->x_stride / 32;
    __m512i acc[MAX_GROUPS][MAX_TOK];
    ZP_UNROLL
    for (int i = 0; i < n_tok; i++) { /* - offset * sum(x) */
        const int32_t *minus = f.k_group == 32 ? x->minus32 + (size_t)i * x_step
                                               : x->minus16 + (size_t)i * x_step * 2 + part;
        acc[0][i] = has_min ? _mm512_setzero_si512()
                            : _mm512_slli_epi32(_mm512_set1_epi32(*minus),
                                                (unsigned)__builtin_ctz(f.offset | 256));
        if (n_groups == 2) acc[1][i] = acc[0][i];
    }
    dot(acc, t, form, block, x->q, part, n_groups, n_tok);
    ZP_UNROLL
    for (int i = 0; i < n_tok; i++) {
        __m512 xs = _mm512_set1_ps(x->scale[(size_t)i * x_step]);
        ZP_UNROLL
        for (int g = 0; g < n_groups; g++)
            total[g][i] = _mm512_fmadd_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(acc[g][i]), xs),
                                          scale[g], total[g][i]);
    }
    if (!has_min) return;
    ZP_UNROLL
    for (int i = 0; i < n_tok; i++) {
        if (f.k_group == 32) {
            __m512 sum = _mm512_set1_ps(x->scaled32[(size_t)i * x_step]);
            ZP_UNROLL
            for (int g = 0; g < n_groups; g++)
                total[g][i] = _mm512_fmadd_ps(sum, min[g], total[g][i]);
        } else {
            __m512i minus = _mm512_set1_epi32(x->minus16[(size_t)i * x_step * 2 + (size_t)part]);
            __m512 sum = _mm512_mul_ps(_mm512_cvtepi32_ps(minus),
                                       _mm512_set1_ps(x->scale[(size_t)i * x_step]));
            ZP_UNROLL
            for (int g = 0; g < n_groups; g++)
                total[g][i] = _mm512_fnmadd_ps(sum, min[g], total[g][i]);
        }
    }
}

ZP_INLINE void multiply(const struct tile *t, enum kern_form form, bool has_min, int n_groups,
                        int n_tok)
{
    const struct pack_form f = pack_forms[form];
    __m512 total[MAX_GROUPS][MAX_TOK];
    ZP_UNROLL
    for (int g = 0; g < n_groups; g++) {
        ZP_UNROLL
        for (int i = 0; i < n_tok; i++)
            total[g][i] = t->from ? _mm512_load_ps(t->from + (i * MAX_GROUPS + g) * R)
                                  : _mm512_setzero_ps();
    }
    const uint8_t *block = t->w, *fetch = t->fetch;
    struct kern_group x = t->x;
    __m512(*scale)[MAX_GROUPS] = t->work->scales.scale, (*min)[MAX_GROUPS] = t->work->scales.min;
    for (size_t b = 0; b < t->n_blocks; b++, block += (f.low + f.high) * 64) {
        for (size_t line = 0; n_groups == 2 && line < t->fetch_step; line += 64)
            _mm_prefetch((const char *)fetch + line, _MM_HINT_T1);
        add_group(t, total, form, has_min, block, &x, *scale++, *min++, 0, n_groups, n_tok);
        if (f.k_group == 16)
            add_group(t, total, form, has_min, block, &x, *scale++, *min++, 1, n_groups, n_tok);
        fetch += t->fetch_step;
        x.q += 32, x.scale++, x.scaled32++, x.minus32++, x.minus16 += 2;
    }
    ZP_UNROLL
    for (int g = 0; g < n_groups; g++) {
        ZP_UNROLL
        for (int i = 0; i < n_tok; i++)
            _mm512_mask_storeu_ps(t->to + (size_t)i * t->to_step + g * R,
                                  g == n_groups - 1 ? t->to_rows : (__mmask16)0xffff,
                                  total[g][i]);
    }
}

ZP_INLINE void multiply_tokens(const struct tile *t, enum kern_form form, bool has_min,
                               int n_groups, int n_tok)
{
    switch (n_tok) {
    case 1: multiply(t, form, has_min, n_groups, 1); break;
    case 2: multiply(t, form, has_min, n_groups, 2); break;
    case 3: multiply(t, form, has_min, n_groups, 3); break;
    case 4: multiply(t, form, has_min, n_groups, 4); break;
    case 5: multiply(t, form, has_min, n_groups, 5); break;
    default: multiply(t, form, has_min, n_groups, 6); break;
    }
}

/* Whether there are mins is known to the loops: 2 to 5 % of a prefill. */
ZP_INLINE void multiply_form(const struct tile *t, enum kern_form form, int n_groups, int n_tok)
{
    const enum pack_mins mins = pack_forms[form].mins;
    const bool has_min = mins == PACK_MIN || (mins == PACK_MAY_HAVE_MIN && t->has_min);
    if (has_min && n_groups == 2) multiply_tokens(t, form, true, 2, n_tok);
    else if (has_min) multiply_tokens(t, form, true, 1, n_tok);
    else if (n_groups == 2) multiply_tokens(t, form, false, 2, n_tok);
    else multiply_tokens(t, form, false, 1, n_tok);
}
typedef void tile_fn(const struct tile *t, int n_groups, int n_tok);

/* ---- all rows and tokens --------------------------------------------------------------------- */

/* Few tokens: one row group at a time is one ascending stream, which the hardware's prefetcher
 * carries best: 30 to 33 GB/s on a core that reads 33 (huge pages), 23 as panels of two. */
static bool is_stream(const struct kern_mat *w, size_t n_tok)
{
    return n_tok <= (w->form == KERN_Q8 ? 3 : w->form >= KERN_Q3 ? 1 : 2);
}

/* Row groups that tokens are multiplied with together. */
struct panel {
    const uint8_t *w;
    int n_groups;
    __mmask16 last_rows; /* of the last group that exist */
    float *y;            /* the panel's first row, first token */
    size_t y_step;
};

/* Tokens [t0, t1) with a panel; t has what all panels share. The first tile of a panel pulls the
 * next panel into L2 while it computes. Two to six tokens from memory: 22 to 29 GB/s on a core that
 * reads 33, without it 8 to 22. */
static void multiply_panel(struct tile *t, tile_fn *run, const struct kern_mat *w,
                           const struct panel *p, bool fetches, const struct kern_act *x, size_t t0,
                           size_t t1)
{
    const size_t bytes = (size_t)p->n_groups * w->row_group_bytes, n_slices = pack_slices(w);
    const size_t share = (bytes / (w->n_in / PACK_BLOCK) + 63) / 64 * 64;
    for (size_t s = 0; s < n_slices; s++) {
        const struct pack_slice slice = pack_slice_of(w, s);
        const size_t b = s * (PACK_SLICE / PACK_BLOCK);
        const bool last = s == n_slices - 1;
        t->n_blocks = slice.n_blocks;
        t->w = p->w + slice.block_at;
        t->fetch = p->w + bytes + b * share;
        t->to_step = last ? p->y_step : MAX_GROUPS * R;
        t->to_rows = last ? p->last_rows : (__mmask16)0xffff;
        for (int g = 0; g < p->n_groups; g++)
            widen_scales(w, &slice, p->w + (size_t)g * w->row_group_bytes, g, &t->work->scales);
        for (size_t i = t0; i < t1; i += MAX_TOK) {
            float *sums = n_slices > 1 ? t->work->sums[i - t0] : NULL;
            t->x = kern_group_at(x, i, b);
            t->from = s > 0 ? sums : NULL;
            t->to = last ? p->y + i * p->y_step : sums;
            t->fetch_step = i == t0 && fetches ? share : 0;
            run(t, p->n_groups, (int)(t1 - i < MAX_TOK ? t1 - i : MAX_TOK));
        }
    }
}

static void multiply_all(tile_fn *run, const struct kern_mat *w, size_t row_begin, size_t row_end,
                         const struct kern_act *x, size_t n_tok, float *y, size_t y_stride)
{
    enum { X_BYTES = 384 << 10 };
    struct work work;
    struct tile t = { .work = &work,
                      .w_step = w->row_group_bytes,
                      .has_min = w->has_min,
                      .x_stride = x->stride };
    if (w->codes)
        t.codes = _mm512_xor_si512(_mm512_broadcast_i32x4(_mm_loadu_si128(
                                       (const __m128i *)(const void *)w->codes)),
                                   _mm512_set1_epi8((char)0x80));
    /* tokens that stay in L2 beside a panel of rows */
    size_t most = X_BYTES / kern_act_bytes(1, w->n_in) / MAX_TOK * MAX_TOK;
    if (most == 0) most = MAX_TOK;
    assert(pack_slices(w) == 1 || most <= MAX_SUMS);
    for (size_t i = 0, n; i < n_tok; i += n) {
        n = n_tok - i < most ? n_tok - i : most;
        bool stream = is_stream(w, n);
        for (size_t row = row_begin, rows; row < row_end; row += rows) {
            struct panel p = { .w = w->data + row / R * w->row_group_bytes,
                               .n_groups = row_end - row > R && !stream ? 2 : 1,
                               .last_rows = 0xffff,
                               .y = y + row,
                               .y_step = y_stride };
            rows = (size_t)p.n_groups * R;
            if (row_end - row < rows) p.last_rows = (__mmask16)((1u << (row_end - row) % R) - 1);
            multiply_panel(&t, run, w, &p, !stream, x, i, i + n);
        }
    }
}

/* One function for a form's tiles keeps the compiler's register allocation apart. */
#define FORM(name, form)                                                                           \
    static ZP_NOINLINE void tile_##name(const struct tile *t, int n_groups, int n_tok)             \
    {                                                                                              \
        multiply_form(t, form, n_groups, n_tok);                                                   \
    }                                                                                              \
    void gemm_##name##_avx512(const struct kern_mat *w, size_t row_begin, size_t row_end,          \
                              const struct kern_act *x, size_t n_tok, float *y, size_t y_stride)   \
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
