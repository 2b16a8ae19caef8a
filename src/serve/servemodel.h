/* servemodel.h: a model that is served: the model, its engine, and what answers and headers say of
 * it. */
#ifndef SERVE_SERVEMODEL_H
#define SERVE_SERVEMODEL_H

#include <zerope/serve.h>
#include "base/bytes.h"
#include "serve/api_plain.h"
#include "serve/halfgain.h"

enum { SERVEMODEL_MODES = 3 }; /* full, zero, half: what a job's mode is resolved to */

struct servemodel {
    zp_model *model;
    zp_engine *engine;
    char *path, *name; /* name: of the file, without its folder and end */
    zp_model_info info;
    struct plain_model listing; /* its id is `name` */
    zp_engine_stats stats; /* as it was opened */
    uint32_t n_ctx;
    size_t longest_token;       /* bytes of the longest token */
    uint32_t zeroed[SERVEMODEL_MODES]; /* layers that run without positions, by mode */
    struct halfgain half;       /* zeros unless there is an SLA */
    char theta[32];             /* "100000", or "none" */
    char fingerprint[24];       /* "zp-" and digits of its hash */
    double strength; /* positional strength as last measured; NaN: not yet */
    uint32_t n_jobs;            /* requests that hold it */
    bool placed; /* the scheduler has its engine */
    struct servemodel *next;
};

/* On any thread; long. */
zp_status servemodel_open(struct servemodel **out, const char *path, const zp_serve_options *o,
                          zp_err *err);
/* NULL is fine. */
void servemodel_close(struct servemodel *m);
/* Whether prompts and grammars of one hold for the other, too: the same tokens, the same
 * template. */
zp_status servemodel_check_alike(const struct servemodel *baseline, struct servemodel *candidate,
                                 zp_err *err);
/* "12/30" of a resolved mode. */
struct servemodel_share {
    char text[32];
};
const char *servemodel_zeroed(const struct servemodel *m, zp_mode mode,
                              struct servemodel_share *room);
/* A prompt of so many bytes has at least so many tokens. */
uint64_t servemodel_least_tokens(const struct servemodel *m, uint64_t n_bytes);

#endif
