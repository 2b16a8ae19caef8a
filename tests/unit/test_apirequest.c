/* test_apirequest.c: the fields that both APIs share: values, ranges, wrong types, limits. */
#include "api_fixture.h"

#include <float.h>

#define CHAT "`messages`:[{`role`:`user`,`content`:`Hi`}]"

/* A request of the API with one more field. */
static void with_field(api_reader read, const char *field, char out[512])
{
    const char *base = read == openai_read_completions ? "`prompt`:`Hi`" : CHAT;
    snprintf(out, 512, "{%s%s%s}", base, *field ? "," : "", field);
}

static struct api_request take(api_reader read, const char *field)
{
    char text[512];
    with_field(read, field, text);
    return api_read(read, text);
}

static void refuse(api_reader read, const char *field, const char *param, const char *code,
                   const char *message)
{
    char text[512];
    with_field(read, field, text);
    api_refused(read, text, param, code, message);
}

static void test_what_is_not_said_is_the_default(void **state)
{
    const struct api_limits limits = { .sampler = { .temperature = 0.5f, .top_k = 40 },
                                       .mode = ZP_MODE_HALF };
    struct api_request r = api_read_with(openai_read_chat, "{" CHAT "}", &limits);
    (void)state;
    assert_null(r.model);
    assert_true(r.job.sampler.temperature == 0.5f && r.job.sampler.top_k == 40);
    assert_int_equal(r.job.mode, ZP_MODE_HALF);
    assert_false(r.has_mode || r.has_seed || r.stream || r.timings || r.anchors || r.include_usage);
    assert_int_equal(r.job.n_predict, 0);
    assert_int_equal(r.job.n_choices, 1);
    assert_int_equal(r.job.n_stop, 0);
    assert_int_equal(r.n_unknown, 0);
    assert_int_equal(r.form, FORM_ANY);
    assert_int_equal(r.truncation, TRUNCATE_NEVER);
    assert_int_equal(r.reasoning, REASONING_APART);
    assert_true(r.timeout == 0);
    apirequest_free(&r);
}

static void test_all_fields_of_a_chat(void **state)
{
    struct api_request r = api_read(openai_read_chat, "{" CHAT ",`model`:`m`,`max_tokens`:10,"
        "`temperature`:0.7,`top_p`:0.9,`top_k`:50,`min_p`:0.05,`frequency_penalty`:-1.5,"
        "`presence_penalty`:2,`repetition_penalty`:1.1,`seed`:7,`n`:3,`stop`:[`a`,`bc`],"
        "`logit_bias`:{`5`:-100,`6`:1.5},`logprobs`:true,`top_logprobs`:20,`stream`:true,"
        "`stream_options`:{`include_usage`:true,`include_obfuscation`:false},`user`:`u`,"
        "`metadata`:{`a`:`b`},`timeout`:2.5,`position_mode`:`zero`,`context_length_hint`:9000,"
        "`anchors`:true,`truncation`:`drop-oldest`,`return_progress`:true,`cache_prompt`:false,"
        "`timings_per_token`:true,`ignore_eos`:true,`reasoning_format`:`none`,`store`:true}");
    const zp_sampler_options *s = &r.job.sampler;
    (void)state;
    assert_string_equal(r.model, "m");
    assert_int_equal(r.job.n_predict, 10);
    assert_true(s->temperature == 0.7f && s->top_p == 0.9f && s->top_k == 50 && s->min_p == 0.05f);
    assert_true(s->frequency_penalty == -1.5f && s->presence_penalty == 2.0f &&
                s->repeat_penalty == 1.1f);
    assert_true(r.has_seed && s->seed == 7);
    assert_int_equal(r.job.n_choices, 3);
    assert_int_equal(r.job.n_stop, 2);
    assert_string_equal(r.job.stop[0], "a");
    assert_string_equal(r.job.stop[1], "bc");
    assert_int_equal(s->n_bias, 2);
    assert_true(s->bias[0].id == 5 && s->bias[0].value == -100.0f && s->bias[1].id == 6 &&
                s->bias[1].value == 1.5f);
    assert_true(r.job.logprobs && r.job.n_top == 20 && !r.job.prompt_logprobs);
    assert_true(r.stream && r.include_usage && r.timings && r.anchors && r.job.progress);
    assert_string_equal(r.user, "u");
    assert_int_equal(json_object_size(r.metadata), 1);
    assert_true(r.timeout == 2.5);
    assert_true(r.has_mode && r.job.mode == ZP_MODE_ZERO && r.job.context_length_hint == 9000);
    assert_int_equal(r.truncation, TRUNCATE_OLDEST);
    assert_true(r.job.no_reuse && r.job.ignore_end);
    assert_int_equal(r.reasoning, REASONING_INLINE);
    assert_int_equal(r.n_unknown, 0);
    apirequest_free(&r);
}

static void test_names_of_modes(void **state)
{
    static const char *const names[] = { "full", "zero", "half", "auto" };
    static const zp_mode modes[] = { ZP_MODE_FULL, ZP_MODE_ZERO, ZP_MODE_HALF, ZP_MODE_AUTO };
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        char field[64];
        snprintf(field, sizeof field, "`position_mode`:`%s`", names[i]);
        struct api_request r = take(anthropic_read_messages, field);
        assert_true(r.has_mode);
        assert_int_equal(r.job.mode, modes[i]);
        apirequest_free(&r);
    }
    refuse(openai_read_chat, "`position_mode`:`fast`", "position_mode", "invalid_value",
           "'position_mode': expected one of `full`, `zero`, `half`, `auto`, found `fast`");
}

static void test_lengths_of_answers(void **state)
{
    static const struct {
        api_reader read;
        const char *field;
        uint32_t cap, expected;
    } cases[] = {
        { openai_read_chat, "`max_completion_tokens`:5,`max_tokens`:9", 0, 5 },
        { openai_read_chat, "`max_completion_tokens`:9,`max_tokens`:5", 0, 5 },
        { openai_read_chat, "`max_tokens`:-1", 0, 0 },
        { openai_read_chat, "`max_tokens`:7.0", 0, 7 },
        { openai_read_chat, "`n_predict`:4294967295", 0, UINT32_MAX },
        { openai_read_chat, "`max_tokens`:null", 100, 100 },
        { openai_read_chat, "`max_tokens`:101", 100, 100 },
        { openai_read_chat, "`max_tokens`:99", 100, 99 },
        { anthropic_read_messages, "`max_tokens`:3", 0, 3 },
        { openai_read_completions, "`max_tokens`:0,`echo`:true", 0, 1 },
    };
    (void)state;
    for (size_t i = 0; i < ZP_COUNT(cases); i++) {
        struct api_limits limits = { .tokens = cases[i].cap };
        char text[512];
        with_field(cases[i].read, cases[i].field, text);
        struct api_request r = api_read_with(cases[i].read, text, &limits);
        assert_int_equal(r.job.n_predict, cases[i].expected);
        assert_int_equal(r.prompt_only, cases[i].read == openai_read_completions);
        apirequest_free(&r);
    }
    refuse(openai_read_chat, "`max_tokens`:0", "max_tokens", "invalid_value",
           "'max_tokens': expected an integer from 1 to 4294967295, found 0");
    refuse(openai_read_completions, "`max_tokens`:0", "max_tokens", "invalid_value",
           "'max_tokens': 0 asks for nothing without echo");
}

static void test_special_values_of_drawing(void **state)
{
    (void)state;
    struct api_request r = take(openai_read_chat, "`top_p`:0,`top_k`:-1,`seed`:-1");
    assert_true(r.job.sampler.top_p > 0 && r.job.sampler.top_p < 1e-6f);
    assert_int_equal(r.job.sampler.top_k, 0);
    assert_false(r.has_seed);
    apirequest_free(&r);
    r = take(openai_read_chat, "`seed`:-2,`repeat_penalty`:1.5");
    assert_true(r.has_seed && r.job.sampler.seed == UINT64_MAX - 1);
    assert_true(r.job.sampler.repeat_penalty == 1.5f);
    apirequest_free(&r);
    r = take(openai_read_chat, "`seed`:9223372036854775807,`stop`:`one`,`logit_bias`:{}");
    assert_true(r.job.sampler.seed == INT64_MAX && r.job.sampler.n_bias == 0);
    assert_int_equal(r.job.n_stop, 1);
    assert_string_equal(r.job.stop[0], "one");
    apirequest_free(&r);
}

static void test_forms_of_answers(void **state)
{
    static const char schema[] = "{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1.5}}}";
    static const struct {
        api_reader read;
        const char *field;
        enum api_form form;
        const char *text;
    } cases[] = {
        { openai_read_chat, "`response_format`:{`type`:`text`}", FORM_ANY, NULL },
        { openai_read_chat, "`response_format`:{`type`:`json_object`}", FORM_OBJECT, NULL },
        { openai_read_chat,
          "`response_format`:{`type`:`json_schema`,`json_schema`:{`name`:`x`,`strict`:true,"
          "`schema`:{`type`:`object`,`properties`:{`a`:{`const`:1.5}}}}}",
          FORM_SCHEMA, schema },
        { openai_read_completions,
          "`response_format`:{`type`:`json_object`,`schema`:{`type`:`object`,`properties`:{`a`:"
          "{`const`:1.5}}}}",
          FORM_SCHEMA, schema },
        { anthropic_read_messages,
          "`output_format`:{`type`:`json_schema`,`schema`:{`type`:`object`,`properties`:{`a`:"
          "{`const`:1.5}}}}",
          FORM_SCHEMA, schema },
        { anthropic_read_messages,
          "`output_config`:{`effort`:`low`,`format`:{`type`:`json_schema`,`schema`:{`type`:"
          "`object`,`properties`:{`a`:{`const`:1.5}}}}}",
          FORM_SCHEMA, schema },
        { openai_read_completions,
          "`json_schema`:{`type`:`object`,`properties`:{`a`:{`const`:1.5}}}", FORM_SCHEMA, schema },
        { openai_read_chat, "`grammar`:`root ::= [a-z]`", FORM_GRAMMAR, "root ::= [a-z]" },
        { openai_read_chat, "`grammar`:``", FORM_ANY, NULL },
    };
    (void)state;
    for (size_t i = 0; i < ZP_COUNT(cases); i++) {
        struct api_request r = take(cases[i].read, cases[i].field);
        assert_int_equal(r.form, cases[i].form);
        if (cases[i].text != NULL) {
            assert_string_equal(r.form_text, cases[i].text);
            assert_int_equal(r.form_size, strlen(cases[i].text));
        }
        apirequest_free(&r);
    }
}

static void test_what_is_refused_and_why(void **state)
{
    static const struct {
        api_reader read;
        const char *field, *param, *code, *message;
    } cases[] = {
        { openai_read_chat, "`temperature`:`hot`", "temperature", "invalid_value",
          "'temperature': expected a number from 0 to 100, found `hot`" },
        { openai_read_chat, "`temperature`:-0.1", "temperature", "invalid_value",
          "'temperature': expected a number from 0 to 100, found -0.1" },
        { openai_read_chat, "`top_p`:1.5", "top_p", "invalid_value",
          "'top_p': expected a number from 0 to 1, found 1.5" },
        { openai_read_chat, "`top_k`:1.5", "top_k", "invalid_value",
          "'top_k': expected an integer from -1 to 2147483647, found 1.5" },
        { openai_read_chat, "`n`:17", "n", "invalid_value",
          "'n': expected an integer from 1 to 16, found 17" },
        { openai_read_chat, "`stream`:1", "stream", "invalid_value",
          "'stream': expected true or false, found 1" },
        { openai_read_chat, "`stop`:[`a`,``]", "stop[1]", "invalid_value",
          "'stop[1]': expected a text of 1 to 1024 bytes, found ``" },
        { openai_read_chat, "`stop`:[`a`,[]]", "stop[1]", "invalid_value",
          "'stop[1]': expected a text of 1 to 1024 bytes, found a list" },
        { anthropic_read_messages, "`stop_sequences`:5", "stop_sequences", "invalid_value",
          "'stop_sequences': expected a text or a list of up to 64 texts, found 5" },
        { openai_read_chat, "`logit_bias`:{`x1`:5}", "logit_bias", "invalid_value",
          "'logit_bias': `x1` is no token id (0 to 2147483647)" },
        { openai_read_chat, "`logit_bias`:{`99999999999`:5}", "logit_bias", "invalid_value",
          "'logit_bias': `99999999999` is no token id (0 to 2147483647)" },
        { openai_read_chat, "`logit_bias`:{`1`:101}", "logit_bias", "invalid_value",
          "'logit_bias': expected numbers from -100 to 100, found 101" },
        { openai_read_chat, "`top_logprobs`:3", "logprobs", "missing_required_parameter",
          "'logprobs': expected true, for top_logprobs, found nothing" },
        { openai_read_completions, "`logprobs`:21", "logprobs", "invalid_value",
          "'logprobs': expected an integer from 0 to 20, found 21" },
        { openai_read_completions, "`best_of`:2", "best_of", "unsupported_value",
          "'best_of': answers are not compared: at most n (1)" },
        { openai_read_completions, "`suffix`:`x`", "suffix", "unsupported_value",
          "'suffix': not supported here" },
        { openai_read_chat, "`stop_token_ids`:[5]", "stop_token_ids", "unsupported_value",
          "'stop_token_ids': not supported here" },
        { openai_read_chat, "`modalities`:[`text`,`audio`]", "modalities", "unsupported_value",
          "'modalities': answers are text: [`text`] is all there is" },
        { openai_read_chat, "`stream_options`:{`include_usage`:`yes`}",
          "stream_options.include_usage", "invalid_value",
          "'stream_options.include_usage': expected true or false, found `yes`" },
        { openai_read_chat, "`response_format`:{}", "response_format.type",
          "missing_required_parameter",
          "'response_format.type': expected `text`, `json_object` or "
          "`json_schema`, found nothing" },
        { openai_read_chat, "`response_format`:{`type`:`json_schema`}",
          "response_format.json_schema.schema", "missing_required_parameter",
          "'response_format.json_schema.schema': expected a JSON Schema, found nothing" },
        { openai_read_chat, "`response_format`:{`type`:`json_object`},`grammar`:`x`", "grammar",
          "unsupported_value", "'grammar': a form is asked for already, by another field" },
        { openai_read_chat, "`json_schema`:{},`grammar`:`x`", "grammar", "unsupported_value",
          "'grammar': a form is asked for already, by another field" },
        { openai_read_completions, "`json_schema`:{},`response_format`:{`type`:`json_object`}",
          "json_schema", "unsupported_value",
          "'json_schema': a form is asked for already, by another field" },
        { anthropic_read_messages,
          "`output_format`:{`type`:`json_object`},`output_config`:{`format`:{`type`:`json_object`}"
          "}",
          "output_config.format", "unsupported_value",
          "'output_config.format': a form is asked for already, by another field" },
        { openai_read_chat, "`guided_choice`:[`a`]", "guided_choice", "unsupported_value",
          "'guided_choice': not supported here" },
        { openai_read_chat, "`chat_template_kwargs`:{`eos_token`:`x`}", "chat_template_kwargs",
          "invalid_value", "'chat_template_kwargs': eos_token cannot be given here" },
        { openai_read_chat, "`timeout`:0", "timeout", "invalid_value",
          "'timeout': expected a number from 0.001 to 86400, found 0" },
        { anthropic_read_messages, "`mcp_servers`:[{}]", "mcp_servers", "unsupported_value",
          "'mcp_servers': not supported here" },
        { anthropic_read_messages, "`metadata`:{`user_id`:5}", "metadata.user_id", "invalid_value",
          "'metadata.user_id': expected a text of 0 to 1024 bytes, found 5" },
        { openai_read_chat, "`user`:{}", "user", "invalid_value",
          "'user': expected a text of 0 to 1024 bytes, found an object" },
    };
    (void)state;
    for (size_t i = 0; i < ZP_COUNT(cases); i++)
        refuse(cases[i].read, cases[i].field, cases[i].param, cases[i].code, cases[i].message);
}

static void test_what_says_nothing_is_taken(void **state)
{
    (void)state;
    struct api_request r = take(openai_read_completions,
                                "`suffix`:``,`stop_token_ids`:[],`min_tokens`:0,`best_of`:1,"
                                "`use_beam_search`:false,`stop`:[]");
    apirequest_free(&r);
}

static void test_ids_are_below_the_vocabulary(void **state)
{
    const struct api_limits limits = { .n_vocab = 10 };
    (void)state;
    struct api_request r = api_read_with(openai_read_completions,
                                         "{`prompt`:[0,9],`logit_bias`:{`9`:1}}", &limits);
    assert_int_equal(r.prompts[0].ids[1], 9);
    apirequest_free(&r);
    api_refused_with(openai_read_completions, "{`prompt`:[0,10]}", &limits, "prompt[1]",
                     "invalid_value", "'prompt[1]': expected a token id from 0 to 9, found 10");
    api_refused_with(openai_read_completions, "{`prompt`:`x`,`logit_bias`:{`10`:1}}", &limits,
                     "logit_bias", "invalid_value", "'logit_bias': `10` is no token id (0 to 9)");
}

static void test_unknown_fields_are_named(void **state)
{
    struct api_request r = take(openai_read_chat,
                                "`dry_multiplier`:0.8,`system`:`x`,`stop`:null,`dynatemp_range`:0");
    (void)state;
    assert_int_equal(r.n_unknown, 3);
    assert_string_equal(r.unknown[0], "dry_multiplier");
    assert_string_equal(r.unknown[1], "system"); /* of the other API */
    assert_string_equal(r.unknown[2], "dynatemp_range");
    apirequest_free(&r);
}

static void test_many_unknown_fields_are_counted(void **state)
{
    struct buffer b = buffer_with_max(MEM_META, 1 << 24);
    (void)state;
    GOLDEN_OK(buffer_append_text(&b, "{" CHAT, err));
    for (int i = 0; i < 50000; i++) GOLDEN_OK(buffer_printf(&b, err, ",`f%d`:0", i));
    GOLDEN_OK(buffer_append_text(&b, "}", err));
    struct api_request r = api_read(openai_read_chat, (const char *)b.data);
    assert_int_equal(r.n_unknown, 50000);
    assert_string_equal(r.unknown[API_MOST_UNKNOWN - 1], "f15");
    apirequest_free(&r);
    buffer_free(&b);
}

static void test_bodies_that_are_no_requests(void **state)
{
    static const struct {
        const char *text, *code, *message;
    } cases[] = {
        { "", "invalid_json", "the body: not valid JSON at line 1, column 1: expected { or [" },
        { "[]", "invalid_json", "the body is no JSON object" },
        { "{`a`:1,}", "invalid_json",
          "the body: not valid JSON at line 1, column 8: expected a string" },
        { "{`a`:1,`a`:2}", "invalid_json",
          "the body: not valid JSON at line 1, column 13: a duplicate name in an object" },
        { "{`a`:`\\u0000`}", "invalid_json",
          "the body: not valid JSON at line 1, column 13: \\u0000 in a text" },
        { "{`a`:`\xff`}", "invalid_json",
          "the body: not valid JSON at line 1, column 7: not UTF-8" },
    };
    (void)state;
    for (size_t i = 0; i < ZP_COUNT(cases); i++) {
        api_refused(openai_read_chat, cases[i].text, "", cases[i].code, cases[i].message);
        api_refused(anthropic_read_messages, cases[i].text, "", cases[i].code, cases[i].message);
    }
}

/* A list `depth` deep, and one of n numbers, beside a request. */
static void test_depth_and_number_of_values_are_bounded(void **state)
{
    const struct api_limits limits = { .depth = 6, .values = 40 };
    static const char deep[] = "the body has more than 40 values, or more than 6 levels of them";
    (void)state;
    struct api_request r = api_read_with(openai_read_chat, "{" CHAT ",`x`:[[[[[]]]]]}", &limits);
    apirequest_free(&r);
    api_refused_with(openai_read_chat, "{" CHAT ",`x`:[[[[[[]]]]]]}", &limits, "", "json_too_large",
                     deep);
    r = api_read_with(openai_read_chat, "{" CHAT ",`x`:`[[[[[[[[,,,,,\\`,[[[[[[[[[[[[`}", &limits);
    apirequest_free(&r);
    api_refused_with(openai_read_completions,
                     "{`prompt`:[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,"
                     "0,0,0,0,0,0,0,0]}",
                     &limits, "", "json_too_large", deep);
    char body[2 * API_MOST_DEPTH + 16];
    memset(body, '[', sizeof body);
    struct apifault fault = { 0 };
    json_t *value;
    assert_int_not_equal(apirequest_parse(&value, body, sizeof body, &api_no_limits, &fault),
                         ZP_OK);
    assert_null(value);
    assert_string_equal(fault.code, "json_too_large");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_not_said_is_the_default),
        cmocka_unit_test(test_all_fields_of_a_chat),
        cmocka_unit_test(test_names_of_modes),
        cmocka_unit_test(test_lengths_of_answers),
        cmocka_unit_test(test_special_values_of_drawing),
        cmocka_unit_test(test_forms_of_answers),
        cmocka_unit_test(test_what_is_refused_and_why),
        cmocka_unit_test(test_what_says_nothing_is_taken),
        cmocka_unit_test(test_ids_are_below_the_vocabulary),
        cmocka_unit_test(test_unknown_fields_are_named),
        cmocka_unit_test(test_many_unknown_fields_are_counted),
        cmocka_unit_test(test_bodies_that_are_no_requests),
        cmocka_unit_test(test_depth_and_number_of_values_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
