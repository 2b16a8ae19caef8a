/* test_template_models.c: the template inside SmolLM2's file is the one whose conversations are
 * compared with jinja2, and renders them so; Gemma's file has none, as its conversion left it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include <jansson.h>

#include "model/gguf.h"
#include "model/template.h"
#include "models.h"

static void open_model(struct gguf *g, const char *file)
{
    zp_err err = { 0 };
    if (gguf_open(g, test_model_path(file), &err) != ZP_OK) fail_msg("%s", err.message);
}

static void test_smollm2_renders_as_jinja2(void **state)
{
    (void)state;
    struct gguf g;
    struct gguf_str source;
    struct template *t;
    zp_err err = { 0 };
    json_error_t error;
    size_t i, n = 0;
    open_model(&g, SMOLLM2_FILE);
    assert_int_equal(gguf_get_str(&g, "tokenizer.chat_template", &source, &err), ZP_OK);
    assert_int_equal(template_open(&t, source.data, source.size, "smollm2", &err), ZP_OK);
    gguf_close(&g); /* the template keeps no pointer into the file */
    json_t *root = json_load_file(ZP_TEST_DATA "/templates.json", 0, &error), *c;
    assert_non_null(root);
    json_array_foreach(json_object_get(root, "cases"), i, c)
    {
        if (strcmp(json_string_value(json_object_get(c, "template")), "smollm2") != 0) continue;
        struct template_output out;
        if (template_render(t, c, &out, &err) != ZP_OK) fail_msg("%s", err.message);
        assert_string_equal(
            out.text, json_string_value(json_object_get(json_object_get(c, "expect"), "text")));
        template_output_free(&out);
        n++;
    }
    assert_int_equal(n, 8);
    json_decref(root);
    template_close(t);
}

static void test_gemma3_file_has_no_template(void **state)
{
    (void)state;
    struct gguf g;
    struct gguf_str source;
    zp_err err = { 0 };
    open_model(&g, GEMMA3_FILE);
    assert_int_equal(gguf_get_str_or_null(&g, "tokenizer.chat_template", &source, &err), ZP_OK);
    assert_null(source.data);
    gguf_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_smollm2_renders_as_jinja2),
        cmocka_unit_test(test_gemma3_file_has_no_template),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
