/* jinja_lex.c: the tokens of a chat template.
 * Data and tags alternate: data up to "{{", "{%" or "{#"; in a tag names, literals and operators
 * up to its end. Inside brackets no end is looked for, so that {{ {'a': {}} }} reads as meant.
 * White space: '-' strips all of it on that side; after a block or comment one newline is dropped
 * (trim_blocks); blanks between the start of a line and a block or comment are dropped
 * (lstrip_blocks) unless '+' is given. */
#include "model/jinja_lex.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/numtext.h"
#include "model/jinja_char.h"

#define MAX_BRACKETS 200

struct lexer {
    struct jinja_program *program;
    const char *s;
    size_t size, at;
    bool line_start; /* the text behind starts a line */
    struct jtoken_list *out;
    zp_err *err;
    char brackets[MAX_BRACKETS];
    size_t n_brackets;
};

static const struct {
    const char *text;
    enum jtoken_kind kind;
} operators[] = {
    { "//", T_FLOORDIV }, { "**", T_POW },      { "==", T_EQ },    { "!=", T_NE },
    { ">=", T_GE },       { "<=", T_LE },       { "+", T_ADD },    { "-", T_SUB },
    { "*", T_MUL },       { "/", T_DIV },       { "%", T_MOD },    { "~", T_TILDE },
    { "[", T_LBRACKET },  { "]", T_RBRACKET },  { "(", T_LPAREN }, { ")", T_RPAREN },
    { "{", T_LBRACE },    { "}", T_RBRACE },    { ">", T_GT },     { "<", T_LT },
    { "=", T_ASSIGN },    { ".", T_DOT },       { ":", T_COLON },  { "|", T_PIPE },
    { ",", T_COMMA },     { ";", T_SEMICOLON },
};

const char *jtoken_name(enum jtoken_kind kind)
{
    static const char *const names[T_KINDS] = {
        [T_END] = "the end of the template",
        [T_DATA] = "text",
        [T_VAR_BEGIN] = "'{{'",
        [T_VAR_END] = "'}}'",
        [T_BLOCK_BEGIN] = "'{%'",
        [T_BLOCK_END] = "'%}'",
        [T_NAME] = "a name",
        [T_STRING] = "a string",
        [T_INT] = "an integer",
        [T_FLOAT] = "a number",
        [T_ADD] = "'+'",
        [T_SUB] = "'-'",
        [T_MUL] = "'*'",
        [T_DIV] = "'/'",
        [T_FLOORDIV] = "'//'",
        [T_MOD] = "'%'",
        [T_POW] = "'**'",
        [T_TILDE] = "'~'",
        [T_LBRACKET] = "'['",
        [T_RBRACKET] = "']'",
        [T_LPAREN] = "'('",
        [T_RPAREN] = "')'",
        [T_LBRACE] = "'{'",
        [T_RBRACE] = "'}'",
        [T_EQ] = "'=='",
        [T_NE] = "'!='",
        [T_GT] = "'>'",
        [T_GE] = "'>='",
        [T_LT] = "'<'",
        [T_LE] = "'<='",
        [T_ASSIGN] = "'='",
        [T_DOT] = "'.'",
        [T_COLON] = "':'",
        [T_PIPE] = "'|'",
        [T_COMMA] = "','",
        [T_SEMICOLON] = "';'",
    };
    return names[kind];
}

void jinja_locate(const char *source, size_t size, size_t at, uint32_t *line, uint32_t *column)
{
    *line = *column = 1;
    for (size_t i = 0; i < at && i < size; i++) {
        if (source[i] == '\n') {
            ++*line;
            *column = 1;
        } else if (((uint8_t)source[i] & 0xC0) != 0x80) {
            ++*column;
        }
    }
}

zp_status jinja_syntax(const struct jinja_program *program, size_t at, zp_err *err,
                       const char *file, int line, const char *fmt, ...)
{
    char text[400];
    va_list args;
    va_start(args, fmt);
    numtext_vprintf(text, sizeof text, fmt, args);
    va_end(args);
    jchar_mend(text);
    uint32_t row, column;
    jinja_locate(program->source, program->size, at, &row, &column);
    return status_fail(err, ZP_BAD_FILE, file, line, "%s:%u:%u: %s", program->name, row, column,
                       text);
}

static zp_status push(struct lexer *x, enum jtoken_kind kind, size_t at, size_t size,
                      struct jtoken **out)
{
    struct jtoken_list *l = x->out;
    if (l->n == l->room) {
        size_t room = l->room == 0 ? 256 : l->room * 2;
        struct jtoken *grown = mem_resize(MEM_META, l->at, room * sizeof *grown);
        ZP_FAIL_IF(grown == NULL, x->err, ZP_NO_MEMORY,
                   "not enough memory for the template's tokens (%zu bytes)", room * sizeof *grown);
        l->at = grown;
        l->room = room;
    }
    struct jtoken *t = &l->at[l->n++];
    *t = (struct jtoken){ .kind = kind,
                          .at = (uint32_t)at,
                          .size = (uint32_t)size,
                          .text = x->s + at,
                          .text_size = size };
    if (out != NULL) *out = t;
    return ZP_OK;
}

static size_t space_at(const struct lexer *x, size_t at)
{
    if (at >= x->size) return 0;
    uint32_t cp;
    size_t n = jchar_decode(x->s + at, x->s + x->size, &cp);
    return jchar_is_space(cp) ? n : 0;
}

static size_t skip_space(const struct lexer *x, size_t at)
{
    for (size_t n; (n = space_at(x, at)) != 0;) at += n;
    return at;
}

/* Start of the white space that ends at `end`, not before `begin`. */
static size_t back_over_space(const struct lexer *x, size_t begin, size_t end)
{
    while (end > begin) {
        size_t start = end - 1;
        while (start > begin && ((uint8_t)x->s[start] & 0xC0) == 0x80) start--;
        if (space_at(x, start) == 0) break;
        end = start;
    }
    return end;
}

static bool has(const struct lexer *x, size_t at, const char *text)
{
    size_t n = strlen(text);
    return at <= x->size && n <= x->size - at && memcmp(x->s + at, text, n) == 0;
}

/* Emits the data [begin, end) in front of a tag whose sign is '-', '+' or 0. */
static zp_status push_data(struct lexer *x, size_t begin, size_t end, char sign, bool may_lstrip)
{
    if (sign == '-') {
        end = back_over_space(x, begin, end);
    } else if (sign != '+' && may_lstrip) {
        size_t line = end;
        while (line > begin && x->s[line - 1] != '\n') line--;
        bool starts_line = line > begin || x->line_start;
        if (starts_line && back_over_space(x, line, end) == line) end = line;
    }
    return end == begin ? ZP_OK : push(x, T_DATA, begin, end - begin, NULL);
}

/* End of a tag at `at`: "-%}" and white space, "+%}", or "%}" and one newline. 0 = no end here. */
static size_t tag_end(const struct lexer *x, size_t at, const char *end, bool plus, bool trims)
{
    size_t n = strlen(end);
    if (at < x->size && x->s[at] == '-' && has(x, at + 1, end)) return skip_space(x, at + 1 + n);
    if (plus && at < x->size && x->s[at] == '+' && has(x, at + 1, end)) return at + 1 + n;
    if (!has(x, at, end)) return 0;
    at += n;
    return trims && has(x, at, "\n") ? at + 1 : at;
}

static char sign_at(const struct lexer *x, size_t at)
{
    return at < x->size && (x->s[at] == '-' || x->s[at] == '+') ? x->s[at] : 0;
}

static void end_tag(struct lexer *x, size_t at)
{
    x->at = at;
    x->line_start = x->s[at - 1] == '\n';
}

static zp_status lex_comment(struct lexer *x, size_t open)
{
    for (size_t at = open + 2; at < x->size; at++) {
        size_t end = tag_end(x, at, "#}", true, true);
        if (end == 0) continue;
        end_tag(x, end);
        return ZP_OK;
    }
    J_SYNTAX(x->program, open, x->err, "this comment does not end; expected '#}'");
}

/* "{% raw %}" at `open`: the position behind it, 0 if something else stands there. */
static size_t raw_begin(const struct lexer *x, size_t open)
{
    size_t at = open + 2;
    if (sign_at(x, at)) at++;
    at = skip_space(x, at);
    if (!has(x, at, "raw")) return 0;
    return tag_end(x, skip_space(x, at + 3), "%}", false, false);
}

static zp_status lex_raw(struct lexer *x, size_t open, size_t begin)
{
    end_tag(x, begin);
    for (size_t at = begin; at < x->size; at++) {
        if (!has(x, at, "{%")) continue;
        char sign = sign_at(x, at + 2);
        size_t word = skip_space(x, at + 2 + (sign != 0));
        if (!has(x, word, "endraw")) continue;
        size_t end = tag_end(x, skip_space(x, word + 6), "%}", true, true);
        if (end == 0) continue;
        ZP_TRY(push_data(x, begin, at, sign, true));
        end_tag(x, end);
        return ZP_OK;
    }
    J_SYNTAX(x->program, open, x->err, "this raw block does not end; expected '{%% endraw %%}'");
}

static bool is_name_byte(char ch, bool first)
{
    uint8_t b = (uint8_t)ch;
    uint8_t lower = b | 32;
    return (lower >= 'a' && lower <= 'z') || b == '_' || b >= 0x80 ||
           (!first && b >= '0' && b <= '9');
}

static unsigned digit_value(char ch)
{
    if (ch >= '0' && ch <= '9') return (unsigned)(ch - '0');
    char lower = (char)(ch | 32);
    return lower >= 'a' && lower <= 'z' ? (unsigned)(lower - 'a') + 10 : 99;
}

/* Digits of the base with single underscores between; position behind, `at` itself if there are
 * none. */
static size_t skip_digits(const struct lexer *x, size_t at, unsigned base)
{
    size_t end = at;
    while (at < x->size) {
        if (digit_value(x->s[at]) < base) end = ++at;
        else if (x->s[at] == '_' && end == at && end > 0 && digit_value(x->s[end - 1]) < base) at++;
        else break;
    }
    return end;
}

/* Position behind a fraction and exponent that follow the digits ending at `at`; `at` if there are
 * none. */
static size_t skip_fraction(const struct lexer *x, size_t at)
{
    size_t end = at;
    if (has(x, at, ".") && at + 1 < x->size && digit_value(x->s[at + 1]) < 10)
        end = skip_digits(x, at + 1, 10);
    if (end < x->size && (x->s[end] | 32) == 'e') {
        size_t digits = end + 1;
        if (sign_at(x, digits)) digits++;
        if (digits < x->size && digit_value(x->s[digits]) < 10) end = skip_digits(x, digits, 10);
    }
    return end;
}

static zp_status number_value(struct lexer *x, struct jtoken *t, size_t from, unsigned base)
{
    char text[64];
    size_t n = 0;
    for (size_t i = from; i < t->at + t->size; i++) {
        if (x->s[i] == '_') continue;
        if (n == sizeof text - 1)
            J_SYNTAX(x->program, t->at, x->err, "this number has too many digits");
        text[n++] = x->s[i];
    }
    text[n] = '\0';
    if (t->kind == T_FLOAT) {
        t->f = numtext_double(text, NULL);
        return ZP_OK;
    }
    errno = 0;
    t->i = strtoll(text, NULL, (int)base);
    if (errno == ERANGE)
        J_SYNTAX(x->program, t->at, x->err, "the integer %s does not fit 64 bits", text);
    return ZP_OK;
}

static zp_status lex_number(struct lexer *x)
{
    size_t at = x->at, from = at, end;
    unsigned base = 10;
    bool after_dot = at > 0 && x->s[at - 1] == '.'; /* a.0.1 is two subscripts, not a fraction */
    end = skip_digits(x, at, 10);
    size_t fraction = after_dot ? end : skip_fraction(x, end);
    if (fraction == end && x->s[at] == '0' && at + 1 < x->size) {
        char mark = (char)(x->s[at + 1] | 32);
        unsigned wanted = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
        size_t digits = at + 2 + (wanted && has(x, at + 2, "_"));
        size_t stop = wanted ? skip_digits(x, digits, wanted) : digits;
        if (wanted && stop > digits) {
            base = wanted;
            from = digits;
            end = fraction = stop;
        } else {
            for (end = at + 1;
                 end < x->size && (x->s[end] == '0' || (x->s[end] == '_' && has(x, end + 1, "0")));)
                end++; /* only zeros may follow a zero */
            fraction = end;
        }
    }
    struct jtoken *t;
    ZP_TRY(push(x, fraction > end ? T_FLOAT : T_INT, at, fraction - at, &t));
    x->at = fraction;
    return number_value(x, t, from, base);
}

/* Writes one escape at s[i] (behind the backslash) to out; *used = bytes read. Unknown ones stay as
 * written. */
static zp_status decode_escape(struct lexer *x, size_t i, size_t end, char *out, size_t *n_out,
                               size_t *used)
{
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    char ch = x->s[i];
    const char *simple = memchr(from, ch, sizeof from - 1);
    *used = 1;
    *n_out = 0;
    if (ch == '\n') return ZP_OK;
    if (simple != NULL) {
        out[(*n_out)++] = to[simple - from];
        return ZP_OK;
    }
    unsigned base = 16;
    size_t digits = ch == 'x' ? 2 : ch == 'u' ? 4 : ch == 'U' ? 8 : 0, exact = digits, skip = 1;
    if (ch >= '0' && ch <= '7') base = 8, digits = 3, exact = 1, skip = 0;
    if (digits == 0) {
        out[(*n_out)++] = '\\';
        *used = 0;
        return ZP_OK;
    }
    uint32_t cp = 0;
    size_t n = 0;
    while (n < digits && i + skip + n < end && digit_value(x->s[i + skip + n]) < base)
        cp = cp * base + digit_value(x->s[i + skip + n++]);
    if (n < exact || cp > 0x10FFFF || (cp >= 0xD800 && cp < 0xE000))
        J_SYNTAX(x->program, i - 1, x->err,
                 "this escape is no character; expected %zu hexadecimal digits", exact);
    *used = skip + n;
    *n_out = jchar_encode(cp, out);
    return ZP_OK;
}

static zp_status lex_string(struct lexer *x)
{
    size_t at = x->at, end = at + 1;
    char quote = x->s[at];
    bool escapes = false;
    for (; end < x->size && x->s[end] != quote; end++)
        if (x->s[end] == '\\') escapes = true, end++;
    if (end >= x->size)
        J_SYNTAX(x->program, at, x->err, "this string does not end; expected %c", quote);
    struct jtoken *t;
    ZP_TRY(push(x, T_STRING, at, end + 1 - at, &t));
    t->text = x->s + at + 1;
    t->text_size = end - at - 1;
    x->at = end + 1;
    if (!escapes) return ZP_OK;
    char *text = arena_alloc(&x->program->arena, t->text_size);
    ZP_FAIL_IF(text == NULL, x->err, ZP_NO_MEMORY,
               "not enough memory for a string of the template (%zu bytes)", t->text_size);
    size_t n = 0; /* decoded text is never longer than its source */
    for (size_t i = at + 1; i < end;) {
        if (x->s[i] != '\\') {
            text[n++] = x->s[i++];
            continue;
        }
        size_t used, wrote;
        char bytes[4];
        ZP_TRY(decode_escape(x, i + 1, end, bytes, &wrote, &used));
        memcpy(text + n, bytes, wrote);
        n += wrote;
        i += 1 + used;
    }
    t->text = text;
    t->text_size = n;
    return ZP_OK;
}

static zp_status track_bracket(struct lexer *x, char ch)
{
    if (ch == '(' || ch == '[' || ch == '{') {
        if (x->n_brackets == MAX_BRACKETS)
            J_SYNTAX(x->program, x->at, x->err, "brackets nest more than %d deep", MAX_BRACKETS);
        x->brackets[x->n_brackets++] = ch == '(' ? ')' : ch == '[' ? ']' : '}';
    } else if (ch == ')' || ch == ']' || ch == '}') {
        if (x->n_brackets == 0) J_SYNTAX(x->program, x->at, x->err, "'%c' closes nothing", ch);
        char expected = x->brackets[--x->n_brackets];
        if (expected != ch)
            J_SYNTAX(x->program, x->at, x->err, "expected '%c', found '%c'", expected, ch);
    }
    return ZP_OK;
}

static zp_status lex_operator(struct lexer *x)
{
    for (size_t i = 0; i < ZP_COUNT(operators); i++) {
        if (!has(x, x->at, operators[i].text)) continue;
        size_t n = strlen(operators[i].text);
        if (n == 1) ZP_TRY(track_bracket(x, x->s[x->at]));
        ZP_TRY(push(x, operators[i].kind, x->at, n, NULL));
        x->at += n;
        return ZP_OK;
    }
    uint32_t cp;
    size_t n = jchar_decode(x->s + x->at, x->s + x->size, &cp);
    J_SYNTAX(x->program, x->at, x->err, "unexpected character '%.*s'", (int)n, x->s + x->at);
}

/* The inside of a tag, from behind its opening to behind its end. */
static zp_status lex_tag(struct lexer *x, size_t open, bool block)
{
    const char *end_text = block ? "%}" : "}}";
    x->n_brackets = 0;
    for (;;) {
        x->at = skip_space(x, x->at);
        if (x->at >= x->size)
            J_SYNTAX(x->program, open, x->err, "this tag does not end; expected '%s'", end_text);
        size_t tag = x->n_brackets == 0 ? tag_end(x, x->at, end_text, block, block) : 0;
        if (tag != 0) {
            ZP_TRY(push(x, block ? T_BLOCK_END : T_VAR_END, x->at, 2, NULL));
            end_tag(x, tag);
            return ZP_OK;
        }
        char ch = x->s[x->at];
        if (ch >= '0' && ch <= '9') {
            ZP_TRY(lex_number(x));
        } else if (is_name_byte(ch, true)) {
            size_t end = x->at;
            while (end < x->size && is_name_byte(x->s[end], false)) end++;
            ZP_TRY(push(x, T_NAME, x->at, end - x->at, NULL));
            x->at = end;
        } else if (ch == '\'' || ch == '"') {
            ZP_TRY(lex_string(x));
        } else {
            ZP_TRY(lex_operator(x));
        }
    }
}

static zp_status lex_next(struct lexer *x)
{
    size_t begin = x->at, at = begin;
    while (at < x->size && !has(x, at, "{{") && !has(x, at, "{%") && !has(x, at, "{#")) at++;
    if (at >= x->size) {
        x->at = x->size;
        return begin == x->size ? ZP_OK : push(x, T_DATA, begin, x->size - begin, NULL);
    }
    char sign = sign_at(x, at + 2), kind = x->s[at + 1];
    ZP_TRY(push_data(x, begin, at, sign, kind != '{'));
    if (kind == '#') return lex_comment(x, at);
    size_t raw = kind == '%' ? raw_begin(x, at) : 0;
    if (raw != 0) return lex_raw(x, at, raw);
    ZP_TRY(push(x, kind == '%' ? T_BLOCK_BEGIN : T_VAR_BEGIN, at, 2, NULL));
    x->at = at + 2 + (sign != 0);
    return lex_tag(x, at, kind == '%');
}

zp_status jinja_lex(struct jinja_program *program, struct jtoken_list *out, zp_err *err)
{
    struct lexer x = { .program = program,
                       .s = program->source,
                       .size = program->size,
                       .line_start = true,
                       .out = out,
                       .err = err };
    while (x.at < x.size) ZP_TRY(lex_next(&x));
    return push(&x, T_END, x.size, 0, NULL);
}
