/* api_openai_answer.c: answers in the shapes of OpenAI's API.
 * W1 a stream's chunks bear the same id, time and model, and each choice begins with its role.
 * W2 a choice's finish_reason comes once, behind all of its parts.
 * W3 log-probabilities come with the part that their tokens are shown in, or with the finish. */
#include "serve/api_openai.h"

#include <string.h>

#define MOST_CHUNK ((size_t)64 << 20)

/* ---- common ---------------------------------------------------------------------------------- */

static void write_text(struct json_build *w, const char *key, const struct buffer *text)
{
    json_build_bytes(w, key, (const char *)text->data, text->size);
}

static void write_head(struct json_build *w, const struct api_request *r,
                       const struct api_identity *who, bool chunk)
{
    const char *object = r->set != SET_CHAT ? "text_completion"
                         : chunk            ? "chat.completion.chunk"
                                            : "chat.completion";
    json_build_text(w, "id", who->id);
    json_build_text(w, "object", object);
    json_build_int(w, "created", who->created);
    json_build_text(w, "model", who->model);
    json_build_text(w, "system_fingerprint", who->fingerprint);
}

static const char *finish_of(const struct api_request *r, enum api_finish finish, uint32_t n_calls)
{
    if (finish == FINISH_LENGTH) return "length";
    if (n_calls == 0) return "stop";
    return r->functions ? "function_call" : "tool_calls";
}

static void write_usage(const struct api_usage *u, struct json_build *w)
{
    json_build_object(w, "usage");
    json_build_uint(w, "prompt_tokens", u->n_prompt);
    json_build_uint(w, "completion_tokens", u->n_answer);
    json_build_uint(w, "total_tokens", u->n_prompt + u->n_answer);
    json_build_object(w, "prompt_tokens_details");
    json_build_uint(w, "cached_tokens", u->n_cached);
    json_build_object_end(w);
    api_usage_write(u, w);
    json_build_object_end(w);
}

/* ---- whole answers --------------------------------------------------------------------------- */

static void write_function(const struct api_call *call, const char *key, struct json_build *w)
{
    json_build_object(w, key);
    write_text(w, "name", &call->name);
    write_text(w, "arguments", &call->arguments);
    json_build_object_end(w);
}

static void write_calls(const struct api_answer *a, uint32_t choice, struct json_build *w)
{
    const struct api_choice *c = &a->choices[choice];
    json_build_array(w, "tool_calls");
    for (uint32_t i = 0; i < c->n_calls; i++) {
        struct api_id room;
        json_build_object(w, NULL);
        json_build_text(w, "id", api_call_id(&room, "call_", &a->who, choice, i));
        json_build_text(w, "type", "function");
        write_function(&c->calls[i], "function", w);
        json_build_object_end(w);
    }
    json_build_array_end(w);
}

static void write_message(const struct api_request *r, const struct api_answer *a, uint32_t choice,
                          struct json_build *w)
{
    const struct api_choice *c = &a->choices[choice];
    json_build_object(w, "message");
    json_build_text(w, "role", "assistant");
    if (c->content.size == 0 && c->n_calls != 0) json_build_null(w, "content");
    else write_text(w, "content", &c->content);
    json_build_null(w, "refusal");
    if (c->reasoning.size != 0) write_text(w, "reasoning_content", &c->reasoning);
    if (c->n_calls != 0 && r->functions) write_function(&c->calls[0], "function_call", w);
    else if (c->n_calls != 0) write_calls(a, choice, w);
    json_build_object_end(w);
}

static void write_choice(const struct api_request *r, const struct api_answer *a, uint32_t choice,
                         struct json_build *w)
{
    const struct api_choice *c = &a->choices[choice];
    json_build_object(w, NULL);
    json_build_uint(w, "index", choice);
    if (r->set == SET_CHAT) write_message(r, a, choice, w);
    else write_text(w, "text", &c->content);
    apilogprobs_write(&c->logprobs, w);
    json_build_text(w, "finish_reason", finish_of(r, c->finish, c->n_calls));
    json_build_object_end(w);
}

zp_status openai_write_answer(const struct api_request *r, const struct api_answer *a,
                              const struct api_usage *usage, struct buffer *out, zp_err *err)
{
    struct json_build w;
    json_build_append(&w, out, err);
    json_build_object(&w, NULL);
    write_head(&w, r, &a->who, false);
    json_build_array(&w, "choices");
    for (uint32_t i = 0; i < a->n_choices; i++) write_choice(r, a, i, &w);
    json_build_array_end(&w);
    write_usage(usage, &w);
    if (r->timings) api_timings_write(usage, &w);
    json_build_object_end(&w);
    return w.status;
}

/* ---- streams --------------------------------------------------------------------------------- */

zp_status openai_stream_open(struct openai_stream *s, const struct api_request *r,
                             const struct api_identity *who, uint32_t n_choices,
                             struct api_emit emit, zp_err *err)
{
    *s = (struct openai_stream){ .r = r, .who = *who, .emit = emit };
    s->chunk = buffer_with_max(MEM_SERVE, MOST_CHUNK);
    ZP_ALLOC(s->choices, MEM_SERVE, n_choices, err, "a stream");
    s->n_choices = n_choices;
    for (uint32_t i = 0; i < n_choices; i++)
        s->choices[i] = (struct openai_choice){ .logprobs =
                                                    apilogprobs_open(r->set == SET_CHAT) };
    return ZP_OK;
}

void openai_stream_free(struct openai_stream *s)
{
    for (uint32_t i = 0; i < s->n_choices; i++) apilogprobs_free(&s->choices[i].logprobs);
    mem_free(s->choices);
    buffer_free(&s->chunk);
    *s = (struct openai_stream){ 0 };
}

static void begin_chunk(struct openai_stream *s, struct json_build *w, zp_err *err)
{
    buffer_clear(&s->chunk);
    json_build_append(w, &s->chunk, err);
    json_build_object(w, NULL);
    write_head(w, s->r, &s->who, true);
    json_build_array(w, "choices");
}

static zp_status emit_chunk(struct openai_stream *s, struct json_build *w)
{
    json_build_object_end(w);
    if (w->status == ZP_OK)
        s->emit.call(s->emit.arg, NULL, (const char *)s->chunk.data, s->chunk.size);
    return w->status;
}

/* A chunk of one choice: this, the delta's members or the text, and end_choice. */
static void begin_choice(struct openai_stream *s, uint32_t choice, struct json_build *w,
                         zp_err *err)
{
    begin_chunk(s, w, err);
    json_build_object(w, NULL);
    json_build_uint(w, "index", choice);
    if (s->r->set == SET_CHAT) json_build_object(w, "delta");
}

/* Where usage was asked for, every chunk before the end has it as null. */
static void end_choice(struct openai_stream *s, struct apilogprobs *logprobs, const char *finish,
                       struct json_build *w)
{
    if (s->r->set == SET_CHAT) json_build_object_end(w);
    if (logprobs == NULL) json_build_null(w, "logprobs");
    else apilogprobs_write(logprobs, w);
    json_build_text(w, "finish_reason", finish);
    json_build_object_end(w);
    json_build_array_end(w);
    if (s->r->include_usage) json_build_null(w, "usage");
    if (logprobs != NULL && w->status == ZP_OK) apilogprobs_clear(logprobs);
}

/* W1 */
static zp_status begin(struct openai_stream *s, uint32_t choice, zp_err *err)
{
    struct json_build w;
    if (s->choices[choice].begun || s->r->set != SET_CHAT) return ZP_OK;
    s->choices[choice].begun = true;
    begin_choice(s, choice, &w, err);
    json_build_text(&w, "role", "assistant");
    json_build_text(&w, "content", "");
    end_choice(s, NULL, NULL, &w);
    return emit_chunk(s, &w);
}

zp_status openai_stream_token(struct openai_stream *s, uint32_t choice, const struct sched_token *t,
                              zp_err *err)
{
    return apilogprobs_add(&s->choices[choice].logprobs, t, err);
}

/* The beginning of call number `index`, or a piece of its arguments. */
static void write_call_part(struct openai_stream *s, uint32_t choice, const struct api_part *part,
                            struct json_build *w)
{
    bool first = part->kind == PART_CALL;
    uint32_t index = s->choices[choice].n_calls - 1;
    struct api_id room;
    if (!s->r->functions) {
        json_build_array(w, "tool_calls");
        json_build_object(w, NULL);
        json_build_uint(w, "index", index);
        if (first) {
            json_build_text(w, "id", api_call_id(&room, "call_", &s->who, choice, index));
            json_build_text(w, "type", "function");
        }
    }
    json_build_object(w, s->r->functions ? "function_call" : "function");
    if (first) json_build_bytes(w, "name", part->text, part->size);
    json_build_bytes(w, "arguments", first ? "" : part->text, first ? 0 : part->size);
    json_build_object_end(w);
    if (s->r->functions) return;
    json_build_object_end(w);
    json_build_array_end(w);
}

zp_status openai_stream_part(struct openai_stream *s, uint32_t choice, const struct api_part *part,
                             zp_err *err)
{
    struct openai_choice *c = &s->choices[choice];
    struct json_build w;
    if (part->size == 0 && part->kind != PART_CALL) return ZP_OK;
    ZP_TRY(begin(s, choice, err));
    c->n_calls += part->kind == PART_CALL;
    begin_choice(s, choice, &w, err);
    if (part->kind == PART_CALL || part->kind == PART_ARGUMENTS)
        write_call_part(s, choice, part, &w);
    else
        json_build_bytes(&w,
                         s->r->set != SET_CHAT            ? "text"
                         : part->kind == PART_REASONING ? "reasoning_content"
                                                          : "content",
                         part->text, part->size);
    end_choice(s, &c->logprobs, NULL, &w);
    return emit_chunk(s, &w);
}

/* Of the first choice: clients look for one in every chunk. */
zp_status openai_stream_progress(struct openai_stream *s, const struct sched_progress *p,
                                 zp_err *err)
{
    struct json_build w;
    ZP_TRY(begin(s, 0, err));
    begin_choice(s, 0, &w, err);
    if (s->r->set != SET_CHAT) json_build_text(&w, "text", "");
    end_choice(s, NULL, NULL, &w);
    api_progress_write(p, &w);
    return emit_chunk(s, &w);
}

zp_status openai_stream_finish(struct openai_stream *s, uint32_t choice, enum api_finish finish,
                               zp_err *err)
{
    struct openai_choice *c = &s->choices[choice];
    struct json_build w;
    ZP_TRY(begin(s, choice, err));
    begin_choice(s, choice, &w, err);
    if (s->r->set != SET_CHAT) json_build_text(&w, "text", "");
    end_choice(s, &c->logprobs, finish_of(s->r, finish, c->n_calls), &w);
    return emit_chunk(s, &w);
}

zp_status openai_stream_end(struct openai_stream *s, const struct api_usage *usage, zp_err *err)
{
    static const char done[] = "[DONE]";
    if (s->r->include_usage || s->r->timings) {
        struct json_build w;
        begin_chunk(s, &w, err);
        json_build_array_end(&w);
        if (s->r->include_usage) write_usage(usage, &w);
        if (s->r->timings) api_timings_write(usage, &w);
        ZP_TRY(emit_chunk(s, &w));
    }
    s->emit.call(s->emit.arg, NULL, done, sizeof done - 1);
    return ZP_OK;
}

zp_status openai_stream_fail(struct openai_stream *s, const struct apifault *fault, zp_err *err)
{
    buffer_clear(&s->chunk);
    ZP_TRY(apifault_write(fault, API_OPENAI, NULL, &s->chunk, err));
    s->emit.call(s->emit.arg, NULL, (const char *)s->chunk.data, s->chunk.size);
    return ZP_OK;
}
