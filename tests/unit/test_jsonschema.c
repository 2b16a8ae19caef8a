/* test_jsonschema.c: JSON Schemas as grammars: texts of tests/data/schemas.json, which
 * python-jsonschema calls valid or not (tools/make_schema_cases.py), names of what is refused, and
 * limits. */
#include "grammar_fixture.h"

#include "base/bytes.h"

static void check_texts(struct reader *r, const json_t *one, const char *key, bool wanted)
{
    size_t i;
    json_t *text;
    char what[256];
    snprintf(what, sizeof what, "%s", json_string_value(json_object_get(one, "what")));
    json_array_foreach (json_object_get(one, key), i, text)
        check_text(r, what, json_string_value(text), json_string_length(text), wanted);
}

static char *schema_of(const json_t *one)
{
    char *text = json_dumps(json_object_get(one, "schema"), JSON_COMPACT | JSON_REAL_PRECISION(15));
    assert_non_null(text);
    return text;
}

static void test_texts_are_taken_and_refused_as_by_the_reference(void **state)
{
    json_t *root = golden_load("schemas.json"), *one;
    size_t i;
    (void)state;
    assert_true(json_array_size(json_object_get(root, "cases")) > 80);
    json_array_foreach (json_object_get(root, "cases"), i, one) {
        struct reader r;
        char *schema = schema_of(one);
        open_reader(&r, jsonschema_rules, schema);
        check_texts(&r, one, "accept", true);
        check_texts(&r, one, "reject", false);
        check_texts(&r, one, "left_out", false);
        close_reader(&r);
        free(schema);
    }
    json_decref(root);
}

static void test_what_is_not_taken_is_named(void **state)
{
    json_t *root = golden_load("schemas.json"), *one;
    size_t i;
    (void)state;
    assert_true(json_array_size(json_object_get(root, "errors")) > 40);
    json_array_foreach (json_object_get(root, "errors"), i, one) {
        char *schema = schema_of(one);
        const char *status = json_string_value(json_object_get(one, "status"));
        const char *part = json_string_value(json_object_get(one, "message"));
        bool input = strcmp(status, "BAD_INPUT") == 0;
        expect_refused(jsonschema_rules, schema, strlen(schema),
                       input ? ZP_BAD_INPUT : ZP_UNSUPPORTED, part);
        free(schema);
    }
    json_decref(root);
}

static void test_text_that_is_no_schema_is_refused(void **state)
{
    (void)state;
    expect_refused(jsonschema_rules, "", 0, ZP_BAD_INPUT, "line 1, column 1");
    expect_refused(jsonschema_rules, "{\"type\":\n}", 10, ZP_BAD_INPUT, "line 2, column 1");
    expect_refused(jsonschema_rules, "[]", 2, ZP_BAD_INPUT, "must be an object");
    expect_refused(jsonschema_rules, "{\"a\":\"\xff\"}", 9, ZP_BAD_INPUT, "UTF-8");
    expect_refused(jsonschema_rules, "{\"$ref\":3}", 10, ZP_BAD_INPUT, "$ref must be a string");
}

/* A schema with `middle` n times between `first` and `last`. */
static void expect_limit(const char *first, const char *middle, size_t n, const char *last,
                         zp_status status, const char *part)
{
    struct buffer b = buffer_with_max(MEM_META, 64 << 20);
    GOLDEN_OK(buffer_append_text(&b, first, err));
    for (size_t i = 0; i < n; i++) GOLDEN_OK(buffer_append_text(&b, middle, err));
    GOLDEN_OK(buffer_append_text(&b, last, err));
    expect_refused(jsonschema_rules, (const char *)b.data, b.size, status, part);
    buffer_free(&b);
}

static void test_what_would_take_too_much_is_refused(void **state)
{
    (void)state;
    expect_limit("{\"title\":\"", "0123456789", 110000, "\"}", ZP_BAD_INPUT, "at most 1048576");
    expect_limit("", "{\"items\":", 120, "1", ZP_BAD_INPUT, "valid JSON");
    expect_limit("{\"pattern\":\"^(?:(?:a|){999}){999}$\",\"maxLength\":9999}", "", 0, "",
                 ZP_BAD_INPUT, "too");
    expect_limit("{\"pattern\":\"", "(", 100, "\"}", ZP_UNSUPPORTED, "groups");
    expect_limit("{\"pattern\":\"", "a", 5000, "\"}", ZP_BAD_INPUT, "at most 4096");
    expect_limit("{\"pattern\":\"^(?:a?){90000}$\"}", "", 0, "", ZP_BAD_INPUT, "may be empty");
    expect_limit("{\"pattern\":\"^(?:(?:){9999}){9999}$\"}", "", 0, "", ZP_BAD_INPUT,
                 "may be empty");
    expect_limit("{\"pattern\":\"^(?:(?:(?:){9999}){9999}){9999}a$\",\"minLength\":9}", "", 0, "",
                 ZP_BAD_INPUT, "work");
}

static void test_nesting_of_schemas_is_bounded(void **state)
{
    struct buffer b = buffer_with_max(MEM_META, 1 << 20);
    struct reader r;
    (void)state;
    for (size_t depth = 90; depth <= 110; depth += 20) {
        buffer_clear(&b);
        for (size_t i = 0; i < depth; i++)
            GOLDEN_OK(buffer_append_text(&b, "{\"type\":\"array\",\"items\":", err));
        GOLDEN_OK(buffer_append_text(&b, "{}", err));
        for (size_t i = 0; i < depth; i++) GOLDEN_OK(buffer_append_text(&b, "}", err));
        const char *schema = (const char *)b.data;
        if (depth > 100) {
            expect_refused(jsonschema_rules, schema, b.size, ZP_UNSUPPORTED, "100 levels");
            continue;
        }
        open_reader(&r, jsonschema_rules, schema);
        assert_true(accepts(&r, "[[[]]]", 6));
        close_reader(&r);
    }
    buffer_free(&b);
}

/* Texts that nest to the limit end in time: what cannot be closed is not begun. */
static void test_recursion_ends_before_the_depth_limit(void **state)
{
    struct reader r;
    zp_err why = { 0 };
    (void)state;
    open_reader(&r, jsonschema_rules, "{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}}");
    uint32_t at = r.a.start, next = at;
    size_t depth = 0;
    for (; next != AUTOMATON_DEAD; depth++) {
        at = next;
        assert_int_equal(automaton_step(&r.a, at, '[', &next, &why), ZP_OK);
    }
    depth--;
    assert_true(depth > 150 && depth <= GRAMMAR_MAX_DEPTH + 1);
    for (size_t i = 0; i < depth; i++) {
        assert_int_equal(automaton_step(&r.a, at, ']', &at, &why), ZP_OK);
        assert_true(at != AUTOMATON_DEAD);
    }
    assert_true(automaton_is_over(&r.a, at));
    close_reader(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts_are_taken_and_refused_as_by_the_reference),
        cmocka_unit_test(test_what_is_not_taken_is_named),
        cmocka_unit_test(test_text_that_is_no_schema_is_refused),
        cmocka_unit_test(test_what_would_take_too_much_is_refused),
        cmocka_unit_test(test_nesting_of_schemas_is_bounded),
        cmocka_unit_test(test_recursion_ends_before_the_depth_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
