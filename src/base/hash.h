/* hash.h: a fast 64-bit hash of large blocks, to find damage and to tell contents apart. */
#ifndef BASE_HASH_H
#define BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* XXH64 (Yann Collet, github.com/Cyan4973/xxHash, doc/xxhash_spec.md): the same on every machine,
 * some bytes a cycle. Not for adversaries. */
uint64_t hash_xxh64(const void *data, size_t size, uint64_t seed);

#endif
