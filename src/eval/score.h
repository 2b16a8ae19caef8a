/* score.h: NLL, KL and top-1 agreement of windows: one model, or one against another. */
#ifndef EVAL_SCORE_H
#define EVAL_SCORE_H

#include "eval/docs.h"
#include "model/engine.h"

/* Hidden states after the last layer of some windows: what base logits are recomputed from. */
struct hidden {
    float *x;
    uint32_t n_windows, n_ctx, d_model;
}; /* (n_windows, n_ctx, d_model) */
zp_status hidden_run(struct hidden *h, struct zp_engine *e, const struct windows *w,
                     const zp_progress *progress, zp_err *err);
void hidden_free(struct hidden *h);

/* Runs one window through layers [layer_begin, layer_end) (0 = all) in a sequence of its own; x_in,
 * x_out as in engine_job; hooks (may be NULL) hold for this run. */
zp_status score_layers(struct zp_engine *e, const struct window *w, uint32_t layer_begin,
                       uint32_t layer_end, const float *x_in, float *x_out,
                       const struct forward_hooks *hooks, zp_err *err);
/* The same to the last layer, without hooks: x_out are the last hidden states (n, d_model). */
zp_status score_hidden(struct zp_engine *e, const struct window *w, uint32_t layer_begin,
                       const float *x_in, float *x_out, zp_err *err);

/* One position: what the candidate and, where there is one, the base make of the next token. */
struct score_row {
    double nll, nll_base, kl;
    bool right, right_base; /* the next token is the most likely one (of equal ones the first) */
    bool same;              /* both have the same most likely one */
};
/* logits and base: (n_vocab), base may be NULL; target: the next token. Numbers that are not finite
 * are the caller's to find. */
void score_row(const struct kern_table *kern, const float *logits, const float *base,
               size_t n_vocab, int32_t target, struct score_row *out);

struct score_mean {
    double sum;
    uint64_t n;
};
/* Sums over scored positions; one entry a window for intervals. */
struct score {
    uint32_t n_windows;
    struct score_mean *nll, *nll_base, *kl, *top1,
        *kl_last;     /* (n_windows); kl_last: last 200 positions */
    float *kl_values; /* every scored position's KL, for quantiles; n_values */
    size_t n_values;
    struct score_mean bucket[24], bucket_base[24]; /* by position: [2^b, 2^(b+1)) */
};
/* Which positions count: begin <= p < n - 1 and p % stride == 0 (target = id at p + 1). Buckets may
 * begin earlier: buckets_begin, 0 = begin. */
struct score_range {
    uint32_t begin, stride, buckets_begin;
};

zp_status score_open(struct score *s, uint32_t n_windows, uint32_t n_ctx, struct score_range range,
                     zp_err *err);
void score_free(struct score *s);
/* Adds window i: x of the candidate (n, d_model) by engine e; base x by engine b (both NULL: NLL
 * only). */
zp_status score_window(struct score *s, uint32_t i, const struct window *w,
                       struct score_range range, struct zp_engine *e, const float *x,
                       struct zp_engine *b, const float *base_x, zp_err *err);

double score_average(const struct score_mean *m,
                     uint32_t n);                       /* over all positions of all windows */
double score_quantile(const struct score *s, double q); /* of kl_values; sorts them */
/* One-sided 95 % upper bound of the mean by bootstrap over windows (2000 draws, fixed seed). */
double score_upper95(const struct score_mean *m, uint32_t n, uint64_t seed);
/* Two-sided 95 % intervals; NaN where there is nothing to make one of. */
struct score_interval {
    double lo, hi;
};
/* Of the mean, by bootstrap over n >= 2 entries that all have n > 0. */
struct score_interval score_interval95(const struct score_mean *m, uint32_t n, uint64_t seed);
/* Of a share of n independent cases (Wilson, 1927). */
struct score_interval score_wilson95(uint64_t right, uint64_t n);
/* Of the difference of two shares of the same n cases, of which `more` count for the first only and
 * `fewer` for the second only (Agresti and Min, 2005: half a case more of each sort, so that n
 * cases without a difference do not make one impossible). */
struct score_interval score_paired95(uint64_t more, uint64_t fewer, uint64_t n);

#endif
