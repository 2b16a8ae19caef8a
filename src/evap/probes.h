/* probes.h: retrieval prompts of the planning documents, and what a change of gates or windows
 * costs their answers. Prose KL does not see it. */
#ifndef EVAP_PROBES_H
#define EVAP_PROBES_H

#include "eval/retrieval.h"
#include "evap/calib.h"

struct probes {
    struct retrieval sets[2];
    float *at_layer; /* (n, n_layer, n_ctx, d_model) of the original, or NULL */
    float *x;        /* (n_ctx, d_model) */
    double *nll;     /* (n) of the original */
    size_t n;
};

/* Whether n_each prompts of each kind fit into the bench's length; ZP_BAD_INPUT says how much
 * does. */
zp_status probes_check(const struct calib *c, size_t n_each, uint64_t seed, zp_err *err);
/* restart: keeps the original's stream before each layer, so that a change restarts at its
 * layer. */
zp_status probes_open(struct probes *p, struct calib *c, size_t n_each, uint64_t seed, bool restart,
                      zp_err *err);
void probes_free(struct probes *p);
/* Mean rise in NLL of the answers, nats a token, of a change from `layer` on (0 without restart).
 * Below `enough` in one prompt of each kind it is taken for the mean; -INFINITY asks them all. */
zp_status probes_rise(struct probes *p, struct calib *c, const struct gateset *g, uint32_t layer,
                      double enough, double *rise, zp_err *err);

#endif
