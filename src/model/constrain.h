/* constrain.h: a grammar over the tokens of a model (zp_grammar), and where a text stands in it.
 * C1 a grammar may be used from several threads at a time; a place belongs to one.
 * C2 masks depend on the grammar and the text so far, not on other texts that use the grammar. */
#ifndef MODEL_CONSTRAIN_H
#define MODEL_CONSTRAIN_H

#include <zerope/zerope.h>
#include "model/automaton.h"

/* p: before the first token; leave it when done. The grammar must outlive that. */
void constrain_enter(zp_grammar *g, struct automaton_place *p);
void constrain_leave(zp_grammar *g, struct automaton_place *p);
/* Bits of the tokens that may come next: bit id % 64 of word id / 64; (constrain_words(g)). End
 * tokens: where the text may end. */
zp_status constrain_mask(zp_grammar *g, const struct automaton_place *p, uint64_t *bits,
                         zp_err *err);
size_t constrain_words(const zp_grammar *g);
/* The token comes next; after an end token nothing moves. ZP_BAD_INPUT: it may not. */
zp_status constrain_accept(zp_grammar *g, struct automaton_place *p, int32_t id, zp_err *err);
/* The text is whole and nothing can follow. */
bool constrain_is_over(zp_grammar *g, const struct automaton_place *p);
const zp_model *constrain_model(const zp_grammar *g);

/* For tests: bytes of masks that are kept at most. */
void constrain_set_room(zp_grammar *g, size_t max_bytes);

#endif
