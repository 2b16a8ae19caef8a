/* pretok.h: cuts text into the words that BPE works on: a list of steps, each a regular expression
 * with a rule for what happens to its matches. Each step sees one piece of the step before as if it
 * were the whole text (anchors and look-aheads end there), as llama.cpp and HF tokenizers both do.
 * Immutable after open; each thread brings its own pretok_scratch.
 * Unicode: PCRE2 10.42 has the tables of Unicode 14; characters assigned later count as neither
 * letter nor digit here, while newer engines may know them. */
#ifndef MODEL_PRETOK_H
#define MODEL_PRETOK_H

#include "base/bytes.h"

#define PRETOK_MAX_STEPS 16

/* What becomes of the text a step matches (names as in tokenizer.json). */
enum pretok_behavior {
    PRETOK_ISOLATED, /* a piece of its own */
    PRETOK_REMOVED,
    PRETOK_MERGED_WITH_PREVIOUS, /* the end of the piece before */
    PRETOK_MERGED_WITH_NEXT,     /* the beginning of the piece after */
    PRETOK_CONTIGUOUS,           /* adjacent matches make one piece */
};

struct pretok_step;
struct pretok {
    struct pretok_step *steps[PRETOK_MAX_STEPS];
    size_t n_steps;
    const char *name; /* static; "" unless from the table */
};

struct pretok_piece {
    uint32_t begin, end;
};
struct pretok_pieces {
    struct pretok_piece *items;
    size_t count, room;
};
struct pretok_scratch {
    struct pretok_pieces pieces[2];
    void *match; /* match data of the expression library */
};

/* A row of the table of known pre-tokenisers (tokenizer.ggml.pre). */
struct pretok_row {
    const char *names; /* separated by single spaces */
    const char *expressions[6];
    bool ignore_merges;
    bool add_bos; /* default where the file does not say */
};
const struct pretok_row *pretok_find(const char *name, size_t size); /* NULL if unknown */
/* All known names for messages, separated by spaces, cut to size with "...". */
void pretok_list_names(char *out, size_t size);

zp_status pretok_open_row(struct pretok *p, const struct pretok_row *row, const char *name,
                          zp_err *err);
/* Appends a step. invert: the text between matches counts as the matches. line_anchors: ^ and $
 * match at lines too, as in Oniguruma. A bad expression is ZP_BAD_FILE with its place. */
zp_status pretok_add_step(struct pretok *p, const char *expression, size_t size,
                          enum pretok_behavior behavior, bool invert, bool line_anchors,
                          zp_err *err);
void pretok_close(struct pretok *p);

/* Words of a text (valid UTF-8, at most 4 GiB); *out points into the scratch until its next use. */
zp_status pretok_split(const struct pretok *p, struct pretok_scratch *scratch, const uint8_t *text,
                       size_t size, const struct pretok_pieces **out, zp_err *err);
void pretok_scratch_free(struct pretok_scratch *scratch);

#endif
