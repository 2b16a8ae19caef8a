/* battery_cases.c: made-up questions of a length, by kind and by distance to what is asked for.
 * B2 a case counts as right where every token of its answer is the most likely one behind the true
 *    ones before it.
 * B3 case k of a kind is drawn alike at each length: what fits into a length fits into longer
 *    ones. */
#include <math.h>
#include <string.h>

#include "evap/battery.h"

struct cases {
    struct token_list tokens; /* of one case after the other */
    struct trial *trials;     /* (n) */
    uint32_t *distance;       /* (n) */
    struct score_row *rows;
    struct score_mean *of_tokens[3]; /* (n) each: right, the base's, the difference */
    uint32_t n;
};

bool battery_is_far(enum task_kind kind)
{
    return kind <= TASK_MULTIKEY;
}

static void cases_free(struct cases *c)
{
    token_list_free(&c->tokens);
    mem_free(c->trials);
    mem_free(c->distance);
    mem_free(c->rows);
    for (int k = 0; k < 3; k++) mem_free(c->of_tokens[k]);
    memset(c, 0, sizeof *c);
}

/* Separator and the case up to its answer's end. */
static zp_status keep_case(struct cases *c, uint32_t i, const struct task *t, int32_t separator,
                           zp_err *err)
{
    ZP_TRY(token_list_push(&c->tokens, separator, err));
    for (uint32_t k = 0; k < t->answer + t->n_answer; k++)
        ZP_TRY(token_list_push(&c->tokens, t->ids[k], err));
    c->trials[i] = (struct trial){ .n = t->answer + t->n_answer, .first = t->answer };
    c->distance[i] = t->distance;
    return ZP_OK;
}

/* *fits false: a case is longer than the length. */
static zp_status make_cases(struct battery *b, enum task_kind kind, uint32_t length,
                            struct cases *c, bool *fits, zp_err *err)
{
    size_t at = 0, n_rows = 0;
    for (uint32_t i = 0; i < c->n; i++) {
        zp_err why = { 0 };
        zp_status status = tasks_make(&b->tasks[kind], b->o.seed, i, length - 1, 1, &b->task, &why);
        *fits = status != ZP_BAD_INPUT;
        if (!*fits) return ZP_OK;
        ZP_FAIL_IF(status != ZP_OK, err, status, "%s", why.message);
        ZP_TRY(keep_case(c, i, &b->task, b->shards->head.separator, err));
    }
    for (uint32_t i = 0; i < c->n; i++) {
        c->trials[i].tokens = c->tokens.ids + at;
        at += c->trials[i].n + 1;
        n_rows += trial_rows(&c->trials[i]);
    }
    ZP_ALLOC(c->rows, MEM_EVAP, n_rows, err, "rows of answers");
    return ZP_OK;
}

/* ---- shares ---- */

struct answer {
    double nll, nll_base;
    uint32_t n_right, n_right_base; /* tokens */
    bool right, right_base;
};

static struct answer answer_of(const struct score_row *rows, uint32_t n)
{
    struct answer a = { 0 };
    for (uint32_t i = 0; i < n; i++) {
        a.nll += rows[i].nll / n;
        a.nll_base += rows[i].nll_base / n;
        a.n_right += rows[i].right;
        a.n_right_base += rows[i].right_base;
    }
    a.right = a.n_right == n;
    a.right_base = a.n_right_base == n;
    return a;
}

/* How many of n cases m has right, the base has right, and only one of them. */
struct tally {
    uint32_t n, right, right_base, more, fewer;
};

static struct estimate share_of(uint32_t right, uint32_t n)
{
    struct score_interval range = score_wilson95(right, n);
    return (struct estimate){ n ? (double)right / n : (double)NAN, range.lo, range.hi };
}

static struct estimate change_of(const struct tally *t)
{
    struct score_interval range = score_paired95(t->more, t->fewer, t->n);
    double change = t->n ? ((double)t->more - (double)t->fewer) / t->n : (double)NAN;
    return (struct estimate){ change, range.lo, range.hi };
}

/* The cases with an answer at a distance that s takes. */
static void fill_score(struct cases *c, uint64_t seed, struct battery_score *s)
{
    struct tally t = { 0 };
    const struct score_row *rows = c->rows;
    struct score_mean **of = c->of_tokens;
    for (uint32_t i = 0; i < c->n; i++) {
        uint32_t n = trial_rows(&c->trials[i]);
        struct answer a = answer_of(rows, n);
        rows += n;
        if (s->to && (c->distance[i] < s->from || c->distance[i] >= s->to)) continue;
        s->nll += a.nll;
        s->nll_base += a.nll_base;
        of[0][t.n] = (struct score_mean){ a.n_right, n };
        of[1][t.n] = (struct score_mean){ a.n_right_base, n };
        of[2][t.n] = (struct score_mean){ (double)a.n_right - a.n_right_base, n };
        t.n++;
        t.right += a.right;
        t.right_base += a.right_base;
        t.more += a.right && !a.right_base;
        t.fewer += a.right_base && !a.right;
    }
    s->n_cases = t.n;
    s->nll = t.n ? s->nll / t.n : (double)NAN;
    s->nll_base = t.n ? s->nll_base / t.n : (double)NAN;
    s->right = share_of(t.right, t.n);
    s->right_base = share_of(t.right_base, t.n);
    s->change = change_of(&t);
    s->tokens = battery_mean(of[0], t.n, seed);
    s->tokens_base = battery_mean(of[1], t.n, seed);
    s->tokens_change = battery_mean(of[2], t.n, seed);
}

/* Distances: below a quarter of the first length, up to it, up to each further one. */
static void fill_distances(struct battery *b, uint32_t i, struct cases *c, enum task_kind kind)
{
    uint32_t from = 0;
    for (uint32_t k = 0; k <= i + 1; k++) {
        struct battery_score *s = &b->distances[b->n_distances];
        uint32_t to = k == 0 ? b->lengths[0] / 4 : b->lengths[k - 1];
        *s = (struct battery_score){
            .kind = kind, .length = b->lengths[i], .from = from, .to = to
        };
        fill_score(c, b->o.seed, s);
        b->n_distances += s->n_cases > 0;
        from = to;
    }
}

/* ---- kinds ---- */

static zp_status run_kind(struct battery *b, uint32_t i, enum task_kind kind, struct cases *c,
                          zp_err *err)
{
    bool fits = true;
    struct battery_score *s = &b->scores[b->n_scores++];
    *s = (struct battery_score){ .kind = kind, .length = b->lengths[i] };
    c->n = b->o.n_cases;
    ZP_ALLOC(c->trials, MEM_EVAP, c->n, err, "cases");
    ZP_ALLOC(c->distance, MEM_EVAP, c->n, err, "cases");
    for (int k = 0; k < 3; k++) ZP_ALLOC(c->of_tokens[k], MEM_EVAP, c->n, err, "cases");
    ZP_TRY(make_cases(b, kind, b->lengths[i], c, &fits, err));
    if (fits) ZP_TRY(trial_run(&b->side, c->trials, c->n, c->rows, err));
    else {
        b->side.done += c->n;
        c->n = 0;
    }
    fill_score(c, b->o.seed, s);
    if (fits && battery_is_far(kind)) fill_distances(b, i, c, kind);
    return ZP_OK;
}

static bool was_asked(const struct battery *b, enum task_kind kind)
{
    for (uint32_t k = 0; k < b->n_scores; k++)
        if (b->scores[k].kind == kind && b->scores[k].n_cases) return true;
    return false;
}

zp_status battery_cases(struct battery *b, uint32_t i, zp_err *err)
{
    for (int k = 0; k < TASK_KINDS; k++) {
        enum task_kind kind = (enum task_kind)k;
        struct cases c = { 0 };
        if (!b->kinds[kind]) continue;
        if (!battery_is_far(kind) && was_asked(b, kind)) {
            b->side.done += b->o.n_cases;
            continue;
        }
        zp_status status = run_kind(b, i, kind, &c, err);
        cases_free(&c);
        ZP_TRY(status);
    }
    return ZP_OK;
}
