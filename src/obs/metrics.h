/* metrics.h: what the server counts, and how it is read: counters, gauges, states and histograms
 * with closed sets of labels. All of them stand in metric_table.inc; nothing is added at run time.
 *
 * Threads: everything may be called from any thread at any time but metrics_open and
 * metrics_close. Recording takes no lock and no memory. */
#ifndef OBS_METRICS_H
#define OBS_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/bytes.h"
#include "base/status.h"

/* ---- the table ------------------------------------------------------------------------------- */
#define METRIC(id, ...) METRIC_##id,
enum metric {
#include "metric_table.inc"
    METRIC_COUNT
};

/* LABELS_VARIANT: the set of values; LABEL_VARIANT_BASELINE: one of them, counted from 0. */
#define LABEL(id, name, ...) LABELS_##id,
#define OPEN_LABEL(id, name) LABELS_##id,
enum metric_labels {
    LABELS_NONE,
#include "metric_table.inc"
    LABELS_COUNT
};
#define VALUE(id, text) LABEL_##id,
#define LABEL(id, name, ...) enum { __VA_ARGS__ LABEL_##id##_COUNT };
#include "metric_table.inc"

#define SCALE(id, ...) METRIC_SCALE_##id,
enum metric_scale {
    METRIC_SCALE_NONE,
#include "metric_table.inc"
    METRIC_SCALES
};

enum metric_kind {
    METRIC_KIND_COUNTER,
    METRIC_KIND_GAUGE,
    METRIC_KIND_STATE, /* one of the values of its label holds */
    METRIC_KIND_HISTOGRAM,
    METRIC_KIND_INFO   /* always 1: its labels say it */
};
enum metric_unit { METRIC_UNIT_NONE, METRIC_UNIT_SECONDS, METRIC_UNIT_BYTES, METRIC_UNIT_RATIO };

enum { METRIC_MOST_LABELS = 4 };
struct metric_row {
    const char *name, *help;
    enum metric_kind kind;
    enum metric_unit unit;
    enum metric_scale scale;
    enum metric_labels labels[METRIC_MOST_LABELS]; /* the rest LABELS_NONE */
};
extern const struct metric_row metric_rows[METRIC_COUNT];

struct metric_label {
    const char *name;
    const char *const *values; /* (n); NULL, and n 1: open */
    size_t n;
};
extern const struct metric_label metric_label_sets[LABELS_COUNT];
const double *metric_bounds(enum metric_scale s, size_t *n);

/* ---- recording ------------------------------------------------------------------------------- */
struct metrics;
zp_status metrics_open(struct metrics **out, zp_err *err);
void metrics_close(struct metrics *m); /* NULL is fine */

/* Values of a metric's labels, in their order: METRIC_AT(LABEL_ROUTE_CHAT, LABEL_STATUS_2XX);
 * METRIC_AT(0) where it has none. */
struct metric_at {
    unsigned value[METRIC_MOST_LABELS];
};
#define METRIC_AT(...) ((struct metric_at){ { __VA_ARGS__ } })

/* Counters; those of seconds in nanoseconds. set: for one that is counted elsewhere, and never goes
 * back. */
void metrics_add(struct metrics *m, enum metric id, struct metric_at at, uint64_t n);
void metrics_set_count(struct metrics *m, enum metric id, struct metric_at at, uint64_t n);
/* Gauges. One that was never set, or to NaN, is not shown. */
void metrics_set(struct metrics *m, enum metric id, struct metric_at at, double x);
/* States; value: LABEL_CANARY_HELD. */
void metrics_set_state(struct metrics *m, enum metric id, unsigned value);
/* Histograms. NaN and what is below 0 count as 0; a sum takes at most 10^9 of a value. */
void metrics_observe(struct metrics *m, enum metric id, struct metric_at at, double x);

/* ---- the course of a request: each of these keeps the sums of several metrics equal ---------- */
void metrics_accepted(struct metrics *m, unsigned endpoint, unsigned variant);
/* Once for each request that reaches it. */
void metrics_first_token(struct metrics *m, unsigned variant, unsigned length, double seconds);
/* For each token of each choice; gap: seconds since the choice's last one, below 0 for the
 * first. */
void metrics_token(struct metrics *m, unsigned variant, double gap);

struct metrics_request {
    unsigned endpoint, variant; /* as they were accepted; LABEL_* as all of these */
    unsigned outcome, phase, length, mode;
    unsigned failure; /* of a failed one */
    unsigned finish;  /* of a completed one */
    uint64_t n_computed, n_reused, n_recomputed; /* of the prompt; again: beside those */
    uint64_t n_generated, n_limit;               /* that could have been generated */
    double queue_seconds, prefill_seconds, decode_seconds, total_seconds;
    double top1_mean, top1_std; /* NaN: too few tokens to tell */
    bool looped;
};
/* Once for each accepted request. */
void metrics_ended(struct metrics *m, const struct metrics_request *r);

void metrics_step(struct metrics *m, double seconds, uint64_t tokens, uint64_t sequences);

struct metrics_http {
    unsigned route; /* LABEL_ROUTE_* */
    int status;     /* 499: the client was gone before an answer began */
    double seconds;
    uint64_t bytes_in, bytes_out;
};
void metrics_http(struct metrics *m, const struct metrics_http *h);

/* Memory by tag and process_*, as they are now. */
void metrics_sample_process(struct metrics *m);

/* ---- reading --------------------------------------------------------------------------------- */
/* Of a counter, of a gauge (NaN: not set), of a state its value. */
uint64_t metrics_count(const struct metrics *m, enum metric id, struct metric_at at);
double metrics_gauge(const struct metrics *m, enum metric id, struct metric_at at);
/* Of a histogram: values, their sum, and the value at quantile q (histogram.h). */
uint64_t metrics_observed(const struct metrics *m, enum metric id, struct metric_at at);
double metrics_sum(const struct metrics *m, enum metric id, struct metric_at at);
double metrics_quantile(const struct metrics *m, enum metric id, struct metric_at at, double q);

/* Values of open labels; NULL: "". A variant whose model is NULL is not there. */
struct metrics_texts {
    const char *version, *compiler, *kernels;
    struct {
        const char *model, *arch, *sha256;
    } variants[LABEL_VARIANT_COUNT];
};

enum metrics_format { METRICS_PROMETHEUS, METRICS_OPENMETRICS }; /* 0.0.4; 1.0.0 */
/* The one that a client wants which sent this Accept header (NULL: none). */
enum metrics_format metrics_format_of(const char *accept);
const char *metrics_content_type(enum metrics_format f);

/* Names of other servers that are written beside our own (metrics_compat.inc). */
enum { METRICS_VLLM = 1, METRICS_LLAMACPP = 2 };
/* "vllm,llamacpp" -> bits; "" -> 0. */
zp_status metrics_compat_of(const char *text, unsigned *bits, zp_err *err);

/* Appends the exposition: all series that are there, those that counted nothing among them. */
zp_status metrics_write(const struct metrics *m, const struct metrics_texts *texts,
                        enum metrics_format format, unsigned compat, struct buffer *out,
                        zp_err *err);
/* Appends the table as Markdown: the list of metrics in docs/SERVER.md. */
zp_status metrics_write_page(struct buffer *out, zp_err *err);

#endif
