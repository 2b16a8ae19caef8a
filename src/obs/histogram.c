/* histogram.c: scales of buckets and what can be told from their counts.
 * H1 edges rise, and each bound is one of them.  H2 beyond the first bound an edge is at most
 * HISTOGRAM_STEP times the one before: the geometric middle is within sqrt(HISTOGRAM_STEP) - 1 =
 * 0.0308 of any value between them. */
#include "histogram.h"

#include <assert.h>
#include <math.h>

#include "base/mem.h"

#define HISTOGRAM_STEP (17.0 / 16)
#define MOST_DOUBLINGS 100 /* of the bounds: some 1100 edges */

static size_t parts_between(double low, double high)
{
    double parts = ceil(log(high / low) / log(HISTOGRAM_STEP));
    return parts < 1 ? 1 : (size_t)parts;
}

static zp_status check_bounds(const double *bounds, size_t n, zp_err *err)
{
    ZP_FAIL_IF(n == 0, err, ZP_USAGE, "a histogram needs bounds");
    for (size_t i = 0; i < n; i++) {
        ZP_FAIL_IF(!(bounds[i] > (i == 0 ? 0 : bounds[i - 1])) || !isfinite(bounds[i]), err,
                   ZP_USAGE, "bound %zu of a histogram, %g, is not above the one before", i,
                   bounds[i]);
    }
    ZP_FAIL_IF(log2(bounds[n - 1] / bounds[0]) > MOST_DOUBLINGS, err, ZP_USAGE,
               "the bounds of a histogram reach from %g to %g: too far", bounds[0], bounds[n - 1]);
    return ZP_OK;
}

static void fill_edges(struct histogram_scale *s)
{
    size_t at = 0;
    s->edges[at] = s->bounds[0];
    s->shown[0] = 0;
    for (size_t i = 1; i < s->n_bounds; i++) {
        double low = s->bounds[i - 1], high = s->bounds[i];
        size_t parts = parts_between(low, high);
        for (size_t p = 1; p < parts; p++)
            s->edges[++at] = low * pow(high / low, (double)p / (double)parts);
        s->edges[++at] = high; // H1
        s->shown[i] = (uint32_t)at;
    }
    assert(at + 2 == s->n_cells);
}

zp_status histogram_open(struct histogram_scale *s, const double *bounds, size_t n, zp_err *err)
{
    *s = (struct histogram_scale){ .bounds = bounds, .n_bounds = n, .n_cells = 2 };
    ZP_TRY(check_bounds(bounds, n, err));
    for (size_t i = 1; i < n; i++) s->n_cells += parts_between(bounds[i - 1], bounds[i]);
    s->edges = mem_array(MEM_SERVE, s->n_cells - 1, sizeof *s->edges);
    s->shown = mem_array(MEM_SERVE, n, sizeof *s->shown);
    if (s->edges == NULL || s->shown == NULL) {
        histogram_free(s);
        ZP_FAIL(err, ZP_NO_MEMORY, "not enough memory for the buckets of a histogram");
    }
    fill_edges(s);
    return ZP_OK;
}

void histogram_free(struct histogram_scale *s)
{
    mem_free(s->edges);
    mem_free(s->shown);
    *s = (struct histogram_scale){ 0 };
}

size_t histogram_cell(const struct histogram_scale *s, double x)
{
    size_t low = 0, high = s->n_cells - 1; /* edges before low are below x, from high on not */
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (x <= s->edges[middle]) high = middle;
        else low = middle + 1;
    }
    return low;
}

static uint64_t sum(const uint64_t *counts, size_t n)
{
    uint64_t total = 0;
    for (size_t i = 0; i < n; i++) total += counts[i];
    return total;
}

uint64_t histogram_total(const struct histogram_scale *s, const uint64_t *counts)
{
    return sum(counts, s->n_cells);
}

uint64_t histogram_up_to(const struct histogram_scale *s, const uint64_t *counts, size_t i)
{
    return sum(counts, (size_t)s->shown[i] + 1);
}

double histogram_quantile(const struct histogram_scale *s, const uint64_t *counts, double q)
{
    uint64_t total = histogram_total(s, counts), below = 0;
    if (total == 0) return NAN;
    double rank = fmax(1, ceil(q * (double)total));
    size_t i = 0;
    while (i < s->n_cells - 1 && (double)(below += counts[i]) < rank) i++;
    if (i == s->n_cells - 1) return INFINITY;
    return i == 0 ? s->bounds[0] / 2 : sqrt(s->edges[i - 1] * s->edges[i]); // H2
}
