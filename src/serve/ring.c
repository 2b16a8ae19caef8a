/* ring.c: records of any size from one thread to another.
 * Owns: the memory between a writer and a reader, one thread each. Does not know: what a record is.
 * R1 a record is whole and in one piece: what does not fit before the end begins at the start
 *    again, behind a mark.
 * R2 head is written by the writer alone, tail by the reader alone; bytes between them belong to
 *    the reader, all others to the writer. */
#include "serve/ring.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"

enum { STEP = 16, LEAST = 1024 };

/* Before each record. */
struct mark {
    size_t bytes; /* to the next mark */
    bool skip;    /* nothing here: go on at the start */
} ZP_ALIGN(STEP);

zp_status ring_open(struct ring *r, size_t size, zp_err *err)
{
    *r = (struct ring){ .size = LEAST };
    ZP_FAIL_IF(size > SIZE_MAX / 4, err, ZP_USAGE, "a ring of %zu bytes", size);
    while (r->size < size) r->size *= 2;
    ZP_ALLOC(r->memory, MEM_SERVE, r->size, err, "messages between threads");
    return ZP_OK;
}

void ring_free(struct ring *r)
{
    mem_free(r->memory);
    r->memory = NULL;
}

size_t ring_most(const struct ring *r)
{
    return r->size / 2 - sizeof(struct mark);
}

static struct mark *mark_at(const struct ring *r, size_t at)
{
    return (struct mark *)(r->memory + (at & (r->size - 1)));
}

void *ring_reserve(struct ring *r, size_t size)
{
    assert(size <= ring_most(r));
    size_t bytes = sizeof(struct mark) + (size + STEP - 1) / STEP * STEP, skip = 0;
    size_t head = atomic_load_explicit(&r->head, memory_order_relaxed);
    size_t used = head - atomic_load(&r->tail);
    size_t to_end = r->size - (head & (r->size - 1));
    if (bytes > to_end) skip = to_end; /* R1 */
    if (skip + bytes > r->size - used) return NULL;
    if (skip) *mark_at(r, head) = (struct mark){ skip, true };
    struct mark *mark = mark_at(r, head + skip);
    *mark = (struct mark){ bytes, false };
    r->reserved = skip + bytes;
    return mark + 1;
}

void ring_commit(struct ring *r)
{
    size_t head = atomic_load_explicit(&r->head, memory_order_relaxed);
    atomic_store(&r->head, head + r->reserved);
}

/* Where the oldest record's mark is, behind what is skipped; false: there is none. */
static bool find(const struct ring *r, size_t *at)
{
    *at = atomic_load_explicit(&r->tail, memory_order_relaxed);
    if (*at == atomic_load(&r->head)) return false;
    const struct mark *mark = mark_at(r, *at);
    if (mark->skip) *at += mark->bytes;
    return true;
}

const void *ring_front(struct ring *r)
{
    size_t at;
    return find(r, &at) ? mark_at(r, at) + 1 : NULL;
}

void ring_release(struct ring *r)
{
    size_t at;
    if (find(r, &at)) atomic_store(&r->tail, at + mark_at(r, at)->bytes);
}
