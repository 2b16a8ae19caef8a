/* apimessages.c: messages and tools in the form of chat templates.
 * Owns: the list while it is made. Does not know: the shapes of either API.
 * A1 what is added to the list has a role, and a content that is a text, null or absent.
 * A2 memory that ran out shows in the list, which is then NULL: only apimessages_finish looks. */
#include "serve/apimessages.h"

#include <string.h>

#include "base/json_tree.h"

#define MOST_NAME 128
#define MOST_TEXT ((size_t)64 << 20)

struct apimessages apimessages_open(struct api_request *r, struct apifault *fault)
{
    return (struct apimessages){ r, fault, json_array(), json_object(), 0 };
}

void apimessages_close(struct apimessages *m)
{
    json_decref(m->list);
    json_decref(m->names);
    m->list = m->names = NULL;
}

void apimessages_add(struct apimessages *m, json_t *message)
{
    m->list = json_tree_add(m->list, message);
}

static zp_status take_prefill(struct apimessages *m)
{
    size_t last = json_array_size(m->list) - 1;
    const json_t *message = json_array_get(m->list, last),
                 *content = json_object_get(message, "content");
    const char *role = json_string_value(json_object_get(message, "role"));
    if (role == NULL || strcmp(role, "assistant") != 0 || !json_is_string(content) ||
        json_object_get(message, "tool_calls") != NULL)
        return apifault_set(m->fault, 400, "invalid_value", "messages",
                            "'messages': the last one is to be continued: expected a text of the "
                            "assistant without calls");
    m->r->prefill = arena_strndup(&m->r->arena, json_string_value(content),
                                  json_string_length(content));
    bool gone = json_array_remove(m->list, last) == 0;
    return m->r->prefill == NULL || !gone ? apifault_no_memory(m->fault) : ZP_OK;
}

zp_status apimessages_finish(struct apimessages *m, bool prefill)
{
    if (m->list == NULL || m->names == NULL) return apifault_no_memory(m->fault); // A2
    if (prefill) ZP_TRY(take_prefill(m));
    if (json_array_size(m->list) == 0)
        return apifault_set(m->fault, 400, "invalid_value", "messages",
                            "'messages': expected at least one message");
    json_t *list = m->list;
    m->list = NULL;
    return apirequest_set_input(m->r, list, m->fault);
}

/* ---- contents -------------------------------------------------------------------------------- */

static zp_status read_part(struct apimessages *m, const json_t *part, const char *path,
                           const json_t **out)
{
    struct jsonfield_path room;
    *out = NULL;
    const char *type = json_string_value(json_object_get(part, "type"));
    if (type == NULL)
        return apifault_expected(m->fault, path, part, "an object with a type, such as \"text\"");
    bool refusal = strcmp(type, "refusal") == 0;
    if (!refusal && strcmp(type, "text") != 0)
        return apifault_unsupported(m->fault, path, "a part of type \"%.32s\": this server reads "
                                    "text only", type);
    *out = json_object_get(part, type);
    if (json_is_string(*out)) return ZP_OK;
    return apifault_expected(m->fault, jsonfield_path(&room, path, refusal ? "refusal" : "text", 0),
                             *out, "a text");
}

static zp_status join_parts(struct apimessages *m, const json_t *parts, const char *path,
                            struct buffer *text)
{
    for (size_t i = 0; i < json_array_size(parts); i++) {
        struct jsonfield_path room;
        const json_t *part;
        ZP_TRY(read_part(m, json_array_get(parts, i), jsonfield_path(&room, path, NULL, i), &part));
        if ((i && buffer_append(text, "\n", 1, NULL) != ZP_OK) ||
            buffer_append(text, json_string_value(part), json_string_length(part), NULL) != ZP_OK)
            return apifault_no_memory(m->fault);
    }
    return ZP_OK;
}

zp_status apimessages_text(struct apimessages *m, const json_t *content, const char *path,
                           json_t **out)
{
    *out = NULL;
    if (json_is_string(content)) {
        *out = json_incref((json_t *)content);
        return ZP_OK;
    }
    if (!json_is_array(content))
        return apifault_expected(m->fault, path, content, "a text or a list of parts");
    struct buffer text = buffer_with_max(MEM_SERVE, MOST_TEXT);
    zp_status status = join_parts(m, content, path, &text);
    if (status == ZP_OK) {
        *out = json_stringn(text.size ? (const char *)text.data : "", text.size);
        if (*out == NULL) status = apifault_no_memory(m->fault);
    }
    buffer_free(&text);
    return status;
}

/* ---- calls and their results ----------------------------------------------------------------- */

static zp_status check_name(const json_t *name, const char *path, struct apifault *fault)
{
    size_t size = json_string_length(name);
    if (size != 0 && size <= MOST_NAME) return ZP_OK;
    return apifault_expected(fault, path, name, "a text of 1 to %d bytes", MOST_NAME);
}

/* *out: NULL where the text is no object. */
static zp_status parse_arguments(struct apimessages *m, const json_t *text, const char *path,
                                 json_t **out)
{
    struct apifault unused = { 0 };
    size_t size = json_string_length(text);
    *out = NULL;
    if (size > API_MOST_ARGUMENTS - m->n_arguments)
        return apifault_set(m->fault, 400, "invalid_value", path,
                            "'%s': arguments of more than %d bytes in one request", path,
                            API_MOST_ARGUMENTS);
    m->n_arguments += size;
    if (size == 0) *out = json_object();
    else (void)apirequest_parse(out, json_string_value(text), size, m->r->limits, &unused);
    return unused.status == 503 ? apifault_no_memory(m->fault) : ZP_OK;
}

static zp_status read_arguments(struct apimessages *m, const json_t *arguments, const char *path,
                                json_t **out)
{
    struct jsonfield_path room;
    const char *key = m->r->set == SET_MESSAGES ? "input" : "arguments";
    *out = NULL;
    if (arguments == NULL || json_is_null(arguments)) *out = json_object();
    else if (json_is_string(arguments)) ZP_TRY(parse_arguments(m, arguments, path, out));
    else if (!json_is_object(arguments))
        return apifault_expected(m->fault, jsonfield_path(&room, path, key, 0), arguments,
                                 "an object, or the JSON text of one");
    if (*out == NULL) *out = json_incref((json_t *)arguments);
    return ZP_OK;
}

zp_status apimessages_call(struct apimessages *m, const json_t *id, const json_t *name,
                           const json_t *arguments, const char *path, json_t **out)
{
    struct jsonfield_path room;
    json_t *value;
    *out = NULL;
    ZP_TRY(check_name(name, jsonfield_path(&room, path, "name", 0), m->fault));
    if (id != NULL && !json_is_string(id))
        return apifault_expected(m->fault, jsonfield_path(&room, path, "id", 0), id, "a text");
    ZP_TRY(read_arguments(m, arguments, path, &value));
    json_t *function = json_tree_put(json_object(), "name", json_incref((json_t *)name));
    function = json_tree_put(function, "arguments", value);
    json_t *call = json_object();
    if (id != NULL) {
        call = json_tree_put(call, "id", json_incref((json_t *)id));
        m->names = json_tree_put(m->names, json_string_value(id), json_incref((json_t *)name));
    }
    call = json_tree_put(call, "type", json_string("function"));
    *out = json_tree_put(call, "function", function);
    return *out == NULL ? apifault_no_memory(m->fault) : ZP_OK;
}

zp_status apimessages_result(struct apimessages *m, const json_t *id, const json_t *content,
                             const char *path)
{
    struct jsonfield_path room;
    json_t *text;
    if (!json_is_string(id))
        return apifault_expected(m->fault, path, id, "a result with the id of its call");
    if (content == NULL || json_is_null(content)) text = json_string("");
    else
        ZP_TRY(apimessages_text(m, content, jsonfield_path(&room, path, "content", 0), &text));
    json_t *message = json_tree_put(json_object(), "role", json_string("tool"));
    json_t *name = json_object_get(m->names, json_string_value(id));
    if (name != NULL) message = json_tree_put(message, "name", json_incref(name));
    message = json_tree_put(message, "tool_call_id", json_incref((json_t *)id));
    apimessages_add(m, json_tree_put(message, "content", text));
    return ZP_OK;
}

/* ---- tools ----------------------------------------------------------------------------------- */

static const json_t *find_tool(const json_t *tools, const char *name)
{
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *function = json_object_get(json_array_get(tools, i), "function");
        const char *other = json_string_value(json_object_get(function, "name"));
        if (other != NULL && strcmp(other, name) == 0) return function;
    }
    return NULL;
}

/* path: of the object that has the name, as the client wrote it. */
static zp_status check_tool(const struct api_request *r, const json_t *tool, const char *path,
                            struct apifault *fault)
{
    struct jsonfield_path room;
    const json_t *function = json_object_get(tool, "function"),
                 *name = json_object_get(function, "name"),
                 *parameters = json_object_get(function, "parameters"),
                 *description = json_object_get(function, "description");
    if (json_array_size(r->tools) == API_MOST_TOOLS)
        return apifault_set(fault, 400, "invalid_value", path, "'%s': more than %d tools", path,
                            API_MOST_TOOLS);
    (void)jsonfield_path(&room, path, "name", 0);
    ZP_TRY(check_name(name, room.text, fault));
    if (find_tool(r->tools, json_string_value(name)) != NULL)
        return apifault_set(fault, 400, "invalid_value", room.text,
                            "'%s': there are two tools of the name \"%s\"", room.text,
                            json_string_value(name));
    if (parameters != NULL && !json_is_null(parameters) && !json_is_object(parameters))
        return apifault_expected(fault, jsonfield_path(&room, path, "parameters", 0), parameters,
                                 "a JSON Schema");
    if (description != NULL && !json_is_null(description) && !json_is_string(description))
        return apifault_expected(fault, jsonfield_path(&room, path, "description", 0), description,
                                 "a text");
    return ZP_OK;
}

zp_status apimessages_add_tool(struct api_request *r, json_t *tool, const char *path,
                               struct apifault *fault)
{
    zp_status status = tool == NULL ? apifault_no_memory(fault)
                                    : check_tool(r, tool, path, fault);
    if (status != ZP_OK) {
        json_decref(tool);
        return status;
    }
    r->tools = json_tree_add(r->tools != NULL ? r->tools : json_array(), tool);
    return r->tools == NULL ? apifault_no_memory(fault) : ZP_OK;
}

zp_status apimessages_choose_tool(struct api_request *r, enum api_tool_choice choice,
                                  const json_t *name, const char *path, struct apifault *fault)
{
    r->tool_choice = choice;
    r->tool_name = json_string_value(name);
    if (choice == TOOLS_NAMED && (r->tool_name == NULL || !find_tool(r->tools, r->tool_name)))
        return apifault_expected(fault, path, name, "the name of one of the tools");
    if (choice == TOOLS_REQUIRED && r->tools == NULL)
        return apifault_set(fault, 400, "invalid_value", path,
                            "'%s': a call is required, but there are no tools", path);
    if (choice == TOOLS_NONE) {
        json_decref(r->tools);
        r->tools = NULL;
    }
    if (r->tools != NULL && r->form != FORM_ANY)
        return apifault_unsupported(fault, path, "a form of the answer and calls of tools exclude "
                                    "each other; tool_choice \"none\" goes with both");
    return ZP_OK;
}
