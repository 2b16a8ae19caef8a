/* fuzz_toolcalls.c: any text as what a model wrote, in one piece and in many: the same parts come
 * out, and without calls and reasoning the text itself. The first byte says how it is read. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "serve/toolcalls.h"

struct seen {
    struct buffer parts, content;
    int kind;
    bool other; /* than content */
};

static void must(bool good)
{
    if (!good) abort();
}

static zp_status take(void *arg, const struct api_part *part, zp_err *err)
{
    struct seen *s = arg;
    must(part->size != 0 && utf8_is_valid(part->text, part->size, NULL));
    if (s->kind != (int)part->kind || part->kind == PART_CALL)
        must(buffer_append(&s->parts, &"CRFA"[part->kind], 1, err) == ZP_OK);
    s->kind = (int)part->kind;
    s->other = s->other || part->kind != PART_CONTENT;
    if (part->kind == PART_CONTENT)
        must(buffer_append(&s->content, part->text, part->size, err) == ZP_OK);
    return buffer_append(&s->parts, part->text, part->size, err);
}

static void split(uint8_t how, const json_t *tools, const char *text, size_t size, size_t step,
                  struct seen *s)
{
    struct toolcalls t;
    struct buffer none = buffer_with_max(MEM_META, 1 << 24);
    struct toolcalls_options o = { .style = (enum toolcalls_style)(how % 3),
                                   .tools = how & 64 ? NULL : tools, .most_calls = how >> 2 & 3,
                                   .in_reasoning = how & 16, .part = take, .arg = s };
    *s = (struct seen){ none, none, -1, false };
    toolcalls_open(&t, &o);
    for (size_t at = 0, end; at < size; at = end) {
        end = at + step < size ? at + step : size;
        while (end < size && (text[end] & 0xc0) == 0x80) end++;
        must(toolcalls_push(&t, text + at, end - at, NULL) == ZP_OK);
    }
    must(toolcalls_finish(&t, NULL) == ZP_OK);
    toolcalls_free(&t);
}

static bool is_same(const struct buffer *b, const char *text, size_t size)
{
    return b->size == size && (size == 0 || memcmp(b->data, text, size) == 0);
}

static bool has(const char *text, size_t size, const char *word)
{
    return memmem(text, size, word, strlen(word)) != NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) return 0;
    const char *text = (const char *)data + 1;
    uint8_t how = data[0];
    struct seen whole, pieces;
    if (!utf8_is_valid(text, --size, NULL)) return 0;
    json_t *tools = json_loads(
        "[{\"function\":{\"name\":\"add\"}},{\"function\":{\"name\":\"b c\"}}]", 0, NULL);
    split(how, tools, text, size, size + 1, &whole);
    split(how, tools, text, size, 1, &pieces);
    must(is_same(&pieces.parts, (const char *)whole.parts.data, whole.parts.size));
    /* A list of no calls, marks of reasoning and the space around them are nobody's. */
    if (!whole.other && !(how & 16) && !has(text, size, "think>") && !has(text, size, "["))
        must(is_same(&whole.content, text, size));
    buffer_free(&whole.parts);
    buffer_free(&whole.content);
    buffer_free(&pieces.parts);
    buffer_free(&pieces.content);
    json_decref(tools);
    return 0;
}
