/* kvcache.h: a fixed budget of KV pages and the page tables of sequences.
 * A page holds 64 positions (one tile) of K and of V of one KV head of one layer. With 8-bit pages
 * the tile a sequence writes to is open: bf16 in a page of its own kind, until it is full. */
#ifndef MODEL_KVCACHE_H
#define MODEL_KVCACHE_H

#include "kern/kern.h"
#include "model/pagepool.h"
#include "model/position.h"
#include "model/prefix.h"

enum kv_form { KV_F32, KV_BF16, KV_Q8 };

struct kvcache {
    enum kv_form form;
    struct page_pool pages, open; /* open: of 8-bit caches only */
    uint32_t n_heads;             /* n_layer * n_kv */
    uint32_t micro_batch;         /* most positions reserved at a time */
    const struct position *position;
    struct prefix prefix; /* empty unless it was asked for */
};

/* Pages and page tables of one sequence: arrays by (layer * n_kv + kv) then tile. */
struct kv_table {
    uint32_t n_tiles;    /* room a head */
    uint32_t length;     /* positions written */
    const void **k, **v; /* (n_heads, n_tiles): page memory or NULL; v = k + half a page */
    const void **open;   /* (n_heads): the tile at `length`, where partly full; or NULL */
};

/* Pages that one sequence of n_ctx positions needs at most. */
size_t kvcache_pages_needed(const struct position *p, uint32_t n_ctx, uint32_t micro_batch);
/* Most pages that a fork of `at` positions takes while it grows by n, beside those it shares. */
size_t kvcache_fork_pages(const struct position *p, uint32_t at, uint32_t n, uint32_t micro_batch);

/* What a cache is made of, for n_seq sequences of n_ctx positions and micro-batches. */
struct kv_plan {
    size_t page_bytes, n_pages; /* pages: at most */
    size_t open_bytes, n_open;
    bool prefix; /* a prefix tree comes with it */
};
struct kv_plan kvcache_plan(const struct position *p, enum kv_form form, uint32_t n_ctx,
                            uint32_t n_seq, uint32_t micro_batch, bool prefix);
uint64_t kv_plan_bytes(const struct kv_plan *plan);
/* Fewer or more pages, as fit into the budget. */
void kv_plan_fit(struct kv_plan *plan, uint64_t budget);

zp_status kvcache_open(struct kvcache *c, const struct position *p, enum kv_form form,
                       uint32_t micro_batch, const struct kv_plan *plan, zp_err *err);
void kvcache_free(struct kvcache *c);
/* Bytes of the pages in reach of queries at positions [at, at + n), in layers [0, layer_end). */
uint64_t kvcache_bytes_seen(const struct kvcache *c, uint32_t layer_end, uint32_t at, uint32_t n);

/* Tiles of a windowed head that a sequence of `at` positions needs: those before `sinks` for ever,
 * those from `first` on for its next query; nobody needs [sinks, gone) any more. 0 without a
 * window. */
struct kv_reach {
    bool windowed;
    uint32_t sinks, gone, first;
};
struct kv_reach kvcache_reach(const struct kvcache *c, uint32_t head, uint32_t at);
/* Tiles that have pages at a length: all touched, or the full ones of an 8-bit cache. */
uint32_t kvcache_tiles(const struct kvcache *c, uint32_t length);

zp_status kv_table_open(struct kv_table *t, const struct kvcache *c, uint32_t n_ctx, zp_err *err);
void kv_table_free(struct kv_table *t, struct kvcache *c);

/* Makes positions [length, length + n) of some layers writable: takes pages, copies shared ones
 * (K1). Checks the budget first: on ZP_NO_MEMORY nothing has changed. Pages that no later query can
 * reach are given back first. */
zp_status kv_table_reserve(struct kv_table *t, struct kvcache *c, uint32_t n, uint32_t layer_begin,
                           uint32_t layer_end, zp_err *err);
/* The reserved positions are written. */
void kv_table_commit(struct kv_table *t, struct kvcache *c, uint32_t n);
/* Appends n positions that are copies of the last tile: attention works as much with them. length
 * and n are whole tiles, length not 0. For measurements. */
zp_status kv_table_repeat(struct kv_table *t, struct kvcache *c, uint32_t n, zp_err *err);
/* Copies what it shares. For measurements. */
zp_status kv_table_unshare(struct kv_table *t, struct kvcache *c, zp_err *err);
/* Most pages that appending n positions in micro-batches may take at a time beyond those t owns
 * now. */
size_t kv_table_pages_wanted(const struct kv_table *t, const struct kvcache *c, uint32_t n);
/* Open pages that appending n positions may take. */
size_t kv_table_open_wanted(const struct kv_table *t, const struct kvcache *c, uint32_t n);
/* to: empty table of the same cache; shares the first n positions. Fails where a window has given
 * them back. */
zp_status kv_table_share(struct kv_table *to, const struct kv_table *from, struct kvcache *c,
                         uint32_t n, zp_err *err);
/* Whether `from` still has all pages of its full tiles [first, first + n), in positions. */
zp_status kv_table_check_lent(const struct kv_table *from, const struct kvcache *c, uint32_t first,
                              uint32_t n, zp_err *err);
/* Shares them behind the full tiles of `to`: checked before. */
void kv_table_append(struct kv_table *to, const struct kv_table *from, struct kvcache *c,
                     uint32_t first, uint32_t n);
zp_status kv_table_truncate(struct kv_table *t, struct kvcache *c, uint32_t n, zp_err *err);
/* The largest length <= n that t can be cut to or shared at: below n inside a closed 8-bit tile. */
uint32_t kv_table_cut(const struct kv_table *t, const struct kvcache *c, uint32_t n);
static inline size_t kv_table_at(const struct kv_table *t, uint32_t head, uint32_t tile)
{
    return (size_t)head * t->n_tiles + tile;
}
/* The table's reference to a page, in the place of `at`. */
void kv_table_set(struct kv_table *t, const struct kvcache *c, size_t at, const void *page);
/* A free page, whatever its bytes are, for a place that has none. There is one: pagepool_check said
 * so. */
void kv_table_take(struct kv_table *t, struct kvcache *c, uint32_t head, uint32_t tile);

#endif
