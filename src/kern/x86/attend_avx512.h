/* attend_avx512.h: attention over f32 and bf16 tiles, up to six query rows at a time, for the files
 * of levels avx512 and avx512bf16.
 * Scores: lane = position, 4 registers a row; values: lane = channel, 4 registers a row: 24
 * accumulators in both halves, K and V loads shared by the rows.
 *   f32   a step is one channel (scores) or position (values): one fused multiply-add
 *   bf16  a step is a pair of them, two fused multiply-adds, the odd one first. With BF16
 *         instructions that is vdpbf16ps, whose other side is pairs too (one-instruction asm,
 *         because gcc 12 copies accumulators around such builtins); without, each half of the
 *         tile's pairs is made floats, once for all rows where they are many, and q and the weights
 *         are floats already.
 * Each row's state takes the same steps whatever rows share the call (I1): one chain per lane, in
 * ascending channels and positions.
 * Tiles go outside, rows inside: a tile is read from memory once. */
#ifndef KERN_X86_ATTEND_AVX512_H
#define KERN_X86_ATTEND_AVX512_H

#include <immintrin.h>
#include <string.h>
#include "kern/kern_impl.h"
#include "kern/x86/soften_avx512.h"

enum { CHUNK = 64 }; /* channels whose q is made floats at a time */

/* What one step reads of a tile's 4 bytes: a float, a pair of bf16, or one of the pair; EVEN_ONLY
 * is a pair whose odd position may be unwritten. */
enum lane { WHOLE, PAIR, EVEN_ONLY, EVEN, ODD };

ZP_INLINE __m512i load_lane(const char *from, __mmask16 m, enum lane lane)
{
    __m512i w = _mm512_maskz_loadu_epi32(m, from);
    if (lane == EVEN_ONLY) return _mm512_and_si512(w, _mm512_set1_epi32(0xffff));
    if (lane == EVEN) return _mm512_slli_epi32(w, 16);
    if (lane == ODD) return _mm512_and_si512(w, _mm512_set1_epi32((int)0xffff0000));
    return w;
}

ZP_INLINE __m512 multiply_add(__m512 acc, __m512i w, __m512i x, enum lane lane)
{
    if (lane == PAIR || lane == EVEN_ONLY)
        __asm__("vdpbf16ps %2, %1, %0" : "+v"(acc) : "v"(w), "v"(x));
    else acc = _mm512_fmadd_ps(_mm512_castsi512_ps(x), _mm512_castsi512_ps(w), acc);
    return acc;
}

/* acc[r][c] += x[r] * (64 lanes at `from`); x[r] + 4 * at: a lane's counterpart, for all alike. */
ZP_INLINE void add_products(__m512 acc[BATCH_ROWS][PARTS], const char *from, enum lane lane,
                            int parts, __mmask16 last, const char *const x[BATCH_ROWS], size_t at,
                            int n)
{
    __m512i w[PARTS];
    ZP_UNROLL
    for (int c = 0; c < parts; c++)
        w[c] = load_lane(from + c * 64, c == parts - 1 ? last : (__mmask16)0xffff, lane);
    ZP_UNROLL
    for (int r = 0; r < n; r++) {
        int32_t word;
        memcpy(&word, x[r] + 4 * at, 4);
        __m512i xr = _mm512_set1_epi32(word);
        ZP_UNROLL
        for (int c = 0; c < parts; c++) acc[r][c] = multiply_add(acc[r][c], w[c], xr, lane);
    }
}

/* The same for pair i of K's channels or V's positions, odd first; row: bytes from one pair, or
 * WIDE half, to the next. */
ZP_INLINE void add_pair(__m512 acc[BATCH_ROWS][PARTS], const char *from, size_t row,
                        enum store store, bool has_odd, int parts, __mmask16 last,
                        const char *const x[BATCH_ROWS], size_t i, int n)
{
    if (HAS_BF16) {
        add_products(acc, from + i * row, has_odd ? PAIR : EVEN_ONLY, parts, last, x, i, n);
        return;
    }
    const char *even = from + (store == WIDE ? 2 * i : i) * row;
    const char *odd = store == WIDE ? even + row : even;
    if (has_odd)
        add_products(acc, odd, store == WIDE ? WHOLE : ODD, parts, last, x, 2 * i + 1, n);
    add_products(acc, even, store == WIDE ? WHOLE : EVEN, parts, last, x, 2 * i, n);
}

/* Channels [c0, c0 + n) of q as floats. */
ZP_INLINE void widen_q(const char *q, size_t c0, size_t n, float out[CHUNK])
{
    for (size_t i = 0; i < n; i += LANES) {
        __mmask16 m = (__mmask16)(n - i >= LANES ? 0xffff : (1u << (n - i)) - 1);
        __m512i x = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(m, q + 2 * (c0 + i)));
        _mm512_store_si512(out + i, _mm512_slli_epi32(x, 16));
    }
}

/* Scores of channels [c0, c1) of bf16 tiles. */
ZP_INLINE void score_pairs(__m512 s[BATCH_ROWS][PARTS], const struct attend_batch *b, size_t c0,
                           size_t c1, enum store store, int n)
{
    ZP_ALIGN(64) float wide[BATCH_ROWS][CHUNK];
    const char *q[BATCH_ROWS] = { 0 };
    const char *k = b->k + (store == WIDE ? c0 : c0 / 2) * TILE * 4;
    for (int r = 0; r < n; r++) {
        q[r] = HAS_BF16 ? b->q[r] + 2 * c0 : (const char *)wide[r];
        if (!HAS_BF16) widen_q(b->q[r], c0, c1 - c0, wide[r]);
    }
    for (size_t i = 0; i < (c1 - c0) / 2; i++) {
        if (!HAS_BF16 && store == PAIRS) fetch_next(b->k_next, (c0 / 2 + i) * TILE * 4, TILE * 4);
        add_pair(s, k, TILE * 4, store, true, PARTS, 0xffff, q, i, n);
    }
}

/* p[r] = scores of the tile. */
ZP_INLINE void score(struct attend_batch *b, size_t d, enum store store, int n)
{
    __m512 s[BATCH_ROWS][PARTS];
    ZP_UNROLL
    for (int r = 0; r < n; r++) {
        ZP_UNROLL
        for (int c = 0; c < PARTS; c++) s[r][c] = _mm512_setzero_ps();
    }
    for (size_t i = 0; store == FLOATS && i < d; i++)
        add_products(s, b->k + i * TILE * 4, WHOLE, PARTS, 0xffff, b->q, i, n);
    for (size_t c0 = 0; store != FLOATS && c0 < d; c0 += CHUNK)
        score_pairs(s, b, c0, d - c0 < CHUNK ? d : c0 + CHUNK, store, n);
    ZP_UNROLL
    for (int r = 0; r < n; r++) {
        ZP_UNROLL
        for (int c = 0; c < PARTS; c++) _mm512_store_ps(b->p[r] + c * LANES, s[r][c]);
    }
}

/* 16 * parts channels from c0 of the positions [j0, j1); `last` masks the last register. */
ZP_INLINE void add_values(struct attend_batch *b, size_t d, size_t c0, __mmask16 last, size_t j0,
                          size_t j1, enum store store, int n, int parts)
{
    __m512 o[BATCH_ROWS][PARTS];
    const char *p[BATCH_ROWS] = { 0 }, *v = b->v + c0 * 4;
    ZP_UNROLL
    for (int r = 0; r < n; r++) {
        p[r] = (const char *)b->p[r];
        ZP_UNROLL
        for (int c = 0; c < parts; c++)
            o[r][c] = _mm512_mul_ps(_mm512_maskz_loadu_ps(c == parts - 1 ? last : (__mmask16)0xffff,
                                                          b->o[r] + c0 + (size_t)c * LANES),
                                    _mm512_set1_ps(b->keep[r]));
    }
    for (size_t j = j0; store == FLOATS && j < j1; j++)
        add_products(o, v + j * d * 4, WHOLE, parts, last, p, j, n);
    for (size_t j = j0 / 2; store != FLOATS && j < j1 / 2; j++) {
        if (!HAS_BF16 && store == PAIRS)
            fetch_next(b->v_next, (j * d + c0) * 4, (size_t)parts * 64);
        add_pair(o, v, d * 4, store, true, parts, last, p, j, n);
    }
    if (store != FLOATS && j1 % 2) add_pair(o, v, d * 4, store, false, parts, last, p, j1 / 2, n);
    ZP_UNROLL
    for (int r = 0; r < n; r++) {
        ZP_UNROLL
        for (int c = 0; c < parts; c++)
            _mm512_mask_storeu_ps(b->o[r] + c0 + (size_t)c * LANES,
                                  c == parts - 1 ? last : (__mmask16)0xffff, o[r][c]);
    }
}

ZP_INLINE void attend_step(struct attend_batch *b, size_t d, enum store store, int n)
{
    score(b, d, store, n);
    soften(b, n, store != FLOATS);
    uint64_t seen = b->seen[0];
    size_t j0 = (size_t)__builtin_ctzll(seen), j1 = 64 - (size_t)__builtin_clzll(seen), c0 = 0;
    for (; c0 + TILE <= d; c0 += TILE)
        add_values(b, d, c0, 0xffff, j0, j1, store, n, PARTS);
    for (; c0 < d; c0 += LANES) {
        __mmask16 last = (__mmask16)(d - c0 >= LANES ? 0xffff : (1u << (d - c0)) - 1);
        add_values(b, d, c0, last, j0, j1, store, n, 1);
    }
}

ZP_INLINE void attend_batch(struct attend_batch *b, size_t d, enum store store)
{
    switch (b->n) { /* the number of rows becomes a constant */
    case 1: attend_step(b, d, store, 1); break;
    case 2: attend_step(b, d, store, 2); break;
    case 3: attend_step(b, d, store, 3); break;
    case 4: attend_step(b, d, store, 4); break;
    case 5: attend_step(b, d, store, 5); break;
    default: attend_step(b, d, store, 6); break;
    }
}

ZP_INLINE void attend(const struct kern_attend *a, enum store store)
{
    struct attend_batch b;
    struct attend_walk walk = { a->tile_begin, 0 };
    while (attend_next(a, &walk, &b)) attend_batch(&b, a->d, store);
}

#endif
