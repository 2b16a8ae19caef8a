/* heatmap.c: the picture of all gates of a model: how much each matters, or which are closed.
 * Owns: a checked copy of the document's numbers. Does not know: models, where documents come from.
 * H1 every number is finite and every index in range before anything is drawn.
 * H2 importance is drawn on a logarithmic scale; what is zero or already closed is grey. */
#include "report/heatmap.h"

#include <zerope/report.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json_tree.h"
#include "base/numtext.h"

enum { MAX_ROWS = 1 << 14, MAX_PAIRS = 512, MAX_GATES = 1 << 22, MAX_DECADES = 6 };
enum { LEFT = 78, TOP = 74, RIGHT = 24, BOTTOM = 112 };
static const double LEAST_WIDTH = 420;

static const struct color grey = { 222, 222, 222 }, open_color = { 232, 226, 214 },
                          closed_color = { 0, 90, 156 }, local_color = { 230, 140, 20 };

/* ---- reading */

static zp_status read_count(const json_t *doc, const char *key, uint32_t max, uint32_t *out,
                            zp_err *err)
{
    const json_t *v = json_object_get(doc, key);
    if (!v) v = json_object_get(json_object_get(doc, "rope"), key); /* inspect's n_pair */
    ZP_FAIL_IF(!v, err, ZP_BAD_INPUT,
               "%s is missing: expected a scan, plan, evaporate, verify or inspect document", key);
    json_int_t n = json_is_integer(v) ? json_integer_value(v) : 0;
    ZP_FAIL_IF(n < 1 || n > max, err, ZP_BAD_INPUT, "%s: expected a whole number from 1 to %u", key,
               max);
    *out = (uint32_t)n;
    return ZP_OK;
}

static size_t gates_of(const struct heatmap *h)
{
    return (size_t)h->n_layer * h->n_kv * h->n_pair;
}

static zp_status read_shape(struct heatmap *h, const json_t *doc, zp_err *err)
{
    ZP_TRY(read_count(doc, "n_layer", MAX_ROWS, &h->n_layer, err));
    ZP_TRY(read_count(doc, "n_kv", MAX_ROWS, &h->n_kv, err));
    ZP_TRY(read_count(doc, "n_pair", MAX_PAIRS, &h->n_pair, err));
    ZP_FAIL_IF((uint64_t)h->n_layer * h->n_kv > MAX_ROWS || gates_of(h) > MAX_GATES, err,
               ZP_BAD_INPUT, "%u layers x %u KV heads x %u pairs are too many for a picture",
               h->n_layer, h->n_kv, h->n_pair);
    h->state = mem_zalloc(MEM_META, gates_of(h));
    h->reach = mem_zalloc(MEM_META, (size_t)h->n_layer * h->n_kv * sizeof *h->reach);
    ZP_FAIL_IF(!h->state || !h->reach, err, ZP_NO_MEMORY, "not enough memory for %zu gates",
               gates_of(h));
    return ZP_OK;
}

static zp_status read_importance(struct heatmap *h, const json_t *list, zp_err *err)
{
    size_t n = gates_of(h);
    ZP_FAIL_IF(json_array_size(list) != n, err, ZP_BAD_INPUT,
               "importance has %zu values; expected %zu = %u x %u x %u", json_array_size(list), n,
               h->n_layer, h->n_kv, h->n_pair);
    ZP_ALLOC(h->value, MEM_META, n, err, "the importance of gates");
    h->low = INFINITY;
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(list, i);
        ZP_FAIL_IF(!json_is_number(v), err, ZP_BAD_INPUT, "importance[%zu] is not a number", i);
        double x = json_number_value(v);
        h->value[i] = x;
        if (x > 0 && x < h->low) h->low = x;
        if (x > h->high) h->high = x;
    }
    if (h->high <= 0) h->high = h->low = 1;
    double floor = h->high * pow(10, -MAX_DECADES); /* below that one colour is enough */
    if (h->low < floor) h->low = floor;
    return ZP_OK;
}

static zp_status read_triple(const json_t *list, size_t i, const char *what, uint32_t out[3],
                             zp_err *err)
{
    const json_t *item = json_array_get(list, i);
    bool good = json_array_size(item) == 3;
    for (size_t k = 0; good && k < 3; k++) {
        const json_t *v = json_array_get(item, k);
        json_int_t n = json_is_integer(v) ? json_integer_value(v) : -1;
        good = n >= 0 && n <= UINT32_MAX;
        if (good) out[k] = (uint32_t)n;
    }
    ZP_FAIL_IF(!good, err, ZP_BAD_INPUT, "%s[%zu]: expected three whole numbers", what, i);
    return ZP_OK;
}

static zp_status read_closed(struct heatmap *h, const json_t *doc, zp_err *err)
{
    const json_t *closed = json_object_get(doc, "closed_gates");
    for (size_t i = 0; i < json_array_size(closed); i++) {
        uint32_t at[3];
        ZP_TRY(read_triple(closed, i, "closed_gates", at, err));
        ZP_FAIL_IF(at[0] >= h->n_layer || at[1] >= h->n_kv || at[2] >= h->n_pair, err, ZP_BAD_INPUT,
                   "closed_gates[%zu] is [%u, %u, %u]; the model has %u x %u x %u", i, at[0], at[1],
                   at[2], h->n_layer, h->n_kv, h->n_pair);
        uint8_t *state = &h->state[((size_t)at[0] * h->n_kv + at[1]) * h->n_pair + at[2]];
        h->n_closed += *state != HEAT_CLOSED;
        *state = HEAT_CLOSED;
    }
    const json_t *local = json_object_get(doc, "local_heads");
    for (size_t i = 0; i < json_array_size(local); i++) {
        uint32_t at[3];
        ZP_TRY(read_triple(local, i, "local_heads", at, err));
        ZP_FAIL_IF(at[0] >= h->n_layer || at[1] >= h->n_kv, err, ZP_BAD_INPUT,
                   "local_heads[%zu] is [%u, %u]; the model has %u x %u", i, at[0], at[1],
                   h->n_layer, h->n_kv);
        uint32_t *reach = &h->reach[(size_t)at[0] * h->n_kv + at[1]];
        h->n_local += *reach == 0 && at[2] != 0;
        *reach = at[2];
    }
    return ZP_OK;
}

/* "smollm2.gguf, 1024 tokens, budget KL 0.02": what the document says of these; inspect calls the
 * model its file and has a length only where the file has evidence for one. */
static void write_subtitle(struct heatmap *h, const json_t *doc)
{
    const char *model = json_string_value(json_object_get(doc, "model"));
    const json_t *ctx = json_object_get(doc, "n_ctx"), *budget = json_object_get(doc, "budget_kl");
    if (!model) model = json_string_value(json_object_get(doc, "file"));
    if (!ctx) ctx = json_object_get(doc, "ctx");
    if (!ctx) ctx = json_object_get(doc, "n_ctx_validated");
    char name[121], tokens[32] = "", kl[48] = "";
    if (json_is_integer(ctx) && json_integer_value(ctx) > 0)
        snprintf(tokens, sizeof tokens, ", %lld tokens", (long long)json_integer_value(ctx));
    if (json_is_number(budget) && json_number_value(budget) > 0)
        numtext_printf(kl, sizeof kl, ", budget KL %.4g", json_number_value(budget));
    canvas_file_name(model, name, sizeof name);
    const char *rest = name[0] || !tokens[0] ? tokens : tokens + 2; /* no comma to begin with */
    snprintf(h->subtitle, sizeof h->subtitle, "%s%s%s", name, rest, kl);
}

static void write_title(struct heatmap *h)
{
    size_t total = gates_of(h);
    if (h->value) snprintf(h->title, sizeof h->title, "How much each gate matters");
    char local[40] = "";
    if (h->n_local) snprintf(local, sizeof local, ", %zu local heads", h->n_local);
    if (!h->value)
        numtext_printf(h->title, sizeof h->title, "%zu of %zu gates closed (%.1f %%)%s",
                       h->n_closed, total, 100.0 * (double)h->n_closed / (double)total, local);
}

static zp_status fill(struct heatmap *h, const json_t *doc, zp_err *err)
{
    const json_t *values = json_object_get(doc, "gates");
    ZP_TRY(read_shape(h, doc, err));
    if (json_is_array(values)) ZP_TRY(read_importance(h, values, err));
    else ZP_FAIL_IF(!json_is_array(json_object_get(doc, "closed_gates")), err, ZP_BAD_INPUT,
                    "the document has neither importance nor closed_gates: expected a scan, plan, "
                    "evaporate, verify or inspect document");
    ZP_TRY(read_closed(h, doc, err));
    write_subtitle(h, doc);
    write_title(h);
    return ZP_OK;
}

zp_status heatmap_read(struct heatmap *h, const json_t *doc, zp_err *err)
{
    memset(h, 0, sizeof *h);
    zp_status status = fill(h, doc, err);
    if (status != ZP_OK) heatmap_free(h);
    return status;
}

void heatmap_free(struct heatmap *h)
{
    mem_free(h->value);
    mem_free(h->state);
    mem_free(h->reach);
    memset(h, 0, sizeof *h);
}

/* ---- layout: whole pixels, so that cells meet without seams */

struct layout { double cell_w, cell_h, gap, grid_w, grid_h; };

static double clamp(double x, double low, double high)
{
    return x < low ? low : x > high ? high : x;
}

static struct layout layout_of(const struct heatmap *h)
{
    struct layout l;
    double rows = (double)h->n_layer * h->n_kv;
    /* few pairs get wide cells: the title and the scale need the width anyway */
    l.cell_w = clamp(floor(900.0 / h->n_pair), 2, fmax(24, floor(LEAST_WIDTH / h->n_pair)));
    l.cell_h = clamp(floor(1000.0 / rows), 2, 14);
    l.gap = h->n_kv > 1 && l.cell_h >= 4 ? 2 : 0;
    l.grid_w = l.cell_w * h->n_pair;
    l.grid_h = l.cell_h * rows + l.gap * (h->n_layer - 1);
    return l;
}

static double row_y(const struct heatmap *h, const struct layout *l, uint32_t layer, uint32_t kv)
{
    return TOP + (layer * (double)h->n_kv + kv) * l->cell_h + layer * l->gap;
}

void heatmap_size(const struct heatmap *h, double *width, double *height)
{
    struct layout l = layout_of(h);
    *width = LEFT + fmax(l.grid_w, LEAST_WIDTH) + RIGHT;
    *height = TOP + l.grid_h + BOTTOM;
}

/* ---- drawing */

static double on_scale(const struct heatmap *h, double value)
{
    return h->high > h->low ? log(value / h->low) / log(h->high / h->low) : 1.0;
}

static struct color color_of(const struct heatmap *h, size_t row, size_t at)
{
    if (h->value && h->value[at] > 0) return canvas_ramp(on_scale(h, h->value[at]));
    if (h->value) return grey;
    if (h->state[at] == HEAT_CLOSED) return closed_color;
    return h->reach[row] ? local_color : open_color;
}

static void tip_of(const struct heatmap *h, uint32_t layer, uint32_t kv, uint32_t pair, size_t row,
                   size_t at, char *out, size_t size)
{
    char what[64];
    if (h->value && h->value[at] > 0) numtext_printf(what, sizeof what, "%.3g", h->value[at]);
    else if (h->value) snprintf(what, sizeof what, "closed or without effect");
    else if (h->state[at] == HEAT_CLOSED) snprintf(what, sizeof what, "closed");
    else if (h->reach[row]) snprintf(what, sizeof what, "open, local: reach %u", h->reach[row]);
    else snprintf(what, sizeof what, "open");
    snprintf(out, size, "layer %u, KV head %u, pair %u: %s", layer, kv, pair, what);
}

static void draw_cells(const struct heatmap *h, const struct layout *l, struct canvas *c)
{
    for (uint32_t layer = 0; layer < h->n_layer; layer++)
        for (uint32_t kv = 0; kv < h->n_kv; kv++) {
            size_t row = (size_t)layer * h->n_kv + kv;
            for (uint32_t i = 0; i < h->n_pair; i++) {
                char tip[128];
                size_t at = row * h->n_pair + i;
                tip_of(h, layer, kv, i, row, at, tip, sizeof tip);
                c->ops->box(c, LEFT + i * l->cell_w, row_y(h, l, layer, kv), l->cell_w, l->cell_h,
                            color_of(h, row, at), tip);
            }
        }
}

/* 1, 2, 5, 10, ... so that labels stand at least `least` pixels apart. */
static uint32_t label_step(double cell, double least)
{
    static const uint32_t steps[] = { 1, 2, 4, 5, 8, 10, 16, 20, 32, 50, 64, 100, 128, 200, 256 };
    for (size_t i = 0; i < ZP_COUNT(steps); i++)
        if (steps[i] * cell >= least) return steps[i];
    return 512;
}

static void draw_axes(const struct heatmap *h, const struct layout *l, struct canvas *c)
{
    char text[160];
    double bottom = TOP + l->grid_h, layer_h = l->cell_h * h->n_kv + l->gap;
    uint32_t step = label_step(layer_h, 13);
    for (uint32_t layer = 0; layer < h->n_layer; layer += step) {
        double y = row_y(h, l, layer, 0) + l->cell_h * h->n_kv / 2;
        snprintf(text, sizeof text, "%u", layer);
        c->ops->line(c, LEFT - 5, y, LEFT - 1, y, CANVAS_INK);
        canvas_label(c, LEFT - 9, y + 4, 11, CANVAS_END, text);
    }
    step = label_step(l->cell_w, 26);
    for (uint32_t i = 0; i < h->n_pair; i += step) {
        double x = LEFT + (i + 0.5) * l->cell_w;
        snprintf(text, sizeof text, "%u", i);
        c->ops->line(c, x, bottom + 1, x, bottom + 5, CANVAS_INK);
        canvas_label(c, x, bottom + 17, 11, CANVAS_MIDDLE, text);
    }
    snprintf(text, sizeof text, "RoPE pair (0 turns fastest, %u slowest)%s", h->n_pair - 1,
             h->n_kv > 1 ? "; in a layer KV head 0 is on top" : "");
    canvas_label(c, LEFT, bottom + 36, 12, CANVAS_START, text);
    struct canvas_text side = { .x = 20, .y = TOP + l->grid_h / 2, .size = 12,
                                .anchor = CANVAS_MIDDLE, .upwards = true };
    snprintf(text, sizeof text, h->n_kv > 1 ? "layer (%u KV heads each)" : "layer", h->n_kv);
    c->ops->text(c, &side, text);
}

static void draw_scale(const struct heatmap *h, struct canvas *c, double y)
{
    enum { STEPS = 120 };
    const double step = 3;
    char text[48];
    for (int i = 0; i < STEPS; i++)
        c->ops->box(c, LEFT + i * step, y, step, 12, canvas_ramp((i + 0.5) / STEPS), NULL);
    for (int e = -300; e <= 300 && h->high > h->low; e++) {
        double t = on_scale(h, pow(10, e));
        if (t < 0 || t > 1) continue;
        double x = LEFT + t * STEPS * step;
        c->ops->line(c, x, y + 12, x, y + 16, CANVAS_INK);
        snprintf(text, sizeof text, "1e%d", e);
        canvas_label(c, x, y + 28, 11, CANVAS_MIDDLE, text);
    }
    canvas_label(c, LEFT, y - 6, 12, CANVAS_START,
                 "estimated KL of closing this gate alone, nats (grey: nothing to close)");
}

static void draw_legend(const struct heatmap *h, struct canvas *c, double y)
{
    const struct { struct color color; const char *text; bool wanted; } items[] = {
        { closed_color, "closed", true },
        { open_color, "open", true },
        { local_color, "open, head is local", h->n_local > 0 },
    };
    double x = LEFT;
    for (size_t i = 0; i < ZP_COUNT(items); i++) {
        if (!items[i].wanted) continue;
        c->ops->box(c, x, y, 12, 12, items[i].color, NULL);
        canvas_label(c, x + 18, y + 10, 12, CANVAS_START, items[i].text);
        x += 40 + 7.0 * (double)strlen(items[i].text);
    }
}

void heatmap_draw(const struct heatmap *h, struct canvas *c)
{
    struct layout l = layout_of(h);
    struct canvas_text title = { .x = LEFT, .y = 30, .size = 16, .bold = true };
    c->ops->text(c, &title, h->title);
    canvas_label(c, LEFT, 52, 12, CANVAS_START, h->subtitle);
    draw_cells(h, &l, c);
    draw_axes(h, &l, c);
    if (h->value) draw_scale(h, c, TOP + l.grid_h + 64);
    else draw_legend(h, c, TOP + l.grid_h + 58);
}

/* ---- the call */

static void draw(const void *of, struct canvas *c)
{
    heatmap_draw(of, c);
}

zp_status zp_report_heatmap(const char *json, const char *path, zp_err *err)
{
    struct heatmap h;
    json_t *doc;
    ZP_TRY(json_tree_read(json, strlen(json), "the document", ZP_BAD_INPUT, &doc, err));
    zp_status status = heatmap_read(&h, doc, err);
    if (status == ZP_OK) {
        struct canvas_figure f = { .label = h.title, .draw = draw, .of = &h };
        heatmap_size(&h, &f.width, &f.height);
        status = canvas_write(&f, path, err);
        heatmap_free(&h);
    }
    json_decref(doc);
    return status;
}
