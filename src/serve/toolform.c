/* toolform.c: JSON Schemas of calls, put together from those of the tools' parameters.
 * F1 a reference inside parameters ("#/$defs/x") points to where the parameters stand in the whole.
 * F2 an object has no members but those that its schema names, unless the schema says that it may,
 *    or joins it with others: models write on and on where they may. */
#include "serve/toolform.h"

#include <stdio.h>
#include <string.h>

#include "base/json_tree.h"
#include "model/json_write.h"

#define MOST_SCHEMA ((size_t)1 << 20)

static const char *key_of(enum toolcalls_style style)
{
    return style == TOOLCALLS_LLAMA3 ? "parameters" : "arguments";
}

/* ---- schemas of arguments -------------------------------------------------------------------- */

enum place { AT_SCHEMA, AT_NAMES }; /* what an object is: a schema, or schemas by names */

struct move {
    const char *to; /* where the whole begins */
    bool closes;    /* F2 */
};

static bool has_any(const json_t *object, const char *const *keys)
{
    for (; *keys != NULL; keys++)
        if (json_object_get(object, *keys) != NULL) return true;
    return false;
}

static bool is_one_of(const char *key, const char *const *keys)
{
    while (*keys != NULL && strcmp(key, *keys) != 0) keys++;
    return *keys != NULL;
}

/* Whether an object by this schema may have any further members, though it names some (F2). */
static bool is_open(const json_t *schema)
{
    static const char *const others[] = { "additionalProperties", "unevaluatedProperties",
                                          "patternProperties", "$ref", "anyOf", "oneOf", "allOf",
                                          "enum", "const", NULL };
    const json_t *type = json_object_get(schema, "type");
    return json_is_object(json_object_get(schema, "properties")) && !has_any(schema, others) &&
           (type == NULL || jsonfield_is(type, "object"));
}

static json_t *moved(const json_t *value, enum place place, const struct move *m);

static json_t *moved_member(const char *key, json_t *value, enum place place, const struct move *m)
{
    static const char *const data[] = { "const", "enum", "default", "examples", NULL },
                             *const names[] = { "properties", "patternProperties", "$defs",
                                                "definitions", "dependentSchemas", NULL };
    const char *text = json_string_value(value);
    if (place == AT_NAMES) return moved(value, AT_SCHEMA, m);
    if (is_one_of(key, data)) return json_incref(value);
    if (strcmp(key, "$ref") == 0 && text != NULL && text[0] == '#') // F1
        return json_tree_printf("%s%s", m->to, text + 1);
    return moved(value, is_one_of(key, names) ? AT_NAMES : AT_SCHEMA, m);
}

/* A copy that means at its new place what it meant before (F1), and is closed (F2). */
static json_t *moved(const json_t *value, enum place place, const struct move *m)
{
    json_t *out, *item;
    const char *key;
    if (json_is_array(value)) {
        out = json_array();
        for (size_t i = 0; i < json_array_size(value); i++)
            out = json_tree_add(out, moved(json_array_get(value, i), AT_SCHEMA, m));
        return out;
    }
    if (!json_is_object(value)) return json_incref((json_t *)value);
    out = json_object();
    json_object_foreach ((json_t *)value, key, item)
        out = json_tree_put(out, key, moved_member(key, item, place, m));
    bool closes = m->closes && place == AT_SCHEMA && is_open(value);
    return closes ? json_tree_put(out, "additionalProperties", json_false()) : out;
}

/* Whether schemas are joined in it, so that a part must let in the members of the others. */
static bool has_joins(const json_t *value)
{
    json_t *item;
    const char *key;
    bool refers = json_object_get(value, "$ref") && json_object_get(value, "properties");
    if (refers || json_object_get(value, "allOf") != NULL) return true;
    for (size_t i = 0; i < json_array_size(value); i++)
        if (has_joins(json_array_get(value, i))) return true;
    json_object_foreach ((json_t *)value, key, item)
        if (has_joins(item)) return true;
    return false;
}

/* Arguments are an object, whether the schema says so or nothing at all. Without a schema there are
 * none. */
static json_t *arguments_schema(const json_t *parameters, const char *place)
{
    static const char *const says[] = { "type", "$ref", "anyOf", "oneOf", "allOf", "enum", "const",
                                        NULL };
    if (json_is_object(parameters)) {
        json_t *out = moved(parameters, AT_SCHEMA, &(struct move){ place, !has_joins(parameters) });
        return has_any(out, says) ? out : json_tree_put(out, "type", json_string("object"));
    }
    json_t *none = json_tree_put(json_object(), "type", json_string("object"));
    return json_tree_put(none, "additionalProperties", json_false());
}

/* ---- schemas of calls ------------------------------------------------------------------------ */

static json_t *call_schema(const json_t *function, enum toolcalls_style style, const char *place)
{
    char inner[96];
    const char *key = key_of(style);
    (void)snprintf(inner, sizeof inner, "%s/properties/%s", place, key);
    json_t *name = json_tree_put(json_object(), "const",
                                 json_incref(json_object_get(function, "name")));
    json_t *properties = json_tree_put(json_object(), "name", name);
    properties = json_tree_put(properties, key,
                               arguments_schema(json_object_get(function, "parameters"), inner));
    json_t *required = json_tree_add(json_array(), json_string("name"));
    required = json_tree_add(required, json_string(key));
    json_t *out = json_tree_put(json_object(), "type", json_string("object"));
    out = json_tree_put(out, "properties", properties);
    out = json_tree_put(out, "required", required);
    return json_tree_put(out, "additionalProperties", json_false());
}

static const json_t *function_at(const json_t *tools, size_t i)
{
    return json_object_get(json_array_get(tools, i), "function");
}

static json_t *any_call_schema(const json_t *tools, enum toolcalls_style style)
{
    size_t n = json_array_size(tools);
    if (n == 1) return call_schema(function_at(tools, 0), style, "#");
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) {
        char place[48];
        (void)snprintf(place, sizeof place, "#/anyOf/%zu", i);
        list = json_tree_add(list, call_schema(function_at(tools, i), style, place));
    }
    return json_tree_put(json_object(), "anyOf", list);
}

static zp_status schema_of(json_t **out, enum toolcalls_style style, const json_t *tools,
                           const char *name, zp_err *err)
{
    *out = NULL;
    for (size_t i = 0; name != NULL && i < json_array_size(tools); i++) {
        const json_t *function = function_at(tools, i);
        if (!jsonfield_is(json_object_get(function, "name"), name)) continue;
        *out = call_schema(function, style, "#");
        break;
    }
    bool found = name == NULL ? json_array_size(tools) != 0 : *out != NULL;
    ZP_FAIL_IF(!found, err, ZP_BAD_INPUT, "there is no tool to call");
    if (name == NULL) *out = any_call_schema(tools, style);
    return ZP_OK;
}

zp_status toolform_open(struct toolform *f, enum toolcalls_style style, const json_t *tools,
                        const char *name, zp_err *err)
{
    bool tagged = style == TOOLCALLS_TAGGED;
    json_t *schema;
    *f = (struct toolform){ tagged ? "<tool_call>\n" : "", tagged ? "\n</tool_call>" : "",
                            buffer_with_max(MEM_SERVE, MOST_SCHEMA) };
    ZP_TRY(schema_of(&schema, style, tools, name, err));
    ZP_FAIL_IF(schema == NULL, err, ZP_NO_MEMORY, "not enough memory for the form of a call");
    zp_err why = { 0 };
    zp_status status = json_write_text(schema, JSON_COMPACT, &f->schema, &why);
    json_decref(schema);
    ZP_FAIL_IF(
        status == ZP_BAD_INPUT, err, status,
        "the parameters of all tools together have more than the %zu bytes that the schema of "
        "a call may have",
        MOST_SCHEMA);
    ZP_FAIL_IF(status != ZP_OK, err, status, "%s", why.message);
    return ZP_OK;
}

void toolform_free(struct toolform *f)
{
    buffer_free(&f->schema);
}
