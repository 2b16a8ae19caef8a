/* test_apireply.c: from the scheduler's events to the bytes that go out, of both APIs, whole and as
 * streams. */
#include "reply_fixture.h"

/* OpenAI's */
#define HEAD(object) \
    "`id`:`ID`,`object`:`" object "`,`created`:1700000000,`model`:`m`,`system_fingerprint`:`fp`,"
#define CHAT(choice) "data: {" HEAD("chat.completion.chunk") "`choices`:[" choice "]}\n\n"
#define TEXT(choice) "data: {" HEAD("text_completion") "`choices`:[" choice "]}\n\n"
#define DELTA(i, delta)                                                                            \
    "{`index`:" #i ",`delta`:{" delta "},`logprobs`:null,`finish_reason`:null}"
#define ROLE(i) DELTA(i, "`role`:`assistant`,`content`:``")
#define FINISH(i, why) "{`index`:" #i ",`delta`:{},`logprobs`:null,`finish_reason`:`" why "`}"
#define PIECE(i, text, why) \
    "{`index`:" #i ",`text`:`" text "`,`logprobs`:null,`finish_reason`:" why "}"
#define DONE "data: [DONE]\n\n"
#define USAGE_C                                                                                    \
    "`usage`:{`prompt_tokens`:10,`completion_tokens`:2,`total_tokens`:12,"                         \
    "`prompt_tokens_details`:{`cached_tokens`:4},`layer_zeroed`:12}"
#define WHOLE(choices) "{" HEAD("chat.completion") "`choices`:[" choices "]," USAGE_C "}"
#define MESSAGE(i, members, why)                                                                   \
    "{`index`:" #i ",`message`:{`role`:`assistant`," members "},`logprobs`:null,"                  \
    "`finish_reason`:`" why "`}"
#define CALL_1 "call_8dd6c1357c97a0b7a016fe2d"
#define TOOL_1 "toolu_8dd6c1357c97a0b7a016fe2d"

/* Anthropic's */
#define EVENT(type, rest) "event: " type "\ndata: {`type`:`" type "`" rest "}\n\n"
#define USAGE_M(fresh, cached, drawn)                                                              \
    "`usage`:{`input_tokens`:" fresh ",`cache_creation_input_tokens`:0,"                           \
    "`cache_read_input_tokens`:" cached ",`output_tokens`:" drawn ",`layer_zeroed`:12}"
#define START                                                                                      \
    EVENT("message_start",                                                                         \
          ",`message`:{`id`:`ID`,`type`:`message`,`role`:`assistant`,`content`:[],`model`:`m`,"    \
          "`stop_reason`:null,`stop_sequence`:null," USAGE_M("10", "0", "0") "}")                  \
    EVENT("ping", "")
#define BLOCK(i, block) EVENT("content_block_start", ",`index`:" #i ",`content_block`:{" block "}")
#define BLOCK_DELTA(i, delta) EVENT("content_block_delta", ",`index`:" #i ",`delta`:{" delta "}")
#define BLOCK_STOP(i) EVENT("content_block_stop", ",`index`:" #i)
#define END(why, stop)                                                                             \
    EVENT("message_delta", ",`delta`:{`stop_reason`:`" why "`,`stop_sequence`:" stop "},"          \
          USAGE_M("6", "4", "2")) EVENT("message_stop", "")

/* The end of a reply that went well, and all that came out. */
static void flow_is(struct flow *f, const char *expected)
{
    assert_int_equal(f->a.state, REPLY_ENDED);
    GOLDEN_OK(apireply_finish(&f->a, &f->out, err));
    api_text_is(&f->out, expected);
    close_flow(f);
}

/* One job of one choice: these pieces, NULL, and why it ended. */
static void run(struct flow *f, const char *const *pieces, const char *reason)
{
    assert_int_equal(accepted(f), REPLY_RUNS);
    for (; *pieces != NULL; pieces++) assert_int_equal(token(f, 0, 0, *pieces), REPLY_RUNS);
    assert_int_equal(ended(f, 0, 0, reason), REPLY_RUNS);
    assert_int_equal(over(f, 0, SCHED_DONE), REPLY_ENDED);
}

/* ---- texts ----------------------------------------------------------------------------------- */

static const char *const hello[] = { "Hel", "", "lo", NULL };

static void test_whole_texts(void **state)
{
    struct flow f;
    (void)state;
    open_flow(&f, openai_read_chat, "{" HI "}");
    run(&f, hello, "end");
    flow_is(&f, WHOLE(MESSAGE(0, "`content`:`Hello`,`refusal`:null", "stop")));
    open_flow(&f, openai_read_completions, "{`prompt`:`x`}");
    run(&f, hello, "length");
    flow_is(&f, "{" HEAD("text_completion") "`choices`:[" PIECE(0, "Hello", "`length`") "],"
                USAGE_C "}");
    open_flow(&f, anthropic_read_messages, "{" HI "}");
    run(&f, hello, "length");
    flow_is(&f, "{`id`:`ID`,`type`:`message`,`role`:`assistant`,`content`:[{`type`:`text`,`text`:"
                "`Hello`}],`model`:`m`,`stop_reason`:`max_tokens`,`stop_sequence`:null,"
                USAGE_M("6", "4", "2") "}");
}

static void test_streams_of_text(void **state)
{
    struct flow f;
    (void)state;
    open_flow(&f, openai_read_chat, "{" HI ",`stream`:true}");
    run(&f, hello, "end");
    flow_is(&f, CHAT(ROLE(0)) CHAT(DELTA(0, "`content`:`Hel`")) CHAT(DELTA(0, "`content`:`lo`"))
                CHAT(FINISH(0, "stop")) DONE);
    open_flow(&f, openai_read_completions, "{`prompt`:`x`,`stream`:true}");
    run(&f, hello, "length");
    flow_is(&f, TEXT(PIECE(0, "Hel", "null")) TEXT(PIECE(0, "lo", "null"))
                TEXT(PIECE(0, "", "`length`")) DONE);
    open_flow(&f, anthropic_read_messages, "{" HI ",`stream`:true}");
    run(&f, hello, "end");
    flow_is(&f, START BLOCK(0, "`type`:`text`,`text`:``")
                BLOCK_DELTA(0, "`type`:`text_delta`,`text`:`Hel`")
                BLOCK_DELTA(0, "`type`:`text_delta`,`text`:`lo`") BLOCK_STOP(0)
                END("end_turn", "null"));
}

/* What the service alone knows goes into the usage before the end. */
static void test_usage_progress_timings_and_pings(void **state)
{
    const struct sched_event progress = { .kind = SCHED_PROGRESS, .progress = { 10, 4, 8, 0.002 } };
#define PROGRESS "`prompt_progress`:{`total`:10,`cache`:4,`processed`:8,`time_ms`:2}"
#define ASK ",`stream`:true,`return_progress`:true"
    struct flow f;
    (void)state;
    open_flow(&f, openai_read_chat, "{" HI ASK ",`stream_options`:{`include_usage`:true}}");
    accepted(&f);
    apireply_event(&f.a, 0, &progress);
    GOLDEN_OK(apireply_ping(&f.a, err));
    ended(&f, 0, 0, "end");
    over(&f, 0, SCHED_DONE);
    f.a.usage.n_truncated = 7;
    f.a.usage.architecture = "{\"x\":1}";
#define NO_USAGE ",`usage`:null}\n\n"
#define CHUNK "data: {" HEAD("chat.completion.chunk") "`choices`:["
    flow_is(&f, CHUNK ROLE(0) "]" NO_USAGE CHUNK DELTA(0, "") "],`usage`:null," PROGRESS "}\n\n"
                CHUNK FINISH(0, "stop") "]" NO_USAGE
                CHUNK "],`usage`:{`prompt_tokens`:10,`completion_tokens`:2,`total_tokens`:12,"
                "`prompt_tokens_details`:{`cached_tokens`:4},`layer_zeroed`:12,"
                "`truncated_tokens`:7,`architecture_details`:{`x`:1}}}\n\n" DONE);
    open_flow(&f, anthropic_read_messages, "{" HI ASK "}");
    GOLDEN_OK(apireply_ping(&f.a, err)); /* nothing before the stream has begun */
    accepted(&f);
    apireply_event(&f.a, 0, &progress);
    GOLDEN_OK(apireply_ping(&f.a, err));
    ended(&f, 0, 0, "end");
    over(&f, 0, SCHED_DONE);
    flow_is(&f, START EVENT("ping", "," PROGRESS) EVENT("ping", "") END("end_turn", "null"));
    open_flow(&f, openai_read_chat, "{" HI ",`return_progress`:true}"); /* whole: none */
    apireply_event(&f.a, 0, &progress);
    run(&f, hello, "end");
    flow_is(&f, WHOLE(MESSAGE(0, "`content`:`Hello`,`refusal`:null", "stop")));
}

static void test_stop_strings_are_named(void **state)
{
    const struct sched_event second = { .kind = SCHED_ENDED, .ended = { 0, "stop", 1 } };
    struct flow f;
    (void)state;
    for (int stream = 0; stream < 2; stream++) {
        char text[256];
        snprintf(text, sizeof text, "{" HI ",`stop_sequences`:[`x`,`STOP`],`stream`:%s}",
                 stream ? "true" : "false");
        open_flow(&f, anthropic_read_messages, text);
        accepted(&f);
        apireply_event(&f.a, 0, &second);
        over(&f, 0, SCHED_DONE);
        flow_is(&f, stream ? START END("stop_sequence", "`STOP`")
                           : "{`id`:`ID`,`type`:`message`,`role`:`assistant`,`content`:[],`model`:"
                             "`m`,`stop_reason`:`stop_sequence`,`stop_sequence`:`STOP`,"
                             USAGE_M("6", "4", "2") "}");
    }
    open_flow(&f, openai_read_chat, "{" HI ",`stop`:[`x`,`STOP`]}");
    apireply_event(&f.a, 0, &second);
    over(&f, 0, SCHED_DONE);
    flow_is(&f, WHOLE(MESSAGE(0, "`content`:``,`refusal`:null", "stop")));
}

/* Choices of prompts are numbered through; usage is of all jobs. */
static void test_several_prompts_and_choices(void **state)
{
    struct flow f;
    (void)state;
    open_flow(&f, openai_read_completions, "{`prompt`:[`x`,`y`],`n`:2,`stream`:true,"
                                           "`stream_options`:{`include_usage`:true}}");
    token(&f, 1, 1, "d");
    token(&f, 0, 1, "b");
    ended(&f, 1, 1, "end");
    token(&f, 0, 0, "a");
    token(&f, 1, 0, "c");
    ended(&f, 1, 0, "length");
    assert_int_equal(over(&f, 1, SCHED_DONE), REPLY_RUNS);
    ended(&f, 0, 0, "end");
    ended(&f, 0, 1, "end");
    over(&f, 0, SCHED_DONE);
#undef TEXT
#define TEXT(choice) "data: {" HEAD("text_completion") "`choices`:[" choice "],`usage`:null}\n\n"
    flow_is(&f, TEXT(PIECE(3, "d", "null")) TEXT(PIECE(1, "b", "null"))
                TEXT(PIECE(3, "", "`stop`")) TEXT(PIECE(0, "a", "null"))
                TEXT(PIECE(2, "c", "null")) TEXT(PIECE(2, "", "`length`"))
                TEXT(PIECE(0, "", "`stop`")) TEXT(PIECE(1, "", "`stop`"))
                "data: {" HEAD("text_completion") "`choices`:[],`usage`:{`prompt_tokens`:20,"
                "`completion_tokens`:4,`total_tokens`:24,`prompt_tokens_details`:{`cached_tokens`:"
                "8},`layer_zeroed`:12}}\n\n" DONE);
    open_flow(&f, openai_read_chat, "{" HI ",`n`:2}");
    token(&f, 0, 1, "b");
    token(&f, 0, 0, "a");
    ended(&f, 0, 1, "end");
    ended(&f, 0, 0, "length");
    over(&f, 0, SCHED_DONE);
    flow_is(&f, WHOLE(MESSAGE(0, "`content`:`a`,`refusal`:null", "length") ","
                      MESSAGE(1, "`content`:`b`,`refusal`:null", "stop")));
}

/* ---- log-probabilities and echo -------------------------------------------------------------- */

static void logprob(struct flow *f, enum sched_kind kind, uint32_t index, const char *text)
{
    const struct sched_event e = {
        .kind = kind,
        .token = { .index = index, .text = kind == SCHED_TOKEN ? text : NULL,
                   .size = kind == SCHED_TOKEN ? strlen(text) : 0, .has_logprob = true,
                   .own = { 1, -0.5, text, strlen(text) } }
    };
    apireply_event(&f->a, 0, &e);
}

static void test_logprobs_of_a_stream(void **state)
{
    struct flow f;
    (void)state;
    open_flow(&f, openai_read_chat, "{" HI ",`logprobs`:true,`stream`:true}");
    logprob(&f, SCHED_TOKEN, 0, "Hi");
    ended(&f, 0, 0, "end");
    over(&f, 0, SCHED_DONE);
    flow_is(&f, CHAT(ROLE(0))
                CHAT("{`index`:0,`delta`:{`content`:`Hi`},`logprobs`:{`content`:[{`token`:`Hi`,"
                     "`logprob`:-0.5,`bytes`:[72,105],`top_logprobs`:[]}],`refusal`:null},"
                     "`finish_reason`:null}") CHAT(FINISH(0, "stop")) DONE);
}

/* The prompt, with the log-probabilities of all its tokens but the first; then what was drawn. With
 * max_tokens 0 nothing was, though the job drew a token. */
static void test_echo(void **state)
{
    static const struct apireply_echo echo = { "a b", 3, { 7, 0, "a", 1 } };
    static const struct {
        const char *fields, *text, *tokens, *values, *top, *offsets, *finish;
    } cases[] = {
        { "", "a bc", "`a`,` b`,`c`", "null,-0.5,-0.5", "null,{` b`:-0.5},{`c`:-0.5}", "0,1,3",
          "stop" },
        { ",`max_tokens`:0", "a b", "`a`,` b`", "null,-0.5", "null,{` b`:-0.5}", "0,1", "length" },
    };
    (void)state;
    for (size_t i = 0; i < ZP_COUNT(cases); i++)
        for (int stream = 0; stream < 2; stream++) {
            char text[256], logprobs[256], expected[1024];
            struct flow f;
            snprintf(text, sizeof text, "{`prompt`:`a b`,`echo`:true,`logprobs`:0,`stream`:%s%s}",
                     stream ? "true" : "false", cases[i].fields);
            open_with(&f, openai_read_completions, text,
                      (struct apireply_options){ .echo = &echo });
            logprob(&f, SCHED_PROMPT_TOKEN, 1, " b");
            logprob(&f, SCHED_TOKEN, 0, "c");
            ended(&f, 0, 0, "end");
            over(&f, 0, SCHED_DONE);
            assert_int_equal(f.a.usage.n_answer, i == 0 ? 2 : 0);
            f.a.usage.n_answer = 2;
            if (stream) { /* the prompt is the first piece */
                GOLDEN_OK(apireply_finish(&f.a, &f.out, err));
                const char *first = "\"text\":\"a b\",\"logprobs\":{\"tokens\":[\"a\",\" b\"";
                assert_non_null(strstr((const char *)f.out.data, first));
                close_flow(&f);
                continue;
            }
            snprintf(logprobs, sizeof logprobs,
                     "{`tokens`:[%s],`token_logprobs`:[%s],`top_logprobs`:[%s],`text_offset`:[%s]}",
                     cases[i].tokens, cases[i].values, cases[i].top, cases[i].offsets);
            snprintf(expected, sizeof expected,
                     "{" HEAD("text_completion") "`choices`:[{`index`:0,`text`:`%s`,`logprobs`:%s,"
                     "`finish_reason`:`%s`}]," USAGE_C "}",
                     cases[i].text, logprobs, cases[i].finish);
            flow_is(&f, expected);
        }
}

/* Of a prompt of one token the scheduler says nothing. */
static void test_echo_of_one_token(void **state)
{
    static const struct apireply_echo echo[] = { { "a", 1, { 7, 0, "a", 1 } },
                                                 { "b", 1, { 8, 0, "b", 1 } } };
    struct flow f;
    (void)state;
    open_with(&f, openai_read_completions, "{`prompt`:[`a`,`b`],`echo`:true,`stream`:true}",
              (struct apireply_options){ .echo = echo });
    token(&f, 1, 0, "x");
    ended(&f, 1, 0, "end");
    over(&f, 1, SCHED_DONE);
    ended(&f, 0, 0, "end");
    over(&f, 0, SCHED_DONE);
#undef TEXT
#define TEXT(choice) "data: {" HEAD("text_completion") "`choices`:[" choice "]}\n\n"
    flow_is(&f, TEXT(PIECE(1, "b", "null")) TEXT(PIECE(1, "x", "null"))
                TEXT(PIECE(1, "", "`stop`")) TEXT(PIECE(0, "a", "null"))
                TEXT(PIECE(0, "", "`stop`")) DONE);
    open_with(&f, openai_read_completions, "{`prompt`:`a`,`echo`:true,`logprobs`:0}",
              (struct apireply_options){ .echo = echo });
    logprob(&f, SCHED_TOKEN, 0, "x");
    ended(&f, 0, 0, "end");
    over(&f, 0, SCHED_DONE);
    flow_is(&f, "{" HEAD("text_completion") "`choices`:[{`index`:0,`text`:`ax`,`logprobs`:{"
                "`tokens`:[`a`,`x`],`token_logprobs`:[null,-0.5],`top_logprobs`:[null,{`x`:-0.5}],"
                "`text_offset`:[0,1]},`finish_reason`:`stop`}]," USAGE_C "}");
}

/* ---- calls ----------------------------------------------------------------------------------- */

static const char *const calls[] = { "<think>",
                                     "Hm</th",
                                     "ink>\n\nWell.\n<tool",
                                     "_call>\n{\"name\": "
                                     "\"a\", \"arguments\": {\"x\"",
                                     ": 1}}\n</tool_call>",
                                     NULL };

static void test_calls(void **state)
{
    struct flow f;
    (void)state;
    open_flow(&f, openai_read_chat, "{" HI "," TOOLS_C "}");
    run(&f, calls, "end");
#define CALL "{`id`:`" CALL_1 "`,`type`:`function`,`function`:{`name`:`a`,`arguments`:"
    flow_is(&f, WHOLE(MESSAGE(0, "`content`:`Well.`,`refusal`:null,`reasoning_content`:`Hm`,"
                                 "`tool_calls`:[" CALL "`{\\`x\\`: 1}`}}]", "tool_calls")));
    open_flow(&f, openai_read_chat, "{" HI "," TOOLS_C ",`stream`:true}");
    run(&f, calls, "end");
#define ARGUMENTS(text) \
    CHAT(DELTA(0, "`tool_calls`:[{`index`:0,`function`:{`arguments`:`" text "`}}]"))
    flow_is(&f, CHAT(ROLE(0)) CHAT(DELTA(0, "`reasoning_content`:`Hm`"))
                CHAT(DELTA(0, "`content`:`Well.`"))
                CHAT(DELTA(0, "`tool_calls`:[{`index`:0,`id`:`" CALL_1 "`,`type`:`function`,"
                              "`function`:{`name`:`a`,`arguments`:``}}]"))
                ARGUMENTS("{\\`x\\`") ARGUMENTS(": 1}") CHAT(FINISH(0, "tool_calls")) DONE);
    open_flow(&f, anthropic_read_messages, "{" HI "," TOOLS_M ",`stream`:true,`thinking`:{`type`:"
                                           "`enabled`}}");
    run(&f, calls, "end");
    flow_is(&f, START BLOCK(0, "`type`:`thinking`,`thinking`:``,`signature`:``")
                BLOCK_DELTA(0, "`type`:`thinking_delta`,`thinking`:`Hm`")
                BLOCK_DELTA(0, "`type`:`signature_delta`,`signature`:``") BLOCK_STOP(0)
                BLOCK(1, "`type`:`text`,`text`:``")
                BLOCK_DELTA(1, "`type`:`text_delta`,`text`:`Well.`") BLOCK_STOP(1)
                BLOCK(2, "`type`:`tool_use`,`id`:`" TOOL_1 "`,`name`:`a`,`input`:{}")
                BLOCK_DELTA(2, "`type`:`input_json_delta`,`partial_json`:`{\\`x\\``")
                BLOCK_DELTA(2, "`type`:`input_json_delta`,`partial_json`:`: 1}`") BLOCK_STOP(2)
                END("tool_use", "null"));
}

/* Only the JSON of the call is drawn; what belongs around it is added. What is cut stays cut. */
static void test_call_that_must_come(void **state)
{
    static const char *const whole[] = { "{\"name\": \"a\", \"argu", "ments\": {}}", NULL },
                             *const cut[] = { "{\"name\": \"a\", \"arguments\": {\"x", NULL };
    struct flow f;
    struct toolform form;
    (void)state;
    for (int i = 0; i < 2; i++) {
        open_flow(&f, openai_read_chat, "{" HI "," TOOLS_C ",`tool_choice`:`required`}");
        apireply_free(&f.a);
        GOLDEN_OK(toolform_open(&form, TOOLCALLS_TAGGED, f.r.tools, NULL, err));
        struct apireply_options o = { .r = &f.r, .who = api_who, .form = &form,
                                      .in_reasoning = true, /* the form ends it */
                                      .start = { .layer_zeroed = 12 } };
        GOLDEN_OK(apireply_open(&f.a, &o, err));
        run(&f, i == 0 ? whole : cut, i == 0 ? "end" : "length");
        flow_is(&f, i == 0 ? WHOLE(MESSAGE(0, "`content`:null,`refusal`:null,`tool_calls`:[" CALL
                                              "`{}`}}]", "tool_calls"))
                           : WHOLE(MESSAGE(0, "`content`:null,`refusal`:null,`tool_calls`:[" CALL
                                              "`{\\`x`}}]", "length")));
        toolform_free(&form);
    }
}

/* The answer is over behind its last call: the job is cancelled, and that is no failure. */
static void test_one_call_ends_the_answer(void **state)
{
    static const enum sched_kind ends[] = { SCHED_CANCELLED, SCHED_DONE, SCHED_FAILED };
    (void)state;
    for (size_t i = 0; i < ZP_COUNT(ends); i++) {
        struct flow f;
        open_flow(&f, openai_read_chat, "{" HI "," TOOLS_C ",`parallel_tool_calls`:false}");
        accepted(&f);
        assert_int_equal(token(&f, 0, 0, "<tool_call>{\"name\": \"a\"}"), REPLY_FULL);
        assert_int_equal(token(&f, 0, 0, "</tool_call><tool_call>{\"name\": \"b\"}"), REPLY_FULL);
        if (ends[i] == SCHED_DONE) assert_int_equal(ended(&f, 0, 0, "end"), REPLY_FULL);
        assert_int_equal(over(&f, 0, ends[i]), REPLY_ENDED);
        flow_is(&f, WHOLE(MESSAGE(0, "`content`:null,`refusal`:null,`tool_calls`:[" CALL "`{}`}}]",
                                  "tool_calls")));
    }
}

/* Completions are what was written. */
static void test_completions_are_not_taken_apart(void **state)
{
    static const char *const text[] = { "<think>a</think> <tool_call>{}</tool_call>", NULL };
    struct flow f;
    (void)state;
    open_flow(&f, openai_read_completions, "{`prompt`:`x`}");
    run(&f, text, "end");
    flow_is(&f, "{" HEAD("text_completion") "`choices`:["
                PIECE(0, "<think>a</think> <tool_call>{}</tool_call>", "`stop`") "]," USAGE_C "}");
}

static void test_answers_by_a_schema(void **state)
{
    static const char *const text[] = { "{\"a\"", ": [1]}", NULL };
    struct flow f;
    (void)state;
    open_flow(&f, openai_read_chat, "{" HI ",`stream`:true,`response_format`:{`type`:`json_schema`,"
                                    "`json_schema`:{`schema`:{`type`:`object`}}}}");
    assert_int_equal(f.r.form, FORM_SCHEMA);
    run(&f, text, "end");
    flow_is(&f, CHAT(ROLE(0)) CHAT(DELTA(0, "`content`:`{\\`a\\``"))
                CHAT(DELTA(0, "`content`:`: [1]}`")) CHAT(FINISH(0, "stop")) DONE);
}

/* ---- failures -------------------------------------------------------------------------------- */

#define TOO_LONG \
    "request (5000 tokens) exceeds the available context size (4096 tokens), try increasing it"

/* Before a stream has begun there is still a status to answer with. */
static void test_refusals(void **state)
{
    const struct sched_event refused = { .kind = SCHED_REFUSED, .why = SCHED_TOO_LONG,
                                         .refusal = { 5000, 4096, 0 } };
    static const struct {
        api_reader read;
        const char *request, *param;
    } cases[] = { { openai_read_chat, "{" HI ",`stream`:true}", "messages" },
                  { openai_read_completions, "{`prompt`:`x`}", "prompt" },
                  { anthropic_read_messages, "{" HI ",`stream`:true}", "messages" } };
    (void)state;
    for (size_t i = 0; i < ZP_COUNT(cases); i++) {
        struct flow f;
        open_flow(&f, cases[i].read, cases[i].request);
        assert_int_equal(apireply_event(&f.a, 0, &refused), REPLY_FAILED);
        assert_int_equal(accepted(&f), REPLY_FAILED); /* passed over */
        assert_false(f.a.begun);
        GOLDEN_OK(apireply_fail(&f.a, err));
        assert_int_equal(f.out.size, 0);
        assert_int_equal(f.a.fault.status, 400);
        assert_string_equal(f.a.fault.code, "context_length_exceeded");
        assert_string_equal(f.a.fault.param, cases[i].param);
        assert_string_equal(f.a.fault.message, TOO_LONG);
        close_flow(&f);
    }
}

static void test_failures_in_a_stream(void **state)
{
    const zp_err broken = { .code = ZP_RUN, .message = "page 5 is broken" };
    const struct sched_event failed = { .kind = SCHED_FAILED, .why = SCHED_ERROR, .err = &broken },
                             late = { .kind = SCHED_FAILED, .why = SCHED_LATE },
                             drained = { .kind = SCHED_CANCELLED, .why = SCHED_BY_DRAIN };
    struct flow f;
    (void)state;
    open_flow(&f, openai_read_chat, "{" HI ",`stream`:true}");
    token(&f, 0, 0, "x");
    assert_int_equal(apireply_event(&f.a, 0, &failed), REPLY_FAILED);
    assert_string_equal(f.a.err.message, "page 5 is broken"); /* for the log alone */
    GOLDEN_OK(apireply_fail(&f.a, err));
    api_text_is(&f.out, CHAT(ROLE(0)) CHAT(DELTA(0, "`content`:`x`"))
                        "data: {`error`:{`message`:`the request failed inside the server; its log "
                        "says more`,`type`:`server_error`,`param`:null,`code`:`internal_error`}}"
                        "\n\n");
    close_flow(&f);
    open_flow(&f, anthropic_read_messages, "{" HI ",`stream`:true}");
    accepted(&f);
    assert_int_equal(apireply_event(&f.a, 0, &late), REPLY_FAILED);
    GOLDEN_OK(apireply_fail(&f.a, err));
    api_text_is(&f.out, START EVENT("error", ",`error`:{`type`:`timeout_error`,`message`:`the "
                                    "request was not finished before its deadline`}"));
    close_flow(&f);
    open_flow(&f, anthropic_read_messages, "{" HI "}");
    token(&f, 0, 0, "x");
    assert_int_equal(apireply_event(&f.a, 0, &drained), REPLY_FAILED);
    assert_int_equal(f.a.fault.status, 503);
    close_flow(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole_texts),
        cmocka_unit_test(test_streams_of_text),
        cmocka_unit_test(test_usage_progress_timings_and_pings),
        cmocka_unit_test(test_stop_strings_are_named),
        cmocka_unit_test(test_several_prompts_and_choices),
        cmocka_unit_test(test_logprobs_of_a_stream),
        cmocka_unit_test(test_echo),
        cmocka_unit_test(test_echo_of_one_token),
        cmocka_unit_test(test_calls),
        cmocka_unit_test(test_call_that_must_come),
        cmocka_unit_test(test_one_call_ends_the_answer),
        cmocka_unit_test(test_completions_are_not_taken_apart),
        cmocka_unit_test(test_answers_by_a_schema),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_failures_in_a_stream),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
