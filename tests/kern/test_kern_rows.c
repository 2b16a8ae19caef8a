/* test_kern_rows.c: row operations of every level against double arithmetic and, to the bit, each
 * other, all sizes 0..1025, odd alignments, bytes behind the result, special values. */
#include "kern_cases.h"

enum { MOST = 1025 };

/* Constants of kern_ops.inc, in units of the last place. */
static const double ulp_rmsnorm = 3, ulp_silu = 4, ulp_gelu = 12, ulp_exp = 2;
/* REL of silu_back, gelu_back, rmsnorm_back. */
static const double rel_silu_back = 2e-6, rel_gelu_back = 4e-6, rel_norm_back = 3e-7;

typedef void (*check_fn)(const struct kern_table *t, struct rng *r, size_t n, double *worst);

/* Every size at every level; prints the worst of the check's own measure. */
static void over_sizes(const char *name, check_fn check)
{
    struct rng r = seeded(name);
    struct kern_table t[KERN_LEVEL_COUNT];
    size_t levels = all_levels(t);
    for (size_t l = 0; l < levels; l++) {
        double worst = 0;
        for (size_t n = 0; n <= MOST; n++) check(&t[l], &r, n, &worst);
        print_message("%s %s: worst %.3g\n", name, kern_level_name(t[l].level), worst);
    }
}

/* n floats at an odd alignment inside guarded memory. */
struct odd {
    float *memory, *x;
    size_t bytes;
};

static struct odd odd_floats(struct rng *r, size_t n, float size)
{
    size_t skip = rng_below(r, 4);
    struct odd o = { .bytes = (n + skip) * sizeof(float) };
    o.memory = floats(r, n + skip, size);
    o.x = o.memory + skip;
    return o;
}

static void free_odd(struct odd *o)
{
    assert_guard(o->memory, o->bytes);
    mem_free(o->memory);
}

static void note(double *worst, double found, double limit, size_t n)
{
    if (!(found <= limit)) fail_msg("n %zu: %g exceeds %g", n, found, limit);
    if (found > *worst) *worst = found;
}

static void check_rmsnorm(const struct kern_table *t, struct rng *r, size_t n, double *worst)
{
    struct odd x = odd_floats(r, n, 3), gain = odd_floats(r, n, 2), y = odd_floats(r, n, 1);
    bool with_gain = n % 3 != 0, in_place = n % 2 != 0;
    float *copy = guarded((n + 1) * sizeof *copy), *out = in_place ? x.x : y.x;
    memcpy(copy, x.x, n * sizeof *copy);
    t->rmsnorm(x.x, with_gain ? gain.x : NULL, 1e-5f, n, out);
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)copy[i] * (double)copy[i];
    double scale = 1 / sqrt(sum / (double)n + (double)1e-5f);
    for (size_t i = 0; i < n; i++) {
        double want = (double)copy[i] * scale * (with_gain ? (double)gain.x[i] : 1);
        note(worst, ulps((double)out[i], want), ulp_rmsnorm, n);
    }
    mem_free(copy);
    free_odd(&x);
    free_odd(&gain);
    free_odd(&y);
}

static void test_rmsnorm_all_sizes(void **state)
{
    (void)state;
    over_sizes("rmsnorm", check_rmsnorm);
}

static void check_rotate(const struct kern_table *t, struct rng *r, size_t n, double *worst)
{
    struct odd x = odd_floats(r, 2 * n, 3), cs = odd_floats(r, 2 * n, 1);
    struct kern_table ref;
    kern_table_init(&ref, KERN_REF);
    for (size_t j = 0; j < n; j++) {
        double angle = rng_unit(r) * 7;
        cs.x[2 * j] = j % 5 == 4 ? 1 : (float)cos(angle);
        cs.x[2 * j + 1] = j % 5 == 4 ? 0 : (float)sin(angle);
        if (j % 10 == 9) x.x[2 * j] = -0.0f; /* identity keeps the sign of zeros */
    }
    float *want = guarded((2 * n + 1) * sizeof *want),
          *before = guarded((2 * n + 1) * sizeof *want);
    memcpy(want, x.x, 2 * n * sizeof *want);
    memcpy(before, x.x, 2 * n * sizeof *want);
    ref.rotate(want, cs.x, n);
    t->rotate(x.x, cs.x, n);
    assert_same_bits(x.x, want, 2 * n, "rotate");
    for (size_t j = 0; j < n; j++) {
        if (j % 5 == 4) assert_same_bits(x.x + 2 * j, before + 2 * j, 2, "identity");
        double a = (double)before[2 * j], b = (double)before[2 * j + 1];
        double c = (double)cs.x[2 * j], s = (double)cs.x[2 * j + 1];
        double size = ldexp(fabs(a) + fabs(b), -23);
        note(worst, fabs((double)x.x[2 * j] - (a * c - b * s)) / (size + 1e-300), 1, n);
        note(worst, fabs((double)x.x[2 * j + 1] - (b * c + a * s)) / (size + 1e-300), 1, n);
    }
    mem_free(want);
    mem_free(before);
    free_odd(&x);
    free_odd(&cs);
}

static void test_rotate_all_sizes(void **state)
{
    (void)state;
    over_sizes("rotate", check_rotate);
}

static double silu_of(double x)
{
    return x / (1 + exp(-x));
}

/* |x| <= 2 here: the rounding of the argument of exp is amplified by its size. */
static double gelu_of(double x)
{
    double u2 = 2 * sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x);
    return x / (1 + exp(-u2));
}

static void check_gated(kern_gated_act_fn op, double (*truth)(double), float size, double limit,
                        struct rng *r, size_t n, double *worst)
{
    struct odd gate = odd_floats(r, n, size), up = odd_floats(r, n, 3), y = odd_floats(r, n, 1);
    float *copy = guarded((n + 1) * sizeof *copy), *out = n % 2 ? gate.x : y.x;
    memcpy(copy, gate.x, n * sizeof *copy);
    op(gate.x, up.x, out, n);
    for (size_t i = 0; i < n; i++)
        note(worst, ulps((double)out[i], truth((double)copy[i]) * (double)up.x[i]), limit, n);
    mem_free(copy);
    free_odd(&gate);
    free_odd(&up);
    free_odd(&y);
}

static void check_silu(const struct kern_table *t, struct rng *r, size_t n, double *worst)
{
    check_gated(t->silu_mul, silu_of, n % 4 ? 8 : 80, ulp_silu, r, n, worst);
}

static void check_gelu(const struct kern_table *t, struct rng *r, size_t n, double *worst)
{
    check_gated(t->gelu_mul, gelu_of, 2, ulp_gelu, r, n, worst);
}

static void test_gated_activations_all_sizes(void **state)
{
    (void)state;
    over_sizes("silu", check_silu);
    over_sizes("gelu", check_gelu);
}

static void test_gated_activations_of_special_values(void **state)
{
    (void)state;
    struct kern_table t[KERN_LEVEL_COUNT];
    size_t levels = all_levels(t);
    for (size_t l = 0; l < levels; l++) {
        const float x[5] = { 1000, -1000, NAN, 0, -0.0f }, one[5] = { 1, 1, 1, 1, 1 };
        float y[5];
        kern_gated_act_fn ops[2] = { t[l].silu_mul, t[l].gelu_mul };
        for (int i = 0; i < 2; i++) {
            ops[i](x, one, y, 5);
            assert_true(y[0] == 1000 && y[1] == 0 && isnan(y[2]) && y[3] == 0 && y[4] == 0);
        }
    }
}

static void check_add_scaled(const struct kern_table *t, struct rng *r, size_t n, double *worst)
{
    struct odd x = odd_floats(r, n, 3), y = odd_floats(r, n, 3), z = odd_floats(r, n, 3);
    float *want = guarded((n + 1) * sizeof *want), scale = uniform(r, 2);
    for (size_t i = 0; i < n; i++) {
        volatile float product = scale * y.x[i]; /* rounded */
        want[i] = x.x[i] + product;
    }
    float *out = n % 3 == 0 ? x.x : n % 3 == 1 ? y.x : z.x;
    t->add_scaled(x.x, y.x, scale, out, n);
    assert_same_bits(out, want, n, "add_scaled");
    *worst = 0;
    mem_free(want);
    free_odd(&x);
    free_odd(&y);
    free_odd(&z);
}

static void test_add_scaled_all_sizes(void **state)
{
    (void)state;
    over_sizes("add_scaled", check_add_scaled);
}

static void check_weigh_lists(const struct kern_table *t, struct rng *r, size_t n, double *worst)
{
    size_t n_lists = 1 + n % 8, step = n + n % 3;
    struct odd x = odd_floats(r, n_lists * step + 1, 3), y = odd_floats(r, n, 1);
    float *want = guarded((n + 1) * sizeof *want), weight[8];
    for (size_t k = 0; k < n_lists; k++) weight[k] = uniform(r, 2);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < n_lists; k++) {
            volatile float product = weight[k] * x.x[k * step + i]; /* rounded */
            want[i] = k ? want[i] + product : product;
        }
    t->weigh_lists(x.x, step, weight, n_lists, y.x, n);
    assert_same_bits(y.x, want, n, "weigh_lists");
    *worst = 0;
    mem_free(want);
    free_odd(&x);
    free_odd(&y);
}

static void test_weigh_lists_all_sizes(void **state)
{
    (void)state;
    over_sizes("weigh_lists", check_weigh_lists);
}

static void check_scale(const struct kern_table *t, struct rng *r, size_t n, double *worst)
{
    struct odd x = odd_floats(r, n, 3), y = odd_floats(r, n, 3);
    float *want = guarded((n + 1) * sizeof *want), scale = uniform(r, 2);
    float *out = n % 2 ? x.x : y.x;
    for (size_t i = 0; i < n; i++) want[i] = scale * x.x[i];
    t->scale(x.x, scale, out, n);
    assert_same_bits(out, want, n, "scale");
    *worst = 0;
    mem_free(want);
    free_odd(&x);
    free_odd(&y);
}

static void test_scale_all_sizes(void **state)
{
    (void)state;
    over_sizes("scale", check_scale);
}

static void check_row_max(const struct kern_table *t, struct rng *r, size_t n, double *worst)
{
    struct odd x = odd_floats(r, n, 3);
    float least = n % 4 ? -INFINITY : n % 8 ? 3.5f : -4, want = least;
    for (size_t i = 0; n % 5 == 4 && i < 3; i++) x.x[rng_below(r, n)] = i ? NAN : -INFINITY;
    for (size_t i = 0; i < n; i++)
        if (x.x[i] > want) want = x.x[i];
    assert_true(t->row_max(x.x, n, least) == want);
    *worst = 0;
    free_odd(&x);
}

static void test_row_max_all_sizes(void **state)
{
    (void)state;
    over_sizes("row_max", check_row_max);
}

static void check_exp_row(const struct kern_table *t, struct rng *r, size_t n, double *worst)
{
    struct odd x = odd_floats(r, n, n % 4 ? 8 : 80);
    float *copy = guarded((n + 1) * sizeof *copy);
    float shift = uniform(r, 3), scale = 0.1f + uniform(r, 0.05f);
    memcpy(copy, x.x, n * sizeof *copy);
    float sum = t->exp_row(x.x, n, shift, scale);
    double total = 0;
    for (size_t i = 0; i < n; i++) {
        float d = copy[i] - shift; /* rounded */
        note(worst, ulps((double)x.x[i], exp((double)d) * (double)scale), ulp_exp, n);
        total += (double)x.x[i];
    }
    if (fabs((double)sum - total) > (double)(n / 16 + 5) * 0x1p-24 * total)
        fail_msg("n %zu: the sum is %g, not %g", n, (double)sum, total);
    if (n > 0) {
        x.x[rng_below(r, n)] = NAN;
        assert_true(isnan(t->exp_row(x.x, n, shift, scale)));
    }
    mem_free(copy);
    free_odd(&x);
}

static void test_exp_row_all_sizes(void **state)
{
    (void)state;
    over_sizes("exp_row", check_exp_row);
}

static double silu_slope(double x)
{
    double s = 1 / (1 + exp(-x));
    return s + x * s * (1 - s);
}

static double gelu_slope(double x)
{
    double root = 2 * sqrt(2 / 3.14159265358979323846);
    double s = 1 / (1 + exp(-root * (x + 0.044715 * x * x * x)));
    return s + x * s * (1 - s) * root * (1 + 3 * 0.044715 * x * x);
}

struct act_truth {
    double (*act)(double), (*slope)(double);
    double limit, dup_ulps, most; /* the ULPs hold for |gate| <= most */
};

/* In place of each of the inputs, and of none. */
static void check_gated_back(kern_gated_back_fn op, const struct act_truth *truth, float size,
                             struct rng *r, size_t n, double *worst)
{
    struct odd in[3] = { odd_floats(r, n, size), odd_floats(r, n, 3), odd_floats(r, n, 2) };
    struct odd out[2] = { odd_floats(r, n, 1), odd_floats(r, n, 1) };
    float *copy[3], *dgate = n % 4 < 3 ? in[n % 4].x : out[0].x;
    float *dup = n % 5 < 3 && n % 5 != n % 4 ? in[n % 5].x : out[1].x;
    for (int i = 0; i < 3; i++) {
        copy[i] = guarded((n + 1) * sizeof *copy[i]);
        memcpy(copy[i], in[i].x, n * sizeof *copy[i]);
    }
    op(in[0].x, in[1].x, in[2].x, dgate, dup, n);
    for (size_t i = 0; i < n; i++) {
        double x = (double)copy[0][i], up = (double)copy[1][i], dy = (double)copy[2][i];
        double off = fabs((double)dgate[i] - dy * up * truth->slope(x));
        note(worst, off / (fabs(dy * up) + 1e-300), truth->limit, n);
        double off_up = ulps((double)dup[i], dy * truth->act(x));
        if (fabs(x) <= truth->most && !(off_up <= truth->dup_ulps))
            fail_msg("n %zu: dup is %g ULP off", n, off_up);
    }
    for (int i = 0; i < 3; i++) {
        mem_free(copy[i]);
        free_odd(&in[i]);
        if (i < 2) free_odd(&out[i]);
    }
}

static void check_silu_back(const struct kern_table *t, struct rng *r, size_t n, double *worst)
{
    struct act_truth truth = { silu_of, silu_slope, rel_silu_back, ulp_silu + 1, HUGE_VAL };
    check_gated_back(t->silu_back, &truth, n % 4 ? 8 : 80, r, n, worst);
}

static void check_gelu_back(const struct kern_table *t, struct rng *r, size_t n, double *worst)
{
    struct act_truth truth = { gelu_of, gelu_slope, rel_gelu_back, ulp_gelu + 1, 2 };
    check_gated_back(t->gelu_back, &truth, n % 3 ? 8 : 2, r, n, worst);
}

static void test_gated_gradients_all_sizes(void **state)
{
    (void)state;
    over_sizes("silu_back", check_silu_back);
    over_sizes("gelu_back", check_gelu_back);
}

/* Far out a slope is 1 or 0, though its parts are infinite. */
static void test_gated_gradients_of_special_values(void **state)
{
    (void)state;
    static const float x[] = { 1000, -1000, 1e20f, -1e20f, 3e38f, -3e38f };
    float one[] = { 1, 1, 1, 1, 1, 1 }, dgate[6], dup[6], none = NAN;
    struct kern_table t[KERN_LEVEL_COUNT];
    size_t levels = all_levels(t);
    for (size_t l = 0; l < levels; l++) {
        kern_gated_back_fn ops[2] = { t[l].silu_back, t[l].gelu_back };
        for (int k = 0; k < 2; k++) {
            ops[k](x, one, one, dgate, dup, 6);
            for (int i = 0; i < 6; i++) {
                assert_true(dgate[i] == (x[i] > 0 ? 1.0f : 0.0f));
                assert_true(dup[i] == (x[i] > 0 ? x[i] : 0.0f));
            }
            ops[k](&none, one, one, dgate, dup, 1);
            assert_true(isnan(dgate[0]) && isnan(dup[0]));
        }
    }
}

static void check_norm_back(const struct kern_table *t, struct rng *r, size_t n, double *worst)
{
    struct odd x = odd_floats(r, n, 3), gain = odd_floats(r, n, 2), dy = odd_floats(r, n, 1);
    struct odd dx = odd_floats(r, n, 1), dgain = odd_floats(r, n, 1);
    bool with_gain = n % 3 != 0, in_place = n % 2 != 0, add = n % 4 < 2;
    float *copy = guarded((n + 1) * sizeof *copy), *before = guarded((n + 1) * sizeof *before);
    float *gain_before = guarded((n + 1) * sizeof *before), *out = in_place ? dy.x : dx.x;
    memcpy(copy, dy.x, n * sizeof *copy);
    memcpy(before, out, n * sizeof *before);
    memcpy(gain_before, dgain.x, n * sizeof *gain_before);
    struct kern_norm_row row = { n, x.x, with_gain ? gain.x : NULL, dy.x, 0.6f };
    t->rmsnorm_back(&row, add, out, with_gain ? dgain.x : NULL);
    double mean = 0, size = 0, scale = (double)0.6f;
    for (size_t i = 0; i < n; i++) {
        double term = (double)copy[i] * (with_gain ? (double)gain.x[i] : 1) * (double)x.x[i];
        mean += term * scale / (double)n, size += fabs(term) * scale / (double)n;
    }
    for (size_t i = 0; i < n; i++) {
        double u = (double)copy[i] * (with_gain ? (double)gain.x[i] : 1);
        double normed = (double)x.x[i] * scale, rest = add ? (double)before[i] : 0;
        double want = scale * (u - normed * mean) + rest;
        double part = scale * (fabs(u) + fabs(normed) * size) + fabs(rest);
        note(worst, fabs((double)out[i] - want) / part, rel_norm_back, n);
        double slope = (double)gain_before[i] + (with_gain ? (double)copy[i] * normed : 0);
        double most = fabs((double)gain_before[i]) + fabs((double)copy[i] * normed);
        note(worst, fabs((double)dgain.x[i] - slope) / most, rel_norm_back, n);
    }
    mem_free(copy);
    mem_free(before);
    mem_free(gain_before);
    free_odd(&x);
    free_odd(&gain);
    free_odd(&dy);
    free_odd(&dx);
    free_odd(&dgain);
}

static void test_rmsnorm_gradients_all_sizes(void **state)
{
    (void)state;
    over_sizes("rmsnorm_back", check_norm_back);
}

/* Quantised values, scales and sums equal the reference's; padding is zero. */
static void check_act_quantize(const struct kern_table *t, struct rng *r, size_t n, double *worst)
{
    if (n == 0) return;
    size_t n_tok = 3, stride = n + rng_below(r, 3), bytes = kern_act_bytes(n_tok, n);
    struct odd x = odd_floats(r, n_tok * stride, n % 7 == 6 ? 1e-29f : 4);
    struct kern_table ref;
    struct kern_act a = { 0 }, b = { 0 };
    uint8_t *ma = guarded(bytes), *mb = guarded(bytes);
    kern_table_init(&ref, KERN_REF);
    if (n % 5 == 4) x.x[rng_below(r, n)] = n % 2 ? NAN : INFINITY;
    if (n % 5 == 3) memset(x.x, 0, n * sizeof *x.x);
    if (n % 5 == 2) x.x[rng_below(r, n)] = -3e38f;
    memset(ma, 0x11, bytes);
    memset(mb, 0x11, bytes);
    kern_act_place(&a, ma, n_tok, n);
    kern_act_place(&b, mb, n_tok, n);
    a.f32 = b.f32 = x.x;
    a.f32_stride = b.f32_stride = stride;
    kern_act_quantize_rows(ref.act_quantize, &a, 0, n_tok);
    size_t middle = rng_below(r, n / 32 + 1) * 32; /* the last rows in two parts of columns */
    struct kern_part left = { 1, n_tok, 0, middle }, right = { 1, n_tok, middle, n };
    t->act_quantize(&b, right, x.x + stride + middle, stride);
    t->act_quantize(&b, left, x.x + stride, stride);
    kern_act_quantize_rows(t->act_quantize, &b, 0, 1);
    assert_memory_equal(ma, mb, bytes + GUARD);
    for (size_t tok = 0; tok < n_tok; tok++)
        for (size_t k = 0; k < b.stride; k++) {
            float scale = b.scale[tok * (b.stride / 32) + k / 32];
            int q = b.q[tok * b.stride + k];
            if (k >= n) assert_int_equal(q, 0);
            if (k >= n || isnan(scale)) continue;
            double error = fabs((double)x.x[tok * stride + k] - (double)scale * q);
            if (scale > 0) note(worst, error / (double)scale, 0.50002, n);
        }
    mem_free(ma);
    mem_free(mb);
    free_odd(&x);
}

static void test_act_quantize_all_sizes(void **state)
{
    (void)state;
    over_sizes("act_quantize", check_act_quantize);
}

static void true_expsum(const float *x, size_t n, double *max, double *sum)
{
    *max = -INFINITY;
    *sum = 0;
    for (size_t i = 0; i < n; i++) *max = fmax(*max, (double)x[i]);
    for (size_t i = 0; i < n; i++) *sum += exp((double)x[i] - *max);
}

static void check_expsum(const struct kern_table *t, struct rng *r, size_t n, double *worst)
{
    if (n == 0) return;
    struct odd x = odd_floats(r, n, n % 3 ? 4 : 40);
    double want_max, want, sum;
    float max;
    true_expsum(x.x, n, &want_max, &want);
    t->expsum(x.x, n, &max, &sum);
    assert_true((double)max == want_max);
    note(worst, fabs(sum / want - 1), 2e-7, n);
    x.x[rng_below(r, n)] = NAN;
    t->expsum(x.x, n, &max, &sum);
    assert_true(isnan(sum));
    free_odd(&x);
}

static void test_expsum_all_sizes(void **state)
{
    (void)state;
    over_sizes("expsum", check_expsum);
}

static void check_kl(const struct kern_table *t, struct rng *r, size_t n, double *worst)
{
    if (n == 0) return;
    struct odd p = odd_floats(r, n, 6), q = odd_floats(r, n, 1);
    double pm, ps, qm, qs, want = 0, sum[2];
    float max[2], noise = n % 2 ? 0.01f : 1;
    for (size_t i = 0; i < n; i++) q.x[i] = p.x[i] + noise * q.x[i];
    true_expsum(p.x, n, &pm, &ps);
    true_expsum(q.x, n, &qm, &qs);
    for (size_t i = 0; i < n; i++) {
        double lp = (double)p.x[i] - pm - log(ps), lq = (double)q.x[i] - qm - log(qs);
        want += exp(lp) * (lp - lq);
    }
    t->expsum(p.x, n, &max[0], &sum[0]);
    t->expsum(q.x, n, &max[1], &sum[1]);
    double kl = t->kl_row(p.x, max[0], sum[0], q.x, max[1], sum[1], n);
    note(worst, fabs(kl - want), 2e-7, n);
    assert_true(kl >= -1e-7);
    assert_true(t->kl_row(p.x, max[0], sum[0], p.x, max[0], sum[0], n) == 0);
    free_odd(&p);
    free_odd(&q);
}

static void test_kl_all_sizes(void **state)
{
    (void)state;
    over_sizes("kl_row", check_kl);
}

/* A banned token (-inf) in both rows counts nothing; in q alone the divergence is infinite. */
static void test_kl_of_banned_tokens(void **state)
{
    (void)state;
    struct kern_table t[KERN_LEVEL_COUNT];
    size_t levels = all_levels(t);
    for (size_t l = 0; l < levels; l++) {
        float p[40], q[40], pm, qm;
        double ps, qs;
        for (int i = 0; i < 40; i++) p[i] = q[i] = (float)i * 0.1f;
        p[7] = q[7] = -INFINITY;
        t[l].expsum(p, 40, &pm, &ps);
        t[l].expsum(q, 40, &qm, &qs);
        assert_true(t[l].kl_row(p, pm, ps, q, qm, qs, 40) == 0);
        q[9] = -INFINITY;
        t[l].expsum(q, 40, &qm, &qs);
        assert_true(isinf(t[l].kl_row(p, pm, ps, q, qm, qs, 40)));
    }
}

/* What one level makes of x and z; y (5 n + 9): rmsnorm and its scale, silu, gelu, x + scaled z,
 * x rotated, then maxima, sums and KL. */
static void run_rows(const struct kern_table *t, const float *x, const float *z, size_t n, float *y)
{
    float max[2];
    double sum[3];
    y[5 * n + 8] = t->rmsnorm(x, z, 1e-6f, n, y);
    t->silu_mul(x, z, y + n, n);
    t->gelu_mul(x, z, y + 2 * n, n);
    t->add_scaled(x, z, 0.3f, y + 3 * n, n);
    memcpy(y + 4 * n, x, n * sizeof *y);
    t->rotate(y + 4 * n, z, n / 2);
    t->expsum(x, n, &max[0], &sum[0]);
    t->expsum(z, n, &max[1], &sum[1]);
    sum[2] = t->kl_row(x, max[0], sum[0], z, max[1], sum[1], n);
    memcpy(y + 5 * n, max, sizeof max);
    memcpy(y + 5 * n + 2, sum, sizeof sum);
}

/* What training makes of them; y (8 n + 2): x scaled, exp(x - largest), gradients of silu and
 * gelu, those of rmsnorm; then the largest and the sum. */
static void run_train_rows(const struct kern_table *t, const float *x, const float *z, size_t n,
                           float *y)
{
    float *exps = y + n, *norm = y + 6 * n;
    t->scale(x, 0.3f, y, n);
    memcpy(exps, x, n * sizeof *y);
    y[8 * n] = t->row_max(x, n, -5);
    y[8 * n + 1] = t->exp_row(exps, n, y[8 * n], 0.7f);
    t->silu_back(x, z, z, y + 2 * n, y + 3 * n, n);
    t->gelu_back(x, z, z, y + 4 * n, y + 5 * n, n);
    memcpy(norm, x, n * sizeof *y);
    memcpy(norm + n, z, n * sizeof *y);
    struct kern_norm_row row = { n, x, n % 3 ? z : NULL, z, 0.6f };
    t->rmsnorm_back(&row, n % 2, norm, norm + n);
}

/* All levels follow the same steps. Among the values are some whose exp is 0, a denormal or
 * infinity. */
static void test_levels_give_the_same_bits(void **state)
{
    (void)state;
    static const float odd[] = { -103.2f, 1000, 88.9f, -1000, 97.5f, 1e-41f, -88, 103, -95.1f, 0 };
    struct rng r = seeded("levels");
    struct kern_table t[KERN_LEVEL_COUNT];
    size_t levels = all_levels(t);
    for (size_t n = 1; n <= MOST; n += 1 + n / 40) {
        float *x = floats(&r, n, 9), *z = floats(&r, n, 2), *first = NULL;
        for (size_t i = 0; i < n / 20; i++) x[rng_below(&r, n)] = odd[i % ZP_COUNT(odd)];
        for (size_t l = 0; l < levels; l++) {
            size_t n_rows = 5 * n + 9, size = n_rows + 8 * n + 2;
            float *y = guarded(size * sizeof *y);
            run_rows(&t[l], x, z, n, y);
            run_train_rows(&t[l], x, z, n, y + n_rows);
            assert_guard(y, size * sizeof *y);
            if (!first) first = y;
            else assert_same_bits(y, first, size, kern_level_name(t[l].level));
            if (y != first) mem_free(y);
        }
        mem_free(first);
        mem_free(x);
        mem_free(z);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rmsnorm_all_sizes),
        cmocka_unit_test(test_rotate_all_sizes),
        cmocka_unit_test(test_gated_activations_all_sizes),
        cmocka_unit_test(test_gated_activations_of_special_values),
        cmocka_unit_test(test_add_scaled_all_sizes),
        cmocka_unit_test(test_weigh_lists_all_sizes),
        cmocka_unit_test(test_scale_all_sizes),
        cmocka_unit_test(test_row_max_all_sizes),
        cmocka_unit_test(test_exp_row_all_sizes),
        cmocka_unit_test(test_gated_gradients_all_sizes),
        cmocka_unit_test(test_gated_gradients_of_special_values),
        cmocka_unit_test(test_rmsnorm_gradients_all_sizes),
        cmocka_unit_test(test_act_quantize_all_sizes),
        cmocka_unit_test(test_expsum_all_sizes),
        cmocka_unit_test(test_kl_all_sizes),
        cmocka_unit_test(test_kl_of_banned_tokens),
        cmocka_unit_test(test_levels_give_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
