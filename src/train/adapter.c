/* adapter.c: low-rank adapters of a model's matrices: their values, W out of them, their gradients.
 * Owns: A and B. Does not know: steps, files.
 * Threads: one caller; products are shared over its pool. */
#include "train/adapter.h"

#include <math.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/rng.h"

enum { UNIT = 16 };
#define DRAW_STREAM 0x6164617074657273u /* "adapters" */

static const struct {
    const char *name, *tensor;
} targets[ADAPTER_TARGETS] = {
    [ADAPTER_Q] = { "q", "blk.%u.attn_q.weight" },
    [ADAPTER_K] = { "k", "blk.%u.attn_k.weight" },
    [ADAPTER_V] = { "v", "blk.%u.attn_v.weight" },
    [ADAPTER_O] = { "o", "blk.%u.attn_output.weight" },
    [ADAPTER_GATE] = { "gate", "blk.%u.ffn_gate.weight" },
    [ADAPTER_UP] = { "up", "blk.%u.ffn_up.weight" },
    [ADAPTER_DOWN] = { "down", "blk.%u.ffn_down.weight" },
};

/* ---- targets --------------------------------------------------------------------------------- */

zp_status adapter_read_targets(const char *list, uint32_t *out, zp_err *err)
{
    *out = 0;
    for (const char *at = list;; at++) {
        size_t n = strcspn(at, ","), t = 0;
        while (t < ADAPTER_TARGETS &&
               (strlen(targets[t].name) != n || memcmp(targets[t].name, at, n) != 0))
            t++;
        ZP_FAIL_IF(t == ADAPTER_TARGETS, err, ZP_USAGE,
                   "adapters of '%.*s' are unknown, expected a list of q, k, v, o, gate, up, down",
                   (int)(n < ADAPTER_LIST ? n : ADAPTER_LIST), at);
        ZP_FAIL_IF(*out >> t & 1, err, ZP_USAGE, "adapters of %s are asked for twice",
                   targets[t].name);
        *out |= 1u << t;
        at += n;
        if (*at == '\0') return ZP_OK;
    }
}

void adapter_write_targets(uint32_t bits, char list[ADAPTER_LIST])
{
    char *at = list;
    for (size_t t = 0; t < ADAPTER_TARGETS; t++) {
        size_t n = strlen(targets[t].name);
        if (!(bits >> t & 1)) continue;
        if (at != list) *at++ = ',';
        memcpy(at, targets[t].name, n);
        at += n;
    }
    *at = '\0';
}

const char *adapter_target_tensor(enum adapter_target target)
{
    return targets[target].tensor;
}

/* ---- opening --------------------------------------------------------------------------------- */

static size_t padded(size_t n)
{
    return (n + UNIT - 1) / UNIT * UNIT;
}

static zp_status check_options(const struct adapter_options *o, zp_err *err)
{
    ZP_FAIL_IF(o->rank == 0, err, ZP_USAGE, "adapters of rank 0 hold nothing: expected 1 or more");
    ZP_FAIL_IF(!(o->alpha > 0 && isfinite(o->alpha)), err, ZP_USAGE,
               "alpha of adapters is %g, expected above 0", o->alpha);
    return ZP_OK;
}

static zp_status add_matrix(struct adapter *a, const struct netparam_tensor *t,
                            enum adapter_target target, zp_err *err)
{
    size_t rank = a->options.rank, most = t->n_in < t->n_out ? t->n_in : t->n_out;
    ZP_FAIL_IF(rank > most, err, ZP_USAGE,
               "adapters of rank %zu: %s (%zu x %zu) has rank %zu at most", rank, t->name,
               t->n_out, t->n_in, most);
    struct adapter_matrix *m = &a->matrices[a->n_matrices++];
    *m = (struct adapter_matrix){ .of = t, .target = target, .a = a->n };
    m->b = m->a + padded(rank * t->n_in);
    a->n = m->b + padded(t->n_out * rank);
    if (a->n_scaled < t->n_out * rank) a->n_scaled = t->n_out * rank;
    return ZP_OK;
}

static zp_status lay_out(struct adapter *a, zp_err *err)
{
    uint32_t n_layer = a->param->model->h.n_layer;
    char list[ADAPTER_LIST];
    ZP_TRY(check_options(&a->options, err));
    ZP_ALLOC(a->matrices, MEM_TRAIN, (size_t)n_layer * ADAPTER_TARGETS, err, "adapters");
    for (uint32_t l = 0; l < n_layer; l++)
        for (unsigned t = 0; t < ADAPTER_TARGETS; t++) {
            const struct netparam_tensor *of = netparam_find(a->param, targets[t].tensor, l);
            if (of && of->matrix && a->options.targets >> t & 1)
                ZP_TRY(add_matrix(a, of, (enum adapter_target)t, err));
        }
    adapter_write_targets(a->options.targets, list);
    ZP_FAIL_IF(a->n_matrices == 0, err, ZP_USAGE,
               "the model has no matrix for adapters (asked for: %s)", list);
    return ZP_OK;
}

/* L2 */
static void draw(const struct adapter *a, const struct adapter_matrix *m)
{
    uint64_t stream = hash_xxh64(m->of->name, strlen(m->of->name), DRAW_STREAM);
    struct rng r = rng_stream(a->options.seed, stream);
    double bound = 1 / sqrt((double)m->of->n_in);
    float *x = a->x + m->a;
    for (size_t i = 0; i < a->options.rank * m->of->n_in; i++)
        x[i] = (float)((2 * rng_unit(&r) - 1) * bound);
}

zp_status adapter_open(struct adapter *a, const struct netparam *p,
                       const struct adapter_options *o, zp_err *err)
{
    *a = (struct adapter){ .options = *o, .param = p };
    zp_status status = lay_out(a, err);
    if (status != ZP_OK) adapter_close(a);
    return status;
}

zp_status adapter_begin(struct adapter *a, struct gemm *g, zp_err *err)
{
    a->gemm = g;
    ZP_ALLOC(a->x, MEM_PARAMETER, a->n, err, "adapters");
    ZP_ALLOC(a->scaled, MEM_PRODUCT, a->n_scaled, err, "adapters");
    memset(a->x, 0, a->n * sizeof *a->x);
    for (size_t i = 0; i < a->n_matrices; i++) draw(a, &a->matrices[i]);
    return ZP_OK;
}

void adapter_close(struct adapter *a)
{
    mem_free(a->matrices);
    mem_free(a->x);
    mem_free(a->scaled);
    *a = (struct adapter){ 0 };
}

/* NULL: it has none. */
static const struct adapter_matrix *matrix_of(const struct adapter *a,
                                              const struct netparam_tensor *t)
{
    for (size_t i = 0; i < a->n_matrices; i++)
        if (a->matrices[i].of == t) return &a->matrices[i];
    return NULL;
}

bool adapter_has(const struct adapter *a, const struct netparam_tensor *t)
{
    return matrix_of(a, t) != NULL;
}

void adapter_segments(const struct adapter *a, struct opt_segment *segments)
{
    for (size_t i = 0; i < a->n_matrices; i++) {
        const struct adapter_matrix *m = &a->matrices[i];
        size_t rank = a->options.rank;
        segments[2 * i] = (struct opt_segment){ m->a, rank * m->of->n_in, 1, true, false };
        segments[2 * i + 1] = (struct opt_segment){ m->b, m->of->n_out * rank, 1, true, false };
    }
}

/* ---- products -------------------------------------------------------------------------------- */

static void scale(const struct adapter *a, size_t n, const float *x, float *out)
{
    float factor = (float)(a->options.alpha / a->options.rank);
    for (size_t i = 0; i < n; i++) out[i] = factor * x[i];
}

void adapter_add(const struct adapter *a, const struct netparam_tensor *t, float *w)
{
    const struct adapter_matrix *m = matrix_of(a, t);
    size_t rank = a->options.rank;
    if (!m) return;
    scale(a, t->n_out * rank, a->x + m->b, a->scaled);
    gemm_run_f32(a->gemm, &(struct gemm_product){ GEMM_NN, true, t->n_out, t->n_in, rank,
                                                  a->scaled, rank, a->x + m->a, t->n_in,
                                                  w, t->n_in }); // L3
}

/* With W = W0 + s B A: dA = s B^T dW, dB = s dW A^T. */
void adapter_gradients(const struct adapter *a, const struct netparam_tensor *t, const float *dw,
                       float *dx)
{
    const struct adapter_matrix *m = matrix_of(a, t);
    size_t rank = a->options.rank;
    float *db = dx + m->b;
    scale(a, t->n_out * rank, a->x + m->b, a->scaled);
    gemm_run_f32(a->gemm, &(struct gemm_product){ GEMM_TN, false, rank, t->n_in, t->n_out,
                                                  a->scaled, rank, dw, t->n_in,
                                                  dx + m->a, t->n_in });
    gemm_run_f32(a->gemm, &(struct gemm_product){ GEMM_NT, false, t->n_out, rank, t->n_in,
                                                  dw, t->n_in, a->x + m->a, t->n_in, db, rank });
    scale(a, t->n_out * rank, db, db);
}
