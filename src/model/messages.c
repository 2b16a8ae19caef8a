/* messages.c: the input of a chat template, read and checked. No state.
 * Checked is what every template takes for granted; what a template asks beyond that (roles that
 * alternate, a system message that comes first) it says itself. */
#include "model/messages.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/numtext.h"
#include "model/json_read.h"

#define PATH_SIZE 96
#define SHOWN_SIZE 48

/* A value as messages show it: short scalars as they are, the rest by type. */
static const char *show(const json_t *value, char out[SHOWN_SIZE])
{
    switch (value == NULL ? -1 : (int)json_typeof(value)) {
    case -1: return "missing";
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return json_array_size(value) == 0 ? "an empty array" : "an array";
    case JSON_STRING: return json_string_length(value) == 0 ? "an empty text" : "a text";
    case JSON_INTEGER:
        snprintf(out, SHOWN_SIZE, "%lld", (long long)json_integer_value(value));
        return out;
    case JSON_REAL: numtext_printf(out, SHOWN_SIZE, "%g", json_real_value(value)); return out;
    case JSON_TRUE: return "true";
    case JSON_FALSE: return "false";
    default: return "null";
    }
}

static zp_status refuse(const char *name, const char *path, const char *key, const json_t *found,
                        const char *expected, zp_err *err)
{
    char shown[SHOWN_SIZE];
    ZP_FAIL(err, ZP_BAD_INPUT, "%s: %s%s%s is %s, expected %s", name, path,
            *path && *key ? "." : "", key, show(found, shown), expected);
}

/* A part of a message in pieces: {"type": "text", "text": "..."}, or another type, which templates
 * judge. */
static zp_status check_part(const json_t *part, const char *path, const char *name, zp_err *err)
{
    const json_t *type = json_object_get(part, "type"), *text = json_object_get(part, "text");
    if (!json_is_object(part))
        return refuse(name, path, "", part, "an object with type and text", err);
    if (!json_is_string(type))
        return refuse(name, path, "type", type, "a text such as \"text\"", err);
    if (strcmp(json_string_value(type), "text") == 0 && !json_is_string(text))
        return refuse(name, path, "text", text, "a text", err);
    return ZP_OK;
}

static zp_status check_content(const json_t *message, const char *path, const char *name,
                               zp_err *err)
{
    const json_t *content = json_object_get(message, "content"),
                 *calls = json_object_get(message, "tool_calls");
    bool absent = content == NULL || json_is_null(content);
    if (json_is_string(content) || (absent && json_array_size(calls) > 0)) return ZP_OK;
    if (!json_is_array(content))
        return refuse(name, path, "content", content, "a text or an array of parts", err);
    for (size_t i = 0; i < json_array_size(content); i++) {
        char part[PATH_SIZE + 40];
        snprintf(part, sizeof part, "%s.content[%zu]", path, i);
        ZP_TRY(check_part(json_array_get(content, i), part, name, err));
    }
    return ZP_OK;
}

/* A function, as {"function": {"name": ...}} or bare {"name": ...}: both are in use. */
static zp_status check_function(const json_t *object, const char *path, const char *name,
                                zp_err *err)
{
    if (!json_is_object(object)) return refuse(name, path, "", object, "an object", err);
    const json_t *function = json_object_get(object, "function");
    const char *key = function != NULL ? "function.name" : "name";
    if (function != NULL && !json_is_object(function))
        return refuse(name, path, "function", function, "an object with a name", err);
    const json_t *called = json_object_get(function != NULL ? function : object, "name");
    if (function == NULL && called == NULL && json_object_get(object, "type") != NULL)
        return refuse(name, path, "function", function, "an object with a name", err);
    return json_is_string(called) ? ZP_OK : refuse(name, path, key, called, "a text", err);
}

/* An optional array of functions: tools, or the tool_calls of a message. */
static zp_status check_functions(const json_t *owner, const char *path, const char *key,
                                 const char *name, zp_err *err)
{
    const json_t *list = json_object_get(owner, key);
    if (list == NULL || json_is_null(list)) return ZP_OK;
    if (!json_is_array(list)) return refuse(name, path, key, list, "an array", err);
    for (size_t i = 0; i < json_array_size(list); i++) {
        char item[PATH_SIZE + 40];
        snprintf(item, sizeof item, "%s%s%s[%zu]", path, *path ? "." : "", key, i);
        ZP_TRY(check_function(json_array_get(list, i), item, name, err));
    }
    return ZP_OK;
}

static zp_status check_message(const json_t *message, size_t i, const char *name, zp_err *err)
{
    char path[PATH_SIZE];
    snprintf(path, sizeof path, "messages[%zu]", i);
    if (!json_is_object(message))
        return refuse(name, path, "", message, "an object with role and content", err);
    const json_t *role = json_object_get(message, "role");
    if (!json_is_string(role) || json_string_length(role) == 0)
        return refuse(name, path, "role", role, "\"system\", \"user\", \"assistant\" or \"tool\"",
                      err);
    ZP_TRY(check_functions(message, path, "tool_calls", name, err));
    return check_content(message, path, name, err);
}

zp_status messages_check(const json_t *input, const char *name, zp_err *err)
{
    char shown[SHOWN_SIZE];
    ZP_FAIL_IF(!json_is_object(input), err, ZP_BAD_INPUT,
               "%s is %s, expected an object or an array of messages", name, show(input, shown));
    const json_t *messages = json_object_get(input, "messages"),
                 *ask = json_object_get(input, "add_generation_prompt");
    if (json_array_size(messages) == 0)
        return refuse(name, "", "messages", messages, "an array of at least one message", err);
    for (size_t i = 0; i < json_array_size(messages); i++)
        ZP_TRY(check_message(json_array_get(messages, i), i, name, err));
    ZP_TRY(check_functions(input, "", "tools", name, err));
    if (ask != NULL && !json_is_boolean(ask))
        return refuse(name, "", "add_generation_prompt", ask, "true or false", err);
    return ZP_OK;
}

zp_status messages_wrap(json_t *value, const char *name, json_t **out, zp_err *err)
{
    *out = value;
    if (!json_is_array(value)) return ZP_OK;
    *out = json_object();
    bool ok = json_object_set_new(*out, "messages", value) == 0; /* takes value in any case */
    if (ok) return ZP_OK;
    json_decref(*out);
    *out = NULL;
    ZP_FAIL(err, ZP_NO_MEMORY, "%s: not enough memory for the messages", name);
}

zp_status messages_read(const char *text, size_t size, const char *name, json_t **out, zp_err *err)
{
    json_t *value;
    *out = NULL;
    ZP_TRY(json_read_text(text, size, name, &value, err));
    ZP_TRY(messages_wrap(value, name, &value, err));
    zp_status status = messages_check(value, name, err);
    if (status == ZP_OK) *out = value;
    else json_decref(value);
    return status;
}
