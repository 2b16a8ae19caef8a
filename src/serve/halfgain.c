/* halfgain.c: the same prompts and tokens in mode full and half by turns, and the ratio of times.
 * G1 a round is one of each, next to each other and in alternating order: what else the machine
 *    does falls on both.  G2 no run takes anything over from another: each has a salt of its
 *    own. */
#include "serve/halfgain.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/os.h"
#include "model/engine.h"

enum { ROUNDS = 5, DRAWN = 16, LEAST_PROMPT = 16 };

struct bench {
    zp_engine *e;
    int32_t *ids; /* (n + DRAWN) */
    uint32_t n;
    float *logits; /* (n_vocab) */
    uint64_t salt;
};

static zp_status run_once(struct bench *b, zp_seq *seq, zp_err *err)
{
    zp_item item = { .seq = seq, .ids = b->ids, .n = b->n, .want = ZP_WANT_LAST };
    ZP_TRY(zp_engine_run(b->e, &item, 1, b->logits, 1, NULL, err));
    for (uint32_t i = 0; i < DRAWN; i++) {
        item.ids = b->ids + b->n + i;
        item.n = 1;
        ZP_TRY(zp_engine_run(b->e, &item, 1, b->logits, 1, NULL, err));
    }
    return ZP_OK;
}

static zp_status time_once(struct bench *b, zp_mode mode, double *seconds, zp_err *err)
{
    zp_seq *seq;
    // G2
    ZP_TRY(zp_seq_open(&seq, b->e, &(zp_seq_options){ .mode = mode, .salt = ++b->salt }, err));
    double begin = os_now();
    zp_status status = run_once(b, seq, err);
    *seconds = os_now() - begin;
    zp_seq_close(seq);
    return status;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* most: seconds that may be spent; *gain stays 0 where that does not suffice. */
static zp_status measure(struct bench *b, double most, double *gain, zp_err *err)
{
    double ratios[ROUNDS], full, half;
    ZP_TRY(time_once(b, ZP_MODE_HALF, &half, err)); /* warm, and as long as all others */
    if (half * 2 * ROUNDS > most) return ZP_OK;
    for (int r = 0; r < ROUNDS; r++) { // G1
        if (r % 2 == 0) ZP_TRY(time_once(b, ZP_MODE_FULL, &full, err));
        ZP_TRY(time_once(b, ZP_MODE_HALF, &half, err));
        if (r % 2 != 0) ZP_TRY(time_once(b, ZP_MODE_FULL, &full, err));
        ratios[r] = full / half;
    }
    qsort(ratios, ROUNDS, sizeof *ratios, by_size);
    *gain = ratios[ROUNDS / 2];
    return ZP_OK;
}

static zp_status measure_class(zp_engine *e, uint32_t n, double *gain, zp_err *err)
{
    uint32_t n_vocab = e->model->h.n_vocab;
    struct bench b = { .e = e, .n = n, .ids = mem_array(MEM_SERVE, n + DRAWN, sizeof *b.ids),
                       .logits = mem_array(MEM_SERVE, n_vocab, sizeof *b.logits),
                       .salt = UINT64_C(0x68616c66) << 32 };
    zp_status status = ZP_NO_MEMORY;
    if (b.ids == NULL || b.logits == NULL)
        (void)status_fail(err, status, __FILE__, __LINE__,
                          "not enough memory to measure mode half");
    else {
        for (uint32_t i = 0; i < n + DRAWN; i++)
            b.ids[i] = (int32_t)((uint64_t)i * 7919 % n_vocab);
        status = measure(&b, HALFGAIN_MOST, gain, err);
    }
    mem_free(b.ids);
    mem_free(b.logits);
    return status;
}

/* Tokens of the prompt that stands for a class: a quarter of a class without a beginning, or its
 * beginning; 0: the context has no room for it. */
static uint32_t prompt_of(const struct sla_options *o, int l, uint32_t n_ctx)
{
    uint32_t n = l == LENGTH_SHORT ? o->medium_from / 4 : l == LENGTH_MEDIUM ? o->medium_from
                                                                             : o->long_from;
    if (n < LEAST_PROMPT) n = LEAST_PROMPT;
    return (uint64_t)n + DRAWN <= n_ctx ? n : 0;
}

void halfgain_measure(zp_engine *e, const struct sla_options *sla, struct halfgain *out)
{
    zp_engine_stats stats;
    *out = (struct halfgain){ .why = "" };
    zp_engine_describe(e, &stats);
    for (int l = 0; l < LENGTHS; l++) {
        zp_err err = { 0 };
        uint32_t n = prompt_of(sla, l, stats.n_ctx);
        if ((sla->limits[l].first_p95 <= 0 && sla->limits[l].total_p90 <= 0) || n == 0) continue;
        out->n_prompt[l] = n;
        if (measure_class(e, n, &out->gain[l], &err) != ZP_OK) {
            (void)snprintf(out->why, sizeof out->why, "%.150s", err.message);
            return;
        }
        if (out->gain[l] <= 0)
            (void)snprintf(out->why, sizeof out->why, "%s prompts take too long to be measured",
                           length_name((enum length_class)l));
    }
}
