/* test_grad_adapter.c: gradients of adapters through whole small models against central differences
 * along random directions, with the loss as a function of A and B; the same bits for any number of
 * threads, and whether matrices stay in their file, quantised or not, or were widened and merged
 * before. */
#include "golden.h"
#include "grad_cases.h"
#include "in_folder.h"

#include "kern/quant.h"
#include "train/adapter.h"
#include "train/net.h"

enum { ROWS = 2, CTX = 80, ALL = (1 << ADAPTER_TARGETS) - 1 };
static const struct net_options usual = { .n_rows = ROWS, .n_ctx = CTX };

struct adapted {
    zp_model *m;
    struct netparam p;
    struct pool *pool;
    struct gemm *g;
    struct net *net;
    struct adapter a;
    struct packed batch;
    float *w, *dx, *hidden, *dhidden;
    uint8_t *frozen;
    size_t n_hidden;
};

static void change(void *arg, const struct netparam_tensor *t, float *w)
{
    adapter_add(arg, t, w);
}

static void take(void *arg, const struct netparam_tensor *t, const float *dw)
{
    struct adapted *b = arg;
    adapter_gradients(&b->a, t, dw, b->dx);
}

/* B is no longer 0, as after some steps. */
static void fill_adapters(struct adapted *b, struct rng *r)
{
    for (size_t i = 0; i < b->a.n_matrices; i++) {
        const struct adapter_matrix *m = &b->a.matrices[i];
        for (size_t k = 0; k < m->of->n_out * b->a.options.rank; k++)
            b->a.x[m->b + k] = 0.02f * rng_normal(r);
    }
}

static void fill_batch(struct adapted *b, struct rng *r)
{
    for (uint32_t i = 0; i < ROWS * CTX; i++) { /* each row two documents */
        uint32_t at = i % CTX, start = at < 30 ? 0 : 30;
        b->batch.ids[i] = (int32_t)rng_below(r, b->m->h.n_vocab);
        b->batch.start[i] = start;
        b->batch.position[i] = at - start;
    }
}

static void open_adapted(struct adapted *b, struct rng *r, zp_model *m, uint32_t targets,
                         uint32_t n_threads, const struct net_options *o)
{
    struct adapter_options adapter = { .rank = 3, .alpha = 6, .targets = targets, .seed = 7 };
    *b = (struct adapted){ .m = m, .pool = pool_of(n_threads) };
    GOLDEN_OK(gemm_open(&b->g, b->pool, GEMM_F32, err));
    GOLDEN_OK(netparam_open(&b->p, b->m, err));
    netparam_leave(&b->p, NULL, NULL);
    GOLDEN_OK(net_open(&b->net, &b->p, b->g, o, err));
    GOLDEN_OK(packed_open(&b->batch, ROWS, CTX, err));
    b->w = zeros(b->p.n);
    GOLDEN_OK(netparam_read(&b->p, b->w, err));
    GOLDEN_OK(adapter_open(&b->a, &b->p, &adapter, err));
    GOLDEN_OK(adapter_begin(&b->a, b->g, err));
    netparam_set_change(&b->p, change, &b->a);
    b->dx = zeros(b->a.n);
    b->frozen = room(b->p.n_tensors);
    for (size_t i = 0; i < b->p.n_tensors; i++)
        b->frozen[i] = !adapter_has(&b->a, &b->p.tensors[i]);
    fill_adapters(b, r);
    b->n_hidden = (size_t)ROWS * CTX * b->m->h.d_model;
    b->hidden = zeros(b->n_hidden), b->dhidden = numbers(r, b->n_hidden, 0.05f);
    fill_batch(b, r);
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
    net_forward(b->net, b->w, NULL, &b->batch, b->hidden);
    for (size_t i = 0; i < b->n_hidden; i++)
        loss += (double)b->hidden[i] * (double)b->dhidden[i];
    return loss;
}

static void gradients_of(struct adapted *b)
{
    loss_of(b);
    net_backward(b->net, b->w, NULL, &b->batch, b->dhidden,
                 &(struct net_gradients){ .frozen = b->frozen, .take = take, .arg = b });
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
        open_adapted(&b, &r, golden_small(models[i]), ALL, 2, &usual);
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
    float *hidden = NULL, *dx = NULL;
    for (uint32_t n_threads = 1; n_threads <= THREADS_MOST; n_threads++) {
        struct rng r = seeded("adapter bits");
        struct adapted b;
        open_adapted(&b, &r, golden_small("gguf-qwen2"), ALL, n_threads, &usual);
        gradients_of(&b);
        if (!hidden) hidden = b.hidden, dx = b.dx;
        assert_same_bits(b.hidden, hidden, b.n_hidden, "hidden rows");
        assert_same_bits(b.dx, dx, b.a.n, "gradients");
        close_adapted(&b);
    }
}

/* ---- against matrices that were widened and merged first ------------------------------------- */

/* The model with its matrices in another type. */
static zp_model *small_of_type(const char *name, const char *type)
{
    struct netparam p;
    zp_model *m = golden_small(name), *out = NULL;
    const char *path = in_folder("typed.gguf");
    GOLDEN_OK(netparam_open(&p, m, err));
    float *w = zeros(p.n);
    GOLDEN_OK(netparam_read(&p, w, err));
    GOLDEN_OK(netparam_write(&p, w, quant_traits_by_name(type)->type, NULL, path, err));
    GOLDEN_OK(zp_model_open(&out, path, NULL, err));
    netparam_close(&p);
    zp_model_close(m);
    return out;
}

/* Hidden rows and gradients of all floats in one array, W0 + s B A among them. */
static void check_merged(struct adapted *b, const struct net_options *o, const char *what)
{
    struct netparam p;
    struct net *net;
    GOLDEN_OK(netparam_open(&p, b->m, err));
    GOLDEN_OK(net_open(&net, &p, b->g, o, err));
    float *w = zeros(p.n), *dw = zeros(p.n), *hidden = zeros(b->n_hidden), *dx = zeros(b->a.n);
    GOLDEN_OK(netparam_read(&p, w, err));
    for (size_t i = 0; i < b->a.n_matrices; i++) {
        const struct netparam_tensor *of = b->a.matrices[i].of;
        adapter_add(&b->a, of, w + netparam_find(&p, of->name, 0)->at);
    }
    net_forward(net, w, NULL, &b->batch, hidden);
    net_backward(net, w, NULL, &b->batch, b->dhidden,
                 &(struct net_gradients){ .w = dw, .frozen = b->frozen });
    for (size_t i = 0; i < b->a.n_matrices; i++) {
        const struct netparam_tensor *of = b->a.matrices[i].of;
        adapter_gradients(&b->a, of, dw + netparam_find(&p, of->name, 0)->at, dx);
    }
    assert_same_bits(b->hidden, hidden, b->n_hidden, what);
    assert_same_bits(b->dx, dx, b->a.n, what);
    net_close(net);
    netparam_close(&p);
}

static void test_bits_are_those_of_matrices_widened_first(void **state)
{
    (void)state;
    static const char *const models[] = { "gguf-llama-yarn", "gguf-gemma3", "gguf-qwen3",
                                          "zerope-mixed" };
    static const char *const types[] = { "F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0" };
    struct rng r = seeded("adapters in the file");
    for (size_t i = 0; i < ZP_COUNT(models); i++)
        for (size_t k = 0; k < ZP_COUNT(types); k++) {
            struct net_options o = usual;
            struct adapted b;
            char what[64];
            snprintf(what, sizeof what, "%s as %s", models[i], types[k]);
            o.recompute = k % 2;
            uint32_t targets = k % 3 ? 1 << ADAPTER_Q | 1 << ADAPTER_DOWN : ALL;
            open_adapted(&b, &r, small_of_type(models[i], types[k]), targets, 2, &o);
            gradients_of(&b);
            check_merged(&b, &o, what);
            close_adapted(&b);
            release_all(NULL);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        GRAD_TEST(test_gradients_of_a_and_b),
        GRAD_TEST(test_threads_change_no_bit),
        GRAD_TEST(test_bits_are_those_of_matrices_widened_first),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
