/* httphead.c: a strict grammar of heads in front of llhttp, which is lenient about single bytes:
 * what two readers of one request could split at different places is refused here.
 * H1 lines end in CR LF, and CR and LF stand nowhere else.  H2 a header's name is a token directly
 * followed by ":".  H3 no line begins with a blank.  H4 of control bytes only tabs in values.
 * H5 no byte beyond header_bytes, no target beyond uri_bytes, no header beyond n_headers. */
#include "httphead.h"

#include <string.h>

#define METHOD_MOST 32

enum state {
    START,
    START_LF, /* behind the CR of an empty line before the request */
    METHOD,
    TARGET,
    VERSION,
    LINE_LF,
    LINE, /* the first byte of a header line, or the CR of the empty one */
    NAME,
    VALUE,
    END_LF,
};

bool httphead_is_token_char(uint8_t c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c != 0 && strchr("!#$%&'*+-.^_`|~", c) != NULL);
}

static bool is_control(uint8_t c)
{
    return c < 0x20 || c == 0x7f;
}

static bool is_blank(uint8_t c)
{
    return c == ' ' || c == '\t';
}

/* A byte that may not stand where it does. */
static enum http_fault misplaced(uint8_t c, enum http_fault otherwise)
{
    if (c == '\r' || c == '\n') return HTTP_FAULT_LINE_END; // H1
    return is_control(c) ? HTTP_FAULT_CONTROL : otherwise;  // H4
}

static enum http_fault take_start(struct httphead *h, uint8_t c)
{
    if (c == '\r' && !h->blank_line) {
        h->blank_line = true;
        h->state = START_LF;
        return HTTP_FAULT_NONE;
    }
    if (!httphead_is_token_char(c)) return misplaced(c, HTTP_FAULT_REQUEST_LINE);
    h->method_at = h->size;
    h->method_size = 1;
    h->state = METHOD;
    return HTTP_FAULT_NONE;
}

static enum http_fault take_method(struct httphead *h, uint8_t c)
{
    if (c == ' ') {
        h->target_at = h->size + 1;
        h->state = TARGET;
        return HTTP_FAULT_NONE;
    }
    bool fits = httphead_is_token_char(c) && ++h->method_size <= METHOD_MOST;
    return fits ? HTTP_FAULT_NONE : misplaced(c, HTTP_FAULT_REQUEST_LINE);
}

static enum http_fault take_target(struct httphead *h, uint8_t c, size_t most)
{
    if (c == ' ') {
        if (h->target_size == 0) return HTTP_FAULT_REQUEST_LINE;
        h->state = VERSION;
        return HTTP_FAULT_NONE;
    }
    if (c == '\r' || c == '\n') return HTTP_FAULT_REQUEST_LINE; /* HTTP/0.9 */
    if (is_control(c)) return HTTP_FAULT_CONTROL;
    if (c >= 0x80 || c == '#') return HTTP_FAULT_TARGET;
    return ++h->target_size > most ? HTTP_FAULT_URI_SIZE : HTTP_FAULT_NONE; // H5
}

/* "HTTP/", a digit, ".", a digit, CR. */
static enum http_fault take_version(struct httphead *h, uint8_t c)
{
    static const char form[] = "HTTP/0.0\r";
    char wanted = form[h->version_at];
    bool digit = c >= '0' && c <= '9';
    if (wanted == '0' ? !digit : c != (uint8_t)wanted) return HTTP_FAULT_REQUEST_LINE;
    if (wanted != '\r') {
        h->version[h->version_at++] = (char)c;
        return HTTP_FAULT_NONE;
    }
    h->state = LINE_LF;
    bool known = strcmp(h->version, "HTTP/1.1") == 0 || strcmp(h->version, "HTTP/1.0") == 0;
    return known ? HTTP_FAULT_NONE : HTTP_FAULT_VERSION;
}

static enum http_fault take_line(struct httphead *h, uint8_t c, size_t most)
{
    if (c == '\r') {
        h->state = END_LF;
        return HTTP_FAULT_NONE;
    }
    if (is_blank(c)) return HTTP_FAULT_HEADER_FOLD; // H3
    if (!httphead_is_token_char(c)) return misplaced(c, HTTP_FAULT_HEADER_NAME);
    h->state = NAME;
    return ++h->n_headers > most ? HTTP_FAULT_HEADER_COUNT : HTTP_FAULT_NONE; // H5
}

static enum http_fault take_name(struct httphead *h, uint8_t c)
{
    if (httphead_is_token_char(c)) return HTTP_FAULT_NONE;
    if (is_blank(c)) return HTTP_FAULT_HEADER_SPACE; // H2
    if (c != ':') return is_control(c) && c != '\r' && c != '\n' ? HTTP_FAULT_CONTROL
                                                                 : HTTP_FAULT_HEADER_NAME;
    h->state = VALUE;
    return HTTP_FAULT_NONE;
}

static enum http_fault take_value(struct httphead *h, uint8_t c)
{
    if (c == '\r') h->state = LINE_LF;
    else if (is_control(c) && c != '\t') return misplaced(c, HTTP_FAULT_CONTROL);
    return HTTP_FAULT_NONE;
}

static enum http_fault take_lf(struct httphead *h, uint8_t c, enum state next)
{
    h->state = (uint8_t)next;
    return c == '\n' ? HTTP_FAULT_NONE : HTTP_FAULT_LINE_END; // H1
}

static enum http_fault take(struct httphead *h, const struct http_limits *l, uint8_t c)
{
    switch ((enum state)h->state) {
    case START: return take_start(h, c);
    case START_LF: return take_lf(h, c, START);
    case METHOD: return take_method(h, c);
    case TARGET: return take_target(h, c, l->uri_bytes);
    case VERSION: return take_version(h, c);
    case LINE_LF: return take_lf(h, c, LINE);
    case LINE: return take_line(h, c, l->n_headers);
    case NAME: return take_name(h, c);
    case VALUE: return take_value(h, c);
    case END_LF: h->done = c == '\n'; return take_lf(h, c, END_LF);
    }
    return HTTP_FAULT_INTERNAL;
}

size_t httphead_feed(struct httphead *h, const struct http_limits *limits, const uint8_t *data,
                     size_t size, enum http_fault *fault)
{
    *fault = HTTP_FAULT_NONE;
    size_t at = 0;
    while (at < size && !h->done) {
        if (h->size >= limits->header_bytes) *fault = HTTP_FAULT_HEAD_SIZE; // H5
        else *fault = take(h, limits, data[at]);
        if (*fault != HTTP_FAULT_NONE) return at;
        h->size++;
        at++;
    }
    return at;
}
