/* metrics_parts.h: what recording (metrics.c) and writing (metrics_text.c, metrics_compat.c) of
 * metrics share: cells, their places, and lines of an exposition. */
#ifndef OBS_METRICS_PARTS_H
#define OBS_METRICS_PARTS_H

#include <stdatomic.h>
#include "histogram.h"
#include "metrics.h"

enum { METRICS_MOST_CELLS = 1024 }; /* of one series */

struct metrics {
    struct histogram_scale scales[METRIC_SCALES]; /* the first is empty */
    /* A metric's series lie one behind the other, the last label running fastest. Cells of one: a
     * count, a real number, the number of a state; of a histogram: its buckets, then the sum. */
    struct {
        size_t first, n_series, stride;
    } places[METRIC_COUNT];
    size_t n_cells;
    _Atomic uint64_t *cells;
};

/* Index of a series' first cell. */
static inline size_t metrics_place(const struct metrics *m, enum metric id, size_t series)
{
    return m->places[id].first + series * m->places[id].stride;
}
size_t metrics_series(const struct metrics *m, enum metric id, struct metric_at at);
/* The reverse: values of the labels of series i. */
struct metric_at metrics_values(enum metric id, size_t series);
/* Copies the cells, the last one first (M3); out: (n_cells). */
void metrics_copy(const struct metrics *m, uint64_t *out);
double metrics_real(uint64_t bits);
/* Units of a sum or counter that make one second, byte, ...: they are kept as whole numbers. */
uint64_t metrics_parts_of_one(enum metric_unit unit);

/* ---- lines ----------------------------------------------------------------------------------- */
struct metrics_out {
    const struct metrics *m;
    const uint64_t *cells;
    const struct metrics_texts *texts;
    enum metrics_format format;
    struct buffer *out;
    struct buffer labels; /* of the next samples: `a="b",c="d"` */
    zp_err *err;
    zp_status status; /* the first failure */
};
void metrics_put(struct metrics_out *w, const char *text);
/* HELP, TYPE and UNIT of a family whose samples follow. */
void metrics_put_head(struct metrics_out *w, const char *name, enum metric_kind kind,
                      enum metric_unit unit, const char *help);
/* Appends to w->labels. */
void metrics_put_label(struct metrics_out *w, const char *name, const char *value);
/* A sample of so many parts, of which `ones` make one, exactly. */
void metrics_put_parts(struct metrics_out *w, const char *name, uint64_t n, uint64_t ones);
void metrics_put_sample(struct metrics_out *w, const char *name, double x);
/* All samples of one histogram. cells: its buckets, then the sum. */
void metrics_put_histogram(struct metrics_out *w, enum metric id, const char *name,
                           const uint64_t *cells);

void metrics_write_compat(struct metrics_out *w, unsigned compat);
zp_status metrics_write_compat_page(struct buffer *out, zp_err *err);

#endif
