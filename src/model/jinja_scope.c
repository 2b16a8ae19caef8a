/* jinja_scope.c: variables of a rendering: a chain of scopes over the input and the built-in
 * functions. */
#include "model/jinja_scope.h"

#include <string.h>

zp_status jscope_new(struct jinja *c, struct jscope *up, struct jscope **out)
{
    J_NEW(*out, c, 1);
    (*out)->up = up;
    return ZP_OK;
}

zp_status jscope_set(struct jinja *c, struct jscope *s, uint32_t name, struct jv value)
{
    for (size_t i = 0; i < s->n; i++) {
        if (s->vars[i].name != name) continue;
        s->vars[i].value = value;
        return ZP_OK;
    }
    if (s->n == s->room) {
        size_t room = s->room == 0 ? 4 : s->room * 2;
        struct jvariable *vars;
        J_NEW(vars, c, room);
        if (s->n != 0) memcpy(vars, s->vars, s->n * sizeof *vars);
        s->vars = vars;
        s->room = room;
    }
    s->vars[s->n++] = (struct jvariable){ name, value };
    return ZP_OK;
}

struct jv jscope_find(const struct jinja *c, uint32_t name)
{
    for (const struct jscope *s = c->scope; s != NULL; s = s->up)
        for (size_t i = 0; i < s->n; i++)
            if (s->vars[i].name == name) return s->vars[i].value;
    struct jv v = c->globals[name];
    return v.kind != J_MISSING ? v : jv_undefined(J_MISSING, c->program->names[name]);
}
