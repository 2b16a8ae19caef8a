/* series.h: the record of a run: a folder with run.json (what was asked for), and numbers by step
 * and events in metrics.sqlite, or in metrics.jsonl where SQLite is not built in. Only the program
 * that trains writes; any other may read meanwhile. */
#ifndef TRAIN_SERIES_H
#define TRAIN_SERIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/status.h"

/* ---- writing --------------------------------------------------------------------------------- */

struct series_option {
    const char *name, *value, *origin; /* origin: "default", "file", "command line", ... */
};
struct series_seed {
    const char *name;
    uint64_t value;
};
struct series_version {
    const char *name, *value;
};
/* What run.json says. Texts may be NULL: not known. */
struct series_info {
    const char *command, *model_sha256, *machine;
    const struct series_option *options;
    const struct series_seed *seeds;
    const struct series_version *versions; /* of libraries; the program's own is added */
    size_t n_options, n_seeds, n_versions;
    bool lines; /* metrics.jsonl although SQLite is there */
    bool adopt; /* of a resumption: a folder that lost its run.json gets a new one */
};
/* What: "gate closed" or, of a distance bias, "bias closed" (pair 0, kv: its head); "gate opened",
 * "bias opened" where one opened again. */
struct series_event {
    uint64_t step;
    const char *what, *reason;
    uint32_t layer, kv, pair;
};

struct series;
/* The folder is made; one with a run in it is refused: ZP_USAGE. */
zp_status series_create(struct series **out, const char *folder, const struct series_info *info,
                        zp_err *err);
/* Goes on behind a checkpoint: what was recorded beyond its step is removed, and run.json gets what
 * is asked for now in its list `resumed`. */
zp_status series_resume(struct series **out, const char *folder, uint64_t step,
                        const struct series_info *info, zp_err *err);
/* Whether the folder's run was begun with what info says: options of the same name and the model;
 * ZP_BAD_INPUT names the first that differs. A folder without run.json: nothing to compare. */
zp_status series_check(const char *folder, const struct series_info *info, zp_err *err);
/* Whether the folder has a run. */
zp_status series_exists(const char *folder, bool *out, zp_err *err);
/* What was not flushed is lost. NULL is fine. */
void series_close(struct series *s);

/* Kept in memory until the flush, or until there are a thousand. A number that is not finite is
 * read as NaN; a second one of the same name and step takes the first one's place. */
zp_status series_add(struct series *s, uint64_t step, const char *name, double value, zp_err *err);
zp_status series_add_event(struct series *s, const struct series_event *event, zp_err *err);
/* All at once or, after a failure, none; then they are still kept. */
zp_status series_flush(struct series *s, zp_err *err);
/* Removes what is beyond the step, after a roll-back; what was not flushed too. */
zp_status series_cut(struct series *s, uint64_t step, zp_err *err);

/* ---- reading --------------------------------------------------------------------------------- */

struct series_points {
    size_t n;
    uint64_t *steps; /* (n) ascending */
    double *values;  /* (n) */
};
/* None of that name: n = 0. */
zp_status series_read(const char *folder, const char *name, struct series_points *out, zp_err *err);
void series_points_free(struct series_points *p);
/* Names of all series, in alphabetical order; released with os_list_free. */
zp_status series_names(const char *folder, char ***names, size_t *n, zp_err *err);

struct series_events {
    size_t n;
    struct series_event *list; /* (n) in the order they were recorded */
};
zp_status series_read_events(const char *folder, struct series_events *out, zp_err *err);
void series_events_free(struct series_events *e);

#endif
