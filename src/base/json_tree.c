/* json_tree.c: JSON text into jansson's values, and values put together.
 * jansson 2.14 ignores that the buffer of its reader could not grow, then reads and writes past its
 * end, and it calls a string without memory wrong syntax; hence this reader. The values are
 * jansson's own, so its allocator (json_set_alloc_funcs) stays the program's.
 * Owns: the text of one string or number with escapes while it is read.
 * T1 a failed allocation ends the reading with ZP_NO_MEMORY, never with a shorter value.
 * T2 parser.at <= parser.size. */
#include "json_tree.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "bytes.h"
#include "numtext.h"

enum { MAX_DEPTH = 2048 };

struct parser {
    const char *text;
    size_t size, at;
    struct buffer decoded; /* a stack: a name with escapes stays while its value is read */
    unsigned depth;
    const char *wrong; /* what is wrong at `at`, NULL: nothing yet */
    bool no_memory;
};

/* The text of a string: part of the document, or of the decoded ones. */
struct piece {
    bool decoded;
    size_t at, size;
};

static bool is_wrong(struct parser *p, const char *what)
{
    if (p->wrong == NULL) p->wrong = what;
    return false;
}

static json_t *made(struct parser *p, json_t *value)
{
    p->no_memory = p->no_memory || value == NULL;
    return value;
}

static bool decode(struct parser *p, const char *bytes, size_t size)
{
    p->no_memory = buffer_append(&p->decoded, bytes, size, NULL) != ZP_OK || p->no_memory;
    return !p->no_memory;
}

/* The next character, NUL at the end; a NUL in the text is good nowhere either. */
static char peek(const struct parser *p)
{
    return p->at < p->size ? p->text[p->at] : '\0';
}

static char next_word(struct parser *p)
{
    while (p->at < p->size && strchr(" \t\n\r", p->text[p->at]) && p->text[p->at]) p->at++;
    return peek(p);
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* ---- strings --------------------------------------------------------------------------------- */

static int hex_value(char c)
{
    if (is_digit(c)) return c - '0';
    char lower = (char)(c | 0x20);
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

/* uXXXX */
static bool read_unit(struct parser *p, uint32_t *out)
{
    *out = 0;
    if (peek(p) != 'u') return is_wrong(p, "half of a pair of \\u escapes");
    p->at++;
    for (int i = 0; i < 4; i++, p->at++) {
        int digit = hex_value(peek(p));
        if (digit < 0) return is_wrong(p, "expected four hexadecimal digits after \\u");
        *out = *out << 4 | (uint32_t)digit;
    }
    return true;
}

static bool read_scalar(struct parser *p)
{
    uint32_t c, low;
    if (!read_unit(p, &c)) return false;
    if (c >= 0xdc00 && c <= 0xdfff) return is_wrong(p, "half of a pair of \\u escapes");
    if (c >= 0xd800 && c <= 0xdbff) {
        if (peek(p) != '\\') return is_wrong(p, "half of a pair of \\u escapes");
        p->at++;
        if (!read_unit(p, &low)) return false;
        if (low < 0xdc00 || low > 0xdfff) return is_wrong(p, "half of a pair of \\u escapes");
        c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
    }
    if (c == 0) return is_wrong(p, "\\u0000 in a text");
    char utf8[4];
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n; i-- > 1; c >>= 6) utf8[i] = (char)(0x80 | (c & 0x3f));
    static const uint8_t lead[] = { 0, 0, 0xc0, 0xe0, 0xf0 };
    utf8[0] = (char)(lead[n] | c);
    return decode(p, utf8, n);
}

/* What follows a backslash. */
static bool read_escape(struct parser *p)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    char c = peek(p);
    if (c == 'u') return read_scalar(p);
    const char *found = c ? strchr(from, c) : NULL;
    if (found == NULL) return is_wrong(p, "unknown escape");
    p->at++;
    return decode(p, &to[found - from], 1);
}

static size_t plain_run(const struct parser *p)
{
    size_t end = p->at;
    while (end < p->size && (unsigned char)p->text[end] >= 0x20 && p->text[end] != '"' &&
           p->text[end] != '\\')
        end++;
    return end - p->at;
}

static bool read_string(struct parser *p, struct piece *out)
{
    if (peek(p) != '"') return is_wrong(p, "expected a string");
    p->at++;
    size_t n = plain_run(p);
    *out = (struct piece){ false, p->at, n };
    p->at += n;
    if (peek(p) == '\\') { /* only then is there something to decode */
        *out = (struct piece){ true, p->decoded.size, 0 };
        if (!decode(p, p->text + p->at - n, n)) return false;
    }
    while (peek(p) == '\\') {
        p->at++;
        if (!read_escape(p)) return false;
        n = plain_run(p);
        if (!decode(p, p->text + p->at, n)) return false;
        p->at += n;
    }
    if (peek(p) != '"')
        return is_wrong(p, p->at < p->size ? "a control character in a string"
                                           : "the text ends inside a string");
    p->at++;
    if (out->decoded) out->size = p->decoded.size - out->at;
    return true;
}

static const char *text_of(const struct parser *p, const struct piece *s)
{
    return (s->decoded ? (const char *)p->decoded.data : p->text) + s->at;
}

/* Pieces are given back in the reverse order of reading. */
static void drop(struct parser *p, const struct piece *s)
{
    if (s->decoded) p->decoded.size = s->at;
}

static json_t *read_text(struct parser *p)
{
    struct piece s;
    if (!read_string(p, &s)) return NULL;
    json_t *value = made(p, json_stringn_nocheck(text_of(p, &s), s.size));
    drop(p, &s);
    return value;
}

/* ---- numbers and words ----------------------------------------------------------------------- */

static bool skip_digits(struct parser *p)
{
    if (!is_digit(peek(p))) return is_wrong(p, "expected a digit");
    while (is_digit(peek(p))) p->at++;
    return true;
}

static bool skip_number(struct parser *p, bool *whole)
{
    if (peek(p) == '-') p->at++;
    bool zero = peek(p) == '0';
    size_t begin = p->at;
    if (!skip_digits(p)) return false;
    if (zero && p->at - begin > 1) return is_wrong(p, "a number that begins with 0");
    *whole = true;
    if (peek(p) == '.') {
        *whole = false;
        p->at++;
        if (!skip_digits(p)) return false;
    }
    if (peek(p) == 'e' || peek(p) == 'E') {
        *whole = false;
        p->at++;
        if (peek(p) == '-' || peek(p) == '+') p->at++;
        if (!skip_digits(p)) return false;
    }
    return true;
}

/* text: NUL-terminated. */
static json_t *number_of(struct parser *p, const char *text, bool whole)
{
    errno = 0;
    if (whole) {
        long long n = strtoll(text, NULL, 10);
        if (errno != ERANGE) return made(p, json_integer(n));
        is_wrong(p, "an integer beyond 64 bits");
        return NULL;
    }
    double x = numtext_double(text, NULL);
    if (isfinite(x)) return made(p, json_real(x));
    is_wrong(p, "a number too large for a double");
    return NULL;
}

static json_t *read_number(struct parser *p)
{
    size_t begin = p->at, mark = p->decoded.size;
    bool whole;
    if (!skip_number(p, &whole) || !decode(p, p->text + begin, p->at - begin)) return NULL;
    json_t *value = number_of(p, (const char *)p->decoded.data + mark, whole);
    p->decoded.size = mark;
    return value;
}

static json_t *read_word(struct parser *p)
{
    static const char *const words[] = { "true", "false", "null" };
    for (int i = 0; i < 3; i++) {
        size_t n = strlen(words[i]);
        if (p->size - p->at < n || memcmp(p->text + p->at, words[i], n) != 0) continue;
        p->at += n;
        return i == 0 ? json_true() : i == 1 ? json_false() : json_null();
    }
    is_wrong(p, p->at < p->size ? "expected a value" : "the text ends where a value is expected");
    return NULL;
}

/* ---- containers ------------------------------------------------------------------------------ */

static json_t *read_value(struct parser *p);

/* Behind an item: true to go on with the next one. *good = false where neither comma nor end is. */
static bool goes_on(struct parser *p, char end, bool *good)
{
    char c = next_word(p);
    if (c != ',' && c != end)
        *good = is_wrong(p, end == '}' ? "expected , or }" : "expected , or ]");
    else p->at++;
    return c == ',';
}

static bool read_item(struct parser *p, json_t *list)
{
    json_t *value = read_value(p);
    if (value == NULL) return false;
    p->no_memory = json_array_append_new(list, value) != 0; /* takes the value in any case */
    return !p->no_memory;
}

static bool set_member(struct parser *p, json_t *object, const struct piece *name, json_t *value)
{
    const char *text = text_of(p, name);
    bool twice = json_object_getn(object, text, name->size) != NULL;
    if (twice) json_decref(value);
    if (twice) return is_wrong(p, "a duplicate name in an object");
    p->no_memory = json_object_setn_new_nocheck(object, text, name->size, value) != 0;
    return !p->no_memory;
}

static bool read_member(struct parser *p, json_t *object)
{
    struct piece name;
    next_word(p);
    if (!read_string(p, &name)) return false;
    if (next_word(p) != ':') return is_wrong(p, "expected :");
    p->at++;
    json_t *value = read_value(p);
    bool good = value != NULL && set_member(p, object, &name, value);
    drop(p, &name);
    return good;
}

static json_t *read_container(struct parser *p, bool is_object)
{
    char end = is_object ? '}' : ']';
    json_t *value = made(p, is_object ? json_object() : json_array());
    p->at++;
    bool good = value != NULL, more = good && next_word(p) != end;
    if (good && !more) p->at++;
    while (good && more) {
        good = is_object ? read_member(p, value) : read_item(p, value);
        more = good && goes_on(p, end, &good);
    }
    if (good) return value;
    json_decref(value);
    return NULL;
}

static json_t *read_value(struct parser *p)
{
    char c = next_word(p);
    if (c == '"') return read_text(p);
    if (c == '-' || is_digit(c)) return read_number(p);
    if (c != '{' && c != '[') return read_word(p);
    if (p->depth == MAX_DEPTH) {
        is_wrong(p, "objects and arrays nest too deeply");
        return NULL;
    }
    p->depth++;
    json_t *value = read_container(p, c == '{');
    p->depth--;
    return value;
}

static json_t *read_document(struct parser *p)
{
    size_t bad;
    if (!utf8_is_valid(p->text, p->size, &bad)) {
        p->at = bad;
        is_wrong(p, "not UTF-8");
        return NULL;
    }
    char first = next_word(p);
    if (first != '{' && first != '[') {
        is_wrong(p, "expected { or [");
        return NULL;
    }
    json_t *value = read_value(p);
    if (value == NULL || (next_word(p) == '\0' && p->at == p->size)) return value;
    is_wrong(p, "expected the end of the text");
    json_decref(value);
    return NULL;
}

/* Line and column, in characters, of the place that was reached; both count from 1. */
static void place_of(const struct parser *p, size_t *line, size_t *column)
{
    *line = *column = 1;
    for (size_t i = 0; i < p->at; i++) {
        if (p->text[i] == '\n') ++*line, *column = 1;
        else if (((unsigned char)p->text[i] & 0xc0) != 0x80) ++*column;
    }
}

zp_status json_tree_read(const char *text, size_t size, const char *name, zp_status wrong,
                         json_t **out, zp_err *err)
{
    struct parser p = { .text = text, .size = size,
                        .decoded = buffer_with_max(MEM_META, SIZE_MAX / 4) };
    *out = read_document(&p);
    buffer_free(&p.decoded);
    if (*out != NULL) return ZP_OK;
    ZP_FAIL_IF(p.no_memory, err, ZP_NO_MEMORY, "%s: not enough memory for its JSON", name);
    size_t line, column;
    place_of(&p, &line, &column);
    ZP_FAIL(err, wrong, "%s: not valid JSON at line %zu, column %zu: %s", name, line, column,
            p.wrong);
}

/* ---- putting together ------------------------------------------------------------------------ */

/* jansson gives the value back itself when a call fails. */
static json_t *kept(json_t *container, int failed)
{
    if (!failed) return container;
    json_decref(container);
    return NULL;
}

json_t *json_tree_add(json_t *list, json_t *item)
{
    return kept(list, json_array_append_new(list, item));
}

json_t *json_tree_put(json_t *object, const char *key, json_t *value)
{
    return kept(object, json_object_set_new(object, key, value));
}

json_t *json_tree_copy(const json_t *object)
{
    json_t *copy = json_object();
    return copy == NULL ? NULL : kept(copy, json_object_update(copy, (json_t *)object));
}

json_t *json_tree_real(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

json_t *json_tree_printf(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    locale_t had = numtext_enter();
    json_t *value = json_vsprintf(fmt, args);
    numtext_leave(had);
    va_end(args);
    return value;
}

static zp_status mend(const char *text, struct buffer *out)
{
    size_t size = strlen(text), at = 0, bad;
    while (!utf8_is_valid(text + at, size - at, &bad)) {
        ZP_TRY(buffer_append(out, text + at, bad, NULL));
        ZP_TRY(buffer_append_text(out, "\xef\xbf\xbd", NULL));
        at += bad + 1;
    }
    return buffer_append(out, text + at, size - at, NULL);
}

json_t *json_tree_text(const char *text)
{
    if (utf8_is_valid(text, strlen(text), NULL)) return json_string_nocheck(text);
    struct buffer b = buffer_with_max(MEM_META, SIZE_MAX / 4);
    json_t *value = NULL;
    if (mend(text, &b) == ZP_OK) value = json_stringn_nocheck((const char *)b.data, b.size);
    buffer_free(&b);
    return value;
}
