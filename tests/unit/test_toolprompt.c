/* test_toolprompt.c: tools for templates that know nothing of them. */
#include "api_fixture.h"

#include "serve/toolprompt.h"

#define HI "{`role`:`user`,`content`:`Hi`}"
#define TOOLS                                                                                      \
    "`tools`:[{`type`:`function`,`function`:{`name`:`a`}},{`type`:`function`,`function`:"          \
    "{`name`:`b`,`description`:`B`}}]"
#define WORDS                                                                                      \
    "You may call functions. Each is described by one JSON object between <tools> and "            \
    "</tools>:\\n<tools>\\n{\\`name\\`: \\`a\\`}\\n{\\`name\\`: \\`b\\`, "                         \
    "\\`description\\`: \\`B\\`}\\n</tools>\\nTo call a function, write its name and its "         \
    "arguments as a JSON object between <tool_call> and </tool_call>, once for each "              \
    "call:\\n<tool_call>\\n{\\`name\\`: \\`the function's name\\`, \\`arguments\\`: "              \
    "{\\`an argument\\`: \\`its value\\`}}\\n</tool_call>\\nResults come between "                 \
    "<tool_response> and </tool_response>. Where no function helps, answer without one."

static void becomes(const char *before, const char *after)
{
    char *text = api_json(before), *want = api_json(after);
    json_t *input = json_loads(text, 0, NULL);
    assert_non_null(input);
    GOLDEN_OK(toolprompt_apply(input, err));
    char *got = json_dumps(input, JSON_COMPACT);
    assert_string_equal(got, want);
    free(got);
    free(want);
    free(text);
    json_decref(input);
}

static void test_tools_are_described_to_the_system(void **state)
{
    (void)state;
    becomes("{`messages`:[" HI "]," TOOLS ",`x`:1}",
            "{`messages`:[{`role`:`system`,`content`:`" WORDS "`}," HI "],`x`:1}");
    becomes("{`messages`:[{`role`:`system`,`content`:`S`}," HI "]," TOOLS "}",
            "{`messages`:[{`role`:`system`,`content`:`S\\n\\n" WORDS "`}," HI "]}");
}

static void test_calls_and_results_become_messages(void **state)
{
    (void)state;
    becomes(
        "{`messages`:[" HI ",{`role`:`assistant`,`content`:`See:`,`tool_calls`:[{`id`:`1`,`type`:"
        "`function`,`function`:{`name`:`a`,`arguments`:{`x`:1}}},{`type`:`function`,`function`:"
        "{`name`:`b`,`arguments`:{}}}]},{`role`:`tool`,`name`:`a`,`tool_call_id`:`1`,`content`:"
        "`one`},{`role`:`tool`,`tool_call_id`:`2`,`content`:`two`},{`role`:`user`,`content`:"
        "`Go on`},{`role`:`assistant`,`content`:null,`tool_calls`:[{`type`:`function`,"
        "`function`:{`name`:`b`,`arguments`:{}}}]},{`role`:`tool`,`tool_call_id`:`3`,"
        "`content`:``}]}",
        "{`messages`:[" HI ",{`role`:`assistant`,`content`:`See:\\n<tool_call>\\n{\\`name\\`: "
        "\\`a\\`, \\`arguments\\`: {\\`x\\`: 1}}\\n</tool_call>\\n<tool_call>\\n{\\`name\\`: "
        "\\`b\\`, \\`arguments\\`: {}}\\n</tool_call>`},{`role`:`user`,`content`:"
        "`<tool_response>\\none\\n</tool_response>\\n<tool_response>\\ntwo\\n</tool_response>\\n"
        "Go on`},{`role`:`assistant`,`content`:`<tool_call>\\n{\\`name\\`: \\`b\\`, "
        "\\`arguments\\`: {}}\\n</tool_call>`},{`role`:`user`,`content`:`<tool_response>\\n\\n"
        "</tool_response>`}]}");
}

static void test_nothing_else_changes(void **state)
{
    (void)state;
    becomes("{`messages`:[{`role`:`system`,`content`:`S`}," HI "," HI ",{`role`:`assistant`,"
            "`content`:`x`,`reasoning_content`:`r`}],`add_generation_prompt`:true}",
            "{`messages`:[{`role`:`system`,`content`:`S`}," HI "," HI ",{`role`:`assistant`,"
            "`content`:`x`,`reasoning_content`:`r`}],`add_generation_prompt`:true}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tools_are_described_to_the_system),
        cmocka_unit_test(test_calls_and_results_become_messages),
        cmocka_unit_test(test_nothing_else_changes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
