/* series.c: the record of a run: run.json, records kept until they are flushed, and series read
 * back.
 * Owns: records that are not flushed. Where the others lie: series_sqlite.c, series_lines.c.
 * Threads: a struct belongs to one.
 * R1 a folder has a run when it has run.json, which is written last.
 * R2 a flush stores all records or none. */
#include "train/series.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/os.h"
#include "base/json_build.h"
#include "model/json_read.h"
#include "model/json_write.h"
#include "train/series_store.h"

#define MOST_RUN_JSON ((size_t)64 << 20)
enum { MOST_KEPT = 1024 };

struct series {
    const struct series_store *store;
    void *state;
    struct series_record *records; /* texts are theirs */
    size_t n, room;
};

zp_status series_path(char **out, const char *folder, const char *file, zp_err *err)
{
    size_t size = strlen(folder) + strlen(file) + 2;
    *out = mem_alloc(MEM_TRAIN, size);
    ZP_FAIL_IF(*out == NULL, err, ZP_NO_MEMORY, "%s: not enough memory for the path", folder);
    (void)snprintf(*out, size, "%s/%s", folder, file);
    return ZP_OK;
}

static zp_status is_there(const char *folder, const char *file, bool *out, zp_err *err)
{
    char *path;
    ZP_TRY(series_path(&path, folder, file, err));
    *out = os_exists(path);
    mem_free(path);
    return ZP_OK;
}

/* ---- run.json -------------------------------------------------------------------------------- */

/* Seeds are text: a reader's integers may be too short for them. */
static void build_info(struct json_build *w, const struct series_info *info)
{
    char number[24];
    json_build_text(w, "command", info->command);
    json_build_array(w, "options");
    for (size_t i = 0; i < info->n_options; i++) {
        json_build_object(w, NULL);
        json_build_text(w, "name", info->options[i].name);
        json_build_text(w, "value", info->options[i].value);
        json_build_text(w, "origin", info->options[i].origin);
        json_build_object_end(w);
    }
    json_build_array_end(w);
    json_build_object(w, "seeds");
    for (size_t i = 0; i < info->n_seeds; i++) {
        (void)snprintf(number, sizeof number, "%" PRIu64, info->seeds[i].value);
        json_build_text(w, info->seeds[i].name, number);
    }
    json_build_object_end(w);
    json_build_object(w, "versions");
    json_build_text(w, "zerope", ZEROPE_VERSION);
    for (size_t i = 0; i < info->n_versions; i++)
        json_build_text(w, info->versions[i].name, info->versions[i].value);
    json_build_object_end(w);
    json_build_text(w, "model_sha256", info->model_sha256);
    json_build_text(w, "machine", info->machine);
}

static zp_status write_text(const char *folder, const char *text, size_t size, zp_err *err)
{
    char *path;
    ZP_TRY(series_path(&path, folder, "run.json", err));
    zp_status status = os_write_file(path, text, size, err);
    mem_free(path);
    return status;
}

static zp_status write_run(const char *folder, const struct series_info *info, zp_err *err)
{
    struct json_build w;
    char *text;
    json_build_open(&w, err);
    json_build_object(&w, NULL);
    json_build_int(&w, "format", 1);
    build_info(&w, info);
    json_build_array(&w, "resumed");
    json_build_array_end(&w);
    json_build_object_end(&w);
    ZP_TRY(json_build_finish(&w, &text));
    zp_status status = write_text(folder, text, strlen(text), err);
    mem_free(text);
    return status;
}

static zp_status make_resumption(json_t **out, uint64_t step, const struct series_info *info,
                                 zp_err *err)
{
    struct json_build w;
    char *text;
    json_build_open(&w, err);
    json_build_object(&w, NULL);
    json_build_uint(&w, "step", step);
    build_info(&w, info);
    json_build_object_end(&w);
    ZP_TRY(json_build_finish(&w, &text));
    zp_status status = json_read_text(text, strlen(text), "resumption", out, err);
    mem_free(text);
    return status;
}

static zp_status add_resumption(json_t *run, const char *folder, uint64_t step,
                                const struct series_info *info, zp_err *err)
{
    json_t *item, *list = json_object_get(run, "resumed");
    struct buffer text = buffer_with_max(MEM_TRAIN, MOST_RUN_JSON);
    ZP_FAIL_IF(
        !json_is_array(list), err, ZP_BAD_FILE,
        "%s/run.json: has no list `resumed`: is no record of a run; move it away: the run goes "
        "on from its checkpoints, with a new one",
        folder);
    ZP_TRY(make_resumption(&item, step, info, err));
    int failed = json_array_append(list, item);
    json_decref(item);
    ZP_FAIL_IF(failed, err, ZP_NO_MEMORY, "%s/run.json: not enough memory to add to it", folder);
    zp_status status = json_write_text(run, JSON_COMPACT, &text, err);
    if (status == ZP_OK) status = write_text(folder, (const char *)text.data, text.size, err);
    buffer_free(&text);
    return status;
}

static zp_status read_run(const char *folder, json_t **run, zp_err *err)
{
    char *path;
    zp_err why = { 0 };
    *run = NULL;
    ZP_TRY(series_path(&path, folder, "run.json", err));
    zp_status status = json_read_file(path, MOST_RUN_JSON, run, &why);
    mem_free(path);
    ZP_FAIL_IF(status == ZP_BAD_FILE, err, status,
               "%s; move it away: the run goes on from its checkpoints, with a new one",
               why.message);
    ZP_FAIL_IF(status != ZP_OK, err, status, "%s", why.message);
    return ZP_OK;
}

static zp_status resume_run(const char *folder, uint64_t step, const struct series_info *info,
                            zp_err *err)
{
    json_t *run;
    zp_status status = read_run(folder, &run, err);
    if (status == ZP_OK) status = add_resumption(run, folder, step, info, err);
    json_decref(run);
    return status;
}

zp_status series_exists(const char *folder, bool *out, zp_err *err)
{
    return is_there(folder, "run.json", out, err);
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static zp_status compare(const json_t *run, const char *folder, const struct series_info *info,
                         zp_err *err)
{
    const json_t *options = json_object_get(run, "options");
    for (size_t i = 0; i < json_array_size(options); i++) {
        const json_t *old = json_array_get(options, i);
        for (size_t k = 0; k < info->n_options; k++) {
            const struct series_option *now = &info->options[k];
            if (strcmp(text_of(old, "name"), now->name) != 0) continue;
            ZP_FAIL_IF(
                strcmp(text_of(old, "value"), now->value) != 0, err, ZP_BAD_INPUT,
                "%s/run.json: the run was begun with %s %s, now it is %s; go on with what it "
                "was begun with, or begin a new run in another folder",
                folder, now->name, text_of(old, "value"), now->value);
        }
    }
    const char *model = text_of(run, "model_sha256");
    ZP_FAIL_IF(*model && info->model_sha256 && strcmp(model, info->model_sha256) != 0, err,
               ZP_BAD_INPUT,
               "%s/run.json: the run was begun with another model (%.12s, this file has %.12s); go "
               "on with the file it was begun with, or begin a new run in another folder",
               folder, model, info->model_sha256);
    return ZP_OK;
}

zp_status series_check(const char *folder, const struct series_info *info, zp_err *err)
{
    json_t *run;
    bool there;
    ZP_TRY(series_exists(folder, &there, err));
    if (!there) return ZP_OK;
    ZP_TRY(read_run(folder, &run, err));
    zp_status status = compare(run, folder, info, err);
    json_decref(run);
    return status;
}

/* ---- stores ---------------------------------------------------------------------------------- */

static const struct series_store *usual_store(bool lines)
{
#if ZEROPE_HAVE_SQLITE
    if (!lines) return &series_sqlite;
#endif
    ZP_UNUSED(lines);
    return &series_lines;
}

/* The one whose file is in the folder; NULL if none is. */
static zp_status find_store(const struct series_store **out, const char *folder, zp_err *err)
{
    bool there;
    *out = NULL;
    ZP_TRY(is_there(folder, "metrics.sqlite", &there, err));
#if ZEROPE_HAVE_SQLITE
    if (there) *out = &series_sqlite;
#else
    ZP_FAIL_IF(there, err, ZP_UNSUPPORTED,
               "%s/metrics.sqlite: this program is built without SQLite; build it with "
               "libsqlite3-dev", folder);
#endif
    if (there) return ZP_OK;
    ZP_TRY(is_there(folder, series_lines.file, &there, err));
    if (there) *out = &series_lines;
    return ZP_OK;
}

/* ---- opening --------------------------------------------------------------------------------- */

static zp_status new_series(struct series **out, const struct series_store *store,
                            const char *folder, bool fresh, zp_err *err)
{
    *out = mem_zalloc(MEM_TRAIN, sizeof **out);
    ZP_FAIL_IF(*out == NULL, err, ZP_NO_MEMORY, "%s: not enough memory for its record", folder);
    (*out)->store = store;
    return store->open(&(*out)->state, folder, fresh, err);
}

/* *out, which may be half-built, stays or goes. */
static zp_status keep_or_close(struct series **out, zp_status status)
{
    if (status == ZP_OK) return ZP_OK;
    series_close(*out);
    *out = NULL;
    return status;
}

zp_status series_create(struct series **out, const char *folder, const struct series_info *info,
                        zp_err *err)
{
    bool there;
    *out = NULL;
    ZP_TRY(is_there(folder, "run.json", &there, err));
    ZP_FAIL_IF(there, err, ZP_USAGE,
               "%s: holds the record of a run already; resume it, or choose another folder",
               folder);
    ZP_TRY(os_make_folders(folder, err));
    zp_status status = new_series(out, usual_store(info->lines), folder, true, err);
    if (status == ZP_OK) status = write_run(folder, info, err); // R1
    return keep_or_close(out, status);
}

zp_status series_resume(struct series **out, const char *folder, uint64_t step,
                        const struct series_info *info, zp_err *err)
{
    const struct series_store *store;
    bool there;
    *out = NULL;
    ZP_TRY(is_there(folder, "run.json", &there, err));
    ZP_FAIL_IF(!there && !info->adopt, err, ZP_BAD_INPUT,
               "%s: has no record of a run (run.json)", folder);
    ZP_TRY(find_store(&store, folder, err));
    bool fresh = store == NULL; /* what SQLite kept beside a lost file goes */
    if (fresh) store = usual_store(info->lines);
    zp_status status = new_series(out, store, folder, fresh, err);
    if (status == ZP_OK) status = series_cut(*out, step, err);
    if (status == ZP_OK && !there) {
        log_warn("%s: has lost its record (run.json); it gets a new one", folder);
        status = write_run(folder, info, err);
    }
    if (status == ZP_OK) status = resume_run(folder, step, info, err);
    return keep_or_close(out, status);
}

static void free_record(const struct series_record *r)
{
    mem_free((void *)(uintptr_t)r->name);
    mem_free((void *)(uintptr_t)r->event.what);
    mem_free((void *)(uintptr_t)r->event.reason);
}

static void drop_records(struct series *s)
{
    for (size_t i = 0; i < s->n; i++) free_record(&s->records[i]);
    s->n = 0;
}

void series_close(struct series *s)
{
    if (s == NULL) return;
    if (s->state != NULL) s->store->close(s->state);
    drop_records(s);
    mem_free(s->records);
    mem_free(s);
}

/* ---- adding ---------------------------------------------------------------------------------- */

/* r's texts are copied. */
static bool keep_record(struct series *s, const struct series_record *r)
{
    if (s->n == s->room) {
        size_t room = s->room ? 2 * s->room : 64;
        struct series_record *more = mem_resize(MEM_TRAIN, s->records, room * sizeof *more);
        if (more == NULL) return false;
        s->records = more;
        s->room = room;
    }
    struct series_record copy = *r;
    copy.name = r->name ? mem_strdup(MEM_TRAIN, r->name) : NULL;
    copy.event.what = r->event.what ? mem_strdup(MEM_TRAIN, r->event.what) : NULL;
    copy.event.reason = r->event.reason ? mem_strdup(MEM_TRAIN, r->event.reason) : NULL;
    bool whole = !copy.name == !r->name && !copy.event.what == !r->event.what &&
                 !copy.event.reason == !r->event.reason;
    if (whole) s->records[s->n++] = copy;
    else free_record(&copy);
    return whole;
}

zp_status series_flush(struct series *s, zp_err *err)
{
    if (s->n == 0) return ZP_OK;
    ZP_TRY(s->store->write(s->state, s->records, s->n, err)); // R2
    drop_records(s);
    return ZP_OK;
}

static zp_status add_record(struct series *s, const struct series_record *r, zp_err *err)
{
    ZP_FAIL_IF(r->event.step > INT64_MAX, err, ZP_USAGE, "step %llu is too large for a record",
               (unsigned long long)r->event.step);
    ZP_FAIL_IF(!keep_record(s, r), err, ZP_NO_MEMORY, "not enough memory for the record of step "
               "%llu", (unsigned long long)r->event.step);
    return s->n < MOST_KEPT ? ZP_OK : series_flush(s, err);
}

zp_status series_add(struct series *s, uint64_t step, const char *name, double value, zp_err *err)
{
    struct series_record r = { .event.step = step, .name = name, .value = value };
    return add_record(s, &r, err);
}

zp_status series_add_event(struct series *s, const struct series_event *event, zp_err *err)
{
    struct series_record r = { .event = *event };
    if (r.event.reason == NULL) r.event.reason = "";
    return add_record(s, &r, err);
}

zp_status series_cut(struct series *s, uint64_t step, zp_err *err)
{
    ZP_TRY(s->store->cut(s->state, step < INT64_MAX ? step : INT64_MAX, err));
    drop_records(s);
    return ZP_OK;
}

/* ---- reading --------------------------------------------------------------------------------- */

static zp_status scan(const char *folder, enum series_wanted wanted, const char *name,
                      series_visit visit, void *arg, zp_err *err)
{
    const struct series_store *store;
    ZP_TRY(find_store(&store, folder, err));
    ZP_FAIL_IF(store == NULL, err, ZP_BAD_INPUT,
               "%s: has no numbers of a run (metrics.sqlite or %s)", folder, series_lines.file);
    return store->scan(folder, wanted, name, visit, arg, err);
}

struct point {
    uint64_t step;
    double value;
    size_t number; /* in the order of writing */
};

struct point_list {
    struct point *at;
    size_t n, room;
};

static bool take_point(void *arg, const struct series_record *r)
{
    struct point_list *l = arg;
    if (l->n == l->room) {
        size_t room = l->room ? 2 * l->room : 256;
        struct point *more = mem_resize(MEM_TRAIN, l->at, room * sizeof *more);
        if (more == NULL) return false;
        l->at = more;
        l->room = room;
    }
    l->at[l->n] = (struct point){ r->event.step, r->value, l->n };
    l->n++;
    return true;
}

static int compare_points(const void *a, const void *b)
{
    const struct point *x = a, *y = b;
    if (x->step != y->step) return x->step < y->step ? -1 : 1;
    return x->number < y->number ? -1 : 1;
}

static zp_status fill_points(struct series_points *out, struct point_list *l, zp_err *err)
{
    ZP_ALLOC(out->steps, MEM_TRAIN, l->n, err, "the steps of a series");
    ZP_ALLOC(out->values, MEM_TRAIN, l->n, err, "the values of a series");
    if (l->n) qsort(l->at, l->n, sizeof *l->at, compare_points);
    for (size_t i = 0; i < l->n; i++) {
        if (i + 1 < l->n && l->at[i + 1].step == l->at[i].step) continue; /* the last one counts */
        out->steps[out->n] = l->at[i].step;
        out->values[out->n++] = l->at[i].value;
    }
    return ZP_OK;
}

zp_status series_read(const char *folder, const char *name, struct series_points *out, zp_err *err)
{
    struct point_list l = { 0 };
    *out = (struct series_points){ 0 };
    zp_status status = scan(folder, SERIES_POINTS, name, take_point, &l, err);
    if (status == ZP_OK) status = fill_points(out, &l, err);
    if (status != ZP_OK) series_points_free(out);
    mem_free(l.at);
    return status;
}

void series_points_free(struct series_points *p)
{
    mem_free(p->steps);
    mem_free(p->values);
    *p = (struct series_points){ 0 };
}

struct name_list {
    char **at; /* (n) sorted */
    size_t n, room;
};

static bool take_name(void *arg, const struct series_record *r)
{
    struct name_list *l = arg;
    size_t low = 0, high = l->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(l->at[middle], r->name);
        if (order == 0) return true;
        if (order < 0) low = middle + 1;
        else high = middle;
    }
    if (l->n == l->room) {
        size_t room = l->room ? 2 * l->room : 32;
        char **more = mem_resize(MEM_TRAIN, l->at, room * sizeof *more);
        if (more == NULL) return false;
        l->at = more;
        l->room = room;
    }
    char *copy = mem_strdup(MEM_TRAIN, r->name);
    if (copy == NULL) return false;
    memmove(l->at + low + 1, l->at + low, (l->n - low) * sizeof *l->at);
    l->at[low] = copy;
    l->n++;
    return true;
}

zp_status series_names(const char *folder, char ***names, size_t *n, zp_err *err)
{
    struct name_list l = { 0 };
    zp_status status = scan(folder, SERIES_NAMES, NULL, take_name, &l, err);
    if (status != ZP_OK) {
        os_list_free(l.at, l.n);
        l = (struct name_list){ 0 };
    }
    *names = l.at;
    *n = l.n;
    return status;
}

/* The series of records is one of events, with the same room and the same texts. */
static bool take_event(void *arg, const struct series_record *r)
{
    return keep_record(arg, r);
}

static zp_status fill_events(struct series_events *out, struct series *s, zp_err *err)
{
    ZP_ALLOC(out->list, MEM_TRAIN, s->n, err, "the events of a run");
    for (size_t i = 0; i < s->n; i++) out->list[i] = s->records[i].event;
    out->n = s->n;
    s->n = 0; /* texts are the list's now */
    return ZP_OK;
}

zp_status series_read_events(const char *folder, struct series_events *out, zp_err *err)
{
    struct series kept = { 0 };
    *out = (struct series_events){ 0 };
    zp_status status = scan(folder, SERIES_EVENTS, NULL, take_event, &kept, err);
    if (status == ZP_OK) status = fill_events(out, &kept, err);
    drop_records(&kept);
    mem_free(kept.records);
    return status;
}

void series_events_free(struct series_events *e)
{
    for (size_t i = 0; i < e->n; i++)
        free_record(&(struct series_record){ .event = e->list[i] });
    mem_free(e->list);
    *e = (struct series_events){ 0 };
}
