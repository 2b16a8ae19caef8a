/* hash.c: XXH64, four lanes of 8 bytes each and the rest byte by byte; SipHash-2-4.
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

static void sip_round(uint64_t v[4])
{
    v[0] += v[1], v[1] = rotate(v[1], 13) ^ v[0], v[0] = rotate(v[0], 32);
    v[2] += v[3], v[3] = rotate(v[3], 16) ^ v[2];
    v[0] += v[3], v[3] = rotate(v[3], 21) ^ v[0];
    v[2] += v[1], v[1] = rotate(v[1], 17) ^ v[2], v[2] = rotate(v[2], 32);
}

static void sip_add_word(uint64_t v[4], uint64_t word)
{
    v[3] ^= word;
    for (int i = 0; i < 2; i++) sip_round(v);
    v[0] ^= word;
}

uint64_t hash_siphash(const void *data, size_t size, const uint8_t key[16])
{
    const uint8_t *p = data;
    uint64_t k0 = load(key, 8), k1 = load(key + 8, 8), last = (uint64_t)size << 56;
    uint64_t v[4] = { k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d,
                      k0 ^ 0x6c7967656e657261, k1 ^ 0x7465646279746573 };
    for (; size >= 8; p += 8, size -= 8) sip_add_word(v, load(p, 8));
    sip_add_word(v, last | load(p, (unsigned)size));
    v[2] ^= 0xff;
    for (int i = 0; i < 4; i++) sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}
