/* test_api_anthropic.c: Anthropic's requests: blocks and tools as the template gets them, and what
 * is refused. */
#include "api_fixture.h"

#define HI "{`role`:`user`,`content`:`Hi`}"
#define ASK ",`add_generation_prompt`:true,`enable_thinking`:false}"
#define TOOL "{`name`:`a`,`description`:`A`,`input_schema`:{`type`:`object`}}"

static void test_messages(void **state)
{
    static const struct {
        const char *fields, *expected;
    } cases[] = {
        { "`messages`:[" HI "]", "`messages`:[" HI "]" },
        { "`system`:`S`,`messages`:[" HI "]",
          "`messages`:[{`role`:`system`,`content`:`S`}," HI "]" },
        { "`system`:[{`type`:`text`,`text`:`S`,`cache_control`:{`type`:`ephemeral`}},{`type`:"
          "`text`,`text`:`T`}],`messages`:[" HI "]",
          "`messages`:[{`role`:`system`,`content`:`S\\nT`}," HI "]" },
        { "`messages`:[{`role`:`user`,`content`:[{`type`:`text`,`text`:`a`},{`type`:`text`,`text`:"
          "`b`}]}]",
          "`messages`:[{`role`:`user`,`content`:`a\\nb`}]" },
        /* calls, and their results before and behind other text */
        { "`messages`:[" HI ",{`role`:`assistant`,`content`:[{`type`:`thinking`,`thinking`:`t`,"
          "`signature`:`s`},{`type`:`text`,`text`:`Look:`},{`type`:`tool_use`,`id`:`u1`,`name`:`a`,"
          "`input`:{`x`:1}}]},{`role`:`user`,`content`:[{`type`:`tool_result`,`tool_use_id`:`u1`,"
          "`content`:`one`},{`type`:`text`,`text`:`and?`}]}]",
          "`messages`:[" HI ",{`role`:`assistant`,`content`:`Look:`,`reasoning_content`:`t`,"
          "`tool_calls`:[{`id`:`u1`,`type`:`function`,`function`:{`name`:`a`,`arguments`:{`x`:1}}}]"
          "},{`role`:`tool`,`name`:`a`,`tool_call_id`:`u1`,`content`:`one`},{`role`:`user`,"
          "`content`:`and?`}]" },
        { "`messages`:[{`role`:`user`,`content`:[{`type`:`text`,`text`:`a`},{`type`:`tool_result`,"
          "`tool_use_id`:`u1`},{`type`:`tool_result`,`tool_use_id`:`u2`,`is_error`:true,`content`:"
          "[{`type`:`text`,`text`:`x`},{`type`:`text`,`text`:`y`}]}]}]",
          "`messages`:[{`role`:`user`,`content`:`a`},{`role`:`tool`,`tool_call_id`:`u1`,`content`:"
          "``},{`role`:`tool`,`tool_call_id`:`u2`,`content`:`x\\ny`}]" },
        { "`messages`:[{`role`:`assistant`,`content`:[{`type`:`tool_use`,`id`:`u1`,`name`:`a`,"
          "`input`:{}},{`type`:`redacted_thinking`,`data`:`x`}]}]",
          "`messages`:[{`role`:`assistant`,`content`:null,`tool_calls`:[{`id`:`u1`,`type`:"
          "`function`,`function`:{`name`:`a`,`arguments`:{}}}]}]" },
    };
    (void)state;
    for (size_t i = 0; i < ZP_COUNT(cases); i++) {
        char text[1024], expected[1024];
        snprintf(text, sizeof text, "{`max_tokens`:5,%s}", cases[i].fields);
        snprintf(expected, sizeof expected, "{%s" ASK, cases[i].expected);
        api_input_is(anthropic_read_messages, text, expected);
    }
}

static void test_tools(void **state)
{
    (void)state;
    api_input_is(anthropic_read_messages, "{`messages`:[" HI "],`tools`:[" TOOL ",{`type`:`custom`,"
                                          "`name`:`b`,`input_schema`:{}}]}",
                 "{`messages`:[" HI "],`tools`:[{`type`:`function`,`function`:{`name`:`a`,"
                 "`description`:`A`,`parameters`:{`type`:`object`}}},{`type`:`function`,`function`:"
                 "{`name`:`b`,`parameters`:{}}}]" ASK);
}

static void test_tool_choice(void **state)
{
    static const struct {
        const char *choice;
        enum api_tool_choice expected;
        const char *name;
        bool one, kept;
    } cases[] = {
        { "null", TOOLS_AUTO, NULL, false, true },
        { "{`type`:`auto`,`disable_parallel_tool_use`:true}", TOOLS_AUTO, NULL, true, true },
        { "{`type`:`any`}", TOOLS_REQUIRED, NULL, false, true },
        { "{`type`:`tool`,`name`:`a`}", TOOLS_NAMED, "a", false, true },
        { "{`type`:`none`}", TOOLS_NONE, NULL, false, false },
    };
    (void)state;
    for (size_t i = 0; i < ZP_COUNT(cases); i++) {
        char text[512];
        snprintf(text, sizeof text, "{`messages`:[" HI "],`tools`:[" TOOL "],`tool_choice`:%s}",
                 cases[i].choice);
        struct api_request r = api_read(anthropic_read_messages, text);
        assert_int_equal(r.tool_choice, cases[i].expected);
        if (cases[i].name) assert_string_equal(r.tool_name, cases[i].name);
        assert_int_equal(r.one_call, cases[i].one);
        assert_int_equal(json_array_size(r.tools), cases[i].kept);
        apirequest_free(&r);
    }
}

static void test_answer_that_is_begun(void **state)
{
    static const char *const begun[] = {
        "{`messages`:[" HI ",{`role`:`assistant`,`content`:`{`}]}",
        "{`messages`:[" HI ",{`role`:`assistant`,`content`:[{`type`:`text`,`text`:`{`}]}]}",
    };
    (void)state;
    for (size_t i = 0; i < ZP_COUNT(begun); i++) {
        struct api_request r = api_read(anthropic_read_messages, begun[i]);
        assert_string_equal(r.prefill, "{");
        assert_int_equal(json_array_size(json_object_get(r.input, "messages")), 1);
        apirequest_free(&r);
    }
    struct api_request r = api_read(anthropic_read_messages,
                                    "{`messages`:[" HI ",{`role`:`assistant`,`content`:[{`type`:"
                                    "`tool_use`,`id`:`u`,`name`:`a`,`input`:{}}]}]}");
    assert_null(r.prefill);
    apirequest_free(&r);
}

/* Thinking is shown to who asks for it. */
static void test_thinking(void **state)
{
    static const struct {
        const char *field, *variable;
        enum api_reasoning expected;
    } cases[] = {
        { "`thinking`:null", "false", REASONING_HIDDEN },
        { "`thinking`:{`type`:`disabled`}", "false", REASONING_HIDDEN },
        { "`thinking`:{`type`:`enabled`,`budget_tokens`:1024}", "true", REASONING_APART },
        { "`thinking`:{`type`:`adaptive`}", "true", REASONING_APART },
        { "`reasoning_format`:`none`", "false", REASONING_INLINE },
        { "`reasoning_format`:`auto`,`chat_template_kwargs`:{`enable_thinking`:true}", "true",
          REASONING_APART },
    };
    (void)state;
    for (size_t i = 0; i < ZP_COUNT(cases); i++) {
        char text[256];
        snprintf(text, sizeof text, "{`messages`:[" HI "],%s}", cases[i].field);
        struct api_request r = api_read(anthropic_read_messages, text);
        assert_int_equal(r.reasoning, cases[i].expected);
        assert_int_equal(json_is_true(json_object_get(r.input, "enable_thinking")),
                         cases[i].variable[0] == 't');
        apirequest_free(&r);
    }
}

static void test_user_and_stops(void **state)
{
    (void)state;
    struct api_request r = api_read(anthropic_read_messages,
                                    "{`messages`:[" HI "],`metadata`:{`user_id`:`u`},"
                                    "`stop_sequences`:[`x`],`service_tier`:`auto`}");
    assert_string_equal(r.user, "u");
    assert_string_equal(r.job.stop[0], "x");
    assert_int_equal(r.n_unknown, 0);
    apirequest_free(&r);
}

static void test_what_is_refused(void **state)
{
#define USER(blocks) "{`messages`:[{`role`:`user`,`content`:[" blocks "]}]}"
    static const struct {
        const char *text, *param, *code, *message;
    } cases[] = {
        { "{`max_tokens`:5}", "messages", "missing_required_parameter",
          "'messages': expected a list of at least one message, found nothing" },
        { "{`messages`:[{`role`:`tool`,`content`:`x`}]}", "messages[0].role", "invalid_value",
          "'messages[0].role': expected `user` or `assistant`, found `tool`" },
        { "{`messages`:[{`role`:`user`}]}", "messages[0].content", "missing_required_parameter",
          "'messages[0].content': expected a text or a list of parts, found nothing" },
        { USER("{`type`:`image`,`source`:{}}"), "messages[0].content[0]", "unsupported_value",
          "'messages[0].content[0]': a block of type `image` of the user: this server reads text, "
          "tool_use (assistant), tool_result (user) and thinking (assistant)" },
        { USER("{`type`:`tool_use`,`id`:`u`,`name`:`a`,`input`:{}}"), "messages[0].content[0]",
          "unsupported_value",
          "'messages[0].content[0]': a block of type `tool_use` of the user: this server reads "
          "text, "
          "tool_use (assistant), tool_result (user) and thinking (assistant)" },
        { USER("{`type`:`tool_result`,`tool_use_id`:`u`},{`type`:`text`,`text`:5}"),
          "messages[0].content[1].text", "invalid_value",
          "'messages[0].content[1].text': expected a text, found 5" },
        { USER("`x`"), "messages[0].content[0]", "invalid_value",
          "'messages[0].content[0]': expected an object with a type, found `x`" },
        { USER("{`type`:`tool_result`}"), "messages[0].content[0]", "missing_required_parameter",
          "'messages[0].content[0]': expected a result with the id of its call, found nothing" },
        { USER("{`type`:`tool_result`,`tool_use_id`:`u`,`content`:[{`type`:`image`}]}"),
          "messages[0].content[0].content[0]", "unsupported_value",
          "'messages[0].content[0].content[0]': a part of type `image`: this server reads text "
          "only" },
        { "{`messages`:[{`role`:`assistant`,`content`:[{`type`:`tool_use`,`id`:`u`,`name`:`a`,"
          "`input`:5}]}]}",
          "messages[0].content[0].input", "invalid_value",
          "'messages[0].content[0].input': expected an object, or the JSON text of one, found 5" },
        { "{`system`:5,`messages`:[" HI "]}", "system", "invalid_value",
          "'system': expected a text or a list of parts, found 5" },
        { "{`messages`:[" HI "],`tools`:[{`type`:`web_search_20250305`,`name`:`w`}]}",
          "tools[0].type", "unsupported_value",
          "'tools[0].type': this server has no tools of its own: only type `custom`" },
        { "{`messages`:[" HI "],`tools`:[{`name`:`w`}]}", "tools[0].input_schema",
          "missing_required_parameter",
          "'tools[0].input_schema': expected a JSON Schema, found nothing" },
        { "{`messages`:[" HI "],`tools`:[{`input_schema`:{}}]}", "tools[0].name",
          "missing_required_parameter",
          "'tools[0].name': expected a text of 1 to 128 bytes, found nothing" },
        { "{`messages`:[" HI "],`tools`:[" TOOL "],`tool_choice`:{`type`:`tool`}}", "tool_choice",
          "missing_required_parameter",
          "'tool_choice': expected the name of one of the tools, found nothing" },
        { "{`messages`:[" HI "],`tool_choice`:`auto`}", "tool_choice", "invalid_value",
          "'tool_choice': expected an object with type `auto`, `any`, `tool` or `none`, found "
          "`auto`" },
        { "{`messages`:[" HI "],`tools`:[" TOOL "],`output_format`:{`type`:`json_schema`,`schema`:"
          "{}}}",
          "tool_choice", "unsupported_value",
          "'tool_choice': a form of the answer and calls of tools exclude each other; tool_choice "
          "`none` goes with both" },
    };
    (void)state;
    for (size_t i = 0; i < ZP_COUNT(cases); i++)
        api_refused(anthropic_read_messages, cases[i].text, cases[i].param, cases[i].code,
                    cases[i].message);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_tools),
        cmocka_unit_test(test_tool_choice),
        cmocka_unit_test(test_answer_that_is_begun),
        cmocka_unit_test(test_thinking),
        cmocka_unit_test(test_user_and_stops),
        cmocka_unit_test(test_what_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
