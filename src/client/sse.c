/* sse.c: lines, fields, events.
 * S1 the events do not depend on how the stream was cut into pieces.
 * S2 line and data hold at most `most` bytes: that many may come between two events. */
#include "sse.h"

#include <string.h>

struct sse sse_with_most(size_t most, sse_event *event, void *arg)
{
    return (struct sse){ .line = buffer_with_max(MEM_META, most),
                         .data = buffer_with_max(MEM_META, most),
                         .event = event,
                         .arg = arg };
}

void sse_free(struct sse *s)
{
    buffer_free(&s->line);
    buffer_free(&s->data);
}

static zp_status end_event(struct sse *s, zp_err *err)
{
    zp_status status = ZP_OK;
    if (s->has_data && s->data.size > 0) {
        s->n_idle = 0;
        status = s->event(s->arg, s->name[0] != '\0' ? s->name : "message",
                          (const char *)s->data.data, s->data.size, err);
    }
    s->has_data = false;
    s->name[0] = '\0';
    buffer_clear(&s->data);
    return status;
}

static zp_status take_field(struct sse *s, const char *field, size_t n_field, const char *value,
                            size_t size, zp_err *err)
{
    if (n_field == 4 && memcmp(field, "data", 4) == 0) {
        if (s->has_data) ZP_TRY(buffer_append(&s->data, "\n", 1, err));
        s->has_data = true;
        return buffer_append(&s->data, value, size, err);
    }
    if (n_field == 5 && memcmp(field, "event", 5) == 0) {
        size_t n = size < SSE_NAME - 1 ? size : SSE_NAME - 1;
        memcpy(s->name, value, n);
        s->name[n] = '\0';
    }
    return ZP_OK; /* id, retry, and what nobody knows */
}

static zp_status end_line(struct sse *s, zp_err *err)
{
    const char *line = s->line.size > 0 ? (const char *)s->line.data : "";
    size_t size = s->line.size;
    if (!s->begun && size >= 3 && memcmp(line, "\xEF\xBB\xBF", 3) == 0) line += 3, size -= 3;
    s->begun = true;
    s->n_lines++;
    zp_status status = ZP_OK;
    if (size == 0) {
        status = end_event(s, err);
    } else if (line[0] != ':') {
        const char *colon = memchr(line, ':', size);
        size_t n = colon != NULL ? (size_t)(colon - line) : size;
        size_t at = colon != NULL ? n + 1 : n;
        at += at < size && line[at] == ' ';
        status = take_field(s, line, n, line + at, size - at, err);
    }
    buffer_clear(&s->line);
    return status;
}

zp_status sse_push(struct sse *s, const void *bytes, size_t size, zp_err *err)
{
    const char *at = bytes, *end = at + size;
    while (at < end) {
        if (s->after_cr && *at == '\n') {
            s->after_cr = false;
            at++;
            continue;
        }
        s->after_cr = false;
        const char *stop = at;
        while (stop < end && *stop != '\n' && *stop != '\r') stop++;
        s->n_idle += (size_t)(stop - at) + (stop < end);
        ZP_FAIL_IF(s->n_idle > s->line.max, err, ZP_RUN,
                   "the server sends more than %zu bytes without a whole event", s->line.max); // S2
        ZP_TRY(buffer_append(&s->line, at, (size_t)(stop - at), err));
        if (stop == end) break;
        s->after_cr = *stop == '\r';
        at = stop + 1;
        ZP_TRY(end_line(s, err));
    }
    return ZP_OK;
}
