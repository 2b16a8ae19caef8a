/* jinja_exec.c: execution of statements, macros and loops.
 * Scopes as in Jinja: loops, macros, with, and captured blocks have their own; if has none.
 * X1 c->scope and c->out are the same before and after each statement that succeeds. */
#include "model/jinja_exec.h"

#include "model/jinja_eval.h"
#include "model/jinja_iter.h"
#include "model/jinja_loop.h"
#include "model/jinja_print.h"
#include "model/jinja_scope.h"

static zp_status assign_tuple(struct jinja *c, const struct jnode *target, struct jv value)
{
    struct jlist *list;
    size_t n = target->kids.n;
    ZP_TRY(jv_to_list(c, value, &list));
    c->at = target->at;
    J_FAIL_IF(list->n != n, c, "%zu values are unpacked into %zu names", list->n, n);
    for (size_t i = 0; i < n; i++) ZP_TRY(jinja_assign(c, target->kids.at[i], list->items[i]));
    return ZP_OK;
}

zp_status jinja_assign(struct jinja *c, const struct jnode *target, struct jv value)
{
    c->at = target->at;
    if (target->kind == N_NAME) return jscope_set(c, c->scope, target->name, value);
    if (target->kind == N_TUPLE) {
        ZP_TRY(jinja_enter(c));
        ZP_TRY(assign_tuple(c, target, value));
        jinja_leave(c);
        return ZP_OK;
    }
    struct jv ns = jscope_find(c, target->name);
    J_FAIL_IF(ns.kind != J_NAMESPACE, c,
              "'%s' is no namespace; make one with {%% set %s = namespace() %%}",
              c->program->names[target->name], c->program->names[target->name]);
    return jdict_set(c, ns.u.dict, jv_str(target->text), value);
}

/* Runs a body in a scope of its own and gives what it wrote as a string. */
static zp_status capture(struct jinja *c, const struct jnodes *body, struct jscope *scope,
                         enum jflow *flow, struct jv *out)
{
    struct jtext text = { .c = c }, *outside_text = c->out;
    struct jscope *outside = c->scope;
    c->out = &text;
    c->scope = scope;
    ZP_TRY(jinja_exec(c, body, flow));
    c->out = outside_text;
    c->scope = outside; // X1
    return jtext_finish(&text, out);
}

static zp_status exec_print(struct jinja *c, const struct jnode *n)
{
    for (size_t i = 0; i < n->kids.n; i++) {
        struct jv v;
        ZP_TRY(jinja_eval(c, n->kids.at[i], &v));
        c->at = n->kids.at[i]->at;
        ZP_TRY(jtext_append_value(c->out, v));
    }
    return ZP_OK;
}

static zp_status exec_if(struct jinja *c, const struct jnode *n, enum jflow *flow)
{
    struct jv test;
    ZP_TRY(jinja_eval(c, n->a, &test));
    if (jv_truth(test)) return jinja_exec(c, &n->body, flow);
    for (size_t i = 0; i < n->kids.n; i++) {
        ZP_TRY(jinja_eval(c, n->kids.at[i]->a, &test));
        if (jv_truth(test)) return jinja_exec(c, &n->kids.at[i]->body, flow);
    }
    return jinja_exec(c, &n->other, flow);
}

static zp_status run_loop(struct jinja *c, struct jloop *loop, enum jflow *flow)
{
    const struct jnode *n = loop->node;
    struct jscope *outside = loop->scope;
    bool completed = false; /* Jinja runs the else part unless some round reached its end */
    for (;;) {
        struct jv item;
        bool more;
        c->at = n->at;
        ZP_TRY(jloop_next(c, loop, &item, &more));
        if (!more) break;
        ZP_TRY(jscope_new(c, outside, &c->scope));
        ZP_TRY(jscope_set(c, c->scope, c->program->id_loop,
                          (struct jv){ .kind = J_LOOP, .u.loop = loop }));
        ZP_TRY(jinja_assign(c, n->a, item));
        enum jflow inside = FLOW_ON;
        ZP_TRY(jinja_exec(c, &n->body, &inside));
        c->scope = outside;
        completed |= inside == FLOW_ON;
        if (inside == FLOW_BREAK) break;
    }
    if (completed) return ZP_OK;
    ZP_TRY(jscope_new(c, outside, &c->scope));
    ZP_TRY(jinja_exec(c, &n->other, flow));
    c->scope = outside;
    return ZP_OK;
}

static zp_status exec_for(struct jinja *c, const struct jnode *n, enum jflow *flow)
{
    struct jv iterable;
    struct jloop *loop;
    ZP_TRY(jinja_eval(c, n->b, &iterable));
    c->at = n->b->at;
    ZP_TRY(jloop_open(c, n, iterable, c->scope, 0, &loop));
    return run_loop(c, loop, flow);
}

zp_status jinja_call_loop(struct jinja *c, const struct jloop *loop, struct jv iterable,
                          struct jv *out)
{
    J_FAIL_IF(!loop->node->flag, c, "loop() needs a loop marked 'recursive'");
    struct jtext text = { .c = c }, *outside_text = c->out;
    struct jscope *outside = c->scope;
    struct jloop *inner;
    enum jflow flow = FLOW_ON;
    ZP_TRY(jinja_enter(c));
    ZP_TRY(jloop_open(c, loop->node, iterable, loop->scope, loop->depth0 + 1, &inner));
    c->out = &text;
    c->scope = loop->scope;
    ZP_TRY(run_loop(c, inner, &flow));
    c->out = outside_text;
    c->scope = outside; // X1
    jinja_leave(c);
    return jtext_finish(&text, out);
}

static zp_status exec_set_block(struct jinja *c, const struct jnode *n, enum jflow *flow)
{
    struct jscope *scope;
    struct jv text;
    ZP_TRY(jscope_new(c, c->scope, &scope));
    ZP_TRY(capture(c, &n->body, scope, flow, &text));
    if (*flow != FLOW_ON) return ZP_OK;
    if (n->b != NULL) ZP_TRY(jinja_eval_filters(c, n->b, text, &text));
    return jinja_assign(c, n->a, text);
}

static zp_status exec_filter_block(struct jinja *c, const struct jnode *n, enum jflow *flow)
{
    struct jscope *scope;
    struct jv text;
    ZP_TRY(jscope_new(c, c->scope, &scope));
    ZP_TRY(capture(c, &n->body, scope, flow, &text));
    if (*flow != FLOW_ON) return ZP_OK;
    ZP_TRY(jinja_eval_filters(c, n->a, text, &text));
    c->at = n->at;
    J_FAIL_IF(text.kind != J_STR, c,
              "the filters of this block give a value of type '%s', expected a text",
              jv_type_name(text));
    return jtext_append_str(c->out, text.u.s);
}

static zp_status exec_with(struct jinja *c, const struct jnode *n, enum jflow *flow)
{
    struct jscope *outside = c->scope, *scope;
    ZP_TRY(jscope_new(c, outside, &scope));
    for (size_t i = 0; i + 1 < n->kids.n; i += 2) {
        struct jv value;
        ZP_TRY(jinja_eval(c, n->kids.at[i + 1], &value));
        c->scope = scope;
        ZP_TRY(jinja_assign(c, n->kids.at[i], value));
        c->scope = outside; /* values see the outside, not the names before them */
    }
    c->scope = scope;
    ZP_TRY(jinja_exec(c, &n->body, flow));
    c->scope = outside;
    return ZP_OK;
}

static zp_status new_macro(struct jinja *c, const struct jnode *n, struct jv *out)
{
    struct jmacro *macro;
    J_NEW(macro, c, 1);
    *macro = (struct jmacro){ n, c->scope };
    *out = (struct jv){ .kind = J_MACRO, .u.macro = macro };
    return ZP_OK;
}

static zp_status exec_call_block(struct jinja *c, const struct jnode *n)
{
    struct jv caller, result;
    ZP_TRY(new_macro(c, n, &caller));
    ZP_TRY(jinja_eval_call(c, n->a, caller, &result));
    c->at = n->at;
    return jtext_append_value(c->out, result);
}

static zp_status exec_generation(struct jinja *c, const struct jnode *n)
{
    struct jscope *outside = c->scope;
    enum jflow flow = FLOW_ON;
    ZP_TRY(jscope_new(c, outside, &c->scope));
    ZP_TRY(jinja_exec(c, &n->body, &flow));
    c->scope = outside;
    return ZP_OK;
}

static zp_status exec_one(struct jinja *c, const struct jnode *n, enum jflow *flow)
{
    struct jv v;
    c->at = n->at;
    switch (n->kind) {
    case N_DATA: return jtext_append_str(c->out, n->value.u.s);
    case N_PRINT: return exec_print(c, n);
    case N_FOR: return exec_for(c, n, flow);
    case N_IF: return exec_if(c, n, flow);
    case N_SET: ZP_TRY(jinja_eval(c, n->b, &v)); return jinja_assign(c, n->a, v);
    case N_SET_BLOCK: return exec_set_block(c, n, flow);
    case N_WITH: return exec_with(c, n, flow);
    case N_MACRO: ZP_TRY(new_macro(c, n, &v)); return jscope_set(c, c->scope, n->name, v);
    case N_CALL_BLOCK: return exec_call_block(c, n);
    case N_FILTER_BLOCK: return exec_filter_block(c, n, flow);
    case N_GENERATION: return exec_generation(c, n);
    case N_BREAK: *flow = FLOW_BREAK; return ZP_OK;
    case N_CONTINUE: *flow = FLOW_CONTINUE; return ZP_OK;
    default: J_FAIL(c, "not a statement");
    }
}

zp_status jinja_exec(struct jinja *c, const struct jnodes *body, enum jflow *flow)
{
    ZP_TRY(jinja_enter(c));
    for (size_t i = 0; i < body->n && *flow == FLOW_ON; i++) {
        ZP_TRY(jinja_step(c, 1));
        ZP_TRY(exec_one(c, body->at[i], flow));
    }
    jinja_leave(c);
    return ZP_OK;
}

/* ---- macros ---- */

static const char *macro_name(const struct jinja *c, const struct jnode *n)
{
    return n->kind == N_MACRO ? c->program->names[n->name] : "caller";
}

/* Index of the parameter of that name, or the number of parameters. */
static size_t find_parameter(const struct jinja *c, const struct jnode *n, const struct jstr *name)
{
    size_t i = 0;
    while (i < n->kids.n && !jstr_is(name, c->program->names[n->kids.at[i]->name])) i++;
    return i;
}

/* Arguments beyond the parameters: varargs, kwargs and caller, where the body reads them. */
static zp_status bind_rest(struct jinja *c, const struct jnode *n, const struct jargs *args)
{
    const struct jinja_program *g = c->program;
    struct jlist *varargs;
    struct jdict *kwargs;
    struct jv caller = jv_undefined(J_MISSING, "caller");
    ZP_TRY(jlist_new(c, 0, &varargs));
    ZP_TRY(jdict_new(c, &kwargs));
    J_FAIL_IF(args->n_pos > n->kids.n && !n->uses_varargs, c,
              "the macro '%s' takes %zu arguments, found %zu", macro_name(c, n), n->kids.n,
              args->n_pos);
    for (size_t i = n->kids.n; i < args->n_pos; i++) ZP_TRY(jlist_append(c, varargs, args->pos[i]));
    for (size_t i = 0; i < args->n_kw; i++) {
        const struct jstr *name = args->kw[i].name;
        if (find_parameter(c, n, name) < n->kids.n) continue;
        if (jstr_is(name, "caller") && n->uses_caller) {
            caller = args->kw[i].value;
            continue;
        }
        J_FAIL_IF(!n->uses_kwargs, c, "the macro '%s' has no parameter '%.*s'", macro_name(c, n),
                  (int)name->size, name->data);
        ZP_TRY(jdict_set(c, kwargs, jv_str(name), args->kw[i].value));
    }
    if (n->uses_caller) ZP_TRY(jscope_set(c, c->scope, g->id_caller, caller));
    if (n->uses_kwargs) ZP_TRY(jscope_set(c, c->scope, g->id_kwargs, jv_dict(kwargs)));
    if (n->uses_varargs) ZP_TRY(jscope_set(c, c->scope, g->id_varargs, jv_tuple(varargs)));
    return ZP_OK;
}

static zp_status bind_parameters(struct jinja *c, const struct jnode *n, const struct jargs *args)
{
    for (size_t i = 0; i < n->kids.n; i++) {
        const struct jnode *param = n->kids.at[i];
        const char *name = c->program->names[param->name];
        struct jv value = i < args->n_pos ? args->pos[i] : jv_missing();
        for (size_t k = 0; k < args->n_kw; k++) {
            if (!jstr_is(args->kw[k].name, name)) continue;
            J_FAIL_IF(value.kind != J_MISSING, c, "the macro '%s' got two values for '%s'",
                      macro_name(c, n), name);
            value = args->kw[k].value;
        }
        if (value.kind == J_MISSING && param->a != NULL) ZP_TRY(jinja_eval(c, param->a, &value));
        if (value.kind == J_MISSING) value = jv_undefined(J_MISSING, name);
        ZP_TRY(jscope_set(c, c->scope, param->name, value));
    }
    return ZP_OK;
}

zp_status jinja_call_macro(struct jinja *c, const struct jmacro *macro, const struct jargs *args,
                           struct jv *out)
{
    struct jscope *outside = c->scope, *scope;
    enum jflow flow = FLOW_ON;
    ZP_TRY(jinja_enter(c));
    ZP_TRY(jscope_new(c, macro->scope, &scope));
    c->scope = scope;
    ZP_TRY(bind_rest(c, macro->node, args));
    ZP_TRY(bind_parameters(c, macro->node, args));
    ZP_TRY(capture(c, &macro->node->body, scope, &flow, out));
    c->scope = outside;
    jinja_leave(c);
    return ZP_OK;
}
