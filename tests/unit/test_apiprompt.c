/* test_apiprompt.c: what requests ask of a model: prompts as ids, forms as grammars; and whole
 * lives of requests, from the body through the scheduler to the answer. */
#include "sched_harness.h"

#include "api_fixture.h"
#include "model/text.h"
#include "serve/apiprompt.h"

#define CHATML                                                                                     \
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"     \
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
#define HI "`messages`:[{`role`:`user`,`content`:`Hi`}]"

static zp_model *open_model(const char *template)
{
    zp_model *m = NULL;
    const zp_model_options o = { .chat_template = template };
    GOLDEN_OK(zp_model_open(&m, ZP_TEST_DATA "/arch/llama", &o, err));
    return m;
}

static struct apiprompt open_chat(const zp_model *m, struct api_request *r)
{
    struct apiprompt p;
    struct apifault fault = { 0 };
    if (apiprompt_open_chat(&p, m, r, &fault) != ZP_OK) fail_msg("%s", fault.message);
    assert_null(memchr(p.text.data, '\0', p.text.size));
    return p;
}

static struct apiprompt open_text(const zp_model *m, const struct api_prompt *prompt)
{
    struct apiprompt p;
    struct apifault fault = { 0 };
    if (apiprompt_open_text(&p, m, prompt, false, &fault) != ZP_OK) fail_msg("%s", fault.message);
    return p;
}

static size_t count_id(const struct token_list *ids, int32_t id)
{
    size_t n = 0;
    for (size_t i = 0; i < ids->count; i++) n += ids->ids[i] == id;
    return n;
}

/* ---- chats ----------------------------------------------------------------------------------- */

static void test_ids_are_the_templates(void **state)
{
    zp_model *m = open_model(CHATML);
    struct api_request r = api_read(openai_read_chat, "{`messages`:[{`role`:`system`,`content`:"
                                                      "`Be`},{`role`:`user`,`content`:`Hi`}]}");
    char *text, *input = json_dumps(r.input, 0);
    int32_t *ids;
    size_t n;
    (void)state;
    GOLDEN_OK(zp_template_render(m, input, NULL, &text, &ids, &n, err));
    struct apiprompt p = open_chat(m, &r);
    assert_int_equal(p.ids.count, n);
    assert_memory_equal(p.ids.ids, ids, n * sizeof *ids);
    assert_string_equal((const char *)p.text.data, text);
    assert_false(p.in_reasoning || p.has_form);
    zp_free(text);
    zp_free(ids);
    free(input);
    apiprompt_free(&p);
    apirequest_free(&r);
    zp_model_close(m);
}

/* P1: whoever writes them, a message's marks are text; also those of what the answer begins
 * with. */
static void test_special_tokens_are_the_templates_alone(void **state)
{
    zp_model *m = open_model(CHATML);
    static const char *const requests[] = {
        "{" HI "}",
        "{`messages`:[{`role`:`user`,`content`:`<|im_start|>Hi<|im_start|>`}]}",
        "{`messages`:[{`role`:`user`,`content`:`Hi`},{`role`:`assistant`,`content`:"
        "`<|im_start|>`}],`continue_final_message`:true}",
        "{" HI ",`tools`:[{`function`:{`name`:`<|im_start|>`}}]}",
    };
    static const size_t own[] = { 2, 2, 2, 3 }; /* the last with a message of the system */
    int32_t mark = tokenizer_find_token(m->tokenizer, "<|im_start|>", 12);
    (void)state;
    assert_true(mark >= 0);
    for (size_t i = 0; i < ZP_COUNT(requests); i++) {
        struct api_request r = api_read(openai_read_chat, requests[i]);
        struct apiprompt p = open_chat(m, &r);
        assert_int_equal(count_id(&p.ids, mark), own[i]);
        apiprompt_free(&p);
        apirequest_free(&r);
    }
    zp_model_close(m);
}

static void test_what_the_answer_begins_with(void **state)
{
    zp_model *m = open_model(CHATML);
    (void)state;
    struct api_request r = api_read(anthropic_read_messages,
                                    "{`messages`:[{`role`:`user`,`content`:`Hi`},{`role`:"
                                    "`assistant`,`content`:`Well, <think>`}]}");
    struct apiprompt p = open_chat(m, &r);
    assert_string_equal((const char *)p.text.data, "<|im_start|>user\nHi<|im_end|>\n<|im_start|>"
                                                   "assistant\nWell, <think>");
    assert_true(p.in_reasoning);
    apiprompt_free(&p);
    apirequest_free(&r);
    r = api_read(openai_read_chat, "{" HI ",`tools`:[{`function`:{`name`:`a`}}],`tool_choice`:"
                                   "`required`}");
    p = open_chat(m, &r);
    assert_true(p.has_form);
    assert_int_equal(p.style, TOOLCALLS_TAGGED);
    static const char end[] = "<|im_start|>assistant\n<tool_call>\n";
    assert_string_equal((const char *)p.text.data + p.text.size - (sizeof end - 1), end);
    assert_non_null(strstr((const char *)p.text.data, "<|im_start|>system\nYou may call"));
    apiprompt_free(&p);
    apirequest_free(&r);
    zp_model_close(m);
}

/* The template says how calls are written; one that does not read tools is told by the server. */
static void test_style_of_calls(void **state)
{
    static const struct {
        const char *template;
        enum toolcalls_style style;
        bool told;
    } cases[] = {
        { "{{ tools[0].function.name }}{# <tool_call> #}", TOOLCALLS_TAGGED, false },
        { "{{ tools[0].function.name }}<|python_tag|>", TOOLCALLS_LLAMA3, false },
        { "{{ tools[0].function.name }}", TOOLCALLS_JSON, false },
        { "{{ messages[0].content }}<|python_tag|> tools", TOOLCALLS_TAGGED, true },
    };
    (void)state;
    for (size_t i = 0; i < ZP_COUNT(cases); i++) {
        zp_model *m = open_model(cases[i].template);
        struct api_request r = api_read(openai_read_chat,
                                        "{" HI ",`tools`:[{`function`:{`name`:`a`}}]}");
        struct apiprompt p = open_chat(m, &r);
        assert_int_equal(p.style, cases[i].style);
        assert_int_equal(strstr((const char *)p.text.data, "You may call") != NULL, cases[i].told);
        apiprompt_free(&p);
        apirequest_free(&r);
        zp_model_close(m);
    }
}

static void test_templates_that_refuse_or_are_not_there(void **state)
{
    static const struct {
        const char *template, *code, *message;
    } cases[] = {
        { "{{ raise_exception('Roles must alternate') }}", "template_error",
          "Roles must alternate" },
        { "{% if %}", "no_chat_template",
          "the model has no chat template that can be used; /v1/completions takes its prompts as "
          "they are" },
    };
    (void)state;
    for (size_t i = 0; i < ZP_COUNT(cases); i++) {
        zp_model *m = open_model(cases[i].template);
        struct api_request r = api_read(openai_read_chat, "{" HI "}");
        struct apiprompt p;
        struct apifault fault = { 0 };
        assert_int_not_equal(apiprompt_open_chat(&p, m, &r, &fault), ZP_OK);
        assert_int_equal(fault.status, 400);
        assert_string_equal(fault.code, cases[i].code);
        assert_string_equal(fault.param, "messages");
        assert_non_null(strstr(fault.message, cases[i].message));
        apiprompt_free(&p);
        apirequest_free(&r);
        zp_model_close(m);
    }
}

/* ---- completions ----------------------------------------------------------------------------- */

static void test_prompts_of_completions(void **state)
{
    zp_model *m = open_model(NULL);
    static const char text[] = "<|im_start|>Hi\xc3\xa9";
    static const struct api_prompt prompt = { .text = text, .size = sizeof text - 1 };
    int32_t *ids;
    size_t n;
    (void)state;
    GOLDEN_OK(zp_tokenize(m, text, sizeof text - 1, ZP_TOKENS_BOS | ZP_TOKENS_SPECIAL, &ids, &n,
                          err));
    struct apiprompt p = open_text(m, &prompt);
    assert_int_equal(p.ids.count, n);
    assert_memory_equal(p.ids.ids, ids, n * sizeof *ids);
    assert_int_equal(p.echo.size, sizeof text - 1);
    assert_memory_equal(p.echo.text, text, sizeof text - 1);
    const struct api_prompt same = { .ids = ids, .n_ids = n };
    struct apiprompt q = open_text(m, &same);
    assert_int_equal(q.ids.count, n);
    assert_memory_equal(q.ids.ids, ids, n * sizeof *ids);
    assert_memory_equal(q.echo.text, text, sizeof text - 1);
    assert_int_equal(q.echo.first.id, ids[0]);
    assert_true(q.echo.first.n_bytes > 0);
    apiprompt_free(&p);
    apiprompt_free(&q);
    zp_free(ids);
    p = open_text(m, &(struct api_prompt){ .text = "", .size = 0 });
    assert_int_equal(p.ids.count, zp_model_wants_bos(m));
    assert_string_equal(p.echo.text, "");
    assert_null(p.echo.first.bytes);
    apiprompt_free(&p);
    static const int32_t far[] = { 1 << 30 };
    struct apifault fault = { 0 };
    assert_int_not_equal(
        apiprompt_open_text(&p, m, &(struct api_prompt){ .ids = far, .n_ids = 1 }, false, &fault),
        ZP_OK);
    assert_int_equal(fault.status, 400);
    assert_string_equal(fault.param, "prompt");
    apiprompt_free(&p);
    zp_model_close(m);
}

/* ---- forms ----------------------------------------------------------------------------------- */

static void test_forms_that_cannot_be(void **state)
{
    static const struct {
        const char *fields, *param;
    } cases[] = {
        { "`json_schema`:{`not`:{}}", "json_schema" },
        { "`response_format`:{`type`:`json_schema`,`json_schema`:{`schema`:{`enum`:[]}}}",
          "response_format.json_schema.schema" },
        { "`grammar`:`root ::= nobody`", "grammar" },
        { "`tool_choice`:`required`,`tools`:[{`function`:{`name`:`a`,`parameters`:{`properties`:"
          "{`x`:{`pattern`:`(`}}}}}]", "tools" },
    };
    zp_model *m = open_model(CHATML);
    (void)state;
    for (size_t i = 0; i < ZP_COUNT(cases); i++) {
        char text[512];
        struct apifault fault = { 0 };
        zp_grammar *g;
        snprintf(text, sizeof text, "{" HI ",%s}", cases[i].fields);
        struct api_request r = api_read(openai_read_chat, text);
        struct apiprompt p = open_chat(m, &r);
        assert_int_not_equal(apiprompt_open_grammar(&g, &p, m, &r, &fault), ZP_OK);
        assert_null(g);
        assert_int_equal(fault.status, 400);
        assert_string_equal(fault.param, cases[i].param);
        apiprompt_free(&p);
        apirequest_free(&r);
    }
    zp_model_close(m);
}

/* ---- whole lives ----------------------------------------------------------------------------- */

struct life {
    zp_model *m;
    zp_engine *e;
    struct harness *h;
    struct apireply reply;
    struct harness_job *jobs[4];
    size_t n_jobs;
};

static void take_event(struct harness *h, const struct sched_event *e, void *arg)
{
    struct life *l = arg;
    for (size_t i = 0; i < l->n_jobs; i++)
        if (e->id != 0 && e->arg == l->jobs[i] &&
            apireply_event(&l->reply, (uint32_t)i, e) == REPLY_FULL)
            sched_cancel(h->s, e->id);
}

/* The answer to a request, as a client gets it; to buffer_free. */
static struct buffer live(struct life *l, api_reader read, const char *text)
{
    struct buffer out = buffer_with_max(MEM_META, 1 << 24);
    struct api_request r = api_read(read, text);
    struct apiprompt prompts[4];
    struct apireply_echo echo[4];
    zp_grammar *grammar;
    struct apifault fault = { 0 };
    size_t n = r.set == SET_COMPLETIONS ? r.n_prompts : 1;
    assert_true(n <= 4);
    for (size_t i = 0; i < n; i++) {
        prompts[i] = r.set == SET_COMPLETIONS ? open_text(l->m, &r.prompts[i])
                                              : open_chat(l->m, &r);
        echo[i] = prompts[i].echo;
    }
    if (apiprompt_open_grammar(&grammar, &prompts[0], l->m, &r, &fault) != ZP_OK)
        fail_msg("%s", fault.message);
    r.job.sampler.grammar = grammar;
    const struct apireply_options o = {
        .r = &r, .who = api_who, .emit = { api_take_event, &out }, .style = prompts[0].style,
        .in_reasoning = prompts[0].in_reasoning,
        .form = prompts[0].has_form ? &prompts[0].form : NULL, .echo = r.echo ? echo : NULL,
    };
    GOLDEN_OK(apireply_open(&l->reply, &o, err));
    l->h->on_event = take_event, l->h->arg = l;
    l->n_jobs = n;
    for (size_t i = 0; i < n; i++) { /* events come in harness_next only */
        r.job.prompt = prompts[i].ids.ids, r.job.n_prompt = prompts[i].ids.count;
        l->jobs[i] = harness_submit(l->h, r.job);
    }
    harness_finish(l->h);
    if (l->reply.state != REPLY_ENDED) fail_msg("%s\n: %s", text, l->reply.fault.message);
    GOLDEN_OK(apireply_finish(&l->reply, &out, err));
    apireply_free(&l->reply);
    zp_grammar_close(grammar);
    for (size_t i = 0; i < n; i++) apiprompt_free(&prompts[i]);
    apirequest_free(&r);
    return out;
}

static void open_life(struct life *l)
{
    *l = (struct life){ .m = open_model(CHATML) };
    l->e = golden_engine(l->m, (zp_engine_options){ .n_ctx = 1000, .n_seq = 8, .n_threads = 1 });
    l->h = harness_open((struct sched_options){ 0 }, false);
    harness_engine(l->h, 0, l->e);
}

static void close_life(struct life *l)
{
    harness_close(l->h);
    zp_engine_close(l->e);
    zp_model_close(l->m);
}

static json_t *live_whole(struct life *l, api_reader read, const char *text)
{
    struct buffer out = live(l, read, text);
    json_t *answer = json_loadb((const char *)out.data, out.size, 0, NULL);
    if (answer == NULL) fail_msg("%s", out.data);
    buffer_free(&out);
    return answer;
}

static json_t *at(const json_t *value, const char *key)
{
    json_t *member = json_object_get(value, key);
    if (member == NULL) fail_msg("no %s", key);
    return member;
}

#define HOT ",`temperature`:1,`max_tokens`:200"

/* What a random model draws is noise; its form is not. */
static void test_lives_with_a_form(void **state)
{
    struct life l;
    (void)state;
    open_life(&l);
    for (int seed = 0; seed < 4; seed++) {
        char text[512];
        snprintf(text, sizeof text, "{" HI HOT ",`seed`:%d,`response_format`:{`type`:`json_schema`,"
                 "`json_schema`:{`schema`:{`type`:`object`,`properties`:{`a`:{`enum`:[`x`,`y`]},"
                 "`b`:{`type`:`boolean`}},`required`:[`a`,`b`],`additionalProperties`:false}}}}",
                 seed);
        json_t *answer = live_whole(&l, openai_read_chat, text),
               *choice = json_array_get(at(answer, "choices"), 0), *form = NULL;
        const char *content = json_string_value(at(at(choice, "message"), "content"));
        form = json_loads(content, 0, NULL);
        assert_true(json_is_boolean(at(form, "b")));
        assert_true(strchr("xy", json_string_value(at(form, "a"))[0]) != NULL);
        api_member_is(choice, "finish_reason", "stop");
        assert_true(json_integer_value(at(at(answer, "usage"), "completion_tokens")) > 0);
        json_decref(form);
        json_decref(answer);
        snprintf(text, sizeof text, "{" HI HOT ",`seed`:%d,`tool_choice`:{`type`:`any`},`tools`:[{"
                 "`name`:`a`,`input_schema`:{`properties`:{`k`:{`type`:`boolean`}},`required`:[`k`]"
                 "}}]}", seed);
        answer = live_whole(&l, anthropic_read_messages, text);
        const json_t *block = json_array_get(at(answer, "content"), 0);
        assert_int_equal(json_array_size(at(answer, "content")), 1);
        api_member_is(block, "type", "tool_use");
        api_member_is(block, "name", "a");
        assert_true(json_is_boolean(at(at(block, "input"), "k")));
        api_member_is(answer, "stop_reason", "tool_use");
        json_decref(answer);
    }
    close_life(&l);
}

/* Echo, log-probabilities, several prompts and choices: lists of equal length, offsets that lead
 * into the text. */
static void test_lives_of_completions(void **state)
{
    struct life l;
    (void)state;
    open_life(&l);
    json_t *answer = live_whole(&l, openai_read_completions,
                                "{`prompt`:[`Hello there`,[40,41,42]],`n`:2,`echo`:true,`logprobs`:"
                                "2,`max_tokens`:5,`temperature`:1,`seed`:3}"),
           *choices = at(answer, "choices");
    assert_int_equal(json_array_size(choices), 4);
    for (size_t i = 0; i < 4; i++) {
        const json_t *choice = json_array_get(choices, i), *logprobs = at(choice, "logprobs");
        size_t n = json_array_size(at(logprobs, "tokens"));
        const char *text = json_string_value(at(choice, "text"));
        assert_int_equal(json_integer_value(at(choice, "index")), i);
        if (i < 2) assert_memory_equal(text, "Hello there", 11);
        else assert_in_range(n, 3, 8);
        assert_int_equal(json_array_size(at(logprobs, "token_logprobs")), n);
        assert_int_equal(json_array_size(at(logprobs, "top_logprobs")), n);
        assert_int_equal(json_array_size(at(logprobs, "text_offset")), n);
        assert_int_equal(json_is_null(json_array_get(at(logprobs, "token_logprobs"), 0)),
                         !zp_model_wants_bos(l.m) || i >= 2);
        assert_true(json_is_real(json_array_get(at(logprobs, "token_logprobs"), n - 1)));
    }
    json_decref(answer);
    answer = live_whole(&l, openai_read_completions,
                        "{`prompt`:`Hello there`,`echo`:true,`logprobs`:0,`max_tokens`:0}");
    api_member_is(json_array_get(at(answer, "choices"), 0), "text", "Hello there");
    assert_int_equal(json_integer_value(at(at(answer, "usage"), "completion_tokens")), 0);
    json_decref(answer);
    close_life(&l);
}

/* A stream has the text of the whole answer; the same request gives the same text again. */
static void test_lives_of_streams(void **state)
{
    struct life l;
    char *sum = calloc(1, 1 << 16);
    (void)state;
    open_life(&l);
#define FIELDS "{`prompt`:`Once`,`max_tokens`:40,`temperature`:0.8,`seed`:5,`stop`:[`zq`]"
    json_t *whole = live_whole(&l, openai_read_completions, FIELDS "}");
    struct buffer out = live(&l, openai_read_completions,
                             FIELDS ",`stream`:true,`return_progress`:true,`stream_options`:{"
                             "`include_usage`:true}}");
    const char *data = (const char *)out.data;
    size_t n_progress = 0, n_usage = 0;
    while ((data = strstr(data, "data: {")) != NULL) {
        const char *end = strstr(data, "\n\n");
        json_t *event = json_loadb(data + 6, (size_t)(end - data - 6), 0, NULL);
        const json_t *choice = json_array_get(at(event, "choices"), 0);
        if (choice != NULL) strcat(sum, json_string_value(at(choice, "text")));
        n_progress += json_object_get(event, "prompt_progress") != NULL;
        n_usage += json_is_object(json_object_get(event, "usage"));
        json_decref(event);
        data = end;
    }
    api_member_is(json_array_get(at(whole, "choices"), 0), "text", sum);
    assert_true(n_progress > 0);
    assert_int_equal(n_usage, 1);
    assert_string_equal((const char *)out.data + out.size - 14, "data: [DONE]\n\n");
    buffer_free(&out);
    json_decref(whole);
    free(sum);
    close_life(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ids_are_the_templates),
        cmocka_unit_test(test_special_tokens_are_the_templates_alone),
        cmocka_unit_test(test_what_the_answer_begins_with),
        cmocka_unit_test(test_style_of_calls),
        cmocka_unit_test(test_templates_that_refuse_or_are_not_there),
        cmocka_unit_test(test_prompts_of_completions),
        cmocka_unit_test(test_forms_that_cannot_be),
        cmocka_unit_test(test_lives_with_a_form),
        cmocka_unit_test(test_lives_of_completions),
        cmocka_unit_test(test_lives_of_streams),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
