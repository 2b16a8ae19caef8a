/* test_ppl.c: perplexity and KL of small models against figures computed here from plain logits. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include <jansson.h>

#include "base/os.h"
#include "eval/ppl.h"
#include "model/gguf_write.h"
#include "live_bytes.h"

#define CHECK(call)                                                        \
    do {                                                                   \
        zp_err check_err = { 0 }, *err = &check_err;                       \
        if ((call) != ZP_OK) fail_msg("%s: %s", #call, check_err.message); \
    } while (0)

enum { CTX = 32, BEGIN = CTX / 2 };

static char folder[] = "/tmp/zerope-ppl-XXXXXX", one_file[64], docs_folder[64];

static zp_model *open_model(const char *name)
{
    char path[256];
    zp_model *m;
    snprintf(path, sizeof path, "%s/arch/gguf/%s", ZP_TEST_DATA, name);
    CHECK(zp_model_open(&m, path, NULL, err));
    return m;
}

static zp_ppl_options options(void)
{
    zp_ppl_options o = { .n_ctx = CTX, .engine = { .exact = true, .n_threads = 1 } };
    o.engine.allow_unverified_mode = true;
    o.base_engine = o.engine;
    return o;
}

static json_t *ppl(const zp_model *m, const zp_model *base, const char *path,
                   const zp_ppl_options *o)
{
    char *text = NULL;
    CHECK(zp_ppl_json(m, base, path, o, &text, err));
    json_t *doc = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(doc);
    zp_free(text);
    return doc;
}

static double number(const json_t *doc, const char *key)
{
    const json_t *v = json_object_get(doc, key);
    if (!json_is_number(v)) fail_msg("%s is missing or no number", key);
    return json_number_value(v);
}

/* Log-probabilities of every row of one window, in double, straight from the public calls. */
static double *log_rows(const zp_model *m, const int32_t *ids, zp_mode mode, size_t n_vocab)
{
    zp_engine_options eo = { .n_ctx = CTX, .exact = true, .n_threads = 1,
                             .allow_unverified_mode = true };
    zp_seq_options so = { .mode = mode };
    zp_engine *e;
    zp_seq *s;
    float *logits = malloc(CTX * n_vocab * sizeof *logits);
    double *out = malloc(CTX * n_vocab * sizeof *out);
    assert_non_null(logits);
    assert_non_null(out);
    CHECK(zp_engine_open(&e, m, &eo, err));
    CHECK(zp_seq_open(&s, e, &so, err));
    zp_item item = { s, ids, CTX, ZP_WANT_ALL };
    CHECK(zp_engine_run(e, &item, 1, logits, CTX, NULL, err));
    for (size_t r = 0; r < CTX; r++) {
        double sum = 0;
        for (size_t v = 0; v < n_vocab; v++) sum += exp((double)logits[r * n_vocab + v]);
        for (size_t v = 0; v < n_vocab; v++)
            out[r * n_vocab + v] = (double)logits[r * n_vocab + v] - log(sum);
    }
    free(logits);
    zp_seq_close(s);
    zp_engine_close(e);
    return out;
}

struct truth {
    double nll, nll_base, kl, kl_max, top1;
    size_t n;
};

static size_t best_of(const double *row, size_t n)
{
    size_t best = 0;
    for (size_t v = 1; v < n; v++)
        if (row[v] > row[best]) best = v;
    return best;
}

static void add_window(struct truth *t, const double *a, const double *b, const int32_t *ids,
                       size_t n_vocab)
{
    for (size_t p = BEGIN; p + 1 < CTX; p++) {
        const double *x = a + p * n_vocab, *y = b + p * n_vocab;
        double kl = 0;
        for (size_t v = 0; v < n_vocab; v++) kl += exp(y[v]) * (y[v] - x[v]);
        t->nll -= x[ids[p + 1]];
        t->nll_base -= y[ids[p + 1]];
        t->kl += kl;
        t->kl_max = fmax(t->kl_max, kl);
        t->top1 += best_of(x, n_vocab) == best_of(y, n_vocab);
        t->n++;
    }
}

static struct truth truth_of(const zp_model *m, zp_mode mode, const zp_model *base)
{
    struct truth t = { 0 };
    struct buffer text = buffer_with_max(MEM_META, 1 << 20);
    zp_model_info info;
    int32_t *ids;
    size_t n;
    zp_model_describe(m, &info);
    CHECK(os_read_file(one_file, &text, err));
    CHECK(zp_tokenize(m, (const char *)text.data, text.size, ZP_TOKENS_BOS, &ids, &n, err));
    for (size_t w = 0; (w + 1) * CTX <= n; w++) {
        double *a = log_rows(m, ids + w * CTX, mode, info.n_vocab);
        double *b = log_rows(base, ids + w * CTX, ZP_MODE_FULL, info.n_vocab);
        add_window(&t, a, b, ids + w * CTX, info.n_vocab);
        free(a);
        free(b);
    }
    zp_free(ids);
    buffer_free(&text);
    t.nll /= (double)t.n, t.nll_base /= (double)t.n, t.kl /= (double)t.n, t.top1 /= (double)t.n;
    return t;
}

static void check_truth(const json_t *doc, const struct truth *t)
{
    assert_int_equal(number(doc, "scored"), t->n);
    assert_true(fabs(number(doc, "nll") - t->nll) < 1e-6);
    assert_true(fabs(number(doc, "ppl") - exp(t->nll)) < 1e-4 * exp(t->nll));
    assert_true(fabs(number(doc, "nll_base") - t->nll_base) < 1e-6);
    assert_true(fabs(number(doc, "kl_mean") - t->kl) < 1e-6);
    assert_true(fabs(number(doc, "kl_max") - t->kl_max) < 1e-6);
    assert_true(fabs(number(doc, "top1_agree") - t->top1) < 1e-6);
}

static void test_figures_of_two_models_equal_those_of_plain_logits(void **state)
{
    (void)state;
    zp_model *m = open_model("gguf-qwen2.gguf"), *base = open_model("gguf-llama-yarn.gguf");
    zp_ppl_options o = options();
    struct truth t = truth_of(m, ZP_MODE_FULL, base);
    assert_true(t.n > 100 && t.kl > 1e-3); /* different models, or this would show nothing */
    json_t *doc = ppl(m, base, one_file, &o);
    check_truth(doc, &t);
    assert_true(number(doc, "kl_hi") > number(doc, "kl_mean"));
    assert_true(number(doc, "kl_p50") <= number(doc, "kl_p99"));
    assert_true(number(doc, "kl_p99") <= number(doc, "kl_max"));
    json_decref(doc);
    zp_model_close(m);
    zp_model_close(base);
}

static void test_mode_zero_is_compared_with_the_same_file_in_full(void **state)
{
    (void)state;
    zp_model *m = open_model("gguf-llama-llama3.gguf");
    zp_ppl_options o = options();
    o.mode = ZP_MODE_ZERO;
    struct truth t = truth_of(m, ZP_MODE_ZERO, m);
    assert_true(t.kl > 1e-6);
    json_t *doc = ppl(m, m, one_file, &o);
    check_truth(doc, &t);
    assert_string_equal(json_string_value(json_object_get(doc, "mode")), "zero");
    json_decref(doc);
    zp_model_close(m);
}

static void test_a_model_has_no_distance_to_itself(void **state)
{
    (void)state;
    zp_model *m = open_model("gguf-qwen2.gguf");
    zp_ppl_options o = options();
    json_t *doc = ppl(m, m, docs_folder, &o);
    assert_true(fabs(number(doc, "kl_max")) < 1e-12);
    assert_true(number(doc, "top1_agree") == 1.0);
    assert_true(number(doc, "nll") == number(doc, "nll_base"));
    json_decref(doc);
    zp_model_close(m);
}

static void test_buckets_cover_each_scored_position_once(void **state)
{
    (void)state;
    zp_model *m = open_model("gguf-qwen2.gguf");
    zp_ppl_options o = options();
    o.n_ctx = 48;
    o.max_windows = 3;
    json_t *doc = ppl(m, NULL, docs_folder, &o);
    const json_t *buckets = json_object_get(doc, "buckets");
    double tokens = 0, sum = 0, last = 24;
    for (size_t i = 0; i < json_array_size(buckets); i++) {
        const json_t *b = json_array_get(buckets, i);
        assert_true(number(b, "from") == last);
        last = number(b, "to");
        assert_true(number(b, "tokens") == 3 * (last - number(b, "from")));
        tokens += number(b, "tokens");
        sum += number(b, "nll") * number(b, "tokens");
    }
    assert_int_equal(json_array_size(buckets), 2); /* [24, 32) and [32, 47) */
    assert_true(last == 47 && number(doc, "windows") == 3);
    assert_true(tokens == number(doc, "scored"));
    assert_true(fabs(sum / tokens - number(doc, "nll")) < 1e-5);
    assert_null(json_object_get(doc, "kl_mean")); /* no base, no distance */
    json_decref(doc);
    zp_model_close(m);
}

static void test_folder_windows_stay_inside_documents(void **state)
{
    (void)state;
    zp_model *m = open_model("gguf-qwen2.gguf");
    struct docs d;
    struct windows in, joined;
    zp_ppl_options o = options();
    CHECK(docs_open(&d, docs_folder, err));
    CHECK(ppl_windows(&d, m, &o, &in, err));
    o.contiguous = true;
    CHECK(ppl_windows(&d, m, &o, &joined, err));
    size_t n_ids = 0;
    for (size_t i = 0; i < d.n; i++) n_ids += d.docs[i].n_ids;
    assert_true(joined.n == n_ids / CTX);
    assert_true(in.n < joined.n); /* the rest of each document is left out */
    windows_free(&in);
    windows_free(&joined);
    docs_close(&d);
    zp_model_close(m);
}

/* ---- errors */

static void refused(const zp_model *m, const zp_model *base, const char *path,
                    const zp_ppl_options *o, zp_status status, const char *words)
{
    char *text = NULL;
    zp_err err = { 0 };
    assert_int_equal(zp_ppl_json(m, base, path, o, &text, &err), status);
    assert_null(text);
    if (!strstr(err.message, words)) fail_msg("'%s' lacks '%s'", err.message, words);
}

/* The same model with one merge left in its tokenizer. */
static zp_model *open_with_another_tokenizer(const char *name)
{
    char path[256], changed[96];
    struct gguf g;
    struct gguf_edit e;
    zp_model *m;
    snprintf(path, sizeof path, "%s/arch/gguf/%s", ZP_TEST_DATA, name);
    snprintf(changed, sizeof changed, "%s/other.gguf", folder);
    CHECK(gguf_open(&g, path, err));
    CHECK(gguf_edit_init(&e, &g, err));
    struct gguf_str merge = gguf_item_str(gguf_find_key(&g, "tokenizer.ggml.merges"), 0);
    CHECK(gguf_edit_set_strs(&e, "tokenizer.ggml.merges", &merge, 1, err));
    CHECK(gguf_edit_write(&e, changed, err));
    gguf_edit_free(&e);
    gguf_close(&g);
    CHECK(zp_model_open(&m, changed, NULL, err));
    unlink(changed);
    return m;
}

static void test_short_text_and_wrong_base_are_refused(void **state)
{
    (void)state;
    zp_model *m = open_model("gguf-qwen2.gguf");
    zp_model *other = open_with_another_tokenizer("gguf-qwen2.gguf");
    zp_ppl_options o = options();
    o.n_ctx = 1 << 20;
    refused(m, NULL, one_file, &o, ZP_BAD_INPUT, "one window needs 1048576");
    o.n_ctx = 8;
    refused(m, NULL, one_file, &o, ZP_BAD_INPUT, "at least 16");
    o.n_ctx = CTX;
    refused(m, NULL, "/nonexistent/text", &o, ZP_BAD_INPUT, "/nonexistent/text");
    refused(m, other, one_file, &o, ZP_BAD_INPUT, "tokenizers differ");
    zp_model_close(m);
    zp_model_close(other);
}

static bool stop_at_second(void *arg, const char *what, uint64_t done, uint64_t total)
{
    (void)arg, (void)what, (void)total;
    return done < 2;
}

static void test_progress_can_stop_it(void **state)
{
    (void)state;
    zp_model *m = open_model("gguf-qwen2.gguf");
    zp_ppl_options o = options();
    o.progress.fn = stop_at_second;
    refused(m, NULL, one_file, &o, ZP_INTERRUPTED, "after 2 of");
    zp_model_close(m);
}

static void test_each_failed_allocation_is_reported_and_freed(void **state)
{
    (void)state;
    zp_model *m = open_model("gguf-qwen2.gguf");
    zp_ppl_options o = options();
    o.max_windows = 2;
    uint64_t before = live_bytes(), n = 1;
    for (bool failed = true; failed; n++) {
        zp_err err = { 0 };
        char *text = NULL;
        mem_fail_at(n, false);
        zp_status status = zp_ppl_json(m, m, docs_folder, &o, &text, &err);
        failed = mem_fail_count() > 0;
        mem_fail_at(0, false);
        zp_free(text);
        if (live_bytes() != before) fail_msg("allocation %llu: a leak", (unsigned long long)n);
        if (status != (failed ? ZP_NO_MEMORY : ZP_OK))
            fail_msg("allocation %llu: %d %s", (unsigned long long)n, status, err.message);
    }
    assert_true(n > 50);
    zp_model_close(m);
}

/* ---- */

static int write_texts(void **state)
{
    (void)state;
    struct buffer text = buffer_with_max(MEM_META, 1 << 20);
    char path[96];
    if (!mkdtemp(folder)) return 1;
    snprintf(one_file, sizeof one_file, "%s/one.txt", folder);
    snprintf(docs_folder, sizeof docs_folder, "%s/docs", folder);
    CHECK(os_read_file(ZP_TEST_DATA "/prose.txt", &text, err));
    CHECK(os_write_file(one_file, text.data, 600, err));
    CHECK(os_make_folders(docs_folder, err));
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%d.txt", docs_folder, i);
        CHECK(os_write_file(path, text.data + 1000 * i, 300, err));
    }
    buffer_free(&text);
    return 0;
}

static int remove_texts(void **state)
{
    (void)state;
    char path[96];
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%d.txt", docs_folder, i);
        unlink(path);
    }
    unlink(one_file);
    rmdir(docs_folder);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_figures_of_two_models_equal_those_of_plain_logits),
        cmocka_unit_test(test_mode_zero_is_compared_with_the_same_file_in_full),
        cmocka_unit_test(test_a_model_has_no_distance_to_itself),
        cmocka_unit_test(test_buckets_cover_each_scored_position_once),
        cmocka_unit_test(test_folder_windows_stay_inside_documents),
        cmocka_unit_test(test_short_text_and_wrong_base_are_refused),
        cmocka_unit_test(test_progress_can_stop_it),
        cmocka_unit_test(test_each_failed_allocation_is_reported_and_freed),
    };
    return cmocka_run_group_tests(tests, write_texts, remove_texts);
}
