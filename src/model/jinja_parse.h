/* jinja_parse.h: from the source of a chat template to its tree. */
#ifndef MODEL_JINJA_PARSE_H
#define MODEL_JINJA_PARSE_H

#include "model/jinja_lex.h"

#define JINJA_MAX_SOURCE ((size_t)1 << 20)
#define JINJA_MAX_NESTING                                                                          \
    100 /* of expressions and statements together: bounds the parser's C stack */

/* Macros and call blocks being parsed, innermost first: they learn which special names their bodies
 * use. */
struct open_macro {
    struct node *node;
    struct open_macro *up;
};

struct parser {
    struct jinja_program *program;
    struct token_list tokens;
    size_t at;             /* current token */
    uint32_t depth, loops; /* nesting; loops open in this macro */
    struct open_macro *macro;
    zp_err *err;
};

/* Fills a zeroed program. On failure (ZP_BAD_FILE with line and column, ZP_NO_MEMORY) free it as
 * well. */
zp_status jinja_parse(struct jinja_program *program, const char *source, size_t size,
                      const char *name, zp_err *err);
void jinja_program_free(struct jinja_program *program);
#define JINJA_NO_NAME UINT32_MAX
uint32_t jinja_find_name(const struct jinja_program *program, const char *name, size_t size);

/* Shared by the two halves of the parser. */
ZP_INLINE const struct token *current(const struct parser *p)
{
    return &p->tokens.at[p->at];
}
ZP_INLINE const struct token *look(const struct parser *p)
{
    return &p->tokens.at[p->at + (p->tokens.at[p->at].kind != T_END)];
}
ZP_INLINE void advance(struct parser *p)
{
    p->at += p->tokens.at[p->at].kind != T_END;
}
bool token_is_name(const struct token *t, const char *name);
bool parse_skip(struct parser *p, enum token_kind kind);
bool parse_skip_name(struct parser *p, const char *name);
zp_status parse_expect(struct parser *p, enum token_kind kind);
zp_status parse_expect_name(struct parser *p, const char *name);
zp_status parse_enter(struct parser *p);
zp_status parse_unexpected(struct parser *p, const char *expected);
zp_status parse_node(struct parser *p, enum node_kind kind, uint32_t at, struct node **out);
zp_status parse_append(struct parser *p, struct nodes *list, struct node *node);
zp_status parse_intern(struct parser *p, const struct token *t, uint32_t *id);
zp_status parse_text(struct parser *p, const char *data, size_t size, const struct jstr **out);

#endif
