/* test_toolform.c: the JSON Schema of a call that must come, and what stands around it. */
#include "api_fixture.h"

#include "serve/toolform.h"

static void form_is(enum toolcalls_style style, const char *tools_text, const char *name,
                    const char *before, const char *after, const char *schema)
{
    char *text = api_json(tools_text);
    json_t *tools = json_loads(text, 0, NULL);
    struct toolform f;
    assert_non_null(tools);
    GOLDEN_OK(toolform_open(&f, style, tools, name, err));
    assert_string_equal(f.before, before);
    assert_string_equal(f.after, after);
    api_text_is(&f.schema, schema);
    toolform_free(&f);
    json_decref(tools);
    free(text);
}

#define TOOL(name, rest) "{`type`:`function`,`function`:{`name`:`" name "`" rest "}}"
#define NOTHING "{`type`:`object`,`additionalProperties`:false}"
#define CALL(name, key, parameters) \
    "{`type`:`object`,`properties`:{`name`:{`const`:`" name "`},`" key "`:" parameters "}," \
    "`required`:[`name`,`" key "`],`additionalProperties`:false}"

static void test_one_tool(void **state)
{
    (void)state;
    form_is(TOOLCALLS_TAGGED,
            "[" TOOL("a", ",`parameters`:{`properties`:{`x`:{`type`:`integer`}}}") "]", NULL,
            "<tool_call>\n", "\n</tool_call>",
            CALL("a", "arguments", "{`properties`:{`x`:{`type`:`integer`}},"
                                   "`additionalProperties`:false,`type`:`object`}"));
    form_is(TOOLCALLS_LLAMA3, "[" TOOL("a", "") "]", NULL, "", "",
            CALL("a", "parameters", NOTHING));
    form_is(TOOLCALLS_JSON, "[" TOOL("a", ",`parameters`:null") "]", NULL, "", "",
            CALL("a", "arguments", NOTHING));
}

static void test_any_of_several_tools_or_one_by_name(void **state)
{
    (void)state;
    static const char tools[] = "[" TOOL("a", "") "," TOOL("b", ",`parameters`:{}") "]";
    form_is(TOOLCALLS_JSON, tools, NULL, "", "",
            "{`anyOf`:[" CALL("a", "arguments", NOTHING) ","
            CALL("b", "arguments", "{`type`:`object`}") "]}");
    form_is(TOOLCALLS_JSON, tools, "b", "", "", CALL("b", "arguments", "{`type`:`object`}"));
}

/* Objects that name members have no others, wherever they are; what says more is left as it is. */
static void test_objects_are_closed(void **state)
{
#define CLOSED ",`additionalProperties`:false}"
    static const struct {
        const char *before, *after;
    } cases[] = {
        { "{`type`:`object`,`properties`:{}}", "{`type`:`object`,`properties`:{}" CLOSED },
        { "{`type`:`object`}", "{`type`:`object`}" },
        { "{`type`:`object`,`properties`:{},`additionalProperties`:{`type`:`integer`}}",
          "{`type`:`object`,`properties`:{},`additionalProperties`:{`type`:`integer`}}" },
        { "{`type`:`object`,`properties`:{`a`:{`properties`:{`b`:{}}},`l`:{`items`:{`properties`:"
          "{}}},`e`:{`anyOf`:[{`properties`:{}},{`type`:`null`}]},`d`:{`$ref`:`#/$defs/n`}},"
          "`$defs`:{`n`:{`properties`:{`x`:{`type`:[`object`,`null`],`properties`:{}}}}}}",
          "{`type`:`object`,`properties`:{`a`:{`properties`:{`b`:{}}" CLOSED ",`l`:{`items`:"
          "{`properties`:{}" CLOSED "},`e`:{`anyOf`:[{`properties`:{}" CLOSED ",{`type`:`null`}]},"
          "`d`:{`$ref`:`#/properties/arguments/$defs/n`}},`$defs`:{`n`:{`properties`:{`x`:{`type`:"
          "[`object`,`null`],`properties`:{}}}" CLOSED "}" CLOSED },
        /* members of these names, and values that only look like schemas */
        { "{`type`:`object`,`properties`:{`properties`:{`type`:`string`},`default`:{`$ref`:`#/x`},"
          "`c`:{`default`:{`properties`:{}}},`d`:{`default`:{`$ref`:`#/x`}}}}",
          "{`type`:`object`,`properties`:{`properties`:{`type`:`string`},`default`:{`$ref`:"
          "`#/properties/arguments/x`},`c`:{`default`:{`properties`:{}}},`d`:{`default`:{`$ref`:"
          "`#/x`}}}" CLOSED },
        /* joined: each part would shut the others' members out */
        { "{`type`:`object`,`properties`:{`a`:{`allOf`:[{`properties`:{}}]}}}",
          "{`type`:`object`,`properties`:{`a`:{`allOf`:[{`properties`:{}}]}}}" },
        { "{`$ref`:`#/$defs/n`,`properties`:{},`$defs`:{`n`:{`properties`:{}}}}",
          "{`$ref`:`#/properties/arguments/$defs/n`,`properties`:{},`$defs`:{`n`:{`properties`:"
          "{}}}}" },
    };
    (void)state;
    for (size_t i = 0; i < ZP_COUNT(cases); i++) {
        char tools[1024], expected[1024];
        snprintf(tools, sizeof tools, "[" TOOL("a", ",`parameters`:%s") "]", cases[i].before);
        snprintf(expected, sizeof expected, CALL("a", "arguments", "%s"), cases[i].after);
        form_is(TOOLCALLS_JSON, tools, NULL, "", "", expected);
    }
}

/* More than a grammar takes is refused in words that a client can be told. */
static void test_schemas_are_bounded(void **state)
{
    struct toolform f;
    zp_err why = { 0 };
    struct buffer text = buffer_with_max(MEM_META, 1 << 22);
    GOLDEN_OK(buffer_append_text(&text, "[{\"function\":{\"name\":\"a\",\"parameters\":{"
                                        "\"title\":\"", err));
    for (int i = 0; i < 1 << 17; i++) GOLDEN_OK(buffer_append_text(&text, "12345678", err));
    GOLDEN_OK(buffer_append_text(&text, "\"}}}]", err));
    json_t *tools = json_loads((const char *)text.data, 0, NULL);
    (void)state;
    assert_non_null(tools);
    assert_int_equal(toolform_open(&f, TOOLCALLS_JSON, tools, NULL, &why), ZP_BAD_INPUT);
    toolform_free(&f);
    struct apifault fault = { 0 };
    (void)apifault_of_err(&fault, "tools", &why);
    assert_int_equal(fault.status, 400);
    assert_string_equal(
        fault.message, "the parameters of all tools together have more than the 1048576 bytes that "
                       "the schema of a call may have");
    json_decref(tools);
    buffer_free(&text);
}

/* A reference leads to the same schema as before; texts that only look like one stay. */
static void test_references_move_with_the_parameters(void **state)
{
#define PARAMETERS(place, closed)                                                                  \
    "{`$ref`:`" place "/$defs/p`,`$defs`:{`p`:{`type`:`object`,`properties`:{`next`:{`$ref`:`"     \
    place "`},`list`:{`items`:[{`$ref`:`" place "/$defs/p`}]},`c`:{`const`:{`$ref`:`#/x`}},"       \
    "`u`:{`$ref`:`https://x/y`}}" closed "}}}"
#define BEFORE PARAMETERS("#", "")
#define AFTER(place) PARAMETERS(place, ",`additionalProperties`:false")
    (void)state;
    form_is(TOOLCALLS_TAGGED, "[" TOOL("a", ",`parameters`:" BEFORE) "]", NULL,
            "<tool_call>\n", "\n</tool_call>",
            CALL("a", "arguments", AFTER("#/properties/arguments")));
    form_is(TOOLCALLS_LLAMA3, "[" TOOL("b", "") "," TOOL("a", ",`parameters`:" BEFORE) "]",
            NULL, "", "",
            "{`anyOf`:[" CALL("b", "parameters", NOTHING) ","
            CALL("a", "parameters", AFTER("#/anyOf/1/properties/parameters")) "]}");
}

static void test_tool_that_is_not_there(void **state)
{
    struct toolform f;
    zp_err err = { 0 };
    json_t *none = json_array();
    (void)state;
    assert_int_equal(toolform_open(&f, TOOLCALLS_JSON, none, NULL, &err), ZP_BAD_INPUT);
    toolform_free(&f);
    assert_int_equal(toolform_open(&f, TOOLCALLS_JSON, none, "a", NULL), ZP_BAD_INPUT);
    toolform_free(&f);
    json_decref(none);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_tool),
        cmocka_unit_test(test_any_of_several_tools_or_one_by_name),
        cmocka_unit_test(test_objects_are_closed),
        cmocka_unit_test(test_schemas_are_bounded),
        cmocka_unit_test(test_references_move_with_the_parameters),
        cmocka_unit_test(test_tool_that_is_not_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
