/* jsonschema.c: walks a schema; each schema becomes nodes for the texts that are valid by it.
 * Owns: the rules of references, and schemas joined on the way. Does not know: tokens.
 * J1 every generated text is valid by the schema; not every valid text is generated (its order of
 *    members, white space, and escapes are fixed or limited).
 * J2 a reference becomes a call of a rule: each target is walked once, after what refers to it. */
#include "model/jsonschema.h"

#include <stdio.h>
#include <string.h>

#include "base/json_tree.h"
#include "model/jsonschema_parts.h"

#define MAX_DEPTH 100

/* ---- failures -------------------------------------------------------------------------------- */

/* "#/properties/name", cut in front where it is long. */
static void place_text(const struct schema_place *at, char *out, size_t room)
{
    char *s = out + room;
    *--s = '\0';
    for (; at->up != NULL; at = at->up) {
        char one[80];
        int n = at->key ? snprintf(one, sizeof one, "/%s", at->key)
                        : snprintf(one, sizeof one, "/%zu", at->index);
        size_t size = n < (int)sizeof one ? (size_t)n : utf8_complete_prefix(one, sizeof one - 1);
        if ((size_t)(s - out) < size + 4) break;
        s -= size;
        memcpy(s, one, size);
    }
    if (at->up != NULL) s -= 3, memcpy(s, "...", 3);
    else *--s = '#';
    memmove(out, s, (size_t)(out + room - s));
}

void schema_fail(struct schema *s, const struct schema_place *at, zp_status code, const char *what)
{
    char place[200];
    place_text(at, place, sizeof place);
    grammar_fail(s->g, code, "schema: %s: %s", place, what);
}

void schema_fail_key(struct schema *s, const struct schema_place *at, zp_status code,
                     const char *key, const char *what)
{
    struct schema_place inner = { at, key, 0 };
    schema_fail(s, &inner, code, what);
}

void schema_name_place(struct schema *s, const struct schema_place *at, const char *key)
{
    static const char head[] = "schema: ";
    struct schema_place inner = { at, key, 0 };
    char place[200];
    memcpy(place, head, sizeof head);
    place_text(&inner, place + strlen(head), sizeof place - strlen(head));
    status_add_path(s->g->err, place);
}

/* ---- references ------------------------------------------------------------------------------ */

static uint32_t target_rule(struct schema *s, const json_t *target, const char *name)
{
    for (uint32_t i = 0; i < s->n_targets; i++)
        if (s->targets[i].schema == target) return s->targets[i].rule;
    if (s->n_targets == s->room_targets) {
        uint32_t room = s->room_targets ? 2 * s->room_targets : 16;
        void *grown = mem_resize(MEM_SCRATCH, s->targets, room * sizeof *s->targets);
        if (grown == NULL) grammar_fail(s->g, ZP_NO_MEMORY, "not enough memory for a schema");
        if (grown == NULL) return 0;
        s->targets = grown;
        s->room_targets = room;
    }
    uint32_t rule = grammar_declare(s->g, name);
    s->targets[s->n_targets++] = (struct schema_target){ target, rule };
    return rule;
}

static uint32_t reference(struct schema *s, const json_t *value, const struct schema_place *at,
                          uint32_t next)
{
    zp_err err = { 0 };
    const char *name = json_string_value(value);
    s->merge.err = &err;
    const json_t *target = schema_find(&s->merge, name);
    if (target == NULL) schema_fail(s, at, err.code, err.message);
    return target ? grammar_call(s->g, target_rule(s, target, name), next) : GRAMMAR_NEVER;
}

/* ---- joined schemas -------------------------------------------------------------------------- */

/* Walks a schema made on the way, which is given back. */
static uint32_t joined(struct schema *s, json_t *made, const zp_err *err,
                       const struct schema_place *at, uint32_t next)
{
    if (made == NULL) schema_fail(s, at, err->code, err->message);
    uint32_t node = made ? schema_nodes(s, made, at, next) : GRAMMAR_NEVER;
    json_decref(made);
    return node;
}

static uint32_t all_of(struct schema *s, const json_t *o, const struct schema_place *at,
                       uint32_t next)
{
    zp_err err = { 0 };
    s->merge.err = &err;
    return joined(s, schema_flatten(&s->merge, o), &err, at, next);
}

/* One of the alternatives and everything beside them. */
static uint32_t with_base(struct schema *s, const json_t *base, const json_t *one,
                          const struct schema_place *at, uint32_t next)
{
    zp_err err = { 0 };
    s->merge.err = &err;
    json_t *flat = schema_flatten(&s->merge, one);
    json_t *made = schema_merge(&s->merge, schema_share(base), flat);
    return joined(s, made, &err, at, next);
}

/* ---- choices --------------------------------------------------------------------------------- */

/* Members that say something about values; `but` and annotations not counted. */
static size_t count_claims(const json_t *o, const char *but)
{
    const char *key;
    json_t *value;
    size_t n = 0;
    SCHEMA_FOREACH (o, key, value)
        n += schema_group_of(key) != SCHEMA_ANNOTATION && strcmp(key, but) != 0;
    return n;
}

static uint32_t any_of(struct schema *s, const json_t *o, const char *key,
                       const struct schema_place *at, uint32_t next)
{
    const json_t *list = json_object_get(o, key);
    size_t n = json_array_size(list);
    uint32_t node = GRAMMAR_NEVER;
    if (n == 0)
        schema_fail_key(s, at, ZP_BAD_INPUT, key, "expected an array of at least one schema");
    json_t *base = count_claims(o, key) > 0 ? schema_without(o, key, NULL) : json_true();
    if (base == NULL) grammar_fail(s->g, ZP_NO_MEMORY, "not enough memory for a schema");
    struct schema_place inner = { at, key, 0 };
    for (size_t i = n; i-- > 0 && !grammar_failed(s->g);) {
        struct schema_place place = { &inner, NULL, i };
        const json_t *one = json_array_get(list, i);
        uint32_t way = json_is_true(base) ? schema_nodes(s, one, &place, next)
                                          : with_base(s, base, one, &place, next);
        node = grammar_either(s->g, way, node);
    }
    json_decref(base);
    return node;
}

/* Values of `list` that are of the types, in one set of texts; nested ones each for itself. */
static uint32_t values_of(struct schema *s, const json_t *list, unsigned types, struct buffer *text,
                          struct grammar_word *words, uint32_t next)
{
    uint32_t node = GRAMMAR_NEVER;
    size_t n = 0, i;
    json_t *value;
    json_array_foreach (list, i, value) {
        zp_err err = { 0 };
        size_t begin = text->size;
        if (grammar_failed(s->g) || !(schema_type_of(value) & types)) continue;
        if (json_is_object(value) || json_is_array(value)) {
            node = grammar_either(s->g, jsonrules_value(&s->json, value, next), node);
            continue;
        }
        zp_status status = jsonrules_scalar(value, text, &err);
        if (status != ZP_OK) grammar_fail(s->g, status, "%s", err.message);
        words[n++] = (struct grammar_word){ .text = NULL, .size = text->size - begin };
    }
    for (size_t k = 0, at = 0; k < n; at += words[k++].size) words[k].text = text->data + at;
    return grammar_either(s->g, grammar_words(s->g, words, n, next), node);
}

/* What const and enum leave, as a new array. NULL: no memory. */
static json_t *list_known(const json_t *o)
{
    const json_t *one = json_object_get(o, "const"), *list = json_object_get(o, "enum");
    if (one == NULL) return schema_share(list);
    bool in_list = list == NULL;
    for (size_t i = 0; i < json_array_size(list); i++)
        in_list = in_list || json_equal(json_array_get(list, i), one);
    json_t *out = json_array();
    return in_list && out ? json_tree_add(out, schema_share(one)) : out;
}

static void check_beside_known(struct schema *s, const json_t *o, const struct schema_place *at)
{
    const char *key;
    json_t *value;
    SCHEMA_FOREACH (o, key, value) {
        enum schema_group group = schema_group_of(key);
        bool limits = group >= SCHEMA_OBJECT && group <= SCHEMA_NUMBER;
        if (limits && strcmp(key, "format") != 0)
            schema_fail_key(s, at, ZP_UNSUPPORTED, key,
                            "not supported beside enum or const: name the values that are left");
        if (strcmp(key, "enum") == 0 && !json_is_array(value))
            schema_fail_key(s, at, ZP_BAD_INPUT, key, "expected an array of values");
    }
}

static uint32_t known_values(struct schema *s, const json_t *o, unsigned types,
                             const struct schema_place *at, uint32_t next)
{
    struct buffer text = buffer_with_max(MEM_SCRATCH, (size_t)16 << 20);
    uint32_t node = GRAMMAR_NEVER;
    check_beside_known(s, o, at);
    if (grammar_failed(s->g)) return node;
    json_t *list = list_known(o);
    struct grammar_word *words = mem_array(MEM_SCRATCH, json_array_size(list), sizeof *words);
    if (words == NULL || list == NULL)
        grammar_fail(s->g, ZP_NO_MEMORY, "not enough memory for a schema");
    else node = values_of(s, list, types, &text, words, next);
    json_decref(list);
    mem_free(words);
    buffer_free(&text);
    return node;
}

/* ---- one schema ------------------------------------------------------------------------------ */

/* A refused keyword that refuses nothing. */
static bool is_harmless(const char *key, const json_t *value)
{
    if (strcmp(key, "uniqueItems") == 0) return json_is_false(value);
    bool always = json_is_true(value) || (json_is_object(value) && json_object_size(value) == 0);
    bool negates = strcmp(key, "not") == 0 || strcmp(key, "if") == 0;
    return always && !negates && strcmp(key, "contains") != 0;
}

static void check_keywords(struct schema *s, const json_t *o, const struct schema_place *at)
{
    const char *key;
    json_t *value;
    SCHEMA_FOREACH (o, key, value) {
        if (schema_group_of(key) == SCHEMA_REFUSED && !is_harmless(key, value))
            schema_fail_key(s, at, ZP_UNSUPPORTED, key, "this keyword is not supported");
        if (strcmp(key, "$id") == 0 && at->up != NULL)
            schema_fail_key(s, at, ZP_UNSUPPORTED, key, "only supported at the top of the schema");
    }
    const json_t *all = json_object_get(o, "allOf");
    if (all && json_array_size(all) == 0)
        schema_fail_key(s, at, ZP_BAD_INPUT, "allOf", "expected an array of at least one schema");
}

unsigned schema_type_of(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT: return SCHEMA_T_OBJECT;
    case JSON_ARRAY: return SCHEMA_T_ARRAY;
    case JSON_STRING: return SCHEMA_T_STRING;
    case JSON_INTEGER: return SCHEMA_T_INTEGER;
    case JSON_REAL: {
        double x = json_real_value(value);
        bool whole = x > -1e15 && x < 1e15 && x == (double)(long long)x;
        return whole ? SCHEMA_T_INTEGER : SCHEMA_T_NUMBER;
    }
    case JSON_TRUE:
    case JSON_FALSE: return SCHEMA_T_BOOLEAN;
    case JSON_NULL: break;
    }
    return SCHEMA_T_NULL;
}

static unsigned type_named(struct schema *s, const json_t *name, const struct schema_place *at)
{
    static const struct {
        const char *name;
        unsigned type;
    } table[] = { { "null", SCHEMA_T_NULL },       { "boolean", SCHEMA_T_BOOLEAN },
                  { "integer", SCHEMA_T_INTEGER }, { "number", SCHEMA_T_NUMBER | SCHEMA_T_INTEGER },
                  { "string", SCHEMA_T_STRING },   { "array", SCHEMA_T_ARRAY },
                  { "object", SCHEMA_T_OBJECT } };
    for (size_t i = 0; i < ZP_COUNT(table) && json_is_string(name); i++)
        if (strcmp(table[i].name, json_string_value(name)) == 0) return table[i].type;
    schema_fail_key(s, at, ZP_BAD_INPUT, "type",
                    "expected null, boolean, integer, number, string, array or object, or an array "
                    "of these");
    return 0;
}

/* What keywords speak of, where no type is given: who writes "properties" means an object. */
static unsigned implied_types(const json_t *o)
{
    unsigned types = 0;
    const char *key;
    json_t *value;
    SCHEMA_FOREACH (o, key, value) {
        enum schema_group group = schema_group_of(key);
        if (group == SCHEMA_OBJECT) types |= SCHEMA_T_OBJECT;
        if (group == SCHEMA_ARRAY) types |= SCHEMA_T_ARRAY;
        if (group == SCHEMA_STRING) types |= SCHEMA_T_STRING;
        if (group == SCHEMA_NUMBER) types |= SCHEMA_T_NUMBER | SCHEMA_T_INTEGER;
    }
    return types ? types : SCHEMA_T_ALL;
}

static unsigned types_of(struct schema *s, const json_t *o, const struct schema_place *at)
{
    const json_t *type = json_object_get(o, "type");
    unsigned types = 0;
    size_t i;
    json_t *name;
    if (type == NULL) return implied_types(o);
    if (!json_is_array(type)) return type_named(s, type, at);
    json_array_foreach (type, i, name) types |= type_named(s, name, at);
    return types;
}

static uint32_t by_type(struct schema *s, const json_t *o, unsigned types,
                        const struct schema_place *at, uint32_t next)
{
    struct grammar *g = s->g;
    uint32_t node = GRAMMAR_NEVER;
    if (types == SCHEMA_T_ALL && count_claims(o, "type") == 0)
        return jsonrules_call(&s->json, JSON_RULE_VALUE, next);
    if (types & SCHEMA_T_NULL) node = grammar_text(g, "null", 4, next);
    if (types & SCHEMA_T_BOOLEAN)
        node = grammar_either(g, node, grammar_either(g, grammar_text(g, "true", 4, next),
                                                      grammar_text(g, "false", 5, next)));
    if (types & (SCHEMA_T_INTEGER | SCHEMA_T_NUMBER))
        node = grammar_either(g, node, schema_number(s, o, !(types & SCHEMA_T_NUMBER), at, next));
    if (types & SCHEMA_T_STRING) node = grammar_either(g, node, schema_string(s, o, at, next));
    if (types & SCHEMA_T_ARRAY) node = grammar_either(g, node, schema_array(s, o, at, next));
    if (types & SCHEMA_T_OBJECT) node = grammar_either(g, node, schema_object(s, o, at, next));
    return node;
}

static uint32_t object_nodes(struct schema *s, const json_t *o, const struct schema_place *at,
                             uint32_t next)
{
    const json_t *ref = json_object_get(o, "$ref"), *all = json_object_get(o, "allOf");
    bool any = json_object_get(o, "anyOf") != NULL, one = json_object_get(o, "oneOf") != NULL;
    check_keywords(s, o, at);
    if (ref && count_claims(o, "$ref") == 0) return reference(s, ref, at, next);
    if (json_array_size(all) == 1 && count_claims(o, "allOf") == 0) {
        struct schema_place list = { at, "allOf", 0 }, place = { &list, NULL, 0 };
        return schema_nodes(s, json_array_get(all, 0), &place, next);
    }
    if (ref || all) return all_of(s, o, at, next);
    if (any && one)
        schema_fail_key(s, at, ZP_UNSUPPORTED, "oneOf", "not supported beside anyOf");
    if (any || one) return any_of(s, o, any ? "anyOf" : "oneOf", at, next);
    bool known = json_object_get(o, "const") || json_object_get(o, "enum");
    bool typed = json_object_get(o, "type") != NULL;
    unsigned types = known && !typed ? SCHEMA_T_ALL : types_of(s, o, at);
    return known ? known_values(s, o, types, at, next) : by_type(s, o, types, at, next);
}

uint32_t schema_nodes(struct schema *s, const json_t *v, const struct schema_place *at,
                      uint32_t next)
{
    uint32_t node = GRAMMAR_NEVER;
    if (json_is_true(v)) return jsonrules_call(&s->json, JSON_RULE_VALUE, next);
    if (json_is_false(v) || grammar_failed(s->g)) return GRAMMAR_NEVER;
    if (!json_is_object(v))
        schema_fail(s, at, ZP_BAD_INPUT, "a schema must be an object, true or false");
    if (s->depth == MAX_DEPTH)
        schema_fail(s, at, ZP_UNSUPPORTED, "schemas nest more than 100 levels deep");
    s->depth++;
    if (!grammar_failed(s->g)) node = object_nodes(s, v, at, next);
    s->depth--;
    return node;
}

uint32_t schema_rule(struct schema *s, const json_t *v, const struct schema_place *at)
{
    if (json_is_true(v)) return jsonrules_get(&s->json, JSON_RULE_VALUE);
    return grammar_rule(s->g, schema_nodes(s, v, at, GRAMMAR_END));
}

/* ---- all of it ------------------------------------------------------------------------------- */

uint32_t jsonschema_rules(struct grammar *g, const char *text, size_t size)
{
    struct schema s = { .g = g, .json = { .g = g } };
    struct schema_place top = { NULL, NULL, 0 };
    zp_err err = { 0 };
    json_t *root = NULL;
    uint32_t rule = 0;
    if (size > JSONSCHEMA_MAX_SIZE)
        grammar_fail(g, ZP_BAD_INPUT, "a schema of %zu bytes; at most %zu", size,
                     JSONSCHEMA_MAX_SIZE);
    else if (json_tree_read(text, size, "schema", ZP_BAD_INPUT, &root, &err) != ZP_OK)
        grammar_fail(g, err.code, "%s", err.message);
    s.merge.root = root;
    if (!grammar_failed(g)) rule = target_rule(&s, root, "the schema");
    for (uint32_t i = 0; i < s.n_targets && !grammar_failed(g); i++) { // J2
        struct schema_target t = s.targets[i];
        struct schema_place place = { &top, NULL, 0 };
        place.key = g->rules[t.rule].name + 2; /* without "#/" */
        grammar_define(g, t.rule,
                       schema_nodes(&s, t.schema, t.schema == root ? &top : &place, GRAMMAR_END));
    }
    mem_free(s.targets);
    json_decref(root);
    return rule;
}
