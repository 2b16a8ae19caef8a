/* toolprompt.c: tools, calls and results in words.
 * The form is the tagged one of toolcalls.h, which small instruction models have mostly seen.
 * P1 afterwards no message has the role tool or tool_calls, and no two of the user follow each
 *    other because of it: templates may want roles to alternate. */
#include "serve/toolprompt.h"

#include "base/json_tree.h"
#include "model/json_write.h"
#include "serve/jsonfield.h"

#define MOST_TEXT ((size_t)64 << 20)

static const char intro[] =
    "You may call functions. Each is described by one JSON object between <tools> and </tools>:\n"
    "<tools>\n";
static const char outro[] =
    "</tools>\n"
    "To call a function, write its name and its arguments as a JSON object between <tool_call> and "
    "</tool_call>, once for each call:\n"
    "<tool_call>\n"
    "{\"name\": \"the function's name\", \"arguments\": {\"an argument\": \"its value\"}}\n"
    "</tool_call>\n"
    "Results come between <tool_response> and </tool_response>. Where no function helps, answer "
    "without one.";

/* text: NULL is none. */
static zp_status add(struct buffer *b, const char *text, zp_err *err)
{
    return buffer_append_text(b, text != NULL ? text : "", err);
}

/* {"name": ..., "arguments": ...} on a line; the description of a tool is its function. */
static zp_status add_json(struct buffer *b, const json_t *value, zp_err *err)
{
    ZP_TRY(json_write_text(value, 0, b, err));
    return add(b, "\n", err);
}

static zp_status write_tools(const json_t *tools, struct buffer *b, zp_err *err)
{
    ZP_TRY(add(b, intro, err));
    for (size_t i = 0; i < json_array_size(tools); i++)
        ZP_TRY(add_json(b, json_object_get(json_array_get(tools, i), "function"), err));
    return add(b, outro, err);
}

static zp_status write_calls(const json_t *message, struct buffer *b, zp_err *err)
{
    const json_t *content = json_object_get(message, "content"),
                 *calls = json_object_get(message, "tool_calls");
    if (json_string_length(content) != 0) {
        ZP_TRY(add(b, json_string_value(content), err));
        ZP_TRY(add(b, "\n", err));
    }
    for (size_t i = 0; i < json_array_size(calls); i++) {
        ZP_TRY(add(b, i ? "\n<tool_call>\n" : "<tool_call>\n", err));
        ZP_TRY(add_json(b, json_object_get(json_array_get(calls, i), "function"), err));
        ZP_TRY(add(b, "</tool_call>", err));
    }
    return ZP_OK;
}

static zp_status write_result(const json_t *message, struct buffer *b, zp_err *err)
{
    ZP_TRY(add(b, "<tool_response>\n", err));
    ZP_TRY(add(b, json_string_value(json_object_get(message, "content")), err));
    return add(b, "\n</tool_response>", err);
}

/* ---- messages -------------------------------------------------------------------------------- */

static bool has_role(const json_t *message, const char *role)
{
    return jsonfield_is(json_object_get(message, "role"), role);
}

/* Adds a copy with another role and content; NULL: a message that has nothing else. */
static zp_status add_changed(json_t *list, const json_t *message, const char *role,
                             const struct buffer *b, zp_err *err)
{
    json_t *copy = message != NULL ? json_tree_copy(message) : json_object();
    (void)json_object_del(copy, "tool_calls");
    (void)json_object_del(copy, "tool_call_id");
    if (has_role(message, "tool")) (void)json_object_del(copy, "name"); /* not the user's */
    copy = json_tree_put(copy, "role", json_string(role));
    copy = json_tree_put(copy, "content", json_stringn((const char *)b->data, b->size));
    bool added = copy != NULL && json_array_append(list, copy) == 0;
    json_decref(copy);
    ZP_FAIL_IF(!added, err, ZP_NO_MEMORY, "not enough memory for a message");
    return ZP_OK;
}

/* Results from message i on, and what the user says behind them (P1). *next: the message behind. */
static zp_status add_results(json_t *list, const json_t *messages, size_t i, size_t *next,
                             struct buffer *b, zp_err *err)
{
    const json_t *first = json_array_get(messages, i), *message = first;
    for (; has_role(message, "tool"); message = json_array_get(messages, ++i)) {
        if (message != first) ZP_TRY(add(b, "\n", err));
        ZP_TRY(write_result(message, b, err));
    }
    if (has_role(message, "user")) {
        ZP_TRY(add(b, "\n", err));
        ZP_TRY(add(b, json_string_value(json_object_get(message, "content")), err));
        i++;
    }
    *next = i;
    return add_changed(list, first, "user", b, err);
}

static zp_status add_message(json_t *list, json_t *message, struct buffer *b, zp_err *err)
{
    if (json_object_get(message, "tool_calls") != NULL) {
        ZP_TRY(write_calls(message, b, err));
        return add_changed(list, message, "assistant", b, err);
    }
    ZP_FAIL_IF(json_array_append(list, message) != 0, err, ZP_NO_MEMORY,
               "not enough memory for a message");
    return ZP_OK;
}

/* The text behind that of the system's message, or in one of its own. */
static zp_status add_system(json_t *list, const json_t *messages, const json_t *tools,
                            struct buffer *b, zp_err *err)
{
    const json_t *first = json_array_get(messages, 0);
    bool own = has_role(first, "system");
    if (own) {
        ZP_TRY(add(b, json_string_value(json_object_get(first, "content")), err));
        ZP_TRY(add(b, "\n\n", err));
    }
    ZP_TRY(write_tools(tools, b, err));
    return add_changed(list, own ? first : NULL, "system", b, err);
}

static zp_status rewrite(json_t *list, const json_t *messages, const json_t *tools,
                         struct buffer *b, zp_err *err)
{
    size_t i = 0;
    if (json_array_size(tools) != 0) {
        ZP_TRY(add_system(list, messages, tools, b, err));
        i = has_role(json_array_get(messages, 0), "system");
    }
    while (i < json_array_size(messages)) {
        json_t *message = json_array_get(messages, i);
        buffer_clear(b);
        if (has_role(message, "tool")) {
            ZP_TRY(add_results(list, messages, i, &i, b, err));
        } else {
            ZP_TRY(add_message(list, message, b, err));
            i++;
        }
    }
    return ZP_OK;
}

zp_status toolprompt_apply(json_t *input, zp_err *err)
{
    struct buffer b = buffer_with_max(MEM_SERVE, MOST_TEXT);
    json_t *list = json_array();
    zp_status status = list == NULL ? ZP_NO_MEMORY
                                    : rewrite(list, json_object_get(input, "messages"),
                                              json_object_get(input, "tools"), &b, err);
    buffer_free(&b);
    (void)json_object_del(input, "tools");
    if (status == ZP_OK && json_object_set_new(input, "messages", list) == 0) return ZP_OK;
    if (status != ZP_OK) json_decref(list);
    ZP_FAIL(err, status == ZP_OK ? ZP_NO_MEMORY : status, "not enough memory for the messages");
}
