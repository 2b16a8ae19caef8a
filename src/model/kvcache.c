/* kvcache.c: pages of 64 positions of one head, their owners and their reuse.
 * Owns: page memory, reference counts, page tables. Does not know: tokens, requests, threads.
 * Threads: the engine's caller only.
 * K1 a page is written only while its refcount is 1.  K2 a page is free iff its refcount is 0.
 * K3 bytes of tag kv == pages * page_bytes (tables: tag meta); nothing is allocated after
 *    kvcache_open and kv_table_open. */
#include "model/kvcache.h"

#include <assert.h>
#include <string.h>

/* Windowed heads keep this many positions behind their window, so that a short truncation needs no
 * recomputation. */
enum { KEEP_BEHIND = 256 };

size_t kvcache_page_bytes(const struct position *p, size_t element)
{
    return 2 * (size_t)KERN_TILE * p->d_head * element;
}

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

size_t kvcache_pages_needed(const struct position *p, uint32_t n_ctx, uint32_t micro_batch)
{
    size_t total = 0;
    for (uint32_t i = 0; i < p->n_layer * p->n_kv; i++)
        total += head_pages(p, i, n_ctx, micro_batch);
    return total;
}

zp_status kvcache_open(struct kvcache *c, const struct position *p, size_t element,
                       uint32_t micro_batch, uint64_t budget, zp_err *err)
{
    memset(c, 0, sizeof *c);
    c->position = p;
    c->n_heads = p->n_layer * p->n_kv;
    c->d_head = p->d_head;
    c->element = element;
    c->micro_batch = micro_batch;
    c->page_bytes = kvcache_page_bytes(p, element);
    c->n_pages = (size_t)(budget / c->page_bytes);
    ZP_FAIL_IF(c->n_pages < c->n_heads, err, ZP_NO_MEMORY,
               "KV budget of %llu bytes is too small for one page a head: %u heads need %llu bytes",
               (unsigned long long)budget, c->n_heads,
               (unsigned long long)(c->n_heads * c->page_bytes));
    ZP_FAIL_IF(c->n_pages > UINT32_MAX, err, ZP_BAD_INPUT, "KV budget of %llu bytes is too large",
               (unsigned long long)budget);
    c->memory = mem_alloc_huge(MEM_KV, c->n_pages * c->page_bytes);
    c->free_list = mem_array(MEM_META, c->n_pages, sizeof *c->free_list);
    c->refs = mem_zalloc(MEM_META, c->n_pages * sizeof *c->refs);
    if (!c->memory || !c->free_list || !c->refs) {
        unsigned long long bytes = (unsigned long long)(c->n_pages * c->page_bytes);
        kvcache_free(c);
        ZP_FAIL(err, ZP_NO_MEMORY, "not enough memory for %llu bytes of KV pages", bytes);
    }
    for (size_t i = 0; i < c->n_pages; i++) c->free_list[i] = (uint32_t)(c->n_pages - 1 - i);
    c->n_free = c->n_pages;
    return ZP_OK;
}

void kvcache_free(struct kvcache *c)
{
    if (c->memory) mem_free_huge(MEM_KV, c->memory, c->n_pages * c->page_bytes);
    mem_free(c->free_list);
    mem_free(c->refs);
    memset(c, 0, sizeof *c);
}

static uint32_t page_number(const struct kvcache *c, const void *k)
{
    return (uint32_t)((size_t)((const uint8_t *)k - c->memory) / c->page_bytes);
}

static void put_page(struct kvcache *c, struct kv_table *t, size_t at)
{
    if (!t->k[at]) return;
    uint32_t page = page_number(c, t->k[at]);
    assert(c->refs[page] > 0); /* K2 */
    if (--c->refs[page] == 0) c->free_list[c->n_free++] = page;
    t->k[at] = t->v[at] = NULL;
}

static void set_page(struct kvcache *c, struct kv_table *t, size_t at, uint32_t page)
{
    t->k[at] = c->memory + page * c->page_bytes;
    t->v[at] = c->memory + page * c->page_bytes + c->page_bytes / 2;
}

/* A fresh page, or a copy of a shared one (K1). The budget was checked. */
static void own_page(struct kvcache *c, struct kv_table *t, size_t at)
{
    if (t->k[at] && c->refs[page_number(c, t->k[at])] == 1) return;
    uint32_t page = c->free_list[--c->n_free];
    uint8_t *memory = c->memory + page * c->page_bytes;
    c->refs[page] = 1;
    if (t->k[at]) memcpy(memory, t->k[at], c->page_bytes);
    else
        memset(memory, 0,
               c->page_bytes); /* unwritten positions are finite: masked terms are exact zeros */
    put_page(c, t, at);
    set_page(c, t, at, page);
}

zp_status kv_table_open(struct kv_table *t, const struct kvcache *c, uint32_t n_ctx, zp_err *err)
{
    memset(t, 0, sizeof *t);
    t->n_tiles = (n_ctx + KERN_TILE - 1) / KERN_TILE;
    size_t n = (size_t)t->n_tiles * c->n_heads;
    t->k = mem_zalloc(MEM_META, n * sizeof *t->k);
    t->v = mem_zalloc(MEM_META, n * sizeof *t->v);
    if (t->k && t->v) return ZP_OK;
    mem_free(t->k);
    mem_free(t->v);
    memset(t, 0, sizeof *t);
    ZP_FAIL(err, ZP_NO_MEMORY, "not enough memory for the page table of a sequence of %u positions",
            n_ctx);
}

void kv_table_free(struct kv_table *t, struct kvcache *c)
{
    for (size_t i = 0; t->k && i < (size_t)t->n_tiles * c->n_heads; i++) put_page(c, t, i);
    mem_free(t->k);
    mem_free(t->v);
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
            put_page(c, t, (size_t)h * t->n_tiles + i - 1);
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
            held += k && (i < stay || c->refs[page_number(c, k)] == 1);
        }
        total += most > held ? most - held : 0;
    }
    return total;
}

zp_status kv_table_reserve(struct kv_table *t, struct kvcache *c, uint32_t n, uint32_t layer_begin,
                           uint32_t layer_end, zp_err *err)
{
    if (n == 0) return ZP_OK;
    ZP_FAIL_IF(n > t->n_tiles * KERN_TILE - t->length, err, ZP_BAD_INPUT,
               "%u tokens do not fit: the sequence holds %u of %u positions", n, t->length,
               t->n_tiles * KERN_TILE);
    give_back(t, c);
    uint32_t first = t->length / KERN_TILE, last = (t->length + n - 1) / KERN_TILE;
    uint32_t head_begin = layer_begin * c->position->n_kv, head_end = layer_end * c->position->n_kv;
    size_t need = 0;
    for (uint32_t h = head_begin; h < head_end; h++)
        for (uint32_t i = first; i <= last; i++) {
            const void *k = t->k[(size_t)h * t->n_tiles + i];
            need += !k || c->refs[page_number(c, k)] != 1;
        }
    ZP_FAIL_IF(need > c->n_free, err, ZP_NO_MEMORY,
               "KV budget is used up: %zu more pages of %zu bytes are needed, %zu of %zu are free; "
               "raise the KV budget, "
               "lower the context or close sequences",
               need, c->page_bytes, c->n_free, c->n_pages);
    for (uint32_t h = head_begin; h < head_end; h++)
        for (uint32_t i = first; i <= last; i++) own_page(c, t, (size_t)h * t->n_tiles + i);
    return ZP_OK;
}

/* Every page that a query at position n may read must still be there. */
static zp_status check_present(const struct kv_table *t, const struct kvcache *c, uint32_t n,
                               zp_err *err)
{
    for (uint32_t h = 0; h < c->n_heads; h++) {
        uint32_t first = position_seen(head_sight(c->position, h), n).first;
        for (uint32_t i = first / KERN_TILE; i < (n + KERN_TILE - 1) / KERN_TILE; i++)
            ZP_FAIL_IF(!t->k[(size_t)h * t->n_tiles + i], err, ZP_UNSUPPORTED,
                       "position %u lies behind a window whose pages were given back; compute the "
                       "tokens again",
                       n);
    }
    return ZP_OK;
}

zp_status kv_table_share(struct kv_table *to, const struct kv_table *from, struct kvcache *c,
                         uint32_t n, zp_err *err)
{
    ZP_FAIL_IF(n > from->length, err, ZP_BAD_INPUT, "cannot share %u positions of a sequence of %u",
               n, from->length);
    ZP_TRY(check_present(from, c, n, err));
    for (uint32_t h = 0; h < c->n_heads; h++)
        for (uint32_t i = 0; i < (n + KERN_TILE - 1) / KERN_TILE; i++) {
            const void *k = from->k[(size_t)h * from->n_tiles + i];
            if (!k) continue;
            c->refs[page_number(c, k)]++;
            set_page(c, to, (size_t)h * to->n_tiles + i, page_number(c, k));
        }
    to->length = n;
    return ZP_OK;
}

zp_status kv_table_truncate(struct kv_table *t, struct kvcache *c, uint32_t n, zp_err *err)
{
    ZP_FAIL_IF(n > t->length, err, ZP_BAD_INPUT, "cannot truncate a sequence of %u positions to %u",
               t->length, n);
    ZP_TRY(check_present(t, c, n, err));
    for (uint32_t h = 0; h < c->n_heads; h++)
        for (uint32_t i = (n + KERN_TILE - 1) / KERN_TILE; i < t->n_tiles; i++)
            put_page(c, t, (size_t)h * t->n_tiles + i);
    t->length = n;
    return ZP_OK;
}
