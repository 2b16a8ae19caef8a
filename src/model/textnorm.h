/* textnorm.h: what happens to a text before it is cut into words: prefixes, replacements, Unicode
 * normal forms, white space, the precompiled map of SentencePiece. A list of steps run in order;
 * valid UTF-8 in, valid UTF-8 out. Immutable after open. */
#ifndef MODEL_TEXTNORM_H
#define MODEL_TEXTNORM_H

#include "model/charsmap.h"
#include "model/trie.h"

#define TEXTNORM_MAX_STEPS 16

enum textnorm_kind {
    NORM_PREPEND,        /* what goes before a text that is not empty */
    NORM_PREPEND_UNLESS, /* the same unless the text begins with it */
    NORM_REPLACE,        /* each what becomes with */
    NORM_REPLACE_MATCH,  /* each match of the expression `what` becomes with */
    NORM_NFC,
    NORM_NFD,
    NORM_NFKC,
    NORM_NFKD,
    NORM_LOWERCASE,
    NORM_STRIP,         /* white space at the ends chosen by left, right */
    NORM_STRIP_ACCENTS, /* combining marks go */
    NORM_NMT,           /* SentencePiece's nmt rules: controls go, odd spaces become spaces */
    NORM_CHARSMAP,
    NORM_UNIGRAM_SPACES, /* llama.cpp's spaces for unigram models: see struct */
};

struct textnorm_step {
    enum textnorm_kind kind;
    char *what, *with; /* owned */
    size_t what_size, with_size;
    bool left, right;           /* NORM_STRIP */
    bool first_only;            /* NORM_PREPEND*: only for text at the very beginning */
    bool prefix, suffix, merge; /* NORM_UNIGRAM_SPACES: a space before, after; runs become one */
    struct charsmap map;        /* NORM_CHARSMAP */
    void *expression;           /* NORM_REPLACE_MATCH: pretok object, owned */
};
struct textnorm {
    struct textnorm_step *steps[TEXTNORM_MAX_STEPS];
    size_t n_steps;
    struct trie protect; /* NORM_CHARSMAP leaves these texts alone (user-defined tokens) */
};

/* Appends a step and returns it for further fields; what and with are copied and may be NULL. */
zp_status textnorm_add(struct textnorm *n, enum textnorm_kind kind, const char *what,
                       size_t what_size, const char *with, size_t with_size,
                       struct textnorm_step **out, zp_err *err);
void textnorm_free(struct textnorm *n);

/* Buffers of one caller. */
struct textnorm_scratch {
    struct buffer buffers[2];
    bool ready;
};
/* at_start: the text begins what the user gave. *out points into text or the scratch. */
zp_status textnorm_run(const struct textnorm *n, struct textnorm_scratch *scratch,
                       const uint8_t *text, size_t size, bool at_start, const uint8_t **out,
                       size_t *out_size, zp_err *err);
void textnorm_scratch_free(struct textnorm_scratch *scratch);

#endif
