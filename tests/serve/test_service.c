/* test_service.c: the server as clients see it: answers of both APIs, the same as alone whatever
 * their company, refusals, health. Ends: test_service_ends; two models: test_service_rollout; keys
 * and /admin: test_service_admin. */
#include "golden.h"

#include "service_fixture.h"

static const char chat_path[] = "/v1/chat/completions", text_path[] = "/v1/completions",
                  messages_path[] = "/v1/messages";

/* What zp_generate gives for a prompt; released with zp_free. */
static char *text_alone(const char *prompt, uint32_t n_predict)
{
    zp_model *m;
    zp_engine *e;
    zp_seq *seq;
    int32_t *ids;
    size_t n;
    zp_generated out;
    zp_generate_options o = { .n_predict = n_predict, .ignore_end = true };
    GOLDEN_OK(zp_model_open(&m, SMALL_MODEL, NULL, err));
    GOLDEN_OK(zp_engine_open(&e, m, &(zp_engine_options){ .n_ctx = 512, .n_threads = 2 }, err));
    GOLDEN_OK(zp_seq_open(&seq, e, NULL, err));
    GOLDEN_OK(zp_tokenize(m, prompt, strlen(prompt), ZP_TOKENS_BOS | ZP_TOKENS_SPECIAL, &ids, &n,
                          err));
    GOLDEN_OK(zp_generate(e, seq, ids, n, &o, &out, err));
    zp_free(ids);
    zp_free(out.ids);
    zp_seq_close(seq);
    zp_engine_close(e);
    zp_model_close(m);
    return out.text;
}

static void check_evidence(const struct reply *r)
{
    assert_non_null(strstr(r->head, "\r\nx-model-arch: llama\r\n"));
    assert_non_null(strstr(r->head, "\r\nx-layer-zeroed: 0/4\r\n"));
    assert_non_null(strstr(r->head, "\r\nx-rope-theta: 10000\r\n"));
    assert_non_null(strstr(r->head, "\r\nx-variant: baseline\r\n"));
    assert_non_null(strstr(r->head, "\r\nx-position-mode: full\r\n"));
}

static void test_completions_are_what_the_model_gives_alone(void **state)
{
    static const char body[] =
        "{\"prompt\":\"Hello\",\"max_tokens\":40,\"ignore_eos\":true,\"temperature\":0}";
    static const char stream[] = "{\"prompt\":\"Hello\",\"max_tokens\":40,\"ignore_eos\":true,"
                                 "\"stream\":true,\"stream_options\":{\"include_usage\":true}}";
    struct live l;
    (void)state;
    char *alone = text_alone("Hello", 40);
    live_begin(&l, live_options());
    struct reply r = live_ask(&l, "POST", text_path, "", body);
    assert_int_equal(r.status, 200);
    check_evidence(&r);
    json_t *j = reply_json(&r);
    assert_string_equal(text_in(j, "choices.0.text"), alone);
    assert_string_equal(text_in(j, "choices.0.finish_reason"), "length");
    assert_string_equal(text_in(j, "model"), "llama");
    assert_int_equal(number_in(j, "usage.completion_tokens"), 40);
    assert_int_equal(number_in(j, "usage.layer_zeroed"), 0);
    json_decref(j);
    reply_free(&r);
    r = live_ask(&l, "POST", text_path, "", stream);
    check_evidence(&r);
    assert_non_null(strstr(r.head, "content-type: text/event-stream"));
    char *text = stream_text(r.body);
    assert_string_equal(text, alone);
    assert_non_null(strstr(r.body, "data: [DONE]\n\n"));
    assert_non_null(strstr(r.body, "\"completion_tokens\":40"));
    free(text);
    reply_free(&r);
    live_check_books(&l);
    live_end(&l);
    zp_free(alone);
}

static void test_both_apis_talk(void **state)
{
    static const char chat[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],"
                               "\"max_tokens\":5,\"ignore_eos\":true%s}";
    char body[256];
    struct live l;
    (void)state;
    live_begin(&l, live_options());
    snprintf(body, sizeof body, chat, "");
    json_t *j = live_post(&l, chat_path, body);
    assert_string_equal(text_in(j, "object"), "chat.completion");
    assert_string_equal(text_in(j, "choices.0.message.role"), "assistant");
    char *content = strdup(text_in(j, "choices.0.message.content"));
    json_decref(j);
    j = live_post(&l, messages_path, body);
    assert_string_equal(text_in(j, "type"), "message");
    assert_string_equal(text_in(j, "stop_reason"), "max_tokens");
    assert_string_equal(text_in(j, "content.0.text"), content);
    assert_int_equal(number_in(j, "usage.output_tokens"), 5);
    double n_prompt = number_in(j, "usage.input_tokens");
    json_decref(j);
    j = live_post(&l, "/v1/messages/count_tokens", body);
    assert_int_equal(number_in(j, "input_tokens"), n_prompt);
    json_decref(j);
    snprintf(body, sizeof body, chat, ",\"stream\":true");
    struct reply r = live_ask(&l, "POST", messages_path, "", body);
    assert_memory_equal(r.body, "event: message_start\n", 21);
    assert_non_null(strstr(r.body, "event: message_stop\n"));
    assert_non_null(strstr(r.head, "\r\nrequest-id: "));
    reply_free(&r);
    static const char *const paths[] = { messages_path, "/v1/messages/count_tokens" };
    for (size_t i = 0; i < 2; i++) { // refusals, too
        r = live_ask(&l, "POST", paths[i], "x-request-id: mine\r\n", "{}");
        assert_int_equal(r.status, 400);
        assert_non_null(strstr(r.head, "\r\nrequest-id: mine\r\n"));
        reply_free(&r);
    }
    r = live_ask(&l, "POST", chat_path, "x-request-id: mine\r\n", body);
    assert_non_null(strstr(r.head, "\r\nx-request-id: mine\r\n"));
    assert_non_null(strstr(r.body, "chat.completion.chunk"));
    reply_free(&r);
    free(content);
    live_check_books(&l);
    live_end(&l);
}

static void test_tokens_and_templates(void **state)
{
    struct live l;
    (void)state;
    live_begin(&l, live_options());
    json_t *j = live_post(&l, "/tokenize", "{\"content\":\"ab\",\"with_pieces\":true}");
    assert_string_equal(text_in(j, "tokens.0.piece"), "a");
    char body[64];
    snprintf(body, sizeof body, "{\"tokens\":[%d]}", (int)number_in(j, "tokens.1.id"));
    json_decref(j);
    j = live_post(&l, "/detokenize", body);
    assert_string_equal(text_in(j, "content"), "b");
    json_decref(j);
    j = live_post(&l, "/apply-template", "{\"messages\":[{\"role\":\"u\",\"content\":\"x\"}]}");
    assert_string_equal(text_in(j, "prompt"), "<u>x<a>");
    json_decref(j);
    j = live_get(&l, "/v1/models");
    assert_string_equal(text_in(j, "data.0.id"), "llama");
    assert_int_equal(number_in(j, "data.0.meta.n_ctx"), 512);
    json_decref(j);
    j = live_get(&l, "/v1/models/llama");
    json_decref(j);
    j = live_json(&l, "GET", "/v1/models/other", "", NULL, 404);
    assert_string_equal(text_in(j, "error.code"), "model_not_found");
    json_decref(j);
    live_end(&l);
}

/* ---- company --------------------------------------------------------------------------------- */

enum { COMPANY = 24 };

/* Requests of all kinds. */
static void make_body(char *out, size_t room, int i)
{
    static const char *const kinds[] = { "", ",\"temperature\":1,\"seed\":7", ",\"logprobs\":3",
                                         ",\"n\":2,\"temperature\":0.8,\"seed\":3",
                                         ",\"stop\":\"e\"", ",\"position_mode\":\"full\"" };
    char words[200] = "";
    for (int k = 0; k <= i * 5 % 90; k++) words[k] = (char)('a' + (i * 7 + k * k) % 26);
    snprintf(out, room, "{\"prompt\":\"%s\",\"max_tokens\":%d,\"ignore_eos\":true%s}", words,
             3 + i * 11 % 60, kinds[i % 6]);
}

/* As they stand there: names of log-probabilities are any bytes. */
static char *choices_of(const struct reply *r)
{
    assert_int_equal(r->status, 200);
    const char *begin = strstr(r->body, "\"choices\":"), *end = strstr(r->body, ",\"usage\":");
    assert_true(begin != NULL && end != NULL && begin < end);
    return strndup(begin, (size_t)(end - begin));
}

static void test_answers_are_the_same_alone_and_in_company(void **state)
{
    char body[512], *alone[COMPANY];
    int fds[COMPANY];
    struct live l;
    (void)state;
    live_begin(&l, live_options());
    for (int i = 0; i < COMPANY; i++) {
        make_body(body, sizeof body, i);
        struct reply r = live_ask(&l, "POST", text_path, "", body);
        alone[i] = choices_of(&r);
        reply_free(&r);
    }
    for (int i = 0; i < COMPANY; i++) {
        make_body(body, sizeof body, i);
        fds[i] = live_begin_ask(&l, "POST", text_path, "", body);
    }
    for (int i = 0; i < COMPANY; i++) {
        struct reply r = live_finish(fds[i]);
        char *together = choices_of(&r);
        assert_string_equal(together, alone[i]);
        free(together);
        free(alone[i]);
        reply_free(&r);
    }
    assert_int_equal(live_figure(&l, "requests.completed"), 2 * COMPANY);
    live_check_books(&l);
    live_end(&l);
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void check_too_long(const struct live *l, size_t n_bytes)
{
    char *body = malloc(n_bytes + 200);
    assert_non_null(body);
    int n = sprintf(body, "{\"max_tokens\":5,\"messages\":[{\"role\":\"user\",\"content\":\"");
    for (size_t i = 0; i < n_bytes; i++) body[n++] = (char)('A' + i * i % 23);
    sprintf(body + n, "\"}]}");
    json_t *j = live_json(l, "POST", chat_path, "", body, 400);
    assert_string_equal(text_in(j, "error.code"), "context_length_exceeded");
    assert_int_equal(number_in(j, "error.n_ctx"), 512);
    assert_true(number_in(j, "error.n_prompt_tokens") >= 512);
    assert_non_null(strstr(text_in(j, "error.message"), "exceeds the available context size (512"));
    json_decref(j);
    j = live_json(l, "POST", messages_path, "", body, 400);
    assert_string_equal(text_in(j, "error.type"), "invalid_request_error");
    assert_non_null(strstr(text_in(j, "error.message"), "prompt is too long: "));
    json_decref(j);
    free(body);
}

/* No job is made of it: the scheduler hears nothing. */
static void test_prompts_that_are_too_long_are_told_both_numbers(void **state)
{
    struct live l;
    (void)state;
    live_begin(&l, live_options());
    check_too_long(&l, 600);
    check_too_long(&l, 100 << 10);
    assert_int_equal(live_figure(&l, "scheduler.accepted"), 0);
    assert_int_equal(live_figure(&l, "scheduler.refused"), 0);
    live_check_books(&l);
    live_end(&l);
}

static void test_what_is_wrong_is_told_in_the_shape_of_the_api(void **state)
{
    struct live l;
    (void)state;
    live_begin(&l, live_options());
    json_t *j = live_json(&l, "POST", chat_path, "", "{\"messages\":7}", 400);
    assert_string_equal(text_in(j, "error.param"), "messages");
    json_decref(j);
    j = live_json(&l, "POST", messages_path, "", "{", 400);
    assert_string_equal(text_in(j, "type"), "error");
    json_decref(j);
    j = live_json(&l, "POST", text_path, "", "{\"prompt\":\"x\",\"model\":\"gpt\"}", 404);
    assert_string_equal(text_in(j, "error.code"), "model_not_found");
    json_decref(j);
    j = live_json(&l, "GET", chat_path, "", NULL, 405);
    assert_string_equal(text_in(j, "error.code"), "method_not_allowed");
    json_decref(j);
    j = live_json(&l, "GET", messages_path, "", NULL, 405);
    assert_string_equal(text_in(j, "type"), "error");
    json_decref(j);
    j = live_json(&l, "POST", text_path, "", "{\"prompt\":\"x\",\"position_mode\":\"half\"}", 400);
    json_decref(j);
    j = live_json(&l, "POST", text_path, "",
                  "{\"prompt\":\"x[POS:4294967296]\",\"anchors\":true}", 400);
    assert_string_equal(text_in(j, "error.param"), "prompt");
    json_decref(j);
    assert_int_equal(live_logged(&l, "\"event\":\"request_refused\""), 5);
    live_check_books(&l);
    live_end(&l);
}

/* ---- the rest -------------------------------------------------------------------------------- */

static void test_health_and_metrics(void **state)
{
    struct live l;
    (void)state;
    live_begin(&l, live_options());
    json_decref(live_get(&l, "/healthz"));
    json_decref(live_get(&l, "/readyz"));
    json_decref(live_get(&l, "/health"));
    json_decref(live_post(&l, text_path, "{\"prompt\":\"x\",\"max_tokens\":3}"));
    struct reply r = live_ask(&l, "GET", "/metrics", "", NULL);
    assert_non_null(strstr(r.head, "content-type: text/plain; version=0.0.4"));
    assert_non_null(strstr(r.body, "\nzerope_server_state{state=\"ready\"} 1\n"));
    assert_non_null(strstr(r.body, "zerope_requests_accepted_total{endpoint=\"completions\","
                                   "variant=\"baseline\"} 1\n"));
    assert_non_null(strstr(r.body, "\nzerope_position_rope_layers{variant=\"baseline\"} 4\n"));
    assert_non_null(strstr(r.body, "\nzerope_requests_running 0\n"));
    assert_null(strstr(r.body, "variant=\"candidate\",model="));
    reply_free(&r);
    live_end(&l);
}

static void test_forms_and_calls_are_kept(void **state)
{
    static const char schema[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"response_format\":{\"type\":"
        "\"json_schema\",\"json_schema\":{\"schema\":{\"enum\":[{\"a\":1},{\"b\":2}]}}}}";
    static const char call[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"tool_choice\":\"required\","
        "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":"
        "\"object\",\"properties\":{\"k\":{\"enum\":[true,false]}},\"required\":[\"k\"],"
        "\"additionalProperties\":false}}}]}";
    zp_serve_options o = live_options();
    struct live l;
    (void)state;
    o.engine.n_ctx = 2048; /* the tools are told in the prompt, byte by byte */
    live_begin(&l, o);
    json_t *j = live_post(&l, chat_path, schema);
    const char *text = text_in(j, "choices.0.message.content");
    json_t *value = json_loads(text, 0, NULL);
    assert_int_equal(json_object_size(value), 1);
    json_decref(value);
    json_decref(j);
    j = live_post(&l, chat_path, call);
    assert_string_equal(text_in(j, "choices.0.finish_reason"), "tool_calls");
    assert_string_equal(text_in(j, "choices.0.message.tool_calls.0.function.name"), "f");
    value = json_loads(text_in(j, "choices.0.message.tool_calls.0.function.arguments"), 0, NULL);
    assert_true(json_is_boolean(json_object_get(value, "k")));
    json_decref(value);
    json_decref(j);
    live_check_books(&l);
    live_end(&l);
}

static void test_details_are_told_where_they_are_asked_for(void **state)
{
    static const char body[] = "{\"prompt\":\"x\",\"max_tokens\":2}";
    struct live l;
    (void)state;
    live_begin(&l, live_options());
    json_t *j =
        live_json(&l, "POST", text_path, "zerope-beta: architecture-details\r\n", body, 200);
    assert_string_equal(text_in(j, "usage.architecture_details.kinds.3"), "rope");
    assert_int_equal(number_in(j, "usage.architecture_details.open_pairs.0"), 16);
    assert_string_equal(text_in(j, "usage.architecture_details.kv_type"), "bf16");
    json_decref(j);
    j = live_post(&l, text_path, body);
    assert_null(json_object_get(json_in(j, "usage"), "architecture_details"));
    json_decref(j);
    live_end(&l);
}

/* Messages of 100 letters each; the context holds five of them. */
static char *long_chat(const char *fields)
{
    char *body = malloc(8192), *at = body;
    assert_non_null(body);
    at += sprintf(at, "{\"max_tokens\":3,\"ignore_eos\":true%s,\"messages\":[{\"role\":\"system\","
                  "\"content\":\"rules\"}", fields);
    for (int i = 0; i < 20; i++)
        at += sprintf(at, ",{\"role\":\"%s\",\"content\":\"%0100d\"}",
                      i % 2 ? "assistant" : "user", i);
    sprintf(at, ",{\"role\":\"user\",\"content\":\"last\"}]}");
    return body;
}

static void check_truncated(const struct live *l, const char *fields)
{
    char *body = long_chat(fields);
    json_t *j = live_post(l, chat_path, body);
    double kept = number_in(j, "usage.prompt_tokens"),
           left = number_in(j, "usage.truncated_tokens");
    assert_true(kept > 200 && kept <= 509 && left > 1500);
    assert_true(json_is_true(json_in(j, "usage.approximate")));
    json_decref(j);
    free(body);
}

static void test_prompts_are_cut_only_where_that_is_asked_for(void **state)
{
    struct live l;
    (void)state;
    live_begin(&l, live_options());
    char *body = long_chat("");
    json_decref(live_json(&l, "POST", chat_path, "", body, 400));
    free(body);
    check_truncated(&l, ",\"truncation\":\"drop-oldest\"");
    check_truncated(&l, ",\"truncation\":\"summarise\",\"metadata\":{\"summary\":\"of zeros\"}");
    body = long_chat(",\"truncation\":\"summarise\"");
    json_t *j = live_json(&l, "POST", chat_path, "", body, 400);
    assert_string_equal(text_in(j, "error.param"), "metadata.summary");
    json_decref(j);
    free(body);
    j = live_post(&l, chat_path, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],"
                                 "\"max_tokens\":2,\"truncation\":\"drop-oldest\"}");
    assert_null(json_object_get(json_in(j, "usage"), "truncated_tokens"));
    json_decref(j);
    live_check_books(&l);
    live_end(&l);
}

static void test_places(void **state)
{
    static const char *const origins[] = { "https://page.example" };
    static const char path[] = "/tmp/zerope-test-service.sock";
    zp_serve_options o = live_options();
    struct live l;
    (void)state;
    o.host = "127.0.0.1";
    o.unix_path = path;
    o.prefix = "/llm";
    o.alias = "my-model";
    o.origins = (zp_serve_list){ origins, 1 };
    live_begin(&l, o);
    int fd = client_dial_path(path);
    live_send_to(fd, "GET", "/llm/v1/models", "Origin: https://page.example\r\n", NULL);
    struct reply r = live_finish(fd);
    assert_int_equal(r.status, 200);
    assert_non_null(strstr(r.head, "access-control-allow-origin: https://page.example"));
    json_t *j = reply_json(&r);
    assert_string_equal(text_in(j, "data.0.id"), "my-model");
    json_decref(j);
    reply_free(&r);
    fd = client_dial_path(path);
    live_send_to(fd, "GET", "/llm/v1/models", "Origin: https://other.example\r\n", NULL);
    r = live_finish(fd);
    assert_int_equal(r.status, 403);
    reply_free(&r);
    zp_serve_stop(l.s);
    live_join(&l);
    assert_int_not_equal(access(path, F_OK), 0);
}

static void refuse_options(zp_serve_options o, const char *words)
{
    struct live l;
    zp_err err = { 0 };
    assert_int_not_equal(live_open(&l, &o, &err), ZP_OK);
    if (strstr(err.message, words) == NULL) fail_msg("%s instead of %s", err.message, words);
    assert_int_equal(live_bytes(), l.bytes);
}

static void test_options_that_make_no_sense_are_refused(void **state)
{
    static const char *const sla[] = { "short:" };
    zp_serve_options o = live_options();
    (void)state;
    o.canary_stages = "5,1";
    refuse_options(o, "canary stage 2");
    o = live_options();
    o.sla = (zp_serve_list){ sla, 1 };
    refuse_options(o, "is no promise");
    o = live_options();
    o.api_keys = "/nowhere";
    refuse_options(o, "/nowhere");
    o = live_options();
    o.prefix = "llm";
    refuse_options(o, "is no prefix");
    o = live_options();
    o.metrics_compat = "what";
    refuse_options(o, "what");
    o = live_options();
    o.tls_certificate = "/nowhere", o.tls_key = "/nowhere";
    refuse_options(o, "/nowhere");
}

static void test_a_model_that_cannot_be_loaded_ends_it(void **state)
{
    zp_serve_options o = live_options();
    struct live l;
    zp_err err = { 0 };
    (void)state;
    o.model = "/nowhere.gguf";
    assert_int_equal(live_open(&l, &o, &err), ZP_OK);
    assert_int_not_equal(zp_serve_run(l.s, &err), ZP_OK);
    assert_non_null(strstr(err.message, "/nowhere.gguf"));
    zp_serve_close(l.s);
    assert_int_equal(live_bytes(), l.bytes);
    free(l.log);
    free(l.audit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_completions_are_what_the_model_gives_alone),
        cmocka_unit_test(test_both_apis_talk),
        cmocka_unit_test(test_tokens_and_templates),
        cmocka_unit_test(test_answers_are_the_same_alone_and_in_company),
        cmocka_unit_test(test_prompts_that_are_too_long_are_told_both_numbers),
        cmocka_unit_test(test_what_is_wrong_is_told_in_the_shape_of_the_api),
        cmocka_unit_test(test_health_and_metrics),
        cmocka_unit_test(test_forms_and_calls_are_kept),
        cmocka_unit_test(test_details_are_told_where_they_are_asked_for),
        cmocka_unit_test(test_prompts_are_cut_only_where_that_is_asked_for),
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_options_that_make_no_sense_are_refused),
        cmocka_unit_test(test_a_model_that_cannot_be_loaded_ends_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
