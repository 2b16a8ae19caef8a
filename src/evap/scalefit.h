/* scalefit.h: the logit scale 1 + c ln(max(1, n / len)) of a model beyond its trained length,
 * fitted on held-out text; the public call is zp_scale_fit. */
#ifndef EVAP_SCALEFIT_H
#define EVAP_SCALEFIT_H

#include <zerope/evap.h>

/* The x in [low, high] with the least f, by golden section: to a width of `width`; f is called with
 * its argument. A failure of f ends it. */
typedef zp_status (*scalefit_fn)(void *arg, double x, double *value, zp_err *err);
zp_status scalefit_least(scalefit_fn f, void *arg, double low, double high, double width, double *x,
                         zp_err *err);

#endif
