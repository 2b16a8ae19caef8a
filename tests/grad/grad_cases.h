/* grad_cases.h: what the tests of gradients share: pools, and central differences of a loss that
 * the test computes in double. */
#ifndef TESTS_GRAD_CASES_H
#define TESTS_GRAD_CASES_H

#include "kern/kern_cases.h"

#include "base/pool.h"

enum { THREADS_MOST = 3 };

static inline struct pool *pool_of(uint32_t n_threads)
{
    struct pool *pool;
    zp_err err = { 0 };
    if (pool_open(&pool, n_threads, &err) != ZP_OK) fail_msg("%s", err.message);
    return pool;
}

static inline float *zeros(size_t n)
{
    return guarded(n * sizeof(float));
}

static inline double *doubles_of(const float *x, size_t n)
{
    double *out = guarded((n + 1) * sizeof *out);
    for (size_t i = 0; i < n; i++) out[i] = (double)x[i];
    return out;
}

static inline float *copy_of(const float *x, size_t n)
{
    float *out = zeros(n);
    memcpy(out, x, n * sizeof *out);
    return out;
}

/* Largest distance of values from what is wanted, as a share of the largest one wanted. */
static inline void assert_near(const char *what, const float *got, const double *want, size_t n,
                               double share)
{
    double most = 0, worst = 0;
    size_t at = 0;
    for (size_t i = 0; i < n; i++) most = fmax(most, fabs(want[i]));
    for (size_t i = 0; i < n; i++) {
        double d = fabs((double)got[i] - want[i]);
        if (!(d <= worst)) worst = d, at = i;
    }
    if (!(worst <= share * most + 1e-7))
        fail_msg("%s: value %zu of %zu is %g, expected %g (largest %g, off by %.2g of it)", what,
                 at, n, (double)got[at], want[at], most, worst / most);
}

/* The loss at the numbers that ctx points to. */
typedef double (*loss_fn)(void *ctx);

/* Central differences of the loss by each of x (n), which the loss reads, against a gradient. */
static inline void assert_gradient(const char *what, loss_fn loss, void *ctx, double *x, size_t n,
                                   const float *gradient)
{
    const double step = 1e-5;
    double *want = guarded((n + 1) * sizeof *want);
    for (size_t i = 0; i < n; i++) {
        double keep = x[i];
        x[i] = keep + step;
        double up = loss(ctx);
        x[i] = keep - step;
        want[i] = (up - loss(ctx)) / (2 * step);
        x[i] = keep;
    }
    assert_near(what, gradient, want, n, 5e-5);
    mem_free(want);
}

#endif
