/* test_apireply_sums.c: what a client makes of a stream, piece by piece, is the whole answer,
 * whatever the model wrote and however it was cut. */
#include "reply_fixture.h"

#include "base/rng.h"

enum { SEED = 6105 };

/* What a client has made of a stream so far. */
struct client {
    json_t *content; /* a list of blocks in Anthropic's form, arguments as text */
    const json_t *finish;
    json_t *last; /* keeps finish */
};

static json_t *last_of(json_t *list)
{
    return json_array_get(list, json_array_size(list) - 1);
}

static void add_to(json_t *block, const char *key, const json_t *text)
{
    const char *had = json_string_value(json_object_get(block, key));
    json_object_set_new(block, key, json_sprintf("%s%s", had ? had : "", json_string_value(text)));
}


/* An event of OpenAI's chat; texts before, between and behind calls become one, as in `content`. */
static void take_chat(struct client *c, json_t *event)
{
    const json_t *choice = json_array_get(json_object_get(event, "choices"), 0),
                 *delta = json_object_get(choice, "delta"),
                 *call = json_array_get(json_object_get(delta, "tool_calls"), 0),
                 *function = json_object_get(call, "function"),
                 *name = json_object_get(function, "name");
    json_t *answer = json_array_get(c->content, 0);
    if (json_object_get(delta, "content") && json_string_length(json_object_get(delta, "content")))
        add_to(answer, "content", json_object_get(delta, "content"));
    if (json_object_get(delta, "reasoning_content"))
        add_to(answer, "reasoning_content", json_object_get(delta, "reasoning_content"));
    json_t *list = json_object_get(answer, "tool_calls");
    if (name != NULL)
        json_array_append_new(list, json_pack("{s:O, s:O, s:{s:O, s:s}}", "id",
                                              json_object_get(call, "id"), "type",
                                              json_object_get(call, "type"), "function", "name",
                                              name, "arguments", ""));
    if (call != NULL) {
        assert_int_equal(json_integer_value(json_object_get(call, "index")),
                         json_array_size(list) - 1);
        add_to(json_object_get(last_of(list), "function"), "arguments",
               json_object_get(function, "arguments"));
    }
    const json_t *finish = json_object_get(choice, "finish_reason");
    if (!json_is_null(finish) && finish != NULL) {
        assert_null(c->finish);
        c->finish = finish, c->last = json_incref(event);
    }
}

static void take_message(struct client *c, json_t *event)
{
    const json_t *delta = json_object_get(event, "delta"),
                 *index = json_object_get(event, "index");
    if (json_object_get(event, "content_block") != NULL) {
        assert_int_equal(json_integer_value(index), json_array_size(c->content));
        json_array_append(c->content, json_object_get(event, "content_block"));
    } else if (index != NULL && delta != NULL) {
        assert_int_equal(json_integer_value(index), json_array_size(c->content) - 1);
        if (json_object_get(delta, "text"))
            add_to(last_of(c->content), "text", json_object_get(delta, "text"));
        if (json_object_get(delta, "thinking"))
            add_to(last_of(c->content), "thinking", json_object_get(delta, "thinking"));
        if (json_object_get(delta, "partial_json"))
            add_to(last_of(c->content), "partial", json_object_get(delta, "partial_json"));
    } else if (delta != NULL) {
        c->finish = json_object_get(delta, "stop_reason"), c->last = json_incref(event);
    }
}

/* What the arguments' pieces are together, as clients read them at the end of a block. */
static void end_blocks(struct client *c)
{
    for (size_t i = 0; i < json_array_size(c->content); i++) {
        json_t *block = json_array_get(c->content, i), *text = json_object_get(block, "partial");
        if (text == NULL) continue;
        json_t *value = json_loads(json_string_value(text), 0, NULL);
        if (!json_is_object(value)) {
            json_decref(value);
            value = json_pack("{s:O}", "INVALID_JSON", text);
        }
        json_object_set_new(block, "input", value);
        json_object_del(block, "partial");
    }
}

static void read_stream(struct client *c, const char *text, bool anthropic)
{
    const char *data;
    while ((data = strstr(text, "data: ")) != NULL) {
        const char *end = strstr(data, "\n\n");
        json_t *event = json_loadb(data + 6, (size_t)(end - data - 6), 0, NULL);
        text = end;
        if (event == NULL) { /* [DONE] */
            assert_memory_equal(data + 6, "[DONE]", 6);
            assert_true(!anthropic && end[2] == '\0');
            continue;
        }
        if (anthropic) take_message(c, event);
        else take_chat(c, event);
        json_decref(event);
    }
    if (anthropic) end_blocks(c);
}

static void same(const json_t *a, const json_t *b, const char *text)
{
    if (json_equal(a, b)) return;
    char *x = json_dumps(a, JSON_ENCODE_ANY), *y = json_dumps(b, JSON_ENCODE_ANY);
    fail_msg("of %s\n the stream gives %s\n the whole is     %s", text, x, y);
}

/* The text in pieces of at most `step` bytes. */
static void feed(struct flow *f, const char *text, size_t step)
{
    char piece[64];
    accepted(f);
    for (size_t at = 0; text[at] != '\0' && f->a.state == REPLY_RUNS; at += strlen(piece)) {
        snprintf(piece, step + 1 < sizeof piece ? step + 1 : sizeof piece, "%s", text + at);
        token(f, 0, 0, piece);
    }
    if (f->a.state == REPLY_FULL) over(f, 0, SCHED_CANCELLED);
    else ended(f, 0, 0, "end"), over(f, 0, SCHED_DONE);
    assert_int_equal(f->a.state, REPLY_ENDED);
    GOLDEN_OK(apireply_finish(&f->a, &f->out, err));
}

static void compare_chat(const char *text, enum toolcalls_style style, size_t step)
{
    struct flow stream, whole;
    struct client c = { .content = json_pack("[{s:[]}]", "tool_calls") };
    const struct apireply_options o = { .style = style };
    open_with(&stream, openai_read_chat, "{" HI "," TOOLS_C ",`stream`:true}", o);
    open_with(&whole, openai_read_chat, "{" HI "," TOOLS_C "}", o);
    feed(&stream, text, step);
    feed(&whole, text, 60);
    read_stream(&c, (const char *)stream.out.data, false);
    json_t *answer = json_loadb((const char *)whole.out.data, whole.out.size, 0, NULL);
    json_t *choice = json_array_get(json_object_get(answer, "choices"), 0),
           *message = json_object_get(choice, "message"), *sum = json_array_get(c.content, 0);
    json_object_del(message, "role");
    json_object_del(message, "refusal");
    if (json_array_size(json_object_get(sum, "tool_calls")) == 0) {
        json_object_del(sum, "tool_calls");
        if (!json_object_get(sum, "content")) json_object_set_new(sum, "content", json_string(""));
    } else if (!json_object_get(sum, "content")) {
        json_object_set_new(sum, "content", json_null());
    }
    same(sum, message, text);
    same(c.finish, json_object_get(choice, "finish_reason"), text);
    json_decref(answer);
    json_decref(c.content);
    json_decref(c.last);
    close_flow(&stream);
    close_flow(&whole);
}

static void compare_messages(const char *text, enum toolcalls_style style, size_t step)
{
    struct flow stream, whole;
    struct client c = { .content = json_array() };
    const struct apireply_options o = { .style = style };
#define THINK ",`thinking`:{`type`:`enabled`}"
    open_with(&stream, anthropic_read_messages, "{" HI "," TOOLS_M THINK ",`stream`:true}", o);
    open_with(&whole, anthropic_read_messages, "{" HI "," TOOLS_M THINK "}", o);
    feed(&stream, text, step);
    feed(&whole, text, 60);
    read_stream(&c, (const char *)stream.out.data, true);
    json_t *answer = json_loadb((const char *)whole.out.data, whole.out.size, 0, NULL);
    same(c.content, json_object_get(answer, "content"), text);
    same(c.finish, json_object_get(answer, "stop_reason"), text);
    json_decref(answer);
    json_decref(c.content);
    json_decref(c.last);
    close_flow(&stream);
    close_flow(&whole);
}

static void test_streams_add_up_to_whole_answers(void **state)
{
    static const char *const words[] = {
        "<tool_call>",
        "</tool_call>",
        "<think>",
        "</think>",
        "{\"name\": \"a\", \"arguments\": {",
        "{\"name\": \"b\", \"parameters\": {\"k\": [1, \"v\"]}}",
        "{\"name\": \"a\"}",
        "}",
        "[",
        "]",
        "\"x\": 1",
        ",",
        " ",
        "\n",
        "word",
        "\t",
        "\"",
        "<|python_tag|>",
        ";",
        "<tool_call>\n{\"name\": \"a\", \"arguments\": {\"x\": \"y\nz\"}}\n</tool_call>",
    };
    struct rng r = rng_stream(SEED, 0);
    (void)state;
    print_message("seed %d\n", SEED);
    for (int round = 0; round < 1500; round++) {
        char text[1024] = "";
        size_t n = rng_below(&r, 10), size = 0, step = 1 + rng_below(&r, 30);
        enum toolcalls_style style = (enum toolcalls_style)rng_below(&r, 3);
        for (size_t i = 0; i < n; i++)
            size += (size_t)snprintf(text + size, sizeof text - size, "%s",
                                     words[rng_below(&r, ZP_COUNT(words))]);
        compare_chat(text, style, step);
        compare_messages(text, style, step);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_streams_add_up_to_whole_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
