/* test_grad_gatedact.c: gated activations: gradients against central differences, in place and not,
 * far values, the same bits for 1, 2 and 3 threads. */
#include "grad_cases.h"

#include "train/gatedact.h"

struct case_act {
    enum gatedact_kind kind;
    size_t n;
    double *gate, *up, *weight;
};

static double act_of(enum gatedact_kind kind, double x)
{
    if (kind == GATEDACT_SILU) return x / (1 + exp(-x));
    return 0.5 * x * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
}

static double act_loss(void *ctx)
{
    const struct case_act *c = ctx;
    double loss = 0;
    for (size_t i = 0; i < c->n; i++)
        loss += c->weight[i] * act_of(c->kind, c->gate[i]) * c->up[i];
    return loss;
}

static void check_act(struct rng *r, struct pool *pool, enum gatedact_kind kind, size_t n,
                      float size)
{
    struct kern_table t;
    kern_table_init(&t, KERN_LEVEL_COUNT - 1);
    float *gate = numbers(r, n, size), *up = numbers(r, n, 2), *dy = numbers(r, n, 1);
    float *y = zeros(n), *dgate = zeros(n), *dup = zeros(n);
    struct case_act c = { kind, n, doubles_of(gate, n), doubles_of(up, n), doubles_of(dy, n) };
    double *want = doubles_of(y, n);
    for (size_t i = 0; i < n; i++) want[i] = act_of(kind, c.gate[i]) * c.up[i];
    gatedact_forward(pool, &t, kind, n, gate, up, y);
    assert_near("y", y, want, n, 1e-6);
    gatedact_backward(pool, &t, kind, n, gate, up, dy, dgate, dup);
    assert_gradient("dgate", act_loss, &c, c.gate, n, dgate);
    assert_gradient("dup", act_loss, &c, c.up, n, dup);
    gatedact_backward(pool, &t, kind, n, gate, up, dy, gate, up);
    assert_same_bits(gate, dgate, n, "in place");
    assert_same_bits(up, dup, n, "in place");
}

static void test_gradients(void **state)
{
    (void)state;
    struct rng r = seeded("gatedact");
    struct pool *pool = pool_of(2);
    static const size_t sizes[] = { 1, 3, 257, 2500 };
    for (int kind = 0; kind < 2; kind++)
        for (size_t s = 0; s < ZP_COUNT(sizes); s++) {
            check_act(&r, pool, (enum gatedact_kind)kind, sizes[s], 3);
            check_act(&r, pool, (enum gatedact_kind)kind, sizes[s], 30);
        }
    pool_close(pool);
}

static void test_far_values_have_plain_slopes(void **state)
{
    (void)state;
    struct pool *pool = pool_of(1);
    struct kern_table t;
    kern_table_init(&t, KERN_LEVEL_COUNT - 1);
    float gate[] = { 1e4f, -1e4f, 1e20f, -1e20f }, one[] = { 1, 1, 1, 1 }, dgate[4], dup[4];
    for (int kind = 0; kind < 2; kind++) {
        gatedact_backward(pool, &t, (enum gatedact_kind)kind, 4, gate, one, one, dgate, dup);
        for (int i = 0; i < 4; i++) {
            assert_true(dgate[i] == (gate[i] > 0 ? 1.0f : 0.0f));
            assert_true(dup[i] == (gate[i] > 0 ? gate[i] : 0.0f));
        }
    }
    pool_close(pool);
}

static void test_threads_do_not_change_bits(void **state)
{
    (void)state;
    enum { N = 7001 };
    struct rng r = seeded("gatedact threads");
    float *gate = numbers(&r, N, 4), *up = numbers(&r, N, 1), *dy = numbers(&r, N, 1),
          *first = NULL;
    struct kern_table t;
    kern_table_init(&t, KERN_LEVEL_COUNT - 1);
    for (uint32_t n = 1; n <= THREADS_MOST; n++) {
        struct pool *pool = pool_of(n);
        float *dgate = zeros(N), *dup = zeros(N);
        gatedact_backward(pool, &t, GATEDACT_GELU, N, gate, up, dy, dgate, dup);
        if (!first) first = dgate;
        assert_same_bits(dgate, first, N, "dgate");
        pool_close(pool);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        GRAD_TEST(test_gradients),
        GRAD_TEST(test_far_values_have_plain_slopes),
        GRAD_TEST(test_threads_do_not_change_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
