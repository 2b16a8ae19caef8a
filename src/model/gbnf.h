/* gbnf.h: grammars in llama.cpp's notation.
 *     root ::= "yes" | "no" [.!]? | "(" root ")" | [0-9]{1,3}
 * Taken: rules NAME ::= ..., texts "..." and classes [...] [^...] with escapes (\n \r \t \\ \" \[
 * \] \- \^ \xHH \uHHHH \UHHHHHHHH), `.`, groups, `|`, * + ? {m} {m,} {m,n} {,n}, comments from #
 * on; a rule goes on in the next line inside ( ) and behind |. The text is one of the rule
 * `root`. */
#ifndef MODEL_GBNF_H
#define MODEL_GBNF_H

#include "model/grammar.h"

#define GBNF_MAX_SIZE ((size_t)1 << 20)

/* The rule `root`. Failures are recorded in the grammar, with line and column. */
uint32_t gbnf_rules(struct grammar *g, const char *text, size_t size);

#endif
