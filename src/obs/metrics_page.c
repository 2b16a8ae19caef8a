/* metrics_page.c: the tables of metrics as Markdown, for docs/SERVER.md. */
#include "base/numtext.h"
#include "metrics.h"
#include "metrics_parts.h"

static zp_status write_labels(struct buffer *out, const struct metric_row *row, zp_err *err)
{
    for (size_t i = 0; i < METRIC_MOST_LABELS && row->labels[i] != LABELS_NONE; i++) {
        const struct metric_label *set = &metric_label_sets[row->labels[i]];
        ZP_TRY(buffer_printf(out, err, "%s%s", i == 0 ? "" : "; ", set->name));
        for (size_t v = 0; v < set->n && set->values != NULL; v++)
            ZP_TRY(buffer_printf(out, err, "%s `%s`", v == 0 ? ":" : "", set->values[v]));
    }
    return ZP_OK;
}

static zp_status write_row(struct buffer *out, const struct metric_row *row, zp_err *err)
{
    static const char *const kinds[] = { "counter", "gauge", "state", "histogram", "info" };
    static const char *const scales[METRIC_SCALES] = {
#define SCALE(id, ...) [METRIC_SCALE_##id] = " " #id,
#include "metric_table.inc"
    };
    const char *scale = scales[row->scale];
    ZP_TRY(buffer_printf(out, err, "| `%s` | %s%s | ", row->name, kinds[row->kind],
                         scale == NULL ? "" : scale));
    ZP_TRY(write_labels(out, row, err));
    return buffer_printf(out, err, " | %s |\n", row->help);
}

static zp_status write_section(struct buffer *out, const char *title, zp_err *err)
{
    return buffer_printf(out, err,
                         "\n**%s**\n\n| metric | kind | labels | meaning |\n"
                         "| --- | --- | --- | --- |\n",
                         title);
}

static zp_status write_scale(struct buffer *out, const char *name, enum metric_scale s,
                             zp_err *err)
{
    struct numtext room;
    size_t n;
    const double *bounds = metric_bounds(s, &n);
    ZP_TRY(buffer_printf(out, err, "| %s |", name));
    for (size_t i = 0; i < n; i++)
        ZP_TRY(buffer_printf(out, err, " %s", numtext_shortest(bounds[i], &room)));
    return buffer_append_text(out, " |\n", err);
}

/* The sections and their rows as they stand in the table. */
static zp_status write_metrics(struct buffer *out, zp_err *err)
{
#define SECTION(title) ZP_TRY(write_section(out, title, err));
#define METRIC(id, ...) ZP_TRY(write_row(out, &metric_rows[METRIC_##id], err));
#include "metric_table.inc"
    return ZP_OK;
}

static zp_status write_scales(struct buffer *out, zp_err *err)
{
    ZP_TRY(buffer_append_text(out, "\n| buckets | upper bounds |\n| --- | --- |\n", err));
#define SCALE(id, ...) ZP_TRY(write_scale(out, #id, METRIC_SCALE_##id, err));
#include "metric_table.inc"
    return ZP_OK;
}

zp_status metrics_write_page(struct buffer *out, zp_err *err)
{
    ZP_TRY(write_metrics(out, err));
    ZP_TRY(write_scales(out, err));
    ZP_TRY(buffer_append_text(out, "\nWith `--metrics-compat vllm,llamacpp` also:\n", err));
    return metrics_write_compat_page(out, err);
}
