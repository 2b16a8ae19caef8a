/* jsonrules.h: rules of JSON texts (RFC 8259), each made when it is first asked for.
 * White space: after { [ and , and before } and ] none, one space, or a line feed and up to 32
 * spaces or 8 tabs; after : none or one space; elsewhere none. So it never goes on and on.
 * Strings are well-formed UTF-8 with any escapes but halves of pairs and \u0000; numbers have at
 * most 18 digits before and 17 behind the point and exponents up to 99, so that every reader takes
 * them. */
#ifndef MODEL_JSONRULES_H
#define MODEL_JSONRULES_H

#include <jansson.h>
#include "base/bytes.h"
#include "model/grammar.h"

enum json_rule {
    JSON_RULE_SPACE,     /* after { [ , and before } ] */
    JSON_RULE_CHARACTER, /* of a string */
    JSON_RULE_STRING,
    JSON_RULE_DIGIT,
    JSON_RULE_INTEGER,
    JSON_RULE_NUMBER,
    JSON_RULE_OBJECT,
    JSON_RULE_ARRAY,
    JSON_RULE_VALUE,
    JSON_RULES
};

/* Zero-initialise all but g. */
struct jsonrules {
    struct grammar *g;
    uint32_t rule[JSON_RULES]; /* + 1; 0: not made yet */
};

uint32_t jsonrules_get(struct jsonrules *r, enum json_rule which);
/* A call of it, then next. */
uint32_t jsonrules_call(struct jsonrules *r, enum json_rule which, uint32_t next);
/* ":" and perhaps a space, then next. */
uint32_t jsonrules_colon(struct jsonrules *r, uint32_t next);
/* "," and white space, then next. */
uint32_t jsonrules_comma(struct jsonrules *r, uint32_t next);
/* White space and the closing bracket, then next. */
uint32_t jsonrules_close(struct jsonrules *r, char bracket, uint32_t next);
/* The name of a member, quoted, then next. */
uint32_t jsonrules_name(struct jsonrules *r, const char *name, uint32_t next);
/* Exactly this value. Depth: its own. */
uint32_t jsonrules_value(struct jsonrules *r, const json_t *value, uint32_t next);
/* Appends a string as these rules write a known one: quoted, escaped only where it must be. */
zp_status jsonrules_quote(const char *text, size_t size, struct buffer *out, zp_err *err);
#define JSONRULES_NUMBER 40
void jsonrules_number(const json_t *value, char out[JSONRULES_NUMBER]);
/* Likewise a number, true, false, null or a string. */
zp_status jsonrules_scalar(const json_t *value, struct buffer *out, zp_err *err);

#endif
