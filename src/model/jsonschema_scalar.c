/* jsonschema_scalar.c: numbers and strings of a JSON Schema. */
#include <string.h>

#include "model/jsonschema_parts.h"
#include "model/numrange.h"
#include "model/pattern.h"

#define MOST_FRACTION 17 /* digits behind the point, where nothing says otherwise */

uint32_t schema_count(struct schema *s, const json_t *o, const char *key, uint32_t preset,
                      const struct schema_place *at)
{
    const json_t *value = json_object_get(o, key);
    double n = json_number_value(value);
    if (value == NULL) return preset;
    bool good = json_is_number(value) && n >= 0 && (n > 9e15 || n == (double)(uint64_t)n);
    if (!good) schema_fail_key(s, at, ZP_BAD_INPUT, key, "expected an integer of at least 0");
    return good && n < (double)GRAMMAR_UNBOUNDED ? (uint32_t)n : GRAMMAR_UNBOUNDED;
}

/* ---- numbers --------------------------------------------------------------------------------- */

static struct decimal bound(struct schema *s, const json_t *o, const char *key,
                            const struct schema_place *at)
{
    struct decimal d = { .is_set = false };
    const json_t *value = json_object_get(o, key);
    if (value == NULL) return d;
    if (!json_is_number(value)) schema_fail_key(s, at, ZP_BAD_INPUT, key, "expected a number");
    else if (!decimal_read(value, &d))
        schema_fail_key(s, at, ZP_UNSUPPORTED, key, "more than 40 digits behind the point");
    return d;
}

/* The tighter of a bound that is included and one that is not; up: lower bounds. */
static struct decimal tighter(struct decimal in, struct decimal out, bool up)
{
    out.excluded = true;
    if (!out.is_set) return in;
    int order = in.is_set ? decimal_compare(&in, &out) : 0;
    return (up ? order > 0 : order < 0) ? in : out;
}

/* Digits behind the point that multipleOf leaves; only powers of ten are supported. */
static uint32_t most_fraction(struct schema *s, const json_t *o, bool whole,
                              const struct numrange *r, const struct schema_place *at)
{
    const json_t *value = json_object_get(o, "multipleOf");
    struct decimal d = bound(s, o, "multipleOf", at);
    uint32_t n = d.n_fraction, wide = MOST_FRACTION;
    if (r->low.n_fraction > wide) wide = r->low.n_fraction;
    if (r->high.n_fraction > wide) wide = r->high.n_fraction;
    if (value == NULL) return whole ? 0 : wide;
    bool power = !d.negative && ((n == 0 && d.n_whole == 1 && d.whole[0] == 1) ||
                                 (n > 0 && d.n_whole == 0 && d.fraction[n - 1] == 1));
    for (uint32_t i = 0; i + 1 < n; i++) power = power && d.fraction[i] == 0;
    if (!power)
        schema_fail_key(s, at, ZP_UNSUPPORTED, "multipleOf",
                        "only 1, 0.1, 0.01, ... are supported");
    return whole ? 0 : n;
}

uint32_t schema_number(struct schema *s, const json_t *o, bool whole, const struct schema_place *at,
                       uint32_t next)
{
    struct numrange r = {
        .low = tighter(bound(s, o, "minimum", at), bound(s, o, "exclusiveMinimum", at), true),
        .high = tighter(bound(s, o, "maximum", at), bound(s, o, "exclusiveMaximum", at), false),
    };
    bool free = !r.low.is_set && !r.high.is_set && !json_object_get(o, "multipleOf");
    if (free)
        return jsonrules_call(&s->json, whole ? JSON_RULE_INTEGER : JSON_RULE_NUMBER, next);
    r.max_fraction = most_fraction(s, o, whole, &r, at);
    if (grammar_failed(s->g)) return GRAMMAR_NEVER;
    return grammar_call(s->g, grammar_rule(s->g, numrange_nodes(s->g, &r, GRAMMAR_END)), next);
}

/* ---- strings --------------------------------------------------------------------------------- */

/* clang-format off */
#define DATE                                                                                      \
    "(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"                                \
    "|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))"                         \
    "|(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)"
#define TIME                                                                                      \
    "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?"                                \
    "(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
#define LABEL "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define OCTET "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
#define N "[0-9]{1,6}"
#define H "[0-9A-Fa-f]{1,4}"
static const struct { const char *name, *pattern; } formats[] = {
    { "date", "^" DATE "$" },
    { "time", "^" TIME "$" },
    { "date-time", "^" DATE "T" TIME "$" },
    { "duration", "^P(?:(?:" N "Y(?:" N "M(?:" N "D)?)?|" N "M(?:" N "D)?|" N "D)"
                  "(?:T(?:" N "H(?:" N "M(?:" N "S)?)?|" N "M(?:" N "S)?|" N "S))?"
                  "|T(?:" N "H(?:" N "M(?:" N "S)?)?|" N "M(?:" N "S)?|" N "S)|" N "W)$" },
    { "uuid", "^[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}$" },
    { "email", "^[A-Za-z0-9_+-]{1,32}(?:\\.[A-Za-z0-9_+-]{1,32}){0,3}@(?:" LABEL "\\.){1,4}"
               "[A-Za-z]{2,24}$" },
    { "hostname", "^(?:" LABEL "\\.){0,6}" LABEL "$" },
    { "ipv4", "^(?:" OCTET "\\.){3}" OCTET "$" },
    { "ipv6", "^(?:(?:" H ":){7}" H "|(?:" H ":){1,7}:|(?:" H ":){1,6}:" H
              "|(?:" H ":){1,5}(?::" H "){1,2}|(?:" H ":){1,4}(?::" H "){1,3}"
              "|(?:" H ":){1,3}(?::" H "){1,4}|(?:" H ":){1,2}(?::" H "){1,5}"
              "|" H ":(?::" H "){1,6}|::(?:" H ":){0,6}" H "|::)$" },
    { "uri", "^[a-z][a-z0-9+.-]{1,15}://(?:" LABEL "\\.){0,6}" LABEL "(?::[0-9]{1,5})?"
             "(?:/[A-Za-z0-9._~!$&'()*+,;=:@-]*)*(?:\\?[A-Za-z0-9._~!$&'()*+,;=:@/?-]*)?"
             "(?:#[A-Za-z0-9._~!$&'()*+,;=:@/?-]*)?$" },
};
/* clang-format on */
#undef N
#undef H

/* The pattern of a format; NULL: none of ours, so that it says nothing. */
static const char *format_pattern(const json_t *format)
{
    const char *name = json_string_value(format);
    for (size_t i = 0; i < ZP_COUNT(formats) && name; i++)
        if (strcmp(formats[i].name, name) == 0) return formats[i].pattern;
    return NULL;
}

uint32_t schema_string(struct schema *s, const json_t *o, const struct schema_place *at,
                       uint32_t next)
{
    uint32_t min = schema_count(s, o, "minLength", 0, at), start = GRAMMAR_NEVER;
    uint32_t max = schema_count(s, o, "maxLength", GRAMMAR_UNBOUNDED, at);
    const json_t *own = json_object_get(o, "pattern");
    const char *pattern = own ? json_string_value(own)
                              : format_pattern(json_object_get(o, "format"));
    if (own && !pattern) schema_fail_key(s, at, ZP_BAD_INPUT, "pattern", "expected a string");
    if (!pattern && min == 0 && max == GRAMMAR_UNBOUNDED)
        return jsonrules_call(&s->json, JSON_RULE_STRING, next);
    if (grammar_failed(s->g)) return GRAMMAR_NEVER;
    uint32_t end = grammar_text(s->g, "\"", 1, next);
    if (!pattern)
        start = grammar_repeat(s->g, jsonrules_get(&s->json, JSON_RULE_CHARACTER), min, max, end);
    else if (!pattern_nodes(s->g, pattern, strlen(pattern), min, max, end, &start))
        schema_name_place(s, at, own ? "pattern" : "format");
    return grammar_text(s->g, "\"", 1, start);
}
