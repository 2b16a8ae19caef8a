/* apianswer.h: answers before they have the shape of an API: parts as they come, usage, timings,
 * and whole answers collected from them. */
#ifndef SERVE_APIANSWER_H
#define SERVE_APIANSWER_H

#include "serve/apilogprobs.h"
#include "serve/apirequest.h"

/* What all parts of an answer bear. Texts are the caller's and must outlive it. */
struct api_identity {
    const char *id; /* with its prefix: api_make_id */
    /* Unique among all requests: ids of calls are made from it, and clients look up calls by id. */
    const char *seed;
    int64_t created; /* seconds since 1970 */
    const char *model, *fingerprint;
};
/* Prefix and 24 hexadecimal digits: a function of the seed and n. */
struct api_id {
    char text[48];
};
const char *api_make_id(struct api_id *room, const char *prefix, const char *seed, uint64_t n);
/* Of call number `call` of a choice. */
const char *api_call_id(struct api_id *room, const char *prefix, const struct api_identity *who,
                        uint32_t choice, uint32_t call);

/* A piece of an answer. */
enum api_part_kind {
    PART_CONTENT,
    PART_REASONING,
    PART_CALL,      /* a call begins: text is its name */
    PART_ARGUMENTS, /* of that call: JSON text, maybe none */
};
struct api_part {
    enum api_part_kind kind;
    const char *text;
    size_t size;
};

/* Where the events of streams go; event: its name, NULL: none. Good during the call. */
struct api_emit {
    void (*call)(void *arg, const char *event, const char *data, size_t size);
    void *arg;
};

enum api_finish { FINISH_NONE, FINISH_END, FINISH_STOP, FINISH_LENGTH };
enum api_finish api_finish_of(const char *reason); /* the scheduler's */

struct api_usage {
    uint64_t n_prompt, n_cached, n_answer; /* tokens; cached: of the prompt, not computed anew */
    uint32_t layer_zeroed;                 /* layers that ran without positions */
    const char *architecture;              /* JSON; NULL: not asked for */
    uint64_t n_truncated; /* tokens left out of the prompt, as asked for */
    uint64_t n_anchors;   /* taken out of the prompt, as asked for */
    bool anchors_ignored; /* the model has no position gate that they could set */
    bool approximate;     /* by truncation or pages that moved: not the bits of the whole prompt */
    bool moved;           /* begun by the candidate, ended by the baseline */
    double prompt_seconds, answer_seconds;
};
/* One job's, added: a request has one for each prompt. */
void api_usage_add(struct api_usage *u, const struct sched_usage *job);
/* The members behind those of an API. */
void api_usage_write(const struct api_usage *u, struct json_build *w);
/* "timings", in llama.cpp's names. */
void api_timings_write(const struct api_usage *u, struct json_build *w);
/* "prompt_progress", likewise. */
void api_progress_write(const struct sched_progress *p, struct json_build *w);

/* ---- whole answers --------------------------------------------------------------------------- */

struct api_call {
    struct buffer name, arguments;
    size_t at; /* bytes of the content before it */
};
struct api_choice {
    struct buffer content, reasoning;
    struct api_call *calls; /* (n_calls) */
    uint32_t n_calls, calls_room;
    struct apilogprobs logprobs;
    enum api_finish finish;
    const char *stop; /* the stop string, of FINISH_STOP; NULL: not known */
};
struct api_answer {
    struct api_identity who;
    struct api_choice *choices; /* (n_choices) */
    uint32_t n_choices;
};
/* n_choices: of all prompts. */
zp_status api_answer_open(struct api_answer *a, const struct api_request *r,
                          const struct api_identity *who, uint32_t n_choices, zp_err *err);
void api_answer_free(struct api_answer *a); /* zeroed is fine */
zp_status api_answer_part(struct api_answer *a, uint32_t choice, const struct api_part *part,
                          zp_err *err);
/* A token of the answer, or of the prompt that it echoes. */
zp_status api_answer_token(struct api_answer *a, uint32_t choice, const struct sched_token *token,
                           zp_err *err);

#endif
