/* pic.c: MLPs of the token's index that bridge the loss of positions.
 * Owns: their parameters, tables, moments.
 * P1 threads share channels, never rows: each sum has one order. */
#include "train/pic.h"

#include <string.h>

#include "base/rng.h"

enum { HIDDEN = DISTBIAS_HIDDEN };
#define SEED_STREAM 0x7069630000000000u

/* A layer's parameters: in_weight, in_bias, out_weight, out_bias. */
static struct distbias mlp_of(const struct pic *p, const float *at)
{
    return (struct distbias){ .kind = DISTBIAS_MLP, .n_head = p->d_model, .n_dist = p->n_ctx,
                              .in_weight = at, .in_bias = at + HIDDEN,
                              .out_weight = at + 2 * HIDDEN,
                              .out_bias = at + 2 * HIDDEN + p->d_model * HIDDEN };
}

static struct pic sized(size_t n_layer, size_t d_model, size_t n_ctx)
{
    struct pic p = { .n_layer = n_layer, .d_model = d_model, .n_ctx = n_ctx };
    p.n_of_layer = 2 * HIDDEN + d_model * HIDDEN + d_model;
    p.n = n_layer * p.n_of_layer;
    return p;
}

void pic_plan(size_t n_layer, size_t d_model, size_t n_ctx, uint64_t bytes[MEM_TAG_COUNT])
{
    struct pic p = sized(n_layer, d_model, n_ctx);
    struct distbias shape = { .kind = DISTBIAS_MLP, .n_dist = n_ctx };
    struct opt_segment all = { .size = p.n };
    bytes[MEM_PARAMETER] += p.n * sizeof *p.p;
    bytes[MEM_GRADIENT] += p.n * (sizeof *p.dp + sizeof *p.sum);
    bytes[MEM_OPTIMISER] += opt_bytes(p.n, &all, 1);
    bytes[MEM_ACTIVATION] += (n_layer + 1) * d_model * n_ctx * sizeof *p.tables +
                             distbias_scratch(&shape) * sizeof *p.room;
}

static zp_status fill(struct pic *p, uint64_t seed, zp_err *err)
{
    struct distbias shape = { .kind = DISTBIAS_MLP, .n_dist = p->n_ctx };
    size_t table = p->d_model * p->n_ctx;
    ZP_ALLOC(p->p, MEM_PARAMETER, p->n, err, "the bridge");
    ZP_ALLOC(p->dp, MEM_GRADIENT, p->n, err, "the bridge");
    ZP_ALLOC(p->sum, MEM_GRADIENT, p->n, err, "the bridge");
    ZP_ALLOC(p->tables, MEM_ACTIVATION, p->n_layer * table, err, "the bridge");
    ZP_ALLOC(p->dtable, MEM_ACTIVATION, table, err, "the bridge");
    ZP_ALLOC(p->room, MEM_ACTIVATION, distbias_scratch(&shape), err, "the bridge");
    memset(p->p, 0, p->n * sizeof *p->p);
    memset(p->dp, 0, p->n * sizeof *p->dp);
    for (size_t l = 0; l < p->n_layer; l++) {
        struct rng r = rng_stream(seed, SEED_STREAM + l);
        for (size_t i = 0; i < HIDDEN; i++) p->p[l * p->n_of_layer + i] = 0.5f * rng_normal(&r);
    }
    struct opt_segment all = { 0, p->n, 1, false, false };
    return opt_open(&p->opt, p->n, &all, 1, &(struct opt_options){ .clip_norm = 1 }, err);
}

zp_status pic_open(struct pic *p, struct pool *pool, size_t n_layer, size_t d_model, size_t n_ctx,
                   uint64_t seed, zp_err *err)
{
    *p = sized(n_layer, d_model, n_ctx);
    p->pool = pool;
    zp_status status = fill(p, seed, err);
    if (status != ZP_OK) pic_free(p);
    return status;
}

void pic_free(struct pic *p)
{
    opt_free(&p->opt);
    mem_free(p->p);
    mem_free(p->dp);
    mem_free(p->sum);
    mem_free(p->tables);
    mem_free(p->dtable);
    mem_free(p->room);
    *p = (struct pic){ 0 };
}

void pic_begin(struct pic *p, float weight)
{
    p->weight = weight;
    for (size_t l = 0; l < p->n_layer; l++) {
        struct distbias mlp = mlp_of(p, p->p + l * p->n_of_layer);
        distbias_fill(p->pool, &mlp, p->tables + l * p->d_model * p->n_ctx, p->room);
    }
}

struct job {
    const struct pic *p;
    const float *table;
    size_t n_rows;
    const int32_t *index;
    float *sum;
    const float *dsum;
};

static void add_share(void *arg, uint32_t thread, uint32_t n_threads)
{
    const struct job *j = arg;
    size_t begin, end, d = j->p->d_model, n_ctx = j->p->n_ctx;
    pool_share(j->n_rows, 1, thread, n_threads, &begin, &end);
    for (size_t r = begin; r < end; r++)
        for (size_t c = 0; c < d; c++)
            j->sum[r * d + c] += j->p->weight * j->table[c * n_ctx + (size_t)j->index[r]];
}

void pic_add(struct pic *p, uint32_t layer, size_t n_rows, const int32_t *index, float *sum)
{
    if (p->weight == 0.0f) return;
    struct job j = { .p = p, .table = p->tables + layer * p->d_model * p->n_ctx,
                     .n_rows = n_rows, .index = index, .sum = sum };
    pool_run(p->pool, add_share, &j);
}

static void back_share(void *arg, uint32_t thread, uint32_t n_threads)
{
    const struct job *j = arg;
    size_t begin, end, d = j->p->d_model, n_ctx = j->p->n_ctx;
    pool_share(d, 16, thread, n_threads, &begin, &end); // P1
    memset(j->p->dtable + begin * n_ctx, 0, (end - begin) * n_ctx * sizeof *j->p->dtable);
    for (size_t r = 0; r < j->n_rows; r++)
        for (size_t c = begin; c < end; c++)
            j->p->dtable[c * n_ctx + (size_t)j->index[r]] += j->p->weight * j->dsum[r * d + c];
}

void pic_back(struct pic *p, uint32_t layer, size_t n_rows, const int32_t *index, const float *dsum)
{
    if (p->weight == 0.0f) return;
    struct job j = { .p = p, .n_rows = n_rows, .index = index, .dsum = dsum };
    float *dp = p->dp + layer * p->n_of_layer;
    struct distbias mlp = mlp_of(p, p->p + layer * p->n_of_layer);
    struct distbias_gradients to = { .in_weight = dp, .in_bias = dp + HIDDEN,
                                     .out_weight = dp + 2 * HIDDEN,
                                     .out_bias = dp + 2 * HIDDEN + p->d_model * HIDDEN };
    pool_run(p->pool, back_share, &j);
    distbias_backward(p->pool, &mlp, p->dtable, &to, p->room);
}
