/* client.c: a request on its way, its answer, its refusal. */
#include "client.h"

#include <stdio.h>
#include <string.h>
#include <zerope/client.h>

#include "base/json_tree.h"
#include "base/os.h"
#include "chatstream.h"
#include "netpost.h"
#include "servererror.h"

enum { MOST_URL = 2000, MOST_KEY = 1000, MOST_REFUSAL = 64 << 10,
       MOST_REQUEST = 256 << 20 };

struct zp_client {
    struct netpost *net;
    struct buffer url, key, ca_file;
    double patience;
    size_t most_answer;
};

/* An exchange that is under way. */
struct talk {
    struct chatstream stream;
    struct buffer refusal;
    bool (*on_text)(void *arg, const char *text, size_t size);
    bool (*goes_on)(void *arg);
    void *arg;
    double begun, first;
};

/* ---- options --------------------------------------------------------------------------------- */

static bool ends_with(const char *text, size_t size, const char *end)
{
    size_t n = strlen(end);
    return size >= n && memcmp(text + size - n, end, n) == 0;
}

static bool is_printable(const char *text)
{
    for (; *text > ' ' && *text < 0x7f; text++) {
    }
    return *text == '\0';
}

zp_status client_read_url(const char *url, struct buffer *out, zp_err *err)
{
    bool tls = strncmp(url, "https://", 8) == 0;
    ZP_FAIL_IF(!tls && strncmp(url, "http://", 7) != 0, err, ZP_USAGE,
               "\"%.200s\" is no server's address: expected http://HOST:PORT or https://HOST", url);
    const char *host = url + 7 + tls;
    size_t n_host = strcspn(host, "/?#"), size = strlen(url);
    ZP_FAIL_IF(size > MOST_URL || !is_printable(url) || n_host == 0 || host[0] == ':' ||
                   strpbrk(url, "?#\\\"<>") != NULL,
               err, ZP_USAGE, "\"%.200s\" is no server's address: expected http://HOST:PORT, with "
                              "a path at most", url);
    ZP_FAIL_IF(memchr(host, '@', n_host) != NULL, err, ZP_USAGE,
               "the server's address has a name or password: keys are given apart");
    while (size > (size_t)(host + n_host - url) && url[size - 1] == '/') size--;
    ZP_TRY(buffer_append(out, url, size, err));
    if (ends_with(url, size, "/chat/completions")) return ZP_OK;
    return buffer_append_text(out, ends_with(url, size, "/v1") ? "/chat/completions"
                                                               : "/v1/chat/completions", err);
}

static zp_status read_options(zp_client *c, const zp_client_options *o, zp_err *err)
{
    ZP_FAIL_IF(o->url == NULL, err, ZP_USAGE, "the server's address is missing");
    ZP_FAIL_IF(o->key != NULL && (o->key[0] == '\0' || strlen(o->key) > MOST_KEY ||
                                  !is_printable(o->key)),
               err, ZP_USAGE, "the key is empty, longer than %d bytes, or not plain ASCII",
               MOST_KEY); /* never shown */
    c->patience = o->patience > 0 ? o->patience : 600;
    c->most_answer = o->most_answer > 0 ? o->most_answer : (size_t)16 << 20;
    ZP_TRY(client_read_url(o->url, &c->url, err));
    if (o->key != NULL) ZP_TRY(buffer_append_text(&c->key, o->key, err));
    if (o->ca_file != NULL) ZP_TRY(buffer_append_text(&c->ca_file, o->ca_file, err));
    return ZP_OK;
}

zp_status zp_client_open(zp_client **out, const zp_client_options *options, zp_err *err)
{
    *out = NULL;
    zp_client *c = mem_zalloc(MEM_META, sizeof *c);
    ZP_FAIL_IF(c == NULL, err, ZP_NO_MEMORY, "not enough memory for a client");
    c->url = c->key = c->ca_file = buffer_with_max(MEM_META, 8192);
    zp_status status = read_options(c, options, err);
    if (status == ZP_OK) status = netpost_open(&c->net, err);
    if (status == ZP_OK) *out = c;
    else zp_client_close(c);
    return status;
}

void zp_client_close(zp_client *c)
{
    if (c == NULL) return;
    netpost_close(c->net);
    buffer_free(&c->url);
    buffer_free(&c->key);
    buffer_free(&c->ca_file);
    mem_free(c);
}

/* ---- an exchange ----------------------------------------------------------------------------- */

static int append_piece(const char *piece, size_t size, void *body)
{
    return buffer_append(body, piece, size, NULL) == ZP_OK ? 0 : -1;
}

static zp_status write_body(const char *request, struct buffer *out, zp_err *err)
{
    json_t *body = NULL;
    ZP_TRY(json_tree_read(request, strlen(request), "the request", ZP_USAGE, &body, err));
    body = json_tree_put(body, "stream", json_true());
    if (body != NULL)
        body = json_tree_put(body, "stream_options", json_pack("{s:b}", "include_usage", 1));
    bool whole = body != NULL && json_dump_callback(body, append_piece, out, JSON_COMPACT) == 0;
    json_decref(body);
    ZP_FAIL_IF(!whole, err, ZP_NO_MEMORY, "no room for the request, or it is no object");
    return ZP_OK;
}

static bool on_text(void *arg, const char *text, size_t size)
{
    struct talk *t = arg;
    if (t->first == 0) t->first = os_now();
    return t->on_text == NULL || t->on_text(t->arg, text, size);
}

static bool goes_on(void *arg)
{
    const struct talk *t = arg;
    return t->goes_on == NULL || t->goes_on(t->arg);
}

static zp_status take(void *arg, const struct netpost_head *head, const void *bytes, size_t size,
                      bool *alive, bool *ended, zp_err *err)
{
    struct talk *t = arg;
    if (head->status != 200) { /* its beginning is enough */
        size_t room = t->refusal.max - t->refusal.size;
        *ended = size >= room;
        return buffer_append(&t->refusal, bytes, size < room ? size : room, err);
    }
    ZP_FAIL_IF(strcmp(head->type, "text/event-stream") != 0, err, ZP_RUN,
               "the server answers with %s, expected text/event-stream",
               head->type[0] != '\0' ? head->type : "no Content-Type");
    uint64_t lines = t->stream.sse.n_lines;
    zp_status status = chatstream_push(&t->stream, bytes, size, err);
    *alive = t->stream.sse.n_lines > lines;
    *ended = t->stream.done;
    return status;
}

static zp_status tell_refusal(const struct talk *t, int status, zp_err *err)
{
    char words[SERVERERROR_ROOM];
    servererror_of_body(t->refusal.size > 0 ? (const char *)t->refusal.data : "", t->refusal.size,
                        words);
    ZP_FAIL_IF(status >= 300 && status < 400, err, ZP_RUN,
               "the server sends elsewhere (HTTP %d), which is not followed: give that address",
               status);
    zp_status code = status == 400 || status == 413 || status == 422 ? ZP_BAD_INPUT : ZP_RUN;
    ZP_FAIL_IF(words[0] != '\0', err, code, "the server says: %s (HTTP %d)", words, status);
    ZP_FAIL(err, code, "the server refuses the request (HTTP %d)", status);
}

static zp_status copy_answer(struct talk *t, const struct netpost_head *head, zp_client_answer *out,
                             zp_err *err)
{
    const struct chatstream *s = &t->stream;
    out->text = mem_alloc(MEM_META, s->text.size + 1);
    ZP_FAIL_IF(out->text == NULL, err, ZP_NO_MEMORY, "not enough memory for the answer");
    if (s->text.size > 0) memcpy(out->text, s->text.data, s->text.size);
    out->text[out->size = s->text.size] = '\0';
    (void)snprintf(out->reason, sizeof out->reason, "%s", s->reason);
    out->http_status = head->status;
    out->has_usage = s->has_usage;
    out->n_prompt = s->n_prompt;
    out->n_reused = s->n_reused;
    out->n_generated = s->n_generated;
    out->seconds = os_now() - t->begun;
    out->first_seconds = t->first > 0 ? t->first - t->begun : 0;
    return ZP_OK;
}

zp_status zp_client_chat(zp_client *c, const char *request,
                         bool (*text)(void *arg, const char *text, size_t size),
                         bool (*more)(void *arg), void *arg, zp_client_answer *out, zp_err *err)
{
    struct buffer body = buffer_with_max(MEM_META, MOST_REQUEST);
    struct talk t = { .refusal = buffer_with_max(MEM_META, MOST_REFUSAL), .on_text = text,
                      .goes_on = more, .arg = arg };
    struct netpost_head head = { 0 };
    *out = (zp_client_answer){ 0 };
    zp_status status = write_body(request, &body, err);
    const struct netpost_request r = {
        .url = (const char *)c->url.data, .body = (const char *)body.data, .size = body.size,
        .key = c->key.size > 0 ? (const char *)c->key.data : NULL,
        .ca_file = c->ca_file.size > 0 ? (const char *)c->ca_file.data : NULL,
        .patience = c->patience, .take = take, .goes_on = goes_on, .arg = &t,
    };
    chatstream_open(&t.stream, c->most_answer, on_text, &t);
    t.begun = os_now();
    if (status == ZP_OK) status = netpost_run(c->net, &r, &head, err);
    if (status == ZP_OK && head.status != 200) status = tell_refusal(&t, head.status, err);
    else if (status == ZP_OK) status = chatstream_finish(&t.stream, err);
    zp_status copied = copy_answer(&t, &head, out, err);
    chatstream_free(&t.stream);
    buffer_free(&t.refusal);
    buffer_free(&body);
    return status != ZP_OK ? status : copied;
}

void zp_client_free_answer(zp_client_answer *answer)
{
    mem_free(answer->text);
    *answer = (zp_client_answer){ 0 };
}
