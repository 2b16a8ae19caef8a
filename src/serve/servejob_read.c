/* servejob_read.c: from a body to prompts and the form of their answers.
 * Threads: any: the request is its own here, and what it reads of the server and of the model never
 * changes.
 * Q1 a prompt that cannot fit is refused before it is tokenized where its bytes alone say so, or
 *    its beginning. */
#include "serve/servejob.h"

#include <string.h>

zp_status servejob_read_body(struct servejob *j)
{
    static zp_status (*const readers[])(struct api_request *r, const char *body, size_t size,
                                        const struct api_limits *limits,
                                        struct apifault *fault) = {
        [SERVE_CHAT] = openai_read_chat,
        [SERVE_COMPLETIONS] = openai_read_completions,
        [SERVE_MESSAGES] = anthropic_read_messages,
    };
    if (j->endpoint == SERVE_EMBEDDINGS) return servejob_read_inputs(j);
    return readers[j->endpoint](&j->r, j->body, j->body_size, &j->limits, &j->fault);
}

static zp_status check_model(struct servejob *j)
{
    const char *asked = j->r.model, *name = j->s->name;
    if (asked == NULL || *asked == '\0' || strcmp(asked, name) == 0 ||
        strcmp(asked, j->reads->name) == 0)
        return ZP_OK;
    return apifault_set(&j->fault, 404, "model_not_found", "model",
                        "the model '%.200s' is not served here; '%.200s' is", asked, name);
}

/* ---- prompts --------------------------------------------------------------------------------- */

zp_status servejob_too_long(struct servejob *j, uint64_t n, bool at_least)
{
    uint32_t n_ctx = j->reads->n_ctx;
    zp_status status = apifault_set(
        &j->fault, 400, "context_length_exceeded", servejob_param(j),
        "request (%s%llu tokens) exceeds the available context size (%u tokens), try increasing it",
        at_least ? "at least " : "", (unsigned long long)n, n_ctx);
    j->fault.n_prompt = n;
    j->fault.n_ctx = n_ctx;
    return status;
}

static zp_status check_length(struct servejob *j, uint64_t n, bool at_least)
{
    uint64_t answer = j->endpoint != SERVE_EMBEDDINGS; /* at least a token of one */
    return n + answer <= j->reads->n_ctx ? ZP_OK : servejob_too_long(j, n, at_least);
}

/* Tokens of a text's beginning, where the text is so long that it hardly fits: at twice the context
 * the rest does not matter any more. */
static zp_status check_beginning(struct servejob *j, const char *text, size_t size)
{
    uint64_t n_ctx = j->reads->n_ctx, looked = 3 * n_ctx;
    struct token_list ids = { 0 };
    if (size < 2 * looked) return ZP_OK;
    size_t n = utf8_complete_prefix(text, (size_t)looked);
    zp_status status = tokenizer_encode(j->reads->model->tokenizer, text, n, 0, &ids, NULL);
    uint64_t found = status == ZP_OK ? ids.count : 0; /* what is wrong is told later */
    token_list_free(&ids);
    return found >= 2 * n_ctx ? servejob_too_long(j, found, true) : ZP_OK;
}

static zp_status open_text(struct servejob *j, uint32_t i)
{
    const struct api_prompt *p = &j->r.prompts[i];
    uint64_t least = p->text != NULL ? servemodel_least_tokens(j->reads, p->size) : p->n_ids;
    ZP_TRY(check_length(j, least, p->text != NULL)); // Q1
    if (p->text != NULL) ZP_TRY(check_beginning(j, p->text, p->size));
    ZP_TRY(apiprompt_open_text(&j->prompts[i].p, j->reads->model, p, j->r.anchors, &j->fault));
    return check_length(j, j->prompts[i].p.ids.count, false);
}

static zp_status check_messages(struct servejob *j)
{
    const json_t *messages = json_object_get(j->r.input, "messages");
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *content = json_object_get(json_array_get(messages, i), "content");
        if (json_is_string(content))
            ZP_TRY(check_beginning(j, json_string_value(content), json_string_length(content)));
    }
    return ZP_OK;
}

/* Bytes of all texts in messages. */
static uint64_t text_bytes(const json_t *value)
{
    uint64_t n = json_string_length(value);
    size_t i;
    const char *key;
    json_t *item;
    if (json_is_array(value)) json_array_foreach (value, i, item) n += text_bytes(item);
    if (json_is_object(value))
        json_object_foreach ((json_t *)value, key, item) n += text_bytes(item);
    return n;
}

static zp_status open_chat(struct servejob *j)
{
    uint64_t n_bytes = text_bytes(json_object_get(j->r.input, "messages"));
    /* A template may leave messages out: only what is far too long is refused unread. */
    uint64_t least = servemodel_least_tokens(j->reads, n_bytes);
    if (j->r.truncation != TRUNCATE_NEVER) return servejob_open_truncated(j);
    if (least / 2 >= j->reads->n_ctx) ZP_TRY(check_length(j, least, true)); // Q1
    ZP_TRY(check_messages(j));
    ZP_TRY(apiprompt_open_chat(&j->prompts[0].p, j->reads->model, &j->r, &j->fault));
    return check_length(j, j->prompts[0].p.ids.count, false);
}

static zp_status open_prompts(struct servejob *j)
{
    bool chat = j->endpoint == SERVE_CHAT || j->endpoint == SERVE_MESSAGES;
    uint32_t n = chat ? 1 : (uint32_t)j->r.n_prompts;
    j->prompts = mem_array(MEM_SERVE, n, sizeof *j->prompts);
    if (j->prompts == NULL) return apifault_no_memory(&j->fault);
    memset(j->prompts, 0, n * sizeof *j->prompts);
    j->n_prompts = n;
    if (chat) return open_chat(j);
    for (uint32_t i = 0; i < n; i++) ZP_TRY(open_text(j, i));
    return ZP_OK;
}

/* <TIME>: mode full, whatever the request or the server would have it run in. */
static void take_time(struct servejob *j)
{
    for (uint32_t i = 0; i < j->n_prompts; i++)
        if (j->prompts[i].p.anchors.time) {
            j->r.job.mode = ZP_MODE_FULL;
            j->r.has_mode = true;
        }
}

void servejob_read(struct servejob *j)
{
    if (servejob_read_body(j) != ZP_OK || check_model(j) != ZP_OK || open_prompts(j) != ZP_OK)
        return;
    take_time(j);
    (void)apiprompt_open_grammar(&j->grammar, &j->prompts[0].p, j->reads->model, &j->r, &j->fault);
}
