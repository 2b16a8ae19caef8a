/* test_apirequest_fields.c: every field of every API with every type of value: right ones are
 * taken, wrong ones refused by the field's name, in both shapes; and docs/SERVER.md names each. */
#include "api_fixture.h"

static const struct {
    api_reader read;
    unsigned set;
    const char *base, *path; /* what every request has */
} apis[] = { { openai_read_chat, SET_CHAT,
               "`messages`:[{`role`:`user`,`content`:`Hi`},{`role`:`assistant`,`content`:`x`}]",
               "messages" },
             { openai_read_completions, SET_COMPLETIONS, "`prompt`:`Hi`", "prompt" },
             { anthropic_read_messages, SET_MESSAGES,
               "`messages`:[{`role`:`user`,`content`:`Hi`}]", "messages" } };

/* A request of one field beside what it must have. */
static void write_request(api_reader read, const char *name, const char *value, char *out,
                          size_t room)
{
    size_t i = 0;
    while (apis[i].read != read) i++;
    const char *more = strcmp(name, "top_logprobs") == 0 ? "`logprobs`:true," : "";
    if (strcmp(name, apis[i].path) == 0) snprintf(out, room, "{`%s`:%s}", name, value);
    else snprintf(out, room, "{%s,%s`%s`:%s}", apis[i].base, more, name, value);
}

static zp_status try_request(api_reader read, const char *text, struct apifault *fault)
{
    struct api_request r;
    zp_status status = api_try(read, text, &api_no_limits, &r, fault);
    apirequest_free(&r);
    return status;
}

/* ---- types ----------------------------------------------------------------------------------- */

/* Fields with a reader of their own: the letters of api_samples that are taken. */
static const struct {
    const char *name;
    unsigned sets;
    const char *taken;
} own[] = {
    { "messages", SET_CHAT | SET_MESSAGES, "" },
    { "prompt", SET_COMPLETIONS, "sel" },
    { "system", SET_MESSAGES, "nsea" },
    { "tools", SET_CHAT | SET_MESSAGES, "na" },
    { "tool_choice", SET_CHAT | SET_MESSAGES, "n" },
    { "parallel_tool_calls", SET_CHAT, "ntf" },
    { "functions", SET_CHAT, "na" },
    { "function_call", SET_CHAT, "n" },
    { "thinking", SET_MESSAGES, "n" },
    { "max_tokens", 7, "ni" },
    { "max_completion_tokens", 7, "ni" },
    { "n_predict", 7, "ni" },
    { "n", 7, "ni" },
    { "stop", 7, "nsal" },
    { "stop_sequences", 7, "nsal" },
    { "top_p", 7, "nir" },
    { "top_k", 7, "ni" },
    { "seed", 7, "nim" },
    { "logit_bias", 7, "no" },
    { "logprobs", SET_COMPLETIONS, "ni" },
    { "response_format", 7, "n" },
    { "json_schema", 7, "nop" },
    { "output_format", 7, "n" },
    { "output_config", 7, "nop" },
    { "grammar", 7, "nse" },
    { "stream_options", 7, "nop" },
    { "timings", 7, "ntf" },
    { "timings_per_token", 7, "ntf" },
    { "modalities", 7, "n" },
    { "add_generation_prompt", 7, "ntf" },
    { "cache_prompt", 7, "ntf" },
};

/* Fields of which no sample is right: a value that is. */
static const struct {
    const char *name;
    unsigned sets;
    const char *value;
} right[] = {
    { "position_mode", 7, "`half`" },
    { "reasoning_format", 7, "`none`" },
    { "truncation", 7, "`error`" },
    { "messages", 7, "[{`role`:`user`,`content`:`Hi`}]" },
    { "tool_choice", SET_CHAT, "`none`" },
    { "tool_choice", SET_MESSAGES, "{`type`:`none`}" },
    { "function_call", SET_CHAT, "`none`,`functions`:[{`name`:`a`}]" },
    { "thinking", SET_MESSAGES, "{`type`:`enabled`}" },
    { "response_format", 7, "{`type`:`json_object`}" },
    { "output_format", 7, "{`type`:`json_schema`,`schema`:{}}" },
    { "modalities", 7, "[`text`]" },
};

static const char *taken_by_own_reader(const struct jsonfield *f, unsigned set)
{
    for (size_t i = 0; i < ZP_COUNT(own); i++)
        if ((own[i].sets & set) && strcmp(own[i].name, f->name) == 0) return own[i].taken;
    if (f->kind == FIELD_KNOWN) return "ntfimrsealop"; /* of no consequence */
    fail_msg("this test does not know what %s takes", f->name);
    return "";
}

/* The letters of the samples that a field takes. */
static void find_taken(const struct jsonfield *f, unsigned set, char out[16])
{
    const char *taken = "";
    switch (f->kind) {
    case FIELD_BOOL: taken = "ntf"; break;
    case FIELD_U32: taken = "ni"; break;
    case FIELD_F32:
    case FIELD_F64: taken = f->least <= -5 ? "nimr" : "nir"; break;
    case FIELD_TEXT: taken = f->least == 0 ? "nse" : "ns"; break;
    case FIELD_NAME: taken = "n"; break;
    case FIELD_OBJECT: taken = "nop"; break;
    case FIELD_REFUSED: taken = "nfeao"; break;
    case FIELD_CUSTOM:
    case FIELD_KNOWN: taken = taken_by_own_reader(f, set);
    }
    snprintf(out, 16, "%s", taken);
}

static void try_sample(size_t api, const char *name, const char *value, bool right_one)
{
    char text[512];
    struct apifault fault;
    write_request(apis[api].read, name, value, text, sizeof text);
    zp_status status = try_request(apis[api].read, text, &fault);
    if ((status == ZP_OK) != right_one)
        fail_msg("%s\n is %s: %s", text, right_one ? "refused" : "taken", fault.message);
    if (!right_one) api_fault_names(&fault, name);
}

static void test_every_field_with_every_type(void **state)
{
    size_t n, n_wrong = 0;
    const struct jsonfield *fields = apirequest_fields(&n);
    (void)state;
    for (size_t a = 0; a < ZP_COUNT(apis); a++)
        for (size_t i = 0; i < n; i++) {
            char taken[16];
            if (!(fields[i].sets & apis[a].set)) continue;
            find_taken(&fields[i], apis[a].set, taken);
            for (size_t v = 0; v < ZP_COUNT(api_samples); v++) {
                bool right_one = strchr(taken, api_samples[v].letter) != NULL;
                try_sample(a, fields[i].name, api_samples[v].json, right_one);
                n_wrong += !right_one;
            }
        }
    assert_true(n_wrong > 500);
}

static void test_every_field_takes_something(void **state)
{
    size_t n;
    const struct jsonfield *fields = apirequest_fields(&n);
    (void)state;
    for (size_t a = 0; a < ZP_COUNT(apis); a++)
        for (size_t i = 0; i < n; i++) {
            char taken[16];
            bool some = false;
            if (!(fields[i].sets & apis[a].set)) continue;
            find_taken(&fields[i], apis[a].set, taken);
            some = strlen(taken) > 1;
            for (size_t k = 0; k < ZP_COUNT(right); k++) {
                if (!(right[k].sets & apis[a].set) || strcmp(right[k].name, fields[i].name) != 0)
                    continue;
                try_sample(a, right[k].name, right[k].value, true);
                some = true;
            }
            if (!some) fail_msg("no right value of %s is known here", fields[i].name);
        }
}

/* Odd values, too: each is taken, or refused by the name of the field. */
static void try_odd(api_reader read, const char *name, const char *value)
{
    /* named where the field says something wrong together with them */
    static const char *const others[] = { "logprobs", "max_tokens", "messages", "tool_choice",
                                          "function_call" };
    char text[700];
    struct apifault fault;
    write_request(read, name, value, text, sizeof text);
    if (try_request(read, text, &fault) == ZP_OK) return;
    if (fault.status != 400 || fault.code == NULL || !utf8_is_valid(fault.message,
                                                                    strlen(fault.message), NULL))
        fail_msg("%s\n: %d %s", text, fault.status, fault.message);
    bool named = strncmp(fault.param, name, strlen(name)) == 0;
    bool together = false;
    for (size_t i = 0; i < ZP_COUNT(others); i++)
        together = together || strcmp(fault.param, others[i]) == 0;
    if (!named && !together) fail_msg("%s\n names %s: %s", text, fault.param, fault.message);
}

static void test_odd_values_are_refused_by_name(void **state)
{
    static const char *const values[] = {
        "null", "true", "false", "0", "1", "-1", "7.5", "1e300", "-9223372036854775808",
        "9223372036854775807", "``", "`x`", "`none`", "`\xf0\x9f\xa6\x80`", "[]", "[null]", "[[]]",
        "[[[]]]", "[1]", "[-1]", "[1e9]", "[`a`]", "[``]", "[{}]", "{}", "{`a`:1}", "{`1`:1}",
        "{`type`:null}", "{`type`:5}", "{`type`:`tool`}", "{`type`:`json_schema`}",
        "{`type`:`json_schema`,`schema`:[]}", "{`type`:`json_schema`,`json_schema`:5}",
        "{`name`:5}", "{`type`:`function`,`function`:5}", "[{`role`:5}]", "[{`role`:`user`}]",
        "[{`role`:`user`,`content`:5}]", "[{`role`:`user`,`content`:[5]}]",
        "[{`role`:`user`,`content`:[{`type`:`text`,`text`:5}]}]",
        "[{`role`:`assistant`,`tool_calls`:[5]}]",
        "[{`role`:`assistant`,`content`:[{`type`:`tool_use`}]}]",
        "[{`role`:`user`,`content`:[{`type`:`tool_result`}]}]",
        "[{`role`:`tool`}]", "[{`type`:`function`}]", "[{`type`:`function`,`function`:{}}]",
        "[{`type`:`function`,`function`:{`name`:``}}]", "[{`name`:`a`,`input_schema`:5}]",
        "[{`name`:`a`,`input_schema`:{}},{`name`:`a`,`input_schema`:{}}]",
    };
    size_t n;
    const struct jsonfield *fields = apirequest_fields(&n);
    (void)state;
    for (size_t a = 0; a < ZP_COUNT(apis); a++)
        for (size_t i = 0; i < n; i++)
            for (size_t v = 0; v < ZP_COUNT(values) && (fields[i].sets & apis[a].set); v++)
                try_odd(apis[a].read, fields[i].name, values[v]);
}

/* docs/SERVER.md names every field, so that none comes or goes without a word. */
static void test_every_field_is_documented(void **state)
{
    size_t n, size;
    const struct jsonfield *fields = apirequest_fields(&n);
    FILE *f = fopen(ZP_TEST_DATA "/../../docs/SERVER.md", "rb");
    static char page[1 << 20];
    (void)state;
    assert_non_null(f);
    size = fread(page, 1, sizeof page - 1, f);
    fclose(f);
    page[size] = '\0';
    for (size_t i = 0; i < n; i++) {
        char name[80];
        snprintf(name, sizeof name, "`%s`", fields[i].name);
        if (strstr(page, name) == NULL) fail_msg("docs/SERVER.md does not name %s", name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_field_with_every_type),
        cmocka_unit_test(test_every_field_takes_something),
        cmocka_unit_test(test_odd_values_are_refused_by_name),
        cmocka_unit_test(test_every_field_is_documented),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
