/* jinja_filter_list.h: filters over sequences and dictionaries. The table is jinja_list_filters of
 * jinja_builtin.h. */
#ifndef MODEL_JINJA_FILTER_LIST_H
#define MODEL_JINJA_FILTER_LIST_H

#include "model/jinja_builtin.h"
#include "model/jinja_text.h"

/* Texts of the items with d between them. */
zp_status jinja_join(struct jinja *c, struct jv items, const struct jstr *d, bool only_texts,
                     struct jv *out);
zp_status jinja_reversed(struct jinja *c, struct jv v, struct jlist **out);

#endif
