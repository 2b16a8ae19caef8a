/* attend_avx512.c: attention over 64-position tiles, up to six query rows at a time.
 * Scores: lane = position, 4 registers a row; values: lane = channel, 4 registers a row: 24
 * accumulators in both halves, K and V loads shared by the rows.
 *   f32   a step is one channel (scores) or position (values): one fused multiply-add
 *   bf16  a step is a pair of them: vdpbf16ps, which is two fused multiply-adds, the odd one first,
 *         and takes q and the weights as bf16 pairs as well. One-instruction asm, because gcc 12
 *         copies accumulators around such builtins.
 * Each row's state takes the same steps whatever rows share the call (I1): one chain per lane, in
 * ascending channels and positions.
 * Tiles go outside, rows inside: a tile is read from memory once. */
#include <immintrin.h>
#include <string.h>
#include "kern/kern_impl.h"
#include "kern/x86/soften_avx512.h"

ZP_INLINE __m512 dot2(__m512 acc, __m512i a, __m512i b)
{
    __asm__("vdpbf16ps %2, %1, %0" : "+v"(acc) : "v"(a), "v"(b));
    return acc;
}

/* What one step reads of a lane: a float, a pair of bf16, or the first of a pair whose second
 * position may be unwritten. */
enum lane { F32, PAIR, FIRST };

/* acc[r][c] += x[r] * (64 lanes at `from`); x[r] + at * 4: a lane's counterpart, for all alike. */
ZP_INLINE void add_products(__m512 acc[BATCH_ROWS][PARTS], const char *from, enum lane lane,
                            int parts, __mmask16 last, const char *const x[BATCH_ROWS], size_t at,
                            int n)
{
    __m512i w[PARTS];
    ZP_UNROLL
    for (int c = 0; c < parts; c++) {
        w[c] = _mm512_maskz_loadu_epi32(c == parts - 1 ? last : (__mmask16)0xffff, from + c * 64);
        if (lane == FIRST) w[c] = _mm512_and_si512(w[c], _mm512_set1_epi32(0xffff));
    }
    ZP_UNROLL
    for (int r = 0; r < n; r++) {
        int32_t word;
        memcpy(&word, x[r] + at * 4, 4);
        __m512i xr = _mm512_set1_epi32(word);
        ZP_UNROLL
        for (int c = 0; c < parts; c++)
            acc[r][c] = lane == F32 ? _mm512_fmadd_ps(_mm512_castsi512_ps(xr),
                                                      _mm512_castsi512_ps(w[c]), acc[r][c])
                                    : dot2(acc[r][c], w[c], xr);
    }
}

/* p[r] = scores of the tile. */
ZP_INLINE void score(struct attend_batch *b, size_t d, bool is_bf16, int n)
{
    __m512 s[BATCH_ROWS][PARTS];
    ZP_UNROLL
    for (int r = 0; r < n; r++) {
        ZP_UNROLL
        for (int c = 0; c < PARTS; c++) s[r][c] = _mm512_setzero_ps();
    }
    size_t steps = is_bf16 ? d / 2 : d;
    for (size_t i = 0; i < steps; i++)
        add_products(s, b->k + i * TILE * 4, is_bf16 ? PAIR : F32, PARTS, 0xffff, b->q, i, n);
    ZP_UNROLL
    for (int r = 0; r < n; r++) {
        ZP_UNROLL
        for (int c = 0; c < PARTS; c++) _mm512_store_ps(b->p[r] + c * LANES, s[r][c]);
    }
}

/* 16 * parts channels from c0 of the positions [j0, j1); `last` masks the last register. */
ZP_INLINE void add_values(struct attend_batch *b, size_t d, size_t c0, __mmask16 last, size_t j0,
                          size_t j1, bool is_bf16, int n, int parts)
{
    __m512 o[BATCH_ROWS][PARTS];
    const char *p[BATCH_ROWS] = { 0 };
    ZP_UNROLL
    for (int r = 0; r < n; r++) {
        p[r] = (const char *)b->p[r];
        ZP_UNROLL
        for (int c = 0; c < parts; c++)
            o[r][c] = _mm512_mul_ps(_mm512_maskz_loadu_ps(c == parts - 1 ? last : (__mmask16)0xffff,
                                                          b->o[r] + c0 + (size_t)c * LANES),
                                    _mm512_set1_ps(b->keep[r]));
    }
    size_t begin = is_bf16 ? j0 / 2 : j0, end = is_bf16 ? j1 / 2 : j1;
    for (size_t j = begin; j < end; j++)
        add_products(o, b->v + (j * d + c0) * 4, is_bf16 ? PAIR : F32, parts, last, p, j, n);
    if (is_bf16 && j1 % 2)
        add_products(o, b->v + (end * d + c0) * 4, FIRST, parts, last, p, end, n);
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
    score(b, d, is_bf16, n);
    uint64_t any = soften(b, n, is_bf16);
    size_t j0 = (size_t)__builtin_ctzll(any), j1 = 64 - (size_t)__builtin_clzll(any), c0 = 0;
    for (; c0 + TILE <= d; c0 += TILE)
        add_values(b, d, c0, 0xffff, j0, j1, is_bf16, n, PARTS);
    for (; c0 < d; c0 += LANES) {
        __mmask16 last = (__mmask16)(d - c0 >= LANES ? 0xffff : (1u << (d - c0)) - 1);
        add_values(b, d, c0, last, j0, j1, is_bf16, n, 1);
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
