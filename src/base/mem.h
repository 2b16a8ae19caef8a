/* mem.h: tagged, aligned allocation with live and peak byte counters, arenas, and N-th-failure
 * injection.
 * Every allocation of the library goes through here (a lint bans malloc elsewhere).
 * All functions are thread safe except arenas, which belong to one thread. */
#ifndef BASE_MEM_H
#define BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "status.h"

#define MEM_TAGS(X) X(META, "meta") X(WEIGHTS, "weights") X(KV, "kv") X(SCRATCH, "scratch") \
    X(POSITION, "position") X(TOKENIZER, "tokenizer") X(EVAP, "evap") X(TRAIN, "train") \
    X(PARAMETER, "parameters") X(GRADIENT, "gradients") X(OPTIMISER, "optimiser")       \
    X(ACTIVATION, "activations") X(PRODUCT, "products") X(SERVE, "serve")

enum mem_tag {
#define MEM_TAG_ENUM(name, text) MEM_##name,
    MEM_TAGS(MEM_TAG_ENUM)
#undef MEM_TAG_ENUM
    MEM_TAG_COUNT
};

struct mem_stats {
    uint64_t live[MEM_TAG_COUNT];  /* bytes asked for and not yet freed */
    uint64_t peak[MEM_TAG_COUNT];  /* most of a tag since mem_stats_restart, or ever */
    uint64_t peak_total;           /* most of all tags together at a time */
    uint64_t allocations;          /* calls that succeeded, ever */
};

/* Returns 64-byte aligned memory or NULL (out of memory or injected failure). size 0 returns a
 * valid pointer. */
void *mem_alloc(enum mem_tag tag, size_t size);
void *mem_zalloc(enum mem_tag tag, size_t size);
/* count * size with overflow check; NULL on overflow. */
void *mem_array(enum mem_tag tag, size_t count, size_t size);
/* Grows or shrinks; contents kept; on failure returns NULL and the old block stays valid. p may be
 * NULL. */
void *mem_resize(enum mem_tag tag, void *p, size_t size);
char *mem_strdup(enum mem_tag tag, const char *s);
char *mem_strndup(enum mem_tag tag, const char *s, size_t n);
void mem_free(void *p);  /* NULL is fine; the block knows its tag and size */

/* 2 MiB-advised anonymous memory for weights and KV (same counters). Zero-filled. Free with
 * mem_free_huge(p, size). */
void *mem_alloc_huge(enum mem_tag tag, size_t size);
void mem_free_huge(enum mem_tag tag, void *p, size_t size);
/* Counts bytes of a file's mapping that serve in place of memory under a tag, as if they had been
 * allocated, and no longer. */
void mem_count_mapped(enum mem_tag tag, size_t size);
void mem_count_unmapped(enum mem_tag tag, size_t size);
/* Bytes of a block from mem_alloc_huge that nobody may touch: the address sanitizer then reports
 * whoever runs over the end of a part of the block. Does nothing without it. */
void mem_guard(void *p, size_t size);

void mem_stats_read(struct mem_stats *out);
/* Peaks are what is live now, and grow from there. */
void mem_stats_restart(void);
const char *mem_tag_name(enum mem_tag tag);

/* Fault injection for tests: allocation number n from now (1 = the next) fails; once or for ever. n
 * = 0 turns it off.
 * mem_fail_count() tells how many failures were injected since the last call of mem_fail_at. */
void mem_fail_at(uint64_t n, bool for_ever);
uint64_t mem_fail_count(void);

/* Arena: bump allocation, freed as a whole. Zero-initialise, then use; arena_free resets it. */
struct arena_chunk;
struct arena {
    struct arena_chunk *head;
    enum mem_tag tag;
};
/* 16-byte aligned, zeroed; NULL on failure */
void *arena_alloc(struct arena *a, size_t size);
void *arena_array(struct arena *a, size_t count, size_t size);
char *arena_strndup(struct arena *a, const char *s, size_t n);
void arena_free(struct arena *a);

/* Fails with ZP_NO_MEMORY and a message that names what and how many bytes. */
#define ZP_ALLOC(ptr, tag, count, err, what)                                                      \
    do {                                                                                          \
        (ptr) = mem_array((tag), (count), sizeof *(ptr));                                         \
        ZP_FAIL_IF((ptr) == NULL, err, ZP_NO_MEMORY, "not enough memory for %s (%zu x %zu bytes)",\
                   (what), (size_t)(count), sizeof *(ptr));                                       \
    } while (0)
/* The same from an arena. */
#define ZP_TAKE(ptr, arena, count, err, what)                                                     \
    do {                                                                                          \
        (ptr) = arena_array((arena), (count), sizeof *(ptr));                                     \
        ZP_FAIL_IF((ptr) == NULL, err, ZP_NO_MEMORY, "not enough memory for %s (%zu x %zu bytes)",\
                   (what), (size_t)(count), sizeof *(ptr));                                       \
    } while (0)

#endif
