/* merger.h: joins neighbouring symbols of one word in order of rank, the core of every BPE.
 * Linear scans for short words, a heap over a linked list for long ones: O(n log n). */
#ifndef MODEL_MERGER_H
#define MODEL_MERGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/status.h"

/* Words longer than this (bytes) are refused: a byte of a long word costs 52 bytes of scratch. */
#define MERGER_MAX_WORD ((size_t)64 << 20)

struct merge_symbol {
    uint32_t begin, end; /* bytes of the word */
    int32_t id;          /* meaning is the caller's */
};

struct merge_pair {
    uint32_t rank; /* the lowest goes first; equal ranks from left to right */
    int32_t id;    /* of the joined symbol */
};

/* True if the two may be joined. Pure: the same symbols give the same answer. */
typedef bool (*merge_find)(const void *rules, const uint8_t *word, const struct merge_symbol *left,
                           const struct merge_symbol *right, struct merge_pair *out);

struct merge_candidate {
    uint32_t rank, left, right_end;
    int32_t id;
};
struct merge_link {
    uint32_t prev, next;
};

/* Scratch of one caller; zero-initialise, free with merger_free. */
struct merger {
    struct merge_symbol *symbols;
    size_t n, room;
    struct merge_link *links;
    size_t links_room;
    struct merge_candidate *heap;
    size_t n_heap, heap_room;
};
zp_status merger_reserve(struct merger *m, size_t n_symbols, zp_err *err); /* and sets n = 0 */
/* Joins symbols[0..n) until no pair is left; n and symbols are the result. */
zp_status merger_run(struct merger *m, const uint8_t *word, merge_find find, const void *rules,
                     zp_err *err);
void merger_free(struct merger *m);

#endif
