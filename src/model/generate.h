/* generate.h: zp_generate: a prompt, then drawn tokens, as a stream of text. The declarations are
 * public (zerope.h); this header states what they promise beyond it.
 * Draw i of a sequence, the one that gives the token at position i, is a function of (seed, i): a
 * conversation continued turn by turn draws what one call over all of it would.
 * The sequence holds the prompt and every drawn token but the last one; an end token is not part of
 * the result. on_text is called after every token, with size 0 where nothing can be shown yet. */
#ifndef MODEL_GENERATE_H
#define MODEL_GENERATE_H

#include "model/engine.h"

#endif
