/* generate.c: prefill, draw, show, until something ends it.
 * Owns: the text, ids and history of one generation. Does not know: requests, terminals.
 * N1 nothing of a stop string, and no half character, is ever shown.
 * N2 ids, history and logits take their memory before the first draw.
 * N3 guesses change nothing but time: rows are those of any batch (I1), a draw is a function of the
 *    seed and its position, and a guess stays only where the draw agrees. */
#include "model/generate.h"

#include <string.h>

#include "base/os.h"
#include "model/textstream.h"

enum { MOST_DRAFT = 32, NGRAM = 4 };

struct generation {
    struct zp_engine *e;
    zp_seq *seq;
    const zp_generate_options *o;
    zp_sampler *sampler;
    float *logits;      /* (1 + n_draft, n_vocab) */
    int32_t run[1 + MOST_DRAFT]; /* a drawn token and the guesses computed with it */
    size_t n_run, n_drafted, n_accepted;
    int32_t *history;   /* (n_history + n_prompt + most): what penalties look at, and guesses */
    size_t n_history;   /* of it, the prompt included */
    int32_t *ids;       /* (most) */
    size_t n_ids, most; /* most: tokens this call may draw */
    bool has_text;      /* the model has a tokenizer */
    struct textstream stream;
    struct buffer piece, text;
};

/* ---- opening --------------------------------------------------------------------------------- */

static zp_status check(const struct generation *g, size_t n_prompt, zp_err *err)
{
    uint32_t n_ctx = g->e->options.n_ctx, held = zp_seq_length(g->seq);
    ZP_FAIL_IF(g->seq->engine != g->e, err, ZP_USAGE, "the sequence belongs to another engine");
    ZP_FAIL_IF(n_prompt == 0, err, ZP_BAD_INPUT,
               "the prompt is empty: at least one token is needed to predict from");
    ZP_FAIL_IF(n_prompt >= n_ctx || held + n_prompt >= n_ctx, err, ZP_BAD_INPUT,
               "the prompt of %zu tokens%s does not fit into the context of %u positions with room "
               "for an answer; raise --ctx-size",
               held + n_prompt, held ? " (with those the sequence holds)" : "", n_ctx);
    ZP_FAIL_IF(g->o->n_draft > MOST_DRAFT, err, ZP_USAGE, "drafts of %u tokens; at most %d",
               g->o->n_draft, MOST_DRAFT);
    ZP_FAIL_IF(g->o->n_stop && !g->e->model->tokenizer, err, ZP_BAD_INPUT,
               "stop strings need a tokenizer, and the model has none");
    return ZP_OK;
}

static zp_status open_text(struct generation *g, zp_err *err)
{
    g->piece = buffer_with_max(MEM_SCRATCH, (size_t)64 << 20);
    g->text = buffer_with_max(MEM_META, (size_t)1 << 30);
    ZP_TRY(buffer_append(&g->text, "", 0, err)); /* an empty result is a text too */
    g->has_text = g->e->model->tokenizer != NULL;
    if (!g->has_text) return ZP_OK;
    return textstream_init(&g->stream, g->e->model->tokenizer, DETOKENIZE_CONTINUES, g->o->stop,
                           g->o->n_stop, err);
}

static zp_status open_all(struct generation *g, const int32_t *prompt, size_t n_prompt, zp_err *err)
{
    const zp_generate_options *o = g->o;
    size_t room = g->e->options.n_ctx - zp_seq_length(g->seq) - n_prompt + 1;
    size_t before = o->history ? o->n_history : 0;
    g->most = o->n_predict && o->n_predict < room ? o->n_predict : room;
    ZP_TRY(open_text(g, err));
    ZP_TRY(zp_sampler_open(&g->sampler, g->e->model, &o->sampler, err));
    ZP_ALLOC(g->logits, MEM_SCRATCH, (1 + (size_t)o->n_draft) * g->e->model->h.n_vocab, err,
             "logits");
    ZP_ALLOC(g->history, MEM_SCRATCH, before + n_prompt + g->most, err, "the history of tokens");
    ZP_ALLOC(g->ids, MEM_META, g->most, err, "the generated tokens");
    if (before) memcpy(g->history, o->history, before * sizeof *prompt);
    memcpy(g->history + before, prompt, n_prompt * sizeof *prompt);
    g->n_history = before + n_prompt;
    return ZP_OK;
}

/* Accepts a half-built object. ids and text stay with the caller's result when they were given
 * away. */
static void close_all(struct generation *g)
{
    zp_sampler_close(g->sampler);
    textstream_free(&g->stream);
    buffer_free(&g->piece);
    buffer_free(&g->text);
    mem_free(g->logits);
    mem_free(g->history);
    mem_free(g->ids);
}

/* Shows what the last token made certain. *reason: set when this ends the generation. */
static zp_status show(struct generation *g, int32_t id, const char **reason, zp_err *err)
{
    bool stop = false;
    buffer_clear(&g->piece);
    if (g->has_text) ZP_TRY(textstream_push(&g->stream, id, &g->piece, &stop, err));
    ZP_TRY(buffer_append(&g->text, g->piece.data, g->piece.size, err));
    const char *piece = g->piece.size ? (const char *)g->piece.data : "";
    bool go_on = !g->o->on_text || g->o->on_text(g->o->arg, piece, g->piece.size);
    if (stop) *reason = "stop";
    else if (!go_on) *reason = "stopped";
    return ZP_OK;
}

/* ---- guesses --------------------------------------------------------------------------------- */

/* What followed the last tokens where they stood before, the latest place of the longest match. */
static size_t guess(const struct generation *g, int32_t *out, size_t most)
{
    for (size_t n = NGRAM; most && n >= 2; n--) {
        if (g->n_history <= n) continue;
        const int32_t *last = g->history + g->n_history - n;
        for (size_t i = g->n_history - n; i-- > 0;) {
            if (memcmp(g->history + i, last, n * sizeof *last) != 0) continue;
            size_t left = g->n_history - n - i, take = left < most ? left : most;
            memcpy(out, g->history + i + n, take * sizeof *out);
            return take;
        }
    }
    return 0;
}

/* Guesses that may be computed behind the token at position `at`: there is room for them, and none
 * of them fills a tile, which an 8-bit cache would close (N3). */
static size_t room_for_guesses(const struct generation *g, uint32_t at)
{
    uint32_t in_tile = (at + 1) % KERN_TILE, n_ctx = g->e->options.n_ctx;
    size_t most = KERN_TILE - 1 - in_tile, left = g->most - g->n_ids;
    if (most > n_ctx - at - 1) most = n_ctx - at - 1;
    if (most > left) most = left;
    return most < g->o->n_draft ? most : g->o->n_draft;
}

/* ---- one token after another ----------------------------------------------------------------- */

static zp_status compute(struct generation *g, const int32_t *ids, size_t n, zp_want want,
                         const zp_progress *progress, zp_err *err)
{
    zp_item item = { g->seq, ids, n, want };
    return zp_engine_run(g->e, &item, 1, g->logits, want == ZP_WANT_ALL ? n : 1, progress, err);
}

/* The token at position `at` and what may follow it. */
static zp_status compute_ahead(struct generation *g, int32_t id, uint32_t at, zp_err *err)
{
    ZP_TRY(zp_seq_truncate(g->seq, at, err)); /* wrong guesses leave */
    size_t n = guess(g, g->run + 1, room_for_guesses(g, at));
    g->run[0] = id;
    g->n_run = 1 + n;
    g->n_drafted += n;
    return compute(g, g->run, g->n_run, ZP_WANT_ALL, NULL, err);
}

/* Draws, shows and remembers one token from a row of logits. */
static zp_status next(struct generation *g, const float *row, uint32_t at, int32_t *id,
                      const char **reason, zp_err *err)
{
    ZP_TRY(zp_sampler_draw(g->sampler, row, g->history, g->n_history, at, id, err));
    if (!g->o->ignore_end && zp_token_ends(g->e->model, *id)) {
        *reason = "end";
        return ZP_OK;
    }
    g->ids[g->n_ids++] = g->history[g->n_history++] = *id;
    ZP_TRY(show(g, *id, reason, err));
    if (!*reason && g->n_ids == g->most) *reason = "length";
    return ZP_OK;
}

static zp_status decode(struct generation *g, const char **reason, zp_err *err)
{
    uint32_t at = zp_seq_length(g->seq);
    size_t row = 0; /* of the logits of the last run: those that predict position `at` */
    *reason = NULL;
    for (g->n_run = 1;; at++) {
        int32_t id;
        ZP_TRY(next(g, g->logits + row * g->e->model->h.n_vocab, at, &id, reason, err));
        if (*reason) return zp_seq_truncate(g->seq, at, err);
        if (++row < g->n_run && g->run[row] == id) {
            g->n_accepted++;
            continue;
        }
        ZP_TRY(compute_ahead(g, id, at, err));
        row = 0;
    }
}

/* What was held back for a stop string that never came. After a cancel nothing more is shown. */
static zp_status finish(struct generation *g, const char *reason, zp_err *err)
{
    if (!g->has_text || strcmp(reason, "stop") == 0 || strcmp(reason, "stopped") == 0) return ZP_OK;
    buffer_clear(&g->piece);
    ZP_TRY(textstream_flush(&g->stream, &g->piece, err));
    if (g->piece.size == 0) return ZP_OK;
    ZP_TRY(buffer_append(&g->text, g->piece.data, g->piece.size, err));
    if (g->o->on_text) g->o->on_text(g->o->arg, (const char *)g->piece.data, g->piece.size);
    return ZP_OK;
}

static zp_status run(struct generation *g, const int32_t *prompt, size_t n_prompt,
                     zp_generated *out, zp_err *err)
{
    ZP_TRY(check(g, n_prompt, err));
    ZP_TRY(open_all(g, prompt, n_prompt, err));
    out->n_prompt = n_prompt;
    out->n_reused = zp_seq_length(g->seq);
    double begin = os_now();
    ZP_TRY(compute(g, prompt, n_prompt, ZP_WANT_LAST, &g->o->progress, err));
    double middle = os_now();
    ZP_TRY(decode(g, &out->reason, err));
    ZP_TRY(finish(g, out->reason, err));
    out->prefill_seconds = middle - begin;
    out->decode_seconds = os_now() - middle;
    out->n_drafted = g->n_drafted, out->n_accepted = g->n_accepted;
    out->ids = g->ids, out->n_ids = g->n_ids, out->text = (char *)g->text.data;
    g->ids = NULL;
    g->text = buffer_with_max(MEM_META, 0);
    return ZP_OK;
}

zp_status zp_generate(zp_engine *e, zp_seq *seq, const int32_t *prompt, size_t n_prompt,
                      const zp_generate_options *options, zp_generated *out, zp_err *err)
{
    static const zp_generate_options defaults = { 0 };
    struct generation g = { .e = e, .seq = seq, .o = options ? options : &defaults };
    *out = (zp_generated){ 0 };
    zp_status status = run(&g, prompt, n_prompt, out, err);
    close_all(&g);
    if (status != ZP_OK) *out = (zp_generated){ 0 };
    return status;
}
