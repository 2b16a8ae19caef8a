/* servetrace.h: traces of requests, sent to an OpenTelemetry collector in the background. */
#ifndef SERVE_SERVETRACE_H
#define SERVE_SERVETRACE_H

#include "obs/otlp.h"
#include "serve/servejob.h"

struct servetrace;
/* url: "http://host:4318", with a path of its own or without; ZP_USAGE for others. */
zp_status servetrace_open(struct servetrace **out, zp_serve *s, const char *url, zp_err *err);
/* Waits for what is being sent, a few seconds at most. NULL is fine, here and below. */
void servetrace_close(struct servetrace *t);
/* A request has come; its header `traceparent`, NULL: none. */
void servetrace_begin(struct servetrace *t, struct servejob *j, const char *header);
/* It has ended; error NULL: well. */
void servetrace_end(struct servetrace *t, const struct servejob *j, const struct sched_usage *u,
                    int status, const char *error);
/* Once a second: sends what waits. */
void servetrace_tick(struct servetrace *t);

/* Where to: for tests, too. */
struct servetrace_place {
    char host[256], port[8], path[512];
};
zp_status servetrace_read_url(const char *url, struct servetrace_place *out, zp_err *err);

#endif
