/* fuzz_apirequest.c: any bytes as the body of a request of every API: it is refused in valid words,
 * or what was read is within its bounds, and replies to it are valid JSON. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "serve/api_plain.h"
#include "serve/apireply.h"
#include "serve/toolprompt.h"

static const struct api_limits limits = { .n_vocab = 50000 };
static const struct api_identity who = { .id = "id", .seed = "seed", .model = "m" };

static void must(bool good)
{
    if (!good) abort();
}

static void check_json(struct buffer *b)
{
    json_t *value = json_loadb(b->size ? (const char *)b->data : "", b->size, JSON_ALLOW_NUL, NULL);
    must(value != NULL);
    json_decref(value);
    buffer_clear(b);
}

static void check_fault(const struct apifault *f)
{
    struct buffer b = buffer_with_max(MEM_META, 1 << 20);
    must(f->status == 400 && f->code != NULL && f->message[0] != '\0');
    must(utf8_is_valid(f->message, strlen(f->message), NULL));
    must(utf8_is_valid(f->param, strlen(f->param), NULL));
    must(apifault_write(f, API_OPENAI, NULL, &b, NULL) == ZP_OK);
    check_json(&b);
    must(apifault_write(f, API_ANTHROPIC, "id", &b, NULL) == ZP_OK);
    check_json(&b);
    buffer_free(&b);
}

static void check_bounds(const struct api_request *r)
{
    const zp_sampler_options *s = &r->job.sampler;
    must(r->job.n_stop <= ZP_STOPS_MAX && r->job.n_top <= SCHED_MOST_TOP);
    must(r->job.n_choices >= 1 && r->job.n_choices <= API_MOST_CHOICES);
    must(s->temperature >= 0 && s->temperature <= 100 && s->top_p >= 0 && s->top_p <= 1);
    for (size_t i = 0; i < r->job.n_stop; i++) must(r->job.stop[i][0] != '\0');
    for (size_t i = 0; i < s->n_bias; i++) must((uint32_t)s->bias[i].id < limits.n_vocab);
    for (size_t i = 0; i < r->n_prompts; i++)
        for (size_t k = 0; k < r->prompts[i].n_ids; k++)
            must((uint32_t)r->prompts[i].ids[k] < limits.n_vocab);
    must(r->form != FORM_SCHEMA || r->form_text != NULL);
}

/* What templates take for granted. */
static void check_messages(const json_t *input)
{
    const json_t *messages = json_object_get(input, "messages");
    must(json_array_size(messages) != 0);
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *message = json_array_get(messages, i),
                     *content = json_object_get(message, "content");
        must(json_string_length(json_object_get(message, "role")) != 0);
        must(content == NULL || json_is_null(content) || json_is_string(content));
    }
}

static void check_tools(const struct api_request *r)
{
    struct toolform f;
    zp_err err = { 0 };
    if (r->tools == NULL) return;
    zp_status status = toolform_open(&f, TOOLCALLS_TAGGED, r->tools, r->tool_name, &err);
    if (status == ZP_OK) check_json(&f.schema);
    toolform_free(&f);
}

static void take_event(void *arg, const char *event, const char *data, size_t size)
{
    struct buffer *b = arg;
    must(event == NULL || strlen(event) != 0);
    if (size == 6 && memcmp(data, "[DONE]", 6) == 0) return;
    must(buffer_append(b, data, size, NULL) == ZP_OK);
    check_json(b);
}

/* The body itself as what the model said, token by token of 7 bytes. */
static void say(struct apireply *a, uint32_t job, const char *text, size_t size)
{
    struct sched_event e = { .kind = SCHED_TOKEN };
    while (size != 0) {
        size_t n = size < 7 ? size : 7;
        e.token = (struct sched_token){ .text = text, .size = n, .has_logprob = true,
                                        .own = { 1, -1, text, n } };
        (void)apireply_event(a, job, &e);
        text += n, size -= n;
    }
    for (uint32_t i = 0; i < a->o.r->job.n_choices; i++)
        (void)apireply_event(a, job, &(struct sched_event){ .kind = SCHED_ENDED,
                                                            .ended = { i, "stop", 0 } });
    (void)apireply_event(a, job, &(struct sched_event){ .kind = SCHED_DONE });
}

static void answer(const struct api_request *r, const char *text, size_t size)
{
    struct buffer out = buffer_with_max(MEM_META, 1 << 24);
    const struct apireply_options o = { .r = r, .who = who, .emit = { take_event, &out },
                                        .style = (enum toolcalls_style)(size % 3) };
    struct apireply a;
    must(apireply_open(&a, &o, NULL) == ZP_OK);
    (void)apireply_event(&a, 0, &(struct sched_event){ .kind = SCHED_ACCEPTED });
    for (uint32_t i = 0; i < a.n_jobs; i++) say(&a, i, text, size);
    must(a.state == REPLY_ENDED && apireply_finish(&a, &out, NULL) == ZP_OK);
    if (!r->stream) check_json(&out);
    apireply_free(&a);
    buffer_free(&out);
}

typedef zp_status (*reader)(struct api_request *r, const char *body, size_t size,
                            const struct api_limits *limits, struct apifault *fault);

static void run(reader read, const char *body, size_t size)
{
    struct api_request r;
    struct apifault fault = { 0 };
    if (read(&r, body, size, &limits, &fault) == ZP_OK) {
        check_bounds(&r);
        check_tools(&r);
        if (r.input != NULL) {
            check_messages(r.input);
            must(toolprompt_apply(r.input, NULL) == ZP_OK);
            check_messages(r.input);
        }
        answer(&r, body, size);
    } else {
        check_fault(&fault);
    }
    apirequest_free(&r);
}

typedef zp_status (*plain_reader)(struct plain_request *r, const char *body, size_t size,
                                  const struct api_limits *limits, struct apifault *fault);

static void run_plain(plain_reader read, const char *body, size_t size)
{
    struct plain_request r;
    struct apifault fault = { 0 };
    if (read(&r, body, size, &limits, &fault) != ZP_OK) check_fault(&fault);
    plain_free(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *body = (const char *)data;
    run(openai_read_chat, body, size);
    run(openai_read_completions, body, size);
    run(anthropic_read_messages, body, size);
    run_plain(plain_read_embeddings, body, size);
    run_plain(plain_read_tokenize, body, size);
    run_plain(plain_read_detokenize, body, size);
    return 0;
}
