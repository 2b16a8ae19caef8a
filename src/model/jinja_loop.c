/* jinja_loop.c: the `loop` object of a for statement: what comes next, its attributes and methods.
 * L1 items in `ahead` have passed the test and come before anything left in the source. */
#include "model/jinja_loop.h"

#include "model/jinja_builtin.h"
#include "model/jinja_eval.h"
#include "model/jinja_exec.h"
#include "model/jinja_scope.h"
#include "model/jinja_text.h"

zp_status jloop_open(struct jinja *c, const struct jnode *node, struct jv iterable,
                     struct jscope *scope, uint32_t depth0, struct jloop **out)
{
    J_NEW(*out, c, 1);
    struct jloop *l = *out;
    *l = (struct jloop){
        .node = node, .scope = scope, .index0 = -1, .length = -1, .depth0 = depth0
    };
    l->before = l->current = jv_undefined(J_MISSING, "loop.previtem");
    ZP_TRY(jlist_new(c, 0, &l->ahead));
    return jcursor_open(c, iterable, &l->source);
}

static zp_status passes_test(struct jinja *c, struct jloop *l, struct jv item, bool *out)
{
    struct jscope *outside = c->scope;
    struct jv result;
    *out = true;
    if (l->node->c == NULL) return ZP_OK;
    ZP_TRY(jscope_new(c, l->scope, &c->scope));
    ZP_TRY(jscope_set(c, c->scope, c->program->id_loop,
                      jv_undefined(J_MISSING, "loop (in the test of a loop)")));
    ZP_TRY(jinja_assign(c, l->node->a, item));
    ZP_TRY(jinja_eval(c, l->node->c, &result));
    c->scope = outside;
    *out = jv_truth(result);
    return ZP_OK;
}

static zp_status pull(struct jinja *c, struct jloop *l, struct jv *item, bool *more)
{
    for (;;) {
        bool passes;
        ZP_TRY(jcursor_next(c, &l->source, item, more));
        if (!*more) return ZP_OK;
        ZP_TRY(passes_test(c, l, *item, &passes));
        if (passes) return ZP_OK;
    }
}

/* Takes up to n items ahead; *have = how many are there. */
static zp_status look_ahead(struct jinja *c, struct jloop *l, size_t n, size_t *have)
{
    while (l->ahead->n - l->ahead_at < n) {
        struct jv item;
        bool more;
        ZP_TRY(pull(c, l, &item, &more));
        if (!more) break;
        ZP_TRY(jlist_append(c, l->ahead, item));
    }
    *have = l->ahead->n - l->ahead_at;
    return ZP_OK;
}

zp_status jloop_next(struct jinja *c, struct jloop *l, struct jv *item, bool *more)
{
    *more = true;
    if (l->ahead_at < l->ahead->n) *item = l->ahead->items[l->ahead_at++]; // L1
    else ZP_TRY(pull(c, l, item, more));
    if (!*more) return ZP_OK;
    l->before = l->current;
    l->current = *item;
    l->index0++;
    return ZP_OK;
}

static zp_status find_length(struct jinja *c, struct jloop *l)
{
    size_t n;
    if (l->length >= 0) return ZP_OK;
    if (l->node->c == NULL && jv_has_length(l->source.source)) {
        ZP_TRY(jv_length(c, l->source.source, &n));
        l->length = (int64_t)n;
        return ZP_OK;
    }
    ZP_TRY(look_ahead(c, l, SIZE_MAX, &n));
    l->length = l->index0 + 1 + (int64_t)n;
    return ZP_OK;
}

static zp_status attribute_of_length(struct jinja *c, struct jloop *l, const struct jstr *name,
                                     struct jv *out, bool *found)
{
    bool length = jstr_is(name, "length"), rev = jstr_is(name, "revindex"),
         rev0 = jstr_is(name, "revindex0");
    *found = length || rev || rev0;
    if (!*found) return ZP_OK;
    ZP_TRY(find_length(c, l));
    *out = jv_int(length ? l->length : rev ? l->length - l->index0 : l->length - l->index0 - 1);
    return ZP_OK;
}

zp_status jloop_attribute(struct jinja *c, struct jloop *l, const struct jstr *name, struct jv *out,
                          bool *found)
{
    size_t have;
    *found = true;
    if (jstr_is(name, "index0")) *out = jv_int(l->index0);
    else if (jstr_is(name, "index")) *out = jv_int(l->index0 + 1);
    else if (jstr_is(name, "first")) *out = jv_bool(l->index0 == 0);
    else if (jstr_is(name, "depth0")) *out = jv_int(l->depth0);
    else if (jstr_is(name, "depth")) *out = jv_int((int64_t)l->depth0 + 1);
    else if (jstr_is(name, "previtem")) *out = l->before;
    else if (jstr_is(name, "last") || jstr_is(name, "nextitem")) {
        ZP_TRY(look_ahead(c, l, 1, &have));
        if (jstr_is(name, "last")) *out = jv_bool(have == 0);
        else
            *out =
                have == 0 ? jv_undefined(J_MISSING, "loop.nextitem") : l->ahead->items[l->ahead_at];
    } else {
        return attribute_of_length(c, l, name, out, found);
    }
    return ZP_OK;
}

static zp_status loop_cycle(struct jinja *c, struct jv self, const struct jv *arg,
                            const struct jargs *all, struct jv *out)
{
    ZP_UNUSED(arg);
    J_FAIL_IF(all->n_pos == 0, c, "loop.cycle() needs at least one value");
    *out = all->pos[(size_t)self.u.loop->index0 % all->n_pos];
    return ZP_OK;
}

static zp_status loop_changed(struct jinja *c, struct jv self, const struct jv *arg,
                              const struct jargs *all, struct jv *out)
{
    ZP_UNUSED(arg);
    struct jloop *l = self.u.loop;
    struct jlist *now;
    bool same = false;
    ZP_TRY(jlist_new(c, all->n_pos, &now));
    for (size_t i = 0; i < all->n_pos; i++) ZP_TRY(jlist_append(c, now, all->pos[i]));
    if (l->changed != NULL) ZP_TRY(jv_equal(c, jv_tuple(l->changed), jv_tuple(now), &same));
    l->changed = now;
    *out = jv_bool(!same);
    return ZP_OK;
}

static const struct jbuiltin loop_rows[] = {
    { "cycle", loop_cycle, NULL, 0 },
    { "changed", loop_changed, NULL, 0 },
};
const struct jbuiltin_table jinja_loop_methods = { loop_rows, ZP_COUNT(loop_rows) };
