/* servewatch.h: what the service manager is told (systemd). */
#ifndef SERVE_SERVEWATCH_H
#define SERVE_SERVEWATCH_H

#include "serve/service.h"

void servewatch_tell(zp_serve *s, enum notify_state state);
/* Seconds between ticks that keep the watchdog content; most: without one. */
double servewatch_period(const zp_serve *s, double most);
/* Once a period: the watchdog is fed while steps are made, or none are due. */
void servewatch_tick(zp_serve *s, double now);

#endif
