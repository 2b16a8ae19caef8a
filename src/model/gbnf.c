/* gbnf.c: reads grammars in llama.cpp's notation by recursive descent.
 * B1 at <= size; the text is well-formed UTF-8.  B2 names of rules are looked up by hash. */
#include "model/gbnf.h"

#include <string.h>

#include "base/bytes.h"
#include "model/charclass.h"
#include "model/rulexpr.h"

#define MAX_GROUPS 64 /* open at once */
#define MAX_COUNT 1000000000u
#define END_OF_TEXT UINT32_MAX

struct gbnf {
    struct grammar *g;
    struct rulexpr exprs;
    const char *text;
    size_t size, at;
    unsigned depth;
    uint32_t *slots; /* (n_slots) rule + 1 by hash of its name; 0: free */
    uint32_t n_slots;
};

static void fail(struct gbnf *p, const char *what)
{
    size_t line = 1, column = 1;
    for (size_t i = 0; i < p->at; i++) {
        if (p->text[i] == '\n') line++, column = 1;
        else if (((unsigned char)p->text[i] & 0xC0) != 0x80) column++;
    }
    grammar_fail(p->g, ZP_BAD_INPUT, "grammar: line %zu, column %zu: %s", line, column, what);
}

static uint32_t peek(const struct gbnf *p)
{
    size_t size;
    return p->at < p->size ? charclass_read(p->text + p->at, &size) : END_OF_TEXT;
}

static uint32_t take(struct gbnf *p)
{
    size_t size = 0;
    uint32_t c = p->at < p->size ? charclass_read(p->text + p->at, &size) : END_OF_TEXT;
    p->at += size;
    return c;
}

static bool match(struct gbnf *p, const char *text)
{
    size_t n = strlen(text);
    if (p->size - p->at < n || memcmp(p->text + p->at, text, n) != 0) return false;
    p->at += n;
    return true;
}

/* Blanks and comments; lines: line ends, too. */
static void skip(struct gbnf *p, bool lines)
{
    for (;;) {
        uint32_t c = peek(p);
        if (c == '#')
            while (peek(p) != '\n' && peek(p) != '\r' && peek(p) != END_OF_TEXT) take(p);
        else if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r'))) p->at++;
        else return;
    }
}

/* ---- names ----------------------------------------------------------------------------------- */

static bool is_name(uint32_t c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
}

/* Twice as many slots, with the same rules in them. */
static void grow_slots(struct gbnf *p)
{
    uint32_t n = p->n_slots ? 2 * p->n_slots : 128;
    uint32_t *slots = mem_zalloc(MEM_SCRATCH, n * sizeof *slots);
    if (slots == NULL) grammar_fail(p->g, ZP_NO_MEMORY, "not enough memory for a grammar");
    if (slots == NULL) return;
    for (uint32_t rule = 0; rule < p->g->n_rules; rule++) {
        const char *name = p->g->rules[rule].name;
        if (name == NULL) continue;
        uint32_t at = (uint32_t)hash_bytes(name, strlen(name), 0) & (n - 1);
        while (slots[at]) at = (at + 1) & (n - 1);
        slots[at] = rule + 1;
    }
    mem_free(p->slots);
    p->slots = slots;
    p->n_slots = n;
}

static uint32_t read_name(struct gbnf *p)
{
    char name[128];
    size_t begin = p->at;
    while (is_name(peek(p))) p->at++;
    size_t n = p->at - begin;
    if (n == 0) fail(p, "expected the name of a rule");
    if (n >= sizeof name) fail(p, "a name of more than 127 characters ends");
    if (2 * p->g->n_rules >= p->n_slots) grow_slots(p);
    if (grammar_failed(p->g)) return 0;
    memcpy(name, p->text + begin, n);
    name[n] = '\0';
    uint32_t at = (uint32_t)hash_bytes(name, n, 0) & (p->n_slots - 1);
    for (; p->slots[at]; at = (at + 1) & (p->n_slots - 1))
        if (strcmp(p->g->rules[p->slots[at] - 1].name, name) == 0) return p->slots[at] - 1;
    uint32_t rule = grammar_declare(p->g, name);
    p->slots[at] = rule + 1;
    return rule;
}

/* ---- items ----------------------------------------------------------------------------------- */

static uint32_t read_hex(struct gbnf *p, int n)
{
    uint32_t c = 0;
    for (int i = 0; i < n; i++) {
        uint32_t digit = take(p), lower = digit | 0x20;
        bool number = digit >= '0' && digit <= '9', letter = lower >= 'a' && lower <= 'f';
        if (!number && !(letter && digit < 0x80)) fail(p, "a wrong hexadecimal digit ends");
        if (grammar_failed(p->g)) return 0;
        c = c << 4 | (number ? digit - '0' : lower - 'a' + 10);
    }
    if (c > CHARCLASS_LAST || (c >= 0xD800 && c <= 0xDFFF)) fail(p, "no character ends");
    return c;
}

/* One character of a text or class. */
static uint32_t read_char(struct gbnf *p)
{
    static const char same[] = "\\\"[]-^";
    uint32_t c = take(p);
    if (c == END_OF_TEXT) fail(p, "the grammar ends inside a text or class");
    if (c != '\\') return c;
    c = take(p);
    if (c == 'x') return read_hex(p, 2);
    if (c == 'u') return read_hex(p, 4);
    if (c == 'U') return read_hex(p, 8);
    if (c == 'n') return '\n';
    if (c == 'r') return '\r';
    if (c == 't') return '\t';
    if (c == 0 || c > 127 || !strchr(same, (int)c)) fail(p, "an unknown escape ends");
    return c;
}

static uint32_t read_text(struct gbnf *p)
{
    struct buffer b = buffer_with_max(MEM_SCRATCH, GBNF_MAX_SIZE);
    zp_err err = { 0 };
    while (!grammar_failed(p->g) && !match(p, "\"")) {
        char one[8];
        uint32_t c = read_char(p);
        if (grammar_failed(p->g)) break;
        if (buffer_append(&b, one, charclass_utf8_text(c, one), &err) != ZP_OK)
            grammar_fail(p->g, err.code, "%s", err.message);
    }
    uint32_t expr = rulexpr_text(&p->exprs, b.data, b.size);
    buffer_free(&b);
    return expr;
}

static uint32_t class_item(struct gbnf *p, struct charclass *c)
{
    if (grammar_failed(p->g)) return 0;
    return rulexpr_call(&p->exprs, grammar_rule(p->g, charclass_utf8(p->g, c, GRAMMAR_END)));
}

static uint32_t read_class(struct gbnf *p)
{
    struct charclass c = { .n = 0 };
    bool negated = match(p, "^"), fits = true;
    while (!grammar_failed(p->g) && !match(p, "]")) {
        uint32_t low = read_char(p), high = low;
        bool range = p->size - p->at >= 2 && p->text[p->at] == '-' && p->text[p->at + 1] != ']';
        if (range) p->at++, high = read_char(p);
        if (low > high) fail(p, "a range without order ends");
        fits = fits && charclass_add(&c, low, high);
    }
    if (negated) fits = fits && charclass_add(&c, 0, 0); /* no text has a NUL by accident */
    charclass_sort(&c);
    if (negated) fits = fits && charclass_invert(&c);
    if (!fits) fail(p, "a class of more than 256 ranges ends");
    return class_item(p, &c);
}

static uint32_t read_choice(struct gbnf *p);

static uint32_t read_group(struct gbnf *p)
{
    if (++p->depth > MAX_GROUPS) fail(p, "more than 64 groups are open");
    uint32_t expr = grammar_failed(p->g) ? 0 : read_choice(p);
    p->depth--;
    skip(p, true);
    if (!match(p, ")")) fail(p, "expected )");
    return expr;
}

static uint32_t read_count(struct gbnf *p)
{
    uint32_t n = 0;
    skip(p, false);
    if (peek(p) < '0' || peek(p) > '9') fail(p, "expected a number");
    while (peek(p) >= '0' && peek(p) <= '9' && n < MAX_COUNT) n = n * 10 + (take(p) - '0');
    if (n >= MAX_COUNT) fail(p, "a count of a billion and more stands before");
    skip(p, false);
    return n;
}

static uint32_t read_counts(struct gbnf *p, uint32_t expr)
{
    skip(p, false);
    uint32_t min = peek(p) == ',' ? 0 : read_count(p), max = min;
    if (match(p, ",")) {
        skip(p, false);
        max = peek(p) == '}' ? GRAMMAR_UNBOUNDED : read_count(p);
    }
    if (!match(p, "}")) fail(p, "expected }");
    if (min > max) fail(p, "bounds without order stand before");
    return rulexpr_repeat(&p->exprs, expr, min, max);
}

static uint32_t read_quantified(struct gbnf *p)
{
    struct charclass any = { .ranges = { { 1, CHARCLASS_LAST } }, .n = 1 };
    uint32_t expr;
    if (match(p, "\"")) expr = read_text(p);
    else if (match(p, "[")) expr = read_class(p);
    else if (match(p, "(")) expr = read_group(p);
    else if (match(p, ".")) expr = class_item(p, &any);
    else expr = rulexpr_call(&p->exprs, read_name(p));
    for (;;) {
        skip(p, p->depth > 0);
        if (grammar_failed(p->g)) return 0;
        if (match(p, "*")) expr = rulexpr_repeat(&p->exprs, expr, 0, GRAMMAR_UNBOUNDED);
        else if (match(p, "+")) expr = rulexpr_repeat(&p->exprs, expr, 1, GRAMMAR_UNBOUNDED);
        else if (match(p, "?")) expr = rulexpr_repeat(&p->exprs, expr, 0, 1);
        else if (match(p, "{")) expr = read_counts(p, expr);
        else return expr;
    }
}

static uint32_t read_sequence(struct gbnf *p)
{
    uint32_t mark = p->exprs.n_open;
    for (;;) {
        skip(p, p->depth > 0);
        uint32_t c = peek(p);
        bool item = is_name(c) || (c < 0x80 && c != 0 && strchr("\"[(.", (int)c));
        if (grammar_failed(p->g) || !item) break;
        rulexpr_member(&p->exprs, read_quantified(p));
    }
    return rulexpr_list(&p->exprs, EXPR_SEQUENCE, mark);
}

static uint32_t read_choice(struct gbnf *p)
{
    uint32_t mark = p->exprs.n_open;
    for (;;) {
        rulexpr_member(&p->exprs, read_sequence(p));
        if (grammar_failed(p->g) || !match(p, "|")) break;
        skip(p, true);
    }
    return grammar_failed(p->g) ? 0 : rulexpr_list(&p->exprs, EXPR_CHOICE, mark);
}

static void read_rule(struct gbnf *p)
{
    uint32_t rule = read_name(p);
    skip(p, false);
    if (!match(p, "::=")) fail(p, "expected ::=");
    skip(p, true);
    if (!grammar_failed(p->g) && p->g->rules[rule].defined)
        fail(p, "this rule was defined before; it begins");
    uint32_t expr = read_choice(p);
    uint32_t c = peek(p);
    if (c != '\n' && c != '\r' && c != END_OF_TEXT) fail(p, "expected the end of the rule");
    if (grammar_failed(p->g)) return;
    grammar_define(p->g, rule, rulexpr_nodes(&p->exprs, expr, GRAMMAR_END));
    p->exprs.n_exprs = p->exprs.n_list = 0;
    buffer_clear(&p->exprs.text);
}

uint32_t gbnf_rules(struct grammar *g, const char *text, size_t size)
{
    struct gbnf p = { .g = g, .exprs = { .g = g }, .text = text, .size = size };
    size_t bad;
    if (size > GBNF_MAX_SIZE)
        grammar_fail(g, ZP_BAD_INPUT, "a grammar of %zu bytes; at most %zu", size, GBNF_MAX_SIZE);
    else if (!utf8_is_valid(text, size, &bad))
        grammar_fail(g, ZP_BAD_INPUT, "the grammar is not UTF-8 at offset %zu", bad);
    uint32_t root = grammar_declare(g, "root");
    if (!grammar_failed(g)) skip(&p, true); // B1
    while (!grammar_failed(g) && p.at < size) {
        read_rule(&p);
        skip(&p, true);
    }
    rulexpr_free(&p.exprs);
    mem_free(p.slots);
    return root;
}
