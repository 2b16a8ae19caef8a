/* jinja_value.c: truth, equality, order and containers of template values; limits and messages.
 * Python's rules: 1 == 1.0 == True, also as keys; texts compare by code point; dictionaries keep
 * their order.
 * D1 index == NULL or every pair is in it.  D2 equal keys have equal hashes. */
#include "model/jinja_value.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/numtext.h"
#include "model/jinja_ast.h"
#include "model/jinja_text.h"

#define DICT_LINEAR 8 /* below this many pairs a scan is cheaper than an index */

zp_status jinja_fail(struct jinja *c, zp_status code, const char *file, int line, const char *fmt,
                     ...)
{
    char text[sizeof c->err->message];
    va_list args;
    va_start(args, fmt);
    numtext_vprintf(text, sizeof text, fmt, args);
    va_end(args);
    jchar_mend(text);
    uint32_t row, column;
    jinja_locate(c->program->source, c->program->size, c->at, &row, &column);
    return status_fail(c->err, code, file, line, "%s:%u:%u: %s", c->program->name, row, column,
                       text);
}

zp_status jinja_take(struct jinja *c, size_t count, size_t size, void **out)
{
    size_t total;
    bool fits = size_mul(count, size, &total) && total <= c->max_bytes - c->bytes;
    J_FAIL_IF(!fits, c, "the template needs more than %zu bytes of memory", c->max_bytes);
    *out = arena_alloc(&c->arena, total);
    if (*out == NULL)
        return jinja_fail(c, ZP_NO_MEMORY, __FILE__, __LINE__,
                          "not enough memory to render the template (%zu bytes)", total);
    c->bytes += total;
    return ZP_OK;
}

zp_status jinja_step(struct jinja *c, uint64_t n)
{
    J_FAIL_IF(n > c->max_steps - c->steps, c,
              "the template takes more than %llu steps; does a loop not end?",
              (unsigned long long)c->max_steps);
    c->steps += n;
    return ZP_OK;
}

zp_status jinja_enter(struct jinja *c)
{
    J_FAIL_IF(c->depth >= c->max_depth, c, "the template nests more than %u levels deep",
              c->max_depth);
    c->depth++;
    return ZP_OK;
}

const char *jv_type_name(struct jv v)
{
    static const char *const names[J_KINDS] = {
        [J_MISSING] = "missing",  [J_UNDEFINED] = "Undefined",
        [J_NONE] = "NoneType",    [J_BOOL] = "bool",
        [J_INT] = "int",          [J_FLOAT] = "float",
        [J_STR] = "str",          [J_LIST] = "list",
        [J_TUPLE] = "tuple",      [J_VIEW] = "dict view",
        [J_DICT] = "dict",        [J_RANGE] = "range",
        [J_ITER] = "generator",   [J_NAMESPACE] = "namespace",
        [J_LOOP] = "loop",        [J_CYCLER] = "cycler",
        [J_JOINER] = "joiner",    [J_MACRO] = "macro",
        [J_BUILTIN] = "function",
    };
    return names[v.kind];
}

zp_status jv_fail_undefined(struct jinja *c, struct jv v)
{
    J_FAIL_IF(v.owner == J_MISSING, c, "'%s' is undefined", v.u.missing);
    struct jv owner = { .kind = v.owner };
    J_FAIL(c, "'%s' object has no item or attribute '%s'", jv_type_name(owner), v.u.missing);
}

bool jv_truth(struct jv v)
{
    switch ((enum jkind)v.kind) {
    case J_MISSING:
    case J_UNDEFINED:
    case J_NONE: return false;
    case J_BOOL: return v.u.b;
    case J_INT: return v.u.i != 0;
    case J_FLOAT: return v.u.f != 0;
    case J_STR: return v.u.s->size != 0;
    case J_LIST:
    case J_TUPLE:
    case J_VIEW: return v.u.list->n != 0;
    case J_DICT: return v.u.dict->n != 0;
    case J_RANGE: return v.u.range->n != 0;
    default: return true;
    }
}

bool jv_has_length(struct jv v)
{
    return v.kind == J_UNDEFINED || v.kind == J_STR || jv_is_listlike(v) || v.kind == J_DICT ||
           v.kind == J_RANGE;
}

zp_status jv_length(struct jinja *c, struct jv v, size_t *out)
{
    J_FAIL_IF(!jv_has_length(v), c, "a value of type '%s' has no length%s", jv_type_name(v),
              v.kind == J_ITER ? "; add '| list' before '| length'" : "");
    *out = v.kind == J_UNDEFINED ? 0
           : v.kind == J_STR     ? jstr_chars(v.u.s)
           : v.kind == J_DICT    ? v.u.dict->n
           : v.kind == J_RANGE   ? (size_t)v.u.range->n
                                 : v.u.list->n;
    return ZP_OK;
}

static int order_numbers(struct jv a, struct jv b)
{
    if (a.kind != J_FLOAT && b.kind != J_FLOAT) {
        int64_t x = jv_as_int(a), y = jv_as_int(b);
        return (x > y) - (x < y);
    }
    double x = jv_as_float(a), y = jv_as_float(b);
    if (isnan(x) || isnan(y)) return 2;
    if (x != y || (a.kind == J_FLOAT && b.kind == J_FLOAT)) return (x > y) - (x < y);
    /* An integer beyond 2^53 may round onto the float: decide exactly. */
    double f = a.kind == J_FLOAT ? x : y;
    int64_t i = a.kind == J_FLOAT ? jv_as_int(b) : jv_as_int(a);
    int order = f >= 0x1p63 ? -1 : (i > (int64_t)f) - (i < (int64_t)f); /* of i against f */
    return a.kind == J_FLOAT ? -order : order;
}

static zp_status equal_lists(struct jinja *c, const struct jlist *a, const struct jlist *b,
                             bool *out)
{
    *out = a->n == b->n;
    for (size_t i = 0; i < a->n && *out; i++) ZP_TRY(jv_equal(c, a->items[i], b->items[i], out));
    return ZP_OK;
}

static zp_status equal_dicts(struct jinja *c, const struct jdict *a, const struct jdict *b,
                             bool *out)
{
    *out = a->n == b->n;
    for (size_t i = 0; i < a->n && *out; i++) {
        struct jpair *other;
        ZP_TRY(jdict_find(c, b, a->pairs[i].key, &other));
        *out = other != NULL;
        if (other != NULL) ZP_TRY(jv_equal(c, a->pairs[i].value, other->value, out));
    }
    return ZP_OK;
}

static bool same_object(struct jv a, struct jv b)
{
    switch ((enum jkind)a.kind) {
    case J_RANGE:
        return a.u.range->n == b.u.range->n &&
               (a.u.range->n == 0 || (a.u.range->start == b.u.range->start &&
                                      (a.u.range->n == 1 || a.u.range->step == b.u.range->step)));
    case J_ITER: return a.u.iter == b.u.iter;
    case J_NAMESPACE: return a.u.dict == b.u.dict;
    case J_LOOP: return a.u.loop == b.u.loop;
    case J_CYCLER: return a.u.cycler == b.u.cycler;
    case J_JOINER: return a.u.joiner == b.u.joiner;
    case J_MACRO: return a.u.macro == b.u.macro;
    case J_BUILTIN: return a.u.bound == b.u.bound;
    default: return true; /* none, undefined */
    }
}

zp_status jv_equal(struct jinja *c, struct jv a, struct jv b, bool *out)
{
    ZP_TRY(jinja_step(c, 1));
    *out = false;
    if (jv_is_number(a) && jv_is_number(b)) {
        *out = order_numbers(a, b) == 0;
        return ZP_OK;
    }
    if (a.kind != b.kind) return ZP_OK;
    ZP_TRY(jinja_enter(c));
    if (a.kind == J_STR) ZP_TRY(jinja_scan(c, a.u.s->size));
    if (a.kind == J_STR) *out = jstr_equal(a.u.s, b.u.s);
    else if (jv_is_listlike(a) && a.u.list == b.u.list) *out = true;
    else if (jv_is_listlike(a)) ZP_TRY(equal_lists(c, a.u.list, b.u.list, out));
    else if (a.kind == J_DICT) ZP_TRY(equal_dicts(c, a.u.dict, b.u.dict, out));
    else *out = same_object(a, b);
    jinja_leave(c);
    return ZP_OK;
}

static zp_status compare_lists(struct jinja *c, const struct jlist *a, const struct jlist *b,
                               int *out)
{
    size_t n = a->n < b->n ? a->n : b->n;
    for (size_t i = 0; i < n; i++) {
        bool equal;
        ZP_TRY(jv_equal(c, a->items[i], b->items[i], &equal));
        if (!equal) return jv_compare(c, a->items[i], b->items[i], out);
    }
    *out = (a->n > b->n) - (a->n < b->n);
    return ZP_OK;
}

zp_status jv_compare(struct jinja *c, struct jv a, struct jv b, int *out)
{
    ZP_TRY(jinja_step(c, 1));
    if (a.kind == J_UNDEFINED) return jv_fail_undefined(c, a);
    if (b.kind == J_UNDEFINED) return jv_fail_undefined(c, b);
    if (jv_is_number(a) && jv_is_number(b)) {
        *out = order_numbers(a, b);
        return ZP_OK;
    }
    bool lists = (a.kind == J_LIST || a.kind == J_TUPLE) && a.kind == b.kind;
    J_FAIL_IF(!lists && (a.kind != J_STR || b.kind != J_STR), c, "'%s' and '%s' have no order",
              jv_type_name(a), jv_type_name(b));
    if (lists) {
        ZP_TRY(jinja_enter(c));
        ZP_TRY(compare_lists(c, a.u.list, b.u.list, out));
        jinja_leave(c);
        return ZP_OK;
    }
    size_t n = a.u.s->size < b.u.s->size ? a.u.s->size : b.u.s->size;
    ZP_TRY(jinja_scan(c, n));
    int order = memcmp(a.u.s->data, b.u.s->data, n); /* UTF-8 sorts as its code points do */
    *out = order != 0 ? order : (a.u.s->size > b.u.s->size) - (a.u.s->size < b.u.s->size);
    if (order != 0) *out = order > 0 ? 1 : -1;
    return ZP_OK;
}

static zp_status hash_value(struct jinja *c, struct jv v, uint64_t *out)
{
    double f;
    switch ((enum jkind)v.kind) {
    case J_STR:
        ZP_TRY(jinja_scan(c, v.u.s->size));
        *out = hash_bytes(v.u.s->data, v.u.s->size, 1);
        return ZP_OK;
    case J_NONE: *out = 2; return ZP_OK;
    case J_BOOL:
    case J_INT:
    case J_FLOAT:
        f = jv_as_float(v) + 0.0; /* -0.0 becomes 0.0 */
        *out = hash_bytes(&f, sizeof f, 3);
        return ZP_OK;
    case J_TUPLE:
        *out = 4;
        ZP_TRY(jinja_enter(c));
        for (size_t i = 0; i < v.u.list->n; i++) {
            uint64_t item;
            ZP_TRY(hash_value(c, v.u.list->items[i], &item));
            *out = hash_bytes(&item, sizeof item, *out);
        }
        jinja_leave(c);
        return ZP_OK;
    default: J_FAIL(c, "a value of type '%s' cannot be a dictionary key", jv_type_name(v));
    }
}

zp_status jlist_new(struct jinja *c, size_t room, struct jlist **out)
{
    J_NEW(*out, c, 1);
    if (room != 0) J_NEW((*out)->items, c, room);
    (*out)->room = room;
    return ZP_OK;
}

zp_status jlist_append(struct jinja *c, struct jlist *l, struct jv v)
{
    if (l->n == l->room) {
        size_t room = l->room < 4 ? 4 : l->room * 2;
        struct jv *items;
        J_NEW(items, c, room);
        if (l->n != 0) memcpy(items, l->items, l->n * sizeof *items);
        l->items = items;
        l->room = room;
    }
    l->items[l->n++] = v;
    return ZP_OK;
}

zp_status jdict_new(struct jinja *c, struct jdict **out)
{
    J_NEW(*out, c, 1);
    return ZP_OK;
}

static zp_status find_in_index(struct jinja *c, const struct jdict *d, struct jv key, uint64_t hash,
                               size_t *slot)
{
    size_t at = hash & (d->n_index - 1);
    for (; d->index[at] != 0; at = (at + 1) & (d->n_index - 1)) {
        bool equal;
        ZP_TRY(jv_equal(c, d->pairs[d->index[at] - 1].key, key, &equal));
        if (equal) break;
    }
    *slot = at;
    return ZP_OK;
}

static zp_status build_index(struct jinja *c, struct jdict *d)
{
    d->n_index = d->room * 2;
    J_NEW(d->index, c, d->n_index);
    for (size_t i = 0; i < d->n; i++) {
        uint64_t hash;
        ZP_TRY(hash_value(c, d->pairs[i].key, &hash));
        size_t at = hash & (d->n_index - 1);
        while (d->index[at] != 0) at = (at + 1) & (d->n_index - 1);
        d->index[at] = (uint32_t)i + 1;
    }
    return ZP_OK;
}

zp_status jdict_find(struct jinja *c, const struct jdict *d, struct jv key, struct jpair **out)
{
    uint64_t hash;
    *out = NULL;
    ZP_TRY(hash_value(c, key, &hash));
    if (d->index != NULL) {
        size_t slot;
        ZP_TRY(find_in_index(c, d, key, hash, &slot));
        if (d->index[slot] != 0) *out = &d->pairs[d->index[slot] - 1];
        return ZP_OK;
    }
    for (size_t i = 0; i < d->n; i++) {
        bool equal;
        ZP_TRY(jv_equal(c, d->pairs[i].key, key, &equal));
        if (!equal) continue;
        *out = &d->pairs[i];
        return ZP_OK;
    }
    return ZP_OK;
}

zp_status jdict_set(struct jinja *c, struct jdict *d, struct jv key, struct jv value)
{
    struct jpair *old;
    ZP_TRY(jdict_find(c, d, key, &old));
    if (old != NULL) {
        old->value = value;
        return ZP_OK;
    }
    J_FAIL_IF(d->n >= UINT32_MAX / 4, c, "a dictionary has too many keys");
    if (d->n == d->room) {
        size_t room =
            d->room == 0 ? DICT_LINEAR : d->room * 2; /* a power of two, the index needs it */
        struct jpair *pairs;
        J_NEW(pairs, c, room);
        if (d->n != 0) memcpy(pairs, d->pairs, d->n * sizeof *pairs);
        d->pairs = pairs;
        d->room = room;
        if (room > DICT_LINEAR) ZP_TRY(build_index(c, d));
    }
    d->pairs[d->n++] = (struct jpair){ key, value };
    if (d->index == NULL) return ZP_OK;
    uint64_t hash;
    size_t slot;
    ZP_TRY(hash_value(c, key, &hash));
    ZP_TRY(find_in_index(c, d, key, hash, &slot));
    d->index[slot] = (uint32_t)d->n; // D1
    return ZP_OK;
}

struct jpair *jdict_find_text(const struct jdict *d, const char *text, size_t size)
{
    size_t at = d->index == NULL ? 0 : hash_bytes(text, size, 1) & (d->n_index - 1);
    for (size_t i = 0; d->index == NULL ? i < d->n : d->index[at] != 0; i++) {
        struct jpair *p = &d->pairs[d->index == NULL ? i : d->index[at] - 1];
        const struct jstr *s = p->key.kind == J_STR ? p->key.u.s : NULL;
        if (s != NULL && s->size == size && memcmp(s->data, text, size) == 0) return p;
        if (d->index != NULL) at = (at + 1) & (d->n_index - 1);
    }
    return NULL;
}
