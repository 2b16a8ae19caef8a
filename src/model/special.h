/* special.h: cuts a text at its special tokens. Knows: token texts, kinds and flags. Does not know:
 * words, merges, normalisation.
 * Two rules of precedence exist in the field and differ where tokens overlap:
 * SPECIAL_LONGEST (GGUF): all places of the longest text first, then the next shorter one, ...;
 * SPECIAL_LEFTMOST (tokenizer.json): from left to right, the longest at each place. */
#ifndef MODEL_SPECIAL_H
#define MODEL_SPECIAL_H

#include "model/trie.h"
#include "model/vocab.h"

/* Longer special texts are refused when the tokenizer opens: the cost of a search is bounded by
 * it. */
#define SPECIAL_MAX_SIZE 1024

enum special_rule { SPECIAL_LONGEST, SPECIAL_LEFTMOST };

struct special_set {
    enum special_rule rule;
    struct trie trie; /* values: token ids */
    uint32_t n;
};
/* text: what to look for (usually the token's text). Empty texts are ignored. */
zp_status special_add(struct special_set *set, const void *text, size_t size, int32_t id,
                      zp_err *err);
void special_free(struct special_set *set);

/* Where control tokens may be recognised: run i covers [end of run i - 1, end). Adjacent runs
 * differ. */
struct special_run {
    size_t end;
    bool allowed;
};
struct special_runs {
    const struct special_run *runs;
    size_t n;
};

struct fragment {
    size_t begin, end;
    int32_t id; /* TOKEN_NONE: text */
};
struct fragment_list {
    struct fragment *items;
    size_t count, room;
};
/* Replaces the contents of *out with the fragments of the text in order. White space a token takes
 * along (VOCAB_LSTRIP, VOCAB_RSTRIP) belongs to no fragment. */
zp_status special_split(const struct special_set *set, const struct vocab *v, const uint8_t *text,
                        size_t size, struct special_runs runs, struct fragment_list *out,
                        zp_err *err);
zp_status fragment_push(struct fragment_list *list, struct fragment f, zp_err *err);
void fragment_list_free(struct fragment_list *list);

#endif
