/* test_tokenize_golden.c: ids of the two real models equal llama.cpp's to the last one. Facts:
 * tests/data/tokenize.json (source package of llama-cpp-python 0.3.36, without BOS). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <jansson.h>
#include "base/mem.h"
#include "model/gguf.h"
#include "model/tokenizer.h"
#include "models.h"

struct loaded {
    struct gguf gguf;
    struct tokenizer *tokenizer;
};

static void load(struct loaded *m, const char *file)
{
    zp_err err = { 0 };
    if (gguf_open(&m->gguf, test_model_path(file), &err) != ZP_OK) fail_msg("%s", err.message);
    if (tokenizer_open_gguf(&m->tokenizer, &m->gguf, NULL, &err) != ZP_OK)
        fail_msg("%s", err.message);
    gguf_close(&m->gguf); /* the tokenizer must not need it any more */
}

static json_t *cases_of(json_t **root, const char *model)
{
    *root = json_load_file(ZP_TEST_DATA "/tokenize.json", 0, NULL);
    assert_non_null(*root);
    json_t *cases = json_object_get(*root, model);
    assert_true(json_array_size(cases) > 100);
    return cases;
}

static void expect_ids(const char *text, const char *what, const json_t *want,
                       const struct token_list *got)
{
    size_t n = json_array_size(want);
    bool same = n == got->count;
    for (size_t i = 0; same && i < n; i++)
        same = json_integer_value(json_array_get(want, i)) == got->ids[i];
    if (same) return;
    print_error("%s ids of '%s'\n", what, text);
    for (size_t i = 0; i < n || i < got->count; i++)
        print_error("  %zu: expected %lld, got %lld\n", i,
                    i < n ? (long long)json_integer_value(json_array_get(want, i)) : -1,
                    i < got->count ? (long long)got->ids[i] : -1);
    fail();
}

static void encode(const struct tokenizer *t, const char *text, size_t size, unsigned flags,
                   struct token_list *out)
{
    zp_err err = { 0 };
    token_list_clear(out);
    if (tokenizer_encode(t, text, size, flags, out, &err) != ZP_OK) fail_msg("%s", err.message);
}

static void check_cases(const char *file, const char *model)
{
    struct loaded m;
    json_t *root, *item;
    size_t i;
    struct token_list ids = { 0 };
    load(&m, file);
    json_t *cases = cases_of(&root, model);
    for (int pass = 0; pass < 2; pass++) /* the second meets the notes the first left behind */
        json_array_foreach(cases, i, item)
        {
            const char *text = json_string_value(json_object_get(item, "text"));
            encode(m.tokenizer, text, strlen(text), 0, &ids);
            expect_ids(text, "plain", json_object_get(item, "plain"), &ids);
            encode(m.tokenizer, text, strlen(text), TOKENIZE_SPECIAL, &ids);
            expect_ids(text, "special", json_object_get(item, "special"), &ids);
        }
    token_list_free(&ids);
    json_decref(root);
    tokenizer_close(m.tokenizer);
}

static void test_smollm2_ids_equal_the_reference(void **state)
{
    (void)state;
    check_cases(SMOLLM2_FILE, "smollm2");
}

static void test_gemma3_ids_equal_the_reference(void **state)
{
    (void)state;
    check_cases(GEMMA3_FILE, "gemma3");
}

/* Every text comes back byte by byte, plain and with special tokens shown. */
static void check_round_trip(const char *file, const char *model)
{
    struct loaded m;
    json_t *root, *item;
    size_t i;
    struct token_list ids = { 0 };
    struct buffer text = buffer_with_max(MEM_SCRATCH, 1 << 20);
    load(&m, file);
    json_t *cases = cases_of(&root, model);
    for (unsigned flags = 0; flags <= TOKENIZE_SPECIAL; flags += TOKENIZE_SPECIAL)
        json_array_foreach(cases, i, item)
        {
            zp_err err = { 0 };
            const char *want = json_string_value(json_object_get(item, "text"));
            encode(m.tokenizer, want, strlen(want), flags, &ids);
            buffer_clear(&text);
            assert_int_equal(
                tokenizer_decode(m.tokenizer, ids.ids, ids.count, DETOKENIZE_SPECIAL, &text, &err),
                ZP_OK);
            if (ids.count > 0) assert_string_equal(text.data, want);
        }
    buffer_free(&text);
    token_list_free(&ids);
    json_decref(root);
    tokenizer_close(m.tokenizer);
}

static void test_smollm2_texts_come_back(void **state)
{
    (void)state;
    check_round_trip(SMOLLM2_FILE, "smollm2");
}

static void test_gemma3_texts_come_back(void **state)
{
    (void)state;
    check_round_trip(GEMMA3_FILE, "gemma3");
}

/* No control token's text in a user's message gives that token or any other control token. */
static void check_no_control_from_text(const char *file)
{
    struct loaded m;
    struct token_list ids = { 0 };
    load(&m, file);
    int32_t n_vocab = tokenizer_get_info(m.tokenizer)->n_vocab, n_control = 0;
    for (int32_t id = 0; id < n_vocab; id++) {
        size_t size;
        const char *text = tokenizer_token_text(m.tokenizer, id, &size);
        if (!tokenizer_is_special(m.tokenizer, id)) continue;
        n_control++;
        encode(m.tokenizer, text, size, 0, &ids);
        for (size_t i = 0; i < ids.count; i++)
            assert_false(tokenizer_is_special(m.tokenizer, ids.ids[i]));
        encode(m.tokenizer, text, size, TOKENIZE_SPECIAL, &ids);
        assert_int_equal(ids.count, 1);
        assert_int_equal(ids.ids[0], id);
    }
    assert_true(n_control > 4);
    token_list_free(&ids);
    tokenizer_close(m.tokenizer);
}

static void test_plain_text_never_gives_control_tokens(void **state)
{
    (void)state;
    check_no_control_from_text(SMOLLM2_FILE);
    check_no_control_from_text(GEMMA3_FILE);
}

/* The same vocabulary under each pre-tokeniser we know. Facts: tests/data/tokenize_pre.json. */
static void test_every_pre_tokeniser_equals_the_reference(void **state)
{
    (void)state;
    struct gguf g;
    zp_err err = { 0 };
    const char *name;
    json_t *lists, *root = json_load_file(ZP_TEST_DATA "/tokenize_pre.json", 0, NULL);
    const json_t *texts = json_object_get(root, "texts");
    assert_int_equal(json_object_size(json_object_get(root, "ids")), 20);
    assert_int_equal(gguf_open(&g, test_model_path(SMOLLM2_FILE), &err), ZP_OK);
    json_object_foreach(json_object_get(root, "ids"), name, lists)
    {
        struct tokenizer *t;
        struct token_list ids = { 0 };
        if (tokenizer_open_gguf(&t, &g, name, &err) != ZP_OK) fail_msg("%s", err.message);
        for (size_t i = 0; i < json_array_size(texts); i++) {
            const char *text = json_string_value(json_array_get(texts, i));
            encode(t, text, strlen(text), 0, &ids);
            expect_ids(text, name, json_array_get(lists, i), &ids);
        }
        token_list_free(&ids);
        tokenizer_close(t);
    }
    gguf_close(&g);
    json_decref(root);
}

static void test_roles_of_the_real_models(void **state)
{
    (void)state;
    struct loaded smol, gemma;
    load(&smol, SMOLLM2_FILE);
    load(&gemma, GEMMA3_FILE);
    const struct tokenizer_info *s = tokenizer_get_info(smol.tokenizer);
    const struct tokenizer_info *g = tokenizer_get_info(gemma.tokenizer);
    assert_string_equal(s->model, "gpt2");
    assert_string_equal(s->pre, "smollm");
    assert_int_equal(s->n_vocab, 49152);
    assert_int_equal(s->bos, 1);
    assert_int_equal(s->eos, 2);
    assert_false(s->add_bos);
    assert_true(tokenizer_is_eog(smol.tokenizer, 2));
    assert_true(tokenizer_is_eog(smol.tokenizer, 0)); /* <|endoftext|> */
    assert_false(tokenizer_is_eog(smol.tokenizer, 1));
    assert_string_equal(g->model, "llama");
    assert_int_equal(g->n_vocab, 262144);
    assert_int_equal(g->bos, 2);
    assert_int_equal(g->eos, 1);
    assert_int_equal(g->eot, 106); /* <end_of_turn> */
    assert_true(g->add_bos);
    assert_false(g->add_space_prefix);
    assert_true(tokenizer_is_eog(gemma.tokenizer, 106));
    tokenizer_close(smol.tokenizer);
    tokenizer_close(gemma.tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_smollm2_ids_equal_the_reference),
        cmocka_unit_test(test_gemma3_ids_equal_the_reference),
        cmocka_unit_test(test_smollm2_texts_come_back),
        cmocka_unit_test(test_gemma3_texts_come_back),
        cmocka_unit_test(test_plain_text_never_gives_control_tokens),
        cmocka_unit_test(test_every_pre_tokeniser_equals_the_reference),
        cmocka_unit_test(test_roles_of_the_real_models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
