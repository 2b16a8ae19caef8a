/* pagepool.h: a fixed number of pages of one size, counted references, and which of them the prefix
 * tree holds. */
#ifndef MODEL_PAGEPOOL_H
#define MODEL_PAGEPOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/mem.h"

struct page_pool {
    uint8_t *memory; /* n_pages * page_bytes */
    size_t page_bytes, n_pages, n_free;
    size_t n_idle;       /* pages that nobody but the prefix tree holds */
    uint64_t *free_bits; /* bit i % 64 of word i / 64: page i is free */
    uint32_t *refs;      /* (n_pages) */
    bool *kept;          /* (n_pages) one of the references is the prefix tree's */
    size_t look;         /* no word before it has a free page */
};

zp_status pagepool_open(struct page_pool *p, size_t n_pages, size_t page_bytes, zp_err *err);
void pagepool_free(struct page_pool *p);

/* A free page, one reference, whatever its bytes are: the neighbour behind `before` (or NULL), else
 * the first of `run` free neighbours (a power of two up to 64), or of as many as there are. There
 * is a free page: pagepool_check said so. */
const void *pagepool_take(struct page_pool *p, const void *before, unsigned run);
/* The page itself where its holder is the only one; else a fresh one: a copy of a shared page, or
 * zeros for NULL. Takes the place of the holder's reference. */
const void *pagepool_own(struct page_pool *p, const void *page, const void *before, unsigned run);
void pagepool_hold(struct page_pool *p, const void *page); /* one more reference */
void pagepool_put(struct page_pool *p, const void *page);  /* one less; page may be NULL */
/* A reference of the prefix tree's, which has at most one to a page. */
void pagepool_keep(struct page_pool *p, const void *page);
void pagepool_unkeep(struct page_pool *p, const void *page);

/* Whether writing to the page takes a fresh one: there is none, or others hold it too (K1). */
bool pagepool_needs_page(const struct page_pool *p, const void *page);
uint32_t pagepool_users(const struct page_pool *p, const void *page); /* the prefix tree left out */
/* That `need` pages are free, or would be without the prefix tree. */
zp_status pagepool_check(const struct page_pool *p, size_t need, zp_err *err);

#endif
