/* test_alloc_failures_api.c: requests of both APIs, their prompts and their answers when allocation
 * number n fails, for all n: they say so, and no byte stays behind. */
#include "alloc_failures.h"

#include "serve/api_plain.h"
#include "serve/apiprompt.h"
#include "serve/toolprompt.h"

#define TEMPLATE "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"

static const char
    chat[] =
        "{\"messages\":[{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"user\",\"content\":[{"
        "\"type\":"
        "\"text\",\"text\":\"a\"},{\"type\":\"text\",\"text\":\"b\"}]},{\"role\":\"assistant\","
        "\"tool_calls\":[{\"id\":\"c\",\"function\":{\"name\":\"add\",\"arguments\":\"{\\\"x\\\": "
        "1}\"}}]},"
        "{\"role\":\"tool\",\"tool_call_id\":\"c\",\"content\":\"r\"}],\"tools\":[{\"type\":"
        "\"function\","
        "\"function\":{\"name\":\"add\",\"parameters\":{\"$ref\":\"#/$defs/"
        "a\",\"$defs\":{\"a\":{}}}}},"
        "{\"function\":{\"name\":\"b\"}}],\"stop\":[\"x\",\"y\"],\"logit_bias\":{\"5\":1},"
        "\"reasoning_effort\":\"low\",\"chat_template_kwargs\":{\"k\":1},\"logprobs\":true,"
        "\"stream_options\":{\"include_usage\":true}}",
    functions[] =
        "{\"functions\":[{\"name\":\"a\"}],\"continue_final_message\":true,\"messages\":[{\"role\":"
        "\"assistant\",\"function_call\":{\"name\":\"a\",\"arguments\":\"{}\"}},{\"role\":"
        "\"developer\","
        "\"content\":\"x\"},{\"role\":\"function\",\"name\":\"a\",\"content\":\"r\"},{\"role\":"
        "\"assistant\",\"content\":\"so\"}]}",
    completions[] = "{\"prompt\":[\"a\",[1,2]],\"response_format\":{\"type\":\"json_schema\","
                    "\"json_schema\":{\"schema\":{\"type\":\"object\"}}}}",
    messages[] =
        "{\"system\":[{\"type\":\"text\",\"text\":\"S\"}],\"messages\":[{\"role\":\"user\","
        "\"content\":"
        "\"q\"},{\"role\":\"assistant\",\"content\":[{\"type\":\"thinking\",\"thinking\":\"t\"},"
        "{\"type\":\"text\",\"text\":\"x\"},{\"type\":\"tool_use\",\"id\":\"u\",\"name\":\"a\","
        "\"input\":{\"y\":1}}]},{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\","
        "\"tool_use_id\":\"u\",\"content\":[{\"type\":\"text\",\"text\":\"r\"}]},{\"type\":"
        "\"text\","
        "\"text\":\"z\"}]},{\"role\":\"assistant\",\"content\":\"{\"}],\"tools\":[{\"name\":\"a\","
        "\"description\":\"A\",\"input_schema\":{}}]}",
    plain[] = "{\"input\":[\"a\",[1]]}";

static const struct api_limits limits = { 0 };
static const struct api_identity who = { .id = "id", .seed = "seed", .model = "m" };

typedef zp_status (*reader)(struct api_request *r, const char *body, size_t size,
                            const struct api_limits *limits, struct apifault *fault);

struct body {
    reader read;
    const char *text;
};

static zp_status tell(const struct apifault *fault, zp_status status, zp_err *why)
{
    ZP_FAIL_IF(status != ZP_OK, why, fault->status == 503 ? ZP_NO_MEMORY : status, "%s",
               fault->message);
    return ZP_OK;
}

static zp_status run_read(void *arg, zp_err *why)
{
    const struct body *b = arg;
    struct api_request r;
    struct apifault fault = { 0 };
    zp_status status = b->read(&r, b->text, strlen(b->text), &limits, &fault);
    if (status == ZP_OK && r.input != NULL) status = toolprompt_apply(r.input, why);
    apirequest_free(&r);
    return status != ZP_OK && why->code == ZP_OK ? tell(&fault, status, why) : status;
}

static zp_status run_plain(void *arg, zp_err *why)
{
    struct plain_request r;
    struct apifault fault = { 0 };
    zp_status status = plain_read_embeddings(&r, plain, sizeof plain - 1, &limits, &fault);
    (void)arg;
    plain_free(&r);
    return tell(&fault, status, why);
}

static void forget(void *arg, const char *event, const char *data, size_t size)
{
    (void)arg;
    (void)event;
    assert_true(size != 0 && data != NULL);
}

static void feed(struct apireply *a, uint32_t n_jobs)
{
    static const char text[] =
        "<think>t</think>Well <tool_call>{\"name\": \"add\", \"arguments\": "
        "\"{\\\"x\\\": 1}\"}</tool_call><tool_call>{\"name\": \"b\"}</tool_call>";
    static const struct sched_logprob top = { 5, -1, "x", 1 };
    struct sched_event token = { .kind = SCHED_TOKEN };
    token.token = (struct sched_token){ .text = text, .size = sizeof text - 1, .own = top,
                                        .has_logprob = true, .top = &top, .n_top = 1 };
    (void)apireply_event(a, 0, &(struct sched_event){ .kind = SCHED_ACCEPTED });
    for (uint32_t i = 0; i < n_jobs; i++) {
        (void)apireply_event(a, i, &token);
        (void)apireply_event(a, i, &(struct sched_event){ .kind = SCHED_PROGRESS });
        (void)apireply_event(a, i, &(struct sched_event){ .kind = SCHED_ENDED,
                                                          .ended = { 0, "stop", 0 } });
        (void)apireply_event(a, i, &(struct sched_event){ .kind = SCHED_DONE });
    }
}

static zp_status reply_to(struct apireply *a, struct buffer *out, zp_err *why)
{
    feed(a, a->n_jobs);
    if (a->state == REPLY_ENDED) return apireply_finish(a, out, why);
    assert_int_equal(a->state, REPLY_FAILED);
    assert_int_equal(a->fault.status, 503);
    *why = a->err;
    return why->code;
}

static zp_status run_reply(void *arg, zp_err *why)
{
    static const struct apireply_echo echo[2] = { { "ab", 2, { 5, 0, "a", 1 } } };
    const struct api_request *r = arg;
    const struct apireply_options o = { .r = r, .who = who, .emit = { forget, NULL },
                                        .echo = r->echo ? echo : NULL };
    struct buffer out = buffer_with_max(MEM_SERVE, 1 << 20);
    struct apireply a;
    zp_status status = apireply_open(&a, &o, why);
    if (status == ZP_OK) status = reply_to(&a, &out, why);
    apireply_free(&a);
    buffer_free(&out);
    return status;
}

static zp_model *model;

static zp_status run_prompt(void *arg, zp_err *why)
{
    const struct body *b = arg;
    struct api_request r;
    struct apiprompt p = { 0 };
    struct apifault fault = { 0 };
    zp_status status = b->read(&r, b->text, strlen(b->text), &limits, &fault);
    if (status == ZP_OK)
        status = r.set == SET_COMPLETIONS
                     ? apiprompt_open_text(&p, model, &r.prompts[0], r.anchors, &fault)
                     : apiprompt_open_chat(&p, model, &r, &fault);
    apiprompt_free(&p);
    apirequest_free(&r);
    return tell(&fault, status, why);
}

static zp_status run_form(void *arg, zp_err *why)
{
    const struct api_request *r = arg;
    struct toolform f;
    zp_status status = toolform_open(&f, TOOLCALLS_TAGGED, r->tools, NULL, why);
    toolform_free(&f);
    return status;
}

static void test_requests(void **state)
{
    struct body bodies[] = { { openai_read_chat, chat },
                             { openai_read_chat, functions },
                             { openai_read_completions, completions },
                             { anthropic_read_messages, messages } };
    (void)state;
    for (size_t i = 0; i < ZP_COUNT(bodies); i++) {
        struct fail_call call = { .what = "a request", .run = run_read, .arg = &bodies[i] };
        fail_each(&call, 20);
    }
    fail_each(&(struct fail_call){ .what = "embeddings", .run = run_plain }, 5);
}

static void test_replies(void **state)
{
    static const char
        stream[] = "{\"stream\":true,\"messages\":[{\"role\":\"user\",\"content\":\"q\"}],"
                   "\"return_progress\":true,\"tools\":[{\"name\":\"add\",\"input_schema\":{}}]}",
        chat_stream[] = "{\"stream\":true,\"logprobs\":true,\"timings\":true,\"messages\":[{"
                        "\"role\":\"user\",\"content\":\"q\"}],\"stop\":\"x\"}",
        echo[] = "{\"prompt\":[\"ab\",\"\"],\"echo\":true,\"logprobs\":1}";
    struct body bodies[] = { { openai_read_chat, chat },
                             { openai_read_chat, chat_stream },
                             { openai_read_completions, echo },
                             { anthropic_read_messages, messages },
                             { anthropic_read_messages, stream } };
    (void)state;
    for (size_t i = 0; i < ZP_COUNT(bodies); i++) {
        struct api_request r;
        struct apifault fault = { 0 };
        const char *text = bodies[i].text;
        assert_int_equal(bodies[i].read(&r, text, strlen(text), &limits, &fault), ZP_OK);
        fail_each(&(struct fail_call){ .what = "a reply", .run = run_reply, .arg = &r }, 4);
        if (i == 0)
            fail_each(&(struct fail_call){ .what = "the form of a call", .run = run_form,
                                           .arg = &r }, 20);
        apirequest_free(&r);
    }
}

static void test_prompts(void **state)
{
    static const char required[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\","
        "\"content\":\"so\"}],\"continue_final_message\":true,\"tool_choice\":\"required\","
        "\"tools\":[{\"function\":{\"name\":\"a\"}}]}",
        text[] = "{\"prompt\":\"Hello\"}", ids[] = "{\"prompt\":[40,41]}";
    struct body bodies[] = { { openai_read_chat, required },
                             { openai_read_completions, text },
                             { openai_read_completions, ids } };
    zp_model_options o = { .chat_template = TEMPLATE };
    (void)state;
    GOLDEN_OK(zp_model_open(&model, ZP_TEST_DATA "/arch/llama", &o, err));
    for (size_t i = 0; i < ZP_COUNT(bodies); i++)
        fail_each(&(struct fail_call){ .what = "a prompt", .run = run_prompt, .arg = &bodies[i] },
                  5);
    zp_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests),
        cmocka_unit_test(test_replies),
        cmocka_unit_test(test_prompts),
    };
    fail_watch_jansson();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
