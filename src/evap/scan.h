/* scan.h: the importance of every gate and of every head's far reach, measured on planning
 * windows. */
#ifndef EVAP_SCAN_H
#define EVAP_SCAN_H

#include <zerope/evap.h>
#include "evap/scanlocal.h"

/* First positions that a local head keeps: one page of KV, which is held whole for any of them. */
enum { SCAN_SINKS = KERN_TILE };
enum { SCAN_PROBES = 4 }; /* retrieval prompts of each kind that rank local heads */

struct scan {
    uint32_t n_layer, n_kv, n_pair, n_ctx, local_window;
    uint32_t n_windows_local, n_windows_kl;
    struct local_errors local;
    double *kl_layer;   /* (n_layer) KL with all pairs of the layer closed; -1 = nothing open */
    double *kl_head;    /* (n_layer, n_kv) the same for one KV head */
    double *kl_pair;    /* (n_pair) the same pair index closed everywhere */
    double *importance; /* (n_layer, n_kv, n_pair) estimated KL of closing the gate alone */
    /* local heads (local_window > 0) */
    double *kl_local; /* (n_layer, n_kv) KL with the head made local */
    double *nll_rise; /* (n_layer, n_kv) rise in NLL of retrieval answers, nats a token */
    double *fisher, *first_order; /* (n_layer, n_kv, n_pair) fisher.h; NULL: not measured */
    struct arena arena;
    char *model_sha256;
    uint64_t *seen; /* (n_seen) documents read on the way (docs_seen) */
    size_t n_seen;
};

zp_status scan_measure(struct scan *s, struct calib *c, const zp_scan_options *o, zp_err *err);
void scan_free(struct scan *s);
/* Room for the results; scan_free accepts a half-placed one. */
zp_status scan_place(struct scan *s, uint32_t n_layer, uint32_t n_kv, uint32_t n_pair, zp_err *err);
zp_status scan_place_gradients(struct scan *s, zp_err *err); /* behind scan_place */

/* Estimated KL of closing each gate on top of what local errors were measured with. out (n_layer,
 * n_kv, n_pair); closed gates get 0. */
void scan_importance(const struct scan *s, const struct local_errors *now,
                     const struct gateset *set, double *out);

#endif
