/* apilogprobs.h: log-probabilities of tokens, put into the two shapes of OpenAI's API as they come:
 * a list of objects (chat), or lists side by side (completions). */
#ifndef SERVE_APILOGPROBS_H
#define SERVE_APILOGPROBS_H

#include "base/json_build.h"
#include "serve/scheduler.h"

struct apilogprobs {
    bool chat;
    size_t n;              /* tokens */
    uint64_t offset;       /* characters of all tokens so far */
    struct buffer tokens;  /* chat: the objects */
    struct buffer values, top, offsets; /* completions alone */
};
struct apilogprobs apilogprobs_open(bool chat);
void apilogprobs_free(struct apilogprobs *l);
/* has_logprob false: the first token of a prompt, which has none. */
zp_status apilogprobs_add(struct apilogprobs *l, const struct sched_token *t, zp_err *err);
/* "logprobs": what was added since apilogprobs_clear, null without any. */
void apilogprobs_write(const struct apilogprobs *l, struct json_build *w);
void apilogprobs_clear(struct apilogprobs *l);

#endif
