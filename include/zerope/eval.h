/* eval.h: perplexity, KL and top-1 agreement, and retrieval probes, on text documents; speed. */
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

/* bench: tokens per second of an engine on synthetic tokens, at each depth: "fill" (reaching the
 * depth from the one before it; once), "prefill" (n_prompt tokens there) and, for each number of
 * sequences, "decode" (n_predict tokens of each, one at a time; the sequences share the filled
 * part, unless `separate`). prefill and decode: one run to warm up, then `repetitions`. Before and
 * after each the read bandwidth is measured with the same threads. JSON {model, cpu, level,
 * threads, exact, kv_type, mode, position_kind, position_bytes (angles and bias tables),
 * rotations_per_token (pairs), bias_heads (that add a value to every score), separate, ctx,
 * micro_batch, weights_bytes, kv_bytes, rows[], total_seconds}, a row {test, depth, batch, tokens,
 * repetitions, tps_median, tps_min, tps_max, spread, seconds_median, seconds_min,
 * cpu_seconds_median, weights_read_bytes, kv_read_bytes, bytes_per_token, gbps, peak_gbps,
 * fraction, load_average}. Of a row: tokens and bytes are those of one repetition;
 * weights_read_bytes: packed weights, once a micro-batch; kv_read_bytes: pages of keys and values
 * in reach, once a micro-batch and sequence; gbps: those bytes in the median time; peak_gbps: the
 * median bandwidth; fraction: the median of each repetition's share of the bandwidth around it;
 * spread: (longest - shortest) / median time; cpu_seconds_median: of all threads. Stopped by
 * `progress`: ZP_INTERRUPTED, and *json holds the rows measured so far and {interrupted: true}, or
 * is NULL where there are none. */
typedef struct zp_bench_options {
    uint32_t n_prompt;  /* default 512 */
    uint32_t n_predict; /* default 64 */
    bool no_prefill, no_decode;
    const uint32_t *depths; /* ascending; default: 0 */
    size_t n_depths;
    const uint32_t *batches; /* sequences at a time; default: 1 */
    size_t n_batches;
    uint32_t repetitions; /* default 5 */
    zp_mode mode;
    /* NULL: the file's own. "rope" "none" "alibi" "t5" "mlp": all layers as if they were of that
     * kind, with made-up parameters: what the kind costs. */
    const char *position_kind;
    bool separate;  /* each sequence has keys and values of its own, also of what stands before */
    bool copy_fill; /* depths are reached with copies of one computed tile of keys and values */
    zp_engine_options engine; /* n_ctx and kv_bytes: default what the tests need; n_seq is set */
    zp_progress progress;
} zp_bench_options;
ZP_API zp_status zp_bench_json(const zp_model *m, const zp_bench_options *options, char **json,
                               zp_err *err);

#ifdef __cplusplus
}
#endif

#endif
