/* jinja_scope.h: variables of a rendering: a chain of scopes over the input and the built-in
 * functions. */
#ifndef MODEL_JINJA_SCOPE_H
#define MODEL_JINJA_SCOPE_H

#include "model/jinja_ast.h"

struct jvariable {
    uint32_t name;
    struct jv value;
};
struct jscope {
    struct jscope *up;
    struct jvariable *vars;
    size_t n, room;
};

/* A new scope over `up`; the caller makes it c->scope and puts the old one back. Never freed before
 * the rendering ends, so macros may keep it. */
zp_status jscope_new(struct jinja *c, struct jscope *up, struct jscope **out);
zp_status jscope_set(struct jinja *c, struct jscope *s, uint32_t name, struct jv value);
/* Innermost first, then c->globals; undefined when nowhere. */
struct jv jscope_find(const struct jinja *c, uint32_t name);

#endif
