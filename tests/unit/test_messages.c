/* test_messages.c: the input of a chat template: both forms, and errors that name the place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "model/messages.h"

static json_t *read_ok(const char *text)
{
    json_t *input;
    zp_err err = { 0 };
    if (messages_read(text, strlen(text), "f.json", &input, &err) != ZP_OK)
        fail_msg("%s: %s", text, err.message);
    return input;
}

static void assert_refused(const char *text, zp_status code, const char *message)
{
    json_t *input;
    zp_err err = { 0 };
    assert_int_equal(messages_read(text, strlen(text), "f.json", &input, &err), code);
    assert_null(input);
    if (strcmp(err.message, message) != 0)
        fail_msg("%s\n  found    %s\n  expected %s", text, err.message, message);
}

static void test_bare_array_and_object_give_the_same(void **state)
{
    (void)state;
    json_t *a = read_ok("[{\"role\": \"user\", \"content\": \"x\"}]");
    json_t *b = read_ok("{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}]}");
    assert_true(json_equal(a, b));
    json_decref(a);
    json_decref(b);
}

static void test_all_forms_in_use_are_accepted(void **state)
{
    (void)state;
    static const char *const good[] = {
        "[{\"role\": \"system\", \"content\": \"\"}, {\"role\": \"user\", \"content\": [{\"type\": "
        "\"text\", "
        "\"text\": \"a\"}, {\"type\": \"image\"}]}]",
        "[{\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"id\": \"1\", \"type\": "
        "\"function\", "
        "\"function\": {\"name\": \"f\", \"arguments\": {}}}]}, {\"role\": \"tool\", \"content\": "
        "\"3\"}]",
        "[{\"role\": \"assistant\", \"tool_calls\": [{\"name\": \"f\", \"arguments\": \"{}\"}]}]",
        "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}], \"tools\": null, "
        "\"add_generation_prompt\": false}",
        "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}], \"tools\": [{\"type\": "
        "\"function\", \"function\": "
        "{\"name\": \"f\"}}, {\"name\": \"g\"}], \"enable_thinking\": true}",
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) json_decref(read_ok(good[i]));
}

static void test_errors_name_the_place(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } bad[] = {
        { "{}", "f.json: messages is missing, expected an array of at least one message" },
        { "[]", "f.json: messages is an empty array, expected an array of at least one message" },
        { "{\"messages\": {}}",
          "f.json: messages is an object, expected an array of at least one message" },
        { "[\"x\"]", "f.json: messages[0] is a text, expected an object with role and content" },
        { "[{\"content\": \"x\"}]", "f.json: messages[0].role is missing, expected \"system\", "
                                    "\"user\", \"assistant\" or \"tool\"" },
        { "[{\"role\": 1.5, \"content\": \"x\"}]",
          "f.json: messages[0].role is 1.5, expected \"system\", \"user\", \"assistant\" or "
          "\"tool\"" },
        { "[{\"role\": \"\", \"content\": \"x\"}]",
          "f.json: messages[0].role is an empty text, expected \"system\", \"user\", \"assistant\" "
          "or \"tool\"" },
        { "[{\"role\": \"user\", \"content\": \"x\"}, {\"role\": \"user\"}]",
          "f.json: messages[1].content is missing, expected a text or an array of parts" },
        { "[{\"role\": \"user\", \"content\": null}]",
          "f.json: messages[0].content is null, expected a text or an array of parts" },
        { "[{\"role\": \"user\", \"content\": true}]",
          "f.json: messages[0].content is true, expected a text or an array of parts" },
        { "[{\"role\": \"user\", \"content\": [\"x\"]}]",
          "f.json: messages[0].content[0] is a text, expected an object with type and text" },
        { "[{\"role\": \"user\", \"content\": [{\"text\": \"x\"}]}]",
          "f.json: messages[0].content[0].type is missing, expected a text such as \"text\"" },
        { "[{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"\"}, {\"type\": "
          "\"text\"}]}]",
          "f.json: messages[0].content[1].text is missing, expected a text" },
        { "[{\"role\": \"a\", \"tool_calls\": {}}]",
          "f.json: messages[0].tool_calls is an object, expected an array" },
        { "[{\"role\": \"a\", \"tool_calls\": [1]}]",
          "f.json: messages[0].tool_calls[0] is 1, expected an object" },
        { "[{\"role\": \"a\", \"tool_calls\": [{\"function\": {}}]}]",
          "f.json: messages[0].tool_calls[0].function.name is missing, expected a text" },
        { "[{\"role\": \"a\", \"tool_calls\": [{\"function\": \"f\"}]}]",
          "f.json: messages[0].tool_calls[0].function is a text, expected an object with a name" },
        { "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}], \"tools\": [{\"type\": "
          "\"function\"}]}",
          "f.json: tools[0].function is missing, expected an object with a name" },
        { "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}], \"tools\": [{}]}",
          "f.json: tools[0].name is missing, expected a text" },
        { "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}], \"tools\": \"f\"}",
          "f.json: tools is a text, expected an array" },
        { "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}], \"add_generation_prompt\": "
          "1}",
          "f.json: add_generation_prompt is 1, expected true or false" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_refused(bad[i].text, ZP_BAD_INPUT, bad[i].message);
}

static void test_other_input_than_an_object_is_refused(void **state)
{
    (void)state;
    json_t *five = json_integer(5);
    zp_err err = { 0 };
    assert_int_equal(messages_check(five, "the input", &err), ZP_BAD_INPUT);
    assert_string_equal(err.message, "the input is 5, expected an object or an array of messages");
    json_decref(five);
}

static void test_broken_json_names_line_and_column(void **state)
{
    (void)state;
    json_t *input;
    zp_err err = { 0 };
    const char *text = "[\n  {\"role\": }\n]";
    assert_int_equal(messages_read(text, strlen(text), "f.json", &input, &err), ZP_BAD_FILE);
    assert_non_null(strstr(err.message, "f.json"));
    assert_non_null(strstr(err.message, "line 2"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bare_array_and_object_give_the_same),
        cmocka_unit_test(test_all_forms_in_use_are_accepted),
        cmocka_unit_test(test_errors_name_the_place),
        cmocka_unit_test(test_other_input_than_an_object_is_refused),
        cmocka_unit_test(test_broken_json_names_line_and_column),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
