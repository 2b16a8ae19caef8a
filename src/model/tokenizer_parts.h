/* tokenizer_parts.h: the inside of struct tokenizer, for tokenizer.c and the two openers only.
 * Encoding: text -> special_split (raw) -> normalize -> special_split (normalized) -> pretok ->
 * prepare -> words -> model. Every stage may be empty. */
#ifndef MODEL_TOKENIZER_PARTS_H
#define MODEL_TOKENIZER_PARTS_H

#include "model/bpe.h"
#include "model/pretok.h"
#include "model/special.h"
#include "model/spm.h"
#include "model/textnorm.h"
#include "model/tokenizer.h"
#include "model/unigram.h"

enum tokenizer_model { TOKENIZER_BPE, TOKENIZER_SPM, TOKENIZER_UNIGRAM };

struct tokenizer {
    struct tokenizer_info info;
    enum tokenizer_model model;
    struct vocab vocab;
    struct special_set raw, normalized;
    struct textnorm normalize, prepare;
    struct pretok pretok, words;
    struct bpe bpe;
    struct spm spm;
    struct unigram unigram;
    uint32_t strip_left; /* spaces that decoding drops at the beginning of a text */
    char *pre_name;      /* owned; info.pre points here */
};

/* What a token's text stands for when decoded. */
enum token_bytes_rule {
    TOKEN_BYTES_LEVEL, /* GPT-2's byte alphabet; texts outside it stand for themselves */
    TOKEN_BYTES_MARKS, /* U+2581 is a space, <0xNN> a byte */
};
zp_status tokenizer_set_bytes(struct tokenizer *t, enum token_bytes_rule rule, zp_err *err);
/* Last step of an opener, all tokens and ids being known: ends of generation, special tokens. */
zp_status tokenizer_finish(struct tokenizer *t, enum special_rule rule, zp_err *err);

/* Frees what the parts own, half-built or not; *t itself is the caller's. */
void tokenizer_close_parts(struct tokenizer *t);

#endif
