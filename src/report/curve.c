/* curve.c: a panel of numbers by step.
 * Owns: thinned copies of the series. Does not know: what the numbers mean.
 * S1 a bin of steps has at most two raw points, its lowest and its highest: no spike is lost by
 *    thinning.  S2 the axis holds every mean and all but the outermost raw points (1 % at either
 *    end); those stand at its edge.  S3 what is not finite is counted,
 *    and marked above its bin; it is a gap where a bin has nothing else. */
#include "report/curve.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/numtext.h"

static const double most_value = 1e290; /* sums of as many as memory holds stay finite */
static const double log_ratio = 20;     /* from which on a logarithmic axis shows more */
static const struct color colors[CURVE_MAX_LINES] = { { 38, 122, 204 }, { 230, 140, 20 } };
static const struct color gap_color = { 200, 60, 50 };

/* ---- reading */

static zp_status read_points(struct curve_point *out, const json_t *series, const char *name,
                             zp_err *err)
{
    const json_t *steps = json_object_get(series, "steps");
    const json_t *values = json_object_get(series, "values");
    double before = -1;
    for (size_t i = 0; i < json_array_size(steps); i++) {
        const json_t *s = json_array_get(steps, i), *v = json_array_get(values, i);
        double step = json_is_integer(s) ? (double)json_integer_value(s) : -1, x = (double)NAN;
        ZP_FAIL_IF(step < 0 || step < before, err, ZP_BAD_INPUT,
                   "series %s: steps[%zu] is no step, or comes before the last one", name, i);
        ZP_FAIL_IF(!json_is_number(v) && !json_is_null(v), err, ZP_BAD_INPUT,
                   "series %s: values[%zu] is neither a number nor null", name, i);
        if (json_is_number(v)) x = json_number_value(v);
        out[i] = (struct curve_point){ step, fabs(x) <= most_value ? x : (double)NAN };
        before = step;
    }
    return ZP_OK;
}

static double mean_around(const struct curve_point *p, size_t n, size_t at, size_t half)
{
    size_t begin = at > half ? at - half : 0, end = n - at > half + 1 ? at + half + 1 : n,
           found = 0;
    double sum = 0;
    for (size_t i = begin; i < end; i++) {
        if (isnan(p[i].value)) continue;
        sum += p[i].value;
        found++;
    }
    return found ? sum / (double)found : (double)NAN;
}

/* The points of p[begin, end), which share a bin: its lowest and its highest in their order. */
static void thin_bin(struct curve_line *line, const struct curve_point *p, size_t begin, size_t end)
{
    size_t low = end, high = end;
    for (size_t i = begin; i < end; i++) {
        if (isnan(p[i].value)) continue;
        if (low == end || p[i].value < p[low].value) low = i;
        if (high == end || p[i].value > p[high].value) high = i;
    }
    line->raw[line->n_raw++] = low == end ? p[begin] : p[low < high ? low : high];
    if (low != high) line->raw[line->n_raw++] = p[low < high ? high : low];
}

static void take_gap(struct curve_line *line, const struct curve_point *p, size_t begin, size_t end)
{
    size_t i = begin;
    while (i < end && !isnan(p[i].value)) i++;
    if (i < end) line->gaps[line->n_gaps++] = p[i].step; // S3
}

static size_t bin_of(double step, double first, double last)
{
    double at = last > first ? (step - first) / (last - first) * CURVE_BINS : 0;
    return at < CURVE_BINS ? (size_t)at : CURVE_BINS - 1;
}

static void thin(struct curve_line *line, const struct curve_point *p, size_t n, bool smooth)
{
    double first = p[0].step, last = p[n - 1].step;
    line->half = smooth ? n / 60 : 0;
    for (size_t begin = 0, end; begin < n; begin = end) {
        size_t bin = bin_of(p[begin].step, first, last);
        for (end = begin; end < n && bin_of(p[end].step, first, last) == bin;) end++;
        if (n > CURVE_MAX_RAW) thin_bin(line, p, begin, end);
        take_gap(line, p, begin, end);
        size_t at = begin + (end - begin) / 2;
        if (line->half)
            line->mean[line->n_mean++] =
                (struct curve_point){ p[at].step, mean_around(p, n, at, line->half) };
    }
    if (n <= CURVE_MAX_RAW) {
        memcpy(line->raw, p, n * sizeof *p);
        line->n_raw = n;
    }
}

static zp_status fill_line(struct curve_line *line, struct curve_point *p, size_t n,
                           const json_t *series, bool smooth, bool *drawn, zp_err *err)
{
    ZP_TRY(read_points(p, series, line->name, err));
    for (size_t i = 0; i < n; i++) {
        line->n_missing += isnan(p[i].value);
        *drawn |= p[i].value < 0 || p[i].value > 0;
    }
    if (n) thin(line, p, n, smooth);
    return ZP_OK;
}

zp_status curve_add(struct curve *cv, const json_t *series, const char *name, bool smooth,
                    bool *drawn, zp_err *err)
{
    const json_t *steps = json_object_get(series, "steps");
    struct curve_line *line = &cv->lines[cv->n_lines];
    struct curve_point *p;
    size_t n = json_array_size(steps);
    *drawn = false;
    ZP_FAIL_IF(!json_is_array(steps) || json_array_size(json_object_get(series, "values")) != n,
               err, ZP_BAD_INPUT, "series %s: has no lists steps and values of one length", name);
    memset(line, 0, sizeof *line);
    line->name = name;
    ZP_ALLOC(p, MEM_META, n, err, "a series");
    zp_status status = fill_line(line, p, n, series, smooth, drawn, err);
    mem_free(p);
    cv->n_lines += *drawn && status == ZP_OK;
    return status;
}

/* ---- axes */

static int compare_numbers(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

static void take_span(struct curve *cv, double low, double high)
{
    cv->low = fmin(cv->low, low);
    cv->high = fmax(cv->high, high);
}

static void take_line(struct curve *cv, const struct curve_line *line)
{
    double values[CURVE_MAX_RAW];
    size_t n = 0;
    for (size_t i = 0; i < line->n_mean; i++)
        if (!isnan(line->mean[i].value)) take_span(cv, line->mean[i].value, line->mean[i].value);
    for (size_t i = 0; i < line->n_raw; i++)
        if (!isnan(line->raw[i].value)) values[n++] = line->raw[i].value;
    if (n == 0) return;
    qsort(values, n, sizeof *values, compare_numbers);
    size_t out = line->half ? n / 100 : 0; // S2
    take_span(cv, values[out], values[n - 1 - out]);
}

void curve_finish(struct curve *cv, bool may_be_logarithmic)
{
    cv->low = INFINITY, cv->high = -INFINITY;
    for (size_t i = 0; i < cv->n_lines; i++) take_line(cv, &cv->lines[i]);
    cv->logarithmic = may_be_logarithmic && cv->low > 0 && cv->high > log_ratio * cv->low;
    if (cv->logarithmic) {
        cv->low = fmax(cv->low, cv->high * 1e-9); /* a few decades tell enough */
        return;
    }
    double room = fmax(cv->high - cv->low, fmax(1e-12, fabs(cv->high) * 0.02));
    cv->step = canvas_step(room);
    cv->low = floor(cv->low / cv->step) * cv->step;
    cv->high = fmax(ceil(cv->high / cv->step - 1e-9) * cv->step, cv->low + cv->step);
}

/* ---- drawing */

struct frame {
    const struct curve *cv;
    struct canvas *c;
    double x, y; /* of the upper left corner of what is drawn into */
};

static double x_of(const struct frame *f, double step)
{
    return f->x + step / fmax(f->cv->last_step, 1) * CURVE_WIDTH;
}

static double y_of(const struct frame *f, double value)
{
    const struct curve *cv = f->cv;
    double at = fmin(fmax(value, cv->low), cv->high); // S2
    double share = cv->logarithmic ? log(at / cv->low) / log(cv->high / cv->low)
                                   : (at - cv->low) / (cv->high - cv->low);
    return f->y + CURVE_HEIGHT * (1 - share);
}

static void draw_value(const struct frame *f, double value)
{
    char text[48];
    double y = y_of(f, value);
    numtext_printf(text, sizeof text, "%.4g", value);
    f->c->ops->line(f->c, f->x, y, f->x + CURVE_WIDTH, y, CANVAS_RULE);
    canvas_label(f->c, f->x - 6, y + 4, 11, CANVAS_END, text);
}

/* 1, 2, 5 of each decade; of many decades their beginnings. */
static void draw_log_values(const struct frame *f)
{
    static const double parts[] = { 1, 2, 5 };
    int first = (int)floor(log10(f->cv->low)), last = (int)ceil(log10(f->cv->high));
    size_t n = last - first > 3 ? 1 : ZP_COUNT(parts);
    for (int e = first; e <= last; e++)
        for (size_t i = 0; i < n; i++) {
            double value = parts[i] * pow(10, e);
            if (value >= f->cv->low && value <= f->cv->high) draw_value(f, value);
        }
}

static void draw_values(const struct frame *f)
{
    const struct curve *cv = f->cv;
    if (cv->logarithmic) {
        draw_log_values(f);
        return;
    }
    int n = (int)lround((cv->high - cv->low) / cv->step);
    for (int i = 0; i <= n; i++) {
        double value = cv->low + i * cv->step;
        draw_value(f, fabs(value) < cv->step * 1e-9 ? 0 : value);
    }
}

void curve_draw_steps(struct canvas *c, double x, double y, double width, double last)
{
    char text[48];
    double step = fmax(1, canvas_step(fmax(last, 1)));
    c->ops->line(c, x, y, x + width, y, CANVAS_INK);
    for (double at = 0; at <= last; at += step) {
        double tick = x + at / fmax(last, 1) * width;
        numtext_printf(text, sizeof text, "%.7g", at);
        c->ops->line(c, tick, y, tick, y + 4, CANVAS_INK);
        canvas_label(c, tick, y + 17, 11, CANVAS_MIDDLE, text);
    }
    canvas_label(c, x + width, y + 31, 11, CANVAS_END, "step");
}

/* Joined by lines up to the next gap; a point alone is a dot. */
static void draw_points(const struct frame *f, const struct curve_point *p, size_t n,
                        struct color color, double width)
{
    double at[2 * CURVE_MAX_RAW];
    for (size_t i = 0; i < n;) {
        size_t k = 0;
        for (; i < n && !isnan(p[i].value); i++, k++)
            at[2 * k] = x_of(f, p[i].step), at[2 * k + 1] = y_of(f, p[i].value);
        if (k == 1) f->c->ops->box(f->c, at[0] - 2, at[1] - 2, 4, 4, color, NULL);
        if (k > 1) f->c->ops->path(f->c, at, k, color, width, false);
        while (i < n && isnan(p[i].value)) i++;
    }
}

static void draw_gaps(const struct frame *f, const struct curve_line *line)
{
    char tip[96];
    for (size_t i = 0; i < line->n_gaps; i++) {
        numtext_printf(tip, sizeof tip, "step %.0f: %s is not finite", line->gaps[i], line->name);
        f->c->ops->box(f->c, x_of(f, line->gaps[i]) - 1.5, f->y, 3, 7, gap_color, tip);
    }
}

static void draw_key(const struct frame *f, size_t i, double x)
{
    char text[96], missing[40] = "";
    const struct curve_line *line = &f->cv->lines[i];
    if (line->n_missing) snprintf(missing, sizeof missing, " (%zu not finite)", line->n_missing);
    snprintf(text, sizeof text, "%s%s", line->name, missing);
    f->c->ops->box(f->c, x, f->y - 15, 10, 10, colors[i], NULL);
    canvas_label(f->c, x + 15, f->y - 6, 11, CANVAS_START, text);
}

void curve_draw(const struct curve *cv, struct canvas *c, double x, double y)
{
    struct frame f = { cv, c, x + CURVE_LEFT, y + CURVE_TOP };
    struct canvas_text title = { .x = f.x, .y = f.y - 6, .size = 12, .bold = true };
    c->ops->text(c, &title, cv->title);
    draw_values(&f);
    curve_draw_steps(c, f.x, f.y + CURVE_HEIGHT, CURVE_WIDTH, cv->last_step);
    for (size_t i = 0; i < cv->n_lines; i++) {
        const struct curve_line *line = &cv->lines[i];
        c->opacity = line->n_mean ? 0.35 : 1;
        draw_points(&f, line->raw, line->n_raw, colors[i], line->n_mean ? 1 : 1.75);
        c->opacity = 1;
        draw_points(&f, line->mean, line->n_mean, colors[i], 2);
        draw_gaps(&f, line);
        if (cv->n_lines > 1 || line->n_missing) draw_key(&f, i, f.x + 235 + 118 * (double)i);
    }
}
