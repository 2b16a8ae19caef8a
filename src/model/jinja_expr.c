/* jinja_expr.c: the expressions of a chat template, one function a level of precedence, loosest
 * first. */
#include "model/jinja_expr.h"

#include <string.h>

#include "model/jinja_builtin.h"
#include "model/jinja_text.h"

typedef zp_status (*level_fn)(struct jparser *p, struct jnode **out);

static zp_status parse_or(struct jparser *p, struct jnode **out);
static zp_status parse_unary(struct jparser *p, bool with_filter, struct jnode **out);
static zp_status parse_primary(struct jparser *p, unsigned flags, struct jnode **out);
static zp_status parse_postfix(struct jparser *p, struct jnode *node, struct jnode **out);

static zp_status join_two(struct jparser *p, enum jnode_kind kind, struct jnode *a, struct jnode *b,
                          uint32_t at, struct jnode **out)
{
    ZP_TRY(jparse_node(p, kind, at, out));
    (*out)->a = a;
    (*out)->b = b;
    return ZP_OK;
}

zp_status jparse_expression(struct jparser *p, struct jnode **out)
{
    ZP_TRY(jparse_enter(p));
    ZP_TRY(parse_or(p, out));
    while (jtoken_is_name(current(p), "if")) {
        struct jnode *cond, *test, *other = NULL;
        ZP_TRY(jparse_node(p, N_COND, current(p)->at, &cond));
        advance(p);
        ZP_TRY(parse_or(p, &test));
        if (jparse_skip_name(p, "else")) ZP_TRY(jparse_expression(p, &other));
        cond->a = test;
        cond->b = *out;
        cond->c = other;
        *out = cond;
    }
    p->depth--;
    return ZP_OK;
}

static zp_status parse_compare(struct jparser *p, struct jnode **out);

static zp_status parse_not(struct jparser *p, struct jnode **out)
{
    if (!jtoken_is_name(current(p), "not")) return parse_compare(p, out);
    struct jnode * not ;
    ZP_TRY(jparse_enter(p));
    ZP_TRY(jparse_node(p, N_NOT, current(p)->at, &not ));
    advance(p);
    ZP_TRY(parse_not(p, &not ->a));
    p->depth--;
    *out = not ;
    return ZP_OK;
}

static zp_status parse_and(struct jparser *p, struct jnode **out)
{
    ZP_TRY(parse_not(p, out));
    while (jtoken_is_name(current(p), "and")) {
        uint32_t at = current(p)->at;
        struct jnode *right;
        advance(p);
        ZP_TRY(parse_not(p, &right));
        ZP_TRY(join_two(p, N_AND, *out, right, at, out));
    }
    return ZP_OK;
}

static zp_status parse_or(struct jparser *p, struct jnode **out)
{
    ZP_TRY(parse_and(p, out));
    while (jtoken_is_name(current(p), "or")) {
        uint32_t at = current(p)->at;
        struct jnode *right;
        advance(p);
        ZP_TRY(parse_and(p, &right));
        ZP_TRY(join_two(p, N_OR, *out, right, at, out));
    }
    return ZP_OK;
}

/* Left-associative operators of one level. */
struct level {
    enum jtoken_kind token;
    enum jnode_op op;
};
static zp_status parse_level(struct jparser *p, const struct level *ops, size_t n_ops,
                             level_fn next, struct jnode **out)
{
    ZP_TRY(next(p, out));
    for (;;) {
        size_t i = 0;
        while (i < n_ops && ops[i].token != current(p)->kind) i++;
        if (i == n_ops) return ZP_OK;
        uint32_t at = current(p)->at;
        struct jnode *right;
        advance(p);
        ZP_TRY(next(p, &right));
        ZP_TRY(join_two(p, N_BINARY, *out, right, at, out));
        (*out)->op = ops[i].op;
    }
}

static zp_status parse_filtered(struct jparser *p, struct jnode **out)
{
    return parse_unary(p, true, out);
}

static zp_status parse_power(struct jparser *p, struct jnode **out)
{
    static const struct level ops[] = { { T_POW, OP_POW } };
    return parse_level(p, ops, ZP_COUNT(ops), parse_filtered, out);
}

static zp_status parse_product(struct jparser *p, struct jnode **out)
{
    static const struct level ops[] = {
        { T_MUL, OP_MUL }, { T_DIV, OP_DIV }, { T_FLOORDIV, OP_FLOORDIV }, { T_MOD, OP_MOD }
    };
    return parse_level(p, ops, ZP_COUNT(ops), parse_power, out);
}

static zp_status parse_concat(struct jparser *p, struct jnode **out)
{
    ZP_TRY(parse_product(p, out));
    if (current(p)->kind != T_TILDE) return ZP_OK;
    struct jnode *concat;
    ZP_TRY(jparse_node(p, N_CONCAT, current(p)->at, &concat));
    ZP_TRY(jparse_append(p, &concat->kids, *out));
    while (jparse_skip(p, T_TILDE)) {
        struct jnode *right;
        ZP_TRY(parse_product(p, &right));
        ZP_TRY(jparse_append(p, &concat->kids, right));
    }
    *out = concat;
    return ZP_OK;
}

static zp_status parse_sum(struct jparser *p, struct jnode **out)
{
    static const struct level ops[] = { { T_ADD, OP_ADD }, { T_SUB, OP_SUB } };
    return parse_level(p, ops, ZP_COUNT(ops), parse_concat, out);
}

/* Consumes a comparison operator; false if none stands here. */
static bool skip_comparison(struct jparser *p, enum jnode_op *op)
{
    static const struct level ops[] = { { T_EQ, OP_EQ }, { T_NE, OP_NE }, { T_LT, OP_LT },
                                        { T_LE, OP_LE }, { T_GT, OP_GT }, { T_GE, OP_GE } };
    for (size_t i = 0; i < ZP_COUNT(ops); i++) {
        if (current(p)->kind != ops[i].token) continue;
        *op = ops[i].op;
        advance(p);
        return true;
    }
    bool negated = jtoken_is_name(current(p), "not") && jtoken_is_name(look(p), "in");
    if (!negated && !jtoken_is_name(current(p), "in")) return false;
    *op = negated ? OP_NOT_IN : OP_IN;
    if (negated) advance(p);
    advance(p);
    return true;
}

static zp_status parse_compare(struct jparser *p, struct jnode **out)
{
    ZP_TRY(parse_sum(p, out));
    struct jnode *compare = NULL;
    for (;;) {
        uint32_t at = current(p)->at;
        enum jnode_op op;
        struct jnode *operand;
        if (!skip_comparison(p, &op)) break;
        if (compare == NULL) {
            ZP_TRY(jparse_node(p, N_COMPARE, at, &compare));
            compare->a = *out;
        }
        ZP_TRY(jparse_node(p, N_COMPARE, at, &operand));
        operand->op = op;
        ZP_TRY(parse_sum(p, &operand->a));
        ZP_TRY(jparse_append(p, &compare->kids, operand));
    }
    if (compare != NULL) *out = compare;
    return ZP_OK;
}

/* One argument: value, name=value, *list or **dict. The order Python asks for is kept by `stage`.
 */
static zp_status parse_argument(struct jparser *p, int *stage, struct jnode **out)
{
    const struct jtoken *t = current(p);
    enum jnode_kind kind = t->kind == T_MUL ? N_STAR : t->kind == T_POW ? N_STAR_STAR : N_KEYWORD;
    bool keyword = t->kind == T_NAME && look(p)->kind == T_ASSIGN;
    int rank = kind == N_STAR ? 2 : kind == N_STAR_STAR ? 3 : keyword ? 1 : 0;
    bool fits = rank == 0 ? *stage == 0 : rank == 1 ? *stage < 3 : *stage < rank;
    if (!fits)
        J_SYNTAX(p->program, t->at, p->err, "this argument may not stand behind the one before it");
    if (rank > *stage) *stage = rank;
    if (rank == 0) return jparse_expression(p, out);
    ZP_TRY(jparse_node(p, kind, t->at, out));
    if (keyword) ZP_TRY(jparse_text(p, t->text, t->text_size, &(*out)->text));
    advance(p);
    if (keyword) advance(p);
    return jparse_expression(p, &(*out)->a);
}

static zp_status parse_arguments(struct jparser *p, struct jnodes *out)
{
    int stage = 0;
    ZP_TRY(jparse_expect(p, T_LPAREN));
    while (current(p)->kind != T_RPAREN) {
        if (out->n != 0) {
            ZP_TRY(jparse_expect(p, T_COMMA));
            if (current(p)->kind == T_RPAREN) break;
        }
        struct jnode *arg;
        ZP_TRY(parse_argument(p, &stage, &arg));
        ZP_TRY(jparse_append(p, out, arg));
    }
    return jparse_expect(p, T_RPAREN);
}

static zp_status parse_call(struct jparser *p, struct jnode *callee, struct jnode **out)
{
    struct jnode *call;
    ZP_TRY(jparse_node(p, N_CALL, callee->at, &call));
    call->a = callee;
    ZP_TRY(parse_arguments(p, &call->kids));
    *out = call;
    return ZP_OK;
}

/* A filter or test name, which may have dots in it. */
static zp_status parse_dotted(struct jparser *p, const char *what, const struct jstr **out)
{
    const struct jtoken *t = current(p);
    if (t->kind != T_NAME) return jparse_unexpected(p, what);
    size_t size = t->text_size;
    advance(p);
    while (current(p)->kind == T_DOT && look(p)->kind == T_NAME) {
        advance(p);
        size = (size_t)(current(p)->text + current(p)->text_size - t->text);
        advance(p);
    }
    return jparse_text(p, t->text, size, out);
}

zp_status jparse_filters(struct jparser *p, struct jnode *input, bool inline_first,
                         struct jnode **out)
{
    *out = input;
    while (inline_first || current(p)->kind == T_PIPE) {
        if (!inline_first) advance(p);
        inline_first = false;
        struct jnode *filter;
        ZP_TRY(jparse_node(p, N_FILTER, current(p)->at, &filter));
        ZP_TRY(parse_dotted(p, "the name of a filter", &filter->text));
        filter->builtin = jinja_find_filter(filter->text->data, filter->text->size);
        filter->a = *out;
        if (current(p)->kind == T_LPAREN) ZP_TRY(parse_arguments(p, &filter->kids));
        *out = filter;
    }
    return ZP_OK;
}

/* Behind a test's name: does its one argument follow without parentheses? */
static bool bare_argument_follows(const struct jparser *p)
{
    const struct jtoken *t = current(p);
    switch (t->kind) {
    case T_NAME:
        return !jtoken_is_name(t, "else") && !jtoken_is_name(t, "or") && !jtoken_is_name(t, "and");
    case T_STRING:
    case T_INT:
    case T_FLOAT:
    case T_LBRACKET:
    case T_LBRACE: return true;
    default: return false;
    }
}

static zp_status parse_test(struct jparser *p, struct jnode *value, struct jnode **out)
{
    struct jnode *test;
    advance(p);
    bool negated = jparse_skip_name(p, "not");
    ZP_TRY(jparse_node(p, N_TEST, current(p)->at, &test));
    ZP_TRY(parse_dotted(p, "the name of a test", &test->text));
    test->builtin = jinja_find_test(test->text->data, test->text->size);
    test->a = value;
    if (current(p)->kind == T_LPAREN) {
        ZP_TRY(parse_arguments(p, &test->kids));
    } else if (bare_argument_follows(p)) {
        if (jtoken_is_name(current(p), "is"))
            J_SYNTAX(p->program, current(p)->at, p->err, "tests cannot be chained with 'is'");
        struct jnode *arg;
        ZP_TRY(parse_primary(p, 0, &arg));
        ZP_TRY(parse_postfix(p, arg, &arg));
        ZP_TRY(jparse_append(p, &test->kids, arg));
    }
    *out = test;
    if (!negated) return ZP_OK;
    ZP_TRY(jparse_node(p, N_NOT, test->at, out));
    (*out)->a = test;
    return ZP_OK;
}

static zp_status parse_filters_and_tests(struct jparser *p, struct jnode *node, struct jnode **out)
{
    for (;;) {
        if (current(p)->kind == T_PIPE) ZP_TRY(jparse_filters(p, node, false, &node));
        else if (jtoken_is_name(current(p), "is")) ZP_TRY(parse_test(p, node, &node));
        else if (current(p)->kind == T_LPAREN) ZP_TRY(parse_call(p, node, &node));
        else break;
    }
    *out = node;
    return ZP_OK;
}

static zp_status parse_attribute(struct jparser *p, struct jnode *object, struct jnode **out)
{
    const struct jtoken *t = look(p);
    advance(p);
    if (t->kind != T_NAME && t->kind != T_INT)
        return jparse_unexpected(p, "a name or number behind '.'");
    ZP_TRY(jparse_node(p, t->kind == T_NAME ? N_ATTR : N_ITEM, t->at, out));
    (*out)->a = object;
    advance(p);
    if (t->kind == T_NAME) {
        uint32_t id;
        ZP_TRY(jparse_intern(p, t, &id));
        (*out)->name = id;
        return jparse_text(p, t->text, t->text_size, &(*out)->text);
    }
    ZP_TRY(jparse_node(p, N_CONST, t->at, &(*out)->b));
    (*out)->b->value = jv_int(t->i);
    return ZP_OK;
}

static bool ends_slice_part(const struct jparser *p)
{
    enum jtoken_kind kind = current(p)->kind;
    return kind == T_COLON || kind == T_RBRACKET || kind == T_COMMA;
}

/* index, or start:stop:step with any part left out (kept as N_SLICE without an object). */
static zp_status parse_subscript(struct jparser *p, struct jnode **out)
{
    struct jnode *first = NULL;
    uint32_t at = current(p)->at;
    if (current(p)->kind != T_COLON) ZP_TRY(jparse_expression(p, &first));
    if (current(p)->kind != T_COLON) {
        *out = first;
        return ZP_OK;
    }
    advance(p);
    ZP_TRY(jparse_node(p, N_SLICE, at, out));
    (*out)->b = first;
    if (!ends_slice_part(p)) ZP_TRY(jparse_expression(p, &(*out)->c));
    if (jparse_skip(p, T_COLON) && !ends_slice_part(p)) ZP_TRY(jparse_expression(p, &(*out)->d));
    return ZP_OK;
}

/* object[index], object[start:stop:step], and object[a, b], whose index is a tuple. */
static zp_status parse_item(struct jparser *p, struct jnode *object, struct jnode **out)
{
    struct jnode *item, *index = NULL;
    struct jnodes parts = { 0 };
    uint32_t at = current(p)->at;
    advance(p);
    while (current(p)->kind != T_RBRACKET) {
        if (parts.n != 0) ZP_TRY(jparse_expect(p, T_COMMA));
        ZP_TRY(parse_subscript(p, &index));
        ZP_TRY(jparse_append(p, &parts, index));
    }
    advance(p);
    if (parts.n == 1 && index->kind == N_SLICE && index->a == NULL) {
        index->a = object;
        *out = index;
        return ZP_OK;
    }
    if (parts.n != 1) {
        ZP_TRY(jparse_node(p, N_TUPLE, at, &index));
        index->kids = parts;
    }
    for (size_t i = 0; i < parts.n; i++)
        if (parts.at[i]->kind == N_SLICE && parts.at[i]->a == NULL)
            J_SYNTAX(p->program, parts.at[i]->at, p->err, "a slice cannot be a part of an index");
    ZP_TRY(jparse_node(p, N_ITEM, at, &item));
    item->a = object;
    item->b = index;
    *out = item;
    return ZP_OK;
}

static zp_status parse_postfix(struct jparser *p, struct jnode *node, struct jnode **out)
{
    for (;;) {
        enum jtoken_kind kind = current(p)->kind;
        if (kind == T_DOT) ZP_TRY(parse_attribute(p, node, &node));
        else if (kind == T_LBRACKET) ZP_TRY(parse_item(p, node, &node));
        else if (kind == T_LPAREN) ZP_TRY(parse_call(p, node, &node));
        else break;
    }
    *out = node;
    return ZP_OK;
}

static zp_status parse_unary(struct jparser *p, bool with_filter, struct jnode **out)
{
    enum jtoken_kind kind = current(p)->kind;
    struct jnode *node;
    if (kind == T_SUB || kind == T_ADD) {
        ZP_TRY(jparse_enter(p));
        ZP_TRY(jparse_node(p, kind == T_SUB ? N_NEG : N_POS, current(p)->at, &node));
        advance(p);
        ZP_TRY(parse_unary(p, false, &node->a));
        p->depth--;
    } else {
        ZP_TRY(parse_primary(p, 0, &node));
    }
    ZP_TRY(parse_postfix(p, node, &node));
    if (with_filter) ZP_TRY(parse_filters_and_tests(p, node, &node));
    *out = node;
    return ZP_OK;
}

/* Items up to `end`; a dictionary's keys and values alternate. A comma may stand last. */
static zp_status parse_items(struct jparser *p, enum jtoken_kind end, bool pairs,
                             struct jnodes *out)
{
    advance(p);
    while (current(p)->kind != end) {
        struct jnode *item;
        if (out->n != 0) {
            ZP_TRY(jparse_expect(p, T_COMMA));
            if (current(p)->kind == end) break;
        }
        ZP_TRY(jparse_expression(p, &item));
        ZP_TRY(jparse_append(p, out, item));
        if (!pairs) continue;
        ZP_TRY(jparse_expect(p, T_COLON));
        ZP_TRY(jparse_expression(p, &item));
        ZP_TRY(jparse_append(p, out, item));
    }
    return jparse_expect(p, end);
}

static void note_special_name(struct jparser *p, uint32_t id)
{
    const struct jinja_program *g = p->program;
    for (struct jopen_macro *m = p->macro; m != NULL; m = m->up) {
        m->node->uses_varargs |= id == g->id_varargs;
        m->node->uses_kwargs |= id == g->id_kwargs;
        m->node->uses_caller |= id == g->id_caller;
    }
}

static zp_status parse_name(struct jparser *p, unsigned flags, struct jnode **out)
{
    static const struct {
        const char *name;
        struct jv value;
    } constants[] = {
        { "true", { .kind = J_BOOL, .u.b = true } },
        { "True", { .kind = J_BOOL, .u.b = true } },
        { "false", { .kind = J_BOOL } },
        { "False", { .kind = J_BOOL } },
        { "none", { .kind = J_NONE } },
        { "None", { .kind = J_NONE } },
    };
    const struct jtoken *t = current(p);
    advance(p);
    for (size_t i = 0; i < ZP_COUNT(constants); i++) {
        if (!jtoken_is_name(t, constants[i].name)) continue;
        ZP_TRY(jparse_node(p, N_CONST, t->at, out));
        (*out)->value = constants[i].value;
        return ZP_OK;
    }
    bool ns_ref = (flags & TUPLE_NAMESPACE) && current(p)->kind == T_DOT;
    ZP_TRY(jparse_node(p, ns_ref ? N_NS_REF : N_NAME, t->at, out));
    ZP_TRY(jparse_intern(p, t, &(*out)->name));
    if (!ns_ref) {
        note_special_name(p, (*out)->name);
        return ZP_OK;
    }
    advance(p);
    t = current(p);
    ZP_TRY(jparse_expect(p, T_NAME));
    return jparse_text(p, t->text, t->text_size, &(*out)->text);
}

/* Strings that follow each other are one. */
static zp_status parse_strings(struct jparser *p, struct jnode **out)
{
    const struct jtoken *first = current(p);
    size_t size = 0, n = 0;
    for (const struct jtoken *t = first; t->kind == T_STRING; t++) size += t->text_size;
    ZP_TRY(jparse_node(p, N_CONST, first->at, out));
    const struct jstr *s;
    if (look(p)->kind != T_STRING) {
        ZP_TRY(jparse_text(p, first->text, size, &s));
        advance(p);
    } else {
        char *data = arena_alloc(&p->program->arena, size);
        ZP_FAIL_IF(data == NULL, p->err, ZP_NO_MEMORY,
                   "not enough memory for the template (%zu bytes)", size);
        for (; current(p)->kind == T_STRING; advance(p)) {
            memcpy(data + n, current(p)->text, current(p)->text_size);
            n += current(p)->text_size;
        }
        ZP_TRY(jparse_text(p, data, size, &s));
    }
    (*out)->value = jv_str(s);
    return ZP_OK;
}

static zp_status parse_primary(struct jparser *p, unsigned flags, struct jnode **out)
{
    const struct jtoken *t = current(p);
    switch (t->kind) {
    case T_NAME: return parse_name(p, flags, out);
    case T_STRING: return parse_strings(p, out);
    case T_INT:
    case T_FLOAT:
        ZP_TRY(jparse_node(p, N_CONST, t->at, out));
        (*out)->value = t->kind == T_INT ? jv_int(t->i) : jv_float(t->f);
        advance(p);
        return ZP_OK;
    case T_LPAREN:
        ZP_TRY(jparse_enter(p));
        advance(p);
        ZP_TRY(jparse_tuple(p, TUPLE_PARENS, NULL, out));
        p->depth--;
        return jparse_expect(p, T_RPAREN);
    case T_LBRACKET:
        ZP_TRY(jparse_node(p, N_LIST, t->at, out));
        return parse_items(p, T_RBRACKET, false, &(*out)->kids);
    case T_LBRACE:
        ZP_TRY(jparse_node(p, N_DICT, t->at, out));
        return parse_items(p, T_RBRACE, true, &(*out)->kids);
    default: return jparse_unexpected(p, "an expression");
    }
}

static bool ends_tuple(const struct jparser *p, const char *end_name)
{
    enum jtoken_kind kind = current(p)->kind;
    return kind == T_VAR_END || kind == T_BLOCK_END || kind == T_RPAREN ||
           (end_name != NULL && jtoken_is_name(current(p), end_name));
}

zp_status jparse_tuple(struct jparser *p, unsigned flags, const char *end_name, struct jnode **out)
{
    uint32_t at = current(p)->at;
    struct jnodes items = { 0 };
    bool is_tuple = false;
    for (;;) {
        if (items.n != 0) ZP_TRY(jparse_expect(p, T_COMMA));
        if (ends_tuple(p, end_name)) break;
        struct jnode *item;
        if (flags & TUPLE_SIMPLE) ZP_TRY(parse_primary(p, flags, &item));
        else if (flags & TUPLE_NO_COND) ZP_TRY(parse_or(p, &item));
        else ZP_TRY(jparse_expression(p, &item));
        ZP_TRY(jparse_append(p, &items, item));
        if (current(p)->kind != T_COMMA) break;
        is_tuple = true;
    }
    if (!is_tuple && items.n == 1) {
        *out = items.at[0];
        return ZP_OK;
    }
    if (!is_tuple && !(flags & TUPLE_PARENS)) return jparse_unexpected(p, "an expression");
    ZP_TRY(jparse_node(p, N_TUPLE, at, out));
    (*out)->kids = items;
    return ZP_OK;
}

static zp_status check_target(struct jparser *p, const struct jnode *n)
{
    if (n->kind == N_NAME || n->kind == N_NS_REF) return ZP_OK;
    if (n->kind != N_TUPLE) J_SYNTAX(p->program, n->at, p->err, "expected a name to assign to");
    for (size_t i = 0; i < n->kids.n; i++) ZP_TRY(check_target(p, n->kids.at[i]));
    return ZP_OK;
}

zp_status jparse_target(struct jparser *p, unsigned flags, const char *end_name, struct jnode **out)
{
    ZP_TRY(jparse_tuple(p, flags | TUPLE_SIMPLE, end_name, out));
    return check_target(p, *out);
}

zp_status jparse_name_target(struct jparser *p, struct jnode **out)
{
    const struct jtoken *t = current(p);
    if (t->kind != T_NAME) return jparse_unexpected(p, "a name");
    ZP_TRY(parse_name(p, 0, out));
    return check_target(p, *out);
}
