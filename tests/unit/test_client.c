/* test_client.c: streams of events as the HTML standard reads them, answers of chat servers, and
 * addresses: what is taken, what is refused, and with which words. */
#include "golden.h"

#include <zerope/client.h>

#include "client/chatstream.h"
#include "client/client.h"
#include "client/servererror.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* ---- events ---------------------------------------------------------------------------------- */

static zp_status note(void *arg, const char *name, const char *data, size_t size, zp_err *err)
{
    (void)size;
    return buffer_printf(arg, err, "%s=%s|", name, data);
}

static void expect_events(const char *stream, const char *wanted)
{
    for (size_t step = 1; step <= strlen(stream) + 1; step++) {
        struct buffer out = buffer_with_max(MEM_META, 4096);
        struct sse s = sse_with_most(64, note, &out);
        assert_int_equal(buffer_append(&out, "", 0, NULL), ZP_OK);
        for (size_t at = 0; at < strlen(stream); at += step)
            assert_int_equal(sse_push(&s, stream + at, strnlen(stream + at, step), NULL), ZP_OK);
        assert_string_equal(out.data, wanted);
        sse_free(&s);
        buffer_free(&out);
    }
}

static void test_events_are_read_as_the_standard_says(void **state)
{
    (void)state;
    expect_events("data: a\n\n", "message=a|");
    expect_events("data:a\n\ndata:  b\n\n", "message=a|message= b|");
    expect_events("data: a\r\n\r\ndata: b\r\rdata: c\n\n", "message=a|message=b|message=c|");
    expect_events("data: a\ndata: b\n\n", "message=a\nb|");
    expect_events("data: a\ndata\n\n", "message=a\n|");
    expect_events("data\n\ndata:\n\n", ""); /* empty data is no event */
    expect_events(": note\n\nid: 7\nretry: 9\nother: x\n\n", "");
    expect_events("event: error\ndata: a\n\ndata: b\n\n", "error=a|message=b|");
    expect_events("event: error\n\ndata: b\n\n", "message=b|");
    expect_events("\xEF\xBB\xBF" "data: a\n\n", "message=a|");
    expect_events("\n\xEF\xBB\xBF" "data: a\n\n", "");
    expect_events("data: a\n\ndata: cut", "message=a|");
    expect_events("Data: a\n data: b\n\n", "");
}

static void test_what_comes_without_an_event_has_an_end(void **state)
{
    (void)state;
    static const char *const pieces[] = { "x", ":\n", "\n", "data: y\n", "data\n", "event: z\n" };
    for (size_t i = 0; i < COUNT(pieces); i++) {
        struct buffer out = buffer_with_max(MEM_META, 4096);
        struct sse s = sse_with_most(64, note, &out);
        zp_err err = { 0 };
        zp_status status = ZP_OK;
        size_t sent = 0, n = strlen(pieces[i]);
        /* an end of an event in between starts the count again */
        assert_int_equal(sse_push(&s, "data: 0123456789\n\n", 18, NULL), ZP_OK);
        for (; status == ZP_OK && sent < 1000; sent += n)
            status = sse_push(&s, pieces[i], n, &err);
        assert_int_equal(status, ZP_RUN);
        assert_in_range(sent, 65, 64 + n);
        assert_string_equal(err.message, "the server sends more than 64 bytes without a whole "
                                         "event");
        sse_free(&s);
        buffer_free(&out);
    }
}

/* ---- answers --------------------------------------------------------------------------------- */

#define TEXT(t) "data: {\"choices\": [{\"index\": 0, \"delta\": {\"content\": \"" t "\"}}]}\n\n"
#define END(r) "data: {\"choices\": [{\"delta\": {}, \"finish_reason\": \"" r "\"}]}\n\n"
#define DONE "data: [DONE]\n\n"

static zp_status read_answer(struct chatstream *s, const char *stream, zp_err *err)
{
    chatstream_open(s, 16, NULL, NULL);
    zp_status status = chatstream_push(s, stream, strlen(stream), err);
    return status == ZP_OK ? chatstream_finish(s, err) : status;
}

static void test_answers_that_are_whole(void **state)
{
    (void)state;
    static const char *const streams[] = {
        "data: {\"choices\": [{\"delta\": {\"role\": \"assistant\", \"content\": null}}]}\n\n"
        TEXT("Hi ") TEXT("you") END("stop") DONE,
        TEXT("Hi you") DONE,
        TEXT("Hi you") END("stop"), /* some never say [DONE] */
        TEXT("Hi") "data: {\"choices\": [{\"index\": 1, \"delta\": {\"content\": \"no\"}}]}\n\n"
        TEXT(" you") DONE TEXT("more") "data: nothing\n\n",
        "data: {\"id\": \"x\", \"choices\": [], \"new\": [1]}\n\n" TEXT("Hi you") DONE,
    };
    for (size_t i = 0; i < COUNT(streams); i++) {
        struct chatstream s;
        zp_err err = { 0 };
        assert_int_equal(read_answer(&s, streams[i], &err), ZP_OK);
        assert_string_equal(s.text.data, "Hi you");
        assert_false(s.has_usage);
        chatstream_free(&s);
    }
}

static void test_tokens_and_reason_are_read(void **state)
{
    (void)state;
    struct chatstream s;
    zp_err err = { 0 };
    assert_int_equal(read_answer(&s, TEXT("a") END("le\\u001bngth")
                                 "data: {\"choices\": [], \"usage\": {\"prompt_tokens\": 9, "
                                 "\"completion_tokens\": 3, \"prompt_tokens_details\": "
                                 "{\"cached_tokens\": 4}}}\n\n" DONE, &err), ZP_OK);
    assert_string_equal(s.reason, "le?ngth");
    assert_true(s.has_usage);
    assert_int_equal(s.n_prompt, 9);
    assert_int_equal(s.n_reused, 4);
    assert_int_equal(s.n_generated, 3);
    chatstream_free(&s);
}

static void test_answers_that_are_none(void **state)
{
    (void)state;
    static const struct {
        const char *stream, *words;
        zp_status status;
    } cases[] = {
        { "", "before its answer was whole", ZP_IO },
        { TEXT("a"), "before its answer was whole", ZP_IO },
        { "data: {\"choices\": [\n\n", "not valid JSON", ZP_RUN },
        { "data: 7\n\n", "not valid JSON", ZP_RUN },
        { "data: {\"choices\": 7}\n\n", "\"choices\" of the wrong type", ZP_RUN },
        { "data: {\"choices\": [7]}\n\n", "a choice that is no object", ZP_RUN },
        { "data: {\"choices\": [{\"delta\": 7}]}\n\n", "\"delta\" of the wrong type", ZP_RUN },
        { "data: {\"choices\": [{\"delta\": {\"content\": []}}]}\n\n",
          "\"content\" of the wrong type", ZP_RUN },
        { TEXT("0123456789") TEXT("0123456"), "more than 16 bytes", ZP_RUN },
        { TEXT("a") "data: {\"error\": {\"message\": \"out of\\n \\u0007memory\"}}\n\n",
          "the server ended the answer: out of memory", ZP_RUN },
        { "data: {\"error\": \"no\"}\n\n", "ended the answer: no", ZP_RUN },
        { "event: error\ndata: {}\n\n", "ended the answer: no reason", ZP_RUN },
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct chatstream s;
        zp_err err = { 0 };
        assert_int_equal(read_answer(&s, cases[i].stream, &err), cases[i].status);
        if (strstr(err.message, cases[i].words) == NULL)
            fail_msg("case %zu: \"%s\" has no \"%s\"", i, err.message, cases[i].words);
        chatstream_free(&s);
    }
}

static void test_refusals_in_the_servers_words(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        { "{\"error\": {\"message\": \"bad key\", \"code\": 401}}", "bad key" },
        { "{\"type\": \"error\", \"error\": {\"type\": \"x\", \"message\": \"slow down\"}}",
          "slow down" },
        { "{\"error\": \"unknown model\"}", "unknown model" },
        { "{\"error\": null, \"detail\": \"Not Found\"}", "Not Found" },
        { "{\"message\": \"a\\u001b[2J\\u009b\\tb\"}", "a [2J b" },
        { "{\"error\": {}}", "no reason" },
        { "plain\nwords", "plain words" },
        { " <html>502</html>", "" },
        { "\xff", "" },
        { "", "" },
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        char words[SERVERERROR_ROOM];
        servererror_of_body(cases[i][0], strlen(cases[i][0]), words);
        assert_string_equal(words, cases[i][1]);
    }
}

/* ---- addresses ------------------------------------------------------------------------------- */

static void test_addresses(void **state)
{
    (void)state;
    static const char *const good[][2] = {
        { "http://h", "http://h/v1/chat/completions" },
        { "https://h:8443/", "https://h:8443/v1/chat/completions" },
        { "http://[::1]:80/llm//", "http://[::1]:80/llm/v1/chat/completions" },
        { "https://h/v1", "https://h/v1/chat/completions" },
        { "https://h/v1/", "https://h/v1/chat/completions" },
        { "https://h/x/chat/completions", "https://h/x/chat/completions" },
    };
    static const char *const bad[] = { "", "h", "h:80", "ftp://h", "http://", "http:///x",
                                       "http://:80", "HTTP://h", "http://u:p@h", "http://h/?q",
                                       "http://h#f", "http://h /", "http://h\n", "http://h\\x",
                                       "http://\xc3\xbc" };
    for (size_t i = 0; i < COUNT(good); i++) {
        struct buffer out = buffer_with_max(MEM_META, 4096);
        assert_int_equal(client_read_url(good[i][0], &out, NULL), ZP_OK);
        assert_string_equal(out.data, good[i][1]);
        buffer_free(&out);
    }
    for (size_t i = 0; i < COUNT(bad); i++) {
        struct buffer out = buffer_with_max(MEM_META, 4096);
        assert_int_equal(client_read_url(bad[i], &out, NULL), ZP_USAGE);
        buffer_free(&out);
    }
}

static void test_keys_that_would_break_a_header(void **state)
{
    (void)state;
    static const char *const bad[] = { "", "a b", "a\r\nX: y", "\xc3\xbc" };
    for (size_t i = 0; i < COUNT(bad); i++) {
        zp_client *c = NULL;
        zp_err err = { 0 };
        const zp_client_options o = { .url = "http://127.0.0.1:1", .key = bad[i] };
        assert_int_equal(zp_client_open(&c, &o, &err), ZP_USAGE);
        assert_null(c);
        if (bad[i][0] != '\0') assert_null(strstr(err.message, bad[i])); /* never shown */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_events_are_read_as_the_standard_says),
        cmocka_unit_test(test_what_comes_without_an_event_has_an_end),
        cmocka_unit_test(test_answers_that_are_whole),
        cmocka_unit_test(test_tokens_and_reason_are_read),
        cmocka_unit_test(test_answers_that_are_none),
        cmocka_unit_test(test_refusals_in_the_servers_words),
        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_keys_that_would_break_a_header),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
