/* jinja_access.h: attributes, items and slices of template values. */
#ifndef MODEL_JINJA_ACCESS_H
#define MODEL_JINJA_ACCESS_H

#include "model/jinja_value.h"

/* object.name: methods and attributes first, then items; object[key]: the other way. Undefined when
 * absent. */
zp_status jinja_attribute(struct jinja *c, struct jv object, const struct jstr *name,
                          struct jv *out);
zp_status jinja_item(struct jinja *c, struct jv object, struct jv key, struct jv *out);
/* "a.b.0": attributes and items in turn, as the filters' attribute= argument. */
zp_status jinja_path(struct jinja *c, struct jv object, struct jv path, struct jv *out);
/* start, stop, step: integers, or J_NONE or J_MISSING where left out */
zp_status jinja_slice(struct jinja *c, struct jv object, const struct jv part[3], struct jv *out);

#endif
