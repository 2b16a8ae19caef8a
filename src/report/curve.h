/* curve.h: numbers by step, as a panel of a figure: every step faint, a running mean on top. */
#ifndef REPORT_CURVE_H
#define REPORT_CURVE_H

#include <jansson.h>
#include "report/canvas.h"

enum { CURVE_MAX_LINES = 2, CURVE_BINS = 300, CURVE_MAX_RAW = 2 * CURVE_BINS };
enum { CURVE_LEFT = 74, CURVE_TOP = 34, CURVE_WIDTH = 430, CURVE_HEIGHT = 160, CURVE_RIGHT = 16,
       CURVE_BOTTOM = 34 };

struct curve_point { double step, value; }; /* value NaN: a gap */

struct curve {
    const char *title;
    struct curve_line {
        const char *name;
        struct curve_point raw[CURVE_MAX_RAW], mean[CURVE_BINS];
        double gaps[CURVE_BINS]; /* steps of values that were not finite, one of each bin */
        size_t n_raw, n_mean, n_gaps;
        size_t n_missing; /* all that were not finite */
        size_t half;      /* the mean goes over 2 * half + 1 points; 0: there is none but raw */
    } lines[CURVE_MAX_LINES];
    size_t n_lines;
    double last_step;       /* end of the axis of steps */
    double low, high, step; /* of the axis of values */
    bool logarithmic;
};

/* A line more; series: {"steps": [...], "values": [...]}, checked. *drawn: false where it has no
 * finite value but 0, and nothing is added. smooth: has a mean. */
zp_status curve_add(struct curve *cv, const json_t *series, const char *name, bool smooth,
                    bool *drawn, zp_err *err);
/* After the last line, with last_step set: chooses the axes. */
void curve_finish(struct curve *cv, bool may_be_logarithmic);
/* (x, y) of the panel's corner; it takes CURVE_LEFT + CURVE_WIDTH + CURVE_RIGHT pixels, and
 * CURVE_TOP + CURVE_HEIGHT + CURVE_BOTTOM. */
void curve_draw(const struct curve *cv, struct canvas *c, double x, double y);

/* Ticks of an axis of steps from 0 to `last` over `width` pixels at (x, y). */
void curve_draw_steps(struct canvas *c, double x, double y, double width, double last);

#endif
