/* test_service_memory.c: the server when allocation number n fails, for all n: its start says so
 * and leaves nothing; a request gets a whole answer, an error or the end of its connection, is
 * counted once, and the next one is answered as ever. */
#include "fault/alloc_failures.h"

#include "service_fixture.h"

/* ---- the start ------------------------------------------------------------------------------- */

struct start {
    zp_serve *s;
    bool ready;
};

static void stop(void *arg, const char *url)
{
    struct start *t = arg;
    (void)url;
    t->ready = true;
    zp_serve_stop(t->s);
}

/* Opens, loads, listens, ends. */
static zp_status start_and_stop(struct start *t, zp_err *why)
{
    zp_serve_options o = live_options();
    *t = (struct start){ 0 };
    o.ready = stop;
    o.ready_arg = t;
    ZP_TRY(zp_serve_open(&t->s, &o, why));
    zp_status status = zp_serve_run(t->s, why);
    zp_serve_close(t->s);
    return status;
}

static void fail_start(uint64_t n, bool for_ever)
{
    struct start t;
    zp_err why = { 0 };
    uint64_t live = live_bytes();
    mem_fail_at(n, for_ever);
    zp_status status = start_and_stop(&t, &why);
    mem_fail_at(0, false);
    if (live_bytes() != live) fail_msg("allocation %llu: bytes stay behind", (unsigned long long)n);
    if (status == ZP_OK && t.ready) return; /* a line of the log is a convenience */
    if (status != ZP_NO_MEMORY || why.message[0] == '\0')
        fail_msg("allocation %llu: %s: %s", (unsigned long long)n, zp_status_name(status),
                 why.message);
}

/* All of the server's own, and a sample of those of its model (test_alloc_failures). */
static void test_starting(void **state)
{
    enum { OWN = 120, SAMPLE = 80 };
    struct mem_stats before, after;
    struct start t;
    zp_err why = { 0 };
    const struct fail_call plan = { .all = OWN, .sample = SAMPLE };
    (void)state;
    mem_stats_read(&before);
    assert_int_equal(start_and_stop(&t, &why), ZP_OK);
    assert_true(t.ready);
    mem_stats_read(&after);
    uint64_t total = after.allocations - before.allocations;
    printf("  %llu allocations\n", (unsigned long long)total);
    assert_true(total > OWN + SAMPLE);
    for (uint64_t i = 0; i < OWN + SAMPLE; i++) {
        fail_start(fail_number(&plan, i, total), false);
        fail_start(fail_number(&plan, i, total), true);
    }
    assert_int_equal(start_and_stop(&t, &why), ZP_OK);
}

/* ---- requests -------------------------------------------------------------------------------- */

static const struct question {
    const char *path, *body, *end; /* of a whole answer */
    bool stream;
} questions[] = {
    { "/v1/completions",
      "{\"prompt\":[\"Hello\",\"you\"],\"max_tokens\":4,\"ignore_eos\":true,\"temperature\":0,"
      "\"logprobs\":2,\"n\":2,\"stop\":\"zq\"}",
      "}", false },
    { "/v1/completions",
      "{\"prompt\":\"Hello\",\"max_tokens\":4,\"ignore_eos\":true,"
      "\"temperature\":0,\"stream\":true}",
      "data: [DONE]\n\n", true },
    { "/v1/chat/completions",
      "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],"
      "\"max_tokens\":4,\"temperature\":0,\"stream\":true,\"response_format\":{\"type\":"
      "\"json_object\"}}",
      "data: [DONE]\n\n", true },
    { "/v1/messages",
      "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"max_tokens\":4,"
      "\"temperature\":0,\"stream\":true,\"ignore_eos\":true}",
      "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n", true },
    { "/v1/embeddings", "{\"input\":[\"Hello\",[5,6]],\"encoding_format\":\"base64\"}", "}",
      false },
    { "/v1/messages/count_tokens", "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}", "}",
      false },
    { "/tokenize", "{\"content\":\"Hello\",\"with_pieces\":true}", "}", false },
    { "/apply-template", "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}", "}", false },
};

static char *ask(const struct live *l, const struct question *q, size_t *size)
{
    int fd = live_begin_ask(l, "POST", q->path, "x-request-id: one\r\n", q->body);
    char *text = live_read_all(fd, size);
    close(fd);
    return text;
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), k = strlen(end);
    return n >= k && strcmp(text + n - k, end) == 0;
}

/* A body without what is of its time and chance: numbers of "created" and ids. */
static char *essence(const char *body)
{
    static const char *const marks[] = { "\"created\":", "\"id\":\"" };
    char *out = strdup(body);
    for (size_t i = 0; i < ZP_COUNT(marks); i++)
        for (char *at = out; (at = strstr(at, marks[i])) != NULL;)
            for (at += strlen(marks[i]); *at != '\0' && strchr("\",", *at) == NULL; at++) *at = '0';
    return out;
}

/* No answer at all, or the beginning of one; one that says that memory is missing; the good one. */
static void check_answer(const struct question *q, char *text, size_t size, const char *good,
                         uint64_t n)
{
    if (size == 0 || strstr(text, "\r\n\r\n") == NULL) {
        free(text);
        return;
    }
    struct reply r = live_parse(text, size);
    bool whole = ends_with(r.body, q->end);
    /* The second: of HTTP alone, where there was no room for more words. */
    bool told = strstr(r.body, "no memory left") || strstr(r.body, "failed inside the server");
    if (r.status != 200 && r.status != 503 && r.status != 529 && r.status != 500)
        fail_msg("%s, allocation %llu: %d %s", q->path, (unsigned long long)n, r.status, r.body);
    if (r.status == 200 && told) assert_true(q->stream && !whole);
    else if (r.status == 200 && whole) {
        char *body = essence(r.body);
        if (strcmp(body, good) != 0)
            fail_msg("%s, allocation %llu: %s\ninstead of %s", q->path, (unsigned long long)n, body,
                     good);
        free(body);
    } else if (!told && r.status != 200)
        fail_msg("%s, allocation %llu: %s", q->path, (unsigned long long)n, r.body);
    reply_free(&r);
}

static uint64_t fail_question(struct live *l, const struct question *q, bool for_ever)
{
    uint64_t failed = 1, n;
    size_t size;
    char *first = ask(l, q, &size);
    struct reply r = live_parse(first, size);
    char *good = essence(r.body);
    if (r.status != 200) fail_msg("%s: %s", q->path, r.body);
    reply_free(&r);
    for (n = 1; failed != 0; n++) {
        mem_fail_at(n, for_ever);
        char *text = ask(l, q, &size);
        failed = mem_fail_count();
        mem_fail_at(0, false);
        check_answer(q, text, size, good, n);
        live_until(l, "requests.under_way", 0);
    }
    char *last = ask(l, q, &size);
    check_answer(q, last, size, good, 0);
    free(good);
    return n - 2;
}

static void test_requests(void **state)
{
    struct live l;
    (void)state;
    live_begin(&l, live_options());
    for (size_t i = 0; i < ZP_COUNT(questions); i++) {
        uint64_t n = fail_question(&l, &questions[i], false);
        (void)fail_question(&l, &questions[i], true);
        printf("  %s: %llu allocations failed\n", questions[i].path, (unsigned long long)n);
        assert_true(n > 10);
    }
    live_check_books(&l);
    live_end(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_starting),
        cmocka_unit_test(test_requests),
    };
    fail_watch_jansson();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
