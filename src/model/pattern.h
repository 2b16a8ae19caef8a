/* pattern.h: regular expressions of JSON Schema (ECMAScript) as rules of a grammar.
 *
 * Taken: characters, `.`, classes with ranges and their negation, \d \D \w \W \s \S, escapes
 * (\n \t \r \f \v \0 \xHH \uHHHH with pairs, \u{H...}, and any punctuation), groups (plain,
 * (?:...), named), `|`, the quantifiers * + ? {m} {m,} {m,n} and their lazy forms, ^ at the
 * beginning and $ at the end of an alternative of the whole pattern. Without ^ and $ a pattern is
 * looked for anywhere. Not taken (ZP_UNSUPPORTED, with the place): look-around, back-references, \b
 * \B \c \p, flags, anchors inside groups. */
#ifndef MODEL_PATTERN_H
#define MODEL_PATTERN_H

#include "model/grammar.h"

#define PATTERN_MAX_SIZE 4096

/* A text that the pattern matches and that has min to max characters (GRAMMAR_UNBOUNDED: no limit),
 * as it stands inside a JSON string, then next. pattern: UTF-8. Failures are recorded in the
 * grammar; false then. */
bool pattern_nodes(struct grammar *g, const char *pattern, size_t size, uint32_t min, uint32_t max,
                   uint32_t next, uint32_t *out);

#endif
