/* metrics_text.c: metrics as text for scrapers: Prometheus 0.0.4, OpenMetrics 1.0.0.
 * Owns: escaping, numbers, the order of lines. Reads a copy of the cells (metrics.c M3).
 * T1 whatever the texts of open labels are, the result is UTF-8 and well-formed.  T2 a family has
 * one head, in front of its samples, and none without samples.  T3 whole numbers and times are
 * written exactly. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/numtext.h"
#include "metrics.h"
#include "metrics_parts.h"

#define MOST_BYTES ((size_t)16 << 20)
#define MOST_VALUE 256 /* bytes of a label's value; more are cut */

/* ---- lines ----------------------------------------------------------------------------------- */

static void append(struct metrics_out *w, struct buffer *to, const char *text, size_t size)
{
    if (w->status == ZP_OK) w->status = buffer_append(to, text, size, w->err);
}

void metrics_put(struct metrics_out *w, const char *text)
{
    append(w, w->out, text, strlen(text));
}

/* A run that stands for itself, an escape, or U+FFFD for what cannot stand there. */
static void put_value(struct metrics_out *w, const char *text, size_t size)
{
    size_t bad;
    while (size != 0) {
        size_t good = utf8_is_valid(text, size, &bad) ? size : bad, run = 0;
        while (run < good && (unsigned char)text[run] >= 0x20 &&
               strchr("\\\"\x7f", text[run]) == NULL)
            run++;
        append(w, &w->labels, text, run);
        text += run, size -= run;
        if (size == 0) return;
        if (*text == '\n') append(w, &w->labels, "\\n", 2);
        else if (*text == '\\') append(w, &w->labels, "\\\\", 2);
        else if (*text == '"') append(w, &w->labels, "\\\"", 2);
        else append(w, &w->labels, "\xef\xbf\xbd", 3); // T1
        text++, size--;
    }
}

void metrics_put_label(struct metrics_out *w, const char *name, const char *value)
{
    size_t size = strlen(value);
    if (size > MOST_VALUE) size = utf8_complete_prefix(value, MOST_VALUE);
    if (w->labels.size != 0) append(w, &w->labels, ",", 1);
    append(w, &w->labels, name, strlen(name));
    append(w, &w->labels, "=\"", 2);
    put_value(w, value, size);
    append(w, &w->labels, "\"", 1);
}

/* The table has no help that would need escapes in either format. */
void metrics_put_head(struct metrics_out *w, const char *name, enum metric_kind kind,
                      enum metric_unit unit, const char *help)
{
    static const char *const kinds[] = { "counter", "gauge", "gauge", "histogram", "gauge" };
    static const char *const units[] = { NULL, "seconds", "bytes", "ratio" };
    bool open = w->format == METRICS_OPENMETRICS;
    /* There a counter's family is named without the end of its samples' name. */
    int size = (int)(strlen(name) - (open && kind == METRIC_KIND_COUNTER ? strlen("_total") : 0));
    if (w->status == ZP_OK)
        w->status = buffer_printf(w->out, w->err, "# HELP %.*s %s\n# TYPE %.*s %s\n", size, name,
                                  help, size, name, kinds[kind]);
    if (w->status == ZP_OK && open && units[unit] != NULL)
        w->status = buffer_printf(w->out, w->err, "# UNIT %.*s %s\n", size, name, units[unit]);
}

/* name + end, labels and le in braces where there are any, a blank. */
static void begin_sample(struct metrics_out *w, const char *name, const char *end, const char *le)
{
    bool labels = w->labels.size != 0;
    metrics_put(w, name);
    metrics_put(w, end);
    if (labels || le != NULL) metrics_put(w, "{");
    append(w, w->out, (const char *)w->labels.data, w->labels.size);
    if (le != NULL) {
        metrics_put(w, labels ? ",le=\"" : "le=\"");
        metrics_put(w, le);
        metrics_put(w, "\"");
    }
    metrics_put(w, labels || le != NULL ? "} " : " ");
}

/* n / ones, exactly (T3); ones: a power of ten. */
static void put_parts(struct metrics_out *w, uint64_t n, uint64_t ones)
{
    char text[48];
    int size = snprintf(text, sizeof text, "%" PRIu64, n / ones);
    if (n % ones != 0) {
        size += snprintf(text + size, sizeof text - (size_t)size, ".%09" PRIu64, n % ones);
        while (text[size - 1] == '0') size--;
    }
    append(w, w->out, text, (size_t)size);
    metrics_put(w, "\n");
}

static const char *real_text(double x, struct numtext *room)
{
    if (isinf(x)) return x > 0 ? "+Inf" : "-Inf";
    return isnan(x) ? "NaN" : numtext_shortest(x, room);
}

void metrics_put_parts(struct metrics_out *w, const char *name, uint64_t n, uint64_t ones)
{
    begin_sample(w, name, "", NULL);
    put_parts(w, n, ones);
}

void metrics_put_sample(struct metrics_out *w, const char *name, double x)
{
    struct numtext room;
    begin_sample(w, name, "", NULL);
    metrics_put(w, real_text(x, &room));
    metrics_put(w, "\n");
}

/* OpenMetrics writes the bound 1 as "1.0". */
static const char *bound_text(const struct metrics_out *w, double x, struct numtext *room)
{
    const char *text = real_text(x, room);
    size_t size = strlen(text);
    if (w->format == METRICS_OPENMETRICS && strcspn(text, ".eI") == size)
        memcpy(room->text + size, ".0", sizeof ".0");
    return text;
}

void metrics_put_histogram(struct metrics_out *w, enum metric id, const char *name,
                           const uint64_t *cells)
{
    struct numtext room;
    const struct histogram_scale *scale = &w->m->scales[metric_rows[id].scale];
    for (size_t i = 0; i < scale->n_bounds; i++) {
        begin_sample(w, name, "_bucket", bound_text(w, scale->bounds[i], &room));
        put_parts(w, histogram_up_to(scale, cells, i), 1);
    }
    uint64_t total = histogram_total(scale, cells);
    begin_sample(w, name, "_bucket", "+Inf");
    put_parts(w, total, 1);
    begin_sample(w, name, "_sum", NULL);
    put_parts(w, cells[scale->n_cells], metrics_parts_of_one(metric_rows[id].unit));
    begin_sample(w, name, "_count", NULL);
    put_parts(w, total, 1);
}

/* ---- families -------------------------------------------------------------------------------- */

static const char *open_value(const struct metrics_texts *t, enum metric_labels label, unsigned v)
{
    const char *text = label == LABELS_VERSION    ? t->version
                       : label == LABELS_COMPILER ? t->compiler
                       : label == LABELS_KERNELS  ? t->kernels
                       : label == LABELS_MODEL    ? t->variants[v].model
                       : label == LABELS_ARCH     ? t->variants[v].arch
                                                  : t->variants[v].sha256;
    return text == NULL ? "" : text;
}

/* Where a row has open labels of a variant, that is its first label. */
static void put_labels(struct metrics_out *w, const struct metric_row *row, struct metric_at at)
{
    buffer_clear(&w->labels);
    for (size_t i = 0; i < METRIC_MOST_LABELS && row->labels[i] != LABELS_NONE; i++) {
        const struct metric_label *set = &metric_label_sets[row->labels[i]];
        const char *value = set->values != NULL ? set->values[at.value[i]]
                                                : open_value(w->texts, row->labels[i], at.value[0]);
        metrics_put_label(w, set->name, value);
    }
}

static bool is_there(const struct metrics_out *w, enum metric id, const uint64_t *cell, size_t i)
{
    if (metric_rows[id].kind == METRIC_KIND_GAUGE) return !isnan(metrics_real(*cell));
    return id != METRIC_MODEL || w->texts->variants[i].model != NULL;
}

static void put_state(struct metrics_out *w, const struct metric_row *row, uint64_t state)
{
    for (unsigned v = 0; v < metric_label_sets[row->labels[0]].n; v++) {
        put_labels(w, row, METRIC_AT(v));
        metrics_put_parts(w, row->name, v == state, 1);
    }
}

static void put_series(struct metrics_out *w, enum metric id, size_t i, const uint64_t *cell)
{
    const struct metric_row *row = &metric_rows[id];
    put_labels(w, row, metrics_values(id, i));
    switch (row->kind) {
    case METRIC_KIND_COUNTER:
        metrics_put_parts(w, row->name, *cell, metrics_parts_of_one(row->unit));
        break;
    case METRIC_KIND_GAUGE: metrics_put_sample(w, row->name, metrics_real(*cell)); break;
    case METRIC_KIND_STATE: put_state(w, row, *cell); break;
    case METRIC_KIND_HISTOGRAM: metrics_put_histogram(w, id, row->name, cell); break;
    case METRIC_KIND_INFO: metrics_put_parts(w, row->name, 1, 1); break;
    }
}

static void put_family(struct metrics_out *w, enum metric id)
{
    const struct metric_row *row = &metric_rows[id];
    bool any = false;
    for (size_t i = 0; i < w->m->places[id].n_series; i++) {
        const uint64_t *cell = w->cells + metrics_place(w->m, id, i);
        if (!is_there(w, id, cell, i)) continue;
        if (!any) metrics_put_head(w, row->name, row->kind, row->unit, row->help); // T2
        any = true;
        put_series(w, id, i, cell);
    }
}

/* ---- the whole ------------------------------------------------------------------------------- */

enum metrics_format metrics_format_of(const char *accept)
{
    bool open = accept != NULL && strstr(accept, "application/openmetrics-text") != NULL;
    return open ? METRICS_OPENMETRICS : METRICS_PROMETHEUS;
}

const char *metrics_content_type(enum metrics_format f)
{
    return f == METRICS_OPENMETRICS
               ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
               : "text/plain; version=0.0.4; charset=utf-8";
}

zp_status metrics_write(const struct metrics *m, const struct metrics_texts *texts,
                        enum metrics_format format, unsigned compat, struct buffer *out,
                        zp_err *err)
{
    uint64_t *cells;
    ZP_ALLOC(cells, MEM_SERVE, m->n_cells, err, "a copy of the metrics");
    metrics_copy(m, cells);
    struct metrics_out w = { .m = m, .cells = cells, .texts = texts, .format = format,
                             .out = out, .err = err };
    w.labels = buffer_with_max(MEM_SERVE, MOST_BYTES);
    for (size_t id = 0; id < METRIC_COUNT; id++) put_family(&w, (enum metric)id);
    metrics_write_compat(&w, compat);
    if (format == METRICS_OPENMETRICS) metrics_put(&w, "# EOF\n");
    buffer_free(&w.labels);
    mem_free(cells);
    return w.status;
}
