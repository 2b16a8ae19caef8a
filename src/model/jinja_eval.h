/* jinja_eval.h: evaluation of expressions and calls. */
#ifndef MODEL_JINJA_EVAL_H
#define MODEL_JINJA_EVAL_H

#include "model/jinja_ast.h"

zp_status jinja_eval(struct jinja *c, const struct jnode *n, struct jv *out);
/* Filters of a block applied to its text. */
zp_status jinja_eval_filters(struct jinja *c, const struct jnode *n, struct jv text,
                             struct jv *out);
/* Calls with the arguments of a N_CALL node, plus caller= when it is not J_MISSING. */
zp_status jinja_eval_call(struct jinja *c, const struct jnode *n, struct jv caller, struct jv *out);
zp_status jinja_call(struct jinja *c, struct jv callee, const struct jargs *args, struct jv *out);

#endif
