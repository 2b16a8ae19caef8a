/* evapfile.h: SCAN and PLAN documents: reading and writing JSON. */
#ifndef EVAP_EVAPFILE_H
#define EVAP_EVAPFILE_H

#include "evap/plan.h"

/* Paths that later steps start from; stored beside the results. */
struct evapfile_paths {
    const char *model, *text;
};

zp_status evapfile_write_scan(const struct scan *s, struct evapfile_paths paths, const char *out,
                              zp_err *err);
/* *root keeps the document (paths point into it) until json_decref. */
zp_status evapfile_read_scan(struct scan *s, const char *path, json_t **root,
                             struct evapfile_paths *paths, zp_err *err);

/* position: of the model the plan is for. */
zp_status evapfile_write_plan(const struct plan *p, const struct position *position,
                              struct evapfile_paths paths, const char *out, zp_err *err);
zp_status evapfile_read_plan(struct plan *p, const char *path, const struct zp_model *m,
                             json_t **root, zp_err *err);

/* Indented text of a document, written atomically. */
zp_status evapfile_dump(const json_t *j, const char *path, zp_err *err);
/* Text of a document for zp_free. */
zp_status evapfile_text(const json_t *j, char **out, zp_err *err);

#endif
