/* rulexpr.h: expressions as parsers make them (sequences, choices, repetitions), and the nodes of a
 * grammar made from them. Items are texts and calls of rules; either counts as one character, of
 * which an expression may have to have a certain number. */
#ifndef MODEL_RULEXPR_H
#define MODEL_RULEXPR_H

#include "base/bytes.h"
#include "model/grammar.h"

enum expr_op { EXPR_TEXT, EXPR_CALL, EXPR_SEQUENCE, EXPR_CHOICE, EXPR_REPEAT };

struct expr {
    uint8_t op;
    /* TEXT: place and size in `text`; CALL: the rule; SEQUENCE, CHOICE: place and number in `list`;
     * REPEAT: the expression */
    uint32_t at, n;
    uint32_t min, max; /* REPEAT */
};

/* All expressions of a parser; zero-initialise all but g. Failures are the grammar's. */
struct rulexpr {
    struct grammar *g;
    struct expr *exprs;
    uint32_t *list, *open; /* members of sequences and choices; of those being read */
    struct buffer text;
    uint32_t n_exprs, room_exprs, n_list, room_list, n_open, room_open;
    uint32_t *vectors; /* nodes by number of characters, a stack */
    uint32_t n_vectors, room_vectors, n_count;
    uint32_t min_count, max_count;
};
void rulexpr_free(struct rulexpr *r);

uint32_t rulexpr_text(struct rulexpr *r, const void *text, size_t size);
uint32_t rulexpr_call(struct rulexpr *r, uint32_t rule);
uint32_t rulexpr_repeat(struct rulexpr *r, uint32_t expr, uint32_t min, uint32_t max);
/* Members: mark = r->n_open; rulexpr_member for each; the list of them from mark on, in order. */
void rulexpr_member(struct rulexpr *r, uint32_t expr);
uint32_t rulexpr_list(struct rulexpr *r, enum expr_op op, uint32_t mark);

/* The expression, then next. Bounded repetitions become rules of their own. */
uint32_t rulexpr_nodes(struct rulexpr *r, uint32_t expr, uint32_t next);
/* Only what has min to max characters (GRAMMAR_UNBOUNDED: no limit). Takes nodes in proportion to
 * the bounds, and to those of repetitions. */
uint32_t rulexpr_nodes_of_length(struct rulexpr *r, uint32_t expr, uint32_t min, uint32_t max,
                                 uint32_t next);

#endif
