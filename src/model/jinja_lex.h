/* jinja_lex.h: the tokens of a chat template. White space control, trim_blocks and lstrip_blocks
 * are done here. */
#ifndef MODEL_JINJA_LEX_H
#define MODEL_JINJA_LEX_H

#include "model/jinja_ast.h"

enum jtoken_kind {
    T_END,
    T_DATA,
    T_VAR_BEGIN,
    T_VAR_END,
    T_BLOCK_BEGIN,
    T_BLOCK_END,
    T_NAME,
    T_STRING,
    T_INT,
    T_FLOAT,
    T_ADD,
    T_SUB,
    T_MUL,
    T_DIV,
    T_FLOORDIV,
    T_MOD,
    T_POW,
    T_TILDE,
    T_LBRACKET,
    T_RBRACKET,
    T_LPAREN,
    T_RPAREN,
    T_LBRACE,
    T_RBRACE,
    T_EQ,
    T_NE,
    T_GT,
    T_GE,
    T_LT,
    T_LE,
    T_ASSIGN,
    T_DOT,
    T_COLON,
    T_PIPE,
    T_COMMA,
    T_SEMICOLON,
    T_KINDS
};

struct jtoken {
    enum jtoken_kind kind;
    uint32_t at, size; /* place in the source */
    const char *text;  /* T_DATA, T_NAME, T_STRING (decoded): bytes, in the program's memory */
    size_t text_size;
    int64_t i;
    double f;
};

struct jtoken_list {
    struct jtoken *at;
    size_t n, room;
};

/* Splits program->source (already with \n line ends). The list's memory is the caller's to free
 * with mem_free. */
zp_status jinja_lex(struct jinja_program *program, struct jtoken_list *out, zp_err *err);
const char *jtoken_name(enum jtoken_kind kind); /* "'}}'", "a name" */

/* Records "NAME:LINE:COLUMN: text" as ZP_BAD_FILE. */
zp_status jinja_syntax(const struct jinja_program *program, size_t at, zp_err *err,
                       const char *file, int line, const char *fmt, ...) ZP_PRINTF(6, 7);
#define J_SYNTAX(program, at, err, ...)                                                            \
    return jinja_syntax((program), (at), (err), __FILE__, __LINE__, __VA_ARGS__)

#endif
