/* standin.c: position tables with made-up parameters: ALiBi's slopes (Press et al., 2022), random
 * numbers for T5 buckets and for the small network of kind mlp. */
#include "eval/standin.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"

enum { SEED = 1, MLP_WIDTH = 32 };
static const char no_memory[] = "a position table";

static zp_status find_kind(const char *name, enum position_kind *out, zp_err *err)
{
    static const enum position_kind kinds[] = { POSITION_ROPE, POSITION_NONE, POSITION_ALIBI,
                                                POSITION_T5, POSITION_MLP };
    for (size_t i = 0; i < ZP_COUNT(kinds); i++) {
        *out = kinds[i];
        if (strcmp(name, position_kind_name(*out)) == 0) return ZP_OK;
    }
    ZP_FAIL(err, ZP_USAGE, "position kind '%s'; expected rope, none, alibi, t5 or mlp", name);
}

/* (n_layer): the same n random numbers for every layer. */
static zp_status random_numbers(const float ***out, uint32_t n_layer, size_t n, uint64_t stream,
                                struct arena *arena, zp_err *err)
{
    float *x;
    struct rng r = rng_stream(SEED, stream);
    ZP_TAKE(*out, arena, n_layer, err, no_memory);
    ZP_TAKE(x, arena, n, err, no_memory);
    for (size_t i = 0; i < n; i++) x[i] = rng_normal(&r);
    for (uint32_t l = 0; l < n_layer; l++) (*out)[l] = x;
    return ZP_OK;
}

static zp_status alibi_slopes(struct position *p, struct arena *arena, zp_err *err)
{
    float *slope;
    ZP_TAKE(p->alibi, arena, p->n_layer, err, no_memory);
    ZP_TAKE(slope, arena, p->n_head, err, no_memory);
    for (uint32_t h = 0; h < p->n_head; h++)
        slope[h] = exp2f(-8.0f * (float)(h + 1) / (float)p->n_head);
    for (uint32_t l = 0; l < p->n_layer; l++) p->alibi[l] = slope;
    return ZP_OK;
}

static zp_status set_parameters(struct position *p, enum position_kind kind, struct arena *arena,
                                zp_err *err)
{
    const size_t sizes[4] = { MLP_WIDTH, MLP_WIDTH, (size_t)p->n_head * MLP_WIDTH, p->n_head };
    p->bias_gate = NULL;
    if (kind == POSITION_ALIBI) return alibi_slopes(p, arena, err);
    if (kind == POSITION_T5) {
        p->t5_buckets = 32, p->t5_max = 128;
        return random_numbers(&p->t5, p->n_layer, (size_t)p->n_head * 32, 0, arena, err);
    }
    for (uint64_t i = 0; kind == POSITION_MLP && i < 4; i++)
        ZP_TRY(random_numbers(&p->mlp[i], p->n_layer, sizes[i], 1 + i, arena, err));
    return ZP_OK;
}

zp_status standin_position(struct position *out, const struct position *p, const char *name,
                           struct arena *arena, zp_err *err)
{
    enum position_kind kind;
    size_t n_heads = (size_t)p->n_layer * p->n_kv;
    *out = *p;
    ZP_TRY(find_kind(name, &kind, err));
    ZP_TAKE(out->kind, arena, p->n_layer, err, no_memory);
    ZP_TAKE(out->heads, arena, n_heads, err, no_memory);
    for (uint32_t l = 0; l < p->n_layer; l++) out->kind[l] = kind;
    memcpy(out->heads, p->heads, n_heads * sizeof *p->heads);
    for (size_t i = 0; i < n_heads; i++)
        out->heads[i].n_open = (uint16_t)(kind == POSITION_ROPE ? p->n_pair : 0);
    return set_parameters(out, kind, arena, err);
}
