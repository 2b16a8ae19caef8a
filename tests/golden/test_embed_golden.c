/* test_embed_golden.c: embeddings of small models against an independent forward in float64, which
 * gives transformers' logits (tests/data/embeddings.json, tools/make_embeddings.py). */
#include "golden.h"

#include "model/engine.h"

enum { WIDEST = 128 };

static double worst_exact, least_cosine = 1;

static void read_row(const json_t *row, double *out, size_t d)
{
    assert_int_equal(json_array_size(row), d);
    for (size_t i = 0; i < d; i++) out[i] = json_number_value(json_array_get(row, i));
}

/* Largest difference in shares of the largest value; *cosine of the angle between them. */
static double compare(const float *got, const double *want, size_t d, double *cosine)
{
    double worst = 0, largest = 0, dot = 0, a = 0, b = 0;
    for (size_t i = 0; i < d; i++) {
        worst = fmax(worst, fabs((double)got[i] - want[i]));
        largest = fmax(largest, fabs(want[i]));
        dot += (double)got[i] * want[i], a += (double)got[i] * (double)got[i];
        b += want[i] * want[i];
    }
    *cosine = dot / sqrt(a * b);
    return worst / largest;
}

static void check_text(zp_engine *e, bool exact, const json_t *text, const int32_t *ids)
{
    static const char *const names[] = { "", "last", "mean", "first" };
    size_t d = e->model->h.d_model, n = (size_t)json_integer_value(json_object_get(text, "n"));
    float got[WIDEST];
    double want[WIDEST], cosine;
    for (int p = ZP_POOL_LAST; p <= ZP_POOL_FIRST; p++)
        for (int raw = 0; raw < 2; raw++) {
            const json_t *rows = raw ? json_object_get(text, "raw") : text;
            zp_embed_options o = { .pooling = (zp_pooling)p, .raw = raw != 0 };
            read_row(json_object_get(rows, names[p]), want, d);
            GOLDEN_OK(zp_embed(e, ids, n, &o, got, err));
            double off = compare(got, want, d, &cosine);
            if (exact) worst_exact = fmax(worst_exact, off);
            else least_cosine = fmin(least_cosine, cosine);
            if (off > (exact ? 2e-5 : 0.1) || cosine < 0.999)
                fail_msg("%zu tokens, %s%s: off by %.2e, cosine %.6f", n, names[p],
                         raw ? ", raw" : "", off, cosine);
        }
}

static void check_case(const json_t *c, bool exact, zp_level level)
{
    size_t n, i;
    const json_t *texts = json_object_get(c, "texts"), *text;
    int32_t *ids = golden_ids(json_object_get(c, "ids"), &n);
    zp_model *m = golden_small(json_string_value(json_object_get(c, "name")));
    zp_engine *e = golden_engine(m, (zp_engine_options){ .n_ctx = (uint32_t)n, .n_threads = 2,
                                                         .micro_batch = 24, .exact = exact,
                                                         .level = level });
    assert_true(json_array_size(texts) == 3);
    json_array_foreach(texts, i, text) check_text(e, exact, text, ids);
    zp_engine_close(e);
    zp_model_close(m);
    free(ids);
}

static void test_embeddings_are_those_of_an_independent_forward(void **state)
{
    static const zp_level levels[] = { ZP_LEVEL_REF, ZP_LEVEL_AVX2, ZP_LEVEL_BEST };
    json_t *doc = golden_load("embeddings.json");
    const json_t *cases = json_object_get(doc, "cases"), *c;
    size_t i;
    (void)state;
    assert_int_equal(json_array_size(cases), 3);
    json_array_foreach(cases, i, c) for (size_t k = 0; k < 3; k++)
    {
        check_case(c, true, levels[k]);
        check_case(c, false, levels[k]);
    }
    print_message("exact: off by %.1e at most; default path: cosine %.6f at least\n", worst_exact,
                  least_cosine);
    json_decref(doc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_embeddings_are_those_of_an_independent_forward),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
