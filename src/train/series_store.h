/* series_store.h: where records of a run lie: one table of functions for SQLite, one for lines. */
#ifndef TRAIN_SERIES_STORE_H
#define TRAIN_SERIES_STORE_H

#include "train/series.h"

/* A number by step, or an event: what == NULL tells them apart. */
struct series_record {
    struct series_event event; /* step is of both */
    const char *name;
    double value;
};
enum series_wanted { SERIES_POINTS, SERIES_NAMES, SERIES_EVENTS };
/* False: no memory. Texts live as long as the call. */
typedef bool (*series_visit)(void *arg, const struct series_record *r);

struct series_store {
    const char *file; /* its name in the folder */
    /* fresh: without what a half-made run has left */
    zp_status (*open)(void **state, const char *folder, bool fresh, zp_err *err);
    zp_status (*write)(void *state, const struct series_record *records, size_t n, zp_err *err);
    zp_status (*cut)(void *state, uint64_t step, zp_err *err);
    void (*close)(void *state);
    /* Those of the name (SERIES_POINTS), at least one of each name, or all events in order. */
    zp_status (*scan)(const char *folder, enum series_wanted wanted, const char *name,
                      series_visit visit, void *arg, zp_err *err);
};
extern const struct series_store series_lines;
#if ZEROPE_HAVE_SQLITE
extern const struct series_store series_sqlite;
#endif

/* "FOLDER/FILE", released with mem_free. */
zp_status series_path(char **out, const char *folder, const char *file, zp_err *err);

#endif
