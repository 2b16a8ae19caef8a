/* jinja_iter.c: walking template values, membership, and values made from JSON. No state. */
#include "model/jinja_iter.h"

#include "model/jinja_text.h"

bool jv_is_iterable(struct jv v)
{
    return v.kind == J_UNDEFINED || v.kind == J_STR || jv_is_listlike(v) || v.kind == J_DICT ||
           v.kind == J_RANGE || v.kind == J_ITER;
}

zp_status jcursor_open(struct jinja *c, struct jv v, struct jcursor *out)
{
    J_FAIL_IF(!jv_is_iterable(v), c, "a value of type '%s' cannot be looped over", jv_type_name(v));
    *out = (struct jcursor){ .source = v };
    return ZP_OK;
}

static zp_status next_char(struct jinja *c, struct jcursor *cur, struct jv *item, bool *more)
{
    const struct jstr *s = cur->source.u.s;
    *more = cur->at < s->size;
    if (!*more) return ZP_OK;
    size_t size;
    jstr_char_at(s, cur->at, &size);
    ZP_TRY(jstr_slice(c, s, cur->at, size, item));
    cur->at += size;
    return ZP_OK;
}

zp_status jcursor_next(struct jinja *c, struct jcursor *cur, struct jv *item, bool *more)
{
    ZP_TRY(jinja_step(c, 1));
    struct jv v = cur->source;
    switch ((enum jkind)v.kind) {
    case J_STR: return next_char(c, cur, item, more);
    case J_LIST:
    case J_TUPLE:
    case J_VIEW:
        *more = cur->at < v.u.list->n;
        if (*more) *item = v.u.list->items[cur->at++];
        return ZP_OK;
    case J_DICT:
        *more = cur->at < v.u.dict->n;
        if (*more) *item = v.u.dict->pairs[cur->at++].key;
        return ZP_OK;
    case J_RANGE:
        *more = (int64_t)cur->at < v.u.range->n;
        if (*more) *item = jv_int(v.u.range->start + (int64_t)cur->at++ * v.u.range->step);
        return ZP_OK;
    case J_ITER:
        *more = v.u.iter->at < v.u.iter->items->n;
        if (*more) *item = v.u.iter->items->items[v.u.iter->at++];
        return ZP_OK;
    default: *more = false; return ZP_OK; /* undefined: empty */
    }
}

zp_status jv_to_list(struct jinja *c, struct jv v, struct jlist **out)
{
    struct jcursor cur = { 0 };
    ZP_TRY(jcursor_open(c, v, &cur));
    ZP_TRY(jlist_new(c, 0, out));
    for (;;) {
        struct jv item;
        bool more;
        ZP_TRY(jcursor_next(c, &cur, &item, &more));
        if (!more) return ZP_OK;
        ZP_TRY(jlist_append(c, *out, item));
    }
}

zp_status jv_new_iter(struct jinja *c, struct jlist *items, struct jv *out)
{
    struct jiter *iter;
    J_NEW(iter, c, 1);
    iter->items = items;
    *out = (struct jv){ .kind = J_ITER, .u.iter = iter };
    return ZP_OK;
}

zp_status jv_contains(struct jinja *c, struct jv container, struct jv item, bool *out)
{
    *out = false;
    if (container.kind == J_STR) {
        if (item.kind == J_UNDEFINED) return jv_fail_undefined(c, item);
        J_FAIL_IF(item.kind != J_STR, c, "'in <str>' needs a string on the left, found '%s'",
                  jv_type_name(item));
        ZP_TRY(jinja_scan(c, container.u.s->size));
        *out = jstr_find(container.u.s, item.u.s, 0) != SIZE_MAX;
        return ZP_OK;
    }
    if (container.kind == J_DICT) {
        struct jpair *pair;
        ZP_TRY(jdict_find(c, container.u.dict, item, &pair));
        *out = pair != NULL;
        return ZP_OK;
    }
    J_FAIL_IF(!jv_is_iterable(container), c, "'in' needs a container on the right, found '%s'",
              jv_type_name(container));
    struct jcursor cur = { 0 };
    ZP_TRY(jcursor_open(c, container, &cur));
    for (bool more = true; more && !*out;) {
        struct jv each;
        ZP_TRY(jcursor_next(c, &cur, &each, &more));
        if (more) ZP_TRY(jv_equal(c, each, item, out));
    }
    return ZP_OK;
}

zp_status jdict_view(struct jinja *c, const struct jdict *d, enum jdict_part part, struct jv *out)
{
    static const char *const views[] = { "dict_keys", "dict_values", "dict_items" };
    struct jlist *list;
    ZP_TRY(jlist_new(c, d->n, &list));
    list->view = views[part];
    for (size_t i = 0; i < d->n; i++) {
        struct jv item = part == DICT_KEYS ? d->pairs[i].key : d->pairs[i].value;
        if (part == DICT_ITEMS) {
            struct jlist *pair;
            ZP_TRY(jlist_new(c, 2, &pair));
            ZP_TRY(jlist_append(c, pair, d->pairs[i].key));
            ZP_TRY(jlist_append(c, pair, d->pairs[i].value));
            item = jv_tuple(pair);
        }
        ZP_TRY(jlist_append(c, list, item));
    }
    *out = (struct jv){ .kind = J_VIEW, .u.list = list };
    return ZP_OK;
}

static zp_status from_object(struct jinja *c, const json_t *json, struct jv *out)
{
    struct jdict *dict;
    ZP_TRY(jdict_new(c, &dict));
    json_t *object = (json_t *)json; /* jansson's iterators take no const */
    for (void *at = json_object_iter(object); at != NULL; at = json_object_iter_next(object, at)) {
        const struct jstr *key;
        struct jv value;
        ZP_TRY(
            jstr_new(c, json_object_iter_key(at), json_object_iter_key_len(at), ORIGIN_USER, &key));
        ZP_TRY(jv_from_json(c, json_object_iter_value(at), &value));
        ZP_TRY(jdict_set(c, dict, jv_str(key), value));
    }
    *out = jv_dict(dict);
    return ZP_OK;
}

static zp_status from_array(struct jinja *c, const json_t *json, struct jv *out)
{
    struct jlist *list;
    ZP_TRY(jlist_new(c, json_array_size(json), &list));
    for (size_t i = 0; i < json_array_size(json); i++) {
        struct jv value;
        ZP_TRY(jv_from_json(c, json_array_get(json, i), &value));
        ZP_TRY(jlist_append(c, list, value));
    }
    *out = jv_list(list);
    return ZP_OK;
}

zp_status jv_from_json(struct jinja *c, const json_t *json, struct jv *out)
{
    const struct jstr *s;
    switch (json_typeof(json)) {
    case JSON_STRING:
        ZP_TRY(jstr_new(c, json_string_value(json), json_string_length(json), ORIGIN_USER, &s));
        *out = jv_str(s);
        return ZP_OK;
    case JSON_INTEGER: *out = jv_int(json_integer_value(json)); return ZP_OK;
    case JSON_REAL: *out = jv_float(json_real_value(json)); return ZP_OK;
    case JSON_TRUE: *out = jv_bool(true); return ZP_OK;
    case JSON_FALSE: *out = jv_bool(false); return ZP_OK;
    case JSON_NULL: *out = jv_none(); return ZP_OK;
    case JSON_OBJECT:
    case JSON_ARRAY: break;
    }
    ZP_TRY(jinja_enter(c));
    ZP_TRY(json_is_object(json) ? from_object(c, json, out) : from_array(c, json, out));
    jinja_leave(c);
    return ZP_OK;
}
