/* histogram.h: which bucket a value falls into, and quantiles of counted buckets.
 *
 * A scale has the bounds that others see, and between them finer edges of its own, each at most
 * 1/16 above the one before: exact counts for the bounds asked for, good quantiles whatever they
 * are. Counts belong to the caller: an array of n_cells of the scale. */
#ifndef OBS_HISTOGRAM_H
#define OBS_HISTOGRAM_H

#include <stddef.h>
#include <stdint.h>
#include "base/status.h"

/* A quantile differs from the value of its rank by at most this share, between the first and the
 * last bound. */
#define HISTOGRAM_ERROR 0.031

struct histogram_scale {
    const double *bounds; /* (n_bounds), rising, above 0; not copied */
    size_t n_bounds;
    double *edges; /* (n_cells - 1), the bounds among them */
    uint32_t *shown; /* (n_bounds): edges[shown[i]] == bounds[i] */
    size_t n_cells;  /* cell i: edges[i - 1] < x <= edges[i]; the first: down to -inf; the last:
                      * beyond all bounds */
};

/* Fails for bounds that are none (ZP_USAGE). */
zp_status histogram_open(struct histogram_scale *s, const double *bounds, size_t n, zp_err *err);
void histogram_free(struct histogram_scale *s);

/* NaN belongs to the last cell. */
size_t histogram_cell(const struct histogram_scale *s, double x);
uint64_t histogram_total(const struct histogram_scale *s, const uint64_t *counts);
/* Values of at most bounds[i]. */
uint64_t histogram_up_to(const struct histogram_scale *s, const uint64_t *counts, size_t i);
/* The value of rank ceil(q n), q in (0, 1]. Below the first bound: half of it. Beyond the last:
 * INFINITY. No values: NaN. */
double histogram_quantile(const struct histogram_scale *s, const uint64_t *counts, double q);

#endif
