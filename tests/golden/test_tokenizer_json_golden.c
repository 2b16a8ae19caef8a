/* test_tokenizer_json_golden.c: small tokenizer.json files give the ids and texts that HF
 * tokenizers gives. Facts: tests/data/tokenizer_json.json, made by tools/make_tokenizer_cases.py.
 * */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <jansson.h>
#include "base/mem.h"
#include "model/tokenizer.h"

static struct tokenizer *open_case(const json_t *item)
{
    struct tokenizer *t;
    zp_err err = { 0 };
    char *text = json_dumps(json_object_get(item, "tokenizer"), JSON_COMPACT);
    assert_non_null(text);
    struct gguf_str json = { text, strlen(text) };
    if (tokenizer_open_json(&t, json, (struct gguf_str){ 0 }, "case", &err) != ZP_OK)
        fail_msg("%s", err.message);
    free(text);
    return t;
}

static void check_ids(const struct tokenizer *t, const char *name, const char *text, unsigned flags,
                      const json_t *want)
{
    struct token_list got = { 0 };
    zp_err err = { 0 };
    if (tokenizer_encode(t, text, strlen(text), flags, &got, &err) != ZP_OK)
        fail_msg("%s: %s", name, err.message);
    for (size_t i = 0; i < got.count && i < json_array_size(want); i++) {
        long long id = json_integer_value(json_array_get(want, i));
        if (id != got.ids[i])
            fail_msg("%s: '%s': id %zu is %d, expected %lld", name, text, i, got.ids[i], id);
    }
    assert_int_equal(got.count, json_array_size(want));
    token_list_free(&got);
}

static void check_text(const struct tokenizer *t, const char *name, const json_t *ids,
                       const char *want)
{
    struct token_list list = { 0 };
    struct buffer text = buffer_with_max(MEM_SCRATCH, 1 << 20);
    zp_err err = { 0 };
    size_t i;
    const json_t *id;
    json_array_foreach(ids, i, id)
        assert_int_equal(token_list_push(&list, (int32_t)json_integer_value(id), &err), ZP_OK);
    assert_int_equal(tokenizer_decode(t, list.ids, list.count, 0, &text, &err), ZP_OK);
    const char *got = text.data == NULL ? "" : (const char *)text.data;
    if (strcmp(got, want) != 0) fail_msg("%s: text is '%s', expected '%s'", name, got, want);
    buffer_free(&text);
    token_list_free(&list);
}

static void check_case(const json_t *item, const json_t *texts)
{
    struct tokenizer *t = open_case(item);
    const char *name = json_string_value(json_object_get(item, "name"));
    for (size_t i = 0; i < json_array_size(texts); i++) {
        const char *text = json_string_value(json_array_get(texts, i));
        const json_t *special = json_array_get(json_object_get(item, "special"), i);
        const json_t *decoded = json_array_get(json_object_get(item, "decoded"), i);
        check_ids(t, name, text, 0, json_array_get(json_object_get(item, "plain"), i));
        check_ids(t, name, text, TOKENIZE_SPECIAL, special);
        if (json_is_string(decoded)) check_text(t, name, special, json_string_value(decoded));
    }
    tokenizer_close(t);
}

static void test_ids_and_texts_equal_the_reference(void **state)
{
    (void)state;
    json_t *root = json_load_file(ZP_TEST_DATA "/tokenizer_json.json", 0, NULL), *item;
    size_t i;
    assert_non_null(root);
    const json_t *cases = json_object_get(root, "cases"), *texts = json_object_get(root, "texts");
    assert_true(json_array_size(cases) >= 10 && json_array_size(texts) >= 20);
    json_array_foreach((json_t *)(uintptr_t)cases, i, item) check_case(item, texts);
    json_decref(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_ids_and_texts_equal_the_reference) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
