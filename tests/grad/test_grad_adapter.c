/* test_grad_adapter.c: gradients of adapters through whole small models against central differences
 * along random directions, with the loss as a function of A and B; the same bits for any number of
 * threads. */
#include "golden.h"
#include "grad_cases.h"

#include "train/adapter.h"
#include "train/net.h"

enum { ROWS = 2, CTX = 80, ALL = (1 << ADAPTER_TARGETS) - 1 };

struct adapted {
    zp_model *m;
    struct netparam p;
    struct pool *pool;
    struct gemm *g;
    struct net *net;
    struct adapter a;
    struct packed batch;
    float *w, *dw, *dx, *hidden, *dhidden;
    uint8_t *frozen;
    size_t n_hidden;
};

/* B is no longer 0, as after some steps. */
static void open_adapted(struct adapted *b, struct rng *r, const char *name, uint32_t n_threads)
{
    struct net_options o = { .n_rows = ROWS, .n_ctx = CTX };
    struct adapter_options adapter = { .rank = 3, .alpha = 6, .targets = ALL, .seed = 7 };
    *b = (struct adapted){ .m = golden_small(name), .pool = pool_of(n_threads) };
    GOLDEN_OK(gemm_open(&b->g, b->pool, GEMM_F32, err));
    GOLDEN_OK(netparam_open(&b->p, b->m, err));
    GOLDEN_OK(net_open(&b->net, &b->p, b->g, &o, err));
    GOLDEN_OK(packed_open(&b->batch, ROWS, CTX, err));
    b->w = zeros(b->p.n), b->dw = zeros(b->p.n);
    GOLDEN_OK(netparam_read(&b->p, b->w, err));
    GOLDEN_OK(adapter_open(&b->a, &b->p, b->w, b->pool, &adapter, err));
    b->dx = zeros(b->a.n);
    b->frozen = room(b->p.n_tensors);
    for (size_t i = 0; i < b->p.n_tensors; i++)
        b->frozen[i] = !adapter_has(&b->a, &b->p.tensors[i]);
    for (size_t i = 0; i < b->a.n_matrices; i++) {
        const struct adapter_matrix *m = &b->a.matrices[i];
        for (size_t k = 0; k < m->of->n_out * adapter.rank; k++)
            b->a.x[m->b + k] = 0.02f * rng_normal(r);
    }
    b->n_hidden = (size_t)ROWS * CTX * b->m->h.d_model;
    b->hidden = zeros(b->n_hidden), b->dhidden = numbers(r, b->n_hidden, 0.05f);
    for (uint32_t i = 0; i < ROWS * CTX; i++) { /* each row two documents */
        uint32_t at = i % CTX, start = at < 30 ? 0 : 30;
        b->batch.ids[i] = (int32_t)rng_below(r, b->m->h.n_vocab);
        b->batch.start[i] = start;
        b->batch.position[i] = at - start;
    }
}

static void close_adapted(struct adapted *b)
{
    adapter_close(&b->a);
    packed_close(&b->batch);
    net_close(b->net);
    netparam_close(&b->p);
    gemm_close(b->g);
    pool_close(b->pool);
    zp_model_close(b->m);
}

/* Of A and B as they are: sum of hidden times fixed weights. */
static double loss_of(struct adapted *b)
{
    double loss = 0;
    adapter_merge(&b->a, b->w);
    net_forward(b->net, b->w, NULL, &b->batch, b->hidden);
    for (size_t i = 0; i < b->n_hidden; i++)
        loss += (double)b->hidden[i] * (double)b->dhidden[i];
    return loss;
}

static void gradients_of(struct adapted *b)
{
    loss_of(b);
    adapter_clear(&b->a, b->dw);
    net_backward(b->net, b->w, NULL, &b->batch, b->dhidden,
                 &(struct net_gradients){ .w = b->dw, .frozen = b->frozen });
    adapter_gradients(&b->a, b->dw, b->dx);
}

static void check_direction(struct adapted *b, struct rng *r, size_t at, size_t n,
                            const char *model, const char *what)
{
    float *x = b->a.x + at, *before = copy_of(x, n), *u = zeros(n);
    double size = 0, norm = 0, want = 0;
    for (size_t i = 0; i < n; i++) {
        double d = (double)b->dx[at + i];
        u[i] = rng_below(r, 2) ? 1.0f : -1.0f;
        size += (double)x[i] * (double)x[i] / (double)n;
        norm += d * d, want += d * (double)u[i];
    }
    float step = (float)(4e-3 * (sqrt(size) + 1e-2));
    for (size_t i = 0; i < n; i++) x[i] = before[i] + step * u[i];
    double up = loss_of(b);
    for (size_t i = 0; i < n; i++) x[i] = before[i] - step * u[i];
    double got = (up - loss_of(b)) / (2 * (double)step);
    memcpy(x, before, n * sizeof *x);
    if (!(fabs(got - want) <= 4e-3 * sqrt(norm) + 1e-3))
        fail_msg("%s, %s: the loss changes by %g, its gradient says %g (norm %g)", model, what,
                 got, want, sqrt(norm));
    if (!(norm > 0)) fail_msg("%s, %s: no gradient", model, what);
}

static void test_gradients_of_a_and_b(void **state)
{
    (void)state;
    static const char *const models[] = { "gguf-gemma3", "gguf-qwen3", "zerope-mixed" };
    struct rng r = seeded("adapter gradients");
    for (size_t i = 0; i < ZP_COUNT(models); i++) {
        struct adapted b;
        open_adapted(&b, &r, models[i], 2);
        gradients_of(&b);
        for (size_t k = 0; k < b.a.n_matrices; k++) {
            const struct adapter_matrix *m = &b.a.matrices[k];
            char what[64];
            snprintf(what, sizeof what, "A of %.40s", m->of->name);
            check_direction(&b, &r, m->a, b.a.options.rank * m->of->n_in, models[i], what);
            what[0] = 'B';
            check_direction(&b, &r, m->b, m->of->n_out * b.a.options.rank, models[i], what);
        }
        close_adapted(&b);
        release_all(NULL);
    }
}

static void test_threads_change_no_bit(void **state)
{
    (void)state;
    float *w = NULL, *dx = NULL;
    for (uint32_t n_threads = 1; n_threads <= THREADS_MOST; n_threads++) {
        struct rng r = seeded("adapter bits");
        struct adapted b;
        open_adapted(&b, &r, "gguf-qwen2", n_threads);
        gradients_of(&b);
        if (!w) w = b.w, dx = b.dx;
        assert_same_bits(b.w, w, b.p.n, "merged");
        assert_same_bits(b.dx, dx, b.a.n, "gradients");
        close_adapted(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        GRAD_TEST(test_gradients_of_a_and_b),
        GRAD_TEST(test_threads_change_no_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
