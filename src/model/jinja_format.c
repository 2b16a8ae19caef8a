/* jinja_format.c: Python's '%' formatting and str.format for template values. No state.
 * Covered: width, precision, alignment, fill, sign, zero padding, and the types s r d i u f F e E g
 * G x X o b c %. */
#include "model/jinja_format.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/numtext.h"
#include "model/jinja_access.h"
#include "model/jinja_print.h"

#define MAX_WIDTH 10000
#define MAX_PRECISION 100

struct spec {
    const char *fill; /* one character */
    size_t fill_size;
    char align; /* '<' '>' '^' '=' */
    char sign;  /* '+' ' ' or 0 */
    char type;  /* 0: str() */
    bool zero;
    int64_t width, precision; /* precision -1: not given */
};

struct reader {
    const struct jstr *s;
    size_t at;
};

static char peek(const struct reader *r)
{
    return r->at < r->s->size ? r->s->data[r->at] : 0;
}

static zp_status read_count(struct jinja *c, struct reader *r, int64_t limit, int64_t *out)
{
    *out = 0;
    for (char ch; (ch = peek(r)) >= '0' && ch <= '9'; r->at++) {
        *out = *out * 10 + (ch - '0');
        J_FAIL_IF(*out > limit, c, "a width or precision in a format is beyond %lld",
                  (long long)limit);
    }
    return ZP_OK;
}

static zp_status append_padding(struct jtext *t, const struct spec *f, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        ZP_TRY(jtext_append(t, f->fill, f->fill_size, ORIGIN_TEMPLATE, NULL));
    return ZP_OK;
}

/* Pads [sign][body] to the width. n_sign: bytes of body that stay in front of '=' padding. */
static zp_status append_aligned(struct jtext *t, const struct spec *f, const struct jstr *body,
                                size_t n_sign)
{
    int64_t missing = f->width - (int64_t)jstr_chars(body);
    int64_t left = missing <= 0 ? 0 : f->align == '<' ? 0 : f->align == '^' ? missing / 2 : missing;
    if (f->align != '=') n_sign = 0;
    ZP_TRY(jtext_append_slice(t, body, 0, n_sign));
    ZP_TRY(append_padding(t, f, left));
    ZP_TRY(jtext_append_slice(t, body, n_sign, body->size - n_sign));
    return append_padding(t, f, missing > 0 ? missing - left : 0);
}

static zp_status append_string(struct jtext *t, const struct spec *f, struct jv v)
{
    struct jinja *c = t->c;
    const struct jstr *s;
    struct jv cut;
    if (f->type == 'r') {
        struct jtext repr = { .c = c };
        ZP_TRY(jtext_append_repr(&repr, v));
        ZP_TRY(jtext_finish(&repr, &v));
    }
    ZP_TRY(jv_to_str(c, v, &s));
    if (f->precision >= 0) {
        ZP_TRY(jstr_slice(c, s, 0, jstr_byte_of(s, (size_t)f->precision), &cut));
        s = cut.u.s;
    }
    return append_aligned(t, f, s, 0);
}

static int64_t digits_of(uint64_t u, unsigned base, bool upper, char out[80])
{
    char reversed[80];
    int64_t n = 0;
    do {
        unsigned digit = (unsigned)(u % base);
        reversed[n++] = (char)(digit < 10 ? '0' + digit : (upper ? 'A' : 'a') + digit - 10);
        u /= base;
    } while (u != 0);
    for (int64_t i = 0; i < n; i++) out[i] = reversed[n - 1 - i];
    return n;
}

static zp_status append_number_text(struct jtext *t, const struct spec *f, const char *digits,
                                    size_t n, bool negative)
{
    const struct jstr *body;
    struct jtext number = { .c = t->c };
    struct jv text;
    const char *sign = negative ? "-" : f->sign == '+' ? "+" : f->sign == ' ' ? " " : "";
    ZP_TRY(jtext_append_ascii(&number, sign));
    ZP_TRY(jtext_append(&number, digits, n, ORIGIN_TEMPLATE, NULL));
    ZP_TRY(jtext_finish(&number, &text));
    body = text.u.s;
    return append_aligned(t, f, body, strlen(sign));
}

static zp_status append_integer(struct jtext *t, const struct spec *f, struct jv v)
{
    int64_t i = jv_is_integer(v) ? jv_as_int(v) : 0;
    if (v.kind == J_FLOAT) {
        J_FAIL_IF(!(fabs(v.u.f) < 0x1p63), t->c, "the number does not fit an integer format");
        i = (int64_t)v.u.f;
    }
    unsigned base = f->type == 'x' || f->type == 'X' ? 16
                    : f->type == 'o'                 ? 8
                    : f->type == 'b'                 ? 2
                                                     : 10;
    char digits[80 + MAX_PRECISION], raw[80];
    int64_t n = digits_of(i < 0 ? 0 - (uint64_t)i : (uint64_t)i, base, f->type == 'X', raw);
    int64_t zeros = f->precision > n ? f->precision - n : 0;
    memset(digits, '0', (size_t)zeros);
    memcpy(digits + zeros, raw, (size_t)n);
    return append_number_text(t, f, digits, (size_t)(zeros + n), i < 0);
}

static zp_status append_float(struct jtext *t, const struct spec *f, struct jv v)
{
    char text[400 + MAX_PRECISION];
    double x = fabs(jv_as_float(v)), value = jv_as_float(v);
    int precision = f->precision < 0 ? 6 : (int)f->precision;
    char form[] = { '%', '.', '*', f->type == '%' ? 'f' : f->type, 0 };
    int n;
    if (f->type == '%') n = numtext_printf(text, sizeof text, "%.*f%%", precision, x * 100);
    else if (isnan(x)) n = snprintf(text, sizeof text, "nan");
    else switch (form[3]) {
        case 'e': n = numtext_printf(text, sizeof text, "%.*e", precision, x); break;
        case 'E': n = numtext_printf(text, sizeof text, "%.*E", precision, x); break;
        case 'g': n = numtext_printf(text, sizeof text, "%.*g", precision, x); break;
        case 'G': n = numtext_printf(text, sizeof text, "%.*G", precision, x); break;
        default: n = numtext_printf(text, sizeof text, "%.*f", precision, x);
        }
    return append_number_text(t, f, text, (size_t)n, signbit(value) && !isnan(value));
}

static zp_status append_formatted(struct jtext *t, const struct spec *f, struct jv v)
{
    struct jinja *c = t->c;
    if (v.kind == J_UNDEFINED && f->type != 's' && f->type != 0) return jv_fail_undefined(c, v);
    if (f->type == 's' || f->type == 'r' || f->type == 0) return append_string(t, f, v);
    if (f->type == 'c' && v.kind == J_STR) {
        J_FAIL_IF(jstr_chars(v.u.s) != 1, c, "format 'c' needs one character");
        return append_aligned(t, f, v.u.s, 0);
    }
    J_FAIL_IF(!jv_is_number(v), c, "format '%c' needs a number, found '%s'", f->type,
              jv_type_name(v));
    if (f->type == 'c') {
        int64_t cp = jv_is_integer(v) ? jv_as_int(v) : -1;
        J_FAIL_IF(cp < 0 || cp > 0x10FFFF || (cp >= 0xD800 && cp < 0xE000), c,
                  "format 'c' needs a character");
        struct jtext one = { .c = c };
        struct jv s;
        ZP_TRY(jtext_append_char(&one, (uint32_t)cp, ORIGIN_TEMPLATE));
        ZP_TRY(jtext_finish(&one, &s));
        return append_aligned(t, f, s.u.s, 0);
    }
    if (strchr("fFeEgG%", f->type) != NULL) return append_float(t, f, v);
    J_FAIL_IF(strchr("diuxXob", f->type) == NULL, c, "the format type '%c' is not supported",
              f->type);
    J_FAIL_IF(v.kind == J_FLOAT && strchr("xXob", f->type) != NULL, c,
              "format '%c' needs an integer", f->type);
    return append_integer(t, f, v);
}

/* ---- percent ---- */

struct percent {
    struct jv args;
    size_t used;
    bool many;
};

static zp_status next_value(struct jinja *c, struct percent *p, struct jv *out)
{
    size_t n = p->many ? p->args.u.list->n : 1;
    J_FAIL_IF(p->used >= n, c, "the format asks for more values than the %zu given", n);
    *out = p->many ? p->args.u.list->items[p->used] : p->args;
    p->used++;
    return ZP_OK;
}

static zp_status read_percent_key(struct jinja *c, struct reader *r, struct percent *p,
                                  struct jv *out)
{
    size_t begin = ++r->at;
    while (r->at < r->s->size && peek(r) != ')') r->at++;
    J_FAIL_IF(r->at >= r->s->size, c, "'%%(' in a format does not end; expected ')'");
    struct jv key;
    ZP_TRY(jstr_slice(c, r->s, begin, r->at - begin, &key));
    r->at++;
    J_FAIL_IF(p->args.kind != J_DICT, c, "'%%(name)' needs a dictionary, found '%s'",
              jv_type_name(p->args));
    struct jpair *pair;
    ZP_TRY(jdict_find(c, p->args.u.dict, key, &pair));
    J_FAIL_IF(pair == NULL, c, "the format's dictionary has no '%.*s'", (int)key.u.s->size,
              key.u.s->data);
    *out = pair->value;
    return ZP_OK;
}

static zp_status read_star(struct jinja *c, struct reader *r, struct percent *p, int64_t limit,
                           int64_t *out)
{
    struct jv v;
    if (peek(r) != '*') return read_count(c, r, limit, out);
    r->at++;
    ZP_TRY(next_value(c, p, &v));
    J_FAIL_IF(!jv_is_integer(v) || jv_as_int(v) < 0 || jv_as_int(v) > limit, c,
              "'*' in a format needs an integer from 0 to %lld", (long long)limit);
    *out = jv_as_int(v);
    return ZP_OK;
}

static zp_status one_percent(struct jtext *t, struct reader *r, struct percent *p)
{
    struct jinja *c = t->c;
    struct spec f = { .fill = " ", .fill_size = 1, .align = '>', .precision = -1 };
    struct jv v = jv_missing();
    if (peek(r) == '(') ZP_TRY(read_percent_key(c, r, p, &v));
    for (char ch; (ch = peek(r)) != 0 && strchr("-+ 0#", ch) != NULL; r->at++) {
        if (ch == '-') f.align = '<';
        else if (ch == '0') f.zero = true;
        else if (ch == '+' || f.sign == 0) f.sign = ch == '#' ? 0 : ch;
    }
    ZP_TRY(read_star(c, r, p, MAX_WIDTH, &f.width));
    if (peek(r) == '.') {
        r->at++;
        ZP_TRY(read_star(c, r, p, MAX_PRECISION, &f.precision));
    }
    f.type = peek(r);
    r->at++;
    if (f.type == '%') return jtext_append_ascii(t, "%");
    J_FAIL_IF(f.type == 0 || strchr("srdiufFeEgGxXoc", f.type) == NULL, c,
              "'%%' in a format is followed by no known type; write '%%%%' for the sign itself");
    if (f.zero && f.align == '>' && strchr("src", f.type) == NULL) f.align = '=', f.fill = "0";
    if (v.kind == J_MISSING) ZP_TRY(next_value(c, p, &v));
    return append_formatted(t, &f, v);
}

zp_status jinja_percent_format(struct jinja *c, const struct jstr *format, struct jv args,
                               struct jv *out)
{
    struct reader r = { .s = format };
    struct percent p = { .args = args, .many = args.kind == J_TUPLE };
    struct jtext t = { .c = c };
    while (r.at < format->size) {
        const char *mark = memchr(format->data + r.at, '%', format->size - r.at);
        size_t end = mark ? (size_t)(mark - format->data) : format->size;
        ZP_TRY(jtext_append_slice(&t, format, r.at, end - r.at));
        r.at = end + 1;
        if (mark != NULL) ZP_TRY(one_percent(&t, &r, &p));
    }
    bool all_used = p.many ? p.used == args.u.list->n : p.used == 1;
    J_FAIL_IF(!all_used && args.kind != J_DICT && args.kind != J_LIST, c,
              "not all values are used by the format '%.*s'",
              (int)(format->size < 80 ? format->size : 80), format->data);
    return jtext_finish(&t, out);
}

/* ---- str.format ---- */

/* [[fill]align][sign][0][width][.precision][type] up to '}' */
static zp_status read_brace_spec(struct jinja *c, struct reader *r, struct spec *f)
{
    size_t size = 1;
    if (r->at < r->s->size) jstr_char_at(r->s, r->at, &size);
    char after = r->at + size < r->s->size ? r->s->data[r->at + size] : 0;
    if (after != 0 && strchr("<>^=", after) != NULL) {
        f->fill = r->s->data + r->at;
        f->fill_size = size;
        f->align = after;
        r->at += size + 1;
    } else if (peek(r) != 0 && strchr("<>^=", peek(r)) != NULL) {
        f->align = peek(r);
        r->at++;
    }
    if (peek(r) != 0 && strchr("+- ", peek(r)) != NULL) {
        f->sign = peek(r);
        r->at++;
    }
    if (peek(r) == '0') {
        f->zero = true;
        r->at++;
    }
    ZP_TRY(read_count(c, r, MAX_WIDTH, &f->width));
    if (peek(r) == '.') {
        r->at++;
        ZP_TRY(read_count(c, r, MAX_PRECISION, &f->precision));
    }
    if (peek(r) != '}') f->type = peek(r), r->at++;
    J_FAIL_IF(peek(r) != '}', c,
              "a replacement field of a format does not end or is not supported; expected '}'");
    return ZP_OK;
}

static zp_status read_field(struct jinja *c, struct reader *r, const struct jargs *args,
                            size_t *next, struct jv *out)
{
    size_t begin = r->at;
    while (peek(r) != 0 && strchr(".[!:}", peek(r)) == NULL) r->at++;
    struct jv name;
    ZP_TRY(jstr_slice(c, r->s, begin, r->at - begin, &name));
    size_t index = 0;
    bool digits = name.u.s->size < 10;
    for (size_t i = 0; i < name.u.s->size && digits; i++) {
        digits = name.u.s->data[i] >= '0' && name.u.s->data[i] <= '9';
        index = index * 10 + (size_t)(name.u.s->data[i] - '0');
    }
    if (name.u.s->size == 0) index = (*next)++;
    *out = jv_missing();
    if (digits && index < args->n_pos) *out = args->pos[index];
    for (size_t i = 0; !digits && i < args->n_kw; i++)
        if (jstr_equal(args->kw[i].name, name.u.s)) *out = args->kw[i].value;
    J_FAIL_IF(out->kind == J_MISSING, c, "the format has no value for the field '{%.*s}'",
              (int)(name.u.s->size < 80 ? name.u.s->size : 80), name.u.s->data);
    while (peek(r) == '.') {
        begin = ++r->at;
        while (peek(r) != 0 && strchr(".[!:}", peek(r)) == NULL) r->at++;
        ZP_TRY(jstr_slice(c, r->s, begin, r->at - begin, &name));
        ZP_TRY(jinja_attribute(c, *out, name.u.s, out));
    }
    J_FAIL_IF(peek(r) == '[', c, "'[' in a replacement field is not supported");
    return ZP_OK;
}

static zp_status one_brace(struct jtext *t, struct reader *r, const struct jargs *args,
                           size_t *next)
{
    struct spec f = { .fill = " ", .fill_size = 1, .precision = -1 };
    struct jinja *c = t->c;
    struct jv v;
    ZP_TRY(read_field(c, r, args, next, &v));
    if (peek(r) == '!') {
        f.type = r->at + 1 < r->s->size ? r->s->data[r->at + 1] : 0;
        J_FAIL_IF(f.type != 's' && f.type != 'r', c,
                  "expected '!s' or '!r' in a replacement field");
        r->at += 2;
        struct jtext text = { .c = c };
        ZP_TRY(f.type == 'r' ? jtext_append_repr(&text, v) : jtext_append_value(&text, v));
        ZP_TRY(jtext_finish(&text, &v));
        f.type = 0;
    }
    if (peek(r) == ':') {
        r->at++;
        ZP_TRY(read_brace_spec(c, r, &f));
    }
    J_FAIL_IF(peek(r) != '}', c, "a replacement field of a format does not end; expected '}'");
    r->at++;
    bool number = jv_is_number(v);
    if (f.zero && f.align == 0) f.align = number ? '=' : '<', f.fill = "0", f.fill_size = 1;
    if (f.align == 0) f.align = number ? '>' : '<';
    if (f.type == 0 && number && v.kind != J_BOOL && (f.width || f.sign || f.precision >= 0))
        f.type = v.kind == J_FLOAT ? (f.precision >= 0 ? 'g' : 0) : 'd';
    return append_formatted(t, &f, v);
}

zp_status jinja_brace_format(struct jinja *c, const struct jstr *format, const struct jargs *args,
                             struct jv *out)
{
    struct reader r = { .s = format };
    struct jtext t = { .c = c };
    size_t next = 0;
    while (r.at < format->size) {
        char ch = peek(&r), after = r.at + 1 < format->size ? format->data[r.at + 1] : 0;
        if (ch != '{' && ch != '}') {
            ZP_TRY(jtext_append_slice(&t, format, r.at, 1));
            r.at++;
            continue;
        }
        r.at++;
        if (ch == after) {
            ZP_TRY(jtext_append_slice(&t, format, r.at, 1));
            r.at++;
            continue;
        }
        J_FAIL_IF(ch == '}', c, "'}' stands alone in a format; write '}}' for the sign itself");
        ZP_TRY(one_brace(&t, &r, args, &next));
    }
    return jtext_finish(&t, out);
}
