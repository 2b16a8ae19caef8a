/* attend_batch.h: which rows of an attention call see which tile, in steps of up to six rows.
 * Shared by the attend files of all levels; no vector code. A tile comes up once, all its rows in a
 * row, so that it is read from memory once; rows that do not see it never enter a batch. Rows of a
 * batch see the same positions: a weight of 0 would let an infinite value of another row's position
 * in, as NaN (I1). The last batch of a tile names the next one, for kernels that fetch it
 * meanwhile, line by line. */
#ifndef KERN_X86_ATTEND_BATCH_H
#define KERN_X86_ATTEND_BATCH_H

#include "base/compiler.h"
#include "kern/kern.h"

enum {
    BATCH_ROWS = 6,
    WIDE_ROWS = 24 /* rows of a call for which a bf16 tile is made floats as a whole */
};

/* How a tile is stored; WIDE: bf16 made floats, in natural order. */
enum store { FLOATS, PAIRS, WIDE };

struct attend_batch {
    int n; /* rows; all of them see something of the tile */
    const char *q[BATCH_ROWS];
    float *o[BATCH_ROWS];
    float *m[BATCH_ROWS], *l[BATCH_ROWS];
    const float *bias[BATCH_ROWS];               /* at the tile's first position, or NULL */
    const float *key_bias[BATCH_ROWS];           /* likewise */
    uint64_t seen[BATCH_ROWS];                   /* bit j: position j of the tile */
    float keep[8];                               /* factor of the old state; two fours */
    const char *k, *v;                           /* the tile */
    const char *k_next, *v_next;                 /* the tile to fetch meanwhile, or NULL */
    ZP_ALIGN(64) float p[BATCH_ROWS][KERN_TILE]; /* scores, then weights */
};

/* Where the walk over tiles and rows stands. */
struct attend_walk {
    size_t tile, row;
};

/* Bits [from, to) of a tile that starts at `first`, positions counted from the sequence's start. */
static inline uint64_t bits_between(size_t first, size_t from, size_t to)
{
    size_t a = from > first ? from - first : 0, b = to > first ? to - first : 0;
    if (b > KERN_TILE) b = KERN_TILE;
    if (a >= b) return 0;
    return (b == KERN_TILE ? ~0ull : (1ull << b) - 1) & ~((1ull << a) - 1);
}

static inline uint64_t positions_seen(const struct kern_attend *a, size_t r, size_t first)
{
    size_t sinks = a->n_sink < a->hi[r] ? a->n_sink : a->hi[r];
    return bits_between(first, a->lo[r], a->hi[r]) | bits_between(first, 0, sinks);
}

/* Asks for bytes [at, at + n) of the next tile. */
ZP_INLINE void fetch_next(const char *next, size_t at, size_t n)
{
    if (!next) return;
    ZP_UNROLL
    for (size_t i = 0; i < n; i += 64) __builtin_prefetch(next + at + i);
}

static inline void add_row(struct attend_batch *b, const struct kern_attend *a, size_t r,
                           size_t first, uint64_t seen)
{
    int n = b->n++;
    b->q[n] = (const char *)a->q + r * a->q_stride;
    b->o[n] = a->o + r * a->d;
    b->m[n] = a->m + r;
    b->l[n] = a->l + r;
    b->bias[n] = a->bias && a->bias[r] ? a->bias[r] + first : NULL;
    b->key_bias[n] = a->key_bias ? a->key_bias[r] + (first - a->tile_begin * KERN_TILE) : NULL;
    b->seen[n] = seen;
}

/* The next batch; false at the end. */
static inline bool attend_next(const struct kern_attend *a, struct attend_walk *w,
                               struct attend_batch *b)
{
    for (b->n = 0; w->tile < a->tile_end; w->tile++, w->row = 0) {
        for (; w->row < a->n_rows && b->n < BATCH_ROWS; w->row++) {
            uint64_t seen = positions_seen(a, w->row, w->tile * KERN_TILE);
            if (b->n > 0 && seen && seen != b->seen[0]) break;
            if (seen) add_row(b, a, w->row, w->tile * KERN_TILE, seen);
        }
        if (b->n == 0) continue;
        b->k = a->k_tile[w->tile];
        b->v = a->v_tile[w->tile];
        bool is_last = w->row == a->n_rows && w->tile + 1 < a->tile_end;
        b->k_next = is_last ? a->k_tile[w->tile + 1] : NULL;
        b->v_next = is_last ? a->v_tile[w->tile + 1] : NULL;
        return true;
    }
    return false;
}

#endif
