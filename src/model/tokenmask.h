/* tokenmask.h: which tokens may come next in a state of an automaton: all whose bytes lead on, and
 * where the text may end those that end a generation. Kept for the states asked for last.
 * M1 a mask depends on the state only, not on what was asked before.
 * One thread at a time. */
#ifndef MODEL_TOKENMASK_H
#define MODEL_TOKENMASK_H

#include "model/automaton.h"
#include "model/tokentrie.h"

#define TOKENMASK_MAX_BYTES ((size_t)16 << 20) /* of kept masks */

struct tokenmask {
    struct automaton *a;
    const struct tokentrie *trie;
    uint64_t *bits;  /* (n_slots, n_words) */
    uint64_t *used;  /* (n_slots) when a mask was asked for last */
    uint32_t *state; /* (n_slots) that it is of */
    uint32_t *slot;  /* (n_states) of a's states: their slot + 1; 0: none */
    uint32_t *path;  /* (max_depth + 1) states along the token being looked at */
    size_t n_words;
    uint32_t n_slots, room_slots, max_slots, n_states;
    uint64_t now, age;
};

/* n_vocab: bits of a mask; ids that the trie does not have are never allowed. Keeps up to max_bytes
 * of masks, and one at least. */
zp_status tokenmask_open(struct tokenmask *m, struct automaton *a, const struct tokentrie *trie,
                         uint32_t n_vocab, size_t max_bytes, zp_err *err);
void tokenmask_set_room(struct tokenmask *m, size_t max_bytes); /* before the first mask */
void tokenmask_close(struct tokenmask *m); /* zeroed is fine */

/* The mask of the state where p stands, (n_words): bit id % 64 of word id / 64. It stays until the
 * next call. May tidy up the automaton first. */
zp_status tokenmask_get(struct tokenmask *m, const struct automaton_place *p, const uint64_t **bits,
                        zp_err *err);

#endif
