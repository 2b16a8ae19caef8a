/* rownorm.c: RMSNorm of rows and its gradients.
 * Owns: nothing; scratch is the caller's.
 * R1 sums over rows: blocks of ROWNORM_BLOCK rows, then blocks in ascending order. */
#include "train/rownorm.h"

#include <string.h>

struct forward_job {
    const struct kern_table *t;
    const struct rownorm *a;
    float *y;
};

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
    for (size_t r = begin; r < end; r++)
        a->inverse[r] =
            j->t->rmsnorm(a->x + r * a->n, gain_of(a, r), a->eps, a->n, j->y + r * a->n);
}

void rownorm_forward(struct pool *pool, const struct kern_table *t, const struct rownorm *a,
                     float *y)
{
    struct forward_job j = { t, a, y };
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
    const struct kern_table *t;
    const struct rownorm *a;
    const float *dy;
    float *dx;
    bool add;
    float *dgain, *partial; /* partial (blocks, n_gains, n) */
};

static void backward_row(const struct backward_job *j, size_t r, float *partial)
{
    const struct rownorm *a = j->a;
    struct kern_norm_row row = { .n = a->n, .x = a->x + r * a->n, .gain = gain_of(a, r),
                                 .dy = j->dy + r * a->n, .r = a->inverse[r] };
    if (partial) partial += r % gains_of(a) * a->n;
    j->t->rmsnorm_back(&row, j->add, j->dx + r * a->n, partial);
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

void rownorm_backward(struct pool *pool, const struct kern_table *t, const struct rownorm *a,
                      const float *dy, float *dx, bool add, float *dgain, float *scratch)
{
    struct backward_job j = { pool, t, a, dy, dx, add, dgain, scratch };
    pool_run(pool, backward_share, &j);
}
