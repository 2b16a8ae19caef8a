/* test_grad_distbias.c: bias tables by distance: the engine's bits, gradients against central
 * differences, closed gates, the same bits for 1, 2 and 3 threads. */
#include "grad_cases.h"

#include "model/position.h"
#include "train/distbias.h"

enum { HEADS = 3, DIST = 150, BUCKETS = 8, HIDDEN = DISTBIAS_HIDDEN };

/* Parameters in one row: gate, slope, table, in_weight, in_bias, out_weight, out_bias. */
enum {
    GATE = 0,
    SLOPE = GATE + HEADS,
    TABLE = SLOPE + HEADS,
    IN_WEIGHT = TABLE + HEADS * BUCKETS,
    IN_BIAS = IN_WEIGHT + HIDDEN,
    OUT_WEIGHT = IN_BIAS + HIDDEN,
    OUT_BIAS = OUT_WEIGHT + HEADS * HIDDEN,
    COUNT = OUT_BIAS + HEADS
};

static struct distbias table_of(enum distbias_kind kind, const float *p)
{
    return (struct distbias){ .kind = kind, .n_head = HEADS, .n_dist = DIST, .gate = p + GATE,
                              .slope = p + SLOPE, .table = p + TABLE, .buckets = BUCKETS,
                              .most = 100, .in_weight = p + IN_WEIGHT, .in_bias = p + IN_BIAS,
                              .out_weight = p + OUT_WEIGHT, .out_bias = p + OUT_BIAS };
}

static struct distbias_gradients gradients_of(float *p)
{
    return (struct distbias_gradients){ p + GATE, p + SLOPE, p + TABLE, p + IN_WEIGHT, p + IN_BIAS,
                                        p + OUT_WEIGHT, p + OUT_BIAS };
}

static const enum position_kind engine_kinds[] = { POSITION_ALIBI, POSITION_T5, POSITION_MLP };

static void test_tables_are_the_engines(void **state)
{
    (void)state;
    struct rng r = seeded("distbias");
    struct pool *pool = pool_of(2);
    float *p = numbers(&r, COUNT, 1), *b = zeros(HEADS * DIST), want[DIST];
    p[GATE + 1] = 0;
    for (int k = 0; k < 3; k++) {
        struct distbias a = table_of((enum distbias_kind)k, p);
        enum position_kind kind = engine_kinds[k];
        const float *slope = a.slope, *table = a.table, *mlp[] = { a.in_weight, a.in_bias,
                                                                   a.out_weight, a.out_bias };
        struct position position = { .n_head = HEADS, .n_layer = 1, .kind = &kind, .alibi = &slope,
                                     .t5 = &table, .t5_buckets = a.buckets, .t5_max = a.most,
                                     .mlp = { &mlp[0], &mlp[1], &mlp[2], &mlp[3] },
                                     .bias_gate = a.gate };
        distbias_fill(pool, &a, b, room(distbias_scratch(&a) * sizeof(double)));
        for (uint32_t h = 0; h < HEADS; h++) {
            position_bias_fill(&position, 0, h, DIST, want);
            for (size_t d = 0; d < DIST; d++)
                assert_same_bits(&b[h * DIST + d], &want[DIST - 1 - d], 1, "bias");
        }
    }
    pool_close(pool);
}

struct case_bias {
    enum distbias_kind kind;
    double *p, *weight; /* loss = sum weight b */
};

static double value(const struct case_bias *c, size_t h, size_t d)
{
    const double *p = c->p;
    if (c->kind == DISTBIAS_ALIBI) return -p[SLOPE + h] * (double)d;
    if (c->kind == DISTBIAS_T5) {
        size_t bucket = d; /* of 8: 0 to 3, then four up to 100 */
        if (d >= 4) bucket = 4 + (size_t)(log((double)d / 4) / log(25.0) * 4);
        return p[TABLE + h * BUCKETS + (bucket < BUCKETS ? bucket : BUCKETS - 1)];
    }
    double sum = p[OUT_BIAS + h];
    for (size_t i = 0; i < HIDDEN; i++) {
        double z = p[IN_WEIGHT + i] * log(1 + (double)d) + p[IN_BIAS + i];
        sum += p[OUT_WEIGHT + h * HIDDEN + i] * 0.5 * z * (1 + erf(z / sqrt(2)));
    }
    return sum;
}

static double bias_loss(void *ctx)
{
    const struct case_bias *c = ctx;
    double loss = 0;
    for (size_t h = 0; h < HEADS; h++)
        for (size_t d = 0; d < DIST; d++)
            loss += c->weight[h * DIST + d] * c->p[GATE + h] * value(c, h, d);
    return loss;
}

static void test_gradients(void **state)
{
    (void)state;
    struct rng r = seeded("distbias gradients");
    struct pool *pool = pool_of(2);
    float *p = numbers(&r, COUNT, 1), *db = numbers(&r, HEADS * DIST, 1);
    p[GATE + 1] = 0;
    struct case_bias c = { .p = doubles_of(p, COUNT), .weight = doubles_of(db, HEADS * DIST) };
    for (int k = 0; k < 3; k++) {
        struct distbias a = table_of((enum distbias_kind)k, p);
        float *got = numbers(&r, COUNT, 1), *before = copy_of(got, COUNT);
        struct distbias_gradients out = gradients_of(got), none = { 0 };
        double *scratch = room(distbias_scratch(&a) * sizeof *scratch);
        distbias_backward(pool, &a, db, &out, scratch);
        distbias_backward(pool, &a, db, &none, scratch);
        for (size_t i = 0; i < COUNT; i++) got[i] -= before[i];
        c.kind = a.kind;
        assert_gradient("parameters", bias_loss, &c, c.p, COUNT, got);
    }
    pool_close(pool);
}

static void test_threads_do_not_change_bits(void **state)
{
    (void)state;
    struct rng r = seeded("distbias threads");
    float *p = numbers(&r, COUNT, 1), *db = numbers(&r, HEADS * DIST, 1), *first[3] = { 0 };
    for (uint32_t n = 1; n <= THREADS_MOST; n++) {
        struct pool *pool = pool_of(n);
        for (int k = 0; k < 3; k++) {
            struct distbias a = table_of((enum distbias_kind)k, p);
            float *got = zeros(COUNT);
            struct distbias_gradients out = gradients_of(got);
            distbias_backward(pool, &a, db, &out, room(distbias_scratch(&a) * sizeof(double)));
            if (!first[k]) first[k] = got;
            assert_same_bits(got, first[k], COUNT, "gradients");
        }
        pool_close(pool);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        GRAD_TEST(test_tables_are_the_engines),
        GRAD_TEST(test_gradients),
        GRAD_TEST(test_threads_do_not_change_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
