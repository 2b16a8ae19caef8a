/* kvcache.c: pages of 64 positions of one head, their owners and their reuse.
 * Owns: page tables. Does not know: tokens, requests, threads.
 * Threads: the engine's caller only.
 * K1 a page is written only while its refcount is 1.  K2, K5: pagepool.c.
 * K3 bytes of tag kv == pages * page_bytes of both pools (tables: tag meta); nothing is allocated
 *    after kvcache_open and kv_table_open.
 * K4 an 8-bit page is made once, of a full tile, and never written again: a sequence is cut at a
 *    multiple of 64 or inside its open tile. */
#include "model/kvcache.h"

#include <assert.h>
#include <string.h>

/* Windowed heads keep this many positions behind their window, so that a short truncation needs no
 * recomputation. */
enum { KEEP_BEHIND = 256 };

static struct position_sight head_sight(const struct position *p, uint32_t head)
{
    return position_head_sight(p, head / p->n_kv, head % p->n_kv);
}

struct kv_reach kvcache_reach(const struct kvcache *c, uint32_t head, uint32_t at)
{
    struct position_sight sight = head_sight(c->position, head);
    if (sight.window == 0) return (struct kv_reach){ .windowed = false };
    uint32_t first = position_seen(sight, at).first;
    uint32_t sinks = (c->position->n_sink + KERN_TILE - 1) / KERN_TILE;
    uint32_t gone = first < KEEP_BEHIND ? 0 : (first - KEEP_BEHIND) / KERN_TILE;
    return (struct kv_reach){ true, sinks, gone > sinks ? gone : sinks, first / KERN_TILE };
}

uint32_t kvcache_tiles(const struct kvcache *c, uint32_t length)
{
    return (length + (c->form == KV_Q8 ? 0 : KERN_TILE - 1)) / KERN_TILE;
}

/* Most pages a head holds at a time: all, or the sinks, its window, what is kept behind it and one
 * micro-batch. */
static size_t head_pages(const struct position *p, uint32_t head, size_t n_positions,
                         uint32_t micro_batch)
{
    size_t full = (n_positions + KERN_TILE - 1) / KERN_TILE, window = head_sight(p, head).window;
    size_t held = (window + KEEP_BEHIND + micro_batch) / KERN_TILE + 4;
    return window != 0 && held < full ? held : full;
}

static size_t page_bytes(const struct position *p, enum kv_form form)
{
    if (form == KV_Q8) return 2 * kern_q8_tile_bytes(p->d_head);
    return 2 * (size_t)KERN_TILE * p->d_head * (form == KV_F32 ? 4 : 2);
}

size_t kvcache_pages_needed(const struct position *p, uint32_t n_ctx, uint32_t micro_batch)
{
    size_t total = 0;
    for (uint32_t i = 0; i < p->n_layer * p->n_kv; i++)
        total += head_pages(p, i, n_ctx, micro_batch);
    return total;
}

/* A windowed head may come to own all it holds: what it shares goes back as the window moves. */
size_t kvcache_fork_pages(const struct position *p, uint32_t at, uint32_t n, uint32_t micro_batch)
{
    size_t total = 0;
    for (uint32_t i = 0; i < p->n_layer * p->n_kv; i++) {
        size_t most = head_pages(p, i, (size_t)at + n, micro_batch);
        total += head_sight(p, i).window ? most : most - at / KERN_TILE;
    }
    return total;
}

/* With a prefix tree a sequence that was cut inside a tile writes to a copy of it while the tree
 * still has the tile: one more page a head. Closed 8-bit pages are never written. */
struct kv_plan kvcache_plan(const struct position *p, enum kv_form form, uint32_t n_ctx,
                            uint32_t n_seq, uint32_t micro_batch, bool prefix)
{
    uint32_t n_heads = p->n_layer * p->n_kv;
    uint32_t most = n_ctx + (prefix && form != KV_Q8 ? KERN_TILE : 0);
    struct kv_plan plan = { .page_bytes = page_bytes(p, form),
                            .n_pages = n_seq * kvcache_pages_needed(p, most, micro_batch),
                            .prefix = prefix };
    if (form != KV_Q8) return plan;
    plan.open_bytes = page_bytes(p, KV_BF16);
    plan.n_open = (size_t)n_seq * n_heads;
    return plan;
}

uint64_t kv_plan_bytes(const struct kv_plan *plan)
{
    return (uint64_t)plan->n_pages * plan->page_bytes + (uint64_t)plan->n_open * plan->open_bytes;
}

void kv_plan_fit(struct kv_plan *plan, uint64_t budget)
{
    uint64_t open = (uint64_t)plan->n_open * plan->open_bytes;
    plan->n_pages = budget > open ? (size_t)((budget - open) / plan->page_bytes) : 0;
}

zp_status kvcache_open(struct kvcache *c, const struct position *p, enum kv_form form,
                       uint32_t micro_batch, const struct kv_plan *plan, zp_err *err)
{
    memset(c, 0, sizeof *c);
    c->form = form;
    c->position = p;
    c->n_heads = p->n_layer * p->n_kv;
    c->micro_batch = micro_batch;
    ZP_FAIL_IF(plan->n_pages < c->n_heads, err, ZP_NO_MEMORY,
               "the KV budget is too small for one page a head: %u heads need %llu bytes",
               c->n_heads,
               (unsigned long long)(c->n_heads * plan->page_bytes +
                                    plan->n_open * plan->open_bytes));
    ZP_FAIL_IF(plan->n_pages > UINT32_MAX || plan->n_open > UINT32_MAX, err, ZP_BAD_INPUT,
               "KV budget of %llu bytes is too large", (unsigned long long)kv_plan_bytes(plan));
    zp_status status = pagepool_open(&c->pages, plan->n_pages, plan->page_bytes, err);
    if (status == ZP_OK) status = pagepool_open(&c->open, plan->n_open, plan->open_bytes, err);
    if (status == ZP_OK && plan->prefix) status = prefix_open(&c->prefix, c, err);
    if (status != ZP_OK) kvcache_free(c);
    return status;
}

void kvcache_free(struct kvcache *c)
{
    prefix_free(&c->prefix);
    pagepool_free(&c->pages);
    pagepool_free(&c->open);
    memset(c, 0, sizeof *c);
}

uint64_t kvcache_bytes_seen(const struct kvcache *c, uint32_t layer_end, uint32_t at, uint32_t n)
{
    uint64_t pages = 0;
    for (uint32_t i = 0; i < layer_end * c->position->n_kv; i++) {
        struct position_seen seen = position_seen(head_sight(c->position, i), at);
        uint32_t sinks = (seen.n_sinks + KERN_TILE - 1) / KERN_TILE, first = seen.first / KERN_TILE;
        pages += (at + n + KERN_TILE - 1) / KERN_TILE - first + (sinks < first ? sinks : first);
    }
    return pages * c->pages.page_bytes;
}

/* ---- tables ---------------------------------------------------------------------------------- */

static void drop_tile(struct kvcache *c, struct kv_table *t, size_t at)
{
    pagepool_put(&c->pages, t->k[at]);
    t->k[at] = t->v[at] = NULL;
}

static void drop_open(struct kvcache *c, struct kv_table *t, uint32_t head)
{
    if (c->form != KV_Q8) return;
    pagepool_put(&c->open, t->open[head]);
    t->open[head] = NULL;
}

void kv_table_set(struct kv_table *t, const struct kvcache *c, size_t at, const void *page)
{
    t->k[at] = page;
    t->v[at] = (const uint8_t *)page + c->pages.page_bytes / 2;
}

zp_status kv_table_open(struct kv_table *t, const struct kvcache *c, uint32_t n_ctx, zp_err *err)
{
    memset(t, 0, sizeof *t);
    t->n_tiles = (n_ctx + KERN_TILE - 1) / KERN_TILE;
    size_t n = (size_t)t->n_tiles * c->n_heads, n_open = c->form == KV_Q8 ? c->n_heads : 0;
    t->k = mem_zalloc(MEM_META, n * sizeof *t->k);
    t->v = mem_zalloc(MEM_META, n * sizeof *t->v);
    t->open = mem_zalloc(MEM_META, n_open * sizeof *t->open);
    if (t->k && t->v && t->open) return ZP_OK;
    mem_free(t->k);
    mem_free(t->v);
    mem_free(t->open);
    memset(t, 0, sizeof *t);
    ZP_FAIL(err, ZP_NO_MEMORY, "not enough memory for the page table of a sequence of %u positions",
            n_ctx);
}

void kv_table_free(struct kv_table *t, struct kvcache *c)
{
    for (size_t i = 0; t->k && i < (size_t)t->n_tiles * c->n_heads; i++) drop_tile(c, t, i);
    for (uint32_t h = 0; t->open && h < c->n_heads; h++) drop_open(c, t, h);
    mem_free(t->k);
    mem_free(t->v);
    mem_free(t->open);
    memset(t, 0, sizeof *t);
}

static void give_back(struct kv_table *t, struct kvcache *c)
{
    for (uint32_t h = 0; h < c->n_heads; h++) {
        struct kv_reach reach = kvcache_reach(c, h, t->length);
        for (uint32_t i = reach.gone; i > reach.sinks && t->k[kv_table_at(t, h, i - 1)]; i--)
            drop_tile(c, t, kv_table_at(t, h, i - 1));
    }
}

/* Pages that t holds of a head and that need not be paid for again: they can be written to, stay,
 * or are given back in time. What the prefix tree holds as well is idle once it is given back. */
static size_t count_held(const struct kv_table *t, const struct kvcache *c, uint32_t head,
                         uint32_t tiles)
{
    size_t held = 0;
    uint32_t full = t->length / KERN_TILE;
    bool windowed = head_sight(c->position, head).window != 0;
    for (uint32_t i = 0; i < tiles; i++) {
        const void *k = t->k[kv_table_at(t, head, i)];
        if (!k) continue;
        if (i >= full) held += !pagepool_needs_page(&c->pages, k);
        else held += !windowed || pagepool_users(&c->pages, k) == 1;
    }
    return held;
}

/* Tiles whose pages are written when positions [length, length + n) are: all that are touched, or,
 * of an 8-bit cache, those that become full. */
struct tile_range {
    uint32_t begin, end;
};

static struct tile_range tiles_written(const struct kv_table *t, const struct kvcache *c,
                                       uint32_t n)
{
    uint32_t last = t->length + n + (c->form == KV_Q8 ? 0 : KERN_TILE - 1);
    return (struct tile_range){ t->length / KERN_TILE, last / KERN_TILE };
}

/* Pages that writing to those tiles takes. */
static size_t count_fresh(const struct kv_table *t, const struct kvcache *c, uint32_t head,
                          struct tile_range tiles)
{
    size_t n = 0;
    for (uint32_t i = tiles.begin; i < tiles.end; i++)
        n += pagepool_needs_page(&c->pages, t->k[kv_table_at(t, head, i)]);
    return n;
}

/* A windowed head takes one for each tile it writes, or, where it gives others back meanwhile, as
 * many as it may hold. */
size_t kv_table_pages_wanted(const struct kv_table *t, const struct kvcache *c, uint32_t n)
{
    size_t total = 0;
    uint32_t tiles = (t->length + n + KERN_TILE - 1) / KERN_TILE; /* none is held past them */
    for (uint32_t h = 0; h < c->n_heads; h++) {
        size_t held = count_held(t, c, h, tiles),
               fresh = count_fresh(t, c, h, tiles_written(t, c, n));
        size_t most = head_pages(c->position, h, (size_t)t->length + n, c->micro_batch);
        size_t more = most > held ? most - held : 0;
        total += more < fresh ? more : fresh;
    }
    return total;
}

size_t kv_table_open_wanted(const struct kv_table *t, const struct kvcache *c, uint32_t n)
{
    size_t total = 0;
    for (uint32_t h = 0; c->form == KV_Q8 && n && h < c->n_heads; h++)
        total += pagepool_needs_page(&c->open, t->open[h]);
    return total;
}

/* Whether a tile stays, or has been, partly full. */
static bool is_open(const struct kv_table *t, const struct kvcache *c, uint32_t n)
{
    return c->form == KV_Q8 && (t->length % KERN_TILE != 0 || (t->length + n) % KERN_TILE != 0);
}

/* Neighbours to look for where a head's tile i begins a new run: more for longer sequences. */
static unsigned run_for(uint32_t i)
{
    unsigned run = 4;
    while (run < 64 && run < i) run *= 2;
    return run;
}

static const void *page_before(const struct kv_table *t, size_t at, uint32_t tile)
{
    return tile ? t->k[at - 1] : NULL;
}

void kv_table_take(struct kv_table *t, struct kvcache *c, uint32_t head, uint32_t tile)
{
    size_t at = kv_table_at(t, head, tile);
    const void *before = page_before(t, at, tile);
    kv_table_set(t, c, at, pagepool_take(&c->pages, before, run_for(tile)));
}

static void own_tile(struct kv_table *t, struct kvcache *c, uint32_t head, uint32_t tile)
{
    size_t at = kv_table_at(t, head, tile);
    const void *before = page_before(t, at, tile);
    kv_table_set(t, c, at, pagepool_own(&c->pages, t->k[at], before, run_for(tile)));
}

zp_status kv_table_reserve(struct kv_table *t, struct kvcache *c, uint32_t n, uint32_t layer_begin,
                           uint32_t layer_end, zp_err *err)
{
    if (n == 0) return ZP_OK;
    ZP_FAIL_IF(n > t->n_tiles * KERN_TILE - t->length, err, ZP_BAD_INPUT,
               "%u tokens do not fit: the sequence holds %u of %u positions", n, t->length,
               t->n_tiles * KERN_TILE);
    give_back(t, c);
    struct tile_range tiles = tiles_written(t, c, n);
    uint32_t head_begin = layer_begin * c->position->n_kv, head_end = layer_end * c->position->n_kv;
    bool open = is_open(t, c, n);
    size_t need = 0, need_open = 0;
    for (uint32_t h = head_begin; h < head_end; h++) {
        need += count_fresh(t, c, h, tiles);
        need_open += open && pagepool_needs_page(&c->open, t->open[h]);
    }
    ZP_TRY(pagepool_check(&c->pages, need, err));
    ZP_TRY(pagepool_check(&c->open, need_open, err));
    prefix_make_room(&c->prefix, c, need);
    for (uint32_t h = head_begin; h < head_end; h++) {
        for (uint32_t i = tiles.begin; i < tiles.end; i++) own_tile(t, c, h, i);
        if (open) t->open[h] = pagepool_own(&c->open, t->open[h], NULL, 1);
    }
    return ZP_OK;
}

void kv_table_commit(struct kv_table *t, struct kvcache *c, uint32_t n)
{
    t->length += n;
    for (uint32_t h = 0; t->length % KERN_TILE == 0 && h < c->n_heads; h++) drop_open(c, t, h);
}

/* Every page that a query at position n may read must still be there. */
static zp_status check_present(const struct kv_table *t, const struct kvcache *c, uint32_t n,
                               zp_err *err)
{
    uint32_t end = kvcache_tiles(c, n);
    for (uint32_t h = 0; h < c->n_heads; h++) {
        for (uint32_t i = kvcache_reach(c, h, n).first; i < end; i++)
            ZP_FAIL_IF(!t->k[kv_table_at(t, h, i)], err, ZP_UNSUPPORTED,
                       "position %u lies behind a window whose pages were given back; compute the "
                       "tokens again",
                       n);
    }
    return ZP_OK;
}

uint32_t kv_table_cut(const struct kv_table *t, const struct kvcache *c, uint32_t n)
{
    bool inside = c->form == KV_Q8 && n / KERN_TILE != t->length / KERN_TILE;
    return inside ? n / KERN_TILE * KERN_TILE : n;
}

zp_status kv_table_share(struct kv_table *to, const struct kv_table *from, struct kvcache *c,
                         uint32_t n, zp_err *err)
{
    ZP_FAIL_IF(n > from->length, err, ZP_BAD_INPUT, "cannot share %u positions of a sequence of %u",
               n, from->length);
    assert(kv_table_cut(from, c, n) == n); /* K4 */
    ZP_TRY(check_present(from, c, n, err));
    uint32_t end = kvcache_tiles(c, n);
    for (uint32_t h = 0; h < c->n_heads; h++) {
        for (uint32_t i = 0; i < end; i++) {
            const void *k = from->k[kv_table_at(from, h, i)];
            if (!k) continue;
            pagepool_hold(&c->pages, k);
            kv_table_set(to, c, kv_table_at(to, h, i), k);
        }
        if (c->form != KV_Q8 || n % KERN_TILE == 0) continue;
        pagepool_hold(&c->open, from->open[h]);
        to->open[h] = from->open[h];
    }
    to->length = n;
    return ZP_OK;
}

zp_status kv_table_check_lent(const struct kv_table *from, const struct kvcache *c, uint32_t first,
                              uint32_t n, zp_err *err)
{
    for (uint32_t h = 0; h < c->n_heads; h++)
        for (uint32_t i = first / KERN_TILE; i < (first + n) / KERN_TILE; i++)
            ZP_FAIL_IF(!from->k[kv_table_at(from, h, i)], err, ZP_UNSUPPORTED,
                       "position %u lies behind a window whose pages were given back",
                       i * KERN_TILE);
    return ZP_OK;
}

void kv_table_append(struct kv_table *to, const struct kv_table *from, struct kvcache *c,
                     uint32_t first, uint32_t n)
{
    uint32_t begin = to->length / KERN_TILE;
    assert((to->length | first | n) % KERN_TILE == 0 && first + n <= from->length);
    for (uint32_t h = 0; h < c->n_heads; h++) {
        for (uint32_t i = 0; i < n / KERN_TILE; i++) {
            const void *k = from->k[kv_table_at(from, h, first / KERN_TILE + i)];
            pagepool_hold(&c->pages, k);
            kv_table_set(to, c, kv_table_at(to, h, begin + i), k);
        }
    }
    to->length += n;
}

zp_status kv_table_truncate(struct kv_table *t, struct kvcache *c, uint32_t n, zp_err *err)
{
    ZP_FAIL_IF(n > t->length, err, ZP_BAD_INPUT, "cannot truncate a sequence of %u positions to %u",
               t->length, n);
    assert(kv_table_cut(t, c, n) == n); /* K4 */
    ZP_TRY(check_present(t, c, n, err));
    for (uint32_t h = 0; h < c->n_heads; h++) {
        for (uint32_t i = (n + KERN_TILE - 1) / KERN_TILE; i < t->n_tiles; i++)
            drop_tile(c, t, kv_table_at(t, h, i));
        if (n % KERN_TILE == 0) drop_open(c, t, h);
    }
    t->length = n;
    return ZP_OK;
}

/* One micro-batch at most. */
static zp_status repeat_tiles(struct kv_table *t, struct kvcache *c, uint32_t n, zp_err *err)
{
    ZP_TRY(kv_table_reserve(t, c, n, 0, c->position->n_layer, err));
    struct tile_range tiles = tiles_written(t, c, n);
    for (uint32_t h = 0; h < c->n_heads; h++) {
        const void *const *k = t->k + kv_table_at(t, h, 0);
        for (uint32_t i = tiles.begin; i < tiles.end; i++)
            memcpy((void *)(uintptr_t)k[i], k[tiles.begin - 1], c->pages.page_bytes);
    }
    kv_table_commit(t, c, n);
    return ZP_OK;
}

zp_status kv_table_repeat(struct kv_table *t, struct kvcache *c, uint32_t n, zp_err *err)
{
    uint32_t most = c->micro_batch < KERN_TILE ? KERN_TILE : c->micro_batch / KERN_TILE * KERN_TILE;
    for (uint32_t left = n, step; left > 0; left -= step) {
        step = left < most ? left : most;
        ZP_TRY(repeat_tiles(t, c, step, err));
    }
    return ZP_OK;
}

zp_status kv_table_unshare(struct kv_table *t, struct kvcache *c, zp_err *err)
{
    size_t n = (size_t)t->n_tiles * c->n_heads, need = 0, need_open = 0;
    for (size_t i = 0; i < n; i++) need += t->k[i] && pagepool_needs_page(&c->pages, t->k[i]);
    for (uint32_t h = 0; c->form == KV_Q8 && h < c->n_heads; h++)
        need_open += t->open[h] && pagepool_needs_page(&c->open, t->open[h]);
    ZP_TRY(pagepool_check(&c->pages, need, err));
    ZP_TRY(pagepool_check(&c->open, need_open, err));
    prefix_make_room(&c->prefix, c, need);
    for (uint32_t h = 0; h < c->n_heads; h++) {
        for (uint32_t i = 0; i < t->n_tiles; i++)
            if (t->k[kv_table_at(t, h, i)]) own_tile(t, c, h, i);
        if (need_open && t->open[h]) t->open[h] = pagepool_own(&c->open, t->open[h], NULL, 1);
    }
    return ZP_OK;
}
