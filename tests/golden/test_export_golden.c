/* test_export_golden.c: our side against what stock engines computed from exported files, as stored
 * in the newest docs/evidence/export-*.json (tools/export_evidence.sh). The same gates are closed
 * here, and our exact logits must meet those of transformers and of llama.cpp with f32 weights. */
#include "golden.h"

#include <unistd.h>

#include "base/compiler.h"
#include "base/os.h"
#include "evap/apply.h"

#define EVIDENCE ZP_TEST_DATA "/../../docs/evidence"
#define ARCH ZP_TEST_DATA "/arch/"

enum { MOST_TOKENS = 130, LEAST_ROWS = 28 };

typedef bool (*close_rule)(uint32_t layer, uint32_t pair, uint32_t n_pair, uint32_t window);

static bool all(uint32_t layer, uint32_t pair, uint32_t n_pair, uint32_t window)
{
    (void)layer, (void)pair, (void)n_pair, (void)window;
    return true;
}

static bool slow(uint32_t layer, uint32_t pair, uint32_t n_pair, uint32_t window)
{
    (void)layer, (void)window;
    return pair >= n_pair / 2;
}

static bool layers(uint32_t layer, uint32_t pair, uint32_t n_pair, uint32_t window)
{
    (void)pair, (void)n_pair, (void)window;
    return layer % 3 == 1;
}

static bool pairs(uint32_t layer, uint32_t pair, uint32_t n_pair, uint32_t window)
{
    (void)layer, (void)n_pair, (void)window;
    return pair % 3 == 0;
}

static bool layers_and_pairs(uint32_t layer, uint32_t pair, uint32_t n_pair, uint32_t window)
{
    (void)n_pair, (void)window;
    return layer == 1 || pair % 3 == 0;
}

static bool unwindowed(uint32_t layer, uint32_t pair, uint32_t n_pair, uint32_t window)
{
    (void)layer, (void)pair, (void)n_pair;
    return window == 0;
}

/* The rules of tools/export_evidence.sh. */
static const struct export_case {
    const char *name, *source; /* source NULL: the real model */
    close_rule rule;
} cases[] = {
    { "llama-all", ARCH "llama", all },
    { "llama-slow", ARCH "llama", slow },
    { "llama-layers", ARCH "llama", layers },
    { "llama3-pairs", ARCH "gguf/gguf-llama-llama3.gguf", pairs },
    { "llama3-layers-pairs", ARCH "gguf/gguf-llama-llama3.gguf", layers_and_pairs },
    { "yarn-all", ARCH "gguf/gguf-llama-yarn.gguf", all },
    { "yarn-pairs", ARCH "gguf/gguf-llama-yarn.gguf", pairs },
    { "qwen2-all", ARCH "qwen2", all },
    { "qwen2-slow", ARCH "qwen2", slow },
    { "qwen2-layers", ARCH "gguf/gguf-qwen2.gguf", layers },
    { "qwen3-all", ARCH "qwen3", all },
    { "qwen3-slow", ARCH "qwen3", slow },
    { "smollm3-all", ARCH "gguf/gguf-smollm3.gguf", all },
    { "granite-all", ARCH "gguf/gguf-granite.gguf", all },
    { "granite-layers", ARCH "gguf/gguf-granite.gguf", layers },
    { "gemma3-unwindowed", ARCH "gguf/gguf-gemma3.gguf", unwindowed },
    { "smollm2-all-closed", NULL, all },
    { "smollm2-layers", NULL, layers },
};

static json_t *evidence;
static char file[64];

static int open_evidence(void **state)
{
    (void)state;
    char **names, *newest = NULL;
    size_t n;
    if (os_list_files(EVIDENCE, &names, &n, NULL) != ZP_OK) return 1;
    for (size_t i = 0; i < n; i++)
        if (strstr(names[i], "/export-")) newest = names[i]; /* sorted: dates ascend */
    if (newest) evidence = json_load_file(newest, 0, NULL);
    os_list_free(names, n);
    snprintf(file, sizeof file, "/tmp/zerope-export-golden-%d.gguf", (int)getpid());
    return evidence == NULL;
}

static int close_evidence(void **state)
{
    (void)state;
    json_decref(evidence);
    return 0;
}

static zp_model *close_gates(const struct export_case *c)
{
    zp_model *m = NULL;
    struct gateset g;
    struct apply_info info = { 0 };
    const char *source = c->source ? c->source : test_model_path(SMOLLM2_FILE);
    GOLDEN_OK(zp_model_open(&m, source, NULL, err));
    GOLDEN_OK(gateset_open(&g, &m->position, err));
    for (uint32_t l = 0; l < g.n_layer; l++)
        for (uint32_t k = 0; k < g.n_kv; k++)
            for (uint32_t i = 0; i < g.n_pair; i++)
                if (c->rule(l, i, g.n_pair, m->position.window[l]))
                    g.open[gateset_at(&g, l, k, i)] = 0;
    GOLDEN_OK(apply_write(m, &g, NULL, &info, file, err));
    gateset_free(&g);
    zp_model_close(m);
    GOLDEN_OK(zp_model_open(&m, file, NULL, err));
    return m;
}

/* Natural logarithms of the probabilities after the prompt. */
static double *last_row(const zp_model *m, const json_t *list, size_t n_vocab)
{
    size_t n;
    int32_t *ids = golden_ids(list, &n);
    zp_engine_options o = { .n_ctx = (uint32_t)n, .exact = true, .n_threads = 2 };
    zp_engine *e = golden_engine(m, o);
    float *logits = golden_logits(e, m, ids, n), *row = logits + (n - 1) * n_vocab;
    double *out = malloc(n_vocab * sizeof *out), sum = golden_log_sum(row, n_vocab);
    assert_non_null(out);
    for (size_t i = 0; i < n_vocab; i++) out[i] = (double)row[i] - sum;
    zp_engine_close(e);
    free(logits);
    free(ids);
    return out;
}

static const json_t *prompt_named(const json_t *record, const char *name)
{
    const json_t *prompts = json_object_get(record, "prompts");
    for (size_t i = 0; i < json_array_size(prompts); i++) {
        const json_t *p = json_array_get(prompts, i);
        if (strcmp(json_string_value(json_object_get(p, "name")), name) == 0)
            return json_object_get(p, "ids");
    }
    fail_msg("the evidence has no prompt %s", name);
    return NULL;
}

/* Largest |d ln p| over the engine's 20 best tokens. */
static double distance(const double *ours, const json_t *row)
{
    const json_t *top = json_object_get(json_object_get(row, "engine"), "top");
    double worst = 0;
    assert_int_equal(json_array_size(top), 20);
    for (size_t i = 0; i < 20; i++) {
        const json_t *t = json_array_get(top, i);
        double theirs = json_number_value(json_object_get(t, "logprob"));
        size_t id = (size_t)json_integer_value(json_object_get(t, "id"));
        worst = fmax(worst, fabs(ours[id] - theirs));
    }
    return worst;
}

static size_t check_rows(const struct export_case *c, const zp_model *m, const json_t *record,
                         const json_t *check, size_t n_vocab)
{
    const json_t *rows = json_object_get(check, "rows");
    double limit = json_number_value(json_object_get(json_object_get(check, "limits"), "dlogprob"));
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        const char *name = json_string_value(json_object_get(row, "prompt"));
        const json_t *ids = prompt_named(record, name);
        if (json_array_size(ids) > MOST_TOKENS) continue;
        double *ours = last_row(m, ids, n_vocab), far = distance(ours, row);
        free(ours);
        n++;
        if (far > limit)
            fail_msg("%s, prompt %s, %s: ln p differs by %g, limit %g", c->name, name,
                     json_string_value(json_object_get(check, "engine")), far, limit);
    }
    return n;
}

/* Engines as exact as ours: transformers, and llama.cpp on weights cast to f32. */
static bool is_exact(const json_t *check)
{
    const char *engine = json_string_value(json_object_get(check, "engine"));
    return strstr(engine, "transformers, f32") || strstr(engine, "weights cast to f32");
}

static void test_stock_engines_computed_what_we_compute(void **state)
{
    (void)state;
    size_t n = 0;
    for (size_t i = 0; i < ZP_COUNT(cases); i++) {
        const json_t *record = json_object_get(evidence, cases[i].name), *check;
        zp_model_info info;
        size_t k, before = n;
        if (!record) fail_msg("the evidence lacks %s", cases[i].name);
        assert_true(json_is_true(json_object_get(record, "pass")));
        zp_model *m = close_gates(&cases[i]);
        zp_model_describe(m, &info);
        json_array_foreach(json_object_get(record, "checks"), k, check) {
            if (is_exact(check)) n += check_rows(&cases[i], m, record, check, info.n_vocab);
        }
        zp_model_close(m);
        unlink(file);
        assert_true(n > before);
    }
    printf("  %zu rows of %zu cases\n", n, ZP_COUNT(cases));
    assert_true(n >= LEAST_ROWS);
}

static void test_every_export_of_the_evidence_passed(void **state)
{
    (void)state;
    const char *name;
    json_t *record;
    size_t n = 0;
    json_object_foreach(evidence, name, record) {
        if (!json_is_true(json_object_get(record, "pass"))) fail_msg("%s did not pass", name);
        assert_non_null(json_object_get(json_object_get(record, "versions"), "transformers"));
        assert_non_null(json_object_get(json_object_get(record, "versions"), "llama_cpp"));
        n++;
    }
    assert_true(n >= ZP_COUNT(cases));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_export_of_the_evidence_passed),
        cmocka_unit_test(test_stock_engines_computed_what_we_compute),
    };
    return cmocka_run_group_tests(tests, open_evidence, close_evidence);
}
