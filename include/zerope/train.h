/* train.h: token corpora out of text, and training. */
#ifndef ZEROPE_TRAIN_H
#define ZEROPE_TRAIN_H

#include <zerope/zerope.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Text of files into one file of token documents. inputs: files, and folders (each file below is a
 * document; names that begin with a point are passed over). *.html, *.htm, *.xhtml: tags are
 * stripped and entities become characters; all others are text as it stands, Markdown among them.
 * Documents of the same text count once. A document is wholly held out or wholly for training, by a
 * hash of its text; at least one is on either side.
 * Errors: no text at all, one document of which nothing can be held out, a file that is not UTF-8
 * (named), a model whose embedding is smaller than its vocabulary: ZP_BAD_INPUT; no tokenizer
 * named, or two, or an output over an input: ZP_USAGE.
 * JSON {documents, held_documents, duplicates, tokens, held_tokens, held_share (of tokens),
 * text_bytes, token_length (bytes of text), n_vocab, separator, tokenizer, trained, file,
 * file_bytes}. */
typedef struct zp_corpus_options {
    /* One of the two. tokenizer: a model, or a GGUF file that holds a tokenizer alone. train_vocab:
     * tokens of a new one (bytes, special tokens, merges), made from the training documents and
     * written as tokenizer.gguf beside `out`. Fewer where the text has no more pairs. */
    const char *tokenizer;
    uint32_t train_vocab;
    const char *pre; /* pre-tokeniser: of the new one (default smollm), or instead of the file's */
    double held_share; /* of documents; default 0.05; above 0, below 1 */
    bool no_held;      /* nothing is held out */
    zp_progress progress;
} zp_corpus_options;
/* json may be NULL. Both files are written atomically. */
ZP_API zp_status zp_corpus_make(const char *const *inputs, size_t n_inputs, const char *out,
                                const zp_corpus_options *options, char **json, zp_err *err);

/* What a run tells while it goes on: every few seconds, and after each measurement. */
typedef struct zp_train_report {
    uint64_t step, steps;     /* taken, of all */
    double loss, ce, kl;      /* nats a token, means over the steps since the last report */
    double held_ce, held_kl;  /* of the last measurement; NaN before the first */
    double rate;              /* learning rate */
    double tokens_per_second; /* since the last report */
    uint64_t gates_closed, gates;
} zp_train_report;
typedef void (*zp_train_report_fn)(void *arg, const zp_train_report *report);

/* Trains a model on a corpus (zp_corpus_make) and writes it to `out` (GGUF; may be the model's own
 * path). All parameters learn, but slopes of ALiBi; with lora_rank or adapter_in nothing but
 * adapters (LoRA): chosen matrices become W0 + lora_alpha / lora_rank * B A, and `out` holds them
 * so, merged. W0 is what the file has, de-quantised to f32: of a quantised model adapters save the
 * gradients and the optimiser's state, not the memory of its weights. With the same options,
 * corpus, machine kind and library the result has the same bits for any number of threads and
 * processes, and when a run was stopped and gone on with.
 * Errors: a corpus of another tokenizer, without held-out documents, numbers in the model that are
 * not finite, checkpoints of another model or with other options, a damaged folder of adapters or
 * one without any that fits: ZP_BAD_INPUT or ZP_BAD_FILE; adapters of a kind that is not read:
 * ZP_UNSUPPORTED; a rank beyond a matrix, an unknown target: ZP_USAGE; loss or gradients that stay
 * not finite after roll-backs, norms of queries or keys that grew fourfold: ZP_RUN, the last
 * checkpoint stays.
 * JSON {model, corpus, file, steps, tokens, n_ctx, batch_rows, learning_rate, loss, held_before,
 * held (each {nll, ppl, windows, tokens; with an original kl and same_top}), seconds,
 * tokens_per_second, precision, matrices, skipped_steps, roll_backs, run; with adapters lora {rank,
 * alpha, targets, matrices, parameters, folder}}. */
typedef struct zp_train_options {
    uint64_t tokens;        /* budget, rounded up to whole batches; required */
    uint32_t n_ctx;         /* tokens of a row; default: the model's context, at most 512 */
    uint32_t batch_rows;    /* of a step, over all processes; default 32 */
    uint32_t micro_batches; /* a step's batch is computed in so many parts; default 1 */
    double learning_rate;   /* peak; default 1e-3 */
    const char *schedule;   /* "constant", "cosine", "wsd" (default) */
    double warmup, decay;   /* shares of the steps; default 0.05, 0.2 (wsd) */
    double floor;           /* share of the peak at the end; default 0.05 */
    double weight_decay;    /* default 0.1; below 0: none */
    double clip;            /* of the gradient's norm; default 1; below 0: none */
    /* of rows that are made-up tasks (copying, looking up, ...); default 0 */
    double task_share;
    double rotation_dropout; /* probability that a step leaves a pair unrotated; default 0 */
    const char *original;   /* model to stay close to by KL(original || model), or NULL */
    double ce_weight, kl_weight; /* default 1 and, with an original, 1; below 0: none */
    const char *learn;      /* "all" (default); "qk": what makes queries and keys; "qko": and what
                             * joins the heads */
    bool match;             /* instead of the loss: what each layer's attention adds matches the
                             * original's (mean squared error, layer by layer, with the original's
                             * stream before it); layers whose positions are the original's rest */
    uint32_t lora_rank;     /* 0: no adapters, or, with adapter_in, that folder's rank */
    double lora_alpha;      /* default: the rank, so that B A counts once; or the folder's */
    const char *lora_targets; /* list of q,k,v,o,gate,up,down; default "q,v", or the folder's */
    /* Folders as PEFT has them (adapter_config.json, adapter_model.safetensors). adapter_in: to
     * begin with; what it has of matrices that the model lacks, or has in another shape, is left
     * out with a warning. adapter_out: the adapters are written there as well. NULL: none. */
    const char *adapter_in, *adapter_out;
    uint64_t seed;          /* default 1 */
    uint32_t n_threads;
    bool bf16;              /* products in bfloat16 where the processor can; else float32 */
    bool recompute;         /* less memory, a third more work */
    const char *type;       /* of matrices in the file: F32 (default), F16, BF16, Q8_0, ... */
    const char *run;        /* folder of run.json, metrics, checkpoints; NULL: none */
    bool resume;            /* go on with the run in that folder */
    uint64_t save_every, eval_every; /* steps; default 200, 100 */
    uint32_t eval_windows;  /* held-out windows of a measurement; default 32 */
    const char *processes;  /* "mpi": started by mpirun; NULL: this one alone */
    const char *command;    /* as it was typed, for run.json; or NULL */
    zp_progress progress;
    zp_train_report_fn on_report;
    void *report_arg;
} zp_train_options;
ZP_API zp_status zp_train_run(const char *model, const char *corpus, const char *out,
                              const zp_train_options *options, char **json, zp_err *err);

#ifdef __cplusplus
}
#endif

#endif
