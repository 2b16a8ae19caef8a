/* prefix.h: tiles that were computed once, by the tokens they begin with: other sequences that
 * begin alike take them over. A part of struct kvcache; an empty one keeps nothing. */
#ifndef MODEL_PREFIX_H
#define MODEL_PREFIX_H

#include <stddef.h>
#include <stdint.h>
#include "base/status.h"

struct kvcache;
struct kv_table;
struct position;
struct prefix_node;

/* What sequences share beside their tokens when their tiles have the same bits; salt: tenants that
 * must not learn of each other. All else that bits depend on (model, KV type, exact flag, kernels)
 * is the engine's, and a tree belongs to one engine. */
struct prefix_space {
    uint64_t mode, offset, salt;
};

struct prefix {
    struct prefix_node *nodes;  /* (n_nodes) */
    int32_t *ids;               /* (n_nodes, 64) */
    const void **pages;         /* (n_nodes, n_heads): page memory or NULL */
    uint32_t *buckets;          /* (mask + 1): first node of a hash value */
    uint32_t *stay;             /* (n_heads): tiles [0, stay) of a head stay with their node */
    uint32_t n_nodes, n_used;   /* room; nodes that hold a tile */
    uint32_t n_heads, mask;
    uint32_t free;              /* a list through the nodes */
    uint64_t bytes;             /* of all of the above */
    uint64_t now;               /* counts the walks from a root */
    uint64_t n_evicted;
    uint64_t key_mask;          /* tests: fewer bits of the keys, so that they collide */
};

/* Bytes of a tree over so many pages. */
uint64_t prefix_plan(const struct position *p, size_t n_pages);
zp_status prefix_open(struct prefix *x, const struct kvcache *c, zp_err *err);
void prefix_free(struct prefix *x); /* the pages are the pool's, which goes with it */

/* Keeps the first n tiles of a sequence, which are full, with these ids. Where the tree has a tile
 * already, the sequence goes on with the tree's pages. */
void prefix_insert(struct prefix *x, struct kvcache *c, struct kv_table *t,
                   const struct prefix_space *space, const int32_t *ids, uint32_t n);
/* Gives an empty table the tiles that begin as ids do, less than n positions. Returns how many. */
uint32_t prefix_reuse(struct prefix *x, struct kvcache *c, struct kv_table *t,
                      const struct prefix_space *space, const int32_t *ids, size_t n);
/* Gives up what was not used for longest until so many pages are free, of those free or idle. */
void prefix_make_room(struct prefix *x, struct kvcache *c, size_t n_pages);

#endif
