/* apply.h: writes a model with gates closed: rows reordered, closed parts gone, keys of design
 * formats set. */
#ifndef EVAP_APPLY_H
#define EVAP_APPLY_H

#include "evap/fold.h"

struct gguf_edit;

struct apply_info {
    uint32_t n_ctx_validated; /* length the promise holds for; 0 = none */
    const char *recipe;       /* JSON text: how the file came about, or NULL */
    const char *evidence;     /* JSON text, or NULL */
    /* Called when all else is set, for what the file is to have beside; or NULL. */
    zp_status (*add)(struct gguf_edit *e, void *arg, zp_err *err);
    void *add_arg;
    const uint8_t *bias_open; /* (n_layer, n_head) 0: the head's distance bias is closed; NULL: as
                               * in the model's file */
};

/* fold may be NULL. path may be the model's own file. */
zp_status apply_write(const struct zp_model *m, const struct gateset *set, const struct fold *fold,
                      const struct apply_info *info, const char *path, zp_err *err);
/* Writes an open file of ours to path with zerope.evidence (and the validated length, 0 = as it is)
 * set. */
zp_status apply_evidence(const struct gguf *g, const char *path, const char *evidence,
                         uint32_t n_ctx_validated, zp_err *err);

#endif
