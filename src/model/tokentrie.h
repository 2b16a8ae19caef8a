/* tokentrie.h: the bytes of a vocabulary's tokens, laid out for a walk over all of them: beginnings
 * that tokens share are looked at once, and one that leads nowhere is passed over as a whole.
 * Immutable after open. About 12 bytes a node: 1.6 MB for 49,152 tokens, 10 MB for 262,144. */
#ifndef MODEL_TOKENTRIE_H
#define MODEL_TOKENTRIE_H

#include "model/tokenizer.h"

struct tokentrie_node {
    uint32_t skip;  /* the first node that is not below this one */
    int32_t id;     /* of the token that ends here, or TOKEN_NONE */
    uint16_t depth; /* bytes from the root to here, this one counted: 1 and more */
    uint8_t byte;
};

struct tokentrie {
    struct tokentrie_node *nodes; /* (n_nodes) each before those below it, bytes ascending */
    int32_t *same;                /* (n_vocab) next token of the same bytes, or TOKEN_NONE */
    int32_t *ends;                /* (n_ends) tokens that end a generation */
    uint32_t n_nodes, n_vocab, n_ends, max_depth;
};

/* Tokens whose bytes are text: not special ones, unused ones, those that end a generation, nor
 * those without bytes. n_vocab: ids from there on have no logit. */
zp_status tokentrie_open(struct tokentrie **out, const struct tokenizer *t, uint32_t n_vocab,
                         zp_err *err);
void tokentrie_close(struct tokentrie *t); /* NULL is fine */
/* What the trie holds of a token: its bytes; NULL and 0 where they are not text. */
const uint8_t *tokentrie_bytes(const struct tokenizer *t, int32_t id, size_t *size);

#endif
