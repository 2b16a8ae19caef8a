/* test_api_openai.c: OpenAI's requests: messages and tools as the template gets them, prompts, and
 * what is refused. */
#include "api_fixture.h"

#include "model/template.h"

#define HI "{`role`:`user`,`content`:`Hi`}"
#define TOOL_A "{`type`:`function`,`function`:{`name`:`a`,`parameters`:{`type`:`object`}}}"
#define TOOL_B "{`type`:`function`,`function`:{`name`:`b`,`description`:`B`}}"
#define ASK ",`add_generation_prompt`:true}"

static void test_messages(void **state)
{
    static const struct {
        const char *messages, *expected;
    } cases[] = {
        { HI, HI },
        { "{`role`:`developer`,`content`:`D`}," HI, "{`role`:`system`,`content`:`D`}," HI },
        { "{`role`:`user`,`content`:[{`type`:`text`,`text`:`a`},{`type`:`text`,`text`:`b`}]}",
          "{`role`:`user`,`content`:`a\\nb`}" },
        { "{`role`:`user`,`content`:[]}", "{`role`:`user`,`content`:``}" },
        { "{`role`:`assistant`,`content`:[{`type`:`refusal`,`refusal`:`no`}]}",
          "{`role`:`assistant`,`content`:`no`}" },
        { "{`role`:`critic`,`content`:`x`,`mood`:[1]}",
          "{`role`:`critic`,`content`:`x`,`mood`:[1]}" },
        { "{`role`:`assistant`,`content`:`x`,`reasoning_content`:`r`,`tool_calls`:[]}",
          "{`role`:`assistant`,`content`:`x`,`reasoning_content`:`r`}" },
    };
    (void)state;
    for (size_t i = 0; i < ZP_COUNT(cases); i++) {
        char text[512], expected[512];
        snprintf(text, sizeof text, "{`messages`:[%s]}", cases[i].messages);
        snprintf(expected, sizeof expected, "{`messages`:[%s]" ASK, cases[i].expected);
        api_input_is(openai_read_chat, text, expected);
    }
}

/* Arguments become objects, results get the name of their call. */
static void test_calls_and_results(void **state)
{
    (void)state;
    api_input_is(
        openai_read_chat,
        "{`messages`:[" HI ",{`role`:`assistant`,`content`:null,`tool_calls`:[{`id`:`c1`,`type`:"
        "`function`,`function`:{`name`:`a`,`arguments`:`{\\`x\\`: 1}`}},{`id`:`c2`,`type`:"
        "`function`,`function`:{`name`:`b`,`arguments`:``}}]},{`role`:`tool`,`tool_call_id`:`c2`,"
        "`content`:`two`},{`role`:`tool`,`tool_call_id`:`c1`,`content`:[{`type`:`text`,`text`:"
        "`one`}]},{`role`:`tool`,`tool_call_id`:`c9`,`content`:`?`}]}",
        "{`messages`:[" HI ",{`role`:`assistant`,`content`:null,`tool_calls`:[{`id`:`c1`,`type`:"
        "`function`,`function`:{`name`:`a`,`arguments`:{`x`:1}}},{`id`:`c2`,`type`:`function`,"
        "`function`:{`name`:`b`,`arguments`:{}}}]},{`role`:`tool`,`name`:`b`,`tool_call_id`:`c2`,"
        "`content`:`two`},{`role`:`tool`,`name`:`a`,`tool_call_id`:`c1`,`content`:`one`},{`role`:"
        "`tool`,`tool_call_id`:`c9`,`content`:`?`}]" ASK);
}

/* What a model did not write as JSON goes back to it as it is. */
static void test_arguments_that_are_no_json(void **state)
{
    static const struct {
        const char *arguments, *expected;
    } cases[] = { { "`{\\`x\\`: `", "`{\\`x\\`: `" },
                  { "`[1]`", "`[1]`" },
                  { "{`x`:1}", "{`x`:1}" },
                  { "null", "{}" },
                  { "`{\\`x\\`:{}}`", "{`x`:{}}" } };
    (void)state;
    for (size_t i = 0; i < ZP_COUNT(cases); i++) {
        char text[512], expected[512];
        snprintf(text, sizeof text, "{`messages`:[{`role`:`assistant`,`tool_calls`:[{`function`:"
                                    "{`name`:`a`,`arguments`:%s}}]}]}", cases[i].arguments);
        snprintf(expected, sizeof expected,
                 "{`messages`:[{`role`:`assistant`,`tool_calls`:[{`type`:`function`,`function`:"
                 "{`name`:`a`,`arguments`:%s}}]}]" ASK, cases[i].expected);
        api_input_is(openai_read_chat, text, expected);
    }
}

static void test_old_functions(void **state)
{
    (void)state;
    static const char text[] =
        "{`functions`:[{`name`:`a`,`parameters`:{`type`:`object`}}],`function_call`:{`name`:`a`},"
        "`messages`:[{`role`:`assistant`,`content`:null,`function_call`:{`name`:`a`,`arguments`:"
        "`{}`}},{`role`:`function`,`name`:`a`,`content`:`r`}]}";
    api_input_is(openai_read_chat, text,
                 "{`messages`:[{`role`:`assistant`,`content`:null,`tool_calls`:[{`id`:`a`,`type`:"
                 "`function`,`function`:{`name`:`a`,`arguments`:{}}}]},{`role`:`tool`,`name`:`a`,"
                 "`tool_call_id`:`a`,`content`:`r`}],`tools`:[" TOOL_A "]" ASK);
    struct api_request r = api_read(openai_read_chat, text);
    assert_true(r.functions && r.one_call);
    assert_int_equal(r.tool_choice, TOOLS_NAMED);
    assert_string_equal(r.tool_name, "a");
    apirequest_free(&r);
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
        { "`auto`", TOOLS_AUTO, NULL, false, true },
        { "`none`", TOOLS_NONE, NULL, false, false },
        { "`required`", TOOLS_REQUIRED, NULL, false, true },
        { "{`type`:`function`,`function`:{`name`:`b`}}", TOOLS_NAMED, "b", false, true },
        { "`auto`,`parallel_tool_calls`:false", TOOLS_AUTO, NULL, true, true },
    };
    (void)state;
    for (size_t i = 0; i < ZP_COUNT(cases); i++) {
        char text[512];
        snprintf(text, sizeof text,
                 "{`messages`:[" HI "],`tools`:[" TOOL_A "," TOOL_B "],`tool_choice`:%s}",
                 cases[i].choice);
        struct api_request r = api_read(openai_read_chat, text);
        assert_int_equal(r.tool_choice, cases[i].expected);
        if (cases[i].name) assert_string_equal(r.tool_name, cases[i].name);
        else assert_null(r.tool_name);
        assert_int_equal(r.one_call, cases[i].one);
        assert_int_equal(json_array_size(r.tools), cases[i].kept ? 2 : 0);
        assert_int_equal(json_array_size(json_object_get(r.input, "tools")),
                         cases[i].kept ? 2 : 0);
        apirequest_free(&r);
    }
}

static void test_variables_of_the_template(void **state)
{
    (void)state;
    api_input_is(openai_read_chat,
                 "{`messages`:[" HI "],`tools`:[" TOOL_B "],`reasoning_effort`:`low`,"
                 "`chat_template_kwargs`:{`enable_thinking`:false,`x`:[1]},"
                 "`add_generation_prompt`:false}",
                 "{`messages`:[" HI "],`tools`:[" TOOL_B "],`add_generation_prompt`:false,"
                 "`reasoning_effort`:`low`,`enable_thinking`:false,`x`:[1]}");
}

static void test_answer_that_is_begun(void **state)
{
    (void)state;
    struct api_request r = api_read(openai_read_chat,
                                    "{`messages`:[" HI ",{`role`:`assistant`,`content`:`Once`}],"
                                    "`continue_final_message`:true}");
    assert_string_equal(r.prefill, "Once");
    assert_int_equal(json_array_size(json_object_get(r.input, "messages")), 1);
    apirequest_free(&r);
    r = api_read(openai_read_chat, "{`messages`:[" HI ",{`role`:`assistant`,`content`:`Once`}]}");
    assert_null(r.prefill);
    assert_int_equal(json_array_size(json_object_get(r.input, "messages")), 2);
    apirequest_free(&r);
    api_refused(openai_read_chat, "{`messages`:[" HI "],`continue_final_message`:true}", "messages",
                "invalid_value",
                "'messages': the last one is to be continued: expected a text of the assistant "
                "without calls");
}

static void test_prompts(void **state)
{
    (void)state;
    struct api_request r = api_read(openai_read_completions, "{`prompt`:`a b`}");
    assert_int_equal(r.n_prompts, 1);
    assert_string_equal(r.prompts[0].text, "a b");
    assert_int_equal(r.prompts[0].size, 3);
    assert_null(r.input);
    apirequest_free(&r);
    r = api_read(openai_read_completions, "{`prompt`:[`a`,``,[1,2],[3]]}");
    assert_int_equal(r.n_prompts, 4);
    assert_string_equal(r.prompts[1].text, "");
    assert_null(r.prompts[2].text);
    assert_int_equal(r.prompts[2].n_ids, 2);
    assert_int_equal(r.prompts[2].ids[1], 2);
    assert_int_equal(r.prompts[3].ids[0], 3);
    apirequest_free(&r);
    r = api_read(openai_read_completions, "{`prompt`:[7,8,9],`echo`:true,`logprobs`:2}");
    assert_int_equal(r.n_prompts, 1);
    assert_int_equal(r.prompts[0].n_ids, 3);
    assert_true(r.echo && r.job.logprobs && r.job.prompt_logprobs && r.job.n_top == 2);
    apirequest_free(&r);
}

static void test_chats_that_are_refused(void **state)
{
#define MESSAGES(text) "{`messages`:[" text "]}"
#define TOOLS(tools, rest) "{`messages`:[" HI "],`tools`:[" tools "]" rest "}"
    static const struct {
        const char *text, *param, *code, *message;
    } cases[] = {
        { "{}", "messages", "missing_required_parameter",
          "'messages': expected a list of at least one message, found nothing" },
        { MESSAGES(""), "messages", "invalid_value",
          "'messages': expected a list of at least one message, found a list" },
        { MESSAGES("5"), "messages[0]", "invalid_value",
          "'messages[0]': expected an object with role and content, found 5" },
        { MESSAGES("{`content`:`x`}"), "messages[0].role", "missing_required_parameter",
          "'messages[0].role': expected `system`, `user`, `assistant` or `tool`, found nothing" },
        { MESSAGES(HI ",{`role`:`user`}"), "messages[1].content", "missing_required_parameter",
          "'messages[1].content': expected a text or a list of parts, found nothing" },
        { MESSAGES("{`role`:`user`,`content`:[{`type`:`image_url`,`image_url`:{}}]}"),
          "messages[0].content[0]", "unsupported_value",
          "'messages[0].content[0]': a part of type `image_url`: this server reads text only" },
        { MESSAGES("{`role`:`user`,`content`:[`x`]}"), "messages[0].content[0]", "invalid_value",
          "'messages[0].content[0]': expected an object with a type, such as `text`, found `x`" },
        { MESSAGES("{`role`:`user`,`content`:[{`type`:`text`}]}"), "messages[0].content[0].text",
          "missing_required_parameter",
          "'messages[0].content[0].text': expected a text, found nothing" },
        { MESSAGES("{`role`:`assistant`,`tool_calls`:{}}"), "messages[0].tool_calls",
          "invalid_value", "'messages[0].tool_calls': expected a list of calls, found an object" },
        { MESSAGES("{`role`:`assistant`,`tool_calls`:[{`id`:`x`}]}"),
          "messages[0].tool_calls[0].function", "missing_required_parameter",
          "'messages[0].tool_calls[0].function': expected an object with name and arguments, found "
          "nothing" },
        { MESSAGES("{`role`:`assistant`,`tool_calls`:[{`function`:{`name`:`a`,`arguments`:7}}]}"),
          "messages[0].tool_calls[0].function.arguments", "invalid_value",
          "'messages[0].tool_calls[0].function.arguments': expected an object, or the JSON text of "
          "one, found 7" },
        { MESSAGES("{`role`:`tool`,`content`:`x`}"), "messages[0]", "missing_required_parameter",
          "'messages[0]': expected a result with the id of its call, found nothing" },
        { TOOLS("{`type`:`web_search`}", ""), "tools[0].type", "unsupported_value",
          "'tools[0].type': tools are of type `function` here" },
        { TOOLS("{`type`:`function`}", ""), "tools[0].function", "missing_required_parameter",
          "'tools[0].function': expected an object with a name, found nothing" },
        { TOOLS("{`type`:`function`,`function`:{`name`:``}}", ""), "tools[0].function.name",
          "invalid_value",
          "'tools[0].function.name': expected a text of 1 to 128 bytes, found ``" },
        { TOOLS(TOOL_A "," TOOL_A, ""), "tools[1].function.name", "invalid_value",
          "'tools[1].function.name': there are two tools of the name `a`" },
        { TOOLS(TOOL_A, ",`tool_choice`:`always`"), "tool_choice", "invalid_value",
          "'tool_choice': expected `none`, `auto`, `required` or a function by its name, found "
          "`always`" },
        { TOOLS(TOOL_A, ",`tool_choice`:{`type`:`function`,`function`:{`name`:`b`}}"),
          "tool_choice", "invalid_value",
          "'tool_choice': expected the name of one of the tools, found `b`" },
        { TOOLS("", ",`tool_choice`:`required`"), "tool_choice", "invalid_value",
          "'tool_choice': a call is required, but there are no tools" },
        { TOOLS(TOOL_A, ",`response_format`:{`type`:`json_object`}"), "tool_choice",
          "unsupported_value",
          "'tool_choice': a form of the answer and calls of tools exclude each other; tool_choice "
          "`none` goes with both" },
        { TOOLS(TOOL_A, ",`functions`:[{`name`:`x`}]"), "functions", "unsupported_value",
          "'functions': tools are given as well: only one of both" },
    };
    (void)state;
    for (size_t i = 0; i < ZP_COUNT(cases); i++)
        api_refused(openai_read_chat, cases[i].text, cases[i].param, cases[i].code,
                    cases[i].message);
}

static void test_completions_that_are_refused(void **state)
{
    static const struct {
        const char *text, *param, *code, *message;
    } cases[] = {
        { "{}", "prompt", "missing_required_parameter",
          "'prompt': expected a text or a list of token ids, found nothing" },
        { "{`prompt`:[]}", "prompt", "invalid_value",
          "'prompt': expected a text or a list of token ids, found a list" },
        { "{`prompt`:[[]]}", "prompt[0]", "invalid_value",
          "'prompt[0]': expected a text or a list of token ids, found a list" },
        { "{`prompt`:[1,`a`]}", "prompt[1]", "invalid_value",
          "'prompt[1]': expected a token id from 0 to 2147483647, found `a`" },
        { "{`prompt`:[`a`,1]}", "prompt[1]", "invalid_value",
          "'prompt[1]': expected a text or a list of token ids, found 1" },
        { "{`prompt`:[[1],[2.5]]}", "prompt[1][0]", "invalid_value",
          "'prompt[1][0]': expected a token id from 0 to 2147483647, found 2.5" },
    };
    const struct api_limits limits = { .prompts = 2 };
    (void)state;
    for (size_t i = 0; i < ZP_COUNT(cases); i++)
        api_refused(openai_read_completions, cases[i].text, cases[i].param, cases[i].code,
                    cases[i].message);
    api_refused_with(openai_read_completions, "{`prompt`:[`a`,`b`,`c`]}", &limits, "prompt",
                     "invalid_value", "'prompt': expected at most 2 prompts, found 3");
}

/* What Hugging Face's templates take for granted: arguments that tojson writes as an object. */
static void test_template_writes_the_calls(void **state)
{
    static const char source[] =
        "{% for m in messages %}<{{ m.role }}>{% if m.content %}{{ m.content }}{% endif %}"
        "{% for c in m.tool_calls %}<tool_call>{{ c.function.name }} "
        "{{ c.function.arguments | tojson }}</tool_call>{% endfor %}{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% endif %}{{ tools[0].function.name }}";
    struct template *t;
    struct template_output out;
    struct api_request r = api_read(
        openai_read_chat,
        "{`messages`:[" HI ",{`role`:`assistant`,`content`:null,`tool_calls`:[{`id`:`c`,`function`:"
        "{`name`:`a`,`arguments`:`{\\`x\\`:[1]}`}}]},{`role`:`tool`,`tool_call_id`:`c`,`content`:"
        "`ok`}],`tools`:[" TOOL_A "]}");
    (void)state;
    GOLDEN_OK(template_open(&t, source, sizeof source - 1, "t", err));
    GOLDEN_OK(template_render(t, r.input, &out, err));
    assert_string_equal(out.text, "<user>Hi<assistant><tool_call>a {\"x\": [1]}</tool_call><tool>ok"
                                  "<assistant>a");
    template_output_free(&out);
    template_close(t);
    apirequest_free(&r);
}

/* JSON inside of texts is bounded like the body's. */
static void test_arguments_are_bounded(void **state)
{
    struct buffer b = buffer_with_max(MEM_META, 64 << 20);
    struct api_request r;
    struct apifault fault = { 0 };
    (void)state;
    GOLDEN_OK(
        buffer_append_text(&b, "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[", err));
    for (int i = 0; i < 5; i++) {
        GOLDEN_OK(buffer_printf(&b, err, "%s{\"function\":{\"name\":\"a\",\"arguments\":\"",
                                i ? "," : ""));
        for (int k = 0; k < 1 << 20; k++) GOLDEN_OK(buffer_append(&b, "[", 1, err));
        GOLDEN_OK(buffer_append_text(&b, "\"}}", err));
    }
    GOLDEN_OK(buffer_append_text(&b, "]}]}", err));
    assert_int_not_equal(openai_read_chat(&r, (const char *)b.data, b.size, &api_no_limits, &fault),
                         ZP_OK);
    assert_string_equal(fault.message,
                        "'messages[0].tool_calls[4].function': arguments of more than "
                        "4194304 bytes in one request");
    apirequest_free(&r);
    buffer_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_calls_and_results),
        cmocka_unit_test(test_arguments_that_are_no_json),
        cmocka_unit_test(test_old_functions),
        cmocka_unit_test(test_tool_choice),
        cmocka_unit_test(test_variables_of_the_template),
        cmocka_unit_test(test_answer_that_is_begun),
        cmocka_unit_test(test_prompts),
        cmocka_unit_test(test_chats_that_are_refused),
        cmocka_unit_test(test_completions_that_are_refused),
        cmocka_unit_test(test_template_writes_the_calls),
        cmocka_unit_test(test_arguments_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
