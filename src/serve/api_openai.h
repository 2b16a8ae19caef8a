/* api_openai.h: OpenAI's API for answers, as its clients and llama.cpp's know it: requests of
 * /v1/chat/completions and /v1/completions, and their answers, whole or as a stream of events.
 * No sockets: what is to be sent comes out by calls. */
#ifndef SERVE_API_OPENAI_H
#define SERVE_API_OPENAI_H

#include "serve/apianswer.h"

/* Give the request to apirequest_free in any case. */
zp_status openai_read_chat(struct api_request *r, const char *body, size_t size,
                           const struct api_limits *limits, struct apifault *fault);
zp_status openai_read_completions(struct api_request *r, const char *body, size_t size,
                                  const struct api_limits *limits, struct apifault *fault);

/* Appends the whole answer. */
zp_status openai_write_answer(const struct api_request *r, const struct api_answer *a,
                              const struct api_usage *usage, struct buffer *out, zp_err *err);

/* A stream: chunks as they come. Every call emits none or some whole events without a name; the
 * last one is "[DONE]". */
struct openai_stream {
    const struct api_request *r;
    struct api_identity who;
    struct api_emit emit;
    struct buffer chunk;
    struct openai_choice {
        bool begun;
        uint32_t n_calls;
        struct apilogprobs logprobs; /* of tokens that are not shown yet */
    } *choices; /* (n_choices) */
    uint32_t n_choices;
};
/* n_choices: of all prompts. */
zp_status openai_stream_open(struct openai_stream *s, const struct api_request *r,
                             const struct api_identity *who, uint32_t n_choices,
                             struct api_emit emit, zp_err *err);
void openai_stream_free(struct openai_stream *s); /* zeroed is fine */
/* Before a part that the tokens are shown in; as api_answer_token. */
zp_status openai_stream_token(struct openai_stream *s, uint32_t choice, const struct sched_token *t,
                              zp_err *err);
zp_status openai_stream_part(struct openai_stream *s, uint32_t choice, const struct api_part *part,
                             zp_err *err);
zp_status openai_stream_progress(struct openai_stream *s, const struct sched_progress *p,
                                 zp_err *err);
/* A choice has ended. */
zp_status openai_stream_finish(struct openai_stream *s, uint32_t choice, enum api_finish finish,
                               zp_err *err);
/* All have. */
zp_status openai_stream_end(struct openai_stream *s, const struct api_usage *usage, zp_err *err);
/* What went wrong, in place of all that would have come. */
zp_status openai_stream_fail(struct openai_stream *s, const struct apifault *fault, zp_err *err);

#endif
