/* test_service_rollout.c: two models behind one server: shares, streams that leave a candidate that
 * fails, trips, promotion, and models that change while requests are under way. */
#include "golden.h"

#include "model/engine.h"
#include "serve/service.h"
#include "service_fixture.h"

static const char text_path[] = "/v1/completions";

/* ---- a model that is damaged ----------------------------------------------------------------- */

static struct damage {
    struct gguf_tensor tensor;
    uint8_t *data;
} damage;

/* Behind a token its candidate's logits are no numbers from now on. The lines of the log order this
 * between the threads. */
static void damage_candidate(struct live *l, int32_t id)
{
    assert_int_equal(live_logged(l, "\"variant\":\"candidate\",\"model\""), 1);
    struct weights *w = &l->s->variants[VARIANT_CANDIDATE]->engine->weights;
    size_t row = (size_t)gguf_tensor_row_bytes(w->embedding);
    damage.tensor = *w->embedding;
    damage.data = malloc((size_t)damage.tensor.bytes);
    assert_non_null(damage.data);
    memcpy(damage.data, damage.tensor.data, (size_t)damage.tensor.bytes);
    memset(damage.data + (size_t)id * row, 0xff, row);
    damage.tensor.data = damage.data;
    w->embedding = &damage.tensor;
    (void)live_logged(l, "");
}

/* ---- small ones ------------------------------------------------------------------------------ */

static zp_serve_options two_models(const char *candidate)
{
    zp_serve_options o = live_options();
    o.candidate = candidate;
    o.canary_manual = true;
    o.canary_salt = "salt";
    return o;
}

static void begin_two(struct live *l, const char *candidate)
{
    live_begin(l, two_models(candidate));
    live_until_text(l, "rollout.canary.state", "held");
}

static void set_share(const struct live *l, int percent)
{
    char body[64];
    snprintf(body, sizeof body, "{\"action\":\"set\",\"percent\":%d}", percent);
    json_decref(live_post(l, "/admin/canary", body));
}

static char *answer_of(const struct live *l, const char *body, bool *moved)
{
    json_t *j = live_post(l, text_path, body);
    char *text = json_dumps(json_in(j, "choices"), JSON_COMPACT);
    *moved = json_is_true(json_object_get(json_in(j, "usage"), "moved_to_baseline"));
    json_decref(j);
    return text;
}

static const char plain[] = "{\"prompt\":\"Hello\",\"max_tokens\":40,\"ignore_eos\":true}";

/* A token that the answer has at this place or later, and not before, nor has its prompt. */
static int32_t token_of_answer(size_t from)
{
    zp_model *m;
    zp_engine *e;
    zp_seq *seq;
    int32_t *ids, found = -1;
    size_t n;
    zp_generated out;
    GOLDEN_OK(zp_model_open(&m, SMALL_MODEL, NULL, err));
    GOLDEN_OK(zp_engine_open(&e, m, &(zp_engine_options){ .n_ctx = 512, .n_threads = 2 }, err));
    GOLDEN_OK(zp_seq_open(&seq, e, NULL, err));
    GOLDEN_OK(zp_tokenize(m, "Hello", 5, ZP_TOKENS_BOS | ZP_TOKENS_SPECIAL, &ids, &n, err));
    GOLDEN_OK(zp_generate(e, seq, ids, n,
                          &(zp_generate_options){ .n_predict = 40, .ignore_end = true }, &out,
                          err));
    for (size_t i = from; i < out.n_ids && found < 0; i++) {
        bool seen = false;
        for (size_t k = 0; k < i; k++) seen = seen || out.ids[k] == out.ids[i];
        for (size_t k = 0; k < n; k++) seen = seen || ids[k] == out.ids[i];
        if (!seen) found = out.ids[i];
    }
    assert_true(found >= 0);
    zp_free(ids);
    zp_free(out.ids);
    zp_free(out.text);
    zp_seq_close(seq);
    zp_engine_close(e);
    zp_model_close(m);
    return found;
}

/* ---- shares ---------------------------------------------------------------------------------- */

/* On a busy machine the candidate may be slow, and be kept away by the breaker. */
static bool is_closed(const struct live *l)
{
    json_t *j = live_get(l, "/admin/status");
    bool closed = strcmp(text_in(j, "rollout.breaker.state"), "closed") == 0;
    json_decref(j);
    return closed;
}

/* By ids: the same ones at each share, and more as it grows. */
static void test_ids_only_ever_move_to_the_candidate(void **state)
{
    enum { N = 40 };
    bool before[N] = { false };
    struct live l;
    (void)state;
    begin_two(&l, SMALL_MODEL);
    for (int share = 0; share <= 100; share += 25) {
        set_share(&l, share);
        int n = 0;
        for (int i = 0; i < N; i++) {
            char id[64];
            snprintf(id, sizeof id, "x-request-id: id-%d\r\n", i);
            struct reply r = live_ask(&l, "POST", text_path, id,
                                      "{\"prompt\":\"x\",\"max_tokens\":1}");
            assert_int_equal(r.status, 200);
            bool now = strstr(r.head, "\r\nx-variant: candidate\r\n") != NULL;
            assert_true(now || !before[i] || !is_closed(&l));
            before[i] = before[i] || now;
            n += now;
            reply_free(&r);
        }
        if (share == 0) assert_int_equal(n, 0);
        if (share == 100 && is_closed(&l)) assert_int_equal(n, N);
    }
    live_check_books(&l);
    live_end(&l);
}

/* ---- streams that leave a candidate ---------------------------------------------------------- */

static void check_moved(const struct live *l, const char *body, const char *expected)
{
    bool moved;
    char *text = answer_of(l, body, &moved);
    assert_true(moved);
    if (strcmp(text, expected) != 0)
        fail_msg("%s\n gives    %s\n expected %s", body, text, expected);
    free(text);
}

/* Its logits are no numbers behind a token of the answer: what the client gets is what the baseline
 * gives alone, of each choice, with log-probabilities, stop strings and forms. */
static void test_answers_of_a_candidate_that_fails_are_those_of_the_baseline(void **state)
{
    static const char *const bodies[] = {
        plain,
        "{\"prompt\":\"Hello\",\"max_tokens\":40,\"ignore_eos\":true,\"logprobs\":1}",
        "{\"prompt\":\"Hello\",\"max_tokens\":40,\"ignore_eos\":true,\"n\":3}",
        "{\"prompt\":[\"Hello\",\"Hello\"],\"max_tokens\":40,\"ignore_eos\":true}",
        "{\"prompt\":\"Hello\",\"max_tokens\":40,\"ignore_eos\":true,\"echo\":true}",
        "{\"prompt\":\"Hello\",\"max_tokens\":40,\"ignore_eos\":true,\"presence_penalty\":0.5}",
    };
    char *expected[ZP_COUNT(bodies)];
    struct live l;
    bool moved;
    (void)state;
    live_begin(&l, live_options());
    int32_t bad = token_of_answer(8);
    for (size_t i = 0; i < ZP_COUNT(bodies); i++) {
        expected[i] = answer_of(&l, bodies[i], &moved);
        assert_false(moved);
    }
    live_end(&l);
    begin_two(&l, SMALL_MODEL);
    damage_candidate(&l, bad);
    for (size_t i = 0; i < ZP_COUNT(bodies); i++) {
        json_decref(live_post(&l, "/admin/breaker", "{\"action\":\"close\"}"));
        set_share(&l, 100);
        check_moved(&l, bodies[i], expected[i]);
        json_t *j = live_get(&l, "/admin/status"); /* new requests are kept away from it */
        assert_string_equal(text_in(j, "rollout.breaker.state"), "open");
        assert_int_equal(number_in(j, "requests.failed"), 0);
        json_decref(j);
        free(answer_of(&l, plain, &moved));
        assert_false(moved);
    }
    assert_int_equal(live_logged(&l, "\"event\":\"request_moved\""), ZP_COUNT(bodies));
    assert_true(live_count(l.audit, "breaker_opened") >= ZP_COUNT(bodies));
    live_check_books(&l);
    live_end(&l);
    free(damage.data);
    for (size_t i = 0; i < ZP_COUNT(bodies); i++) free(expected[i]);
}

static int32_t token_of(const char *text)
{
    zp_model *m;
    int32_t *ids;
    size_t n;
    GOLDEN_OK(zp_model_open(&m, SMALL_MODEL, NULL, err));
    GOLDEN_OK(zp_tokenize(m, text, strlen(text), 0, &ids, &n, err));
    int32_t id = ids[0];
    zp_free(ids);
    zp_model_close(m);
    return id;
}

/* The grammar stands at the baseline where it stood at the candidate. */
static void test_a_form_is_kept_across_a_move(void **state)
{
    static const char body[] =
        "{\"prompt\":\"Hello\",\"json_schema\":{\"enum\":[{\"alpha\":[1,2]},{\"alpha\":[1,3]}]}}";
    struct live l;
    bool moved;
    (void)state;
    begin_two(&l, SMALL_MODEL);
    char *alone = answer_of(&l, body, &moved);
    assert_false(moved);
    damage_candidate(&l, token_of("p"));
    set_share(&l, 100);
    check_moved(&l, body, alone);
    assert_non_null(strstr(alone, "alpha"));
    free(alone);
    live_check_books(&l);
    live_end(&l);
    free(damage.data);
}

static void test_streams_of_a_candidate_that_fails_go_on(void **state)
{
    static const char stream[] = "{\"prompt\":\"Hello\",\"max_tokens\":40,\"ignore_eos\":true,"
                                 "\"stream\":true,\"stream_options\":{\"include_usage\":true}}";
    struct live l;
    (void)state;
    live_begin(&l, live_options());
    struct reply r = live_ask(&l, "POST", text_path, "", stream);
    char *alone = stream_text(r.body);
    reply_free(&r);
    live_end(&l);
    begin_two(&l, SMALL_MODEL);
    damage_candidate(&l, token_of_answer(8));
    set_share(&l, 100);
    r = live_ask(&l, "POST", text_path, "", stream);
    assert_non_null(strstr(r.head, "\r\nx-variant: candidate\r\n")); /* it began there */
    assert_non_null(strstr(r.body, "\"moved_to_baseline\":true"));
    assert_non_null(strstr(r.body, "\"completion_tokens\":40"));
    char *text = stream_text(r.body);
    assert_string_equal(text, alone);
    free(text);
    free(alone);
    reply_free(&r);
    struct reply m = live_ask(&l, "GET", "/metrics", "", NULL);
    assert_non_null(strstr(m.body, "\nzerope_requests_moved_total 1\n"));
    assert_non_null(strstr(m.body, "\nzerope_breaker_trips_total{reason=\"non_finite\"} 1\n"));
    assert_non_null(strstr(m.body, "zerope_requests_total{endpoint=\"completions\",variant="
                                   "\"candidate\",outcome=\"completed\"} 1\n"));
    reply_free(&m);
    live_check_books(&l);
    live_end(&l);
    free(damage.data);
}

/* Rolled back by hand while it writes: from there on the baseline does. */
static void test_a_roll_back_that_cuts_moves_streams(void **state)
{
    static const char body[] = "{\"prompt\":\"Hello\",\"max_tokens\":3000,\"ignore_eos\":true,"
                               "\"stream\":true,\"stream_options\":{\"include_usage\":true}}";
    zp_serve_options o = two_models(SMALL_MODEL);
    struct live l;
    (void)state;
    o.engine.n_ctx = 8192;
    live_begin(&l, o);
    live_until_text(&l, "rollout.canary.state", "held");
    set_share(&l, 100);
    int fd = live_begin_ask(&l, "POST", text_path, "", body);
    char *first = strdup(client_read(fd, "\"text\":"));
    json_t *j = live_post(&l, "/admin/canary", "{\"action\":\"roll-back\",\"cut\":true,\"why\":"
                                               "\"a test\"}");
    assert_string_equal(text_in(j, "rollout.canary.state"), "rolled_back");
    assert_int_equal(number_in(j, "rollout.requests.begun_again"), 1);
    json_decref(j);
    size_t size;
    char *rest = live_read_all(fd, &size);
    close(fd);
    char *all = malloc(strlen(first) + size + 1);
    assert_non_null(all);
    strcpy(all, first);
    strcat(all, rest);
    assert_non_null(strstr(all, "\"moved_to_baseline\":true"));
    assert_non_null(strstr(all, "\"completion_tokens\":3000"));
    free(first);
    free(rest);
    free(all);
    live_check_books(&l);
    live_end(&l);
}

/* ---- models that change ---------------------------------------------------------------------- */

static void test_a_promoted_candidate_is_the_baseline(void **state)
{
    bool moved;
    struct live l;
    (void)state;
    begin_two(&l, SMALL_MODEL);
    char *before = answer_of(&l, plain, &moved);
    json_t *j = live_post(&l, "/admin/models", "{\"action\":\"promote\",\"why\":\"it is good\"}");
    assert_true(json_is_null(json_in(j, "models.candidate")));
    assert_string_equal(text_in(j, "rollout.canary.state"), "off");
    json_decref(j);
    char *after = answer_of(&l, plain, &moved);
    assert_string_equal(after, before);
    j = live_json(&l, "POST", "/admin/models", "", "{\"action\":\"promote\"}", 400);
    json_decref(j);
    json_decref(live_post(&l, "/admin/models",
                          "{\"action\":\"load-candidate\",\"path\":\"" SMALL_MODEL "\"}"));
    live_until_text(&l, "rollout.canary.state", "held");
    set_share(&l, 100);
    free(after);
    after = answer_of(&l, plain, &moved);
    assert_string_equal(after, before);
    j = live_post(&l, "/admin/models", "{\"action\":\"unload-candidate\",\"cut\":true}");
    assert_true(json_is_null(json_in(j, "models.candidate")));
    json_decref(j);
    free(after);
    after = answer_of(&l, plain, &moved);
    assert_string_equal(after, before);
    free(after);
    free(before);
    assert_int_equal(
        live_count(l.audit, "\"what\": \"candidate_promoted\", \"why\": \"it is good\""), 1);
    live_check_books(&l);
    live_end(&l);
}

/* Blue and green: the stream ends at the model it began at, new requests go to the new one, and the
 * old one is closed. */
static void test_a_baseline_is_replaced_while_it_answers(void **state)
{
    static const char body[] = "{\"prompt\":\"Hello\",\"max_tokens\":3000,\"ignore_eos\":true,"
                               "\"stream\":true,\"stream_options\":{\"include_usage\":true}}";
    zp_serve_options o = live_options();
    struct live l;
    (void)state;
    o.engine.n_ctx = 8192;
    live_begin(&l, o);
    int fd = live_begin_ask(&l, "POST", text_path, "", body);
    (void)client_read(fd, "\"text\":");
    json_decref(live_post(&l, "/admin/models", "{\"action\":\"load-baseline\",\"path\":\""
                                               ZP_TEST_DATA "/arch/qwen2\"}"));
    live_until_text(&l, "models.baseline.name", "qwen2");
    json_t *j = live_get(&l, "/v1/models");
    assert_string_equal(text_in(j, "data.0.id"), "llama"); /* the name that clients know */
    json_decref(j);
    json_decref(live_post(&l, text_path, "{\"prompt\":\"x\",\"max_tokens\":2}"));
    size_t size;
    char *rest = live_read_all(fd, &size);
    close(fd);
    assert_non_null(strstr(rest, "\"completion_tokens\":3000"));
    free(rest);
    live_until(&l, "requests.under_way", 0);
    while (live_logged(&l, "\"event\":\"model_released\"") == 0)
        json_decref(live_get(&l, "/healthz"));
    live_check_books(&l);
    live_end(&l);
}

static void test_a_model_that_does_not_fit_stays_out(void **state)
{
    struct live l;
    (void)state;
    live_begin(&l, live_options());
    json_decref(live_post(&l, "/admin/models",
                          "{\"action\":\"load-candidate\",\"path\":\"/nowhere.gguf\"}"));
    live_until_text(&l, "models.loading", NULL);
    json_t *j = live_get(&l, "/admin/status");
    assert_non_null(strstr(text_in(j, "models.load_error"), "/nowhere.gguf"));
    json_decref(j);
    json_decref(live_post(&l, "/admin/models", "{\"action\":\"load-candidate\",\"path\":\""
                                               ZP_TEST_DATA "/arch/gguf/gguf-gemma3.gguf\"}"));
    live_until_text(&l, "models.loading", NULL);
    j = live_get(&l, "/admin/status");
    assert_true(json_is_null(json_in(j, "models.candidate")));
    assert_non_null(text_in(j, "models.load_error"));
    json_decref(j);
    json_decref(live_post(&l, text_path, "{\"prompt\":\"x\",\"max_tokens\":2}"));
    live_check_books(&l);
    live_end(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ids_only_ever_move_to_the_candidate),
        cmocka_unit_test(test_answers_of_a_candidate_that_fails_are_those_of_the_baseline),
        cmocka_unit_test(test_a_form_is_kept_across_a_move),
        cmocka_unit_test(test_streams_of_a_candidate_that_fails_go_on),
        cmocka_unit_test(test_a_roll_back_that_cuts_moves_streams),
        cmocka_unit_test(test_a_promoted_candidate_is_the_baseline),
        cmocka_unit_test(test_a_baseline_is_replaced_while_it_answers),
        cmocka_unit_test(test_a_model_that_does_not_fit_stays_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
