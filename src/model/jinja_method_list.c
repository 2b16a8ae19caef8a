/* jinja_method_list.c: methods of Python's list, tuple and dict. Changes stay inside one rendering:
 * lists made from the input are copies of it. Methods that change dictionaries are refused by name,
 * as Hugging Face's sandbox refuses them. */
#include "model/jinja_method_list.h"

#include <string.h>

#include "model/jinja_filter_list.h"
#include "model/jinja_iter.h"

#define METHOD(name)                                                                               \
    static zp_status name(struct jinja *c, struct jv self, const struct jv *arg,                   \
                          const struct jargs *all, struct jv *out)

METHOD(list_append)
{
    ZP_UNUSED(all);
    *out = jv_none();
    return jlist_append(c, self.u.list, arg[0]);
}

METHOD(list_insert)
{
    ZP_UNUSED(all);
    struct jlist *l = self.u.list;
    int64_t at = 0, n = (int64_t)l->n;
    ZP_TRY(jarg_int(c, arg[0], "index", &at));
    if (at < 0) at = at < -n ? 0 : at + n;
    if (at > n) at = n;
    ZP_TRY(jinja_step(c, (uint64_t)(n - at)));
    ZP_TRY(jlist_append(c, l, arg[1]));
    memmove(l->items + at + 1, l->items + at, (size_t)(n - at) * sizeof *l->items);
    l->items[at] = arg[1];
    *out = jv_none();
    return ZP_OK;
}

METHOD(list_pop)
{
    ZP_UNUSED(all);
    struct jlist *l = self.u.list;
    int64_t n = (int64_t)l->n, at = n - 1;
    ZP_TRY(jarg_int(c, arg[0], "index", &at));
    if (at < 0) at += n;
    J_FAIL_IF(at < 0 || at >= n, c, "pop: the list has %zu items", l->n);
    ZP_TRY(jinja_step(c, (uint64_t)(n - at)));
    *out = l->items[at];
    memmove(l->items + at, l->items + at + 1, (size_t)(n - at - 1) * sizeof *l->items);
    l->n--;
    return ZP_OK;
}

METHOD(list_extend)
{
    ZP_UNUSED(all);
    struct jlist *more;
    ZP_TRY(jv_to_list(c, arg[0], &more));
    for (size_t i = 0; i < more->n; i++) ZP_TRY(jlist_append(c, self.u.list, more->items[i]));
    *out = jv_none();
    return ZP_OK;
}

METHOD(list_reverse)
{
    ZP_UNUSED(arg);
    ZP_UNUSED(all);
    struct jlist *reversed;
    ZP_TRY(jinja_reversed(c, self, &reversed));
    if (reversed->n != 0)
        memcpy(self.u.list->items, reversed->items, reversed->n * sizeof *reversed->items);
    *out = jv_none();
    return ZP_OK;
}

METHOD(list_copy)
{
    ZP_UNUSED(arg);
    ZP_UNUSED(all);
    struct jlist *list;
    ZP_TRY(jv_to_list(c, self, &list));
    *out = jv_list(list);
    return ZP_OK;
}

METHOD(list_index)
{
    ZP_UNUSED(all);
    for (size_t i = 0; i < self.u.list->n; i++) {
        bool equal;
        ZP_TRY(jv_equal(c, self.u.list->items[i], arg[0], &equal));
        if (!equal) continue;
        *out = jv_int((int64_t)i);
        return ZP_OK;
    }
    J_FAIL(c, "index: the value is not in the list");
}

METHOD(list_count)
{
    ZP_UNUSED(all);
    int64_t n = 0;
    for (size_t i = 0; i < self.u.list->n; i++) {
        bool equal;
        ZP_TRY(jv_equal(c, self.u.list->items[i], arg[0], &equal));
        n += equal;
    }
    *out = jv_int(n);
    return ZP_OK;
}

METHOD(dict_keys)
{
    ZP_UNUSED(arg);
    ZP_UNUSED(all);
    return jdict_view(c, self.u.dict, DICT_KEYS, out);
}

METHOD(dict_values)
{
    ZP_UNUSED(arg);
    ZP_UNUSED(all);
    return jdict_view(c, self.u.dict, DICT_VALUES, out);
}

METHOD(dict_items)
{
    ZP_UNUSED(arg);
    ZP_UNUSED(all);
    return jdict_view(c, self.u.dict, DICT_ITEMS, out);
}

METHOD(dict_get)
{
    ZP_UNUSED(all);
    struct jpair *pair;
    ZP_TRY(jdict_find(c, self.u.dict, arg[0], &pair));
    *out = pair != NULL ? pair->value : arg[1].kind != J_MISSING ? arg[1] : jv_none();
    return ZP_OK;
}

METHOD(dict_copy)
{
    ZP_UNUSED(arg);
    ZP_UNUSED(all);
    struct jdict *copy;
    ZP_TRY(jdict_new(c, &copy));
    for (size_t i = 0; i < self.u.dict->n; i++)
        ZP_TRY(jdict_set(c, copy, self.u.dict->pairs[i].key, self.u.dict->pairs[i].value));
    *out = jv_dict(copy);
    return ZP_OK;
}

METHOD(refused)
{
    ZP_UNUSED(self);
    ZP_UNUSED(arg);
    ZP_UNUSED(all);
    ZP_UNUSED(out);
    J_FAIL(c,
           "templates may not call this method: it would change a dictionary or list of the input");
}

static const struct jbuiltin list_rows[] = {
    { "append", list_append, "object", 1 }, { "insert", list_insert, "index object", 2 },
    { "pop", list_pop, "index", 0 },        { "extend", list_extend, "iterable", 1 },
    { "reverse", list_reverse, "", 0 },     { "copy", list_copy, "", 0 },
    { "index", list_index, "value", 1 },    { "count", list_count, "value", 1 },
    { "clear", refused, NULL, 0 },          { "remove", refused, NULL, 0 },
    { "sort", refused, NULL, 0 },
};
const struct jbuiltin_table jinja_list_methods = { list_rows, ZP_COUNT(list_rows) };

static const struct jbuiltin tuple_rows[] = {
    { "index", list_index, "value", 1 },
    { "count", list_count, "value", 1 },
};
const struct jbuiltin_table jinja_tuple_methods = { tuple_rows, ZP_COUNT(tuple_rows) };

static const struct jbuiltin dict_rows[] = {
    { "keys", dict_keys, "", 0 },       { "values", dict_values, "", 0 },
    { "items", dict_items, "", 0 },     { "get", dict_get, "key default", 1 },
    { "copy", dict_copy, "", 0 },       { "clear", refused, NULL, 0 },
    { "pop", refused, NULL, 0 },        { "popitem", refused, NULL, 0 },
    { "setdefault", refused, NULL, 0 }, { "update", refused, NULL, 0 },
    { "fromkeys", refused, NULL, 0 },
};
const struct jbuiltin_table jinja_dict_methods = { dict_rows, ZP_COUNT(dict_rows) };
