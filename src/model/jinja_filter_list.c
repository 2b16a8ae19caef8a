/* jinja_filter_list.c: filters over sequences and dictionaries.
 * Those that are generators in Jinja give a generator here too (J_ITER): always true, without
 * length, read once. Their items are computed at once, which only shows in when errors appear. */
#include "model/jinja_filter_list.h"

#include <string.h>

#include "model/jinja_access.h"
#include "model/jinja_iter.h"
#include "model/jinja_ops.h"
#include "model/jinja_print.h"
#include "model/jinja_sort.h"

#define FILTER(name)                                                                               \
    static zp_status name(struct jinja *c, struct jv self, const struct jv *arg,                   \
                          const struct jargs *all, struct jv *out)

static bool is_none(struct jv v)
{
    return v.kind == J_MISSING || v.kind == J_NONE;
}

FILTER(filter_length)
{
    ZP_UNUSED(arg);
    ZP_UNUSED(all);
    size_t n;
    ZP_TRY(jv_length(c, self, &n));
    *out = jv_int((int64_t)n);
    return ZP_OK;
}

FILTER(filter_list)
{
    ZP_UNUSED(arg);
    ZP_UNUSED(all);
    struct jlist *list;
    ZP_TRY(jv_to_list(c, self, &list));
    *out = jv_list(list);
    return ZP_OK;
}

FILTER(filter_first)
{
    ZP_UNUSED(arg);
    ZP_UNUSED(all);
    struct jcursor cur = { 0 };
    bool more;
    ZP_TRY(jcursor_open(c, self, &cur));
    ZP_TRY(jcursor_next(c, &cur, out, &more));
    if (!more) *out = jv_undefined(J_MISSING, "the first item of an empty sequence");
    return ZP_OK;
}

FILTER(filter_last)
{
    ZP_UNUSED(arg);
    ZP_UNUSED(all);
    struct jlist *list;
    J_FAIL_IF(self.kind == J_ITER, c,
              "last: a generator has no end to start from; add '| list' before it");
    ZP_TRY(jv_to_list(c, self, &list));
    *out = list->n != 0 ? list->items[list->n - 1]
                        : jv_undefined(J_MISSING, "the last item of an empty sequence");
    return ZP_OK;
}

zp_status jinja_reversed(struct jinja *c, struct jv v, struct jlist **out)
{
    ZP_TRY(jv_to_list(c, v, out));
    struct jlist *list = *out;
    for (size_t i = 0; i < list->n / 2; i++) {
        struct jv swap = list->items[i];
        list->items[i] = list->items[list->n - 1 - i];
        list->items[list->n - 1 - i] = swap;
    }
    return ZP_OK;
}

FILTER(filter_reverse)
{
    ZP_UNUSED(arg);
    ZP_UNUSED(all);
    struct jlist *list;
    if (self.kind == J_STR) {
        struct jv part[3] = { jv_none(), jv_none(), jv_int(-1) };
        return jinja_slice(c, self, part, out);
    }
    ZP_TRY(jinja_reversed(c, self, &list));
    return jv_new_iter(c, list, out);
}

/* attribute= of a filter applied to one item; fallback replaces what is undefined on the way
 * (J_MISSING: none). */
static zp_status take_attribute(struct jinja *c, struct jv item, struct jv path, struct jv fallback,
                                struct jv *out)
{
    *out = item;
    if (is_none(path)) return ZP_OK;
    if (is_none(fallback) || path.kind != J_STR) {
        ZP_TRY(jinja_path(c, item, path, out));
        if (out->kind == J_UNDEFINED && !is_none(fallback)) *out = fallback;
        return ZP_OK;
    }
    const struct jstr *s = path.u.s;
    for (size_t at = 0; at <= s->size;) {
        const char *dot = memchr(s->data + at, '.', s->size - at);
        size_t size = dot ? (size_t)(dot - s->data) - at : s->size - at;
        struct jv part;
        ZP_TRY(jstr_slice(c, s, at, size, &part));
        ZP_TRY(jinja_path(c, *out, part, out));
        if (out->kind == J_UNDEFINED) *out = fallback;
        at += size + 1;
    }
    return ZP_OK;
}

/* Sort key of an item: its attribute, in lower case unless case counts. */
static zp_status item_key(struct jinja *c, struct jv item, struct jv path, bool case_sensitive,
                          struct jv *out)
{
    ZP_TRY(take_attribute(c, item, path, jv_missing(), out));
    if (case_sensitive || out->kind != J_STR) return ZP_OK;
    return jstr_to_case(c, out->u.s, CASE_LOWER, out);
}

/* sort's attribute may name several, with commas: the key is a list of them. */
static zp_status multi_key(struct jinja *c, struct jv item, struct jv path, bool case_sensitive,
                           struct jv *out)
{
    bool several = path.kind == J_STR && memchr(path.u.s->data, ',', path.u.s->size) != NULL;
    if (!several) return item_key(c, item, path, case_sensitive, out);
    struct jlist *keys;
    const struct jstr *s = path.u.s;
    ZP_TRY(jlist_new(c, 0, &keys));
    for (size_t at = 0; at <= s->size;) {
        const char *comma = memchr(s->data + at, ',', s->size - at);
        size_t size = comma ? (size_t)(comma - s->data) - at : s->size - at;
        struct jv part, key;
        ZP_TRY(jstr_slice(c, s, at, size, &part));
        ZP_TRY(item_key(c, item, part, case_sensitive, &key));
        ZP_TRY(jlist_append(c, keys, key));
        at += size + 1;
    }
    *out = jv_list(keys);
    return ZP_OK;
}

FILTER(filter_sort)
{
    ZP_UNUSED(all);
    struct jlist *list, *keys;
    bool reverse = jarg_truth(arg[0], false), case_sensitive = jarg_truth(arg[1], false);
    ZP_TRY(jv_to_list(c, self, &list));
    ZP_TRY(jlist_new(c, list->n, &keys));
    for (size_t i = 0; i < list->n; i++) {
        struct jv key;
        ZP_TRY(multi_key(c, list->items[i], arg[2], case_sensitive, &key));
        ZP_TRY(jlist_append(c, keys, key));
    }
    ZP_TRY(jlist_sort(c, list, keys->items, reverse));
    *out = jv_list(list);
    return ZP_OK;
}

FILTER(filter_dictsort)
{
    ZP_UNUSED(all);
    const struct jstr *by = NULL;
    struct jlist *keys;
    struct jv items;
    bool case_sensitive = jarg_truth(arg[0], false), reverse = jarg_truth(arg[2], false);
    ZP_TRY(jarg_str(c, arg[1], "by", &by));
    J_FAIL_IF(self.kind != J_DICT, c, "dictsort: expected a dictionary, found '%s'",
              jv_type_name(self));
    J_FAIL_IF(by != NULL && !jstr_is(by, "key") && !jstr_is(by, "value"), c,
              "dictsort: by is 'key' or 'value'");
    bool by_value = by != NULL && jstr_is(by, "value");
    ZP_TRY(jdict_view(c, self.u.dict, DICT_ITEMS, &items));
    ZP_TRY(jlist_new(c, 0, &keys));
    for (size_t i = 0; i < items.u.list->n; i++) {
        struct jv key;
        ZP_TRY(item_key(c, items.u.list->items[i].u.list->items[by_value], jv_none(),
                        case_sensitive, &key));
        ZP_TRY(jlist_append(c, keys, key));
    }
    ZP_TRY(jlist_sort(c, items.u.list, keys->items, reverse));
    items.u.list->view = NULL;
    *out = jv_list(items.u.list);
    return ZP_OK;
}

FILTER(filter_unique)
{
    ZP_UNUSED(all);
    struct jcursor cur = { 0 };
    struct jlist *list;
    struct jdict *seen;
    ZP_TRY(jcursor_open(c, self, &cur));
    ZP_TRY(jlist_new(c, 0, &list));
    ZP_TRY(jdict_new(c, &seen));
    for (;;) {
        struct jv item, key;
        struct jpair *old;
        bool more;
        ZP_TRY(jcursor_next(c, &cur, &item, &more));
        if (!more) break;
        ZP_TRY(item_key(c, item, arg[1], jarg_truth(arg[0], false), &key));
        ZP_TRY(jdict_find(c, seen, key, &old));
        if (old != NULL) continue;
        ZP_TRY(jdict_set(c, seen, key, jv_none()));
        ZP_TRY(jlist_append(c, list, item));
    }
    return jv_new_iter(c, list, out);
}

static zp_status find_extreme(struct jinja *c, struct jv self, const struct jv *arg, int sign,
                              struct jv *out)
{
    struct jcursor cur = { 0 };
    struct jv best_key = jv_missing();
    *out = jv_undefined(J_MISSING, "the extreme of an empty sequence");
    ZP_TRY(jcursor_open(c, self, &cur));
    for (;;) {
        struct jv item, key;
        bool more;
        int order = 1;
        ZP_TRY(jcursor_next(c, &cur, &item, &more));
        if (!more) return ZP_OK;
        ZP_TRY(item_key(c, item, arg[1], jarg_truth(arg[0], false), &key));
        if (best_key.kind != J_MISSING) ZP_TRY(jv_compare(c, key, best_key, &order));
        bool better = best_key.kind == J_MISSING || (order != 2 && order * sign > 0);
        if (!better) continue;
        best_key = key;
        *out = item;
    }
}

FILTER(filter_min)
{
    ZP_UNUSED(all);
    return find_extreme(c, self, arg, -1, out);
}

FILTER(filter_max)
{
    ZP_UNUSED(all);
    return find_extreme(c, self, arg, 1, out);
}

FILTER(filter_sum)
{
    ZP_UNUSED(all);
    struct jcursor cur = { 0 };
    *out = arg[1].kind == J_MISSING ? jv_int(0) : arg[1];
    J_FAIL_IF(out->kind == J_STR, c, "sum: texts are joined with 'join'");
    ZP_TRY(jcursor_open(c, self, &cur));
    for (;;) {
        struct jv item;
        bool more;
        ZP_TRY(jcursor_next(c, &cur, &item, &more));
        if (!more) return ZP_OK;
        ZP_TRY(take_attribute(c, item, arg[0], jv_missing(), &item));
        ZP_TRY(jinja_binary(c, OP_ADD, *out, item, out));
    }
}

zp_status jinja_join(struct jinja *c, struct jv items, const struct jstr *d, bool only_texts,
                     struct jv *out)
{
    struct jcursor cur = { 0 };
    struct jtext t = { .c = c };
    ZP_TRY(jcursor_open(c, items, &cur));
    for (bool first = true;; first = false) {
        struct jv item;
        bool more;
        ZP_TRY(jcursor_next(c, &cur, &item, &more));
        if (!more) return jtext_finish(&t, out);
        J_FAIL_IF(only_texts && item.kind != J_STR, c, "join: expected texts, found '%s'",
                  jv_type_name(item));
        if (!first) ZP_TRY(jtext_append_str(&t, d));
        ZP_TRY(jtext_append_value(&t, item));
    }
}

FILTER(filter_join)
{
    ZP_UNUSED(all);
    struct jcursor cur = { 0 };
    struct jlist *list;
    const struct jstr *d;
    struct jv empty;
    ZP_TRY(jstr_value(c, "", &empty));
    ZP_TRY(jv_to_str(c, arg[0].kind == J_MISSING ? empty : arg[0], &d));
    if (is_none(arg[1])) return jinja_join(c, self, d, false, out);
    ZP_TRY(jcursor_open(c, self, &cur));
    ZP_TRY(jlist_new(c, 0, &list));
    for (;;) {
        struct jv item;
        bool more;
        ZP_TRY(jcursor_next(c, &cur, &item, &more));
        if (!more) return jinja_join(c, jv_list(list), d, false, out);
        ZP_TRY(take_attribute(c, item, arg[1], jv_missing(), &item));
        ZP_TRY(jlist_append(c, list, item));
    }
}

FILTER(filter_items)
{
    ZP_UNUSED(arg);
    ZP_UNUSED(all);
    struct jlist *list;
    struct jv view;
    if (self.kind == J_UNDEFINED) {
        ZP_TRY(jlist_new(c, 0, &list));
        return jv_new_iter(c, list, out);
    }
    J_FAIL_IF(self.kind != J_DICT, c, "items: expected a dictionary, found '%s'",
              jv_type_name(self));
    ZP_TRY(jdict_view(c, self.u.dict, DICT_ITEMS, &view));
    return jv_new_iter(c, view.u.list, out);
}

/* ---- map and select ---- */

/* A filter or test named by the first of args, with the rest as its arguments. */
struct applied {
    const struct jbuiltin *builtin;
    struct jargs args;
    const char *what;
};

static zp_status name_applied(struct jinja *c, const struct jargs *all, size_t at, bool test,
                              struct applied *out)
{
    const struct jstr *name = NULL;
    out->what = test ? "test" : "filter";
    J_FAIL_IF(at >= all->n_pos, c, "expected the name of a %s", out->what);
    ZP_TRY(jarg_str(c, all->pos[at], "name", &name));
    out->builtin =
        test ? jinja_find_test(name->data, name->size) : jinja_find_filter(name->data, name->size);
    J_FAIL_IF(out->builtin == NULL, c, "there is no %s named '%.*s'", out->what,
              (int)(name->size < 60 ? name->size : 60), name->data);
    out->args = *all;
    out->args.pos += at + 1;
    out->args.n_pos -= at + 1;
    return ZP_OK;
}

static zp_status map_attribute(struct jinja *c, struct jv self, const struct jargs *all,
                               struct jlist *list)
{
    struct jv path = jv_missing(), fallback = jv_missing();
    struct jcursor cur = { 0 };
    for (size_t i = 0; i < all->n_kw; i++) {
        bool attribute = jstr_is(all->kw[i].name, "attribute");
        J_FAIL_IF(
            !attribute && !jstr_is(all->kw[i].name, "default"), c, "map: it has no argument '%.*s'",
            (int)(all->kw[i].name->size < 60 ? all->kw[i].name->size : 60), all->kw[i].name->data);
        if (attribute) path = all->kw[i].value;
        else fallback = all->kw[i].value;
    }
    J_FAIL_IF(path.kind == J_MISSING, c, "map: expected the name of a filter or attribute=");
    ZP_TRY(jcursor_open(c, self, &cur));
    for (;;) {
        struct jv item;
        bool more;
        ZP_TRY(jcursor_next(c, &cur, &item, &more));
        if (!more) return ZP_OK;
        ZP_TRY(take_attribute(c, item, path, fallback, &item));
        ZP_TRY(jlist_append(c, list, item));
    }
}

FILTER(filter_map)
{
    ZP_UNUSED(arg);
    struct jlist *list;
    struct jcursor cur = { 0 };
    struct applied filter;
    ZP_TRY(jlist_new(c, 0, &list));
    ZP_TRY(jv_new_iter(c, list, out));
    if (!jv_truth(self)) return ZP_OK; /* as Jinja: nothing for none, 0 and '' */
    if (all->n_pos == 0) return map_attribute(c, self, all, list);
    ZP_TRY(name_applied(c, all, 0, false, &filter));
    ZP_TRY(jcursor_open(c, self, &cur));
    for (;;) {
        struct jv item;
        bool more;
        ZP_TRY(jcursor_next(c, &cur, &item, &more));
        if (!more) return ZP_OK;
        ZP_TRY(jinja_enter(c));
        ZP_TRY(jinja_call_builtin(c, filter.builtin, filter.what, item, &filter.args, &item));
        jinja_leave(c);
        ZP_TRY(jlist_append(c, list, item));
    }
}

static zp_status select_items(struct jinja *c, struct jv self, const struct jargs *all,
                              bool by_attribute, bool wanted, struct jv *out)
{
    struct jlist *list;
    struct jcursor cur = { 0 };
    struct applied test = { 0 };
    size_t at = by_attribute;
    ZP_TRY(jlist_new(c, 0, &list));
    ZP_TRY(jv_new_iter(c, list, out));
    if (!jv_truth(self)) return ZP_OK;
    J_FAIL_IF(by_attribute && all->n_pos == 0, c, "expected the name of an attribute");
    if (all->n_pos > at) ZP_TRY(name_applied(c, all, at, true, &test));
    ZP_TRY(jcursor_open(c, self, &cur));
    for (;;) {
        struct jv item, value, result;
        bool more;
        ZP_TRY(jcursor_next(c, &cur, &item, &more));
        if (!more) return ZP_OK;
        ZP_TRY(
            take_attribute(c, item, by_attribute ? all->pos[0] : jv_none(), jv_missing(), &value));
        result = value;
        if (test.builtin != NULL)
            ZP_TRY(jinja_call_builtin(c, test.builtin, test.what, value, &test.args, &result));
        if (jv_truth(result) == wanted) ZP_TRY(jlist_append(c, list, item));
    }
}

FILTER(filter_select)
{
    ZP_UNUSED(arg);
    return select_items(c, self, all, false, true, out);
}

FILTER(filter_reject)
{
    ZP_UNUSED(arg);
    return select_items(c, self, all, false, false, out);
}

FILTER(filter_selectattr)
{
    ZP_UNUSED(arg);
    return select_items(c, self, all, true, true, out);
}

FILTER(filter_rejectattr)
{
    ZP_UNUSED(arg);
    return select_items(c, self, all, true, false, out);
}

/* ---- grouping by count ---- */

FILTER(filter_batch)
{
    ZP_UNUSED(all);
    int64_t size = 0;
    struct jcursor cur = { 0 };
    struct jlist *batches, *row = NULL;
    ZP_TRY(jarg_int(c, arg[0], "linecount", &size));
    J_FAIL_IF(size < 1, c, "batch: the size is %lld, expected at least 1", (long long)size);
    ZP_TRY(jcursor_open(c, self, &cur));
    ZP_TRY(jlist_new(c, 0, &batches));
    for (;;) {
        struct jv item;
        bool more;
        ZP_TRY(jcursor_next(c, &cur, &item, &more));
        if (!more) break;
        if (row == NULL || row->n == (size_t)size) {
            ZP_TRY(jlist_new(c, 0, &row));
            ZP_TRY(jlist_append(c, batches, jv_list(row)));
        }
        ZP_TRY(jlist_append(c, row, item));
    }
    for (; row != NULL && !is_none(arg[1]) && row->n < (size_t)size;) {
        ZP_TRY(jinja_step(c, 1));
        ZP_TRY(jlist_append(c, row, arg[1]));
    }
    return jv_new_iter(c, batches, out);
}

FILTER(filter_slice)
{
    ZP_UNUSED(all);
    int64_t n = 0;
    struct jlist *list, *columns;
    ZP_TRY(jarg_int(c, arg[0], "slices", &n));
    J_FAIL_IF(n < 1 || n > 100000, c, "slice: the count is %lld, expected 1 to 100000",
              (long long)n);
    ZP_TRY(jv_to_list(c, self, &list));
    ZP_TRY(jlist_new(c, 0, &columns));
    size_t each = list->n / (size_t)n, extra = list->n % (size_t)n, at = 0;
    for (size_t i = 0; i < (size_t)n; i++) {
        struct jlist *column;
        ZP_TRY(jlist_new(c, each + 1, &column));
        for (size_t k = 0; k < each + (i < extra); k++)
            ZP_TRY(jlist_append(c, column, list->items[at++]));
        if (!is_none(arg[1]) && i >= extra) ZP_TRY(jlist_append(c, column, arg[1]));
        ZP_TRY(jlist_append(c, columns, jv_list(column)));
    }
    return jv_new_iter(c, columns, out);
}

static const struct jbuiltin list_rows[] = {
    { "length", filter_length, "", 0 },
    { "count", filter_length, "", 0 },
    { "list", filter_list, "", 0 },
    { "first", filter_first, "", 0 },
    { "last", filter_last, "", 0 },
    { "reverse", filter_reverse, "", 0 },
    { "sort", filter_sort, "reverse case_sensitive attribute", 0 },
    { "dictsort", filter_dictsort, "case_sensitive by reverse", 0 },
    { "unique", filter_unique, "case_sensitive attribute", 0 },
    { "min", filter_min, "case_sensitive attribute", 0 },
    { "max", filter_max, "case_sensitive attribute", 0 },
    { "sum", filter_sum, "attribute start", 0 },
    { "join", filter_join, "d attribute", 0 },
    { "items", filter_items, "", 0 },
    { "map", filter_map, NULL, 0 },
    { "select", filter_select, NULL, 0 },
    { "reject", filter_reject, NULL, 0 },
    { "selectattr", filter_selectattr, NULL, 0 },
    { "rejectattr", filter_rejectattr, NULL, 0 },
    { "batch", filter_batch, "linecount fill_with", 1 },
    { "slice", filter_slice, "slices fill_with", 1 },
};
const struct jbuiltin_table jinja_list_filters = { list_rows, ZP_COUNT(list_rows) };
