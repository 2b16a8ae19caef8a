/* closemap.c: layers downwards, steps to the right, the number of closed gates as colour.
 * Owns: the numbers. Does not know: how many gates a layer has: the scale ends at the most that any
 * layer has closed. Cells of one number that stand side by side become one box. */
#include "report/closemap.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/numtext.h"
#include "report/curve.h"

enum { LEFT = CURVE_LEFT, TOP = 34, BOTTOM = 84 };
static const struct color open_color = { 232, 226, 214 };

/* ---- reading */

static zp_status read_count(const json_t *row, size_t i, const char *key, double most, double *out,
                            zp_err *err)
{
    const json_t *v = json_object_get(row, key);
    double x = json_is_integer(v) ? (double)json_integer_value(v) : -1;
    ZP_FAIL_IF(x < 0 || x > most, err, ZP_BAD_INPUT,
               "events[%zu]: %s is not a whole number from 0 to %.0f", i, key, most);
    *out = x;
    return ZP_OK;
}

/* +1 where gates close, -1 where they open again, 0: another event. */
static int sign_of(const json_t *row)
{
    const char *event = json_string_value(json_object_get(row, "event"));
    const char *verb = event && (strncmp(event, "gate ", 5) == 0 || strncmp(event, "bias ", 5) == 0)
                           ? event + 5
                           : "";
    return (strcmp(verb, "closed") == 0) - (strcmp(verb, "opened") == 0);
}

/* Layers and steps of all events are checked here. */
static zp_status read_layers(struct closemap *m, const json_t *events, zp_err *err)
{
    double layer, step;
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *row = json_array_get(events, i);
        if (sign_of(row) == 0) continue;
        ZP_TRY(read_count(row, i, "layer", CLOSEMAP_MAX_LAYERS - 1, &layer, err));
        ZP_TRY(read_count(row, i, "step", m->last_step, &step, err));
        if (layer + 1 > m->n_layer) m->n_layer = (uint32_t)layer + 1;
    }
    return ZP_OK;
}

static zp_status add_event(struct closemap *m, const json_t *row, size_t i, zp_err *err)
{
    double count, layer = json_number_value(json_object_get(row, "layer"));
    double step = json_number_value(json_object_get(row, "step"));
    ZP_TRY(read_count(row, i, "count", 1e12, &count, err));
    size_t column = (size_t)(step / (m->last_step + 1) * (double)m->n_columns);
    if (column >= m->n_columns) column = m->n_columns - 1;
    m->closed[(size_t)layer * m->n_columns + column] += sign_of(row) * count;
    return ZP_OK;
}

/* Changes become numbers of what is closed. */
static void sum_up(struct closemap *m)
{
    for (uint32_t l = 0; l < m->n_layer; l++) {
        double *row = m->closed + (size_t)l * m->n_columns;
        for (size_t k = 0; k < m->n_columns; k++) {
            row[k] = fmax(0, row[k] + (k ? row[k - 1] : 0));
            m->most = fmax(m->most, row[k]);
        }
    }
}

static zp_status fill(struct closemap *m, const json_t *events, zp_err *err)
{
    ZP_TRY(read_layers(m, events, err));
    size_t n = (size_t)m->n_layer * m->n_columns;
    ZP_ALLOC(m->closed, MEM_META, n, err, "closed gates by layer");
    memset(m->closed, 0, n * sizeof *m->closed);
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *row = json_array_get(events, i);
        if (sign_of(row) != 0) ZP_TRY(add_event(m, row, i, err));
    }
    sum_up(m);
    return ZP_OK;
}

zp_status closemap_read(struct closemap *m, const json_t *events, double last_step, zp_err *err)
{
    double columns = fmin(CLOSEMAP_COLUMNS, last_step + 1);
    *m = (struct closemap){ .last_step = last_step, .n_columns = (size_t)columns };
    ZP_FAIL_IF(!json_is_array(events), err, ZP_BAD_INPUT, "the document has no list of events");
    zp_status status = fill(m, events, err);
    if (status != ZP_OK) closemap_free(m);
    return status;
}

void closemap_free(struct closemap *m)
{
    mem_free(m->closed);
    *m = (struct closemap){ 0 };
}

/* ---- drawing */

static double cell_height(const struct closemap *m)
{
    double h = floor(420.0 / m->n_layer);
    return h < 2 ? 2 : h > 14 ? 14 : h;
}

double closemap_height(const struct closemap *m)
{
    return m->n_layer ? TOP + m->n_layer * cell_height(m) + BOTTOM : 0;
}

struct frame {
    const struct closemap *m;
    struct canvas *c;
    double x, y, width, cell_h;
};

/* Columns [from, to) of a layer, which have the same number. */
static void draw_run(const struct frame *f, uint32_t layer, size_t from, size_t to, double closed)
{
    const struct closemap *m = f->m;
    char tip[128];
    double steps = (m->last_step + 1) / (double)m->n_columns, w = f->width / (double)m->n_columns;
    numtext_printf(tip, sizeof tip, "layer %u, steps %.0f to %.0f: %.0f closed", layer,
                   ceil((double)from * steps), ceil((double)to * steps) - 1, closed);
    struct color color = closed > 0 ? canvas_ramp(closed / m->most) : open_color;
    f->c->ops->box(f->c, f->x + (double)from * w, f->y + layer * f->cell_h,
                   (double)(to - from) * w, f->cell_h, color, tip);
}

static void draw_layer(const struct frame *f, uint32_t layer)
{
    const double *row = f->m->closed + (size_t)layer * f->m->n_columns;
    for (size_t from = 0, to; from < f->m->n_columns; from = to) {
        for (to = from + 1; to < f->m->n_columns && !(row[to] < row[from] || row[to] > row[from]);)
            to++;
        draw_run(f, layer, from, to, row[from]);
    }
}

static void draw_layers(const struct frame *f)
{
    char text[32];
    uint32_t every = 1;
    while (every * f->cell_h < 13) every *= 2;
    for (uint32_t l = 0; l < f->m->n_layer; l++) {
        draw_layer(f, l);
        if (l % every) continue;
        snprintf(text, sizeof text, "%u", l);
        canvas_label(f->c, f->x - 6, f->y + (l + 0.5) * f->cell_h + 4, 11, CANVAS_END, text);
    }
}

/* none, then 1 to the most */
static void draw_scale(const struct frame *f, double y)
{
    enum { STEPS = 60 };
    char text[48];
    double x = f->x + 70;
    f->c->ops->box(f->c, f->x, y, 12, 12, open_color, NULL);
    canvas_label(f->c, f->x + 18, y + 10, 11, CANVAS_START, "none");
    for (int i = 0; i < STEPS; i++)
        f->c->ops->box(f->c, x + i * 3, y, 3, 12, canvas_ramp((i + 1.0) / STEPS), NULL);
    numtext_printf(text, sizeof text, "up to %.0f closed", f->m->most);
    canvas_label(f->c, x + STEPS * 3 + 8, y + 10, 11, CANVAS_START, text);
}

void closemap_draw(const struct closemap *m, struct canvas *c, double x, double y, double width)
{
    struct frame f = { m, c, x + LEFT, y + TOP, width - LEFT - CURVE_RIGHT, cell_height(m) };
    double bottom = f.y + m->n_layer * f.cell_h;
    struct canvas_text title = { .x = f.x, .y = f.y - 8, .size = 12, .bold = true };
    c->ops->text(c, &title, "closed gates by layer");
    draw_layers(&f);
    curve_draw_steps(c, f.x, bottom, f.width, m->last_step);
    struct canvas_text side = { .x = x + 22, .y = f.y + (bottom - f.y) / 2, .size = 11,
                                .anchor = CANVAS_MIDDLE, .upwards = true };
    c->ops->text(c, &side, "layer");
    draw_scale(&f, bottom + 44);
}
