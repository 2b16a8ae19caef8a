/* schema_check.h: whether a value is valid by a JSON Schema, by plain recursion: for the tests, and
 * of the keywords they use. Shares no code with the library's reading of schemas. */
#ifndef TESTS_SCHEMA_CHECK_H
#define TESTS_SCHEMA_CHECK_H

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "golden.h"

static inline bool schema_is_valid(const json_t *root, const json_t *schema, const json_t *value);

static inline bool schema_has_type(const json_t *value, const char *type)
{
    double x = json_number_value(value);
    if (strcmp(type, "null") == 0) return json_is_null(value);
    if (strcmp(type, "boolean") == 0) return json_is_boolean(value);
    if (strcmp(type, "integer") == 0) return json_is_number(value) && x == floor(x);
    if (strcmp(type, "number") == 0) return json_is_number(value);
    if (strcmp(type, "string") == 0) return json_is_string(value);
    if (strcmp(type, "array") == 0) return json_is_array(value);
    assert_string_equal(type, "object");
    return json_is_object(value);
}

static inline bool schema_check_type(const json_t *type, const json_t *value)
{
    size_t i;
    json_t *one;
    if (type == NULL) return true;
    if (json_is_string(type)) return schema_has_type(value, json_string_value(type));
    json_array_foreach (type, i, one)
        if (schema_has_type(value, json_string_value(one))) return true;
    return false;
}

static inline bool schema_is_equal(const json_t *a, const json_t *b)
{
    bool numbers = json_is_number(a) && json_is_number(b);
    return numbers ? json_number_value(a) == json_number_value(b) : json_equal(a, b);
}

static inline bool schema_check_known(const json_t *schema, const json_t *value)
{
    const json_t *list = json_object_get(schema, "enum"), *one = json_object_get(schema, "const");
    size_t i;
    json_t *item;
    bool found = list == NULL;
    json_array_foreach (list, i, item) found = found || schema_is_equal(item, value);
    return found && (one == NULL || schema_is_equal(one, value));
}

/* value against bounds that are in the schema. */
static inline bool schema_check_bounds(const json_t *schema, double x, const char *min,
                                       const char *max)
{
    const json_t *low = json_object_get(schema, min), *high = json_object_get(schema, max);
    return !(low && x < json_number_value(low)) && !(high && x > json_number_value(high));
}

/* \\s and \\S of ECMAScript, which are more than PCRE2's. */
static inline void schema_write_spaces(const char *pattern, char *out, size_t room)
{
    static const char set[] = "\\s\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}"
                              "\\x{205F}\\x{3000}\\x{FEFF}]";
    size_t n = 0;
    for (const char *s = pattern; *s; s++) {
        bool space = s[0] == '\\' && (s[1] == 's' || s[1] == 'S');
        if (space) n += (size_t)snprintf(out + n, room - n, "[%s%s", s[1] == 's' ? "" : "^", set);
        else out[n++] = *s;
        if (s[0] == '\\' && !space) out[n++] = s[1];
        s += s[0] == '\\';
        assert_true(n + 2 < room);
    }
    out[n] = '\0';
}

static inline bool schema_matches(const char *own, const char *text)
{
    char pattern[1024];
    int error;
    PCRE2_SIZE at;
    schema_write_spaces(own, pattern, sizeof pattern);
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                                     PCRE2_UTF | PCRE2_DOLLAR_ENDONLY | PCRE2_ALT_BSUX |
                                         PCRE2_MATCH_UNSET_BACKREF,
                                     &error, &at, NULL);
    if (code == NULL) return true; /* \u pairs: PCRE2 has no such thing */
    pcre2_match_data *data = pcre2_match_data_create_from_pattern(code, NULL);
    int found = pcre2_match(code, (PCRE2_SPTR)text, strlen(text), 0, 0, data, NULL);
    pcre2_match_data_free(data);
    pcre2_code_free(code);
    return found > 0;
}

static inline bool schema_check_string(const json_t *schema, const json_t *value)
{
    const char *text = json_string_value(value);
    const json_t *pattern = json_object_get(schema, "pattern");
    size_t n = 0;
    if (text == NULL) return true;
    for (const char *s = text; *s; s++) n += (*s & 0xC0) != 0x80;
    return schema_check_bounds(schema, (double)n, "minLength", "maxLength") &&
           (pattern == NULL || schema_matches(json_string_value(pattern), text));
}

static inline bool schema_check_number(const json_t *schema, const json_t *value)
{
    const json_t *low = json_object_get(schema, "exclusiveMinimum");
    const json_t *high = json_object_get(schema, "exclusiveMaximum");
    double x = json_number_value(value);
    if (!json_is_number(value)) return true;
    return schema_check_bounds(schema, x, "minimum", "maximum") &&
           !(low && x <= json_number_value(low)) && !(high && x >= json_number_value(high));
}

static inline bool schema_check_array(const json_t *root, const json_t *schema, const json_t *value)
{
    const json_t *first = json_object_get(schema, "prefixItems");
    const json_t *rest = json_object_get(schema, "items");
    size_t i;
    json_t *item;
    if (!json_is_array(value)) return true;
    if (json_is_array(rest)) first = rest, rest = json_object_get(schema, "additionalItems");
    json_array_foreach (value, i, item) {
        const json_t *own = i < json_array_size(first) ? json_array_get(first, i) : rest;
        if (own && !schema_is_valid(root, own, item)) return false;
    }
    return schema_check_bounds(schema, (double)json_array_size(value), "minItems", "maxItems");
}

static inline bool schema_check_object(const json_t *root, const json_t *schema,
                                       const json_t *value)
{
    const json_t *properties = json_object_get(schema, "properties");
    const json_t *others = json_object_get(schema, "additionalProperties");
    const char *key;
    json_t *member, *name;
    size_t i;
    if (!json_is_object(value)) return true;
    json_array_foreach (json_object_get(schema, "required"), i, name)
        if (!json_object_get(value, json_string_value(name))) return false;
    json_object_foreach ((json_t *)(uintptr_t)value, key, member) {
        const json_t *own = json_object_get(properties, key);
        if (own == NULL) own = others;
        if (own && !schema_is_valid(root, own, member)) return false;
    }
    return schema_check_bounds(schema, (double)json_object_size(value), "minProperties",
                               "maxProperties");
}

static inline const json_t *schema_target(const json_t *root, const char *reference)
{
    char name[128];
    const json_t *at = root;
    for (const char *s = reference + 1; *s == '/';) {
        size_t n = 0;
        for (s++; *s && *s != '/'; s++) {
            char c = *s;
            if (c == '~') c = *++s == '1' ? '/' : '~';
            if (c == '%') c = '%', s += 2; /* only %25 is used */
            name[n++] = c;
        }
        name[n] = '\0';
        at = json_is_array(at) ? json_array_get(at, (size_t)atoi(name)) : json_object_get(at, name);
    }
    assert_non_null(at);
    return at;
}

/* anyOf, and oneOf as if it were anyOf. */
static inline bool schema_check_any(const json_t *root, const json_t *list, const json_t *value)
{
    size_t i;
    json_t *one;
    if (list == NULL) return true;
    json_array_foreach (list, i, one)
        if (schema_is_valid(root, one, value)) return true;
    return false;
}

static inline bool schema_is_valid(const json_t *root, const json_t *schema, const json_t *value)
{
    const json_t *reference = json_object_get(schema, "$ref");
    size_t i;
    json_t *one;
    if (json_is_boolean(schema)) return json_is_true(schema);
    if (reference &&
        !schema_is_valid(root, schema_target(root, json_string_value(reference)), value))
        return false;
    json_array_foreach (json_object_get(schema, "allOf"), i, one)
        if (!schema_is_valid(root, one, value)) return false;
    return schema_check_any(root, json_object_get(schema, "anyOf"), value) &&
           schema_check_any(root, json_object_get(schema, "oneOf"), value) &&
           schema_check_type(json_object_get(schema, "type"), value) &&
           schema_check_known(schema, value) && schema_check_string(schema, value) &&
           schema_check_number(schema, value) && schema_check_array(root, schema, value) &&
           schema_check_object(root, schema, value);
}

#endif
