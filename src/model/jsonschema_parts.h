/* jsonschema_parts.h: what the files that turn a JSON Schema into rules share. */
#ifndef MODEL_JSONSCHEMA_PARTS_H
#define MODEL_JSONSCHEMA_PARTS_H

#include <jansson.h>
#include "model/grammar.h"
#include "model/jsonrules.h"
#include "model/schemamerge.h"

/* A place in the schema: a key, or an index where key is NULL, below another place. */
struct schema_place {
    const struct schema_place *up; /* NULL: the root */
    const char *key;
    size_t index;
};

struct schema_target {
    const json_t *schema;
    uint32_t rule;
};

struct schema {
    struct grammar *g; /* keeps the first failure */
    struct jsonrules json;
    struct schemamerge merge;
    struct schema_target *targets; /* of references; the root is the first */
    uint32_t n_targets, room_targets;
    unsigned depth;
};

/* An integer that is no real number of another kind has SCHEMA_T_INTEGER; "number" means both. */
enum {
    SCHEMA_T_NULL = 1,
    SCHEMA_T_BOOLEAN = 2,
    SCHEMA_T_INTEGER = 4,
    SCHEMA_T_NUMBER = 8,
    SCHEMA_T_STRING = 16,
    SCHEMA_T_ARRAY = 32,
    SCHEMA_T_OBJECT = 64,
    SCHEMA_T_ALL = 127
};
unsigned schema_type_of(const json_t *value);

/* Records "schema: #/place: what"; key: one more step of the place. */
void schema_fail(struct schema *s, const struct schema_place *at, zp_status code, const char *what);
void schema_fail_key(struct schema *s, const struct schema_place *at, zp_status code,
                     const char *key, const char *what);
/* Puts the place before a failure that was recorded without one. */
void schema_name_place(struct schema *s, const struct schema_place *at, const char *key);

/* A value that is valid by the schema v, then next. Depth: that of the schema. */
uint32_t schema_nodes(struct schema *s, const json_t *v, const struct schema_place *at,
                      uint32_t next);
uint32_t schema_rule(struct schema *s, const json_t *v, const struct schema_place *at);

/* Values of one type that satisfy what the schema o says about it (jsonschema_scalar.c,
 * jsonschema_array.c, jsonschema_object.c). */
uint32_t schema_number(struct schema *s, const json_t *o, bool whole, const struct schema_place *at,
                       uint32_t next);
uint32_t schema_string(struct schema *s, const json_t *o, const struct schema_place *at,
                       uint32_t next);
uint32_t schema_array(struct schema *s, const json_t *o, const struct schema_place *at,
                      uint32_t next);
uint32_t schema_object(struct schema *s, const json_t *o, const struct schema_place *at,
                       uint32_t next);
/* A bound on a number of things: `preset` where it is missing; what is beyond 2^32 is
 * GRAMMAR_UNBOUNDED. */
uint32_t schema_count(struct schema *s, const json_t *o, const char *key, uint32_t preset,
                      const struct schema_place *at);

#endif
