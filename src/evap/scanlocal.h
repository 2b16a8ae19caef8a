/* scanlocal.h: how much each gate alone moves its layer's attention output, on the original's
 * inputs. */
#ifndef EVAP_SCANLOCAL_H
#define EVAP_SCANLOCAL_H

#include "evap/calib.h"

/* Mean over sampled queries of |W_o (o' - o)|^2, o the original head output, o' with the change;
 * summed over the query heads of a KV group. */
struct local_errors {
    float *
        /* (n_layer, n_kv, n_pair) by original pair: error with this gate closed on top of the
         * set */
        gate;
    float *now;    /* (n_layer, n_kv) error of the set itself */
    float *all;    /* (n_layer, n_kv) error with all pairs closed */
    float *output; /* (n_layer) mean |W_o o|^2 of the original */
};
zp_status local_errors_open(struct local_errors *e, uint32_t n_layer, uint32_t n_kv,
                            uint32_t n_pair, zp_err *err);
void local_errors_free(struct local_errors *e);

struct scanlocal; /* scratch kept between calls */
zp_status scanlocal_open(struct scanlocal **out, struct calib *c, zp_err *err);
void scanlocal_close(struct scanlocal *s);
/* Errors given that `set` has closed its gates and shortened its heads already, over the first
 * n_windows planning windows. */
zp_status scanlocal_run(struct scanlocal *s, const struct gateset *set, uint32_t n_windows,
                        struct local_errors *out, zp_err *err);

#endif
