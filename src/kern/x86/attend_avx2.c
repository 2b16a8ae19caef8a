/* attend_avx2.c: attention over 64-position tiles, up to six query rows at a time, 16 lanes in two
 * registers: 12 accumulators. Passes over the tile's four slices of 16 positions (scores) and over
 * slices of 16 channels (values). Where a bf16 tile serves many rows it is made floats first. Steps
 * and orders are those of attend_avx512.h: the same bits. */
#include <immintrin.h>
#include <string.h>
#include "kern/kern_impl.h"
#include "kern/x86/soften_avx2.h"

enum { WIDE_D = 256 }; /* most channels of a head whose tiles are made floats */

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

/* acc[r] += x[r] * (16 lanes at `from`). All types take 4 bytes a lane: a float or a pair.
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

/* The same for pair i of K's channels or V's positions, odd first; row: bytes from one pair, or
 * WIDE half, to the next. */
ZP_INLINE void add_pair(__m256 acc[BATCH_ROWS][2], const char *from, size_t row, enum store store,
                        bool has_odd, const __m256i *mask, const char *const x[BATCH_ROWS],
                        size_t i, int n)
{
    const char *even = from + (store == WIDE ? 2 * i : i) * row;
    if (store == WIDE) {
        if (has_odd) add_products(acc, even + row, WHOLE, mask, x, 2 * i + 1, n);
        add_products(acc, even, WHOLE, mask, x, 2 * i, n);
        return;
    }
    if (has_odd) add_products(acc, even, HIGH, mask, x, i, n);
    add_products(acc, even, LOW, mask, x, i, n);
}

/* p[r] = scores of 16 positions. */
ZP_INLINE void score(struct attend_batch *b, size_t d, int slice, enum store store, int n)
{
    __m256 s[BATCH_ROWS][2];
    ZP_UNROLL
    for (int r = 0; r < n; r++) s[r][0] = s[r][1] = _mm256_setzero_ps();
    const char *k = b->k + (size_t)slice * LANES * 4;
    for (size_t i = 0; store == FLOATS && i < d; i++)
        add_products(s, k + i * TILE * 4, WHOLE, NULL, b->q, i, n);
    for (size_t i = 0; store != FLOATS && i < d / 2; i++)
        add_pair(s, k, TILE * 4, store, true, NULL, b->q, i, n);
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
                          size_t j0, size_t j1, enum store store, int n)
{
    const __m256i *upper = mask ? mask + 1 : NULL;
    const char *p[BATCH_ROWS] = { 0 }, *v = b->v + c0 * 4;
    __m256 o[BATCH_ROWS][2];
    ZP_UNROLL
    for (int r = 0; r < n; r++) {
        __m256 keep = _mm256_set1_ps(b->keep[r]);
        p[r] = (const char *)b->p[r];
        o[r][0] = _mm256_mul_ps(load_state(b->o[r] + c0, mask), keep);
        o[r][1] = _mm256_mul_ps(load_state(b->o[r] + c0 + HALF, upper), keep);
    }
    for (size_t j = j0; store == FLOATS && j < j1; j++)
        add_products(o, v + j * d * 4, WHOLE, mask, p, j, n);
    for (size_t j = j0 / 2; store != FLOATS && j < (j1 + 1) / 2; j++) /* j1 may be unwritten */
        add_pair(o, v, d * 4, store, 2 * j + 1 < j1, mask, p, j, n);
    ZP_UNROLL
    for (int r = 0; r < n; r++) {
        store_state(b->o[r] + c0, mask, o[r][0]);
        store_state(b->o[r] + c0 + HALF, upper, o[r][1]);
    }
}

ZP_INLINE void attend_step(struct attend_batch *b, size_t d, enum store store, int n)
{
    for (int slice = 0; slice < SLICES; slice++) score(b, d, slice, store, n);
    for (int r = 0; r < n; r++) {
        soften(b, r, store != FLOATS);
        if (store == PAIRS) pack_pairs(b->p[r]);
    }
    uint64_t seen = b->seen[0];
    size_t j0 = (size_t)__builtin_ctzll(seen), j1 = 64 - (size_t)__builtin_clzll(seen);
    size_t c0 = 0;
    for (; c0 + LANES <= d; c0 += LANES) add_values(b, d, c0, NULL, j0, j1, store, n);
    if (c0 == d) return;
    size_t left = d - c0;
    const __m256i mask[2] = { first_lanes(left), first_lanes(left > HALF ? left - HALF : 0) };
    add_values(b, d, c0, mask, j0, j1, store, n);
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

void attend_f32_avx2(const struct kern_attend *a)
{
    attend(a, FLOATS);
}

/* (rows, width, 2) bf16 as (2 * rows, width) floats. */
static void widen_tile(const char *from, size_t rows, size_t width, float *out)
{
    for (size_t i = 0; i < rows; i++, from += width * 4, out += 2 * width) {
        size_t c = 0;
        for (; c + HALF <= width; c += HALF) {
            _mm256_storeu_ps(out + c, load8(from + c * 4, NULL, LOW));
            _mm256_storeu_ps(out + width + c, load8(from + c * 4, NULL, HIGH));
        }
        const __m256i left = first_lanes(width - c);
        _mm256_maskstore_ps(out + c, left, load8(from + c * 4, &left, LOW));
        _mm256_maskstore_ps(out + width + c, left, load8(from + c * 4, &left, HIGH));
    }
}

static void widen_row(const char *from, size_t n, float *out)
{
    for (size_t i = 0; i < n; i++) {
        uint16_t h;
        memcpy(&h, from + 2 * i, 2);
        out[i] = bf16_to_f32(h);
    }
}

/* For many rows: each tile is made floats once, and q for each tile. */
static void attend_widened(const struct kern_attend *a)
{
    float *k = a->room, *v = k + TILE * a->d, q[BATCH_ROWS][WIDE_D];
    struct attend_batch b;
    struct attend_walk walk = { a->tile_begin, 0 };
    const char *widened = NULL;
    while (attend_next(a, &walk, &b)) {
        if (widened != b.k) {
            widen_tile(b.k, a->d / 2, TILE, k);
            widen_tile(b.v, TILE / 2, a->d, v);
            widened = b.k;
        }
        b.k = (const char *)k;
        b.v = (const char *)v;
        for (int r = 0; r < b.n; r++) {
            widen_row(b.q[r], a->d, q[r]);
            b.q[r] = (const char *)q[r];
        }
        attend_batch(&b, a->d, WIDE);
    }
}

void attend_bf16_avx2(const struct kern_attend *a)
{
    if (a->n_rows >= WIDE_ROWS && a->room && a->d <= WIDE_D) attend_widened(a);
    else attend(a, PAIRS);
}
