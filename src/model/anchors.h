/* anchors.h: marks of positions in prompts: <|pos:N|> and [POS:N] set the position that a position
 * gate sees from there on and are no text; <TIME> asks for position mode full and is none
 * either. */
#ifndef MODEL_ANCHORS_H
#define MODEL_ANCHORS_H

#include <zerope/zerope.h>
#include "base/bytes.h"
#include "model/tokenizer.h"

/* Zero-initialise. */
struct anchor_list {
    zp_anchor *at; /* (n), tokens rise */
    size_t n, room;
    uint64_t n_marks; /* positions that were read, also those that the next one replaced at once */
    bool time;        /* <TIME> was read */
};
void anchor_list_free(struct anchor_list *a);

/* As tokenizer_encode_segments, with the marks taken out: text before a position and behind it is
 * tokenized apart. rest: the text without them, may be NULL. ZP_BAD_INPUT for positions beyond
 * ZP_ANCHOR_MOST; what is not wholly a mark within one piece is text. */
zp_status anchors_encode(const struct tokenizer *t, const struct text_segment *segments, size_t n,
                         struct token_list *ids, struct anchor_list *out, struct buffer *rest,
                         zp_err *err);
/* A token was put in front. */
void anchors_shift(struct anchor_list *a);

#endif
