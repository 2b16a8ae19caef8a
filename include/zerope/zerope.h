/* zerope.h: models, engines, sequences, sampling: the narrow public interface of libzerope.
 *
 *   zp_model    immutable: metadata, tokenizer, template, position table, mapped tensors;
 *               shared by threads and engines
 *   zp_engine   a model placed for execution: packed weights, worker pool, KV pages of a fixed
 *               byte budget
 *   zp_seq      one token sequence of an engine: page table, length, position mode
 *   zp_item     a row group of a ragged batch: tokens to append to one sequence and the logits
 *               wanted
 *
 * Option structs are zero-initialised; 0 means the default. Every fallible call returns a
 * zp_status and fills the caller's zp_err (may be NULL), which must be zero before the call: a
 * record that holds a failure keeps it (zerope/status.h). Other pointers may be NULL only where
 * it is said. The library never prints, exits, or reads the environment. Calls on one engine
 * (and on its sequences) must not overlap; models and tokenizer calls are free to. Strings
 * returned as char * are released with zp_free. Same bits: the logits of a sequence depend only
 * on its tokens, the model file, the kernel level, the exact flag, the KV type and the position
 * mode, not on what was reused (zp_seq_append_pages says where this ends). */
#ifndef ZEROPE_ZEROPE_H
#define ZEROPE_ZEROPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <zerope/status.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define ZP_API __attribute__((visibility("default")))
#else
#define ZP_API
#endif

typedef struct zp_model zp_model;
typedef struct zp_engine zp_engine;
typedef struct zp_seq zp_seq;
typedef struct zp_sampler zp_sampler;
typedef struct zp_grammar zp_grammar;

/* Progress of a long call: done of total units of `what`. Return false to stop it: the call then
 * fails with ZP_INTERRUPTED and keeps nothing half-done. */
typedef struct zp_progress {
    bool (*fn)(void *arg, const char *what, uint64_t done, uint64_t total);
    void *arg;
} zp_progress;

/* Bytes from the library (NUL-terminated text where the call says so). */
ZP_API void zp_free(void *p);
/* Warnings and notes of the library: level 0 error .. 3 debug. NULL turns them off (the
 * default). */
ZP_API void zp_log_set(void (*sink)(void *arg, int level, const char *text), void *arg,
                       int max_level);
ZP_API const char *zp_version(void);
/* JSON document: version, compiler, libraries, kernel levels built, optional features present. */
ZP_API zp_status zp_features_json(char **json, zp_err *err);
/* JSON document: processor, features, chosen kernels, memory, measured read bandwidth, kernel
 * self-test result. quick: no measurements longer than about a second. */
ZP_API zp_status zp_doctor_json(char **json, uint32_t n_threads, bool quick, zp_err *err);

/* ---- model ----------------------------------------------------------------------------------- */
typedef struct zp_model_options {
    const char *pre;           /* overrides tokenizer.ggml.pre */
    const char *chat_template; /* template text that replaces the file's; not a path */
    /* "ntk:4", "linear:4", "yarn:4": a usual stretching of the rotation beyond the trained length,
     * as if its keys were in the file: base * 4^(d / (d - 2)) with d rotated channels (NTK-aware),
     * angles / 4, or YaRN by 4 from the file's length. A file with a scaling of its own, or with
     * nothing that rotates, is ZP_UNSUPPORTED. */
    const char *rope_scaling;
} zp_model_options;

/* path: a GGUF file (first shard of a split one) or a Hugging Face folder. */
ZP_API zp_status zp_model_open(zp_model **out, const char *path, const zp_model_options *options,
                               zp_err *err);
ZP_API void zp_model_close(zp_model *m);

/* Whether writing to `output` would change what `input` names, links followed: the same file, a
 * file in the folder, there or new (of a model's folder: one named like its parts), a part of the
 * split. Calls that write files refuse such outputs (ZP_USAGE). */
ZP_API bool zp_writes_over(const char *output, const char *input);

/* Which hidden rows of a text its embedding is made of: those behind the last layer and the final
 * norm. first: of a model that looks back alone it knows no more than the first token. */
typedef enum zp_pooling { ZP_POOL_DEFAULT, ZP_POOL_LAST, ZP_POOL_MEAN, ZP_POOL_FIRST } zp_pooling;

typedef struct zp_model_info {
    const char *arch, *name; /* owned by the model */
    uint64_t file_bytes, n_params;
    uint32_t n_layer, n_head, n_kv, d_head, d_model, d_ff, n_vocab;
    uint32_t n_ctx_train,
        n_ctx_validated; /* validated: longest length with evidence, 0 = none in the file */
    uint32_t gates_total, gates_closed; /* layer x KV head x pair (biases: layer x head) */
    uint32_t layers_none, heads_none, heads_local;
    bool has_template, has_tokenizer;
    zp_pooling pooling; /* that ZP_POOL_DEFAULT stands for: what the file names (key
                           %.pooling_type), else last */
} zp_model_info;
ZP_API void zp_model_describe(const zp_model *m, zp_model_info *out);
/* Hex of a hash of keys and tensor table (not of the file: weights do not enter); computed when
 * first asked for, owned by the model. */
ZP_API const char *zp_model_sha256(const zp_model *m);

/* ---- text and tokens ------------------------------------------------------------------------- */
enum {
    ZP_TOKENS_BOS = 1,
    ZP_TOKENS_SPECIAL = 2
}; /* add BOS where the model wants it; parse special tokens in text */
/* ids: caller frees with zp_free; count 0 is fine. Invalid UTF-8 fails with the byte offset. */
ZP_API zp_status zp_tokenize(const zp_model *m, const char *text, size_t size, int flags,
                             int32_t **ids, size_t *n, zp_err *err);
/* Text of ids: NUL-terminated, may hold invalid UTF-8 where ids cut a scalar. special: show special
 * tokens. */
ZP_API zp_status zp_detokenize(const zp_model *m, const int32_t *ids, size_t n, bool special,
                               char **text, size_t *size, zp_err *err);
ZP_API bool zp_token_ends(const zp_model *m, int32_t id); /* end of generation */
ZP_API bool zp_model_wants_bos(const zp_model *m);
/* Renders the chat template. input_json: {messages, tools?, add_generation_prompt?, ...} or a bare
 * message array. bos, eos: NULL = the model's. text and ids may be NULL; ids never take special
 * tokens from user content. */
typedef struct zp_template_options {
    const char *bos, *eos;
    bool no_generation_prompt;
} zp_template_options;
ZP_API zp_status zp_template_render(const zp_model *m, const char *input_json,
                                    const zp_template_options *options, char **text, int32_t **ids,
                                    size_t *n_ids, zp_err *err);
/* The same without a model (template text given). */
ZP_API zp_status zp_template_render_text(const char *template_text, const char *input_json,
                                         const zp_template_options *options, char **text,
                                         zp_err *err);

/* ---- engine ---------------------------------------------------------------------------------- */
/* q8: 8 bits and a scale for 64 of them; the last, partly full page of a sequence is bf16. */
typedef enum zp_kv_type { ZP_KV_DEFAULT, ZP_KV_F32, ZP_KV_BF16, ZP_KV_Q8 } zp_kv_type;
typedef enum zp_level {
    ZP_LEVEL_BEST,
    ZP_LEVEL_REF,
    ZP_LEVEL_AVX2,
    ZP_LEVEL_AVX512,
    ZP_LEVEL_AVX512BF16
} zp_level;
/* Position mode of a sequence: as in the file; skip everywhere; skip where the stored plan says; by
 * length. */
typedef enum zp_mode { ZP_MODE_FULL, ZP_MODE_ZERO, ZP_MODE_HALF, ZP_MODE_AUTO } zp_mode;

typedef struct zp_engine_options {
    uint32_t n_ctx;       /* positions each sequence may hold; default min(model's length, 4096) */
    uint32_t n_seq;       /* sequences at a time the KV budget must hold; default 1 */
    uint32_t n_threads;   /* default: cores available; at most the processors there are */
    uint32_t micro_batch; /* tokens computed together; default 512 */
    uint64_t kv_bytes;    /* KV budget; default: what n_ctx and n_seq need */
    zp_kv_type kv_type;   /* default bf16, with exact f32 */
    zp_level level;       /* default: best of this processor */
    bool exact;           /* de-quantised f32 weights, f32 activations and KV */
    bool allow_unverified_mode;
    bool
        /* tests: closed pairs rotate by angle 0 instead of being skipped (I2: same bits) */
        identity_rotation;
    bool pin_threads;
    /* Folder for packed weights, made when needed: a later engine of the same model then maps them
     * instead of packing again. What it cannot use it does without. NULL: none */
    const char *pack_cache;
    bool prefix_cache; /* full pages stay, while there is room, for sequences that begin alike
                          (zp_seq_reuse) */
} zp_engine_options;

ZP_API zp_status zp_engine_open(zp_engine **out, const zp_model *m,
                                const zp_engine_options *options, zp_err *err);
ZP_API void zp_engine_close(zp_engine *e);

typedef struct zp_engine_stats {
    uint64_t weights_bytes, kv_bytes, scratch_bytes, position_bytes; /* planned = counted */
    uint64_t kv_bytes_per_token;                                     /* at n_ctx, all heads */
    uint64_t tokens, tokens_reused; /* computed; taken over by zp_seq_reuse, so far */
    uint64_t tokens_appended;       /* by zp_seq_append_pages, not computed anew */
    uint64_t prefix_tiles, prefix_evictions; /* kept now, 64 tokens each; given up so far */
    uint64_t position_done, position_skipped; /* layer x KV head x pair x token */
    uint32_t n_threads, n_ctx, micro_batch;
    const char *level;
    bool from_pack_cache; /* the weights were not packed, but came from options.pack_cache */
} zp_engine_stats;
ZP_API void zp_engine_describe(const zp_engine *e, zp_engine_stats *out);

/* JSON document of `inspect`: metadata, per-layer position table, tokenizer, what the file tells of
 * its recipe and evidence, memory plan: to the byte what zp_engine_open with these engine options
 * takes and zp_engine_describe then tells. options may be NULL. */
typedef struct zp_inspect_options {
    zp_engine_options engine; /* of the memory plan */
    bool tensors;             /* also every tensor */
} zp_inspect_options;
ZP_API zp_status zp_inspect_json(const zp_model *m, const zp_inspect_options *options, char **json,
                                 zp_err *err);

/* For position gates the token at this index of the sequence stands at `position`, and those behind
 * it, up to the next anchor, at the positions that follow. Angles, biases and windows stay. */
typedef struct zp_anchor {
    uint32_t token;
    uint64_t position; /* at most ZP_ANCHOR_MOST */
} zp_anchor;
#define ZP_ANCHOR_MOST UINT64_C(4294967295)
typedef struct zp_seq_options {
    zp_mode mode;
    uint64_t position_offset; /* tests: index of the first token */
    uint64_t salt; /* sequences of other salts share no cached prefix: one for each tenant */
    /* (n_anchors), copied: tokens rise. Models without a position gate refuse them (ZP_UNSUPPORTED:
     * zp_model_has_position_gate). Such a sequence shares no cached prefix and cannot be saved. */
    const zp_anchor *anchors;
    size_t n_anchors;
} zp_seq_options;
/* Whether queries of the model are scaled by their position (blk.N.pos_gate.weight). */
ZP_API bool zp_model_has_position_gate(const zp_model *m);
ZP_API zp_status zp_seq_open(zp_seq **out, zp_engine *e, const zp_seq_options *options,
                             zp_err *err);
ZP_API void zp_seq_close(zp_seq *s);
ZP_API uint32_t zp_seq_length(const zp_seq *s);
typedef struct zp_seq_info {
    uint32_t length;
    uint32_t n_exact; /* tokens before the first that came by zp_seq_append_pages; or length */
    const int32_t *ids; /* (length), until the sequence changes */
    zp_mode mode;       /* the one it runs in: never auto */
    uint64_t position_offset, salt;
} zp_seq_info;
ZP_API void zp_seq_describe(const zp_seq *s, zp_seq_info *out);
/* An empty sequence takes over the longest beginning of ids that the engine's prefix cache holds: a
 * multiple of 64 tokens, less than n, so that something is left to compute. *reused: how many, 0
 * without a cache. The same bits as computing them. */
ZP_API zp_status zp_seq_reuse(zp_seq *s, const int32_t *ids, size_t n, size_t *reused, zp_err *err);
/* A new sequence that shares the first n tokens (pages shared, copied on write). */
ZP_API zp_status zp_seq_fork(zp_seq **out, const zp_seq *s, uint32_t n, zp_err *err);
ZP_API zp_status zp_seq_truncate(zp_seq *s, uint32_t n, zp_err *err);
typedef struct zp_append_options {
    bool approximate;   /* also where keys hold positions, of the other sequence */
    uint32_t recompute; /* so many of the first tokens are computed anew: a multiple of 64 */
} zp_append_options;
/* Appends tokens [first, first + n) of another sequence of the engine, in the same mode, with the
 * keys and values they have there: nothing is computed or copied. first, n and the length of `to`
 * are multiples of 64. Those tokens were computed behind others, so this is never what computing
 * them here gives: the result is approximate (n_exact), outside of the same-bits rule, and kept in
 * no prefix cache. In a model whose positions are all closed, at least no key holds a place it does
 * not have any more; others (an open pair, a bias, a window) are refused (ZP_UNSUPPORTED) but for
 * `approximate`. options may be NULL. */
ZP_API zp_status zp_seq_append_pages(zp_seq *to, const zp_seq *from, uint32_t first, uint32_t n,
                                     const zp_append_options *options, zp_err *err);
/* Writes the sequence to a file: complete under its name, or not there. */
ZP_API zp_status zp_seq_save(const zp_seq *s, const char *path, zp_err *err);
/* Before long work: fails where saving the sequence there would once it has n tokens, as far as
 * that can be known (ZP_NO_SPACE: the disk has less room than the file takes; one that is there
 * stays until the new one is whole, so there must be room for both). */
ZP_API zp_status zp_seq_check_save(const zp_seq *s, uint32_t n, const char *path, zp_err *err);
/* A new sequence that goes on where the saved one stood, with its mode, offset and salt: the same
 * bits, in any engine of the same model, KV type, exact flag and kernel level (ZP_BAD_INPUT in
 * others). A damaged file is refused (ZP_BAD_FILE).
 * With ids (n): as if it were truncated to the beginning that it shares with them; what is behind
 * that is not read, and needs no room. Where windows have given back what that beginning needs, and
 * where nothing is shared, the sequence is empty. ids NULL: all of it. */
ZP_API zp_status zp_seq_restore(zp_seq **out, zp_engine *e, const char *path, const int32_t *ids,
                                size_t n, zp_err *err);

typedef enum zp_want { ZP_WANT_NONE, ZP_WANT_LAST, ZP_WANT_ALL } zp_want;
typedef struct zp_item {
    zp_seq *seq;
    const int32_t *ids;
    size_t n;
    zp_want want;
} zp_item;
/* Appends every item's tokens and computes them. Logit rows come in item order, token order: rows
 * (n_rows, n_vocab), written to `logits`, room for rows_room rows (fails before work if too small).
 * On failure no sequence has changed its length (an interrupted run over sliding windows may leave
 * it longer). progress may be NULL. */
ZP_API zp_status zp_engine_run(zp_engine *e, const zp_item *items, size_t n_items, float *logits,
                               size_t rows_room, const zp_progress *progress, zp_err *err);

/* ---- embeddings ------------------------------------------------------------------------------ */
typedef struct zp_embed_options {
    zp_pooling pooling;
    bool raw;           /* as it is, not scaled to length 1 */
    zp_seq_options seq; /* of the sequence that is computed and closed again */
    zp_progress progress;
} zp_embed_options;
/* out: (d_model) of zp_model_describe. With pooling last it takes over what the prefix cache holds.
 * The same bits whatever is reused, and however the tokens are cut into runs. More tokens than the
 * context holds: ZP_BAD_INPUT with both numbers. options may be NULL. */
ZP_API zp_status zp_embed(zp_engine *e, const int32_t *ids, size_t n,
                          const zp_embed_options *options, float *out, zp_err *err);

/* ---- grammars -------------------------------------------------------------------------------- */
/* Which texts a model may give: of the next tokens only those are drawn with which such a text goes
 * on; it ends with an end token, where it is whole. One grammar serves any number of samplers and
 * threads; it must be closed after them and before its model. The model needs a tokenizer. */
/* JSON valid by a JSON Schema: docs/SCHEMAS.md says which. ZP_BAD_INPUT: no schema, or one that
 * nothing satisfies; ZP_UNSUPPORTED names the keyword and its place. */
ZP_API zp_status zp_grammar_open_schema(zp_grammar **out, const zp_model *m, const char *schema,
                                        size_t size, zp_err *err);
/* Any JSON object. */
ZP_API zp_status zp_grammar_open_json(zp_grammar **out, const zp_model *m, zp_err *err);
/* llama.cpp's notation (GBNF): root ::= "yes" | "no". ZP_BAD_INPUT names line and column. */
ZP_API zp_status zp_grammar_open_gbnf(zp_grammar **out, const zp_model *m, const char *grammar,
                                      size_t size, zp_err *err);
ZP_API void zp_grammar_close(zp_grammar *g);

/* ---- sampling -------------------------------------------------------------------------------- */
typedef struct zp_bias {
    int32_t id;
    float value;
} zp_bias;
typedef struct zp_sampler_options {
    float temperature;                                         /* 0 = greedy (the default) */
    uint32_t top_k;                                            /* 0 = all */
    float top_p, min_p;                                        /* 0 = off */
    float repeat_penalty, frequency_penalty, presence_penalty; /* 0 = off */
    uint32_t penalty_last_n;                                   /* default 64 */
    uint64_t seed; /* draw i is a function of (seed, i) */
    const zp_bias *bias;
    size_t n_bias;
    zp_grammar *grammar; /* of the same model, to be closed after the sampler; NULL: none */
} zp_sampler_options;
ZP_API zp_status zp_sampler_open(zp_sampler **out, const zp_model *m,
                                 const zp_sampler_options *options, zp_err *err);
ZP_API void zp_sampler_close(zp_sampler *s);
/* history: the sequence's ids so far (for penalties); index: number of the draw. ZP_RUN: logits
 * that are not finite; ZP_BAD_INPUT: bias and grammar leave no token to draw. */
ZP_API zp_status zp_sampler_draw(zp_sampler *s, const float *logits, const int32_t *history,
                                 size_t n_history, uint64_t index, int32_t *id, zp_err *err);
/* With a grammar: the drawn token is taken, draws from now on are of what follows it. */
ZP_API zp_status zp_sampler_accept(zp_sampler *s, int32_t id, zp_err *err);

#define ZP_STOPS_MAX 64

/* Streamed generation: on_text gets complete UTF-8 pieces; stop strings are held back and never
 * shown. Returning false ends the generation (reason "stopped"). */
typedef struct zp_generate_options {
    uint32_t n_predict; /* default: until the context ends */
    zp_sampler_options sampler;
    const char *const *stop;
    size_t n_stop; /* at most ZP_STOPS_MAX */
    bool ignore_end; /* go on after an end token */
    /* > 0: up to so many tokens (at most 32) are guessed from repetitions in the history and
     * computed with the next one; draws that agree need no run of their own. Same result. */
    uint32_t n_draft;
    const int32_t *history;
    size_t n_history;     /* ids that seq holds already, for penalties; may be NULL */
    zp_progress progress; /* of the prompt; stopped there: ZP_INTERRUPTED */
    bool (*on_text)(void *arg, const char *text, size_t size);
    void *arg;
} zp_generate_options;
typedef struct zp_generated {
    int32_t *ids;
    size_t n_ids;       /* released with zp_free */
    char *text;         /* likewise */
    const char *reason; /* "stop" "length" "end" "stopped" */
    double prefill_seconds, decode_seconds;
    size_t n_prompt, n_reused; /* tokens computed of the prompt; held before, or taken over */
    size_t n_drafted, n_accepted;
} zp_generated;
/* prompt ids are appended to seq, then drawn tokens. An empty sequence takes over what the engine's
 * prefix cache holds of them. Prompt longer than the context: ZP_BAD_INPUT
 * with both numbers. */
ZP_API zp_status zp_generate(zp_engine *e, zp_seq *seq, const int32_t *prompt, size_t n_prompt,
                             const zp_generate_options *options, zp_generated *out, zp_err *err);

/* Many prompts: the next tokens of as many jobs as the engine has sequences (n_seq) are computed
 * together; a job that ends makes room for the next. Each result is what zp_generate on an empty
 * sequence gives; with a prefix cache, tiles that jobs begin with alike are computed once. Of a
 * job's options `progress` is not called; progress here counts answers.
 * On failure jobs that had ended keep their results; those of the others are zero. A failure that
 * is of one job begins with its index: "job 3: ...". */
typedef struct zp_job {
    const int32_t *prompt;
    size_t n_prompt;
    const zp_generate_options *options; /* may be NULL */
    zp_generated result;                /* ids and text released with zp_free */
} zp_job;
ZP_API zp_status zp_generate_many(zp_engine *e, const zp_seq_options *seq_options, zp_job *jobs,
                                  size_t n_jobs, const zp_progress *progress, zp_err *err);

/* Re-quantises a model file; type: F32 F16 BF16 Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 Q4_K Q5_K Q6_K, else
 * ZP_USAGE. JSON report: {"types":{...},"bytes_before","bytes_after",...}. */
ZP_API zp_status zp_quantize(const char *in, const char *out, const char *type,
                             const zp_progress *progress, char **json, zp_err *err);

#ifdef __cplusplus
}
#endif

#endif
