/* distance.c: attention weights by distance and positional strength, in double, position by
 * position, from the queries and keys of an engine's own pass over the text.
 * Owns: an engine beside the one that is served, its stream, one layer's queries and keys. Does not
 * know: requests, pictures.
 * D1 the pass is the layer program's, one layer at a time; what is computed here changes nothing of
 *    it.
 * D2 samples are the same for every model of as many tokens and query heads. */
#include "model/distance.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "model/seq.h"

enum { HEAD_MOST = 1024 }; /* channels, as arch.c checks */

struct measure {
    struct distance_map *map;
    zp_engine *engine; /* our own */
    zp_seq *seq;
    const int32_t *ids;
    uint32_t n;
    float *x[2];  /* (n, d_model): the stream before and after a layer */
    float *q, *k; /* (n, n_head, d_head), (n, n_kv, d_head): before the rotation */
    float *keys;  /* (n, d_head): of the head at hand, rotated */
    float *bias;  /* (n): of the query head at hand, by n - 1 - distance */
    double *weight; /* (n): of the query at hand */
    double *sum;  /* (DISTANCE_BUCKETS + 1): of the layer at hand; the last: the first token's */
    struct arena arena;
};

/* ---- one vector ------------------------------------------------------------------------------ */

/* Turns a query or a key of a KV head to a position, as the layer program does. */
static void turn(const struct measure *m, uint32_t layer, uint32_t kv, uint32_t at, float *x)
{
    const struct position *p = &m->engine->position;
    const struct position_view view = { m->seq->mode, NULL, false };
    float token[HEAD_MOST], room[HEAD_MOST];
    const float *cs;
    uint32_t set = p->angle_set[layer];
    position_angles(p, set, (double)at, token);
    uint32_t open = position_head_cs(p, view, layer, kv, token, room, &cs);
    if (open) m->engine->kern.rotate(x, cs, open);
}

static double scale_at(const struct measure *m, uint32_t layer, uint32_t head, uint32_t at,
                       struct position_seen seen)
{
    const struct position *p = &m->engine->position;
    return (double)position_query_scale(p, layer, head, position_count_seen(seen, at)) *
           (double)position_gate_factor(p, layer, head, at);
}

static double dot(const float *a, const float *b, size_t n)
{
    double sum = 0.0;
    for (size_t i = 0; i < n; i++) sum += (double)a[i] * (double)b[i];
    return sum;
}

/* ---- weights by distance --------------------------------------------------------------------- */

static uint32_t bucket_of(uint32_t distance)
{
    uint32_t bucket = 0;
    while (distance >= 1) distance /= 2, bucket++;
    return bucket;
}

/* What the structure head adds to the logit of a key. */
static double heard(const struct measure *m, const float *listens, uint32_t at)
{
    size_t step = forward_detected_step(m->engine->options.n_ctx);
    double sum = 0.0;
    for (size_t i = 0; listens && i < STRUCT_TYPES; i++)
        sum += (double)listens[i] * (double)m->seq->detected[i * step + at];
    return sum;
}

/* m->weight of keys [0, at]. */
static void weigh(struct measure *m, uint32_t layer, uint32_t head, uint32_t at, bool has_bias)
{
    const struct position *p = &m->engine->position;
    uint32_t d = p->d_head, kv = head / (p->n_head / p->n_kv);
    const float *listens = structhead_bias(&m->engine->model->structure, layer);
    struct position_seen seen = position_seen(position_head_sight(p, layer, kv), at);
    double scale = scale_at(m, layer, head, at, seen), most = -INFINITY, sum = 0.0;
    float q[HEAD_MOST];
    if (listens) listens += (size_t)head * STRUCT_TYPES;
    memcpy(q, m->q + ((size_t)at * p->n_head + head) * d, d * sizeof *q);
    turn(m, layer, kv, at, q);
    for (uint32_t j = 0; j <= at; j++) {
        bool sees = j < seen.n_sinks || j >= seen.first;
        m->weight[j] = !sees ? -INFINITY
                             : dot(q, m->keys + (size_t)j * d, d) * scale +
                                   (has_bias ? (double)m->bias[m->n - 1 - (at - j)] : 0.0) +
                                   heard(m, listens, j);
        if (m->weight[j] > most) most = m->weight[j];
    }
    for (uint32_t j = 0; j <= at; j++) sum += m->weight[j] = exp(m->weight[j] - most);
    for (uint32_t j = 0; j <= at; j++) m->weight[j] /= sum;
}

static void add_head(struct measure *m, uint32_t layer, uint32_t head)
{
    const struct position *p = &m->engine->position;
    bool has_bias = position_layer_has_bias(p, layer);
    if (has_bias) position_bias_fill(p, layer, head, m->n, m->bias);
    for (uint32_t at = 1; at < m->n; at++) {
        weigh(m, layer, head, at, has_bias);
        m->sum[DISTANCE_BUCKETS] += m->weight[0];
        for (uint32_t j = 1; j <= at; j++) m->sum[bucket_of(at - j)] += m->weight[j];
    }
}

static void add_layer(struct measure *m, uint32_t layer)
{
    struct distance_map *map = m->map;
    const struct position *p = &m->engine->position;
    uint32_t d = p->d_head, group = p->n_head / p->n_kv;
    double rows = (double)(m->n - 1) * p->n_head;
    memset(m->sum, 0, (DISTANCE_BUCKETS + 1) * sizeof *m->sum);
    for (uint32_t kv = 0; kv < p->n_kv; kv++) {
        for (uint32_t j = 0; j < m->n; j++) {
            float *key = m->keys + (size_t)j * d;
            memcpy(key, m->k + ((size_t)j * p->n_kv + kv) * d, d * sizeof *key);
            turn(m, layer, kv, j, key);
        }
        for (uint32_t g = 0; g < group; g++) add_head(m, layer, kv * group + g);
    }
    for (uint32_t b = 0; b < map->n_buckets; b++) {
        size_t at = (size_t)layer * map->n_buckets + b;
        map->share[at] = m->sum[b] / rows;
        map->weight[at] = m->sum[b] / ((double)map->pairs[b] * p->n_head);
    }
    map->first[layer] = m->sum[DISTANCE_BUCKETS] / rows;
}

/* ---- positional strength --------------------------------------------------------------------- */

/* A token's query as it is used at a position, but for the scale that all positions share. */
static void query_at(const struct measure *m, uint32_t layer, uint32_t head, uint32_t token,
                     uint32_t at, float *q)
{
    const struct position *p = &m->engine->position;
    uint32_t d = p->d_head, kv = head / (p->n_head / p->n_kv);
    struct position_seen seen = position_seen(position_head_sight(p, layer, kv), at);
    double scale = scale_at(m, layer, head, at, seen) /
                   (double)position_query_scale(p, layer, head, 1);
    memcpy(q, m->q + ((size_t)token * p->n_head + head) * d, d * sizeof *q);
    turn(m, layer, kv, at, q);
    for (uint32_t i = 0; i < d; i++) q[i] = (float)((double)q[i] * scale);
}

static double difference(const float *a, const float *b, size_t n)
{
    double sum = 0.0;
    for (size_t i = 0; i < n; i++) {
        double x = (double)a[i] - (double)b[i];
        sum += x * x;
    }
    return sqrt(sum);
}

static void add_strength(struct measure *m, uint32_t layer)
{
    const struct position *p = &m->engine->position;
    struct rng r = rng_stream(0, layer); // D2
    double strength = 0.0, change = 0.0;
    uint32_t n_strength = 0;
    float here[HEAD_MOST], there[HEAD_MOST], other[HEAD_MOST];
    for (uint32_t s = 0; s < DISTANCE_SAMPLES; s++) {
        uint32_t i = (uint32_t)rng_below(&r, m->n), j = (uint32_t)rng_below(&r, m->n - 1),
                 head = (uint32_t)rng_below(&r, p->n_head);
        j += j >= i;
        double far = i > j ? i - j : j - i;
        const float *q = m->q + ((size_t)i * p->n_head + head) * p->d_head;
        double size = sqrt(dot(q, q, p->d_head));
        query_at(m, layer, head, i, i, here);
        query_at(m, layer, head, i, j, there);
        query_at(m, layer, head, j, j, other);
        change += difference(here, other, p->d_head) / far;
        if (size <= 0.0) continue;
        strength += difference(here, there, p->d_head) / (size * far);
        n_strength++;
    }
    bool held = !position_layer_has_bias(p, layer) && n_strength != 0;
    m->map->strength[layer] = held ? strength / n_strength : NAN;
    m->map->change[layer] = held ? change / DISTANCE_SAMPLES : NAN;
}

/* ---- the pass -------------------------------------------------------------------------------- */

static void keep(void *arg, uint32_t layer, size_t n_tok, const float *q, const float *k,
                 const float *v)
{
    struct measure *m = arg;
    const struct position *p = &m->engine->position;
    ZP_UNUSED(layer);
    ZP_UNUSED(v);
    memcpy(m->q, q, n_tok * p->n_head * p->d_head * sizeof *q);
    memcpy(m->k, k, n_tok * p->n_kv * p->d_head * sizeof *k);
}

static zp_status run_layer(struct measure *m, uint32_t layer, zp_err *err)
{
    const zp_item item = { m->seq, m->ids, m->n, ZP_WANT_NONE };
    struct engine_job job = { .items = &item, .n_items = 1, .layer_begin = layer,
                              .layer_end = layer + 1, .x_in = layer ? m->x[layer % 2] : NULL,
                              .x_out = m->x[(layer + 1) % 2] };
    ZP_TRY(engine_run(m->engine, &job, err));
    return zp_seq_truncate(m->seq, 0, err);
}

static zp_status run(struct measure *m, const zp_progress *progress, zp_err *err)
{
    uint32_t n_layer = m->map->n_layer;
    m->engine->forward.hooks = (struct forward_hooks){ .arg = m, .at_qkv = keep };
    for (uint32_t l = 0; l < n_layer; l++) {
        ZP_TRY(run_layer(m, l, err)); // D1
        add_layer(m, l);
        add_strength(m, l);
        ZP_FAIL_IF(progress && progress->fn &&
                       !progress->fn(progress->arg, "layers", l + 1, n_layer),
                   err, ZP_INTERRUPTED, "interrupted after %u of %u layers", l + 1, n_layer);
    }
    return ZP_OK;
}

/* ---- opening --------------------------------------------------------------------------------- */

static zp_status open_map(struct distance_map *map, uint32_t n_layer, uint32_t n, zp_err *err)
{
    map->n_layer = n_layer;
    map->n_tok = n;
    map->n_buckets = bucket_of(n - 2) + 1; /* the farthest: token n - 1 and token 1 */
    for (uint32_t at = 1; at < n; at++)
        for (uint32_t j = 1; j <= at; j++) map->pairs[bucket_of(at - j)]++;
    size_t cells = (size_t)n_layer * map->n_buckets;
    ZP_ALLOC(map->share, MEM_META, cells, err, "a map of distances");
    ZP_ALLOC(map->weight, MEM_META, cells, err, "a map of distances");
    ZP_ALLOC(map->first, MEM_META, n_layer, err, "a map of distances");
    ZP_ALLOC(map->strength, MEM_META, n_layer, err, "a map of distances");
    ZP_ALLOC(map->change, MEM_META, n_layer, err, "a map of distances");
    return ZP_OK;
}

static zp_status open_room(struct measure *m, zp_err *err)
{
    const struct hparams *h = &m->engine->model->h;
    size_t n = m->n;
    for (int i = 0; i < 2; i++)
        ZP_TAKE(m->x[i], &m->arena, n * h->d_model, err, "a measurement");
    ZP_TAKE(m->q, &m->arena, n * h->n_head * h->d_head, err, "a measurement");
    ZP_TAKE(m->k, &m->arena, n * h->n_kv * h->d_head, err, "a measurement");
    ZP_TAKE(m->keys, &m->arena, n * h->d_head, err, "a measurement");
    ZP_TAKE(m->bias, &m->arena, n, err, "a measurement");
    ZP_TAKE(m->weight, &m->arena, n, err, "a measurement");
    ZP_TAKE(m->sum, &m->arena, DISTANCE_BUCKETS + 1, err, "a measurement");
    return ZP_OK;
}

static zp_status measure(struct measure *m, const zp_engine *engine, zp_mode mode,
                         const zp_progress *progress, zp_err *err)
{
    const zp_engine_options o = {
        .n_ctx = m->n, .n_seq = 1, .n_threads = 1, .micro_batch = m->n, .kv_type = ZP_KV_F32,
        .allow_unverified_mode = engine->options.allow_unverified_mode
    };
    const zp_seq_options s = { .mode = mode };
    ZP_TRY(engine_open_beside(&m->engine, engine, &o, err));
    ZP_TRY(zp_seq_open(&m->seq, m->engine, &s, err));
    m->map->mode = m->seq->mode;
    ZP_TRY(open_map(m->map, engine->model->h.n_layer, m->n, err));
    ZP_TRY(open_room(m, err));
    return run(m, progress, err);
}

zp_status distance_measure(struct distance_map *out, const zp_engine *engine, const int32_t *ids,
                           size_t n, zp_mode mode, const zp_progress *progress, zp_err *err)
{
    struct measure m = { .map = out, .ids = ids, .n = (uint32_t)n, .arena.tag = MEM_META };
    *out = (struct distance_map){ 0 };
    ZP_FAIL_IF(n < DISTANCE_LEAST || n > DISTANCE_MOST, err, ZP_BAD_INPUT,
               "a text of %zu tokens; from %d to %d can be measured", n, DISTANCE_LEAST,
               DISTANCE_MOST);
    zp_status status = measure(&m, engine, mode, progress, err);
    if (m.seq) zp_seq_close(m.seq);
    zp_engine_close(m.engine);
    arena_free(&m.arena);
    if (status != ZP_OK) distance_free(out);
    return status;
}

void distance_free(struct distance_map *m)
{
    mem_free(m->share), mem_free(m->weight), mem_free(m->first);
    mem_free(m->strength), mem_free(m->change);
    *m = (struct distance_map){ 0 };
}

double distance_strength(const struct distance_map *m)
{
    double sum = 0.0;
    uint32_t n = 0;
    for (uint32_t l = 0; l < m->n_layer; l++)
        if (!isnan(m->strength[l])) sum += m->strength[l], n++;
    return n ? sum / n : NAN;
}
