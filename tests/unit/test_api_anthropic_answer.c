/* test_api_anthropic_answer.c: answers in Anthropic's shapes, byte for byte: whole, and as
 * events. */
#include "api_fixture.h"

#define TOOL_1 "toolu_8dd6c1357c97a0b7a016fe2d"
#define TOOL_2 "toolu_a3db10beeeb2e6094c930191"
#define HEAD "`id`:`ID`,`type`:`message`,`role`:`assistant`,`content`:["
#define USAGE "`usage`:{`input_tokens`:6,`cache_creation_input_tokens`:0," \
              "`cache_read_input_tokens`:4,`output_tokens`:2,`layer_zeroed`:12}"
#define EVENT(type, rest) "event: " type "\ndata: {`type`:`" type "`" rest "}\n\n"
#define START                                                                                      \
    EVENT("message_start",                                                                         \
          ",`message`:{" HEAD "],`model`:`m`,`stop_reason`:null,"                                  \
          "`stop_sequence`:null,`usage`:{`input_tokens`:6,`cache_creation_input_tokens`:"          \
          "0,`cache_read_input_tokens`:4,`output_tokens`:0,`layer_zeroed`:12}}")                   \
    EVENT("ping", "")
#define BLOCK(i, block) EVENT("content_block_start", ",`index`:" #i ",`content_block`:{" block "}")
#define DELTA(i, delta) EVENT("content_block_delta", ",`index`:" #i ",`delta`:{" delta "}")
#define STOP(i) EVENT("content_block_stop", ",`index`:" #i)
#define END(reason, stop) EVENT("message_delta", ",`delta`:{`stop_reason`:`" reason "`," \
                                "`stop_sequence`:" stop "}," USAGE) EVENT("message_stop", "")
#define TEXT(i) BLOCK(i, "`type`:`text`,`text`:``")

static const char request[] = "{`messages`:[{`role`:`user`,`content`:`Hi`}]}";
static const struct api_usage usage = { .n_prompt = 10, .n_cached = 4, .n_answer = 2,
                                        .layer_zeroed = 12 };

/* ---- whole answers --------------------------------------------------------------------------- */

static void whole_is(const char *parts[][2], enum api_finish finish, const char *stop,
                     const char *expected)
{
    static const char kinds[] = "CRFA";
    struct buffer out = buffer_with_max(MEM_META, 1 << 20);
    struct api_request r = api_read(anthropic_read_messages, request);
    struct api_answer a;
    GOLDEN_OK(api_answer_open(&a, &r, &api_who, 1, err));
    for (size_t i = 0; parts[i][0] != NULL; i++) {
        struct api_part part = api_part((enum api_part_kind)(strchr(kinds, parts[i][0][0]) - kinds),
                                        parts[i][1]);
        GOLDEN_OK(api_answer_part(&a, 0, &part, err));
    }
    a.choices[0].finish = finish;
    a.choices[0].stop = stop;
    GOLDEN_OK(anthropic_write_answer(&r, &a, &usage, &out, err));
    api_text_is(&out, expected);
    buffer_free(&out);
    api_answer_free(&a);
    apirequest_free(&r);
}

static void test_whole_answers(void **state)
{
    (void)state;
    whole_is((const char *[][2]){ { "C", "Hel" }, { "C", "lo" }, { 0 } }, FINISH_END, NULL,
             "{" HEAD "{`type`:`text`,`text`:`Hello`}],`model`:`m`,`stop_reason`:`end_turn`,"
             "`stop_sequence`:null," USAGE "}");
    whole_is((const char *[][2]){ { 0 } }, FINISH_LENGTH, NULL,
             "{" HEAD "],`model`:`m`,`stop_reason`:`max_tokens`,`stop_sequence`:null," USAGE "}");
    whole_is((const char *[][2]){ { "C", "x" }, { 0 } }, FINISH_STOP, "END",
             "{" HEAD "{`type`:`text`,`text`:`x`}],`model`:`m`,`stop_reason`:`stop_sequence`,"
             "`stop_sequence`:`END`," USAGE "}");
    whole_is(
        (const char *[][2]){ { "R", "Hm" },
                             { "C", "x" },
                             { "F", "a" },
                             { "A", "{\"x\":" },
                             { "A", " [1]}" },
                             { "C", "y" },
                             { "F", "b" },
                             { "C", "z" },
                             { 0 } },
        FINISH_END, NULL,
        "{" HEAD "{`type`:`thinking`,`thinking`:`Hm`,`signature`:``},{`type`:`text`,`text`:`x`},"
        "{`type`:`tool_use`,`id`:`" TOOL_1 "`,`name`:`a`,`input`:{`x`: [1]}},{`type`:`text`,"
        "`text`:`y`},{`type`:`tool_use`,`id`:`" TOOL_2 "`,`name`:`b`,`input`:{}},{`type`:`text`,"
        "`text`:`z`}],`model`:`m`,`stop_reason`:`tool_use`,"
        "`stop_sequence`:null," USAGE "}");
}

/* What is no object is kept, and the body stays valid JSON. */
static void test_input_that_is_no_object(void **state)
{
    (void)state;
    whole_is((const char *[][2]){ { "F", "a" }, { "A", "{\"x\": [" }, { 0 } }, FINISH_LENGTH, NULL,
             "{" HEAD "{`type`:`tool_use`,`id`:`" TOOL_1 "`,`name`:`a`,`input`:{`INVALID_JSON`:"
             "`{\\`x\\`: [`}}],`model`:`m`,`stop_reason`:`max_tokens`,`stop_sequence`:null," USAGE
             "}");
    whole_is((const char *[][2]){ { "F", "a" }, { "A", "[1]" }, { 0 } }, FINISH_END, NULL,
             "{" HEAD "{`type`:`tool_use`,`id`:`" TOOL_1 "`,`name`:`a`,`input`:{`INVALID_JSON`:"
             "`[1]`}}],`model`:`m`,`stop_reason`:`tool_use`,`stop_sequence`:null," USAGE "}");
}

static void test_count_of_tokens(void **state)
{
    struct buffer out = buffer_with_max(MEM_META, 1 << 20);
    (void)state;
    GOLDEN_OK(anthropic_write_count(1234, &out, err));
    api_text_is(&out, "{`input_tokens`:1234}");
    buffer_free(&out);
}

/* ---- streams --------------------------------------------------------------------------------- */

struct flow {
    struct api_request r;
    struct anthropic_stream s;
    struct buffer out;
};

static void open_flow(struct flow *f, const char *text)
{
    struct api_usage u = usage;
    u.n_answer = 0;
    *f = (struct flow){ .r = api_read(anthropic_read_messages, text),
                        .out = buffer_with_max(MEM_META, 1 << 20) };
    anthropic_stream_open(&f->s, &f->r, &api_who, (struct api_emit){ api_take_event, &f->out });
    GOLDEN_OK(anthropic_stream_begin(&f->s, &u, err));
}

static void push(struct flow *f, enum api_part_kind kind, const char *text)
{
    struct api_part part = api_part(kind, text);
    GOLDEN_OK(anthropic_stream_part(&f->s, &part, err));
}

static void flow_is(struct flow *f, enum api_finish finish, const char *stop, const char *expected)
{
    GOLDEN_OK(anthropic_stream_end(&f->s, finish, stop, &usage, err));
    api_text_is(&f->out, expected);
    buffer_free(&f->out);
    anthropic_stream_free(&f->s);
    apirequest_free(&f->r);
}

static void test_stream_of_text(void **state)
{
    struct flow f;
    (void)state;
    open_flow(&f, request);
    push(&f, PART_CONTENT, "Hel");
    push(&f, PART_CONTENT, "");
    push(&f, PART_CONTENT, "lo\n");
    flow_is(&f, FINISH_END, NULL,
            START TEXT(0) DELTA(0, "`type`:`text_delta`,`text`:`Hel`")
            DELTA(0, "`type`:`text_delta`,`text`:`lo\\n`") STOP(0) END("end_turn", "null"));
}

static void test_stream_without_text_has_no_block(void **state)
{
    struct flow f;
    (void)state;
    open_flow(&f, request);
    push(&f, PART_CONTENT, "");
    flow_is(&f, FINISH_STOP, "END", START END("stop_sequence", "`END`"));
}

static void test_stream_of_calls_has_no_empty_text(void **state)
{
    struct flow f;
    (void)state;
    open_flow(&f, request);
    push(&f, PART_CALL, "a");
    push(&f, PART_ARGUMENTS, "{\"x\":");
    push(&f, PART_ARGUMENTS, "1}");
    push(&f, PART_CALL, "b");
    push(&f, PART_ARGUMENTS, "{}");
    push(&f, PART_CONTENT, "So.");
    flow_is(&f, FINISH_END, NULL,
            START BLOCK(0, "`type`:`tool_use`,`id`:`" TOOL_1 "`,`name`:`a`,`input`:{}")
            DELTA(0, "`type`:`input_json_delta`,`partial_json`:`{\\`x\\`:`")
            DELTA(0, "`type`:`input_json_delta`,`partial_json`:`1}`") STOP(0)
            BLOCK(1, "`type`:`tool_use`,`id`:`" TOOL_2 "`,`name`:`b`,`input`:{}")
            DELTA(1, "`type`:`input_json_delta`,`partial_json`:`{}`") STOP(1)
            TEXT(2) DELTA(2, "`type`:`text_delta`,`text`:`So.`") STOP(2) END("tool_use", "null"));
}

static void test_stream_of_thinking(void **state)
{
    struct flow f;
    (void)state;
    open_flow(&f, request);
    push(&f, PART_REASONING, "H");
    push(&f, PART_REASONING, "m");
    push(&f, PART_CONTENT, "x");
    flow_is(&f, FINISH_LENGTH, NULL,
            START BLOCK(0, "`type`:`thinking`,`thinking`:``,`signature`:``")
            DELTA(0, "`type`:`thinking_delta`,`thinking`:`H`")
            DELTA(0, "`type`:`thinking_delta`,`thinking`:`m`")
            DELTA(0, "`type`:`signature_delta`,`signature`:``") STOP(0)
            TEXT(1) DELTA(1, "`type`:`text_delta`,`text`:`x`") STOP(1) END("max_tokens", "null"));
}

/* Thinking alone is signed and stopped, too. */
static void test_stream_of_thinking_that_is_cut(void **state)
{
    struct flow f;
    (void)state;
    open_flow(&f, request);
    push(&f, PART_REASONING, "H");
    flow_is(&f, FINISH_LENGTH, NULL,
            START BLOCK(0, "`type`:`thinking`,`thinking`:``,`signature`:``")
            DELTA(0, "`type`:`thinking_delta`,`thinking`:`H`")
            DELTA(0, "`type`:`signature_delta`,`signature`:``") STOP(0) END("max_tokens", "null"));
}

static void test_stream_with_progress_and_timings(void **state)
{
    struct flow f;
    const struct sched_progress p = { 100, 64, 80, 0.5 };
    (void)state;
    open_flow(&f, "{`messages`:[{`role`:`user`,`content`:`Hi`}],`timings`:true}");
    GOLDEN_OK(anthropic_stream_progress(&f.s, &p, err));
    GOLDEN_OK(anthropic_stream_ping(&f.s, err));
    flow_is(&f, FINISH_END, NULL,
            START EVENT("ping", ",`prompt_progress`:{`total`:100,`cache`:64,`processed`:80,"
                        "`time_ms`:500}") EVENT("ping", "")
            EVENT("message_delta", ",`delta`:{`stop_reason`:`end_turn`,`stop_sequence`:null}," USAGE
                  ",`timings`:{`cache_n`:4,`prompt_n`:6,`prompt_ms`:0.0,`prompt_per_token_ms`:0.0,"
                  "`prompt_per_second`:0.0,`predicted_n`:2,`predicted_ms`:0.0,"
                  "`predicted_per_token_ms`:0.0,`predicted_per_second`:0.0}")
            EVENT("message_stop", ""));
}

static void test_stream_that_fails(void **state)
{
    struct flow f;
    struct apifault fault = { 0 };
    (void)state;
    (void)apifault_set(&fault, 503, "draining", NULL, "bye");
    open_flow(&f, request);
    push(&f, PART_CONTENT, "x");
    buffer_clear(&f.out);
    GOLDEN_OK(anthropic_stream_fail(&f.s, &fault, err));
    api_text_is(&f.out, EVENT("error", ",`error`:{`type`:`overloaded_error`,`message`:`bye`}"));
    buffer_free(&f.out);
    anthropic_stream_free(&f.s);
    apirequest_free(&f.r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole_answers),
        cmocka_unit_test(test_input_that_is_no_object),
        cmocka_unit_test(test_count_of_tokens),
        cmocka_unit_test(test_stream_of_text),
        cmocka_unit_test(test_stream_without_text_has_no_block),
        cmocka_unit_test(test_stream_of_calls_has_no_empty_text),
        cmocka_unit_test(test_stream_of_thinking),
        cmocka_unit_test(test_stream_of_thinking_that_is_cut),
        cmocka_unit_test(test_stream_with_progress_and_timings),
        cmocka_unit_test(test_stream_that_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
