/* chatstream.c: chunks of an answer: text, why it ended, tokens.
 * C1 every piece that is told is in `text`, and that has at most its max.
 * C2 unknown members are passed over; known ones of another type are an error. */
#include "chatstream.h"

#include <string.h>

#include "base/json_tree.h"
#include "servererror.h"

static zp_status take_event(void *arg, const char *name, const char *data, size_t size,
                            zp_err *err);

void chatstream_open(struct chatstream *s, size_t most_text,
                     bool (*on_text)(void *arg, const char *text, size_t size), void *arg)
{
    *s = (struct chatstream){ .sse = sse_with_most(CHATSTREAM_MOST_EVENT, take_event, s),
                              .text = buffer_with_max(MEM_META, most_text),
                              .on_text = on_text,
                              .arg = arg };
}

void chatstream_free(struct chatstream *s)
{
    sse_free(&s->sse);
    buffer_free(&s->text);
}

/* The member, if there is one and it is not null; of another type: an error. */
static zp_status member(const json_t *object, const char *key, json_type type, json_t **out,
                        zp_err *err)
{
    json_t *value = json_object_get(object, key);
    *out = NULL;
    if (value == NULL || json_is_null(value)) return ZP_OK;
    ZP_FAIL_IF(json_typeof(value) != type, err, ZP_RUN,
               "the server's answer has a member \"%s\" of the wrong type", key);
    *out = value;
    return ZP_OK;
}

static zp_status take_text(struct chatstream *s, const json_t *text, zp_err *err)
{
    const char *piece = json_string_value(text);
    size_t size = json_string_length(text);
    if (size == 0) return ZP_OK;
    ZP_FAIL_IF(size > s->text.max - s->text.size, err, ZP_RUN,
               "the server's answer has more than %zu bytes", s->text.max);
    ZP_TRY(buffer_append(&s->text, piece, size, err)); // C1
    ZP_FAIL_IF(s->on_text != NULL && !s->on_text(s->arg, piece, size), err, ZP_INTERRUPTED,
               "stopped");
    return ZP_OK;
}

/* It will be shown: a word of plain characters. */
static void take_reason(struct chatstream *s, const char *word)
{
    size_t n = 0;
    for (; word[n] != '\0' && n + 1 < sizeof s->reason; n++)
        s->reason[n] = word[n] > ' ' && word[n] < 0x7f ? word[n] : '?';
    s->reason[n] = '\0';
}

static zp_status take_choice(struct chatstream *s, const json_t *choice, zp_err *err)
{
    json_t *index, *delta, *text, *reason;
    ZP_FAIL_IF(!json_is_object(choice), err, ZP_RUN, "the server's answer has a choice that is no "
                                                     "object");
    ZP_TRY(member(choice, "index", JSON_INTEGER, &index, err));
    if (json_integer_value(index) != 0) return ZP_OK; /* one answer was asked for */
    ZP_TRY(member(choice, "delta", JSON_OBJECT, &delta, err));
    ZP_TRY(member(delta, "content", JSON_STRING, &text, err));
    ZP_TRY(member(choice, "finish_reason", JSON_STRING, &reason, err));
    if (text != NULL) ZP_TRY(take_text(s, text, err));
    if (reason != NULL) take_reason(s, json_string_value(reason));
    return ZP_OK;
}

static uint64_t count(const json_t *value)
{
    json_int_t n = json_integer_value(value);
    return n > 0 ? (uint64_t)n : 0;
}

static zp_status take_usage(struct chatstream *s, const json_t *usage, zp_err *err)
{
    json_t *prompt, *generated, *details, *reused;
    ZP_TRY(member(usage, "prompt_tokens", JSON_INTEGER, &prompt, err));
    ZP_TRY(member(usage, "completion_tokens", JSON_INTEGER, &generated, err));
    ZP_TRY(member(usage, "prompt_tokens_details", JSON_OBJECT, &details, err));
    ZP_TRY(member(details, "cached_tokens", JSON_INTEGER, &reused, err));
    s->has_usage = prompt != NULL && generated != NULL;
    s->n_prompt = count(prompt);
    s->n_generated = count(generated);
    s->n_reused = count(reused);
    return ZP_OK;
}

static zp_status take_chunk(struct chatstream *s, const json_t *chunk, zp_err *err)
{
    json_t *choices, *usage;
    ZP_TRY(member(chunk, "choices", JSON_ARRAY, &choices, err));
    ZP_TRY(member(chunk, "usage", JSON_OBJECT, &usage, err));
    for (size_t i = 0; i < json_array_size(choices); i++)
        ZP_TRY(take_choice(s, json_array_get(choices, i), err));
    return usage != NULL ? take_usage(s, usage, err) : ZP_OK;
}

static zp_status take_event(void *arg, const char *name, const char *data, size_t size, zp_err *err)
{
    struct chatstream *s = arg;
    json_t *chunk = NULL;
    if (s->done) return ZP_OK;
    if (size == 6 && memcmp(data, "[DONE]", 6) == 0) {
        s->done = true;
        return ZP_OK;
    }
    ZP_TRY(json_tree_read(data, size, "the server's answer", ZP_RUN, &chunk, err));
    char words[SERVERERROR_ROOM];
    zp_status status = ZP_OK;
    if (servererror_of_json(chunk, words) || strcmp(name, "error") == 0)
        status = status_fail(err, ZP_RUN, __FILE__, __LINE__, "the server ended the answer: %s",
                             words);
    else status = take_chunk(s, chunk, err);
    json_decref(chunk);
    return status;
}

zp_status chatstream_push(struct chatstream *s, const void *bytes, size_t size, zp_err *err)
{
    return s->done ? ZP_OK : sse_push(&s->sse, bytes, size, err);
}

zp_status chatstream_finish(const struct chatstream *s, zp_err *err)
{
    ZP_FAIL_IF(!s->done && s->reason[0] == '\0', err, ZP_IO,
               "the server ended the connection before its answer was whole");
    return ZP_OK;
}
