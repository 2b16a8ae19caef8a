/* apifault.h: what went wrong with a request, in the words and shapes that clients of the two APIs
 * know: OpenAI's {"error": {...}} and Anthropic's {"type": "error", ...}, whole or in a stream. */
#ifndef SERVE_APIFAULT_H
#define SERVE_APIFAULT_H

#include <jansson.h>
#include "base/bytes.h"
#include "serve/scheduler.h"

enum api { API_OPENAI, API_ANTHROPIC };

enum { APIFAULT_PARAM = 128, APIFAULT_MESSAGE = 768 };

/* Zero is: nothing went wrong. */
struct apifault {
    int status;       /* of HTTP, as OpenAI's clients know it */
    const char *code; /* "context_length_exceeded"; static text, NULL: none */
    char param[APIFAULT_PARAM]; /* the field: "messages[2].content"; "": none */
    char message[APIFAULT_MESSAGE];
    uint64_t n_prompt, n_ctx; /* tokens, of a prompt that is too long; n_ctx 0: it is not that */
    double retry_seconds;     /* until it may be tried again; 0: not known */
};

/* Records what went wrong, unless something has before. Never ZP_OK, so that it can be returned. */
zp_status apifault_set(struct apifault *f, int status, const char *code, const char *param,
                       const char *fmt, ...) ZP_PRINTF(5, 6);
zp_status apifault_no_memory(struct apifault *f);
/* 400: 'PARAM': expected ..., found VALUE. value NULL: it is missing. */
zp_status apifault_expected(struct apifault *f, const char *param, const json_t *value,
                            const char *fmt, ...) ZP_PRINTF(4, 5);
/* 400: 'PARAM': ... is not supported. */
zp_status apifault_unsupported(struct apifault *f, const char *param, const char *fmt, ...)
    ZP_PRINTF(3, 4);

/* The client's fault (400) with the text of the record, or the server's, whose text is for the log
 * alone. */
zp_status apifault_of_err(struct apifault *f, const char *param, const zp_err *err);
/* A template that refuses: 400 with its own words. */
zp_status apifault_of_template(struct apifault *f, const zp_err *err);
/* A job that was refused, has failed, or was cancelled. param: what its prompt came from. */
zp_status apifault_of_job(struct apifault *f, const char *param, const struct sched_event *e);

/* The status to answer with: Anthropic has 529 for a server that is too busy. */
int apifault_status(const struct apifault *f, enum api api);
/* Seconds for the header retry-after, 0: none. */
uint32_t apifault_retry_after(const struct apifault *f);
/* Appends the body. request_id: NULL in streams, where Anthropic has none. */
zp_status apifault_write(const struct apifault *f, enum api api, const char *request_id,
                         struct buffer *out, zp_err *err);

#endif
