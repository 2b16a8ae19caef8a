/* jinja_parse.h: from the source of a chat template to its tree. */
#ifndef MODEL_JINJA_PARSE_H
#define MODEL_JINJA_PARSE_H

#include "model/jinja_lex.h"

#define JINJA_MAX_SOURCE ((size_t)1 << 20)
#define JINJA_MAX_NESTING                                                                          \
    100 /* of expressions and statements together: bounds the parser's C stack */

/* Macros and call blocks being parsed, innermost first: they learn which special names their bodies
 * use. */
struct jopen_macro {
    struct jnode *node;
    struct jopen_macro *up;
};

struct jparser {
    struct jinja_program *program;
    struct jtoken_list tokens;
    size_t at;             /* current token */
    uint32_t depth, loops; /* nesting; loops open in this macro */
    struct jopen_macro *macro;
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
ZP_INLINE const struct jtoken *current(const struct jparser *p)
{
    return &p->tokens.at[p->at];
}
ZP_INLINE const struct jtoken *look(const struct jparser *p)
{
    return &p->tokens.at[p->at + (p->tokens.at[p->at].kind != T_END)];
}
ZP_INLINE void advance(struct jparser *p)
{
    p->at += p->tokens.at[p->at].kind != T_END;
}
bool jtoken_is_name(const struct jtoken *t, const char *name);
bool jparse_skip(struct jparser *p, enum jtoken_kind kind);
bool jparse_skip_name(struct jparser *p, const char *name);
zp_status jparse_expect(struct jparser *p, enum jtoken_kind kind);
zp_status jparse_expect_name(struct jparser *p, const char *name);
zp_status jparse_enter(struct jparser *p);
zp_status jparse_unexpected(struct jparser *p, const char *expected);
zp_status jparse_node(struct jparser *p, enum jnode_kind kind, uint32_t at, struct jnode **out);
zp_status jparse_append(struct jparser *p, struct jnodes *list, struct jnode *node);
zp_status jparse_intern(struct jparser *p, const struct jtoken *t, uint32_t *id);
zp_status jparse_text(struct jparser *p, const char *data, size_t size, const struct jstr **out);

#endif
