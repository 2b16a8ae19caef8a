/* jinja_parse.c: the statements of a chat template, and what both halves of the parser share.
 * P1 the tree holds no pointer into the token list, which is freed after parsing. */
#include "model/jinja_parse.h"

#include <string.h>

#include "base/bytes.h"
#include "model/jinja_expr.h"
#include "model/jinja_text.h"

static zp_status no_memory(struct jparser *p, size_t size)
{
    ZP_FAIL(p->err, ZP_NO_MEMORY, "not enough memory for the template (%zu bytes)", size);
}

bool jtoken_is_name(const struct jtoken *t, const char *name)
{
    return t->kind == T_NAME && strlen(name) == t->text_size &&
           memcmp(t->text, name, t->text_size) == 0;
}

bool jparse_skip(struct jparser *p, enum jtoken_kind kind)
{
    if (current(p)->kind != kind) return false;
    advance(p);
    return true;
}

bool jparse_skip_name(struct jparser *p, const char *name)
{
    if (!jtoken_is_name(current(p), name)) return false;
    advance(p);
    return true;
}

zp_status jparse_unexpected(struct jparser *p, const char *expected)
{
    const struct jtoken *t = current(p);
    bool quote = t->kind == T_NAME || t->kind == T_INT || t->kind == T_FLOAT || t->kind == T_STRING;
    int shown = (int)(t->size < 40 ? t->size : 40);
    if (quote)
        J_SYNTAX(p->program, t->at, p->err, "expected %s, found %.*s", expected, shown,
                 p->program->source + t->at);
    J_SYNTAX(p->program, t->at, p->err, "expected %s, found %s", expected, jtoken_name(t->kind));
}

zp_status jparse_expect(struct jparser *p, enum jtoken_kind kind)
{
    if (current(p)->kind != kind) return jparse_unexpected(p, jtoken_name(kind));
    advance(p);
    return ZP_OK;
}

zp_status jparse_expect_name(struct jparser *p, const char *name)
{
    return jparse_skip_name(p, name) ? ZP_OK : jparse_unexpected(p, name);
}

zp_status jparse_enter(struct jparser *p)
{
    if (p->depth >= JINJA_MAX_NESTING)
        J_SYNTAX(p->program, current(p)->at, p->err, "the template nests more than %d levels deep",
                 JINJA_MAX_NESTING);
    p->depth++;
    return ZP_OK;
}

zp_status jparse_node(struct jparser *p, enum jnode_kind kind, uint32_t at, struct jnode **out)
{
    *out = arena_alloc(&p->program->arena, sizeof **out);
    if (*out == NULL) return no_memory(p, sizeof **out);
    (*out)->kind = kind;
    (*out)->at = at;
    return ZP_OK;
}

zp_status jparse_append(struct jparser *p, struct jnodes *list, struct jnode *node)
{
    if (list->n == list->room) {
        size_t room = list->room == 0 ? 4 : list->room * 2;
        struct jnode **grown = arena_array(&p->program->arena, room, sizeof *grown);
        if (grown == NULL) return no_memory(p, room * sizeof *grown);
        if (list->n != 0) memcpy(grown, list->at, list->n * sizeof *grown);
        list->at = grown;
        list->room = room;
    }
    list->at[list->n++] = node;
    return ZP_OK;
}

zp_status jparse_text(struct jparser *p, const char *data, size_t size, const struct jstr **out)
{
    struct jstr *s = arena_alloc(&p->program->arena, sizeof *s);
    if (s == NULL) return no_memory(p, sizeof *s);
    *s = (struct jstr){ .data = data, .size = size, .n_char = jchar_count(data, size) };
    *out = s;
    return ZP_OK;
}

static uint32_t name_slot(const struct jinja_program *g, const char *name, size_t size)
{
    uint32_t slot = (uint32_t)hash_bytes(name, size, 0) & (g->n_index - 1);
    for (; g->name_index[slot] != 0; slot = (slot + 1) & (g->n_index - 1)) {
        const char *other = g->names[g->name_index[slot] - 1];
        if (strncmp(other, name, size) == 0 && other[size] == '\0') break;
    }
    return slot;
}

uint32_t jinja_find_name(const struct jinja_program *program, const char *name, size_t size)
{
    if (program->n_index == 0 || memchr(name, '\0', size) != NULL) return JINJA_NO_NAME;
    uint32_t found = program->name_index[name_slot(program, name, size)];
    return found == 0 ? JINJA_NO_NAME : found - 1;
}

static zp_status grow_names(struct jparser *p)
{
    struct jinja_program *g = p->program;
    uint32_t room = g->names_room == 0 ? 64 : g->names_room * 2;
    const char **names = arena_array(&g->arena, room, sizeof *names);
    uint32_t *index = arena_array(&g->arena, (size_t)room * 2, sizeof *index);
    if (names == NULL || index == NULL) return no_memory(p, room * sizeof *names);
    if (g->n_names != 0) memcpy(names, g->names, g->n_names * sizeof *names);
    g->names = names;
    g->names_room = room;
    g->name_index = index;
    g->n_index = room * 2;
    for (uint32_t i = 0; i < g->n_names; i++)
        index[name_slot(g, names[i], strlen(names[i]))] = i + 1;
    return ZP_OK;
}

static zp_status intern(struct jparser *p, const char *name, size_t size, uint32_t *id)
{
    struct jinja_program *g = p->program;
    *id = jinja_find_name(g, name, size);
    if (*id != JINJA_NO_NAME) return ZP_OK;
    if (g->n_names == g->names_room) ZP_TRY(grow_names(p));
    char *copy = arena_strndup(&g->arena, name, size);
    if (copy == NULL) return no_memory(p, size + 1);
    *id = g->n_names;
    g->names[g->n_names++] = copy;
    g->name_index[name_slot(g, copy, size)] = g->n_names;
    return ZP_OK;
}

zp_status jparse_intern(struct jparser *p, const struct jtoken *t, uint32_t *id)
{
    return intern(p, t->text, t->text_size, id);
}

/* Statements up to one of the end names, whose token becomes the current one. open = the
 * statement's node. */
static zp_status parse_statements(struct jparser *p, const char *const *ends,
                                  const struct jnode *open, struct jnodes *out);

static zp_status parse_body(struct jparser *p, const char *end1, const char *end2, const char *end3,
                            const struct jnode *open, struct jnodes *out)
{
    const char *ends[] = { end1, end2, end3, NULL };
    jparse_skip(p, T_COLON);
    ZP_TRY(jparse_expect(p, T_BLOCK_END));
    ZP_TRY(jparse_enter(p));
    ZP_TRY(parse_statements(p, ends, open, out));
    p->depth--;
    return ZP_OK;
}

static zp_status parse_for(struct jparser *p, struct jnode *n)
{
    n->kind = N_FOR;
    ZP_TRY(jparse_target(p, 0, "in", &n->a));
    ZP_TRY(jparse_expect_name(p, "in"));
    ZP_TRY(jparse_tuple(p, TUPLE_NO_COND, "recursive", &n->b));
    if (jparse_skip_name(p, "if")) ZP_TRY(jparse_expression(p, &n->c));
    n->flag = jparse_skip_name(p, "recursive");
    p->loops++;
    ZP_TRY(parse_body(p, "endfor", "else", NULL, n, &n->body));
    p->loops--;
    if (jparse_skip_name(p, "else")) ZP_TRY(parse_body(p, "endfor", NULL, NULL, n, &n->other));
    advance(p);
    return ZP_OK;
}

static zp_status parse_if(struct jparser *p, struct jnode *n)
{
    struct jnode *branch = n;
    n->kind = N_IF;
    for (;;) {
        ZP_TRY(jparse_tuple(p, TUPLE_NO_COND, NULL, &branch->a));
        ZP_TRY(parse_body(p, "elif", "else", "endif", n, &branch->body));
        if (!jtoken_is_name(current(p), "elif")) break;
        ZP_TRY(jparse_node(p, N_IF, current(p)->at, &branch));
        ZP_TRY(jparse_append(p, &n->kids, branch));
        advance(p);
    }
    if (jparse_skip_name(p, "else")) ZP_TRY(parse_body(p, "endif", NULL, NULL, n, &n->other));
    advance(p);
    return ZP_OK;
}

static zp_status parse_set(struct jparser *p, struct jnode *n)
{
    n->kind = N_SET;
    ZP_TRY(jparse_target(p, TUPLE_NAMESPACE, NULL, &n->a));
    if (jparse_skip(p, T_ASSIGN)) return jparse_tuple(p, 0, NULL, &n->b);
    n->kind = N_SET_BLOCK;
    ZP_TRY(jparse_filters(p, NULL, false, &n->b));
    ZP_TRY(parse_body(p, "endset", NULL, NULL, n, &n->body));
    advance(p);
    return ZP_OK;
}

static zp_status parse_with(struct jparser *p, struct jnode *n)
{
    n->kind = N_WITH;
    while (current(p)->kind != T_BLOCK_END) {
        struct jnode *target, *value;
        if (n->kids.n != 0) ZP_TRY(jparse_expect(p, T_COMMA));
        ZP_TRY(jparse_target(p, 0, NULL, &target));
        ZP_TRY(jparse_expect(p, T_ASSIGN));
        ZP_TRY(jparse_expression(p, &value));
        ZP_TRY(jparse_append(p, &n->kids, target));
        ZP_TRY(jparse_append(p, &n->kids, value));
    }
    ZP_TRY(parse_body(p, "endwith", NULL, NULL, n, &n->body));
    advance(p);
    return ZP_OK;
}

/* Parameters in parentheses; each is a N_NAME with its default, if any, in a. */
static zp_status parse_signature(struct jparser *p, struct jnodes *out)
{
    ZP_TRY(jparse_expect(p, T_LPAREN));
    bool defaults = false;
    while (current(p)->kind != T_RPAREN) {
        struct jnode *param;
        if (out->n != 0) ZP_TRY(jparse_expect(p, T_COMMA));
        ZP_TRY(jparse_name_target(p, &param));
        if (jparse_skip(p, T_ASSIGN)) {
            ZP_TRY(jparse_expression(p, &param->a));
            defaults = true;
        } else if (defaults) {
            J_SYNTAX(p->program, param->at, p->err,
                     "expected a default: the parameter before '%s' has one",
                     p->program->names[param->name]);
        }
        if (param->name == p->program->id_caller && param->a == NULL)
            J_SYNTAX(p->program, param->at, p->err, "the parameter 'caller' needs a default");
        ZP_TRY(jparse_append(p, out, param));
    }
    return jparse_expect(p, T_RPAREN);
}

/* The body of a macro or call block: its own function, so loops outside cannot be broken from
 * inside. */
static zp_status parse_macro_body(struct jparser *p, const char *end, struct jnode *n)
{
    struct jopen_macro open = { .node = n, .up = p->macro };
    uint32_t loops = p->loops;
    p->macro = &open;
    p->loops = 0;
    zp_status status = parse_body(p, end, NULL, NULL, n, &n->body);
    p->macro = open.up;
    p->loops = loops;
    ZP_TRY(status);
    advance(p);
    return ZP_OK;
}

static zp_status parse_macro(struct jparser *p, struct jnode *n)
{
    struct jnode *name;
    n->kind = N_MACRO;
    ZP_TRY(jparse_name_target(p, &name));
    n->name = name->name;
    ZP_TRY(parse_signature(p, &n->kids));
    return parse_macro_body(p, "endmacro", n);
}

static zp_status parse_call_block(struct jparser *p, struct jnode *n)
{
    n->kind = N_CALL_BLOCK;
    if (current(p)->kind == T_LPAREN) ZP_TRY(parse_signature(p, &n->kids));
    uint32_t at = current(p)->at;
    ZP_TRY(jparse_expression(p, &n->a));
    if (n->a->kind != N_CALL) J_SYNTAX(p->program, at, p->err, "expected a call such as name(...)");
    return parse_macro_body(p, "endcall", n);
}

static zp_status parse_filter_block(struct jparser *p, struct jnode *n)
{
    n->kind = N_FILTER_BLOCK;
    ZP_TRY(jparse_filters(p, NULL, true, &n->a));
    ZP_TRY(parse_body(p, "endfilter", NULL, NULL, n, &n->body));
    advance(p);
    return ZP_OK;
}

static zp_status parse_print(struct jparser *p, struct jnode *n)
{
    n->kind = N_PRINT;
    while (current(p)->kind != T_BLOCK_END) {
        struct jnode *value;
        if (n->kids.n != 0) ZP_TRY(jparse_expect(p, T_COMMA));
        ZP_TRY(jparse_expression(p, &value));
        ZP_TRY(jparse_append(p, &n->kids, value));
    }
    return ZP_OK;
}

static zp_status parse_generation(struct jparser *p, struct jnode *n)
{
    n->kind = N_GENERATION;
    return parse_macro_body(p, "endgeneration", n);
}

static zp_status parse_break(struct jparser *p, struct jnode *n)
{
    n->kind = N_BREAK;
    if (p->loops == 0) J_SYNTAX(p->program, n->at, p->err, "'break' stands outside a loop");
    return ZP_OK;
}

static zp_status parse_continue(struct jparser *p, struct jnode *n)
{
    n->kind = N_CONTINUE;
    if (p->loops == 0) J_SYNTAX(p->program, n->at, p->err, "'continue' stands outside a loop");
    return ZP_OK;
}

static zp_status parse_statement(struct jparser *p, struct jnode **out)
{
    static const struct {
        const char *name;
        zp_status (*parse)(struct jparser *p, struct jnode *n);
    } tags[] = {
        { "for", parse_for },
        { "if", parse_if },
        { "set", parse_set },
        { "with", parse_with },
        { "macro", parse_macro },
        { "call", parse_call_block },
        { "filter", parse_filter_block },
        { "print", parse_print },
        { "generation", parse_generation },
        { "break", parse_break },
        { "continue", parse_continue },
    };
    const struct jtoken *t = current(p);
    if (t->kind != T_NAME) return jparse_unexpected(p, "the name of a statement");
    for (size_t i = 0; i < ZP_COUNT(tags); i++) {
        if (!jtoken_is_name(t, tags[i].name)) continue;
        ZP_TRY(jparse_node(p, N_DATA, t->at, out));
        advance(p);
        return tags[i].parse(p, *out);
    }
    int shown = (int)(t->text_size < 40 ? t->text_size : 40);
    J_SYNTAX(p->program, t->at, p->err,
             "expected for, if, set, with, macro, call, filter, print, generation, break or "
             "continue, found '%.*s'",
             shown, t->text);
}

static zp_status parse_data(struct jparser *p, struct jnodes *out)
{
    const struct jtoken *t = current(p);
    struct jnode *n;
    const struct jstr *s;
    ZP_TRY(jparse_node(p, N_DATA, t->at, &n));
    ZP_TRY(jparse_text(p, t->text, t->text_size, &s));
    n->value = jv_str(s);
    advance(p);
    return jparse_append(p, out, n);
}

static zp_status parse_variable(struct jparser *p, struct jnodes *out)
{
    struct jnode *n, *value;
    ZP_TRY(jparse_node(p, N_PRINT, current(p)->at, &n));
    advance(p);
    ZP_TRY(jparse_tuple(p, 0, NULL, &value));
    ZP_TRY(jparse_append(p, &n->kids, value));
    ZP_TRY(jparse_expect(p, T_VAR_END));
    return jparse_append(p, out, n);
}

static bool at_end_name(const struct jparser *p, const char *const *ends)
{
    for (; *ends != NULL; ends++)
        if (jtoken_is_name(current(p), *ends)) return true;
    return false;
}

static zp_status unclosed(struct jparser *p, const char *const *ends, const struct jnode *open)
{
    uint32_t line, column;
    jinja_locate(p->program->source, p->program->size, open->at, &line, &column);
    J_SYNTAX(
        p->program, current(p)->at, p->err,
        "the template ends but the statement of line %u, column %u is open; expected '{%% %s %%}'",
        line, column, ends[2] != NULL ? ends[2] : ends[0]);
}

static zp_status parse_statements(struct jparser *p, const char *const *ends,
                                  const struct jnode *open, struct jnodes *out)
{
    for (;;) {
        struct jnode *n = NULL;
        switch (current(p)->kind) {
        case T_END: return ends[0] == NULL ? ZP_OK : unclosed(p, ends, open);
        case T_DATA: ZP_TRY(parse_data(p, out)); break;
        case T_VAR_BEGIN: ZP_TRY(parse_variable(p, out)); break;
        default:
            ZP_TRY(jparse_expect(p, T_BLOCK_BEGIN));
            if (at_end_name(p, ends)) return ZP_OK;
            ZP_TRY(parse_statement(p, &n));
            ZP_TRY(jparse_append(p, out, n));
            ZP_TRY(jparse_expect(p, T_BLOCK_END));
        }
    }
}

/* Copies the source with \n line ends and without the one newline that may end it. */
static zp_status copy_source(struct jparser *p, const char *source, size_t size)
{
    struct jinja_program *g = p->program;
    char *copy = arena_alloc(&g->arena, size + 1);
    if (copy == NULL) return no_memory(p, size + 1);
    size_t n = 0;
    for (size_t i = 0; i < size; i++) {
        if (source[i] == '\r') {
            copy[n++] = '\n';
            i += i + 1 < size && source[i + 1] == '\n';
        } else {
            copy[n++] = source[i];
        }
    }
    if (n != 0 && copy[n - 1] == '\n') n--;
    g->source = copy;
    g->size = n;
    return ZP_OK;
}

static zp_status parse_all(struct jparser *p, const char *source, size_t size, const char *name)
{
    struct jinja_program *g = p->program;
    static const char *const no_end[] = { NULL };
    static const char *const special[] = { "loop", "caller", "varargs", "kwargs" };
    uint32_t *ids[] = { &g->id_loop, &g->id_caller, &g->id_varargs, &g->id_kwargs };
    g->arena.tag = MEM_META;
    g->name = arena_strndup(&g->arena, name, strlen(name));
    if (g->name == NULL) return no_memory(p, strlen(name) + 1);
    size_t bad;
    ZP_FAIL_IF(size > JINJA_MAX_SOURCE, p->err, ZP_BAD_FILE,
               "%s: the template has %zu bytes; the limit is %zu", name, size, JINJA_MAX_SOURCE);
    ZP_FAIL_IF(!utf8_is_valid(source, size, &bad), p->err, ZP_BAD_FILE,
               "%s: the template is not UTF-8 (byte %zu)", name, bad);
    ZP_TRY(copy_source(p, source, size));
    for (size_t i = 0; i < ZP_COUNT(special); i++)
        ZP_TRY(intern(p, special[i], strlen(special[i]), ids[i]));
    ZP_TRY(jinja_lex(g, &p->tokens, p->err));
    return parse_statements(p, no_end, NULL, &g->body);
}

zp_status jinja_parse(struct jinja_program *program, const char *source, size_t size,
                      const char *name, zp_err *err)
{
    struct jparser p = { .program = program, .err = err };
    zp_status status = parse_all(&p, source, size, name);
    mem_free(p.tokens.at);
    return status;
}

void jinja_program_free(struct jinja_program *program)
{
    arena_free(&program->arena);
    *program = (struct jinja_program){ 0 };
}
