/* jinja_print.c: values of a chat template as text: Python's str() and repr(), and json.dumps.
 * A list or dictionary printed with user text anywhere inside counts as user text wholly: its
 * brackets and quotes stand between user bytes, and one origin keeps the output in few pieces. */
#include "model/jinja_print.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/numtext.h"
#include "model/jinja_sort.h"

void jinja_float_text(double f, char out[FLOAT_TEXT_SIZE])
{
    if (!isfinite(f)) {
        snprintf(out, FLOAT_TEXT_SIZE, "%s", isnan(f) ? "nan" : f < 0 ? "-inf" : "inf");
        return;
    }
    char digits[FLOAT_TEXT_SIZE];
    for (int precision = 0; precision < 17; precision++) {
        numtext_printf(digits, sizeof digits, "%.*e", precision, f);
        if (numtext_double(digits, NULL) == f) break;
    }
    char *mark = strchr(digits, 'e');
    int exponent = (int)strtol(mark + 1, NULL, 10);
    int n_digits = (int)(mark - digits) - (digits[0] == '-') - (strchr(digits, '.') != NULL);
    if (exponent >= -4 && exponent < 16) {
        int decimals = n_digits - 1 - exponent;
        numtext_printf(out, FLOAT_TEXT_SIZE, "%.*f", decimals < 1 ? 1 : decimals, f);
        return;
    }
    *mark = '\0';
    snprintf(out, FLOAT_TEXT_SIZE, "%.30se%c%02d", digits, exponent < 0 ? '-' : '+', abs(exponent));
}

static zp_status append_number(struct jtext *t, struct jv v)
{
    char text[FLOAT_TEXT_SIZE];
    if (v.kind == J_FLOAT) jinja_float_text(v.u.f, text);
    else snprintf(text, sizeof text, "%lld", (long long)v.u.i);
    return jtext_append_ascii(t, text);
}

static zp_status append_escaped(struct jtext *t, uint32_t cp, enum jorigin origin)
{
    char text[12];
    int n = cp < 0x100     ? snprintf(text, sizeof text, "\\x%02x", cp)
            : cp < 0x10000 ? snprintf(text, sizeof text, "\\u%04x", cp)
                           : snprintf(text, sizeof text, "\\U%08x", cp);
    return jtext_append(t, text, (size_t)n, origin, NULL);
}

static zp_status append_str_repr(struct jtext *t, const struct jstr *s)
{
    bool single = memchr(s->data, '\'', s->size) != NULL,
         both = memchr(s->data, '"', s->size) != NULL;
    char quote = single && !both ? '"' : '\'';
    ZP_TRY(jtext_append(t, &quote, 1, ORIGIN_TEMPLATE, NULL));
    size_t size;
    for (size_t at = 0; at < s->size; at += size) {
        uint32_t cp = jstr_char_at(s, at, &size);
        enum jorigin origin = jstr_origin_at(s, at);
        const char *named = cp == '\n'   ? "\\n"
                            : cp == '\r' ? "\\r"
                            : cp == '\t' ? "\\t"
                            : cp == '\\' ? "\\\\"
                                         : NULL;
        char quoted[2] = { '\\', quote };
        if (named != NULL) ZP_TRY(jtext_append(t, named, 2, origin, NULL));
        else if (cp == (uint8_t)quote) ZP_TRY(jtext_append(t, quoted, 2, origin, NULL));
        else if (!jchar_is_printable(cp)) ZP_TRY(append_escaped(t, cp, origin));
        else ZP_TRY(jtext_append_slice(t, s, at, size));
    }
    return jtext_append(t, &quote, 1, ORIGIN_TEMPLATE, NULL);
}

static zp_status append_list_repr(struct jtext *t, struct jv v)
{
    const struct jlist *list = v.u.list;
    bool tuple = v.kind == J_TUPLE;
    if (list->view != NULL) ZP_TRY(jtext_append_ascii(t, list->view));
    if (list->view != NULL) ZP_TRY(jtext_append_ascii(t, "("));
    ZP_TRY(jtext_append_ascii(t, tuple ? "(" : "["));
    for (size_t i = 0; i < list->n; i++) {
        if (i != 0) ZP_TRY(jtext_append_ascii(t, ", "));
        ZP_TRY(jtext_append_repr(t, list->items[i]));
    }
    if (tuple && list->n == 1) ZP_TRY(jtext_append_ascii(t, ","));
    ZP_TRY(jtext_append_ascii(t, tuple ? ")" : "]"));
    return list->view != NULL ? jtext_append_ascii(t, ")") : ZP_OK;
}

static zp_status append_dict_repr(struct jtext *t, const struct jdict *d)
{
    ZP_TRY(jtext_append_ascii(t, "{"));
    for (size_t i = 0; i < d->n; i++) {
        if (i != 0) ZP_TRY(jtext_append_ascii(t, ", "));
        ZP_TRY(jtext_append_repr(t, d->pairs[i].key));
        ZP_TRY(jtext_append_ascii(t, ": "));
        ZP_TRY(jtext_append_repr(t, d->pairs[i].value));
    }
    return jtext_append_ascii(t, "}");
}

static zp_status append_range_repr(struct jtext *t, const struct jrange *r)
{
    char text[100];
    long long stop = (long long)(r->start + r->n * r->step);
    if (r->step == 1) snprintf(text, sizeof text, "range(%lld, %lld)", (long long)r->start, stop);
    else
        snprintf(text, sizeof text, "range(%lld, %lld, %lld)", (long long)r->start, stop,
                 (long long)r->step);
    return jtext_append_ascii(t, text);
}

zp_status jtext_append_repr(struct jtext *t, struct jv v)
{
    ZP_TRY(jinja_step(t->c, 1));
    ZP_TRY(jinja_enter(t->c));
    switch ((enum jkind)v.kind) {
    case J_UNDEFINED: ZP_TRY(jtext_append_ascii(t, "Undefined")); break;
    case J_NONE: ZP_TRY(jtext_append_ascii(t, "None")); break;
    case J_BOOL: ZP_TRY(jtext_append_ascii(t, v.u.b ? "True" : "False")); break;
    case J_INT:
    case J_FLOAT: ZP_TRY(append_number(t, v)); break;
    case J_STR: ZP_TRY(append_str_repr(t, v.u.s)); break;
    case J_LIST:
    case J_TUPLE:
    case J_VIEW: ZP_TRY(append_list_repr(t, v)); break;
    case J_DICT: ZP_TRY(append_dict_repr(t, v.u.dict)); break;
    case J_RANGE: ZP_TRY(append_range_repr(t, v.u.range)); break;
    case J_NAMESPACE:
        ZP_TRY(jtext_append_ascii(t, "<Namespace "));
        ZP_TRY(append_dict_repr(t, v.u.dict));
        ZP_TRY(jtext_append_ascii(t, ">"));
        break;
    default:
        J_FAIL(t->c, "a value of type '%s' has no text%s", jv_type_name(v),
               v.kind == J_ITER ? "; add '| list' or '| join'" : "; is a call '()' missing?");
    }
    jinja_leave(t->c);
    return ZP_OK;
}

static bool is_container(struct jv v)
{
    return jv_is_listlike(v) || v.kind == J_DICT || v.kind == J_NAMESPACE;
}

/* One origin for the whole text: user if any byte is the user's. */
static zp_status finish_whole(struct jtext *part, struct jv *out)
{
    if (part->block != NULL && part->block->origin == ORIGIN_MIXED) {
        part->block->origin = ORIGIN_USER;
        part->block->marks = NULL;
    }
    return jtext_finish(part, out);
}

zp_status jv_to_str(struct jinja *c, struct jv v, const struct jstr **out)
{
    struct jv text = v;
    if (v.kind != J_STR) {
        struct jtext part = { .c = c };
        if (v.kind != J_UNDEFINED) ZP_TRY(jtext_append_repr(&part, v));
        ZP_TRY(is_container(v) ? finish_whole(&part, &text) : jtext_finish(&part, &text));
    }
    *out = text.u.s;
    return ZP_OK;
}

zp_status jtext_append_value(struct jtext *t, struct jv v)
{
    const struct jstr *s;
    if (v.kind == J_UNDEFINED) return ZP_OK;
    ZP_TRY(jv_to_str(t->c, v, &s));
    return jtext_append_str(t, s);
}

/* ---- json.dumps ---- */

struct json_writer {
    struct jtext t;
    const struct jjson_style *style;
    size_t level;
};

static zp_status write_json(struct json_writer *w, struct jv v);

static zp_status write_json_char(struct json_writer *w, const struct jstr *s, size_t at,
                                 size_t *size)
{
    static const char from[] = "\"\\\n\r\t\f\b", to[] = "\"\\nrtfb";
    uint32_t cp = jstr_char_at(s, at, size);
    enum jorigin origin = jstr_origin_at(s, at);
    const char *named = cp < 0x80 && cp != 0 ? strchr(from, (int)cp) : NULL;
    char text[16] = { '\\', named ? to[named - from] : 0 };
    int n = 2;
    if (named == NULL) {
        bool escape = cp < 0x20 || (w->style->ensure_ascii && cp >= 0x7F);
        if (!escape) return jtext_append_slice(&w->t, s, at, *size);
        if (cp < 0x10000) n = snprintf(text, sizeof text, "\\u%04x", cp);
        else
            n = snprintf(text, sizeof text, "\\u%04x\\u%04x", 0xD800 + ((cp - 0x10000) >> 10),
                         0xDC00 + ((cp - 0x10000) & 0x3FF));
    }
    return jtext_append(&w->t, text, (size_t)n, origin, NULL);
}

static zp_status write_json_string(struct json_writer *w, const struct jstr *s)
{
    size_t size;
    ZP_TRY(jtext_append_ascii(&w->t, "\""));
    for (size_t at = 0; at < s->size; at += size) ZP_TRY(write_json_char(w, s, at, &size));
    return jtext_append_ascii(&w->t, "\"");
}

static zp_status write_json_number(struct json_writer *w, struct jv v)
{
    if (v.kind == J_FLOAT && !isfinite(v.u.f))
        return jtext_append_ascii(&w->t, isnan(v.u.f) ? "NaN"
                                         : v.u.f < 0  ? "-Infinity"
                                                      : "Infinity");
    return append_number(&w->t, v);
}

/* New line and indentation where the style asks for them. */
static zp_status write_json_break(struct json_writer *w)
{
    if (w->style->indent == NULL) return ZP_OK;
    ZP_TRY(jtext_append_ascii(&w->t, "\n"));
    for (size_t i = 0; i < w->level; i++) ZP_TRY(jtext_append_str(&w->t, w->style->indent));
    return ZP_OK;
}

static zp_status write_json_comma(struct json_writer *w)
{
    const struct jjson_style *s = w->style;
    if (s->item_separator != NULL) ZP_TRY(jtext_append_str(&w->t, s->item_separator));
    else ZP_TRY(jtext_append_ascii(&w->t, s->indent != NULL ? "," : ", "));
    return write_json_break(w);
}

static zp_status write_json_key(struct json_writer *w, struct jv key)
{
    if (key.kind == J_STR) {
        ZP_TRY(write_json_string(w, key.u.s));
    } else {
        J_FAIL_IF(!jv_is_number(key) && key.kind != J_NONE, w->t.c,
                  "tojson: a key of type '%s' has no JSON form", jv_type_name(key));
        ZP_TRY(jtext_append_ascii(&w->t, "\""));
        ZP_TRY(write_json(w, key));
        ZP_TRY(jtext_append_ascii(&w->t, "\""));
    }
    if (w->style->key_separator != NULL) return jtext_append_str(&w->t, w->style->key_separator);
    return jtext_append_ascii(&w->t, ": ");
}

static zp_status write_json_dict(struct json_writer *w, const struct jdict *d)
{
    struct jlist *order = NULL;
    if (d->n == 0) return jtext_append_ascii(&w->t, "{}");
    if (w->style->sort_keys) {
        struct jv keys;
        ZP_TRY(jdict_view(w->t.c, d, DICT_KEYS, &keys));
        ZP_TRY(jlist_sort(w->t.c, keys.u.list, keys.u.list->items, false));
        order = keys.u.list;
    }
    ZP_TRY(jtext_append_ascii(&w->t, "{"));
    w->level++;
    ZP_TRY(write_json_break(w));
    for (size_t i = 0; i < d->n; i++) {
        struct jpair *pair = &d->pairs[i];
        if (order != NULL) ZP_TRY(jdict_find(w->t.c, d, order->items[i], &pair));
        if (i != 0) ZP_TRY(write_json_comma(w));
        ZP_TRY(write_json_key(w, pair->key));
        ZP_TRY(write_json(w, pair->value));
    }
    w->level--;
    ZP_TRY(write_json_break(w));
    return jtext_append_ascii(&w->t, "}");
}

static zp_status write_json_list(struct json_writer *w, const struct jlist *list)
{
    if (list->n == 0) return jtext_append_ascii(&w->t, "[]");
    ZP_TRY(jtext_append_ascii(&w->t, "["));
    w->level++;
    ZP_TRY(write_json_break(w));
    for (size_t i = 0; i < list->n; i++) {
        if (i != 0) ZP_TRY(write_json_comma(w));
        ZP_TRY(write_json(w, list->items[i]));
    }
    w->level--;
    ZP_TRY(write_json_break(w));
    return jtext_append_ascii(&w->t, "]");
}

static zp_status write_json(struct json_writer *w, struct jv v)
{
    ZP_TRY(jinja_step(w->t.c, 1));
    ZP_TRY(jinja_enter(w->t.c));
    switch ((enum jkind)v.kind) {
    case J_NONE: ZP_TRY(jtext_append_ascii(&w->t, "null")); break;
    case J_BOOL: ZP_TRY(jtext_append_ascii(&w->t, v.u.b ? "true" : "false")); break;
    case J_INT:
    case J_FLOAT: ZP_TRY(write_json_number(w, v)); break;
    case J_STR: ZP_TRY(write_json_string(w, v.u.s)); break;
    case J_LIST:
    case J_TUPLE: ZP_TRY(write_json_list(w, v.u.list)); break;
    case J_DICT: ZP_TRY(write_json_dict(w, v.u.dict)); break;
    case J_UNDEFINED: return jv_fail_undefined(w->t.c, v);
    default: J_FAIL(w->t.c, "tojson: a value of type '%s' has no JSON form", jv_type_name(v));
    }
    jinja_leave(w->t.c);
    return ZP_OK;
}

zp_status jv_to_json(struct jinja *c, struct jv v, const struct jjson_style *style, struct jv *out)
{
    struct json_writer w = { .t = { .c = c }, .style = style };
    ZP_TRY(write_json(&w, v));
    return is_container(v) ? finish_whole(&w.t, out) : jtext_finish(&w.t, out);
}
