/* jinja_filter_text.c: filters that make texts and numbers. Values that are no text are printed
 * first, as Jinja does. */
#include "model/jinja_filter_text.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/numtext.h"
#include "model/jinja_format.h"
#include "model/jinja_iter.h"
#include "model/jinja_print.h"

#define FILTER(name)                                                                               \
    static zp_status name(struct jinja *c, struct jv self, const struct jv *arg,                   \
                          const struct jargs *all, struct jv *out)

static bool is_none(struct jv v)
{
    return v.kind == J_MISSING || v.kind == J_NONE;
}

FILTER(filter_default)
{
    ZP_UNUSED(all);
    bool use = self.kind == J_UNDEFINED || (jarg_truth(arg[1], false) && !jv_truth(self));
    *out = use ? arg[0] : self;
    return use && arg[0].kind == J_MISSING ? jstr_value(c, "", out) : ZP_OK;
}

FILTER(filter_trim)
{
    ZP_UNUSED(all);
    const struct jstr *s, *chars = NULL;
    ZP_TRY(jv_to_str(c, self, &s));
    if (!is_none(arg[0])) ZP_TRY(jarg_str(c, arg[0], "chars", &chars));
    return jstr_strip(c, s, chars, STRIP_BOTH, out);
}

FILTER(filter_upper)
{
    ZP_UNUSED(arg);
    ZP_UNUSED(all);
    const struct jstr *s;
    ZP_TRY(jv_to_str(c, self, &s));
    return jstr_to_case(c, s, CASE_UPPER, out);
}

FILTER(filter_lower)
{
    ZP_UNUSED(arg);
    ZP_UNUSED(all);
    const struct jstr *s;
    ZP_TRY(jv_to_str(c, self, &s));
    return jstr_to_case(c, s, CASE_LOWER, out);
}

zp_status jstr_capitalize(struct jinja *c, const struct jstr *s, struct jv *out)
{
    struct jtext t = { .c = c };
    size_t size;
    for (size_t at = 0; at < s->size; at += size)
        ZP_TRY(jtext_append_cased(&t, s, at, at == 0 ? CASE_TITLE : CASE_LOWER, &size));
    return jtext_finish(&t, out);
}

FILTER(filter_capitalize)
{
    ZP_UNUSED(arg);
    ZP_UNUSED(all);
    const struct jstr *s;
    ZP_TRY(jv_to_str(c, self, &s));
    return jstr_capitalize(c, s, out);
}

/* Jinja's own rule, not str.title: words begin behind white space and any of - ( { [ < */
FILTER(filter_title)
{
    ZP_UNUSED(arg);
    ZP_UNUSED(all);
    const struct jstr *s;
    struct jtext t = { .c = c };
    bool begins = true;
    size_t size;
    ZP_TRY(jv_to_str(c, self, &s));
    for (size_t at = 0; at < s->size; at += size) {
        uint32_t cp = jstr_char_at(s, at, &size);
        ZP_TRY(jtext_append_cased(&t, s, at, begins ? CASE_UPPER : CASE_LOWER, &size));
        begins = jchar_is_space(cp) || (cp < 0x80 && cp != 0 && strchr("-({[<", (int)cp) != NULL);
    }
    return jtext_finish(&t, out);
}

zp_status jstr_replace(struct jinja *c, const struct jstr *s, const struct jstr *from,
                       const struct jstr *to, int64_t limit, struct jv *out)
{
    struct jtext t = { .c = c };
    size_t at = 0;
    for (int64_t n = 0; limit < 0 || n < limit; n++) {
        size_t hit = jstr_find(s, from, at), step = from->size;
        if (hit == SIZE_MAX) break;
        ZP_TRY(jinja_step(c, 1));
        ZP_TRY(jtext_append_slice(&t, s, at, hit - at));
        ZP_TRY(jtext_append_str(&t, to));
        if (from->size == 0) { /* between all characters, and at both ends */
            if (hit == s->size) return jtext_finish(&t, out);
            jstr_char_at(s, hit, &step);
            ZP_TRY(jtext_append_slice(&t, s, hit, step));
        }
        at = hit + step;
    }
    ZP_TRY(jtext_append_slice(&t, s, at, s->size - at));
    return jtext_finish(&t, out);
}

FILTER(filter_replace)
{
    ZP_UNUSED(all);
    const struct jstr *s, *from, *to;
    int64_t limit = -1;
    ZP_TRY(jv_to_str(c, self, &s));
    ZP_TRY(jv_to_str(c, arg[0], &from));
    ZP_TRY(jv_to_str(c, arg[1], &to));
    if (!is_none(arg[2])) ZP_TRY(jarg_int(c, arg[2], "count", &limit));
    return jstr_replace(c, s, from, to, limit, out);
}

static bool is_line_break(uint32_t cp)
{
    return (cp >= 0x0A && cp <= 0x0D) || (cp >= 0x1C && cp <= 0x1E) || cp == 0x85 || cp == 0x2028 ||
           cp == 0x2029;
}

size_t jstr_line_end(const struct jstr *s, size_t at, size_t *next)
{
    size_t size;
    for (; at < s->size; at += size) {
        uint32_t cp = jstr_char_at(s, at, &size);
        if (!is_line_break(cp)) continue;
        *next = at + size;
        if (cp == '\r' && *next < s->size && s->data[*next] == '\n') ++*next;
        return at;
    }
    *next = s->size;
    return s->size;
}

FILTER(filter_indent)
{
    ZP_UNUSED(all);
    const struct jstr *s = NULL, *by = NULL;
    struct jv indent = arg[0];
    int64_t width = 4;
    ZP_TRY(jarg_str(c, self, "the indented value", &s));
    if (indent.kind != J_STR) {
        struct jtext spaces = { .c = c };
        ZP_TRY(jarg_int(c, indent, "width", &width));
        for (int64_t i = 0; i < width; i++) ZP_TRY(jtext_append_ascii(&spaces, " "));
        ZP_TRY(jtext_finish(&spaces, &indent));
    }
    by = indent.u.s;
    bool first = jarg_truth(arg[1], false), blank = jarg_truth(arg[2], false);
    struct jtext t = { .c = c };
    if (first) ZP_TRY(jtext_append_str(&t, by));
    for (size_t at = 0, next = 0, line = 0; line == 0 || at < s->size; at = next, line++) {
        size_t end = jstr_line_end(s, at, &next);
        if (line != 0) ZP_TRY(jtext_append_ascii(&t, "\n"));
        if (line != 0 && (blank || end > at)) ZP_TRY(jtext_append_str(&t, by));
        ZP_TRY(jtext_append_slice(&t, s, at, end - at));
        if (next == s->size && end < s->size) { /* a break at the end opens one more, empty line */
            ZP_TRY(jtext_append_ascii(&t, "\n"));
            if (blank) ZP_TRY(jtext_append_str(&t, by));
        }
    }
    return jtext_finish(&t, out);
}

/* ---- numbers ---- */

/* The text without white space at its ends and without underscores between digits; false if it
 * cannot be a number. */
static bool clean_number(const struct jstr *s, char *out, size_t room)
{
    size_t begin = 0, end = s->size, n = 0, size;
    while (begin < end && jchar_is_space(jstr_char_at(s, begin, &size))) begin += size;
    while (end > begin && jchar_is_space(jstr_char_before(s, end, &size))) end -= size;
    if (begin == end || end - begin >= room) return false;
    for (size_t i = begin; i < end; i++) {
        char ch = s->data[i];
        if (ch == '_') {
            bool between =
                i > begin && i + 1 < end && s->data[i - 1] != '_' && s->data[i + 1] != '_';
            if (!between) return false;
            continue;
        }
        if ((uint8_t)ch <= ' ' || (uint8_t)ch >= 0x7F) return false;
        out[n++] = ch;
    }
    out[n] = '\0';
    return true;
}

bool jstr_to_int(const struct jstr *s, int base, int64_t *out, bool *overflow)
{
    char text[128], *end;
    *overflow = false;
    if (!clean_number(s, text, sizeof text)) return false;
    char *digits = text + (text[0] == '-' || text[0] == '+');
    if (digits[0] == '0' && (digits[1] | 32) == (base == 16  ? 'x'
                                                 : base == 8 ? 'o'
                                                 : base == 2 ? 'b'
                                                             : 1)) {
        if (base != 16) memmove(digits, digits + 2, strlen(digits + 2) + 1);
    }
    if (*digits == '-' || *digits == '+' || *digits == '\0') return false;
    errno = 0;
    long long value = strtoll(text, &end, base);
    if (*end != '\0') return false;
    *overflow = errno == ERANGE;
    *out = value;
    return true;
}

bool jstr_to_float(const struct jstr *s, double *out)
{
    char text[512], *end;
    if (!clean_number(s, text, sizeof text)) return false;
    for (const char *p = text; *p != '\0'; p++)
        if (strchr("0123456789+-.eEinfatyINFATY", *p) == NULL)
            return false; /* no hexadecimal, no nan(...) */
    *out = numtext_double(text, &end);
    return *end == '\0';
}

static bool float_to_int(double f, int64_t *out)
{
    if (!(fabs(f) < 0x1p63)) return false;
    *out = (int64_t)f;
    return true;
}

FILTER(filter_int)
{
    ZP_UNUSED(all);
    int64_t value = 0, base = 10;
    double f;
    bool overflow = false, ok;
    if (self.kind == J_UNDEFINED) return jv_fail_undefined(c, self);
    ZP_TRY(jarg_int(c, arg[1], "base", &base));
    J_FAIL_IF(base != 0 && (base < 2 || base > 36), c, "int: the base is %lld, expected 2 to 36",
              (long long)base);
    ok = jv_is_integer(self);
    if (ok) value = jv_as_int(self);
    if (self.kind == J_FLOAT) ok = float_to_int(self.u.f, &value);
    if (self.kind == J_STR) {
        ok = jstr_to_int(self.u.s, (int)base, &value, &overflow);
        if (!ok && jstr_to_float(self.u.s, &f)) ok = float_to_int(f, &value);
    }
    J_FAIL_IF(overflow, c, "int: the number does not fit 64 bits");
    *out = ok ? jv_int(value) : arg[0].kind == J_MISSING ? jv_int(0) : arg[0];
    return ZP_OK;
}

FILTER(filter_float)
{
    ZP_UNUSED(all);
    double f = 0;
    bool ok = jv_is_number(self);
    if (self.kind == J_UNDEFINED) return jv_fail_undefined(c, self);
    if (ok) f = jv_as_float(self);
    if (self.kind == J_STR) ok = jstr_to_float(self.u.s, &f);
    *out = ok ? jv_float(f) : arg[0].kind == J_MISSING ? jv_float(0) : arg[0];
    return ZP_OK;
}

FILTER(filter_abs)
{
    ZP_UNUSED(arg);
    ZP_UNUSED(all);
    if (self.kind == J_UNDEFINED) return jv_fail_undefined(c, self);
    J_FAIL_IF(!jv_is_number(self), c, "abs: expected a number, found '%s'", jv_type_name(self));
    J_FAIL_IF(self.kind == J_INT && self.u.i == INT64_MIN, c,
              "abs: the number does not fit 64 bits");
    int64_t i = self.kind == J_FLOAT ? 0 : jv_as_int(self);
    *out = self.kind == J_FLOAT ? jv_float(fabs(self.u.f)) : jv_int(i < 0 ? -i : i);
    return ZP_OK;
}

FILTER(filter_round)
{
    ZP_UNUSED(all);
    int64_t precision = 0;
    const struct jstr *method = NULL;
    char text[400];
    if (self.kind == J_UNDEFINED) return jv_fail_undefined(c, self);
    ZP_TRY(jarg_int(c, arg[0], "precision", &precision));
    ZP_TRY(jarg_str(c, arg[1], "method", &method));
    J_FAIL_IF(!jv_is_number(self), c, "round: expected a number, found '%s'", jv_type_name(self));
    J_FAIL_IF(precision < 0 || precision > 60, c, "round: the precision is %lld, expected 0 to 60",
              (long long)precision);
    bool common = method == NULL || jstr_is(method, "common"),
         ceil_it = method && jstr_is(method, "ceil");
    J_FAIL_IF(!common && !ceil_it && !jstr_is(method, "floor"), c,
              "round: the method is common, ceil or floor");
    double f = jv_as_float(self), scale = pow(10, (double)precision);
    if (!common) {
        *out = jv_float((ceil_it ? ceil(f * scale) : floor(f * scale)) / scale);
    } else if (self.kind != J_FLOAT) {
        *out = jv_int(jv_as_int(self));
    } else {
        /* rounds the exact value, ties to even */
        numtext_printf(text, sizeof text, "%.*f", (int)precision, f);
        *out = jv_float(isfinite(f) ? numtext_double(text, NULL) : f);
    }
    return ZP_OK;
}

/* ---- other texts ---- */

FILTER(filter_string)
{
    ZP_UNUSED(arg);
    ZP_UNUSED(all);
    const struct jstr *s;
    ZP_TRY(jv_to_str(c, self, &s));
    *out = jv_str(s);
    return ZP_OK;
}

FILTER(filter_safe)
{
    return filter_string(c, self, arg, all, out);
}

FILTER(filter_escape)
{
    ZP_UNUSED(arg);
    ZP_UNUSED(all);
    static const char from[] = "&<>'\"";
    static const char *const to[] = { "&amp;", "&lt;", "&gt;", "&#39;", "&#34;" };
    const struct jstr *s;
    struct jtext t = { .c = c };
    ZP_TRY(jv_to_str(c, self, &s));
    for (size_t at = 0; at < s->size; at++) {
        const char *hit = memchr(from, s->data[at], sizeof from - 1);
        if (hit == NULL) ZP_TRY(jtext_append_slice(&t, s, at, 1));
        else
            ZP_TRY(jtext_append(&t, to[hit - from], strlen(to[hit - from]), jstr_origin_at(s, at),
                                NULL));
    }
    return jtext_finish(&t, out);
}

FILTER(filter_format)
{
    ZP_UNUSED(arg);
    const struct jstr *s;
    ZP_TRY(jv_to_str(c, self, &s));
    J_FAIL_IF(all->n_pos != 0 && all->n_kw != 0, c,
              "format: values are given by place or by name, not both");
    struct jdict *named;
    struct jlist *values;
    if (all->n_kw != 0) {
        ZP_TRY(jdict_new(c, &named));
        for (size_t i = 0; i < all->n_kw; i++)
            ZP_TRY(jdict_set(c, named, jv_str(all->kw[i].name), all->kw[i].value));
        return jinja_percent_format(c, s, jv_dict(named), out);
    }
    ZP_TRY(jlist_new(c, all->n_pos, &values));
    for (size_t i = 0; i < all->n_pos; i++) ZP_TRY(jlist_append(c, values, all->pos[i]));
    return jinja_percent_format(c, s, jv_tuple(values), out);
}

zp_status jstr_pad(struct jinja *c, const struct jstr *s, int64_t left, int64_t right,
                   const struct jstr *fill, struct jv *out)
{
    static const struct jstr space = { .data = " ", .size = 1, .n_char = 1 };
    struct jtext t = { .c = c };
    if (fill == NULL) fill = &space;
    J_FAIL_IF(jstr_chars(fill) != 1, c, "a text is padded with one character");
    for (int64_t i = 0; i < left; i++) ZP_TRY(jtext_append_str(&t, fill));
    ZP_TRY(jtext_append_str(&t, s));
    for (int64_t i = 0; i < right; i++) ZP_TRY(jtext_append_str(&t, fill));
    return jtext_finish(&t, out);
}

zp_status jstr_center(struct jinja *c, const struct jstr *s, int64_t width, const struct jstr *fill,
                      struct jv *out)
{
    int64_t n = (int64_t)jstr_chars(s), missing = width > n ? width - n : 0;
    int64_t left = missing / 2 + (missing & width & 1);
    return jstr_pad(c, s, left, missing - left, fill, out);
}

FILTER(filter_center)
{
    ZP_UNUSED(all);
    const struct jstr *s;
    int64_t width = 80;
    ZP_TRY(jv_to_str(c, self, &s));
    ZP_TRY(jarg_int(c, arg[0], "width", &width));
    return jstr_center(c, s, width, NULL, out);
}

FILTER(filter_wordcount)
{
    ZP_UNUSED(arg);
    ZP_UNUSED(all);
    const struct jstr *s;
    int64_t n = 0;
    bool inside = false;
    size_t size;
    ZP_TRY(jv_to_str(c, self, &s));
    for (size_t at = 0; at < s->size; at += size) {
        uint32_t cp = jstr_char_at(s, at, &size);
        bool word = cp == '_' || jchar_is_letter(cp) || jchar_is_digit(cp);
        n += word && !inside;
        inside = word;
    }
    *out = jv_int(n);
    return ZP_OK;
}

FILTER(filter_tojson)
{
    ZP_UNUSED(all);
    struct jjson_style style = { .ensure_ascii = jarg_truth(arg[0], false),
                                 .sort_keys = jarg_truth(arg[3], false) };
    struct jv indent = arg[1];
    if (!is_none(indent) && indent.kind != J_STR) {
        int64_t width = 0;
        struct jtext spaces = { .c = c };
        ZP_TRY(jarg_int(c, indent, "indent", &width));
        J_FAIL_IF(width > 100, c, "tojson: the indentation is %lld, at most 100", (long long)width);
        for (int64_t i = 0; i < width; i++) ZP_TRY(jtext_append_ascii(&spaces, " "));
        ZP_TRY(jtext_finish(&spaces, &indent));
    }
    if (!is_none(indent)) style.indent = indent.u.s;
    if (!is_none(arg[2])) {
        struct jlist *pair;
        ZP_TRY(jv_to_list(c, arg[2], &pair));
        J_FAIL_IF(pair->n != 2, c, "tojson: separators are two texts, found %zu", pair->n);
        ZP_TRY(jarg_str(c, pair->items[0], "separators", &style.item_separator));
        ZP_TRY(jarg_str(c, pair->items[1], "separators", &style.key_separator));
    }
    return jv_to_json(c, self, &style, out);
}

static const struct jbuiltin text_rows[] = {
    { "default", filter_default, "default_value boolean", 0 },
    { "d", filter_default, "default_value boolean", 0 },
    { "trim", filter_trim, "chars", 0 },
    { "strip", filter_trim, "chars", 0 }, /* not in Jinja; templates of other engines use it */
    { "upper", filter_upper, "", 0 },
    { "lower", filter_lower, "", 0 },
    { "capitalize", filter_capitalize, "", 0 },
    { "title", filter_title, "", 0 },
    { "replace", filter_replace, "old new count", 2 },
    { "indent", filter_indent, "width first blank", 0 },
    { "int", filter_int, "default base", 0 },
    { "float", filter_float, "default", 0 },
    { "abs", filter_abs, "", 0 },
    { "round", filter_round, "precision method", 0 },
    { "string", filter_string, "", 0 },
    { "safe", filter_safe, "", 0 }, /* no Markup here: what is joined to it is not escaped */
    { "escape", filter_escape, "", 0 },
    { "e", filter_escape, "", 0 },
    { "forceescape", filter_escape, "", 0 },
    { "format", filter_format, NULL, 0 },
    { "center", filter_center, "width", 0 },
    { "wordcount", filter_wordcount, "", 0 },
    { "tojson", filter_tojson, "ensure_ascii indent separators sort_keys", 0 },
};
const struct jbuiltin_table jinja_text_filters = { text_rows, ZP_COUNT(text_rows) };
