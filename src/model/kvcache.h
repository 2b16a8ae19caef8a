/* kvcache.h: a fixed budget of KV pages and the page tables of sequences.
 * A page holds 64 positions (one tile) of K and of V of one KV head of one layer. */
#ifndef MODEL_KVCACHE_H
#define MODEL_KVCACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/mem.h"
#include "kern/kern.h"
#include "model/position.h"

struct kvcache {
    uint8_t *memory; /* n_pages * page_bytes */
    size_t page_bytes, n_pages, n_free;
    uint32_t *free_list;    /* page numbers */
    uint32_t *refs;         /* (n_pages) */
    uint32_t n_heads;       /* n_layer * n_kv */
    size_t d_head, element; /* bytes of one number: 4 or 2 */
    uint32_t micro_batch;   /* most positions reserved at a time */
    const struct position *position;
};

/* Pages and page tables of one sequence: arrays by (layer * n_kv + kv) then tile. */
struct kv_table {
    uint32_t n_tiles;    /* room a head */
    uint32_t length;     /* positions written */
    const void **k, **v; /* (n_heads, n_tiles): page memory or NULL; v = k + half a page */
};

/* Page bytes of one head and the number of pages that n_seq sequences of n_ctx positions need at
 * most. */
size_t kvcache_page_bytes(const struct position *p, size_t element);
size_t kvcache_pages_needed(const struct position *p, uint32_t n_ctx, uint32_t micro_batch);

zp_status kvcache_open(struct kvcache *c, const struct position *p, size_t element,
                       uint32_t micro_batch, uint64_t budget, zp_err *err);
void kvcache_free(struct kvcache *c);

zp_status kv_table_open(struct kv_table *t, const struct kvcache *c, uint32_t n_ctx, zp_err *err);
void kv_table_free(struct kv_table *t, struct kvcache *c);

/* Makes positions [length, length + n) of some layers writable: takes pages, copies shared ones
 * (K1). Checks the budget first: on ZP_NO_MEMORY nothing has changed. Pages that no later query can
 * reach are given back first. */
zp_status kv_table_reserve(struct kv_table *t, struct kvcache *c, uint32_t n, uint32_t layer_begin,
                           uint32_t layer_end, zp_err *err);
/* Most pages that appending n positions in micro-batches may take at a time beyond those t owns
 * now. */
size_t kv_table_pages_wanted(const struct kv_table *t, const struct kvcache *c, uint32_t n);
/* to: empty table of the same cache; shares the first n positions. Fails where a window has given
 * them back. */
zp_status kv_table_share(struct kv_table *to, const struct kv_table *from, struct kvcache *c,
                         uint32_t n, zp_err *err);
zp_status kv_table_truncate(struct kv_table *t, struct kvcache *c, uint32_t n, zp_err *err);

#endif
