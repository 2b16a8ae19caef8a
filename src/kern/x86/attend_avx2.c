/* attend_avx2.c: attention over 64-position tiles, up to six query rows at a time, 16 lanes in two
 * registers: 12 accumulators. Passes over the tile's four slices of 16 positions (scores) and over
 * slices of 16 channels (values). Steps and orders are those of attend_avx512.c: the same bits. */
#include <immintrin.h>
#include <string.h>
#include "kern/kern_impl.h"
#include "kern/x86/soften_avx2.h"

/* How a register of 8 values is made: f32 as it is, bf16 from the low or high half of pairs. */
enum half { WHOLE, LOW, HIGH };

ZP_INLINE __m256 load8(const char *from, const __m256i *mask, enum half half)
{
    const float *f = (const float *)(const void *)from;
    __m256 v = mask ? _mm256_maskload_ps(f, *mask) : _mm256_loadu_ps(f);
    if (half == WHOLE) return v;
    __m256i pairs = _mm256_castps_si256(v);
    if (half == LOW) return _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16));
    return _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32((int)0xffff0000)));
}

/* A float, or half of a bf16 pair, in all lanes. */
ZP_INLINE __m256 broadcast(const char *x, enum half half)
{
    int32_t word;
    memcpy(&word, x, 4);
    if (half == LOW) word = (int32_t)((uint32_t)word << 16);
    if (half == HIGH) word &= (int32_t)0xffff0000;
    return _mm256_castsi256_ps(_mm256_set1_epi32(word));
}

/* acc[r] += x[r] * (16 lanes at `from`). Both types take 4 bytes a lane: a float or a pair.
 * mask: two registers, or NULL where all lanes exist. */
ZP_INLINE void add_products(__m256 acc[BATCH_ROWS][2], const char *from, enum half half,
                            const __m256i *mask, const char *const x[BATCH_ROWS], size_t at, int n)
{
    __m256 w0 = load8(from, mask, half), w1 = load8(from + 32, mask ? mask + 1 : NULL, half);
    ZP_UNROLL
    for (int r = 0; r < n; r++) {
        __m256 xr = broadcast(x[r] + at * 4, half);
        acc[r][0] = _mm256_fmadd_ps(xr, w0, acc[r][0]);
        acc[r][1] = _mm256_fmadd_ps(xr, w1, acc[r][1]);
    }
}

/* p[r] = scores of 16 positions. */
ZP_INLINE void score(struct attend_batch *b, const char *k, size_t d, int slice,
                     bool is_bf16, int n)
{
    __m256 s[BATCH_ROWS][2];
    ZP_UNROLL
    for (int r = 0; r < n; r++) s[r][0] = s[r][1] = _mm256_setzero_ps();
    size_t steps = is_bf16 ? d / 2 : d, at = (size_t)slice * LANES * 4;
    for (size_t i = 0; i < steps; i++, at += TILE * 4) {
        if (is_bf16) add_products(s, k + at, HIGH, NULL, b->q, i, n);
        add_products(s, k + at, is_bf16 ? LOW : WHOLE, NULL, b->q, i, n);
    }
    ZP_UNROLL
    for (int r = 0; r < n; r++) {
        _mm256_store_ps(b->p[r] + slice * LANES, s[r][0]);
        _mm256_store_ps(b->p[r] + slice * LANES + HALF, s[r][1]);
    }
}

ZP_INLINE __m256 load_state(const float *o, const __m256i *mask)
{
    return mask ? _mm256_maskload_ps(o, *mask) : _mm256_loadu_ps(o);
}

ZP_INLINE void store_state(float *o, const __m256i *mask, __m256 v)
{
    if (mask) _mm256_maskstore_ps(o, *mask, v);
    else _mm256_storeu_ps(o, v);
}

/* 16 channels from c0 of the positions [j0, j1). */
ZP_INLINE void add_values(struct attend_batch *b, size_t d, size_t c0, const __m256i *mask,
                          size_t j0, size_t j1, bool is_bf16, int n)
{
    const __m256i *upper = mask ? mask + 1 : NULL;
    const char *p[BATCH_ROWS] = { 0 };
    __m256 o[BATCH_ROWS][2];
    ZP_UNROLL
    for (int r = 0; r < n; r++) {
        __m256 keep = _mm256_set1_ps(b->keep[r]);
        p[r] = (const char *)b->p[r];
        o[r][0] = _mm256_mul_ps(load_state(b->o[r] + c0, mask), keep);
        o[r][1] = _mm256_mul_ps(load_state(b->o[r] + c0 + HALF, upper), keep);
    }
    size_t begin = is_bf16 ? j0 / 2 : j0, end = is_bf16 ? (j1 + 1) / 2 : j1;
    for (size_t j = begin; j < end; j++) {
        size_t at = (j * d + c0) * 4;
        /* the upper half of the last pair may be unwritten */
        if (is_bf16 && 2 * j + 1 < j1) add_products(o, b->v + at, HIGH, mask, p, j, n);
        add_products(o, b->v + at, is_bf16 ? LOW : WHOLE, mask, p, j, n);
    }
    ZP_UNROLL
    for (int r = 0; r < n; r++) {
        store_state(b->o[r] + c0, mask, o[r][0]);
        store_state(b->o[r] + c0 + HALF, upper, o[r][1]);
    }
}

ZP_INLINE void attend_step(struct attend_batch *b, size_t d, bool is_bf16, int n)
{
    for (int slice = 0; slice < SLICES; slice++) score(b, b->k, d, slice, is_bf16, n);
    uint64_t any = 0;
    for (int r = 0; r < n; r++) {
        soften(b, r, is_bf16);
        any |= b->seen[r];
    }
    size_t j0 = (size_t)__builtin_ctzll(any), j1 = 64 - (size_t)__builtin_clzll(any);
    size_t c0 = 0;
    for (; c0 + LANES <= d; c0 += LANES) add_values(b, d, c0, NULL, j0, j1, is_bf16, n);
    if (c0 == d) return;
    size_t left = d - c0;
    const __m256i mask[2] = { first_lanes(left), first_lanes(left > HALF ? left - HALF : 0) };
    add_values(b, d, c0, mask, j0, j1, is_bf16, n);
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

void attend_f32_avx2(const struct kern_attend *a)
{
    attend(a, false);
}

void attend_bf16_avx2(const struct kern_attend *a)
{
    attend(a, true);
}
