/* apirequest.c: bodies of unknown origin, prompts, and what the template gets.
 * Owns: the body's values, the arena of what is made from them. Does not know: models, sockets.
 * R1 depth and number of values are checked on the bytes, before any value is made.
 * R2, R3: apirequest_fields.c. */
#include "serve/apirequest.h"

#include "base/json_tree.h"

/* ---- bodies ---------------------------------------------------------------------------------- */

/* Depth and number of values of a text, as far as brackets and commas outside of strings tell: of
 * valid JSON both are exact bounds. */
static bool is_small(const char *body, size_t size, uint32_t most_depth, uint32_t most_values)
{
    uint64_t depth = 0, values = 1;
    bool quoted = false;
    for (size_t i = 0; i < size; i++) {
        char c = body[i];
        if (quoted) {
            if (c == '\\') i++;
            else if (c == '"') quoted = false;
            continue;
        }
        if (c == '"') quoted = true;
        else if (c == ']' || c == '}') depth -= depth > 0;
        else if (c == '[' || c == '{' || c == ',') {
            depth += c != ',';
            if (depth > most_depth || ++values > most_values) return false;
        }
    }
    return true;
}

zp_status apirequest_parse(json_t **out, const char *body, size_t size,
                           const struct api_limits *limits, struct apifault *fault)
{
    uint32_t depth = limits->depth ? limits->depth : API_MOST_DEPTH,
             values = limits->values ? limits->values : API_MOST_VALUES;
    zp_err err = { 0 };
    *out = NULL;
    if (!is_small(body, size, depth, values)) // R1
        return apifault_set(fault, 400, "json_too_large", NULL,
                            "the body has more than %u values, or more than %u levels of them",
                            values, depth);
    zp_status status = json_tree_read(body, size, "the body", ZP_BAD_INPUT, out, &err);
    if (status == ZP_NO_MEMORY) return apifault_no_memory(fault);
    if (status != ZP_OK)
        return apifault_set(fault, 400, "invalid_json", NULL, "%s", err.message);
    if (json_is_object(*out)) return ZP_OK;
    json_decref(*out);
    *out = NULL;
    return apifault_set(fault, 400, "invalid_json", NULL, "the body is no JSON object");
}

static void collect_unknown(struct api_request *r, size_t n_found)
{
    size_t n_fields;
    const struct jsonfield *fields = apirequest_fields(&n_fields);
    const char *key;
    json_t *value;
    size_t n = 0;
    r->n_unknown = json_object_size(r->body) - n_found;
    json_object_foreach (r->body, key, value) {
        if (n == API_MOST_UNKNOWN || n == r->n_unknown) return;
        if (!jsonfield_has(fields, n_fields, r->set, key)) r->unknown[n++] = key;
    }
}

/* What several fields say together. */
static zp_status check_together(struct api_request *r, struct apifault *fault)
{
    uint32_t most = r->limits->tokens;
    if (r->best_of > r->job.n_choices)
        return apifault_unsupported(fault, "best_of", "answers are not compared: at most n (%u)",
                                    r->job.n_choices);
    if (r->job.n_top != 0 && !r->job.logprobs)
        return apifault_expected(fault, "logprobs", json_object_get(r->body, "logprobs"),
                                 "true, for top_logprobs");
    if (r->prompt_only && !r->echo)
        return apifault_set(fault, 400, "invalid_value", "max_tokens",
                            "'max_tokens': 0 asks for nothing without echo");
    if (r->prompt_only) r->job.n_predict = 1;
    r->job.prompt_logprobs = r->echo && r->job.logprobs;
    if (most != 0 && (r->job.n_predict == 0 || r->job.n_predict > most)) r->job.n_predict = most;
    r->has_mode = r->mode >= 0;
    r->job.mode = r->has_mode ? (zp_mode)r->mode : r->limits->mode;
    if (r->reasoning_format >= 2)
        r->reasoning = r->reasoning_format == 2 ? REASONING_INLINE : REASONING_HIDDEN;
    return ZP_OK;
}

zp_status apirequest_open(struct api_request *r, enum api_set set, const char *body, size_t size,
                          const struct api_limits *limits, struct apifault *fault)
{
    size_t n_fields, n_found;
    const struct jsonfield *fields = apirequest_fields(&n_fields);
    *r = (struct api_request){ .set = set, .limits = limits, .arena.tag = MEM_SERVE, .mode = -1,
                                .thinking = -1 };
    r->job.sampler = limits->sampler;
    r->job.n_choices = 1;
    r->anchors = limits->anchors;
    ZP_TRY(apirequest_parse(&r->body, body, size, limits, fault));
    ZP_TRY(jsonfield_read(fields, n_fields, set, r->body, "", r, &n_found, fault));
    collect_unknown(r, n_found);
    return check_together(r, fault);
}

const json_t *apirequest_get(const struct api_request *r, const char *key)
{
    const json_t *value = json_object_get(r->body, key);
    return json_is_null(value) ? NULL : value;
}

void apirequest_free(struct api_request *r)
{
    json_decref(r->input);
    json_decref(r->tools);
    json_decref(r->body);
    arena_free(&r->arena);
    *r = (struct api_request){ 0 };
}

/* ---- prompts --------------------------------------------------------------------------------- */

static zp_status read_ids(struct arena *arena, const json_t *list, const char *path,
                          const struct api_limits *limits, struct api_prompt *out,
                          struct apifault *fault)
{
    size_t n = json_array_size(list);
    int32_t *ids = arena_array(arena, n, sizeof *ids);
    if (ids == NULL) return apifault_no_memory(fault);
    for (size_t i = 0; i < n; i++) {
        struct jsonfield_path room;
        const json_t *item = json_array_get(list, i);
        int64_t id;
        if (!jsonfield_whole(item, 0, apirequest_most_id(limits), &id))
            return apifault_expected(fault, jsonfield_path(&room, path, NULL, i), item,
                                     "a token id from 0 to %lld",
                                     (long long)apirequest_most_id(limits));
        ids[i] = (int32_t)id;
    }
    *out = (struct api_prompt){ .ids = ids, .n_ids = n };
    return ZP_OK;
}

static zp_status read_prompt(struct arena *arena, const json_t *value, const char *path,
                             const struct api_limits *limits, struct api_prompt *out,
                             struct apifault *fault)
{
    if (json_is_string(value)) {
        *out = (struct api_prompt){ .text = json_string_value(value),
                                    .size = json_string_length(value) };
        return ZP_OK;
    }
    if (json_array_size(value) == 0)
        return apifault_expected(fault, path, value, "a text or a list of token ids");
    return read_ids(arena, value, path, limits, out, fault);
}

zp_status apirequest_read_prompts(struct arena *arena, const json_t *value, const char *path,
                                  const struct api_limits *limits, const struct api_prompt **out,
                                  size_t *n, struct apifault *fault)
{
    const json_t *first = json_array_get(value, 0);
    bool list = json_is_string(first) || json_is_array(first);
    size_t most = limits->prompts ? limits->prompts : API_MOST_PROMPTS;
    *n = list ? json_array_size(value) : 1;
    if (*n > most)
        return apifault_set(fault, 400, "invalid_value", path,
                            "'%s': expected at most %zu prompts, found %zu", path, most, *n);
    struct api_prompt *prompts = arena_array(arena, *n, sizeof *prompts);
    if (prompts == NULL) return apifault_no_memory(fault);
    *out = prompts;
    if (!list) return read_prompt(arena, value, path, limits, prompts, fault);
    for (size_t i = 0; i < *n; i++) {
        struct jsonfield_path room;
        ZP_TRY(read_prompt(arena, json_array_get(value, i), jsonfield_path(&room, path, NULL, i),
                           limits, &prompts[i], fault));
    }
    return ZP_OK;
}

/* ---- the template's input -------------------------------------------------------------------- */

/* bos_token and eos_token would count as the template's own text, special tokens in them too. */
static zp_status check_variables(const json_t *variables, struct apifault *fault)
{
    static const char *const taken[] = { "messages", "tools", "add_generation_prompt", "bos_token",
                                         "eos_token" };
    for (size_t i = 0; i < ZP_COUNT(taken); i++)
        if (json_object_get(variables, taken[i]) != NULL)
            return apifault_set(fault, 400, "invalid_value", "chat_template_kwargs",
                                "'chat_template_kwargs': %s cannot be given here", taken[i]);
    return ZP_OK;
}

zp_status apirequest_set_input(struct api_request *r, json_t *messages, struct apifault *fault)
{
    json_t *input = json_tree_put(json_object(), "messages", messages);
    if (r->tools != NULL) input = json_tree_put(input, "tools", json_incref(r->tools));
    input = json_tree_put(input, "add_generation_prompt", json_boolean(!r->no_generation_prompt));
    if (r->effort != NULL)
        input = json_tree_put(input, "reasoning_effort", json_string(r->effort));
    if (r->thinking >= 0)
        input = json_tree_put(input, "enable_thinking", json_boolean(r->thinking));
    r->input = input;
    if (r->template_variables == NULL) return input ? ZP_OK : apifault_no_memory(fault);
    ZP_TRY(check_variables(r->template_variables, fault));
    if (input == NULL || json_object_update(input, (json_t *)r->template_variables) != 0)
        return apifault_no_memory(fault);
    return ZP_OK;
}
