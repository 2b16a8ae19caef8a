/* jinja_exec.h: execution of statements, macros and loops. */
#ifndef MODEL_JINJA_EXEC_H
#define MODEL_JINJA_EXEC_H

#include "model/jinja_ast.h"

enum jflow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE };

/* Runs statements in c->scope, writing to c->out. */
zp_status jinja_exec(struct jinja *c, const struct jnodes *body, enum jflow *flow);
/* Unpacks and stores into names of c->scope or attributes of namespaces. */
zp_status jinja_assign(struct jinja *c, const struct jnode *target, struct jv value);
zp_status jinja_call_macro(struct jinja *c, const struct jmacro *macro, const struct jargs *args,
                           struct jv *out);
/* loop(iterable) inside a recursive loop: the statement's text for other items. */
zp_status jinja_call_loop(struct jinja *c, const struct jloop *loop, struct jv iterable,
                          struct jv *out);

#endif
