/* service_fixture.h: the whole server on a thread of its own, on a small made-up model, and
 * blocking clients that speak HTTP to it. Waiting is for something that happens. Include after
 * golden.h. */
#ifndef TESTS_SERVICE_FIXTURE_H
#define TESTS_SERVICE_FIXTURE_H

#include <jansson.h>
#include <zerope/serve.h>

#include "live_bytes.h"
#include "serving.h"

#define SMALL_MODEL ZP_TEST_DATA "/arch/llama"
#define SMALL_TEMPLATE "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<a>"

struct live {
    zp_serve_options o;
    zp_serve *s;
    pthread_t thread;
    uint64_t bytes; /* before it was opened */
    sem_t ready;
    uint16_t port;
    zp_status status;
    zp_err err;
    pthread_mutex_t mutex;
    char *log, *audit; /* all lines so far */
    size_t log_size, audit_size;
};

static inline void live_keep(struct live *l, char **text, size_t *size, const char *line, size_t n,
                             const char *end)
{
    pthread_mutex_lock(&l->mutex);
    *text = realloc(*text, *size + n + 2);
    if (*text == NULL) abort();
    memcpy(*text + *size, line, n);
    *size += n;
    *size += (size_t)sprintf(*text + *size, "%s", end);
    pthread_mutex_unlock(&l->mutex);
}

static inline void live_log(void *arg, int level, const char *line, size_t size)
{
    struct live *l = arg;
    (void)level;
    live_keep(l, &l->log, &l->log_size, line, size, "");
}

static inline void live_audit(void *arg, const char *line, size_t size)
{
    struct live *l = arg;
    live_keep(l, &l->audit, &l->audit_size, line, size, "\n");
}

static inline void live_ready(void *arg, const char *url)
{
    struct live *l = arg;
    const char *port = strrchr(url, ':');
    l->port = port != NULL ? (uint16_t)strtol(port + 1, NULL, 10) : 0;
    sem_post(&l->ready);
}

static inline void *live_thread(void *arg)
{
    struct live *l = arg;
    l->status = zp_serve_run(l->s, &l->err);
    sem_post(&l->ready); /* also where it never was */
    return NULL;
}

/* The small model with room for long answers, on a free port, /admin open. */
static inline zp_serve_options live_options(void)
{
    return (zp_serve_options){ .model = SMALL_MODEL,
                               .model_options.chat_template = SMALL_TEMPLATE,
                               .engine = { .n_ctx = 512, .n_seq = 8, .n_threads = 2 },
                               .admin_open = true, .log_json = true, .log_level = 4 };
}

static inline zp_status live_open(struct live *l, const zp_serve_options *o, zp_err *err)
{
    *l = (struct live){ .o = *o, .bytes = live_bytes() };
    pthread_mutex_init(&l->mutex, NULL);
    sem_init(&l->ready, 0, 0);
    l->o.log = live_log;
    l->o.audit = live_audit;
    l->o.log_arg = l;
    l->o.ready = live_ready;
    l->o.ready_arg = l;
    return zp_serve_open(&l->s, &l->o, err);
}

static inline void live_begin(struct live *l, zp_serve_options o)
{
    zp_err err = { 0 };
    if (live_open(l, &o, &err) != ZP_OK) fail_msg("%s", err.message);
    assert_int_equal(pthread_create(&l->thread, NULL, live_thread, l), 0);
    serving_wait(&l->ready);
    if (l->s != NULL && l->err.code != ZP_OK) fail_msg("%s", l->err.message);
}

/* After it was stopped; all memory is given back. */
static inline void live_join(struct live *l)
{
    pthread_join(l->thread, NULL);
    if (l->status != ZP_OK) fail_msg("%s", l->err.message);
    zp_serve_close(l->s);
    assert_int_equal(live_bytes(), l->bytes);
    free(l->log);
    free(l->audit);
    sem_destroy(&l->ready);
    pthread_mutex_destroy(&l->mutex);
}

static inline void live_end(struct live *l)
{
    zp_serve_stop(l->s);
    live_join(l);
}

static inline size_t live_count(const char *text, const char *what)
{
    size_t n = 0;
    while (text != NULL && *what != '\0' && (text = strstr(text, what)) != NULL)
        n++, text += strlen(what);
    return n;
}

static inline size_t live_logged(struct live *l, const char *what)
{
    pthread_mutex_lock(&l->mutex);
    size_t n = live_count(l->log, what);
    pthread_mutex_unlock(&l->mutex);
    return n;
}

/* ---- clients ---- */

struct reply {
    int status;
    char *head, *body; /* one block, in head; chunks are put together */
    size_t size;
};

static inline void reply_free(struct reply *r)
{
    free(r->head);
    *r = (struct reply){ 0 };
}

/* headers: whole lines. body NULL: none. */
static inline void live_send_to(int fd, const char *method, const char *path, const char *headers,
                                const char *body)
{
    size_t size = body != NULL ? strlen(body) : 0;
    char *text = malloc(size + strlen(headers) + strlen(path) + 256);
    if (text == NULL) abort();
    int n = sprintf(text, "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%s"
                    "Content-Length: %zu\r\n\r\n", method, path, headers, size);
    if (size != 0) memcpy(text + n, body, size);
    client_send(fd, text, (size_t)n + size);
    free(text);
}

static inline char *live_read_all(int fd, size_t *size)
{
    size_t room = 1 << 16;
    char *text = malloc(room);
    *size = 0;
    for (;;) {
        if (text == NULL) abort();
        ssize_t n = recv(fd, text + *size, room - 1 - *size, 0);
        if (n < 0 && errno == ECONNRESET) break;
        if (n < 0) fail_msg("recv: %s", strerror(errno));
        if (n == 0) break;
        *size += (size_t)n;
        if (*size > room / 2) text = realloc(text, room *= 2);
    }
    text[*size] = '\0';
    return text;
}

static inline size_t live_dechunk(char *body)
{
    char *to = body, *from = body;
    for (;;) {
        char *end;
        size_t n = strtoul(from, &end, 16);
        if (end == from || n == 0) break;
        from = end + 2;
        memmove(to, from, n);
        to += n;
        from += n + 2;
    }
    *to = '\0';
    return (size_t)(to - body);
}

/* What is left of an answer whose first part was read already; closes. */
static inline struct reply live_parse(char *text, size_t size)
{
    struct reply r = { .head = text };
    char *end = strstr(text, "\r\n\r\n");
    if (sscanf(text, "HTTP/1.1 %d", &r.status) != 1 || end == NULL)
        fail_msg("no answer: %s", text);
    end[2] = '\0';
    r.body = end + 4;
    r.size = size - (size_t)(r.body - text);
    if (strstr(r.head, "transfer-encoding: chunked") != NULL) r.size = live_dechunk(r.body);
    return r;
}

static inline struct reply live_finish(int fd)
{
    size_t size;
    char *text = live_read_all(fd, &size);
    close(fd);
    return live_parse(text, size);
}

static inline int live_begin_ask(const struct live *l, const char *method, const char *path,
                                 const char *headers, const char *body)
{
    int fd = client_dial(l->port);
    live_send_to(fd, method, path, headers, body);
    return fd;
}

static inline struct reply live_ask(const struct live *l, const char *method, const char *path,
                                    const char *headers, const char *body)
{
    return live_finish(live_begin_ask(l, method, path, headers, body));
}

static inline json_t *reply_json(const struct reply *r)
{
    json_error_t e;
    json_t *j = json_loads(r->body, JSON_ALLOW_NUL, &e);
    if (j == NULL) fail_msg("%s in: %s", e.text, r->body);
    return j;
}

/* The JSON of an answer with that status; to json_decref. */
static inline json_t *live_json(const struct live *l, const char *method, const char *path,
                                const char *headers, const char *body, int status)
{
    struct reply r = live_ask(l, method, path, headers, body);
    if (r.status != status) fail_msg("%s: %d instead of %d: %s", path, r.status, status, r.body);
    json_t *j = reply_json(&r);
    reply_free(&r);
    return j;
}

static inline json_t *live_get(const struct live *l, const char *path)
{
    return live_json(l, "GET", path, "", NULL, 200);
}

static inline json_t *live_post(const struct live *l, const char *path, const char *body)
{
    return live_json(l, "POST", path, "", body, 200);
}

/* "choices.0.text": a value in a document; fails where there is none. */
static inline const json_t *json_in(const json_t *j, const char *path)
{
    char name[64];
    for (const char *at = path; j != NULL && *at != '\0';) {
        size_t n = strcspn(at, ".");
        snprintf(name, sizeof name, "%.*s", (int)n, at);
        j = json_is_array(j) ? json_array_get(j, strtoul(name, NULL, 10))
                             : json_object_get(j, name);
        at += n + (at[n] == '.');
    }
    if (j == NULL) fail_msg("there is no %s", path);
    return j;
}

static inline const char *text_in(const json_t *j, const char *path)
{
    const char *text = json_string_value(json_in(j, path));
    if (text == NULL) fail_msg("%s is no text", path);
    return text;
}

static inline double number_in(const json_t *j, const char *path)
{
    const json_t *x = json_in(j, path);
    if (!json_is_number(x)) fail_msg("%s is no number", path);
    return json_number_value(x);
}

/* A figure of /admin/status. */
static inline double live_figure(const struct live *l, const char *path)
{
    json_t *j = live_get(l, "/admin/status");
    double x = number_in(j, path);
    json_decref(j);
    return x;
}

/* Until a figure is what it must become; asking is what makes it go on. */
static inline void live_until(const struct live *l, const char *path, double value)
{
    time_t end = time(NULL) + PATIENCE;
    while (live_figure(l, path) != value)
        if (time(NULL) > end) fail_msg("%s is not %g after %d s", path, value, PATIENCE);
}

/* Until a text of /admin/status is, or with NULL a null. */
static inline void live_until_text(const struct live *l, const char *path, const char *value)
{
    time_t end = time(NULL) + PATIENCE;
    for (bool is = false; !is;) {
        json_t *j = live_get(l, "/admin/status");
        const char *text = json_string_value(json_in(j, path));
        is = value == NULL ? text == NULL : text != NULL && strcmp(text, value) == 0;
        const char *error = json_string_value(json_in(j, "models.load_error"));
        if (!is && ((error != NULL && value != NULL) || time(NULL) > end))
            fail_msg("%s is not %s; %s", path, value ? value : "null", error ? error : "");
        json_decref(j);
    }
}

/* All deltas of a stream of completions, put together; released with free(). */
static inline char *stream_text(const char *body)
{
    char *out = calloc(1, strlen(body) + 1), *line = strdup(body), *save = NULL;
    if (out == NULL || line == NULL) abort();
    for (char *at = strtok_r(line, "\n", &save); at != NULL; at = strtok_r(NULL, "\n", &save)) {
        if (strncmp(at, "data: {", 7) != 0) continue;
        json_t *j = json_loads(at + 6, 0, NULL);
        const json_t *choice = json_array_get(json_object_get(j, "choices"), 0);
        const char *text = json_string_value(json_object_get(choice, "text"));
        if (text != NULL) strcat(out, text);
        json_decref(j);
    }
    free(line);
    return out;
}

/* accepted = completed + cancelled + failed: metrics, /admin and the log; nothing is under way. */
static inline void live_check_books(struct live *l)
{
    live_until(l, "requests.under_way", 0);
    double accepted = live_figure(l, "requests.accepted");
    double completed = live_figure(l, "requests.completed");
    double cancelled = live_figure(l, "requests.cancelled");
    double failed = live_figure(l, "requests.failed");
    assert_true(accepted == completed + cancelled + failed);
    assert_int_equal(live_logged(l, "\"event\":\"request_ended\""), accepted);
    assert_int_equal(live_logged(l, "\"outcome\":\"completed\""), completed);
    assert_int_equal(live_logged(l, "\"outcome\":\"cancelled\""), cancelled);
    assert_int_equal(live_logged(l, "\"outcome\":\"failed\""), failed);
}

#endif
