/* test_grad_rownorm.c: RMSNorm of rows: the engine's bits forward, gradients against central
 * differences, the same bits for 1, 2 and 3 threads. */
#include "grad_cases.h"

#include "train/rownorm.h"

struct case_norm {
    size_t n_rows, n, n_gains;
    float eps;
    double *x, *gain, *weight; /* loss = sum weight y; gain NULL: none */
};

static double norm_loss(void *ctx)
{
    const struct case_norm *c = ctx;
    double loss = 0;
    for (size_t r = 0; r < c->n_rows; r++) {
        const double *x = c->x + r * c->n, *w = c->weight + r * c->n;
        double sum = 0;
        for (size_t i = 0; i < c->n; i++) sum += x[i] * x[i];
        double inverse = 1 / sqrt(sum / (double)c->n + (double)c->eps);
        for (size_t i = 0; i < c->n; i++)
            loss += w[i] * x[i] * inverse * (c->gain ? c->gain[r % c->n_gains * c->n + i] : 1);
    }
    return loss;
}

/* n_gains 0: no gain. */
static void check_norm(struct rng *r, struct pool *pool, size_t n_rows, size_t n, size_t n_gains,
                       bool add)
{
    bool has_gain = n_gains != 0;
    size_t n_gain = (has_gain ? n_gains : 1) * n;
    struct rownorm a = { .n_rows = n_rows, .n = n, .x = numbers(r, n_rows * n, 2), .eps = 1e-5f,
                         .gain = has_gain ? numbers(r, n_gain, 2) : NULL, .inverse = zeros(n_rows),
                         .n_gains = n_gains };
    float *y = zeros(n_rows * n), *one = zeros(n), *dy = numbers(r, n_rows * n, 1);
    float *before = numbers(r, n_rows * n, 1), *dx = copy_of(before, n_rows * n);
    float *dgain = numbers(r, n_gain, 1), *gain_before = copy_of(dgain, n_gain);
    float *scratch = zeros(rownorm_scratch(&a));
    struct kern_table t;
    kern_table_init(&t, KERN_LEVEL_COUNT - 1);
    rownorm_forward(pool, &t, &a, y);
    for (size_t i = 0; i < n_rows; i++) {
        t.rmsnorm(a.x + i * n, has_gain ? a.gain + i % n_gains * n : NULL, a.eps, n, one);
        assert_near("y", y + i * n, doubles_of(one, n), n, 1e-6);
    }
    rownorm_backward(pool, &t, &a, dy, dx, add, has_gain ? dgain : NULL, scratch);
    for (size_t i = 0; add && i < n_rows * n; i++) dx[i] -= before[i];
    for (size_t i = 0; i < n_gain; i++) dgain[i] -= gain_before[i];
    struct case_norm c = { n_rows, n, n_gains, a.eps, doubles_of(a.x, n_rows * n),
                           has_gain ? doubles_of(a.gain, n_gain) : NULL,
                           doubles_of(dy, n_rows * n) };
    assert_gradient("dx", norm_loss, &c, c.x, n_rows * n, dx);
    if (has_gain) assert_gradient("dgain", norm_loss, &c, c.gain, n_gain, dgain);
}

static void test_gradients_of_odd_sizes(void **state)
{
    (void)state;
    struct rng r = seeded("rownorm");
    struct pool *pool = pool_of(2);
    check_norm(&r, pool, 1, 1, 1, false);
    check_norm(&r, pool, 3, 17, 1, true);
    check_norm(&r, pool, 5, 48, 0, false);
    check_norm(&r, pool, 70, 5, 1, true);
    check_norm(&r, pool, 130, 3, 0, true);
    check_norm(&r, pool, 132, 7, 3, true);
    pool_close(pool);
}

static void test_threads_do_not_change_bits(void **state)
{
    (void)state;
    enum { ROWS = 333, N = 41 };
    struct rng r = seeded("rownorm threads");
    float *x = numbers(&r, ROWS * N, 1), *gain = numbers(&r, N, 1), *dy = numbers(&r, ROWS * N, 1);
    float *first_dx = NULL, *first_dgain = NULL;
    struct kern_table t;
    kern_table_init(&t, KERN_LEVEL_COUNT - 1);
    for (uint32_t n = 1; n <= THREADS_MOST; n++) {
        struct pool *pool = pool_of(n);
        struct rownorm a = { ROWS, N, x, gain, 1e-6f, zeros(ROWS), 0 };
        float *y = zeros(ROWS * N), *dx = copy_of(dy, ROWS * N), *dgain = zeros(N);
        rownorm_forward(pool, &t, &a, y);
        rownorm_backward(pool, &t, &a, dx, dx, false, dgain, zeros(rownorm_scratch(&a)));
        if (!first_dx) first_dx = dx, first_dgain = dgain;
        assert_same_bits(dx, first_dx, ROWS * N, "dx, in place of dy");
        assert_same_bits(dgain, first_dgain, N, "dgain");
        pool_close(pool);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        GRAD_TEST(test_gradients_of_odd_sizes),
        GRAD_TEST(test_threads_do_not_change_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
