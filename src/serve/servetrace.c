/* servetrace.c: spans are gathered on the loop's thread and posted by a thread of their own, which
 * may wait for the collector.
 * P1 one batch is under way at a time; what comes meanwhile waits in otlp.h's bounded room.
 * P2 a batch that the collector does not take is dropped and counted: requests never wait for it.
 * P3 to connect, and then to post, takes at most PART_SECONDS + WAIT_SECONDS, whatever a collector
 *    does; the last batch is posted when the server has ended. */
#include "serve/servetrace.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/os.h"

enum { WAIT_SECONDS = 3, PART_SECONDS = 5, MOST_BATCH = 2 << 20 };

struct servetrace {
    zp_serve *s;
    struct otlp spans;
    struct rng random;
    struct servework *sender;
    struct servetrace_place to;
    struct servetask task;
    /* of the batch */
    bool sending, taken;
    struct buffer body;
    size_t n_spans;
    uint64_t n_sent, n_lost;
};

/* ---- where to -------------------------------------------------------------------------------- */

zp_status servetrace_read_url(const char *url, struct servetrace_place *out, zp_err *err)
{
    static const char words[] = "\"%s\" is no address of a collector: expected http://host:4318";
    const char *host = url + 7;
    ZP_FAIL_IF(strncmp(url, "http://", 7) != 0, err, ZP_USAGE, words, url);
    bool v6 = host[0] == '[';
    size_t n = v6 ? strcspn(++host, "]") : strcspn(host, ":/");
    const char *at = host + n;
    ZP_FAIL_IF(n == 0 || n >= sizeof out->host || (v6 && *at != ']'), err, ZP_USAGE, words, url);
    memcpy(out->host, host, n);
    out->host[n] = '\0';
    at += v6;
    (void)snprintf(out->port, sizeof out->port, "4318");
    if (*at == ':') {
        n = strspn(++at, "0123456789");
        ZP_FAIL_IF(n == 0 || n > 5, err, ZP_USAGE, words, url);
        (void)snprintf(out->port, sizeof out->port, "%.*s", (int)n, at);
        at += n;
    }
    bool bare = *at == '\0' || strcmp(at, "/") == 0;
    ZP_FAIL_IF((!bare && *at != '/') || strlen(at) >= sizeof out->path ||
                   strpbrk(at, " \t\r\n#") != NULL,
               err, ZP_USAGE, words, url);
    (void)snprintf(out->path, sizeof out->path, "%s", bare ? "/v1/traces" : at);
    return ZP_OK;
}

/* ---- sending, on the sender's thread --------------------------------------------------------- */

static int dial(const struct servetrace_place *to)
{
    const struct addrinfo want = { .ai_socktype = SOCK_STREAM };
    const struct timeval most = { .tv_sec = WAIT_SECONDS };
    struct addrinfo *list = NULL;
    int fd = -1;
    if (getaddrinfo(to->host, to->port, &want, &list) != 0) return -1;
    double until = os_now() + PART_SECONDS;
    for (const struct addrinfo *a = list; a != NULL && fd < 0 && os_now() < until; a = a->ai_next) {
        fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
        if (fd < 0) continue;
        (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof most);
        (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
        if (connect(fd, a->ai_addr, a->ai_addrlen) == 0) break;
        (void)close(fd);
        fd = -1;
    }
    freeaddrinfo(list);
    return fd;
}

static bool send_all(int fd, const void *data, size_t size, double until)
{
    const char *at = data;
    while (size > 0) {
        if (os_now() > until) return false; // P3
        ssize_t n = send(fd, at, size, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        at += n;
        size -= (size_t)n;
    }
    return true;
}

/* What is closed unread would reach the collector as a broken connection. */
static void read_rest(int fd, double until)
{
    char rest[4096];
    while (os_now() < until && recv(fd, rest, sizeof rest, 0) > 0) { // P3
    }
}

/* Whether the answer begins with "HTTP/1.1 2". */
static bool is_taken(int fd, double until)
{
    char answer[10];
    size_t n = 0;
    while (n < sizeof answer) {
        if (os_now() > until) return false; // P3
        ssize_t more = recv(fd, answer + n, sizeof answer - n, 0);
        if (more < 0 && errno == EINTR) continue;
        if (more <= 0) return false;
        n += (size_t)more;
    }
    read_rest(fd, until);
    return memcmp(answer, "HTTP/1.", 7) == 0 && answer[8] == ' ' && answer[9] == '2';
}

static void post(struct servetask *task)
{
    struct servetrace *t = (struct servetrace *)((char *)task - offsetof(struct servetrace, task));
    char head[1024];
    bool v6 = strchr(t->to.host, ':') != NULL;
    int n = snprintf(head, sizeof head,
                     "POST %s HTTP/1.1\r\nHost: %s%s%s:%s\r\nContent-Type: application/json\r\n"
                     "Content-Length: %zu\r\nConnection: close\r\n\r\n",
                     t->to.path, v6 ? "[" : "", t->to.host, v6 ? "]" : "", t->to.port,
                     t->body.size);
    int fd = dial(&t->to);
    double until = os_now() + PART_SECONDS;
    t->taken = fd >= 0 && n > 0 && (size_t)n < sizeof head &&
               send_all(fd, head, (size_t)n, until) &&
               send_all(fd, t->body.data, t->body.size, until) && is_taken(fd, until);
    if (fd >= 0) (void)close(fd);
}

static void posted(struct servetask *task)
{
    struct servetrace *t = (struct servetrace *)((char *)task - offsetof(struct servetrace, task));
    *(t->taken ? &t->n_sent : &t->n_lost) += t->n_spans; // P2
    t->sending = false;
    buffer_clear(&t->body);
}

/* ---- the loop's side ------------------------------------------------------------------------- */

zp_status servetrace_open(struct servetrace **out, zp_serve *s, const char *url, zp_err *err)
{
    *out = NULL;
    struct servetrace *t = mem_zalloc(MEM_SERVE, sizeof *t);
    ZP_FAIL_IF(t == NULL, err, ZP_NO_MEMORY, "not enough memory for traces");
    const struct otlp_options o = { .version = ZEROPE_VERSION, .seed = service_random(s) };
    t->s = s;
    t->task = (struct servetask){ .run = post, .done = posted };
    t->random = rng_stream(service_random(s), 0);
    t->body = buffer_with_max(MEM_SERVE, MOST_BATCH);
    zp_status status = servetrace_read_url(url, &t->to, err);
    if (status == ZP_OK) status = otlp_open(&t->spans, &o, err);
    if (status == ZP_OK) status = servework_open(&t->sender, s->loop, 1, err);
    if (status == ZP_OK) *out = t;
    else servetrace_close(t);
    return status;
}

void servetrace_close(struct servetrace *t)
{
    if (t == NULL) return;
    servework_close(t->sender);
    if (t->spans.n_waiting > 0 && otlp_take(&t->spans, &t->body, &t->n_spans, NULL) == ZP_OK)
        post(&t->task); // P3
    otlp_free(&t->spans);
    buffer_free(&t->body);
    mem_free(t);
}

void servetrace_begin(struct servetrace *t, struct servejob *j, const char *header)
{
    struct traceparent caller;
    if (t == NULL) return;
    j->has_parent = traceparent_read(header, &caller);
    if (j->has_parent) {
        memcpy(j->parent, caller.span, sizeof j->parent);
        j->trace = traceparent_child(&caller, &t->random);
    } else j->trace = traceparent_new(&t->random, 1);
}

void servetrace_end(struct servetrace *t, const struct servejob *j, const struct sched_usage *u,
                    int status, const char *error)
{
    static const char *const routes[] = { "/v1/chat/completions", "/v1/completions",
                                          "/v1/messages", "/v1/embeddings" };
    static const char *const operations[] = { "chat", "text_completion", "chat", "embeddings" };
    if (t == NULL) return;
    otlp_set_clock(&t->spans, os_now(), os_unix_now());
    double accepted = j->accepted_at, begun = 0;
    if (u->phase != SCHED_QUEUED) begun = j->arrived + u->queue_seconds;
    /* The scheduler's thread may begin before the loop's has noted that the job is there. Of a
     * request that moved the queue is that of the second model: not told. */
    if (j->moved && begun != 0) begun = accepted;
    if (begun != 0 && begun < accepted) accepted = begun;
    const struct otlp_request r = {
        .trace = j->trace, .parent = j->has_parent ? j->parent : NULL, .method = "POST",
        .route = routes[j->endpoint],
        .operation = operations[j->endpoint],
        .request_id = j->request_id, .model = j->runs_on->name,
        .variant = variant_name(j->ticket.variant), .mode = position_mode_name(j->mode),
        .error = error, .status = status, .n_prompt = u->n_prompt, .n_reused = u->n_reused,
        .n_generated = u->n_drawn, .arrived = j->arrived, .accepted = accepted, .begun = begun,
        .first_token = j->first, .last_token = j->last, .stream = j->begun ? j->first : 0,
        .ended = os_now()
    };
    otlp_add(&t->spans, &r);
}

void servetrace_tick(struct servetrace *t)
{
    zp_err err = { 0 };
    if (t == NULL) return;
    struct metrics *m = t->s->metrics;
    metrics_set_count(m, METRIC_TRACE_SPANS, METRIC_AT(LABEL_SPANS_SENT), t->n_sent);
    metrics_set_count(m, METRIC_TRACE_SPANS, METRIC_AT(LABEL_SPANS_DROPPED),
                      t->n_lost + t->spans.n_dropped);
    if (t->sending || t->spans.n_waiting == 0) return; // P1
    if (otlp_take(&t->spans, &t->body, &t->n_spans, &err) != ZP_OK || t->n_spans == 0) return;
    t->sending = true;
    servework_give(t->sender, &t->task);
}
