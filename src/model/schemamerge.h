/* schemamerge.h: references inside a JSON Schema, and two schemas that hold at once as one. */
#ifndef MODEL_SCHEMAMERGE_H
#define MODEL_SCHEMAMERGE_H

#include <jansson.h>
#include <stdint.h>
#include "base/status.h"

/* What a keyword of JSON Schema is to us. Anything else is an annotation. */
enum schema_group {
    SCHEMA_ANNOTATION,
    SCHEMA_OBJECT, /* limits objects only; likewise the next three */
    SCHEMA_ARRAY,
    SCHEMA_STRING,
    SCHEMA_NUMBER,
    SCHEMA_ANY,     /* type, enum, const, anyOf, oneOf */
    SCHEMA_JOIN,    /* $ref, allOf */
    SCHEMA_REFUSED, /* changes what is valid, and is not supported */
};
enum schema_group schema_group_of(const char *keyword);

/* Over the members of an object that is only read; jansson's macro asks for one that may change. */
#define SCHEMA_FOREACH(object, key, value) \
    json_object_foreach ((json_t *)(uintptr_t)(object), key, value)
/* The same value once more. */
static inline json_t *schema_share(const json_t *value)
{
    return json_incref((json_t *)(uintptr_t)value);
}

struct schemamerge {
    const json_t *root;
    zp_err *err; /* takes failures: ZP_UNSUPPORTED, ZP_BAD_INPUT, ZP_NO_MEMORY */
    uint64_t work; /* members looked at */
    unsigned depth;
};

/* The value that "#", "#/$defs/name", ... names; NULL: recorded why not. */
const json_t *schema_find(const struct schemamerge *m, const char *reference);
/* A new reference to an equal schema without $ref and allOf at its top; NULL: recorded why not. */
json_t *schema_flatten(struct schemamerge *m, const json_t *schema);
/* A new schema that holds where both do, which are given back; NULL if either is NULL. */
json_t *schema_merge(struct schemamerge *m, json_t *a, json_t *b);
/* A new object with the members of another one but those of these names (may be NULL). */
json_t *schema_without(const json_t *object, const char *name, const char *other);

#endif
