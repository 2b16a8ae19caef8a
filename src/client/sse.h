/* sse.h: a stream of server-sent events (text/event-stream of the HTML standard), read in pieces of
 * any size. What comes before an event is whole, comments included, has a most size. */
#ifndef CLIENT_SSE_H
#define CLIENT_SSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/bytes.h"

enum { SSE_NAME = 64 };

/* name: "message" unless the event has one, cut at SSE_NAME - 1 bytes. data: NUL-terminated, lines
 * with \n between them. What it returns ends sse_push, unless it is ZP_OK. */
typedef zp_status sse_event(void *arg, const char *name, const char *data, size_t size,
                            zp_err *err);

struct sse {
    struct buffer line, data;
    char name[SSE_NAME];
    bool has_data;
    bool after_cr;    /* a \n that comes now belongs to the \r before it */
    bool begun;       /* a line was read: no byte order mark may come any more */
    uint64_t n_lines; /* whole ones, with the empty ones and comments */
    size_t n_idle;    /* bytes since the last event */
    sse_event *event;
    void *arg;
};

struct sse sse_with_most(size_t most, sse_event *event, void *arg);
zp_status sse_push(struct sse *s, const void *bytes, size_t size, zp_err *err);
void sse_free(struct sse *s);

#endif
