/* evap.h: scan, plan, snap, verify, export: taking positions out of a model file, with evidence. */
#ifndef ZEROPE_EVAP_H
#define ZEROPE_EVAP_H

#include <zerope/eval.h>
#include <zerope/train.h>

#ifdef __cplusplus
extern "C" {
#endif

/* In all of these `options` may be NULL (defaults; plan and evaporate need a budget), and so may
 * `json` (no document wanted). In documents a number that is not finite is null. */

#define ZP_SCAN_WINDOWS_MIN 2 /* fewer windows, asked for or given by the text, are refused */
/* Importance of every gate at window length n_ctx. text: a file or a folder of documents (a
 * document is a file; a single file is cut into parts); one of three, in the order of names, is
 * planned with, and SCAN.json lists by hash those that were: no later step holds them out. It is
 * written atomically to `out`. */
typedef struct zp_scan_options {
    uint32_t n_ctx;           /* default 2048 */
    uint32_t n_windows_local; /* default 8; for local errors; at least ZP_SCAN_WINDOWS_MIN */
    uint32_t n_windows_kl;    /* default 2: windows for exact one-at-a-time KL */
    uint32_t local_window; /* 0: no local-head scan; else W: also ranks heads for becoming local */
    bool fisher; /* also Fisher information and first order of each gate, for plans by rank: two
                  * forward and two backward passes for each of n_windows_local windows */
    uint32_t n_threads;
    uint64_t seed; /* default 1: of the retrieval prompts that rank heads, and of the labels drawn
                    * for Fisher information; text windows have none */
    zp_progress progress;
} zp_scan_options;
ZP_API zp_status zp_scan_run(const char *model, const char *text, const zp_scan_options *options,
                             const char *out, zp_err *err);

typedef struct zp_plan_options {
    double budget_kl; /* mean KL(original || new) over positions >= n_ctx / 2, 95 % upper bound */
    /* at most one of the four */
    bool uniform, uniform_slow; /* the same pair indices in all layers; only the slowest k pairs */
    bool layers;                /* prefers whole layers */
    uint32_t local_window;      /* W > 0: heads may become local; the scan must have the same W */
    bool no_fold;               /* no mean-rotation fold into q */
    const char *rank; /* order of single gates: "local" (default): importance; "fisher"; "sum" of
                       * the ranks in both: the scan must have been made with fisher */
    const char *model, *text;   /* default: the paths stored in the scan */
    uint32_t n_threads;
    zp_progress progress;
} zp_plan_options;
ZP_API zp_status zp_plan_run(const char *scan, const zp_plan_options *options, const char *out,
                             zp_err *err);

/* Scan, plan, snap and measured check in one; never exceeds the budget. out: GGUF of architecture
 * zerope-<arch>. JSON {ctx, budget_kl, closed, total, kl_mean, kl_hi, kl_last200, ppl_before,
 * ppl_after, heads_none, heads_local, layers_none, kv_bytes_per_token, file, ...}. scan_in /
 * plan_in: reuse files of earlier runs (may be NULL); a plan's budget holds where plan.budget_kl
 * is 0. */
typedef struct zp_evaporate_options {
    zp_scan_options scan; /* n_threads and progress are of the whole call; local_window is plan's,
                           * and what plan.rank needs is measured */
    zp_plan_options plan; /* its n_threads, progress, model and text are not looked at */
    const char *scan_in, *scan_out, *plan_in, *plan_out;
    const char *base; /* original of a model that was evaporated before: the budget is against it */
    uint32_t n_windows_check; /* default 32 held-out windows */
    bool close_all; /* closes everything regardless of the budget (for settling later); says so */
} zp_evaporate_options;
ZP_API zp_status zp_evaporate_run(const char *model, const char *text,
                                  const zp_evaporate_options *options, const char *out, char **json,
                                  zp_err *err);

/* Takes positions out by training: gates close under a policy while the model learns on a corpus
 * (zp_corpus_make), and what has closed is absent from the file written: architecture
 * zerope-<arch>.
 * Errors: as zp_train_run; a model without an open gate: ZP_BAD_INPUT.
 * JSON as zp_train_run's, and {policy, closed, total, closed_by_layer[]}. */
typedef struct zp_anneal_options {
    zp_train_options train; /* rotation_dropout is not looked at */
    const char *policy; /* "abrupt" (default): all at once; "staged": group by group; "dropout":
                         * one after the other, drawn; "l1", "l0": learned under a penalty */
    const char *plan;   /* PLAN.json of zp_plan_run: what closes and in which order, which heads
                         * become local; NULL: all gates, slow pairs first */
    uint32_t stages;    /* staged: groups; default 8 */
    uint64_t begin;     /* first step at which gates may close; default 0, or pic_steps */
    uint64_t
        pic_steps; /* a bridge over the loss: an MLP of the token's index on each layer learns in
                         * so many steps before gates begin to close, fades out in as many, and is
                         * absent from the file; default 0: none */
    double share;       /* of the open gates, that close; default all */
    double ramp;        /* share of the steps until the last has closed; default 0.6 */
    double overlap;     /* dropout: share of the ramp that each gate takes; default 0.5 */
    /* l1, l0: in units of the model's own mean |dL/dg|, measured in the first steps; 0: the
     * defaults */
    double lambda, eps_first, eps_rest;
    uint32_t t_cool;
    double tolerance; /* l1, l0: what closed opens again if the held-out loss rises by more */
} zp_anneal_options;
ZP_API zp_status zp_anneal_run(const char *model, const char *corpus, const char *out,
                               const zp_anneal_options *options, char **json, zp_err *err);

/* Writes a model with parts that are to learn (zp_train_run, zp_anneal_run) what its positions did:
 * until they have learned something it computes what it computed, bit for bit.
 *   position gate: each head's queries times exp(w . phi(position)); keys stay free of positions
 *   structure head: eight detectors of what a token is in a document's structure, and how much each
 *     head of some layers listens to them
 * The architecture becomes zerope-<arch>. The same model and options give the same file.
 * Errors: a model that has the part already, an unknown size, nothing to add: ZP_USAGE. */
typedef struct zp_extend_options {
    bool position_gate, structure_head;
    /* How many layers listen: "all", a number, or "auto" (default): all where the processor has
     * AVX-512, every second with AVX2, else every fourth; at most 0.3 % of the parameters. */
    const char *head_size;
} zp_extend_options;
ZP_API zp_status zp_model_extend(const char *model, const char *out,
                                 const zp_extend_options *options, zp_err *err);

/* Fits the logit scale 1 + c ln(max(1, n / len)) of queries that see n > len positions, on held-out
 * documents of a corpus, and writes the model with it (zerope.attention.scale_c, the same c in all
 * layers). len: the trained length. c is 0 where no scale is better than none. Evidence in the
 * file, which was measured without it, is left out.
 * Errors: no held-out window of twice the trained length, another tokenizer: ZP_BAD_INPUT.
 * JSON {file, c, scale_len, length, windows, fitted[], held[] (by bucket of positions: {from, to,
 * nll_before, nll}; held: the windows that c was not fitted on)}. */
typedef struct zp_scale_options {
    uint32_t from;      /* len; default: the model's trained length */
    uint32_t length;    /* of the windows; default: 8 times len, as far as documents go */
    uint32_t n_windows; /* default 16; half of them to fit on */
    uint32_t n_threads;
    zp_progress progress;
} zp_scale_options;
ZP_API zp_status zp_scale_fit(const char *model, const char *corpus, const char *out,
                              const zp_scale_options *options, char **json, zp_err *err);

/* The evidence: checks[{name, value, limit, status, how}], status pass|fail|inconclusive; written
 * into `model` when write_evidence. Returns ZP_VERIFY with the JSON filled when a check fails. The
 * JSON is filled, too, when only writing it into the file failed; it is NULL after other
 * failures. */
typedef struct zp_verify_options {
    uint32_t n_ctx;   /* default: the length the file claims */
    double budget_kl; /* default: the file's recipe */
    bool quick;       /* fewer windows, says so */
    bool write_evidence;
    uint32_t n_threads;
    zp_progress progress;
} zp_verify_options;
ZP_API zp_status zp_verify_run(const char *model, const char *base, const char *text,
                               const zp_verify_options *options, char **json, zp_err *err);

/* to: "stock-gguf", "hf", "gguf". JSON {files[], expected_engines[], context_length, notes[]}. */
ZP_API zp_status zp_export_run(const char *model, const char *to, const char *out,
                               const zp_progress *progress, char **json, zp_err *err);

#ifdef __cplusplus
}
#endif

#endif
