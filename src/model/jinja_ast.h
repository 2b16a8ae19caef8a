/* jinja_ast.h: what the parser makes of a chat template and the evaluator walks. Read only after
 * parsing. */
#ifndef MODEL_JINJA_AST_H
#define MODEL_JINJA_AST_H

#include "model/jinja_value.h"

enum jnode_kind {
    /* expressions */
    N_CONST,
    N_NAME,
    N_LIST,
    N_TUPLE,
    N_DICT,
    N_ATTR,
    N_ITEM,
    N_SLICE,
    N_CALL,
    N_FILTER,
    N_TEST,
    N_COND,
    N_OR,
    N_AND,
    N_NOT,
    N_COMPARE,
    N_CONCAT,
    N_BINARY,
    N_NEG,
    N_POS,
    /* arguments of calls */
    N_KEYWORD,
    N_STAR,
    N_STAR_STAR,
    /* assignment target ns.x */
    N_NS_REF,
    /* statements */
    N_DATA,
    N_PRINT,
    N_FOR,
    N_IF,
    N_SET,
    N_SET_BLOCK,
    N_WITH,
    N_MACRO,
    N_CALL_BLOCK,
    N_FILTER_BLOCK,
    N_GENERATION,
    N_BREAK,
    N_CONTINUE
};

enum jnode_op {
    OP_ADD,
    OP_SUB,
    OP_MUL,
    OP_DIV,
    OP_FLOORDIV,
    OP_MOD,
    OP_POW,
    OP_EQ,
    OP_NE,
    OP_LT,
    OP_LE,
    OP_GT,
    OP_GE,
    OP_IN,
    OP_NOT_IN
};

struct jnodes {
    struct jnode **at;
    size_t n, room;
};

/* kind: fields in use
 * CONST value | NAME name | LIST TUPLE kids | DICT kids (key, value, key, value ...)
 * ATTR a name text | ITEM a b | SLICE a (b, c, d: start, stop, step, each may be NULL)
 * CALL a kids | FILTER TEST a (NULL in a filter block: the captured text) builtin text kids
 * COND a (test) b (then) c (else or NULL) | OR AND a b | NOT NEG POS a | BINARY op a b
 * COMPARE a kids, with kids[i].op and kids[i].a | CONCAT kids
 * KEYWORD text a | STAR STAR_STAR a | NS_REF name text (attribute)
 * DATA value | PRINT kids | IF a body other, kids: elif branches (IF)
 * FOR a (target) b (iterable) c (test or NULL) body other, flag = recursive
 * SET a (target) b | SET_BLOCK a b (filter or NULL) body | WITH kids (target, value ...) body
 * MACRO name kids (NAME, default in its a) body uses_*
 * CALL_BLOCK a (CALL) kids body uses_* | FILTER_BLOCK a body | GENERATION body */
struct jnode {
    enum jnode_kind kind;
    enum jnode_op op;
    uint32_t at;   /* byte offset in the source, for messages */
    uint32_t name; /* name number */
    bool flag, uses_varargs, uses_kwargs, uses_caller;
    struct jv value;
    const struct jstr *text;        /* attribute, keyword, filter or test name */
    const struct jbuiltin *builtin; /* NULL: unknown name, an error when it is reached */
    struct jnode *a, *b, *c, *d;
    struct jnodes kids, body, other;
};

/* name = what messages call the template. Names are numbered; `special` ones are looked up by the
 * evaluator. */
struct jinja_program {
    struct arena arena;
    const char *name;
    const char *source;
    size_t size;
    struct jnodes body;
    const char **names;
    uint32_t n_names, names_room;
    uint32_t *name_index, n_index;
    uint32_t id_loop, id_caller, id_varargs, id_kwargs;
};

/* Line and column (in characters) of a byte offset, both from 1. */
void jinja_locate(const char *source, size_t size, size_t at, uint32_t *line, uint32_t *column);

#endif
