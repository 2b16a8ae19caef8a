/* sample.h: from logits to the next token, and log-probabilities.
 * Order, the one llama.cpp's users know: logit bias, penalties, grammar, top_k, top_p, min_p,
 * temperature, draw. top_p and min_p look at probabilities before the temperature. Options:
 * zp_sampler_options (zero = off or default); the public calls zp_sampler_* are defined in
 * sample.c. */
#ifndef MODEL_SAMPLE_H
#define MODEL_SAMPLE_H

#include <zerope/zerope.h>
#include "base/status.h"

/* The grammar's text is whole and nothing can follow. */
bool sample_is_over(const zp_sampler *s);
/* As zp_sampler_open for a given vocabulary; all memory is taken here, draws allocate nothing but
 * what a grammar finds out for the first time. The bias list is copied. ZP_USAGE: an option out of
 * its range. Close with zp_sampler_close. */
zp_status sample_open(zp_sampler **out, uint32_t n_vocab, const zp_sampler_options *options,
                      zp_err *err);

/* What zp_sampler_open refuses of the options. */
zp_status sample_check(const zp_sampler_options *o, const zp_model *m, zp_err *err);

/* ln p of tokens by the model itself: softmax of the raw logits in double, before any option. */
struct sample_logprob {
    int32_t id;
    double logprob;
};
/* The k most likely, best first, equal ones by id. k <= n_vocab. */
zp_status sample_top(const float *logits, uint32_t n_vocab, uint32_t k, struct sample_logprob *out,
                     zp_err *err);
zp_status sample_logprob_of(const float *logits, uint32_t n_vocab, int32_t id, double *out,
                            zp_err *err);
/* ZP_RUN naming the first logit that is NaN or infinite. */
zp_status sample_check_finite(const float *logits, uint32_t n_vocab, zp_err *err);
/* Id of the largest logit, the lowest of equal ones. */
int32_t sample_best(const float *logits, uint32_t n_vocab);

#endif
