/* train.h: token corpora out of text, training, and measures of models on held-out text. */
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

/* Writes a model with fresh values to `out` (GGUF, f32), for training from nothing. config: a JSON
 * file {n_layer, d_model, n_head, n_kv, d_head, d_ff, n_ctx, position, ...}, position being rope,
 * partial, alibi, t5, mlp or none (docs/FORMATS.md has all members). tokenizer: a GGUF file with a
 * tokenizer (zp_corpus_make writes one). Models of one seed that differ in position alone share all
 * other values. Errors name the member: ZP_BAD_FILE. */
ZP_API zp_status zp_model_new(const char *config, const char *tokenizer, uint64_t seed,
                              const char *out, zp_err *err);

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
 * so, merged. W0 stays as the file has it, quantised or not, and is widened to f32 a matrix at a
 * time (QLoRA); so do matrices that do not learn otherwise, and the original's. With the same
 * options, corpus, machine kind and library the result has the same bits for any number of threads
 * and processes, and when a run was stopped and gone on with.
 * A corpus without held-out documents trains, too: nothing is measured, and nll, ppl, kl and
 * same_top are null.
 * Errors: a corpus of another tokenizer, an original of another vocabulary, numbers in the model
 * that are not finite, a run begun with another model, original, corpus or other options, a damaged
 * folder of adapters or one without any that fits: ZP_BAD_INPUT or ZP_BAD_FILE; adapters of a kind
 * that is not read: ZP_UNSUPPORTED; a rank beyond a matrix, an unknown target: ZP_USAGE; more
 * memory than there is or `memory` grants: ZP_NO_MEMORY, with the bytes, before it is taken; a
 * folder that another process runs in, loss or gradients that stay not finite after roll-backs, a
 * loss that diverges, norms of queries or keys that grew fourfold: ZP_RUN, the last checkpoint
 * stays.
 * JSON {model, corpus, file, steps, tokens, n_ctx, batch_rows, learning_rate, loss, held_before,
 * held (each {nll, ppl, windows, tokens; with an original kl and same_top}), seconds,
 * tokens_per_second, precision, matrices, skipped_steps, roll_backs, run, memory {predicted,
 * counted}; of a structure head structure {parameters, share (of all parameters), and where its
 * detectors learn tag_loss, tokens, unstructured_tokens (of documents without a mark), tagged
 * {tokens by type}}; with adapters lora {rank, alpha, targets, matrices, parameters, folder}}. Of
 * memory: bytes by what they are for {weights (matrices in their mapped files), parameters,
 * gradients, optimiser, activations, products, train, ...} and total; counted are the most of the
 * run, total that of a moment. With memory_plan available in place of counted. */
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
                             * joins the heads; "gate": position gates; "structure": the structure
                             * head; "parts": both of these */
    /* Of a model with a structure head that learns: weight of its detectors' loss against the
     * documents' own structure, default 0.1, below 0: none; share of detectors that is not heard,
     * drawn anew for each token and step, default 0.3, below 0: none. */
    double tag_weight, tag_dropout;
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
    uint64_t memory; /* most bytes that the run may hold, of this process; 0: what the machine
                             * has left */
    bool memory_plan;       /* nothing is run or written; JSON {model, memory} */
    const char *type;       /* of matrices in the file: F32 (default), F16, BF16, Q8_0, ... */
    const char *run;        /* folder of run.json, metrics, checkpoints; NULL: none */
    bool resume;            /* go on with the run in that folder; without a checkpoint yet:
                             * anew */
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

/* What a run did, from its folder (zp_train_options.run), while it goes on or afterwards; reading
 * disturbs no writer. zp_report_run (zerope/report.h) draws it.
 * Errors: a folder without run.json or without numbers: ZP_BAD_INPUT; a damaged file, named:
 * ZP_BAD_FILE; a database in a build without SQLite, files of a later format: ZP_UNSUPPORTED.
 * JSON {format "zerope-run", folder, last_step, last[{name, step, value}], by_layer[{event, layer,
 * count, first_step, last_step}], events[{event, layer, step, count}], series[{name, steps[],
 * values[]}], resumed[steps]}, and of run.json {command, machine, model_sha256, options[{name,
 * value, origin}], seeds, versions}, null where it does not say. A value that was not finite is
 * null. event: gate closed, gate opened (again), bias closed, bias opened. */
ZP_API zp_status zp_train_run_json(const char *folder, char **json, zp_err *err);

/* probe: the measures by which models of one experiment are compared, up to many times the trained
 * length. corpus: a file of zp_corpus_make with the model's tokenizer; everything comes from its
 * held-out documents. At each length:
 *   - windows of held-out text: NLL by position, in buckets from one length to the next. A window
 *     begins with the separator, as rows of training do. It lies inside a document where one is
 *     long enough; short ones are joined with separators where those are too few ("joined" tells
 *     how many windows are). Intervals are over documents.
 *   - made-up questions: kinds copy, induction, passkey, multikey at each length, also by the
 *     distance from the answer to what it repeats; order, count, brackets at the first length they
 *     fit. A case is right where every token of the answer is the most likely one (of
 *     equal ones the first) behind the true ones before it (teacher forcing). A kind of which a
 *     case does not fit into a length has 0 cases there. Case number k is the same for every model
 *     of the tokenizer.
 *   - with structure: the same windows' tokens by what they are in their document's structure
 *     (docs/FORMATS.md): boundary, the first of a block; mark, of a heading's, list's, table's ...
 *     marks, and of each type; plain, neither. How often such a token is the most likely one, and
 *     its NLL. Of a structure head also how often its detectors are right, on the first length.
 * With base, of the same tokenizer, also mean KL(base || m) and top-1 agreement on the same
 * windows, and differences m - base of NLL and of accuracies, each paired.
 * All intervals are 95 %: of accuracies by Wilson's formula, of their differences by Agresti and
 * Min's, of all else by bootstrap over documents; null where there are too few.
 * JSON {model, corpus, rope_scaling, mode, exact, n_ctx_train, seed, held_documents, lengths[],
 * buckets[], probes[], distances[], total_seconds}, with base also {against}, with structure also
 * structure[{tokens_of, length, documents, tokens, nll, accuracy}] and detectors[{type, tagged,
 * found, precision, recall}]. Rows of lengths {length, windows, joined, documents, tokens, nll},
 * buckets {length, from, to, documents, tokens, nll}, probes {kind, length, cases, accuracy,
 * answer_nll}, distances {kind, length, from, to, cases, accuracy}; a number x with an interval has
 * x_lo and x_hi; with base windows also have {nll_base, nll_change, kl, top1_agree}, cases and
 * structure {accuracy_base, accuracy_change} and probes {answer_nll_base}. But for total_seconds
 * the document depends neither on threads nor on n_seq or micro_batch.
 * Errors: a corpus of another tokenizer, nothing held out, less held-out text than a window of a
 * given length: ZP_BAD_INPUT; an unknown kind, lengths that do not ascend: ZP_USAGE. */
typedef struct zp_probe_options {
    const uint32_t *lengths; /* ascending, at least 32, at most 16 of them; default: the trained
                                length times 1, 2, 4, 8, as far as the held-out text goes */
    size_t n_lengths;
    uint32_t n_windows; /* of a length at most; default 32 */
    bool no_windows;
    const char *const *kinds; /* default: all */
    size_t n_kinds;
    uint32_t n_cases; /* of a kind and length; default 200 */
    bool no_cases;
    uint64_t seed; /* of the cases and of the bootstrap; default 1 */
    bool structure;
    zp_mode mode;  /* of m; the base runs in full */
    bool fast;     /* the default path of the engine instead of the exact one */
    /* Of both; exact, n_ctx and kv_bytes are set by the call. n_seq: sequences computed at a time;
     * default: as many as 8192 tokens give, at most 64. */
    zp_engine_options engine;
    zp_progress progress; /* counts sequences */
} zp_probe_options;
/* base and options may be NULL. */
ZP_API zp_status zp_probe_json(const zp_model *m, const zp_model *base, const char *corpus,
                               const zp_probe_options *options, char **json, zp_err *err);

#ifdef __cplusplus
}
#endif

#endif
