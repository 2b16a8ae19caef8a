/* pagepool.c: pages, reference counts, and which of them are free.
 * Owns: page memory. Does not know: what a page holds.
 * Threads: the engine's caller only.
 * K2 a page is free iff it has no reference.  K5 n_idle counts the kept pages with one reference:
 *    giving up all that the prefix tree holds makes so many pages free. */
#include "model/pagepool.h"

#include <assert.h>
#include <string.h>

static size_t words_of(const struct page_pool *p)
{
    return (p->n_pages + 63) / 64;
}

zp_status pagepool_open(struct page_pool *p, size_t n_pages, size_t page_bytes, zp_err *err)
{
    *p = (struct page_pool){ .page_bytes = page_bytes, .n_pages = n_pages, .n_free = n_pages };
    if (n_pages == 0) return ZP_OK;
    p->memory = mem_alloc_huge(MEM_KV, n_pages * page_bytes);
    p->free_bits = mem_zalloc(MEM_META, words_of(p) * sizeof *p->free_bits);
    p->refs = mem_zalloc(MEM_META, n_pages * sizeof *p->refs);
    p->kept = mem_zalloc(MEM_META, n_pages * sizeof *p->kept);
    ZP_FAIL_IF(!p->memory || !p->free_bits || !p->refs || !p->kept, err, ZP_NO_MEMORY,
               "not enough memory for %llu bytes of KV pages",
               (unsigned long long)(n_pages * page_bytes));
    for (size_t i = 0; i < n_pages; i++) p->free_bits[i / 64] |= 1ull << i % 64;
    return ZP_OK;
}

void pagepool_free(struct page_pool *p)
{
    if (p->memory) mem_free_huge(MEM_KV, p->memory, p->n_pages * p->page_bytes);
    mem_free(p->free_bits);
    mem_free(p->refs);
    mem_free(p->kept);
}

static size_t number_of(const struct page_pool *p, const void *page)
{
    return (size_t)((const uint8_t *)page - p->memory) / p->page_bytes;
}

/* The first of `run` free neighbours, at a multiple of it; or SIZE_MAX. */
static size_t find_run(struct page_pool *p, unsigned run)
{
    uint64_t all = run == 64 ? ~0ull : (1ull << run) - 1;
    while (p->look < words_of(p) && p->free_bits[p->look] == 0) p->look++;
    for (size_t word = p->look; word < words_of(p); word++)
        for (unsigned at = 0; at < 64 && p->free_bits[word]; at += run)
            if ((p->free_bits[word] >> at & all) == all) return word * 64 + at;
    return SIZE_MAX;
}

/* Neighbours, so that attention reads one ascending stream: 28 GB/s in runs of 16 pages where
 * single ones give 11. */
const void *pagepool_take(struct page_pool *p, const void *before, unsigned run)
{
    size_t number = before ? number_of(p, before) + 1 : SIZE_MAX;
    bool next = number < p->n_pages && p->free_bits[number / 64] >> number % 64 & 1;
    for (; !next; run /= 2) {
        assert(run > 0); /* a page is free */
        number = find_run(p, run);
        next = number != SIZE_MAX;
    }
    p->free_bits[number / 64] &= ~(1ull << number % 64);
    p->n_free--;
    p->refs[number] = 1;
    return p->memory + number * p->page_bytes;
}

void pagepool_hold(struct page_pool *p, const void *page)
{
    size_t i = number_of(p, page);
    p->n_idle -= p->kept[i] && p->refs[i] == 1;
    p->refs[i]++;
}

void pagepool_put(struct page_pool *p, const void *page)
{
    if (!page) return;
    size_t i = number_of(p, page);
    assert(p->refs[i] > p->kept[i]); /* K2 */
    if (--p->refs[i] != 0) {
        p->n_idle += p->kept[i] && p->refs[i] == 1;
        return;
    }
    p->free_bits[i / 64] |= 1ull << i % 64;
    p->n_free++;
    if (i / 64 < p->look) p->look = i / 64;
}

void pagepool_keep(struct page_pool *p, const void *page)
{
    size_t i = number_of(p, page);
    assert(p->refs[i] > 0 && !p->kept[i]);
    p->refs[i]++;
    p->kept[i] = true;
}

void pagepool_unkeep(struct page_pool *p, const void *page)
{
    size_t i = number_of(p, page);
    assert(p->kept[i]);
    p->n_idle -= p->refs[i] == 1;
    p->kept[i] = false;
    pagepool_put(p, page);
}

bool pagepool_needs_page(const struct page_pool *p, const void *page)
{
    return !page || p->refs[number_of(p, page)] != 1;
}

uint32_t pagepool_users(const struct page_pool *p, const void *page)
{
    size_t i = number_of(p, page);
    return p->refs[i] - p->kept[i];
}

/* Zeros, so that unwritten positions are finite, and masked terms exact zeros. */
const void *pagepool_own(struct page_pool *p, const void *page, const void *before, unsigned run)
{
    if (!pagepool_needs_page(p, page)) return page;
    const void *fresh = pagepool_take(p, before, run);
    void *memory = p->memory + number_of(p, fresh) * p->page_bytes;
    if (page) memcpy(memory, page, p->page_bytes);
    else memset(memory, 0, p->page_bytes);
    pagepool_put(p, page);
    return fresh;
}

zp_status pagepool_check(const struct page_pool *p, size_t need, zp_err *err)
{
    size_t have = p->n_free + p->n_idle;
    ZP_FAIL_IF(need > have, err, ZP_NO_MEMORY,
               "KV budget is used up: %zu more pages of %zu bytes are needed, %zu of %zu are free; "
               "raise the KV budget or the number of sequences, lower the context or close "
               "sequences",
               need, p->page_bytes, have, p->n_pages);
    return ZP_OK;
}
