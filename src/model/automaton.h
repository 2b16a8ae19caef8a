/* automaton.h: reads a text byte by byte and knows at each place which bytes may follow.
 *
 * A grammar whose rules call themselves needs a stack, and one that leaves a choice open needs
 * several. A state holds all of them: nodes that wait for a byte, and for each the *set* of stacks
 * with which it may be reached. Sets of stacks are stored once, however many states hold them: a
 * set is a list of (place to go on at, set of stacks below), sorted, equal places put together, so
 * that two ways of reading the same text share what they have in common. States are stored once,
 * too, and what follows a state by a byte is found when it is first asked for: a walk over known
 * states is one load a byte.
 *
 * Memory is bounded: when tables are half full, automaton_prepare keeps only the states of places
 * (where readers stand), numbers them anew, and increases `age`.
 * A1 state and set numbers are valid while `age` stays.  A2 equal sets, and equal states, have
 *    equal
 * numbers.  A3 from every state but AUTOMATON_DEAD some text leads to acceptance: a way that would
 * need more open calls than GRAMMAR_MAX_DEPTH is not begun.
 * One thread at a time. */
#ifndef MODEL_AUTOMATON_H
#define MODEL_AUTOMATON_H

#include "model/grammar.h"

enum { AUTOMATON_DEAD = 0 };

struct stack_item {
    uint32_t node, count; /* where to go on, and how often a NODE_REPEAT was entered by then */
    uint32_t below;       /* set of stacks; 0 below the bottom */
};
struct stack_set {
    uint32_t first, n; /* items */
    uint32_t depth;    /* of its highest stack */
};
struct automaton_way {
    uint32_t node, stacks; /* a NODE_BYTES and how it was reached */
};
struct automaton_state {
    uint32_t first, n; /* ways, by node */
    bool accepts;      /* the text may end here */
};

/* Numbers of things by their content. */
struct number_table {
    uint32_t *slots; /* number, 0 = free */
    uint32_t mask, used;
};

/* Where a reader stands. */
struct automaton_place {
    uint32_t state;
    struct automaton_place *previous, *next;
};

struct automaton {
    const struct grammar *g;
    struct stack_item *items;
    struct stack_set *sets; /* number 0: none */
    struct automaton_way *ways;
    struct automaton_state *states;
    uint32_t *edges; /* (n_states, n_class): state that follows, or not known yet */
    uint32_t n_items, room_items, n_sets, room_sets, n_ways, room_ways, n_states, room_states;
    struct number_table set_table, state_table;
    uint32_t start; /* state before the first byte */
    uint64_t age, work;
    struct automaton_place *places;
    /* One step on its way: stacks with which each node is reached, and nodes to look at. */
    uint32_t *reached, *queue; /* (n_nodes): 0: not; a ring */
    uint8_t *marks;            /* (n_nodes) */
    uint32_t *touched;         /* (n_nodes) in any order */
    uint32_t n_touched, queue_begin, n_queue;
    bool accepts;
    struct stack_item *merged; /* lists being merged, one behind another */
    uint32_t n_merged, room_merged;
    struct union_memo { uint32_t a, b, result; } *memo;
};

/* g: sealed; must outlive it. */
zp_status automaton_open(struct automaton *a, const struct grammar *g, zp_err *err);
void automaton_close(struct automaton *a); /* zeroed is fine */

void automaton_enter(struct automaton *a, struct automaton_place *p); /* before the first byte */
void automaton_leave(struct automaton *a, struct automaton_place *p); /* zeroed is fine */

/* Before each walk: makes room, and sets back what a walk may cost. */
zp_status automaton_prepare(struct automaton *a, zp_err *err);
/* ZP_BAD_INPUT: the walk costs too much, so many ways does the grammar leave open. */
zp_status automaton_find_step(struct automaton *a, uint32_t state, uint8_t class, uint32_t *next,
                              zp_err *err);

#define AUTOMATON_UNKNOWN UINT32_MAX

/* The state that follows by one byte; AUTOMATON_DEAD: no text goes on so. */
static inline zp_status automaton_step(struct automaton *a, uint32_t state, uint8_t byte,
                                       uint32_t *next, zp_err *err)
{
    uint8_t class = a->g->class_of[byte];
    *next = a->edges[(size_t)state * a->g->n_class + class];
    if (ZP_LIKELY(*next != AUTOMATON_UNKNOWN)) return ZP_OK;
    return automaton_find_step(a, state, class, next, err);
}

/* The text may end here, and nothing can follow. */
static inline bool automaton_is_over(const struct automaton *a, uint32_t state)
{
    return a->states[state].accepts && a->states[state].n == 0;
}

#endif
