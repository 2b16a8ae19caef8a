/* jsonschema_object.c: objects of a JSON Schema. Members come in the order of `properties`, then
 * required ones that are not named there, then any others that additionalProperties lets in, whose
 * names differ from all those. */
#include <string.h>

#include "model/charclass.h"
#include "model/jsonschema_parts.h"

#define MAX_MEMBERS 4096 /* of one object */
#define MAX_NAME 256 /* bytes of a property's name where other names are let in */

struct member {
    const char *name;
    uint32_t rule; /* name and value */
    bool required;
};
struct members {
    struct member *items;
    uint32_t n, n_required;
    const json_t *others; /* schema of all others; NULL: any value */
    uint32_t min, max;    /* minProperties, maxProperties */
};

/* ---- names of others ------------------------------------------------------------------------- */

/* Characters of a name that is none of `words`, then its end. */
struct other_names {
    struct grammar *g;
    uint32_t end;     /* closing quote and what follows */
    uint32_t rest;    /* any characters, then `end` */
    uint32_t strange; /* rule: a character that is escaped or beyond ASCII */
};

static bool is_plain(uint32_t c)
{
    return c >= 0x20 && c < 0x80 && c != '"' && c != '\\';
}

/* A character not in `known` (sorted), then anything. */
static uint32_t other_character(struct other_names *o, struct charclass *known)
{
    bool plain = true;
    for (uint32_t i = 0; i < known->n; i++)
        plain = plain && is_plain(known->ranges[i].low) && is_plain(known->ranges[i].high);
    if (plain) { /* few nodes for what nearly all names are made of */
        charclass_add(known, 0x80, CHARCLASS_LAST);
        charclass_add(known, 0, 0x1F);
        charclass_add(known, '"', '"');
        charclass_add(known, '\\', '\\');
        charclass_sort(known);
    }
    if (!charclass_invert(known))
        grammar_fail(o->g, ZP_UNSUPPORTED, "more than 256 property names begin alike");
    uint32_t node = charclass_json(o->g, known, o->rest);
    if (plain) node = grammar_either(o->g, grammar_call(o->g, o->strange, o->rest), node);
    return node;
}

/* Names that begin like the words up to `at`, but are none of them. Depth: characters of a word. */
static uint32_t unlike(struct other_names *o, const struct grammar_word *words, size_t n, size_t at)
{
    struct charclass known = { .n = 0 };
    uint32_t node = words[0].size > at ? o->end : GRAMMAR_NEVER;
    size_t i = 0;
    while (i < n && words[i].size == at) i++;
    while (i < n && !grammar_failed(o->g)) {
        size_t size, end = i + 1;
        char text[8];
        uint32_t c = charclass_read((const char *)words[i].text + at, &size);
        while (end < n && words[end].size >= at + size &&
               memcmp(words[end].text + at, words[i].text + at, size) == 0)
            end++;
        uint32_t inner = unlike(o, words + i, end - i, at + size);
        size_t written = charclass_json_text(c, text);
        node = grammar_either(o->g, grammar_text(o->g, text, written, inner), node);
        if (!charclass_add(&known, c, c))
            grammar_fail(o->g, ZP_UNSUPPORTED, "more than 256 property names begin alike");
        i = end;
    }
    charclass_sort(&known);
    return grammar_either(o->g, other_character(o, &known), node);
}

/* n > 0 */
static uint32_t other_names(struct schema *s, struct grammar_word *words, size_t n, uint32_t next)
{
    struct grammar *g = s->g;
    struct charclass any = { .ranges = { { 1, CHARCLASS_LAST } }, .n = 1 };
    struct charclass strange = { .ranges = { { 1, 0x1F }, { '"', '"' }, { '\\', '\\' },
                                             { 0x80, CHARCLASS_LAST } },
                                 .n = 4 };
    struct other_names o = { .g = g, .end = grammar_text(g, "\"", 1, next) };
    uint32_t character = grammar_rule(g, charclass_json(g, &any, GRAMMAR_END));
    o.rest = grammar_repeat(g, character, 0, GRAMMAR_UNBOUNDED, o.end);
    o.strange = grammar_rule(g, charclass_json(g, &strange, GRAMMAR_END));
    grammar_sort_words(words, n);
    return grammar_text(g, "\"", 1, grammar_failed(g) ? GRAMMAR_NEVER : unlike(&o, words, n, 0));
}

/* The rule of one more member. */
static uint32_t other_member(struct schema *s, const struct members *m,
                             const struct schema_place *at)
{
    struct schema_place place = { at, "additionalProperties", 0 };
    uint32_t value = m->others ? schema_rule(s, m->others, &place)
                               : jsonrules_get(&s->json, JSON_RULE_VALUE);
    uint32_t rest = jsonrules_colon(&s->json, grammar_call(s->g, value, GRAMMAR_END));
    if (m->n == 0) return grammar_rule(s->g, jsonrules_call(&s->json, JSON_RULE_STRING, rest));
    struct grammar_word *words = mem_array(MEM_SCRATCH, m->n, sizeof *words);
    if (words == NULL) grammar_fail(s->g, ZP_NO_MEMORY, "not enough memory for a schema");
    for (uint32_t i = 0; i < m->n && words; i++) {
        const char *name = m->items[i].name;
        words[i] = (struct grammar_word){ (const uint8_t *)name, strlen(name) };
        if (words[i].size > MAX_NAME)
            schema_fail(s, at, ZP_UNSUPPORTED,
                        "a name of more than 256 bytes needs \"additionalProperties\": false");
    }
    uint32_t node = grammar_failed(s->g) ? GRAMMAR_NEVER : other_names(s, words, m->n, rest);
    mem_free(words);
    return grammar_rule(s->g, node);
}

/* ---- members --------------------------------------------------------------------------------- */

static bool is_required(const json_t *required, const char *name)
{
    size_t i;
    json_t *item;
    json_array_foreach (required, i, item)
        if (json_is_string(item) && strcmp(json_string_value(item), name) == 0) return true;
    return false;
}

static void add_member(struct schema *s, struct members *m, const char *name, const json_t *value,
                       bool required, const struct schema_place *at)
{
    uint32_t rule = value ? schema_rule(s, value, at) : jsonrules_get(&s->json, JSON_RULE_VALUE);
    uint32_t rest = jsonrules_colon(&s->json, grammar_call(s->g, rule, GRAMMAR_END));
    rule = grammar_rule(s->g, jsonrules_name(&s->json, name, rest));
    m->items[m->n++] = (struct member){ name, rule, required };
    m->n_required += required;
}

static void add_members(struct schema *s, const json_t *o, struct members *m,
                        const struct schema_place *at)
{
    const json_t *properties = json_object_get(o, "properties");
    const json_t *required = json_object_get(o, "required");
    struct schema_place inner = { at, "properties", 0 };
    const char *key;
    json_t *value, *item;
    size_t i;
    SCHEMA_FOREACH (properties, key, value) {
        struct schema_place place = { &inner, key, 0 };
        add_member(s, m, key, value, is_required(required, key), &place);
    }
    json_array_foreach (required, i, item) {
        struct schema_place place = { at, "additionalProperties", 0 };
        const char *name = json_string_value(item);
        bool known = false;
        for (uint32_t k = 0; k < m->n && name; k++) known |= strcmp(m->items[k].name, name) == 0;
        if (name == NULL)
            schema_fail_key(s, at, ZP_BAD_INPUT, "required", "expected an array of names");
        else if (!known) add_member(s, m, name, m->others, true, &place);
    }
}

static void read_members(struct schema *s, const json_t *o, struct members *m,
                         const struct schema_place *at)
{
    const json_t *properties = json_object_get(o, "properties");
    const json_t *required = json_object_get(o, "required");
    m->others = json_object_get(o, "additionalProperties");
    m->min = schema_count(s, o, "minProperties", 0, at);
    m->max = schema_count(s, o, "maxProperties", GRAMMAR_UNBOUNDED, at);
    if (properties && !json_is_object(properties))
        schema_fail_key(s, at, ZP_BAD_INPUT, "properties", "expected an object of schemas");
    if (required && !json_is_array(required))
        schema_fail_key(s, at, ZP_BAD_INPUT, "required", "expected an array of names");
    size_t most = json_object_size(properties) + json_array_size(required);
    if (most > 2 * MAX_MEMBERS)
        schema_fail(s, at, ZP_UNSUPPORTED, "an object of more than 4096 properties");
    m->items = mem_array(MEM_SCRATCH, most, sizeof *m->items);
    if (m->items == NULL) grammar_fail(s->g, ZP_NO_MEMORY, "not enough memory for a schema");
    if (!grammar_failed(s->g)) add_members(s, o, m, at);
}

/* Bounds on the number of members are kept where nothing else varies it. False: no object has so
 * many. */
static bool check_bounds(struct schema *s, const struct members *m, const struct schema_place *at)
{
    bool fixed = json_is_false(m->others);
    if (m->min > m->max || (fixed && m->min > m->n) || m->max < m->n_required) return false;
    if (m->n == 0) return true;
    if (m->min > m->n_required)
        schema_fail_key(s, at, ZP_UNSUPPORTED, "minProperties",
                        "not supported beside optional properties");
    if (m->max < m->n || (!fixed && m->max != GRAMMAR_UNBOUNDED))
        schema_fail_key(s, at, ZP_UNSUPPORTED, "maxProperties",
                        "not supported beside properties that may be left out or added");
    return !grammar_failed(s->g);
}

/* Nodes behind the last listed member: `after` where there was one, `alone` where none was. */
static void ends_of(struct schema *s, const struct members *m, const struct schema_place *at,
                    uint32_t next, uint32_t *after, uint32_t *alone)
{
    struct grammar *g = s->g;
    uint32_t least = m->n == 0 && m->min > 0 ? m->min - 1 : 0, most = GRAMMAR_UNBOUNDED;
    *after = jsonrules_close(&s->json, '}', next);
    *alone = m->n > 0 || m->min == 0 ? grammar_text(g, "}", 1, next) : GRAMMAR_NEVER;
    if (json_is_false(m->others) || (m->n == 0 && m->max == 0)) return;
    if (m->n == 0 && m->max != GRAMMAR_UNBOUNDED) most = m->max - 1;
    uint32_t other = other_member(s, m, at), one = grammar_call(g, other, GRAMMAR_END);
    uint32_t more = grammar_rule(g, jsonrules_comma(&s->json, one));
    *after = grammar_repeat(g, more, least, most, *after);
    *alone = grammar_either(g, grammar_call(g, other, *after), *alone);
}

static uint32_t object_nodes(struct schema *s, const struct members *m,
                             const struct schema_place *at, uint32_t next)
{
    struct grammar *g = s->g;
    uint32_t after, alone; /* what comes where a member stands before, and where none does */
    ends_of(s, m, at, next, &after, &alone);
    for (uint32_t i = m->n; i-- > 0 && !grammar_failed(g);) {
        uint32_t then = grammar_call(g, m->items[i].rule, after);
        uint32_t comma = jsonrules_comma(&s->json, then);
        bool required = m->items[i].required;
        after = required ? comma : grammar_either(g, comma, after);
        alone = required ? then : grammar_either(g, then, alone);
    }
    return grammar_text(g, "{", 1, jsonrules_call(&s->json, JSON_RULE_SPACE, alone));
}

uint32_t schema_object(struct schema *s, const json_t *o, const struct schema_place *at,
                       uint32_t next)
{
    struct members m = { .items = NULL };
    uint32_t node = GRAMMAR_NEVER;
    bool any = !json_object_get(o, "properties") && !json_object_get(o, "required") &&
               !json_object_get(o, "additionalProperties") &&
               !json_object_get(o, "minProperties") && !json_object_get(o, "maxProperties");
    if (any) return jsonrules_call(&s->json, JSON_RULE_OBJECT, next);
    read_members(s, o, &m, at);
    if (!grammar_failed(s->g) && check_bounds(s, &m, at)) node = object_nodes(s, &m, at, next);
    mem_free(m.items);
    return node;
}
