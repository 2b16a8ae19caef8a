/* bpe.h: byte pair encoding by a list of merges: byte-level (GPT-2 and its kin) or over characters
 * with byte fallback (tokenizer.json of Llama 2, Gemma). Words in, ids out. Immutable after
 * open. */
#ifndef MODEL_BPE_H
#define MODEL_BPE_H

#include "model/merger.h"
#include "model/vocab.h"

enum bpe_unit {
    BPE_BYTES, /* words are raw bytes, token texts are in GPT-2's byte alphabet */
    BPE_CHARS, /* words and token texts are UTF-8 */
};

struct bpe_options {
    enum bpe_unit unit;
    bool ignore_merges; /* a word that is a token is that token, whatever the merges say */
    bool byte_fallback; /* BPE_CHARS: a character without token becomes its <0xNN> tokens */
    bool fuse_unk;      /* adjacent unknown characters become one unknown token */
    int32_t unk;
};

struct bpe_rule {
    uint64_t key; /* left << 32 | right, + 1; 0 = free */
    struct merge_pair pair;
};

struct bpe {
    struct bpe_options options;
    const struct vocab *vocab;
    struct vocab extra; /* parts and results of merges that are no tokens; symbol = vocab->n + id */
    struct bpe_rule *rules;
    uint64_t mask;
    uint32_t n_rules;
    int32_t joined; /* result of the last merge */
    char byte_text[256][2];   /* BPE_BYTES: bpe_byte_text of each byte, one or two bytes */
    int32_t byte_symbol[256]; /* BPE_BYTES: symbol of each byte */
    int32_t byte_token[256];  /* BPE_CHARS: <0xNN>, TOKEN_NONE if the vocabulary has none */
};

/* vocab must be complete and outlive b. */
zp_status bpe_init(struct bpe *b, const struct vocab *vocab, struct bpe_options options,
                   uint32_t n_merges, zp_err *err);
/* The next merge, in order of rank. index is for messages. */
zp_status bpe_add_merge(struct bpe *b, const char *left, size_t left_size, const char *right,
                        size_t right_size, uint32_t rank, zp_err *err);
/* "left right", parted at the first space that is not the first byte. */
zp_status bpe_add_merge_line(struct bpe *b, const char *line, size_t size, uint32_t rank,
                             zp_err *err);
void bpe_free(struct bpe *b);

/* Appends the ids of one word. A byte or character without any token is ZP_BAD_INPUT. */
zp_status bpe_encode(const struct bpe *b, struct merger *scratch, const uint8_t *word, size_t size,
                     struct token_list *out, zp_err *err);

/* GPT-2's byte alphabet: each byte is a printable character ("Ġ" is the space). */
size_t bpe_byte_text(uint8_t byte, char out[2]);
/* Bytes of a text in that alphabet; false (out untouched in meaning) if a character is outside it.
 * out holds at least size bytes. */
bool bpe_text_bytes(const char *text, size_t size, uint8_t *out, size_t *out_size);

#endif
