/* test_apifault.c: what went wrong, in the shapes of both APIs, byte for byte. */
#include "api_fixture.h"

static void body_is(const struct apifault *f, enum api api, const char *id, const char *expected)
{
    struct buffer b = buffer_with_max(MEM_META, 1 << 20);
    GOLDEN_OK(apifault_write(f, api, id, &b, err));
    api_text_is(&b, expected);
    buffer_free(&b);
}

static void test_wrong_field(void **state)
{
    struct apifault f = { 0 };
    json_t *found = json_string("hot");
    (void)state;
    assert_int_equal(apifault_expected(&f, "temperature", found, "a number from %d to %d", 0, 2),
                     ZP_BAD_INPUT);
    json_decref(found);
    body_is(&f, API_OPENAI, "req_1",
            "{`error`:{`message`:`'temperature': expected a number from 0 to 2, found \\`hot\\``,"
            "`type`:`invalid_request_error`,`param`:`temperature`,`code`:`invalid_value`}}");
    body_is(&f, API_ANTHROPIC, "req_1",
            "{`type`:`error`,`error`:{`type`:`invalid_request_error`,"
            "`message`:`'temperature': expected a number from 0 to 2, found \\`hot\\``},"
            "`request_id`:`req_1`}");
    body_is(&f, API_ANTHROPIC, NULL,
            "{`type`:`error`,`error`:{`type`:`invalid_request_error`,"
            "`message`:`'temperature': expected a number from 0 to 2, found \\`hot\\``}}");
}

static void test_first_fault_is_told(void **state)
{
    struct apifault f = { 0 };
    const struct sched_event late = { .kind = SCHED_REFUSED, .why = SCHED_TOO_LONG,
                                      .refusal = { 9, 8, 0 } };
    (void)state;
    (void)apifault_unsupported(&f, "audio", "not supported here");
    (void)apifault_set(&f, 500, "later", NULL, "later");
    assert_int_equal(apifault_of_job(&f, "prompt", &late), ZP_BAD_INPUT);
    body_is(&f, API_OPENAI, NULL,
            "{`error`:{`message`:`'audio': not supported here`,`type`:`invalid_request_error`,"
            "`param`:`audio`,`code`:`unsupported_value`}}");
}

static void test_prompt_that_is_too_long(void **state)
{
    struct apifault f = { 0 };
    const struct sched_event e = { .kind = SCHED_REFUSED, .why = SCHED_TOO_LONG,
                                   .refusal = { 5000, 4096, 0 } };
    (void)state;
    (void)apifault_of_job(&f, "messages", &e);
    assert_int_equal(apifault_status(&f, API_OPENAI), 400);
    body_is(&f, API_OPENAI, NULL,
            "{`error`:{`message`:`request (5000 tokens) exceeds the available context size (4096 "
            "tokens), try increasing it`,`type`:`invalid_request_error`,`param`:`messages`,"
            "`code`:`context_length_exceeded`,`n_prompt_tokens`:5000,`n_ctx`:4096}}");
    body_is(
        &f, API_ANTHROPIC, "req_2",
        "{`type`:`error`,`error`:{`type`:`invalid_request_error`,`message`:`prompt is too long: "
        "5000 tokens > 4096 maximum; request (5000 tokens) exceeds the available context size "
        "(4096 tokens), try increasing it`},`request_id`:`req_2`}");
}

/* The job's end, and what clients of both APIs see of it. */
static void test_ends_of_jobs(void **state)
{
    static const zp_err invalid = { .code = ZP_USAGE, .message = "65 stop strings; at most 64" },
                        no_token = { .code = ZP_BAD_INPUT, .message = "no token can be drawn" },
                        broken = { .code = ZP_RUN, .message = "/srv/secret: broken" },
                        memory = { .code = ZP_NO_MEMORY, .message = "no" };
    static const struct {
        struct sched_event e;
        int status, anthropic;
        const char *code, *type, *anthropic_type, *message;
        uint32_t retry;
    } cases[] = {
        { { .kind = SCHED_REFUSED, .why = SCHED_QUEUE_FULL, .refusal = { 9, 8, 2.2 } }, 429, 429,
          "queue_full", "rate_limit_error", "rate_limit_error",
          "too many requests are waiting; try again later", 3 },
        { { .kind = SCHED_REFUSED, .why = SCHED_QUEUE_FULL }, 429, 429, "queue_full",
          "rate_limit_error", "rate_limit_error", "too many requests are waiting; try again later",
          1 },
        { { .kind = SCHED_REFUSED, .why = SCHED_QUEUE_FULL, .refusal = { 9, 8, 1e30 } }, 429, 429,
          "queue_full", "rate_limit_error", "rate_limit_error",
          "too many requests are waiting; try again later", 3600 },
        { { .kind = SCHED_REFUSED, .why = SCHED_DRAINING }, 503, 529, "draining", "server_error",
          "overloaded_error", "the server is shutting down and takes no new requests", 1 },
        { { .kind = SCHED_REFUSED, .why = SCHED_NO_ENGINE }, 503, 529, "model_not_loaded",
          "server_error", "overloaded_error", "the model is not loaded", 0 },
        { { .kind = SCHED_REFUSED, .why = SCHED_INVALID, .err = &invalid }, 400, 400,
          "invalid_value", "invalid_request_error", "invalid_request_error",
          "65 stop strings; at most 64", 0 },
        { { .kind = SCHED_FAILED, .why = SCHED_LATE }, 504, 504, "deadline_exceeded",
          "server_error", "timeout_error", "the request was not finished before its deadline", 0 },
        { { .kind = SCHED_FAILED, .why = SCHED_ERROR, .err = &broken }, 500, 500, "internal_error",
          "server_error", "api_error", "the request failed inside the server; its log says more",
          0 },
        { { .kind = SCHED_FAILED, .why = SCHED_NONFINITE, .err = &no_token }, 500, 500,
          "internal_error", "server_error", "api_error",
          "the request failed inside the server; its log says more", 0 },
        { { .kind = SCHED_FAILED, .why = SCHED_INVALID, .err = &no_token }, 400, 400,
          "invalid_value", "invalid_request_error", "invalid_request_error",
          "no token can be drawn", 0 },
        { { .kind = SCHED_FAILED, .why = SCHED_ERROR, .err = &memory }, 503, 529, "out_of_memory",
          "server_error", "overloaded_error",
          "the server has no memory left for this request; try again later", 0 },
        { { .kind = SCHED_CANCELLED, .why = SCHED_BY_DRAIN }, 503, 529, "draining", "server_error",
          "overloaded_error", "the server shut down before the request was finished", 0 },
        { { .kind = SCHED_CANCELLED, .why = SCHED_BY_CLOSE }, 503, 529, "draining", "server_error",
          "overloaded_error", "the server shut down before the request was finished", 0 },
        { { .kind = SCHED_CANCELLED, .why = SCHED_BY_CALLER }, 499, 499, "cancelled",
          "invalid_request_error", "invalid_request_error", "the client cancelled the request", 0 },
    };
    (void)state;
    for (size_t i = 0; i < ZP_COUNT(cases); i++) {
        struct apifault f = { 0 };
        char want[512];
        assert_int_not_equal(apifault_of_job(&f, "prompt", &cases[i].e), ZP_OK);
        assert_int_equal(apifault_status(&f, API_OPENAI), cases[i].status);
        assert_int_equal(apifault_status(&f, API_ANTHROPIC), cases[i].anthropic);
        assert_int_equal(apifault_retry_after(&f), cases[i].retry);
        snprintf(want, sizeof want, "{`error`:{`message`:`%s`,`type`:`%s`,`param`:%s,`code`:`%s`}}",
                 cases[i].message, cases[i].type, cases[i].status == 400 ? "`prompt`" : "null",
                 cases[i].code);
        body_is(&f, API_OPENAI, NULL, want);
        snprintf(want, sizeof want, "{`type`:`error`,`error`:{`type`:`%s`,`message`:`%s`}}",
                 cases[i].anthropic_type, cases[i].message);
        body_is(&f, API_ANTHROPIC, NULL, want);
    }
}

static void test_template_that_refuses(void **state)
{
    const zp_err words = { .code = ZP_BAD_INPUT,
                           .message = "Conversation roles must alternate user/assistant" };
    struct apifault f = { 0 };
    (void)state;
    (void)apifault_of_template(&f, &words);
    body_is(&f, API_OPENAI, NULL,
            "{`error`:{`message`:`Conversation roles must alternate user/assistant`,"
            "`type`:`invalid_request_error`,`param`:`messages`,`code`:`template_error`}}");
}

/* Types of all statuses that the HTTP layer and the service use. */
static void test_types_by_status(void **state)
{
    static const struct {
        int status;
        const char *openai, *anthropic;
    } cases[] = {
        { 400, "invalid_request_error", "invalid_request_error" },
        { 401, "authentication_error", "authentication_error" },
        { 403, "permission_error", "permission_error" },
        { 404, "not_found_error", "not_found_error" },
        { 405, "invalid_request_error", "invalid_request_error" },
        { 408, "invalid_request_error", "invalid_request_error" },
        { 413, "invalid_request_error", "request_too_large" },
        { 415, "invalid_request_error", "invalid_request_error" },
        { 429, "rate_limit_error", "rate_limit_error" },
        { 500, "server_error", "api_error" },
        { 501, "server_error", "api_error" },
        { 503, "server_error", "overloaded_error" },
        { 504, "server_error", "timeout_error" },
        { 505, "server_error", "api_error" },
    };
    (void)state;
    for (size_t i = 0; i < ZP_COUNT(cases); i++) {
        struct apifault f = { 0 };
        char want[256];
        (void)apifault_set(&f, cases[i].status, NULL, NULL, "m");
        snprintf(want, sizeof want,
                 "{`error`:{`message`:`m`,`type`:`%s`,`param`:null,`code`:null}}", cases[i].openai);
        body_is(&f, API_OPENAI, NULL, want);
        snprintf(want, sizeof want, "{`type`:`error`,`error`:{`type`:`%s`,`message`:`m`}}",
                 cases[i].anthropic);
        body_is(&f, API_ANTHROPIC, NULL, want);
    }
}

/* Long texts end at a whole character. */
static void test_texts_are_cut_between_characters(void **state)
{
    char text[4 * APIFAULT_MESSAGE];
    (void)state;
    for (size_t shift = 0; shift < 4; shift++) {
        struct apifault f = { 0 };
        memset(text, 'a', shift);
        for (size_t i = shift; i + 4 < sizeof text; i += 4) memcpy(text + i, "\xf0\x9f\xa6\x80", 4);
        text[sizeof text - 5] = '\0';
        (void)apifault_set(&f, 400, NULL, text, "%s", text);
        assert_true(utf8_is_valid(f.message, strlen(f.message), NULL));
        assert_true(utf8_is_valid(f.param, strlen(f.param), NULL));
        assert_true(strlen(f.message) > APIFAULT_MESSAGE - 5);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wrong_field),
        cmocka_unit_test(test_first_fault_is_told),
        cmocka_unit_test(test_prompt_that_is_too_long),
        cmocka_unit_test(test_ends_of_jobs),
        cmocka_unit_test(test_template_that_refuses),
        cmocka_unit_test(test_types_by_status),
        cmocka_unit_test(test_texts_are_cut_between_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
