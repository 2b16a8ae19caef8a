/* series_lines.c: records of a run as lines of JSON, where SQLite is not built in.
 * Owns: the open file. Threads: a file belongs to one.
 * Here and not in os.c: nothing else appends to a file.
 * L1 a line without its end is what a killed writer left: it counts as not written. */
#include "train/series_store.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/os.h"
#include "base/json_build.h"
#include "model/json_read.h"

#define FILE_NAME "metrics.jsonl"
#define MOST_BYTES ((size_t)1 << 30)

struct lines {
    char *path;
    int fd;
};

/* ---- writing --------------------------------------------------------------------------------- */

static void build_event(struct json_build *w, const struct series_event *e)
{
    json_build_text(w, "event", e->what);
    json_build_uint(w, "layer", e->layer);
    json_build_uint(w, "kv", e->kv);
    json_build_uint(w, "pair", e->pair);
    json_build_text(w, "reason", e->reason);
}

static zp_status append_line(struct buffer *b, const struct series_record *r, zp_err *err)
{
    struct json_build w;
    char *text;
    json_build_open(&w, err);
    json_build_object(&w, NULL);
    json_build_uint(&w, "step", r->event.step);
    if (r->event.what != NULL) {
        build_event(&w, &r->event);
    } else {
        json_build_text(&w, "name", r->name);
        json_build_real(&w, "value", r->value, 17);
    }
    json_build_object_end(&w);
    ZP_TRY(json_build_finish(&w, &text));
    zp_status status = buffer_append_text(b, text, err);
    mem_free(text);
    if (status == ZP_OK) status = buffer_append_text(b, "\n", err);
    return status;
}

/* After a failure the file is as it was. */
static zp_status append_bytes(const struct lines *l, const struct buffer *b, zp_err *err)
{
    off_t before = lseek(l->fd, 0, SEEK_END);
    size_t at = 0;
    while (before >= 0 && at < b->size) {
        ssize_t done = write(l->fd, b->data + at, b->size - at);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) break;
        at += (size_t)done;
    }
    if (at == b->size) return ZP_OK;
    int code = errno;
    bool back = before >= 0 && ftruncate(l->fd, before) == 0;
    ZP_FAIL(err, code == ENOSPC || code == EDQUOT ? ZP_NO_SPACE : ZP_IO, "%s: writing fails: %s%s",
            l->path, strerror(code), back ? "" : "; its last line is not whole");
}

static zp_status write_lines(void *state, const struct series_record *records, size_t n,
                             zp_err *err)
{
    struct buffer b = buffer_with_max(MEM_TRAIN, MOST_BYTES);
    zp_status status = ZP_OK;
    for (size_t i = 0; i < n && status == ZP_OK; i++) status = append_line(&b, &records[i], err);
    if (status == ZP_OK) status = append_bytes(state, &b, err);
    buffer_free(&b);
    return status;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* A number of a line; false if it is not there or not one. */
static bool get_count(const json_t *line, const char *key, uint64_t most, uint64_t *out)
{
    const json_t *value = json_object_get(line, key);
    json_int_t x = json_integer_value(value);
    *out = (uint64_t)x;
    return json_is_integer(value) && x >= 0 && (uint64_t)x <= most;
}

/* The record lives as long as the line. */
static bool parse_record(const json_t *line, struct series_record *r)
{
    uint64_t layer, kv, pair;
    const json_t *value = json_object_get(line, "value");
    *r = (struct series_record){ 0 };
    if (!get_count(line, "step", INT64_MAX, &r->event.step)) return false;
    r->event.what = json_string_value(json_object_get(line, "event"));
    r->event.reason = json_string_value(json_object_get(line, "reason"));
    r->name = json_string_value(json_object_get(line, "name"));
    r->value = json_is_number(value) ? json_number_value(value) : NAN;
    if (r->event.what == NULL) return r->name != NULL && (json_is_number(value) ||
                                                          json_is_null(value));
    bool good = r->event.reason != NULL && get_count(line, "layer", UINT32_MAX, &layer) &&
                get_count(line, "kv", UINT32_MAX, &kv) &&
                get_count(line, "pair", UINT32_MAX, &pair);
    if (!good) return false;
    r->event.layer = (uint32_t)layer, r->event.kv = (uint32_t)kv, r->event.pair = (uint32_t)pair;
    return true;
}

/* Calls `each` with every whole line (L1). */
typedef zp_status (*each_line)(void *arg, const char *text, size_t size,
                               const struct series_record *r, zp_err *err);

static zp_status read_line(const char *path, size_t number, const char *text, size_t size,
                           each_line each, void *arg, zp_err *err)
{
    json_t *line;
    struct series_record r;
    zp_err why = { 0 };
    zp_status status = json_read_text(text, size, path, &line, &why);
    ZP_FAIL_IF(status == ZP_NO_MEMORY, err, ZP_NO_MEMORY, "%s", why.message);
    if (status == ZP_OK && !parse_record(line, &r)) {
        json_decref(line);
        status = ZP_BAD_FILE;
    }
    ZP_FAIL_IF(status != ZP_OK, err, ZP_BAD_FILE, "%s: line %zu is no record of a run", path,
               number);
    status = each(arg, text, size, &r, err);
    json_decref(line);
    return status;
}

static zp_status read_lines(const char *path, each_line each, void *arg, zp_err *err)
{
    struct buffer b = buffer_with_max(MEM_TRAIN, MOST_BYTES);
    zp_status status = os_read_regular(path, &b, err);
    const char *at = (const char *)b.data, *end = b.size ? at + b.size : at, *stop;
    for (size_t n = 1; status == ZP_OK && at < end; at = stop + 1, n++) {
        stop = memchr(at, '\n', (size_t)(end - at));
        if (stop == NULL) break;
        status = read_line(path, n, at, (size_t)(stop - at), each, arg, err);
    }
    buffer_free(&b);
    return status;
}

struct scan {
    enum series_wanted wanted;
    const char *name, *path;
    series_visit visit;
    void *arg;
};

static zp_status visit_line(void *arg, const char *text, size_t size,
                            const struct series_record *r, zp_err *err)
{
    const struct scan *s = arg;
    ZP_UNUSED(text), ZP_UNUSED(size);
    if ((r->event.what != NULL) != (s->wanted == SERIES_EVENTS)) return ZP_OK;
    if (s->wanted == SERIES_POINTS && strcmp(r->name, s->name) != 0) return ZP_OK;
    ZP_FAIL_IF(!s->visit(s->arg, r), err, ZP_NO_MEMORY, "%s: not enough memory for what it holds",
               s->path);
    return ZP_OK;
}

static zp_status scan_lines(const char *folder, enum series_wanted wanted, const char *name,
                            series_visit visit, void *arg, zp_err *err)
{
    char *path;
    ZP_TRY(series_path(&path, folder, FILE_NAME, err));
    struct scan s = { wanted, name, path, visit, arg };
    zp_status status = read_lines(path, visit_line, &s, err);
    mem_free(path);
    return status;
}

/* ---- opening and cutting --------------------------------------------------------------------- */

static void close_lines(void *state)
{
    struct lines *l = state;
    if (l->fd >= 0) close(l->fd);
    mem_free(l->path);
    mem_free(l);
}

static zp_status open_file(struct lines *l, int flags, zp_err *err)
{
    l->fd = open(l->path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | flags, 0666);
    ZP_FAIL_IF(l->fd < 0, err, errno == ENOSPC ? ZP_NO_SPACE : os_path_status(errno),
               "%s: cannot be opened: %s", l->path, strerror(errno));
    return ZP_OK;
}

static zp_status open_lines(void **state, const char *folder, bool fresh, zp_err *err)
{
    struct lines *l = mem_zalloc(MEM_TRAIN, sizeof *l);
    ZP_FAIL_IF(l == NULL, err, ZP_NO_MEMORY, "%s: not enough memory for its record", folder);
    l->fd = -1;
    zp_status status = series_path(&l->path, folder, FILE_NAME, err);
    if (status == ZP_OK) status = open_file(l, fresh ? O_TRUNC : 0, err);
    if (status == ZP_OK) *state = l;
    else close_lines(l);
    return status;
}

struct kept {
    uint64_t step;
    struct buffer text;
};

static zp_status keep_line(void *arg, const char *text, size_t size, const struct series_record *r,
                           zp_err *err)
{
    struct kept *k = arg;
    if (r->event.step > k->step) return ZP_OK;
    ZP_TRY(buffer_append(&k->text, text, size, err));
    return buffer_append_text(&k->text, "\n", err);
}

/* A new file takes the place of the old one, which may end inside a line (L1). */
static zp_status cut_lines(void *state, uint64_t step, zp_err *err)
{
    struct lines *l = state;
    struct kept k = { step, buffer_with_max(MEM_TRAIN, MOST_BYTES) };
    zp_status status = read_lines(l->path, keep_line, &k, err);
    if (status == ZP_OK)
        status = os_write_file(l->path, k.text.size ? (const void *)k.text.data : "", k.text.size,
                               err);
    buffer_free(&k.text);
    ZP_TRY(status);
    close(l->fd);
    return open_file(l, 0, err);
}

const struct series_store series_lines = {
    .file = FILE_NAME,
    .open = open_lines,
    .write = write_lines,
    .cut = cut_lines,
    .close = close_lines,
    .scan = scan_lines,
};
