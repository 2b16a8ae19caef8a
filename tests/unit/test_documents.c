/* test_documents.c: the JSON of inspect, doctor, features and logits: members, and that what they
 * say is so. */
#include "golden.h"

#include <pthread.h>

#include <zerope/eval.h>

#include "base/os.h"
#include "kern/kern.h"
#include "model/doctor.h"
#include "model/engine.h"

static json_t *parse(char *text)
{
    json_error_t error;
    json_t *doc = json_loads(text, 0, &error);
    if (doc == NULL) fail_msg("%s in %.200s", error.text, text);
    zp_free(text);
    return doc;
}

static json_t *inspect(const zp_model *m, bool tensors)
{
    char *text = NULL;
    GOLDEN_OK(zp_inspect_json(m, &(zp_inspect_options){ .tensors = tensors }, &text, err));
    return parse(text);
}

static json_int_t whole(const json_t *object, const char *key)
{
    const json_t *v = json_object_get(object, key);
    if (!json_is_integer(v)) fail_msg("member %s is missing or no integer", key);
    return json_integer_value(v);
}

static void test_inspect_counts_agree(void **state)
{
    static const char *const models[] = { "zerope-mixed", "zerope-partial",
                                          "zerope-local", "gguf-gemma3",
                                          "llama" };
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        zp_model *m = golden_small(models[i]);
        zp_model_info info;
        zp_model_describe(m, &info);
        json_t *doc = inspect(m, true), *gates = json_object_get(doc, "gates"), *layer;
        const json_t *layers = json_object_get(doc, "position");
        size_t l, open = 0, pairs = 0;
        assert_string_equal(json_string_value(json_object_get(doc, "arch")), info.arch);
        assert_string_equal(json_string_value(json_object_get(doc, "header_sha256")),
                            zp_model_sha256(m));
        assert_int_equal(whole(doc, "n_layer"), info.n_layer);
        assert_int_equal(json_array_size(layers), info.n_layer);
        assert_int_equal(whole(gates, "total"), info.gates_total);
        assert_int_equal(whole(gates, "closed"), info.gates_closed);
        json_array_foreach(layers, l, layer)
        {
            const json_t *heads = json_object_get(layer, "open");
            assert_int_equal(whole(layer, "layer"), l);
            assert_int_equal(json_array_size(heads), info.n_kv);
            if (json_object_get(layer, "biases_open")) continue;
            for (size_t k = 0; k < info.n_kv; k++) {
                open += (size_t)json_integer_value(json_array_get(heads, k));
                pairs += (size_t)whole(layer, "of");
            }
        }
        assert_int_equal(json_array_size(json_object_get(doc, "closed_gates")), pairs - open);
        assert_int_equal(json_array_size(json_object_get(doc, "local_heads")), info.heads_local);
        assert_int_equal(json_array_size(json_object_get(doc, "tensors")), m->gguf.n_tensors);
        json_decref(doc);
        zp_model_close(m);
    }
}

static void *ask_hash(void *m)
{
    return (void *)(uintptr_t)zp_model_sha256(m);
}

/* Files written earlier name the hash, so it must not change; threads may ask at once. */
static void test_hash_of_a_model_is_what_it_was(void **state)
{
    (void)state;
    pthread_t threads[8];
    zp_model *m = golden_small("gguf-gemma3");
    for (int i = 0; i < 8; i++) assert_int_equal(pthread_create(&threads[i], NULL, ask_hash, m), 0);
    for (int i = 0; i < 8; i++) {
        void *hash;
        assert_int_equal(pthread_join(threads[i], &hash), 0);
        assert_string_equal(hash,
                            "52926110eaa41b6e5a64c99883c0a28e030991c4f741c8938da0ce296da67232");
    }
    zp_model_close(m);
}

static void test_inspect_shows_kinds_windows_and_bases(void **state)
{
    (void)state;
    zp_model *m = golden_small("gguf-gemma3");
    json_t *doc = inspect(m, false), *layers = json_object_get(doc, "position");
    size_t windowed = 0, bases = 0;
    for (size_t l = 0; l < json_array_size(layers); l++) {
        const json_t *layer = json_array_get(layers, l);
        double base = json_real_value(json_object_get(layer, "base"));
        assert_string_equal(json_string_value(json_object_get(layer, "kind")), "rope");
        bool w = whole(layer, "window") != 0;
        windowed += w;
        bases += base == (double)(w ? m->h.rope_base_swa : m->h.rope_base);
    }
    assert_true(windowed > 0 && windowed < json_array_size(layers));
    assert_int_equal(bases, json_array_size(layers));
    assert_null(json_object_get(doc, "tensors"));
    json_decref(doc);
    zp_model_close(m);
}

static void test_inspect_lists_tensors_of_the_file(void **state)
{
    (void)state;
    zp_model *m = golden_small("gguf-qwen2");
    json_t *doc = inspect(m, true), *tensors = json_object_get(doc, "tensors");
    for (uint32_t i = 0; i < m->gguf.n_tensors; i++) {
        const json_t *t = json_array_get(tensors, i), *shape = json_object_get(t, "shape");
        assert_string_equal(json_string_value(json_object_get(t, "name")), m->gguf.tensors[i].name);
        assert_int_equal(whole(t, "bytes"), m->gguf.tensors[i].bytes);
        assert_int_equal(json_array_size(shape), m->gguf.tensors[i].n_dims);
        assert_int_equal(json_integer_value(json_array_get(shape, 0)), m->gguf.tensors[i].ne[0]);
    }
    json_decref(doc);
    zp_model_close(m);
}

static void test_inspect_tells_why_there_is_no_template(void **state)
{
    (void)state;
    zp_model *m = golden_small("llama");
    json_t *doc = inspect(m, false), *t = json_object_get(doc, "template");
    assert_int_equal(whole(t, "bytes"), 0);
    assert_non_null(json_string_value(json_object_get(t, "error")));
    json_decref(doc);
    zp_model_close(m);
}

static void test_doctor_measures_and_tests_every_operation(void **state)
{
    char *text = NULL;
    (void)state;
    GOLDEN_OK(zp_doctor_json(&text, 2, true, err));
    json_t *doc = parse(text), *test = json_object_get(doc, "self_test"), *op;
    const json_t *memory = json_object_get(doc, "memory"),
                 *kernels = json_object_get(doc, "kernels");
    size_t i;
    assert_string_equal(json_string_value(json_object_get(test, "status")), "pass");
    assert_int_equal(json_array_size(json_object_get(test, "operations")), kern_op_count());
    json_array_foreach(json_object_get(test, "operations"), i, op)
    {
        const char *name = json_string_value(json_object_get(op, "operation"));
        assert_string_equal(name, kern_op_name(i));
        assert_string_equal(json_string_value(json_object_get(op, "kernel")),
                            json_string_value(json_object_get(kernels, name)));
    }
    assert_true(json_real_value(json_object_get(memory, "read_gbps")) > 0.01);
    assert_true(json_real_value(json_object_get(memory, "read_gbps_one_thread")) > 0.01);
    assert_int_equal(whole(json_object_get(doc, "cpu"), "threads"), 2);
    json_int_t cores = (json_int_t)whole(json_object_get(doc, "cpu"), "cores"),
               all = (json_int_t)whole(json_object_get(doc, "cpu"), "processors"),
               best = (json_int_t)whole(json_object_get(doc, "cpu"), "threads_suggested");
    assert_true(cores >= 1 && cores <= all);
    assert_true(best == cores || best == all);
    json_decref(doc);
    zp_err why = { 0 };
    assert_int_equal(zp_doctor_json(&text, 1000, true, &why), ZP_BAD_INPUT);
}

static void test_features_name_version_and_libraries(void **state)
{
    char *text = NULL;
    (void)state;
    GOLDEN_OK(zp_features_json(&text, err));
    json_t *doc = parse(text), *libraries = json_object_get(doc, "libraries");
    assert_string_equal(json_string_value(json_object_get(doc, "version")), zp_version());
    assert_non_null(json_string_value(json_object_get(libraries, "jansson")));
    assert_non_null(json_string_value(json_object_get(libraries, "pcre2")));
    assert_true(json_array_size(json_object_get(doc, "levels_built")) >= 1);
    json_decref(doc);
}

/* nll_mean and top from all logits of the prompt at once; more ids than a chunk holds. */
static void test_logits_agree_with_all_rows_at_once(void **state)
{
    enum { N = 300 };
    (void)state;
    zp_model *m = golden_small("llama");
    size_t v = m->h.n_vocab;
    zp_engine *e = golden_engine(m, (zp_engine_options){ .n_ctx = N + 4, .exact = true });
    int32_t ids[N];
    for (int i = 0; i < N; i++) ids[i] = (i * 37 + i / 7) % (int)v;
    float *rows = golden_logits(e, m, ids, N);
    double nll = 0;
    for (int i = 0; i + 1 < N; i++)
        nll += golden_log_sum(rows + i * v, v) - (double)rows[i * v + (size_t)ids[i + 1]];
    char *text = NULL;
    zp_logits_options o = { .top = 3, .n_predict = 5 };
    GOLDEN_OK(zp_logits_json(e, ids, N, &o, &text, err));
    json_t *doc = parse(text), *top = json_object_get(doc, "top");
    assert_true(fabs(json_real_value(json_object_get(doc, "nll_mean")) - nll / (N - 1)) < 1e-6);
    assert_int_equal(whole(doc, "n_tokens"), N);
    assert_int_equal(json_array_size(top), 3);
    const float *last = rows + (N - 1) * v;
    for (size_t i = 0; i < 3; i++) {
        const json_t *item = json_array_get(top, i);
        size_t larger = 0, id = (size_t)whole(item, "id");
        for (size_t k = 0; k < v; k++) larger += last[k] > last[id];
        assert_int_equal(larger, i);
        double logp = (double)last[id] - golden_log_sum(last, v);
        assert_true(fabs(json_real_value(json_object_get(item, "logprob")) - logp) < 1e-6);
        assert_true(json_is_string(json_object_get(item, "text")));
    }
    assert_int_equal(json_array_size(json_object_get(doc, "greedy")), 5);
    assert_int_equal(json_integer_value(json_array_get(json_object_get(doc, "greedy"), 0)),
                     whole(json_array_get(top, 0), "id"));
    json_decref(doc);
    free(rows);
    zp_engine_close(e);
    zp_model_close(m);
}

static void test_logits_of_one_token_have_no_nll(void **state)
{
    (void)state;
    zp_model *m = golden_small("llama");
    zp_engine *e = golden_engine(m, (zp_engine_options){ .n_ctx = 8 });
    char *text = NULL;
    int32_t ids[9] = { 7 };
    zp_err why = { 0 };
    GOLDEN_OK(zp_logits_json(e, ids, 1, NULL, &text, err));
    json_t *doc = parse(text);
    assert_true(json_is_null(json_object_get(doc, "nll_mean")));
    assert_int_equal(json_array_size(json_object_get(doc, "top")), 10);
    json_decref(doc);
    assert_int_equal(zp_logits_json(e, ids, 0, NULL, &text, &why), ZP_BAD_INPUT);
    why = (zp_err){ 0 };
    assert_int_equal(zp_logits_json(e, ids, 9, NULL, &text, &why), ZP_BAD_INPUT);
    assert_non_null(strstr(why.message, "9 prompt tokens"));
    assert_non_null(strstr(why.message, "8 positions"));
    zp_engine_close(e);
    zp_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_inspect_counts_agree),
        cmocka_unit_test(test_hash_of_a_model_is_what_it_was),
        cmocka_unit_test(test_inspect_shows_kinds_windows_and_bases),
        cmocka_unit_test(test_inspect_lists_tensors_of_the_file),
        cmocka_unit_test(test_inspect_tells_why_there_is_no_template),
        cmocka_unit_test(test_doctor_measures_and_tests_every_operation),
        cmocka_unit_test(test_features_name_version_and_libraries),
        cmocka_unit_test(test_logits_agree_with_all_rows_at_once),
        cmocka_unit_test(test_logits_of_one_token_have_no_nll),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
