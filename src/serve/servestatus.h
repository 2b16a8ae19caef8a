/* servestatus.h: the server in one document, for /admin/status and the dashboard; and the map of
 * its models' gates. docs/SERVER.md shows them. */
#ifndef SERVE_SERVESTATUS_H
#define SERVE_SERVESTATUS_H

#include "base/json_build.h"
#include "serve/service.h"

/* What everybody may know: /status. */
void servestatus_write_public(zp_serve *s, struct json_build *w);
void servestatus_write(zp_serve *s, struct json_build *w);
/* usage.architecture_details of an answer. */
struct sched_slot;
void servestatus_write_architecture(const struct servemodel *m, zp_mode mode,
                                    const struct sched_slot *slot, struct json_build *w);
void servestatus_write_gates(zp_serve *s, struct json_build *w);

#endif
