/* servemodels.h: which models are served: loading, promotion, going. */
#ifndef SERVE_SERVEMODELS_H
#define SERVE_SERVEMODELS_H

#include "serve/service.h"

/* Loads a model beside those that are there; it takes the variant's place when it is. Fails while
 * another one is being loaded. actor: who decides. */
zp_status servemodels_load(zp_serve *s, enum variant v, const char *path, const char *actor,
                       zp_err *err);
/* The candidate becomes the baseline; ZP_BAD_INPUT without one, as below. */
zp_status servemodels_promote(zp_serve *s, const char *actor, const char *why, zp_err *err);
/* No candidate any more. cut: its streams go on at the baseline; else they end where they are. */
zp_status servemodels_unload(zp_serve *s, bool cut, const char *actor, const char *why,
                             zp_err *err);
/* A request or the scheduler holds a model no more. */
void servemodels_settle(zp_serve *s, struct servemodel *m);
void servemodels_released(zp_serve *s, const zp_engine *e);
void servemodels_close(zp_serve *s);

#endif
