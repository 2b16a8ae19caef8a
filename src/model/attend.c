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

#include "base/num.h"
#include "model/attend.h"
#include "model/posgate.h"
#include "model/scratch.h"

enum {
    BLOCK_LEAST = 48, /* rows of a block: more of them share what is read of a tile, */
    BLOCK_MOST = 192,
    BLOCKS_A_THREAD = 8, /* but long blocks leave threads waiting at the end */
    SEGMENT_TILES = KERN_SEGMENT / KERN_TILE,
    SPLIT_BLOCKS = 4
};

struct block {
    uint32_t run, token, n_tok, kv; /* tokens [token, token + n_tok) of the batch, one KV head */
    uint32_t row; /* rows of the blocks before it: where its partial states begin */
};

struct state {
    float *m, *l, *o;
}; /* (rows), (rows), (rows, d) */

/* Rows of a block as a kernel reads them: queries in the form of the tiles. */
struct query_rows {
    void *q;
    size_t q_stride;
    uint32_t *lo, *hi, n_sink;
    const float **bias;
    const float **heard; /* a row's list in thread_room.heard; NULL without a structure head */
};

struct thread_room {
    /* own: of 8-bit caches: the same rows over the open tile of their positions, counted from its
     * first */
    struct query_rows rows, own;
    float *row; /* (group, d): one query, scaled; one token's heads */
    /* (group, KERN_SEGMENT): what each query head adds to the logits of the keys at hand by what
     * their tokens are; NULL without a structure head */
    float *heard;
    struct state part, whole;
    void *tile; /* kern_attend_room or NULL */
};

struct attend {
    struct thread_room *rooms; /* one a thread */
    struct block *blocks;
    size_t n_blocks, n_tasks;
    bool split;        /* a task is one segment of a block */
    size_t n_segments; /* of the batch's longest sequence */
    float *partial;    /* (split_rows, segments of n_ctx positions, d + 2) */
    atomic_size_t next;
};

/* Most rows of a block that is to have so many: one token's at least. */
static size_t rows_of_block(const struct hparams *h, size_t rows)
{
    size_t group = h->n_head / h->n_kv;
    return group > rows ? group : rows;
}

static size_t segments_for(uint32_t n_positions)
{
    return ((size_t)n_positions + KERN_SEGMENT - 1) / KERN_SEGMENT;
}

/* Tokens of a block at most, in a batch of n_tok. */
static uint32_t most_tokens(const struct forward *f, uint32_t n_tok)
{
    size_t rows = (size_t)n_tok * f->h->n_head / (BLOCKS_A_THREAD * f->n_threads);
    if (rows < BLOCK_LEAST) rows = BLOCK_LEAST;
    if (rows > BLOCK_MOST) rows = BLOCK_MOST;
    size_t group = f->h->n_head / f->h->n_kv, most = rows_of_block(f->h, rows) / group;
    if (f->form == KV_Q8 && most > KERN_TILE) most = KERN_TILE; /* tokens_of_block */
    return most < n_tok ? (uint32_t)most : n_tok;
}

/* Rows for which partial states are kept: a lone batch, or a few blocks for each thread. */
static size_t split_rows(const struct forward *f)
{
    size_t lone = (size_t)FORWARD_LONE * f->h->n_head,
           few = SPLIT_BLOCKS * f->n_threads * rows_of_block(f->h, BLOCK_LEAST) / 2,
           all = (size_t)f->micro_batch * f->h->n_head, rows = lone > few ? lone : few;
    return rows < all ? rows : all;
}

static struct state state_at(float *memory, size_t rows)
{
    return (struct state){ memory, memory + rows, memory + 2 * rows };
}

static size_t state_bytes(const struct hparams *h, size_t rows)
{
    return rows * (h->d_head + 2) * sizeof(float);
}

static void place_rows(struct forward *f, struct query_rows *out, size_t rows, size_t q_stride)
{
    struct query_rows r = { .q_stride = q_stride };
    r.q = scratch_take(f, rows * q_stride);
    r.lo = scratch_take(f, rows * sizeof *r.lo);
    r.hi = scratch_take(f, rows * sizeof *r.hi);
    r.bias = scratch_take(f, rows * sizeof *r.bias);
    if (f->structure->weight) r.heard = scratch_take(f, rows * sizeof *r.heard);
    *out = r;
}

static void place_room(struct forward *f, uint32_t thread)
{
    size_t group = f->h->n_head / f->h->n_kv, d = f->h->d_head;
    size_t rows = most_tokens(f, f->micro_batch) * group; /* no batch has longer blocks */
    const size_t q_stride[] = { [KV_F32] = d * sizeof(float),
                                [KV_BF16] = d * sizeof(uint16_t),
                                [KV_Q8] = kern_q8_row_bytes(d) };
    size_t tile = kern_attend_room(d);
    struct thread_room r = { .row = scratch_take(f, group * d * sizeof(float)) };
    if (f->form != KV_F32 && tile > 0) r.tile = scratch_take(f, tile);
    if (f->structure->weight)
        r.heard = scratch_take(f, group * KERN_SEGMENT * sizeof *r.heard);
    place_rows(f, &r.rows, rows, q_stride[f->form]);
    if (f->form == KV_Q8) place_rows(f, &r.own, rows, q_stride[KV_BF16]);
    float *part = scratch_take(f, state_bytes(f->h, rows));
    float *whole = scratch_take(f, state_bytes(f->h, rows));
    if (!f->scratch) return;
    r.part = state_at(part, rows);
    r.whole = state_at(whole, rows);
    f->attend->rooms[thread] = r;
}

void attend_place(struct forward *f)
{
    struct attend *a = scratch_take(f, sizeof *a);
    size_t most_blocks = (size_t)f->micro_batch * f->h->n_kv; /* every token its own run */
    struct thread_room *rooms = scratch_take(f, f->n_threads * sizeof *rooms);
    struct block *blocks = scratch_take(f, most_blocks * sizeof *blocks);
    float *partial = scratch_take(f, segments_for(f->n_ctx) * state_bytes(f->h, split_rows(f)));
    f->attend = a;
    if (a) a->rooms = rooms, a->blocks = blocks, a->partial = partial;
    for (uint32_t i = 0; i < f->n_threads; i++) place_room(f, i);
}

/* ---- rows of a block ------------------------------------------------------------------------- */

static struct position_sight sight_of(const struct forward *f, uint32_t layer, uint32_t kv)
{
    if (!f->windows) return position_head_sight(f->position, layer, kv);
    return position_try_sight(f->position, layer, f->windows[layer * f->h->n_kv + kv], f->n_sink);
}

static uint32_t less(uint32_t x, uint32_t by)
{
    return x > by ? x - by : 0;
}

/* Query `scaled` of position `at` as row `row`; sight from position `first` on. */
static void fill_row(const struct forward *f, struct thread_room *r, size_t row,
                     const float *scaled, uint32_t at, uint32_t first, const float *bias,
                     const float *heard)
{
    size_t d = f->h->d_head;
    uint32_t base = at / KERN_TILE * KERN_TILE;
    struct query_rows *pairs = f->form == KV_Q8 ? &r->own : &r->rows;
    uint8_t *q = (uint8_t *)r->rows.q + row * r->rows.q_stride;
    uint16_t *q16 = (uint16_t *)(void *)((uint8_t *)pairs->q + row * pairs->q_stride);
    if (f->form == KV_F32) memcpy(q, scaled, d * sizeof *scaled);
    else
        for (size_t c = 0; c < d; c++) q16[c] = f32_to_bf16(scaled[c]);
    r->rows.lo[row] = first, r->rows.hi[row] = at + 1, r->rows.bias[row] = bias;
    if (heard) r->rows.heard[row] = heard;
    if (f->form != KV_Q8) return;
    f->kern->q8_row(scaled, d, q);
    r->own.lo[row] = less(first, base), r->own.hi[row] = at + 1 - base;
    r->own.bias[row] = bias ? bias + base : NULL;
    if (heard) r->own.heard[row] = heard;
}

/* Row (token i, head g of the group) -> row i * group + g of the block. */
static size_t fill_rows(const struct forward *f, uint32_t layer, const struct block *b,
                        struct thread_room *r)
{
    const struct position *p = f->position;
    struct position_sight sight = sight_of(f, layer, b->kv);
    const float *gate = position_layer_has_gate(p, layer) ? p->gate[layer] : NULL;
    uint32_t group = p->n_head / p->n_kv, d = p->d_head;
    size_t row = 0;
    for (uint32_t i = 0; i < b->n_tok; i++) {
        uint32_t at = f->token_at[b->token + i];
        struct position_seen seen = position_seen(sight, at);
        uint32_t n_visible = position_count_seen(seen, at);
        for (uint32_t g = 0; g < group; g++, row++) {
            uint32_t head = b->kv * group + g;
            float s = position_query_scale(p, layer, head, n_visible);
            if (gate)
                s *= posgate_factor(gate + head * POSGATE_STEPS,
                                    f->phi + (b->token + i) * POSGATE_STEPS);
            const float *q = f->q + ((size_t)(b->token + i) * p->n_head + head) * d,
                        *bias = f->bias ? f->bias[layer * p->n_head + head] : NULL;
            for (uint32_t c = 0; c < d; c++) r->row[c] = q[c] * s;
            fill_row(f, r, row, r->row, at, seen.first,
                     bias ? bias + KERN_TILE + f->n_ctx - 1 - at : NULL,
                     r->heard ? r->heard + (size_t)g * KERN_SEGMENT : NULL);
        }
        r->rows.n_sink = sight.n_sink;
        r->own.n_sink = less(sight.n_sink, at / KERN_TILE * KERN_TILE);
    }
    return row;
}

static void clear_state(const struct state *s, size_t rows, size_t d)
{
    for (size_t i = 0; i < rows; i++) s->m[i] = -INFINITY, s->l[i] = 0.0f;
    memset(s->o, 0, rows * d * sizeof *s->o);
}

/* Fills r->heard for keys at positions [begin, end), at most a segment, and shows it to `a`. */
static void hear_keys(const struct forward *f, uint32_t layer, const struct block *b,
                      const struct thread_room *r, const struct query_rows *rows, size_t begin,
                      size_t end, struct kern_attend *a)
{
    const float *bias = structhead_bias(f->structure, layer);
    const float *p = f->batch->runs[b->run].detected;
    size_t group = f->h->n_head / f->h->n_kv, step = forward_detected_step(f->n_ctx);
    a->key_bias = bias ? rows->heard : NULL;
    for (size_t g = 0; bias && g < group; g++) {
        const float *weight = bias + (b->kv * group + g) * STRUCT_TYPES;
        float *out = r->heard + g * KERN_SEGMENT;
        f->kern->weigh_lists(p + begin, step, weight, STRUCT_TYPES, out, end - begin);
    }
}

static size_t segments_of(const struct forward *f, const struct block *b)
{
    return segments_for(f->token_at[b->token + b->n_tok - 1] + 1); /* tokens of a block ascend */
}

static kern_attend_fn attend_of(const struct forward *f)
{
    const kern_attend_fn all[] = { [KV_F32] = f->kern->attend_f32,
                                   [KV_BF16] = f->kern->attend_bf16,
                                   [KV_Q8] = f->kern->attend_q8 };
    return all[f->form];
}

static struct kern_attend call_for(const struct forward *f, const struct query_rows *r, void *tile,
                                   size_t rows, struct state s, bool has_bias)
{
    return (struct kern_attend){ .d = f->h->d_head,
                                 .room = tile,
                                 .n_rows = rows,
                                 .q = r->q,
                                 .q_stride = r->q_stride,
                                 .lo = r->lo,
                                 .hi = r->hi,
                                 .n_sink = r->n_sink,
                                 .bias = has_bias ? r->bias : NULL,
                                 .m = s.m,
                                 .l = s.l,
                                 .o = s.o };
}

/* The tile of the rows' own positions, which is not closed. */
static void attend_own_tile(const struct forward *f, uint32_t layer, const struct block *b,
                            const struct thread_room *r, size_t rows, struct state s, bool has_bias)
{
    const struct forward_run *run = &f->batch->runs[b->run];
    const uint8_t *tile =
        forward_tile(f, run, layer, b->kv, f->token_at[b->token] / KERN_TILE);
    const void *k = tile, *v = tile + forward_tile_bytes(f) / 2;
    size_t base = f->token_at[b->token] / KERN_TILE * KERN_TILE;
    struct kern_attend a = call_for(f, &r->own, r->tile, rows, s, has_bias);
    a.k_tile = &k, a.v_tile = &v;
    a.tile_end = 1;
    hear_keys(f, layer, b, r, &r->own, base, base + KERN_TILE, &a);
    f->kern->attend_bf16(&a);
}

/* The rows over tiles [a->tile_begin, a->tile_end) of their sequence, if there are any. */
static void attend_tiles(const struct forward *f, uint32_t layer, const struct block *b,
                         const struct thread_room *r, struct kern_attend *a)
{
    if (a->tile_begin >= a->tile_end) return;
    hear_keys(f, layer, b, r, &r->rows, a->tile_begin * KERN_TILE, a->tile_end * KERN_TILE, a);
    attend_of(f)(a);
}

/* State of all rows over segment `segment` (T1). */
static void attend_segment(const struct forward *f, uint32_t layer, const struct block *b,
                           struct thread_room *r, size_t rows, size_t segment, struct state s)
{
    const struct kv_table *kv = f->batch->runs[b->run].kv;
    size_t head = (size_t)layer * f->h->n_kv + b->kv;
    bool has_bias = f->bias && f->bias[layer * f->h->n_head];
    struct kern_attend a = call_for(f, &r->rows, r->tile, rows, s, has_bias);
    a.k_tile = kv->k + head * kv->n_tiles, a.v_tile = kv->v + head * kv->n_tiles;
    size_t first = a.lo[0] / KERN_TILE, last = (a.hi[rows - 1] + KERN_TILE - 1) / KERN_TILE;
    size_t begin = segment * SEGMENT_TILES, end = begin + SEGMENT_TILES;
    size_t sink_tiles = (a.n_sink + KERN_TILE - 1) / KERN_TILE;
    bool own = f->form == KV_Q8 && last <= end; /* then it is the last tile */
    if (f->form == KV_Q8) last--;
    clear_state(&s, rows, a.d);
    if (segment == 0 && sink_tiles <= first) {
        a.tile_begin = 0, a.tile_end = sink_tiles < last ? sink_tiles : last;
        attend_tiles(f, layer, b, r, &a);
    } else if (segment == 0 && first < sink_tiles) first = 0;
    a.tile_begin = begin > first ? begin : first;
    a.tile_end = end < last ? end : last;
    attend_tiles(f, layer, b, r, &a);
    if (own) attend_own_tile(f, layer, b, r, rows, s, has_bias);
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

/* The block's columns of the next product's input, quantised where heads are whole groups. */
static void write_heads(const struct forward *f, const struct block *b, struct thread_room *r,
                        struct forward_rows *heads)
{
    size_t group = f->h->n_head / f->h->n_kv, d = f->h->d_head, width = group * d,
           k0 = b->kv * width;
    for (size_t i = 0; i < b->n_tok; i++) {
        size_t t = b->token + i, row = i * group;
        float *out = heads->heads ? heads->heads + t * f->h->n_head * d + k0 : r->row;
        for (size_t g = 0; g < group; g++)
            for (size_t c = 0; c < d; c++)
                out[g * d + c] = r->whole.o[(row + g) * d + c] / r->whole.l[row + g];
        if (scratch_quantises_heads(f))
            f->kern->act_quantize(&heads->act_heads, (struct kern_part){ t, t + 1, k0, k0 + width },
                                  out, width);
    }
}

/* ---- phases ---------------------------------------------------------------------------------- */

/* Few blocks, or a lone batch, are split into segments, as long as partial states have room. */
static bool is_split(const struct forward *f, size_t n_rows)
{
    bool few = f->attend->n_blocks <= (size_t)SPLIT_BLOCKS * f->n_threads;
    return f->lone || (few && n_rows <= split_rows(f));
}

/* Tokens from `token` on that one block takes: neighbours of one run and, with 8-bit tiles, of one
 * tile, which all of them read open. */
static uint32_t tokens_of_block(const struct forward *f, uint32_t token, uint32_t most)
{
    uint32_t n = 1, left = f->n_tok - token, run = f->token_run[token],
             tile = f->token_at[token] / KERN_TILE;
    while (n < most && n < left && f->token_run[token + n] == run &&
           (f->form != KV_Q8 || f->token_at[token + n] / KERN_TILE == tile))
        n++;
    return n;
}

void attend_begin(struct forward *f)
{
    struct attend *a = f->attend;
    uint32_t group = f->h->n_head / f->h->n_kv, most = most_tokens(f, f->n_tok), longest = 0,
             row = 0;
    a->n_blocks = 0;
    for (uint32_t t = 0, n; t < f->n_tok; t += n) {
        n = tokens_of_block(f, t, most);
        for (uint32_t kv = 0; kv < f->h->n_kv; kv++, row += n * group)
            a->blocks[a->n_blocks++] = (struct block){ f->token_run[t], t, n, kv, row };
        uint32_t length = f->token_at[t + n - 1] + 1;
        longest = length > longest ? length : longest;
    }
    a->n_segments = segments_for(longest);
    a->split = is_split(f, row);
    a->n_tasks = a->split ? a->n_blocks * a->n_segments : a->n_blocks;
    atomic_store(&a->next, 0);
}

size_t attend_tasks(const struct forward *f)
{
    return f->attend->n_tasks;
}

bool attend_is_split(const struct forward *f)
{
    return f->attend->split;
}

static struct state partial_state(const struct forward *f, const struct block *b, size_t segment)
{
    const struct attend *a = f->attend;
    size_t rows = (size_t)b->n_tok * (f->h->n_head / f->h->n_kv), width = f->h->d_head + 2;
    return state_at(a->partial + (b->row * a->n_segments + segment * rows) * width, rows);
}

static void work_split(struct forward *f, uint32_t layer, struct thread_room *r, size_t task)
{
    struct attend *a = f->attend;
    const struct block *b = &a->blocks[task / a->n_segments];
    size_t segment = task % a->n_segments;
    if (segment >= segments_of(f, b)) return; /* another sequence of the batch is longer */
    attend_segment(f, layer, b, r, fill_rows(f, layer, b, r), segment,
                   partial_state(f, b, segment));
}

static void work_whole(struct forward *f, uint32_t layer, struct thread_room *r, size_t task,
                       struct forward_rows *heads)
{
    const struct block *b = &f->attend->blocks[task];
    size_t rows = fill_rows(f, layer, b, r);
    clear_state(&r->whole, rows, f->h->d_head);
    for (size_t s = 0; s < segments_of(f, b); s++) {
        attend_segment(f, layer, b, r, rows, s, r->part);
        merge_rows(f, &r->whole, &r->part, rows);
    }
    write_heads(f, b, r, heads);
}

void attend_work(struct forward *f, uint32_t layer, uint32_t thread, struct forward_rows *heads)
{
    struct attend *a = f->attend;
    for (;;) {
        size_t i = atomic_fetch_add(&a->next, 1);
        if (i >= a->n_tasks) return;
        size_t task = a->n_tasks - 1 - i; /* later blocks see more positions: longest first */
        if (a->split) work_split(f, layer, &a->rooms[thread], task);
        else work_whole(f, layer, &a->rooms[thread], task, heads);
    }
}

void attend_merge(struct forward *f, uint32_t thread, uint32_t step, struct forward_rows *heads)
{
    struct attend *a = f->attend;
    struct thread_room *r = &a->rooms[thread];
    for (size_t i = step == 1 ? 0 : thread; a->split && i < a->n_blocks; i += step) {
        const struct block *b = &a->blocks[i];
        size_t rows = (size_t)b->n_tok * (f->h->n_head / f->h->n_kv);
        clear_state(&r->whole, rows, f->h->d_head);
        for (size_t s = 0; s < segments_of(f, b); s++) {
            struct state part = partial_state(f, b, s);
            merge_rows(f, &r->whole, &part, rows);
        }
        write_heads(f, b, r, heads);
    }
    if (thread == 0) atomic_store(&a->next, 0); /* nobody takes a task before the next barrier */
}
