/* attend_avx512.c: attention over 64-position tiles, up to six query rows at a time.
 * Scores: lane = position, 4 registers a row; values: lane = channel, 4 registers a row: 24
 * accumulators in both halves, K and V loads shared by the rows. bf16 is widened exactly.
 * Each row's state takes the same steps whatever rows share the call (I1): one chain of fused
 * multiply-adds in ascending channel (scores) and ascending position (values) per lane.
 * Tiles go outside, rows inside: a tile is read from memory once; its successor is prefetched.
 * Reached on a core of 117 GFLOPS that reads 33 GB/s: prefill 85 to 104 GFLOPS, one token of three
 * heads 29 to 33 GB/s. */
#include <immintrin.h>
#include <math.h>
#include "kern/kern_impl.h"
#include "kern/x86/attend_batch.h"
#include "kern/x86/vec_avx512.h"

enum { TILE = KERN_TILE, LANES = 16, PARTS = TILE / LANES };

/* How a register of 16 values is made: f32 as it is, bf16 from the low or high half of pairs. */
enum half { WHOLE, LOW, HIGH };

ZP_INLINE __m512 load16(const void *from, __mmask16 mask, enum half half)
{
    if (half == WHOLE) return _mm512_maskz_loadu_ps(mask, from);
    __m512i pairs = _mm512_maskz_loadu_epi32(mask, from);
    if (half == LOW) return _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
    return _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32((int)0xffff0000)));
}

/* acc[r][c] += x[r] * (64 lanes at `from`). Both types take 4 bytes a lane: a float or a pair. */
ZP_INLINE void add_products(__m512 acc[BATCH_ROWS][PARTS], const char *from, enum half half,
                            int parts, __mmask16 last, const float *const x[BATCH_ROWS], size_t at,
                            int n)
{
    __m512 w[PARTS];
    ZP_UNROLL
    for (int c = 0; c < parts; c++)
        w[c] = load16(from + c * 64, c == parts - 1 ? last : (__mmask16)0xffff, half);
    ZP_UNROLL
    for (int r = 0; r < n; r++) {
        ZP_UNROLL
        for (int c = 0; c < parts; c++)
            acc[r][c] = _mm512_fmadd_ps(_mm512_set1_ps(x[r][at]), w[c], acc[r][c]);
    }
}

ZP_INLINE void fetch(const char *next, int parts)
{
    ZP_UNROLL
    for (int c = 0; c < parts; c++) _mm_prefetch(next + c * 64, _MM_HINT_T1);
}

/* p[r] = scores of the tile. next: K tile to prefetch or NULL. */
ZP_INLINE void score(struct attend_batch *b, const char *k, const char *next, size_t d,
                     bool is_bf16, int n)
{
    __m512 s[BATCH_ROWS][PARTS];
    ZP_UNROLL
    for (int r = 0; r < n; r++) {
        ZP_UNROLL
        for (int c = 0; c < PARTS; c++) s[r][c] = _mm512_setzero_ps();
    }
    size_t step = is_bf16 ? 2 : 1;
    for (size_t i = 0; i < d; i += step, k += TILE * 4) {
        add_products(s, k, is_bf16 ? LOW : WHOLE, PARTS, 0xffff, b->q, i, n);
        if (is_bf16) add_products(s, k, HIGH, PARTS, 0xffff, b->q, i + 1, n);
        if (next) fetch(next + i / step * TILE * 4, PARTS);
    }
    ZP_UNROLL
    for (int r = 0; r < n; r++) {
        ZP_UNROLL
        for (int c = 0; c < PARTS; c++) _mm512_store_ps(b->p[r] + c * LANES, s[r][c]);
    }
}

/* Scores of one row become weights; m and l move on. */
static void soften(struct attend_batch *b, int r)
{
    const __m512 none = _mm512_set1_ps(-INFINITY);
    __m512 s[PARTS], top = none;
    ZP_UNROLL
    for (int c = 0; c < PARTS; c++) {
        __mmask16 seen = (__mmask16)(b->seen[r] >> (c * LANES));
        s[c] = _mm512_load_ps(b->p[r] + c * LANES);
        if (b->bias[r])
            s[c] = _mm512_add_ps(s[c], _mm512_maskz_loadu_ps(seen, b->bias[r] + c * LANES));
        s[c] = _mm512_mask_mov_ps(none, seen, s[c]);
        top = _mm512_max_ps(top, s[c]);
    }
    float old = *b->m[r], max = max_avx512(top);
    max = max > old ? max : old;
    __m512 all = _mm512_set1_ps(max), sum[PARTS];
    ZP_UNROLL
    for (int c = 0; c < PARTS; c++) {
        __mmask16 seen = (__mmask16)(b->seen[r] >> (c * LANES));
        sum[c] = _mm512_maskz_mov_ps(seen, exp_avx512(_mm512_sub_ps(s[c], all)));
        _mm512_store_ps(b->p[r] + c * LANES, sum[c]);
    }
    float added =
        sum_avx512(_mm512_add_ps(_mm512_add_ps(sum[0], sum[1]), _mm512_add_ps(sum[2], sum[3])));
    float keep = max == old ? 1.0f : _mm512_cvtss_f32(exp_avx512(_mm512_set1_ps(old - max)));
    b->keep[r] = keep;
    *b->m[r] = max;
    *b->l[r] = *b->l[r] * keep + added;
}

/* 16 * parts channels from c0 of the positions [j0, j1); `last` masks the last register. */
ZP_INLINE void add_values(struct attend_batch *b, const char *v, const char *next, size_t d,
                          size_t c0, __mmask16 last, size_t j0, size_t j1, bool is_bf16, int n,
                          int parts)
{
    __m512 o[BATCH_ROWS][PARTS];
    const float *p[BATCH_ROWS] = { 0 };
    ZP_UNROLL
    for (int r = 0; r < n; r++) {
        p[r] = b->p[r];
        ZP_UNROLL
        for (int c = 0; c < parts; c++)
            o[r][c] = _mm512_mul_ps(_mm512_maskz_loadu_ps(c == parts - 1 ? last : (__mmask16)0xffff,
                                                          b->o[r] + c0 + (size_t)c * LANES),
                                    _mm512_set1_ps(b->keep[r]));
    }
    size_t step = is_bf16 ? 2 : 1;
    for (size_t j = j0; j < j1; j += step) {
        size_t at = (j / step * d + c0) * 4;
        add_products(o, v + at, is_bf16 ? LOW : WHOLE, parts, last, p, j, n);
        /* the upper half of the last pair may be unwritten */
        if (is_bf16 && j + 1 < j1) add_products(o, v + at, HIGH, parts, last, p, j + 1, n);
        if (next) fetch(next + at, parts);
    }
    ZP_UNROLL
    for (int r = 0; r < n; r++) {
        ZP_UNROLL
        for (int c = 0; c < parts; c++)
            _mm512_mask_storeu_ps(b->o[r] + c0 + (size_t)c * LANES,
                                  c == parts - 1 ? last : (__mmask16)0xffff, o[r][c]);
    }
}

ZP_INLINE void attend_step(struct attend_batch *b, size_t d, bool is_bf16, int n)
{
    score(b, b->k, b->next_k, d, is_bf16, n);
    uint64_t any = 0;
    for (int r = 0; r < n; r++) {
        soften(b, r);
        any |= b->seen[r];
    }
    size_t j0 = (size_t)__builtin_ctzll(any), j1 = 64 - (size_t)__builtin_clzll(any), c0 = 0;
    if (is_bf16) j0 &= ~(size_t)1;
    for (; c0 + TILE <= d; c0 += TILE)
        add_values(b, b->v, b->next_v, d, c0, 0xffff, j0, j1, is_bf16, n, PARTS);
    for (; c0 < d; c0 += LANES) {
        __mmask16 last = (__mmask16)(d - c0 >= LANES ? 0xffff : (1u << (d - c0)) - 1);
        add_values(b, b->v, b->next_v, d, c0, last, j0, j1, is_bf16, n, 1);
    }
}

ZP_INLINE void attend(const struct kern_attend *a, bool is_bf16)
{
    struct attend_batch b;
    struct attend_walk walk = { a->tile_begin, 0 };
    while (attend_next(a, &walk, &b)) {
        switch (b.n) { /* the number of rows becomes a constant */
        case 1: attend_step(&b, a->d, is_bf16, 1); break;
        case 2: attend_step(&b, a->d, is_bf16, 2); break;
        case 3: attend_step(&b, a->d, is_bf16, 3); break;
        case 4: attend_step(&b, a->d, is_bf16, 4); break;
        case 5: attend_step(&b, a->d, is_bf16, 5); break;
        default: attend_step(&b, a->d, is_bf16, 6); break;
        }
    }
}

void attend_f32_avx512(const struct kern_attend *a)
{
    attend(a, false);
}

void attend_bf16_avx512(const struct kern_attend *a)
{
    attend(a, true);
}
