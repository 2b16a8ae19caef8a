/* test_service_anchors.c: positions in prompts through the service: a model with position gates
 * answers by them, alone as in company; one without them leaves them out and says so; without
 * being asked for they are text. */
#include "golden.h"

#include "in_folder.h"

#include "gate_model.h"
#include "service_fixture.h"

#define GATED ZP_TEST_DATA "/arch/gguf/gguf-llama-linear.gguf"

static const char text_path[] = "/v1/completions", chat_path[] = "/v1/chat/completions";

/* Log-probabilities of the drawn tokens, to all their digits. */
static char *draws_of(const struct live *l, const char *path, const char *body, const char *member,
                     double anchors, bool ignored)
{
    json_t *j = live_post(l, path, body);
    const json_t *usage = json_in(j, "usage"), *n = json_object_get(usage, "anchors");
    assert_true(anchors == 0 ? n == NULL : json_number_value(n) == anchors);
    assert_int_equal(json_is_true(json_object_get(usage, "anchors_ignored")), ignored);
    char *text = json_dumps(json_in(j, member), JSON_ENCODE_ANY);
    json_decref(j);
    return text;
}

#define BODY(prompt, more)                                                                         \
    "{\"prompt\":\"" prompt                                                                        \
    "\",\"max_tokens\":30,\"ignore_eos\":true,\"temperature\":0,\"logprobs\":0" more "}"
#define CHAT(text, more)                                                                          \
    "{\"messages\":[{\"role\":\"user\",\"content\":\"" text "\"}],\"max_tokens\":30,"             \
    "\"ignore_eos\":true,\"temperature\":0,\"logprobs\":true" more "}"
#define ANCHORS ",\"anchors\":true"
#define NO_ANCHORS ",\"anchors\":false"
#define CHAT_MEMBER "choices.0.logprobs.content"
#define TEXT(prompt)                                                                               \
    "{\"prompt\":\"" prompt "\",\"max_tokens\":30,\"ignore_eos\":true,\"anchors\":true}"
#define MEMBER "choices.0.logprobs.token_logprobs"

static void same(char *a, char *b, bool wanted)
{
    assert_int_equal(strcmp(a, b) == 0, wanted);
    free(a);
    free(b);
}

static void test_a_model_with_gates_answers_by_them(void **state)
{
    zp_serve_options o = live_options();
    struct live l;
    (void)state;
    gate_model_write(GATED, in_folder("gate.gguf"));
    o.model = in_folder("gate.gguf");
    live_begin(&l, o);
    /* Marks that say what holds anyway, at the end of the prompt and at its begin. */
    same(draws_of(&l, text_path, BODY("Hello you", ""), MEMBER, 0, false),
         draws_of(&l, text_path, BODY("<|pos:0|>Hello you", ANCHORS), MEMBER, 1, false), true);
    same(draws_of(&l, text_path, BODY("Hello you", ""), MEMBER, 0, false),
         draws_of(&l, text_path, BODY("Hello you[POS:100000]", ANCHORS), MEMBER, 1, false), false);
    same(draws_of(&l, chat_path, CHAT("Hello you", ""), CHAT_MEMBER, 0, false),
         draws_of(&l, chat_path, CHAT("Hel[POS:90000]lo<|pos:70000|> you", ANCHORS),
                 CHAT_MEMBER, 2, false), false);
    /* Not asked for: text. */
    same(draws_of(&l, text_path, BODY("Hello you", ""), MEMBER, 0, false),
         draws_of(&l, text_path, BODY("Hello you[POS:100000]", NO_ANCHORS), MEMBER, 0, false),
         false);
    live_check_books(&l);
    live_end(&l);
}

/* Alone, and beside others with other positions and with none: the same answers. */
static void test_company_changes_nothing(void **state)
{
    enum { N = 12 };
    zp_serve_options o = live_options();
    struct live l;
    char bodies[N][256];
    char *alone[N];
    int fds[N];
    (void)state;
    gate_model_write(GATED, in_folder("gate.gguf"));
    o.model = in_folder("gate.gguf");
    o.anchors = true; /* of requests that do not say */
    live_begin(&l, o);
    for (int i = 0; i < N; i++) {
        if (i % 3 == 0) snprintf(bodies[i], sizeof bodies[i], BODY("Hello you there", ""));
        else snprintf(bodies[i], sizeof bodies[i], BODY("Hello[POS:%d] you there", ""),
                      i % 3 * 50000);
        alone[i] = draws_of(&l, text_path, bodies[i], MEMBER, i % 3 != 0, false);
    }
    for (int i = 0; i < N; i++) fds[i] = live_begin_ask(&l, "POST", text_path, "", bodies[i]);
    for (int i = 0; i < N; i++) {
        struct reply r = live_finish(fds[i]);
        json_t *j = reply_json(&r);
        char *now = json_dumps(json_in(j, MEMBER), 0);
        assert_string_equal(now, alone[i]);
        free(now);
        json_decref(j);
        reply_free(&r);
    }
    assert_string_not_equal(alone[0], alone[1]);
    for (int i = 0; i < N; i++) free(alone[i]);
    live_check_books(&l);
    live_end(&l);
}

static void test_a_model_without_gates_leaves_them_out(void **state)
{
    struct live l;
    (void)state;
    live_begin(&l, live_options());
    same(draws_of(&l, text_path, TEXT("Hello you"), "choices.0.text", 0, false),
         draws_of(&l, text_path, TEXT("[POS:900]Hello you[POS:1]"), "choices.0.text", 2, true),
         true);
    assert_int_equal(live_logged(&l, "\"event\":\"anchors_ignored\""), 1);
    json_t *j = live_json(&l, "POST", text_path, "", BODY("x[POS:4294967296]", ANCHORS), 400);
    assert_string_equal(text_in(j, "error.param"), "prompt");
    json_decref(j);
    /* <TIME>: mode full, though another one was asked for, for which there is no evidence. */
    json_decref(
        live_json(&l, "POST", text_path, "", BODY("x", ",\"position_mode\":\"zero\""), 400));
    struct reply r = live_ask(&l, "POST", text_path, "",
                              BODY("x<TIME>", ANCHORS ",\"position_mode\":\"zero\""));
    assert_int_equal(r.status, 200);
    assert_non_null(strstr(r.head, "x-position-mode: full\r\n"));
    reply_free(&r);
    live_check_books(&l);
    live_end(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_model_with_gates_answers_by_them),
        cmocka_unit_test(test_company_changes_nothing),
        cmocka_unit_test(test_a_model_without_gates_leaves_them_out),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
