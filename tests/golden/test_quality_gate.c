/* test_quality_gate.c: the default path (quantised activations, bf16 or 8-bit keys and values)
 * against the exact path, on tests/data/prose.txt in windows of 1024 tokens, the second half of
 * each scored, as llama-perplexity does. Limit: 1.3 times what llama.cpp loses on the same text and
 * files (its default path against the same weights in f32: KL 0.00127 and 0.00262, dNLL 0.0015 and
 * 0.0091). */
#include "golden.h"

#include "eval/ppl.h"

enum { N_CTX = 1024, WINDOWS = 4 };

static void check_gate(const char *file, zp_kv_type kv, double peer_kl, double peer_dnll)
{
    struct docs docs;
    struct windows w;
    struct score s;
    zp_model *m = golden_model(file);
    zp_engine *e = golden_engine(m, (zp_engine_options){ .n_ctx = N_CTX, .kv_type = kv });
    zp_engine *exact = golden_engine(m, (zp_engine_options){ .n_ctx = N_CTX, .exact = true });
    GOLDEN_OK(docs_open(&docs, ZP_TEST_DATA "/prose.txt", err));
    GOLDEN_OK(docs_contiguous(&docs, m, N_CTX, WINDOWS, &w, err));
    assert_int_equal(w.n, WINDOWS);
    GOLDEN_OK(score_open(&s, (uint32_t)w.n, N_CTX, ppl_range(N_CTX), err));
    GOLDEN_OK(ppl_score(&s, &w, e, ZP_MODE_FULL, exact, NULL, err));
    double kl = score_average(s.kl, WINDOWS), nll = score_average(s.nll, WINDOWS);
    double base = score_average(s.nll_base, WINDOWS), top1 = score_average(s.top1, WINDOWS);
    double dnll = fabs(nll - base), limit = fmax(0.002, 1.3 * peer_dnll);
    printf("%s, KV %s: KL mean %.6f (limit %.6f), 99 %% %.5f, max %.4f, top-1 %.2f %%, NLL %.5f "
           "exact %.5f,"
           " difference %.5f (limit %.5f)\n",
           file, kv == ZP_KV_Q8 ? "q8" : "bf16", kl, 1.3 * peer_kl, score_quantile(&s, 0.99),
           score_quantile(&s, 1.0), 100 * top1, nll, base, dnll, limit);
    assert_int_equal(s.n_values, WINDOWS * (N_CTX / 2 - 1));
    assert_true(kl > 0); /* the two paths do differ */
    assert_true(kl <= 1.3 * peer_kl);
    assert_true(dnll <= limit);
    score_free(&s);
    windows_free(&w);
    docs_close(&docs);
    zp_engine_close(exact);
    zp_engine_close(e);
    zp_model_close(m);
}

static void test_smollm2_default_path_is_close_to_exact(void **state)
{
    (void)state;
    check_gate(SMOLLM2_FILE, ZP_KV_BF16, 0.00127, 0.0015);
    check_gate(SMOLLM2_FILE, ZP_KV_Q8, 0.00127, 0.0015);
}

static void test_gemma3_default_path_is_close_to_exact(void **state)
{
    (void)state;
    check_gate(GEMMA3_FILE, ZP_KV_BF16, 0.00262, 0.0091);
    check_gate(GEMMA3_FILE, ZP_KV_Q8, 0.00262, 0.0091);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_smollm2_default_path_is_close_to_exact),
        cmocka_unit_test(test_gemma3_default_path_is_close_to_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
