/* evloop.h: the event loop: descriptors to watch, timers, and a wake-up from other threads.
 * libuv's only face: nobody else includes uv.h, so that what is above is tested, fuzzed and read
 * without it, and owners need not know how libuv ends its handles. Objects end with x_close: from
 * then on their function is not called again, and their memory is the loop's to release.
 * Threads: everything on the loop's thread, except evwake_send. */
#ifndef SERVE_EVLOOP_H
#define SERVE_EVLOOP_H

#include <stdbool.h>
#include <stdint.h>
#include "base/status.h"

struct evloop;
zp_status evloop_open(struct evloop **out, zp_err *err);
/* Runs until evloop_stop is called by one of its functions, or nothing is left to wait for. */
void evloop_run(struct evloop *l);
void evloop_stop(struct evloop *l);
/* What is still open on it is closed, too. NULL is fine. */
void evloop_close(struct evloop *l);
uint64_t evloop_now(const struct evloop *l); /* milliseconds, monotonic, of this round of events */

struct evtimer;
zp_status evtimer_open(struct evtimer **out, struct evloop *l, void (*call)(void *arg), void *arg,
                       zp_err *err);
/* Once after `ms` (0: after what is happening now), then every repeat_ms unless that is 0. Anew
 * where it is running already. */
void evtimer_start(struct evtimer *t, uint64_t ms, uint64_t repeat_ms);
void evtimer_stop(struct evtimer *t);
bool evtimer_runs(const struct evtimer *t);
void evtimer_close(struct evtimer *t); /* NULL is fine */

/* What a descriptor can be watched for; EV_BROKEN is told, never asked for. */
enum { EV_READ = 1, EV_WRITE = 2, EV_HANGUP = 4, EV_BROKEN = 8 };
struct evpoll;
/* The descriptor stays the caller's, who closes it after evpoll_close; it becomes non-blocking. */
zp_status evpoll_open(struct evpoll **out, struct evloop *l, int fd,
                      void (*call)(void *arg, int events), void *arg, zp_err *err);
/* events: a sum of EV_*, 0: nothing. EV_HANGUP: the other side will send no more. */
zp_status evpoll_watch(struct evpoll *p, int events, zp_err *err);
void evpoll_close(struct evpoll *p); /* NULL is fine */

/* Calls of evwake_send, from any thread, lead to calls of the function on the loop's thread: at
 * least one after the last of them. Nobody may send once it is being closed. */
struct evwake;
zp_status evwake_open(struct evwake **out, struct evloop *l, void (*call)(void *arg), void *arg,
                      zp_err *err);
void evwake_send(struct evwake *w);
void evwake_close(struct evwake *w); /* NULL is fine */

#endif
