/* api_openai.c: requests of OpenAI's API for answers. No state.
 * O1 what old clients say (functions, function_call, the role function) means the same as tools. */
#include "serve/api_openai.h"

#include "base/json_tree.h"
#include "serve/apimessages.h"

/* ---- messages -------------------------------------------------------------------------------- */

/* {"id", "type", "function": {"name", "arguments"}} */
static zp_status read_call(struct apimessages *m, const json_t *call, const char *path,
                           json_t **out)
{
    struct jsonfield_path room;
    const json_t *function = json_object_get(call, "function"), *id = json_object_get(call, "id");
    if (!json_is_object(function))
        return apifault_expected(m->fault, jsonfield_path(&room, path, "function", 0), function,
                                 "an object with name and arguments");
    return apimessages_call(m, json_is_null(id) ? NULL : id, json_object_get(function, "name"),
                            json_object_get(function, "arguments"),
                            jsonfield_path(&room, path, "function", 0), out);
}

static zp_status read_calls(struct apimessages *m, const json_t *calls, const char *path,
                            json_t **out)
{
    *out = NULL;
    if (!json_is_array(calls)) return apifault_expected(m->fault, path, calls, "a list of calls");
    json_t *list = json_array();
    for (size_t i = 0; i < json_array_size(calls); i++) {
        struct jsonfield_path room;
        json_t *call;
        zp_status status = read_call(m, json_array_get(calls, i),
                                     jsonfield_path(&room, path, NULL, i), &call);
        if (status != ZP_OK) {
            json_decref(list);
            return status;
        }
        list = json_tree_add(list, call);
    }
    *out = list;
    return list == NULL ? apifault_no_memory(m->fault) : ZP_OK;
}

/* An old client's call (O1): its name is its id. */
static zp_status read_old_call(struct apimessages *m, const json_t *call, const char *path,
                               json_t **out)
{
    const json_t *name = json_object_get(call, "name");
    json_t *one;
    *out = NULL;
    ZP_TRY(apimessages_call(m, name, name, json_object_get(call, "arguments"), path, &one));
    *out = json_tree_add(json_array(), one);
    return *out == NULL ? apifault_no_memory(m->fault) : ZP_OK;
}

/* The calls of a message, NULL where it has none. */
static zp_status read_any_calls(struct apimessages *m, const json_t *message, const char *path,
                                json_t **out)
{
    struct jsonfield_path room;
    const json_t *calls = json_object_get(message, "tool_calls"),
                 *old = json_object_get(message, "function_call");
    *out = NULL;
    if (calls != NULL && !json_is_null(calls) && !(json_is_array(calls) && !json_array_size(calls)))
        return read_calls(m, calls, jsonfield_path(&room, path, "tool_calls", 0), out);
    if (old != NULL && !json_is_null(old))
        return read_old_call(m, old, jsonfield_path(&room, path, "function_call", 0), out);
    return ZP_OK;
}

/* Any message but a result: a copy, so that members that only a template knows come through. */
static zp_status read_plain(struct apimessages *m, const json_t *message, const char *path)
{
    struct jsonfield_path room;
    const json_t *content = json_object_get(message, "content"),
                 *role = json_object_get(message, "role");
    json_t *calls, *text = NULL;
    ZP_TRY(read_any_calls(m, message, path, &calls));
    if (calls == NULL || (content != NULL && !json_is_null(content))) {
        zp_status status = apimessages_text(m, content, jsonfield_path(&room, path, "content", 0),
                                            &text);
        if (status != ZP_OK) {
            json_decref(calls);
            return status;
        }
    }
    json_t *copy = json_tree_copy(message);
    (void)json_object_del(copy, "function_call");
    (void)json_object_del(copy, "tool_calls");
    if (jsonfield_is(role, "developer")) copy = json_tree_put(copy, "role", json_string("system"));
    if (text != NULL) copy = json_tree_put(copy, "content", text);
    if (calls != NULL) copy = json_tree_put(copy, "tool_calls", calls);
    apimessages_add(m, copy);
    return ZP_OK;
}

static zp_status read_message(struct apimessages *m, const json_t *message, const char *path)
{
    struct jsonfield_path room;
    const json_t *role = json_object_get(message, "role");
    if (!json_is_object(message))
        return apifault_expected(m->fault, path, message, "an object with role and content");
    if (json_string_length(role) == 0)
        return apifault_expected(m->fault, jsonfield_path(&room, path, "role", 0), role,
                                 "\"system\", \"user\", \"assistant\" or \"tool\"");
    if (jsonfield_is(role, "tool"))
        return apimessages_result(m, json_object_get(message, "tool_call_id"),
                                  json_object_get(message, "content"), path);
    if (jsonfield_is(role, "function"))
        return apimessages_result(m, json_object_get(message, "name"),
                                  json_object_get(message, "content"), path);
    return read_plain(m, message, path);
}

static zp_status read_messages(struct api_request *r, struct apifault *fault)
{
    const json_t *messages = apirequest_get(r, "messages");
    if (json_array_size(messages) == 0)
        return apifault_expected(fault, "messages", messages, "a list of at least one message");
    struct apimessages m = apimessages_open(r, fault);
    zp_status status = ZP_OK;
    for (size_t i = 0; i < json_array_size(messages) && status == ZP_OK; i++) {
        struct jsonfield_path room;
        status = read_message(&m, json_array_get(messages, i),
                              jsonfield_path(&room, "messages", NULL, i));
    }
    if (status == ZP_OK) status = apimessages_finish(&m, r->continues);
    apimessages_close(&m);
    return status;
}

/* ---- tools ----------------------------------------------------------------------------------- */

static zp_status read_tool(struct api_request *r, const json_t *tool, const char *path,
                           struct apifault *fault)
{
    struct jsonfield_path room;
    const json_t *type = json_object_get(tool, "type"),
                 *function = json_object_get(tool, "function");
    if (type != NULL && !jsonfield_is(type, "function"))
        return apifault_unsupported(fault, jsonfield_path(&room, path, "type", 0),
                                    "tools are of type \"function\" here");
    if (!json_is_object(function))
        return apifault_expected(fault, jsonfield_path(&room, path, "function", 0), function,
                                 "an object with a name");
    return apimessages_add_tool(r, json_incref((json_t *)tool),
                                jsonfield_path(&room, path, "function", 0), fault);
}

static zp_status read_tools(struct api_request *r, const char *key, struct apifault *fault)
{
    const json_t *list = apirequest_get(r, key);
    if (list == NULL) return ZP_OK;
    if (!json_is_array(list)) return apifault_expected(fault, key, list, "a list of tools");
    for (size_t i = 0; i < json_array_size(list); i++) {
        struct jsonfield_path room;
        json_t *item = json_array_get(list, i);
        const char *path = jsonfield_path(&room, key, NULL, i);
        if (r->functions) {
            if (!json_is_object(item))
                return apifault_expected(fault, path, item, "an object with a name");
            json_t *tool = json_tree_put(json_object(), "type", json_string("function"));
            tool = json_tree_put(tool, "function", json_incref(item));
            ZP_TRY(apimessages_add_tool(r, tool, path, fault));
        } else {
            ZP_TRY(read_tool(r, item, path, fault));
        }
    }
    return ZP_OK;
}

/* "none", "auto", "required", {"type": "function", "function": {"name": ...}}, or, of
 * function_call, {"name": ...}. */
static zp_status read_tool_choice(struct api_request *r, const char *key, struct apifault *fault)
{
    const json_t *value = apirequest_get(r, key),
                 *holder = r->functions ? value : json_object_get(value, "function");
    if (value == NULL || jsonfield_is(value, "auto"))
        return apimessages_choose_tool(r, TOOLS_AUTO, NULL, key, fault);
    if (jsonfield_is(value, "none"))
        return apimessages_choose_tool(r, TOOLS_NONE, NULL, key, fault);
    if (jsonfield_is(value, "required"))
        return apimessages_choose_tool(r, TOOLS_REQUIRED, NULL, key, fault);
    if (json_is_object(holder))
        return apimessages_choose_tool(r, TOOLS_NAMED, json_object_get(holder, "name"), key, fault);
    return apifault_expected(fault, key, value,
                             "\"none\", \"auto\", \"required\" or a function by its name");
}

static zp_status read_parallel(struct api_request *r, struct apifault *fault)
{
    const json_t *value = apirequest_get(r, "parallel_tool_calls");
    if (value != NULL && !json_is_boolean(value))
        return apifault_expected(fault, "parallel_tool_calls", value, "true or false");
    r->one_call = r->functions || json_is_false(value);
    return ZP_OK;
}

/* O1, but not both at once. */
static zp_status check_one_form(const struct api_request *r, struct apifault *fault)
{
    const char *other = r->functions ? "tool_choice" : "function_call";
    if (r->functions && apirequest_get(r, "tools") != NULL)
        return apifault_unsupported(fault, "functions",
                                    "tools are given as well: only one of both");
    if (apirequest_get(r, other) == NULL) return ZP_OK;
    return apifault_unsupported(fault, other, "goes with %s, which are not given",
                                r->functions ? "tools" : "functions");
}

/* ---- requests -------------------------------------------------------------------------------- */

zp_status openai_read_chat(struct api_request *r, const char *body, size_t size,
                           const struct api_limits *limits, struct apifault *fault)
{
    ZP_TRY(apirequest_open(r, SET_CHAT, body, size, limits, fault));
    r->functions = apirequest_get(r, "functions") != NULL; // O1
    ZP_TRY(check_one_form(r, fault));
    ZP_TRY(read_tools(r, r->functions ? "functions" : "tools", fault));
    ZP_TRY(read_tool_choice(r, r->functions ? "function_call" : "tool_choice", fault));
    ZP_TRY(read_parallel(r, fault));
    return read_messages(r, fault);
}

zp_status openai_read_completions(struct api_request *r, const char *body, size_t size,
                                  const struct api_limits *limits, struct apifault *fault)
{
    ZP_TRY(apirequest_open(r, SET_COMPLETIONS, body, size, limits, fault));
    return apirequest_read_prompts(&r->arena, apirequest_get(r, "prompt"), "prompt", limits,
                                   &r->prompts, &r->n_prompts, fault);
}
