/* servejob.h: one request for an answer, from its body to its last byte: what the parts of it
 * share. The life of a request: apireply.h. */
#ifndef SERVE_SERVEJOB_H
#define SERVE_SERVEJOB_H

#include "model/model.h"
#include "obs/traceparent.h"
#include "serve/api_plain.h"
#include "serve/apiprompt.h"
#include "serve/service.h"

enum { SERVE_ID_ROOM = 129 };

/* A job of the scheduler: a prompt with all its choices; or, once the request has moved, the rest
 * of one choice. */
struct serverun {
    struct servejob *job;
    uint32_t prompt, choice; /* choice: of a rest */
    bool rest;
    bool live;      /* its last event is still to come */
    bool abandoned; /* what it tells does not count any more */
    uint64_t id;
    struct serverun *next;
};

/* A choice of a prompt, as far as it was told. */
struct servechoice {
    int32_t *ids; /* (n) of the candidate's: what the baseline goes on from */
    size_t n, room;
    double last; /* its last token */
    bool over;
};

struct serveprompt {
    struct apiprompt p;
    struct sched_usage usage; /* of its runs that have ended */
    uint32_t n_runs;          /* that count, and have not ended */
    uint32_t n_rows;          /* tokens of it that were told (log-probabilities) */
    size_t n_before;          /* tokens drawn before it moved */
    bool submitted, ended;
};

struct servejob {
    zp_serve *s;
    struct http_exchange *x; /* NULL: it was ended */
    struct servejob *next, *before;
    struct servetask task; /* its reading */
    bool reading;
    enum serve_endpoint endpoint;
    char *body;
    size_t body_size;
    struct api_limits limits;
    struct api_request r;
    struct plain_request plain; /* of embeddings: what r does not have */
    struct apifault fault;
    struct servemodel *reads; /* the baseline when it came: its prompts are of this one */
    struct servemodel *runs_on;
    struct serveprompt *prompts; /* (n_prompts) */
    struct apireply_echo *echo;
    uint32_t n_prompts, n_submitted; /* all before were submitted */
    struct servechoice *choices; /* (n_prompts, n_choices) */
    float *vectors;              /* (n_prompts, d_model) of embeddings */
    uint32_t n_vectors;          /* that are there */
    bool listed; /* embeddings as llama.cpp's list */
    zp_grammar *grammar; /* of reads' vocabulary, which is the candidate's, too */
    struct serverun *runs;
    uint32_t n_live;
    struct rollout_ticket ticket;
    bool has_ticket;
    struct apireply reply;
    bool has_reply;
    struct api_id id;
    char request_id[SERVE_ID_ROOM], seed[64];
    struct servekey *key; /* NULL: none is needed */
    uint64_t salt;
    enum variant first_variant; /* that it was accepted for */
    zp_mode mode;               /* resolved; known with `accepted` */
    bool accepted, booked;      /* it counts as such; its end was counted */
    bool gone;                  /* nobody waits for the answer */
    bool moved, stays;          /* from the candidate to the baseline; it cannot */
    bool begun;                 /* a stream has */
    struct traceparent trace; /* its own span, where there is a collector */
    uint8_t parent[8];        /* span of the caller */
    bool has_parent;
    double accepted_at;
    bool wants_architecture;
    struct buffer architecture; /* JSON, once it is told */
    uint64_t n_truncated; /* tokens left out of the prompt, as asked for */
    uint64_t n_drawn; /* tokens that were told */
    double arrived, first, last, deadline; /* first, last: tokens; 0: none yet */
};

static inline enum api servejob_api(const struct servejob *j)
{
    return j->endpoint == SERVE_MESSAGES ? API_ANTHROPIC : API_OPENAI;
}

/* The field its prompts came from. */
static inline const char *servejob_param(const struct servejob *j)
{
    static const char *const names[] = { "messages", "prompt", "messages", "input" };
    return names[j->endpoint];
}

/* Marks of positions in its prompts. */
static inline uint64_t servejob_anchors(const struct servejob *j)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < j->n_prompts; i++) n += j->prompts[i].p.anchors.n_marks;
    return n;
}

/* servejob.c */
void servejob_fail(struct servejob *j); /* its fault as the whole answer */
/* Frees it when nothing of it is under way any more. */
void servejob_settle(struct servejob *j);

/* servejob_read.c: body -> prompts and form; on any thread. j->fault tells what is wrong. */
void servejob_read(struct servejob *j);
zp_status servejob_read_body(struct servejob *j);
zp_status servejob_too_long(struct servejob *j, uint64_t n, bool at_least);
/* servejob_truncate.c: the chat's prompt, without its oldest messages where they do not fit. */
zp_status servejob_open_truncated(struct servejob *j);

/* servejob_embed.c: texts in, vectors out. */
zp_status servejob_read_inputs(struct servejob *j);
zp_status servejob_open_vectors(struct servejob *j);
/* Whether the model is still the one its vectors are of. */
zp_status servejob_check_space(struct servejob *j);
void servejob_keep_vector(struct servejob *j, uint32_t prompt, const float *vector);
/* What an event of a prompt, or its end, makes of the answer. */
enum apireply_state servejob_embed_event(struct servejob *j, const struct sched_event *e);
zp_status servejob_write_vectors(const struct servejob *j, struct buffer *out, zp_err *err);

/* servejob_run.c: what is computed for it. */
void servejob_launch(struct servejob *j);
/* Where the scheduler had no room for all its prompts: it may have now. */
void servejob_go_on(struct servejob *j);
/* Its jobs end within a step; their last events are still to come. */
void servejob_cancel(struct servejob *j);
bool servejob_may_move(const struct servejob *j);
/* From the candidate to the baseline, from where it is. failed: the event that says why; NULL: the
 * breaker does. */
void servejob_move(struct servejob *j, const struct sched_event *failed);

/* servejob_reply.c: what the client gets. */
zp_status servejob_open_reply(struct servejob *j);
void servejob_begin_stream(struct servejob *j);
/* The answer is whole, or j->reply.fault says why it will not be. */
void servejob_finish_reply(struct servejob *j);
void servejob_fail_reply(struct servejob *j);

/* servejob_book.c: how it counts. */
void servejob_accepted(struct servejob *j);
void servejob_token(struct servejob *j, struct servechoice *c);
/* Before it was accepted: j->fault says why. */
void servejob_refused(struct servejob *j);
/* Once; last: the event that ended it, NULL: none did. */
enum servejob_outcome { SERVEJOB_COMPLETED, SERVEJOB_CANCELLED, SERVEJOB_FAILED };
void servejob_book(struct servejob *j, enum servejob_outcome o, const struct sched_event *last);
enum outcome_end servejob_end_of(const struct sched_event *last);
/* The candidate's part of it, which goes on elsewhere. */
void servejob_book_move(struct servejob *j, const struct sched_event *failed);

#endif
