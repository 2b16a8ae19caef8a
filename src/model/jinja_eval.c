/* jinja_eval.c: evaluation of expressions and calls: one function a kind of node.
 * c->at names the node for messages; it is set again after the operands, which move it. */
#include "model/jinja_eval.h"

#include "model/jinja_access.h"
#include "model/jinja_builtin.h"
#include "model/jinja_exec.h"
#include "model/jinja_global.h"
#include "model/jinja_iter.h"
#include "model/jinja_loop.h"
#include "model/jinja_ops.h"
#include "model/jinja_print.h"
#include "model/jinja_scope.h"

static zp_status eval_list(struct jinja *c, const struct jnode *n, struct jv *out)
{
    struct jlist *list;
    ZP_TRY(jlist_new(c, n->kids.n, &list));
    for (size_t i = 0; i < n->kids.n; i++) {
        struct jv item;
        ZP_TRY(jinja_eval(c, n->kids.at[i], &item));
        ZP_TRY(jlist_append(c, list, item));
    }
    *out = n->kind == N_TUPLE ? jv_tuple(list) : jv_list(list);
    return ZP_OK;
}

static zp_status eval_dict(struct jinja *c, const struct jnode *n, struct jv *out)
{
    struct jdict *dict;
    ZP_TRY(jdict_new(c, &dict));
    for (size_t i = 0; i + 1 < n->kids.n; i += 2) {
        struct jv key, value;
        ZP_TRY(jinja_eval(c, n->kids.at[i], &key));
        ZP_TRY(jinja_eval(c, n->kids.at[i + 1], &value));
        c->at = n->kids.at[i]->at;
        ZP_TRY(jdict_set(c, dict, key, value));
    }
    *out = jv_dict(dict);
    return ZP_OK;
}

static zp_status eval_slice(struct jinja *c, const struct jnode *n, struct jv *out)
{
    struct jv object, part[3] = { jv_missing(), jv_missing(), jv_missing() };
    const struct jnode *nodes[3] = { n->b, n->c, n->d };
    ZP_TRY(jinja_eval(c, n->a, &object));
    for (int i = 0; i < 3; i++)
        if (nodes[i] != NULL) ZP_TRY(jinja_eval(c, nodes[i], &part[i]));
    c->at = n->at;
    return jinja_slice(c, object, part, out);
}

static zp_status eval_compare(struct jinja *c, const struct jnode *n, struct jv *out)
{
    struct jv left;
    bool holds = true;
    ZP_TRY(jinja_eval(c, n->a, &left));
    for (size_t i = 0; i < n->kids.n && holds; i++) {
        const struct jnode *operand = n->kids.at[i];
        struct jv right;
        ZP_TRY(jinja_eval(c, operand->a, &right));
        c->at = operand->at;
        ZP_TRY(jinja_relation(c, operand->op, left, right, &holds));
        left = right;
    }
    *out = jv_bool(holds);
    return ZP_OK;
}

static zp_status eval_concat(struct jinja *c, const struct jnode *n, struct jv *out)
{
    const struct jstr *text;
    struct jv item;
    ZP_TRY(jinja_eval(c, n->kids.at[0], &item));
    c->at = n->at;
    ZP_TRY(jv_to_str(c, item, &text));
    *out = jv_str(text);
    for (size_t i = 1; i < n->kids.n; i++) {
        ZP_TRY(jinja_eval(c, n->kids.at[i], &item));
        c->at = n->at;
        ZP_TRY(jv_to_str(c, item, &text));
        ZP_TRY(jstr_concat(c, out->u.s, text, out));
    }
    return ZP_OK;
}

/* ---- calls ---- */

static zp_status add_keyword(struct jinja *c, struct jargs *args, const struct jstr *name,
                             struct jv value)
{
    for (size_t i = 0; i < args->n_kw; i++)
        J_FAIL_IF(jstr_equal(args->kw[i].name, name), c, "the argument '%.*s' is given twice",
                  (int)name->size, name->data);
    args->kw[args->n_kw++] = (struct jkeyword){ name, value };
    return ZP_OK;
}

/* Grows an argument array so that `more` fit behind `used`. */
static zp_status reserve_positional(struct jinja *c, struct jargs *args, size_t more, size_t *room)
{
    if (args->n_pos + more <= *room) return ZP_OK;
    size_t wanted = (args->n_pos + more) * 2;
    struct jv *grown;
    J_NEW(grown, c, wanted);
    for (size_t i = 0; i < args->n_pos; i++) grown[i] = args->pos[i];
    args->pos = grown;
    *room = wanted;
    return ZP_OK;
}

static zp_status reserve_keywords(struct jinja *c, struct jargs *args, size_t more, size_t *room)
{
    if (args->n_kw + more <= *room) return ZP_OK;
    size_t wanted = (args->n_kw + more) * 2;
    struct jkeyword *grown;
    J_NEW(grown, c, wanted);
    for (size_t i = 0; i < args->n_kw; i++) grown[i] = args->kw[i];
    args->kw = grown;
    *room = wanted;
    return ZP_OK;
}

static zp_status spread_list(struct jinja *c, struct jargs *args, struct jv value, size_t *room)
{
    struct jlist *list;
    ZP_TRY(jv_to_list(c, value, &list));
    ZP_TRY(reserve_positional(c, args, list->n, room));
    for (size_t i = 0; i < list->n; i++) args->pos[args->n_pos++] = list->items[i];
    return ZP_OK;
}

static zp_status spread_dict(struct jinja *c, struct jargs *args, struct jv value, size_t *room)
{
    J_FAIL_IF(value.kind != J_DICT, c, "'**' needs a dictionary, found '%s'", jv_type_name(value));
    ZP_TRY(reserve_keywords(c, args, value.u.dict->n, room));
    for (size_t i = 0; i < value.u.dict->n; i++) {
        struct jpair *pair = &value.u.dict->pairs[i];
        J_FAIL_IF(pair->key.kind != J_STR, c, "'**' needs text keys, found '%s'",
                  jv_type_name(pair->key));
        ZP_TRY(add_keyword(c, args, pair->key.u.s, pair->value));
    }
    return ZP_OK;
}

static zp_status eval_arguments(struct jinja *c, const struct jnodes *kids, struct jargs *args)
{
    size_t room_pos = kids->n, room_kw = kids->n + 1; /* one more for caller= */
    *args = (struct jargs){ 0 };
    if (room_pos != 0) J_NEW(args->pos, c, room_pos);
    J_NEW(args->kw, c, room_kw);
    for (size_t i = 0; i < kids->n; i++) {
        const struct jnode *arg = kids->at[i];
        struct jv value;
        bool wrapped = arg->kind == N_KEYWORD || arg->kind == N_STAR || arg->kind == N_STAR_STAR;
        ZP_TRY(jinja_eval(c, wrapped ? arg->a : arg, &value));
        c->at = arg->at;
        if (arg->kind == N_STAR) {
            ZP_TRY(spread_list(c, args, value, &room_pos));
        } else if (arg->kind == N_STAR_STAR) {
            ZP_TRY(spread_dict(c, args, value, &room_kw));
        } else if (arg->kind == N_KEYWORD) {
            ZP_TRY(reserve_keywords(c, args, 1, &room_kw));
            ZP_TRY(add_keyword(c, args, arg->text, value));
        } else {
            ZP_TRY(reserve_positional(c, args, 1, &room_pos));
            args->pos[args->n_pos++] = value;
        }
    }
    return reserve_keywords(c, args, 1, &room_kw);
}

zp_status jinja_call(struct jinja *c, struct jv callee, const struct jargs *args, struct jv *out)
{
    switch ((enum jkind)callee.kind) {
    case J_UNDEFINED: return jv_fail_undefined(c, callee);
    case J_BUILTIN:
        return jinja_call_builtin(c, callee.u.bound->builtin, "function", callee.u.bound->self,
                                  args, out);
    case J_MACRO: return jinja_call_macro(c, callee.u.macro, args, out);
    case J_LOOP:
        J_FAIL_IF(args->n_pos != 1 || args->n_kw != 0, c,
                  "loop() takes the one value to loop over");
        return jinja_call_loop(c, callee.u.loop, args->pos[0], out);
    case J_JOINER:
        J_FAIL_IF(args->n_pos != 0 || args->n_kw != 0, c, "a joiner takes no arguments");
        return jinja_call_joiner(c, callee, out);
    default: J_FAIL(c, "a value of type '%s' cannot be called", jv_type_name(callee));
    }
}

zp_status jinja_eval_call(struct jinja *c, const struct jnode *n, struct jv caller, struct jv *out)
{
    static const struct jstr caller_name = { .data = "caller", .size = 6, .n_char = 6 };
    struct jv callee;
    struct jargs args;
    ZP_TRY(jinja_eval(c, n->a, &callee));
    ZP_TRY(eval_arguments(c, &n->kids, &args));
    c->at = n->at;
    if (caller.kind != J_MISSING) ZP_TRY(add_keyword(c, &args, &caller_name, caller));
    return jinja_call(c, callee, &args, out);
}

static zp_status apply_filter(struct jinja *c, const struct jnode *n, struct jv value,
                              struct jv *out)
{
    struct jargs args;
    ZP_TRY(eval_arguments(c, &n->kids, &args));
    c->at = n->at;
    J_FAIL_IF(n->builtin == NULL, c, "there is no filter named '%.*s'", (int)n->text->size,
              n->text->data);
    return jinja_call_builtin(c, n->builtin, "filter", value, &args, out);
}

zp_status jinja_eval_filters(struct jinja *c, const struct jnode *n, struct jv text, struct jv *out)
{
    struct jv value = text;
    ZP_TRY(jinja_enter(c));
    if (n->a != NULL) ZP_TRY(jinja_eval_filters(c, n->a, text, &value));
    ZP_TRY(apply_filter(c, n, value, out));
    jinja_leave(c);
    return ZP_OK;
}

static zp_status eval_test(struct jinja *c, const struct jnode *n, struct jv *out)
{
    struct jv value;
    struct jargs args;
    ZP_TRY(jinja_eval(c, n->a, &value));
    ZP_TRY(eval_arguments(c, &n->kids, &args));
    c->at = n->at;
    J_FAIL_IF(n->builtin == NULL, c, "there is no test named '%.*s'", (int)n->text->size,
              n->text->data);
    return jinja_call_builtin(c, n->builtin, "test", value, &args, out);
}

/* ---- nodes ---- */

static zp_status eval_short_circuit(struct jinja *c, const struct jnode *n, struct jv *out)
{
    ZP_TRY(jinja_eval(c, n->a, out));
    return jv_truth(*out) == (n->kind == N_AND) ? jinja_eval(c, n->b, out) : ZP_OK;
}

static zp_status eval_condition(struct jinja *c, const struct jnode *n, struct jv *out)
{
    struct jv test;
    ZP_TRY(jinja_eval(c, n->a, &test));
    if (jv_truth(test)) return jinja_eval(c, n->b, out);
    if (n->c != NULL) return jinja_eval(c, n->c, out);
    *out = jv_undefined(J_MISSING, "the value of an 'if' without 'else'");
    return ZP_OK;
}

static zp_status eval_operands(struct jinja *c, const struct jnode *n, struct jv *a, struct jv *b)
{
    ZP_TRY(jinja_eval(c, n->a, a));
    if (n->b != NULL) ZP_TRY(jinja_eval(c, n->b, b));
    c->at = n->at;
    return ZP_OK;
}

static zp_status eval_operator(struct jinja *c, const struct jnode *n, struct jv *out)
{
    struct jv a, b = jv_missing();
    ZP_TRY(eval_operands(c, n, &a, &b));
    switch (n->kind) {
    case N_ATTR: return jinja_attribute(c, a, n->text, out);
    case N_ITEM: return jinja_item(c, a, b, out);
    case N_BINARY: return jinja_binary(c, n->op, a, b, out);
    case N_NOT: *out = jv_bool(!jv_truth(a)); return ZP_OK;
    case N_FILTER: return apply_filter(c, n, a, out);
    case N_NEG: return jinja_negate(c, a, out);
    default: /* N_POS */
        if (a.kind == J_UNDEFINED) return jv_fail_undefined(c, a);
        J_FAIL_IF(!jv_is_number(a), c, "'+' does not go with '%s'", jv_type_name(a));
        *out = a.kind == J_FLOAT ? a : jv_int(jv_as_int(a));
        return ZP_OK;
    }
}

static zp_status eval_node(struct jinja *c, const struct jnode *n, struct jv *out)
{
    switch (n->kind) {
    case N_CONST: *out = n->value; return ZP_OK;
    case N_NAME: *out = jscope_find(c, n->name); return ZP_OK;
    case N_LIST:
    case N_TUPLE: return eval_list(c, n, out);
    case N_DICT: return eval_dict(c, n, out);
    case N_SLICE: return eval_slice(c, n, out);
    case N_CALL: return jinja_eval_call(c, n, jv_missing(), out);
    case N_TEST: return eval_test(c, n, out);
    case N_COND: return eval_condition(c, n, out);
    case N_OR:
    case N_AND: return eval_short_circuit(c, n, out);
    case N_COMPARE: return eval_compare(c, n, out);
    case N_CONCAT: return eval_concat(c, n, out);
    case N_ATTR:
    case N_ITEM:
    case N_BINARY:
    case N_NOT:
    case N_FILTER:
    case N_NEG:
    case N_POS: return eval_operator(c, n, out);
    default: J_FAIL(c, "not an expression");
    }
}

zp_status jinja_eval(struct jinja *c, const struct jnode *n, struct jv *out)
{
    c->at = n->at;
    ZP_TRY(jinja_step(c, 1));
    ZP_TRY(jinja_enter(c));
    ZP_TRY(eval_node(c, n, out));
    jinja_leave(c);
    return ZP_OK;
}
