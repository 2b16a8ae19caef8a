/* anchors.c: marks of positions are taken out of pieces of text, which are tokenized between them.
 * Owns: the list. Does not know: whether a model can use it.
 * M1 a mark lies within one piece: user text never completes what a template began.
 * M2 anchors are fewer than tokens, but for one behind the last: the next replaces one that no
 *    token follows. */
#include "model/anchors.h"

#include <string.h>

void anchor_list_free(struct anchor_list *a)
{
    mem_free(a->at);
    *a = (struct anchor_list){ 0 };
}

void anchors_shift(struct anchor_list *a)
{
    for (size_t i = 0; i < a->n; i++) a->at[i].token++;
}

/* ---- marks ----------------------------------------------------------------------------------- */

enum mark { MARK_NONE, MARK_POSITION, MARK_TIME };

struct found {
    enum mark mark;
    size_t size; /* bytes */
    uint64_t position;
};

static bool begins(const char *text, size_t size, const char *word)
{
    size_t n = strlen(word);
    return size >= n && memcmp(text, word, n) == 0;
}

/* before, digits, after. */
static struct found read_position(const char *text, size_t size, const char *before,
                                  const char *after)
{
    struct found f = { .size = strlen(before) };
    size_t first = f.size;
    if (!begins(text, size, before)) return (struct found){ 0 };
    for (; f.size < size && text[f.size] >= '0' && text[f.size] <= '9'; f.size++)
        if (f.position <= ZP_ANCHOR_MOST) /* and stays beyond it */
            f.position = f.position * 10 + (uint64_t)(text[f.size] - '0');
    if (f.size == first || !begins(text + f.size, size - f.size, after))
        return (struct found){ 0 };
    f.size += strlen(after);
    f.mark = MARK_POSITION;
    return f;
}

static struct found read_mark(const char *text, size_t size)
{
    struct found f = { 0 };
    if (text[0] == '<') f = read_position(text, size, "<|pos:", "|>");
    if (text[0] == '[') f = read_position(text, size, "[POS:", "]");
    if (f.mark == MARK_NONE && begins(text, size, "<TIME>"))
        f = (struct found){ .mark = MARK_TIME, .size = strlen("<TIME>") };
    return f;
}

/* ---- pieces between them --------------------------------------------------------------------- */

struct cutter {
    const struct tokenizer *t;
    struct text_segment *pieces; /* since the last position */
    size_t n, room;
    struct token_list *ids;
    struct anchor_list *out;
    struct buffer *rest;
};

static zp_status add_piece(struct cutter *c, const char *text, size_t size, bool is_template,
                           zp_err *err)
{
    if (size == 0) return ZP_OK;
    if (c->n == c->room) {
        size_t room = c->room != 0 ? 2 * c->room : 16;
        struct text_segment *pieces = mem_resize(MEM_META, c->pieces, room * sizeof *pieces);
        ZP_FAIL_IF(pieces == NULL, err, ZP_NO_MEMORY, "not enough memory for pieces of a prompt");
        c->pieces = pieces;
        c->room = room;
    }
    c->pieces[c->n++] = (struct text_segment){ text, size, is_template };
    return c->rest != NULL ? buffer_append(c->rest, text, size, err) : ZP_OK;
}

static zp_status encode_pieces(struct cutter *c, zp_err *err)
{
    size_t n = c->n;
    c->n = 0;
    return n == 0 ? ZP_OK : tokenizer_encode_segments(c->t, c->pieces, n, 0, c->ids, err);
}

static zp_status add_anchor(struct cutter *c, uint64_t position, zp_err *err)
{
    struct anchor_list *a = c->out;
    ZP_FAIL_IF(position > ZP_ANCHOR_MOST, err, ZP_BAD_INPUT,
               "anchor %llu of the prompt is beyond position %llu",
               (unsigned long long)a->n_marks + 1, (unsigned long long)ZP_ANCHOR_MOST);
    ZP_FAIL_IF(c->ids->count > UINT32_MAX, err, ZP_BAD_INPUT, "the prompt has too many tokens");
    zp_anchor one = { (uint32_t)c->ids->count, position };
    a->n_marks++;
    if (a->n != 0 && a->at[a->n - 1].token == one.token) { // M2
        a->at[a->n - 1] = one;
        return ZP_OK;
    }
    if (a->n == a->room) {
        size_t room = a->room != 0 ? 2 * a->room : 16;
        zp_anchor *at = mem_resize(MEM_META, a->at, room * sizeof *at);
        ZP_FAIL_IF(at == NULL, err, ZP_NO_MEMORY, "not enough memory for anchors");
        a->at = at;
        a->room = room;
    }
    a->at[a->n++] = one;
    return ZP_OK;
}

static zp_status cut(struct cutter *c, const struct text_segment *s, zp_err *err)
{
    size_t from = 0, at = 0;
    while (at < s->size) {
        struct found f = read_mark(s->text + at, s->size - at); // M1
        if (f.mark == MARK_NONE) {
            at++;
            continue;
        }
        ZP_TRY(add_piece(c, s->text + from, at - from, s->is_template, err));
        from = at += f.size;
        if (f.mark == MARK_TIME) {
            c->out->time = true;
            continue;
        }
        ZP_TRY(encode_pieces(c, err));
        ZP_TRY(add_anchor(c, f.position, err));
    }
    return add_piece(c, s->text + from, s->size - from, s->is_template, err);
}

zp_status anchors_encode(const struct tokenizer *t, const struct text_segment *segments, size_t n,
                         struct token_list *ids, struct anchor_list *out, struct buffer *rest,
                         zp_err *err)
{
    struct cutter c = { .t = t, .ids = ids, .out = out, .rest = rest };
    size_t before = ids->count;
    zp_status status = ZP_OK;
    for (size_t i = 0; i < n && status == ZP_OK; i++) status = cut(&c, &segments[i], err);
    if (status == ZP_OK) status = encode_pieces(&c, err);
    mem_free(c.pieces);
    if (status != ZP_OK) ids->count = before;
    return status;
}
