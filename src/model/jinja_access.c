/* jinja_access.c: attributes, items and slices of template values. No state.
 * As in Jinja, what is not there is undefined, not an error; using the undefined value further is
 * the error. */
#include "model/jinja_access.h"

#include <string.h>

#include "model/jinja_builtin.h"
#include "model/jinja_loop.h"
#include "model/jinja_print.h"

static zp_status undefined_item(struct jinja *c, struct jv object, const struct jstr *name,
                                struct jv *out)
{
    char *copy;
    J_NEW(copy, c, name->size + 1);
    memcpy(copy, name->data, name->size);
    *out = jv_undefined(object.kind, copy);
    return ZP_OK;
}

/* Methods and built-in attributes; *found = false leaves *out alone. */
static zp_status find_attribute(struct jinja *c, struct jv object, const struct jstr *name,
                                struct jv *out, bool *found)
{
    *found = true;
    if (object.kind == J_NAMESPACE) {
        struct jpair *pair = jdict_find_text(object.u.dict, name->data, name->size);
        *found = pair != NULL;
        if (pair != NULL) *out = pair->value;
        return ZP_OK;
    }
    if (object.kind == J_LOOP) {
        ZP_TRY(jloop_attribute(c, object.u.loop, name, out, found));
        if (*found) return ZP_OK;
    }
    if (object.kind == J_CYCLER && jstr_is(name, "current")) {
        const struct jcycler *cycler = object.u.cycler;
        *out = cycler->items->items[cycler->at];
        return ZP_OK;
    }
    const struct jbuiltin *method = jinja_find_method(object.kind, name->data, name->size);
    *found = method != NULL;
    if (method == NULL) return ZP_OK;
    struct jbound *bound;
    J_NEW(bound, c, 1);
    *bound = (struct jbound){ method, object };
    *out = (struct jv){ .kind = J_BUILTIN, .u.bound = bound };
    return ZP_OK;
}

zp_status jinja_attribute(struct jinja *c, struct jv object, const struct jstr *name,
                          struct jv *out)
{
    bool found;
    if (object.kind == J_UNDEFINED) return jv_fail_undefined(c, object);
    ZP_TRY(find_attribute(c, object, name, out, &found));
    if (found) return ZP_OK;
    if (object.kind == J_DICT) {
        struct jpair *pair = jdict_find_text(object.u.dict, name->data, name->size);
        if (pair != NULL) {
            *out = pair->value;
            return ZP_OK;
        }
    }
    return undefined_item(c, object, name, out);
}

static bool is_hashable(struct jv v)
{
    if (v.kind == J_TUPLE)
        for (size_t i = 0; i < v.u.list->n; i++)
            if (!is_hashable(v.u.list->items[i])) return false;
    return v.kind == J_STR || jv_is_number(v) || v.kind == J_NONE || v.kind == J_TUPLE;
}

static int64_t sequence_length(struct jv v)
{
    return v.kind == J_STR     ? (int64_t)jstr_chars(v.u.s)
           : v.kind == J_RANGE ? v.u.range->n
                               : (int64_t)v.u.list->n;
}

static bool is_sequence(struct jv v)
{
    return v.kind == J_STR || v.kind == J_LIST || v.kind == J_TUPLE || v.kind == J_RANGE;
}

static zp_status sequence_at(struct jinja *c, struct jv v, int64_t i, struct jv *out)
{
    if (v.kind == J_STR) {
        size_t at = jstr_byte_of(v.u.s, (size_t)i), size;
        jstr_char_at(v.u.s, at, &size);
        return jstr_slice(c, v.u.s, at, size, out);
    }
    *out = v.kind == J_RANGE ? jv_int(v.u.range->start + i * v.u.range->step) : v.u.list->items[i];
    return ZP_OK;
}

zp_status jinja_item(struct jinja *c, struct jv object, struct jv key, struct jv *out)
{
    if (object.kind == J_UNDEFINED) return jv_fail_undefined(c, object);
    if (object.kind == J_DICT && is_hashable(key)) {
        struct jpair *pair;
        ZP_TRY(jdict_find(c, object.u.dict, key, &pair));
        if (pair != NULL) {
            *out = pair->value;
            return ZP_OK;
        }
    }
    if (is_sequence(object) && jv_is_integer(key)) {
        if (object.kind == J_STR) ZP_TRY(jinja_scan(c, object.u.s->size));
        int64_t n = sequence_length(object), i = jv_as_int(key);
        if (i < 0) i += n;
        if (i >= 0 && i < n) return sequence_at(c, object, i, out);
    }
    if (key.kind == J_STR) {
        bool found;
        ZP_TRY(find_attribute(c, object, key.u.s, out, &found));
        if (found) return ZP_OK;
    }
    const struct jstr *name;
    struct jtext t = { .c = c };
    struct jv text;
    if (key.kind != J_STR && key.kind > J_STR) ZP_TRY(jtext_append_ascii(&t, jv_type_name(key)));
    else ZP_TRY(jtext_append_value(&t, key));
    ZP_TRY(jtext_finish(&t, &text));
    name = text.u.s;
    return undefined_item(c, object, name, out);
}

zp_status jinja_path(struct jinja *c, struct jv object, struct jv path, struct jv *out)
{
    *out = object;
    if (path.kind != J_STR) return jinja_item(c, object, path, out);
    const struct jstr *s = path.u.s;
    for (size_t at = 0; at <= s->size;) {
        const char *dot = memchr(s->data + at, '.', s->size - at);
        size_t size = dot ? (size_t)(dot - s->data) - at : s->size - at;
        struct jv part;
        int64_t index = 0;
        bool digits = size > 0 && size < 18;
        for (size_t i = 0; i < size && digits; i++) {
            digits = s->data[at + i] >= '0' && s->data[at + i] <= '9';
            if (digits) index = index * 10 + (s->data[at + i] - '0');
        }
        ZP_TRY(jstr_slice(c, s, at, size, &part));
        ZP_TRY(jinja_item(c, *out, digits ? jv_int(index) : part, out));
        at += size + 1;
    }
    return ZP_OK;
}

/* Start, count and step of a slice of n items, by Python's rules. */
static zp_status slice_range(struct jinja *c, const struct jv part[3], int64_t n,
                             struct jrange *out)
{
    int64_t bound[3] = { 0 };
    for (int i = 0; i < 3; i++) {
        bool absent = part[i].kind == J_MISSING || part[i].kind == J_NONE;
        if (part[i].kind == J_UNDEFINED) return jv_fail_undefined(c, part[i]);
        J_FAIL_IF(!absent && !jv_is_integer(part[i]), c, "a slice needs integers, found '%s'",
                  jv_type_name(part[i]));
        bound[i] = absent ? 0 : jv_as_int(part[i]);
    }
    bool no_step = part[2].kind == J_MISSING || part[2].kind == J_NONE;
    int64_t step = no_step ? 1 : bound[2];
    J_FAIL_IF(step == 0, c, "the step of a slice is zero");
    int64_t low = step < 0 ? -1 : 0, high = step < 0 ? n - 1 : n, edge[2];
    for (int i = 0; i < 2; i++) {
        bool absent = part[i].kind == J_MISSING || part[i].kind == J_NONE;
        int64_t at = bound[i] < 0 ? (bound[i] < -n ? low : bound[i] + n) : bound[i];
        edge[i] = at < low ? low : at > high ? high : at;
        if (absent) edge[i] = (i == 0) == (step > 0) ? low : high;
    }
    int64_t distance = step > 0 ? edge[1] - edge[0] : edge[0] - edge[1];
    uint64_t size = step > 0 ? (uint64_t)step : 0 - (uint64_t)step;
    out->start = edge[0];
    out->step = step;
    out->n = distance <= 0 ? 0 : (int64_t)(((uint64_t)distance - 1) / size + 1);
    return ZP_OK;
}

static zp_status slice_text(struct jinja *c, const struct jstr *s, const struct jrange *r,
                            struct jv *out)
{
    if (r->n == 0) return jstr_slice(c, s, 0, 0, out);
    if (r->step == 1) {
        size_t from = jstr_byte_of(s, (size_t)r->start),
               to = jstr_byte_of(s, (size_t)(r->start + r->n));
        return jstr_slice(c, s, from, to - from, out);
    }
    /* One walk finds where characters begin; a step then picks among them. */
    size_t n = jstr_chars(s), k = 0;
    size_t *starts;
    struct jtext t = { .c = c };
    J_NEW(starts, c, n + 1);
    for (size_t at = 0; at < s->size; at++)
        if (((uint8_t)s->data[at] & 0xC0) != 0x80) starts[k++] = at;
    starts[n] = s->size;
    for (int64_t i = 0; i < r->n; i++) {
        int64_t at = r->start + i * r->step;
        ZP_TRY(jtext_append_slice(&t, s, starts[at], starts[at + 1] - starts[at]));
    }
    return jtext_finish(&t, out);
}

zp_status jinja_slice(struct jinja *c, struct jv object, const struct jv part[3], struct jv *out)
{
    if (object.kind == J_UNDEFINED) return jv_fail_undefined(c, object);
    J_FAIL_IF(!is_sequence(object), c, "a value of type '%s' cannot be sliced",
              jv_type_name(object));
    struct jrange r = { 0 };
    if (object.kind == J_STR) ZP_TRY(jinja_scan(c, object.u.s->size));
    ZP_TRY(slice_range(c, part, sequence_length(object), &r));
    if (object.kind == J_STR) return slice_text(c, object.u.s, &r, out);
    struct jlist *list;
    ZP_TRY(jlist_new(c, (size_t)r.n, &list));
    for (int64_t i = 0; i < r.n; i++) {
        struct jv item;
        ZP_TRY(sequence_at(c, object, r.start + i * r.step, &item));
        ZP_TRY(jlist_append(c, list, item));
    }
    *out = object.kind == J_TUPLE ? jv_tuple(list) : jv_list(list);
    return ZP_OK;
}
