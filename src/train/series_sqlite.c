/* series_sqlite.c: records of a run in a database of SQLite.
 * Owns: the connection and its statements. Threads: a connection belongs to one.
 * Readers work while a run writes: the journal is a write-ahead log; when the run closes it becomes
 * a plain file again, which can be read in a folder that nobody may write to. */
#include "train/series_store.h"

#if ZEROPE_HAVE_SQLITE

#include <math.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/os.h"

#define FILE_NAME "metrics.sqlite"
enum { SCHEMA_VERSION = 1, BUSY_MS = 10000 };

struct database {
    sqlite3 *db;
    char *path;
    sqlite3_stmt *add_number, *add_event;
};

static zp_status status_of(int code)
{
    switch (code & 0xff) {
    case SQLITE_FULL: return ZP_NO_SPACE;
    case SQLITE_NOMEM: return ZP_NO_MEMORY;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
    case SQLITE_MISMATCH: return ZP_BAD_FILE;
    default: return ZP_IO;
    }
}

static zp_status failed(const struct database *d, const char *what, int code, zp_err *err)
{
    bool damaged = status_of(code) == ZP_BAD_FILE;
    ZP_FAIL(err, status_of(code), "%s: %s fails: %s%s", d->path, what,
            d->db ? sqlite3_errmsg(d->db) : sqlite3_errstr(code),
            damaged
                ? "; move it away: a run goes on from its checkpoints, without its numbers so far"
                : "");
}

static zp_status run(const struct database *d, const char *sql, const char *what, zp_err *err)
{
    int code = sqlite3_exec(d->db, sql, NULL, NULL, NULL);
    return code == SQLITE_OK ? ZP_OK : failed(d, what, code, err);
}

static zp_status prepare(const struct database *d, const char *sql, sqlite3_stmt **out,
                         zp_err *err)
{
    int code = sqlite3_prepare_v2(d->db, sql, -1, out, NULL);
    return code == SQLITE_OK ? ZP_OK : failed(d, "opening the database", code, err);
}

/* ---- opening --------------------------------------------------------------------------------- */

static void finish_statements(struct database *d)
{
    sqlite3_finalize(d->add_number);
    sqlite3_finalize(d->add_event);
    d->add_number = d->add_event = NULL;
}

static void close_database(struct database *d)
{
    finish_statements(d);
    sqlite3_close(d->db);
    mem_free(d->path);
    *d = (struct database){ 0 };
}

static zp_status open_file(struct database *d, const char *folder, int flags, zp_err *err)
{
    *d = (struct database){ 0 };
    ZP_TRY(series_path(&d->path, folder, FILE_NAME, err));
    int code = sqlite3_open_v2(d->path, &d->db, flags | SQLITE_OPEN_NOMUTEX, NULL);
    if (code != SQLITE_OK) return failed(d, "opening the database", code, err);
    sqlite3_busy_timeout(d->db, BUSY_MS);
    return ZP_OK;
}

static zp_status read_version(const struct database *d, int *out, zp_err *err)
{
    sqlite3_stmt *s;
    ZP_TRY(prepare(d, "PRAGMA user_version", &s, err));
    int code = sqlite3_step(s);
    *out = code == SQLITE_ROW ? sqlite3_column_int(s, 0) : 0;
    sqlite3_finalize(s);
    return code == SQLITE_ROW ? ZP_OK : failed(d, "reading the database", code, err);
}

static zp_status check_version(const struct database *d, zp_err *err)
{
    int version;
    ZP_TRY(read_version(d, &version, err));
    ZP_FAIL_IF(version != SCHEMA_VERSION, err, ZP_UNSUPPORTED,
               "%s: tables of version %d, this program reads %d", d->path, version,
               SCHEMA_VERSION);
    return ZP_OK;
}

static zp_status make_tables(struct database *d, zp_err *err)
{
    int version;
    ZP_TRY(run(d, "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;", "opening the database",
               err));
    ZP_TRY(read_version(d, &version, err));
    if (version == 0) /* new, or killed before this was done */
        ZP_TRY(run(d,
                   "BEGIN;"
                   "CREATE TABLE metrics(name TEXT NOT NULL, step INTEGER NOT NULL, value REAL,"
                   " PRIMARY KEY(name, step)) WITHOUT ROWID;"
                   "CREATE TABLE events(id INTEGER PRIMARY KEY, step INTEGER NOT NULL,"
                   " event TEXT NOT NULL, layer INTEGER NOT NULL, kv INTEGER NOT NULL,"
                   " pair INTEGER NOT NULL, reason TEXT NOT NULL);"
                   "PRAGMA user_version=1;" /* SCHEMA_VERSION */
                   "COMMIT;",
                   "making its tables", err));
    ZP_TRY(check_version(d, err));
    ZP_TRY(prepare(d, "INSERT OR REPLACE INTO metrics(name, step, value) VALUES(?, ?, ?)",
                   &d->add_number, err));
    return prepare(d,
                   "INSERT INTO events(step, event, layer, kv, pair, reason)"
                   " VALUES(?, ?, ?, ?, ?, ?)",
                   &d->add_event, err);
}

/* The database and the files SQLite keeps beside it. */
static zp_status remove_old(const char *folder, zp_err *err)
{
    static const char *const files[] = { FILE_NAME, FILE_NAME "-wal", FILE_NAME "-shm",
                                         FILE_NAME "-journal" };
    for (size_t i = 0; i < ZP_COUNT(files); i++) {
        char *path;
        ZP_TRY(series_path(&path, folder, files[i], err));
        (void)remove(path);
        mem_free(path);
    }
    return ZP_OK;
}

static zp_status open_store(void **state, const char *folder, bool fresh, zp_err *err)
{
    if (fresh) ZP_TRY(remove_old(folder, err));
    struct database *d = mem_zalloc(MEM_TRAIN, sizeof *d);
    ZP_FAIL_IF(d == NULL, err, ZP_NO_MEMORY, "%s: not enough memory for its database", folder);
    zp_status status = open_file(d, folder, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, err);
    if (status == ZP_OK) status = make_tables(d, err);
    if (status == ZP_OK) {
        *state = d;
        return ZP_OK;
    }
    close_database(d);
    mem_free(d);
    return status;
}

/* A reader may keep it from becoming a plain file: then the next one who opens it can. */
static void close_store(void *state)
{
    struct database *d = state;
    finish_statements(d);
    (void)sqlite3_busy_timeout(d->db, 0);
    (void)sqlite3_exec(d->db, "PRAGMA journal_mode=DELETE", NULL, NULL, NULL);
    close_database(d);
    mem_free(d);
}

/* ---- writing --------------------------------------------------------------------------------- */

static void bind_number(sqlite3_stmt *s, const struct series_record *r)
{
    sqlite3_bind_text(s, 1, r->name, -1, SQLITE_STATIC);
    sqlite3_bind_int64(s, 2, (sqlite3_int64)r->event.step);
    if (isfinite(r->value)) sqlite3_bind_double(s, 3, r->value);
    else sqlite3_bind_null(s, 3);
}

static void bind_event(sqlite3_stmt *s, const struct series_event *e)
{
    sqlite3_bind_int64(s, 1, (sqlite3_int64)e->step);
    sqlite3_bind_text(s, 2, e->what, -1, SQLITE_STATIC);
    sqlite3_bind_int64(s, 3, e->layer);
    sqlite3_bind_int64(s, 4, e->kv);
    sqlite3_bind_int64(s, 5, e->pair);
    sqlite3_bind_text(s, 6, e->reason, -1, SQLITE_STATIC);
}

static zp_status write_all(const struct database *d, const struct series_record *records, size_t n,
                           zp_err *err)
{
    for (size_t i = 0; i < n; i++) {
        bool number = records[i].event.what == NULL;
        sqlite3_stmt *s = number ? d->add_number : d->add_event;
        if (number) bind_number(s, &records[i]);
        else bind_event(s, &records[i].event);
        int code = sqlite3_step(s);
        (void)sqlite3_reset(s);
        (void)sqlite3_clear_bindings(s);
        if (code != SQLITE_DONE) return failed(d, "writing", code, err);
    }
    return ZP_OK;
}

static zp_status in_transaction(const struct database *d, zp_status status, zp_err *err)
{
    if (status == ZP_OK) status = run(d, "COMMIT", "writing", err);
    if (status != ZP_OK) (void)sqlite3_exec(d->db, "ROLLBACK", NULL, NULL, NULL);
    return status;
}

static zp_status write_store(void *state, const struct series_record *records, size_t n,
                             zp_err *err)
{
    struct database *d = state;
    ZP_TRY(run(d, "BEGIN IMMEDIATE", "writing", err));
    return in_transaction(d, write_all(d, records, n, err), err);
}

static zp_status cut_table(const struct database *d, const char *sql, uint64_t step, zp_err *err)
{
    sqlite3_stmt *s;
    ZP_TRY(prepare(d, sql, &s, err));
    sqlite3_bind_int64(s, 1, (sqlite3_int64)step);
    int code = sqlite3_step(s);
    sqlite3_finalize(s);
    return code == SQLITE_DONE ? ZP_OK : failed(d, "removing later steps", code, err);
}

static zp_status cut_store(void *state, uint64_t step, zp_err *err)
{
    struct database *d = state;
    ZP_TRY(run(d, "BEGIN IMMEDIATE", "removing later steps", err));
    zp_status status = cut_table(d, "DELETE FROM metrics WHERE step > ?", step, err);
    if (status == ZP_OK) status = cut_table(d, "DELETE FROM events WHERE step > ?", step, err);
    return in_transaction(d, status, err);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* What stands in a text column of any type; "" for nothing. NULL: no memory. */
static const char *text_at(sqlite3_stmt *s, int column)
{
    if (sqlite3_column_type(s, column) == SQLITE_NULL) return "";
    return (const char *)sqlite3_column_text(s, column);
}

static bool visit_row(sqlite3_stmt *s, enum series_wanted wanted, series_visit visit, void *arg)
{
    struct series_record r = { 0 };
    if (wanted == SERIES_EVENTS) {
        r.event = (struct series_event){ .step = (uint64_t)sqlite3_column_int64(s, 0),
                                         .what = text_at(s, 1),
                                         .layer = (uint32_t)sqlite3_column_int64(s, 2),
                                         .kv = (uint32_t)sqlite3_column_int64(s, 3),
                                         .pair = (uint32_t)sqlite3_column_int64(s, 4),
                                         .reason = text_at(s, 5) };
        return r.event.what && r.event.reason && visit(arg, &r);
    }
    r.name = text_at(s, 0);
    if (wanted == SERIES_POINTS) {
        bool number = sqlite3_column_type(s, 2) != SQLITE_NULL;
        r.event.step = (uint64_t)sqlite3_column_int64(s, 1);
        r.value = number ? sqlite3_column_double(s, 2) : NAN;
    }
    return r.name && visit(arg, &r);
}

static zp_status scan_rows(const struct database *d, sqlite3_stmt *s, enum series_wanted wanted,
                           series_visit visit, void *arg, zp_err *err)
{
    int code;
    while ((code = sqlite3_step(s)) == SQLITE_ROW)
        ZP_FAIL_IF(!visit_row(s, wanted, visit, arg), err, ZP_NO_MEMORY,
                   "%s: not enough memory for what it holds", d->path);
    return code == SQLITE_DONE ? ZP_OK : failed(d, "reading the database", code, err);
}

static zp_status scan_database(const struct database *d, enum series_wanted wanted,
                               const char *name, series_visit visit, void *arg, zp_err *err)
{
    static const char *const sql[] = {
        [SERIES_POINTS] = "SELECT name, step, value FROM metrics WHERE name = ? AND step >= 0"
                          " ORDER BY step",
        [SERIES_NAMES] = "SELECT DISTINCT name FROM metrics",
        [SERIES_EVENTS] = "SELECT step, event, layer, kv, pair, reason FROM events"
                          " WHERE step >= 0 ORDER BY id",
    };
    sqlite3_stmt *s;
    ZP_TRY(check_version(d, err));
    ZP_TRY(prepare(d, sql[wanted], &s, err));
    if (wanted == SERIES_POINTS) sqlite3_bind_text(s, 1, name, -1, SQLITE_STATIC);
    zp_status status = scan_rows(d, s, wanted, visit, arg, err);
    sqlite3_finalize(s);
    return status;
}

static zp_status scan_store(const char *folder, enum series_wanted wanted, const char *name,
                            series_visit visit, void *arg, zp_err *err)
{
    struct database d;
    zp_status status = open_file(&d, folder, SQLITE_OPEN_READONLY, err);
    if (status == ZP_OK) status = scan_database(&d, wanted, name, visit, arg, err);
    close_database(&d);
    return status;
}

const struct series_store series_sqlite = {
    .file = FILE_NAME,
    .open = open_store,
    .write = write_store,
    .cut = cut_store,
    .close = close_store,
    .scan = scan_store,
};

#else
typedef int series_sqlite_is_not_built; /* a file of C is not empty */
#endif
