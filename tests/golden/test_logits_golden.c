/* test_logits_golden.c: the exact path against transformers in f32 on de-quantised weights
 * (tests/data/logits.json), at the best level of the processor and at the reference level; levels
 * among each other. */
#include "golden.h"

#include <zerope/eval.h>

#include "model/model.h"

struct real_model {
    const char *name, *file;
    double kl, dlogp, margin, dnll; /* tolerances; margin: greedy is compared down to here */
    double default_kl;              /* of the default path to the exact one: twice what it is */
};
static const struct real_model real_models[] = {
    { "smollm2", SMOLLM2_FILE, 1e-6, 1e-3, 0.01, 1e-4, 6e-3 },
    { "gemma3", GEMMA3_FILE, 1e-5, 2e-2, 0.05, 1e-3, 4e-3 },
};

/* ln p of each id of `top` ([id, ln p]) in our document; the list is long enough to hold them. */
static void find_ours(const json_t *top, const json_t *doc, double *ours)
{
    const json_t *mine = json_object_get(doc, "top"), *item;
    for (size_t i = 0; i < json_array_size(top); i++) {
        json_int_t id = json_integer_value(json_array_get(json_array_get(top, i), 0));
        size_t k;
        ours[i] = -INFINITY;
        json_array_foreach(mine, k, item)
        {
            if (json_integer_value(json_object_get(item, "id")) == id)
                ours[i] = json_real_value(json_object_get(item, "logprob"));
        }
        if (isinf(ours[i])) fail_msg("id %lld is not among our first 200", (long long)id);
    }
}

static size_t compare_greedy(const json_t *f32, const json_t *doc, double margin)
{
    const json_t *want = json_object_get(f32, "greedy"), *got = json_object_get(doc, "greedy");
    const json_t *margins = json_object_get(f32, "greedy_margin");
    size_t i = 0;
    for (; i < json_array_size(got); i++) {
        if (json_number_value(json_array_get(margins, i)) < margin) break;
        assert_int_equal(json_integer_value(json_array_get(got, i)),
                         json_integer_value(json_array_get(want, i)));
    }
    return i;
}

static void check_case(const struct real_model *r, zp_engine *e, const json_t *c, uint32_t predict)
{
    const json_t *f32 = json_object_get(c, "f32"), *top = json_object_get(f32, "top20");
    zp_logits_options o = { .top = 200, .n_predict = predict };
    char *json = NULL;
    size_t n;
    int32_t *ids = golden_ids(json_object_get(c, "ids"), &n);
    GOLDEN_OK(zp_logits_json(e, ids, n, &o, &json, err));
    json_t *doc = json_loads(json, 0, NULL);
    assert_non_null(doc);
    double ours[20], worst, kl;
    assert_int_equal(json_array_size(top), 20);
    find_ours(top, doc, ours);
    kl = golden_top_kl(top, ours, &worst);
    double nll = json_real_value(json_object_get(doc, "nll_mean"));
    double dnll = nll - json_real_value(json_object_get(f32, "mean_nll"));
    size_t equal = compare_greedy(f32, doc, r->margin);
    printf("%s %s: n %zu, KL %.2e, largest d ln p %.2e, d NLL %.2e, greedy equal for %zu of %u\n",
           r->name, json_string_value(json_object_get(c, "name")), n, kl, worst, dnll, equal,
           predict);
    assert_true(kl <= r->kl);
    assert_true(worst <= r->dlogp);
    assert_true(fabs(dnll) <= r->dnll);
    assert_true(predict == 0 || equal > 0);
    assert_int_equal(json_integer_value(json_object_get(doc, "n_tokens")), n);
    json_decref(doc);
    zp_free(json);
    free(ids);
}

/* One level against the best one, on the first 64 tokens of the long case. A row every 9 tokens:
 * the output matrix is slow at level ref. */
static void compare_levels(const struct real_model *r, const zp_model *m, zp_engine *best,
                           zp_engine *other, const int32_t *ids, double limit, const char *what)
{
    enum { N = 64, STEP = 9 };
    size_t v = m->h.n_vocab;
    double worst = 0;
    zp_seq *a = NULL, *b = NULL;
    float *p = malloc(2 * v * sizeof *p), *q = p + v;
    assert_non_null(p);
    GOLDEN_OK(zp_seq_open(&a, best, NULL, err));
    GOLDEN_OK(zp_seq_open(&b, other, NULL, err));
    for (size_t at = 0; at < N; at += STEP) {
        size_t n = N - at < STEP ? N - at : STEP;
        zp_item x = { a, ids + at, n, ZP_WANT_LAST }, y = { b, ids + at, n, ZP_WANT_LAST };
        GOLDEN_OK(zp_engine_run(best, &x, 1, p, 1, NULL, err));
        GOLDEN_OK(zp_engine_run(other, &y, 1, q, 1, NULL, err));
        worst = fmax(worst, golden_kl(p, q, v));
    }
    printf("%s exact: %s against the best level: largest KL %.2e\n", r->name, what, worst);
    assert_true(worst <= limit);
    zp_seq_close(a);
    zp_seq_close(b);
    free(p);
}

static double mean_kl(const float *p, const float *q, size_t n, size_t v)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += golden_kl(p + i * v, q + i * v, v);
    return sum / (double)n;
}

/* Default path: all levels give the same bits, of every token, and stay near the exact path. */
static void check_default_levels(const struct real_model *r, const zp_model *m, zp_engine *exact,
                                 const int32_t *ids)
{
    enum { N = 64 };
    static const zp_level levels[] = { ZP_LEVEL_BEST, ZP_LEVEL_AVX2, ZP_LEVEL_REF };
    size_t v = m->h.n_vocab;
    float *truth = golden_logits(exact, m, ids, N), *rows[3];
    for (size_t k = 0; k < 3; k++) {
        zp_engine *e = golden_engine(m, (zp_engine_options){ .n_ctx = N, .level = levels[k] });
        rows[k] = golden_logits(e, m, ids, N);
        zp_engine_close(e);
    }
    double kl = mean_kl(truth, rows[0], N, v);
    size_t bytes = N * v * sizeof **rows;
    printf("%s: KL of the default path to exact %.2e; levels give %s\n", r->name, kl,
           memcmp(rows[0], rows[1], bytes) == 0 && memcmp(rows[0], rows[2], bytes) == 0
               ? "the same bits"
               : "DIFFERENT bits");
    assert_true(kl > 0 && kl <= r->default_kl);
    for (size_t k = 1; k < 3; k++) assert_memory_equal(rows[k], rows[0], bytes);
    for (size_t k = 0; k < 3; k++) free(rows[k]);
    free(truth);
}

static void check_model(const struct real_model *r)
{
    json_t *root = golden_load("logits.json"), *cases = json_object_get(root, r->name), *c;
    zp_model *m = golden_model(r->file);
    zp_engine_options o = { .n_ctx = 512, .exact = true };
    zp_engine *e = golden_engine(m, o), *other;
    size_t i, n;
    assert_true(json_array_size(cases) >= 2);
    int32_t *ids = golden_ids(json_object_get(json_array_get(cases, 1), "ids"), &n);
    assert_true(n > 64);
    json_array_foreach(cases, i, c) check_case(r, e, c, 32);
    o.n_ctx = 64, o.level = ZP_LEVEL_REF;
    other = golden_engine(m, o);
    check_case(r, other, json_array_get(cases, 0), 0);
    compare_levels(r, m, e, other, ids, 1e-6, "ref");
    zp_engine_close(other);
    o.level = ZP_LEVEL_AVX2;
    other = golden_engine(m, o);
    compare_levels(r, m, e, other, ids, 1e-6, "avx2");
    zp_engine_close(other);
    check_default_levels(r, m, e, ids);
    zp_engine_close(e);
    free(ids);
    zp_model_close(m);
    json_decref(root);
}

static void test_smollm2_equals_transformers(void **state)
{
    (void)state;
    check_model(&real_models[0]);
}

static void test_gemma3_equals_transformers(void **state)
{
    (void)state;
    check_model(&real_models[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_smollm2_equals_transformers),
        cmocka_unit_test(test_gemma3_equals_transformers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
