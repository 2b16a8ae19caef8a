/* sample.c: from logits to the next token, and log-probabilities.
 * A draw is a pure function of (options, logits, history, seed, index): no state is kept between
 * calls, so a restored or forked sequence draws the same tokens.
 * S1 between draws every entry of `counts` is 0.
 * S2 candidates are ordered by logit, then by id: what is cut off never depends on a sort's whims.
 * One thread at a time; open one for each sequence. */
#include "model/sample.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/num.h"
#include "base/rng.h"
#include "model/model.h"

#define SAMPLE_STREAM 0x73616d706c65u /* rng stream of draws */
#define DEFAULT_LAST_N 64

struct zp_sampler {
    uint32_t n_vocab;
    zp_sampler_options o;
    zp_bias *bias;    /* (o.n_bias) copy */
    float *logits;    /* (n_vocab) with bias and penalties */
    uint32_t *ids;    /* (n_vocab) candidates: a heap, behind it the best ones taken off it */
    uint32_t *counts; /* (n_vocab) times in the penalty window */
    double *weights;  /* (n_vocab) of the kept candidates */
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

int32_t sample_best(const float *logits, uint32_t n_vocab)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n_vocab; i++)
        if (logits[i] > logits[best]) best = i;
    return (int32_t)best;
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

zp_status sample_top(const float *logits, uint32_t n_vocab, uint32_t k, struct sample_logprob *out,
                     zp_err *err)
{
    ZP_FAIL_IF(k > n_vocab, err, ZP_USAGE, "%u log-probabilities of a vocabulary of %u", k,
               n_vocab);
    ZP_TRY(sample_check_finite(logits, n_vocab, err));
    if (k == 0) return ZP_OK;
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_vocab; i++) {
        if (n == k && logits[i] <= out[n - 1].logprob)
            continue; /* equal ones: the lower id stays */
        uint32_t at = n < k ? n++ : k - 1;
        for (; at > 0 && logits[i] > out[at - 1].logprob; at--) out[at] = out[at - 1];
        out[at] = (struct sample_logprob){ (int32_t)i, logits[i] };
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

zp_status zp_sampler_open(zp_sampler **out, const zp_model *m, const zp_sampler_options *options,
                          zp_err *err)
{
    return sample_open(out, m->h.n_vocab, options, err);
}

void zp_sampler_close(zp_sampler *s)
{
    if (s == NULL) return;
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

/* Fills ids with all tokens that are not banned. */
static zp_status gather(zp_sampler *s, uint32_t *n, zp_err *err)
{
    *n = 0;
    for (uint32_t i = 0; i < s->n_vocab; i++) {
        ZP_FAIL_IF(isnan(s->logits[i]) || s->logits[i] == INFINITY, err, ZP_RUN,
                   "bias or penalties make the logit of token %u too large", i);
        if (s->logits[i] != -INFINITY) s->ids[(*n)++] = i;
    }
    ZP_FAIL_IF(*n == 0, err, ZP_RUN, "the logit bias bans all %u tokens: none is left to draw",
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

/* How many of n gathered tokens top_k, top_p and min_p keep; those are candidate(0 .. kept). */
static uint32_t keep_best(zp_sampler *s, uint32_t n)
{
    const zp_sampler_options *o = &s->o;
    uint32_t k = o->top_k != 0 && o->top_k < n ? o->top_k : n, popped = 0, kept = 0;
    double total = 0, sum = 0;
    for (uint32_t i = n / 2; i-- > 0;) sift_down(s->logits, s->ids, n, i);
    double max = s->logits[s->ids[0]], floor = o->min_p > 0 ? max + log(o->min_p) : -INFINITY;
    if (o->top_p < 1) { /* top_p is a share of what top_k leaves */
        for (; k < n && popped < k; popped++) pop_best(s, n - popped);
        for (uint32_t i = 0; i < k; i++) total += exp(s->logits[s->ids[n - 1 - i]] - max);
    }
    while (kept < k) {
        if (kept == popped) pop_best(s, n - popped++);
        double logit = s->logits[candidate(s, n, kept)];
        if (kept != 0 && logit < floor) break;
        kept++;
        sum += exp(logit - max);
        if (o->top_p < 1 && sum >= o->top_p * total) break;
    }
    return kept;
}

/* Without truncation the candidates stay in order of id, highest first, which saves the heap. */
static int32_t draw(zp_sampler *s, uint32_t n, uint64_t index)
{
    const zp_sampler_options *o = &s->o;
    bool truncates = (o->top_k != 0 && o->top_k < n) || o->top_p < 1 || o->min_p > 0;
    uint32_t kept = truncates ? keep_best(s, n) : n;
    double max = s->logits[sample_best(s->logits, s->n_vocab)], total = 0, sum = 0;
    for (uint32_t i = 0; i < kept; i++) {
        s->weights[i] = exp((s->logits[candidate(s, n, i)] - max) / o->temperature);
        total += s->weights[i];
    }
    double mark = rng_unit_at(o->seed, SAMPLE_STREAM, index) * total;
    uint32_t last = 0;
    for (uint32_t i = 0; i < kept; i++) {
        if (s->weights[i] > 0)
            last = i; /* what rounding leaves over goes to the last possible one */
        sum += s->weights[i];
        if (sum > mark) return (int32_t)candidate(s, n, i);
    }
    return (int32_t)candidate(s, n, last);
}

zp_status zp_sampler_draw(zp_sampler *s, const float *logits, const int32_t *history,
                          size_t n_history, uint64_t index, int32_t *id, zp_err *err)
{
    const zp_sampler_options *o = &s->o;
    ZP_TRY(sample_check_finite(logits, s->n_vocab, err));
    if (o->temperature == 0 && o->n_bias == 0 && !has_penalties(o)) {
        *id = sample_best(logits, s->n_vocab);
        return ZP_OK;
    }
    memcpy(s->logits, logits, s->n_vocab * sizeof *logits);
    for (size_t i = 0; i < o->n_bias; i++) s->logits[s->bias[i].id] += s->bias[i].value;
    if (has_penalties(o)) ZP_TRY(apply_penalties(s, history, n_history, err));
    uint32_t n;
    ZP_TRY(gather(s, &n, err));
    *id = o->temperature == 0 ? sample_best(s->logits, s->n_vocab) : draw(s, n, index);
    return ZP_OK;
}
