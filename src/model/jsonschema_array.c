/* jsonschema_array.c: arrays of a JSON Schema: schemas for the first places (prefixItems, or items
 * as a list), one for all others, and bounds on their number. */
#include "model/jsonschema_parts.h"

struct places {
    const json_t *first; /* schemas of the first places; NULL: none */
    const json_t *rest;  /* of all others; NULL: any value */
    const char *first_key, *rest_key;
    uint32_t n, min, max; /* of `first`; of items */
};

static struct places read_places(struct schema *s, const json_t *o, const struct schema_place *at)
{
    const json_t *items = json_object_get(o, "items");
    struct places p = { .first = json_object_get(o, "prefixItems"), .rest = items,
                        .first_key = "prefixItems", .rest_key = "items" };
    if (json_is_array(items)) { /* drafts before 2020-12 */
        p.first = items;
        p.first_key = "items";
        p.rest_key = "additionalItems";
        p.rest = json_object_get(o, "additionalItems");
    }
    if (p.first && !json_is_array(p.first))
        schema_fail_key(s, at, ZP_BAD_INPUT, p.first_key, "expected an array of schemas");
    p.n = (uint32_t)json_array_size(p.first);
    p.min = schema_count(s, o, "minItems", 0, at);
    p.max = schema_count(s, o, "maxItems", GRAMMAR_UNBOUNDED, at);
    return p;
}

static uint32_t less(uint32_t n, uint32_t by)
{
    return n == GRAMMAR_UNBOUNDED ? n : n > by ? n - by : 0;
}

/* Items from number p->n on, and the closing bracket. */
static uint32_t rest_of(struct schema *s, const struct places *p, const struct schema_place *at,
                        uint32_t close, uint32_t empty)
{
    struct schema_place place = { at, p->rest_key, 0 };
    uint32_t none = p->n == 0 ? empty : close, ended = p->min <= p->n ? none : GRAMMAR_NEVER;
    if (p->max <= p->n || json_is_false(p->rest)) return ended;
    uint32_t item = p->rest ? schema_rule(s, p->rest, &place)
                            : jsonrules_get(&s->json, JSON_RULE_VALUE);
    uint32_t one = grammar_call(s->g, item, GRAMMAR_END);
    uint32_t more = grammar_rule(s->g, jsonrules_comma(&s->json, one));
    uint32_t least = less(p->min, p->n), most = less(p->max, p->n);
    if (p->n > 0) return grammar_repeat(s->g, more, least, most, close);
    uint32_t others = grammar_repeat(s->g, more, less(least, 1), less(most, 1), close);
    return grammar_either(s->g, grammar_call(s->g, item, others), ended);
}

uint32_t schema_array(struct schema *s, const json_t *o, const struct schema_place *at,
                      uint32_t next)
{
    struct places p = read_places(s, o, at);
    struct schema_place list = { at, p.first_key, 0 };
    if (grammar_failed(s->g) || p.min > p.max) return GRAMMAR_NEVER;
    uint32_t close = jsonrules_close(&s->json, ']', next);
    uint32_t empty = grammar_text(s->g, "]", 1, next);
    uint32_t node = rest_of(s, &p, at, close, empty);
    for (uint32_t i = p.n; i-- > 0 && !grammar_failed(s->g);) {
        struct schema_place place = { &list, NULL, i };
        uint32_t ended = p.min <= i ? (i > 0 ? close : empty) : GRAMMAR_NEVER;
        node =
            i < p.max ? schema_nodes(s, json_array_get(p.first, i), &place, node) : GRAMMAR_NEVER;
        if (i > 0) node = jsonrules_comma(&s->json, node);
        node = grammar_either(s->g, node, ended);
    }
    return grammar_text(s->g, "[", 1, jsonrules_call(&s->json, JSON_RULE_SPACE, node));
}
