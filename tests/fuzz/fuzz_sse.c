/* fuzz_sse.c: any bytes as a stream of events, and as the answer of a chat server: in one piece and
 * byte by byte the same events, the same text and the same end come out. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "client/chatstream.h"
#include "client/servererror.h"

enum { MOST = 100 };

static void must(bool good)
{
    if (!good) abort();
}

static zp_status note(void *arg, const char *name, const char *data, size_t size, zp_err *err)
{
    struct buffer *out = arg;
    must(size > 0 && size <= MOST && data[size] == '\0' && strlen(name) < SSE_NAME);
    must(buffer_append(out, name, strlen(name) + 1, err) == ZP_OK);
    return buffer_append(out, data, size + 1, err);
}

static zp_status events(const uint8_t *data, size_t size, size_t step, struct buffer *out)
{
    struct sse s = sse_with_most(MOST, note, out);
    zp_status status = ZP_OK;
    *out = buffer_with_max(MEM_META, 1 << 26);
    for (size_t at = 0; at < size && status == ZP_OK; at += step)
        status = sse_push(&s, data + at, size - at < step ? size - at : step, NULL);
    sse_free(&s);
    return status;
}

static bool is_same(const struct buffer *a, const struct buffer *b)
{
    return a->size == b->size && (a->size == 0 || memcmp(a->data, b->data, a->size) == 0);
}

static bool take_text(void *arg, const char *text, size_t size)
{
    must(size > 0 && utf8_is_valid(text, size, NULL));
    must(buffer_append(arg, text, size, NULL) == ZP_OK);
    return true;
}

static zp_status answer(const uint8_t *data, size_t size, size_t step, struct chatstream *s,
                        zp_err *err)
{
    struct buffer told = buffer_with_max(MEM_META, MOST);
    zp_status status = ZP_OK;
    chatstream_open(s, MOST, take_text, &told);
    for (size_t at = 0; at < size && status == ZP_OK; at += step)
        status = chatstream_push(s, data + at, size - at < step ? size - at : step, err);
    if (status == ZP_OK) status = chatstream_finish(s, err);
    must(is_same(&told, &s->text));
    must(status == ZP_OK || utf8_is_valid(err->message, strlen(err->message), NULL));
    buffer_free(&told);
    return status;
}

static void refusal(const uint8_t *data, size_t size)
{
    char *body = malloc(size + 1), words[SERVERERROR_ROOM];
    if (body == NULL) return;
    if (size != 0) memcpy(body, data, size);
    body[size] = '\0';
    servererror_of_body(body, size, words);
    must(utf8_is_valid(words, strlen(words), NULL));
    for (const char *at = words; *at != '\0'; at++) must((unsigned char)*at >= ' ' && *at != 0x7f);
    free(body);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct buffer whole, pieces;
    zp_status status = events(data, size, size + 1, &whole);
    must(events(data, size, 1, &pieces) == status && is_same(&whole, &pieces));
    buffer_free(&whole);
    buffer_free(&pieces);
    struct chatstream a, b;
    zp_err of_a = { 0 }, of_b = { 0 };
    must(answer(data, size, size + 1, &a, &of_a) == answer(data, size, 1, &b, &of_b));
    must(is_same(&a.text, &b.text) && strcmp(a.reason, b.reason) == 0 && a.done == b.done);
    must(strcmp(of_a.message, of_b.message) == 0 && a.n_prompt == b.n_prompt);
    chatstream_free(&a);
    chatstream_free(&b);
    refusal(data, size);
    return 0;
}
