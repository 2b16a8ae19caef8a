/* engine.h: a model placed for execution, its sequences, and the runs the evaluation layers
 * need. */
#ifndef MODEL_ENGINE_H
#define MODEL_ENGINE_H

#include "model/embed.h"
#include "model/forward.h"
#include "model/model.h"

struct zp_engine {
    const struct zp_model *model;
    const struct zp_engine *lender; /* whose packed weights these are; NULL: its own */
    zp_engine_options options; /* resolved: no zeros left */
    struct position position;  /* the model's, angles fixed for n_ctx */
    double *angles;            /* (n_pair) of a dynamic scaling, or NULL */
    struct kern_table kern;
    struct pool *pool;
    struct weights weights;
    struct kvcache kv;
    struct forward forward;
    struct forward_run *runs; /* (micro_batch) */
    uint64_t tokens, tokens_reused, tokens_appended, position_done, position_skipped;
};

#define NEVER_MOVED UINT32_MAX

struct zp_seq {
    struct zp_engine *engine;
    struct kv_table kv;
    int32_t *ids;       /* (n_ctx) */
    float *detected;    /* (STRUCT_TYPES, n_ctx) with a structure head, beside the ids and as little
                         * in the plan of the engine: struct forward_run */
    uint32_t n_detected;
    uint32_t n_pending; /* tokens behind kv.length that are to be computed again (settle) */
    uint32_t moved_at;  /* first token that another sequence computed, or NEVER_MOVED */
    zp_mode mode; /* resolved: full, zero or half */
    uint64_t offset, salt;
    zp_anchor *anchors; /* (n_anchors) or NULL */
    size_t n_anchors;
};

/* A run over all or some layers. x_in: rows at layer_begin (all tokens, d_model) or NULL; x_out:
 * rows after layer_end, or NULL. logits as in zp_engine_run, only when layer_end = n_layer and
 * without x_out. layer_end 0 = n_layer. embeds: where an item has a pool, the rows it wants go
 * there, behind the final norm, and no logits are made of them; after a failed run its pool is
 * worth nothing. */
struct engine_job {
    const zp_item *items;
    size_t n_items;
    uint32_t layer_begin, layer_end;
    const float *x_in;
    float *x_out;
    float *logits;
    size_t rows_room;
    struct embed *const *embeds; /* (n_items), each may be NULL; or NULL; not with x_out */
    const zp_progress *progress;
};
zp_status engine_run(struct zp_engine *e, const struct engine_job *job, zp_err *err);
/* Logits of n rows (n, d_model) after the last layer: out (n, n_vocab). Any n. */
void engine_logits(struct zp_engine *e, const float *x, size_t n, float *out);
/* Bytes that an engine with these (resolved) options will hold: the memory plan of inspect. */
struct engine_plan {
    uint64_t weights, kv, scratch, position;
    struct kv_plan pages; /* of the kv bytes */
    struct weights_inputs reads;
};
zp_status engine_plan(const struct zp_model *m, zp_engine_options *options, struct engine_plan *out,
                      zp_err *err);
/* A second engine of the same model on the packed weights and at the angles of `lender`, which must
 * outlive it and may compute meanwhile. Kernel level and exactness are the lender's. For
 * measurements beside what is served. */
zp_status engine_open_beside(zp_engine **out, const zp_engine *lender,
                             const zp_engine_options *options, zp_err *err);
/* Hook of tests: engines take more threads than there are processors. */
void engine_allow_any_threads(bool on);
/* Pages of one sequence of n_ctx positions, all heads, by position; o is resolved. */
uint64_t engine_kv_bytes_per_token(const struct position *p, const zp_engine_options *o);

#endif
