/* apilogprobs.c: log-probabilities as JSON, token by token.
 * L1 the buffers hold values of JSON with commas between them, as many in each as tokens were
 *    added. */
#include "serve/apilogprobs.h"

#include <string.h>

#define MOST_BYTES ((size_t)1 << 30)
#define DIGITS 9

struct apilogprobs apilogprobs_open(bool chat)
{
    struct buffer b = buffer_with_max(MEM_SERVE, MOST_BYTES);
    return (struct apilogprobs){ .chat = chat, .tokens = b, .values = b, .top = b, .offsets = b };
}

void apilogprobs_free(struct apilogprobs *l)
{
    buffer_free(&l->tokens);
    buffer_free(&l->values);
    buffer_free(&l->top);
    buffer_free(&l->offsets);
}

void apilogprobs_clear(struct apilogprobs *l)
{
    l->n = 0;
    buffer_clear(&l->tokens);
    buffer_clear(&l->values);
    buffer_clear(&l->top);
    buffer_clear(&l->offsets);
}

/* ---- texts of tokens ------------------------------------------------------------------------- */

enum { MOST_ESCAPED = 64 };

/* A text is a text; a part of a character is written byte by byte, "\xf0\x9f", as OpenAI does. */
struct shown {
    char text[4 * MOST_ESCAPED + 8];
    const char *data;
    size_t size;
};

static void show(const struct sched_logprob *p, const char *prefix, struct shown *out)
{
    static const char hex[] = "0123456789abcdef";
    out->data = p->bytes, out->size = p->n_bytes;
    bool whole = p->n_bytes == 0 || utf8_is_valid(p->bytes, p->n_bytes, NULL);
    if (whole || p->n_bytes > MOST_ESCAPED) return;
    size_t n = strlen(prefix);
    memcpy(out->text, prefix, n);
    for (size_t i = 0; i < p->n_bytes; i++) {
        uint8_t byte = (uint8_t)p->bytes[i];
        const char escaped[4] = { '\\', 'x', hex[byte >> 4], hex[byte & 15] };
        memcpy(out->text + n, escaped, 4);
        n += 4;
    }
    out->data = out->text, out->size = n;
}

static uint64_t count_characters(const struct sched_logprob *p)
{
    uint64_t n = 0;
    for (size_t i = 0; i < p->n_bytes; i++) n += ((uint8_t)p->bytes[i] & 0xc0) != 0x80;
    return n;
}

/* ---- chat ------------------------------------------------------------------------------------ */

static void write_members(const struct sched_logprob *p, bool has_logprob, struct json_build *w)
{
    struct shown s;
    show(p, "", &s);
    json_build_bytes(w, "token", s.data, s.size);
    if (has_logprob) json_build_real(w, "logprob", p->logprob, DIGITS);
    else json_build_null(w, "logprob");
    json_build_array(w, "bytes");
    for (size_t i = 0; i < p->n_bytes; i++) json_build_uint(w, NULL, (uint8_t)p->bytes[i]);
    json_build_array_end(w);
}

static zp_status add_chat(struct apilogprobs *l, const struct sched_token *t, zp_err *err)
{
    struct json_build w;
    json_build_append(&w, &l->tokens, err);
    w.comma = l->n != 0;
    json_build_object(&w, NULL);
    write_members(&t->own, t->has_logprob, &w);
    json_build_array(&w, "top_logprobs");
    for (uint32_t i = 0; i < t->n_top; i++) {
        json_build_object(&w, NULL);
        write_members(&t->top[i], true, &w);
        json_build_object_end(&w);
    }
    json_build_array_end(&w);
    json_build_object_end(&w);
    return w.status;
}

/* ---- completions ----------------------------------------------------------------------------- */

static bool is_same(const struct sched_logprob *a, const struct sched_logprob *b)
{
    return a->n_bytes == b->n_bytes &&
           (a->n_bytes == 0 || memcmp(a->bytes, b->bytes, a->n_bytes) == 0);
}

static void write_named(const struct sched_logprob *p, struct json_build *w)
{
    struct shown s;
    show(p, "bytes:", &s);
    json_build_key(w, s.data, s.size);
    json_build_real(w, NULL, p->logprob, DIGITS);
}

/* Names of an object: of tokens that read the same, the likeliest. The drawn one is among them. */
static void write_top(const struct sched_token *t, struct json_build *w)
{
    bool own = false;
    if (!t->has_logprob) {
        json_build_null(w, NULL);
        return;
    }
    json_build_object(w, NULL);
    for (uint32_t i = 0; i < t->n_top; i++) {
        bool twice = false;
        for (uint32_t k = 0; k < i; k++) twice = twice || is_same(&t->top[k], &t->top[i]);
        own = own || is_same(&t->top[i], &t->own);
        if (!twice) write_named(&t->top[i], w);
    }
    if (!own) write_named(&t->own, w);
    json_build_object_end(w);
}

static zp_status add_completion(struct apilogprobs *l, const struct sched_token *t, zp_err *err)
{
    struct json_build tokens, values, top, offsets;
    struct shown s;
    json_build_append(&tokens, &l->tokens, err);
    json_build_append(&values, &l->values, err);
    json_build_append(&top, &l->top, err);
    json_build_append(&offsets, &l->offsets, err);
    tokens.comma = values.comma = top.comma = offsets.comma = l->n != 0;
    show(&t->own, "bytes:", &s);
    json_build_bytes(&tokens, NULL, s.data, s.size);
    if (t->has_logprob) json_build_real(&values, NULL, t->own.logprob, DIGITS);
    else json_build_null(&values, NULL);
    write_top(t, &top);
    json_build_uint(&offsets, NULL, l->offset);
    ZP_TRY(tokens.status);
    ZP_TRY(values.status);
    ZP_TRY(top.status);
    return offsets.status;
}

/* ---- both ------------------------------------------------------------------------------------ */

zp_status apilogprobs_add(struct apilogprobs *l, const struct sched_token *t, zp_err *err)
{
    ZP_TRY(l->chat ? add_chat(l, t, err) : add_completion(l, t, err));
    l->n++;
    l->offset += count_characters(&t->own);
    return ZP_OK;
}

static void write_list(struct json_build *w, const char *key, const struct buffer *values)
{
    json_build_array(w, key);
    json_build_raw(w, NULL, (const char *)values->data, values->size);
    json_build_array_end(w);
}

void apilogprobs_write(const struct apilogprobs *l, struct json_build *w)
{
    if (l->n == 0) {
        json_build_null(w, "logprobs");
        return;
    }
    json_build_object(w, "logprobs");
    if (l->chat) {
        write_list(w, "content", &l->tokens);
        json_build_null(w, "refusal");
    } else {
        write_list(w, "tokens", &l->tokens);
        write_list(w, "token_logprobs", &l->values);
        write_list(w, "top_logprobs", &l->top);
        write_list(w, "text_offset", &l->offsets);
    }
    json_build_object_end(w);
}
