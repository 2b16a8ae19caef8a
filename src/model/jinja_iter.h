/* jinja_iter.h: walking values of a chat template, membership, and values made from JSON. */
#ifndef MODEL_JINJA_ITER_H
#define MODEL_JINJA_ITER_H

#include "model/jinja_value.h"

/* Iteration as Python's iter() and next(): lists may grow while walked, dictionaries give keys,
 * strings characters. */
struct jcursor {
    struct jv source;
    size_t at;
};
bool jv_is_iterable(struct jv v);
zp_status jcursor_open(struct jinja *c, struct jv v, struct jcursor *out);
zp_status jcursor_next(struct jinja *c, struct jcursor *cur, struct jv *item, bool *more);
zp_status jv_to_list(struct jinja *c, struct jv v, struct jlist **out); /* always a new list */
zp_status jv_new_iter(struct jinja *c, struct jlist *items,
                      struct jv *out); /* a generator over items */
zp_status jv_contains(struct jinja *c, struct jv container, struct jv item, bool *out);
/* pairs of a dictionary as tuples; view = "dict_items" and so on */
enum jdict_part { DICT_KEYS, DICT_VALUES, DICT_ITEMS };
zp_status jdict_view(struct jinja *c, const struct jdict *d, enum jdict_part part, struct jv *out);

/* Strings are borrowed from the JSON object and have origin user. */
zp_status jv_from_json(struct jinja *c, const json_t *json, struct jv *out);

#endif
