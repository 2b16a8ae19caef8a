/* test_toolcalls.c: what models write, taken apart: calls of each style, reasoning, and texts that
 * only look like one of them; the same whatever the text was cut into. */
#include "golden.h"

#include "base/bytes.h"
#include "base/rng.h"
#include "serve/toolcalls.h"

enum { SEED = 6001, CUTS = 40 };

static const char tools_text[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\"}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"add\"}}]";

/* C content, R reasoning, F a call's name, A its arguments: pieces of a kind are joined. */
struct seen {
    struct buffer text;
    int kind;
};

static zp_status take_part(void *arg, const struct api_part *part, zp_err *err)
{
    struct seen *s = arg;
    static const char *const begins[] = { "C(", "R(", "F(", "A(" };
    assert_true(part->size > 0);
    assert_true(utf8_is_valid(part->text, part->size, NULL));
    if (s->kind != (int)part->kind || part->kind == PART_CALL) {
        if (s->kind >= 0) ZP_TRY(buffer_append(&s->text, ")", 1, err));
        ZP_TRY(buffer_append_text(&s->text, begins[part->kind], err));
    }
    s->kind = (int)part->kind;
    return buffer_append(&s->text, part->text, part->size, err);
}

struct how {
    enum toolcalls_style style;
    uint32_t most_calls;
    enum api_reasoning reasoning;
    bool in_reasoning, without_tools;
};

static struct toolcalls_options options_of(const struct how *h, const json_t *tools, struct seen *s)
{
    return (struct toolcalls_options){ .style = h->style,
                                       .tools = h->without_tools ? NULL : tools,
                                       .most_calls = h->most_calls, .reasoning = h->reasoning,
                                       .in_reasoning = h->in_reasoning,
                                       .part = take_part, .arg = s };
}

/* cuts: n_cuts offsets in order, between characters. */
static void split(const struct how *h, const json_t *tools, const char *text, const size_t *cuts,
                  size_t n_cuts, const char *expected)
{
    struct seen s = { .text = buffer_with_max(MEM_META, 1 << 20), .kind = -1 };
    struct toolcalls t;
    struct toolcalls_options o = options_of(h, tools, &s);
    size_t at = 0, size = strlen(text);
    toolcalls_open(&t, &o);
    for (size_t i = 0; i <= n_cuts; i++) {
        size_t end = i < n_cuts ? cuts[i] : size;
        char *piece = malloc(end - at + 1); /* its end is the end of a block */
        memcpy(piece, text + at, end - at);
        GOLDEN_OK(toolcalls_push(&t, piece, end - at, err));
        free(piece);
        at = end;
    }
    GOLDEN_OK(toolcalls_finish(&t, err));
    if (s.kind >= 0) GOLDEN_OK(buffer_append(&s.text, ")", 1, err));
    const char *got = s.text.size ? (const char *)s.text.data : "";
    if (strcmp(got, expected) != 0)
        fail_msg("%zu cuts of %s\n gave     %s\n expected %s", n_cuts, text, got, expected);
    buffer_free(&s.text);
    toolcalls_free(&t);
}

static bool is_boundary(const char *text, size_t at)
{
    return ((unsigned char)text[at] & 0xc0) != 0x80;
}

/* In one piece, in two cut anywhere, character by character, and cut at random. */
static void check(struct how h, const char *text, const char *expected)
{
    json_t *tools = json_loads(tools_text, 0, NULL);
    size_t size = strlen(text), n = 0, *cuts = malloc((size + 1) * sizeof *cuts);
    struct rng r = rng_stream(SEED, size);
    split(&h, tools, text, NULL, 0, expected);
    for (size_t i = 1; i < size; i++)
        if (is_boundary(text, i)) cuts[n++] = i;
    for (size_t i = 0; i < n; i++) split(&h, tools, text, &cuts[i], 1, expected);
    split(&h, tools, text, cuts, n, expected);
    for (int i = 0; i < CUTS; i++) {
        n = 0;
        for (size_t k = 1; k < size; k++)
            if (is_boundary(text, k) && rng_below(&r, 6) == 0) cuts[n++] = k;
        split(&h, tools, text, cuts, n, expected);
    }
    free(cuts);
    json_decref(tools);
}

static const struct how tagged = { .style = TOOLCALLS_TAGGED },
                        llama3 = { .style = TOOLCALLS_LLAMA3 }, json = { .style = TOOLCALLS_JSON };

static void test_style_is_seen_from_the_template(void **state)
{
    (void)state;
    assert_int_equal(toolcalls_style_of("{% if tools %}<tool_call>{{ x }}</tool_call>"),
                     TOOLCALLS_TAGGED);
    assert_int_equal(toolcalls_style_of("{{ tools }} <|python_tag|>"), TOOLCALLS_LLAMA3);
    assert_int_equal(toolcalls_style_of("<|start_header_id|> {{ tools }} 'parameters'"),
                     TOOLCALLS_LLAMA3);
    assert_int_equal(toolcalls_style_of("<|start_header_id|> {{ tools }}"), TOOLCALLS_JSON);
    assert_int_equal(toolcalls_style_of("{{ messages }}"), TOOLCALLS_TAGGED);
}

static void test_prompt_that_opens_reasoning(void **state)
{
    (void)state;
    assert_true(toolcalls_opens_reasoning("x<think>\n", 9));
    assert_true(toolcalls_opens_reasoning("<think>", 7));
    assert_false(toolcalls_opens_reasoning("<think></think>", 15));
    assert_false(toolcalls_opens_reasoning("think>", 6));
    assert_false(toolcalls_opens_reasoning("", 0));
}

static void test_plain_text_passes(void **state)
{
    (void)state;
    check(tagged, "Hello, w\xc3\xb6rld.\n\n", "C(Hello, w\xc3\xb6rld.\n\n)");
    check(llama3, "  Hi {\"name\": 1}", "C(  Hi {\"name\": 1})");
    check(json, "\nHi", "C(\nHi)");
    check(tagged, "", "");
    check(json, " \n", "C( \n)");
    check(tagged, "a <tool_cal", "C(a <tool_cal)");
    check(tagged, "a < b, a <tool_box>", "C(a < b, a <tool_box>)");
}

static void test_without_tools_nothing_is_a_call(void **state)
{
    static const char text[] = "<tool_call>{\"name\": \"add\", \"arguments\": {}}</tool_call>";
    (void)state;
    check((struct how){ .without_tools = true }, text,
          "C(<tool_call>{\"name\": \"add\", \"arguments\": {}}</tool_call>)");
    check((struct how){ .style = TOOLCALLS_JSON, .without_tools = true },
          "{\"name\": \"add\", \"arguments\": {}}", "C({\"name\": \"add\", \"arguments\": {}})");
}

static void test_tagged_calls(void **state)
{
    (void)state;
    check(tagged, "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n"
                  "</tool_call>",
          "F(get_weather)A({\"city\": \"Paris\"})");
    check(tagged,
          "Let me see.\n\n<tool_call>{\"name\":\"add\",\"arguments\":{\"a\":1,\"b\":[2,{}]}}"
          "</tool_call>\n",
          "C(Let me see.)F(add)A({\"a\":1,\"b\":[2,{}]})");
    check(tagged,
          "<tool_call>{\"name\":\"add\",\"arguments\":{}}</tool_call>\n<tool_call>\n"
          "{\"arguments\": {\"x\": \"}\\\"{\"}, \"name\": \"get_weather\"}\n</tool_call> done",
          "F(add)A({})F(get_weather)A({\"x\": \"}\\\"{\"})C( done)");
    check(tagged, "<tool_call>{\"name\": \"add\"}</tool_call>", "F(add)A({})");
    check(tagged, "<tool_call>{\"name\": \"add\", \"arguments\": null}</tool_call>", "F(add)A({})");
    check(tagged, "<tool_call>{\"type\": \"function\", \"id\": 7, \"thought\": [\"x\"], \"name\": "
                  "\"add\", \"parameters\": {\"a\": -1.5e3}, \"z\": 1 , \"name\": 2}</tool_call>",
          "F(add)A({\"a\": -1.5e3})");
    check(tagged, "<tool_call>{\"name\": \"add\", \"arguments\": {\"t\": \"\xe4\xbd\xa0\"}}"
                  "</tool_call>\xe5\xa5\xbd",
          "F(add)A({\"t\": \"\xe4\xbd\xa0\"})C(\xe5\xa5\xbd)");
}

static void test_tagged_lists(void **state)
{
    (void)state;
    check(tagged, "<tool_call>[{\"name\": \"add\", \"arguments\": {\"a\": 1}}, {\"name\": "
                  "\"get_weather\", \"arguments\": {}}]</tool_call>",
          "F(add)A({\"a\": 1})F(get_weather)A({})");
    check(tagged, "none: <tool_call>[]</tool_call>", "C(none:)");
    check(tagged, "<tool_call>[{\"name\": \"add\", \"arguments\": {}}, {\"nam\": 1}]</tool_call>!",
          "F(add)A({})C( {\"nam\": 1}]!)");
}

static void test_arguments_as_text(void **state)
{
    (void)state;
    check(tagged, "<tool_call>{\"name\": \"add\", \"arguments\": \"{\\\"a\\\": \\\"\\u00e9\\\"}\"}"
                  "</tool_call>",
          "F(add)A({\"a\": \"\xc3\xa9\"})");
    check(llama3, "{\"parameters\": \"{}\", \"name\": \"add\"}", "F(add)A({})");
    check(tagged, "<tool_call>{\"name\": \"add\", \"arguments\": \"\"}</tool_call>", "F(add)A({})");
}

static void test_control_characters_of_arguments_are_escaped(void **state)
{
    (void)state;
    check(tagged,
          "<tool_call>{\"name\": \"add\",\n\t\"arguments\": {\n \"code\": \"a\n\tb\\\"\n\"\n}}"
          "</tool_call>",
          "F(add)A({\n \"code\": \"a\\u000a\\u0009b\\\"\\u000a\"\n})");
}

static void test_what_only_looks_like_a_call_is_content(void **state)
{
    static const char *const same[] = {
        "<tool_call>{\"name\": \"nobody\", \"arguments\": {}}</tool_call>",
        "<tool_call>{\"name\": 5}</tool_call>",
        "<tool_call>{\"arguments\": {}}</tool_call>",
        "<tool_call>{\"name\": \"add\", \"arguments\": [1]}</tool_call>",
        "<tool_call>{\"name\": \"add\", \"arguments\": 5}</tool_call>",
        "<tool_call>{\"name\": \"add\", \"arguments\": \"\\x\"}</tool_call>",
        "<tool_call>{\"name\": \"add\", \"arguments\": \"\\ud800\"}</tool_call>",
        "<tool_call>{\"name\": \"add\", \"arguments\": \"{}\", \"arguments\": {}}</tool_call>",
        "<tool_call>{\"name\": \"add\", \"name\": \"add\"}</tool_call>",
        "<tool_call>get_weather(city=\"Paris\")</tool_call>",
        "<tool_call>\n<function=add>\n</function>\n</tool_call>",
        "<tool_call>{name: \"add\"}</tool_call>",
        "<tool_call>[[{\"name\": \"add\"}]]</tool_call>",
        "<tool_call>", "<tool_call> [", "<tool_call>{\"name\": \"add\"", "text <tool_call> text",
        "use <tool_call> and </tool_call> for calls",
    };
    (void)state;
    for (size_t i = 0; i < ZP_COUNT(same); i++) {
        char expected[256];
        snprintf(expected, sizeof expected, "C(%s)", same[i]);
        check(tagged, same[i], expected);
    }
    check(tagged, "<tool_call>oops <tool_call>{\"name\": \"add\"}</tool_call>",
          "C(<tool_call>oops)F(add)A({})");
}

static void test_calls_that_break_off(void **state)
{
    (void)state;
    check(tagged, "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": 1, \"b\"",
          "F(add)A({\"a\": 1, \"b\")");
    check(tagged, "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": 1}",
          "F(add)A({\"a\": 1})");
    check(tagged, "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": oh}}</tool_call> end",
          "F(add)A({\"a\": )C(oh}} end)");
    check(tagged, "<tool_call>{\"name\": \"add\", \"arguments\": {}] </tool_call><tool_call>"
                  "{\"name\": \"add\"}</tool_call>",
          "F(add)A({})C(])F(add)A({})");
    check(tagged, "<tool_call>{\"name\": \"add\", \"arguments\": {}} more</tool_call>",
          "F(add)A({})C( more</tool_call>)");
    check(json, "{\"name\": \"add\", \"arguments\": {\"a\": tru3}}",
          "F(add)A({\"a\": tru)C(3}})");
}

static void test_llama3_calls(void **state)
{
    (void)state;
    check(llama3, "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Rome\"}}",
          "F(get_weather)A({\"city\": \"Rome\"})");
    check(llama3, "\n{\"type\": \"function\", \"name\": \"add\", \"parameters\": {}}\n",
          "F(add)A({})");
    check(llama3, "Calling <|python_tag|>{\"name\": \"add\", \"parameters\": {}}",
          "C(Calling)F(add)A({})");
    check(llama3, "{\"name\": \"add\", \"parameters\": {}}; {\"name\": \"add\", \"parameters\": "
                  "{\"a\": 2}}",
          "F(add)A({})F(add)A({\"a\": 2})");
    check(llama3, "{\"name\": \"add\", \"parameters\": {}} and then {",
          "F(add)A({})C( and then {)");
    check(llama3, "<|python_tag|>print(1)", "C(<|python_tag|>print(1))");
    check(llama3, "{\"name\": \"Ann\", \"age\": 3}", "C({\"name\": \"Ann\", \"age\": 3})");
    check(llama3, "{\"name\": \"add\"}", "C({\"name\": \"add\"})");
    check(llama3, "{\"name\": \"add\", \"note\": 1, \"parameters\": {}}",
          "C({\"name\": \"add\", \"note\": 1, \"parameters\": {}})");
}

static void test_json_calls(void **state)
{
    (void)state;
    check(json, "{\"name\": \"add\", \"arguments\": {\"a\": 1}}", "F(add)A({\"a\": 1})");
    check(json, "[{\"name\": \"add\", \"arguments\": {}},\n{\"name\": \"add\", \"arguments\": {}}]",
          "F(add)A({})F(add)A({})");
    check(json, "[1, 2]", "C([1, 2])");
    check(json, "[]", "C([])");
    check(json, "{\"city\": \"Paris\"}", "C({\"city\": \"Paris\"})");
    check(json, "{}", "C({})");
}

static void test_no_more_calls_than_asked_for(void **state)
{
    (void)state;
    check((struct how){ .most_calls = 1 },
          "Hm. <tool_call>{\"name\": \"add\"}</tool_call> <tool_call>{\"name\": "
          "\"add\"}</tool_call>x",
          "C(Hm.)F(add)A({})");
    check((struct how){ .style = TOOLCALLS_JSON, .most_calls = 2 },
          "[{\"name\": \"add\", \"arguments\": {}}, {\"name\": \"add\", \"arguments\": {}}, {}]",
          "F(add)A({})F(add)A({})");
}

static void test_full_says_that_the_answer_can_end(void **state)
{
    struct seen s = { .text = buffer_with_max(MEM_META, 1 << 20), .kind = -1 };
    json_t *tools = json_loads(tools_text, 0, NULL);
    struct toolcalls_options o = options_of(&(struct how){ .most_calls = 1 }, tools, &s);
    static const char call[] = "<tool_call>{\"name\": \"add\"}";
    struct toolcalls t;
    (void)state;
    toolcalls_open(&t, &o);
    GOLDEN_OK(toolcalls_push(&t, call, sizeof call - 2, err));
    assert_false(toolcalls_is_full(&t));
    GOLDEN_OK(toolcalls_push(&t, "}", 1, err));
    assert_true(toolcalls_is_full(&t));
    toolcalls_free(&t);
    buffer_free(&s.text);
    json_decref(tools);
}

static void test_reasoning(void **state)
{
    const struct how open = { .in_reasoning = true }, hidden = { .reasoning = REASONING_HIDDEN },
                     inside = { .reasoning = REASONING_INLINE };
    (void)state;
    check(tagged, "<think>\nWell. <b> </thin \n</think>\n\nYes.", "R(Well. <b> </thin)C(Yes.)");
    check(tagged, "\n<think>a</think><tool_call>{\"name\": \"add\"}</tool_call>",
          "R(a)F(add)A({})");
    check(tagged, "<think>\n\n</think>\n\nYes", "C(Yes)");
    check(tagged, "<think>It ends ", "R(It ends )");
    check(tagged, "<thin air", "C(<thin air)");
    check(tagged, "See <think>no</think>", "C(See <think>no</think>)");
    check(tagged, "<think>a</think><think>b</think>", "R(a)C(<think>b</think>)");
    check(open, "\nSo <tool_call>.\n</think>Yes", "R(So <tool_call>.)C(Yes)");
    check(hidden, "<think>secret</think> Yes", "C(Yes)");
    check(inside, "<think>a</think>\nb", "C(<think>a</think>\nb)");
    check((struct how){ .without_tools = true }, "<think>a</think>b ", "R(a)C(b )");
    check(json, "<think>a</think>\n{\"name\": \"add\", \"arguments\": {}}", "R(a)F(add)A({})");
}

/* Text comes out when it is clear, not at the end. */
static void test_nothing_is_held_that_cannot_become_a_mark(void **state)
{
    struct seen s = { .text = buffer_with_max(MEM_META, 1 << 20), .kind = -1 };
    json_t *tools = json_loads(tools_text, 0, NULL);
    struct toolcalls_options o = options_of(&tagged, tools, &s);
    static const struct {
        const char *push, *seen;
    } steps[] = {
        { "Hel", "C(Hel" },
        { "lo <", "C(Hello" },
        { "b", "C(Hello <b" },
        { "<tool_", "C(Hello <b" },
        { "call>{\"name\": \"add\", \"arg", "C(Hello <b" },
        { "uments\": {", "C(Hello <b)F(add)A({" },
        { "\"a\": \"xy", "C(Hello <b)F(add)A({\"a\": \"xy" },
        { "z", "C(Hello <b)F(add)A({\"a\": \"xyz" },
        { "\"}", "C(Hello <b)F(add)A({\"a\": \"xyz\"}" },
        { "}", "C(Hello <b)F(add)A({\"a\": \"xyz\"}" },
    };
    struct toolcalls t;
    (void)state;
    toolcalls_open(&t, &o);
    for (size_t i = 0; i < ZP_COUNT(steps); i++) {
        GOLDEN_OK(toolcalls_push(&t, steps[i].push, strlen(steps[i].push), err));
        assert_string_equal((const char *)s.text.data, steps[i].seen);
    }
    toolcalls_free(&t);
    buffer_free(&s.text);
    json_decref(tools);
}

static void check_all_is_there(const char *text, const char *got)
{
    char expected[600];
    snprintf(expected, sizeof expected, "C(%s)", text);
    assert_string_equal(got, expected);
}

/* Any text of the alphabet of calls: wherever it is cut, the same comes out, and where nothing is a
 * call or reasoning, all of it. */
static void test_random_texts_do_not_depend_on_cuts(void **state)
{
    static const char *const words[] = { "<tool_call>",
                                         "</tool_call>",
                                         "{",
                                         "}",
                                         "[",
                                         "]",
                                         ",",
                                         ":",
                                         "\"name\"",
                                         "\"add\"",
                                         "\"arguments\"",
                                         "\"x\"",
                                         " ",
                                         "\n",
                                         "<think>",
                                         "</think>",
                                         "<|python_tag|>",
                                         "1",
                                         "null",
                                         "w",
                                         "{\"name\": \"add\", \"arguments\": {",
                                         "\\",
                                         ";" };
    struct rng r = rng_stream(SEED, 1);
    json_t *tools = json_loads(tools_text, 0, NULL);
    size_t n_plain = 0;
    (void)state;
    print_message("seed %d\n", SEED);
    for (int round = 0; round < 3000; round++) {
        char text[512] = "";
        size_t n = rng_below(&r, 14), size = 0;
        for (size_t i = 0; i < n; i++)
            size += (size_t)snprintf(text + size, sizeof text - size, "%s",
                                     words[rng_below(&r, ZP_COUNT(words))]);
        struct how h = { .style = (enum toolcalls_style)rng_below(&r, 3),
                         .most_calls = (uint32_t)rng_below(&r, 3),
                         .in_reasoning = rng_below(&r, 8) == 0 };
        struct seen s = { .text = buffer_with_max(MEM_META, 1 << 20), .kind = -1 };
        struct toolcalls_options o = options_of(&h, tools, &s);
        struct toolcalls t;
        toolcalls_open(&t, &o);
        GOLDEN_OK(toolcalls_push(&t, text, strlen(text), err));
        GOLDEN_OK(toolcalls_finish(&t, err));
        if (s.kind >= 0) GOLDEN_OK(buffer_append(&s.text, ")", 1, err));
        toolcalls_free(&t);
        const char *got = s.text.size ? (const char *)s.text.data : "";
        check(h, text, got);
        if (size && !h.in_reasoning && !strstr(text, "<think>") && !strchr(text, '[') &&
            !strstr(got, "F("))
            n_plain += 1, check_all_is_there(text, got);
        buffer_free(&s.text);
    }
    assert_true(n_plain > 500);
    json_decref(tools);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_style_is_seen_from_the_template),
        cmocka_unit_test(test_prompt_that_opens_reasoning),
        cmocka_unit_test(test_plain_text_passes),
        cmocka_unit_test(test_without_tools_nothing_is_a_call),
        cmocka_unit_test(test_tagged_calls),
        cmocka_unit_test(test_tagged_lists),
        cmocka_unit_test(test_arguments_as_text),
        cmocka_unit_test(test_control_characters_of_arguments_are_escaped),
        cmocka_unit_test(test_what_only_looks_like_a_call_is_content),
        cmocka_unit_test(test_calls_that_break_off),
        cmocka_unit_test(test_llama3_calls),
        cmocka_unit_test(test_json_calls),
        cmocka_unit_test(test_no_more_calls_than_asked_for),
        cmocka_unit_test(test_full_says_that_the_answer_can_end),
        cmocka_unit_test(test_reasoning),
        cmocka_unit_test(test_nothing_is_held_that_cannot_become_a_mark),
        cmocka_unit_test(test_random_texts_do_not_depend_on_cuts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
