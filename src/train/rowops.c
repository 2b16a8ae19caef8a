/* rowops.c: what training does with rows between products.
 * Owns: nothing. Threads share elements where nothing is summed, columns where rows are: every sum
 * has one order. */
#include "train/rowops.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

enum { GRAIN = 1024, COLUMNS = 16 };

struct job {
    const struct kern_table *t;
    size_t n_rows, n_heads, n;
    const int32_t *ids;
    const float *x;
    const float *target, *second;
    float scale;
    float *y;
    double *sums;
    _Atomic uint64_t largest; /* the bits of a double that is not negative: they order like it */
};

static void scale_share(void *arg, uint32_t thread, uint32_t n_threads)
{
    const struct job *j = arg;
    size_t begin, end;
    pool_share(j->n, GRAIN, thread, n_threads, &begin, &end);
    j->t->scale(j->x + begin, j->scale, j->y + begin, end - begin);
}

void rowops_scale(struct pool *pool, const struct kern_table *t, size_t n, const float *x,
                  float scale, float *y)
{
    struct job j = { .t = t, .n = n, .x = x, .scale = scale, .y = y };
    pool_run(pool, scale_share, &j);
}

static void add_share(void *arg, uint32_t thread, uint32_t n_threads)
{
    const struct job *j = arg;
    size_t begin, end;
    pool_share(j->n, GRAIN, thread, n_threads, &begin, &end);
    j->t->add_scaled(j->x + begin, j->second + begin, j->scale, j->y + begin, end - begin);
}

void rowops_add(struct pool *pool, const struct kern_table *t, size_t n, const float *x,
                const float *y, float scale, float *out)
{
    struct job j = { .t = t, .n = n, .x = x, .second = y, .scale = scale, .y = out };
    pool_run(pool, add_share, &j);
}

static void bias_share(void *arg, uint32_t thread, uint32_t n_threads)
{
    const struct job *j = arg;
    size_t begin, end;
    pool_share(j->n_rows, 1, thread, n_threads, &begin, &end);
    for (size_t r = begin; r < end; r++)
        for (size_t i = 0; i < j->n; i++) j->y[r * j->n + i] += j->x[i];
}

void rowops_add_bias(struct pool *pool, size_t n_rows, size_t n, const float *bias, float *x)
{
    struct job j = { .n_rows = n_rows, .n = n, .x = bias, .y = x };
    pool_run(pool, bias_share, &j);
}

static void sum_share(void *arg, uint32_t thread, uint32_t n_threads)
{
    const struct job *j = arg;
    size_t begin, end;
    pool_share(j->n, COLUMNS, thread, n_threads, &begin, &end);
    for (size_t r = 0; r < j->n_rows; r++)
        for (size_t i = begin; i < end; i++) j->y[i] += j->x[r * j->n + i];
}

void rowops_sum_bias(struct pool *pool, size_t n_rows, size_t n, const float *dx, float *dbias)
{
    struct job j = { .n_rows = n_rows, .n = n, .x = dx, .y = dbias };
    pool_run(pool, sum_share, &j);
}

static void heads_share(void *arg, uint32_t thread, uint32_t n_threads)
{
    const struct job *j = arg;
    size_t begin, end;
    pool_share(j->n_rows * j->n_heads, 1, thread, n_threads, &begin, &end);
    for (size_t r = begin; r < end; r++)
        for (size_t i = 0; i < j->n; i++) j->y[r * j->n + i] *= j->x[r % j->n_heads];
}

void rowops_scale_heads(struct pool *pool, size_t n_rows, size_t n_heads, size_t n,
                        const float *scale, float *x)
{
    struct job j = { .n_rows = n_rows, .n_heads = n_heads, .n = n, .x = scale, .y = x };
    pool_run(pool, heads_share, &j);
}

static void embed_share(void *arg, uint32_t thread, uint32_t n_threads)
{
    const struct job *j = arg;
    size_t begin, end;
    pool_share(j->n_rows, 1, thread, n_threads, &begin, &end);
    for (size_t r = begin; r < end; r++) {
        const float *row = j->x + (size_t)j->ids[r] * j->n;
        for (size_t i = 0; i < j->n; i++) j->y[r * j->n + i] = row[i] * j->scale;
    }
}

void rowops_embed(struct pool *pool, size_t n_rows, size_t n, const int32_t *ids,
                  const float *table, float scale, float *x)
{
    struct job j = { .n_rows = n_rows, .n = n, .ids = ids, .x = table, .scale = scale, .y = x };
    pool_run(pool, embed_share, &j);
}

static void embed_back_share(void *arg, uint32_t thread, uint32_t n_threads)
{
    const struct job *j = arg;
    size_t begin, end;
    pool_share(j->n, COLUMNS, thread, n_threads, &begin, &end);
    for (size_t r = 0; r < j->n_rows; r++) {
        float *row = j->y + (size_t)j->ids[r] * j->n;
        for (size_t i = begin; i < end; i++) row[i] += j->scale * j->x[r * j->n + i];
    }
}

void rowops_embed_back(struct pool *pool, size_t n_rows, size_t n, const int32_t *ids,
                       const float *dx, float scale, float *dtable)
{
    struct job j = { .n_rows = n_rows, .n = n, .ids = ids, .x = dx, .scale = scale, .y = dtable };
    pool_run(pool, embed_back_share, &j);
}

static void differ_share(void *arg, uint32_t thread, uint32_t n_threads)
{
    const struct job *j = arg;
    size_t begin, end;
    pool_share(j->n_rows, 1, thread, n_threads, &begin, &end);
    for (size_t r = begin; r < end; r++) {
        const float *x = j->x + r * j->n, *target = j->target + r * j->n;
        double off = 0, size = 0;
        for (size_t i = 0; i < j->n; i++) {
            float d = x[i] - target[i];
            off += (double)d * (double)d;
            size += (double)target[i] * (double)target[i];
            j->y[r * j->n + i] = j->scale * d;
        }
        j->sums[2 * r] = off, j->sums[2 * r + 1] = size;
    }
}

void rowops_differ(struct pool *pool, size_t n_rows, size_t n, const float *x, const float *target,
                   float scale, float *d, double *sums)
{
    struct job j = { .n_rows = n_rows, .n = n, .x = x, .target = target, .scale = scale, .y = d,
                     .sums = sums };
    pool_run(pool, differ_share, &j);
}

static void norm_share(void *arg, uint32_t thread, uint32_t n_threads)
{
    struct job *j = arg;
    size_t begin, end;
    pool_share(j->n_rows, 1, thread, n_threads, &begin, &end);
    for (size_t r = begin; r < end; r++) {
        double sum = 0;
        for (size_t i = 0; i < j->n; i++)
            sum += (double)j->x[r * j->n + i] * (double)j->x[r * j->n + i];
        uint64_t bits, most = atomic_load(&j->largest);
        memcpy(&bits, &sum, sizeof bits);
        while (bits > most && !atomic_compare_exchange_weak(&j->largest, &most, bits)) continue;
    }
}

double rowops_largest_norm(struct pool *pool, size_t n_rows, size_t n, const float *x)
{
    struct job j = { .n_rows = n_rows, .n = n, .x = x };
    pool_run(pool, norm_share, &j);
    uint64_t bits = atomic_load(&j.largest);
    double sum;
    memcpy(&sum, &bits, sizeof sum);
    return sqrt(sum);
}
