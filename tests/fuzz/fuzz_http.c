/* fuzz_http.c: any bytes as what a client sends, in any parts: handlers see the same requests and
 * clients the same answers as when all comes at once; and with handlers, clients and time as the
 * bytes say, each exchange ends once and no memory stays. */
#include "base/bytes.h"
#include "live_bytes.h"
#include "serve/wire.h"

/* What handlers and the access record saw, as a hash. */
static uint64_t seen;

static void see(const void *data, size_t size)
{
    seen = hash_bytes(data, size, seen);
}

static void see_text(const char *text)
{
    see(text, strlen(text) + 1);
}

static void answer(void *arg, const struct http_request *r, struct http_exchange *x)
{
    (void)arg;
    see_text(r->method);
    see_text(r->path);
    see_text(r->query);
    see_text(r->host);
    for (size_t i = 0; i < r->n_headers; i++) {
        see_text(r->headers[i].name);
        see_text(r->headers[i].value);
    }
    see(r->body, r->body_size);
    char value[64];
    if (http_query(r, "q", value, sizeof value)) see_text(value);
    if (r->path[0] != '/' || strstr(r->path, "/../") != NULL) abort();
    struct http_reply reply = { .status = 200, .body = r->body, .size = r->body_size };
    http_reply(x, &reply);
}

static void stream(void *arg, const struct http_request *r, struct http_exchange *x)
{
    (void)arg;
    see_text(r->method);
    http_sse_begin(x, NULL);
    http_sse_event(x, r->query, r->query, strlen(r->query));
    http_stream_end(x);
}

static void on_access(void *arg, const struct http_access *a)
{
    (void)arg;
    see(&a->status, sizeof a->status);
    see(&a->cut, sizeof a->cut);
}

static const struct http_limits limits = { .header_bytes = 2048, .n_headers = 20, .uri_bytes = 200,
                                           .body_bytes = 1024, .bodies_bytes = 4096,
                                           .queue_bytes = 600, .n_requests = 20, .header_ms = 100,
                                           .body_ms = 100, .idle_ms = 100, .send_ms = 50,
                                           .exchange_ms = 200, .comment_ms = 20 };
static const char *const origins[] = { "https://a.example" };
static struct wire w;

static uint64_t draw(uint64_t *state) /* splitmix64 */
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static void open_wire(const struct http_route *routes, size_t n, bool watched)
{
    static struct http_options o;
    o = (struct http_options){ .routes = routes,
                               .n_routes = n,
                               .limits = limits,
                               .origins = origins,
                               .n_origins = 1,
                               .arg = &w,
                               .prefix = "",
                               .on_access = watched ? on_access : wire_access };
    if (wire_open(&w, &o) != ZP_OK) abort();
}

/* In parts of up to `most` bytes. */
static uint64_t run_in_parts(const uint8_t *data, size_t size, size_t most, uint64_t seed)
{
    static const struct http_route routes[] = {
        { .method = "GET", .path = "/", .handle = answer },
        { .method = "GET", .path = "/echo", .handle = answer },
        { .method = "POST", .path = "/echo", .handle = answer },
        { .method = "POST", .path = "/small", .handle = answer, .body_bytes = 8,
          .needs_body = true },
        { .method = "GET", .path = "/below/", .handle = answer },
        { .method = "GET", .path = "/events", .handle = stream },
    };
    seen = 1;
    open_wire(routes, ZP_COUNT(routes), true);
    for (size_t at = 0, n; at < size; at += n) {
        n = 1 + (size_t)(draw(&seed) % most);
        if (n > size - at) n = size - at;
        wire_send(&w, data + at, n);
    }
    bool closed = wire_is_closed(&w);
    see(&closed, sizeof closed);
    see(&w.core.counts.faults, sizeof w.core.counts.faults);
    wire_close(&w);
    return seen;
}

/* One of the things that happen to a connection beside its input. */
static void disturb(uint64_t what)
{
    struct http_exchange *x = w.n_kept != 0 ? w.kept[what % w.n_kept] : NULL;
    switch (what >> 8 & 7) {
    case 0: wire_wait(&w, what >> 16 & 127); break;
    case 1: w.room = what >> 16 & 1023; break;
    case 2: w.room = SIZE_MAX; break;
    case 3:
        if (x != NULL && x->begun) http_sse_event(x, "e", "some\ndata", what >> 16 & 7);
        break;
    case 4:
        if (x == NULL) break;
        w.kept[what % w.n_kept] = w.kept[w.n_kept - 1];
        w.n_kept--;
        if (x->begun) http_stream_end(x);
        else if (what >> 16 & 1) http_abort(x);
        else http_reply(x, &(struct http_reply){ .status = 200, .body = "ok", .size = 2 });
        break;
    case 5:
        if ((what >> 16 & 15) == 0) httpconn_lose(&w.conn, HTTP_GONE_CLIENT);
        break;
    case 6:
        if ((what >> 16 & 15) == 0) httpconn_eof(&w.conn);
        break;
    default:
        w.core.draining = (what >> 16 & 31) == 0;
        if (w.core.draining) httpconn_drain(&w.conn);
        break;
    }
    wire_settle(&w);
}

static void run_disturbed(const uint8_t *data, size_t size, uint64_t seed)
{
    const struct http_route routes[] = WIRE_ROUTES(&w);
    open_wire(routes, ZP_COUNT(routes), false);
    for (size_t at = 0, n; at < size && w.n_kept < WIRE_CALLS; at += n) {
        uint64_t what = draw(&seed);
        n = 1 + (size_t)(what % 200);
        if (n > size - at) n = size - at;
        if (httpconn_wants_input(&w.conn)) wire_send(&w, data + at, n);
        disturb(draw(&seed));
        if (w.n_gone > w.n_calls) abort();
    }
    uint64_t exchanges = w.core.counts.exchanges;
    if (exchanges > w.n_kept + 1) abort(); /* the one being read may be another */
    wire_close(&w);
    if (w.core.counts.exchanges != 0) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint64_t live = live_bytes(), seed = hash_bytes(data, size, 7);
    uint64_t whole = run_in_parts(data, size, size + 1, 0);
    if (run_in_parts(data, size, 1, 0) != whole) abort();
    if (run_in_parts(data, size, 40, seed) != whole) abort();
    run_disturbed(data, size, seed);
    if (live_bytes() != live) abort();
    return 0;
}
