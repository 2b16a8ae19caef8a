/* otlp.h: what requests did when, as batches of spans in OTLP's JSON, ready to be posted to a
 * collector's /v1/traces. Only bytes are made here; sending them is the caller's.
 *
 * A request is a span of its own (kind server) and one for each phase it reached: accept, queue,
 * prefill, decode, stream. One thread. */
#ifndef OBS_OTLP_H
#define OBS_OTLP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/bytes.h"
#include "base/rng.h"
#include "traceparent.h"

struct otlp_options {
    const char *version;  /* of the program */
    const char *instance; /* which of several; NULL: not told */
    size_t most_bytes;    /* of spans that wait to be taken; default 1 MiB */
    uint64_t seed;        /* of span ids: from the system's random source */
};

struct otlp {
    char *resource, *scope;
    struct buffer spans; /* those that wait, commas between them */
    struct rng random;
    int64_t unix_zero;  /* nanoseconds since 1970 when os_now() was 0 */
    size_t n_waiting;   /* spans */
    uint64_t n_dropped; /* for want of room or memory */
};

zp_status otlp_open(struct otlp *o, const struct otlp_options *options, zp_err *err);
void otlp_free(struct otlp *o);
/* What os_now() and os_unix_now() are at one moment; to be told again now and then. Until then
 * times begin in 1970. */
void otlp_set_clock(struct otlp *o, double now, int64_t unix_ns);

/* Moments are of os_now(), 0: not reached. Texts may be NULL. */
struct otlp_request {
    struct traceparent trace; /* of the request's own span */
    const uint8_t *parent;    /* (8): span of the caller; NULL: none */
    const char *method, *route, *operation; /* "POST", "/v1/chat/completions", "chat" */
    const char *request_id, *model, *variant, *mode;
    const char *error; /* why it failed; NULL: it did not */
    int status;        /* of HTTP */
    uint64_t n_prompt, n_reused, n_generated;
    double arrived, accepted, begun, first_token, last_token;
    double stream; /* the first byte of the answer was written */
    double ended;
};
/* Never fails: what has no room is dropped and counted, all spans of a request or none. Not sampled
 * requests are left out. */
void otlp_add(struct otlp *o, const struct otlp_request *r);

/* Appends a document with all spans that wait, and how many they are; they wait no longer. Nothing,
 * and 0, if there are none. On failure they still wait. */
zp_status otlp_take(struct otlp *o, struct buffer *out, size_t *n_spans, zp_err *err);

#endif
