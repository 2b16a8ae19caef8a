/* echo_server.c: the smallest server on the HTTP layer, for clients in other languages: echoes,
 * streams, waits. Prints its port, then a line for each exchange; ends when its input does.
 * Usage: echo_server [CERTIFICATE KEY] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "serve/http.h"

static struct evloop *loop;
static struct http_server *server;

static void echo(void *arg, const struct http_request *r, struct http_exchange *x)
{
    const char *type = http_header(r, "content-type");
    (void)arg;
    http_reply(x, &(struct http_reply){ .status = 200, .type = type, .body = r->body,
                                        .size = r->body_size });
}

/* /events?n=3: as many events, one a turn of the loop. */
struct stream {
    struct http_exchange *x;
    struct evtimer *timer;
    long n, at;
};

static void close_stream(struct stream *s)
{
    evtimer_close(s->timer);
    free(s);
}

static void on_turn(void *arg)
{
    struct stream *s = arg;
    char text[64];
    if (s->at == s->n) {
        http_sse_event(s->x, NULL, "[DONE]", 6);
        http_stream_end(s->x);
        close_stream(s);
        return;
    }
    int size = snprintf(text, sizeof text, "{\"n\": %ld}\nline two", s->at++);
    http_sse_event(s->x, "count", text, (size_t)size);
    evtimer_start(s->timer, 0, 0);
}

static void stream_is_gone(void *arg, struct http_exchange *x, enum http_gone why)
{
    (void)why;
    http_abort(x);
    close_stream(arg);
}

static void events(void *arg, const struct http_request *r, struct http_exchange *x)
{
    char n[16] = "0";
    struct stream *s = calloc(1, sizeof *s);
    (void)arg;
    (void)http_query(r, "n", n, sizeof n);
    if (s == NULL || evtimer_open(&s->timer, loop, on_turn, s, NULL) != ZP_OK) abort();
    s->x = x;
    s->n = strtol(n, NULL, 10);
    http_on_gone(x, stream_is_gone, s);
    http_sse_begin(x, NULL);
    evtimer_start(s->timer, 0, 0);
}

static void never_is_gone(void *arg, struct http_exchange *x, enum http_gone why)
{
    (void)arg;
    printf("gone %s %d\n", http_id(x), (int)why);
    http_abort(x);
}

static void never(void *arg, const struct http_request *r, struct http_exchange *x)
{
    printf("waits %s\n", r->id);
    http_on_gone(x, never_is_gone, arg);
}

static void on_access(void *arg, const struct http_access *a)
{
    (void)arg;
    printf("%s %s %s %d%s\n", a->id, a->method, a->path, a->status, a->cut ? " cut" : "");
}

static void drained(void *arg)
{
    (void)arg;
    http_close(server);
    evloop_stop(loop);
}

static void on_input(void *arg, int events_seen)
{
    char byte;
    (void)arg, (void)events_seen;
    if (read(STDIN_FILENO, &byte, 1) == 0) {
        evpoll_close(*(struct evpoll **)arg);
        http_drain(server, 1000, drained, NULL);
    }
}

int main(int argc, char **argv)
{
    static const struct http_route routes[] = {
        { .method = "GET", .path = "/echo", .handle = echo },
        { .method = "POST", .path = "/echo", .handle = echo },
        { .method = "GET", .path = "/events", .handle = events },
        { .method = "POST", .path = "/never", .handle = never },
    };
    static const char *const origins[] = { "https://page.example" };
    struct http_options o = { .routes = routes, .n_routes = ZP_COUNT(routes), .origins = origins,
                              .n_origins = 1, .on_access = on_access,
                              .limits = { .body_bytes = 1 << 20 } };
    if (argc == 3) {
        o.certificate = argv[1];
        o.key = argv[2];
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    zp_err err = { 0 };
    struct evpoll *input = NULL;
    uint16_t port;
    if (evloop_open(&loop, &err) != ZP_OK || http_open(&server, loop, &o, &err) != ZP_OK ||
        http_listen_tcp(server, "127.0.0.1", 0, argc == 3, &port, &err) != ZP_OK ||
        evpoll_open(&input, loop, STDIN_FILENO, on_input, &input, &err) != ZP_OK ||
        evpoll_watch(input, EV_READ, &err) != ZP_OK) {
        fprintf(stderr, "echo_server: %s\n", err.message);
        return 1;
    }
    printf("%u\n", port);
    evloop_run(loop);
    evloop_close(loop);
    return 0;
}
