/* json_read.c: JSON files and the members of objects, with our limits and errors.
 * Owns: nothing between calls. Does not know: what the members mean. */
#include "model/json_read.h"

#include <math.h>
#include "base/json_tree.h"
#include "base/os.h"

zp_status json_read_text(const char *text, size_t size, const char *name, json_t **out, zp_err *err)
{
    return json_tree_read(text, size, name, ZP_BAD_FILE, out, err);
}

zp_status json_read_or_null(const char *text, size_t size, json_t **out, zp_err *err)
{
    zp_err why = { 0 };
    *out = NULL;
    if (text == NULL) return ZP_OK;
    zp_status status = json_tree_read(text, size, "JSON in a key", ZP_BAD_FILE, out, &why);
    ZP_FAIL_IF(status == ZP_NO_MEMORY, err, ZP_NO_MEMORY, "%s", why.message);
    return ZP_OK;
}

zp_status json_read_file(const char *path, size_t max, json_t **out, zp_err *err)
{
    struct buffer text = buffer_with_max(MEM_META, max);
    *out = NULL;
    zp_status status = os_read_regular(path, &text, err);
    if (status == ZP_OK)
        status = json_read_text((const char *)text.data, text.size, path, out, err);
    buffer_free(&text);
    return status;
}

static const char *type_name(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "an array";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
        return "an integer";
    case JSON_REAL:
        return "a number with a fraction";
    case JSON_TRUE:
        return "true";
    case JSON_FALSE:
        return "false";
    case JSON_NULL:
        return "null";
    }
    return "?";
}

static const json_t *member(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

zp_status json_read_u32(const json_t *object, const char *key, const char *where, uint32_t *out,
                        bool *found, zp_err *err)
{
    const json_t *value = member(object, key);
    *found = value != NULL;
    if (value == NULL) return ZP_OK;
    ZP_FAIL_IF(!json_is_integer(value), err, ZP_BAD_FILE, "%s: %s is %s, expected an integer",
               where, key, type_name(value));
    json_int_t number = json_integer_value(value);
    ZP_FAIL_IF(number < 0 || number > UINT32_MAX, err, ZP_BAD_FILE,
               "%s: %s is %lld, expected 0 to %u", where, key, (long long)number, UINT32_MAX);
    *out = (uint32_t)number;
    return ZP_OK;
}

zp_status json_read_number(const json_t *object, const char *key, const char *where, double *out,
                           bool *found, zp_err *err)
{
    const json_t *value = member(object, key);
    *found = value != NULL;
    if (value == NULL) return ZP_OK;
    ZP_FAIL_IF(!json_is_number(value), err, ZP_BAD_FILE, "%s: %s is %s, expected a number", where,
               key, type_name(value));
    *out = json_number_value(value);
    ZP_FAIL_IF(!isfinite(*out), err, ZP_BAD_FILE, "%s: %s is not a finite number", where, key);
    return ZP_OK;
}

zp_status json_read_bool(const json_t *object, const char *key, const char *where, bool *out,
                         bool *found, zp_err *err)
{
    const json_t *value = member(object, key);
    *found = value != NULL;
    if (value == NULL) return ZP_OK;
    ZP_FAIL_IF(!json_is_boolean(value), err, ZP_BAD_FILE, "%s: %s is %s, expected true or false",
               where, key, type_name(value));
    *out = json_is_true(value);
    return ZP_OK;
}

zp_status json_read_string(const json_t *object, const char *key, const char *where,
                           const char **out, bool *found, zp_err *err)
{
    const json_t *value = member(object, key);
    *found = value != NULL;
    if (value == NULL) return ZP_OK;
    ZP_FAIL_IF(!json_is_string(value), err, ZP_BAD_FILE, "%s: %s is %s, expected a string", where,
               key, type_name(value));
    *out = json_string_value(value);
    return ZP_OK;
}

zp_status json_read_object(const json_t *object, const char *key, const char *where,
                           const json_t **out, zp_err *err)
{
    *out = member(object, key);
    ZP_FAIL_IF(*out != NULL && !json_is_object(*out), err, ZP_BAD_FILE,
               "%s: %s is %s, expected an object", where, key, type_name(*out));
    return ZP_OK;
}

zp_status json_read_array(const json_t *object, const char *key, const char *where,
                          const json_t **out, zp_err *err)
{
    *out = member(object, key);
    ZP_FAIL_IF(*out != NULL && !json_is_array(*out), err, ZP_BAD_FILE,
               "%s: %s is %s, expected an array", where, key, type_name(*out));
    return ZP_OK;
}
