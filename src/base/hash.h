/* hash.h: 64-bit hashes of bytes: a fast one of large blocks, to find damage and to tell contents
 * apart, and one with a secret key, whose values cannot be foreseen without it. */
#ifndef BASE_HASH_H
#define BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* XXH64 (Yann Collet, github.com/Cyan4973/xxHash, doc/xxhash_spec.md): the same on every machine,
 * some bytes a cycle. Not for adversaries. */
uint64_t hash_xxh64(const void *data, size_t size, uint64_t seed);

/* SipHash-2-4 (Aumasson, Bernstein: SipHash: a fast short-input PRF, 2012). Own code: OpenSSL's
 * takes a context from memory for each value, and the server's library may be absent. */
uint64_t hash_siphash(const void *data, size_t size, const uint8_t key[16]);

#endif
