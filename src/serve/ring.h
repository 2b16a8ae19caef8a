/* ring.h: records of any size from one thread to another, without locks and without allocation:
 * the writer fills them where the reader reads them. */
#ifndef SERVE_RING_H
#define SERVE_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/status.h"

struct ring {
    uint8_t *memory;
    size_t size;     /* a power of two */
    size_t reserved; /* the writer's: bytes of the record it fills, with what is skipped before */
    _Atomic size_t head ZP_ALIGN(ZP_CACHE_LINE); /* bytes written, ever */
    _Atomic size_t tail ZP_ALIGN(ZP_CACHE_LINE); /* bytes released, ever */
};

/* size: at least, in bytes. */
zp_status ring_open(struct ring *r, size_t size, zp_err *err);
void ring_free(struct ring *r); /* a zeroed one is fine */
/* Bytes of the largest record; any of them fits into an empty ring. */
size_t ring_most(const struct ring *r);

/* The writer: room for a record at a multiple of 16, or NULL as long as there is none; size <=
 * ring_most. Readers see it after the commit. */
void *ring_reserve(struct ring *r, size_t size);
void ring_commit(struct ring *r);
/* The reader: the oldest record, or NULL; it stays until it is released. */
const void *ring_front(struct ring *r);
void ring_release(struct ring *r);

#endif
