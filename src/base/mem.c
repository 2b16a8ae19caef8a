/* mem.c: the only caller of the C allocator. Owns: byte counters per tag, the injection countdown,
 * arena chunks.
 * M1 a block is preceded by one cache line that knows its tag and size, so freeing needs neither.
 * M2 live[tag] is the sum of the sizes asked for, headers not counted: plans compare with it byte
 *    by byte.
 * Threads: counters and injection are atomic; arenas belong to one thread. */
#include "mem.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "compiler.h"
#if ZP_ASAN
#include <sanitizer/asan_interface.h>
#endif

#define HEADER_BYTES 64
#define HEADER_MAGIC 0x7a65726f70652121u
#define SMALL_PAGE ((size_t)4096)
#define HUGE_PAGE ((size_t)2 << 20)
#define ARENA_CHUNK ((size_t)64 << 10)
#define ARENA_ALIGN 16

struct header {
    uint64_t magic;
    size_t size;
    enum mem_tag tag;
};
_Static_assert(sizeof(struct header) <= HEADER_BYTES, "header fits its cache line");

struct arena_chunk {
    struct arena_chunk *next;
    size_t size, used;
    size_t padding; /* keeps data 16-byte aligned */
    uint8_t data[];
};
_Static_assert(sizeof(struct arena_chunk) % ARENA_ALIGN == 0, "arena data is aligned");

static _Atomic uint64_t live[MEM_TAG_COUNT], peak[MEM_TAG_COUNT], allocations;
static _Atomic uint64_t live_total, peak_total;
static _Atomic uint64_t fail_countdown, fail_injected; /* countdown 0: off, 1: the next one fails */
static atomic_bool fail_for_ever;

static bool injected(void)
{
    uint64_t left = atomic_load_explicit(&fail_countdown, memory_order_relaxed);
    while (left != 0) {
        bool last = left == 1;
        uint64_t next = last && atomic_load(&fail_for_ever) ? 1 : left - 1;
        if (!atomic_compare_exchange_weak(&fail_countdown, &left, next)) continue;
        if (last) atomic_fetch_add(&fail_injected, 1);
        return last;
    }
    return false;
}

static void add_taken(_Atomic uint64_t *sum, _Atomic uint64_t *most, size_t size)
{
    uint64_t now = atomic_fetch_add(sum, size) + size;
    uint64_t top = atomic_load_explicit(most, memory_order_relaxed);
    while (top < now && !atomic_compare_exchange_weak(most, &top, now)) {
    }
}

static void count_taken(enum mem_tag tag, size_t size)
{
    add_taken(&live[tag], &peak[tag], size);
    add_taken(&live_total, &peak_total, size);
}

static void count_allocated(enum mem_tag tag, size_t size)
{
    count_taken(tag, size);
    atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed);
}

static void count_given(enum mem_tag tag, size_t size)
{
    uint64_t before = atomic_fetch_sub(&live[tag], size);
    assert(before >= size); /* M2 */
    atomic_fetch_sub(&live_total, size);
    ZP_UNUSED(before);
}

static struct header *header_of(void *p)
{
    struct header *h = (struct header *)(void *)((uint8_t *)p - HEADER_BYTES);
    assert(h->magic == HEADER_MAGIC); /* M1: a foreign, freed or overrun block */
    return h;
}

void *mem_alloc(enum mem_tag tag, size_t size)
{
    assert((unsigned)tag < MEM_TAG_COUNT);
    if (injected() || size > SIZE_MAX / 2) return NULL;
    void *block; /* of the exact size, so that a sanitizer sees the first byte beyond */
    if (posix_memalign(&block, HEADER_BYTES, HEADER_BYTES + size) != 0) return NULL;
    struct header *h = block;
    *h = (struct header){ .magic = HEADER_MAGIC, .size = size, .tag = tag };
    count_allocated(tag, size);
    return (uint8_t *)h + HEADER_BYTES;
}

void *mem_zalloc(enum mem_tag tag, size_t size)
{
    void *p = mem_alloc(tag, size);
    if (p != NULL) memset(p, 0, size);
    return p;
}

void *mem_array(enum mem_tag tag, size_t count, size_t size)
{
    size_t total;
    if (__builtin_mul_overflow(count, size, &total)) return NULL;
    return mem_alloc(tag, total);
}

void *mem_resize(enum mem_tag tag, void *p, size_t size)
{
    /* The C library's realloc keeps only 16-byte alignment, hence copy. */
    void *q = mem_alloc(tag, size);
    if (q == NULL || p == NULL) return q;
    size_t old = header_of(p)->size;
    memcpy(q, p, old < size ? old : size);
    mem_free(p);
    return q;
}

char *mem_strndup(enum mem_tag tag, const char *s, size_t n)
{
    size_t length = strnlen(s, n);
    char *copy = mem_alloc(tag, length + 1);
    if (copy == NULL) return NULL;
    memcpy(copy, s, length);
    copy[length] = '\0';
    return copy;
}

char *mem_strdup(enum mem_tag tag, const char *s)
{
    return mem_strndup(tag, s, SIZE_MAX);
}

void mem_free(void *p)
{
    if (p == NULL) return;
    struct header *h = header_of(p);
    count_given(h->tag, h->size);
    h->magic = 0;
    free(h);
}

void *mem_alloc_huge(enum mem_tag tag, size_t size)
{
    assert((unsigned)tag < MEM_TAG_COUNT);
    if (injected() || size > SIZE_MAX / 2) return NULL;
    size_t wanted = size == 0 ? 1 : size;
    /* One huge page more than needed, then the ends are given back: the block starts on a huge-page
     * boundary. */
    size_t slack = wanted >= HUGE_PAGE ? HUGE_PAGE : 0;
    uint8_t *base =
        mmap(NULL, wanted + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) return NULL;
    if (slack != 0) {
        size_t lead = (HUGE_PAGE - (uintptr_t)base % HUGE_PAGE) % HUGE_PAGE;
        size_t pages = (wanted + SMALL_PAGE - 1) / SMALL_PAGE * SMALL_PAGE;
        if (lead != 0) munmap(base, lead);
        base += lead;
        munmap(base + pages, slack - lead);
        (void)madvise(base, pages,
                      MADV_HUGEPAGE); /* advice only: without it the memory still works */
    }
    count_allocated(tag, size);
    return base;
}

void mem_count_mapped(enum mem_tag tag, size_t size)
{
    count_taken(tag, size);
}

void mem_count_unmapped(enum mem_tag tag, size_t size)
{
    count_given(tag, size);
}

void mem_guard(void *p, size_t size)
{
#if ZP_ASAN
    ASAN_POISON_MEMORY_REGION(p, size);
#else
    ZP_UNUSED(p), ZP_UNUSED(size);
#endif
}

void mem_free_huge(enum mem_tag tag, void *p, size_t size)
{
    if (p == NULL) return;
#if ZP_ASAN
    ASAN_UNPOISON_MEMORY_REGION(p, size);
#endif
    munmap(p, size == 0 ? 1 : size);
    count_given(tag, size);
}

void mem_stats_read(struct mem_stats *out)
{
    for (unsigned t = 0; t < MEM_TAG_COUNT; t++) {
        out->live[t] = atomic_load(&live[t]);
        out->peak[t] = atomic_load(&peak[t]);
    }
    out->peak_total = atomic_load(&peak_total);
    out->allocations = atomic_load(&allocations);
}

void mem_stats_restart(void)
{
    for (unsigned t = 0; t < MEM_TAG_COUNT; t++) atomic_store(&peak[t], atomic_load(&live[t]));
    atomic_store(&peak_total, atomic_load(&live_total));
}

const char *mem_tag_name(enum mem_tag tag)
{
    static const char *const names[] = {
#define TAG_NAME(name, text) text,
        MEM_TAGS(TAG_NAME)
#undef TAG_NAME
    };
    return (unsigned)tag < MEM_TAG_COUNT ? names[tag] : "unknown";
}

void mem_fail_at(uint64_t n, bool for_ever)
{
    atomic_store(&fail_countdown, 0);
    atomic_store(&fail_for_ever, for_ever);
    atomic_store(&fail_injected, 0);
    atomic_store(&fail_countdown, n);
}

uint64_t mem_fail_count(void)
{
    return atomic_load(&fail_injected);
}

void *arena_alloc(struct arena *a, size_t size)
{
    if (size > SIZE_MAX / 4) return NULL;
    size = (size + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
    struct arena_chunk *chunk = a->head;
    if (chunk == NULL || chunk->size - chunk->used < size) {
        size_t room = ZP_ASAN || size > ARENA_CHUNK / 2 ? size : ARENA_CHUNK;
        chunk = mem_zalloc(a->tag, sizeof *chunk + room);
        if (chunk == NULL) return NULL;
        chunk->size = room;
        /* A large block leaves the open chunk in front. */
        bool keep_head = a->head != NULL && room != ARENA_CHUNK;
        chunk->next = keep_head ? a->head->next : a->head;
        if (keep_head) a->head->next = chunk;
        else a->head = chunk;
    }
    void *p = chunk->data + chunk->used;
    chunk->used += size;
    return p;
}

void *arena_array(struct arena *a, size_t count, size_t size)
{
    size_t total;
    if (__builtin_mul_overflow(count, size, &total)) return NULL;
    return arena_alloc(a, total);
}

char *arena_strndup(struct arena *a, const char *s, size_t n)
{
    size_t length = strnlen(s, n);
    char *copy = arena_alloc(a, length + 1);
    if (copy != NULL) memcpy(copy, s, length);
    return copy;
}

void arena_free(struct arena *a)
{
    for (struct arena_chunk *chunk = a->head, *next; chunk != NULL; chunk = next) {
        next = chunk->next;
        mem_free(chunk);
    }
    a->head = NULL;
}
