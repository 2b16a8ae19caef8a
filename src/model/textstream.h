/* textstream.h: ids of a running generation -> text that may be shown at once: whole characters
 * only, and nothing that could still turn out to be the beginning of a stop string.
 * S1 what comes out is valid UTF-8: bytes that cannot become a character are shown as U+FFFD.
 * S2 all output together is the text up to the first stop string, whatever the cuts between tokens.
 * Belongs to one thread; the tokenizer must outlive it. */
#ifndef MODEL_TEXTSTREAM_H
#define MODEL_TEXTSTREAM_H

#include <zerope/zerope.h>

#include "model/tokenizer.h"

#define TEXTSTREAM_MAX_STOPS ZP_STOPS_MAX
#define TEXTSTREAM_MAX_STOP_SIZE 1024

struct textstream {
    const struct tokenizer *tokenizer;
    unsigned flags; /* enum detokenize_flags */
    bool started, stopped;
    size_t stop_index;   /* which stop string ended the text, once stopped */
    struct buffer bytes; /* of tokens, not yet whole characters */
    struct buffer held;  /* valid text, held back for a stop string */
    struct buffer stops; /* texts of the stop strings, one after another */
    size_t stop_ends[TEXTSTREAM_MAX_STOPS], n_stops;
};

/* stops: UTF-8, copied; an empty or overlong one is ZP_BAD_INPUT, too many are ZP_USAGE. flags as
 * for tokenizer_decode: without DETOKENIZE_CONTINUES the first visible token loses SentencePiece's
 * leading space. */
zp_status textstream_init(struct textstream *s, const struct tokenizer *t, unsigned flags,
                          const char *const *stops, size_t n_stops, zp_err *err);
void textstream_free(struct textstream *s); /* a zeroed or half-built object is fine */

/* Takes one token and appends what may be shown to *out. *stopped: a stop string is complete; the
 * text before it is out, it and the rest are dropped, and further tokens give nothing. */
zp_status textstream_push(struct textstream *s, int32_t id, struct buffer *out, bool *stopped,
                          zp_err *err);
/* The end of the generation: appends what was held back; an unfinished character is U+FFFD. */
zp_status textstream_flush(struct textstream *s, struct buffer *out, zp_err *err);

#endif
