/* test_json_build.c: documents are JSON whatever the values are; the first failure is kept. */
#include "golden.h"

#include "base/mem.h"
#include "base/json_build.h"

static json_t *parse(struct json_build *w)
{
    char *text = NULL;
    assert_int_equal(json_build_finish(w, &text), ZP_OK);
    json_error_t error;
    json_t *doc = json_loads(text, JSON_DECODE_ANY | JSON_ALLOW_NUL, &error);
    if (doc == NULL) fail_msg("%s in %s", error.text, text);
    zp_free(text);
    return doc;
}

static void test_nested_document(void **state)
{
    struct json_build w;
    (void)state;
    json_build_open(&w, NULL);
    json_build_object(&w, NULL);
    json_build_array(&w, "empty");
    json_build_array_end(&w);
    json_build_array(&w, "list");
    json_build_int(&w, NULL, INT64_MIN);
    json_build_object(&w, NULL);
    json_build_uint(&w, "n", 1u << 31);
    json_build_bool(&w, "yes", true);
    json_build_object_end(&w);
    json_build_array(&w, NULL);
    json_build_null(&w, NULL);
    json_build_array_end(&w);
    json_build_array_end(&w);
    json_build_text(&w, "nothing", NULL);
    json_build_object_end(&w);
    json_t
        *doc = parse(&w),
        *want = json_loads(
            "{\"empty\": [], \"list\": [-9223372036854775808, {\"n\": 2147483648, \"yes\": true}, "
            "[null]], \"nothing\": null}",
            0, NULL);
    assert_true(json_equal(doc, want));
    json_decref(doc);
    json_decref(want);
}

/* Behind other text, without blanks; names of any bytes; values that are JSON already. */
static void test_compact_text_behind_other(void **state)
{
    struct buffer out = buffer_with_max(MEM_META, 1000);
    struct json_build w;
    (void)state;
    assert_int_equal(buffer_append_text(&out, "data: ", NULL), ZP_OK);
    json_build_append(&w, &out, NULL);
    json_build_object(&w, NULL);
    json_build_int(&w, "a", 1);
    json_build_key(&w, "b\0\xff", 3);
    json_build_real(&w, NULL, 0.5, 9);
    json_build_array(&w, "c");
    json_build_raw(&w, NULL, "1,[2]", 5);
    json_build_text(&w, NULL, "x");
    json_build_array_end(&w);
    json_build_raw(&w, "d", "{}", 2);
    json_build_object_end(&w);
    assert_int_equal(w.status, ZP_OK);
    assert_string_equal((const char *)out.data,
                        "data: {\"a\":1,\"b\\u0000\xef\xbf\xbd\":0.5,\"c\":[1,[2],\"x\"],"
                        "\"d\":{}}");
    buffer_free(&out);
}

/* A buffer that is full: the first failure stays. */
static void test_buffer_that_is_full(void **state)
{
    struct buffer out = buffer_with_max(MEM_META, 4);
    struct json_build w;
    zp_err err = { 0 };
    (void)state;
    json_build_append(&w, &out, &err);
    json_build_text(&w, NULL, "too long");
    json_build_text(&w, NULL, "x");
    assert_int_equal(w.status, ZP_BAD_INPUT);
    assert_int_equal(err.code, ZP_BAD_INPUT);
    assert_string_equal((const char *)out.data, "\"");
    buffer_free(&out);
}

/* Every byte, alone and in a text, as a value and as a name. */
static void test_any_bytes_become_valid_text(void **state)
{
    (void)state;
    for (int b = 0; b < 256; b++) {
        char text[] = { 'a', (char)b, 'z' };
        char key[] = { (char)(b ? b : 1), '\0' };
        struct json_build w;
        json_build_open(&w, NULL);
        json_build_object(&w, NULL);
        json_build_bytes(&w, key, text, sizeof text);
        json_build_object_end(&w);
        json_t *doc = parse(&w), *value = json_object_iter_value(json_object_iter(doc));
        if (b < 0x80) {
            assert_int_equal(json_string_length(value), sizeof text);
            assert_memory_equal(json_string_value(value), text, sizeof text);
        } else {
            assert_string_equal(json_string_value(value), "a\xef\xbf\xbdz");
        }
        json_decref(doc);
    }
}

static void test_text_keeps_what_is_valid(void **state)
{
    static const struct {
        const char *in, *out;
    } cases[] = { { "gr\xc3\xbc\xc3\x9f \xf0\x9f\xa6\x80", "gr\xc3\xbc\xc3\x9f \xf0\x9f\xa6\x80" },
                  { "cut \xf0\x9f\xa6", "cut \xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd" },
                  { "\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd" },
                  { "a\"b\\c\nd\te", "a\"b\\c\nd\te" } };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct json_build w;
        json_build_open(&w, NULL);
        json_build_text(&w, NULL, cases[i].in);
        json_t *doc = parse(&w);
        assert_string_equal(json_string_value(doc), cases[i].out);
        json_decref(doc);
    }
}

static void test_numbers_come_back(void **state)
{
    static const double values[] = { 0, 1, -2, 0.1, 1e300, 5e-324, 1.0 / 3, 123456789.125 };
    (void)state;
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        struct json_build w;
        json_build_open(&w, NULL);
        json_build_real(&w, NULL, values[i], 17);
        json_t *doc = parse(&w);
        assert_true(json_is_real(doc)); /* 1 stays a real number */
        assert_true(json_real_value(doc) == values[i]);
        json_decref(doc);
    }
    const double bad[] = { NAN, INFINITY, -INFINITY };
    for (size_t i = 0; i < 3; i++) {
        struct json_build w;
        json_build_open(&w, NULL);
        json_build_real(&w, NULL, bad[i], 9);
        json_t *doc = parse(&w);
        assert_true(json_is_null(doc));
        json_decref(doc);
    }
}

static void test_first_failure_is_kept(void **state)
{
    (void)state;
    for (uint64_t n = 1; n <= 4; n++) {
        zp_err err = { 0 };
        struct json_build w;
        char *text = NULL;
        mem_fail_at(n, false);
        json_build_open(&w, &err);
        json_build_array(&w, NULL);
        for (int i = 0; i < 100; i++) json_build_int(&w, NULL, i);
        json_build_array_end(&w);
        mem_fail_at(0, false);
        assert_int_equal(json_build_finish(&w, &text), ZP_NO_MEMORY);
        assert_null(text);
        assert_int_equal(err.code, ZP_NO_MEMORY);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nested_document),
        cmocka_unit_test(test_compact_text_behind_other),
        cmocka_unit_test(test_buffer_that_is_full),
        cmocka_unit_test(test_any_bytes_become_valid_text),
        cmocka_unit_test(test_text_keeps_what_is_valid),
        cmocka_unit_test(test_numbers_come_back),
        cmocka_unit_test(test_first_failure_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
