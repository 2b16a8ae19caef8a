/* calib.h: an exact engine with planning windows, the original's hidden states, and what a change
 * of gates, windows or query rows costs against them. Scan, plan and fold share one. */
#ifndef EVAP_CALIB_H
#define EVAP_CALIB_H

#include "eval/score.h"
#include "evap/gateset.h"

struct calib {
    struct zp_model *model;
    struct zp_engine *engine; /* exact, micro_batch >= n_ctx */
    struct docs docs;
    uint32_t n_ctx;
    struct windows windows; /* planning windows, n_ctx ids each */
    struct hidden base;     /* original's last hidden states of all windows */
    /* the stream before each layer for the first n_restart windows, of the original unless
     * calib_restart_at says otherwise: (n_restart, n_layer, n_ctx, d_model) */
    float *at_layer;
    uint32_t n_restart, n_probes; /* n_probes: prompts whose states will be kept likewise */
    struct score_range range;
    zp_progress progress;
};

/* Model and documents: enough to refuse what does not fit them. */
zp_status calib_open(struct calib *c, const char *model, const char *text, uint32_t n_ctx,
                     zp_err *err);
/* Engine, windows and states; n_restart, n_probes and progress are set before. On failure the
 * caller closes. */
zp_status calib_start(struct calib *c, uint32_t n_windows, uint32_t n_threads, zp_err *err);
void calib_close(struct calib *c);
zp_status calib_step(const struct calib *c, const char *what, uint64_t done, uint64_t total,
                     zp_err *err);

/* Runs the original over a window of n_ctx and keeps its stream: at_layer (n_layer, n_ctx, d_model)
 * before each layer, x_out (n_ctx, d_model) after the last. */
zp_status calib_keep(struct calib *c, const struct window *w, float *at_layer, float *x_out,
                     zp_err *err);

/* Rotates one head x (d_head) of q or k as the file does at index `at`. cs, room: scratch of
 * 2 n_pair floats each; for workers, which have their own. */
void calib_rotate(const struct calib *c, uint32_t layer, uint32_t kv, uint32_t at, float *x,
                  float *cs, float *room);

/* From now on calib_kl restarts from the streams of a model with g applied (NULL: the original),
 * for changes on top of g. */
zp_status calib_restart_at(struct calib *c, const struct gateset *g, zp_err *err);

/* Mean KL(original || changed) over the first n_windows, computed from layer `from` on. The first
 * n_restart windows start there; others at 0. */
zp_status calib_kl(struct calib *c, const struct gateset *g, uint32_t from, uint32_t n_windows,
                   double *kl, zp_err *err);

#endif
