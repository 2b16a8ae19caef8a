/* test_service_embed.c: embeddings as clients see them: all shapes of input and answer, the vectors
 * that the library gives, company, refusals, keys, clients that leave, models that change. */
#include "golden.h"

#include "in_folder.h"
#include "service_fixture.h"

enum { WIDTH = 64, LIST = 40 }; /* of the small model; texts of a long list */

static const char path[] = "/v1/embeddings", text_path[] = "/v1/completions";

static zp_model *model;
static zp_engine *engine;

static int open_model(void **state)
{
    model = golden_small("llama");
    engine = golden_engine(model, (zp_engine_options){ .n_ctx = 512, .n_threads = 1 });
    return make_folder(state);
}

static int close_model(void **state)
{
    zp_engine_close(engine);
    zp_model_close(model);
    return remove_folder(state);
}

/* What the library gives; returns the tokens. */
static size_t embed(const char *text, zp_embed_options o, float *out)
{
    int32_t *ids;
    size_t n;
    GOLDEN_OK(zp_tokenize(model, text, strlen(text), ZP_TOKENS_BOS | ZP_TOKENS_SPECIAL, &ids, &n,
                          err));
    GOLDEN_OK(zp_embed(engine, ids, n, &o, out, err));
    zp_free(ids);
    return n;
}

static void check_floats(const json_t *list, const float *want)
{
    assert_int_equal(json_array_size(list), WIDTH);
    for (size_t i = 0; i < WIDTH; i++) /* nine digits are the float itself */
        assert_true((float)json_number_value(json_array_get(list, i)) == want[i]);
}

static unsigned sextet(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = strchr(digits, c);
    if (at == NULL || c == '\0') fail_msg("'%c' in base64", c);
    return (unsigned)(at - digits);
}

static void check_base64(const char *text, const float *want)
{
    uint8_t bytes[WIDTH * 4 + 3];
    size_t n = strlen(text);
    assert_int_equal(n, (WIDTH * 4 + 2) / 3 * 4);
    for (size_t i = 0; i < n; i += 4) {
        uint32_t three = 0;
        for (size_t k = 0; k < 4; k++)
            three = three << 6 | (text[i + k] == '=' ? 0 : sextet(text[i + k]));
        for (size_t k = 0; k < 3; k++) bytes[i / 4 * 3 + k] = (uint8_t)(three >> (16 - 8 * k));
    }
    assert_memory_equal(bytes, want, WIDTH * 4);
}

static void check_one(const struct live *l, const char *fields, const char *text,
                      zp_embed_options o)
{
    char body[512];
    float want[WIDTH];
    snprintf(body, sizeof body, "{\"input\":\"%s\"%s}", text, fields);
    json_t *j = live_post(l, path, body);
    size_t n = embed(text, o, want);
    check_floats(json_in(j, "data.0.embedding"), want);
    assert_string_equal(text_in(j, "object"), "list");
    assert_string_equal(text_in(j, "data.0.object"), "embedding");
    assert_int_equal(number_in(j, "data.0.index"), 0);
    assert_string_equal(text_in(j, "model"), "llama");
    assert_int_equal(number_in(j, "usage.prompt_tokens"), n);
    assert_int_equal(number_in(j, "usage.total_tokens"), n);
    assert_int_equal(number_in(j, "usage.layer_zeroed"), 0);
    json_decref(j);
}

static void test_vectors_are_those_of_the_library(void **state)
{
    struct live l;
    (void)state;
    live_begin(&l, live_options());
    check_one(&l, "", "Hello there", (zp_embed_options){ 0 });
    check_one(&l, ",\"pooling\":\"mean\"", "Hello there",
              (zp_embed_options){ .pooling = ZP_POOL_MEAN });
    check_one(&l, ",\"pooling\":\"cls\"", "a b c", (zp_embed_options){ .pooling = ZP_POOL_FIRST });
    check_one(&l, ",\"embd_normalize\":-1", "a b", (zp_embed_options){ .raw = true });
    check_one(&l, ",\"dimensions\":64,\"model\":\"llama\",\"user\":\"u\"", "x",
              (zp_embed_options){ 0 });
    check_one(&l, ",\"encoding_format\":\"float\"", "<|im_start|>x", (zp_embed_options){ 0 });
    live_check_books(&l);
    live_end(&l);
    zp_serve_options o = live_options();
    o.pooling = ZP_POOL_MEAN;
    live_begin(&l, o);
    check_one(&l, "", "Hello there", (zp_embed_options){ .pooling = ZP_POOL_MEAN });
    check_one(&l, ",\"pooling\":\"last\"", "Hello there",
              (zp_embed_options){ .pooling = ZP_POOL_LAST });
    live_end(&l);
}

static void test_all_shapes_of_input_and_answer(void **state)
{
    static const int32_t ids[] = { 5, 6, 7 };
    struct live l;
    float want[3][WIDTH];
    (void)state;
    size_t n = embed("Hello", (zp_embed_options){ 0 }, want[0]);
    n += embed("a longer text", (zp_embed_options){ 0 }, want[1]);
    GOLDEN_OK(zp_embed(engine, ids, 3, NULL, want[2], err));
    live_begin(&l, live_options());
    json_t *j = live_post(&l, path, "{\"input\":[\"Hello\",\"a longer text\"]}");
    for (size_t i = 0; i < 2; i++) {
        char at[32];
        snprintf(at, sizeof at, "data.%zu.embedding", i);
        check_floats(json_in(j, at), want[i]);
    }
    assert_int_equal(number_in(j, "data.1.index"), 1);
    assert_int_equal(number_in(j, "usage.prompt_tokens"), n);
    json_decref(j);
    j = live_post(&l, path, "{\"input\":[5,6,7],\"encoding_format\":\"base64\"}");
    check_base64(text_in(j, "data.0.embedding"), want[2]);
    assert_int_equal(number_in(j, "usage.prompt_tokens"), 3);
    json_decref(j);
    j = live_post(&l, path, "{\"input\":[[5,6,7],[5]],\"encoding_format\":\"base64\"}");
    check_base64(text_in(j, "data.0.embedding"), want[2]);
    assert_int_equal(json_array_size(json_in(j, "data")), 2);
    json_decref(j);
    j = live_post(&l, "/embedding", "{\"content\":\"Hello\"}"); /* llama.cpp's */
    check_floats(json_in(j, "0.embedding.0"), want[0]);
    assert_int_equal(number_in(j, "0.index"), 0);
    json_decref(j);
    struct reply r = live_ask(&l, "POST", "/embeddings", "", "{\"input\":[\"Hello\",[5,6,7]]}");
    assert_int_equal(r.status, 200);
    assert_non_null(strstr(r.head, "\r\nx-model-arch: llama\r\n"));
    assert_non_null(strstr(r.head, "\r\nx-layer-zeroed: 0/4\r\n"));
    assert_non_null(strstr(r.head, "\r\nx-rope-theta: 10000\r\n"));
    assert_non_null(strstr(r.head, "\r\nx-variant: baseline\r\n"));
    assert_non_null(strstr(r.head, "\r\nx-position-mode: full\r\n"));
    j = reply_json(&r);
    check_floats(json_in(j, "1.embedding.0"), want[2]);
    json_decref(j);
    reply_free(&r);
    live_check_books(&l);
    live_end(&l);
}

/* ---- company --------------------------------------------------------------------------------- */

static char *numbered(int n_texts)
{
    char *body = malloc((size_t)n_texts * 64 + 64);
    assert_non_null(body);
    int n = sprintf(body, "{\"input\":[");
    for (int i = 0; i < n_texts; i++)
        n += sprintf(body + n, "%s\"text number %d\"", i ? "," : "", i);
    sprintf(body + n, "]}");
    return body;
}

static void check_numbered(const json_t *j, int n_texts)
{
    assert_int_equal(json_array_size(json_in(j, "data")), n_texts);
    for (int k = 0; k < n_texts; k++) {
        char text[64], at[32];
        float want[WIDTH];
        snprintf(text, sizeof text, "text number %d", k);
        snprintf(at, sizeof at, "data.%d.embedding", k);
        embed(text, (zp_embed_options){ 0 }, want);
        check_floats(json_in(j, at), want);
    }
}

/* A list that is longer than the engine has seats, twice, beside answers that are drawn. */
static void test_long_lists_run_beside_answers(void **state)
{
    static const char drawn[] =
        "{\"prompt\":\"Hello\",\"max_tokens\":100,\"ignore_eos\":true,\"temperature\":0}";
    char *body = numbered(LIST);
    int fds[6];
    struct live l;
    (void)state;
    zp_serve_options o = live_options();
    o.most_waiting = 12; /* beside 8 seats: for two lists and four answers */
    live_begin(&l, o);
    json_t *alone = live_post(&l, text_path, drawn);
    for (int i = 0; i < 6; i++)
        fds[i] = live_begin_ask(&l, "POST", i % 3 ? text_path : path, "", i % 3 ? drawn : body);
    for (int i = 0; i < 6; i++) {
        struct reply r = live_finish(fds[i]);
        if (r.status != 200) fail_msg("%d: %s", r.status, r.body);
        json_t *j = reply_json(&r);
        if (i % 3)
            assert_string_equal(text_in(j, "choices.0.text"), text_in(alone, "choices.0.text"));
        else check_numbered(j, LIST);
        json_decref(j);
        reply_free(&r);
    }
    json_decref(alone);
    free(body);
    assert_int_equal(live_figure(&l, "requests.completed"), 7);
    assert_int_equal(live_figure(&l, "scheduler.completed"), 5 + 2 * LIST);
    struct reply r = live_ask(&l, "GET", "/metrics", "", NULL);
    assert_non_null(strstr(r.body, "zerope_requests_total{endpoint=\"embeddings\","
                                   "variant=\"baseline\",outcome=\"completed\"} 2\n"));
    reply_free(&r);
    live_check_books(&l);
    live_end(&l);
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void refuse(const struct live *l, const char *body, int status, const char *code,
                   const char *words)
{
    json_t *j = live_json(l, "POST", path, "", body, status);
    assert_string_equal(text_in(j, "error.code"), code);
    if (strstr(text_in(j, "error.message"), words) == NULL)
        fail_msg("%s: no %s", text_in(j, "error.message"), words);
    json_decref(j);
}

static void check_length(const struct live *l, int n_ids, bool fits)
{
    char *body = malloc((size_t)n_ids * 4 + 32);
    assert_non_null(body);
    int n = sprintf(body, "{\"input\":[");
    for (int i = 0; i < n_ids; i++) n += sprintf(body + n, "%s7", i ? "," : "");
    sprintf(body + n, "]}");
    json_t *j = live_json(l, "POST", path, "", body, fits ? 200 : 400);
    if (!fits) {
        assert_string_equal(text_in(j, "error.code"), "context_length_exceeded");
        assert_string_equal(text_in(j, "error.param"), "input");
        assert_int_equal(number_in(j, "error.n_prompt_tokens"), n_ids);
        assert_int_equal(number_in(j, "error.n_ctx"), 512);
    } else assert_int_equal(number_in(j, "usage.prompt_tokens"), n_ids);
    json_decref(j);
    free(body);
}

static void test_what_is_refused(void **state)
{
    struct live l;
    (void)state;
    live_begin(&l, live_options());
    refuse(&l, "{}", 400, "missing_required_parameter", "'input': expected a text");
    refuse(&l, "{\"input\":\"\"}", 400, "invalid_value", "not empty");
    refuse(&l, "{\"input\":[]}", 400, "invalid_value", "'input'");
    refuse(&l, "{\"input\":[\"a\",\"\"]}", 400, "invalid_value", "'input[1]'");
    refuse(&l, "{\"input\":[1,999]}", 400, "invalid_value", "'input[1]': expected a token id");
    refuse(&l, "{\"input\":\"x\",\"model\":\"gpt\"}", 404, "model_not_found", "'gpt'");
    refuse(&l, "{\"input\":\"x\",\"dimensions\":32}", 400, "unsupported_value",
           "have 64 dimensions, found 32");
    refuse(&l, "{\"input\":\"x\",\"encoding_format\":\"hex\"}", 400, "invalid_value", "base64");
    refuse(&l, "{\"input\":\"x\",\"position_mode\":\"half\"}", 400, "invalid_value", "half");
    check_length(&l, 512, true); /* no answer needs room */
    check_length(&l, 513, false);
    assert_int_equal(live_figure(&l, "scheduler.accepted"), 1);
    struct reply r = live_ask(&l, "GET", "/metrics", "", NULL);
    assert_non_null(strstr(r.body, "zerope_requests_refused_total{endpoint=\"embeddings\","
                                   "reason=\"too_long\"} 1\n"));
    assert_non_null(strstr(r.body, "zerope_requests_refused_total{endpoint=\"embeddings\","
                                   "reason=\"invalid\"} 9\n"));
    reply_free(&r);
    live_check_books(&l);
    live_end(&l);
}

static void test_keys_and_their_limits(void **state)
{
    static const char first[] = "Authorization: Bearer first-secret\r\n";
    zp_serve_options o = live_options();
    struct live l;
    (void)state;
    o.api_keys = in_folder("keys");
    FILE *f = fopen(o.api_keys, "w");
    assert_non_null(f);
    fputs("ann first-secret tokens=4\n", f);
    fclose(f);
    live_begin(&l, o);
    json_decref(live_json(&l, "POST", path, "", "{\"input\":\"x\"}", 401));
    struct reply r = live_ask(&l, "POST", path, first, "{\"input\":[5,6,7,8,9]}");
    assert_int_equal(r.status, 200);
    assert_non_null(strstr(r.head, "\r\nx-ratelimit-limit-tokens: 4\r\n"));
    assert_non_null(strstr(r.head, "\r\nx-ratelimit-remaining-tokens: 0\r\n"));
    reply_free(&r);
    json_t *j = live_json(&l, "POST", path, first, "{\"input\":\"x\"}", 429);
    assert_string_equal(text_in(j, "error.code"), "rate_limit_exceeded");
    json_decref(j);
    live_end(&l);
}

/* ---- ends ------------------------------------------------------------------------------------ */

/* So long a list that it is under way whenever a client gives up. */
static char *long_list(void)
{
    enum { TEXTS = 2000, WORDS = 100 };
    char *body = malloc(TEXTS * (WORDS * 4 + 32));
    assert_non_null(body);
    int n = sprintf(body, "{\"pooling\":\"mean\",\"input\":[");
    for (int i = 0; i < TEXTS; i++) {
        n += sprintf(body + n, "%s\"%d", i ? "," : "", i);
        for (int k = 0; k < WORDS; k++) n += sprintf(body + n, " the");
        n += sprintf(body + n, "\"");
    }
    sprintf(body + n, "]}");
    return body;
}

static void test_clients_that_leave_cancel_the_rest(void **state)
{
    struct live l;
    char *body = long_list();
    (void)state;
    live_begin(&l, live_options());
    int fd = live_begin_ask(&l, "POST", path, "x-request-id: one\r\n", body);
    live_until(&l, "requests.under_way", 1);
    while (live_figure(&l, "scheduler.completed") == 0) sched_yield();
    json_t *j = live_get(&l, "/admin/requests");
    assert_string_equal(text_in(j, "requests.0.endpoint"), "embeddings");
    assert_string_equal(text_in(j, "requests.0.variant"), "baseline");
    json_decref(j);
    close(fd);
    live_until(&l, "requests.under_way", 0);
    live_until(&l, "scheduler.running", 0);
    assert_int_equal(live_figure(&l, "requests.cancelled"), 1);
    assert_true(live_figure(&l, "scheduler.accepted") < 2000);
    fd = live_begin_ask(&l, "POST", path, "x-request-id: two\r\n", body);
    while (live_figure(&l, "scheduler.completed") == 0) sched_yield();
    live_until(&l, "requests.under_way", 1);
    json_decref(live_post(&l, "/admin/requests/cancel", "{\"id\":\"two\"}"));
    struct reply r = live_finish(fd);
    assert_int_equal(r.status, 499);
    reply_free(&r);
    live_check_books(&l);
    live_end(&l);
    free(body);
}

/* What is under way is not lost because there is no room in the queue for its next text. */
static void test_lists_wait_for_room(void **state)
{
    enum { TEXTS = 12 };
    zp_serve_options o = live_options();
    struct live l;
    char *body = long_list(), *small = numbered(TEXTS);
    (void)state;
    o.most_waiting = 1;
    live_begin(&l, o);
    int fd = live_begin_ask(&l, "POST", path, "", body);
    while (live_figure(&l, "scheduler.completed") == 0) sched_yield();
    json_t *j = live_post(&l, path, small);
    check_numbered(j, TEXTS);
    json_decref(j);
    assert_true(live_figure(&l, "scheduler.refused") > 0);
    assert_int_equal(live_figure(&l, "requests.under_way"), 1);
    close(fd);
    live_check_books(&l);
    live_end(&l);
    free(body);
    free(small);
}

static void test_lists_are_finished_when_the_server_stops(void **state)
{
    enum { TEXTS = 2000 };
    struct live l;
    char *body = numbered(TEXTS);
    zp_serve_options o = live_options();
    (void)state;
    o.drain_timeout = 1000;
    live_begin(&l, o);
    int fd = live_begin_ask(&l, "POST", path, "", body);
    while (live_figure(&l, "scheduler.completed") == 0) sched_yield();
    assert_int_equal(live_figure(&l, "requests.under_way"), 1);
    zp_serve_stop(l.s);
    struct reply r = live_finish(fd);
    assert_int_equal(r.status, 200);
    json_t *j = reply_json(&r);
    check_numbered(j, TEXTS);
    json_decref(j);
    reply_free(&r);
    live_join(&l);
    free(body);
}

/* Vectors of two models cannot be compared: none of them is the candidate's, and where the baseline
 * changes in between, there is no answer instead of a mixed one. */
static void test_vectors_are_of_one_model(void **state)
{
    zp_serve_options o = live_options();
    struct live l;
    char *body = long_list();
    (void)state;
    o.candidate = SMALL_MODEL;
    o.canary_manual = true;
    live_begin(&l, o);
    live_until_text(&l, "rollout.canary.state", "held");
    json_decref(live_post(&l, "/admin/canary", "{\"action\":\"set\",\"percent\":100}"));
    struct reply r = live_ask(&l, "POST", path, "", "{\"input\":\"x\"}");
    assert_non_null(strstr(r.head, "\r\nx-variant: baseline\r\n"));
    reply_free(&r);
    assert_int_equal(live_figure(&l, "rollout.requests.baseline.begun"), 0);
    int fd = live_begin_ask(&l, "POST", path, "", body);
    while (live_figure(&l, "scheduler.completed") < 2) sched_yield();
    json_decref(live_post(&l, "/admin/models", "{\"action\":\"promote\"}"));
    r = live_finish(fd);
    assert_int_equal(r.status, 503);
    assert_non_null(strstr(r.head, "\r\nretry-after: 1\r\n"));
    json_t *j = reply_json(&r);
    assert_string_equal(text_in(j, "error.code"), "model_changed");
    json_decref(j);
    reply_free(&r);
    json_decref(live_post(&l, path, "{\"input\":\"x\"}")); /* the new one's */
    live_check_books(&l);
    live_end(&l);
    free(body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors_are_those_of_the_library),
        cmocka_unit_test(test_all_shapes_of_input_and_answer),
        cmocka_unit_test(test_long_lists_run_beside_answers),
        cmocka_unit_test(test_what_is_refused),
        cmocka_unit_test(test_keys_and_their_limits),
        cmocka_unit_test(test_clients_that_leave_cancel_the_rest),
        cmocka_unit_test(test_lists_wait_for_room),
        cmocka_unit_test(test_lists_are_finished_when_the_server_stops),
        cmocka_unit_test(test_vectors_are_of_one_model),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
