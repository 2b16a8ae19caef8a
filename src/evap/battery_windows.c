/* battery_windows.c: held-out windows of a length, by position, summed by document.
 * B1 intervals are over documents: tokens of one are not independent. A difference to the base is
 *    taken token by token before it is summed, so that its interval is of the difference. */
#include <math.h>
#include <string.h>

#include "evap/battery.h"
#include "evap/heldwin.h"

enum measure { NLL, RIGHT, NLL_BASE, CHANGE, KL, TOP1, RIGHT_BASE, RIGHT_CHANGE, MEASURES };
enum { WITHOUT_BASE = 2 }; /* so many measures need none */

struct sums {
    struct score_mean *of[MEASURES]; /* (n_docs) */
    uint32_t n_docs;                 /* of the corpus */
};

static zp_status sums_open(struct sums *s, uint32_t n_docs, zp_err *err)
{
    *s = (struct sums){ .n_docs = n_docs };
    ZP_ALLOC(s->of[0], MEM_EVAP, (size_t)n_docs * MEASURES, err, "sums by document");
    for (int k = 1; k < MEASURES; k++) s->of[k] = s->of[0] + (size_t)k * n_docs;
    return ZP_OK;
}

static void sums_add(struct sums *s, uint32_t doc, const struct score_row *row)
{
    const double values[MEASURES] = { row->nll, row->right,
                                      row->nll_base, row->nll - row->nll_base,
                                      row->kl, row->same,
                                      row->right_base, (double)row->right - row->right_base };
    for (int k = 0; k < MEASURES; k++) {
        s->of[k][doc].sum += values[k];
        s->of[k][doc].n++;
    }
}

struct estimate battery_mean(struct score_mean *entries, uint32_t n, uint64_t seed)
{
    uint32_t k = 0;
    for (uint32_t i = 0; i < n; i++)
        if (entries[i].n) entries[k++] = entries[i];
    struct score_interval range = score_interval95(entries, k, seed);
    double value = k ? score_average(entries, k) : (double)NAN;
    return (struct estimate){ value, range.lo, range.hi };
}

static bool is_in_part(const struct battery *b, const struct heldwin *w, uint32_t p,
                       enum battery_part part)
{
    if (part == BATTERY_ALL) return true;
    if (w->place[p] == HELDWIN_SEPARATOR) return false;
    uint16_t tag = b->tagger.tags[w->place[p]];
    if (part == BATTERY_BOUNDARY) return tag & DOCTAGS_BEGINS;
    if (part == BATTERY_MARK) return tag % DOCTAGS_BEGINS != 0;
    if (part == BATTERY_PLAIN) return tag == 0;
    return tag >> (part - BATTERY_TYPE) & 1;
}

/* rows: (n_windows, length). */
static void fill_span(const struct battery *b, const struct heldwin_set *w,
                      const struct score_row *rows, struct sums *s, struct battery_span *span)
{
    memset(s->of[0], 0, (size_t)s->n_docs * MEASURES * sizeof *s->of[0]);
    for (uint32_t i = 0; i < w->n; i++)
        for (uint32_t p = span->from; p < span->to; p++)
            if (is_in_part(b, &w->at[i], p, span->part))
                sums_add(s, w->at[i].doc[p], &rows[(size_t)i * w->length + p]);
    span->n_windows = w->n;
    span->n_joined = w->n_joined;
    for (uint32_t d = 0; d < s->n_docs; d++) {
        span->n_docs += s->of[NLL][d].n != 0;
        span->n_tokens += s->of[NLL][d].n;
    }
    struct estimate *out[MEASURES] = { &span->nll, &span->right, &span->nll_base, &span->change,
                                       &span->kl, &span->top1, &span->right_base,
                                       &span->right_change };
    for (int k = 0; k < (b->base ? MEASURES : WITHOUT_BASE); k++)
        *out[k] = battery_mean(s->of[k], s->n_docs, b->o.seed);
}

static void fill_spans(struct battery *b, uint32_t i, const struct heldwin_set *w,
                       const struct score_row *rows, struct sums *s)
{
    uint32_t from = 0;
    struct battery_span *whole = &b->whole[b->n_whole++];
    *whole = (struct battery_span){ .length = w->length, .to = w->length };
    fill_span(b, w, rows, s, whole);
    for (uint32_t k = 0; k <= i; k++) {
        struct battery_span *span = &b->spans[b->n_spans++];
        *span = (struct battery_span){ .length = w->length, .from = from, .to = b->lengths[k] };
        fill_span(b, w, rows, s, span);
        from = b->lengths[k];
    }
    for (int part = BATTERY_ALL + 1; b->tagger.tags && part < BATTERY_PARTS; part++) {
        struct battery_span *span = &b->structure[b->n_structure++];
        *span = (struct battery_span){ .length = w->length, .to = w->length,
                                       .part = (enum battery_part)part };
        fill_span(b, w, rows, s, span);
    }
}

static zp_status run_windows(struct battery *b, uint32_t i, const struct heldwin_set *w,
                             struct trial *trials, struct score_row *rows, zp_err *err)
{
    struct sums s;
    for (uint32_t k = 0; k < w->n; k++) trials[k] = (struct trial){ w->at[k].tokens, w->length, 0 };
    ZP_TRY(trial_run(&b->side, trials, w->n, rows, err));
    ZP_TRY(sums_open(&s, b->shards->head.n_docs, err));
    fill_spans(b, i, w, rows, &s);
    mem_free(s.of[0]);
    b->side.done += b->o.n_windows - w->n; /* that the documents do not have */
    return b->tagger.tags && i == 0 ? battery_detect(b, w, err) : ZP_OK;
}

zp_status battery_windows(struct battery *b, uint32_t i, zp_err *err)
{
    struct heldwin_set w;
    ZP_TRY(heldwin_open(&w, b->shards, b->lengths[i], b->o.n_windows, err));
    struct trial *trials = mem_array(MEM_EVAP, w.n, sizeof *trials);
    struct score_row *rows = mem_array(MEM_EVAP, (size_t)w.n * w.length, sizeof *rows);
    zp_status status = ZP_OK;
    if (!trials || !rows)
        status = status_fail(err, ZP_NO_MEMORY, __FILE__, __LINE__,
                             "not enough memory for %u windows of %u tokens", w.n, w.length);
    if (status == ZP_OK) status = run_windows(b, i, &w, trials, rows, err);
    mem_free(rows);
    mem_free(trials);
    heldwin_close(&w);
    return status;
}
