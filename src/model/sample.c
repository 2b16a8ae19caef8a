/* sample.c: from logits to the next token, and log-probabilities.
 * A draw is a pure function of (options, logits, history, seed, index) and, with a grammar, of the
 * tokens accepted: no other state is kept between calls, so a restored or forked sequence draws the
 * same tokens.
 * S1 between draws every entry of `counts` is 0.
 * S2 candidates are ordered by logit, then by id: what is cut off never depends on a sort's whims.
 * One thread at a time; open one for each sequence. */
#include "model/sample.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/num.h"
#include "base/rng.h"
#include "model/constrain.h"
#include "model/model.h"

#define SAMPLE_STREAM 0x73616d706c65u /* rng stream of draws */
#define DEFAULT_LAST_N 64
#define BLOCK 64  /* logits looked at together when searching the largest */
#define N_BIN 512 /* bins of the histogram below the largest logit; the last takes the rest */
#define BINS_PER_UNIT 16

struct zp_sampler {
    uint32_t n_vocab;
    zp_sampler_options o;
    zp_bias *bias;    /* (o.n_bias) copy */
    float *logits;    /* (n_vocab) with bias and penalties */
    uint32_t *ids;    /* (n_vocab) candidates: a heap, behind it the best ones taken off it */
    uint32_t *counts; /* (n_vocab) times in the penalty window */
    double *weights;  /* (n_vocab) of the kept candidates */
    struct automaton_place place; /* in o.grammar, if any */
    uint64_t *allowed;            /* (a bit for each token) what it lets come next */
};

/* ---- logits --------------------------------------------------------------------------------- */

zp_status sample_check_finite(const float *logits, uint32_t n_vocab, zp_err *err)
{
    uint32_t any = 0;
    for (uint32_t i = 0; i < n_vocab;
         i++) /* no branch: the whole vocabulary in a few microseconds */
        any |= (f32_bits(logits[i]) & 0x7f800000u) == 0x7f800000u;
    if (!any) return ZP_OK;
    uint32_t i = 0;
    while (isfinite(logits[i])) i++;
    ZP_FAIL(err, ZP_RUN,
            "the logit of token %u is %s, expected a finite number: the model's weights or the "
            "computation are damaged; `zerope doctor` checks the kernels",
            i, isnan(logits[i]) ? "not a number" : "infinite");
}

/* Orders as the float does; integers, so that compilers vectorise the maximum. No NaN. */
static int32_t order_key(float x)
{
    int32_t bits = (int32_t)f32_bits(x + 0.0f); /* -0 becomes 0 */
    return bits ^ (int32_t)((uint32_t)(bits >> 31) >> 1);
}

int32_t sample_best(const float *logits, uint32_t n_vocab)
{
    int32_t best_key = INT32_MIN;
    uint32_t best_block = 0, full = n_vocab - n_vocab % BLOCK;
    for (uint32_t b = 0; b < full; b += BLOCK) {
        int32_t key = INT32_MIN;
        for (uint32_t i = b; i < b + BLOCK; i++)
            key = order_key(logits[i]) > key ? order_key(logits[i]) : key;
        if (key > best_key) best_key = key, best_block = b;
    }
    for (uint32_t i = full; i < n_vocab; i++)
        if (order_key(logits[i]) > best_key) best_key = order_key(logits[i]), best_block = i;
    while (order_key(logits[best_block]) != best_key) best_block++;
    return (int32_t)best_block;
}

static double log_sum_exp(const float *logits, uint32_t n_vocab)
{
    double max = logits[sample_best(logits, n_vocab)], sum = 0;
    for (uint32_t i = 0; i < n_vocab; i++) sum += exp(logits[i] - max);
    return max + log(sum);
}

zp_status sample_logprob_of(const float *logits, uint32_t n_vocab, int32_t id, double *out,
                            zp_err *err)
{
    ZP_FAIL_IF(id < 0 || (uint32_t)id >= n_vocab, err, ZP_BAD_INPUT,
               "token %d is outside the vocabulary of %u", id, n_vocab);
    ZP_TRY(sample_check_finite(logits, n_vocab, err));
    *out = logits[id] - log_sum_exp(logits, n_vocab);
    return ZP_OK;
}

static bool is_worse(const struct sample_logprob *a, const struct sample_logprob *b)
{
    return a->logprob < b->logprob || (a->logprob == b->logprob && a->id > b->id);
}

/* Heap with the worst at its root: puts x into place `at`, whose two sub-heaps are in order. */
static void top_sift(struct sample_logprob *heap, uint32_t n, uint32_t at, struct sample_logprob x)
{
    for (uint32_t child = 2 * at + 1; child < n; child = 2 * at + 1) {
        if (child + 1 < n && is_worse(&heap[child + 1], &heap[child])) child++;
        if (!is_worse(&heap[child], &x)) break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = x;
}

zp_status sample_top(const float *logits, uint32_t n_vocab, uint32_t k, struct sample_logprob *out,
                     zp_err *err)
{
    ZP_FAIL_IF(k > n_vocab, err, ZP_USAGE, "%u log-probabilities of a vocabulary of %u", k,
               n_vocab);
    ZP_TRY(sample_check_finite(logits, n_vocab, err));
    if (k == 0) return ZP_OK;
    for (uint32_t i = 0; i < k; i++) out[i] = (struct sample_logprob){ (int32_t)i, logits[i] };
    for (uint32_t i = k / 2; i-- > 0;) top_sift(out, k, i, out[i]);
    for (uint32_t i = k; i < n_vocab; i++) {
        struct sample_logprob x = { (int32_t)i, logits[i] };
        if (is_worse(&out[0], &x)) top_sift(out, k, 0, x);
    }
    for (uint32_t end = k; end-- > 1;) { /* the worst of what is left goes to the end */
        struct sample_logprob last = out[end];
        out[end] = out[0];
        top_sift(out, end, 0, last);
    }
    double norm = log_sum_exp(logits, n_vocab);
    for (uint32_t i = 0; i < k; i++) out[i].logprob -= norm;
    return ZP_OK;
}

/* ---- opening -------------------------------------------------------------------------------- */

/* NaN fails every range. */
static zp_status check_range(float v, double low, double high, const char *name, zp_err *err)
{
    ZP_FAIL_IF(!(v >= low && v <= high), err, ZP_USAGE, "%s is %g, expected %g to %g", name,
               (double)v, low, high);
    return ZP_OK;
}

static zp_status check_options(const zp_sampler_options *o, uint32_t n_vocab, zp_err *err)
{
    ZP_TRY(check_range(o->temperature, 0, 1e6, "the temperature", err));
    ZP_TRY(check_range(o->top_p, 0, 1, "top_p", err));
    ZP_TRY(check_range(o->min_p, 0, 1, "min_p", err));
    if (o->repeat_penalty != 0)
        ZP_TRY(check_range(o->repeat_penalty, 0.01, 100, "the repeat penalty", err));
    ZP_TRY(check_range(o->frequency_penalty, -1e6, 1e6, "the frequency penalty", err));
    ZP_TRY(check_range(o->presence_penalty, -1e6, 1e6, "the presence penalty", err));
    for (size_t i = 0; i < o->n_bias; i++) {
        const zp_bias *b = &o->bias[i];
        ZP_FAIL_IF(b->id < 0 || (uint32_t)b->id >= n_vocab, err, ZP_USAGE,
                   "the logit bias names token %d, the vocabulary has %u", b->id, n_vocab);
        ZP_FAIL_IF(!(b->value <= 1e6f && (b->value >= -1e6f || isinf(b->value))), err, ZP_USAGE,
                   "the logit bias of token %d is %g, expected -1e6 to 1e6, or -inf to ban it",
                   b->id, (double)b->value);
    }
    return ZP_OK;
}

static zp_status fill(zp_sampler *s, const zp_sampler_options *options, zp_err *err)
{
    s->o = *options;
    s->o.bias = NULL;
    if (s->o.penalty_last_n == 0) s->o.penalty_last_n = DEFAULT_LAST_N;
    if (s->o.repeat_penalty == 0) s->o.repeat_penalty = 1;
    if (s->o.top_p == 0) s->o.top_p = 1;
    ZP_ALLOC(s->bias, MEM_SCRATCH, options->n_bias, err, "the logit bias");
    if (options->n_bias) memcpy(s->bias, options->bias, options->n_bias * sizeof *s->bias);
    ZP_ALLOC(s->logits, MEM_SCRATCH, s->n_vocab, err, "the sampler's logits");
    ZP_ALLOC(s->ids, MEM_SCRATCH, s->n_vocab, err, "the sampler's candidates");
    ZP_ALLOC(s->weights, MEM_SCRATCH, s->n_vocab, err, "the sampler's weights");
    ZP_ALLOC(s->counts, MEM_SCRATCH, s->n_vocab, err, "the sampler's counts");
    memset(s->counts, 0, s->n_vocab * sizeof *s->counts); // S1
    if (s->o.grammar == NULL) return ZP_OK;
    size_t n_words = constrain_words(s->o.grammar);
    ZP_FAIL_IF(n_words != ((size_t)s->n_vocab + 63) / 64, err, ZP_USAGE,
               "the grammar is of another vocabulary");
    ZP_ALLOC(s->allowed, MEM_SCRATCH, n_words, err, "the sampler's grammar");
    constrain_enter(s->o.grammar, &s->place);
    return ZP_OK;
}

zp_status sample_open(zp_sampler **out, uint32_t n_vocab, const zp_sampler_options *options,
                      zp_err *err)
{
    static const zp_sampler_options defaults = { 0 };
    if (options == NULL) options = &defaults;
    *out = NULL;
    ZP_FAIL_IF(n_vocab == 0 || n_vocab > INT32_MAX, err, ZP_USAGE, "a vocabulary of %u tokens",
               n_vocab);
    ZP_TRY(check_options(options, n_vocab, err));
    zp_sampler *s = mem_zalloc(MEM_SCRATCH, sizeof *s);
    ZP_FAIL_IF(s == NULL, err, ZP_NO_MEMORY, "not enough memory for a sampler (%zu bytes)",
               sizeof *s);
    s->n_vocab = n_vocab;
    zp_status status = fill(s, options, err);
    if (status != ZP_OK) zp_sampler_close(s);
    else *out = s;
    return status;
}

static zp_status check_grammar(const zp_sampler_options *o, const zp_model *m, zp_err *err)
{
    ZP_FAIL_IF(o->grammar && constrain_model(o->grammar)->vocabulary != m->vocabulary, err,
               ZP_USAGE, "the grammar was opened for another model");
    return ZP_OK;
}

zp_status zp_sampler_open(zp_sampler **out, const zp_model *m, const zp_sampler_options *options,
                          zp_err *err)
{
    *out = NULL;
    if (options) ZP_TRY(check_grammar(options, m, err));
    return sample_open(out, m->h.n_vocab, options, err);
}

zp_status sample_check(const zp_sampler_options *o, const zp_model *m, zp_err *err)
{
    ZP_TRY(check_grammar(o, m, err));
    return check_options(o, m->h.n_vocab, err);
}

void zp_sampler_close(zp_sampler *s)
{
    if (s == NULL) return;
    if (s->allowed) constrain_leave(s->o.grammar, &s->place);
    mem_free(s->allowed);
    mem_free(s->bias);
    mem_free(s->logits);
    mem_free(s->ids);
    mem_free(s->weights);
    mem_free(s->counts);
    mem_free(s);
}

/* ---- drawing -------------------------------------------------------------------------------- */

static bool has_penalties(const zp_sampler_options *o)
{
    return o->repeat_penalty != 1 || o->frequency_penalty != 0 || o->presence_penalty != 0;
}

/* As llama.cpp: each token of the window once, whatever its count. The repeat penalty divides a
 * positive logit and multiplies a negative one; the other two are OpenAI's, subtracted. */
static zp_status apply_penalties(zp_sampler *s, const int32_t *history, size_t n, zp_err *err)
{
    const zp_sampler_options *o = &s->o;
    size_t begin = n > o->penalty_last_n ? n - o->penalty_last_n : 0;
    for (size_t i = begin; i < n; i++)
        ZP_FAIL_IF(history[i] < 0 || (uint32_t)history[i] >= s->n_vocab, err, ZP_BAD_INPUT,
                   "token %d at %zu of the history is outside the vocabulary of %u", history[i], i,
                   s->n_vocab);
    for (size_t i = begin; i < n; i++) s->counts[history[i]]++;
    for (size_t i = begin; i < n; i++) {
        uint32_t id = (uint32_t)history[i], count = s->counts[id];
        if (count == 0) continue; /* done at an earlier place of the window */
        s->counts[id] = 0;        // S1
        float *logit = &s->logits[id];
        *logit = *logit > 0 ? *logit / o->repeat_penalty : *logit * o->repeat_penalty;
        *logit -= (float)count * o->frequency_penalty + o->presence_penalty;
    }
    return ZP_OK;
}

/* S2: the order of candidates. */
static bool comes_before(const float *logits, uint32_t a, uint32_t b)
{
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
}

static void sift_down(const float *logits, uint32_t *heap, uint32_t n, uint32_t at)
{
    uint32_t moved = heap[at];
    for (uint32_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && comes_before(logits, heap[child + 1], heap[child])) child++;
        if (!comes_before(logits, heap[child], moved)) break;
        heap[at] = heap[child];
    }
    heap[at] = moved;
}

/* What the grammar does not let come next is as if banned. */
static zp_status apply_grammar(zp_sampler *s, zp_err *err)
{
    ZP_TRY(constrain_mask(s->o.grammar, &s->place, s->allowed, err));
    for (uint32_t i = 0; i < s->n_vocab; i += 64) {
        uint64_t bits = s->allowed[i / 64];
        uint32_t n = s->n_vocab - i < 64 ? s->n_vocab - i : 64;
        for (uint32_t k = 0; k < n && bits != UINT64_MAX; k++)
            if (!(bits >> k & 1)) s->logits[i + k] = -INFINITY;
    }
    return ZP_OK;
}

/* A bias of -inf bans a token; anything else must have stayed finite. */
static zp_status check_changed(const zp_sampler *s, zp_err *err)
{
    uint32_t any = 0;
    for (uint32_t i = 0; i < s->n_vocab; i++) {
        uint32_t bits = f32_bits(s->logits[i]);
        any |= ((bits & 0x7f800000u) == 0x7f800000u) & (bits != 0xff800000u);
    }
    ZP_FAIL_IF(any, err, ZP_RUN, "bias or penalties make a logit too large for a number");
    return ZP_OK;
}

static zp_status check_left(const zp_sampler *s, zp_err *err)
{
    bool left = s->logits[sample_best(s->logits, s->n_vocab)] != -INFINITY;
    ZP_FAIL_IF(!left && s->o.grammar, err, ZP_BAD_INPUT,
               "the grammar%s none of the %u tokens come next: %s",
               s->o.n_bias ? " and the logit bias together let" : " lets", s->n_vocab,
               s->o.n_bias ? "the bias bans those that the grammar allows"
                           : "the vocabulary lacks the bytes that it asks for");
    ZP_FAIL_IF(!left, err, ZP_BAD_INPUT, "the logit bias bans all %u tokens: none is left to draw",
               s->n_vocab);
    return ZP_OK;
}

/* Candidate number i, best first, of `n` gathered ones: what leaves the heap lies behind it. */
static uint32_t candidate(const zp_sampler *s, uint32_t n, uint32_t i)
{
    return s->ids[n - 1 - i];
}

/* Moves the best of the heap's `left` candidates behind it. */
static void pop_best(zp_sampler *s, uint32_t left)
{
    uint32_t best = s->ids[0];
    s->ids[0] = s->ids[left - 1];
    sift_down(s->logits, s->ids, left - 1, 0);
    s->ids[left - 1] = best;
}

static uint32_t bin_of(double max, float logit)
{
    double below = (max - logit) * BINS_PER_UNIT;
    return below < N_BIN - 1 ? (uint32_t)below : N_BIN - 1;
}

/* The last bin that top_k (by count), or top_p alone (by mass), can reach: a whole vocabulary is
 * cut to little more than the kept tokens in one pass. *total = mass of all, for top_p alone. */
static uint32_t last_bin(const zp_sampler *s, double max, double *total)
{
    const zp_sampler_options *o = &s->o;
    bool by_count = o->top_k != 0 && o->top_k < s->n_vocab;
    uint32_t count[N_BIN] = { 0 }, bin = 0, n = 0;
    double mass[N_BIN] = { 0 }, sum = 0;
    *total = 0;
    if (!by_count && o->top_p == 1) return N_BIN - 1; /* min_p has its own floor */
    for (uint32_t i = 0; i < s->n_vocab; i++) {
        uint32_t at = bin_of(max, s->logits[i]);
        count[at]++;
        if (!by_count) mass[at] += exp(s->logits[i] - max);
    }
    for (uint32_t i = 0; i < N_BIN; i++) *total += mass[i];
    for (; bin < N_BIN - 1; bin++) {
        n += count[bin];
        sum += mass[bin];
        /* a little more mass than asked for: sums in another order may round differently */
        if (by_count ? n >= o->top_k : sum > o->top_p * *total * (1 + 1e-9)) break;
    }
    return bin;
}

/* Tokens that may be kept, as a heap with the best on top. A token below min_p's floor still counts
 * for top_p where that is a share of what top_k leaves. */
static uint32_t gather(zp_sampler *s, double max, uint32_t bin, double floor)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_vocab; i++)
        if (bin_of(max, s->logits[i]) <= bin && s->logits[i] >= floor && s->logits[i] != -INFINITY)
            s->ids[n++] = i;
    for (uint32_t i = n / 2; i-- > 0;) sift_down(s->logits, s->ids, n, i);
    return n;
}

/* How many tokens top_k, top_p and min_p keep: candidate(0 .. kept) of the *n gathered ones. */
static uint32_t keep_best(zp_sampler *s, double max, uint32_t *n)
{
    const zp_sampler_options *o = &s->o;
    bool share = o->top_p < 1 && o->top_k != 0 && o->top_k < s->n_vocab;
    double total, sum = 0, floor = o->min_p > 0 ? max + log(o->min_p) : -INFINITY;
    uint32_t bin = last_bin(s, max, &total), popped = 0, kept = 0;
    *n = gather(s, max, bin, share ? -INFINITY : floor);
    uint32_t k = o->top_k != 0 && o->top_k < *n ? o->top_k : *n;
    for (; share && popped < k; popped++) {
        pop_best(s, *n - popped);
        total += exp(s->logits[candidate(s, *n, popped)] - max);
    }
    while (kept < k) {
        if (kept == popped) pop_best(s, *n - popped++);
        double logit = s->logits[candidate(s, *n, kept)];
        if (kept != 0 && logit < floor) break;
        kept++;
        sum += exp(logit - max);
        if (o->top_p < 1 && sum >= o->top_p * total) break;
    }
    return kept;
}

/* Number of the weight that the point falls on; what rounding leaves over goes to the last one. */
static uint32_t pick(const double *weights, uint32_t n, double point)
{
    double sum = 0;
    uint32_t last = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (weights[i] > 0) last = i;
        sum += weights[i];
        if (sum > point) return i;
    }
    return last;
}

static int32_t draw(zp_sampler *s, uint64_t index)
{
    const zp_sampler_options *o = &s->o;
    bool truncates = (o->top_k != 0 && o->top_k < s->n_vocab) || o->top_p < 1 || o->min_p > 0;
    double max = s->logits[sample_best(s->logits, s->n_vocab)], total = 0;
    uint32_t n = s->n_vocab, kept = truncates ? keep_best(s, max, &n) : n;
    for (uint32_t i = 0; i < kept; i++) {
        float logit = s->logits[truncates ? candidate(s, n, i) : i];
        s->weights[i] = exp((logit - max) / o->temperature); /* 0 for banned tokens */
        total += s->weights[i];
    }
    double point = rng_unit_at(o->seed, SAMPLE_STREAM, index) * total;
    uint32_t i = pick(s->weights, kept, point);
    return (int32_t)(truncates ? candidate(s, n, i) : i);
}

zp_status zp_sampler_draw(zp_sampler *s, const float *logits, const int32_t *history,
                          size_t n_history, uint64_t index, int32_t *id, zp_err *err)
{
    const zp_sampler_options *o = &s->o;
    bool changes = o->n_bias != 0 || has_penalties(o) || o->grammar;
    ZP_TRY(sample_check_finite(logits, s->n_vocab, err));
    if (o->temperature == 0 && !changes) {
        *id = sample_best(logits, s->n_vocab);
        return ZP_OK;
    }
    memcpy(s->logits, logits, s->n_vocab * sizeof *logits);
    for (size_t i = 0; i < o->n_bias; i++) s->logits[s->bias[i].id] += s->bias[i].value;
    if (has_penalties(o)) ZP_TRY(apply_penalties(s, history, n_history, err));
    if (changes) ZP_TRY(check_changed(s, err));
    if (o->grammar) ZP_TRY(apply_grammar(s, err));
    if (changes) ZP_TRY(check_left(s, err));
    *id = o->temperature == 0 ? sample_best(s->logits, s->n_vocab) : draw(s, index);
    return ZP_OK;
}

zp_status zp_sampler_accept(zp_sampler *s, int32_t id, zp_err *err)
{
    if (s->o.grammar == NULL) return ZP_OK;
    return constrain_accept(s->o.grammar, &s->place, id, err);
}

bool sample_is_over(const zp_sampler *s)
{
    return s->o.grammar && constrain_is_over(s->o.grammar, &s->place);
}
