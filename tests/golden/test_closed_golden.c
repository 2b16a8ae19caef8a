/* test_closed_golden.c: the real models with closed rotation against an independent forward in
 * float64 (tests/data/logits_closed.json, tools/make_closed_logits.py). Gates are closed as a scan
 * closes them: by the engine's view, weights untouched. */
#include "golden.h"

#include "eval/logits.h"

/* Gates of all KV heads of a layer: closed_pairs[layer] is [] or [first, last]. */
static uint8_t *read_gates(const json_t *c, const struct position *p, size_t *closed)
{
    size_t pairs = p->n_pair, heads = (size_t)p->n_layer * p->n_kv;
    uint8_t *gates = malloc(heads * pairs);
    const json_t *layers = json_object_get(c, "closed_pairs");
    assert_non_null(gates);
    memset(gates, 1, heads * pairs);
    assert_int_equal(json_array_size(layers), p->n_layer);
    *closed = 0;
    for (size_t h = 0; h < heads; h++) {
        const json_t *range = json_array_get(layers, h / p->n_kv);
        if (json_array_size(range) == 0) continue;
        size_t first = (size_t)json_integer_value(json_array_get(range, 0));
        size_t last = (size_t)json_integer_value(json_array_get(range, 1));
        assert_true(first <= last && last < pairs);
        for (size_t i = first; i <= last; i++) gates[h * pairs + i] = 0;
        *closed += last - first + 1;
    }
    return gates;
}

static void check_case(zp_engine *e, const json_t *c, const char *model, double kl_limit,
                       double logp_limit, double nll_limit)
{
    const json_t *top = json_object_get(c, "top20");
    const struct hparams *h = &e->model->h;
    size_t n, closed;
    int32_t *ids = golden_ids(json_object_get(c, "ids"), &n);
    uint8_t *gates = read_gates(c, &e->model->position, &closed);
    float *last = malloc(h->n_vocab * sizeof *last);
    double *nll = malloc(n * sizeof *nll), sum = 0, ours[20], worst;
    zp_seq *seq = NULL;
    assert_true(last && nll && json_array_size(top) == 20);
    e->forward.gates = gates;
    GOLDEN_OK(zp_seq_open(&seq, e, NULL, err));
    GOLDEN_OK(logits_prompt(e, seq, ids, n, nll, last, err));
    zp_seq_close(seq);
    e->forward.gates = NULL;
    for (size_t i = 1; i < n; i++) sum += nll[i];
    double norm = golden_log_sum(last, h->n_vocab);
    for (size_t i = 0; i < 20; i++)
        ours[i] =
            (double)last[json_integer_value(json_array_get(json_array_get(top, i), 0))] - norm;
    double kl = golden_top_kl(top, ours, &worst);
    double dnll = sum / (double)(n - 1) - json_real_value(json_object_get(c, "mean_nll"));
    printf("%s %s, %s: %zu gates closed, KL %.2e, largest d ln p %.2e, d NLL %.2e\n", model,
           json_string_value(json_object_get(c, "name")),
           json_string_value(json_object_get(c, "closing")), closed, kl, worst, dnll);
    assert_true(kl <= kl_limit);
    assert_true(worst <= logp_limit);
    assert_true(fabs(dnll) <= nll_limit);
    free(gates);
    free(last);
    free(nll);
    free(ids);
}

static void check_model(const char *name, const char *file, double kl, double logp, double nll)
{
    json_t *root = golden_load("logits_closed.json"), *cases = json_object_get(root, name), *c;
    zp_model *m = golden_model(file);
    zp_engine *e = golden_engine(m, (zp_engine_options){ .n_ctx = 256, .exact = true });
    size_t i;
    assert_true(json_array_size(cases) >= 8);
    json_array_foreach(cases, i, c) check_case(e, c, name, kl, logp, nll);
    zp_engine_close(e);
    zp_model_close(m);
    json_decref(root);
}

static void test_smollm2_with_closed_gates(void **state)
{
    (void)state;
    check_model("smollm2", SMOLLM2_FILE, 1e-8, 2e-4, 5e-5);
}

static void test_gemma3_with_closed_gates(void **state)
{
    (void)state;
    check_model("gemma3", GEMMA3_FILE, 1e-8, 2e-4, 5e-5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_smollm2_with_closed_gates),
        cmocka_unit_test(test_gemma3_with_closed_gates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
