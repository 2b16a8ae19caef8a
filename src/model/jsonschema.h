/* jsonschema.h: a JSON Schema as rules of a grammar: what the rules generate is valid by it.
 * docs/SCHEMAS.md says what is taken and how it is written; a keyword that would change what is
 * valid and is not taken is an error that names it and its place. */
#ifndef MODEL_JSONSCHEMA_H
#define MODEL_JSONSCHEMA_H

#include "model/grammar.h"

#define JSONSCHEMA_MAX_SIZE ((size_t)1 << 20)

/* The root rule of the schema's text. Failures are recorded in the grammar: ZP_BAD_INPUT, or
 * ZP_UNSUPPORTED: valid, but more than is taken here. */
uint32_t jsonschema_rules(struct grammar *g, const char *text, size_t size);

#endif
