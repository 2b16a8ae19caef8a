/* distbias.c: bias tables by distance and the gradients of their parameters.
 * Owns: nothing; scratch is the caller's.
 * B1 threads share heads, or hidden units of the MLP, never distances: each sum has one order. */
#include "train/distbias.h"

#include <math.h>

enum { HIDDEN = DISTBIAS_HIDDEN };

struct job {
    struct pool *pool;
    const struct distbias *a;
    float *b;
    const float *db;
    const struct distbias_gradients *out;
    double *hidden; /* (n_dist, 32) what comes out of GELU */
};

size_t distbias_scratch(const struct distbias *a)
{
    return a->kind == DISTBIAS_MLP ? a->n_dist * HIDDEN : 0;
}

/* As the engine's (Raffel et al., 2020, for what lies behind). */
static size_t bucket_of(const struct distbias *a, size_t d)
{
    uint32_t exact = a->buckets / 2;
    if (d < exact) return d;
    double at = log((double)d / exact) / log((double)a->most / exact) * (a->buckets - exact);
    double most = a->buckets - exact - 1;
    return exact + (size_t)(at < most ? at : most);
}

static double before_gelu(const struct distbias *a, size_t i, size_t d)
{
    return (double)a->in_weight[i] * log(1.0 + (double)d) + (double)a->in_bias[i];
}

static double below_normal(double z)
{
    return 0.5 * (1.0 + erf(z / sqrt(2.0)));
}

static void fill_hidden(const struct job *j, uint32_t thread, uint32_t n_threads)
{
    size_t begin, end;
    if (j->a->kind != DISTBIAS_MLP) return;
    pool_share(j->a->n_dist, 1, thread, n_threads, &begin, &end);
    for (size_t d = begin; d < end; d++)
        for (size_t i = 0; i < HIDDEN; i++) {
            double z = before_gelu(j->a, i, d);
            j->hidden[d * HIDDEN + i] = z * below_normal(z);
        }
    pool_barrier(j->pool, thread);
}

/* Without its gate. */
static double value_of(const struct job *j, size_t h, size_t d)
{
    const struct distbias *a = j->a;
    if (a->kind == DISTBIAS_ALIBI) return -(double)a->slope[h] * (double)d;
    if (a->kind == DISTBIAS_T5) return (double)a->table[h * a->buckets + bucket_of(a, d)];
    double sum = (double)a->out_bias[h];
    for (size_t i = 0; i < HIDDEN; i++)
        sum += (double)a->out_weight[h * HIDDEN + i] * j->hidden[d * HIDDEN + i];
    return sum;
}

static float gate_of(const struct distbias *a, size_t h)
{
    return a->gate ? a->gate[h] : 1.0f;
}

static void fill_share(void *arg, uint32_t thread, uint32_t n_threads)
{
    const struct job *j = arg;
    const struct distbias *a = j->a;
    size_t begin, end;
    fill_hidden(j, thread, n_threads);
    pool_share(a->n_head * a->n_dist, 16, thread, n_threads, &begin, &end);
    for (size_t at = begin; at < end; at++) {
        float gate = gate_of(a, at / a->n_dist);
        double value = gate == 0.0f ? 0.0 : value_of(j, at / a->n_dist, at % a->n_dist);
        j->b[at] = gate == 0.0f ? 0.0f : gate * (float)value;
    }
}

void distbias_fill(struct pool *pool, const struct distbias *a, float *b, double *scratch)
{
    struct job j = { .pool = pool, .a = a, .b = b, .hidden = scratch };
    pool_run(pool, fill_share, &j);
}

/* What belongs to one head: gate, slope, table, out_bias. */
static void backward_head(const struct job *j, size_t h)
{
    const struct distbias *a = j->a;
    const struct distbias_gradients *out = j->out;
    const float *db = j->db + h * a->n_dist;
    double gate = (double)gate_of(a, h), dgate = 0, dslope = 0, dbias = 0, dbucket = 0;
    size_t bucket = 0;
    for (size_t d = 0; d < a->n_dist; d++) {
        if (out->gate) dgate += (double)db[d] * value_of(j, h, d);
        dslope -= (double)db[d] * (double)d;
        dbias += (double)db[d];
        if (a->kind != DISTBIAS_T5 || !out->table) continue;
        dbucket += (double)db[d]; /* distances of a bucket follow each other */
        bucket = bucket_of(a, d);
        if (d + 1 < a->n_dist && bucket_of(a, d + 1) == bucket) continue;
        out->table[h * a->buckets + bucket] += (float)(gate * dbucket);
        dbucket = 0;
    }
    if (out->gate) out->gate[h] += (float)dgate;
    if (a->kind == DISTBIAS_ALIBI && out->slope) out->slope[h] += (float)(gate * dslope);
    if (a->kind == DISTBIAS_MLP && out->out_bias) out->out_bias[h] += (float)(gate * dbias);
}

/* What belongs to hidden unit i. */
static void backward_unit(const struct job *j, size_t i)
{
    const struct distbias *a = j->a;
    const struct distbias_gradients *out = j->out;
    double dweight = 0, dbias = 0;
    for (size_t d = 0; d < a->n_dist; d++) {
        double z = before_gelu(a, i, d), sum = 0;
        for (size_t h = 0; h < a->n_head; h++)
            sum += (double)gate_of(a, h) * (double)j->db[h * a->n_dist + d] *
                   (double)a->out_weight[h * HIDDEN + i];
        double density = exp(-0.5 * z * z) * 0.39894228040143267794;
        double dz = sum * (below_normal(z) + z * density);
        dweight += dz * log(1.0 + (double)d);
        dbias += dz;
    }
    if (out->in_weight) out->in_weight[i] += (float)dweight;
    if (out->in_bias) out->in_bias[i] += (float)dbias;
    for (size_t h = 0; out->out_weight && h < a->n_head; h++) {
        double sum = 0;
        for (size_t d = 0; d < a->n_dist; d++)
            sum += (double)j->db[h * a->n_dist + d] * j->hidden[d * HIDDEN + i];
        out->out_weight[h * HIDDEN + i] += (float)((double)gate_of(a, h) * sum);
    }
}

static void backward_share(void *arg, uint32_t thread, uint32_t n_threads)
{
    const struct job *j = arg;
    size_t begin, end;
    fill_hidden(j, thread, n_threads);
    pool_share(j->a->n_head, 1, thread, n_threads, &begin, &end); // B1
    for (size_t h = begin; h < end; h++) backward_head(j, h);
    pool_share(j->a->kind == DISTBIAS_MLP ? HIDDEN : 0, 1, thread, n_threads, &begin, &end); // B1
    for (size_t i = begin; i < end; i++) backward_unit(j, i);
}

void distbias_backward(struct pool *pool, const struct distbias *a, const float *db,
                       const struct distbias_gradients *out, double *scratch)
{
    struct job j = { .pool = pool, .a = a, .db = db, .out = out, .hidden = scratch };
    pool_run(pool, backward_share, &j);
}
