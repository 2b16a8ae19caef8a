/* retrieval.h: prompts that hide a key in real text and ask for it; answers are scored token by
 * token. */
#ifndef EVAL_RETRIEVAL_H
#define EVAL_RETRIEVAL_H

#include "eval/docs.h"
#include "model/engine.h"

enum retrieval_kind { RETRIEVAL_PASSKEY, RETRIEVAL_MULTIKEY };
/* Wordings used to rank heads never appear in tests. */
enum retrieval_wording { RETRIEVAL_CALIBRATION, RETRIEVAL_TEST };

struct retrieval_case {
    int32_t *ids; /* (n) text with the key, question, answer */
    uint32_t n;
    uint32_t answer, n_answer; /* answer tokens are ids[answer .. answer + n_answer) = the tail */
};
struct retrieval {
    struct retrieval_case *cases;
    size_t n;
};

/* n prompts of exactly n_ctx ids; deterministic in seed. The key lies in the first 60 % of the
 * text. */
zp_status retrieval_make(struct retrieval *r, struct docs *d, const struct zp_model *m,
                         enum docs_part part, enum retrieval_kind kind,
                         enum retrieval_wording wording, uint32_t n_ctx, size_t n, uint64_t seed,
                         zp_err *err);
void retrieval_free(struct retrieval *r);
/* The least n_ctx that retrieval_make accepts for such prompts. */
zp_status retrieval_least_ctx(const struct zp_model *m, enum retrieval_kind kind,
                              enum retrieval_wording wording, size_t n, uint64_t seed, size_t *out,
                              zp_err *err);

/* Mean NLL of the answer's tokens, and whether each is the most likely one (= greedy decoding gives
 * the answer). x: last hidden states of all n tokens of the case. */
zp_status retrieval_score(struct zp_engine *e, const struct retrieval_case *c, const float *x,
                          double *nll, bool *right, zp_err *err);
const char *retrieval_kind_name(enum retrieval_kind kind);

#endif
