/* extend.c: position gates and a structure head added to a model.
 * Owns: what they begin as. Does not know: how they learn.
 * X1 the extended model computes what the model computed, bit for bit: gates begin at a factor of
 *    1, heads begin to listen with weight 0.
 * X2 the same model and options give the same file. */
#include "evap/extend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/rng.h"
#include "evap/apply.h"
#include "kern/dispatch.h"
#include "kern/kern.h"
#include "model/gguf_write.h"
#include "model/posgate.h"

static const double most_share = 0.003; /* of the parameters, by default */
static const float detector_std = 0.02f;

/* ---- size ------------------------------------------------------------------------------------ */

static uint64_t head_count(const struct zp_model *m, uint32_t n_layers)
{
    return (uint64_t)STRUCT_LOGITS * m->h.d_model + (uint64_t)n_layers * m->h.n_head * STRUCT_TYPES;
}

/* Listening takes eight multiplications a key and query head: in all layers of SmolLM2 up to a
 * tenth of a decode step at 4096 positions with 16 lanes (SPEED.md), more with fewer. */
static uint32_t layers_of_machine(uint32_t n_layer)
{
    struct kern_table t;
    kern_table_init(&t, KERN_LEVEL_COUNT - 1);
    uint32_t each = t.level >= KERN_AVX512 ? 1 : t.level == KERN_AVX2 ? 2 : 4;
    return (n_layer + each - 1) / each;
}

zp_status extend_head_layers(const struct zp_model *m, const char *size, uint32_t *n, zp_err *err)
{
    char *end;
    uint32_t all = m->h.n_layer;
    if (!size || strcmp(size, "auto") == 0) {
        *n = layers_of_machine(all);
        while (*n > 1 && (double)head_count(m, *n) > most_share * (double)m->n_params) --*n;
        return ZP_OK;
    }
    unsigned long given = strtoul(size, &end, 10);
    if (strcmp(size, "all") == 0) given = all;
    else if (*end || end == size) given = 0;
    ZP_FAIL_IF(given == 0 || given > all, err, ZP_USAGE,
               "a structure head for '%s' layers: auto, all, or 1 to %u", size, all);
    *n = (uint32_t)given;
    return ZP_OK;
}

/* ---- tensors --------------------------------------------------------------------------------- */

struct extension {
    const struct zp_model *m;
    bool gate;
    uint32_t n_layers; /* that listen to a structure head; 0: none is added */
};

static zp_status add_zeros(struct gguf_edit *e, const char *format, uint32_t layer, uint64_t n_in,
                           uint64_t n_out, zp_err *err)
{
    char name[GGUF_MAX_NAME];
    const uint64_t ne[] = { n_in, n_out };
    float *zeros = arena_array(&e->arena, n_in * n_out, sizeof *zeros);
    ZP_FAIL_IF(!zeros, err, ZP_NO_MEMORY, "not enough memory to extend the model");
    snprintf(name, sizeof name, format, layer);
    return gguf_edit_set_tensor_f32(e, name, n_out > 1 ? 2 : 1, ne, zeros, err);
}

/* Detectors must begin apart, or what listens to them never learns. */
static zp_status add_detectors(struct gguf_edit *e, const char *name, uint64_t n_in, uint64_t n_out,
                               zp_err *err)
{
    const uint64_t ne[] = { n_in, n_out };
    float *values = arena_array(&e->arena, n_in * n_out, sizeof *values);
    struct rng r = rng_stream(1, hash_xxh64(name, strlen(name), 0));
    ZP_FAIL_IF(!values, err, ZP_NO_MEMORY, "not enough memory to extend the model");
    for (uint64_t i = 0; i < n_in * n_out; i++) values[i] = detector_std * rng_normal(&r);
    return gguf_edit_set_tensor_f32(e, name, n_out > 1 ? 2 : 1, ne, values, err);
}

/* Of n_layer layers n, evenly, the last one among them. */
static bool listens(uint32_t layer, uint32_t n, uint32_t n_layer)
{
    return (uint64_t)(layer + 1) * n / n_layer > (uint64_t)layer * n / n_layer;
}

static zp_status add_parts(struct gguf_edit *e, void *arg, zp_err *err)
{
    const struct extension *x = arg;
    const struct hparams *h = &x->m->h;
    for (uint32_t l = 0; l < h->n_layer; l++) {
        if (x->gate)
            ZP_TRY(add_zeros(e, "blk.%u.pos_gate.weight", l, POSGATE_STEPS, h->n_head, err));
        if (listens(l, x->n_layers, h->n_layer))
            ZP_TRY(add_zeros(e, STRUCTHEAD_BIAS, l, STRUCT_TYPES, h->n_head, err));
    }
    if (x->n_layers == 0) return ZP_OK;
    ZP_TRY(add_detectors(e, STRUCTHEAD_WEIGHT, h->d_model, STRUCT_TYPES, err));
    return add_detectors(e, STRUCTHEAD_GATE, h->d_model, 1, err);
}

/* ---- the call -------------------------------------------------------------------------------- */

static zp_status check(const struct zp_model *m, const zp_extend_options *o, zp_err *err)
{
    ZP_FAIL_IF(!o->position_gate && !o->structure_head, err, ZP_USAGE,
               "nothing to extend the model by: a position gate, a structure head, or both");
    ZP_FAIL_IF(o->head_size && !o->structure_head, err, ZP_USAGE,
               "the size of a structure head belongs to one that is added");
    ZP_FAIL_IF(o->position_gate && position_has_gate(&m->position), err, ZP_USAGE,
               "%s has position gates", m->gguf.path);
    ZP_FAIL_IF(o->structure_head && m->structure.weight, err, ZP_USAGE,
               "%s has a structure head", m->gguf.path);
    return ZP_OK;
}

static zp_status extend(const struct zp_model *m, const zp_extend_options *o, const char *out,
                        zp_err *err)
{
    struct extension x = { .m = m, .gate = o->position_gate };
    struct apply_info info = { .add = add_parts, .add_arg = &x };
    struct gateset set;
    ZP_TRY(check(m, o, err));
    if (o->structure_head) {
        ZP_TRY(extend_head_layers(m, o->head_size, &x.n_layers, err));
        double share = (double)head_count(m, x.n_layers) / (double)m->n_params;
        if (share > most_share)
            log_warn("the structure head has %.2g %% of the parameters, more than the %.1f %% that "
                     "it should take", 100 * share, 100 * most_share);
    }
    ZP_TRY(gateset_open(&set, &m->position, err));
    zp_status status = apply_write(m, &set, NULL, &info, out, err);
    gateset_free(&set);
    return status;
}

zp_status zp_model_extend(const char *model, const char *out, const zp_extend_options *options,
                          zp_err *err)
{
    static const zp_extend_options none = { 0 };
    struct zp_model *m;
    ZP_TRY(zp_model_open(&m, model, NULL, err));
    zp_status status = extend(m, options ? options : &none, out, err);
    zp_model_close(m);
    return status;
}
