/* probes.c: retrieval prompts as a measuring instrument.
 * Owns: the prompts and the original's answers. Does not know: what is tried, in which order. */
#include "evap/probes.h"

#include <string.h>

void probes_free(struct probes *p)
{
    retrieval_free(&p->sets[0]);
    retrieval_free(&p->sets[1]);
    mem_free(p->at_layer), mem_free(p->x), mem_free(p->nll);
    memset(p, 0, sizeof *p);
}

static const struct retrieval_case *probe_at(const struct probes *p, size_t i)
{
    return i < p->sets[0].n ? &p->sets[0].cases[i] : &p->sets[1].cases[i - p->sets[0].n];
}

zp_status probes_check(const struct calib *c, size_t n_each, uint64_t seed, zp_err *err)
{
    size_t most = 0;
    for (int k = 0; k < 2; k++) {
        size_t least;
        ZP_TRY(retrieval_least_ctx(c->model, (enum retrieval_kind)k, RETRIEVAL_CALIBRATION, n_each,
                                   seed, &least, err));
        if (least > most) most = least;
    }
    ZP_FAIL_IF(most > c->n_ctx, err, ZP_BAD_INPUT,
               "--local needs -c of at least %zu: the retrieval prompts that rank heads do not fit "
               "into %u tokens", most, c->n_ctx);
    return ZP_OK;
}

static zp_status answer(struct probes *p, struct calib *c, uint32_t layer, size_t i, double *nll,
                        zp_err *err)
{
    size_t row = (size_t)c->n_ctx * c->model->h.d_model, n_layer = c->model->h.n_layer;
    const struct retrieval_case *rc = probe_at(p, i);
    const float *x_in = layer ? p->at_layer + (i * n_layer + layer) * row : NULL;
    struct window w = { rc->ids, rc->n, 0 };
    bool right;
    ZP_TRY(score_hidden(c->engine, &w, layer, x_in, p->x, err));
    return retrieval_score(c->engine, rc, p->x, nll, &right, err);
}

static zp_status keep_answer(struct probes *p, struct calib *c, size_t i, zp_err *err)
{
    size_t row = (size_t)c->n_ctx * c->model->h.d_model;
    const struct retrieval_case *rc = probe_at(p, i);
    struct window w = { rc->ids, rc->n, 0 };
    bool right;
    ZP_TRY(calib_keep(c, &w, p->at_layer + i * c->model->h.n_layer * row, p->x, err));
    return retrieval_score(c->engine, rc, p->x, &p->nll[i], &right, err);
}

static zp_status fill(struct probes *p, struct calib *c, size_t n_each, uint64_t seed, bool restart,
                      zp_err *err)
{
    size_t row = (size_t)c->n_ctx * c->model->h.d_model;
    for (int k = 0; k < 2; k++)
        ZP_TRY(retrieval_make(&p->sets[k], &c->docs, c->model, DOCS_PLAN, (enum retrieval_kind)k,
                              RETRIEVAL_CALIBRATION, c->n_ctx, n_each, seed, err));
    p->n = 2 * n_each;
    ZP_ALLOC(p->x, MEM_EVAP, row, err, "states of the retrieval prompts");
    ZP_ALLOC(p->nll, MEM_EVAP, p->n, err, "retrieval scores");
    if (restart)
        ZP_ALLOC(p->at_layer, MEM_EVAP, p->n * c->model->h.n_layer * row, err,
                 "states of the retrieval prompts");
    for (size_t i = 0; i < p->n; i++)
        ZP_TRY(restart ? keep_answer(p, c, i, err) : answer(p, c, 0, i, &p->nll[i], err));
    return ZP_OK;
}

zp_status probes_open(struct probes *p, struct calib *c, size_t n_each, uint64_t seed, bool restart,
                      zp_err *err)
{
    memset(p, 0, sizeof *p);
    zp_status status = fill(p, c, n_each, seed, restart, err);
    if (status != ZP_OK) probes_free(p);
    return status;
}

zp_status probes_rise(struct probes *p, struct calib *c, const struct gateset *g, uint32_t layer,
                      double enough, double *rise, zp_err *err)
{
    zp_status status = ZP_OK;
    double sum = 0.0;
    size_t n = 0;
    gateset_apply(g, c->engine);
    while (n < p->n && status == ZP_OK) {
        size_t i = n % 2 * p->sets[0].n + n / 2; /* the two kinds in turn */
        double nll = 0.0;
        status = answer(p, c, layer, i, &nll, err);
        sum += nll - p->nll[i];
        if (++n == 2 && sum / 2.0 < enough) break;
    }
    gateset_release(c->engine);
    *rise = sum / (double)n;
    return status;
}
