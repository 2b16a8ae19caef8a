/* rundoc.c: the document of a run: run.json, all series, events counted.
 * Owns: nothing between calls. Does not know: pictures.
 * A run that goes on meanwhile is not kept from writing: series may end a few steps apart. */
#include "train/rundoc.h"

#include <zerope/train.h>

#include <stdlib.h>
#include <string.h>

#include "base/json_tree.h"
#include "base/mem.h"
#include "base/os.h"
#include "model/json_read.h"
#include "model/json_write.h"
#include "train/series.h"
#include "train/series_store.h"

#define MOST_RUN_JSON ((size_t)64 << 20)
#define MOST_TEXT ((size_t)1 << 30)

/* Lists of the document; NULL in place of one that memory had no room for. */
struct rundoc {
    json_t *series, *last, *events, *by_layer;
    uint64_t last_step;
};

/* ---- run.json -------------------------------------------------------------------------------- */

static zp_status read_file(const char *folder, const char *path, json_t **run, zp_err *err)
{
    ZP_FAIL_IF(!os_exists(path), err, ZP_BAD_INPUT,
               "%s: has no record of a run (run.json): expected the folder of --run-dir", folder);
    return json_read_file(path, MOST_RUN_JSON, run, err);
}

static zp_status read_run(const char *folder, json_t **run, zp_err *err)
{
    char *path;
    ZP_TRY(series_path(&path, folder, "run.json", err));
    zp_status status = read_file(folder, path, run, err);
    mem_free(path);
    return status;
}

/* What is copied from run.json, with the type it must have where it is there and not null. */
static const struct member {
    const char *name;
    json_type type;
} members[] = { { "command", JSON_STRING }, { "machine", JSON_STRING },
                { "model_sha256", JSON_STRING }, { "options", JSON_ARRAY },
                { "seeds", JSON_OBJECT }, { "versions", JSON_OBJECT } };

static zp_status check_run(const json_t *run, const char *folder, zp_err *err)
{
    json_int_t format = json_integer_value(json_object_get(run, "format"));
    ZP_FAIL_IF(!json_is_integer(json_object_get(run, "format")), err, ZP_BAD_FILE,
               "%s/run.json: has no number `format`: is no record of a run", folder);
    ZP_FAIL_IF(format != 1, err, ZP_UNSUPPORTED,
               "%s/run.json: is of format %lld, this program reads 1", folder, (long long)format);
    for (size_t i = 0; i < ZP_COUNT(members); i++) {
        const json_t *v = json_object_get(run, members[i].name);
        ZP_FAIL_IF(v && !json_is_null(v) && json_typeof(v) != members[i].type, err, ZP_BAD_FILE,
                   "%s/run.json: `%s` is not of its type: is no record of a run", folder,
                   members[i].name);
    }
    return ZP_OK;
}

/* The steps from which the run went on. */
static json_t *resumed_steps(const json_t *run)
{
    json_t *list = json_array();
    const json_t *resumed = json_object_get(run, "resumed");
    for (size_t i = 0; i < json_array_size(resumed); i++) {
        json_t *step = json_object_get(json_array_get(resumed, i), "step");
        if (json_is_integer(step)) list = json_tree_add(list, json_incref(step));
    }
    return list;
}

/* ---- series ---------------------------------------------------------------------------------- */

static json_t *points_json(const char *name, const struct series_points *p)
{
    json_t *steps = json_array(), *values = json_array();
    for (size_t i = 0; i < p->n; i++) {
        steps = json_tree_add(steps, json_integer((json_int_t)p->steps[i]));
        values = json_tree_add(values, json_tree_real(p->values[i]));
    }
    json_t *item = json_tree_put(json_object(), "name", json_tree_text(name));
    item = json_tree_put(item, "steps", steps);
    return json_tree_put(item, "values", values);
}

static json_t *last_json(const char *name, const struct series_points *p)
{
    json_t *item = json_tree_put(json_object(), "name", json_tree_text(name));
    item = json_tree_put(item, "step", json_integer((json_int_t)p->steps[p->n - 1]));
    return json_tree_put(item, "value", json_tree_real(p->values[p->n - 1]));
}

static zp_status add_series(struct rundoc *d, const char *folder, const char *name, zp_err *err)
{
    struct series_points p;
    ZP_TRY(series_read(folder, name, &p, err));
    if (p.n > 0) { /* cut meanwhile: none is left */
        d->series = json_tree_add(d->series, points_json(name, &p));
        d->last = json_tree_add(d->last, last_json(name, &p));
        if (p.steps[p.n - 1] > d->last_step) d->last_step = p.steps[p.n - 1];
    }
    series_points_free(&p);
    return ZP_OK;
}

static zp_status add_all_series(struct rundoc *d, const char *folder, zp_err *err)
{
    char **names;
    size_t n;
    ZP_TRY(series_names(folder, &names, &n, err));
    zp_status status = ZP_OK;
    for (size_t i = 0; i < n && status == ZP_OK; i++)
        status = add_series(d, folder, names[i], err);
    os_list_free(names, n);
    return status;
}

/* ---- events ---------------------------------------------------------------------------------- */

static int compare(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b;
}

static int by_step(const void *a, const void *b)
{
    const struct series_event *x = a, *y = b;
    int order = compare(x->step, y->step);
    if (order == 0) order = compare(x->layer, y->layer);
    return order ? order : strcmp(x->what, y->what);
}

static int by_layer(const void *a, const void *b)
{
    const struct series_event *x = a, *y = b;
    int order = compare(x->layer, y->layer);
    if (order == 0) order = strcmp(x->what, y->what);
    return order ? order : compare(x->step, y->step);
}

static json_t *event_json(const struct series_event *e)
{
    json_t *item = json_tree_put(json_object(), "event", json_tree_text(e->what));
    return json_tree_put(item, "layer", json_integer(e->layer));
}

/* Events of one step, layer and kind become one row. */
static json_t *count_by_step(struct series_event *list, size_t n)
{
    json_t *rows = json_array();
    if (n) qsort(list, n, sizeof *list, by_step);
    for (size_t i = 0, end; i < n; i = end) {
        for (end = i; end < n && by_step(&list[i], &list[end]) == 0;) end++;
        json_t *row = json_tree_put(event_json(&list[i]), "step",
                                    json_integer((json_int_t)list[i].step));
        row = json_tree_put(row, "count", json_integer((json_int_t)(end - i)));
        rows = json_tree_add(rows, row);
    }
    return rows;
}

static bool is_same_row(const struct series_event *a, const struct series_event *b)
{
    return a->layer == b->layer && strcmp(a->what, b->what) == 0;
}

static json_t *count_by_layer(struct series_event *list, size_t n)
{
    json_t *rows = json_array();
    if (n) qsort(list, n, sizeof *list, by_layer);
    for (size_t i = 0, end; i < n; i = end) {
        for (end = i; end < n && is_same_row(&list[i], &list[end]);) end++;
        json_t *row = json_tree_put(event_json(&list[i]), "count",
                                    json_integer((json_int_t)(end - i)));
        row = json_tree_put(row, "first_step", json_integer((json_int_t)list[i].step));
        row = json_tree_put(row, "last_step", json_integer((json_int_t)list[end - 1].step));
        rows = json_tree_add(rows, row);
    }
    return rows;
}

static zp_status add_events(struct rundoc *d, const char *folder, zp_err *err)
{
    struct series_events e;
    ZP_TRY(series_read_events(folder, &e, err));
    for (size_t i = 0; i < e.n; i++)
        if (e.list[i].step > d->last_step) d->last_step = e.list[i].step;
    d->events = count_by_step(e.list, e.n);
    d->by_layer = count_by_layer(e.list, e.n);
    series_events_free(&e);
    return ZP_OK;
}

/* ---- the document ---------------------------------------------------------------------------- */

/* Takes the lists. */
static json_t *join(struct rundoc *d, const json_t *run, const char *folder)
{
    json_t *doc = json_tree_put(json_object(), "format", json_string("zerope-run"));
    doc = json_tree_put(doc, "folder", json_tree_text(folder));
    for (size_t i = 0; i < ZP_COUNT(members); i++) {
        json_t *v = json_object_get(run, members[i].name);
        doc = json_tree_put(doc, members[i].name, v ? json_incref(v) : json_null());
    }
    doc = json_tree_put(doc, "resumed", resumed_steps(run));
    doc = json_tree_put(doc, "last_step", json_integer((json_int_t)d->last_step));
    doc = json_tree_put(doc, "last", d->last);
    doc = json_tree_put(doc, "by_layer", d->by_layer);
    doc = json_tree_put(doc, "events", d->events);
    doc = json_tree_put(doc, "series", d->series);
    *d = (struct rundoc){ 0 };
    return doc;
}

static zp_status fill(struct rundoc *d, const json_t *run, const char *folder, zp_err *err)
{
    ZP_TRY(check_run(run, folder, err));
    ZP_TRY(add_all_series(d, folder, err));
    return add_events(d, folder, err);
}

zp_status rundoc_read(const char *folder, json_t **out, zp_err *err)
{
    json_t *run = NULL;
    *out = NULL;
    ZP_TRY(read_run(folder, &run, err));
    struct rundoc d = { .series = json_array(), .last = json_array() };
    zp_status status = fill(&d, run, folder, err);
    if (status == ZP_OK) *out = join(&d, run, folder);
    json_decref(d.series);
    json_decref(d.last);
    json_decref(d.events);
    json_decref(d.by_layer);
    json_decref(run);
    ZP_FAIL_IF(status == ZP_OK && !*out, err, ZP_NO_MEMORY,
               "%s: not enough memory for what it holds", folder);
    return status;
}

zp_status zp_train_run_json(const char *folder, char **json, zp_err *err)
{
    struct buffer text = buffer_with_max(MEM_TRAIN, MOST_TEXT);
    json_t *doc;
    *json = NULL;
    ZP_TRY(rundoc_read(folder, &doc, err));
    zp_status status = json_write_text(doc, JSON_COMPACT | JSON_REAL_PRECISION(15), &text, err);
    json_decref(doc);
    if (status == ZP_OK) *json = (char *)text.data;
    else buffer_free(&text);
    return status;
}
