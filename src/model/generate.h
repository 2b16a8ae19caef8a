/* generate.h: zp_generate: a prompt, then drawn tokens, as a stream of text; and the steps it is
 * made of, for callers that run many. What zerope.h declares keeps these promises beyond it:
 * Draw i of a sequence, the one that gives the token at position i, is a function of (seed, i): a
 * conversation continued turn by turn draws what one call over all of it would.
 * The sequence holds the prompt and every drawn token but the last one; an end token is not part of
 * the result. on_text is called after every token, with size 0 where nothing can be shown yet. */
#ifndef MODEL_GENERATE_H
#define MODEL_GENERATE_H

#include "base/bytes.h"
#include "model/engine.h"
#include "model/textstream.h"

enum { GEN_MOST_DRAFT = 32 };

/* One generation on its way. The caller sets seq, o, prompt and n_prompt, and what else it wants of
 * the next three; the rest being zero. */
struct gen {
    zp_seq *seq;
    const zp_generate_options *o;
    const int32_t *prompt;
    size_t n_prompt, n_reused;
    size_t chunk;  /* most tokens of the prompt in its next run; 0: all that are left */
    bool no_reuse; /* takes nothing over from the prefix cache */
    bool all_rows; /* logits of every token of the prompt */
    struct embed *embed; /* takes the prompt's rows; nothing is drawn behind it. NULL: logits */
    size_t n_done; /* tokens of the prompt that are computed */
    zp_sampler *sampler;
    uint32_t at;                 /* position of the next draw */
    /* what is computed next: a drawn token and guesses behind it */
    int32_t run[1 + GEN_MOST_DRAFT];
    size_t n_run;                /* 0: the prompt */
    size_t n_drafted, n_accepted;
    int32_t *history; /* (n_history + n_prompt + most): what penalties look at, and guesses */
    size_t n_history; /* of it, the prompt included */
    int32_t *ids;     /* (most) */
    size_t n_ids, most; /* most: tokens this call may draw */
    bool has_text;      /* the model has a tokenizer */
    struct textstream stream;
    struct buffer piece, text;
    const char *reason; /* why it has ended; NULL: it has not */
    double begin, first; /* seconds: when it began, and when the prompt was computed */
};

/* What can be refused before a sequence that holds `held` tokens takes the prompt. */
zp_status gen_check(const struct zp_engine *e, size_t held, const int32_t *prompt, size_t n_prompt,
                    const zp_generate_options *o, zp_err *err);
zp_status gen_open(struct gen *g, zp_err *err);
/* Accepts what gen_open left half-built. */
void gen_close(struct gen *g);
/* What it has the engine compute next, with g->embed as its pool, and how many rows of logits that
 * gives: none inside of a prompt or for a pool, else 1, or 1 + its guesses; with all_rows one a
 * token of the prompt. */
zp_item gen_item(const struct gen *g);
size_t gen_rows(const struct gen *g);
/* That was computed: goes on in the prompt, or draws and says what to compute next, or sets why it
 * has ended. rows: (gen_rows, n_vocab). */
zp_status gen_take(struct gen *g, const float *rows, zp_err *err);
/* One run of the engine for n generations that have not ended, each of a sequence of its own.
 * items: (n); logits: (sum of gen_rows, n_vocab). Those that end have their reason set.
 * *failed: the one a failure is of; n where it is of the run. */
zp_status gen_step(struct zp_engine *e, struct gen *const *g, size_t n, zp_item *items,
                   float *logits, const zp_progress *progress, size_t *failed, zp_err *err);
/* Gives away text and ids of one that has ended. */
void gen_result(struct gen *g, zp_generated *out);

#endif
