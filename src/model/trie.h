/* trie.h: a set of byte strings with a value each, walked byte by byte from any place of a text.
 * Immutable after the last addition. Node 0 is the root and also means "no such child". */
#ifndef MODEL_TRIE_H
#define MODEL_TRIE_H

#include "base/bytes.h"

#define TRIE_NO_VALUE (-1)

struct trie_edge {
    uint64_t key; /* node << 8 | byte, + 1; 0 = free */
    uint32_t child;
};
struct trie {
    struct trie_edge *edges; /* open-addressed */
    uint32_t mask, n_edges;
    int32_t *values; /* per node */
    uint32_t n_nodes, room;
    uint32_t first[256]; /* children of the root: the common miss costs one load */
};

/* Zero-initialise, then add. value >= 0; adding the same text again keeps the first value. */
zp_status trie_add(struct trie *t, const void *text, size_t size, int32_t value, zp_err *err);
void trie_free(struct trie *t);

uint32_t trie_step_inner(const struct trie *t, uint32_t node, uint8_t byte);

static inline uint32_t trie_step(const struct trie *t, uint32_t node, uint8_t byte)
{
    return node == 0 ? t->first[byte] : trie_step_inner(t, node, byte);
}

/* Length and value of the longest string of the set that begins the text; 0 if none. */
size_t trie_longest(const struct trie *t, const uint8_t *text, size_t size, int32_t *value);

#endif
