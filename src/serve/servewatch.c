/* servewatch.c: what systemd is told: ready, reloading, stopping, and that the server is alive.
 * The watchdog is not fed by a timer alone, which would run on in a server that computes nothing:
 * only while the scheduler makes steps, or has none to make. */
#include "serve/servewatch.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "serve/servestat.h"

#define LEAST_PERIOD 0.01

void servewatch_tell(zp_serve *s, enum notify_state state)
{
    static const char *const words[] = { [NOTIFY_READY] = "serving", [NOTIFY_STOPPING] = "draining",
                                         [NOTIFY_RELOADING] = "reloading" };
    zp_err err = { 0 };
    const char *text = state == NOTIFY_WATCHDOG ? NULL : words[state];
    if (notify_send(s->o.notify_socket, state, text, &err) == ZP_OK || s->notify_failed) return;
    s->notify_failed = true; /* one line is enough */
    LOGLINE(&s->log, LOG_WARN, "notify_failed", NULL, logline_text("error", err.message));
}

/* Seconds; 0: there is no watchdog. */
static double watchdog_seconds(const zp_serve *s)
{
    const char *text = s->o.watchdog_usec;
    char *end;
    if (text == NULL || *text == '\0') return 0;
    errno = 0;
    unsigned long long us = strtoull(text, &end, 10);
    return errno != 0 || *end != '\0' ? 0 : (double)us * 1e-6;
}

double servewatch_period(const zp_serve *s, double most)
{
    double seconds = watchdog_seconds(s) / 3;
    return seconds > 0 && seconds < most ? fmax(seconds, LEAST_PERIOD) : most;
}

void servewatch_tick(zp_serve *s, double now)
{
    double seconds = watchdog_seconds(s);
    /* A sixth: of ticks that come every third none is left out. */
    if (seconds <= 0 || now - s->fed < seconds / 6 || !servestat_is_alive(s)) return;
    s->fed = now;
    servewatch_tell(s, NOTIFY_WATCHDOG);
}
