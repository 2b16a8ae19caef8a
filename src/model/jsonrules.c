/* jsonrules.c: rules of JSON texts. */
#include "model/jsonrules.h"

#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/numtext.h"
#include "model/charclass.h"

enum { MOST_SPACES = 32, MOST_TABS = 8, MOST_DIGITS = 17 };
#define MAX_TEXT ((size_t)16 << 20) /* of one known value */

static uint32_t text(struct jsonrules *r, const char *s, uint32_t next)
{
    return grammar_text(r->g, s, strlen(s), next);
}

static uint32_t optional(struct jsonrules *r, uint32_t start, uint32_t next)
{
    return grammar_either(r->g, start, next);
}

static uint32_t make_space(struct jsonrules *r)
{
    struct grammar *g = r->g;
    uint32_t space = grammar_rule(g, text(r, " ", GRAMMAR_END));
    uint32_t tab = grammar_rule(g, text(r, "\t", GRAMMAR_END));
    uint32_t indent = grammar_either(g, grammar_repeat(g, space, 0, MOST_SPACES, GRAMMAR_END),
                                     grammar_repeat(g, tab, 1, MOST_TABS, GRAMMAR_END));
    uint32_t some = grammar_either(g, text(r, " ", GRAMMAR_END), text(r, "\n", indent));
    return optional(r, some, GRAMMAR_END);
}

/* ---- strings -------------------------------------------------------------------------------- */

static uint32_t hex(struct jsonrules *r, const char *digits, uint32_t next)
{
    uint32_t node = GRAMMAR_NEVER;
    for (; *digits; digits++) {
        uint8_t c = (uint8_t)*digits;
        node = grammar_either(r->g, grammar_bytes(r->g, c, c, next), node);
    }
    return node;
}

#define NOT_ZERO "123456789ABCDEFabcdef"

static uint32_t any_hex(struct jsonrules *r, int n, uint32_t next)
{
    while (n-- > 0) {
        uint32_t letters = grammar_either(r->g, grammar_bytes(r->g, 'A', 'F', next),
                                          grammar_bytes(r->g, 'a', 'f', next));
        next = grammar_either(r->g, grammar_bytes(r->g, '0', '9', next), letters);
    }
    return next;
}

/* Four digits: not 0000, not half of a pair, or both halves. */
static uint32_t unicode(struct jsonrules *r, uint32_t next)
{
    struct grammar *g = r->g;
    uint32_t low_half = text(r, "\\u", hex(r, "Dd", hex(r, "CDEFcdef", any_hex(r, 2, next))));
    uint32_t d = hex(r, "Dd", grammar_either(g, hex(r, "01234567", any_hex(r, 2, next)),
                                             hex(r, "89ABab", any_hex(r, 2, low_half))));
    uint32_t rest = hex(r, NOT_ZERO, next); /* of what begins with 0, from its end */
    rest = grammar_either(g, text(r, "0", rest), hex(r, NOT_ZERO, any_hex(r, 1, next)));
    rest = grammar_either(g, text(r, "0", rest), hex(r, NOT_ZERO, any_hex(r, 2, next)));
    uint32_t others = hex(r, "123456789ABCEFabcef", any_hex(r, 3, next));
    return grammar_either(g, text(r, "0", rest), grammar_either(g, d, others));
}

static uint32_t make_character(struct jsonrules *r)
{
    struct grammar *g = r->g;
    struct charclass plain = { .ranges = { { 0x20, '"' - 1 }, { '"' + 1, '\\' - 1 },
                                           { '\\' + 1, CHARCLASS_LAST } },
                               .n = 3 };
    uint32_t escaped = text(r, "u", unicode(r, GRAMMAR_END));
    for (const char *c = "\"\\/bfnrt"; *c; c++)
        escaped = grammar_either(g, grammar_text(g, c, 1, GRAMMAR_END), escaped);
    return grammar_either(g, charclass_utf8(g, &plain, GRAMMAR_END), text(r, "\\", escaped));
}

static uint32_t make_string(struct jsonrules *r)
{
    uint32_t character = jsonrules_get(r, JSON_RULE_CHARACTER);
    return text(r, "\"", grammar_repeat(r->g, character, 0, GRAMMAR_UNBOUNDED,
                                        text(r, "\"", GRAMMAR_END)));
}

/* ---- numbers -------------------------------------------------------------------------------- */

static uint32_t digits(struct jsonrules *r, uint32_t min, uint32_t max, uint32_t next)
{
    return grammar_repeat(r->g, jsonrules_get(r, JSON_RULE_DIGIT), min, max, next);
}

static uint32_t positive(struct jsonrules *r, uint32_t next)
{
    return grammar_bytes(r->g, '1', '9', digits(r, 0, MOST_DIGITS, next));
}

/* Not -0, which some readers make a real number of. */
static uint32_t make_integer(struct jsonrules *r)
{
    uint32_t minus = text(r, "-", positive(r, GRAMMAR_END));
    return grammar_either(r->g, minus, grammar_either(r->g, text(r, "0", GRAMMAR_END),
                                                      positive(r, GRAMMAR_END)));
}

static uint32_t make_number(struct jsonrules *r)
{
    struct grammar *g = r->g;
    uint32_t power = digits(r, 1, 2, GRAMMAR_END);
    power = grammar_either(g, grammar_either(g, text(r, "+", power), text(r, "-", power)), power);
    power = grammar_either(g, text(r, "e", power), text(r, "E", power));
    uint32_t tail = optional(r, power, GRAMMAR_END);
    tail = optional(r, text(r, ".", digits(r, 1, MOST_DIGITS, tail)), tail);
    uint32_t number = grammar_either(g, text(r, "0", tail), positive(r, tail));
    return optional(r, text(r, "-", number), number);
}

/* ---- containers ----------------------------------------------------------------------------- */

uint32_t jsonrules_colon(struct jsonrules *r, uint32_t next)
{
    return text(r, ":", optional(r, text(r, " ", next), next));
}

uint32_t jsonrules_comma(struct jsonrules *r, uint32_t next)
{
    return text(r, ",", jsonrules_call(r, JSON_RULE_SPACE, next));
}

uint32_t jsonrules_close(struct jsonrules *r, char bracket, uint32_t next)
{
    return jsonrules_call(r, JSON_RULE_SPACE, grammar_text(r->g, &bracket, 1, next));
}

/* Brackets around any number of items. */
static uint32_t make_list(struct jsonrules *r, const char *open, char close, uint32_t item)
{
    struct grammar *g = r->g;
    uint32_t more = grammar_rule(g, jsonrules_comma(r, grammar_call(g, item, GRAMMAR_END)));
    uint32_t rest = grammar_repeat(g, more, 0, GRAMMAR_UNBOUNDED,
                                   jsonrules_close(r, close, GRAMMAR_END));
    uint32_t inside = grammar_either(g, grammar_call(g, item, rest),
                                     grammar_text(g, &close, 1, GRAMMAR_END));
    return text(r, open, jsonrules_call(r, JSON_RULE_SPACE, inside));
}

static uint32_t make_object(struct jsonrules *r)
{
    uint32_t value = jsonrules_colon(r, jsonrules_call(r, JSON_RULE_VALUE, GRAMMAR_END));
    uint32_t member = grammar_rule(r->g, jsonrules_call(r, JSON_RULE_STRING, value));
    return make_list(r, "{", '}', member);
}

static uint32_t make_value(struct jsonrules *r)
{
    static const enum json_rule kinds[] = { JSON_RULE_NUMBER, JSON_RULE_STRING, JSON_RULE_ARRAY,
                                            JSON_RULE_OBJECT };
    uint32_t node = grammar_either(r->g, text(r, "true", GRAMMAR_END),
                                   text(r, "false", GRAMMAR_END));
    node = grammar_either(r->g, text(r, "null", GRAMMAR_END), node);
    for (size_t i = 0; i < ZP_COUNT(kinds); i++)
        node = grammar_either(r->g, jsonrules_call(r, kinds[i], GRAMMAR_END), node);
    return node;
}

static uint32_t make(struct jsonrules *r, enum json_rule which)
{
    switch (which) {
    case JSON_RULE_SPACE: return make_space(r);
    case JSON_RULE_CHARACTER: return make_character(r);
    case JSON_RULE_STRING: return make_string(r);
    case JSON_RULE_DIGIT: return grammar_bytes(r->g, '0', '9', GRAMMAR_END);
    case JSON_RULE_INTEGER: return make_integer(r);
    case JSON_RULE_NUMBER: return make_number(r);
    case JSON_RULE_OBJECT: return make_object(r);
    case JSON_RULE_ARRAY: return make_list(r, "[", ']', jsonrules_get(r, JSON_RULE_VALUE));
    case JSON_RULE_VALUE: return make_value(r);
    case JSON_RULES: break;
    }
    return GRAMMAR_NEVER;
}

uint32_t jsonrules_get(struct jsonrules *r, enum json_rule which)
{
    if (r->rule[which] == 0) { /* declared first: rules call each other */
        uint32_t rule = grammar_declare(r->g, NULL);
        r->rule[which] = rule + 1;
        grammar_define(r->g, rule, make(r, which));
    }
    return r->rule[which] - 1;
}

uint32_t jsonrules_call(struct jsonrules *r, enum json_rule which, uint32_t next)
{
    return grammar_call(r->g, jsonrules_get(r, which), next);
}

/* ---- known values --------------------------------------------------------------------------- */

zp_status jsonrules_quote(const char *s, size_t size, struct buffer *out, zp_err *err)
{
    char one[8];
    size_t n;
    ZP_TRY(buffer_append_text(out, "\"", err));
    for (size_t at = 0; at < size; at += n) {
        size_t written = charclass_json_text(charclass_read(s + at, &n), one);
        ZP_TRY(buffer_append(out, one, written, err));
    }
    return buffer_append_text(out, "\"", err);
}

/* A real as the shortest text that is read back as the same number, and not as an integer. */
void jsonrules_number(const json_t *value, char out[JSONRULES_NUMBER])
{
    double x = json_real_value(value);
    int precision = 15;
    if (json_is_integer(value)) {
        snprintf(out, JSONRULES_NUMBER, "%lld", (long long)json_integer_value(value));
        return;
    }
    do numtext_printf(out, JSONRULES_NUMBER, "%.*g", precision, x);
    while (precision++ < 17 && numtext_double(out, NULL) != x);
    if (!strpbrk(out, ".e")) memcpy(out + strlen(out), ".0", 3);
}

zp_status jsonrules_scalar(const json_t *value, struct buffer *out, zp_err *err)
{
    char number[JSONRULES_NUMBER];
    if (json_is_string(value))
        return jsonrules_quote(json_string_value(value), json_string_length(value), out, err);
    if (json_is_boolean(value))
        return buffer_append_text(out, json_is_true(value) ? "true" : "false", err);
    if (!json_is_number(value)) return buffer_append_text(out, "null", err);
    jsonrules_number(value, number);
    return buffer_append_text(out, number, err);
}

/* What a failed or finished text holds, then next. */
static uint32_t written(struct jsonrules *r, struct buffer *b, zp_status status, const zp_err *err,
                        uint32_t next)
{
    if (status != ZP_OK) grammar_fail(r->g, status, "%s", err->message);
    uint32_t node = grammar_text(r->g, b->data, b->size, next);
    buffer_free(b);
    return node;
}

uint32_t jsonrules_name(struct jsonrules *r, const char *name, uint32_t next)
{
    struct buffer b = buffer_with_max(MEM_SCRATCH, MAX_TEXT);
    zp_err err = { 0 };
    return written(r, &b, jsonrules_quote(name, strlen(name), &b, &err), &err, next);
}

static uint32_t scalar(struct jsonrules *r, const json_t *value, uint32_t next)
{
    struct buffer b = buffer_with_max(MEM_SCRATCH, MAX_TEXT);
    zp_err err = { 0 };
    return written(r, &b, jsonrules_scalar(value, &b, &err), &err, next);
}

/* Members in the order they have, from the last one to the first. */
static uint32_t object(struct jsonrules *r, const json_t *value, uint32_t next)
{
    const char *key;
    json_t *member, *own = (json_t *)(uintptr_t)value; /* only read */
    size_t n = json_object_size(value), at = 0;
    const char **keys = mem_array(MEM_SCRATCH, n, sizeof *keys);
    if (keys == NULL) grammar_fail(r->g, ZP_NO_MEMORY, "not enough memory for a value");
    if (keys == NULL) return GRAMMAR_NEVER;
    json_object_foreach (own, key, member) keys[at++] = key;
    next = n ? jsonrules_close(r, '}', next) : text(r, "}", next);
    while (at-- > 0 && !grammar_failed(r->g)) {
        next = jsonrules_value(r, json_object_get(value, keys[at]), next);
        next = jsonrules_name(r, keys[at], jsonrules_colon(r, next));
        if (at > 0) next = jsonrules_comma(r, next);
    }
    mem_free(keys);
    return text(r, "{", jsonrules_call(r, JSON_RULE_SPACE, next));
}

static uint32_t array(struct jsonrules *r, const json_t *value, uint32_t next)
{
    size_t n = json_array_size(value);
    next = n ? jsonrules_close(r, ']', next) : text(r, "]", next);
    for (size_t i = n; i-- > 0 && !grammar_failed(r->g);) {
        next = jsonrules_value(r, json_array_get(value, i), next);
        if (i > 0) next = jsonrules_comma(r, next);
    }
    return text(r, "[", jsonrules_call(r, JSON_RULE_SPACE, next));
}

uint32_t jsonrules_value(struct jsonrules *r, const json_t *value, uint32_t next)
{
    if (grammar_failed(r->g)) return GRAMMAR_NEVER;
    if (json_is_object(value)) return object(r, value, next);
    return json_is_array(value) ? array(r, value, next) : scalar(r, value, next);
}
