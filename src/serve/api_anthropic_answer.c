/* api_anthropic_answer.c: answers in the shapes of Anthropic's API.
 * W1 an event's name is its data's type.  W2 blocks do not overlap, count up from 0, and each is
 * stopped before the next one or the end.  W3 a block of text or thinking begins with its first
 * character: there is no empty one. */
#include "serve/api_anthropic.h"

#include <string.h>

#include "base/json_tree.h"

#define MOST_DATA ((size_t)64 << 20)

/* ---- common ---------------------------------------------------------------------------------- */

static void write_bytes(struct json_build *w, const char *key, const struct buffer *text)
{
    json_build_bytes(w, key, (const char *)text->data, text->size);
}

static const char *reason_of(enum api_finish finish, uint32_t n_calls)
{
    if (finish == FINISH_LENGTH) return "max_tokens";
    if (n_calls != 0) return "tool_use";
    return finish == FINISH_STOP ? "stop_sequence" : "end_turn";
}

static void write_reason(enum api_finish finish, const char *stop, uint32_t n_calls,
                         struct json_build *w)
{
    bool by_stop = finish == FINISH_STOP && n_calls == 0;
    json_build_text(w, "stop_reason", reason_of(finish, n_calls));
    json_build_text(w, "stop_sequence", by_stop ? stop : NULL);
}

/* Tokens from the cache are not among Anthropic's input_tokens. */
static void write_usage(const struct api_usage *u, struct json_build *w)
{
    json_build_object(w, "usage");
    json_build_uint(w, "input_tokens", u->n_prompt - u->n_cached);
    json_build_uint(w, "cache_creation_input_tokens", 0);
    json_build_uint(w, "cache_read_input_tokens", u->n_cached);
    json_build_uint(w, "output_tokens", u->n_answer);
    api_usage_write(u, w);
    json_build_object_end(w);
}

static void write_head(const struct api_identity *who, struct json_build *w)
{
    json_build_text(w, "id", who->id);
    json_build_text(w, "type", "message");
    json_build_text(w, "role", "assistant");
}

/* ---- whole answers --------------------------------------------------------------------------- */

/* The arguments of a call as an object. What a model wrote otherwise, or did not finish, is kept
 * under the name that Anthropic advises for it. */
static zp_status write_input(const struct buffer *arguments, struct json_build *w)
{
    json_t *value;
    zp_status status = json_tree_read((const char *)arguments->data, arguments->size, "arguments",
                                      ZP_BAD_INPUT, &value, NULL);
    ZP_FAIL_IF(status == ZP_NO_MEMORY, w->err, status, "not enough memory for arguments");
    if (arguments->size == 0 || json_is_object(value)) {
        bool none = arguments->size == 0;
        json_build_raw(w, "input", none ? "{}" : (const char *)arguments->data,
                       none ? 2 : arguments->size);
    } else {
        json_build_object(w, "input");
        write_bytes(w, "INVALID_JSON", arguments);
        json_build_object_end(w);
    }
    json_decref(value);
    return ZP_OK;
}

/* The content from `from` to `to` as a block, without any none. */
static void write_content(const struct buffer *content, size_t from, size_t to,
                          struct json_build *w)
{
    if (from == to) return;
    json_build_object(w, NULL);
    json_build_text(w, "type", "text");
    json_build_bytes(w, "text", (const char *)content->data + from, to - from);
    json_build_object_end(w);
}

static zp_status write_call(const struct api_answer *a, uint32_t call, struct json_build *w)
{
    const struct api_call *c = &a->choices[0].calls[call];
    struct api_id room;
    json_build_object(w, NULL);
    json_build_text(w, "type", "tool_use");
    json_build_text(w, "id", api_call_id(&room, "toolu_", &a->who, 0, call));
    write_bytes(w, "name", &c->name);
    ZP_TRY(write_input(&c->arguments, w));
    json_build_object_end(w);
    return ZP_OK;
}

/* The blocks that a stream of the same parts has. */
static zp_status write_blocks(const struct api_answer *a, struct json_build *w)
{
    const struct api_choice *c = &a->choices[0];
    size_t from = 0;
    if (c->reasoning.size != 0) {
        json_build_object(w, NULL);
        json_build_text(w, "type", "thinking");
        write_bytes(w, "thinking", &c->reasoning);
        json_build_text(w, "signature", "");
        json_build_object_end(w);
    }
    for (uint32_t i = 0; i < c->n_calls; i++) {
        write_content(&c->content, from, c->calls[i].at, w);
        from = c->calls[i].at;
        ZP_TRY(write_call(a, i, w));
    }
    write_content(&c->content, from, c->content.size, w);
    return ZP_OK;
}

zp_status anthropic_write_answer(const struct api_request *r, const struct api_answer *a,
                                 const struct api_usage *usage, struct buffer *out, zp_err *err)
{
    const struct api_choice *c = &a->choices[0];
    struct json_build w;
    json_build_append(&w, out, err);
    json_build_object(&w, NULL);
    write_head(&a->who, &w);
    json_build_array(&w, "content");
    ZP_TRY(write_blocks(a, &w));
    json_build_array_end(&w);
    json_build_text(&w, "model", a->who.model);
    write_reason(c->finish, c->stop, c->n_calls, &w);
    write_usage(usage, &w);
    if (r->timings) api_timings_write(usage, &w);
    json_build_object_end(&w);
    return w.status;
}

zp_status anthropic_write_count(uint64_t n_tokens, struct buffer *out, zp_err *err)
{
    struct json_build w;
    json_build_append(&w, out, err);
    json_build_object(&w, NULL);
    json_build_uint(&w, "input_tokens", n_tokens);
    json_build_object_end(&w);
    return w.status;
}

/* ---- streams --------------------------------------------------------------------------------- */

void anthropic_stream_open(struct anthropic_stream *s, const struct api_request *r,
                           const struct api_identity *who, struct api_emit emit)
{
    *s = (struct anthropic_stream){ .r = r, .who = *who, .emit = emit,
                                    .data = buffer_with_max(MEM_SERVE, MOST_DATA) };
}

void anthropic_stream_free(struct anthropic_stream *s)
{
    buffer_free(&s->data);
    *s = (struct anthropic_stream){ 0 };
}

static void begin_event(struct anthropic_stream *s, const char *type, struct json_build *w,
                        zp_err *err)
{
    buffer_clear(&s->data);
    json_build_append(w, &s->data, err);
    json_build_object(w, NULL);
    json_build_text(w, "type", type);
}

static zp_status end_event(struct anthropic_stream *s, const char *type, struct json_build *w)
{
    json_build_object_end(w);
    if (w->status == ZP_OK)
        s->emit.call(s->emit.arg, type, (const char *)s->data.data, s->data.size);
    return w->status;
}

zp_status anthropic_stream_ping(struct anthropic_stream *s, zp_err *err)
{
    struct json_build w;
    begin_event(s, "ping", &w, err);
    return end_event(s, "ping", &w);
}

zp_status anthropic_stream_begin(struct anthropic_stream *s, const struct api_usage *usage,
                                 zp_err *err)
{
    struct json_build w;
    begin_event(s, "message_start", &w, err);
    json_build_object(&w, "message");
    write_head(&s->who, &w);
    json_build_array(&w, "content");
    json_build_array_end(&w);
    json_build_text(&w, "model", s->who.model);
    json_build_null(&w, "stop_reason");
    json_build_null(&w, "stop_sequence");
    write_usage(usage, &w);
    json_build_object_end(&w);
    ZP_TRY(end_event(s, "message_start", &w));
    return anthropic_stream_ping(s, err);
}

/* In a ping, which every client knows. */
zp_status anthropic_stream_progress(struct anthropic_stream *s, const struct sched_progress *p,
                                    zp_err *err)
{
    struct json_build w;
    begin_event(s, "ping", &w, err);
    api_progress_write(p, &w);
    return end_event(s, "ping", &w);
}

static zp_status write_delta(struct anthropic_stream *s, const char *type, const char *key,
                             const char *text, size_t size, zp_err *err)
{
    struct json_build w;
    begin_event(s, "content_block_delta", &w, err);
    json_build_uint(&w, "index", s->index);
    json_build_object(&w, "delta");
    json_build_text(&w, "type", type);
    json_build_bytes(&w, key, text, size);
    json_build_object_end(&w);
    return end_event(s, "content_block_delta", &w);
}

/* Thinking is signed by who thought it; ours is not, and says so by a signature that is empty. */
static zp_status stop_block(struct anthropic_stream *s, zp_err *err)
{
    struct json_build w;
    if (!s->in_block) return ZP_OK;
    if (s->block == PART_REASONING)
        ZP_TRY(write_delta(s, "signature_delta", "signature", "", 0, err));
    begin_event(s, "content_block_stop", &w, err);
    json_build_uint(&w, "index", s->index);
    s->in_block = false;
    s->index++;
    return end_event(s, "content_block_stop", &w);
}

static zp_status start_block(struct anthropic_stream *s, const struct api_part *part, zp_err *err)
{
    struct json_build w;
    struct api_id room;
    ZP_TRY(stop_block(s, err)); // W2
    begin_event(s, "content_block_start", &w, err);
    json_build_uint(&w, "index", s->index);
    json_build_object(&w, "content_block");
    if (part->kind == PART_CONTENT) {
        json_build_text(&w, "type", "text");
        json_build_text(&w, "text", "");
    } else if (part->kind == PART_REASONING) {
        json_build_text(&w, "type", "thinking");
        json_build_text(&w, "thinking", "");
        json_build_text(&w, "signature", "");
    } else {
        json_build_text(&w, "type", "tool_use");
        json_build_text(&w, "id", api_call_id(&room, "toolu_", &s->who, 0, s->n_calls++));
        json_build_bytes(&w, "name", part->text, part->size);
        json_build_object(&w, "input");
        json_build_object_end(&w);
    }
    json_build_object_end(&w);
    s->in_block = true;
    s->block = part->kind;
    return end_event(s, "content_block_start", &w);
}

zp_status anthropic_stream_part(struct anthropic_stream *s, const struct api_part *part,
                                zp_err *err)
{
    if (part->kind == PART_CALL) return start_block(s, part, err);
    if (part->size == 0) return ZP_OK; // W3
    if (part->kind == PART_ARGUMENTS)
        return write_delta(s, "input_json_delta", "partial_json", part->text, part->size, err);
    if (!s->in_block || s->block != part->kind) ZP_TRY(start_block(s, part, err));
    bool text = part->kind == PART_CONTENT;
    return write_delta(s, text ? "text_delta" : "thinking_delta", text ? "text" : "thinking",
                       part->text, part->size, err);
}

zp_status anthropic_stream_end(struct anthropic_stream *s, enum api_finish finish, const char *stop,
                               const struct api_usage *usage, zp_err *err)
{
    struct json_build w;
    ZP_TRY(stop_block(s, err));
    begin_event(s, "message_delta", &w, err);
    json_build_object(&w, "delta");
    write_reason(finish, stop, s->n_calls, &w);
    json_build_object_end(&w);
    write_usage(usage, &w);
    if (s->r->timings) api_timings_write(usage, &w);
    ZP_TRY(end_event(s, "message_delta", &w));
    begin_event(s, "message_stop", &w, err);
    return end_event(s, "message_stop", &w);
}

zp_status anthropic_stream_fail(struct anthropic_stream *s, const struct apifault *fault,
                                zp_err *err)
{
    buffer_clear(&s->data);
    ZP_TRY(apifault_write(fault, API_ANTHROPIC, NULL, &s->data, err));
    s->emit.call(s->emit.arg, "error", (const char *)s->data.data, s->data.size);
    return ZP_OK;
}
