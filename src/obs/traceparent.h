/* traceparent.h: the header that carries a trace from one service to the next (W3C Trace
 * Context, level 1): "00-" trace id "-" span id "-" flags, in lower-case hex. */
#ifndef OBS_TRACEPARENT_H
#define OBS_TRACEPARENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/rng.h"

struct traceparent {
    uint8_t trace[16], span[8]; /* neither all zero */
    bool sampled;               /* the caller records it */
};

enum { TRACEPARENT_ROOM = 56 };

/* False, and *out untouched, for what is not a traceparent; NULL is none. Headers of later versions
 * count by their first four fields. */
bool traceparent_read(const char *header, struct traceparent *out);
void traceparent_write(const struct traceparent *t, char out[TRACEPARENT_ROOM]);

/* 2 n digits, without a NUL. */
void traceparent_hex(const uint8_t *bytes, size_t n, char *out);

/* A new trace. share: of the traces that are recorded, decided by the id, so that all services that
 * use the same share agree. */
struct traceparent traceparent_new(struct rng *random, double share);
/* A new span of the same trace, with what its parent decided. */
struct traceparent traceparent_child(const struct traceparent *parent, struct rng *random);

#endif
