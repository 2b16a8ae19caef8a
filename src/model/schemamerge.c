/* schemamerge.c: references, and joining of schemas keyword by keyword.
 * Every function that makes a value gives NULL when memory runs out or something cannot be joined,
 * and takes NULL for that (base/json_tree.h): a chain is checked by its last result. */
#include "model/schemamerge.h"

#include <stdbool.h>
#include <string.h>

#include "base/json_tree.h"

#define MAX_DEPTH 64          /* references and allOf within each other */
#define MAX_WORK (4u << 20) /* members looked at, about 0.5 s */

/* ---- keywords -------------------------------------------------------------------------------- */

enum schema_group schema_group_of(const char *keyword)
{
    static const struct {
        const char *name;
        enum schema_group group;
    } table[] = {
        { "$ref", SCHEMA_JOIN },
        { "allOf", SCHEMA_JOIN },
        { "type", SCHEMA_ANY },
        { "enum", SCHEMA_ANY },
        { "const", SCHEMA_ANY },
        { "anyOf", SCHEMA_ANY },
        { "oneOf", SCHEMA_ANY },
        { "properties", SCHEMA_OBJECT },
        { "required", SCHEMA_OBJECT },
        { "additionalProperties", SCHEMA_OBJECT },
        { "minProperties", SCHEMA_OBJECT },
        { "maxProperties", SCHEMA_OBJECT },
        { "items", SCHEMA_ARRAY },
        { "prefixItems", SCHEMA_ARRAY },
        { "additionalItems", SCHEMA_ARRAY },
        { "minItems", SCHEMA_ARRAY },
        { "maxItems", SCHEMA_ARRAY },
        { "minLength", SCHEMA_STRING },
        { "maxLength", SCHEMA_STRING },
        { "pattern", SCHEMA_STRING },
        { "format", SCHEMA_STRING },
        { "minimum", SCHEMA_NUMBER },
        { "maximum", SCHEMA_NUMBER },
        { "exclusiveMinimum", SCHEMA_NUMBER },
        { "exclusiveMaximum", SCHEMA_NUMBER },
        { "multipleOf", SCHEMA_NUMBER },
        { "not", SCHEMA_REFUSED },
        { "if", SCHEMA_REFUSED },
        { "contains", SCHEMA_REFUSED },
        { "uniqueItems", SCHEMA_REFUSED },
        { "propertyNames", SCHEMA_REFUSED },
        { "patternProperties", SCHEMA_REFUSED },
        { "dependentRequired", SCHEMA_REFUSED },
        { "dependentSchemas", SCHEMA_REFUSED },
        { "dependencies", SCHEMA_REFUSED },
        { "unevaluatedProperties", SCHEMA_REFUSED },
        { "unevaluatedItems", SCHEMA_REFUSED },
        { "$dynamicRef", SCHEMA_REFUSED },
        { "$recursiveRef", SCHEMA_REFUSED },
    };
    for (size_t i = 0; i < ZP_COUNT(table); i++)
        if (strcmp(table[i].name, keyword) == 0) return table[i].group;
    return SCHEMA_ANNOTATION;
}

/* ---- references ------------------------------------------------------------------------------ */

static int hex_value(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The next name of a pointer, with ~0 ~1 and %XX read. False: it is too long or wrong. */
static bool read_name(const char **at, char *out, size_t room)
{
    const char *s = *at;
    size_t n = 0;
    for (; *s && *s != '/'; s++) {
        char c = *s;
        if (c == '%') {
            int high = hex_value(s[1]), low = high < 0 ? -1 : hex_value(s[2]);
            if (low < 0) return false;
            c = (char)(high << 4 | low);
            s += 2;
        }
        if (c == '~' && s[1] != '0' && s[1] != '1') return false;
        if (c == '~') c = *++s == '0' ? '~' : '/';
        if (n + 1 >= room || c == '\0') return false;
        out[n++] = c;
    }
    out[n] = '\0';
    *at = s;
    return true;
}

static const json_t *member_of(const json_t *value, const char *name)
{
    size_t index = 0;
    if (!json_is_array(value)) return json_object_get(value, name);
    for (const char *s = name; *s; s++) {
        if (*s < '0' || *s > '9' || index > 100000000) return NULL;
        index = index * 10 + (size_t)(*s - '0');
    }
    return *name ? json_array_get(value, index) : NULL;
}

const json_t *schema_find(const struct schemamerge *m, const char *reference)
{
    const json_t *value = m->root;
    char name[512];
    if (reference == NULL) {
        status_fail(m->err, ZP_BAD_INPUT, __FILE__, __LINE__, "$ref must be a string");
        return NULL;
    }
    const char *at = reference + 1;
    if (*reference != '#' || (*at != '\0' && *at != '/')) {
        status_fail(m->err, ZP_UNSUPPORTED, __FILE__, __LINE__,
                    "$ref \"%.200s\": only references into the schema itself (#/...) are "
                    "supported", reference);
        return NULL;
    }
    while (value != NULL && *at == '/') {
        at++;
        value = read_name(&at, name, sizeof name) ? member_of(value, name) : NULL;
    }
    if (value == NULL)
        status_fail(m->err, ZP_BAD_INPUT, __FILE__, __LINE__,
                    "$ref \"%.200s\" leads nowhere in the schema", reference);
    return value;
}

/* ---- joining --------------------------------------------------------------------------------- */

static json_t *put_shared(json_t *object, const char *key, const json_t *value)
{
    return object ? json_tree_put(object, key, schema_share(value)) : NULL;
}

json_t *schema_without(const json_t *object, const char *name, const char *other)
{
    const char *key;
    json_t *value, *out = json_object();
    SCHEMA_FOREACH (object, key, value) {
        bool left_out = (name && strcmp(key, name) == 0) || (other && strcmp(key, other) == 0);
        if (!left_out) out = put_shared(out, key, value);
    }
    return out;
}

/* {"allOf": [a, b]}, or one of them where the other one says nothing; b may be NULL. */
static json_t *both(const json_t *a, const json_t *b)
{
    if (b == NULL || json_is_true(b)) return schema_share(a);
    if (json_is_true(a)) return schema_share(b);
    json_t *list = json_array();
    if (list) list = json_tree_add(list, schema_share(a));
    if (list) list = json_tree_add(list, schema_share(b));
    json_t *out = json_object();
    if (out == NULL) json_decref(list);
    return out ? json_tree_put(out, "allOf", list) : NULL;
}

static bool has_item(const json_t *list, const json_t *item)
{
    size_t i;
    json_t *other;
    json_array_foreach (list, i, other)
        if (json_equal(other, item)) return true;
    return false;
}

static json_t *union_of(const json_t *a, const json_t *b)
{
    size_t i;
    json_t *item, *out = json_array();
    json_array_foreach (a, i, item)
        if (out) out = json_tree_add(out, schema_share(item));
    json_array_foreach (b, i, item)
        if (out && !has_item(a, item)) out = json_tree_add(out, schema_share(item));
    return out;
}

static json_t *intersection_of(const json_t *a, const json_t *b)
{
    size_t i;
    json_t *item, *out = json_array();
    json_array_foreach (a, i, item)
        if (out && has_item(b, item)) out = json_tree_add(out, schema_share(item));
    return out;
}

static bool is_text(const json_t *value, const char *text)
{
    return json_is_string(value) && strcmp(json_string_value(value), text) == 0;
}

static bool names_type(const json_t *types, const char *name)
{
    size_t i;
    json_t *item;
    json_array_foreach (types, i, item)
        if (is_text(item, name)) return true;
    return is_text(types, name);
}

/* Types that both name; an integer is a number. */
static json_t *types_of(const json_t *a, const json_t *b)
{
    static const char *const names[] = { "null",   "boolean", "integer", "number",
                                         "string", "array",   "object" };
    json_t *out = json_array();
    for (size_t i = 0; i < ZP_COUNT(names) && out; i++) {
        bool whole = strcmp(names[i], "integer") == 0;
        bool in_a = names_type(a, names[i]) || (whole && names_type(a, "number"));
        bool in_b = names_type(b, names[i]) || (whole && names_type(b, "number"));
        if (in_a && in_b) out = json_tree_add(out, json_string(names[i]));
    }
    return out;
}

static bool is_one_of(const char *name, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(name, names[i]) == 0) return true;
    return false;
}

static json_t *fail_work(struct schemamerge *m)
{
    status_fail(m->err, ZP_UNSUPPORTED, __FILE__, __LINE__,
                "allOf, or anyOf with keywords beside it, joins too many schemas");
    return NULL;
}

/* What the keyword says in both together. */
static json_t *combine(struct schemamerge *m, const char *key, const json_t *a, const json_t *b)
{
    static const char *const least[] = { "minimum", "exclusiveMinimum", "minLength", "minItems",
                                         "minProperties" };
    static const char *const most[] = { "maximum", "exclusiveMaximum", "maxLength", "maxItems",
                                        "maxProperties" };
    size_t pairs = json_array_size(a) * json_array_size(b);
    m->work += pairs;
    if (pairs > MAX_WORK || m->work > MAX_WORK) return fail_work(m);
    bool greater = json_number_value(a) > json_number_value(b);
    if (json_equal(a, b) || schema_group_of(key) == SCHEMA_ANNOTATION) return schema_share(a);
    if (is_one_of(key, least, ZP_COUNT(least))) return schema_share(greater ? a : b);
    if (is_one_of(key, most, ZP_COUNT(most))) return schema_share(greater ? b : a);
    if (strcmp(key, "type") == 0) return types_of(a, b);
    if (strcmp(key, "required") == 0) return union_of(a, b);
    if (strcmp(key, "enum") == 0) return intersection_of(a, b);
    bool schemas = !json_is_array(a) && !json_is_array(b);
    if (strcmp(key, "additionalProperties") == 0 || (strcmp(key, "items") == 0 && schemas))
        return both(a, b);
    status_fail(m->err, ZP_UNSUPPORTED, __FILE__, __LINE__,
                "two different values of \"%s\" hold at once (by allOf, $ref or anyOf with "
                "keywords beside it): joining these is not supported", key);
    return NULL;
}

/* Adds a's properties; where b does not name them, its additionalProperties is about them. */
static json_t *put_properties(json_t *out, const json_t *a, const json_t *b, bool again)
{
    const json_t *in_b = json_object_get(b, "properties"), *other;
    const json_t *extra = json_object_get(b, "additionalProperties");
    const char *key;
    json_t *value;
    SCHEMA_FOREACH (json_object_get(a, "properties"), key, value) {
        other = json_object_get(in_b, key);
        if (out == NULL || (again && other)) continue;
        out = json_tree_put(out, key, both(value, other ? other : extra));
    }
    return out;
}

static bool is_same(const json_t *a, const json_t *b)
{
    return (a == NULL && b == NULL) || json_equal(a, b);
}

/* Lists with schemas for single places can only be joined with nothing, or with the same. */
static bool same_places(const json_t *a, const json_t *b)
{
    const json_t *x = json_object_get(a, "prefixItems"), *y = json_object_get(b, "prefixItems");
    const json_t *p = json_object_get(a, "items"), *q = json_object_get(b, "items");
    bool places = x || y || json_is_array(p) || json_is_array(q);
    bool in_both = (x || p) && (y || q);
    return !places || !in_both || (is_same(x, y) && is_same(p, q));
}

static json_t *merge_objects(struct schemamerge *m, const json_t *a, const json_t *b)
{
    const char *key;
    json_t *value, *out = schema_without(a, "properties", NULL), *properties = NULL;
    const json_t *x = json_object_get(a, "const"), *y = json_object_get(b, "const");
    m->work += json_object_size(a) + json_object_size(b);
    m->work += json_object_size(json_object_get(a, "properties"));
    m->work += json_object_size(json_object_get(b, "properties"));
    if (x && y && !json_equal(x, y)) {
        json_decref(out);
        return json_false();
    }
    SCHEMA_FOREACH (b, key, value) {
        const json_t *mine = json_object_get(out, key);
        if (out == NULL || strcmp(key, "properties") == 0) continue;
        json_t *joined = mine ? combine(m, key, mine, value) : schema_share(value);
        out = json_tree_put(out, key, joined);
    }
    if (json_object_get(a, "properties") || json_object_get(b, "properties")) {
        properties = put_properties(json_object(), a, b, false);
        properties = put_properties(properties, b, a, true);
        if (out) out = json_tree_put(out, "properties", properties);
        else json_decref(properties);
    }
    return out;
}

json_t *schema_merge(struct schemamerge *m, json_t *a, json_t *b)
{
    json_t *out = NULL;
    if (a == NULL || b == NULL) out = NULL;
    else if (json_is_false(a) || json_is_true(b)) out = schema_share(a);
    else if (json_is_false(b) || json_is_true(a)) out = schema_share(b);
    else if (!json_is_object(a) || !json_is_object(b))
        status_fail(m->err, ZP_BAD_INPUT, __FILE__, __LINE__,
                    "a schema must be an object, true or false");
    else if (m->work > MAX_WORK) out = fail_work(m);
    else if (!same_places(a, b))
        status_fail(m->err, ZP_UNSUPPORTED, __FILE__, __LINE__,
                    "joining prefixItems with other items is not supported");
    else out = merge_objects(m, a, b);
    if (out == NULL)
        status_fail(m->err, ZP_NO_MEMORY, __FILE__, __LINE__, "not enough memory for a schema");
    json_decref(a);
    json_decref(b);
    return out;
}

static json_t *flatten_parts(struct schemamerge *m, const json_t *schema)
{
    const json_t *all = json_object_get(schema, "allOf"), *target = NULL;
    const json_t *reference = json_object_get(schema, "$ref");
    json_t *out = json_true(), *part;
    size_t i;
    if (reference) {
        target = schema_find(m, json_string_value(reference));
        out = target ? schema_flatten(m, target) : NULL;
    }
    if (out) out = schema_merge(m, out, schema_without(schema, "$ref", "allOf"));
    json_array_foreach (all, i, part)
        if (out) out = schema_merge(m, out, schema_flatten(m, part));
    return out;
}

json_t *schema_flatten(struct schemamerge *m, const json_t *schema)
{
    bool joins = json_object_get(schema, "$ref") || json_object_get(schema, "allOf");
    if (!joins) return schema_share(schema);
    if (m->depth == MAX_DEPTH) {
        status_fail(m->err, ZP_UNSUPPORTED, __FILE__, __LINE__,
                    "references and allOf lead more than %d levels into each other", MAX_DEPTH);
        return NULL;
    }
    m->depth++;
    json_t *out = flatten_parts(m, schema);
    m->depth--;
    return out;
}
