/* attend.c: the attention phase: who computes which rows over which segments of positions, and
 * their merge.
 * Owns: partial softmax states. Does not know: projections, files.
 * T1 a row's state over a segment (KERN_SEGMENT positions) starts empty; segments merge in
 *    ascending order: the same for one row and for many, so thread count and split only decide who
 *    computes a segment (I1).
 * T2 a tile that no row of a block sees is never touched: its page may be gone. */
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "model/attend.h"

enum { BLOCK_ROWS = 48, SEGMENT_TILES = KERN_SEGMENT / KERN_TILE, SPLIT_BLOCKS = 4 };

struct block {
    uint32_t run, token, n_tok, kv;
}; /* tokens [token, token + n_tok) of the batch, one KV head */

struct state {
    float *m, *l, *o;
}; /* (BLOCK_ROWS), (BLOCK_ROWS), (BLOCK_ROWS, d) */

struct thread_room {
    float *q;           /* (BLOCK_ROWS, d) */
    uint32_t *lo, *hi;  /* (BLOCK_ROWS) */
    const float **bias; /* (BLOCK_ROWS) */
    struct state part, whole;
};

struct attend {
    struct thread_room *rooms; /* one a thread */
    struct block *blocks;
    size_t n_blocks, n_tasks;
    bool split;        /* a task is one segment of a block */
    size_t n_segments; /* of the batch's longest sequence */
    size_t room;       /* segments of n_ctx positions: partial states a block */
    float *partial;    /* (SPLIT_BLOCKS * threads, room, state) */
    atomic_size_t next;
    uint8_t *memory;
};

static size_t rows_of_block(const struct hparams *h)
{
    size_t group = h->n_head / h->n_kv;
    return group > BLOCK_ROWS ? group : BLOCK_ROWS;
}

static size_t state_floats(const struct hparams *h)
{
    return rows_of_block(h) * (h->d_head + 2);
}

static size_t room_bytes(const struct hparams *h)
{
    size_t rows = rows_of_block(h);
    size_t bytes =
        rows * h->d_head * 4 + rows * 8 + rows * sizeof(float *) + 2 * state_floats(h) * 4;
    return (bytes + 63) / 64 * 64;
}

static size_t segments_for(uint32_t n_positions)
{
    return ((size_t)n_positions + KERN_SEGMENT - 1) / KERN_SEGMENT;
}

static size_t block_capacity(const struct forward *f)
{
    return (size_t)f->micro_batch * f->h->n_kv; /* worst case: every token its own run */
}

uint64_t attend_plan(const struct hparams *h, uint32_t micro_batch, uint32_t n_ctx,
                     uint32_t n_threads)
{
    return sizeof(struct attend) + (uint64_t)micro_batch * h->n_kv * sizeof(struct block) +
           n_threads * (sizeof(struct thread_room) + (uint64_t)room_bytes(h)) +
           SPLIT_BLOCKS * n_threads * (uint64_t)segments_for(n_ctx) * state_floats(h) * 4;
}

static struct state state_at(float *memory, size_t rows)
{
    return (struct state){ memory, memory + rows, memory + 2 * rows };
}

static void place_room(struct thread_room *r, uint8_t *memory, const struct hparams *h)
{
    size_t rows = rows_of_block(h);
    r->bias = (const float **)(void *)memory;
    r->q = (float *)(void *)(memory + rows * sizeof(float *));
    r->lo = (uint32_t *)(void *)(r->q + rows * h->d_head);
    r->hi = r->lo + rows;
    float *states = (float *)(void *)(r->hi + rows);
    r->part = state_at(states, rows);
    r->whole = state_at(states + state_floats(h), rows);
}

zp_status attend_open(struct forward *f, zp_err *err)
{
    uint32_t n = pool_threads(f->pool);
    struct attend *a = mem_zalloc(MEM_SCRATCH, sizeof *a);
    ZP_FAIL_IF(!a, err, ZP_NO_MEMORY, "not enough memory for attention scratch");
    f->attend = a;
    a->room = segments_for(f->n_ctx);
    ZP_ALLOC(a->rooms, MEM_SCRATCH, n, err, "attention scratch");
    ZP_ALLOC(a->memory, MEM_SCRATCH, n * room_bytes(f->h), err, "attention scratch");
    ZP_ALLOC(a->partial, MEM_SCRATCH, SPLIT_BLOCKS * n * a->room * state_floats(f->h), err,
             "attention scratch");
    ZP_ALLOC(a->blocks, MEM_SCRATCH, block_capacity(f), err, "attention scratch");
    f->scratch_bytes += attend_plan(f->h, f->micro_batch, f->n_ctx, n);
    for (uint32_t i = 0; i < n; i++)
        place_room(&a->rooms[i], a->memory + i * room_bytes(f->h), f->h);
    return ZP_OK;
}

void attend_free(struct forward *f)
{
    if (!f->attend) return;
    mem_free(f->attend->rooms);
    mem_free(f->attend->memory);
    mem_free(f->attend->partial);
    mem_free(f->attend->blocks);
    mem_free(f->attend);
    f->attend = NULL;
}

/* ---- rows of a block ------------------------------------------------------------------------- */

static struct position_sight sight_of(const struct forward *f, uint32_t layer, uint32_t kv)
{
    if (!f->windows) return position_head_sight(f->position, layer, kv);
    return position_try_sight(f->position, layer, f->windows[layer * f->h->n_kv + kv], f->n_sink);
}

/* Row (token i, head g of the group) -> row i * group + g of the block. */
static size_t fill_rows(const struct forward *f, uint32_t layer, const struct block *b,
                        struct thread_room *r)
{
    const struct position *p = f->position;
    struct position_sight sight = sight_of(f, layer, b->kv);
    uint32_t group = p->n_head / p->n_kv, d = p->d_head;
    size_t row = 0;
    for (uint32_t i = 0; i < b->n_tok; i++) {
        uint32_t at = f->token_at[b->token + i];
        struct position_seen seen = position_seen(sight, at);
        uint32_t n_visible = position_count_seen(seen, at);
        for (uint32_t g = 0; g < group; g++, row++) {
            uint32_t head = b->kv * group + g;
            float s = position_query_scale(p, layer, head, n_visible);
            const float *q = f->q + ((size_t)(b->token + i) * p->n_head + head) * d;
            for (uint32_t c = 0; c < d; c++) r->q[row * d + c] = q[c] * s;
            r->lo[row] = seen.first;
            r->hi[row] = at + 1;
            if (f->bias && f->bias[layer * p->n_head + head])
                r->bias[row] = f->bias[layer * p->n_head + head] + KERN_TILE + f->n_ctx - 1 - at;
        }
    }
    return row;
}

static void clear_state(const struct state *s, size_t rows, size_t d)
{
    for (size_t i = 0; i < rows; i++) s->m[i] = -INFINITY, s->l[i] = 0.0f;
    memset(s->o, 0, rows * d * sizeof *s->o);
}

static size_t segments_of(const struct forward *f, const struct block *b)
{
    return segments_for(f->token_at[b->token + b->n_tok - 1] + 1); /* tokens of a block ascend */
}

/* State of all rows over segment `segment` (T1). */
static void attend_segment(const struct forward *f, uint32_t layer, const struct block *b,
                           struct thread_room *r, size_t rows, size_t segment, struct state s)
{
    const struct kv_table *kv = f->runs[b->run].kv;
    size_t head = (size_t)layer * f->h->n_kv + b->kv;
    struct kern_attend a = { .d = f->h->d_head,
                             .n_rows = rows,
                             .q = r->q,
                             .q_stride = f->h->d_head,
                             .lo = r->lo,
                             .hi = r->hi,
                             .n_sink = sight_of(f, layer, b->kv).n_sink,
                             .k_tile = kv->k + head * kv->n_tiles,
                             .v_tile = kv->v + head * kv->n_tiles,
                             .m = s.m,
                             .l = s.l,
                             .o = s.o };
    if (f->bias && f->bias[layer * f->h->n_head]) a.bias = r->bias;
    kern_attend_fn attend = f->element == 4 ? f->kern->attend_f32 : f->kern->attend_bf16;
    size_t first = r->lo[0] / KERN_TILE, last = (r->hi[rows - 1] + KERN_TILE - 1) / KERN_TILE;
    size_t begin = segment * SEGMENT_TILES, end = begin + SEGMENT_TILES;
    size_t sink_tiles = (a.n_sink + KERN_TILE - 1) / KERN_TILE;
    clear_state(&s, rows, a.d);
    if (segment == 0 && sink_tiles <= first) {
        a.tile_begin = 0, a.tile_end = sink_tiles;
        if (a.tile_begin < a.tile_end) attend(&a);
    } else if (segment == 0 && first < sink_tiles) first = 0;
    a.tile_begin = begin > first ? begin : first;
    a.tile_end = end < last ? end : last;
    if (a.tile_begin < a.tile_end) attend(&a);
}

static void merge_rows(const struct forward *f, const struct state *into, const struct state *part,
                       size_t rows)
{
    size_t d = f->h->d_head;
    for (size_t i = 0; i < rows; i++) {
        if (part->m[i] == -INFINITY) continue; /* the row saw nothing there */
        if (into->m[i] == -INFINITY) {
            into->m[i] = part->m[i], into->l[i] = part->l[i];
            memcpy(into->o + i * d, part->o + i * d, d * sizeof(float));
        } else
            f->kern->attend_merge(&into->m[i], &into->l[i], into->o + i * d, part->m[i], part->l[i],
                                  part->o + i * d, d);
    }
}

static void write_heads(const struct forward *f, const struct block *b, const struct state *s)
{
    uint32_t group = f->h->n_head / f->h->n_kv, d = f->h->d_head;
    for (uint32_t i = 0; i < b->n_tok; i++)
        for (uint32_t g = 0; g < group; g++) {
            size_t row = (size_t)i * group + g;
            float *out = f->heads + ((size_t)(b->token + i) * f->h->n_head + b->kv * group + g) * d;
            for (uint32_t c = 0; c < d; c++) out[c] = s->o[row * d + c] / s->l[row];
        }
}

/* ---- phases ---------------------------------------------------------------------------------- */

void attend_prepare(struct forward *f)
{
    struct attend *a = f->attend;
    uint32_t group = f->h->n_head / f->h->n_kv, most = BLOCK_ROWS / group ? BLOCK_ROWS / group : 1,
             token = 0, longest = 0;
    a->n_blocks = 0;
    for (uint32_t i = 0; i < f->n_runs; i++) {
        for (uint32_t at = 0; at < f->runs[i].n; at += most)
            for (uint32_t kv = 0; kv < f->h->n_kv; kv++) {
                uint32_t left = f->runs[i].n - at;
                a->blocks[a->n_blocks++] =
                    (struct block){ i, token + at, left < most ? left : most, kv };
            }
        token += f->runs[i].n;
        uint32_t length = f->runs[i].first + f->runs[i].n;
        longest = length > longest ? length : longest;
    }
    a->n_segments = segments_for(longest);
    a->split = a->n_blocks <= (size_t)SPLIT_BLOCKS * pool_threads(f->pool);
    a->n_tasks = a->split ? a->n_blocks * a->n_segments : a->n_blocks;
    atomic_store(&a->next, 0);
}

size_t attend_tasks(const struct forward *f)
{
    return f->attend->n_tasks;
}

static struct state partial_state(const struct forward *f, size_t block, size_t segment)
{
    const struct attend *a = f->attend;
    return state_at(a->partial + (block * a->room + segment) * state_floats(f->h),
                    rows_of_block(f->h));
}

static void work_split(struct forward *f, uint32_t layer, struct thread_room *r, size_t task)
{
    struct attend *a = f->attend;
    const struct block *b = &a->blocks[task / a->n_segments];
    size_t segment = task % a->n_segments;
    if (segment >= segments_of(f, b)) return; /* another sequence of the batch is longer */
    attend_segment(f, layer, b, r, fill_rows(f, layer, b, r), segment,
                   partial_state(f, task / a->n_segments, segment));
}

static void work_whole(struct forward *f, uint32_t layer, struct thread_room *r, size_t task)
{
    const struct block *b = &f->attend->blocks[task];
    size_t rows = fill_rows(f, layer, b, r);
    clear_state(&r->whole, rows, f->h->d_head);
    for (size_t s = 0; s < segments_of(f, b); s++) {
        attend_segment(f, layer, b, r, rows, s, r->part);
        merge_rows(f, &r->whole, &r->part, rows);
    }
    write_heads(f, b, &r->whole);
}

void attend_work(struct forward *f, uint32_t layer, uint32_t thread)
{
    struct attend *a = f->attend;
    for (;;) {
        size_t i = atomic_fetch_add(&a->next, 1);
        if (i >= a->n_tasks) return;
        size_t task = a->n_tasks - 1 - i; /* later blocks see more positions: longest first */
        if (a->split) work_split(f, layer, &a->rooms[thread], task);
        else work_whole(f, layer, &a->rooms[thread], task);
    }
}

void attend_merge(struct forward *f, uint32_t layer, uint32_t thread)
{
    struct attend *a = f->attend;
    struct thread_room *r = &a->rooms[thread];
    uint32_t n = pool_threads(f->pool);
    for (size_t i = thread; a->split && i < a->n_blocks; i += n) {
        size_t rows = fill_rows(f, layer, &a->blocks[i], r);
        clear_state(&r->whole, rows, f->h->d_head);
        for (size_t s = 0; s < segments_of(f, &a->blocks[i]); s++) {
            struct state part = partial_state(f, i, s);
            merge_rows(f, &r->whole, &part, rows);
        }
        write_heads(f, &a->blocks[i], &r->whole);
    }
}
