/* test_grad_gemm.c: products of all kinds by both backends against double arithmetic; the same bits
 * for 1, 2 and 3 threads; distances of rows, sums onto what is there, bytes beside the result. */
#include "grad_cases.h"

#include "train/gemm.h"

/* oneDNN's cache of primitives takes locks that the thread sanitizer does not see. */
#ifdef __SANITIZE_THREAD__
static const bool may_emulate = false;
#else
static const bool may_emulate = true;
#endif

enum { KINDS = 3 };
static const char *const kind_names[KINDS] = { "nt", "nn", "tn" };

/* A product with gaps of `gap` behind each row. */
struct case_product {
    struct gemm_product p;
    float *x, *w, *y, *y0;
    size_t y_count;
};

static struct case_product make_product(struct rng *r, enum gemm_kind kind, bool add, size_t n,
                                        size_t m, size_t k, size_t gap)
{
    size_t x_rows = kind == GEMM_TN ? k : n, ldx = (kind == GEMM_TN ? n : k) + gap;
    size_t w_rows = kind == GEMM_NT ? m : k, ldw = (kind == GEMM_NT ? k : m) + gap;
    struct case_product c = { .x = numbers(r, x_rows * ldx, 1),
                              .w = numbers(r, w_rows * ldw, 1),
                              .y0 = numbers(r, n * (m + gap), 1),
                              .y = zeros(n * (m + gap)),
                              .y_count = n * (m + gap) };
    c.p = (struct gemm_product){ kind, add, n, m, k, c.x, ldx, c.w, ldw, c.y, m + gap };
    return c;
}

static double rounded(float x, bool half)
{
    return (double)(half ? bf16_to_f32(f32_to_bf16(x)) : x);
}

/* DOT(1) of kern.h, with slack for sums of slices; the values beside the result are as before. */
static void check_result(const struct case_product *c, bool half, double *worst)
{
    const struct gemm_product *p = &c->p;
    for (size_t i = 0; i < p->n; i++) {
        for (size_t j = 0; j < p->ldy; j++) {
            float got = c->y[i * p->ldy + j], before = c->y0[i * p->ldy + j];
            if (j >= p->m) {
                assert_true(got == before);
                continue;
            }
            double sum = p->add ? (double)before : 0, size = fabs(sum);
            for (size_t k = 0; k < p->k; k++) {
                float x = p->kind == GEMM_TN ? p->x[k * p->ldx + i] : p->x[i * p->ldx + k];
                float w = p->kind == GEMM_NT ? p->w[j * p->ldw + k] : p->w[k * p->ldw + j];
                double product = rounded(x, half) * rounded(w, half);
                sum += product;
                size += fabs(product);
            }
            double limit = ldexp(1, -24) * (2 + sqrt((double)p->k)) * size + 1e-30;
            double share = fabs((double)got - sum) / limit;
            if (!(share <= 1))
                fail_msg("%s n %zu m %zu k %zu: (%zu, %zu) is %g, expected %g", kind_names[p->kind],
                         p->n, p->m, p->k, i, j, (double)got, sum);
            *worst = fmax(*worst, share);
        }
    }
}

static struct gemm *open_products(struct pool *pool, struct gemm_options options)
{
    struct gemm *g;
    zp_err err = { 0 };
    if (gemm_open_with(&g, pool, &options, &err) != ZP_OK) fail_msg("%s", err.message);
    return g;
}

static void multiply(struct gemm *g, struct case_product *c)
{
    memcpy(c->y, c->y0, c->y_count * sizeof(float));
    gemm_run(g, &c->p);
}

static const size_t shapes[][3] = { { 1, 1, 1 },      { 3, 5, 7 },     { 17, 33, 65 },
                                    { 64, 64, 64 },   { 200, 48, 96 }, { 130, 300, 31 },
                                    { 31, 17, 1100 }, { 257, 129, 40 },
                                    { 256, 70, 600 } };

static void over_shapes(const char *test, struct gemm_options options)
{
    struct rng r = seeded(test);
    struct pool *pool = pool_of(2);
    struct gemm *g = open_products(pool, options);
    double worst = 0;
    for (size_t s = 0; s < ZP_COUNT(shapes); s++)
        for (int kind = 0; kind < KINDS; kind++)
            for (int variant = 0; variant < 2; variant++) {
                struct case_product c =
                    make_product(&r, (enum gemm_kind)kind, variant != 0, shapes[s][0], shapes[s][1],
                                 shapes[s][2], variant ? 3 : 0);
                multiply(g, &c);
                check_result(&c, gemm_precision_used(g) == GEMM_BF16, &worst);
            }
    print_message("%s: %s, worst DOT %.3g\n", test, gemm_backend(g), worst);
    gemm_close(g);
    pool_close(pool);
}

static void test_own_products_are_right(void **state)
{
    (void)state;
    over_shapes("own f32", (struct gemm_options){ .own = true });
}

static void test_library_products_are_right(void **state)
{
    (void)state;
    over_shapes("f32", (struct gemm_options){ 0 });
}

static void test_bf16_products_round_operands_only(void **state)
{
    (void)state;
    over_shapes("bf16", (struct gemm_options){ .precision = GEMM_BF16, .emulate = may_emulate });
}

static void same_for_threads(const char *test, struct gemm_options options)
{
    struct rng r = seeded(test);
    for (int kind = 0; kind < KINDS; kind++) {
        struct case_product c =
            make_product(&r, (enum gemm_kind)kind, kind == GEMM_TN, 300, 280, 150, 1);
        float *first = NULL;
        for (uint32_t n = 1; n <= THREADS_MOST; n++) {
            struct pool *pool = pool_of(n);
            struct gemm *g = open_products(pool, options);
            multiply(g, &c);
            if (!first) first = copy_of(c.y, c.y_count);
            assert_same_bits(c.y, first, c.y_count, kind_names[kind]);
            gemm_close(g);
            pool_close(pool);
        }
    }
}

static void test_threads_do_not_change_bits(void **state)
{
    (void)state;
    same_for_threads("own", (struct gemm_options){ .own = true });
    same_for_threads("library", (struct gemm_options){ 0 });
    same_for_threads("bf16",
                     (struct gemm_options){ .precision = GEMM_BF16, .emulate = may_emulate });
}

static void test_nothing_to_add_leaves_or_clears(void **state)
{
    (void)state;
    struct rng r = seeded("k = 0");
    struct pool *pool = pool_of(2);
    struct gemm *g = open_products(pool, (struct gemm_options){ 0 });
    for (int add = 0; add < 2; add++) {
        struct case_product c = make_product(&r, GEMM_NN, add != 0, 5, 6, 0, 2);
        double worst = 0;
        multiply(g, &c);
        check_result(&c, false, &worst);
    }
    gemm_close(g);
    pool_close(pool);
}

static void test_precision_is_what_the_processor_has(void **state)
{
    (void)state;
    struct pool *pool = pool_of(1);
    struct gemm *g = open_products(pool, (struct gemm_options){ .precision = GEMM_BF16 });
    bool has = kern_cpu_level() >= KERN_AVX512BF16 && strcmp(gemm_backend(g), "own") != 0;
    assert_int_equal(gemm_precision_used(g), has ? GEMM_BF16 : GEMM_F32);
    gemm_close(g);
    g = open_products(pool, (struct gemm_options){ .precision = GEMM_BF16, .own = true });
    assert_int_equal(gemm_precision_used(g), GEMM_F32);
    assert_string_equal(gemm_backend(g), "own");
    gemm_close(g);
    pool_close(pool);
}

static uint64_t live_products(void)
{
    struct mem_stats stats;
    mem_stats_read(&stats);
    return stats.live[MEM_PRODUCT];
}

static void check_bytes(struct gemm_options options)
{
    enum { COUNT = 12345 };
    struct pool *pool = pool_of(3);
    zp_err err = { 0 };
    uint64_t before = live_products();
    struct gemm *g = open_products(pool, options);
    uint64_t planned = gemm_bytes(g, COUNT);
    assert_int_equal(live_products() - before, gemm_bytes(g, 0));
    assert_int_equal(gemm_reserve(g, COUNT, &err), ZP_OK);
    assert_int_equal(gemm_reserve(g, COUNT - 1, &err), ZP_OK); /* there is more */
    assert_int_equal(live_products() - before, planned);
    assert_int_equal(gemm_bytes(g, 0), planned);
    gemm_close(g);
    pool_close(pool);
}

static void test_bytes_are_as_planned(void **state)
{
    (void)state;
    check_bytes((struct gemm_options){ .own = true });
    check_bytes((struct gemm_options){ 0 });
    check_bytes((struct gemm_options){ .precision = GEMM_BF16, .emulate = may_emulate });
}

static void test_f32_in_spite_of_the_precision(void **state)
{
    (void)state;
    struct rng r = seeded("f32 of bf16");
    struct pool *pool = pool_of(2);
    struct gemm *half = open_products(pool, (struct gemm_options){ .precision = GEMM_BF16,
                                                                   .emulate = may_emulate });
    struct gemm *full = open_products(pool, (struct gemm_options){ 0 });
    struct case_product c = make_product(&r, GEMM_NN, false, 70, 90, 110, 0);
    multiply(full, &c);
    float *want = copy_of(c.y, c.y_count);
    memset(c.y, 0, c.y_count * sizeof *c.y);
    gemm_run_f32(half, &c.p);
    assert_same_bits(c.y, want, c.y_count, "f32");
    gemm_close(half);
    gemm_close(full);
    pool_close(pool);
}

static void test_open_survives_any_lack_of_memory(void **state)
{
    (void)state;
    struct pool *pool = pool_of(2);
    for (uint64_t n = 1;; n++) {
        struct gemm *g;
        zp_err err = { 0 };
        mem_fail_at(n, false);
        zp_status status = gemm_open(&g, pool, GEMM_F32, &err);
        bool failed = mem_fail_count() > 0;
        mem_fail_at(0, false);
        assert_true(status == ZP_OK || (status == ZP_NO_MEMORY && failed && !g));
        gemm_close(g);
        if (!failed) break;
    }
    pool_close(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        GRAD_TEST(test_own_products_are_right),
        GRAD_TEST(test_library_products_are_right),
        GRAD_TEST(test_bf16_products_round_operands_only),
        GRAD_TEST(test_threads_do_not_change_bits),
        GRAD_TEST(test_nothing_to_add_leaves_or_clears),
        GRAD_TEST(test_precision_is_what_the_processor_has),
        GRAD_TEST(test_bytes_are_as_planned),
        GRAD_TEST(test_f32_in_spite_of_the_precision),
        GRAD_TEST(test_open_survives_any_lack_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
