/* test_kern_gemm.c: products of every file type at every level against double arithmetic, and the
 * same-bits rule: what a row of the result holds depends on nothing but its own inputs, of
 * quantised forms not even on the level. */
#include <stdio.h>
#include "kern_cases.h"
#include "scale_fields.h"

/* The constant of kern_ops.inc. */
static const double dot_constant = 1;

struct case_act {
    struct kern_act a;
    void *memory;
    float *x;
    size_t n_tok;
};

/* size 0: extreme values: a few huge, many equal to the largest magnitude. */
static struct case_act make_act(struct rng *r, size_t n_tok, size_t n_in, float size)
{
    struct case_act c = { .n_tok = n_tok };
    struct kern_table ref;
    size_t stride = n_in + rng_below(r, 5); /* odd strides */
    c.x = floats(r, n_tok * stride, size > 0 ? size : 1);
    if (size <= 0)
        for (size_t i = 0; i < n_tok * stride; i++) c.x[i] = rng_below(r, 2) ? 127.0f : -127.0f;
    c.memory = guarded(kern_act_bytes(n_tok, n_in));
    kern_act_place(&c.a, c.memory, n_tok, n_in);
    c.a.f32 = c.x;
    c.a.f32_stride = stride;
    kern_table_init(&ref, KERN_REF);
    kern_act_quantize_rows(ref.act_quantize, &c.a, 0, n_tok);
    return c;
}

static void free_act(struct case_act *c)
{
    mem_free(c->memory);
    mem_free(c->x);
}

/* The activation as the form reads it. */
static double act_value(const struct case_mat *w, const struct kern_act *a, size_t t, size_t k)
{
    if (!kern_mat_is_quantised(&w->m)) return (double)a->f32[t * a->f32_stride + k];
    return (double)a->q[t * a->stride + k] * (double)a->scale[t * (a->stride / 32) + k / 32];
}

/* |error| / (2^-24 (2 + sqrt(k)) sum |a b|) of one value of a result. */
static double constant_of(const struct case_mat *w, const struct case_act *x, size_t t, size_t r,
                          float y)
{
    double want = 0, size = 0;
    size_t n = w->m.n_in;
    for (size_t k = 0; k < n; k++) {
        double a = act_value(w, &x->a, t, k);
        want += w->weights[r * n + k] * a;
        size += w->parts[r * n + k] * fabs(a);
    }
    double unit = ldexp(1, -24) * (2 + sqrt((double)n)) * size, error = fabs((double)y - want);
    return unit == 0 && error == 0 ? 0 : error / unit;
}

static double worst_constant(const struct case_mat *w, const struct case_act *x, const float *y,
                             size_t y_stride)
{
    double worst = 0;
    for (size_t t = 0; t < x->n_tok; t++)
        for (size_t r = 0; r < w->m.n_out; r++) {
            double c = constant_of(w, x, t, r, y[t * y_stride + r]);
            if (!(c <= worst)) worst = c;
        }
    return worst;
}

/* Runs one level; nothing but the result's rows may change. */
static float *run(const struct kern_table *t, const struct case_mat *w, const struct case_act *x,
                  size_t y_stride)
{
    size_t size = x->n_tok * y_stride;
    float *y = guarded(size * sizeof *y);
    memset(y, guard_byte, size * sizeof *y);
    kern_gemm_of(t, w->m.form)(&w->m, 0, w->m.n_out, &x->a, x->n_tok, y, y_stride);
    assert_guard(y, size * sizeof *y);
    for (size_t i = 0; i < x->n_tok; i++)
        for (size_t r = w->m.n_out; r < y_stride; r++)
            assert_int_equal(((uint32_t *)(void *)y)[i * y_stride + r], 0xa5a5a5a5u);
    return y;
}

/* One matrix and batch at every level. Returns the worst constant. Levels agree to the bit; but of
 * float forms ref multiplies and adds apart. */
static double check_levels(const struct case_mat *w, const struct case_act *x, size_t y_stride)
{
    struct kern_table t[KERN_LEVEL_COUNT];
    size_t levels = all_levels(t);
    float *first = NULL;
    double worst = 0;
    for (size_t l = 0; l < levels; l++) {
        float *y = run(&t[l], w, x, y_stride);
        double c = worst_constant(w, x, y, y_stride);
        if (!(c <= dot_constant))
            fail_msg("%s %zu x %zu, %zu tokens, level %s: constant %g", w->type->name, w->m.n_out,
                     w->m.n_in, x->n_tok, kern_level_name(t[l].level), c);
        if (c > worst) worst = c;
        bool alone = l == KERN_REF && !kern_mat_is_quantised(&w->m);
        if (first) assert_same_bits(y, first, x->n_tok * y_stride, w->type->name);
        if (first || alone) mem_free(y);
        else first = y;
    }
    mem_free(first);
    return worst;
}

static void test_products_of_every_type_keep_the_contract(void **state)
{
    (void)state;
    struct rng r = seeded("products");
    const struct quant_traits *t;
    for (size_t i = 0; (t = quant_traits_at(i)) != NULL; i++) {
        double worst = 0;
        for (int turn = 0; turn < 8; turn++) {
            size_t most = t->block == 256 ? 4 : 1025 / t->block;
            size_t n_in = (1 + rng_below(&r, most)) * t->block, n_out = 1 + rng_below(&r, 90);
            struct case_mat w = make_mat(&r, t, n_out, n_in, turn == 7, turn >= 5);
            struct case_act x = make_act(&r, 1 + rng_below(&r, 9), n_in, turn == 6 ? 0 : 2);
            double c = check_levels(&w, &x, n_out + rng_below(&r, 3));
            if (c > worst) worst = c;
            free_act(&x);
            free_mat(&w);
        }
        print_message("%-7s worst constant %.3f\n", t->name, worst);
    }
}

/* All widths: every tail of a block, a register and a slice. */
static void test_float_products_of_all_widths(void **state)
{
    (void)state;
    struct rng r = seeded("widths");
    const uint32_t types[] = { QUANT_F32, QUANT_F16, QUANT_BF16 };
    for (size_t n_in = 1; n_in <= 1025; n_in += n_in < 70 ? 1 : 53) {
        struct case_mat w =
            make_mat(&r, quant_traits_find(types[n_in % 3]), 17, n_in, false, false);
        struct case_act x = make_act(&r, 7, n_in, 1);
        check_levels(&w, &x, 17);
        free_act(&x);
        free_mat(&w);
    }
    struct case_mat w = make_mat(&r, quant_traits_find(QUANT_F32), 81, 2100, false, false);
    struct case_act x = make_act(&r, 8, 2100, 1);
    check_levels(&w, &x, 81);
    free_act(&x);
    free_mat(&w);
}

/* Rows and tokens of one call in any cut give the bits of the whole. */
static void check_cuts(struct rng *r, const struct kern_table *t, const struct case_mat *w,
                       const struct case_act *x)
{
    size_t n_out = w->m.n_out, size = x->n_tok * n_out;
    float *whole = run(t, w, x, n_out), *cut = guarded(size * sizeof *cut);
    kern_gemm_fn gemm = kern_gemm_of(t, w->m.form);
    for (size_t tok = 0; tok < x->n_tok;) {
        size_t n = 1 + rng_below(r, x->n_tok - tok);
        if (rng_below(r, 2)) n = 1;
        struct kern_act part = x->a;
        part.f32 += tok * part.f32_stride;
        struct kern_group g = kern_group_at(&x->a, tok, 0);
        part.q = g.q;
        part.scale = g.scale;
        part.scaled32 = g.scaled32;
        part.minus32 = g.minus32;
        part.minus16 = g.minus16;
        for (size_t row = 0; row < n_out;) {
            size_t end = row + PACK_ROWS * (1 + rng_below(r, 6));
            if (end > n_out) end = n_out;
            gemm(&w->m, row, end, &part, n, cut + tok * n_out, n_out);
            row = end;
        }
        tok += n;
    }
    assert_guard(cut, size * sizeof *cut);
    assert_same_bits(cut, whole, size, w->type->name);
    mem_free(whole);
    mem_free(cut);
}

static void test_bits_of_a_token_do_not_depend_on_batch_or_rows(void **state)
{
    (void)state;
    struct rng r = seeded("batch");
    struct kern_table t[KERN_LEVEL_COUNT];
    size_t levels = all_levels(t);
    const struct quant_traits *type;
    for (size_t i = 0; (type = quant_traits_at(i)) != NULL; i++) {
        struct case_mat w = make_mat(&r, type, 115, 768, false, false);
        for (size_t n_tok = 1; n_tok <= 17; n_tok++) {
            struct case_act x = make_act(&r, n_tok, 768, 1);
            for (size_t l = 1; l < levels; l++) check_cuts(&r, &t[l], &w, &x);
            if (n_tok == 17) check_cuts(&r, &t[KERN_REF], &w, &x);
            free_act(&x);
        }
        free_mat(&w);
    }
}

static void test_bits_and_contract_hold_beyond_a_slice_of_k(void **state)
{
    (void)state;
    struct rng r = seeded("slices");
    struct kern_table t[KERN_LEVEL_COUNT];
    size_t levels = all_levels(t);
    const struct quant_traits *type;
    for (size_t i = 0; (type = quant_traits_at(i)) != NULL; i++) {
        size_t n_in = type->block == 256 ? 2304 : type->block == 32 ? 2080 : 2500;
        struct case_mat w = make_mat(&r, type, 53, n_in, false, false);
        struct case_act x = make_act(&r, 8, n_in, 1);
        check_levels(&w, &x, 53);
        for (size_t l = 0; l < levels; l++) check_cuts(&r, &t[l], &w, &x);
        free_act(&x);
        free_mat(&w);
    }
}

/* More tokens than stay in a cache are multiplied in blocks. */
static void test_bits_hold_for_many_tokens(void **state)
{
    (void)state;
    struct rng r = seeded("many tokens");
    struct kern_table t[KERN_LEVEL_COUNT];
    size_t levels = all_levels(t);
    const size_t widths[] = { 512, 1280 }; /* one slice, two */
    for (size_t i = 0; i < ZP_COUNT(widths); i++) {
        struct case_mat w =
            make_mat(&r, quant_traits_find(QUANT_Q4_K), 21, widths[i], false, false);
        struct case_act x = make_act(&r, 700, widths[i], 1);
        for (size_t l = 1; l < levels; l++) check_cuts(&r, &t[l], &w, &x);
        free_act(&x);
        free_mat(&w);
    }
}

/* Every scale of a file of a quantised type becomes one. */
static void set_scales_to_one(struct case_mat *w)
{
    size_t blocks = w->m.n_out * (w->m.n_in / w->type->block);
    for (size_t b = 0; b < blocks; b++)
        for (int field = 0; field < 2; field++)
            set_scale(w->type, w->rows + b * w->type->bytes, field, 0x3c00, 128);
    pack_rows(w);
}

/* Integers in one group of 32 of each token, its largest magnitude 127: scale 1. */
static void one_group_of_integers(struct rng *r, struct case_act *x, bool extreme)
{
    for (size_t t = 0; t < x->n_tok; t++) {
        float *row = x->x + t * x->a.f32_stride;
        size_t group = rng_below(r, x->a.n_in / 32) * 32;
        memset(row, 0, x->a.n_in * sizeof *row);
        for (size_t k = 0; k < 32; k++)
            row[group + k] = extreme ? (rng_below(r, 2) ? 127.0f : -127.0f)
                                     : (float)rng_below(r, 255) - 127;
        row[group + rng_below(r, 32)] = 127;
    }
}

/* No sum of these rounds, so each level must give the true integer. */
static void test_integer_sums_are_exact_at_every_level(void **state)
{
    (void)state;
    struct rng r = seeded("integers");
    struct kern_table t[KERN_LEVEL_COUNT];
    size_t levels = all_levels(t);
    const struct quant_traits *type;
    for (size_t i = 0; (type = quant_traits_at(i)) != NULL; i++) {
        for (int extreme = 0; extreme < 2 && type->form != QUANT_FLOAT; extreme++) {
            struct case_mat w = make_mat(&r, type, 37, 512, false, extreme != 0);
            struct case_act x = make_act(&r, 15, 512, 1);
            set_scales_to_one(&w);
            one_group_of_integers(&r, &x, extreme != 0);
            kern_act_quantize_rows(t[KERN_REF].act_quantize, &x.a, 0, 15);
            for (size_t l = 0; l < levels; l++) {
                float *y = run(&t[l], &w, &x, 37);
                double c = worst_constant(&w, &x, y, 37);
                if (c != 0) fail_msg("%s at level %zu: off by %g", type->name, l, c);
                mem_free(y);
            }
            free_act(&x);
            free_mat(&w);
        }
    }
}

/* NaN, infinities and denormals of one token stay with that token. */
static void test_bad_numbers_spread_to_their_own_token_only(void **state)
{
    (void)state;
    struct rng r = seeded("bad numbers");
    struct kern_table t[KERN_LEVEL_COUNT];
    size_t levels = all_levels(t);
    const uint32_t types[] = { QUANT_F32, QUANT_BF16, QUANT_Q4_1, QUANT_Q8_0 };
    for (size_t i = 0; i < ZP_COUNT(types); i++)
        for (size_t l = 0; l < levels; l++) {
            struct case_mat w = make_mat(&r, quant_traits_find(types[i]), 37, 320, false, false);
            struct case_act x = make_act(&r, 7, 320, 1);
            float *before = run(&t[l], &w, &x, 37);
            x.x[2 * x.a.f32_stride + 77] = NAN;
            x.x[4 * x.a.f32_stride + 200] = INFINITY;
            for (size_t k = 0; k < 320; k++) x.x[5 * x.a.f32_stride + k] = 1e-42f;
            kern_act_quantize_rows(t[l].act_quantize, &x.a, 0, 7);
            float *after = run(&t[l], &w, &x, 37);
            for (size_t tok = 0; tok < 7; tok++) {
                const float *now = after + tok * 37;
                if (tok == 2 || tok == 4) {
                    for (size_t row = 0; row < 37; row++) assert_true(!isfinite(now[row]));
                } else if (tok == 5) {
                    for (size_t row = 0; row < 37; row++) assert_true(fabsf(now[row]) < 1e-30f);
                } else {
                    assert_same_bits(now, before + tok * 37, 37, "other token");
                }
            }
            mem_free(before);
            mem_free(after);
            free_act(&x);
            free_mat(&w);
        }
}

static const struct hostile {
    uint16_t half;
    uint8_t exponent;
    bool finite;
} hostile[] = { { 0x7c00, 255, false }, { 0x0001, 0, true },    { 0xfc00, 255, false },
                { 0x83ff, 1, true },    { 0x7e01, 255, false }, { 0x0000, 2, true },
                { 0x7bff, 200, true } };

/* Every third row gets one hostile scale or min. */
static void set_hostile_scales(struct case_mat *w)
{
    size_t blocks = w->m.n_in / w->type->block;
    for (size_t row = 0; row < w->m.n_out; row += 3) {
        const struct hostile *h = &hostile[row / 3 % ZP_COUNT(hostile)];
        set_scale(w->type, w->rows + (row * blocks + row % blocks) * w->type->bytes, (int)row,
                  h->half, h->exponent);
    }
    pack_rows(w);
}

/* The result of a hostile row: the reference's bits, but of NaN any, and within the contract where
 * it is finite. */
static void check_hostile(const struct case_mat *w, const struct case_act *x, size_t t, size_t row,
                          float got, float ref)
{
    const struct hostile *h = &hostile[row / 3 % ZP_COUNT(hostile)];
    bool same = isnan(ref) ? isnan(got) != 0 : f32_bits(got) == f32_bits(ref);
    if (h->finite) same = same && isfinite(got) && constant_of(w, x, t, row, got) <= dot_constant;
    else if (w->type->type != QUANT_MXFP4) same = same && !isfinite(got);
    if (!same)
        fail_msg("%s row %zu, scale %04x: %g beside %g of the reference", w->type->name, row,
                 h->half, (double)got, (double)ref);
}

/* Infinity, NaN and denormals as scales: what the reference makes of them, in their rows only. */
static void test_hostile_scales_spread_to_their_own_row_only(void **state)
{
    (void)state;
    enum { ROWS = 43, TOKENS = 7 };
    struct rng r = seeded("hostile scales");
    struct kern_table t[KERN_LEVEL_COUNT];
    size_t levels = all_levels(t);
    const struct quant_traits *type;
    for (size_t i = 0; (type = quant_traits_at(i)) != NULL; i++) {
        if (type->form == QUANT_FLOAT) continue;
        struct case_mat w = make_mat(&r, type, ROWS, 1280, false, false);
        struct case_act x = make_act(&r, TOKENS, 1280, 1);
        float *before[KERN_LEVEL_COUNT], *ref = NULL;
        for (size_t l = 0; l < levels; l++) before[l] = run(&t[l], &w, &x, ROWS);
        set_hostile_scales(&w);
        for (size_t l = 0; l < levels; l++) {
            float *y = run(&t[l], &w, &x, ROWS);
            if (l == 0) ref = y;
            for (size_t at = 0; at < TOKENS * ROWS; at++)
                if (at % ROWS % 3) assert_same_bits(y + at, before[l] + at, 1, type->name);
                else check_hostile(&w, &x, at / ROWS, at % ROWS, y[at], ref[at]);
            mem_free(before[l]);
            if (l != 0) mem_free(y);
        }
        mem_free(ref);
        free_act(&x);
        free_mat(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products_of_every_type_keep_the_contract),
        cmocka_unit_test(test_float_products_of_all_widths),
        cmocka_unit_test(test_bits_of_a_token_do_not_depend_on_batch_or_rows),
        cmocka_unit_test(test_bits_and_contract_hold_beyond_a_slice_of_k),
        cmocka_unit_test(test_bits_hold_for_many_tokens),
        cmocka_unit_test(test_integer_sums_are_exact_at_every_level),
        cmocka_unit_test(test_bad_numbers_spread_to_their_own_token_only),
        cmocka_unit_test(test_hostile_scales_spread_to_their_own_row_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
