/* servewatch.h: what the service manager is told (systemd). */
#ifndef SERVE_SERVEWATCH_H
#define SERVE_SERVEWATCH_H

#include "serve/service.h"

void servewatch_tell(zp_serve *s, enum notify_state state);
/* Once a second: the watchdog is fed while steps are made, or none are due. */
void servewatch_tick(zp_serve *s, double now);

#endif
