/* jinja_ops.h: operators, subscripts and attributes of template values, with Python's meaning. */
#ifndef MODEL_JINJA_OPS_H
#define MODEL_JINJA_OPS_H

#include "model/jinja_ast.h"

zp_status jinja_binary(struct jinja *c, enum jnode_op op, struct jv a, struct jv b, struct jv *out);
zp_status jinja_relation(struct jinja *c, enum jnode_op op, struct jv a, struct jv b, bool *out);
zp_status jinja_negate(struct jinja *c, struct jv v, struct jv *out);
/* Python's // and %: the sign follows the divisor. */
zp_status jinja_modulo(struct jinja *c, struct jv a, struct jv b, struct jv *out);

#endif
