/* chatstream.h: the answer of a chat server (OpenAI's chat.completion.chunk in server-sent events),
 * from bytes to text. */
#ifndef CLIENT_CHATSTREAM_H
#define CLIENT_CHATSTREAM_H

#include "sse.h"

enum { CHATSTREAM_MOST_EVENT = 1 << 20, CHATSTREAM_REASON = 32 };

struct chatstream {
    struct sse sse;
    struct buffer text;
    bool (*on_text)(void *arg, const char *text, size_t size);
    void *arg;
    char reason[CHATSTREAM_REASON]; /* "": no choice has ended */
    bool done;                      /* "[DONE]" came: what follows is not looked at */
    bool has_usage;
    uint64_t n_prompt, n_reused, n_generated;
};

/* Does not move while it is used. */
void chatstream_open(struct chatstream *s, size_t most_text,
                     bool (*on_text)(void *arg, const char *text, size_t size), void *arg);
/* ZP_RUN where it is no such answer, or an error of the server in its words; ZP_INTERRUPTED where
 * on_text wants no more. */
zp_status chatstream_push(struct chatstream *s, const void *bytes, size_t size, zp_err *err);
/* Whether the answer is whole. */
zp_status chatstream_finish(const struct chatstream *s, zp_err *err);
void chatstream_free(struct chatstream *s);

#endif
