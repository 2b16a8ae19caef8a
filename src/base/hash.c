/* hash.c: XXH64: four lanes of 8 bytes each, then the rest byte by byte.
 * Owns: nothing. Threads: any. */
#include "hash.h"

#define P1 0x9E3779B185EBCA87u
#define P2 0xC2B2AE3D27D4EB4Fu
#define P3 0x165667B19E3779F9u
#define P4 0x85EBCA77C2B2AE63u
#define P5 0x27D4EB2F165667C5u

enum { LANES = 4, STRIPE = 32 };

static uint64_t rotate(uint64_t x, unsigned by)
{
    return x << by | x >> (64 - by);
}

/* Little-endian; compilers make one load of it. */
static uint64_t load(const uint8_t *p, unsigned bytes)
{
    uint64_t x = 0;
    for (unsigned i = 0; i < bytes; i++) x |= (uint64_t)p[i] << 8 * i;
    return x;
}

static uint64_t add_word(uint64_t lane, uint64_t word)
{
    return rotate(lane + word * P2, 31) * P1;
}

/* The stripes of [p, end), as many as are whole. */
static uint64_t hash_stripes(const uint8_t *p, const uint8_t *end, uint64_t seed)
{
    uint64_t a = seed + P1 + P2, b = seed + P2, c = seed, d = seed - P1;
    for (; end - p >= STRIPE; p += STRIPE) {
        a = add_word(a, load(p, 8));
        b = add_word(b, load(p + 8, 8));
        c = add_word(c, load(p + 16, 8));
        d = add_word(d, load(p + 24, 8));
    }
    uint64_t h = rotate(a, 1) + rotate(b, 7) + rotate(c, 12) + rotate(d, 18);
    const uint64_t lanes[LANES] = { a, b, c, d };
    for (int i = 0; i < LANES; i++) h = (h ^ add_word(0, lanes[i])) * P1 + P4;
    return h;
}

uint64_t hash_xxh64(const void *data, size_t size, uint64_t seed)
{
    const uint8_t *p = data;
    size_t striped = size - size % STRIPE;
    uint64_t h = striped ? hash_stripes(p, p + striped, seed) : seed + P5;
    h += size;
    for (p += striped, size -= striped; size >= 8; p += 8, size -= 8)
        h = rotate(h ^ add_word(0, load(p, 8)), 27) * P1 + P4;
    if (size >= 4) {
        h = rotate(h ^ load(p, 4) * P1, 23) * P2 + P3;
        p += 4, size -= 4;
    }
    for (; size; p++, size--) h = rotate(h ^ *p * P5, 11) * P1;
    h = (h ^ h >> 33) * P2;
    h = (h ^ h >> 29) * P3;
    return h ^ h >> 32;
}
