/* vocab.h: the tokens of one vocabulary: text, bytes they stand for, kind, score, and lookup by
 * text. Also used to intern any other set of distinct strings.
 * V1 texts are distinct.  V2 spans lie inside blob.  V3 ids are 0..n-1 in order of addition. */
#ifndef MODEL_VOCAB_H
#define MODEL_VOCAB_H

#include <stdatomic.h>
#include "model/tokenizer.h"

#define VOCAB_MAX_TOKENS ((size_t)1 << 24)

enum vocab_view {
    VOCAB_TEXT,  /* as the file has it: "Ġthe" */
    VOCAB_BYTES, /* what decoding gives: " the" */
    VOCAB_VIEWS
};

enum vocab_flags {
    VOCAB_LSTRIP = 1,      /* a match takes white space before it along */
    VOCAB_RSTRIP = 2,      /* and after it */
    VOCAB_SINGLE_WORD = 4, /* matches only between non-word characters */
    VOCAB_NORMALIZED = 8,  /* looked for in normalised text (tokenizer.json) */
    VOCAB_EOG = 16,
};

/* Is the token what its own bytes give when encoded as one word? Found out on first use. */
enum vocab_whole { WHOLE_UNKNOWN, WHOLE_YES, WHOLE_NO };

struct vocab_span {
    uint32_t at, size;
};

struct vocab_token {
    struct vocab_span span[VOCAB_VIEWS];
    double score;
    uint8_t kind;  /* enum token_kind */
    uint8_t flags; /* enum vocab_flags */
};

struct vocab_table {
    uint32_t *slots; /* id + 1, 0 = free */
    uint32_t mask;   /* number of slots - 1 */
    uint32_t used;
};

struct vocab {
    struct vocab_token *tokens;
    uint32_t n, room;
    uint8_t *blob;
    size_t blob_size, blob_room;
    struct vocab_table table; /* by text */
    _Atomic uint8_t *whole; /* enum vocab_whole per token, after vocab_seal */
};

/* Before the first addition, where the number of tokens is known: none of the tables then grows.
 * n <= VOCAB_MAX_TOKENS. */
zp_status vocab_reserve(struct vocab *v, uint32_t n, size_t text_bytes, zp_err *err);
/* Zero-initialise, then add. A text that is already there is ZP_BAD_FILE; an empty one gets an id
 * but no entry in the table. */
zp_status vocab_add(struct vocab *v, const void *text, size_t size, enum token_kind kind,
                    double score, zp_err *err);
/* Sets what id stands for; bytes == NULL means its text. */
zp_status vocab_set_bytes(struct vocab *v, uint32_t id, const void *bytes, size_t size,
                          zp_err *err);
/* After the last addition. */
zp_status vocab_seal(struct vocab *v, zp_err *err);
void vocab_free(struct vocab *v);

/* The token of the text, or TOKEN_NONE. */
int32_t vocab_find(const struct vocab *v, const void *text, size_t size);

static inline const uint8_t *vocab_get(const struct vocab *v, enum vocab_view view, uint32_t id,
                                       size_t *size)
{
    struct vocab_span s = v->tokens[id].span[view];
    *size = s.size;
    return v->blob + s.at;
}

/* True for tokens that plain text must never give. */
static inline bool vocab_is_special(const struct vocab *v, uint32_t id)
{
    return v->tokens[id].kind == TOKEN_CONTROL || v->tokens[id].kind == TOKEN_UNKNOWN;
}

static inline enum vocab_whole vocab_get_whole(const struct vocab *v, uint32_t id)
{
    return (enum vocab_whole)atomic_load_explicit(&v->whole[id], memory_order_relaxed);
}

/* Every thread that sets it finds the same answer, so relaxed order is enough. */
static inline void vocab_set_whole(const struct vocab *v, uint32_t id, bool whole)
{
    atomic_store_explicit(&v->whole[id], whole ? WHOLE_YES : WHOLE_NO, memory_order_relaxed);
}

/* "<0x0A>" -> 10; -1 for anything else. */
int vocab_byte_value(const void *text, size_t size);

#endif
