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

/* Memory of a test lives until its end, when the bytes behind each piece are looked at. */
enum { PIECES_MOST = 2048 };
static struct {
    void *p;
    size_t bytes;
} pieces[PIECES_MOST];
static size_t n_pieces;

static inline void *keep(void *p, size_t bytes)
{
    assert_true(n_pieces < PIECES_MOST);
    pieces[n_pieces].p = p;
    pieces[n_pieces++].bytes = bytes;
    return p;
}

static inline int release_all(void **state)
{
    (void)state;
    for (size_t i = 0; i < n_pieces; i++) {
        assert_guard(pieces[i].p, pieces[i].bytes);
        mem_free(pieces[i].p);
    }
    n_pieces = 0;
    return 0;
}

#define GRAD_TEST(test) cmocka_unit_test_teardown(test, release_all)

static inline void *room(size_t bytes)
{
    return keep(guarded(bytes), bytes);
}

static inline float *zeros(size_t n)
{
    return room(n * sizeof(float));
}

static inline float *numbers(struct rng *r, size_t n, float size)
{
    return keep(floats(r, n, size), n * sizeof(float));
}

static inline double *doubles_of(const float *x, size_t n)
{
    double *out = room(n * sizeof *out);
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

/* Central differences of the loss by x (n), which the loss reads, against a gradient: by each of
 * them, or by forty where there are many. */
static inline void assert_gradient(const char *what, loss_fn loss, void *ctx, double *x, size_t n,
                                   const float *gradient)
{
    const double step = 1e-5, share = 5e-5;
    double most = 0;
    for (size_t i = 0; i < n; i++) most = fmax(most, fabs((double)gradient[i]));
    for (size_t i = 0; i < n; i += n > 500 ? n / 40 : 1) {
        double before = x[i];
        x[i] = before + step;
        double up = loss(ctx);
        x[i] = before - step;
        double want = (up - loss(ctx)) / (2 * step), got = (double)gradient[i];
        x[i] = before;
        if (!(fabs(got - want) <= share * most + 2e-6))
            fail_msg("%s: gradient %zu of %zu is %g, expected %g (largest %g)", what, i, n, got,
                     want, most);
    }
}

#endif
