/* test_api_openai_answer.c: answers in OpenAI's shapes, byte for byte: whole, and as events. */
#include "api_fixture.h"

#include "serve/toolcalls.h"

#define HEAD "`id`:`ID`,`object`:`chat.completion`,`created`:1700000000,`model`:`m`," \
             "`system_fingerprint`:`fp`"
#define CHUNK "data: {`id`:`ID`,`object`:`chat.completion.chunk`,`created`:1700000000," \
              "`model`:`m`,`system_fingerprint`:`fp`,`choices`:"
#define TEXT "data: {`id`:`ID`,`object`:`text_completion`,`created`:1700000000,`model`:`m`," \
             "`system_fingerprint`:`fp`,`choices`:"
/* one choice: its index, the delta */
#define DELTA(i, delta)                                                                            \
    "[{`index`:" #i ",`delta`:{" delta "},`logprobs`:null,`finish_reason`:null}]"
#define FINISH(i, reason)                                                                          \
    "[{`index`:" #i ",`delta`:{},`logprobs`:null,`finish_reason`:`" reason "`}]"
#define ROLE(i) DELTA(i, "`role`:`assistant`,`content`:``")
#define END "}\n\n"
#define DONE "data: [DONE]\n\n"
#define CALL_1 "call_8dd6c1357c97a0b7a016fe2d"
#define CALL_2 "call_a3db10beeeb2e6094c930191"

static const char chat[] = "{`messages`:[{`role`:`user`,`content`:`Hi`}]}";
static const struct api_usage usage = { .n_prompt = 10, .n_cached = 4, .n_answer = 2,
                                        .layer_zeroed = 12, .prompt_seconds = 0.5,
                                        .answer_seconds = 0.25 };
#define USAGE "`usage`:{`prompt_tokens`:10,`completion_tokens`:2,`total_tokens`:12," \
              "`prompt_tokens_details`:{`cached_tokens`:4},`layer_zeroed`:12}"
#define TIMINGS "`timings`:{`cache_n`:4,`prompt_n`:6,`prompt_ms`:500.0," \
                "`prompt_per_token_ms`:83.3333,`prompt_per_second`:12.0,`predicted_n`:2," \
                "`predicted_ms`:250.0,`predicted_per_token_ms`:125.0,`predicted_per_second`:8.0}"

/* ---- whole answers --------------------------------------------------------------------------- */

struct whole {
    struct api_request r;
    struct api_answer a;
};

static struct whole whole(api_reader read, const char *request, uint32_t n_choices)
{
    struct whole w = { .r = api_read(read, request) };
    GOLDEN_OK(api_answer_open(&w.a, &w.r, &api_who, n_choices, err));
    return w;
}

static void add(struct whole *w, uint32_t choice, enum api_part_kind kind, const char *text)
{
    struct api_part part = api_part(kind, text);
    GOLDEN_OK(api_answer_part(&w->a, choice, &part, err));
}

static void whole_is(struct whole *w, const struct api_usage *u, const char *expected)
{
    struct buffer out = buffer_with_max(MEM_META, 1 << 20);
    GOLDEN_OK(openai_write_answer(&w->r, &w->a, u, &out, err));
    api_text_is(&out, expected);
    buffer_free(&out);
    api_answer_free(&w->a);
    apirequest_free(&w->r);
}

static void test_whole_text(void **state)
{
    struct whole w = whole(openai_read_chat, chat, 1);
    (void)state;
    add(&w, 0, PART_CONTENT, "Hello");
    add(&w, 0, PART_CONTENT, " \"you\"\n");
    w.a.choices[0].finish = FINISH_END;
    whole_is(&w, &usage,
             "{" HEAD ",`choices`:[{`index`:0,`message`:{`role`:`assistant`,`content`:`Hello "
             "\\`you\\`\\n`,`refusal`:null},`logprobs`:null,`finish_reason`:`stop`}]," USAGE "}");
}

static void test_whole_empty_answer_cut_at_once(void **state)
{
    struct whole w = whole(openai_read_chat, chat, 1);
    (void)state;
    w.a.choices[0].finish = FINISH_LENGTH;
    whole_is(&w, &usage,
             "{" HEAD ",`choices`:[{`index`:0,`message`:{`role`:`assistant`,`content`:``,"
             "`refusal`:null},`logprobs`:null,`finish_reason`:`length`}]," USAGE "}");
}

static void test_whole_calls_and_reasoning(void **state)
{
    struct whole w = whole(openai_read_chat, chat, 1);
    (void)state;
    add(&w, 0, PART_REASONING, "Hm.");
    add(&w, 0, PART_CALL, "a");
    add(&w, 0, PART_ARGUMENTS, "{\"x\":");
    add(&w, 0, PART_ARGUMENTS, " 1}");
    add(&w, 0, PART_CALL, "b");
    add(&w, 0, PART_ARGUMENTS, "{}");
    w.a.choices[0].finish = FINISH_END;
    whole_is(&w, &usage,
             "{" HEAD ",`choices`:[{`index`:0,`message`:{`role`:`assistant`,`content`:null,"
             "`refusal`:null,`reasoning_content`:`Hm.`,`tool_calls`:[{`id`:`" CALL_1 "`,`type`:"
             "`function`,`function`:{`name`:`a`,`arguments`:`{\\`x\\`: 1}`}},{`id`:`" CALL_2 "`,"
             "`type`:`function`,`function`:{`name`:`b`,`arguments`:`{}`}}]},`logprobs`:null,"
             "`finish_reason`:`tool_calls`}]," USAGE "}");
}

static void test_whole_old_function_call(void **state)
{
    struct whole w =
        whole(openai_read_chat,
              "{`messages`:[{`role`:`user`,`content`:`Hi`}],`functions`:[{`name`:`a`}]}", 1);
    (void)state;
    add(&w, 0, PART_CONTENT, "See:");
    add(&w, 0, PART_CALL, "a");
    add(&w, 0, PART_ARGUMENTS, "{}");
    w.a.choices[0].finish = FINISH_STOP;
    whole_is(&w, &usage,
             "{" HEAD ",`choices`:[{`index`:0,`message`:{`role`:`assistant`,`content`:`See:`,"
             "`refusal`:null,`function_call`:{`name`:`a`,`arguments`:`{}`}},`logprobs`:null,"
             "`finish_reason`:`function_call`}]," USAGE "}");
}

static void test_whole_completions_of_several_prompts(void **state)
{
    struct whole w = whole(openai_read_completions, "{`prompt`:[`a`,`b`],`timings`:true}", 2);
    struct api_usage u = usage;
    (void)state;
    u.architecture = "{\"kind\":[1]}";
    u.n_truncated = 7, u.n_anchors = 1, u.approximate = u.moved = true;
    add(&w, 0, PART_CONTENT, "x");
    add(&w, 1, PART_CONTENT, "y");
    w.a.choices[0].finish = FINISH_LENGTH;
    w.a.choices[1].finish = FINISH_STOP;
    whole_is(&w, &u,
             "{`id`:`ID`,`object`:`text_completion`,`created`:1700000000,`model`:`m`,"
             "`system_fingerprint`:`fp`,`choices`:[{`index`:0,`text`:`x`,`logprobs`:null,"
             "`finish_reason`:`length`},{`index`:1,`text`:`y`,`logprobs`:null,`finish_reason`:"
             "`stop`}],`usage`:{`prompt_tokens`:10,`completion_tokens`:2,`total_tokens`:12,"
             "`prompt_tokens_details`:{`cached_tokens`:4},`layer_zeroed`:12,`truncated_tokens`:7,"
             "`anchors`:1,`approximate`:true,`moved_to_baseline`:true,`architecture_details`:"
             "{`kind`:[1]}}," TIMINGS "}");
}

static void test_usage_of_several_jobs_is_added(void **state)
{
    const struct sched_usage one = { .n_prompt = 6, .n_reused = 4, .n_drawn = 1,
                                     .prompt_seconds = 0.375, .draw_seconds = 0.125 },
                             two = { .n_prompt = 4, .n_drawn = 1, .prompt_seconds = 0.125,
                                     .draw_seconds = 0.125 };
    struct api_usage u = { .layer_zeroed = 12 };
    struct whole w = whole(openai_read_chat, "{`messages`:[{`role`:`user`,`content`:`Hi`}],"
                                             "`timings`:true}", 1);
    (void)state;
    api_usage_add(&u, &one);
    api_usage_add(&u, &two);
    w.a.choices[0].finish = FINISH_END;
    whole_is(&w, &u,
             "{" HEAD ",`choices`:[{`index`:0,`message`:{`role`:`assistant`,`content`:``,"
             "`refusal`:null},`logprobs`:null,`finish_reason`:`stop`}]," USAGE "," TIMINGS "}");
}

/* ---- log-probabilities ----------------------------------------------------------------------- */

static const struct sched_logprob top[] = { { 5, -0.25, "Hi", 2 }, { 6, -1.5, "\xf0\x9f", 2 } };

static struct sched_token token(struct sched_logprob own, uint32_t n_top)
{
    return (struct sched_token){ .id = own.id, .own = own, .has_logprob = true, .top = top,
                                 .n_top = n_top };
}

static void test_logprobs_of_chat(void **state)
{
    struct whole w = whole(openai_read_chat, chat, 1);
    struct sched_token t = token(top[0], 2), u = token((struct sched_logprob){ 9, -3, "\"", 1 }, 0);
    (void)state;
    add(&w, 0, PART_CONTENT, "Hi\"");
    GOLDEN_OK(api_answer_token(&w.a, 0, &t, err));
    GOLDEN_OK(api_answer_token(&w.a, 0, &u, err));
    w.a.choices[0].finish = FINISH_END;
    whole_is(&w, &usage,
             "{" HEAD ",`choices`:[{`index`:0,`message`:{`role`:`assistant`,`content`:`Hi\\``,"
             "`refusal`:null},`logprobs`:{`content`:[{`token`:`Hi`,`logprob`:-0.25,`bytes`:"
             "[72,105],`top_logprobs`:[{`token`:`Hi`,`logprob`:-0.25,`bytes`:[72,105]},{`token`:"
             "`\\\\xf0\\\\x9f`,`logprob`:-1.5,`bytes`:[240,159]}]},{`token`:`\\``,`logprob`:-3.0,"
             "`bytes`:[34],`top_logprobs`:[]}],`refusal`:null},`finish_reason`:`stop`}]," USAGE
             "}");
}

/* The prompt's first token has none; the drawn token is among the likeliest, or beside them; of two
 * that read the same one is named; offsets count characters. */
static void test_logprobs_of_completions(void **state)
{
    struct whole w = whole(openai_read_completions, "{`prompt`:`a`,`echo`:true,`logprobs`:2}", 1);
    static const struct sched_logprob twice[] = { { 5, -0.25, "Hi", 2 }, { 7, -0.5, "Hi", 2 } };
    struct sched_token first = { .own = { 1, 0, "\xc3\xa9", 2 } }, t = token(top[0], 2),
                       u = token((struct sched_logprob){ 9, -3, "\xff", 1 }, 2),
                       v = token((struct sched_logprob){ 8, -4, "", 0 }, 2);
    (void)state;
    v.top = twice;
    add(&w, 0, PART_CONTENT, "\xc3\xa9Hi");
    GOLDEN_OK(api_answer_token(&w.a, 0, &first, err));
    GOLDEN_OK(api_answer_token(&w.a, 0, &t, err));
    GOLDEN_OK(api_answer_token(&w.a, 0, &u, err));
    GOLDEN_OK(api_answer_token(&w.a, 0, &v, err));
    w.a.choices[0].finish = FINISH_LENGTH;
    whole_is(&w, &usage,
             "{`id`:`ID`,`object`:`text_completion`,`created`:1700000000,`model`:`m`,"
             "`system_fingerprint`:`fp`,`choices`:[{`index`:0,`text`:`\xc3\xa9Hi`,`logprobs`:"
             "{`tokens`:[`\xc3\xa9`,`Hi`,`bytes:\\\\xff`,``],`token_logprobs`:[null,-0.25,-3.0,"
             "-4.0],`top_logprobs`:[null,{`Hi`:-0.25,`bytes:\\\\xf0\\\\x9f`:-1.5},{`Hi`:-0.25,"
             "`bytes:\\\\xf0\\\\x9f`:-1.5,`bytes:\\\\xff`:-3.0},{`Hi`:-0.25,``:-4.0}],"
             "`text_offset`:[0,1,3,4]},`finish_reason`:`length`}]," USAGE "}");
}

/* ---- streams --------------------------------------------------------------------------------- */

struct flow {
    struct api_request r;
    struct openai_stream s;
    struct buffer out;
};

static void open_flow(struct flow *f, api_reader read, const char *request, uint32_t n_choices)
{
    *f = (struct flow){ .r = api_read(read, request), .out = buffer_with_max(MEM_META, 1 << 20) };
    GOLDEN_OK(openai_stream_open(&f->s, &f->r, &api_who, n_choices,
                                 (struct api_emit){ api_take_event, &f->out }, err));
}

static void push(struct flow *f, uint32_t choice, enum api_part_kind kind, const char *text)
{
    struct api_part part = api_part(kind, text);
    GOLDEN_OK(openai_stream_part(&f->s, choice, &part, err));
}

static void flow_is(struct flow *f, const char *expected)
{
    api_text_is(&f->out, expected);
    buffer_free(&f->out);
    openai_stream_free(&f->s);
    apirequest_free(&f->r);
}

static void test_stream_of_text(void **state)
{
    struct flow f;
    (void)state;
    open_flow(&f, openai_read_chat, chat, 1);
    push(&f, 0, PART_CONTENT, "Hel");
    push(&f, 0, PART_CONTENT, "");
    push(&f, 0, PART_CONTENT, "lo\n");
    GOLDEN_OK(openai_stream_finish(&f.s, 0, FINISH_END, err));
    GOLDEN_OK(openai_stream_end(&f.s, &usage, err));
    flow_is(&f, CHUNK ROLE(0) END CHUNK DELTA(0, "`content`:`Hel`") END
                CHUNK DELTA(0, "`content`:`lo\\n`") END CHUNK FINISH(0, "stop") END DONE);
}

/* All chunks but the last one have the usage as null. */
static void test_stream_with_usage_and_timings(void **state)
{
    struct flow f;
    (void)state;
    open_flow(&f, openai_read_chat, "{`messages`:[{`role`:`user`,`content`:`Hi`}],`stream`:true,"
                                    "`stream_options`:{`include_usage`:true},`timings`:true}", 1);
    push(&f, 0, PART_CONTENT, "x");
    GOLDEN_OK(openai_stream_finish(&f.s, 0, FINISH_LENGTH, err));
    GOLDEN_OK(openai_stream_end(&f.s, &usage, err));
    flow_is(&f, CHUNK ROLE(0) ",`usage`:null" END CHUNK
                    DELTA(0, "`content`:`x`") ",`usage`:null" END CHUNK FINISH(
                        0, "length") ",`usage`:null" END CHUNK "[]," USAGE "," TIMINGS END DONE);
}

static void test_stream_of_calls(void **state)
{
    struct flow f;
    (void)state;
    open_flow(&f, openai_read_chat, chat, 1);
    push(&f, 0, PART_REASONING, "Hm");
    push(&f, 0, PART_CALL, "a");
    push(&f, 0, PART_ARGUMENTS, "{\"x\":");
    push(&f, 0, PART_ARGUMENTS, "1}");
    push(&f, 0, PART_CALL, "b");
    push(&f, 0, PART_ARGUMENTS, "{}");
    GOLDEN_OK(openai_stream_finish(&f.s, 0, FINISH_END, err));
    GOLDEN_OK(openai_stream_end(&f.s, &usage, err));
    flow_is(&f,
            CHUNK ROLE(0) END CHUNK DELTA(0, "`reasoning_content`:`Hm`") END
            CHUNK DELTA(0, "`tool_calls`:[{`index`:0,`id`:`" CALL_1 "`,`type`:`function`,"
                           "`function`:{`name`:`a`,`arguments`:``}}]") END
            CHUNK DELTA(0, "`tool_calls`:[{`index`:0,`function`:{`arguments`:`{\\`x\\`:`}}]") END
            CHUNK DELTA(0, "`tool_calls`:[{`index`:0,`function`:{`arguments`:`1}`}}]") END
            CHUNK DELTA(0, "`tool_calls`:[{`index`:1,`id`:`" CALL_2 "`,`type`:`function`,"
                           "`function`:{`name`:`b`,`arguments`:``}}]") END
            CHUNK DELTA(0, "`tool_calls`:[{`index`:1,`function`:{`arguments`:`{}`}}]") END
            CHUNK FINISH(0, "tool_calls") END DONE);
}

static void test_stream_of_an_old_function_call(void **state)
{
    struct flow f;
    (void)state;
    open_flow(&f, openai_read_chat,
              "{`messages`:[{`role`:`user`,`content`:`Hi`}],`functions`:[{`name`:`a`}]}", 1);
    push(&f, 0, PART_CALL, "a");
    push(&f, 0, PART_ARGUMENTS, "{}");
    GOLDEN_OK(openai_stream_finish(&f.s, 0, FINISH_END, err));
    flow_is(&f, CHUNK ROLE(0) END
                CHUNK DELTA(0, "`function_call`:{`name`:`a`,`arguments`:``}") END
                CHUNK DELTA(0, "`function_call`:{`arguments`:`{}`}") END
                CHUNK FINISH(0, "function_call") END);
}

static void test_stream_of_several_choices(void **state)
{
    struct flow f;
    (void)state;
    open_flow(&f, openai_read_chat, chat, 2);
    push(&f, 1, PART_CONTENT, "b");
    push(&f, 0, PART_CALL, "a");
    GOLDEN_OK(openai_stream_finish(&f.s, 1, FINISH_STOP, err));
    push(&f, 1, PART_CALL, "a");
    flow_is(&f, CHUNK ROLE(1) END CHUNK DELTA(1, "`content`:`b`") END CHUNK ROLE(0) END
                CHUNK DELTA(0, "`tool_calls`:[{`index`:0,`id`:`" CALL_1 "`,`type`:`function`,"
                               "`function`:{`name`:`a`,`arguments`:``}}]") END
                CHUNK FINISH(1, "stop") END
                CHUNK DELTA(1, "`tool_calls`:[{`index`:0,`id`:`call_dea867648f40062e0ebf0727`,"
                               "`type`:`function`,`function`:{`name`:`a`,`arguments`:``}}]") END);
}

/* Nothing was drawn that can be shown: still a role and an end. */
static void test_stream_without_text(void **state)
{
    struct flow f;
    (void)state;
    open_flow(&f, openai_read_chat, chat, 1);
    GOLDEN_OK(openai_stream_finish(&f.s, 0, FINISH_END, err));
    GOLDEN_OK(openai_stream_end(&f.s, &usage, err));
    flow_is(&f, CHUNK ROLE(0) END CHUNK FINISH(0, "stop") END DONE);
}

/* Tokens whose text is held back come with the next text, or with the end. */
static void test_stream_of_logprobs(void **state)
{
    struct flow f;
    struct sched_token t = token(top[0], 0), u = token(top[1], 0);
    (void)state;
    open_flow(&f, openai_read_chat, chat, 1);
    GOLDEN_OK(openai_stream_token(&f.s, 0, &t, err));
    GOLDEN_OK(openai_stream_token(&f.s, 0, &u, err));
    push(&f, 0, PART_CONTENT, "Hi");
    push(&f, 0, PART_CONTENT, "!");
    GOLDEN_OK(openai_stream_token(&f.s, 0, &t, err));
    GOLDEN_OK(openai_stream_finish(&f.s, 0, FINISH_END, err));
#define OWN "{`token`:`Hi`,`logprob`:-0.25,`bytes`:[72,105],`top_logprobs`:[]}"
    flow_is(&f, CHUNK ROLE(0) END CHUNK
            "[{`index`:0,`delta`:{`content`:`Hi`},`logprobs`:{`content`:[" OWN ",{`token`:"
            "`\\\\xf0\\\\x9f`,`logprob`:-1.5,`bytes`:[240,159],`top_logprobs`:[]}],`refusal`:"
            "null},`finish_reason`:null}]" END CHUNK DELTA(0, "`content`:`!`") END CHUNK
            "[{`index`:0,`delta`:{},`logprobs`:{`content`:[" OWN "],`refusal`:null},"
            "`finish_reason`:`stop`}]" END);
}

static void test_stream_of_progress(void **state)
{
    struct flow f;
    const struct sched_progress p = { 100, 64, 80, 1.2345 };
    (void)state;
    open_flow(&f, openai_read_chat, chat, 1);
    GOLDEN_OK(openai_stream_progress(&f.s, &p, err));
    push(&f, 0, PART_CONTENT, "x");
    flow_is(&f, CHUNK ROLE(0) END
                CHUNK DELTA(0, "") ",`prompt_progress`:{`total`:100,`cache`:64,`processed`:80,"
                "`time_ms`:1234}" END CHUNK DELTA(0, "`content`:`x`") END);
}

static void test_stream_of_completions(void **state)
{
    struct flow f;
    (void)state;
    const struct sched_progress p = { 2, 0, 1, 0 };
    open_flow(&f, openai_read_completions, "{`prompt`:`a`}", 1);
    GOLDEN_OK(openai_stream_progress(&f.s, &p, err));
    push(&f, 0, PART_CONTENT, "x");
    GOLDEN_OK(openai_stream_finish(&f.s, 0, FINISH_LENGTH, err));
    GOLDEN_OK(openai_stream_end(&f.s, &usage, err));
    flow_is(&f, TEXT "[{`index`:0,`text`:``,`logprobs`:null,`finish_reason`:null}],"
                "`prompt_progress`:{`total`:2,`cache`:0,`processed`:1,`time_ms`:0}" END
                TEXT "[{`index`:0,`text`:`x`,`logprobs`:null,`finish_reason`:null}]" END
                TEXT "[{`index`:0,`text`:``,`logprobs`:null,`finish_reason`:`length`}]" END DONE);
}

static void test_stream_that_fails(void **state)
{
    struct flow f;
    struct apifault fault = { 0 };
    (void)state;
    (void)apifault_set(&fault, 500, "internal_error", NULL, "broken");
    open_flow(&f, openai_read_chat, chat, 1);
    push(&f, 0, PART_CONTENT, "x");
    GOLDEN_OK(openai_stream_fail(&f.s, &fault, err));
    flow_is(&f, CHUNK ROLE(0) END CHUNK DELTA(0, "`content`:`x`") END
                "data: {`error`:{`message`:`broken`,`type`:`server_error`,`param`:null,"
                "`code`:`internal_error`}}\n\n");
}

/* ---- from a model's text to the events ------------------------------------------------------- */

static zp_status stream_part(void *arg, const struct api_part *part, zp_err *err)
{
    return openai_stream_part(arg, 0, part, err);
}

static void test_from_text_to_events(void **state)
{
    static const char text[] =
        "<think>Hm</think>Well.\n<tool_call>\n{\"name\": \"a\", \"arguments\": "
        "{\"x\": 1}}\n</tool_call>";
    struct flow f;
    struct toolcalls t;
    (void)state;
    open_flow(&f, openai_read_chat, "{`messages`:[{`role`:`user`,`content`:`Hi`}],`tools`:[{`type`:"
                                    "`function`,`function`:{`name`:`a`}}]}", 1);
    struct toolcalls_options o = { .tools = f.r.tools, .part = stream_part, .arg = &f.s };
    toolcalls_open(&t, &o);
    size_t first = (size_t)(strstr(text, "\"x\"") - text);
    GOLDEN_OK(toolcalls_push(&t, text, first, err));
    GOLDEN_OK(toolcalls_push(&t, text + first, sizeof text - 1 - first, err));
    GOLDEN_OK(toolcalls_finish(&t, err));
    GOLDEN_OK(openai_stream_finish(&f.s, 0, api_finish_of("end"), err));
    toolcalls_free(&t);
    flow_is(&f,
            CHUNK ROLE(0) END CHUNK DELTA(0, "`reasoning_content`:`Hm`") END
            CHUNK DELTA(0, "`content`:`Well.`") END
            CHUNK DELTA(0, "`tool_calls`:[{`index`:0,`id`:`" CALL_1 "`,`type`:`function`,"
                           "`function`:{`name`:`a`,`arguments`:``}}]") END
            CHUNK DELTA(0, "`tool_calls`:[{`index`:0,`function`:{`arguments`:`{`}}]") END
            CHUNK DELTA(0, "`tool_calls`:[{`index`:0,`function`:{`arguments`:`\\`x\\`: 1}`}}]") END
            CHUNK FINISH(0, "tool_calls") END);
}

static void test_reasons_of_the_scheduler(void **state)
{
    (void)state;
    assert_int_equal(api_finish_of("end"), FINISH_END);
    assert_int_equal(api_finish_of("stop"), FINISH_STOP);
    assert_int_equal(api_finish_of("length"), FINISH_LENGTH);
    assert_int_equal(api_finish_of(NULL), FINISH_NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole_text),
        cmocka_unit_test(test_whole_empty_answer_cut_at_once),
        cmocka_unit_test(test_whole_calls_and_reasoning),
        cmocka_unit_test(test_whole_old_function_call),
        cmocka_unit_test(test_whole_completions_of_several_prompts),
        cmocka_unit_test(test_usage_of_several_jobs_is_added),
        cmocka_unit_test(test_logprobs_of_chat),
        cmocka_unit_test(test_logprobs_of_completions),
        cmocka_unit_test(test_stream_of_text),
        cmocka_unit_test(test_stream_with_usage_and_timings),
        cmocka_unit_test(test_stream_of_calls),
        cmocka_unit_test(test_stream_of_an_old_function_call),
        cmocka_unit_test(test_stream_of_several_choices),
        cmocka_unit_test(test_stream_without_text),
        cmocka_unit_test(test_stream_of_logprobs),
        cmocka_unit_test(test_stream_of_progress),
        cmocka_unit_test(test_stream_of_completions),
        cmocka_unit_test(test_stream_that_fails),
        cmocka_unit_test(test_from_text_to_events),
        cmocka_unit_test(test_reasons_of_the_scheduler),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
