/* rownorm.c: RMSNorm of rows and its gradients.
 * Owns: nothing; scratch is the caller's.
 * With r = 1 / rms and u = dy gain: dx = r (u - x r mean(u x r)), dgain = sum over rows of dy x r.
 * R1 sums over rows: blocks of ROWNORM_BLOCK rows, then blocks in ascending order. */
#include "train/rownorm.h"

#include <math.h>
#include <string.h>
#include "kern/ref/lanes_ref.h"

struct forward_job {
    const struct rownorm *a;
    float *y;
};

static float inverse_rms(const float *x, size_t n, float eps)
{
    double lane[LANES] = { 0 };
    size_t whole = n / LANES * LANES;
    for (size_t i = 0; i < whole; i += LANES)
        for (size_t l = 0; l < LANES; l++) lane[l] += (double)x[i + l] * (double)x[i + l];
    for (size_t i = whole; i < n; i++) lane[i - whole] += (double)x[i] * (double)x[i];
    return (float)(1.0 / sqrt(sum_wide_lanes_ref(lane) / (double)n + (double)eps));
}

static size_t gains_of(const struct rownorm *a)
{
    return a->n_gains ? a->n_gains : 1;
}

static const float *gain_of(const struct rownorm *a, size_t row)
{
    return a->gain ? a->gain + row % gains_of(a) * a->n : NULL;
}

static void forward_share(void *arg, uint32_t thread, uint32_t n_threads)
{
    const struct forward_job *j = arg;
    const struct rownorm *a = j->a;
    size_t begin, end;
    pool_share(a->n_rows, 1, thread, n_threads, &begin, &end);
    for (size_t r = begin; r < end; r++) {
        const float *x = a->x + r * a->n, *gain = gain_of(a, r);
        float *y = j->y + r * a->n, scale = inverse_rms(x, a->n, a->eps);
        a->inverse[r] = scale;
        if (gain)
            for (size_t i = 0; i < a->n; i++) y[i] = x[i] * scale * gain[i];
        else
            for (size_t i = 0; i < a->n; i++) y[i] = x[i] * scale;
    }
}

void rownorm_forward(struct pool *pool, const struct rownorm *a, float *y)
{
    struct forward_job j = { a, y };
    pool_run(pool, forward_share, &j);
}

static size_t blocks_of(size_t n_rows)
{
    return (n_rows + ROWNORM_BLOCK - 1) / ROWNORM_BLOCK;
}

size_t rownorm_scratch(const struct rownorm *a)
{
    return blocks_of(a->n_rows) * gains_of(a) * a->n;
}

struct backward_job {
    struct pool *pool;
    const struct rownorm *a;
    const float *dy;
    float *dx;
    bool add;
    float *dgain, *partial; /* partial (blocks, n_gains, n) */
};

/* mean of dy gain x r. */
static float mean_product(const struct rownorm *a, const float *x, const float *gain,
                          const float *dy, float inverse)
{
    double lane[LANES] = { 0 };
    for (size_t i = 0; i < a->n; i += LANES)
        for (size_t l = 0; l < LANES && i + l < a->n; l++) {
            float u = gain ? dy[i + l] * gain[i + l] : dy[i + l];
            lane[l] += (double)(u * x[i + l]);
        }
    return (float)(sum_wide_lanes_ref(lane) / (double)a->n * (double)inverse);
}

static void backward_row(const struct backward_job *j, size_t r, float *partial)
{
    const struct rownorm *a = j->a;
    const float *x = a->x + r * a->n, *dy = j->dy + r * a->n, *gain = gain_of(a, r);
    float *dx = j->dx + r * a->n, inverse = a->inverse[r];
    float mean = mean_product(a, x, gain, dy, inverse);
    if (partial) partial += r % gains_of(a) * a->n;
    for (size_t i = 0; partial && i < a->n; i++) partial[i] += dy[i] * (x[i] * inverse);
    for (size_t i = 0; i < a->n; i++) {
        float u = gain ? dy[i] * gain[i] : dy[i];
        float d = inverse * (u - x[i] * inverse * mean);
        dx[i] = j->add ? dx[i] + d : d;
    }
}

static void backward_share(void *arg, uint32_t thread, uint32_t n_threads)
{
    const struct backward_job *j = arg;
    const struct rownorm *a = j->a;
    size_t n_blocks = blocks_of(a->n_rows), n = gains_of(a) * a->n, begin, end;
    pool_share(n_blocks, 1, thread, n_threads, &begin, &end);
    for (size_t b = begin; b < end; b++) {
        float *partial = j->dgain ? j->partial + b * n : NULL;
        if (partial) memset(partial, 0, n * sizeof *partial);
        for (size_t r = b * ROWNORM_BLOCK; r < a->n_rows && r < (b + 1) * ROWNORM_BLOCK; r++)
            backward_row(j, r, partial);
    }
    if (!j->dgain) return;
    pool_barrier(j->pool, thread);
    pool_share(n, 16, thread, n_threads, &begin, &end);
    for (size_t b = 0; b < n_blocks; b++) // R1
        for (size_t i = begin; i < end; i++) j->dgain[i] += j->partial[b * n + i];
}

void rownorm_backward(struct pool *pool, const struct rownorm *a, const float *dy, float *dx,
                      bool add, float *dgain, float *scratch)
{
    struct backward_job j = { pool, a, dy, dx, add, dgain, scratch };
    pool_run(pool, backward_share, &j);
}
