/* plan.h: which gates close and which heads become local, in which order, within a budget on
 * measured KL. */
#ifndef EVAP_PLAN_H
#define EVAP_PLAN_H

#include "evap/fold.h"
#include "evap/gaterank.h"
#include "evap/probes.h"
#include "evap/scan.h"

enum unit_kind { UNIT_GATE, UNIT_PAIR, UNIT_LAYER, UNIT_LOCAL };
struct unit {
    enum unit_kind kind;
    uint16_t layer, kv, pair; /* PAIR: pair only; LAYER: layer only; LOCAL: layer and kv */
    double cost;              /* estimate that ordered it */
};

struct plan {
    uint32_t n_ctx, local_window;
    double budget_kl, kl_mean; /* kl_mean: of the outcome, measured on the planning windows */
    bool uniform, uniform_slow, layers; /* as asked: what the first units are */
    enum gaterank rank; /* what orders single gates */
    bool folds, folded; /* a fold is wanted; it changes something */
    struct unit *units; /* in closing order: the first n_used are closed */
    size_t n_units, n_used;
    struct gateset set; /* the outcome */
    struct probes probes; /* with local heads; n = 0: none */
    char *model_sha256;
    uint64_t *seen; /* (n_seen) documents read on the way (docs_seen) */
    size_t n_seen;
    struct arena arena;
};

/* Of the prompts that a plan is held to; scans draw theirs from small seeds. */
enum { PLAN_SEED = 1 << 20 };

/* Contradictory wishes, an unknown order, or a reach of local heads that shortens nothing:
 * ZP_USAGE. */
zp_status plan_check_options(const zp_plan_options *o, uint32_t n_ctx, zp_err *err);
/* Makes a plan with KL <= target on the planning windows, by what the scan has measured. fold is
 * fitted for the outcome and left installed in the calibration engine where folding is possible and
 * wanted. */
zp_status plan_make(struct plan *p, struct calib *c, const struct scan *s, const zp_plan_options *o,
                    struct fold *fold, double target, zp_err *err);
/* Closes the first n units, re-fits the fold and measures. */
zp_status plan_use(struct plan *p, struct calib *c, struct fold *fold, size_t n, zp_err *err);
/* Whether the outcome costs no more than it may: KL <= target, and with local heads what the plan
 * is held to in retrieval. Prompts are asked only where prose allows it. */
zp_status plan_fits(struct plan *p, struct calib *c, double target, bool *fits, zp_err *err);
/* What the first n units of the order close in a model. */
zp_status plan_set(const struct plan *p, const struct position *position, size_t n,
                   struct gateset *out, zp_err *err);
void plan_free(struct plan *p);
/* Longest prefix between lo and hi units with KL <= target, to a grain; lo is assumed to fit. */
zp_status plan_search(struct plan *p, struct calib *c, struct fold *fold, size_t lo, size_t hi,
                      size_t grain, double target, zp_err *err);

#endif
