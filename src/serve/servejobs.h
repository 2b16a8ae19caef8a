/* servejobs.h: requests for answers: the table of those under way. */
#ifndef SERVE_SERVEJOBS_H
#define SERVE_SERVEJOBS_H

#include "serve/service.h"

void servejobs_begin(const struct servecall *c, enum serve_endpoint endpoint);
/* Of one that never came into the table. */
void servejob_count_refusal(zp_serve *s, enum serve_endpoint endpoint, const struct apifault *f);
void servejobs_take(const struct sched_event *e);
/* Once a second. */
void servejobs_tick(zp_serve *s, double now);
/* Streams of the candidate that must leave it do so. */
void servejobs_move_cut(zp_serve *s);
/* Those that are left when scheduler and connections are gone. */
void servejobs_close(zp_serve *s);
/* Cancels the requests of that id, which clients choose; returns how many there were. */
uint32_t servejobs_cancel(zp_serve *s, const char *id);
/* A list of those under way. */
void servejobs_write(const zp_serve *s, const char *key, struct json_build *w);

#endif
