/* selfattend.c: causal attention of packed rows and its gradients, tile by tile.
 * Owns: scratch per worker, the segments of a batch, sums of bias gradients per segment.
 * All query heads of a KV head go together: a block of queries is (head of the group, row).
 * Backward computes the weights again from lse.
 * S1 forward: a unit is (query block, KV head), and writes its own rows of o and lse only.
 * S2 backward: a unit is (segment, KV head); no row sees across segments, so a unit owns its rows
 *    of dq, dk, dv and goes through its tiles in one order.
 * S3 dbias: each segment has sums of its own, added in ascending order. */
#include "train/selfattend.h"

#include <assert.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>
#include "base/mem.h"
#include "kern/kern.h"
#include "kern/ref/lanes_ref.h"

enum { KEYS = 128, QUERIES = 128, QUERY_UNIT = 16, SEGMENT_ROWS = 128 };

/* One worker's scratch; rows: those of a query block. */
struct workroom {
    float *q, *dq;         /* (rows, dk) q times scale */
    float *o, *d_o;        /* (rows, dv) */
    float *p, *dp;         /* (rows, KEYS) */
    float *max, *sum;      /* (rows); backward: lse and sum of o d_o */
};

struct selfattend {
    struct gemm *g;
    struct kern_table kern;
    struct selfattend_shape shape;
    size_t group, n_query; /* heads of a KV head, rows of a query block */
    struct workroom *rooms;
    float *memory;
    uint32_t *segments; /* first rows, and n_rows behind the last */
    size_t n_segments;
    float *bias_sums; /* (segments, n_head, n_bias) */
};

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t most_segments(const struct selfattend_shape *shape)
{
    return shape->most_rows / SEGMENT_ROWS + 1;
}

static size_t room_floats(const struct selfattend *s)
{
    size_t rows = s->group * s->n_query;
    return rows * (2 * s->shape.dk + 2 * s->shape.dv + 2 * KEYS + 2);
}

static float *take(float **memory, size_t n)
{
    float *p = *memory;
    *memory += n;
    return p;
}

static void place_rooms(struct selfattend *s, uint32_t n_threads)
{
    size_t rows = s->group * s->n_query;
    float *at = s->memory;
    for (uint32_t t = 0; t < n_threads; t++) { /* rows is a multiple of 16: all stay aligned */
        struct workroom *w = &s->rooms[t];
        w->q = take(&at, rows * s->shape.dk);
        w->dq = take(&at, rows * s->shape.dk);
        w->o = take(&at, rows * s->shape.dv);
        w->d_o = take(&at, rows * s->shape.dv);
        w->p = take(&at, rows * KEYS);
        w->dp = take(&at, rows * KEYS);
        w->max = take(&at, rows);
        w->sum = take(&at, rows);
    }
}

/* Groups and blocks of a shape. */
static struct selfattend sized(const struct selfattend_shape *shape)
{
    struct selfattend s = { .shape = *shape, .group = shape->n_head / shape->n_kv };
    size_t rows = (QUERIES / s.group + QUERY_UNIT - 1) / QUERY_UNIT * QUERY_UNIT;
    s.n_query = rows > QUERY_UNIT ? rows : QUERY_UNIT;
    return s;
}

static size_t bias_floats(const struct selfattend_shape *shape)
{
    return most_segments(shape) * shape->n_head * shape->n_bias;
}

uint64_t selfattend_bytes(const struct selfattend_shape *shape, uint32_t n_threads)
{
    struct selfattend s = sized(shape);
    return sizeof s + n_threads * (sizeof *s.rooms + room_floats(&s) * sizeof *s.memory) +
           (most_segments(shape) + 1) * sizeof *s.segments +
           bias_floats(shape) * sizeof *s.bias_sums;
}

static zp_status fill(struct selfattend *s, zp_err *err)
{
    uint32_t n_threads = pool_threads(gemm_pool(s->g));
    ZP_ALLOC(s->rooms, MEM_ACTIVATION, n_threads, err, "attention");
    ZP_ALLOC(s->memory, MEM_ACTIVATION, n_threads * room_floats(s), err, "tiles of attention");
    ZP_ALLOC(s->segments, MEM_ACTIVATION, most_segments(&s->shape) + 1, err, "attention");
    ZP_ALLOC(s->bias_sums, MEM_ACTIVATION, bias_floats(&s->shape), err, "bias gradients");
    place_rooms(s, n_threads);
    return ZP_OK;
}

zp_status selfattend_open(struct selfattend **out, struct gemm *g,
                          const struct selfattend_shape *shape, zp_err *err)
{
    *out = NULL;
    ZP_FAIL_IF(shape->n_kv == 0 || shape->n_head % shape->n_kv != 0, err, ZP_USAGE,
               "%zu heads cannot share %zu KV heads", shape->n_head, shape->n_kv);
    struct selfattend *s = mem_zalloc(MEM_ACTIVATION, sizeof *s);
    ZP_FAIL_IF(!s, err, ZP_NO_MEMORY, "not enough memory for attention");
    *s = sized(shape);
    s->g = g;
    kern_table_init(&s->kern, KERN_LEVEL_COUNT - 1);
    zp_status status = fill(s, err);
    if (status == ZP_OK) *out = s;
    else selfattend_close(s);
    return status;
}

void selfattend_close(struct selfattend *s)
{
    if (!s) return;
    mem_free(s->rooms);
    mem_free(s->memory);
    mem_free(s->segments);
    mem_free(s->bias_sums);
    mem_free(s);
}

/* ---- what both directions share -------------------------------------------------------------- */

/* A query block against a tile of keys. */
struct block {
    const struct selfattend *s;
    const struct selfattend_batch *b;
    struct workroom *w;
    uint32_t thread;
    size_t kv, q0, n_query; /* rows [q0, q0 + n_query) of each head of the group */
    size_t k0, n_key;
};

/* What a row sees of a tile: [sink0, sink1) and [near0, near1), counted from the tile's first
 * row. */
struct sight {
    size_t sink0, sink1, near0, near1;
};

static size_t into_tile(const struct block *a, size_t row)
{
    return row < a->k0 ? 0 : least(row - a->k0, a->n_key);
}

static size_t first_of(const struct selfattend_batch *b, size_t kv, size_t row)
{
    return b->first[kv * b->first_stride + row];
}

static struct sight sight_of(const struct block *a, size_t row)
{
    const struct selfattend_batch *b = a->b;
    size_t first = first_of(b, a->kv, row), sink = b->n_sink ? b->doc_start[row] : first;
    size_t sink_end = b->n_sink ? least(sink + b->n_sink[a->kv], first) : first;
    return (struct sight){ into_tile(a, sink), into_tile(a, sink_end), into_tile(a, first),
                           into_tile(a, row + 1) };
}

static bool sees_any(const struct block *a)
{
    for (size_t i = 0; i < a->n_query; i++) {
        struct sight s = sight_of(a, a->q0 + i);
        if (s.sink0 < s.sink1 || s.near0 < s.near1) return true;
    }
    return false;
}

/* First row that any query of the block sees. */
static size_t farthest(const struct block *a)
{
    size_t far = a->q0;
    for (size_t i = a->q0; i < a->q0 + a->n_query; i++) {
        far = least(far, first_of(a->b, a->kv, i));
        if (a->b->n_sink && a->b->n_sink[a->kv]) far = least(far, a->b->doc_start[i]);
    }
    return far;
}

static float query_scale(const struct selfattend_batch *b, size_t row)
{
    return b->row_scale ? b->scale * b->row_scale[row] : b->scale;
}

/* Rows of the block's heads, out of (n_rows, n_head, d) or into it. */
static size_t row_at(const struct block *a, size_t h, size_t i, size_t d)
{
    const struct selfattend *s = a->s;
    return ((a->q0 + i) * s->shape.n_head + a->kv * s->group + h) * d;
}

static void load_queries(const struct block *a)
{
    size_t d = a->s->shape.dk;
    float *to = a->w->q;
    for (size_t h = 0; h < a->s->group; h++)
        for (size_t i = 0; i < a->n_query; i++, to += d) {
            const float *from = a->b->q + row_at(a, h, i, d);
            float scale = query_scale(a->b, a->q0 + i);
            a->s->kern.scale(from, scale, to, d);
        }
}

static const float *keys_of(const struct block *a)
{
    return a->b->k + (a->k0 * a->s->shape.n_kv + a->kv) * a->s->shape.dk;
}

static const float *values_of(const struct block *a)
{
    return a->b->v + (a->k0 * a->s->shape.n_kv + a->kv) * a->s->shape.dv;
}

/* One product of the block's thread. */
static void multiply(const struct block *a, enum gemm_kind kind, bool add, size_t n, size_t m,
                     size_t k, const float *x, size_t ldx, const float *w, size_t ldw, float *y,
                     size_t ldy)
{
    struct gemm_product p = { kind, add, n, m, k, x, ldx, w, ldw, y, ldy };
    gemm_block(a->s->g, a->thread, &p);
}

static void score_tile(const struct block *a)
{
    const struct selfattend_shape *shape = &a->s->shape;
    multiply(a, GEMM_NT, false, a->s->group * a->n_query, a->n_key, shape->dk, a->w->q, shape->dk,
             keys_of(a), shape->n_kv * shape->dk, a->w->p, KEYS);
}

/* Bias of head h at query row: its value for the tile's first key; later keys stand before it. */
static const float *bias_of(const struct block *a, const float *table, size_t h, size_t row,
                            struct sight s)
{
    size_t nearest = s.sink0 < s.sink1 ? s.sink0 : s.near0;
    assert(row - (a->k0 + nearest) < a->s->shape.n_bias);
    return table + (a->kv * a->s->group + h) * a->s->shape.n_bias + (row - a->k0);
}

static void add_bias(const float *bias, float *p, size_t begin, size_t end)
{
    for (size_t j = begin; j < end; j++) p[j] += *(bias - j);
}

/* Where head h's numbers by key stand for the tile's first key. */
static size_t key_at(const struct block *a, size_t h)
{
    return (a->kv * a->s->group + h) * a->b->n_rows + a->k0;
}

/* Both biases onto the scores that the row sees of the tile, which are some. */
static void add_biases(const struct block *a, size_t h, size_t row, struct sight s, float *p)
{
    if (a->b->bias) {
        const float *bias = bias_of(a, a->b->bias, h, row, s);
        if (s.sink0 < s.sink1) add_bias(bias, p, s.sink0, s.sink1);
        if (s.near0 < s.near1) add_bias(bias, p, s.near0, s.near1);
    }
    if (!a->b->key_bias) return;
    const float *key = a->b->key_bias + key_at(a, h);
    for (size_t j = s.sink0; j < s.sink1; j++) p[j] += key[j];
    for (size_t j = s.near0; j < s.near1; j++) p[j] += key[j];
}

static void clear_unseen(const struct block *a, struct sight s, float *p)
{
    size_t sink1 = s.sink0 < s.sink1 ? s.sink1 : 0, sink0 = s.sink0 < s.sink1 ? s.sink0 : 0;
    size_t near0 = s.near0 < s.near1 ? s.near0 : a->n_key;
    size_t near1 = s.near0 < s.near1 ? s.near1 : a->n_key;
    memset(p, 0, sink0 * sizeof *p);
    memset(p + sink1, 0, (near0 - sink1) * sizeof *p);
    memset(p + near1, 0, (a->n_key - near1) * sizeof *p);
}

/* ---- forward --------------------------------------------------------------------------------- */

struct forward_job {
    struct selfattend *s;
    const struct selfattend_batch *b;
    float *o, *lse;
    atomic_size_t next;
};

/* Scores of a row become weights; its maximum, sum and output move on. */
static void soften_row(const struct block *a, size_t h, size_t i)
{
    size_t row = h * a->n_query + i, dv = a->s->shape.dv;
    float *p = a->w->p + row * KEYS, *o = a->w->o + row * dv;
    struct sight s = sight_of(a, a->q0 + i);
    size_t n_sink = s.sink1 > s.sink0 ? s.sink1 - s.sink0 : 0;
    size_t n_near = s.near1 > s.near0 ? s.near1 - s.near0 : 0;
    if (n_sink + n_near == 0) {
        memset(p, 0, a->n_key * sizeof *p);
        return;
    }
    add_biases(a, h, a->q0 + i, s, p);
    const struct kern_table *t = &a->s->kern;
    float old = a->w->max[row], max = t->row_max(p + s.sink0, n_sink, old);
    max = t->row_max(p + s.near0, n_near, max);
    float sum = t->exp_row(p + s.sink0, n_sink, max, 1) + t->exp_row(p + s.near0, n_near, max, 1);
    clear_unseen(a, s, p);
    float keep = t->exp_row(&old, 1, max, 1);
    a->w->max[row] = max;
    a->w->sum[row] = a->w->sum[row] * keep + sum;
    if (keep != 1.0f) t->scale(o, keep, o, dv);
}

static void attend_tile(const struct block *a)
{
    const struct selfattend_shape *shape = &a->s->shape;
    score_tile(a);
    for (size_t h = 0; h < a->s->group; h++)
        for (size_t i = 0; i < a->n_query; i++) soften_row(a, h, i);
    multiply(a, GEMM_NN, true, a->s->group * a->n_query, shape->dv, a->n_key, a->w->p, KEYS,
             values_of(a), shape->n_kv * shape->dv, a->w->o, shape->dv);
}

static void store_outputs(const struct block *a, float *o, float *lse)
{
    size_t d = a->s->shape.dv, row = 0;
    for (size_t h = 0; h < a->s->group; h++)
        for (size_t i = 0; i < a->n_query; i++, row++) {
            float *to = o + row_at(a, h, i, d), inverse = 1.0f / a->w->sum[row];
            a->s->kern.scale(a->w->o + row * d, inverse, to, d);
            lse[(a->kv * a->s->group + h) * a->b->n_rows + a->q0 + i] =
                a->w->max[row] + logf(a->w->sum[row]);
        }
}

static void forward_share(void *arg, uint32_t thread, uint32_t n_threads)
{
    ZP_UNUSED(n_threads);
    struct forward_job *j = arg;
    const struct selfattend *s = j->s;
    size_t n_rows = j->b->n_rows, n_block = (n_rows + s->n_query - 1) / s->n_query;
    for (;;) { // S1; the last rows, which see most, first
        size_t unit = atomic_fetch_add_explicit(&j->next, 1, memory_order_relaxed);
        if (unit >= n_block * s->shape.n_kv) return;
        struct block a = { .s = s, .b = j->b, .w = &s->rooms[thread], .thread = thread };
        a.kv = unit % s->shape.n_kv;
        a.q0 = (n_block - 1 - unit / s->shape.n_kv) * s->n_query;
        a.n_query = least(s->n_query, n_rows - a.q0);
        size_t rows = s->group * a.n_query;
        load_queries(&a);
        memset(a.w->o, 0, rows * s->shape.dv * sizeof *a.w->o);
        for (size_t i = 0; i < rows; i++) a.w->max[i] = -INFINITY, a.w->sum[i] = 0;
        for (a.k0 = farthest(&a) / KEYS * KEYS; a.k0 < a.q0 + a.n_query; a.k0 += KEYS) {
            a.n_key = least(KEYS, a.q0 + a.n_query - a.k0);
            if (sees_any(&a)) attend_tile(&a);
        }
        store_outputs(&a, j->o, j->lse);
    }
}

void selfattend_forward(struct selfattend *s, const struct selfattend_batch *b, float *o,
                        float *lse)
{
    assert(b->n_rows <= s->shape.most_rows);
    struct forward_job j = { .s = s, .b = b, .o = o, .lse = lse };
    atomic_init(&j.next, 0);
    pool_run(gemm_pool(s->g), forward_share, &j);
}

/* ---- backward -------------------------------------------------------------------------------- */

struct backward_job {
    struct selfattend *s;
    const struct selfattend_batch *b;
    const float *o, *lse, *d_o;
    float *dq, *dk, *dv, *dbias, *dkey_bias;
    atomic_size_t next;
};

/* First row that row i sees of any head. */
static size_t reach(const struct selfattend *s, const struct selfattend_batch *b, size_t i)
{
    size_t far = b->n_sink ? b->doc_start[i] : i;
    for (size_t kv = 0; kv < (b->first_stride ? s->shape.n_kv : 1); kv++)
        far = least(far, first_of(b, kv, i));
    return far;
}

/* A segment may begin where no later row sees what came before (S2). Found from behind, each at
 * least SEGMENT_ROWS long but the first, and turned round. */
static void find_segments(struct selfattend *s, const struct selfattend_batch *b)
{
    size_t n = 0, far = b->n_rows, end = b->n_rows;
    s->segments[n++] = (uint32_t)b->n_rows;
    for (size_t i = b->n_rows; i-- > 0;) {
        far = least(far, reach(s, b, i));
        if (far < i || (i > 0 && end - i < SEGMENT_ROWS)) continue;
        s->segments[n++] = (uint32_t)i;
        end = i;
    }
    s->n_segments = n - 1;
    for (size_t i = 0; i < n / 2; i++) {
        uint32_t keep = s->segments[i];
        s->segments[i] = s->segments[n - 1 - i];
        s->segments[n - 1 - i] = keep;
    }
}

static void load_outputs(const struct block *a, const struct backward_job *j)
{
    size_t d = a->s->shape.dv, row = 0;
    for (size_t h = 0; h < a->s->group; h++)
        for (size_t i = 0; i < a->n_query; i++, row++) {
            size_t at = row_at(a, h, i, d);
            float lane[LANES] = { 0 };
            for (size_t c = 0; c < d; c++) lane[c % LANES] += j->o[at + c] * j->d_o[at + c];
            a->w->sum[row] = sum_lanes_ref(lane);
            a->w->max[row] = j->lse[(a->kv * a->s->group + h) * a->b->n_rows + a->q0 + i];
            memcpy(a->w->d_o + row * d, j->d_o + at, d * sizeof *j->d_o);
        }
}

/* Scores of a row become weights again. */
static void weigh_row(const struct block *a, size_t h, size_t i)
{
    size_t row = h * a->n_query + i;
    float *p = a->w->p + row * KEYS, lse = a->w->max[row];
    struct sight s = sight_of(a, a->q0 + i);
    if (s.sink0 < s.sink1 || s.near0 < s.near1) add_biases(a, h, a->q0 + i, s, p);
    if (s.sink0 < s.sink1) a->s->kern.exp_row(p + s.sink0, s.sink1 - s.sink0, lse, 1);
    if (s.near0 < s.near1) a->s->kern.exp_row(p + s.near0, s.near1 - s.near0, lse, 1);
    clear_unseen(a, s, p);
}

/* Weights become gradients of scores: p (dp - sum of o d_o). */
static void slope_row(const struct block *a, size_t h, size_t i, float *bias_sums,
                      float *dkey_bias)
{
    size_t row = h * a->n_query + i;
    float *p = a->w->p + row * KEYS, sum = a->w->sum[row];
    const float *dp = a->w->dp + row * KEYS;
    for (size_t c = 0; c < a->n_key; c++) p[c] *= dp[c] - sum;
    if (dkey_bias) /* 0 where the row does not look */
        for (size_t c = 0; c < a->n_key; c++) dkey_bias[key_at(a, h) + c] += p[c];
    struct sight s = sight_of(a, a->q0 + i);
    if (!bias_sums || (s.sink0 >= s.sink1 && s.near0 >= s.near1)) return;
    float *bias = bias_sums + (a->kv * a->s->group + h) * a->s->shape.n_bias + (a->q0 + i - a->k0);
    for (size_t c = s.sink0; c < s.sink1; c++) *(bias - c) += p[c];
    for (size_t c = s.near0; c < s.near1; c++) *(bias - c) += p[c];
}

static void backward_tile(const struct block *a, const struct backward_job *j, float *bias_sums)
{
    const struct selfattend_shape *shape = &a->s->shape;
    size_t rows = a->s->group * a->n_query, ldk = shape->n_kv * shape->dk;
    size_t ldv = shape->n_kv * shape->dv, tile = a->k0 * shape->n_kv + a->kv;
    score_tile(a);
    for (size_t h = 0; h < a->s->group; h++)
        for (size_t i = 0; i < a->n_query; i++) weigh_row(a, h, i);
    multiply(a, GEMM_TN, true, a->n_key, shape->dv, rows, a->w->p, KEYS, a->w->d_o, shape->dv,
             j->dv + tile * shape->dv, ldv);
    multiply(a, GEMM_NT, false, rows, a->n_key, shape->dv, a->w->d_o, shape->dv, values_of(a), ldv,
             a->w->dp, KEYS);
    for (size_t h = 0; h < a->s->group; h++)
        for (size_t i = 0; i < a->n_query; i++) slope_row(a, h, i, bias_sums, j->dkey_bias);
    multiply(a, GEMM_NN, true, rows, shape->dk, a->n_key, a->w->p, KEYS, keys_of(a), ldk, a->w->dq,
             shape->dk);
    multiply(a, GEMM_TN, true, a->n_key, shape->dk, rows, a->w->p, KEYS, a->w->q, shape->dk,
             j->dk + tile * shape->dk, ldk);
}

static void store_query_gradients(const struct block *a, float *dq)
{
    size_t d = a->s->shape.dk;
    const float *from = a->w->dq;
    for (size_t h = 0; h < a->s->group; h++)
        for (size_t i = 0; i < a->n_query; i++, from += d) {
            float *to = dq + row_at(a, h, i, d), scale = query_scale(a->b, a->q0 + i);
            a->s->kern.scale(from, scale, to, d);
        }
}

static void backward_segment(const struct backward_job *j, struct block *a, size_t begin,
                             size_t end, float *bias_sums)
{
    const struct selfattend *s = j->s;
    size_t dk = s->shape.dk, dv = s->shape.dv;
    for (size_t i = begin; i < end; i++) {
        memset(j->dk + (i * s->shape.n_kv + a->kv) * dk, 0, dk * sizeof *j->dk);
        memset(j->dv + (i * s->shape.n_kv + a->kv) * dv, 0, dv * sizeof *j->dv);
    }
    for (size_t h = a->kv * s->group; j->dkey_bias && h < (a->kv + 1) * s->group; h++)
        memset(j->dkey_bias + h * a->b->n_rows + begin, 0, (end - begin) * sizeof *j->dkey_bias);
    for (a->q0 = begin; a->q0 < end; a->q0 += s->n_query) {
        a->n_query = least(s->n_query, end - a->q0);
        load_queries(a);
        load_outputs(a, j);
        memset(a->w->dq, 0, s->group * a->n_query * dk * sizeof *a->w->dq);
        size_t far = farthest(a); /* >= begin */
        for (a->k0 = begin + (far - begin) / KEYS * KEYS; a->k0 < a->q0 + a->n_query;
             a->k0 += KEYS) {
            a->n_key = least(KEYS, a->q0 + a->n_query - a->k0);
            if (sees_any(a)) backward_tile(a, j, bias_sums);
        }
        store_query_gradients(a, j->dq);
    }
}

/* This thread's distances of all segments' sums. */
static void add_bias_sums(const struct backward_job *j, uint32_t thread, uint32_t n_threads)
{
    size_t n = j->s->shape.n_head * j->s->shape.n_bias, begin, end;
    pool_share(n, 16, thread, n_threads, &begin, &end);
    for (size_t segment = 0; segment < j->s->n_segments; segment++) // S3
        for (size_t i = begin; i < end; i++) j->dbias[i] += j->s->bias_sums[segment * n + i];
}

static void backward_share(void *arg, uint32_t thread, uint32_t n_threads)
{
    struct backward_job *j = arg;
    const struct selfattend *s = j->s;
    size_t n_kv = s->shape.n_kv, head_bias = s->group * s->shape.n_bias;
    for (;;) { // S2
        size_t unit = atomic_fetch_add_explicit(&j->next, 1, memory_order_relaxed);
        if (unit >= s->n_segments * n_kv) break;
        struct block a = { .s = s, .b = j->b, .w = &s->rooms[thread], .thread = thread };
        size_t segment = unit / n_kv;
        a.kv = unit % n_kv;
        float *sums = NULL;
        if (j->dbias) {
            sums = s->bias_sums + segment * s->shape.n_head * s->shape.n_bias;
            memset(sums + a.kv * head_bias, 0, head_bias * sizeof *sums);
        }
        backward_segment(j, &a, s->segments[segment], s->segments[segment + 1], sums);
    }
    if (!j->dbias) return;
    pool_barrier(gemm_pool(s->g), thread);
    add_bias_sums(j, thread, n_threads);
}

void selfattend_backward(struct selfattend *s, const struct selfattend_batch *b, const float *o,
                         const float *lse, const float *d_o, float *dq, float *dk, float *dv,
                         float *dbias, float *dkey_bias)
{
    assert(b->n_rows <= s->shape.most_rows);
    struct backward_job j = { .s = s, .b = b, .o = o, .lse = lse, .d_o = d_o, .dq = dq, .dk = dk,
                              .dv = dv, .dbias = dbias, .dkey_bias = dkey_bias };
    find_segments(s, b);
    atomic_init(&j.next, 0);
    pool_run(gemm_pool(s->g), backward_share, &j);
}
