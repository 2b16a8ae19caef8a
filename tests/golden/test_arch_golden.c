/* test_arch_golden.c: small models of every architecture, scaling, window, bias and closing against
 * transformers or an independent forward in float64 (tests/data/arch, tools/make_arch_models.py).
 * Hugging Face folders are opened with each spelling of their config. */
#include "golden.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#define DATA ZP_TEST_DATA "/arch"
#define LEAST_CASES 43

static size_t n_runs, n_bad, n_refused;
static double worst_ratio, worst_kl;

static const char *text_of(const json_t *c, const char *key)
{
    return json_string_value(json_object_get(c, key));
}

/* Rows of the case from one engine, against the file's. */
static void check_rows(const json_t *c, const char *what, const float *logits, size_t n_vocab)
{
    const json_t *rows = json_object_get(c, "rows"), *truth = json_object_get(c, "logits");
    double largest = json_number_value(json_object_get(c, "largest")), worst = 0, kl = 0;
    float *want = malloc(n_vocab * sizeof *want);
    assert_non_null(want);
    assert_true(json_array_size(rows) > 0);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        size_t row = (size_t)json_integer_value(json_array_get(rows, i));
        const json_t *values = json_array_get(truth, i);
        assert_int_equal(json_array_size(values), n_vocab);
        for (size_t k = 0; k < n_vocab; k++) {
            want[k] = (float)json_number_value(json_array_get(values, k));
            worst = fmax(worst, fabs((double)logits[row * n_vocab + k] - (double)want[k]));
        }
        kl = fmax(kl, golden_kl(want, logits + row * n_vocab, n_vocab));
    }
    bool ok = worst <= 1e-4 * largest && kl <= 1e-6;
    n_runs++;
    n_bad += !ok;
    worst_ratio = fmax(worst_ratio, worst / largest);
    worst_kl = fmax(worst_kl, kl);
    if (!ok)
        printf("  %s, %s: largest difference %.2e of the largest logit, KL %.2e\n",
               text_of(c, "name"), what, worst / largest, kl);
    free(want);
}

static void check_engine(const json_t *c, const zp_model *m, const char *what, zp_level level)
{
    zp_err err = { 0 };
    zp_model_info info;
    zp_engine *e = NULL;
    size_t n;
    int32_t *ids = golden_ids(json_object_get(c, "ids"), &n);
    zp_engine_options o = {
        .n_ctx = (uint32_t)n, .n_threads = 2, .micro_batch = 24, .exact = true, .level = level
    };
    zp_model_describe(m, &info);
    if (zp_engine_open(&e, m, &o, &err) != ZP_OK) {
        printf("  %s, %s: engine: %s\n", text_of(c, "name"), what, err.message);
        n_bad++;
    } else {
        float *logits = golden_logits(e, m, ids, n);
        check_rows(c, what, logits, info.n_vocab);
        free(logits);
        zp_engine_close(e);
    }
    free(ids);
}

/* Families whose data is here and whose reading is not: refused by name, never read wrongly. */
static bool is_refused(const char *name)
{
    return strcmp(name, "phi3") == 0;
}

static void check_model(const json_t *c, const char *path, const char *what)
{
    static const zp_level levels[] = { ZP_LEVEL_REF, ZP_LEVEL_AVX2, ZP_LEVEL_BEST };
    zp_err err = { 0 };
    zp_model *m = NULL;
    zp_status status = zp_model_open(&m, path, NULL, &err);
    if (is_refused(text_of(c, "name"))) {
        n_refused++;
        assert_int_equal(status, ZP_UNSUPPORTED);
        assert_non_null(strstr(err.message, text_of(c, "name")));
        return;
    }
    if (status != ZP_OK) {
        printf("  %s, %s: model: %s\n", text_of(c, "name"), what, err.message);
        n_bad++;
        return;
    }
    for (size_t i = 0; i < 3; i++) check_engine(c, m, what, levels[i]);
    zp_model_close(m);
}

/* ---- folders: the same weights with another config.json -------------------------------------- */

static void link_into(const char *folder, const char *from, const char *name)
{
    char source[1024], target[1024];
    snprintf(source, sizeof source, DATA "/%s", from);
    snprintf(target, sizeof target, "%s/%s", folder, name);
    assert_int_equal(symlink(source, target), 0);
}

static void check_folder(const json_t *c)
{
    static const char *const others[] = { "model.safetensors", "tokenizer.json",
                                          "tokenizer_config.json" };
    const json_t *configs = json_object_get(c, "configs"), *config;
    const char *base = text_of(c, "folder");
    size_t i;
    assert_true(json_array_size(configs) > 0);
    json_array_foreach(configs, i, config)
    {
        char folder[] = "/tmp/zerope-arch-XXXXXX", from[512];
        assert_non_null(mkdtemp(folder));
        snprintf(from, sizeof from, "%s/%s", base, json_string_value(config));
        link_into(folder, from, "config.json");
        for (size_t k = 0; k < 3; k++) {
            snprintf(from, sizeof from, "%s/%s", base, others[k]);
            link_into(folder, from, others[k]);
        }
        check_model(c, folder, json_string_value(config));
        for (size_t k = 0; k < 4; k++) {
            char path[1024];
            snprintf(path, sizeof path, "%s/%s", folder, k < 3 ? others[k] : "config.json");
            unlink(path);
        }
        rmdir(folder);
    }
}

static int is_case(const struct dirent *e)
{
    size_t n = strlen(e->d_name);
    return n > 5 && strcmp(e->d_name + n - 5, ".json") == 0;
}

static void test_every_small_model_gives_the_published_logits(void **state)
{
    (void)state;
    struct dirent **names;
    int n = scandir(DATA, &names, is_case, alphasort);
    assert_true(n >= LEAST_CASES);
    for (int i = 0; i < n; i++) {
        char path[1024];
        snprintf(path, sizeof path, "arch/%s", names[i]->d_name);
        json_t *c = golden_load(path);
        if (text_of(c, "gguf")) {
            snprintf(path, sizeof path, DATA "/%s", text_of(c, "gguf"));
            check_model(c, path, "gguf");
        } else check_folder(c);
        json_decref(c);
        free(names[i]);
    }
    free(names);
    printf("%d cases, %zu refused, %zu runs: largest difference %.2e of the largest logit, largest "
           "KL %.2e\n",
           n, n_refused, n_runs, worst_ratio, worst_kl);
    assert_int_equal(n_bad, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_small_model_gives_the_published_logits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
