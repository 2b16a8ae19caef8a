/* chart.h: NLL by position, a model beside its original, as steps over position buckets. */
#ifndef REPORT_CHART_H
#define REPORT_CHART_H

#include <jansson.h>
#include "report/canvas.h"

enum { CHART_MAX_BUCKETS = 64 };
struct chart {
    struct { double from, to, nll, nll_base; } buckets[CHART_MAX_BUCKETS];
    size_t n;
    bool has_base;
};

/* buckets: [{"from", "to", "nll", "nll_base"?}, ...], ascending positions. */
zp_status chart_read(struct chart *ch, const json_t *buckets, zp_err *err);
void chart_size(const struct chart *ch, double *width, double *height);
void chart_draw(const struct chart *ch, struct canvas *c);

#endif
