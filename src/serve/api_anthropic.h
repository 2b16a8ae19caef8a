/* api_anthropic.h: Anthropic's API for answers: requests of /v1/messages and its count_tokens, and
 * their answers, whole or as a stream of events. No sockets: what is to be sent comes out by
 * calls. */
#ifndef SERVE_API_ANTHROPIC_H
#define SERVE_API_ANTHROPIC_H

#include "serve/apianswer.h"

/* Give the request to apirequest_free in any case. count_tokens takes the same fields. */
zp_status anthropic_read_messages(struct api_request *r, const char *body, size_t size,
                                  const struct api_limits *limits, struct apifault *fault);

/* Append the whole answer; the answer of count_tokens. */
zp_status anthropic_write_answer(const struct api_request *r, const struct api_answer *a,
                                 const struct api_usage *usage, struct buffer *out, zp_err *err);
zp_status anthropic_write_count(uint64_t n_tokens, struct buffer *out, zp_err *err);

/* A stream: message_start, blocks one after the other, message_delta, message_stop. Every call
 * emits none or some whole events, each with its name. */
struct anthropic_stream {
    const struct api_request *r;
    struct api_identity who;
    struct api_emit emit;
    struct buffer data;
    bool in_block;
    enum api_part_kind block; /* what the open one is: never PART_ARGUMENTS */
    uint32_t index;           /* of the open block, or of the next one */
    uint32_t n_calls;
};
void anthropic_stream_open(struct anthropic_stream *s, const struct api_request *r,
                           const struct api_identity *who, struct api_emit emit);
void anthropic_stream_free(struct anthropic_stream *s); /* zeroed is fine */
/* Once, first: what is known of the prompt. */
zp_status anthropic_stream_begin(struct anthropic_stream *s, const struct api_usage *usage,
                                 zp_err *err);
zp_status anthropic_stream_part(struct anthropic_stream *s, const struct api_part *part,
                                zp_err *err);
zp_status anthropic_stream_progress(struct anthropic_stream *s, const struct sched_progress *p,
                                    zp_err *err);
/* At any time, against clients that give up on silence. */
zp_status anthropic_stream_ping(struct anthropic_stream *s, zp_err *err);
/* stop: the stop string, of FINISH_STOP; NULL: not known. */
zp_status anthropic_stream_end(struct anthropic_stream *s, enum api_finish finish, const char *stop,
                               const struct api_usage *usage, zp_err *err);
/* What went wrong, in place of all that would have come. */
zp_status anthropic_stream_fail(struct anthropic_stream *s, const struct apifault *fault,
                                zp_err *err);

#endif
