/* httpreply.c: answers in HTTP/1.1 text (RFC 9112) and server-sent events.
 * R1 whatever a handler writes, lines of a head and of an event end where this file ends them. */
#include "httpreply.h"

#include <stdio.h>
#include <string.h>

static const char *reason_of(int status)
{
    static const struct {
        int status;
        const char *text;
    } reasons[] = {
        { 200, "OK" }, { 201, "Created" }, { 202, "Accepted" }, { 204, "No Content" },
        { 301, "Moved Permanently" }, { 302, "Found" }, { 303, "See Other" },
        { 304, "Not Modified" }, { 307, "Temporary Redirect" }, { 308, "Permanent Redirect" },
        { 400, "Bad Request" }, { 401, "Unauthorized" }, { 403, "Forbidden" },
        { 404, "Not Found" }, { 405, "Method Not Allowed" }, { 408, "Request Timeout" },
        { 409, "Conflict" }, { 411, "Length Required" }, { 413, "Content Too Large" },
        { 414, "URI Too Long" }, { 415, "Unsupported Media Type" },
        { 417, "Expectation Failed" }, { 422, "Unprocessable Content" },
        { 429, "Too Many Requests" }, { 431, "Request Header Fields Too Large" },
        { 500, "Internal Server Error" }, { 501, "Not Implemented" },
        { 503, "Service Unavailable" }, { 504, "Gateway Timeout" },
        { 505, "HTTP Version Not Supported" }, { 529, "Overloaded" },
    };
    for (size_t i = 0; i < ZP_COUNT(reasons); i++)
        if (reasons[i].status == status) return reasons[i].text;
    return "Status";
}

bool httpreply_is_bare(int status)
{
    return status == 204 || status == 304;
}

zp_status httpreply_header(struct buffer *out, const char *name, const char *value, zp_err *err)
{
    size_t begin = out->size;
    ZP_TRY(buffer_printf(out, err, "%s: %s", name, value));
    for (size_t i = begin; i < out->size; i++) // R1
        if (out->data[i] < 0x20 || out->data[i] == 0x7f) out->data[i] = '?';
    return buffer_append_text(out, "\r\n", err);
}

static zp_status add_framing(struct buffer *out, const struct httpreply_head *h, zp_err *err)
{
    if (h->body == HTTPREPLY_CHUNKED)
        ZP_TRY(buffer_append_text(out, "transfer-encoding: chunked\r\n", err));
    else if (h->body == HTTPREPLY_SIZED && !httpreply_is_bare(h->status))
        ZP_TRY(buffer_printf(out, err, "content-length: %zu\r\n", h->size));
    if (!h->keep_alive) return buffer_append_text(out, "connection: close\r\n", err);
    if (h->http10) return buffer_append_text(out, "connection: keep-alive\r\n", err);
    return ZP_OK;
}

zp_status httpreply_head(struct buffer *out, const struct httpreply_head *h, zp_err *err)
{
    ZP_TRY(buffer_printf(out, err, "HTTP/1.1 %d %s\r\ndate: %s\r\n", h->status,
                         reason_of(h->status), h->date));
    ZP_TRY(httpreply_header(out, "x-request-id", h->id, err));
    if (h->type != NULL) ZP_TRY(httpreply_header(out, "content-type", h->type, err));
    ZP_TRY(add_framing(out, h, err));
    if (h->events)
        ZP_TRY(buffer_append_text(out, "cache-control: no-store\r\nx-accel-buffering: no\r\n",
                                  err));
    if (h->origin == NULL) return ZP_OK;
    ZP_TRY(httpreply_header(out, "access-control-allow-origin", h->origin, err));
    return buffer_append_text(out, "vary: origin\r\naccess-control-expose-headers: *\r\n", err);
}

zp_status httpreply_chunk(struct buffer *out, const void *data, size_t size, zp_err *err)
{
    if (size == 0) return buffer_append_text(out, "0\r\n\r\n", err);
    ZP_TRY(buffer_printf(out, err, "%zx\r\n", size));
    ZP_TRY(buffer_append(out, data, size, err));
    return buffer_append(out, "\r\n", 2, err);
}

/* CR, LF and CR LF end lines of an event stream. */
static size_t line_size(const char *text, size_t size)
{
    size_t n = 0;
    while (n < size && text[n] != '\n' && text[n] != '\r') n++;
    return n;
}

zp_status httpreply_event(struct buffer *out, const char *event, const char *data, size_t size,
                          zp_err *err)
{
    if (event != NULL) {
        int first = (int)line_size(event, strlen(event)); // R1
        ZP_TRY(buffer_printf(out, err, "event: %.*s\n", first, event));
    }
    for (bool more = true; more;) {
        size_t n = line_size(data, size);
        ZP_TRY(buffer_append_text(out, "data: ", err));
        ZP_TRY(buffer_append(out, data, n, err));
        ZP_TRY(buffer_append(out, "\n", 1, err));
        more = n < size;
        if (!more) break;
        n += n + 1 < size && data[n] == '\r' && data[n + 1] == '\n' ? 2 : 1;
        data += n;
        size -= n;
    }
    return buffer_append(out, "\n", 1, err);
}

struct httpreply_date httpreply_date(time_t moment)
{
    static const char days[] = "SunMonTueWedThuFriSat";
    static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    struct httpreply_date out = { "" };
    struct tm t;
    if (gmtime_r(&moment, &t) == NULL) return out;
    (void)snprintf(out.text, sizeof out.text, "%.3s, %02d %.3s %04d %02d:%02d:%02d GMT",
                   days + 3 * t.tm_wday, t.tm_mday, months + 3 * t.tm_mon, t.tm_year + 1900,
                   t.tm_hour, t.tm_min, t.tm_sec);
    return out;
}
