/* grammar.h: which texts may come: rules over bytes, put together front to back, then sealed.
 *
 * A rule is a graph of nodes. A node is made with the node that follows it, so an expression reads
 * in the order of the text it describes:
 *     start = grammar_text(g, "{", 1, grammar_call(g, space, grammar_text(g, "}", 1,
 *     GRAMMAR_END))); grammar_define(g, rule, start);
 * Rules may call each other and themselves. What cannot become a text (a rule without an end, an
 * empty choice) is allowed: nothing then takes that way.
 *
 * The first failure of any call is kept and makes all later ones do nothing: only grammar_seal, or
 * a builder that could run on for long, has to look.
 * G1 nodes refer to nodes and rules that exist.
 * G2 no two rules lead to the same node, but for the end and the closed way.
 * G3 after grammar_seal nothing changes, every rule is defined, none begins with itself, and
 *    `height` of a node is the least number of calls that are open at once on the way from it to
 *    the end of its rule; GRAMMAR_NO_WAY: there is no way. */
#ifndef MODEL_GRAMMAR_H
#define MODEL_GRAMMAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/compiler.h"
#include "base/mem.h"
#include "base/status.h"

#define GRAMMAR_MAX_NODES (1u << 18)
#define GRAMMAR_MAX_RULES (1u << 15)
#define GRAMMAR_MAX_WORK (16u << 20) /* about 0.2 s */
#define GRAMMAR_MAX_DEPTH 200u /* calls open at once: about as many levels of JSON */
#define GRAMMAR_UNBOUNDED UINT32_MAX
#define GRAMMAR_NO_WAY UINT32_MAX

/* Two nodes that every grammar has: the end of a rule, and a way that is closed. */
enum { GRAMMAR_END = 0, GRAMMAR_NEVER = 1 };

enum grammar_kind { NODE_END, NODE_BYTES, NODE_EITHER, NODE_CALL, NODE_REPEAT };

struct grammar_node {
    uint8_t kind, low, high; /* NODE_BYTES: one byte of low..high */
    bool nullable;           /* the end of the rule is reached without a byte; by grammar_seal */
    uint32_t next;
    uint32_t other;    /* NODE_EITHER: the other way; NODE_CALL, NODE_REPEAT: the rule */
    uint32_t min, max; /* NODE_REPEAT: how often */
    uint32_t height;   /* by grammar_seal */
};

struct grammar_rule {
    uint32_t start;
    bool defined;
    const char *name; /* for messages; NULL: none */
};

struct grammar {
    struct grammar_node *nodes;
    struct grammar_rule *rules;
    uint32_t n_nodes, room_nodes, n_rules, room_rules, root;
    struct arena names;
    /* Bytes that no node tells apart share a class (by grammar_seal). */
    uint8_t class_of[256], byte_of[256]; /* (n_class): a byte of each */
    uint32_t n_class;
    uint64_t work;    /* steps that builders counted */
    zp_status status; /* the first failure */
    zp_err *err;
};

/* err takes the failures up to grammar_seal. */
zp_status grammar_init(struct grammar *g, zp_err *err);
void grammar_free(struct grammar *g); /* zeroed is fine */
/* Records a failure of the builder's own. */
void grammar_fail(struct grammar *g, zp_status code, const char *fmt, ...) ZP_PRINTF(3, 4);
/* Counts steps of a builder whose input may ask for more of them than for nodes. False: a failure
 * is recorded, this one or another. */
bool grammar_work(struct grammar *g, uint64_t steps);
static inline bool grammar_failed(const struct grammar *g)
{
    return g->status != ZP_OK;
}

/* Nodes; each returns the new one, or one that does the same. */
uint32_t grammar_bytes(struct grammar *g, uint8_t low, uint8_t high, uint32_t next);
uint32_t grammar_text(struct grammar *g, const void *text, size_t size, uint32_t next);
uint32_t grammar_either(struct grammar *g, uint32_t a, uint32_t b);
uint32_t grammar_call(struct grammar *g, uint32_t rule, uint32_t next);
uint32_t grammar_repeat(struct grammar *g, uint32_t rule, uint32_t min, uint32_t max,
                        uint32_t next);
/* A choice whose two ways are set later: for loops. */
uint32_t grammar_open_either(struct grammar *g);
void grammar_set_either(struct grammar *g, uint32_t node, uint32_t a, uint32_t b);
struct grammar_word {
    const uint8_t *text;
    size_t size;
};
void grammar_sort_words(struct grammar_word *words, size_t n); /* by bytes */
/* One of the texts, which are sorted here. n = 0: GRAMMAR_NEVER. */
uint32_t grammar_words(struct grammar *g, struct grammar_word *words, size_t n, uint32_t next);

/* Rules. name is copied; NULL where no message will need it. */
uint32_t grammar_declare(struct grammar *g, const char *name);
void grammar_define(struct grammar *g, uint32_t rule, uint32_t start);
uint32_t grammar_rule(struct grammar *g, uint32_t start); /* both at once */

/* The text is one of the root's. Reports what the builders met; then ZP_BAD_INPUT: a rule that is
 * called but not defined, one that begins with itself, too many repetitions of what may be empty, a
 * root that no text satisfies. */
zp_status grammar_seal(struct grammar *g, uint32_t root);

#endif
