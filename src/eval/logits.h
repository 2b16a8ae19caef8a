/* logits.h: what a model says after a prompt, and how well it foresaw the prompt itself. */
#ifndef EVAL_LOGITS_H
#define EVAL_LOGITS_H

#include <zerope/eval.h>
#include "model/engine.h"

/* Appends ids to seq. nll (n) or NULL: nll[i] = -ln p(ids[i] | before), i >= 1; nll[0] = 0. last
 * (n_vocab): logits after the last id. Holds the logits of a few rows at a time. */
zp_status logits_prompt(struct zp_engine *e, zp_seq *seq, const int32_t *ids, size_t n, double *nll,
                        float *last, zp_err *err);

#endif
