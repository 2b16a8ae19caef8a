/* apireply.h: the answer to a request, from the scheduler's events to the bytes that go out, of
 * either API, whole or as a stream.
 *
 * The life of a request:
 *  1 Its body becomes a struct api_request: openai_read_chat and openai_read_completions of
 *    api_openai.h, anthropic_read_messages of api_anthropic.h. What is wrong is a struct apifault,
 *    here and in all that follows: apifault_status, apifault_retry_after and apifault_write make
 *    the reply of it. (Requests that draw nothing are api_plain.h's.)
 *  2 The prompt as ids (apiprompt.h): apiprompt_open_chat, or apiprompt_open_text for each of
 *    r.prompts, which are jobs of their own. /apply-template and count_tokens end here.
 *  3 The form of the answer: apiprompt_open_grammar, of a schema, or of a call that must come.
 *  4 The job: r.job, to which the service adds slot, prompt, salt, arrived, arg, the deadline of
 *    r.timeout, the grammar, and seed and mode where the request names none. sched_submit copies
 *    it. Stop strings, sampling, log-probabilities and limits are in it.
 *  5 Events: apireply_open, then apireply_event for each event of its jobs, until the state it
 *    returns ends it.
 *  6 Bytes: streams come out of `emit` on the way, apireply_finish gives their end, or the body of
 *    a whole answer; apireply_fail the error.
 * What the options point to outlives the reply. All of it is plain data of one thread; nothing
 * waits. */
#ifndef SERVE_APIREPLY_H
#define SERVE_APIREPLY_H

#include "serve/api_anthropic.h"
#include "serve/api_openai.h"
#include "serve/toolform.h"

/* A prompt as r->echo shows it. The scheduler tells of all its tokens but the first. */
struct apireply_echo {
    const char *text;
    size_t size;
    /* its logprob is not read; bytes NULL: it is none of the client's */
    struct sched_logprob first;
};

struct apireply_options {
    const struct api_request *r;
    struct api_identity who;          /* ids begin with "chatcmpl-", "cmpl-", "msg_" */
    struct api_emit emit;             /* of streams */
    enum toolcalls_style style;       /* toolcalls_style_of the template */
    bool in_reasoning;                /* toolcalls_opens_reasoning of the rendered prompt */
    const struct toolform *form;      /* of a call that must come; NULL: none */
    const struct apireply_echo *echo; /* (n_prompts) with r->echo; NULL: none */
    struct api_usage start;           /* what is known of the prompt before it is computed */
};

enum apireply_state {
    REPLY_RUNS,
    REPLY_FULL,  /* nothing will be shown any more: cancel its jobs, and go on with their events */
    REPLY_ENDED, /* all jobs have. Set what only the service knows in `usage`, then
                  * apireply_finish */
    REPLY_FAILED /* `fault` says why, `err` to the log. Cancel the jobs; their events are ignored.
                  * apireply_fail */
};

struct apireply {
    struct apireply_options o;
    enum apireply_state state;
    bool begun;             /* something of a stream came out: its status has been sent */
    struct api_usage usage; /* counts of the jobs that have ended */
    struct apifault fault;
    zp_err err;
    struct apireply_choice {
        struct apireply *reply;
        struct toolcalls split;
        bool begun, echoed; /* the echo: its first token, all of it */
        bool over;
        enum api_finish finish;
        const char *stop;
    } *choices; /* (n_jobs, r->job.n_choices) */
    bool full; /* a choice was over before its end */
    uint32_t n_jobs, n_choices, n_over, n_ended; /* choices; of them over; jobs that have ended */
    struct api_answer whole;
    struct openai_stream openai;
    struct anthropic_stream anthropic;
};

/* Must not be moved. Give it to apireply_free in any case. */
zp_status apireply_open(struct apireply *a, const struct apireply_options *o, zp_err *err);
void apireply_free(struct apireply *a); /* zeroed is fine */
/* job: number of the prompt, 0 of chats. */
enum apireply_state apireply_event(struct apireply *a, uint32_t job, const struct sched_event *e);
/* Against clients that give up on silence, beside the comments of event streams. */
zp_status apireply_ping(struct apireply *a, zp_err *err);
/* The end of a stream; or the body, appended to *out, which streams do not need. */
zp_status apireply_finish(struct apireply *a, struct buffer *out, zp_err *err);
/* In a stream that has begun: `fault` as an event. Else nothing: reply with its status and
 * apifault_write. */
zp_status apireply_fail(struct apireply *a, zp_err *err);

#endif
