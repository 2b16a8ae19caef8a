/* speedchart.h: tokens per second against depth, from a bench document. */
#ifndef REPORT_SPEEDCHART_H
#define REPORT_SPEEDCHART_H

#include <jansson.h>
#include "report/canvas.h"

enum { SPEED_MAX_POINTS = 1024, SPEED_MAX_LINES = 12 };
enum speed_test { SPEED_PREFILL, SPEED_DECODE, SPEED_TESTS };

struct speedchart {
    struct speed_point { double depth, tps, low, high; } points[SPEED_MAX_POINTS]; /* by line */
    struct speed_line {
        enum speed_test test;
        double batch;
        size_t begin, end; /* of its points */
    } lines[SPEED_MAX_LINES];
    size_t n_points, n_lines;
    double deepest, fastest[SPEED_TESTS]; /* ends of the axes; fastest 0: the test has no line */
    char subtitle[160];
};

/* doc: {"rows": [{"test", "depth", "batch", "tps_median", "tps_min", "tps_max"}, ...]} by depth;
 * rows of other tests than prefill and decode are passed over. */
zp_status speedchart_read(struct speedchart *s, const json_t *doc, zp_err *err);
void speedchart_size(const struct speedchart *s, double *width, double *height);
void speedchart_draw(const struct speedchart *s, struct canvas *c);

#endif
