/* jinja_sort.h: stable sorting of template values by a key, as Python's sorted(). */
#ifndef MODEL_JINJA_SORT_H
#define MODEL_JINJA_SORT_H

#include "model/jinja_iter.h"

/* Sorts list->items by keys (list->n), which may be the items themselves. Fails on values without
 * an order. */
zp_status jlist_sort(struct jinja *c, struct jlist *list, const struct jv *keys, bool reverse);

#endif
