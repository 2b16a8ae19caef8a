/* test_optimiser.c: AdamW against its formula in double, frozen segments, clipping, gradients that
 * are not finite, and the same bits for any number of threads. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "live_bytes.h"
#include "train/optimiser.h"

enum { N = 20011, SEED = 11, STEPS = 10 };

static float x[N], dx[N];

static const struct opt_segment parts[] = {
    { .offset = 0, .size = 9000, .rate_factor = 1, .decays = true },
    { .offset = 9000, .size = 1, .rate_factor = 0.5f },
    { .offset = 9001, .size = 3000, .rate_factor = 1, .decays = true, .frozen = true },
    { .offset = 12010, .size = 8001, .rate_factor = 2 }, /* 12001 .. 12010 belong to nobody */
};

static void draw(float *out, uint64_t stream, float spread)
{
    struct rng r = rng_stream(SEED, stream);
    for (size_t i = 0; i < N; i++) out[i] = spread * rng_normal(&r);
}

static void open_optimiser(struct optimiser *o, const struct opt_options *options)
{
    zp_err err = { 0 };
    if (opt_open(o, N, parts, ZP_COUNT(parts), options, &err) != ZP_OK) fail_msg("%s", err.message);
}

/* The formula, one parameter after the other. */
struct plain {
    double x[N], m[N], v[N];
};

static void step_plain(struct plain *p, const struct opt_options *o, int t, double rate,
                       double scale)
{
    double sum = 0;
    for (size_t s = 0; s < ZP_COUNT(parts); s++)
        for (size_t i = parts[s].offset; i < parts[s].offset + parts[s].size; i++)
            if (!parts[s].frozen) sum += (double)dx[i] * dx[i];
    double norm = sqrt(sum) * scale, clip = norm > o->clip_norm ? o->clip_norm / norm : 1;
    for (size_t s = 0; s < ZP_COUNT(parts); s++) {
        double lr = rate * parts[s].rate_factor, decay = parts[s].decays ? o->weight_decay : 0;
        for (size_t i = parts[s].offset; i < parts[s].offset + parts[s].size; i++) {
            if (parts[s].frozen) continue;
            double g = dx[i] * scale * clip;
            p->m[i] = o->beta1 * p->m[i] + (1 - o->beta1) * g;
            p->v[i] = o->beta2 * p->v[i] + (1 - o->beta2) * g * g;
            double m = p->m[i] / (1 - pow(o->beta1, t)), v = p->v[i] / (1 - pow(o->beta2, t));
            p->x[i] -= lr * decay * p->x[i];
            p->x[i] -= lr * m / (sqrt(v) + o->eps);
        }
    }
}

static void test_ten_steps_follow_the_formula(void **state)
{
    (void)state;
    static struct plain plain;
    struct optimiser o;
    struct opt_report report;
    const struct opt_options options = { 0.9, 0.95, 1e-8, 0.1, 1.0 };
    open_optimiser(&o, &options);
    draw(x, 0, 0.02f);
    for (size_t i = 0; i < N; i++) plain.x[i] = x[i];
    for (int t = 1; t <= STEPS; t++) {
        draw(dx, (uint64_t)t, t % 2 ? 0.1f : 1e-4f); /* clipped, and not */
        double rate = 1e-3 * t, scale = 0.25;
        opt_step(&o, NULL, x, dx, rate, scale, &report);
        step_plain(&plain, &options, t, rate, scale);
        assert_false(report.skipped);
        assert_true((report.clip_factor < 1) == (t % 2 == 1));
    }
    double worst = 0;
    for (size_t i = 0; i < N; i++) worst = fmax(worst, fabs(x[i] - plain.x[i]));
    printf("worst distance %g\n", worst);
    assert_true(worst < 2e-6); /* observed 2.4e-8 */
    assert_int_equal(o.steps, STEPS);
    opt_free(&o);
}

static void test_frozen_and_uncovered_parameters_keep_their_bits(void **state)
{
    (void)state;
    static float before[N];
    struct optimiser o;
    struct opt_report report;
    open_optimiser(&o, &(struct opt_options){ .weight_decay = 0.1 });
    draw(x, 0, 1);
    draw(dx, 1, 1);
    for (size_t i = 9001; i < 12010; i++) dx[i] = NAN; /* nobody looks at them */
    memcpy(before, x, sizeof x);
    opt_step(&o, NULL, x, dx, 0.01, 1, &report);
    assert_false(report.skipped);
    assert_memory_equal(x + 9001, before + 9001, (12010 - 9001) * sizeof *x);
    for (size_t i = 0; i < 9001; i++) assert_true(x[i] != before[i]);
    for (size_t i = 12010; i < N; i++) assert_true(x[i] != before[i]);
    /* one more is frozen on the way, and its means are gone */
    opt_freeze(&o, 3);
    memcpy(before, x, sizeof x);
    opt_step(&o, NULL, x, dx, 0.01, 1, &report);
    assert_memory_equal(x + 9001, before + 9001, (N - 9001) * sizeof *x);
    for (size_t i = 12010; i < N; i++) assert_true(o.m[i] == 0 && o.v[i] == 0);
    opt_free(&o);
}

static void test_gradient_that_is_not_finite_skips_the_step(void **state)
{
    (void)state;
    static float before[N], m[N];
    const float bad[] = { NAN, INFINITY, -INFINITY };
    struct optimiser o;
    struct opt_report report;
    open_optimiser(&o, &(struct opt_options){ .clip_norm = 1 });
    draw(x, 0, 1);
    draw(dx, 1, 1);
    opt_step(&o, NULL, x, dx, 0.01, 1, &report);
    assert_int_equal(report.bad_segment, o.n_segments);
    memcpy(before, x, sizeof x);
    memcpy(m, o.m, sizeof m);
    for (size_t i = 0; i < ZP_COUNT(bad); i++) {
        dx[N - 1] = bad[i];
        opt_step(&o, NULL, x, dx, 0.01, 1, &report);
        assert_true(report.skipped);
        assert_false(isfinite(report.grad_norm));
        assert_int_equal(report.bad_segment, 3);
        assert_memory_equal(x, before, sizeof x);
        assert_memory_equal(o.m, m, sizeof m);
        assert_int_equal(o.steps, 1);
    }
    dx[N - 1] = 3e38f; /* large, but finite */
    opt_step(&o, NULL, x, dx, 0.01, 1, &report);
    assert_false(report.skipped);
    assert_true(isfinite(report.grad_norm) && report.grad_norm > 2.9e38);
    opt_free(&o);
}

static void run_steps(uint32_t n_threads, float *out, double *norm)
{
    struct optimiser o;
    struct opt_report report = { 0 };
    struct pool *pool;
    assert_int_equal(pool_open(&pool, n_threads, NULL), ZP_OK);
    open_optimiser(&o, &(struct opt_options){ .weight_decay = 0.1, .clip_norm = 1 });
    draw(out, 0, 1);
    for (int t = 1; t <= 3; t++) {
        draw(dx, (uint64_t)t, 1);
        opt_step(&o, pool, out, dx, 0.01, 1, &report);
    }
    *norm = report.grad_norm;
    opt_free(&o);
    pool_close(pool);
}

static void test_same_bits_for_any_number_of_threads(void **state)
{
    (void)state;
    static float other[N];
    double norm, other_norm;
    run_steps(1, x, &norm);
    for (uint32_t n = 2; n <= 5; n++) {
        run_steps(n, other, &other_norm);
        assert_memory_equal(x, other, sizeof x);
        assert_memory_equal(&norm, &other_norm, sizeof norm);
    }
}

static void test_means_that_fade_end_at_zero(void **state)
{
    (void)state;
    struct optimiser o;
    struct opt_report report;
    open_optimiser(&o, &(struct opt_options){ 0 });
    draw(x, 0, 1);
    draw(dx, 1, 1e-3f);
    opt_step(&o, NULL, x, dx, 0.01, 1, &report);
    memset(dx, 0, sizeof dx);
    for (int t = 0; t < 2000; t++) opt_step(&o, NULL, x, dx, 1e-6, 1, &report);
    for (size_t i = 0; i < 9000; i++) assert_true(o.m[i] == 0 && o.v[i] == 0 && isfinite(x[i]));
    opt_free(&o);
}

static void test_wrong_segments_and_options_are_refused(void **state)
{
    (void)state;
    const struct {
        struct opt_segment s[2];
        struct opt_options o;
    } wrong[] = {
        { .s = { { 0, 10, 1, true, false }, { 9, 5, 1, true, false } } },  /* overlap */
        { .s = { { 0, 10, 1, true, false }, { 90, 11, 1, true, false } } }, /* beyond the end */
        { .s = { { 0, 10, 1, true, false }, { SIZE_MAX, 2, 1, true, false } } },
        { .s = { { 0, 10, 1, true, false }, { 20, SIZE_MAX, 1, true, false } } },
        { .s = { { 0, 10, -1, true, false }, { 20, 1, 1, true, false } } },
        { .s = { { 0, 10, NAN, true, false }, { 20, 1, 1, true, false } } },
        { .o = { .beta1 = 1 } },
        { .o = { .beta2 = NAN } },
        { .o = { .eps = -1 } },
        { .o = { .weight_decay = -1 } },
        { .o = { .clip_norm = INFINITY } },
    };
    uint64_t live = live_bytes();
    for (size_t i = 0; i < ZP_COUNT(wrong); i++) {
        struct optimiser o;
        zp_err err = { 0 };
        assert_int_equal(opt_open(&o, 100, wrong[i].s, 2, &wrong[i].o, &err), ZP_USAGE);
        assert_true(err.message[0] != '\0');
    }
    for (uint64_t n = 1;; n++) { /* and memory that runs out anywhere leaves nothing behind */
        struct optimiser o;
        zp_err err = { 0 };
        mem_fail_at(n, false);
        zp_status status = opt_open(&o, N, parts, ZP_COUNT(parts), &wrong[0].o, &err);
        bool failed = mem_fail_count() > 0;
        mem_fail_at(0, false);
        assert_int_equal(status, failed ? ZP_NO_MEMORY : ZP_OK);
        opt_free(&o);
        assert_int_equal(live_bytes(), live);
        if (!failed) break;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ten_steps_follow_the_formula),
        cmocka_unit_test(test_frozen_and_uncovered_parameters_keep_their_bits),
        cmocka_unit_test(test_gradient_that_is_not_finite_skips_the_step),
        cmocka_unit_test(test_same_bits_for_any_number_of_threads),
        cmocka_unit_test(test_means_that_fade_end_at_zero),
        cmocka_unit_test(test_wrong_segments_and_options_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
