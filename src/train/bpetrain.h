/* bpetrain.h: makes a byte-level BPE tokenizer (of GPT-2's kind) from texts.
 *     bpetrain_open, bpetrain_add for each text, bpetrain_run once, then bpetrain_put or _save.
 * Same texts in any order, same tokenizer: the most frequent pair is joined next, among equals the
 * one of the lowest ids.
 * Ids: <|endoftext|> is 0 (BOS and EOS), reserved ones follow, then the 256 bytes, then the results
 * of merges in their order. */
#ifndef TRAIN_BPETRAIN_H
#define TRAIN_BPETRAIN_H

#include "model/gguf_write.h"
#include "model/pretok.h"
#include "model/vocab.h"

struct bpetrain_options {
    uint32_t n_vocab;    /* all tokens; default 2048, at least 257 + n_reserved */
    uint32_t n_reserved; /* <|reserved_0|> ...: control tokens for later use; default 7 */
    const char *pre;     /* a name of the table of pre-tokenisers; default "smollm" */
};

struct bpetrain_word {
    uint64_t count;
    uint32_t at, n; /* in the text of words; while pairs are joined: in symbols */
};
struct bpetrain {
    struct bpetrain_options options; /* resolved */
    struct pretok pretok;
    struct pretok_scratch scratch;
    struct bpetrain_word *words;
    uint32_t n_words, words_room;
    uint32_t *slots; /* word + 1, 0 = free */
    size_t n_slots;
    struct buffer text; /* of all words */
    /* the result */
    struct vocab vocab;
    struct buffer merges; /* "left right\n" each, lowest rank first */
    uint32_t n_merges;
};

/* n_vocab too small: ZP_USAGE; unknown pre: ZP_UNSUPPORTED. */
zp_status bpetrain_open(struct bpetrain *b, const struct bpetrain_options *options, zp_err *err);
/* Counts the words of a text: UTF-8 of at most TOKENIZER_MAX_TEXT bytes. */
zp_status bpetrain_add(struct bpetrain *b, const char *text, size_t size, zp_err *err);
/* Joins pairs until there are n_vocab tokens, or no pair stands twice: then vocab.n is less. */
zp_status bpetrain_run(struct bpetrain *b, zp_err *err);
/* Sets the keys tokenizer.ggml.*, as the engine reads them. */
zp_status bpetrain_put(const struct bpetrain *b, struct gguf_edit *e, zp_err *err);
/* A GGUF file of these keys alone. */
zp_status bpetrain_save(const struct bpetrain *b, const char *path, zp_err *err);
void bpetrain_free(struct bpetrain *b); /* accepts a half-built object */

#endif
