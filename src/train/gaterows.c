/* gaterows.c: position gates on rows of training.
 * Owns: nothing. Threads share rows where nothing is summed, weights where rows are. */
#include "train/gaterows.h"

#include "model/posgate.h"

struct job {
    struct pool *pool;
    const struct gaterows *a;
    const float *q;
    float *x, *dw, *slope; /* slope: by the exponent, (n_rows, n_head) */
};

static float factor_of(const struct gaterows *a, size_t row, size_t head)
{
    return posgate_factor(a->w + head * POSGATE_STEPS, a->phi + row * POSGATE_STEPS);
}

static void scale_share(void *arg, uint32_t thread, uint32_t n_threads)
{
    const struct job *j = arg;
    size_t begin, end, d = j->a->d_head;
    pool_share(j->a->n_rows * j->a->n_head, 1, thread, n_threads, &begin, &end);
    for (size_t i = begin; i < end; i++) {
        float factor = factor_of(j->a, i / j->a->n_head, i % j->a->n_head), *x = j->x + i * d;
        if (j->slope) {
            double sum = 0;
            for (size_t c = 0; c < d; c++) sum += (double)j->q[i * d + c] * (double)x[c];
            j->slope[i] = (float)sum;
        }
        for (size_t c = 0; c < d; c++) x[c] *= factor;
    }
}

void gaterows_scale(struct pool *pool, const struct gaterows *a, float *q)
{
    struct job j = { .pool = pool, .a = a, .x = q };
    pool_run(pool, scale_share, &j);
}

static void back_share(void *arg, uint32_t thread, uint32_t n_threads)
{
    const struct job *j = arg;
    size_t begin, end, n_head = j->a->n_head;
    scale_share(arg, thread, n_threads);
    if (!j->dw) return;
    pool_barrier(j->pool, thread);
    pool_share(n_head * POSGATE_STEPS, 1, thread, n_threads, &begin, &end);
    for (size_t i = begin; i < end; i++) {
        double sum = 0;
        for (size_t r = 0; r < j->a->n_rows; r++)
            sum += (double)j->slope[r * n_head + i / POSGATE_STEPS] *
                   (double)j->a->phi[r * POSGATE_STEPS + i % POSGATE_STEPS];
        j->dw[i] += (float)sum;
    }
}

void gaterows_back(struct pool *pool, const struct gaterows *a, const float *q, float *dq,
                   float *dw, float *scratch)
{
    struct job j = { .pool = pool, .a = a, .q = q, .x = dq, .dw = dw, .slope = scratch };
    pool_run(pool, back_share, &j);
}
