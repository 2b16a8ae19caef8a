/* eval.h: perplexity, KL and top-1 agreement, and retrieval probes, on text documents. */
#ifndef ZEROPE_EVAL_H
#define ZEROPE_EVAL_H

#include <zerope/zerope.h>

#ifdef __cplusplus
extern "C" {
#endif

/* logits: top-k log-probabilities after the prompt, greedy continuation, mean NLL of the prompt, as
 * JSON {n_tokens, nll_mean, top:[{id,logprob,text}], greedy:[...], greedy_margin:[...]}. */
typedef struct zp_logits_options {
    uint32_t top;
    uint32_t n_predict;
} zp_logits_options;
ZP_API zp_status zp_logits_json(zp_engine *e, const int32_t *ids, size_t n,
                                const zp_logits_options *options, char **json, zp_err *err);

/* ppl: NLL and perplexity in windows of n_ctx tokens (each begins with BOS where the model wants
 * one), scored in the second half, by position bucket. With base also KL(base || m) and top-1
 * agreement. path: a file or a folder of documents. JSON {tokens, scored, nll, ppl, buckets[],
 * ...}, with base also {kl_mean, kl_p99, kl_max, top1_agree}. */
typedef struct zp_ppl_options {
    uint32_t n_ctx;       /* window; default 1024 */
    uint32_t max_windows; /* default: all */
    zp_mode mode;
    bool contiguous; /* one document: windows of the concatenated text, as llama-perplexity does */
    zp_engine_options engine; /* n_ctx is set by the call */
    zp_engine_options
        base_engine; /* for base; default exact = true when left zero is NOT assumed: set it */
    zp_progress progress;
} zp_ppl_options;
ZP_API zp_status zp_ppl_json(const zp_model *m, const zp_model *base, const char *path,
                             const zp_ppl_options *options, char **json, zp_err *err);

#ifdef __cplusplus
}
#endif

#endif
