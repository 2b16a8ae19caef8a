/* httpparse.c: one request read by two locks: httphead.c refuses bytes that readers could take for
 * different requests, llhttp says what the head means and takes chunked bodies apart.
 * A head is collected first and given to llhttp in one piece, so that names and values are places
 * in one buffer.
 * P1 llhttp alone decides how long a body is; what it saw as framing must be what the headers say.
 * P2 of a chunked body, bytes that are not data pair their CR and LF (llhttp takes a lone LF behind
 *    the last chunk), and are few: header_bytes and 16 a byte of data.
 * P3 the budget holds exactly the bytes of this body until it is closed. */
#include "httpparse.h"

#include <llhttp.h>
#include <string.h>
#include <strings.h>

#include "httphead.h"
#include "httptarget.h"

#define CHUNK_OVERHEAD 16
#define FIRST_HEADERS 16

struct httpparse {
    const struct http_limits *limits;
    struct httpbudget *budget;
    llhttp_t llhttp;
    struct httphead head;
    struct buffer bytes;         /* of the head; texts of the message lie in it */
    struct http_header *headers; /* while llhttp runs, values are not ended yet */
    size_t *value_sizes;
    size_t room;                 /* of both */
    struct buffer body;
    bool head_seen;              /* llhttp came to the end of the head */
    bool cr;                     /* the last byte of framing was a CR (P2) */
    const uint8_t *framing;      /* first byte not yet looked at as framing */
    size_t overhead;             /* bytes of framing */
    struct httpmessage m;
};

static int refuse(struct httpparse *p, enum http_fault fault)
{
    if (p->m.fault == HTTP_FAULT_NONE) p->m.fault = fault;
    return HPE_USER;
}

/* ---- what llhttp calls ---- */

static bool more_headers(struct httpparse *p)
{
    if (p->m.n_headers < p->room) return true;
    size_t room = p->room == 0 ? FIRST_HEADERS : 2 * p->room; /* H5: n_headers are few */
    void *headers = mem_resize(MEM_SERVE, p->headers, room * sizeof *p->headers);
    if (headers == NULL) return false;
    p->headers = headers;
    void *sizes = mem_resize(MEM_SERVE, p->value_sizes, room * sizeof *p->value_sizes);
    if (sizes == NULL) return false;
    p->value_sizes = sizes;
    p->room = room;
    return true;
}

/* P2: looks at the bytes before `end` that are no data. Called before data, before what is refused,
 * and at the end of all that was read: between two pieces of data the overhead only grows, so that
 * no way to cut a request into reads changes its answer. */
static bool framing_is_strict(struct httpparse *p, const uint8_t *end)
{
    if (!p->m.chunked) return true;
    for (; p->framing < end; p->framing++, p->overhead++) {
        if (p->cr != (*p->framing == '\n')) return false;
        p->cr = *p->framing == '\r';
    }
    return p->overhead <= p->limits->header_bytes + CHUNK_OVERHEAD * p->body.size;
}

static int on_name(llhttp_t *l, const char *at, size_t size)
{
    struct httpparse *p = l->data;
    (void)size; /* H2: it ends at its ":" */
    if (p->head_seen && !framing_is_strict(p, (const uint8_t *)at))
        return refuse(p, HTTP_FAULT_CHUNK);
    if (p->head_seen) return refuse(p, HTTP_FAULT_TRAILER);
    if (!more_headers(p)) return refuse(p, HTTP_FAULT_INTERNAL);
    p->headers[p->m.n_headers] = (struct http_header){ .name = at };
    p->value_sizes[p->m.n_headers++] = 0;
    return 0;
}

static int on_value(llhttp_t *l, const char *at, size_t size)
{
    struct httpparse *p = l->data;
    if (p->m.n_headers == 0) return refuse(p, HTTP_FAULT_HEADER_VALUE);
    struct http_header *h = &p->headers[p->m.n_headers - 1];
    size_t *known = &p->value_sizes[p->m.n_headers - 1];
    if (*known == 0) h->value = at;
    else if (size != 0 && at != h->value + *known) return refuse(p, HTTP_FAULT_HEADER_VALUE);
    *known += size;
    return 0;
}

static int on_head(llhttp_t *l)
{
    struct httpparse *p = l->data;
    p->head_seen = true;
    p->m.keep_alive = llhttp_should_keep_alive(l) != 0;
    p->m.chunked = (l->flags & F_CHUNKED) != 0;
    p->m.length = l->flags & F_CONTENT_LENGTH ? l->content_length : 0;
    return 0;
}


static int on_data(llhttp_t *l, const char *at, size_t size)
{
    struct httpparse *p = l->data;
    const uint8_t *data = (const uint8_t *)at;
    if (!framing_is_strict(p, data)) return refuse(p, HTTP_FAULT_CHUNK);
    p->framing = data + size;
    if (size > p->body.max - p->body.size) return refuse(p, HTTP_FAULT_BODY_SIZE);
    if (size > p->budget->most - p->budget->now) return refuse(p, HTTP_FAULT_BODIES);
    if (buffer_append(&p->body, at, size, NULL) != ZP_OK) return refuse(p, HTTP_FAULT_INTERNAL);
    p->budget->now += size; // P3
    return 0;
}

static int on_end(llhttp_t *l)
{
    struct httpparse *p = l->data;
    p->m.complete = true;
    return HPE_PAUSED; /* what follows is another request */
}

static const llhttp_settings_t settings = {
    .on_header_field = on_name,
    .on_header_value = on_value,
    .on_headers_complete = on_head,
    .on_body = on_data,
    .on_message_complete = on_end,
};

/* ---- the head ---- */

/* Names in lower case and values without blanks at their end, each ended. */
static bool end_headers(struct httpparse *p)
{
    char *text = (char *)p->bytes.data;
    for (size_t i = 0; i < p->m.n_headers; i++) {
        struct http_header *h = &p->headers[i];
        if (h->value == NULL) return false;
        char *c = text + (h->name - text);
        for (; *c != ':'; c++) // H2
            if (*c >= 'A' && *c <= 'Z') *c = (char)(*c | 0x20);
        *c = '\0';
        size_t size = p->value_sizes[i];
        while (size != 0 && (h->value[size - 1] == ' ' || h->value[size - 1] == '\t')) size--;
        if (size == 0) h->value = "";
        else text[h->value - text + (ptrdiff_t)size] = '\0';
    }
    return true;
}

static bool is_digits(const char *text)
{
    size_t n = strspn(text, "0123456789");
    return n != 0 && n <= 19 && text[n] == '\0';
}

static bool is_host(const char *text)
{
    for (; *text != '\0'; text++) {
        bool fits = httphead_is_token_char((uint8_t)*text) || strchr(":[]();,=", *text) != NULL;
        if (!fits || *text == '^' || *text == '`' || *text == '|' || *text == '#') return false;
    }
    return true;
}

/* How many headers have the name; *value: the last one's. */
static size_t count_headers(const struct httpparse *p, const char *name, const char **value)
{
    size_t n = 0;
    for (size_t i = 0; i < p->m.n_headers; i++) {
        if (strcmp(p->headers[i].name, name) != 0) continue;
        *value = p->headers[i].value;
        n++;
    }
    return n;
}

/* P1: some of it llhttp has refused before; one that is more lenient must not open a door. */
static enum http_fault check_framing(struct httpparse *p)
{
    const char *length = NULL, *coding = NULL;
    size_t n_length = count_headers(p, "content-length", &length);
    size_t n_coding = count_headers(p, "transfer-encoding", &coding);
    p->m.framed = n_length + n_coding != 0;
    if (n_length != 0 && n_coding != 0) return HTTP_FAULT_LENGTH_AND_CODING;
    if (n_length > 1 || (n_length == 1 && !is_digits(length))) return HTTP_FAULT_LENGTH;
    if (n_coding == 0) return p->m.chunked ? HTTP_FAULT_CODING : HTTP_FAULT_NONE;
    if (n_coding > 1 || p->m.http10) return HTTP_FAULT_CODING;
    if (strcasecmp(coding, "chunked") == 0 && p->m.chunked) return HTTP_FAULT_NONE;
    return p->m.chunked ? HTTP_FAULT_CODING_UNKNOWN : HTTP_FAULT_CODING;
}

static enum http_fault check_host(struct httpparse *p)
{
    const char *host = "";
    size_t n = count_headers(p, "host", &host);
    if (n > 1 || (n == 0 && !p->m.http10) || !is_host(host)) return HTTP_FAULT_HOST;
    if (p->m.host[0] == '\0') p->m.host = host; /* that of a URL goes before; llhttp has seen it */
    return HTTP_FAULT_NONE;
}

static enum http_fault check_expect(struct httpparse *p)
{
    const char *expect = NULL;
    size_t n = count_headers(p, "expect", &expect);
    if (n == 0 || p->m.http10) return HTTP_FAULT_NONE;
    p->m.expects_continue = n == 1 && strcasecmp(expect, "100-continue") == 0;
    return p->m.expects_continue ? HTTP_FAULT_NONE : HTTP_FAULT_EXPECT;
}

static enum http_fault fault_of_llhttp(const struct httpparse *p, llhttp_errno_t code)
{
    for (size_t i = 0; code == HPE_UNEXPECTED_CONTENT_LENGTH && i < p->m.n_headers; i++)
        if (strncasecmp(p->headers[i].name, "transfer-encoding:", 18) == 0)
            return HTTP_FAULT_LENGTH_AND_CODING;
    switch (code) {
    case HPE_UNEXPECTED_CONTENT_LENGTH:
    case HPE_INVALID_CONTENT_LENGTH: return HTTP_FAULT_LENGTH;
    case HPE_INVALID_TRANSFER_ENCODING: return HTTP_FAULT_CODING;
    case HPE_INVALID_URL: return HTTP_FAULT_TARGET;
    default: return HTTP_FAULT_HEADER_VALUE;
    }
}

/* The first line's parts are known from httphead.c, whatever llhttp makes of the rest. */
static bool read_first_line(struct httpparse *p)
{
    char *text = (char *)p->bytes.data;
    struct httptarget target;
    text[p->head.method_at + p->head.method_size] = '\0';
    p->m.method = text + p->head.method_at;
    if (!httptarget_read(text + p->head.target_at, p->head.target_size, &target)) return false;
    if (strcmp(target.path, "*") == 0 && strcmp(p->m.method, "OPTIONS") != 0) return false;
    p->m.path = target.path;
    p->m.query = target.query;
    if (target.authority != NULL) p->m.host = target.authority;
    return true;
}

static enum http_fault read_head(struct httpparse *p)
{
    p->m.http10 = p->head.version[7] == '0';
    llhttp_errno_t code =
        llhttp_execute(&p->llhttp, (const char *)p->bytes.data, p->bytes.size);
    if (p->m.fault != HTTP_FAULT_NONE) return p->m.fault;
    if (!read_first_line(p)) return HTTP_FAULT_TARGET;
    p->m.unknown_method = code == HPE_INVALID_METHOD || code == HPE_INVALID_CONSTANT;
    if (p->m.unknown_method) return HTTP_FAULT_NONE;
    if (code != HPE_OK && code != HPE_PAUSED) return fault_of_llhttp(p, code);
    if (!p->head_seen || !end_headers(p)) return HTTP_FAULT_HEADER_VALUE;
    p->m.headers = p->headers;
    enum http_fault fault = check_framing(p);
    if (fault == HTTP_FAULT_NONE) fault = check_host(p);
    if (fault == HTTP_FAULT_NONE) fault = check_expect(p);
    return fault;
}

/* ---- both parts ---- */

struct httpparse *httpparse_open(const struct http_limits *limits, struct httpbudget *budget)
{
    struct httpparse *p = mem_zalloc(MEM_SERVE, sizeof *p);
    if (p == NULL) return NULL;
    p->limits = limits;
    p->budget = budget;
    p->bytes = buffer_with_max(MEM_SERVE, limits->header_bytes);
    p->body = buffer_with_max(MEM_SERVE, limits->body_bytes);
    p->m.host = "";
    p->m.body = (const uint8_t *)"";
    llhttp_init(&p->llhttp, HTTP_REQUEST, &settings);
    p->llhttp.data = p;
    return p;
}

static enum httpparse_event feed_head(struct httpparse *p, const uint8_t *data, size_t size,
                                      size_t *used)
{
    enum http_fault fault;
    *used = httphead_feed(&p->head, p->limits, data, size, &fault);
    if (buffer_append(&p->bytes, data, *used, NULL) != ZP_OK) fault = HTTP_FAULT_INTERNAL;
    if (fault == HTTP_FAULT_NONE && !p->head.done) return HTTPPARSE_MORE;
    if (fault == HTTP_FAULT_NONE) fault = read_head(p);
    /* Who answers the fault would like to know the path. */
    else if (p->head.version_at != 0 && p->bytes.size == p->head.size) (void)read_first_line(p);
    p->m.fault = fault;
    return fault == HTTP_FAULT_NONE ? HTTPPARSE_HEAD : HTTPPARSE_BAD;
}

static enum httpparse_event feed_body(struct httpparse *p, const uint8_t *data, size_t size,
                                      size_t *used)
{
    p->framing = data;
    llhttp_errno_t code = llhttp_execute(&p->llhttp, (const char *)data, size);
    const uint8_t *end = data + size;
    if (code != HPE_OK) end = (const uint8_t *)llhttp_get_error_pos(&p->llhttp);
    *used = (size_t)(end - data);
    bool trails = (p->llhttp.flags & F_TRAILING) != 0;
    if (p->m.fault == HTTP_FAULT_NONE && !framing_is_strict(p, end)) refuse(p, HTTP_FAULT_CHUNK);
    if (code != HPE_OK && code != HPE_PAUSED)
        refuse(p, trails ? HTTP_FAULT_TRAILER : HTTP_FAULT_CHUNK);
    if (p->m.fault != HTTP_FAULT_NONE) return HTTPPARSE_BAD;
    if (!p->m.complete) return HTTPPARSE_MORE;
    p->m.body = p->body.data;
    p->m.body_size = p->body.size;
    return HTTPPARSE_DONE;
}

enum httpparse_event httpparse_feed(struct httpparse *p, const uint8_t *data, size_t size,
                                    size_t *used)
{
    return p->head.done ? feed_body(p, data, size, used) : feed_head(p, data, size, used);
}

void httpparse_limit_body(struct httpparse *p, size_t most)
{
    p->body.max = most;
}

const char *httpmessage_header(const struct httpmessage *m, const char *name)
{
    for (size_t i = 0; m->headers != NULL && i < m->n_headers; i++)
        if (strcmp(m->headers[i].name, name) == 0) return m->headers[i].value;
    return NULL;
}

const struct httpmessage *httpparse_message(const struct httpparse *p)
{
    return &p->m;
}

bool httpparse_has_head(const struct httpparse *p)
{
    return p->head.done;
}

void httpparse_close(struct httpparse *p)
{
    if (p == NULL) return;
    p->budget->now -= p->body.size; // P3
    buffer_free(&p->bytes);
    buffer_free(&p->body);
    mem_free(p->headers);
    mem_free(p->value_sizes);
    mem_free(p);
}
