/* rng.c: Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3; SC
 * 2011).
 * Key = seed, counter = (index, stream). Draw i of a stream is half i % 2 of block i / 2: 64 bits,
 * whatever the caller
 * makes of it, so that the i-th call on a fresh stream equals rng_unit_at(seed, stream, i). */
#include "rng.h"

#include <assert.h>
#include <math.h>

#define ROUNDS 10
#define TWO_PI 6.283185307179586476925287

struct rng rng_stream(uint64_t seed, uint64_t stream)
{
    return (struct rng){ .seed = seed, .stream = stream, .at = 0 };
}

void rng_block(uint64_t seed, uint64_t stream, uint64_t index, uint32_t out[4])
{
    uint32_t c0 = (uint32_t)index, c1 = (uint32_t)(index >> 32);
    uint32_t c2 = (uint32_t)stream, c3 = (uint32_t)(stream >> 32);
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c0 = n0;
        c1 = (uint32_t)p1;
        c2 = n2;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u; /* golden ratio */
        k1 += 0xBB67AE85u; /* sqrt(3) - 1 */
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

static uint64_t draw_at(uint64_t seed, uint64_t stream, uint64_t index)
{
    uint32_t block[4];
    rng_block(seed, stream, index / 2, block);
    unsigned half = (unsigned)(index % 2) * 2;
    return (uint64_t)block[half + 1] << 32 | block[half];
}

static double unit_of(uint64_t bits)
{
    return (double)(bits >> 11) * 0x1p-53;
}

uint64_t rng_u64(struct rng *r)
{
    return draw_at(r->seed, r->stream, r->at++);
}

uint32_t rng_u32(struct rng *r)
{
    return (uint32_t)rng_u64(r);
}

double rng_unit(struct rng *r)
{
    return unit_of(rng_u64(r));
}

double rng_unit_at(uint64_t seed, uint64_t stream, uint64_t index)
{
    return unit_of(draw_at(seed, stream, index));
}

uint64_t rng_below(struct rng *r, uint64_t n)
{
    assert(n >= 1);
    /* Draws under 2^64 mod n would make small results more likely; they are thrown away. */
    uint64_t unfair = (0 - n) % n, bits;
    do bits = rng_u64(r);
    while (bits < unfair);
    return bits % n;
}

float rng_normal(struct rng *r)
{
    uint64_t bits = rng_u64(r);
    double radius = ((double)(uint32_t)bits + 0.5) * 0x1p-32; /* (0, 1): the logarithm is finite */
    double angle = (double)(bits >> 32) * 0x1p-32;
    return (float)(sqrt(-2.0 * log(radius)) * cos(TWO_PI * angle));
}
