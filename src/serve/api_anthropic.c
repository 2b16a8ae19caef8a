/* api_anthropic.c: requests of Anthropic's API. No state.
 * C1 the order of blocks stays: a message of several kinds becomes several of the template's
 *    messages. */
#include "serve/api_anthropic.h"

#include <string.h>

#include "base/json_tree.h"
#include "serve/apimessages.h"

/* ---- messages -------------------------------------------------------------------------------- */

/* One message on its way: what its blocks said so far. */
struct draft {
    const char *role;
    json_t *parts;     /* texts, in OpenAI's form; NULL: none yet */
    json_t *calls;
    json_t *reasoning; /* a text; NULL: none */
};

static void drop_draft(struct draft *d)
{
    json_decref(d->parts);
    json_decref(d->calls);
    json_decref(d->reasoning);
    d->parts = d->calls = d->reasoning = NULL;
}

/* Adds what there is as a message of the template. */
static zp_status flush_draft(struct apimessages *m, struct draft *d, const char *path)
{
    json_t *text = NULL;
    if (d->parts == NULL && d->calls == NULL && d->reasoning == NULL) return ZP_OK;
    if (d->parts != NULL) ZP_TRY(apimessages_text(m, d->parts, path, &text));
    else text = d->calls != NULL ? json_null() : json_string("");
    json_t *message = json_tree_put(json_object(), "role", json_string(d->role));
    message = json_tree_put(message, "content", text);
    if (d->reasoning != NULL)
        message = json_tree_put(message, "reasoning_content", json_incref(d->reasoning));
    if (d->calls != NULL) message = json_tree_put(message, "tool_calls", json_incref(d->calls));
    apimessages_add(m, message);
    drop_draft(d);
    return ZP_OK;
}

static zp_status add_text(struct apimessages *m, struct draft *d, const json_t *block,
                          const char *path)
{
    struct jsonfield_path room;
    const json_t *text = json_object_get(block, "text");
    if (!json_is_string(text))
        return apifault_expected(m->fault, jsonfield_path(&room, path, "text", 0), text, "a text");
    d->parts = json_tree_add(d->parts ? d->parts : json_array(), json_incref((json_t *)block));
    return d->parts == NULL ? apifault_no_memory(m->fault) : ZP_OK;
}

static zp_status add_call(struct apimessages *m, struct draft *d, const json_t *block,
                          const char *path)
{
    json_t *call;
    ZP_TRY(apimessages_call(m, json_object_get(block, "id"), json_object_get(block, "name"),
                            json_object_get(block, "input"), path, &call));
    d->calls = json_tree_add(d->calls ? d->calls : json_array(), call);
    return d->calls == NULL ? apifault_no_memory(m->fault) : ZP_OK;
}

static zp_status add_result(struct apimessages *m, struct draft *d, const json_t *block,
                            const char *path)
{
    ZP_TRY(flush_draft(m, d, path)); // C1
    return apimessages_result(m, json_object_get(block, "tool_use_id"),
                              json_object_get(block, "content"), path);
}

static zp_status add_thinking(struct apimessages *m, struct draft *d, const json_t *block,
                              const char *path)
{
    struct jsonfield_path room;
    const json_t *text = json_object_get(block, "thinking");
    if (!json_is_string(text))
        return apifault_expected(m->fault, jsonfield_path(&room, path, "thinking", 0), text,
                                 "a text");
    json_decref(d->reasoning);
    d->reasoning = json_incref((json_t *)text);
    return ZP_OK;
}

static zp_status read_block(struct apimessages *m, struct draft *d, const json_t *block,
                            const char *path)
{
    const json_t *type = json_object_get(block, "type");
    bool assistant = strcmp(d->role, "assistant") == 0;
    if (!json_is_string(type))
        return apifault_expected(m->fault, path, block, "an object with a type");
    if (jsonfield_is(type, "text")) return add_text(m, d, block, path);
    if (jsonfield_is(type, "tool_use") && assistant) return add_call(m, d, block, path);
    if (jsonfield_is(type, "tool_result") && !assistant) return add_result(m, d, block, path);
    if (jsonfield_is(type, "thinking") && assistant) return add_thinking(m, d, block, path);
    if (jsonfield_is(type, "redacted_thinking") && assistant) return ZP_OK;
    return apifault_unsupported(m->fault, path, "a block of type \"%.32s\" of the %s: this server "
                                "reads text, tool_use (assistant), tool_result (user) and thinking "
                                "(assistant)", json_string_value(type), d->role);
}

static zp_status read_blocks(struct apimessages *m, const json_t *content, const char *role,
                             const char *path)
{
    struct draft d = { .role = role };
    zp_status status = ZP_OK;
    for (size_t i = 0; i < json_array_size(content) && status == ZP_OK; i++) {
        struct jsonfield_path room;
        status = read_block(m, &d, json_array_get(content, i),
                            jsonfield_path(&room, path, NULL, i));
    }
    if (status == ZP_OK) status = flush_draft(m, &d, path);
    drop_draft(&d);
    return status;
}

static zp_status add_plain(struct apimessages *m, const char *role, const json_t *content,
                           const char *path)
{
    json_t *text;
    ZP_TRY(apimessages_text(m, content, path, &text));
    json_t *message = json_tree_put(json_object(), "role", json_string(role));
    apimessages_add(m, json_tree_put(message, "content", text));
    return ZP_OK;
}

static zp_status read_message(struct apimessages *m, const json_t *message, const char *path)
{
    struct jsonfield_path room;
    const json_t *role = json_object_get(message, "role"),
                 *content = json_object_get(message, "content");
    const char *name = json_string_value(role);
    if (!jsonfield_is(role, "user") && !jsonfield_is(role, "assistant") &&
        !jsonfield_is(role, "system"))
        return apifault_expected(m->fault, jsonfield_path(&room, path, "role", 0), role,
                                 "\"user\" or \"assistant\"");
    (void)jsonfield_path(&room, path, "content", 0);
    if (json_is_array(content)) return read_blocks(m, content, name, room.text);
    return add_plain(m, name, content, room.text);
}

/* An answer that was begun: the last message is the assistant's, a text. */
static bool is_begun(const json_t *messages)
{
    const json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    return jsonfield_is(json_object_get(last, "role"), "assistant") &&
           json_is_string(json_object_get(last, "content")) &&
           json_object_get(last, "tool_calls") == NULL;
}

static zp_status read_messages(struct api_request *r, struct apifault *fault)
{
    const json_t *messages = apirequest_get(r, "messages"), *system = apirequest_get(r, "system");
    if (json_array_size(messages) == 0)
        return apifault_expected(fault, "messages", messages, "a list of at least one message");
    struct apimessages m = apimessages_open(r, fault);
    zp_status status = system == NULL ? ZP_OK : add_plain(&m, "system", system, "system");
    for (size_t i = 0; i < json_array_size(messages) && status == ZP_OK; i++) {
        struct jsonfield_path room;
        status = read_message(&m, json_array_get(messages, i),
                              jsonfield_path(&room, "messages", NULL, i));
    }
    if (status == ZP_OK) status = apimessages_finish(&m, is_begun(m.list));
    apimessages_close(&m);
    return status;
}

/* ---- tools ----------------------------------------------------------------------------------- */

/* {"name", "description", "input_schema"} in OpenAI's form. */
static zp_status read_tool(struct api_request *r, const json_t *tool, const char *path,
                           struct apifault *fault)
{
    struct jsonfield_path room;
    const json_t *type = json_object_get(tool, "type");
    json_t *name = json_object_get(tool, "name"),
           *description = json_object_get(tool, "description"),
           *schema = json_object_get(tool, "input_schema");
    if (!json_is_object(tool)) return apifault_expected(fault, path, tool, "an object with a name");
    if (type != NULL && !json_is_null(type) && !jsonfield_is(type, "custom"))
        return apifault_unsupported(fault, jsonfield_path(&room, path, "type", 0),
                                    "this server has no tools of its own: only type \"custom\"");
    if (!json_is_object(schema))
        return apifault_expected(fault, jsonfield_path(&room, path, "input_schema", 0), schema,
                                 "a JSON Schema");
    json_t *function = json_object();
    if (name != NULL) function = json_tree_put(function, "name", json_incref(name));
    if (description != NULL)
        function = json_tree_put(function, "description", json_incref(description));
    function = json_tree_put(function, "parameters", json_incref(schema));
    json_t *out = json_tree_put(json_object(), "type", json_string("function"));
    return apimessages_add_tool(r, json_tree_put(out, "function", function), path, fault);
}

static zp_status read_tools(struct api_request *r, struct apifault *fault)
{
    const json_t *list = apirequest_get(r, "tools");
    if (list != NULL && !json_is_array(list))
        return apifault_expected(fault, "tools", list, "a list of tools");
    for (size_t i = 0; i < json_array_size(list); i++) {
        struct jsonfield_path room;
        ZP_TRY(read_tool(r, json_array_get(list, i), jsonfield_path(&room, "tools", NULL, i),
                         fault));
    }
    return ZP_OK;
}

static zp_status read_tool_choice(struct api_request *r, struct apifault *fault)
{
    static const char *const types[] = { "auto", "none", "any", "tool", NULL };
    static const enum api_tool_choice choices[] = { TOOLS_AUTO, TOOLS_NONE, TOOLS_REQUIRED,
                                                    TOOLS_NAMED };
    struct read { int type; bool one; } read = { 0 };
    static const struct jsonfield rows[] = {
        { .name = "type", .kind = FIELD_NAME, .sets = 1, .names = types },
        { .name = "disable_parallel_tool_use", .kind = FIELD_BOOL, .sets = 1,
          .at = offsetof(struct read, one) },
    };
    const json_t *value = apirequest_get(r, "tool_choice");
    if (value != NULL && (!json_is_object(value) || !json_object_get(value, "type")))
        return apifault_expected(fault, "tool_choice", value,
                                 "an object with type \"auto\", \"any\", \"tool\" or \"none\"");
    ZP_TRY(jsonfield_read(rows, ZP_COUNT(rows), 1, value, "tool_choice", &read, NULL, fault));
    r->one_call = read.one;
    return apimessages_choose_tool(r, choices[read.type], json_object_get(value, "name"),
                                   "tool_choice", fault);
}

/* ---- requests -------------------------------------------------------------------------------- */

/* Thinking that was not asked for is not shown: clients take the first block for the answer. */
static zp_status read_thinking(struct api_request *r, struct apifault *fault)
{
    const json_t *value = apirequest_get(r, "thinking");
    const json_t *type = json_object_get(value, "type");
    if (value != NULL && !json_is_string(type))
        return apifault_expected(fault, "thinking", value, "an object with a type");
    r->thinking = type != NULL && !jsonfield_is(type, "disabled");
    if (!r->thinking && apirequest_get(r, "reasoning_format") == NULL)
        r->reasoning = REASONING_HIDDEN;
    return ZP_OK;
}

/* {"user_id": ...} */
static zp_status read_user(struct api_request *r, struct apifault *fault)
{
    static const struct jsonfield row = { .name = "user_id", .kind = FIELD_TEXT, .sets = 1,
                                          .most = 1024 };
    return jsonfield_read(&row, 1, 1, r->metadata, "metadata", &r->user, NULL, fault);
}

zp_status anthropic_read_messages(struct api_request *r, const char *body, size_t size,
                                  const struct api_limits *limits, struct apifault *fault)
{
    ZP_TRY(apirequest_open(r, SET_MESSAGES, body, size, limits, fault));
    ZP_TRY(read_thinking(r, fault));
    ZP_TRY(read_user(r, fault));
    ZP_TRY(read_tools(r, fault));
    ZP_TRY(read_tool_choice(r, fault));
    return read_messages(r, fault);
}
