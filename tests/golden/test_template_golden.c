/* test_template_golden.c: rendered chat templates equal jinja2's to the last byte: whole
 * conversations (tests/data/templates.json) and one case for each construct (template_cases.json,
 * tools/make_template_cases.py). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "model/template.h"

static json_t *load(const char *name)
{
    char path[512];
    json_error_t error;
    snprintf(path, sizeof path, "%s/%s", ZP_TEST_DATA, name);
    json_t *root = json_load_file(path, JSON_ALLOW_NUL, &error);
    if (root == NULL) fail_msg("%s: %s (line %d)", path, error.text, error.line);
    return root;
}

/* Opens and renders; the text of the failure is in err. */
static zp_status render(const char *source, size_t size, const json_t *input, int64_t now,
                        struct template_output *out, zp_err *err)
{
    struct template *t;
    struct template_options options = { .now = now };
    zp_status status = template_open(&t, source, size, "t", err);
    if (status != ZP_OK) return status;
    status = template_render_with(t, input, &options, out, err);
    template_close(t);
    return status;
}

static void test_conversations_equal_jinja2(void **state)
{
    (void)state;
    json_t *root = load("templates.json"), *c;
    const json_t *templates = json_object_get(root, "templates");
    size_t i, n_raised = 0;
    json_array_foreach(json_object_get(root, "cases"), i, c)
    {
        const json_t *source =
            json_object_get(templates, json_string_value(json_object_get(c, "template")));
        const json_t *expect = json_object_get(c, "expect");
        const char *text = json_string_value(json_object_get(expect, "text"));
        const char *raised = json_string_value(json_object_get(expect, "error"));
        struct template_output out = { 0 };
        zp_err err = { 0 };
        zp_status status =
            render(json_string_value(source), json_string_length(source), c, 0, &out, &err);
        if (raised != NULL) {
            n_raised++;
            assert_int_equal(status, ZP_BAD_INPUT);
            assert_string_equal(err.message, raised);
        } else {
            if (status != ZP_OK) fail_msg("case %zu: %s", i, err.message);
            assert_string_equal(out.text, text);
        }
        template_output_free(&out);
    }
    assert_int_equal(i, 32);
    assert_int_equal(n_raised, 4);
    json_decref(root);
}

static int differs(const json_t *c, zp_status status, const struct template_output *out,
                   const zp_err *err)
{
    const json_t *text = json_object_get(c, "out"), *raised = json_object_get(c, "raised");
    if (text != NULL)
        return status != ZP_OK || out->size != json_string_length(text) ||
               memcmp(out->text, json_string_value(text), out->size) != 0;
    if (raised != NULL)
        return status != ZP_BAD_INPUT || strcmp(err->message, json_string_value(raised)) != 0;
    return status != ZP_BAD_FILE && status != ZP_BAD_INPUT;
}

static void test_constructs_equal_jinja2(void **state)
{
    (void)state;
    json_t *root = load("template_cases.json"), *c;
    const json_t *vars = json_object_get(root, "vars");
    int64_t now = json_integer_value(json_object_get(root, "now"));
    size_t i, n_bad = 0;
    json_array_foreach(json_object_get(root, "cases"), i, c)
    {
        const json_t *source = json_object_get(c, "t");
        struct template_output out = { 0 };
        zp_err err = { 0 };
        zp_status status =
            render(json_string_value(source), json_string_length(source), vars, now, &out, &err);
        if (differs(c, status, &out, &err)) {
            char *wanted = json_dumps(c, 0);
            n_bad++;
            print_error("%s\n  found %s\n", wanted, status == ZP_OK ? out.text : err.message);
            free(wanted);
        }
        template_output_free(&out);
    }
    assert_true(i > 700);
    assert_int_equal(n_bad, 0);
    json_decref(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_conversations_equal_jinja2),
        cmocka_unit_test(test_constructs_equal_jinja2),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
