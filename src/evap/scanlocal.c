/* scanlocal.c: local attention-output errors, many changes at a time.
 * Owns: widened tiles and query rows. Does not know: KL, plans.
 * The trick: keys are stored twice in a head of double width, [rotated | raw]. A query row whose
 * pair i stands in the raw half and is zero in the rotated half sees that pair un-rotated, so one
 * attention call answers for every gate:
 *
 *   row "original"   [ q0 q1 q2 .. | 0  0  0 .. ]        key tile  [ R k | k ]
 *   row "close 1"    [ q0 0  q2 .. | 0  q1 0 .. ]        value tile [ v | 0 ]
 *
 * L1 inputs of every layer are the original's, whatever the set: errors do not compound across
 *    layers here.
 * L2 the norm after W_o is taken through its Gram matrix G = W_o^T W_o of each head: |W_o x|^2 =
 *    x^T G x.
 * L3 sums are kept by query and added in their order: the number of threads changes no bit. */
#include "evap/scanlocal.h"

#include <math.h>
#include <string.h>

enum { QUERIES = 32 }; /* of each window */
enum { ROW_ORIGINAL, ROW_ALL, ROW_NOW, ROW_FIRST_PAIR };

struct room {             /* of one worker */
    float *q, *o, *m, *l; /* (rows, 2d), (rows, 2d), (rows), (rows) */
    float *delta, *image; /* (rows, d): o' - o and G (o' - o) */
    uint32_t *lo, *hi;
    float *cs_all, *cs_room, *rotated;
    double *gate, *head; /* (n_kv, n_pair), (n_kv, ROW_FIRST_PAIR): sums of the query in work */
};

struct scanlocal {
    struct calib *c;
    uint32_t rows;
    float *x[2];                   /* stream before and after a layer (n_ctx, d_model) */
    float *q, *k, *v;              /* (n_ctx, heads, d) before the rotation */
    float *tiles;                  /* (n_kv, n_tiles, [K 2d x 64 | V 64 x 2d]) */
    const void **k_tile, **v_tile; /* (n_kv, n_tiles) */
    struct kern_mat *gram;         /* (n_layer, n_head) */
    float *gram_memory;
    struct room *rooms;
    double *gate, *head; /* (QUERIES, n_kv, n_pair), (QUERIES, n_kv, ROW_FIRST_PAIR) */
    struct arena arena;
    /* the window and layer in work */
    const struct gateset *set;
    uint32_t layer, n_tok;
};

zp_status local_errors_open(struct local_errors *e, uint32_t n_layer, uint32_t n_kv,
                            uint32_t n_pair, zp_err *err)
{
    size_t heads = (size_t)n_layer * n_kv;
    memset(e, 0, sizeof *e);
    float **parts[] = { &e->gate, &e->now, &e->all, &e->output };
    size_t sizes[] = { heads * n_pair, heads, heads, n_layer };
    for (size_t i = 0; i < ZP_COUNT(parts); i++)
        if (!(*parts[i] = mem_zalloc(MEM_EVAP, sizes[i] * sizeof(float)))) {
            local_errors_free(e);
            ZP_FAIL(err, ZP_NO_MEMORY, "not enough memory for local errors");
        }
    return ZP_OK;
}

void local_errors_free(struct local_errors *e)
{
    mem_free(e->gate), mem_free(e->now), mem_free(e->all), mem_free(e->output);
    memset(e, 0, sizeof *e);
}

/* ---- opening --------------------------------------------------------------------------------- */

static zp_status take_room(struct scanlocal *s, struct room *r, zp_err *err)
{
    const struct hparams *h = &s->c->model->h;
    size_t rows = s->rows, d = h->d_head, pairs = s->c->model->position.n_pair;
    struct kern_mat
        gram; /* gram_worker packs with delta as its scratch: more than rows * d when d is small */
    ZP_TRY(kern_mat_plan(&gram, QUANT_F32, d, d, true, err));
    size_t packing = kern_mat_pack_scratch(&gram) / sizeof(float),
           delta = rows * d > packing ? rows * d : packing;
    ZP_TAKE(r->q, &s->arena, rows * 2 * d, err, "the local scan");
    ZP_TAKE(r->o, &s->arena, rows * 2 * d, err, "the local scan");
    ZP_TAKE(r->m, &s->arena, rows, err, "the local scan");
    ZP_TAKE(r->l, &s->arena, rows, err, "the local scan");
    ZP_TAKE(r->delta, &s->arena, delta, err, "the local scan");
    ZP_TAKE(r->image, &s->arena, rows * d, err, "the local scan");
    ZP_TAKE(r->lo, &s->arena, rows, err, "the local scan");
    ZP_TAKE(r->hi, &s->arena, rows, err, "the local scan");
    ZP_TAKE(r->cs_all, &s->arena, 2 * pairs, err, "the local scan");
    ZP_TAKE(r->cs_room, &s->arena, 2 * pairs, err, "the local scan");
    ZP_TAKE(r->rotated, &s->arena, d, err, "the local scan");
    return ZP_OK;
}

/* G of every head from the rows of W_o; sums in float are fine: G only weighs errors. */
static void gram_worker(void *arg, uint32_t thread, uint32_t n_threads)
{
    struct scanlocal *s = arg;
    const struct hparams *h = &s->c->model->h;
    size_t d = h->d_head;
    float *row = s->rooms[thread].q,
          *g = s->rooms[thread].o; /* rows * 2d floats each: at least d * d and n_head * d */
    for (uint32_t l = thread; l < h->n_layer; l += n_threads)
        for (uint32_t i = 0; i < h->n_head; i++) {
            const struct kern_mat *w = &s->c->engine->weights.layers[l].mat[W_O];
            memset(g, 0, d * d * sizeof *g);
            for (uint32_t r = 0; r < h->d_model; r++) {
                kern_mat_unpack_row(w, r, row);
                for (size_t a = 0; a < d; a++)
                    for (size_t b = 0; b < d; b++) g[a * d + b] += row[i * d + a] * row[i * d + b];
            }
            kern_mat_pack(&s->gram[l * h->n_head + i], (const uint8_t *)g, QUANT_F32, NULL, 0,
                          (d + 15) / 16, s->rooms[thread].delta);
        }
}

static zp_status make_grams(struct scanlocal *s, zp_err *err)
{
    const struct hparams *h = &s->c->model->h;
    size_t n = (size_t)h->n_layer * h->n_head;
    struct kern_mat one;
    ZP_TRY(kern_mat_plan(&one, QUANT_F32, h->d_head, h->d_head, true, err));
    size_t bytes = (kern_mat_bytes(&one) + 63) / 64 * 64;
    ZP_TAKE(s->gram, &s->arena, n, err, "the local scan");
    ZP_ALLOC(s->gram_memory, MEM_EVAP, n * bytes / sizeof(float), err,
             "output norms of the local scan");
    for (size_t i = 0; i < n; i++) {
        s->gram[i] = one;
        s->gram[i].data = (uint8_t *)s->gram_memory + i * bytes;
    }
    pool_run(s->c->engine->pool, gram_worker, s);
    return ZP_OK;
}

static zp_status place_tiles(struct scanlocal *s, zp_err *err)
{
    const struct hparams *h = &s->c->model->h;
    size_t n_tiles = (s->c->n_ctx + KERN_TILE - 1) / KERN_TILE,
           half = (size_t)KERN_TILE * 2 * h->d_head;
    ZP_ALLOC(s->tiles, MEM_EVAP, h->n_kv * n_tiles * 2 * half, err, "tiles of the local scan");
    memset(s->tiles, 0, h->n_kv * n_tiles * 2 * half * sizeof *s->tiles);
    ZP_TAKE(s->k_tile, &s->arena, h->n_kv * n_tiles, err, "the local scan");
    ZP_TAKE(s->v_tile, &s->arena, h->n_kv * n_tiles, err, "the local scan");
    for (size_t i = 0; i < h->n_kv * n_tiles; i++) {
        s->k_tile[i] = s->tiles + i * 2 * half;
        s->v_tile[i] = s->tiles + i * 2 * half + half;
    }
    return ZP_OK;
}

static zp_status fill(struct scanlocal *s, zp_err *err)
{
    const struct hparams *h = &s->c->model->h;
    size_t n = s->c->n_ctx, group = h->n_head / h->n_kv;
    s->rows = (uint32_t)(group * (ROW_FIRST_PAIR + s->c->model->position.n_pair));
    /* gram_worker borrows a room's q and o: both hold rows * 2d floats */
    size_t need = (size_t)h->n_head * h->d_head / (2 * h->d_head) + h->d_head / 2 + 1;
    if (s->rows < need) s->rows = (uint32_t)need;
    for (int i = 0; i < 2; i++) ZP_TAKE(s->x[i], &s->arena, n * h->d_model, err, "the local scan");
    ZP_TAKE(s->q, &s->arena, n * h->n_head * h->d_head, err, "the local scan");
    ZP_TAKE(s->k, &s->arena, n * h->n_kv * h->d_head, err, "the local scan");
    ZP_TAKE(s->v, &s->arena, n * h->n_kv * h->d_head, err, "the local scan");
    ZP_TRY(place_tiles(s, err));
    size_t sums = (size_t)QUERIES * h->n_kv;
    ZP_TAKE(s->gate, &s->arena, sums * s->c->model->position.n_pair, err, "the local scan");
    ZP_TAKE(s->head, &s->arena, sums * ROW_FIRST_PAIR, err, "the local scan");
    uint32_t threads = pool_threads(s->c->engine->pool);
    ZP_TAKE(s->rooms, &s->arena, threads, err, "the local scan");
    for (uint32_t i = 0; i < threads; i++) ZP_TRY(take_room(s, &s->rooms[i], err));
    return make_grams(s, err);
}

zp_status scanlocal_open(struct scanlocal **out, struct calib *c, zp_err *err)
{
    struct scanlocal *s = mem_zalloc(MEM_EVAP, sizeof *s);
    *out = NULL;
    ZP_FAIL_IF(!s, err, ZP_NO_MEMORY, "not enough memory for the local scan");
    s->c = c;
    s->arena.tag = MEM_EVAP;
    zp_status status = fill(s, err);
    if (status == ZP_OK) *out = s;
    else scanlocal_close(s);
    return status;
}

void scanlocal_close(struct scanlocal *s)
{
    if (!s) return;
    mem_free(s->tiles);
    mem_free(s->gram_memory);
    arena_free(&s->arena);
    mem_free(s);
}

/* ---- keys ------------------------------------------------------------------------------------ */

static void tiles_worker(void *arg, uint32_t thread, uint32_t n_threads)
{
    struct scanlocal *s = arg;
    const struct hparams *h = &s->c->model->h;
    struct room *r = &s->rooms[thread];
    size_t d = h->d_head, n_tiles = (s->c->n_ctx + KERN_TILE - 1) / KERN_TILE, begin, end;
    pool_share(s->n_tok, KERN_TILE, thread, n_threads, &begin, &end);
    for (size_t t = begin; t < end; t++)
        for (uint32_t kv = 0; kv < h->n_kv; kv++) {
            float *wide = r->q, *value = r->o; /* [R k | k], [v | 0] */
            memcpy(wide, s->k + (t * h->n_kv + kv) * d, d * sizeof *wide);
            memcpy(wide + d, wide, d * sizeof *wide);
            calib_rotate(s->c, s->layer, kv, (uint32_t)t, wide, r->cs_all, r->cs_room);
            memcpy(value, s->v + (t * h->n_kv + kv) * d, d * sizeof *value);
            memset(value + d, 0, d * sizeof *value);
            size_t tile = kv * n_tiles + t / KERN_TILE;
            s->c->engine->kern.kv_append_f32((void *)(uintptr_t)s->k_tile[tile],
                                             (void *)(uintptr_t)s->v_tile[tile], t % KERN_TILE,
                                             wide, value, 2 * d);
        }
}

/* ---- queries --------------------------------------------------------------------------------- */

static void move_pair(float *row, const float *raw, size_t slot, size_t d)
{
    for (size_t c = 2 * slot; c < 2 * slot + 2; c++) row[c] = 0.0f, row[d + c] = raw[c];
}

/* Rows of one query head: original, all, now, then every open pair on top of now. The last two see
 * what the set lets them see. Returns their number. */
static uint32_t query_rows(const struct scanlocal *s, uint32_t kv, uint32_t head, uint32_t at,
                           struct room *r, uint32_t first)
{
    const struct position *p = &s->c->model->position;
    const struct position_head *ph = &p->heads[s->layer * p->n_kv + kv];
    const uint8_t *open = s->set->open + gateset_at(s->set, s->layer, kv, 0);
    size_t d = p->d_head, wide = 2 * d;
    const float *raw = s->q + ((size_t)at * p->n_head + head) * d;
    float *row = r->q + first * wide, *scaled = r->rotated;
    uint32_t set_window = s->set->window[s->layer * p->n_kv + kv];
    struct position_seen file = position_seen(position_head_sight(p, s->layer, kv), at),
                         set = position_seen(position_try_sight(p, s->layer, set_window,
                                                                s->set->n_sink), at);
    float gate = position_gate_factor(p, s->layer, head, at),
          scale = gate * position_query_scale(p, s->layer, head, position_count_seen(file, at)),
          scale_set = gate * position_query_scale(p, s->layer, head, position_count_seen(set, at));
    for (size_t c = 0; c < d; c++) row[c] = scaled[c] = raw[c] * scale, row[d + c] = 0.0f;
    calib_rotate(s->c, s->layer, kv, at, row, r->cs_all, r->cs_room);
    for (uint32_t i = 1; i < ROW_FIRST_PAIR; i++) memcpy(row + i * wide, row, wide * sizeof *row);
    for (uint32_t slot = 0; slot < ph->n_open; slot++) {
        move_pair(row + ROW_ALL * wide, scaled, slot, d);
        if (!open[ph->pair[slot]]) move_pair(row + ROW_NOW * wide, scaled, slot, d);
    }
    uint32_t n = ROW_FIRST_PAIR;
    for (uint32_t slot = 0; slot < ph->n_open; slot++) {
        if (!open[ph->pair[slot]]) continue;
        memcpy(row + n * wide, row + ROW_NOW * wide, wide * sizeof *row);
        move_pair(row + n++ * wide, scaled, slot, d);
    }
    for (uint32_t i = 0; i < n; i++) {
        r->lo[first + i] = i < ROW_NOW ? file.first : set.first;
        r->hi[first + i] = at + 1;
    }
    for (size_t c = ROW_NOW * wide; scale != scale_set && c < n * wide; c++)
        row[c] *= scale_set / scale;
    return n;
}

/* x^T G x of every row's difference to the original row. */
static void head_errors(struct scanlocal *s, uint32_t kv, uint32_t head, struct room *r,
                        uint32_t first, uint32_t n)
{
    const struct position *p = &s->c->model->position;
    const struct position_head *ph = &p->heads[s->layer * p->n_kv + kv];
    const uint8_t *open = s->set->open + gateset_at(s->set, s->layer, kv, 0);
    size_t d = p->d_head, wide = 2 * d;
    for (uint32_t i = 0; i < n; i++)
        for (size_t c = 0; c < d; c++) {
            float o = r->o[(first + i) * wide + c] / r->l[first + i];
            r->delta[i * d + c] =
                i ? o - r->delta[c] : o; /* row 0 keeps the original output itself */
        }
    struct kern_act act = { .n_in = d, .f32 = r->delta, .f32_stride = d };
    s->c->engine->kern.gemm_f32(&s->gram[s->layer * p->n_head + head], 0, d, &act, n, r->image, d);
    double *head_sum = r->head + kv * ROW_FIRST_PAIR, *gate = r->gate + kv * p->n_pair;
    uint32_t at = ROW_FIRST_PAIR;
    for (uint32_t i = 0; i < n; i++) {
        double e = 0.0;
        for (size_t c = 0; c < d; c++)
            e += (double)r->delta[i * d + c] * (double)r->image[i * d + c];
        if (i < ROW_FIRST_PAIR) head_sum[i] += e;
        else r->m[i] = (float)e;
    }
    for (uint32_t slot = 0; slot < ph->n_open; slot++)
        if (open[ph->pair[slot]]) gate[ph->pair[slot]] += (double)r->m[at++];
}

static void attend_rows(struct scanlocal *s, uint32_t kv, struct room *r, uint32_t n)
{
    size_t d = s->c->model->h.d_head, n_tiles = (s->c->n_ctx + KERN_TILE - 1) / KERN_TILE;
    for (uint32_t i = 0; i < n; i++) r->m[i] = -INFINITY, r->l[i] = 0.0f;
    memset(r->o, 0, (size_t)n * 2 * d * sizeof *r->o);
    uint32_t sinks = s->c->model->position.window[s->layer] ? 0 : s->set->n_sink, lo = r->lo[0];
    for (uint32_t i = 0; i < n; i++) lo = r->lo[i] < lo ? r->lo[i] : lo;
    struct kern_attend a = { .d = 2 * d,
                             .n_rows = n,
                             .q = r->q,
                             .q_stride = 2 * d * sizeof *r->q,
                             .lo = r->lo,
                             .hi = r->hi,
                             .n_sink = sinks,
                             .k_tile = s->k_tile + kv * n_tiles,
                             .v_tile = s->v_tile + kv * n_tiles,
                             .tile_begin = sinks ? 0 : lo / KERN_TILE,
                             .tile_end = (r->hi[0] + KERN_TILE - 1) / KERN_TILE,
                             .m = r->m,
                             .l = r->l,
                             .o = r->o };
    s->c->engine->kern.attend_f32(&a);
}

/* Query i of a window: spread over it, more densely nowhere; the first eighth sees too little. */
static uint32_t query_position(const struct scanlocal *s, uint32_t i)
{
    uint32_t begin = s->n_tok / 8;
    return begin + (uint32_t)((uint64_t)(s->n_tok - 1 - begin) * (2 * i + 1) / (2 * QUERIES));
}

static void queries_worker(void *arg, uint32_t thread, uint32_t n_threads)
{
    struct scanlocal *s = arg;
    const struct hparams *h = &s->c->model->h;
    struct room *r = &s->rooms[thread];
    uint32_t group = h->n_head / h->n_kv;
    for (uint32_t i = thread; i < QUERIES; i += n_threads) {
        r->gate = s->gate + (size_t)i * h->n_kv * s->c->model->position.n_pair;
        r->head = s->head + (size_t)i * h->n_kv * ROW_FIRST_PAIR;
        for (uint32_t kv = 0; kv < h->n_kv; kv++) {
            uint32_t at = query_position(s, i), n = 0, each = 0;
            for (uint32_t g = 0; g < group; g++)
                n += each = query_rows(s, kv, kv * group + g, at, r, n);
            attend_rows(s, kv, r, n);
            for (uint32_t g = 0; g < group; g++)
                head_errors(s, kv, kv * group + g, r, g * each, each);
        }
    }
}

/* ---- windows and layers ---------------------------------------------------------------------- */

static void copy_qkv(void *arg, uint32_t layer, size_t n_tok, const float *q, const float *k,
                     const float *v)
{
    struct scanlocal *s = arg;
    const struct hparams *h = &s->c->model->h;
    (void)layer;
    memcpy(s->q, q, n_tok * h->n_head * h->d_head * sizeof *q);
    memcpy(s->k, k, n_tok * h->n_kv * h->d_head * sizeof *k);
    memcpy(s->v, v, n_tok * h->n_kv * h->d_head * sizeof *v);
    s->n_tok = (uint32_t)n_tok;
}

static zp_status run_layer(struct scanlocal *s, const struct window *w, uint32_t layer, zp_err *err)
{
    struct forward_hooks hooks = { .arg = s, .at_qkv = copy_qkv };
    return score_layers(s->c->engine, w, layer, layer + 1, layer ? s->x[layer % 2] : NULL,
                        s->x[(layer + 1) % 2], &hooks, err);
}

/* Sum over the queries of one entry of theirs; they are `stride` apart (L3). */
static float sum_of(const double *first, size_t stride)
{
    double sum = 0.0;
    for (uint32_t i = 0; i < QUERIES; i++) sum += first[i * stride];
    return (float)sum;
}

static void add_sums(struct scanlocal *s, struct local_errors *out)
{
    const struct position *p = &s->c->model->position;
    size_t heads = p->n_kv * ROW_FIRST_PAIR, gates = (size_t)p->n_kv * p->n_pair;
    for (uint32_t kv = 0; kv < p->n_kv; kv++) {
        size_t head = (size_t)s->layer * p->n_kv + kv;
        const double *of_head = s->head + kv * ROW_FIRST_PAIR, *of_gate = s->gate + kv * p->n_pair;
        out->output[s->layer] += sum_of(of_head + ROW_ORIGINAL, heads);
        out->now[head] += sum_of(of_head + ROW_NOW, heads);
        out->all[head] += sum_of(of_head + ROW_ALL, heads);
        for (uint32_t i = 0; i < p->n_pair; i++)
            out->gate[head * p->n_pair + i] += sum_of(of_gate + i, gates);
    }
    memset(s->gate, 0, QUERIES * gates * sizeof *s->gate);
    memset(s->head, 0, QUERIES * heads * sizeof *s->head);
}

static bool layer_rotates(const struct position *p, uint32_t layer)
{
    for (uint32_t kv = 0; kv < p->n_kv; kv++)
        if (p->heads[layer * p->n_kv + kv].n_open) return true;
    return false;
}

static void scale_all(const struct scanlocal *s, uint32_t n_windows, struct local_errors *e)
{
    const struct position *p = &s->c->model->position;
    float f = 1.0f / ((float)n_windows * (float)QUERIES);
    size_t heads = (size_t)p->n_layer * p->n_kv;
    for (size_t i = 0; i < heads * p->n_pair; i++) e->gate[i] *= f;
    for (size_t i = 0; i < heads; i++) e->now[i] *= f, e->all[i] *= f;
    for (size_t i = 0; i < p->n_layer; i++) e->output[i] *= f;
}

zp_status scanlocal_run(struct scanlocal *s, const struct gateset *set, uint32_t n_windows,
                        struct local_errors *out, zp_err *err)
{
    const struct position *p = &s->c->model->position;
    size_t heads = (size_t)p->n_layer * p->n_kv;
    memset(out->gate, 0, heads * p->n_pair * sizeof(float));
    memset(out->now, 0, heads * sizeof(float)), memset(out->all, 0, heads * sizeof(float));
    memset(out->output, 0, p->n_layer * sizeof(float));
    s->set = set;
    if (n_windows > s->c->windows.n) n_windows = (uint32_t)s->c->windows.n;
    for (uint32_t w = 0; w < n_windows; w++)
        for (uint32_t l = 0; l < p->n_layer; l++) {
            ZP_TRY(run_layer(s, &s->c->windows.at[w], l, err));
            s->layer = l;
            if (!layer_rotates(p, l)) continue;
            pool_run(s->c->engine->pool, tiles_worker, s);
            pool_run(s->c->engine->pool, queries_worker, s);
            add_sums(s, out);
            ZP_TRY(calib_step(s->c, "local errors", (uint64_t)w * p->n_layer + l + 1,
                              (uint64_t)n_windows * p->n_layer, err));
        }
    scale_all(s, n_windows, out);
    return ZP_OK;
}
