/* metrics_compat.c: our metrics under the names of other servers, for dashboards and gateways that
 * know those. Owns: the second table and what its rows are made of.
 * C1 every sample is a function of our own cells: nothing is counted twice.  C2 samples of one name
 * differ in their labels: vLLM's `engine` is the variant's number. */
#include <math.h>
#include <string.h>

#include "metrics.h"
#include "metrics_parts.h"

enum part_kind { PART_NOTHING, PART_VALUES, PART_SUMS, PART_COUNTS, PART_WHOLE };
struct part {
    enum part_kind kind;
    enum metric id;
    uint32_t mask; /* of values of the last label; 0: all */
};
struct compat_row {
    unsigned dialect;
    enum metric_kind kind;
    const char *name, *reason, *help;
    struct part part, over;
};

#define NOTHING { PART_NOTHING, METRIC_COUNT, 0 }
#define VALUES(id) { PART_VALUES, METRIC_##id, 0 }
#define SOME(id, mask) { PART_VALUES, METRIC_##id, mask }
#define SUMS(id) { PART_SUMS, METRIC_##id, 0 }
#define COUNTS(id) { PART_COUNTS, METRIC_##id, 0 }
#define WHOLE(id) { PART_WHOLE, METRIC_##id, 0 }
#define COMPAT(dialect, kind, name, reason, help, ...)                                             \
    { METRICS_##dialect, METRIC_KIND_##kind, name, reason, help, __VA_ARGS__ },
static const struct compat_row rows[] = {
#include "metrics_compat.inc"
};

static const struct {
    const char *name;
    unsigned bit;
} dialects[] = { { "vllm", METRICS_VLLM }, { "llamacpp", METRICS_LLAMACPP } };

zp_status metrics_compat_of(const char *text, unsigned *bits, zp_err *err)
{
    *bits = 0;
    while (*text != '\0') {
        size_t size = strcspn(text, ","), i = 0;
        while (i < ZP_COUNT(dialects) && (strlen(dialects[i].name) != size ||
                                          memcmp(dialects[i].name, text, size) != 0))
            i++;
        ZP_FAIL_IF(i == ZP_COUNT(dialects), err, ZP_USAGE,
                   "names of metrics can be those of vllm and llamacpp, not \"%.*s\"",
                   size < 40 ? (int)size : 40, text);
        *bits |= dialects[i].bit;
        text += size + (text[size] == ',');
    }
    return ZP_OK;
}

/* ---- parts ----------------------------------------------------------------------------------- */

/* Index of a row's label, METRIC_MOST_LABELS: none. */
static size_t find_label(enum metric id, enum metric_labels label)
{
    size_t i = 0;
    while (i < METRIC_MOST_LABELS && metric_rows[id].labels[i] != label) i++;
    return i;
}

/* Whether series i belongs to the part, for one variant or all (LABEL_VARIANT_COUNT). */
static bool is_in(const struct part *p, size_t i, unsigned variant)
{
    struct metric_at at = metrics_values(p->id, i);
    size_t own = find_label(p->id, LABELS_VARIANT), end = find_label(p->id, LABELS_NONE);
    if (variant != LABEL_VARIANT_COUNT && own != METRIC_MOST_LABELS && at.value[own] != variant)
        return false;
    return p->mask == 0 || (p->mask >> at.value[end - 1] & 1) != 0;
}

static double value_of(const struct metrics_out *w, const struct part *p, const uint64_t *cells)
{
    const struct metric_row *row = &metric_rows[p->id];
    const struct histogram_scale *scale = &w->m->scales[row->scale];
    double ones = (double)metrics_parts_of_one(row->unit);
    if (p->kind == PART_SUMS) return (double)cells[scale->n_cells] / ones;
    if (p->kind == PART_COUNTS) return (double)histogram_total(scale, cells);
    if (row->kind == METRIC_KIND_COUNTER) return (double)cells[0] / ones;
    double x = metrics_real(cells[0]);
    return isnan(x) ? 0 : x;
}

static double sum_part(const struct metrics_out *w, const struct part *p, unsigned variant)
{
    double sum = 0;
    for (size_t i = 0; i < w->m->places[p->id].n_series; i++) {
        if (is_in(p, i, variant)) sum += value_of(w, p, w->cells + metrics_place(w->m, p->id, i));
    }
    return sum;
}

static void put_whole(struct metrics_out *w, const struct compat_row *row, unsigned variant)
{
    enum metric id = row->part.id;
    uint64_t sum[METRICS_MOST_CELLS] = { 0 };
    for (size_t i = 0; i < w->m->places[id].n_series; i++) {
        const uint64_t *cells = w->cells + metrics_place(w->m, id, i);
        if (!is_in(&row->part, i, variant)) continue;
        for (size_t c = 0; c < w->m->places[id].stride; c++) sum[c] += cells[c];
    }
    metrics_put_histogram(w, id, row->name, sum);
}

static void put_one(struct metrics_out *w, const struct compat_row *row, unsigned variant)
{
    if (row->kind == METRIC_KIND_HISTOGRAM) {
        put_whole(w, row, variant);
        return;
    }
    double x = sum_part(w, &row->part, variant);
    if (row->over.kind != PART_NOTHING) {
        double over = sum_part(w, &row->over, variant);
        x = over == 0 ? 0 : x / over;
    }
    metrics_put_sample(w, row->name, x);
}

/* ---- rows ------------------------------------------------------------------------------------ */

static void put_labels(struct metrics_out *w, const struct compat_row *row, unsigned variant)
{
    const char *model = w->texts->variants[variant].model;
    buffer_clear(&w->labels);
    if (row->dialect != METRICS_VLLM) return;
    metrics_put_label(w, "model_name", model == NULL ? "" : model);
    metrics_put_label(w, "engine", variant == LABEL_VARIANT_BASELINE ? "0" : "1"); // C2
    if (row->reason != NULL) metrics_put_label(w, "finished_reason", row->reason);
}

static void put_row(struct metrics_out *w, const struct compat_row *row)
{
    bool split = row->dialect == METRICS_VLLM &&
                 find_label(row->part.id, LABELS_VARIANT) != METRIC_MOST_LABELS;
    for (unsigned v = 0; v < (split ? LABEL_VARIANT_COUNT : 1); v++) {
        if (v != LABEL_VARIANT_BASELINE && w->texts->variants[v].model == NULL) continue;
        put_labels(w, row, v);
        put_one(w, row, split ? v : LABEL_VARIANT_COUNT);
    }
}

void metrics_write_compat(struct metrics_out *w, unsigned compat)
{
    const char *last = "";
    for (size_t i = 0; i < ZP_COUNT(rows); i++) {
        if ((rows[i].dialect & compat) == 0) continue;
        if (strcmp(rows[i].name, last) != 0)
            metrics_put_head(w, rows[i].name, rows[i].kind, METRIC_UNIT_NONE, rows[i].help);
        last = rows[i].name;
        put_row(w, &rows[i]);
    }
}

/* ---- the page -------------------------------------------------------------------------------- */

static zp_status write_part(struct buffer *out, const struct part *p, zp_err *err)
{
    static const char *const ends[] = { "", "", "_sum", "_count", "" };
    size_t end = find_label(p->id, LABELS_NONE);
    ZP_TRY(buffer_printf(out, err, "`%s%s`", metric_rows[p->id].name, ends[p->kind]));
    if (p->mask == 0) return ZP_OK;
    const struct metric_label *set = &metric_label_sets[metric_rows[p->id].labels[end - 1]];
    const char *comma = "";
    ZP_TRY(buffer_printf(out, err, " with %s", set->name));
    for (size_t v = 0; v < set->n; v++) {
        if ((p->mask >> v & 1) == 0) continue;
        ZP_TRY(buffer_printf(out, err, "%s `%s`", comma, set->values[v]));
        comma = ",";
    }
    return ZP_OK;
}

zp_status metrics_write_compat_page(struct buffer *out, zp_err *err)
{
    ZP_TRY(buffer_append_text(out, "\n| name | ours |\n| --- | --- |\n", err));
    for (size_t i = 0; i < ZP_COUNT(rows); i++) {
        const struct compat_row *row = &rows[i];
        ZP_TRY(buffer_printf(out, err, "| `%s`", row->name));
        if (row->reason != NULL) ZP_TRY(buffer_printf(out, err, " (`%s`)", row->reason));
        ZP_TRY(buffer_append_text(out, " | ", err));
        ZP_TRY(write_part(out, &row->part, err));
        if (row->over.kind != PART_NOTHING) {
            ZP_TRY(buffer_append_text(out, " / ", err));
            ZP_TRY(write_part(out, &row->over, err));
        }
        ZP_TRY(buffer_append_text(out, " |\n", err));
    }
    return ZP_OK;
}
