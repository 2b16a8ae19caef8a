/* pattern.c: reads a regular expression by recursive descent; a character class becomes a rule.
 * P1 at <= size; the pattern is well-formed UTF-8. */
#include "model/pattern.h"

#include <string.h>

#include "base/bytes.h"
#include "model/charclass.h"
#include "model/rulexpr.h"

#define MAX_GROUPS 64 /* open at once */
#define MAX_COUNT 100000u
#define END_OF_TEXT UINT32_MAX
#define TOO_MANY_RANGES "a class of more than 256 ranges ends"

struct pattern {
    struct grammar *g;
    struct rulexpr exprs;
    const char *text;
    size_t size, at;
    unsigned depth;
    uint32_t any; /* expression of any character any number of times */
};

/* Column in characters, from 1. */
static size_t column(const struct pattern *p)
{
    size_t n = 1;
    for (size_t i = 0; i < p->at; i++) n += ((unsigned char)p->text[i] & 0xC0) != 0x80;
    return n;
}

static void fail(struct pattern *p, zp_status code, const char *what)
{
    size_t shown = p->size > 60 ? utf8_complete_prefix(p->text, 60) : p->size;
    grammar_fail(p->g, code, "the pattern \"%.*s%s\": %s at character %zu", (int)shown, p->text,
                 p->size > 60 ? "..." : "", what, column(p));
}

static void wrong(struct pattern *p, const char *what)
{
    fail(p, ZP_BAD_INPUT, what);
}

static void unsupported(struct pattern *p, const char *what)
{
    fail(p, ZP_UNSUPPORTED, what);
}

static uint32_t peek(const struct pattern *p)
{
    size_t size;
    return p->at < p->size ? charclass_read(p->text + p->at, &size) : END_OF_TEXT;
}

static uint32_t take(struct pattern *p)
{
    size_t size = 0;
    uint32_t c = p->at < p->size ? charclass_read(p->text + p->at, &size) : END_OF_TEXT;
    p->at += size;
    return c;
}

static bool match(struct pattern *p, const char *text)
{
    size_t n = strlen(text);
    if (p->size - p->at < n || memcmp(p->text + p->at, text, n) != 0) return false;
    p->at += n;
    return true;
}

/* ---- characters ------------------------------------------------------------------------------ */

static void add_ranges(struct pattern *p, struct charclass *c, const struct char_range *ranges,
                       size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!charclass_add(c, ranges[i].low, ranges[i].high))
            wrong(p, TOO_MANY_RANGES);
}

/* \d \w \s and their negations; false: the letter means something else. */
static bool add_named(struct pattern *p, struct charclass *c, uint32_t letter)
{
    static const struct char_range digits[] = { { '0', '9' } };
    static const struct char_range word[] = { { '0', '9' }, { 'A', 'Z' }, { '_', '_' },
                                              { 'a', 'z' } };
    static const struct char_range space[] = { { 9, 13 },           { 32, 32 },
                                               { 0xA0, 0xA0 },      { 0x1680, 0x1680 },
                                               { 0x2000, 0x200A },  { 0x2028, 0x2029 },
                                               { 0x202F, 0x202F },  { 0x205F, 0x205F },
                                               { 0x3000, 0x3000 },  { 0xFEFF, 0xFEFF } };
    struct charclass named = { .n = 0 };
    uint32_t lower = letter | 0x20;
    if (letter > 'z' || (lower != 'd' && lower != 'w' && lower != 's')) return false;
    if (lower == 'd') add_ranges(p, &named, digits, ZP_COUNT(digits));
    if (lower == 'w') add_ranges(p, &named, word, ZP_COUNT(word));
    if (lower == 's') add_ranges(p, &named, space, ZP_COUNT(space));
    if (letter != lower) charclass_invert(&named);
    add_ranges(p, c, named.ranges, named.n);
    return true;
}

static int hex_value(uint32_t c)
{
    if (c >= '0' && c <= '9') return (int)(c - '0');
    if (c >= 'a' && c <= 'f') return (int)(c - 'a') + 10;
    return c >= 'A' && c <= 'F' ? (int)(c - 'A') + 10 : -1;
}

static uint32_t read_hex(struct pattern *p, int n)
{
    uint32_t c = 0;
    for (int i = 0; i < n; i++) {
        int digit = hex_value(peek(p));
        if (digit < 0) wrong(p, "expected a hexadecimal digit");
        if (digit < 0) return 0;
        c = c << 4 | (uint32_t)digit;
        p->at++;
    }
    return c;
}

/* What follows \u: four digits, two such for one character, or {digits}. */
static uint32_t read_unicode(struct pattern *p)
{
    uint32_t c = 0;
    if (match(p, "{")) {
        do c = c << 4 | read_hex(p, 1);
        while (!grammar_failed(p->g) && c <= CHARCLASS_LAST && peek(p) != '}');
        if (!match(p, "}") || c > CHARCLASS_LAST) wrong(p, "expected a character and } after \\u{");
        return c;
    }
    c = read_hex(p, 4);
    if (c >= 0xD800 && c <= 0xDBFF && match(p, "\\u")) {
        uint32_t low = read_hex(p, 4);
        if (low >= 0xDC00 && low <= 0xDFFF) return 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
    }
    if (c >= 0xD800 && c <= 0xDFFF) wrong(p, "half of a pair of \\u escapes ends");
    return c;
}

/* What follows a backslash, where it stands for one character. */
static uint32_t read_escape(struct pattern *p)
{
    static const char from[] = "nrtfv", to[] = "\n\r\t\f\v";
    uint32_t c = take(p);
    const char *found = c && c < 0x80 ? strchr(from, (int)c) : NULL;
    if (found) return (uint32_t)to[found - from];
    if (c == 'x') return read_hex(p, 2);
    if (c == 'u') return read_unicode(p);
    if (c == '0' && (peek(p) < '0' || peek(p) > '9')) return 0;
    bool letter = (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z' && c < 0x80);
    if (c == END_OF_TEXT) wrong(p, "expected a character after \\");
    else if (letter) unsupported(p, "this escape is not supported; it ends");
    return c;
}

static uint32_t class_item(struct pattern *p, struct charclass *c)
{
    bool rule = grammar_failed(p->g);
    uint32_t next = rule ? 0 : grammar_rule(p->g, charclass_json(p->g, c, GRAMMAR_END));
    return rulexpr_call(&p->exprs, next);
}

static uint32_t char_item(struct pattern *p, uint32_t c)
{
    char text[8];
    struct charclass none = { .n = 0 };
    if (c == 0 || (c >= 0xD800 && c <= 0xDFFF)) return class_item(p, &none); /* no text has it */
    return rulexpr_text(&p->exprs, text, charclass_json_text(c, text));
}

/* One end of a range inside [...]; false: it was a named class, which is added. */
static bool class_atom(struct pattern *p, struct charclass *c, uint32_t *out)
{
    *out = take(p);
    if (*out != '\\') return true;
    if (add_named(p, c, peek(p))) {
        p->at++;
        return false;
    }
    if (peek(p) == 'b') {
        p->at++;
        *out = '\b';
    } else *out = read_escape(p);
    return true;
}

static uint32_t read_class(struct pattern *p)
{
    struct charclass c = { .n = 0 };
    bool negated = match(p, "^");
    while (!grammar_failed(p->g) && peek(p) != ']') {
        uint32_t low, high;
        if (peek(p) == END_OF_TEXT) wrong(p, "expected ]");
        bool one = class_atom(p, &c, &low);
        high = low;
        bool range = p->size - p->at >= 2 && p->text[p->at] == '-' && p->text[p->at + 1] != ']';
        if (one && range) {
            p->at++;
            one = class_atom(p, &c, &high);
            if (!one) charclass_add(&c, low, low), charclass_add(&c, '-', '-'); /* a-\d */
            else if (low > high) wrong(p, "a range without order ends");
        }
        if (one && !charclass_add(&c, low, high)) wrong(p, TOO_MANY_RANGES);
    }
    match(p, "]");
    charclass_sort(&c);
    if (negated && !charclass_invert(&c)) wrong(p, TOO_MANY_RANGES);
    return class_item(p, &c);
}

static uint32_t dot(struct pattern *p)
{
    struct charclass c = { .ranges = { { '\n', '\n' }, { '\r', '\r' }, { 0x2028, 0x2029 } },
                           .n = 3 };
    charclass_invert(&c);
    return class_item(p, &c);
}

/* ---- structure ------------------------------------------------------------------------------- */

static uint32_t read_choice(struct pattern *p, bool whole);

static uint32_t read_group(struct pattern *p)
{
    if (match(p, "?")) {
        bool named = p->size - p->at >= 2 && p->text[p->at] == '<' &&
                     p->text[p->at + 1] != '=' && p->text[p->at + 1] != '!';
        if (named)
            while (peek(p) != END_OF_TEXT && peek(p) != '>') take(p);
        if (!match(p, named ? ">" : ":")) unsupported(p, "look-around or flags begin");
    }
    if (++p->depth > MAX_GROUPS) unsupported(p, "more than 64 groups are open");
    uint32_t expr = grammar_failed(p->g) ? 0 : read_choice(p, false);
    p->depth--;
    if (!match(p, ")")) wrong(p, "expected )");
    return expr;
}

static uint32_t read_atom(struct pattern *p)
{
    struct charclass named = { .n = 0 };
    uint32_t c = take(p);
    switch (c) {
    case '(': return read_group(p);
    case '[': return read_class(p);
    case '.': return dot(p);
    case '^':
    case '$':
        unsupported(p, "^ and $ may only begin and end the pattern; another one ends");
        return 0;
    case '*':
    case '+':
    case '?': wrong(p, "nothing to repeat"); return 0;
    case '\\':
        if (peek(p) != END_OF_TEXT && add_named(p, &named, peek(p))) {
            p->at++;
            return class_item(p, &named);
        }
        return char_item(p, read_escape(p));
    default: return char_item(p, c);
    }
}

static uint32_t read_count(struct pattern *p)
{
    uint32_t n = 0;
    if (peek(p) < '0' || peek(p) > '9') wrong(p, "expected a number");
    while (peek(p) >= '0' && peek(p) <= '9' && n <= MAX_COUNT) n = n * 10 + (take(p) - '0');
    if (n > MAX_COUNT) wrong(p, "a count above 100,000 stands");
    return n;
}

/* {m}, {m,} or {m,n}; where none of them follows, { stands for itself. */
static bool is_counts(const struct pattern *p)
{
    size_t at = p->at + 1, begin = at;
    while (at < p->size && p->text[at] >= '0' && p->text[at] <= '9') at++;
    if (p->text[p->at] != '{' || at == begin) return false;
    if (at < p->size && p->text[at] == ',') at++;
    while (at < p->size && p->text[at] >= '0' && p->text[at] <= '9') at++;
    return at < p->size && p->text[at] == '}';
}

static uint32_t read_quantified(struct pattern *p)
{
    uint32_t expr = read_atom(p), min = 0, max = GRAMMAR_UNBOUNDED, c = peek(p);
    bool counts = p->at < p->size && is_counts(p);
    if (c != '*' && c != '+' && c != '?' && !counts) return expr;
    p->at++;
    if (c == '+') min = 1;
    if (c == '?') max = 1;
    if (counts) {
        min = max = read_count(p);
        if (match(p, ",")) max = peek(p) == '}' ? GRAMMAR_UNBOUNDED : read_count(p);
        if (!match(p, "}") || min > max) wrong(p, "bounds without order stand");
    }
    match(p, "?"); /* lazy: the same texts */
    if (peek(p) == '*' || peek(p) == '+' || peek(p) == '?') wrong(p, "nothing to repeat");
    return rulexpr_repeat(&p->exprs, expr, min, max);
}

/* whole: of the pattern itself, which may begin anywhere in a text unless ^ forbids it. */
static uint32_t read_sequence(struct pattern *p, bool whole)
{
    uint32_t mark = p->exprs.n_open;
    if (whole && !match(p, "^")) rulexpr_member(&p->exprs, p->any);
    while (!grammar_failed(p->g) && peek(p) != '|' && peek(p) != ')' && peek(p) != END_OF_TEXT) {
        bool last = p->at + 1 == p->size || p->text[p->at + 1] == '|';
        if (whole && peek(p) == '$' && last) break;
        rulexpr_member(&p->exprs, read_quantified(p));
    }
    if (whole && !match(p, "$")) rulexpr_member(&p->exprs, p->any);
    return rulexpr_list(&p->exprs, EXPR_SEQUENCE, mark);
}

static uint32_t read_choice(struct pattern *p, bool whole)
{
    uint32_t mark = p->exprs.n_open;
    do rulexpr_member(&p->exprs, read_sequence(p, whole));
    while (!grammar_failed(p->g) && match(p, "|"));
    return grammar_failed(p->g) ? 0 : rulexpr_list(&p->exprs, EXPR_CHOICE, mark);
}

bool pattern_nodes(struct grammar *g, const char *pattern, size_t size, uint32_t min, uint32_t max,
                   uint32_t next, uint32_t *out)
{
    struct pattern p = { .g = g, .exprs = { .g = g }, .text = pattern, .size = size };
    struct charclass any = { .ranges = { { 1, CHARCLASS_LAST } }, .n = 1 };
    if (size > PATTERN_MAX_SIZE)
        grammar_fail(g, ZP_BAD_INPUT, "a pattern of %zu bytes; at most %d", size, PATTERN_MAX_SIZE);
    *out = GRAMMAR_NEVER;
    if (grammar_failed(g)) return false;
    p.any = rulexpr_repeat(&p.exprs, class_item(&p, &any), 0, GRAMMAR_UNBOUNDED);
    uint32_t whole = read_choice(&p, true);
    if (!grammar_failed(g) && p.at < size) wrong(&p, "a ) without ( stands");
    if (!grammar_failed(g)) *out = rulexpr_nodes_of_length(&p.exprs, whole, min, max, next);
    rulexpr_free(&p.exprs);
    return !grammar_failed(g);
}
