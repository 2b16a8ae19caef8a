/* jsonfield.c: members of a JSON object by a table. No state.
 * The rows are looked up in the object, not the members in the table: an object with a million
 * members costs no more than one with ten. */
#include "serve/jsonfield.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const char *jsonfield_path(struct jsonfield_path *room, const char *path, const char *name,
                           size_t index)
{
    if (name == NULL) (void)snprintf(room->text, sizeof room->text, "%s[%zu]", path, index);
    else (void)snprintf(room->text, sizeof room->text, "%s%s%s", path, *path ? "." : "", name);
    return room->text;
}

bool jsonfield_whole(const json_t *value, int64_t least, int64_t most, int64_t *out)
{
    double x = json_real_value(value);
    if (json_is_integer(value)) *out = json_integer_value(value);
    else if (json_is_real(value) && x == floor(x) && fabs(x) < 0x1p53) *out = (int64_t)x;
    else return false;
    return *out >= least && *out <= most;
}

bool jsonfield_is(const json_t *value, const char *text)
{
    return json_is_string(value) && strcmp(json_string_value(value), text) == 0;
}

static bool says_nothing(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT: return json_object_size(value) == 0;
    case JSON_ARRAY: return json_array_size(value) == 0;
    case JSON_STRING: return json_string_length(value) == 0;
    case JSON_INTEGER: return json_integer_value(value) == 0;
    case JSON_REAL: return json_real_value(value) == 0;
    case JSON_TRUE: return false;
    default: return true;
    }
}

static zp_status read_number(const struct jsonfield *f, const json_t *value, const char *path,
                             void *out, struct apifault *fault)
{
    int64_t whole;
    double x = json_number_value(value);
    if (f->kind == FIELD_U32) {
        if (!jsonfield_whole(value, (int64_t)f->least, (int64_t)f->most, &whole))
            return apifault_expected(fault, path, value, "an integer from %.0f to %.0f", f->least,
                                     f->most);
        *(uint32_t *)out = (uint32_t)whole;
        return ZP_OK;
    }
    if (!json_is_number(value) || !(x >= f->least && x <= f->most))
        return apifault_expected(fault, path, value, "a number from %g to %g", f->least, f->most);
    if (f->kind == FIELD_F32) *(float *)out = (float)x;
    else *(double *)out = x;
    return ZP_OK;
}

static zp_status read_text(const struct jsonfield *f, const json_t *value, const char *path,
                           const char **out, struct apifault *fault)
{
    size_t size = json_string_length(value);
    if (!json_is_string(value) || (double)size < f->least || (double)size > f->most)
        return apifault_expected(fault, path, value, "a text of %.0f to %.0f bytes", f->least,
                                 f->most);
    *out = json_string_value(value);
    return ZP_OK;
}

static zp_status read_name(const struct jsonfield *f, const json_t *value, const char *path,
                           int *out, struct apifault *fault)
{
    char list[128] = "";
    const char *text = json_string_value(value);
    for (int i = 0; f->names[i] != NULL; i++) {
        size_t n = strlen(list);
        if (text != NULL && strcmp(text, f->names[i]) == 0) {
            *out = i;
            return ZP_OK;
        }
        (void)snprintf(list + n, sizeof list - n, "%s\"%s\"", i ? ", " : "", f->names[i]);
    }
    return apifault_expected(fault, path, value, "one of %s", list);
}

static zp_status read_field(const struct jsonfield *f, const json_t *value, const char *path,
                            void *out, struct apifault *fault)
{
    void *at = (char *)out + f->at;
    switch (f->kind) {
    case FIELD_BOOL:
        if (!json_is_boolean(value)) return apifault_expected(fault, path, value, "true or false");
        *(bool *)at = json_is_true(value);
        return ZP_OK;
    case FIELD_U32:
    case FIELD_F32:
    case FIELD_F64: return read_number(f, value, path, at, fault);
    case FIELD_TEXT: return read_text(f, value, path, at, fault);
    case FIELD_NAME: return read_name(f, value, path, at, fault);
    case FIELD_OBJECT:
        if (!json_is_object(value)) return apifault_expected(fault, path, value, "an object");
        *(const json_t **)at = value;
        return ZP_OK;
    case FIELD_CUSTOM: return f->read(out, value, path, fault);
    case FIELD_KNOWN: return ZP_OK;
    case FIELD_REFUSED: break;
    }
    return says_nothing(value) ? ZP_OK : apifault_unsupported(fault, path, "not supported here");
}

zp_status jsonfield_read(const struct jsonfield *fields, size_t n, unsigned set,
                         const json_t *object, const char *path, void *out, size_t *n_found,
                         struct apifault *fault)
{
    size_t found = 0;
    for (size_t i = 0; i < n; i++) {
        const struct jsonfield *f = &fields[i];
        const json_t *value = f->sets & set ? json_object_get(object, f->name) : NULL;
        struct jsonfield_path room;
        if (value == NULL) continue;
        found++;
        if (!json_is_null(value))
            ZP_TRY(read_field(f, value, jsonfield_path(&room, path, f->name, 0), out, fault));
    }
    if (n_found != NULL) *n_found = found;
    return ZP_OK;
}

bool jsonfield_has(const struct jsonfield *fields, size_t n, unsigned set, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if ((fields[i].sets & set) && strcmp(fields[i].name, name) == 0) return true;
    return false;
}
