/* test_grad_parts.c: position gates and structure heads on rows: values against double arithmetic
 * and gradients against central differences, with dropout and tags; the same bits for 1, 2 and 3
 * threads. */
#include "grad_cases.h"

#include "model/posgate.h"
#include "train/gaterows.h"
#include "train/structrows.h"

static double sigmoid(double z)
{
    return 1 / (1 + exp(-z));
}

/* ---- position gates -------------------------------------------------------------------------- */

/* loss = sum of weight exp(w . phi) q. */
struct gate_case {
    size_t n_rows, n_head, d;
    double *q, *w, *phi, *weight;
};

static double gate_loss(void *ctx)
{
    const struct gate_case *c = ctx;
    double loss = 0;
    for (size_t i = 0; i < c->n_rows * c->n_head; i++) {
        double exponent = 0;
        for (size_t k = 0; k < POSGATE_STEPS; k++)
            exponent += c->w[i % c->n_head * POSGATE_STEPS + k] *
                        c->phi[i / c->n_head * POSGATE_STEPS + k];
        for (size_t k = 0; k < c->d; k++)
            loss += c->weight[i * c->d + k] * c->q[i * c->d + k] * exp(exponent);
    }
    return loss;
}

static void test_gradients_of_position_gates(void **state)
{
    (void)state;
    enum { ROWS = 67, HEADS = 3, D = 6, N = ROWS * HEADS * D };
    struct rng r = seeded("gate rows");
    float *q = numbers(&r, N, 1), *w = numbers(&r, HEADS * POSGATE_STEPS, 0.5f);
    float *weight = numbers(&r, N, 1), *phi = zeros(ROWS * POSGATE_STEPS), *dw = NULL, *dq = NULL;
    for (size_t i = 0; i < ROWS; i++) posgate_features(i * i * 7, phi + i * POSGATE_STEPS);
    struct gate_case c = { ROWS, HEADS, D, doubles_of(q, N), doubles_of(w, HEADS * POSGATE_STEPS),
                           doubles_of(phi, ROWS * POSGATE_STEPS), doubles_of(weight, N) };
    for (uint32_t n_threads = 1; n_threads <= THREADS_MOST; n_threads++) {
        struct pool *pool = pool_of(n_threads);
        struct gaterows a = { ROWS, HEADS, D, phi, w };
        float *gated = copy_of(q, N), *back = copy_of(weight, N), *sum = zeros(HEADS * 8);
        double loss = 0;
        gaterows_scale(pool, &a, gated);
        for (size_t i = 0; i < N; i++) loss += (double)weight[i] * (double)gated[i];
        assert_true(fabs(loss - gate_loss(&c)) < 1e-4);
        gaterows_back(pool, &a, gated, back, sum, zeros(ROWS * HEADS));
        if (!dw) dw = sum, dq = back;
        assert_same_bits(sum, dw, HEADS * POSGATE_STEPS, "dw");
        assert_same_bits(back, dq, N, "dq");
        pool_close(pool);
    }
    assert_gradient("dw", gate_loss, &c, c.w, HEADS * POSGATE_STEPS, dw);
    assert_gradient("dq", gate_loss, &c, c.q, N, dq);
}

/* Settled beyond the positions around it, 1/2 at its middle, never falling. */
static void test_steps_of_a_gate(void **state)
{
    (void)state;
    float phi[POSGATE_STEPS], last[POSGATE_STEPS] = { 0 };
    for (uint64_t at = 0; at < (uint64_t)1 << 40; at = at * 2 + 1) {
        posgate_features(at, phi);
        for (int i = 0; i < POSGATE_STEPS; i++) {
            assert_true(phi[i] > 0 && phi[i] <= 1 && phi[i] >= last[i]);
            if (at + 1 == (uint64_t)1 << 2 * (i + 1)) assert_true(fabsf(phi[i] - 0.5f) < 1e-6f);
        }
        memcpy(last, phi, sizeof last);
    }
    const float none[POSGATE_STEPS] = { 0 };
    assert_true(posgate_factor(none, phi) == 1.0f);
}

/* ---- structure heads ------------------------------------------------------------------------- */

enum { ROWS = 130, D = 7, HEADS = 3, TYPES = STRUCT_TYPES };

/* loss = sum of slope (bias heard) + tag_weight times the cross entropy against the tags. */
struct head_case {
    struct structrows a;
    double *weight, *gate, *x, *bias, *slope;
};

static double head_loss(void *ctx)
{
    const struct head_case *c = ctx;
    double loss = 0;
    for (size_t r = 0; r < ROWS; r++) {
        double square = 0, z[TYPES + 1] = { 0 };
        for (size_t i = 0; i < D; i++) square += c->x[r * D + i] * c->x[r * D + i];
        for (size_t k = 0; k <= TYPES; k++) {
            const double *w = k < TYPES ? c->weight + k * D : c->gate;
            for (size_t i = 0; i < D; i++)
                z[k] += w[i] * c->x[r * D + i] / sqrt(square / D + (double)c->a.eps);
        }
        for (size_t k = 0; k < TYPES; k++) {
            double p = sigmoid(z[k]) * sigmoid(z[TYPES]), heard = p;
            if (c->a.keep) heard *= c->a.keep[r] >> k & 1 ? (double)c->a.kept : 0;
            for (size_t h = 0; h < HEADS; h++)
                loss += c->slope[h * ROWS + r] * c->bias[h * TYPES + k] * heard;
            if (c->a.tags && c->a.target[r] >= 0)
                loss -= (double)c->a.tag_weight *
                        (c->a.tags[r] >> k & 1 ? log(p) : log(1 - p));
        }
    }
    return loss;
}

struct head_results {
    float *weight, *gate, *x, *bias;
    double loss;
};

static struct head_results run_head(const struct structrows *a, const float *bias,
                                    const float *slope, uint32_t n_threads)
{
    struct head_results out = { zeros(TYPES * D), zeros(D), zeros(ROWS * D), zeros(HEADS * TYPES),
                                0 };
    struct pool *pool = pool_of(n_threads);
    struct kern_table t;
    kern_table_init(&t, KERN_LEVEL_COUNT - 1);
    float *p = zeros(TYPES * ROWS), *heard = zeros(TYPES * ROWS), *made = zeros(HEADS * ROWS);
    float *dheard = zeros(TYPES * ROWS);
    double *scratch = room(ROWS * (STRUCT_LOGITS + 1) * sizeof *scratch);
    out.loss = (double)a->tag_weight * structrows_detect(pool, a, p, heard, scratch);
    structrows_bias(pool, &t, HEADS, ROWS, bias, heard, made);
    for (size_t i = 0; i < HEADS * ROWS; i++) out.loss += (double)slope[i] * (double)made[i];
    structrows_bias_back(pool, HEADS, ROWS, bias, heard, slope, out.bias, dheard);
    structrows_back(pool, a, dheard, out.weight, out.gate, out.x, scratch);
    pool_close(pool);
    return out;
}

static void check_head(struct rng *r, bool dropout, bool tags)
{
    float *weight = numbers(r, TYPES * D, 1), *gate = numbers(r, D, 1),
          *x = numbers(r, ROWS * D, 1);
    float *bias = numbers(r, HEADS * TYPES, 1), *slope = numbers(r, HEADS * ROWS, 1);
    uint8_t *keep = room(ROWS), *tag = room(ROWS);
    int32_t *target = room(ROWS * sizeof *target);
    for (size_t i = 0; i < ROWS; i++) {
        keep[i] = (uint8_t)rng_below(r, 256), tag[i] = (uint8_t)rng_below(r, 256);
        target[i] = (int32_t)rng_below(r, 4) - 1;
    }
    struct structrows a = { .n_rows = ROWS, .d = D, .eps = 1e-3f, .weight = weight, .gate = gate,
                            .x = x, .keep = dropout ? keep : NULL, .kept = 1.4f,
                            .tags = tags ? tag : NULL, .target = target, .tag_weight = 0.3f };
    struct head_results got = run_head(&a, bias, slope, 1);
    struct head_case c = { a, doubles_of(weight, TYPES * D), doubles_of(gate, D),
                           doubles_of(x, ROWS * D), doubles_of(bias, HEADS * TYPES),
                           doubles_of(slope, HEADS * ROWS) };
    double want = head_loss(&c);
    assert_true(fabs(got.loss - want) < 1e-5 * fabs(want) + 1e-4);
    assert_gradient("detectors", head_loss, &c, c.weight, TYPES * D, got.weight);
    assert_gradient("gate", head_loss, &c, c.gate, D, got.gate);
    assert_gradient("embeddings", head_loss, &c, c.x, ROWS * D, got.x);
    assert_gradient("biases", head_loss, &c, c.bias, HEADS * TYPES, got.bias);
    for (uint32_t n = 2; n <= THREADS_MOST; n++) {
        struct head_results more = run_head(&a, bias, slope, n);
        assert_true(more.loss == got.loss);
        assert_same_bits(more.weight, got.weight, TYPES * D, "detectors");
        assert_same_bits(more.gate, got.gate, D, "gate");
        assert_same_bits(more.x, got.x, ROWS * D, "embeddings");
        assert_same_bits(more.bias, got.bias, HEADS * TYPES, "biases");
    }
}

static void test_gradients_of_structure_heads(void **state)
{
    (void)state;
    struct rng r = seeded("structure rows");
    for (int i = 0; i < 4; i++) check_head(&r, i & 1, i & 2);
}

/* Detectors that are sure: their loss and its slope stay numbers. */
static void test_sure_detectors_stay_finite(void **state)
{
    (void)state;
    struct rng r = seeded("sure");
    float *weight = numbers(&r, TYPES * D, 2000), *gate = numbers(&r, D, 2000);
    float *x = numbers(&r, ROWS * D, 1), *bias = zeros(HEADS * TYPES), *none = zeros(HEADS * ROWS);
    uint8_t *tag = room(ROWS);
    int32_t *target = room(ROWS * sizeof *target);
    for (size_t i = 0; i < ROWS; i++) tag[i] = (uint8_t)rng_below(&r, 256), target[i] = 1;
    struct structrows a = { .n_rows = ROWS, .d = D, .eps = 1e-5f, .weight = weight, .gate = gate,
                            .x = x, .tags = tag, .target = target, .tag_weight = 1 };
    struct head_results got = run_head(&a, bias, none, 2);
    assert_true(isfinite(got.loss) && got.loss > 0);
    for (size_t i = 0; i < TYPES * D; i++) assert_true(isfinite(got.weight[i]));
    for (size_t i = 0; i < ROWS * D; i++) assert_true(isfinite(got.x[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        GRAD_TEST(test_gradients_of_position_gates),
        GRAD_TEST(test_steps_of_a_gate),
        GRAD_TEST(test_gradients_of_structure_heads),
        GRAD_TEST(test_sure_detectors_stay_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
