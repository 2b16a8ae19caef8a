/* tasks.c: the mix, prose to fill with, and the tasks made of ids: copies, pairs, brackets.
 * Owns: lists of documents and tokens of the part. Does not know: words (tasks_text.c), rows.
 * A tiny model learns to copy when most of a document can be copied, not when one span in a window
 * can: so a case of training has as many copies and questions as fit, and what nobody can know
 * (random tokens, digits) is marked as nothing to learn. Numbers are drawn with integers and
 * products only: no mathematical library whose last bit may differ. */
#include "train/tasks.h"

#include <assert.h>
#include <string.h>

#include "train/tasks_maker.h"

enum {
    SPAN_MIN = 4,
    SPAN_MAX = 32,
    PAIRS_MAX = 48,
    DEPTH_MAX = 8,
    FEW_MIN = 8,
    FEW_MAX = 64,
    PARTS_OF_PROSE = 64, /* shortest piece of prose, where documents are longer */
};
/* Streams of other draws are elsewhere; a probe draws other numbers than a case of training. */
#define TASK_STREAM 0x7461736b00000000u
#define PROBE_STREAM 0x70726f6200000000u

const char *task_kind_name(enum task_kind kind)
{
    static const char *const names[TASK_KINDS] = { "copy",  "induction", "passkey", "multikey",
                                                   "order", "count",     "brackets" };
    return names[kind];
}

zp_status task_open(struct task *c, uint32_t room, zp_err *err)
{
    *c = (struct task){ .room = room, .bytes = buffer_with_max(MEM_TRAIN, 1 << 16) };
    c->ids = mem_array(MEM_TRAIN, room, sizeof *c->ids);
    c->learn = mem_array(MEM_TRAIN, room, sizeof *c->learn);
    bool made = c->ids && c->learn;
    if (!made) task_close(c);
    ZP_FAIL_IF(!made, err, ZP_NO_MEMORY, "not enough memory for a task of %u tokens", room);
    return ZP_OK;
}

void task_close(struct task *c)
{
    mem_free(c->ids);
    mem_free(c->learn);
    token_list_free(&c->scratch);
    buffer_free(&c->bytes);
    memset(c, 0, sizeof *c);
}

/* ---- the part ---- */

static zp_status list_docs(struct tasks *t, zp_err *err)
{
    const struct shards *s = t->shards;
    uint64_t end = 0;
    ZP_ALLOC(t->docs, MEM_TRAIN, s->head.n_docs, err, "a list of documents");
    ZP_ALLOC(t->ends, MEM_TRAIN, s->head.n_docs, err, "a list of documents");
    for (uint32_t i = 0; i < s->head.n_docs; i++) {
        if (s->docs[i].held != t->options.probes) continue; // T1
        t->docs[t->n_docs] = i;
        t->ends[t->n_docs++] = end += s->docs[i].n;
    }
    ZP_FAIL_IF(t->n_docs == 0, err, ZP_BAD_INPUT, "the corpus has no %s documents",
               t->options.probes ? "held-out" : "training");
    return ZP_OK;
}

static zp_status list_tokens(struct tasks *t, zp_err *err)
{
    const struct shards *s = t->shards;
    uint8_t *stands = mem_zalloc(MEM_TRAIN, s->head.n_vocab);
    t->tokens = mem_array(MEM_TRAIN, s->head.n_vocab, sizeof *t->tokens);
    for (uint32_t i = 0; stands && t->tokens && i < t->n_docs; i++) {
        const struct shards_doc *d = &s->docs[t->docs[i]];
        for (uint64_t k = 0; k < d->n; k++) stands[shards_id(s, d->at + k)] = 1;
    }
    for (uint32_t id = 0; stands && t->tokens && id < s->head.n_vocab; id++)
        if (stands[id] && !tokenizer_is_special(t->tokenizer, (int32_t)id))
            t->tokens[t->n_tokens++] = (int32_t)id;
    bool made = stands && t->tokens;
    mem_free(stands);
    ZP_FAIL_IF(!made, err, ZP_NO_MEMORY, "not enough memory for a list of %u tokens",
               s->head.n_vocab);
    ZP_FAIL_IF(t->n_tokens < 2, err, ZP_BAD_INPUT,
               "the documents have %u kinds of tokens; tasks need 2", t->n_tokens);
    return ZP_OK;
}

static zp_status fill(struct tasks *t, zp_err *err)
{
    static const uint32_t usual[TASK_KINDS] = { 6, 3, 3, 2, 1, 1, 2 };
    static const char *const brackets[9] = { " (", " )", " [", " ]", " {", " }", " <", " >", " :" };
    uint64_t total = 0;
    ZP_TRY(shards_check_tokenizer(t->shards, t->tokenizer, "the model", err));
    for (int k = 0; k < TASK_KINDS; k++) total += t->options.share[k];
    if (total == 0) memcpy(t->options.share, usual, sizeof usual);
    for (int k = 0; total == 0 && k < TASK_KINDS; k++) t->total_share += usual[k];
    ZP_FAIL_IF(total > UINT32_MAX, err, ZP_USAGE, "the shares of tasks are too large");
    if (total) t->total_share = (uint32_t)total;
    for (int i = 0; i < 9; i++)
        ZP_TRY(tokenizer_encode(t->tokenizer, brackets[i], 2, 0, &t->brackets[i], err));
    ZP_TRY(list_docs(t, err));
    return list_tokens(t, err);
}

zp_status tasks_open(struct tasks *t, const struct shards *s, const struct tokenizer *tokenizer,
                     const struct tasks_options *options, zp_err *err)
{
    *t = (struct tasks){ .shards = s, .tokenizer = tokenizer };
    if (options) t->options = *options;
    zp_status status = fill(t, err);
    if (status != ZP_OK) tasks_close(t);
    return status;
}

void tasks_close(struct tasks *t)
{
    mem_free(t->docs);
    mem_free(t->ends);
    mem_free(t->tokens);
    for (int i = 0; i < 9; i++) token_list_free(&t->brackets[i]);
    memset(t, 0, sizeof *t);
}

/* ---- putting together ---- */

uint32_t maker_left(const struct maker *m)
{
    return m->room - m->out->n;
}

void maker_put(struct maker *m, const int32_t *ids, size_t n, bool learn)
{
    struct task *c = m->out;
    assert(n <= maker_left(m));
    memcpy(c->ids + c->n, ids, n * sizeof *ids);
    memset(c->learn + c->n, learn, n);
    c->n += (uint32_t)n;
}

/* n tokens from a place drawn among all of the part, cut from as few documents as it takes. */
static void draw_prose(struct maker *m, uint32_t n, int32_t *out)
{
    const struct tasks *t = m->t;
    while (n > 0) {
        uint64_t place = rng_below(&m->r, t->ends[t->n_docs - 1]);
        uint32_t lo = 0, hi = t->n_docs - 1;
        while (lo < hi) {
            uint32_t mid = (lo + hi) / 2;
            if (t->ends[mid] > place) hi = mid;
            else lo = mid + 1;
        }
        const struct shards_doc *d = &t->shards->docs[t->docs[lo]];
        uint64_t at = place - (t->ends[lo] - d->n);
        uint32_t most = n < PARTS_OF_PROSE ? n : PARTS_OF_PROSE;
        if (d->n - at < most) at = d->n > most ? d->n - most : 0;
        uint32_t take = d->n - at < n ? (uint32_t)(d->n - at) : n;
        shards_read(t->shards, t->docs[lo], at, take, out);
        out += take;
        n -= take;
    }
}

void maker_prose(struct maker *m, uint32_t n)
{
    struct task *c = m->out;
    assert(n <= maker_left(m));
    draw_prose(m, n, c->ids + c->n);
    memset(c->learn + c->n, 1, n);
    c->n += n;
}

void maker_answer(struct maker *m, uint32_t at, uint32_t n, uint32_t asked_at)
{
    m->out->answer = at;
    m->out->n_answer = n;
    m->out->distance = at - asked_at;
}

uint32_t maker_size(struct maker *m, uint32_t lo, uint32_t hi)
{
    uint32_t top = lo + (uint32_t)((hi - lo) * m->level + 0.5);
    return lo + (uint32_t)rng_below(&m->r, top - lo + 1);
}

uint32_t maker_gap(struct maker *m, uint32_t most)
{
    enum { ALWAYS = 8 };
    if (m->t->options.probes) return (uint32_t)rng_below(&m->r, (uint64_t)most + 1);
    if (most > ALWAYS) most = ALWAYS + (uint32_t)((most - ALWAYS) * m->level * m->level);
    unsigned bits = 0;
    while (most >> bits) bits++;
    /* 0, 1, 2-3, 4-7, ...: each range as likely as another. */
    unsigned k = (unsigned)rng_below(&m->r, bits + 1);
    if (k == 0) return 0;
    uint32_t lo = 1u << (k - 1), hi = lo * 2 - 1 < most ? lo * 2 - 1 : most;
    return lo + (uint32_t)rng_below(&m->r, hi - lo + 1);
}

/* ---- copies ---- */

enum source { PROSE, RANDOM, FEW, SOURCES };

struct copying {
    enum source source;
    int32_t few[FEW_MAX];
    uint32_t n_few;
};

static int32_t draw_token(struct maker *m)
{
    return m->t->tokens[rng_below(&m->r, m->t->n_tokens)];
}

static void draw_span(struct maker *m, const struct copying *k, uint32_t n, int32_t *out)
{
    if (k->source == PROSE) draw_prose(m, n, out);
    for (uint32_t i = 0; k->source != PROSE && i < n; i++)
        out[i] = k->source == FEW ? k->few[rng_below(&m->r, k->n_few)] : draw_token(m);
}

/* n tokens between a span and its copy: prose, or (every other time, where spans are no prose)
 * more of the kind. */
static void put_gap(struct maker *m, const struct copying *k, uint32_t n)
{
    int32_t id;
    if (k->source == PROSE || rng_below(&m->r, 2)) {
        maker_prose(m, n);
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        draw_span(m, k, 1, &id);
        maker_put(m, &id, 1, false);
    }
}

/* Span, gap, span. Where the copy begins nobody can know: its first token is not to be learned,
 * and not part of the answer. One token may stand in many places: a probe gives 2 to 4 of the copy
 * before it asks. */
static void put_copy(struct maker *m, const struct copying *k)
{
    int32_t span[SPAN_MAX];
    uint32_t left = maker_left(m), most = left / 2 < SPAN_MAX ? left / 2 : SPAN_MAX;
    uint32_t n = maker_size(m, SPAN_MIN, most), gap = maker_gap(m, left - 2 * n);
    draw_span(m, k, n, span);
    uint32_t first = m->out->n;
    maker_put(m, span, n, k->source == PROSE);
    put_gap(m, k, gap);
    maker_put(m, span, 1, false);
    maker_put(m, span + 1, n - 1, true);
    uint32_t given = !m->t->options.probes ? 1 : n < 8 ? 2 : 4;
    maker_answer(m, m->out->n - (n - given), n - given, first + given);
}

static void make_copy(struct maker *m)
{
    struct copying k = { .source = (enum source)rng_below(&m->r, SOURCES) };
    if (k.source == FEW) {
        k.n_few = FEW_MIN + (uint32_t)rng_below(&m->r, FEW_MAX - FEW_MIN + 1);
        for (uint32_t i = 0; i < k.n_few; i++) k.few[i] = draw_token(m);
    }
    uint32_t before = maker_left(m) - 2 * SPAN_MIN;
    put_gap(m, &k, maker_gap(m, before < 32 ? before : 32));
    /* Training: many copies, up to a length that differs from case to case: at first a short one,
     * where what is to be found stands among little else. */
    uint64_t most = (uint64_t)(m->room * m->level);
    uint32_t until = m->t->options.probes ? 0 : (uint32_t)rng_below(&m->r, most + 1);
    do put_copy(m, &k);
    while (m->out->n < until && maker_left(m) >= 2 * SPAN_MIN);
}

/* ---- pairs ---- */

static bool stands_in(const int32_t *ids, uint32_t n, int32_t id)
{
    for (uint32_t i = 0; i < n; i++)
        if (ids[i] == id) return true;
    return false;
}

/* One of the n pairs, whose first token does not stand in the prose behind them, if it can be. */
static uint32_t draw_pair(struct maker *m, int32_t (*pairs)[2], uint32_t n, uint32_t prose_at,
                          uint32_t n_prose)
{
    uint32_t i = 0;
    for (uint32_t tries = 0; tries < 16; tries++) {
        i = (uint32_t)rng_below(&m->r, n);
        if (!stands_in(m->out->ids + prose_at, n_prose, pairs[i][0])) break;
    }
    return i;
}

static void make_induction(struct maker *m)
{
    int32_t pairs[PAIRS_MAX][2];
    uint32_t last[PAIRS_MAX], n = 0, most = maker_left(m) / 2 - 1;
    uint32_t wanted = maker_size(m, 2, most < PAIRS_MAX ? most : PAIRS_MAX);
    for (uint32_t tries = 0; n < wanted && tries < 4 * PAIRS_MAX; tries++) {
        int32_t one = draw_token(m), two = draw_token(m);
        /* Each token in one pair and place, where there are enough. */
        if (n > 0 && (one == two || stands_in(pairs[0], 2 * n, one) ||
                      stands_in(pairs[0], 2 * n, two)))
            continue;
        pairs[n][0] = one;
        pairs[n][1] = two;
        last[n] = m->out->n + 1;
        maker_put(m, pairs[n++], 2, false);
    }
    uint32_t prose_at = m->out->n;
    if (m->t->options.probes || rng_below(&m->r, 2))
        maker_prose(m, maker_gap(m, maker_left(m) - 2));
    uint32_t n_prose = m->out->n - prose_at;
    uint32_t asked = m->t->options.probes ? 1 : 1 + (uint32_t)rng_below(&m->r, maker_left(m) / 2);
    for (uint32_t q = 0; q < asked; q++) {
        uint32_t i = draw_pair(m, pairs, n, prose_at, n_prose);
        maker_put(m, &pairs[i][0], 1, false);
        maker_put(m, &pairs[i][1], 1, true);
        maker_answer(m, m->out->n - 1, 1, last[i]);
        last[i] = m->out->n - 1;
    }
}

/* ---- brackets ---- */

static const struct token_list *bracket(const struct maker *m, uint32_t pair, bool closing)
{
    return &m->t->brackets[pair * 2 + closing];
}

/* Opens and closes as it comes; what is open in the end is to be closed after the mark. */
static bool make_brackets(struct maker *m)
{
    uint32_t open[DEPTH_MAX], at[DEPTH_MAX], depth = 0, widest = 0;
    for (int i = 0; i < 9; i++)
        widest = m->t->brackets[i].count > widest ? (uint32_t)m->t->brackets[i].count : widest;
    uint32_t deepest = maker_size(m, 2, DEPTH_MAX), steps = maker_size(m, 4, 48);
    uint32_t fit = widest ? maker_left(m) / widest : 0;
    if (fit < deepest + 3) return false;
    if (steps > fit - deepest - 1) steps = fit - deepest - 1;
    for (uint32_t i = 0; i < steps; i++) {
        bool opens = depth == 0 || (depth < deepest && rng_below(&m->r, 2));
        if (i + 1 == steps && depth <= 1) opens = true; /* something is left to close */
        if (opens) {
            at[depth] = m->out->n;
            open[depth++] = (uint32_t)rng_below(&m->r, 4);
        } else {
            depth--;
        }
        const struct token_list *b = bracket(m, open[opens ? depth - 1 : depth], !opens);
        maker_put(m, b->ids, b->count, !opens);
    }
    maker_put(m, m->t->brackets[8].ids, m->t->brackets[8].count, false);
    uint32_t begin = m->out->n;
    for (uint32_t i = depth; i-- > 0;) {
        const struct token_list *b = bracket(m, open[i], true);
        maker_put(m, b->ids, b->count, true);
    }
    maker_answer(m, begin, m->out->n - begin, at[depth - 1]);
    return true;
}

/* ---- cases ---- */

/* Training: copies and pairs alone at first, since all else but brackets asks for copying. */
static bool comes_later(struct maker *m, enum task_kind kind)
{
    return kind != TASK_COPY && kind != TASK_INDUCTION && !m->t->options.probes &&
           rng_below(&m->r, 65536) >= (uint64_t)(m->level * 65536);
}

static enum task_kind draw_kind(struct maker *m)
{
    uint64_t x = rng_below(&m->r, m->t->total_share);
    for (int k = 0; k < TASK_KINDS; k++) {
        if (x < m->t->options.share[k])
            return comes_later(m, (enum task_kind)k) ? TASK_COPY : (enum task_kind)k;
        x -= m->t->options.share[k];
    }
    return TASK_COPY;
}

zp_status tasks_make(const struct tasks *t, uint64_t seed, uint64_t index, uint32_t room,
                     double level, struct task *c, zp_err *err)
{
    assert(room >= TASKS_LEAST_ROOM && room <= c->room && level >= 0);
    uint64_t stream = (t->options.probes ? PROBE_STREAM : TASK_STREAM) + index;
    struct maker m = { .t = t,
                       .r = rng_stream(seed, stream),
                       .out = c,
                       .room = room,
                       .level = t->options.probes || level > 1 ? 1 : level };
    bool fits = true;
    c->n = c->answer = c->n_answer = c->distance = 0;
    c->kind = draw_kind(&m);
    if (c->kind == TASK_COPY) make_copy(&m);
    else if (c->kind == TASK_INDUCTION) make_induction(&m);
    else if (c->kind == TASK_BRACKETS) fits = make_brackets(&m);
    else ZP_TRY(tasks_make_text(&m, c->kind, &fits, err));
    ZP_FAIL_IF(!fits && t->options.probes, err, ZP_BAD_INPUT,
               "a %s task does not fit into %u tokens", task_kind_name(c->kind), room);
    if (fits) return ZP_OK;
    c->kind = TASK_COPY;
    make_copy(&m);
    return ZP_OK;
}
