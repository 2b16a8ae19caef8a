/* generate.c: prefill, draw, show, until something ends it.
 * Owns: the text, ids and history of a generation. Does not know: requests, terminals.
 * N1 nothing of a stop string, and no half character, is ever shown.
 * N2 ids, history and logits take their memory before the first draw.
 * N3 guesses and company change nothing but time: rows are those of any batch (I1), a draw is a
 *    function of the seed and its position, and a guess stays only where the draw agrees. */
#include "model/generate.h"

#include <string.h>

#include "base/os.h"
#include "model/sample.h"
#include "model/textstream.h"

enum { NGRAM = 4 };

/* ---- opening --------------------------------------------------------------------------------- */

zp_status gen_check(const struct zp_engine *e, size_t held, const int32_t *prompt, size_t n_prompt,
                    const zp_generate_options *o, zp_err *err)
{
    size_t n_ctx = e->options.n_ctx, n_vocab = e->model->h.n_vocab;
    ZP_FAIL_IF(n_prompt == 0, err, ZP_BAD_INPUT,
               "the prompt is empty: at least one token is needed to predict from");
    ZP_FAIL_IF(!prompt, err, ZP_USAGE, "the ids of the prompt are missing");
    ZP_FAIL_IF(
        n_prompt >= n_ctx || held + n_prompt >= n_ctx, err, ZP_BAD_INPUT,
        "the prompt of %zu tokens%s does not fit into the context of %zu positions with room "
        "for an answer; raise --ctx-size",
        held + n_prompt, held ? " (with those the sequence holds)" : "", n_ctx);
    for (size_t i = 0; i < n_prompt; i++)
        ZP_FAIL_IF(prompt[i] < 0 || (size_t)prompt[i] >= n_vocab, err, ZP_BAD_INPUT,
                   "id %d at %zu of the prompt is outside the vocabulary of %zu", prompt[i], i,
                   n_vocab);
    ZP_FAIL_IF(o->n_draft > GEN_MOST_DRAFT, err, ZP_USAGE, "drafts of %u tokens; at most %d",
               o->n_draft, GEN_MOST_DRAFT);
    ZP_FAIL_IF(o->sampler.grammar && o->ignore_end, err, ZP_USAGE,
               "ignore_end does not go with a grammar: nothing follows the end of its text");
    ZP_FAIL_IF(o->n_stop && !e->model->tokenizer, err, ZP_BAD_INPUT,
               "stop strings need a tokenizer, and the model has none");
    return ZP_OK;
}

static zp_status open_text(struct gen *g, zp_err *err)
{
    const struct tokenizer *t = g->seq->engine->model->tokenizer;
    g->piece = buffer_with_max(MEM_SCRATCH, (size_t)64 << 20);
    g->text = buffer_with_max(MEM_META, (size_t)1 << 30);
    ZP_TRY(buffer_append(&g->text, "", 0, err)); /* an empty result is a text too */
    g->has_text = t != NULL;
    if (!g->has_text) return ZP_OK;
    return textstream_init(&g->stream, t, DETOKENIZE_CONTINUES, g->o->stop, g->o->n_stop, err);
}

/* What the prefix cache holds of the prompt need not be computed. */
static zp_status take_prefix(struct gen *g, zp_err *err)
{
    size_t n;
    if (g->n_reused > 0 || g->no_reuse) return ZP_OK;
    ZP_TRY(zp_seq_reuse(g->seq, g->prompt, g->n_prompt, &n, err));
    g->prompt += n;
    g->n_prompt -= n;
    g->n_reused = n;
    return ZP_OK;
}

zp_status gen_open(struct gen *g, zp_err *err)
{
    const zp_generate_options *o = g->o;
    const struct zp_engine *e = g->seq->engine;
    g->begin = os_now();
    g->n_reused = zp_seq_length(g->seq);
    if (g->embed) return take_prefix(g, err);
    ZP_TRY(gen_check(e, g->n_reused, g->prompt, g->n_prompt, o, err));
    g->at = (uint32_t)(g->n_reused + g->n_prompt);
    size_t room = e->options.n_ctx - g->at + 1, before = o->history ? o->n_history : 0;
    g->most = o->n_predict && o->n_predict < room ? o->n_predict : room;
    ZP_TRY(open_text(g, err));
    ZP_TRY(zp_sampler_open(&g->sampler, e->model, &o->sampler, err));
    ZP_ALLOC(g->history, MEM_SCRATCH, before + g->n_prompt + g->most, err,
             "the history of tokens");
    ZP_ALLOC(g->ids, MEM_META, g->most, err, "the generated tokens");
    if (before) memcpy(g->history, o->history, before * sizeof *o->history);
    memcpy(g->history + before, g->prompt, g->n_prompt * sizeof *g->prompt);
    g->n_history = before + g->n_prompt;
    return take_prefix(g, err);
}

void gen_close(struct gen *g)
{
    zp_sampler_close(g->sampler);
    textstream_free(&g->stream);
    buffer_free(&g->piece);
    buffer_free(&g->text);
    mem_free(g->history);
    mem_free(g->ids);
}

/* Shows what the last token made certain. */
static zp_status show(struct gen *g, int32_t id, zp_err *err)
{
    bool stop = false;
    buffer_clear(&g->piece);
    if (g->has_text) ZP_TRY(textstream_push(&g->stream, id, &g->piece, &stop, err));
    ZP_TRY(buffer_append(&g->text, g->piece.data, g->piece.size, err));
    const char *piece = g->piece.size ? (const char *)g->piece.data : "";
    bool go_on = !g->o->on_text || g->o->on_text(g->o->arg, piece, g->piece.size);
    if (stop) g->reason = "stop";
    else if (!go_on) g->reason = "stopped";
    return ZP_OK;
}

/* ---- guesses --------------------------------------------------------------------------------- */

/* What followed the last tokens where they stood before, the latest place of the longest match. */
static size_t guess(const struct gen *g, int32_t *out, size_t most)
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
static size_t room_for_guesses(const struct gen *g)
{
    uint32_t in_tile = (g->at + 1) % KERN_TILE, n_ctx = g->seq->engine->options.n_ctx;
    size_t most = KERN_TILE - 1 - in_tile, left = g->most - g->n_ids;
    if (most > n_ctx - g->at - 1) most = n_ctx - g->at - 1;
    if (most > left) most = left;
    return most < g->o->n_draft ? most : g->o->n_draft;
}

/* ---- one run after another ------------------------------------------------------------------- */

zp_item gen_item(const struct gen *g)
{
    if (g->n_run) return (zp_item){ g->seq, g->run, g->n_run, ZP_WANT_ALL };
    size_t left = g->n_prompt - g->n_done, n = g->chunk && g->chunk < left ? g->chunk : left;
    zp_want want = g->all_rows ? ZP_WANT_ALL : n == left ? ZP_WANT_LAST : ZP_WANT_NONE;
    if (g->embed) want = embed_want(g->embed, n == left);
    return (zp_item){ g->seq, g->prompt + g->n_done, n, want };
}

size_t gen_rows(const struct gen *g)
{
    zp_item item = gen_item(g);
    if (g->embed) return 0;
    return item.want == ZP_WANT_ALL ? item.n : item.want == ZP_WANT_LAST;
}

/* Draws, shows and remembers one token from a row of logits. */
static zp_status draw(struct gen *g, const float *row, int32_t *id, zp_err *err)
{
    ZP_TRY(zp_sampler_draw(g->sampler, row, g->history, g->n_history, g->at, id, err));
    if (!g->o->ignore_end && zp_token_ends(g->seq->engine->model, *id)) {
        g->reason = "end";
        return ZP_OK;
    }
    g->ids[g->n_ids++] = g->history[g->n_history++] = *id;
    ZP_TRY(zp_sampler_accept(g->sampler, *id, err));
    ZP_TRY(show(g, *id, err));
    if (!g->reason && sample_is_over(g->sampler)) g->reason = "end";
    if (!g->reason && g->n_ids == g->most) g->reason = "length";
    return ZP_OK;
}

/* What was held back for a stop string that never came. After a cancel nothing more is shown. */
static zp_status finish(struct gen *g, zp_err *err)
{
    bool hidden = strcmp(g->reason, "stop") == 0 || strcmp(g->reason, "stopped") == 0;
    ZP_TRY(zp_seq_truncate(g->seq, g->at, err)); /* guesses behind the end leave */
    if (!g->has_text || hidden) return ZP_OK;
    buffer_clear(&g->piece);
    ZP_TRY(textstream_flush(&g->stream, &g->piece, err));
    if (g->piece.size == 0) return ZP_OK;
    ZP_TRY(buffer_append(&g->text, g->piece.data, g->piece.size, err));
    if (g->o->on_text) g->o->on_text(g->o->arg, (const char *)g->piece.data, g->piece.size);
    return ZP_OK;
}

/* Draws from the rows of its run as long as they hold, and says what to compute next, or why
 * it has ended. */
static zp_status draw_all(struct gen *g, const float *rows, size_t n_rows, zp_err *err)
{
    size_t n_vocab = g->seq->engine->model->h.n_vocab;
    int32_t id;
    for (size_t row = 0;; row++, g->at++) {
        ZP_TRY(draw(g, rows + row * n_vocab, &id, err));
        if (g->reason) return finish(g, err);
        if (row + 1 == n_rows || g->run[row + 1] != id) break;
        g->n_accepted++;
    }
    ZP_TRY(zp_seq_truncate(g->seq, g->at, err)); /* wrong guesses leave */
    size_t n = guess(g, g->run + 1, room_for_guesses(g));
    g->run[0] = id;
    g->n_run = 1 + n;
    g->n_drafted += n;
    g->at++;
    return ZP_OK;
}

zp_status gen_take(struct gen *g, const float *rows, zp_err *err)
{
    size_t n_rows = gen_rows(g);
    if (g->n_run) return draw_all(g, rows, n_rows, err);
    g->n_done += gen_item(g).n;
    if (g->n_done < g->n_prompt) return ZP_OK;
    g->first = os_now();
    if (g->embed) {
        g->reason = "length";
        return ZP_OK;
    }
    return draw_all(g, rows + (n_rows - 1) * g->seq->engine->model->h.n_vocab, 1, err);
}

zp_status gen_step(struct zp_engine *e, struct gen *const *g, size_t n, zp_item *items,
                   float *logits, const zp_progress *progress, size_t *failed, zp_err *err)
{
    size_t n_rows = 0;
    *failed = n;
    for (size_t i = 0; i < n; i++) items[i] = gen_item(g[i]), n_rows += gen_rows(g[i]);
    ZP_TRY(zp_engine_run(e, items, n, logits, n_rows, progress, err));
    for (size_t i = 0; i < n; i++) {
        size_t taken = gen_rows(g[i]);
        zp_status status = gen_take(g[i], logits, err);
        if (status != ZP_OK) *failed = i;
        ZP_TRY(status);
        logits += taken * e->model->h.n_vocab;
    }
    return ZP_OK;
}

void gen_result(struct gen *g, zp_generated *out)
{
    *out = (zp_generated){ .ids = g->ids, .n_ids = g->n_ids, .text = (char *)g->text.data,
                           .reason = g->reason, .prefill_seconds = g->first - g->begin,
                           .decode_seconds = os_now() - g->first, .n_prompt = g->n_prompt,
                           .n_reused = g->n_reused, .n_drafted = g->n_drafted,
                           .n_accepted = g->n_accepted };
    g->ids = NULL;
    g->text = buffer_with_max(MEM_META, 0);
}

/* ---- one sequence ---------------------------------------------------------------------------- */

static zp_status run_one(struct gen *g, float **logits, zp_err *err)
{
    struct zp_engine *e = g->seq->engine;
    zp_item item;
    size_t failed;
    ZP_TRY(gen_open(g, err));
    ZP_ALLOC(*logits, MEM_SCRATCH, (1 + (size_t)g->o->n_draft) * e->model->h.n_vocab, err,
             "logits");
    while (!g->reason) {
        const zp_progress *progress = g->n_run == 0 ? &g->o->progress : NULL;
        ZP_TRY(gen_step(e, &g, 1, &item, *logits, progress, &failed, err));
    }
    return ZP_OK;
}

zp_status zp_generate(zp_engine *e, zp_seq *seq, const int32_t *prompt, size_t n_prompt,
                      const zp_generate_options *options, zp_generated *out, zp_err *err)
{
    static const zp_generate_options defaults = { 0 };
    struct gen g = { .seq = seq, .o = options ? options : &defaults, .prompt = prompt,
                     .n_prompt = n_prompt };
    float *logits = NULL;
    *out = (zp_generated){ 0 };
    ZP_FAIL_IF(seq->engine != e, err, ZP_USAGE, "the sequence belongs to another engine");
    zp_status status = run_one(&g, &logits, err);
    if (status == ZP_OK) gen_result(&g, out);
    gen_close(&g);
    mem_free(logits);
    return status;
}
