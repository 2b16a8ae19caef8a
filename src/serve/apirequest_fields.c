/* apirequest_fields.c: the table of fields that both APIs share, and the readers of those that are
 * more than a number or a text. No state.
 * R2 no field is an error for its name alone. What is asked for and not done here is one
 *    (FIELD_REFUSED): an answer to another question would be worse.
 * R3 of several fields for the same thing the stricter holds. */
#include "serve/apirequest.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/json_write.h"

#define MOST_SCHEMA ((size_t)1 << 20)
#define MOST_STOP_SIZE 1024
#define SMALLEST_TOP_P 1e-7f /* of a top_p of 0: the likeliest token alone; ours means off */

/* ---- fields with a reader of their own ------------------------------------------------------- */

static zp_status read_most_tokens(void *out, const json_t *value, const char *path,
                                  struct apifault *fault)
{
    struct api_request *r = out;
    int64_t n;
    if (!jsonfield_whole(value, -1, UINT32_MAX, &n) || (n == 0 && r->set != SET_COMPLETIONS))
        return apifault_expected(fault, path, value, "an integer from 1 to %u", UINT32_MAX);
    if (n == 0) r->prompt_only = true;
    if (n > 0 && (r->job.n_predict == 0 || (uint32_t)n < r->job.n_predict)) // R3
        r->job.n_predict = (uint32_t)n;
    return ZP_OK;
}

static zp_status read_top_p(void *out, const json_t *value, const char *path,
                            struct apifault *fault)
{
    struct api_request *r = out;
    double x = json_number_value(value);
    if (!json_is_number(value) || !(x >= 0 && x <= 1))
        return apifault_expected(fault, path, value, "a number from 0 to 1");
    r->job.sampler.top_p = fmaxf((float)x, SMALLEST_TOP_P);
    return ZP_OK;
}

static zp_status read_top_k(void *out, const json_t *value, const char *path,
                            struct apifault *fault)
{
    struct api_request *r = out;
    int64_t n;
    if (!jsonfield_whole(value, -1, INT32_MAX, &n))
        return apifault_expected(fault, path, value, "an integer from -1 to %d", INT32_MAX);
    r->job.sampler.top_k = n > 0 ? (uint32_t)n : 0;
    return ZP_OK;
}

static zp_status read_seed(void *out, const json_t *value, const char *path,
                           struct apifault *fault)
{
    struct api_request *r = out;
    int64_t n;
    if (!jsonfield_whole(value, INT64_MIN, INT64_MAX, &n))
        return apifault_expected(fault, path, value, "an integer; -1: a new one");
    r->has_seed = n != -1;
    r->job.sampler.seed = r->has_seed ? (uint64_t)n : 0;
    return ZP_OK;
}

static zp_status read_choices(void *out, const json_t *value, const char *path,
                              struct apifault *fault)
{
    struct api_request *r = out;
    uint32_t most = r->limits->choices ? r->limits->choices : API_MOST_CHOICES;
    int64_t n;
    if (!jsonfield_whole(value, 1, most, &n))
        return apifault_expected(fault, path, value, "an integer from 1 to %u", most);
    r->job.n_choices = (uint32_t)n;
    return ZP_OK;
}

/* Of completions: how many of the likeliest tokens. */
static zp_status read_n_logprobs(void *out, const json_t *value, const char *path,
                                 struct apifault *fault)
{
    struct api_request *r = out;
    int64_t n;
    if (!jsonfield_whole(value, 0, SCHED_MOST_TOP, &n))
        return apifault_expected(fault, path, value, "an integer from 0 to %d", SCHED_MOST_TOP);
    r->job.logprobs = true;
    r->job.n_top = (uint32_t)n;
    return ZP_OK;
}

static zp_status read_stop_text(const json_t *value, const char *path, const char **out,
                                struct apifault *fault)
{
    size_t size = json_string_length(value);
    if (size == 0 || size > MOST_STOP_SIZE)
        return apifault_expected(fault, path, value, "a text of 1 to %d bytes", MOST_STOP_SIZE);
    *out = json_string_value(value);
    return ZP_OK;
}

static zp_status read_stop(void *out, const json_t *value, const char *path,
                           struct apifault *fault)
{
    struct api_request *r = out;
    bool one = json_is_string(value);
    size_t n = one ? 1 : json_array_size(value);
    if ((!one && !json_is_array(value)) || n > ZP_STOPS_MAX)
        return apifault_expected(fault, path, value, "a text or a list of up to %d texts",
                                 ZP_STOPS_MAX);
    const char **stop = arena_array(&r->arena, n, sizeof *stop);
    if (stop == NULL) return apifault_no_memory(fault);
    for (size_t i = 0; i < n; i++) {
        struct jsonfield_path room;
        const json_t *item = one ? value : json_array_get(value, i);
        const char *where = one ? path : jsonfield_path(&room, path, NULL, i);
        ZP_TRY(read_stop_text(item, where, &stop[i], fault));
    }
    r->job.stop = stop;
    r->job.n_stop = n;
    return ZP_OK;
}

/* The key of a logit_bias: a decimal number. */
static bool read_id(const char *text, int64_t *out)
{
    size_t n = strspn(text, "0123456789");
    if (n == 0 || n > 10 || text[n] != '\0') return false;
    *out = 0;
    for (size_t i = 0; i < n; i++) *out = *out * 10 + (text[i] - '0');
    return true;
}

int64_t apirequest_most_id(const struct api_limits *limits)
{
    return limits->n_vocab ? (int64_t)limits->n_vocab - 1 : INT32_MAX;
}

static zp_status read_bias(void *out, const json_t *value, const char *path,
                           struct apifault *fault)
{
    struct api_request *r = out;
    size_t n = json_object_size(value);
    if (!json_is_object(value) || n > API_MOST_BIAS)
        return apifault_expected(fault, path, value, "an object of up to %d token ids",
                                 API_MOST_BIAS);
    zp_bias *bias = arena_array(&r->arena, n, sizeof *bias), *b = bias;
    if (bias == NULL) return apifault_no_memory(fault);
    const char *key;
    json_t *item;
    json_object_foreach ((json_t *)value, key, item) {
        int64_t id;
        double x = json_number_value(item);
        if (!read_id(key, &id) || id > apirequest_most_id(r->limits))
            return apifault_set(fault, 400, "invalid_value", path,
                                "'%s': \"%.20s\" is no token id (0 to %lld)", path, key,
                                (long long)apirequest_most_id(r->limits));
        if (!json_is_number(item) || !(x >= -100 && x <= 100))
            return apifault_expected(fault, path, item, "numbers from -100 to 100");
        *b++ = (zp_bias){ (int32_t)id, (float)x };
    }
    r->job.sampler.bias = bias;
    r->job.sampler.n_bias = n;
    return ZP_OK;
}

static zp_status read_stream_options(void *out, const json_t *value, const char *path,
                                     struct apifault *fault)
{
    static const struct jsonfield rows[] = {
        { .name = "include_usage", .kind = FIELD_BOOL, .sets = SET_CHAT,
          .at = offsetof(struct api_request, include_usage) },
    };
    if (!json_is_object(value)) return apifault_expected(fault, path, value, "an object");
    return jsonfield_read(rows, ZP_COUNT(rows), SET_CHAT, value, path, out, NULL, fault);
}

static zp_status read_bool(const json_t *value, const char *path, bool *out,
                           struct apifault *fault)
{
    *out = json_is_true(value);
    return json_is_boolean(value) ? ZP_OK : apifault_expected(fault, path, value, "true or false");
}

static zp_status read_timings(void *out, const json_t *value, const char *path,
                              struct apifault *fault)
{
    struct api_request *r = out;
    bool yes;
    ZP_TRY(read_bool(value, path, &yes, fault));
    r->timings = r->timings || yes;
    return ZP_OK;
}

static zp_status read_cache_prompt(void *out, const json_t *value, const char *path,
                                   struct apifault *fault)
{
    struct api_request *r = out;
    bool yes;
    ZP_TRY(read_bool(value, path, &yes, fault));
    r->job.no_reuse = !yes;
    return ZP_OK;
}

static zp_status read_generation_prompt(void *out, const json_t *value, const char *path,
                                        struct apifault *fault)
{
    struct api_request *r = out;
    bool yes;
    ZP_TRY(read_bool(value, path, &yes, fault));
    r->no_generation_prompt = !yes;
    return ZP_OK;
}

static zp_status read_modalities(void *out, const json_t *value, const char *path,
                                 struct apifault *fault)
{
    ZP_UNUSED(out);
    if (json_array_size(value) == 1 && jsonfield_is(json_array_get(value, 0), "text")) return ZP_OK;
    return apifault_unsupported(fault, path, "answers are text: [\"text\"] is all there is");
}

/* ---- the form of answers --------------------------------------------------------------------- */

zp_status apirequest_set_schema(struct api_request *r, const json_t *schema, const char *path,
                                struct apifault *fault)
{
    zp_err err = { 0 };
    if (!json_is_object(schema)) return apifault_expected(fault, path, schema, "a JSON Schema");
    (void)snprintf(r->form_param, sizeof r->form_param, "%s", path);
    struct buffer text = buffer_with_max(MEM_SERVE, MOST_SCHEMA);
    zp_status status = json_write_text(schema, JSON_COMPACT, &text, &err);
    if (status == ZP_OK) {
        r->form = FORM_SCHEMA;
        r->form_size = text.size;
        r->form_text = arena_strndup(&r->arena, (const char *)text.data, text.size);
    }
    buffer_free(&text);
    if (status == ZP_BAD_INPUT)
        return apifault_expected(fault, path, schema, "a JSON Schema of up to %zu bytes",
                                 MOST_SCHEMA);
    return status != ZP_OK || r->form_text == NULL ? apifault_no_memory(fault) : ZP_OK;
}

/* Of what would overrule a form that is asked for already. */
static zp_status check_no_form(const struct api_request *r, const char *path,
                               struct apifault *fault)
{
    if (r->form == FORM_ANY) return ZP_OK;
    return apifault_unsupported(fault, path, "a form is asked for already, by another field");
}

/* {"type": "text" | "json_object" | "json_schema", ...}. Where the schema stands: OpenAI's
 * json_schema.schema, or beside the type, as llama.cpp and Anthropic have it. */
static zp_status read_format(void *out, const json_t *value, const char *path,
                             struct apifault *fault)
{
    static const char *const types[] = { "text", "json_object", "json_schema", NULL };
    struct { int type; } format = { 0 };
    static const struct jsonfield row = { .name = "type", .kind = FIELD_NAME, .sets = 1,
                                          .names = types };
    struct api_request *r = out;
    struct jsonfield_path room;
    if (!json_is_object(value)) return apifault_expected(fault, path, value, "an object");
    if (json_object_get(value, "type") == NULL)
        return apifault_expected(fault, jsonfield_path(&room, path, "type", 0), NULL,
                                 "\"text\", \"json_object\" or \"json_schema\"");
    ZP_TRY(jsonfield_read(&row, 1, 1, value, path, &format, NULL, fault));
    const json_t *schema = json_object_get(value, "schema"),
                 *wrapped = json_object_get(value, "json_schema");
    if (format.type == 0) return ZP_OK;
    ZP_TRY(check_no_form(r, path, fault));
    if (format.type == 1 && schema == NULL) {
        r->form = FORM_OBJECT;
        return ZP_OK;
    }
    if (schema != NULL)
        return apirequest_set_schema(r, schema, jsonfield_path(&room, path, "schema", 0), fault);
    return apirequest_set_schema(r, json_object_get(wrapped, "schema"),
                                 jsonfield_path(&room, path, "json_schema.schema", 0), fault);
}

/* llama.cpp's: the schema alone. */
static zp_status read_schema(void *out, const json_t *value, const char *path,
                             struct apifault *fault)
{
    struct api_request *r = out;
    ZP_TRY(check_no_form(r, path, fault));
    return apirequest_set_schema(r, value, path, fault);
}

static zp_status read_grammar(void *out, const json_t *value, const char *path,
                              struct apifault *fault)
{
    struct api_request *r = out;
    size_t size = json_string_length(value);
    if (!json_is_string(value) || size > MOST_SCHEMA)
        return apifault_expected(fault, path, value, "a grammar of up to %zu bytes", MOST_SCHEMA);
    if (size == 0) return ZP_OK;
    ZP_TRY(check_no_form(r, path, fault));
    (void)snprintf(r->form_param, sizeof r->form_param, "%s", path);
    r->form = FORM_GRAMMAR;
    r->form_text = json_string_value(value);
    r->form_size = size;
    return ZP_OK;
}

/* Anthropic's: format as above, and effort. */
static zp_status read_output_config(void *out, const json_t *value, const char *path,
                                    struct apifault *fault)
{
    static const struct jsonfield rows[] = {
        { .name = "format", .kind = FIELD_CUSTOM, .sets = 1, .read = read_format },
        { .name = "effort", .kind = FIELD_TEXT, .sets = 1, .least = 1, .most = 32,
          .at = offsetof(struct api_request, effort) },
    };
    if (!json_is_object(value)) return apifault_expected(fault, path, value, "an object");
    return jsonfield_read(rows, ZP_COUNT(rows), 1, value, path, out, NULL, fault);
}

/* ---- the table ------------------------------------------------------------------------------- */

enum {
    CHAT = SET_CHAT,
    COMP = SET_COMPLETIONS,
    MSG = SET_MESSAGES,
    OPEN = SET_CHAT | SET_COMPLETIONS,
    TALK = SET_CHAT | SET_MESSAGES,
    ALL = SET_CHAT | SET_COMPLETIONS | SET_MESSAGES
};

static const char *const modes[] = { "full", "zero", "half", "auto", NULL }; /* as zp_mode */
static const char *const truncations[] = { "error", "drop-oldest", "summarise", NULL };
static const char *const reasonings[] = { "auto", "deepseek", "none", "hidden", NULL };

#define AT(member) offsetof(struct api_request, member)

/* clang-format off */
#define KNOWN(name, sets) { name, FIELD_KNOWN, sets, 0, 0, 0, NULL, NULL }
#define REFUSED(name, sets) { name, FIELD_REFUSED, sets, 0, 0, 0, NULL, NULL }
#define CUSTOM(name, sets, reader) { name, FIELD_CUSTOM, sets, 0, 0, 0, NULL, reader }
#define BOOL(name, sets, member) { name, FIELD_BOOL, sets, AT(member), 0, 0, NULL, NULL }
#define OBJECT(name, sets, member) { name, FIELD_OBJECT, sets, AT(member), 0, 0, NULL, NULL }
#define NAME(name, sets, member, names) { name, FIELD_NAME, sets, AT(member), 0, 0, names, NULL }
#define RANGE(name, kind, sets, member, least, most) \
    { name, FIELD_##kind, sets, AT(member), least, most, NULL, NULL }

static const struct jsonfield fields[] = {
    RANGE("model", TEXT, ALL, model, 0, 512),
    /* read by the APIs */
    KNOWN("messages", TALK), KNOWN("system", MSG), KNOWN("prompt", COMP),
    KNOWN("tools", TALK), KNOWN("tool_choice", TALK), KNOWN("parallel_tool_calls", CHAT),
    KNOWN("functions", CHAT), KNOWN("function_call", CHAT), KNOWN("thinking", MSG),
    /* how long, how many */
    CUSTOM("max_tokens", ALL, read_most_tokens),
    CUSTOM("max_completion_tokens", CHAT, read_most_tokens),
    CUSTOM("n_predict", OPEN, read_most_tokens),
    CUSTOM("n", OPEN, read_choices),
    RANGE("best_of", U32, COMP, best_of, 1, UINT32_MAX),
    CUSTOM("stop", OPEN, read_stop),
    CUSTOM("stop_sequences", MSG, read_stop),
    BOOL("ignore_eos", ALL, job.ignore_end),
    BOOL("echo", COMP, echo),
    RANGE("timeout", F64, ALL, timeout, 0.001, 86400),
    /* drawing */
    RANGE("temperature", F32, ALL, job.sampler.temperature, 0, 100),
    CUSTOM("top_p", ALL, read_top_p),
    CUSTOM("top_k", ALL, read_top_k),
    RANGE("min_p", F32, ALL, job.sampler.min_p, 0, 1),
    RANGE("frequency_penalty", F32, ALL, job.sampler.frequency_penalty, -100, 100),
    RANGE("presence_penalty", F32, ALL, job.sampler.presence_penalty, -100, 100),
    RANGE("repetition_penalty", F32, ALL, job.sampler.repeat_penalty, 0.01, 100),
    RANGE("repeat_penalty", F32, ALL, job.sampler.repeat_penalty, 0.01, 100),
    CUSTOM("seed", ALL, read_seed),
    CUSTOM("logit_bias", ALL, read_bias),
    /* what the answer is, and what it tells */
    BOOL("logprobs", CHAT, job.logprobs),
    RANGE("top_logprobs", U32, CHAT, job.n_top, 0, SCHED_MOST_TOP),
    CUSTOM("logprobs", COMP, read_n_logprobs),
    CUSTOM("response_format", OPEN, read_format),
    CUSTOM("output_format", MSG, read_format),
    CUSTOM("output_config", MSG, read_output_config),
    CUSTOM("json_schema", OPEN, read_schema),
    CUSTOM("grammar", ALL, read_grammar),
    NAME("reasoning_format", TALK, reasoning_format, reasonings),
    BOOL("stream", ALL, stream),
    CUSTOM("stream_options", OPEN, read_stream_options),
    BOOL("return_progress", ALL, job.progress),
    CUSTOM("timings", ALL, read_timings),
    CUSTOM("timings_per_token", ALL, read_timings),
    CUSTOM("modalities", CHAT, read_modalities),
    /* the template */
    OBJECT("chat_template_kwargs", TALK, template_variables),
    RANGE("reasoning_effort", TEXT, CHAT, effort, 1, 32),
    BOOL("continue_final_message", CHAT, continues),
    CUSTOM("add_generation_prompt", CHAT, read_generation_prompt),
    /* positions, memory, who asks */
    NAME("position_mode", ALL, mode, modes),
    RANGE("context_length_hint", U32, ALL, job.context_length_hint, 1, INT32_MAX),
    BOOL("anchors", ALL, anchors),
    NAME("truncation", TALK, truncation, truncations),
    CUSTOM("cache_prompt", ALL, read_cache_prompt),
    RANGE("user", TEXT, OPEN, user, 0, 1024),
    OBJECT("metadata", ALL, metadata),
    /* of no consequence here */
    KNOWN("store", CHAT), KNOWN("service_tier", ALL), KNOWN("prompt_cache_key", CHAT),
    KNOWN("prompt_cache_retention", CHAT), KNOWN("safety_identifier", CHAT),
    KNOWN("verbosity", CHAT), KNOWN("prediction", CHAT), KNOWN("cache_control", MSG),
    KNOWN("context_management", MSG),
    /* asked for, and not done here */
    REFUSED("suffix", COMP), REFUSED("audio", CHAT), REFUSED("web_search_options", CHAT),
    REFUSED("stop_token_ids", OPEN), REFUSED("min_tokens", OPEN),
    REFUSED("use_beam_search", OPEN), REFUSED("bad_words", OPEN),
    REFUSED("allowed_token_ids", OPEN), REFUSED("structured_outputs", OPEN),
    REFUSED("guided_json", OPEN), REFUSED("guided_regex", OPEN), REFUSED("guided_choice", OPEN),
    REFUSED("guided_grammar", OPEN), REFUSED("mcp_servers", MSG), REFUSED("container", MSG),
};
/* clang-format on */

const struct jsonfield *apirequest_fields(size_t *n)
{
    *n = ZP_COUNT(fields);
    return fields;
}
