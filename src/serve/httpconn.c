/* httpconn.c: the course of a connection: requests are read one after the other, each is answered
 * before the next is looked at, and what goes wrong is answered or cut.
 * C1 x is set from the end of a head to the end of its answer; handlers are called in READ alone,
 *    from httpconn_input and httpconn_settle, never from inside what a handler calls.
 * C2 what handlers and sockets find out in between (a loss, a slow reader) is noted in `lost` and
 *    acted upon by httpconn_settle.
 * C3 at most BACKLOG bytes of answers wait when a request begins, and at most PIPELINE bytes and
 *    one read of later requests: a client that does not take answers is not given more of them.
 * C4 a request whose body was not read to its end is the connection's last. */
#include "httpconn.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "httphead.h"
#include "httproute.h"

#define BACKLOG ((size_t)16 << 10)
#define PIPELINE ((size_t)64 << 10)

void httpconn_init(struct httpconn *c)
{
    c->in = buffer_with_max(MEM_SERVE, SIZE_MAX / 4);
    httpout_init(&c->out);
    c->since = c->core->now;
}

static void drop_parse(struct httpconn *c)
{
    httpparse_close(c->parse);
    c->parse = NULL;
}

/* What was to be read or answered is given up. */
static void give_up(struct httpconn *c, enum http_gone why)
{
    struct http_exchange *x = c->x;
    c->x = NULL;
    drop_parse(c);
    buffer_free(&c->in);
    if (x != NULL) httpexchange_lose(x, why);
}

void httpconn_free(struct httpconn *c, enum http_gone why)
{
    give_up(c, c->lost ? c->why : why);
    httpout_free(&c->out);
}

static void set_state(struct httpconn *c, enum httpconn_state state)
{
    c->state = (uint8_t)state;
    c->since = c->core->now;
}

/* ---- for exchanges ---- */

bool httpconn_is_lost(const struct httpconn *c)
{
    return c->lost;
}

void httpconn_lose(struct httpconn *c, enum http_gone why)
{
    if (c->lost) return;
    c->lost = true;
    c->why = why;
    c->attend(c->arg); // C2
}

static void lose_slow(struct httpconn *c)
{
    if (!c->lost) c->core->counts.cut_slow++;
    httpconn_lose(c, HTTP_GONE_SLOW);
}

void httpconn_wrote(struct httpconn *c, size_t pending_before, zp_status status, bool stream)
{
    size_t most = c->core->o.limits.queue_bytes;
    if (pending_before == 0) c->out_since = c->core->now;
    if (status != ZP_OK) httpconn_lose(c, HTTP_GONE_MEMORY);
    if (stream && httpout_pending(&c->out) > most) {
        c->push(c->arg); /* perhaps it only had no chance yet to take it */
        if (httpout_pending(&c->out) > most) lose_slow(c);
    }
    c->attend(c->arg);
}

void httpconn_answered(struct httpconn *c)
{
    struct http_exchange *x = c->x;
    assert(x != NULL); // C1
    if (c->lost) return; // C2
    bool keep = x->keep_alive && !c->core->draining;
    c->x = NULL;
    httpexchange_finish(x);
    set_state(c, keep ? HTTPCONN_READ : HTTPCONN_FLUSH);
    c->attend(c->arg);
}

/* ---- answers of this layer ---- */

static const struct http_route *route_of(const struct httpconn *c)
{
    const struct http_options *o = &c->core->o;
    return c->x != NULL && c->x->route < o->n_routes ? &o->routes[c->x->route] : NULL;
}

static size_t body_limit(const struct httpconn *c)
{
    const struct http_route *r = route_of(c);
    return r != NULL && r->body_bytes != 0 ? r->body_bytes : c->core->o.limits.body_bytes;
}

struct words {
    char text[48];
};

static void say_ms(struct words *w, uint32_t ms)
{
    bool whole = ms % 1000 == 0;
    (void)snprintf(w->text, sizeof w->text, "%u %s", whole ? ms / 1000 : ms, whole ? "s" : "ms");
}

static void say_bytes(struct words *w, size_t bytes)
{
    struct bytes_text room;
    (void)snprintf(w->text, sizeof w->text, "%s (%zu bytes)", bytes_in_words(bytes, &room), bytes);
}

static struct words limit_in_words(const struct httpconn *c, enum http_fault fault)
{
    const struct http_limits *l = &c->core->o.limits;
    struct words w = { "" };
    switch (fault) {
    case HTTP_FAULT_HEAD_TIME: say_ms(&w, l->header_ms); break;
    case HTTP_FAULT_BODY_TIME: say_ms(&w, l->body_ms); break;
    case HTTP_FAULT_EXCHANGE_TIME: say_ms(&w, l->exchange_ms); break;
    case HTTP_FAULT_BODY_SIZE: say_bytes(&w, body_limit(c)); break;
    case HTTP_FAULT_BODIES: say_bytes(&w, l->bodies_bytes); break;
    case HTTP_FAULT_URI_SIZE: say_bytes(&w, l->uri_bytes); break;
    case HTTP_FAULT_HEAD_SIZE: say_bytes(&w, l->header_bytes); break;
    case HTTP_FAULT_HEADER_COUNT:
        (void)snprintf(w.text, sizeof w.text, "%zu", l->n_headers);
        break;
    case HTTP_FAULT_CONNECTIONS:
        (void)snprintf(w.text, sizeof w.text, "%zu", l->n_connections);
        break;
    default: break;
    }
    return w;
}

static bool open_exchange(struct httpconn *c)
{
    const struct httpmessage *m = c->parse == NULL ? NULL : httpparse_message(c->parse);
    if (c->x == NULL) {
        c->x = httpexchange_open(c, m);
        c->n_requests++;
    }
    if (c->x == NULL) {
        httpconn_lose(c, HTTP_GONE_MEMORY);
        return false;
    }
    bool last = c->n_requests >= c->core->o.limits.n_requests || m == NULL;
    if (last) c->x->keep_alive = false;
    return true;
}

/* Whether a body is still to come. */
static bool is_unread(const struct httpconn *c)
{
    return c->parse != NULL && !httpparse_message(c->parse)->complete;
}

static void answer_fault(struct httpconn *c, enum http_fault fault, const char *allow)
{
    struct words limit = limit_in_words(c, fault);
    struct http_header more = { allow != NULL ? "allow" : "retry-after",
                                allow != NULL ? allow : "1" };
    bool has_more = allow != NULL || httpfault_get(fault)->status == 503;
    if (!open_exchange(c)) return;
    if (is_unread(c)) c->x->keep_alive = false; // C4
    httpexchange_answer_fault(c->x, fault, allow != NULL ? allow : limit.text, &more, has_more);
    drop_parse(c);
    httpconn_answered(c);
}

void httpconn_refuse(struct httpconn *c, enum http_fault fault)
{
    answer_fault(c, fault, NULL);
}

static bool is_list_of_names(const char *text)
{
    for (; *text != '\0'; text++)
        if (!httphead_is_token_char((uint8_t)*text) && *text != ',' && *text != ' ') return false;
    return true;
}

/* OPTIONS: what the path takes, and what pages of an allowed origin may send. */
static void answer_options(struct httpconn *c, const struct httpmessage *m, const char *allow)
{
    const char *asked = httpmessage_header(m, "access-control-request-headers");
    struct http_header headers[4] = { { "allow", allow } };
    size_t n = 1;
    if (c->x->origin != NULL) {
        headers[n++] = (struct http_header){ "access-control-allow-methods", allow };
        headers[n++] = (struct http_header){ "access-control-max-age", "600" };
        if (asked != NULL && is_list_of_names(asked))
            headers[n++] = (struct http_header){ "access-control-allow-headers", asked };
    }
    if (is_unread(c)) c->x->keep_alive = false; // C4
    httpexchange_answer(c->x, &(struct http_reply){ .status = 204, .headers = headers,
                                                    .n_headers = n });
    drop_parse(c);
    httpconn_answered(c);
}

/* ---- reading ---- */

static void call_handler(struct httpconn *c)
{
    struct httpparse *p = c->parse;
    const struct httpmessage *m = httpparse_message(p);
    const struct http_route *route = route_of(c);
    struct http_request r = { .method = m->method,
                              .path = httproute_strip(c->core->o.prefix, m->path),
                              .query = m->query, .host = m->host, .headers = m->headers,
                              .n_headers = m->n_headers, .body = m->body,
                              .body_size = m->body_size, .peer = c->peer, .tls = c->tls };
    char id[HTTP_ID_MOST + 1]; /* outlives an answer inside the handler, as does the request */
    memcpy(id, c->x->id, sizeof id);
    r.id = id;
    c->x->bytes_in = m->body_size;
    c->x->handed = true;
    c->parse = NULL;
    set_state(c, HTTPCONN_WORK);
    route->handle(route->arg, &r, c->x);
    httpparse_close(p);
}

/* What is wrong with a request whose head is understood. */
static enum http_fault judge(struct httpconn *c, const struct httpmessage *m,
                             struct httproute *found)
{
    const struct http_options *o = &c->core->o;
    const char *path = httproute_strip(o->prefix, m->path);
    enum httporigin origin =
        httproute_origin(o, httpmessage_header(m, "origin"), m->host, &c->x->origin);
    if (origin == HTTPORIGIN_REFUSED) return HTTP_FAULT_ORIGIN;
    if (path == NULL) return HTTP_FAULT_NO_ROUTE;
    httproute_find(o->routes, o->n_routes, m->method, path, found);
    if (!found->path_known) return HTTP_FAULT_NO_ROUTE;
    if (found->route == NULL)
        return strcmp(m->method, "OPTIONS") == 0 ? HTTP_FAULT_NONE : HTTP_FAULT_METHOD;
    c->x->route = (size_t)(found->route - o->routes);
    if (found->route->needs_body && !m->framed) return HTTP_FAULT_LENGTH_NEEDED;
    return m->length > body_limit(c) ? HTTP_FAULT_BODY_SIZE : HTTP_FAULT_NONE;
}

static void take_head(struct httpconn *c)
{
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
    const struct httpmessage *m = httpparse_message(c->parse);
    struct httproute found = { 0 };
    if (!open_exchange(c)) return;
    c->since = c->core->now;
    enum http_fault fault = judge(c, m, &found);
    if (fault != HTTP_FAULT_NONE) {
        answer_fault(c, fault, fault == HTTP_FAULT_METHOD ? found.allow : NULL);
    } else if (found.route == NULL) {
        answer_options(c, m, found.allow);
    } else if (m->complete) {
        call_handler(c);
    } else {
        httpparse_limit_body(c->parse, body_limit(c));
        if (!m->expects_continue) return;
        size_t before = httpout_pending(&c->out);
        zp_status status = buffer_append(&c->out.bytes, go_on, sizeof go_on - 1, NULL);
        httpconn_wrote(c, before, status, false);
    }
}

/* Whether more of a request may be looked at. */
static bool is_ready(const struct httpconn *c)
{
    return c->state == HTTPCONN_READ && !c->lost && httpout_pending(&c->out) <= BACKLOG; // C3
}

static size_t read_some(struct httpconn *c, const uint8_t *data, size_t size)
{
    size_t used = size;
    if (c->parse == NULL) {
        c->parse = httpparse_open(&c->core->o.limits, &c->core->bodies);
        if (c->n_requests != 0) c->since = c->core->now; /* it began with the connection, else */
    }
    if (c->parse == NULL) {
        httpconn_lose(c, HTTP_GONE_MEMORY);
        return used;
    }
    switch (httpparse_feed(c->parse, data, size, &used)) {
    case HTTPPARSE_MORE: break;
    case HTTPPARSE_HEAD: take_head(c); break;
    case HTTPPARSE_DONE: call_handler(c); break;
    case HTTPPARSE_BAD: answer_fault(c, httpparse_message(c->parse)->fault, NULL); break;
    }
    return used;
}

static size_t read_while_ready(struct httpconn *c, const uint8_t *data, size_t size)
{
    size_t at = 0;
    while (at < size && is_ready(c)) at += read_some(c, data + at, size - at);
    return at;
}

static bool reads(const struct httpconn *c)
{
    return !c->eof && (c->state == HTTPCONN_READ || c->state == HTTPCONN_WORK);
}

void httpconn_input(struct httpconn *c, const uint8_t *data, size_t size)
{
    size_t used = c->in.size == 0 ? read_while_ready(c, data, size) : 0;
    if (used < size && reads(c) && buffer_append(&c->in, data + used, size - used, NULL) != ZP_OK)
        httpconn_lose(c, HTTP_GONE_MEMORY);
}

void httpconn_eof(struct httpconn *c)
{
    if (c->eof) return;
    c->eof = true;
    if (c->state == HTTPCONN_LINGER) set_state(c, HTTPCONN_OVER);
    if (c->state != HTTPCONN_READ && c->state != HTTPCONN_WORK) return;
    give_up(c, HTTP_GONE_CLIENT);
    set_state(c, HTTPCONN_FLUSH); /* earlier answers may still be wanted */
}

bool httpconn_wants_input(const struct httpconn *c)
{
    if (c->eof || c->state == HTTPCONN_OVER) return false;
    return !reads(c) || c->in.size < PIPELINE; // C3
}

void httpconn_taken(struct httpconn *c, size_t size)
{
    httpout_taken(&c->out, size);
    if (size != 0) c->out_since = c->core->now;
    if (c->state == HTTPCONN_READ) httpout_trim(&c->out); /* idle, perhaps for long */
}

/* ---- what is left to do ---- */

static void read_on(struct httpconn *c)
{
    size_t used = read_while_ready(c, c->in.data, c->in.size);
    size_t left = reads(c) ? c->in.size - used : 0;
    if (left == 0) {
        buffer_free(&c->in);
        return;
    }
    memmove(c->in.data, c->in.data + used, left);
    c->in.size = left;
}

bool httpconn_is_due(const struct httpconn *c)
{
    if (c->lost) return c->state != HTTPCONN_OVER;
    return (is_ready(c) && c->in.size != 0) ||
           (c->state == HTTPCONN_FLUSH && httpout_pending(&c->out) == 0);
}

void httpconn_settle(struct httpconn *c)
{
    if (is_ready(c) && c->in.size != 0) read_on(c);
    if (c->lost && c->state != HTTPCONN_OVER) {
        give_up(c, c->why);
        set_state(c, HTTPCONN_OVER);
    }
    if (c->state == HTTPCONN_FLUSH && httpout_pending(&c->out) == 0)
        set_state(c, c->eof ? HTTPCONN_OVER : HTTPCONN_LINGER);
}

void httpconn_drain(struct httpconn *c)
{
    bool idle = c->state == HTTPCONN_READ && c->parse == NULL && c->in.size == 0;
    if (idle) set_state(c, httpout_pending(&c->out) == 0 ? HTTPCONN_OVER : HTTPCONN_FLUSH);
}

/* ---- time ---- */

static bool is_past(const struct httpconn *c, uint64_t since, uint32_t ms)
{
    return ms != 0 && c->core->now - since >= ms;
}

static void tick_read(struct httpconn *c)
{
    const struct http_limits *l = &c->core->o.limits;
    if (!is_ready(c)) return; /* it waits for the client to take answers: send_ms */
    if (c->parse == NULL) {
        if (is_past(c, c->since, c->n_requests == 0 ? l->header_ms : l->idle_ms))
            set_state(c, HTTPCONN_OVER);
    } else if (!httpparse_has_head(c->parse)) {
        if (is_past(c, c->since, l->header_ms)) httpconn_refuse(c, HTTP_FAULT_HEAD_TIME);
    } else if (is_past(c, c->since, l->body_ms)) {
        httpconn_refuse(c, HTTP_FAULT_BODY_TIME);
    }
}

/* The handler took too long: it is told, and the client gets an answer if none has begun. */
static void end_exchange(struct httpconn *c)
{
    struct http_exchange *x = c->x;
    if (x->begun) {
        httpconn_lose(c, HTTP_GONE_TIME);
        return;
    }
    struct words limit = limit_in_words(c, HTTP_FAULT_EXCHANGE_TIME);
    httpexchange_answer_fault(x, HTTP_FAULT_EXCHANGE_TIME, limit.text, NULL, 0);
    c->x = NULL;
    set_state(c, HTTPCONN_FLUSH);
    httpexchange_lose(x, HTTP_GONE_TIME);
}

static void tick_work(struct httpconn *c)
{
    const struct http_limits *l = &c->core->o.limits;
    if (is_past(c, c->since, l->exchange_ms)) end_exchange(c);
    else if (c->x->events && c->x->begun && is_past(c, c->x->wrote, l->comment_ms))
        httpexchange_comment(c->x);
}

void httpconn_tick(struct httpconn *c)
{
    if (c->lost) return;
    const struct http_limits *l = &c->core->o.limits;
    bool waits = httpout_pending(&c->out) != 0;
    if (waits && is_past(c, c->out_since, l->send_ms)) lose_slow(c);
    else if (c->state == HTTPCONN_READ) tick_read(c);
    else if (c->state == HTTPCONN_WORK) tick_work(c);
    else if (c->state == HTTPCONN_LINGER && is_past(c, c->since, l->linger_ms))
        set_state(c, HTTPCONN_OVER);
}
