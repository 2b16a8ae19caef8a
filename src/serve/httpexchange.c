/* httpexchange.c: exchanges: written by handlers, carried by connections, ended once by both.
 * X1 an exchange lives until it has left its connection and, once handed to a handler, until the
 *    handler has ended it.
 * X2 on_gone is called by httpexchange_lose alone: at most once, never after the handler's end.
 * X3 an exchange counts once, when its answer begins or when it is lost before that.
 * Failures to write have one outcome: the connection is lost (httpconn_wrote), so that handlers
 * have no error to treat beside on_gone. */
#include "httpexchange.h"

#include <assert.h>
#include <string.h>
#include <sys/random.h>

#include "base/json_build.h"
#include "httpconn.h"

#define SCRATCH_MOST SIZE_MAX / 4
#define PATH_MOST 512 /* of what is kept for the access record */

/* ---- what a server shares ---- */

static void set_default(size_t *value, size_t otherwise)
{
    if (*value == 0) *value = otherwise;
}

static void set_default_ms(uint32_t *value, uint32_t otherwise)
{
    if (*value == 0) *value = otherwise;
}

static void complete_limits(struct http_limits *l)
{
    set_default(&l->header_bytes, (size_t)32 << 10);
    set_default(&l->n_headers, 100);
    set_default(&l->uri_bytes, (size_t)8 << 10);
    set_default(&l->body_bytes, (size_t)32 << 20);
    set_default(&l->bodies_bytes, (size_t)1 << 30);
    set_default(&l->queue_bytes, (size_t)1 << 20);
    set_default(&l->n_connections, 4096);
    set_default(&l->n_requests, 10000);
    set_default_ms(&l->header_ms, 10000);
    set_default_ms(&l->body_ms, 120000);
    set_default_ms(&l->idle_ms, 75000);
    set_default_ms(&l->send_ms, 30000);
    set_default_ms(&l->linger_ms, 2000);
    set_default_ms(&l->comment_ms, 15000);
}

zp_status httpcore_init(struct httpcore *core, const struct http_options *o, zp_err *err)
{
    core->o = *o;
    complete_limits(&core->o.limits);
    core->bodies.most = core->o.limits.bodies_bytes;
    core->scratch = buffer_with_max(MEM_SERVE, SCRATCH_MOST);
    core->requests = mem_zalloc(MEM_SERVE, (o->n_routes + 1) * sizeof *core->requests);
    ZP_FAIL_IF(core->requests == NULL, err, ZP_NO_MEMORY, "not enough memory for counts of routes");
    core->counts.requests = (const uint64_t(*)[HTTP_CLASSES])core->requests;
    core->counts.n_routes = o->n_routes;
    return ZP_OK;
}

static void release(struct http_exchange *x)
{
    if (x->prev != NULL) x->prev->next = x->next;
    else x->core->exchanges = x->next;
    if (x->next != NULL) x->next->prev = x->prev;
    x->core->counts.exchanges--;
    mem_free(x->method);
    mem_free(x->path);
    mem_free(x);
}

void httpcore_free(struct httpcore *core)
{
    while (core->exchanges != NULL) release(core->exchanges);
    buffer_free(&core->scratch);
    mem_free(core->requests);
    core->requests = NULL;
}

/* ---- beginning and end ---- */

static bool is_sane_id(const char *text)
{
    size_t n = 0;
    for (; text[n] != '\0'; n++) {
        char c = text[n];
        bool fits = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                    strchr("-_.:", c) != NULL;
        if (!fits || n == HTTP_ID_MOST) return false;
    }
    return n != 0;
}

static void set_random_id(char *out)
{
    static const char digits[] = "0123456789abcdef";
    uint8_t bytes[16] = { 0 };
    (void)getrandom(bytes, sizeof bytes, 0); /* so few are never cut short, once there are any */
    for (size_t i = 0; i < sizeof bytes; i++) {
        out[2 * i] = digits[bytes[i] >> 4];
        out[2 * i + 1] = digits[bytes[i] & 15];
    }
    out[2 * sizeof bytes] = '\0';
}

static bool take_message(struct http_exchange *x, const struct httpmessage *m)
{
    x->http10 = m->http10;
    x->head = m->method != NULL && strcmp(m->method, "HEAD") == 0;
    x->keep_alive = m->keep_alive && !m->unknown_method && m->fault == HTTP_FAULT_NONE;
    const char *id = httpmessage_header(m, "x-request-id");
    if (id != NULL && is_sane_id(id)) memcpy(x->id, id, strlen(id) + 1);
    if (m->method != NULL) x->method = mem_strdup(MEM_SERVE, m->method);
    if (m->path != NULL) x->path = mem_strndup(MEM_SERVE, m->path, PATH_MOST);
    return (m->method == NULL || x->method != NULL) && (m->path == NULL || x->path != NULL);
}

struct http_exchange *httpexchange_open(struct httpconn *conn, const struct httpmessage *m)
{
    struct httpcore *core = conn->core;
    struct http_exchange *x = mem_zalloc(MEM_SERVE, sizeof *x);
    if (x == NULL) return NULL;
    *x = (struct http_exchange){ .core = core, .conn = conn, .route = core->o.n_routes,
                                 .next = core->exchanges, .since = core->now, .wrote = core->now };
    if (x->next != NULL) x->next->prev = x;
    core->exchanges = x;
    core->counts.exchanges++;
    set_random_id(x->id);
    if (m == NULL || take_message(x, m)) return x;
    release(x);
    return NULL;
}

static void record(const struct http_exchange *x, bool cut)
{
    const struct http_options *o = &x->core->o;
    if (!x->begun) x->core->requests[x->route][HTTP_CLASS_GONE]++; // X3
    if (o->on_access == NULL) return;
    struct http_access a = { .id = x->id, .method = x->method == NULL ? "" : x->method,
                             .path = x->path == NULL ? "" : x->path, .peer = x->conn->peer,
                             .status = x->begun ? x->status : 499, .cut = cut,
                             .bytes_in = x->bytes_in, .bytes_out = x->bytes_out,
                             .ms = x->core->now - x->since };
    o->on_access(o->arg, &a);
}

void httpexchange_finish(struct http_exchange *x)
{
    record(x, false);
    x->conn = NULL;
    if (!x->handed || x->ended) release(x); // X1
}

void httpexchange_lose(struct http_exchange *x, enum http_gone why)
{
    record(x, true);
    x->conn = NULL;
    if (!x->handed || x->ended) release(x); // X1
    else if (x->on_gone != NULL) x->on_gone(x->gone_arg, x, why); // X2
}

/* ---- writing ---- */

static const char *date_now(struct httpcore *core)
{
    time_t now = time(NULL);
    if (now != core->date_of || core->date.text[0] == '\0') core->date = httpreply_date(now);
    core->date_of = now;
    return core->date.text;
}

static zp_status write_head(struct http_exchange *x, const struct http_reply *r, const char *type)
{
    struct buffer *out = &x->conn->out.bytes;
    struct httpreply_head h = { .status = r->status, .type = type, .body = x->body,
                                .size = r->size, .http10 = x->http10,
                                .keep_alive = x->keep_alive, .events = x->events,
                                .date = date_now(x->core), .id = x->id, .origin = x->origin };
    ZP_TRY(httpreply_head(out, &h, NULL));
    for (size_t i = 0; i < r->n_headers; i++)
        ZP_TRY(httpreply_header(out, r->headers[i].name, r->headers[i].value, NULL));
    return buffer_append(out, "\r\n", 2, NULL);
}

/* From here on the answer counts, whatever becomes of its bytes. */
static void begin(struct http_exchange *x, const struct http_reply *r)
{
    assert(!x->begun); /* a handler answers once */
    x->begun = true;
    x->status = r->status;
    int class = r->status / 100;
    bool known = class >= HTTP_CLASS_2XX && class <= HTTP_CLASS_5XX;
    x->core->requests[x->route][known ? class : HTTP_CLASS_5XX]++; // X3
    if (x->core->draining) x->keep_alive = false;
}

/* Tells the connection that bytes were written behind `before`, or could not be. */
static void wrote(struct http_exchange *x, size_t before, zp_status status)
{
    x->bytes_out += httpout_pending(&x->conn->out) - before;
    x->wrote = x->core->now;
    httpconn_wrote(x->conn, before, status, x->body != HTTPREPLY_SIZED);
}

static bool has_body(const struct http_exchange *x)
{
    return !x->head && !httpreply_is_bare(x->status);
}

void httpexchange_answer(struct http_exchange *x, const struct http_reply *r)
{
    x->body = HTTPREPLY_SIZED;
    begin(x, r);
    size_t before = httpout_pending(&x->conn->out);
    zp_status status = write_head(x, r, r->type);
    if (status == ZP_OK && has_body(x))
        status = buffer_append(&x->conn->out.bytes, r->body, r->size, NULL);
    wrote(x, before, status);
}

static zp_status write_plain_error(const struct http_error *e, struct buffer *body)
{
    struct json_build w;
    zp_err ignored = { 0 };
    char *text;
    json_build_open(&w, &ignored);
    json_build_object(&w, NULL);
    json_build_object(&w, "error");
    json_build_text(&w, "message", e->message);
    json_build_text(&w, "type", e->status < 500 ? "invalid_request_error" : "server_error");
    json_build_text(&w, "code", e->code);
    json_build_object_end(&w);
    json_build_object_end(&w);
    ZP_TRY(json_build_finish(&w, &text));
    zp_status status = buffer_append_text(body, text, NULL);
    mem_free(text);
    return status;
}

void httpexchange_answer_fault(struct http_exchange *x, enum http_fault fault, const char *limit,
                               const struct http_header *headers, size_t n_headers)
{
    const struct http_options *o = &x->core->o;
    char message[256];
    httpfault_message(fault, limit, message, sizeof message);
    const struct httpfault *f = httpfault_get(fault);
    struct http_error e = { .fault = fault, .status = f->status, .code = f->code,
                            .message = message, .path = x->path, .id = x->id };
    struct buffer *body = &x->core->scratch;
    const char *type = "application/json";
    buffer_clear(body);
    zp_status status = ZP_RUN;
    if (o->write_error != NULL) status = o->write_error(o->arg, &e, body, &type, NULL);
    if (status != ZP_OK) {
        buffer_clear(body);
        type = "application/json";
        (void)write_plain_error(&e, body); /* without memory the answer has no body */
    }
    x->core->counts.faults[fault]++;
    if (f->closes) x->keep_alive = false;
    httpexchange_answer(x, &(struct http_reply){ .status = f->status, .type = type,
                                                 .body = body->data, .size = body->size,
                                                 .headers = headers, .n_headers = n_headers });
}

/* Whether what a handler writes reaches anyone. */
static bool is_open(const struct http_exchange *x)
{
    assert(!x->ended); // X1
    return x->conn != NULL && !httpconn_is_lost(x->conn);
}

static void write_body(struct http_exchange *x, const void *data, size_t size)
{
    if (size == 0 || !has_body(x)) return;
    struct httpout *out = &x->conn->out;
    size_t before = httpout_pending(out);
    zp_status status = x->body == HTTPREPLY_CHUNKED
                           ? httpreply_chunk(&out->bytes, data, size, NULL)
                           : buffer_append(&out->bytes, data, size, NULL);
    wrote(x, before, status);
}

void httpexchange_comment(struct http_exchange *x)
{
    static const char comment[] = ": keep-alive\n\n";
    write_body(x, comment, sizeof comment - 1);
}

/* ---- what handlers call ---- */

void http_on_gone(struct http_exchange *x,
                  void (*call)(void *arg, struct http_exchange *x, enum http_gone why), void *arg)
{
    x->on_gone = call;
    x->gone_arg = arg;
}

bool http_is_gone(const struct http_exchange *x)
{
    return x->conn == NULL;
}

const char *http_id(const struct http_exchange *x)
{
    return x->id;
}

/* X1: the handler gives the exchange up; its connection finishes it, or it is gone already. */
static void end(struct http_exchange *x)
{
    x->ended = true;
    if (x->conn != NULL) httpconn_answered(x->conn);
    else release(x);
}

void http_reply(struct http_exchange *x, const struct http_reply *r)
{
    if (is_open(x)) httpexchange_answer(x, r);
    end(x);
}

static void begin_stream(struct http_exchange *x, const struct http_reply *r, const char *type)
{
    if (!is_open(x)) return;
    x->body = x->http10 ? HTTPREPLY_TO_CLOSE : HTTPREPLY_CHUNKED;
    if (x->http10) x->keep_alive = false;
    begin(x, r);
    size_t before = httpout_pending(&x->conn->out);
    wrote(x, before, write_head(x, r, type));
}

void http_stream_begin(struct http_exchange *x, const struct http_reply *r)
{
    begin_stream(x, r, r->type);
}

void http_sse_begin(struct http_exchange *x, const struct http_reply *r)
{
    static const struct http_reply fine = { .status = 200 };
    x->events = true;
    begin_stream(x, r == NULL ? &fine : r, "text/event-stream; charset=utf-8");
}

void http_stream_write(struct http_exchange *x, const void *data, size_t size)
{
    if (is_open(x)) write_body(x, data, size);
}

void http_sse_event(struct http_exchange *x, const char *event, const char *data, size_t size)
{
    if (!is_open(x)) return;
    struct buffer *text = &x->core->scratch;
    buffer_clear(text);
    if (httpreply_event(text, event, data, size, NULL) == ZP_OK)
        write_body(x, text->data, text->size);
    else httpconn_lose(x->conn, HTTP_GONE_MEMORY);
}

void http_stream_end(struct http_exchange *x)
{
    if (is_open(x) && x->body == HTTPREPLY_CHUNKED && has_body(x)) {
        size_t before = httpout_pending(&x->conn->out);
        wrote(x, before, httpreply_chunk(&x->conn->out.bytes, NULL, 0, NULL));
    }
    end(x);
}

void http_abort(struct http_exchange *x)
{
    if (is_open(x) && !x->begun)
        httpexchange_answer_fault(x, HTTP_FAULT_INTERNAL, "", NULL, 0);
    else if (x->conn != NULL) httpconn_lose(x->conn, HTTP_GONE_CUT);
    end(x);
}
