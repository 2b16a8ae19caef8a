/* jinja_loop.h: the `loop` object of a for statement: what comes next, and its attributes. */
#ifndef MODEL_JINJA_LOOP_H
#define MODEL_JINJA_LOOP_H

#include "model/jinja_ast.h"
#include "model/jinja_iter.h"

struct jloop {
    const struct jnode *node; /* N_FOR */
    struct jscope *scope;     /* around the statement: the test is evaluated over it */
    struct jcursor source;
    struct jlist *ahead; /* items taken from the source before their turn */
    size_t ahead_at;
    int64_t index0; /* -1 before the first round */
    int64_t length; /* -1 = not asked for yet */
    struct jv before, current;
    struct jlist *changed; /* arguments of the last changed() */
    uint32_t depth0;       /* nesting of a recursive loop */
};

zp_status jloop_open(struct jinja *c, const struct jnode *node, struct jv iterable,
                     struct jscope *scope, uint32_t depth0, struct jloop **out);
/* Items pass the statement's test just before their turn, as in Jinja, so the test may read what
 * bodies set. */
zp_status jloop_next(struct jinja *c, struct jloop *l, struct jv *item, bool *more);
zp_status jloop_attribute(struct jinja *c, struct jloop *l, const struct jstr *name, struct jv *out,
                          bool *found);

#endif
