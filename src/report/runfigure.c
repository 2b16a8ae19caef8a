/* runfigure.c: what stands in which panel, and where.
 * Owns: panels and map. A panel without a number other than 0 is left out, so a run without an
 * original has no panel of KL, and one that has just begun has none at all, which is said. */
#include "report/runfigure.h"

#include <stdio.h>
#include <string.h>

#include "base/numtext.h"

enum { TOP = 62, WIDTH = CURVE_LEFT + CURVE_WIDTH + CURVE_RIGHT,
       HEIGHT = CURVE_TOP + CURVE_HEIGHT + CURVE_BOTTOM, EMPTY = 40, BOTTOM = 26 };

static const struct content {
    const char *title;
    const char *names[CURVE_MAX_LINES]; /* of series; the first is of each step, and smoothed */
    bool smooth, logarithmic;
} contents[RUNFIGURE_MAX_PANELS] = {
    { "loss", { "loss", NULL }, true, true },
    { "cross entropy, nats a token", { "ce", "held.ce" }, true, true },
    { "KL(original || model), nats a token", { "kl", "held.kl" }, true, true },
    { "held out: most likely token the same", { "held.same_top", NULL }, false, false },
    { "learning rate", { "rate", NULL }, false, false },
    { "norm of the gradient", { "grad_norm", NULL }, true, true },
    { "gates closed", { "gates_closed", NULL }, false, false },
};

/* ---- reading */

static const json_t *series_named(const json_t *list, const char *name)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *s = json_array_get(list, i);
        const char *found = json_string_value(json_object_get(s, "name"));
        if (found && strcmp(found, name) == 0) return s;
    }
    return NULL;
}

/* Writes behind the last panel; it counts where it has a line. */
static zp_status read_panel(struct runfigure *r, const struct content *what, const json_t *list,
                            double last_step, zp_err *err)
{
    struct curve *cv = &r->panels[r->n_panels];
    bool drawn;
    *cv = (struct curve){ .title = what->title, .last_step = last_step };
    for (size_t i = 0; i < CURVE_MAX_LINES && what->names[i]; i++) {
        const json_t *series = series_named(list, what->names[i]);
        if (!series) continue;
        ZP_TRY(curve_add(cv, series, what->names[i], what->smooth && i == 0, &drawn, err));
    }
    if (cv->n_lines == 0) return ZP_OK;
    curve_finish(cv, what->logarithmic);
    r->n_panels++;
    return ZP_OK;
}

static bool has_means(const struct runfigure *r)
{
    bool any = false;
    for (size_t i = 0; i < r->n_panels; i++) any |= r->panels[i].lines[0].n_mean > 0;
    return any;
}

static void write_titles(struct runfigure *r, const json_t *doc, double last_step)
{
    char name[121];
    canvas_file_name(json_string_value(json_object_get(doc, "folder")), name, sizeof name);
    snprintf(r->title, sizeof r->title, "Training run %s", name);
    numtext_printf(r->subtitle, sizeof r->subtitle, "up to step %.0f%s", last_step,
                   has_means(r) ? "; faint: every step, the outermost at the panel's edge; lines: "
                                  "mean of its neighbours"
                                : "");
}

static zp_status fill(struct runfigure *r, const json_t *doc, zp_err *err)
{
    const json_t *list = json_object_get(doc, "series"), *last = json_object_get(doc, "last_step");
    double last_step = json_is_integer(last) ? (double)json_integer_value(last) : -1;
    ZP_FAIL_IF(!json_is_array(list) || last_step < 0, err, ZP_BAD_INPUT,
               "the document has no series and last_step: expected one of a training run");
    r->panels = mem_array(MEM_META, RUNFIGURE_MAX_PANELS, sizeof *r->panels);
    ZP_FAIL_IF(!r->panels, err, ZP_NO_MEMORY, "not enough memory for the panels of a picture");
    for (size_t i = 0; i < RUNFIGURE_MAX_PANELS; i++)
        ZP_TRY(read_panel(r, &contents[i], list, last_step, err));
    write_titles(r, doc, last_step);
    return closemap_read(&r->map, json_object_get(doc, "events"), last_step, err);
}

zp_status runfigure_read(struct runfigure *r, const json_t *doc, zp_err *err)
{
    *r = (struct runfigure){ 0 };
    zp_status status = fill(r, doc, err);
    if (status != ZP_OK) runfigure_free(r);
    return status;
}

void runfigure_free(struct runfigure *r)
{
    mem_free(r->panels);
    closemap_free(&r->map);
    *r = (struct runfigure){ 0 };
}

/* ---- drawing */

static double panels_height(const struct runfigure *r)
{
    return r->n_panels ? (double)((r->n_panels + 1) / 2 * HEIGHT) : EMPTY;
}

void runfigure_size(const struct runfigure *r, double *width, double *height)
{
    *width = 2 * WIDTH;
    *height = TOP + panels_height(r) + closemap_height(&r->map) + BOTTOM;
}

void runfigure_draw(const struct runfigure *r, struct canvas *c)
{
    struct canvas_text title = { .x = CURVE_LEFT, .y = 26, .size = 16, .bold = true };
    c->ops->text(c, &title, r->title);
    if (r->n_panels) canvas_label(c, CURVE_LEFT, 46, 11, CANVAS_START, r->subtitle);
    else
        canvas_label(c, CURVE_LEFT, TOP + 16, 12, CANVAS_START,
                     "no numbers yet: they are recorded every few seconds of a run");
    for (size_t i = 0; i < r->n_panels; i++)
        curve_draw(&r->panels[i], c, (double)(i % 2 * WIDTH), TOP + (double)(i / 2 * HEIGHT));
    if (r->map.n_layer) closemap_draw(&r->map, c, 0, TOP + panels_height(r), 2 * WIDTH);
}
