/* test_grad_rotary.c: rotation of rows: gates of both forms, gradients against central differences,
 * the ends of the score mix, the same bits for 1, 2 and 3 threads. */
#include "grad_cases.h"

#include "train/rotary.h"

enum { HEADS = 6, KV = 2, D = 10, PAIRS = 4, GROUP = HEADS / KV };

/* loss = sum over rows and heads of weight * wide_q(r) . wide_k(r'), with one r' for each r. */
struct case_mix {
    struct rotary a;
    const int32_t *position;
    const double *angle;
    double *q, *k, *gate, *weight; /* weight (n_rows, HEADS) */
    size_t *other;                 /* (n_rows) */
};

static size_t q_count(const struct rotary *a)
{
    return a->n_rows * a->n_head * a->d_head;
}

static size_t k_count(const struct rotary *a)
{
    return a->n_rows * a->n_kv * a->d_head;
}

static double score(const struct case_mix *c, size_t row, size_t head)
{
    size_t other = c->other[row], kv = head / GROUP;
    const double *q = c->q + (row * HEADS + head) * D, *k = c->k + (other * KV + kv) * D;
    double sum = 0;
    for (size_t i = 0; i < PAIRS; i++) {
        double turn = (c->position[other] - c->position[row]) * c->angle[i];
        double even = k[2 * i] * cos(turn) - k[2 * i + 1] * sin(turn);
        double odd = k[2 * i + 1] * cos(turn) + k[2 * i] * sin(turn);
        double g = c->gate[kv * PAIRS + i];
        sum += g * (q[2 * i] * even + q[2 * i + 1] * odd) +
               (1 - g) * (q[2 * i] * k[2 * i] + q[2 * i + 1] * k[2 * i + 1]);
    }
    for (size_t i = 2 * PAIRS; i < D; i++) sum += q[i] * k[i];
    return sum;
}

static double mix_loss(void *ctx)
{
    const struct case_mix *c = ctx;
    double loss = 0;
    for (size_t r = 0; r < c->a.n_rows; r++)
        for (size_t h = 0; h < HEADS; h++) loss += c->weight[r * HEADS + h] * score(c, r, h);
    return loss;
}

static const double angles[PAIRS] = { 1.0, 0.3, 0.05, 0.001 };

static struct rotary make_rows(struct pool *pool, struct rng *r, size_t n_rows, int32_t **position)
{
    struct rotary a = { n_rows, HEADS, KV, D, PAIRS, NULL };
    *position = room(n_rows * sizeof **position);
    for (size_t i = 0; i < n_rows; i++) (*position)[i] = (int32_t)rng_below(r, 100);
    float *cs = zeros(n_rows * PAIRS * 2);
    rotary_table(pool, n_rows, *position, PAIRS, angles, cs);
    a.cs = cs;
    return a;
}

static void test_mix_and_its_gradients(void **state)
{
    (void)state;
    struct rng r = seeded("rotary mix");
    struct pool *pool = pool_of(2);
    enum { ROWS = 70 };
    int32_t *position;
    struct rotary a = make_rows(pool, &r, ROWS, &position);
    float *q = numbers(&r, q_count(&a), 1), *k = numbers(&r, k_count(&a), 1);
    float *gate = zeros(KV * PAIRS), *weight = numbers(&r, ROWS * HEADS, 1);
    for (size_t i = 0; i < KV * PAIRS; i++) gate[i] = (float)rng_unit(&r);
    gate[0] = 0, gate[1] = 1;
    size_t other[ROWS];
    for (size_t i = 0; i < ROWS; i++) other[i] = rng_below(&r, ROWS);
    float *wide_q = zeros(2 * q_count(&a)), *wide_k = zeros(2 * k_count(&a));
    float *dwide_q = zeros(2 * q_count(&a)), *dwide_k = zeros(2 * k_count(&a));
    rotary_mix(pool, &a, gate, q, k, wide_q, wide_k);
    struct case_mix c = { a, position, angles, doubles_of(q, q_count(&a)),
                          doubles_of(k, k_count(&a)), doubles_of(gate, KV * PAIRS),
                          doubles_of(weight, ROWS * HEADS), other };
    for (size_t row = 0; row < ROWS; row++)
        for (size_t h = 0; h < HEADS; h++) {
            float w = weight[row * HEADS + h], sum = 0;
            size_t q_at = (row * HEADS + h) * 2 * D, k_at = (other[row] * KV + h / GROUP) * 2 * D;
            for (size_t i = 0; i < 2 * D; i++) {
                sum += wide_q[q_at + i] * wide_k[k_at + i];
                dwide_q[q_at + i] += w * wide_k[k_at + i];
                dwide_k[k_at + i] += w * wide_q[q_at + i];
            }
            assert_near("score", &sum, &(double){ score(&c, row, h) }, 1, 1e-4);
        }
    float *dq = zeros(q_count(&a)), *dk = zeros(k_count(&a)), *dgate = numbers(&r, KV * PAIRS, 1);
    float *before = copy_of(dgate, KV * PAIRS), *scratch = zeros(rotary_mix_scratch(&a));
    rotary_mix_back(pool, &a, gate, q, dwide_q, dwide_k, dq, dk, dgate, scratch);
    for (size_t i = 0; i < KV * PAIRS; i++) dgate[i] -= before[i];
    assert_gradient("dq", mix_loss, &c, c.q, q_count(&a), dq);
    assert_gradient("dk", mix_loss, &c, c.k, k_count(&a), dk);
    assert_gradient("dgate", mix_loss, &c, c.gate, KV * PAIRS, dgate);
    pool_close(pool);
}

static void test_closed_pairs_keep_their_bits(void **state)
{
    (void)state;
    struct rng r = seeded("rotary turn");
    struct pool *pool = pool_of(2);
    struct kern_table t;
    int32_t *position;
    kern_table_init(&t, KERN_LEVEL_COUNT - 1);
    struct rotary a = make_rows(pool, &r, 9, &position);
    uint8_t open[KV * PAIRS] = { 1, 0, 1, 0, 0, 0, 0, 1 };
    float *x = numbers(&r, q_count(&a), 1), *turned = copy_of(x, q_count(&a));
    rotary_turn(pool, &t, &a, HEADS, open, false, turned);
    for (size_t i = 0; i < q_count(&a); i++) {
        size_t row = i / (HEADS * D), kv = i / D % HEADS / GROUP, pair = i % D / 2;
        bool is_open = pair < PAIRS && open[kv * PAIRS + pair];
        double even = (double)x[i / 2 * 2], odd = (double)x[i / 2 * 2 + 1];
        double at = is_open ? position[row] * angles[pair] : 0;
        double want = i % 2 ? odd * cos(at) + even * sin(at) : even * cos(at) - odd * sin(at);
        if (!is_open) assert_true(turned[i] == x[i]);
        assert_true(fabs((double)turned[i] - want) < 1e-6);
    }
    rotary_turn(pool, &t, &a, HEADS, open, true, turned);
    assert_near("there and back", turned, doubles_of(x, q_count(&a)), q_count(&a), 1e-6);
    pool_close(pool);
}

static void test_threads_do_not_change_bits(void **state)
{
    (void)state;
    enum { ROWS = 200 };
    struct rng r = seeded("rotary threads");
    struct pool *one = pool_of(1);
    int32_t *position;
    struct rotary a = make_rows(one, &r, ROWS, &position);
    float *gate = numbers(&r, KV * PAIRS, 1), *q = numbers(&r, q_count(&a), 1);
    float *dwide_q = numbers(&r, 2 * q_count(&a), 1), *dwide_k = numbers(&r, 2 * k_count(&a), 1);
    float *first_dgate = NULL, *first_dq = NULL;
    for (uint32_t n = 1; n <= THREADS_MOST; n++) {
        struct pool *pool = pool_of(n);
        float *dq = zeros(q_count(&a)), *dk = zeros(k_count(&a)), *dgate = zeros(KV * PAIRS);
        rotary_mix_back(pool, &a, gate, q, dwide_q, dwide_k, dq, dk, dgate,
                        zeros(rotary_mix_scratch(&a)));
        if (!first_dq) first_dq = dq, first_dgate = dgate;
        assert_same_bits(dq, first_dq, q_count(&a), "dq");
        assert_same_bits(dgate, first_dgate, KV * PAIRS, "dgate");
        pool_close(pool);
    }
    pool_close(one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        GRAD_TEST(test_mix_and_its_gradients),
        GRAD_TEST(test_closed_pairs_keep_their_bits),
        GRAD_TEST(test_threads_do_not_change_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
