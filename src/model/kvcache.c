/* kvcache.c: pages of 64 positions of one head, their owners and their reuse.
 * Owns: page memory, reference counts, page tables. Does not know: tokens, requests, threads.
 * Threads: the engine's caller only.
 * K1 a page is written only while its refcount is 1.  K2 a page is free iff its refcount is 0.
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

struct kv_plan kvcache_plan(const struct position *p, enum kv_form form, uint32_t n_ctx,
                            uint32_t n_seq, uint32_t micro_batch)
{
    uint32_t n_heads = p->n_layer * p->n_kv;
    struct kv_plan plan = { .page_bytes = page_bytes(p, form),
                            .n_pages = n_seq * kvcache_pages_needed(p, n_ctx, micro_batch) };
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

/* ---- pools ----------------------------------------------------------------------------------- */

static size_t words_of(const struct page_pool *p)
{
    return (p->n_pages + 63) / 64;
}

static zp_status open_pool(struct page_pool *p, size_t n_pages, size_t page_bytes, zp_err *err)
{
    *p = (struct page_pool){ .page_bytes = page_bytes, .n_pages = n_pages, .n_free = n_pages };
    if (n_pages == 0) return ZP_OK;
    p->memory = mem_alloc_huge(MEM_KV, n_pages * page_bytes);
    p->free_bits = mem_zalloc(MEM_META, words_of(p) * sizeof *p->free_bits);
    p->refs = mem_zalloc(MEM_META, n_pages * sizeof *p->refs);
    ZP_FAIL_IF(!p->memory || !p->free_bits || !p->refs, err, ZP_NO_MEMORY,
               "not enough memory for %llu bytes of KV pages",
               (unsigned long long)(n_pages * page_bytes));
    for (size_t i = 0; i < n_pages; i++) p->free_bits[i / 64] |= 1ull << i % 64;
    return ZP_OK;
}

static void free_pool(struct page_pool *p)
{
    if (p->memory) mem_free_huge(MEM_KV, p->memory, p->n_pages * p->page_bytes);
    mem_free(p->free_bits);
    mem_free(p->refs);
}

static size_t number_of(const struct page_pool *p, const void *page)
{
    return (size_t)((const uint8_t *)page - p->memory) / p->page_bytes;
}

static uint32_t *refs_of(const struct page_pool *p, const void *page)
{
    return &p->refs[number_of(p, page)];
}

static void put_page(struct page_pool *p, const void *page)
{
    if (!page) return;
    uint32_t *refs = refs_of(p, page);
    assert(*refs > 0); /* K2 */
    if (--*refs != 0) return;
    size_t number = number_of(p, page);
    p->free_bits[number / 64] |= 1ull << number % 64;
    p->n_free++;
    if (number / 64 < p->look) p->look = number / 64;
}

/* The first of `run` free neighbours (a power of two up to 64, at a multiple of it), or
 * SIZE_MAX. */
static size_t find_run(struct page_pool *p, unsigned run)
{
    uint64_t all = run == 64 ? ~0ull : (1ull << run) - 1;
    while (p->look < words_of(p) && p->free_bits[p->look] == 0) p->look++;
    for (size_t word = p->look; word < words_of(p); word++)
        for (unsigned at = 0; at < 64 && p->free_bits[word]; at += run)
            if ((p->free_bits[word] >> at & all) == all) return word * 64 + at;
    return SIZE_MAX;
}

/* Takes a free page: the neighbour of the head's tile before, so that attention reads one ascending
 * stream (28 GB/s in runs of 16 pages where single ones give 11), or the first of as many free
 * neighbours as there are. There is a free page. */
static size_t take_page(struct page_pool *p, const void *before, unsigned run)
{
    size_t number = before ? number_of(p, before) + 1 : SIZE_MAX;
    bool next = number < p->n_pages && p->free_bits[number / 64] >> number % 64 & 1;
    for (; !next; run /= 2) {
        number = find_run(p, run);
        next = number != SIZE_MAX;
    }
    p->free_bits[number / 64] &= ~(1ull << number % 64);
    p->n_free--;
    p->refs[number] = 1;
    return number;
}

/* Whether writing to the page takes a fresh one: there is none, or others share it (K1). */
static bool needs_page(const struct page_pool *p, const void *page)
{
    return !page || *refs_of(p, page) != 1;
}

/* The page itself, or a fresh one: a copy of a shared page or zeros. Unwritten positions are finite
 * then, and masked terms exact zeros. The budget was checked. */
static const void *own_page(struct page_pool *p, const void *page, const void *before, unsigned run)
{
    if (!needs_page(p, page)) return page;
    uint8_t *memory = p->memory + take_page(p, before, run) * p->page_bytes;
    if (page) memcpy(memory, page, p->page_bytes);
    else memset(memory, 0, p->page_bytes);
    put_page(p, page);
    return memory;
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
    zp_status status = open_pool(&c->pages, plan->n_pages, plan->page_bytes, err);
    if (status == ZP_OK) status = open_pool(&c->open, plan->n_open, plan->open_bytes, err);
    if (status != ZP_OK) kvcache_free(c);
    return status;
}

void kvcache_free(struct kvcache *c)
{
    free_pool(&c->pages);
    free_pool(&c->open);
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
    put_page(&c->pages, t->k[at]);
    t->k[at] = t->v[at] = NULL;
}

static void drop_open(struct kvcache *c, struct kv_table *t, uint32_t head)
{
    if (c->form != KV_Q8) return;
    put_page(&c->open, t->open[head]);
    t->open[head] = NULL;
}

static void set_tile(struct kvcache *c, struct kv_table *t, size_t at, const void *page)
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

/* Tiles of a head that no query at or after position `at` can see: [*begin, *end). */
static void unreachable_tiles(const struct kvcache *c, uint32_t head, uint32_t at, uint32_t *begin,
                              uint32_t *end)
{
    uint32_t first = position_seen(head_sight(c->position, head), at).first;
    *begin = (c->position->n_sink + KERN_TILE - 1) / KERN_TILE;
    *end = first < KEEP_BEHIND ? 0 : (first - KEEP_BEHIND) / KERN_TILE;
}

static void give_back(struct kv_table *t, struct kvcache *c)
{
    for (uint32_t h = 0; h < c->n_heads; h++) {
        uint32_t begin, end;
        unreachable_tiles(c, h, t->length, &begin, &end);
        for (uint32_t i = end; i > begin && t->k[(size_t)h * t->n_tiles + i - 1]; i--)
            drop_tile(c, t, (size_t)h * t->n_tiles + i - 1);
    }
}

size_t kv_table_pages_wanted(const struct kv_table *t, const struct kvcache *c, uint32_t n)
{
    size_t total = 0;
    uint32_t tiles = (t->length + n + KERN_TILE - 1) / KERN_TILE; /* none is held past them */
    for (uint32_t h = 0; h < c->n_heads; h++) {
        size_t held = 0, most = head_pages(c->position, h, (size_t)t->length + n, c->micro_batch);
        /* shared pages that nothing writes to stay, where no window gives them back */
        uint32_t stay = head_sight(c->position, h).window ? 0 : t->length / KERN_TILE;
        for (uint32_t i = 0; i < tiles; i++) {
            const void *k = t->k[(size_t)h * t->n_tiles + i];
            held += k && (i < stay || !needs_page(&c->pages, k));
        }
        total += most > held ? most - held : 0;
    }
    return total;
}

size_t kv_table_open_wanted(const struct kv_table *t, const struct kvcache *c, uint32_t n)
{
    size_t total = 0;
    for (uint32_t h = 0; c->form == KV_Q8 && n && h < c->n_heads; h++)
        total += needs_page(&c->open, t->open[h]);
    return total;
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

/* Whether a tile stays, or has been, partly full. */
static bool is_open(const struct kv_table *t, const struct kvcache *c, uint32_t n)
{
    return c->form == KV_Q8 && (t->length % KERN_TILE != 0 || (t->length + n) % KERN_TILE != 0);
}

zp_status kvcache_check_free(const struct page_pool *p, size_t need, zp_err *err)
{
    ZP_FAIL_IF(need > p->n_free, err, ZP_NO_MEMORY,
               "KV budget is used up: %zu more pages of %zu bytes are needed, %zu of %zu are free; "
               "raise the KV budget or the number of sequences, lower the context or close "
               "sequences",
               need, p->page_bytes, p->n_free, p->n_pages);
    return ZP_OK;
}

/* Neighbours to look for where a head's tile i begins a new run: more for longer sequences. */
static unsigned run_for(uint32_t i)
{
    unsigned run = 4;
    while (run < 64 && run < i) run *= 2;
    return run;
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
        for (uint32_t i = tiles.begin; i < tiles.end; i++)
            need += needs_page(&c->pages, t->k[(size_t)h * t->n_tiles + i]);
        need_open += open && needs_page(&c->open, t->open[h]);
    }
    ZP_TRY(kvcache_check_free(&c->pages, need, err));
    ZP_TRY(kvcache_check_free(&c->open, need_open, err));
    for (uint32_t h = head_begin; h < head_end; h++) {
        for (uint32_t i = tiles.begin; i < tiles.end; i++) {
            size_t at = (size_t)h * t->n_tiles + i;
            set_tile(c, t, at,
                     own_page(&c->pages, t->k[at], i ? t->k[at - 1] : NULL, run_for(i)));
        }
        if (open) t->open[h] = own_page(&c->open, t->open[h], NULL, 1);
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
    uint32_t end = (n + (c->form == KV_Q8 ? 0 : KERN_TILE - 1)) / KERN_TILE;
    for (uint32_t h = 0; h < c->n_heads; h++) {
        uint32_t first = position_seen(head_sight(c->position, h), n).first;
        for (uint32_t i = first / KERN_TILE; i < end; i++)
            ZP_FAIL_IF(!t->k[(size_t)h * t->n_tiles + i], err, ZP_UNSUPPORTED,
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
    uint32_t end = (n + (c->form == KV_Q8 ? 0 : KERN_TILE - 1)) / KERN_TILE;
    for (uint32_t h = 0; h < c->n_heads; h++) {
        for (uint32_t i = 0; i < end; i++) {
            const void *k = from->k[(size_t)h * from->n_tiles + i];
            if (!k) continue;
            ++*refs_of(&c->pages, k);
            set_tile(c, to, (size_t)h * to->n_tiles + i, k);
        }
        if (c->form != KV_Q8 || n % KERN_TILE == 0) continue;
        ++*refs_of(&c->open, from->open[h]);
        to->open[h] = from->open[h];
    }
    to->length = n;
    return ZP_OK;
}

zp_status kv_table_truncate(struct kv_table *t, struct kvcache *c, uint32_t n, zp_err *err)
{
    ZP_FAIL_IF(n > t->length, err, ZP_BAD_INPUT, "cannot truncate a sequence of %u positions to %u",
               t->length, n);
    assert(kv_table_cut(t, c, n) == n); /* K4 */
    ZP_TRY(check_present(t, c, n, err));
    for (uint32_t h = 0; h < c->n_heads; h++) {
        for (uint32_t i = (n + KERN_TILE - 1) / KERN_TILE; i < t->n_tiles; i++)
            drop_tile(c, t, (size_t)h * t->n_tiles + i);
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
        const void *const *k = t->k + (size_t)h * t->n_tiles;
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
    for (size_t i = 0; i < n; i++) need += t->k[i] && needs_page(&c->pages, t->k[i]);
    for (uint32_t h = 0; c->form == KV_Q8 && h < c->n_heads; h++)
        need_open += t->open[h] && needs_page(&c->open, t->open[h]);
    ZP_TRY(kvcache_check_free(&c->pages, need, err));
    ZP_TRY(kvcache_check_free(&c->open, need_open, err));
    for (size_t i = 0; i < n; i++) {
        uint32_t tile = (uint32_t)(i % t->n_tiles);
        if (t->k[i])
            set_tile(c, t, i,
                     own_page(&c->pages, t->k[i], tile ? t->k[i - 1] : NULL, run_for(tile)));
    }
    for (uint32_t h = 0; need_open && h < c->n_heads; h++)
        if (t->open[h]) t->open[h] = own_page(&c->open, t->open[h], NULL, 1);
    return ZP_OK;
}
