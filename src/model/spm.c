/* spm.c: SentencePiece BPE over the shared merge loop.
 * Control, unknown and byte tokens are not part of the text they look like: a text "<s>" never
 * joins into BOS, here as in SentencePiece itself. */
#include "model/spm.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"

static const uint8_t space_mark[3] = { 0xE2, 0x96, 0x81 }; /* U+2581 */

static bool is_mark(const uint8_t *text, size_t left)
{
    return left >= 3 && memcmp(text, space_mark, 3) == 0;
}

static bool is_text_token(const struct vocab *v, uint32_t id)
{
    uint8_t kind = v->tokens[id].kind;
    return kind != TOKEN_CONTROL && kind != TOKEN_UNKNOWN && kind != TOKEN_BYTE;
}

struct scored {
    double score;
    uint32_t id;
};

static int compare_scores(const void *a, const void *b)
{
    const struct scored *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Ranks instead of scores: the merge loop compares integers, ties stay ties. */
static zp_status rank_scores(struct spm *s, zp_err *err)
{
    const struct vocab *v = s->vocab;
    struct scored *order = mem_array(MEM_SCRATCH, v->n, sizeof *order);
    ZP_FAIL_IF(order == NULL, err, ZP_NO_MEMORY, "not enough memory to order %u scores", v->n);
    for (uint32_t id = 0; id < v->n; id++) order[id] = (struct scored){ v->tokens[id].score, id };
    qsort(order, v->n, sizeof *order, compare_scores);
    uint32_t rank = 0;
    for (uint32_t i = 0; i < v->n; i++) {
        if (i > 0 && order[i].score != order[i - 1].score) rank++;
        s->ranks[order[i].id] = rank;
    }
    mem_free(order);
    return ZP_OK;
}

/* Notes each byte that stands before a mark inside the text. Elsewhere a mark begins a word that no
 * join can cross, so words are encoded one by one: short merge lists, and most words are tokens. */
static void note_crossings(struct spm *s, const uint8_t *text, size_t size)
{
    for (size_t i = 1; i < size; i++)
        if (is_mark(text + i, size - i) && !(i >= 3 && is_mark(text + i - 3, 3)))
            s->crosses[text[i - 1]] = true;
}

zp_status spm_init(struct spm *s, const struct vocab *vocab, int32_t unk, zp_err *err)
{
    *s = (struct spm){ .vocab = vocab, .unk = unk };
    for (int i = 0; i < 256; i++) {
        uint8_t byte = (uint8_t)i;
        s->byte_token[i] = vocab_find(vocab, &byte, 1);
    }
    ZP_ALLOC(s->ranks, MEM_TOKENIZER, (size_t)vocab->n, err, "token ranks");
    for (uint32_t id = 0; id < vocab->n; id++) {
        size_t size;
        const uint8_t *text = vocab_get(vocab, VOCAB_TEXT, id, &size);
        ZP_FAIL_IF(!isfinite(vocab->tokens[id].score), err, ZP_BAD_FILE,
                   "the score of token %u is not a finite number", id);
        int value = vocab_byte_value(text, size);
        if (value >= 0) s->byte_token[value] = (int32_t)id;
        if (is_text_token(vocab, id)) note_crossings(s, text, size);
    }
    return rank_scores(s, err);
}

void spm_free(struct spm *s)
{
    mem_free(s->ranks);
    s->ranks = NULL;
}

static int32_t find_text(const struct vocab *v, const uint8_t *text, size_t size)
{
    int32_t id = vocab_find(v, text, size);
    return id != TOKEN_NONE && is_text_token(v, (uint32_t)id) ? id : TOKEN_NONE;
}

static bool find_join(const void *rules, const uint8_t *word, const struct merge_symbol *left,
                      const struct merge_symbol *right, struct merge_pair *out)
{
    const struct spm *s = rules;
    int32_t id = find_text(s->vocab, word + left->begin, right->end - left->begin);
    if (id == TOKEN_NONE) return false;
    *out = (struct merge_pair){ s->ranks[id], id };
    return true;
}

static zp_status push_bytes(const struct spm *s, const uint8_t *text, size_t size,
                            struct token_list *out, zp_err *err)
{
    bool all = true;
    for (size_t i = 0; i < size; i++) all &= s->byte_token[text[i]] != TOKEN_NONE;
    if (!all) {
        ZP_FAIL_IF(s->unk == TOKEN_NONE, err, ZP_BAD_INPUT,
                   "the vocabulary has no token for byte 0x%02X and no unknown token", text[0]);
        return token_list_push(out, s->unk, err);
    }
    for (size_t i = 0; i < size; i++) ZP_TRY(token_list_push(out, s->byte_token[text[i]], err));
    return ZP_OK;
}

static zp_status encode_word(const struct spm *s, struct merger *scratch, const uint8_t *word,
                             size_t size, struct token_list *out, zp_err *err)
{
    int32_t whole = find_text(s->vocab, word, size);
    enum vocab_whole known =
        whole == TOKEN_NONE ? WHOLE_NO : vocab_get_whole(s->vocab, (uint32_t)whole);
    if (known == WHOLE_YES) return token_list_push(out, whole, err);
    ZP_TRY(merger_reserve(scratch, size, err));
    for (uint32_t i = 0; i < size;) {
        uint32_t step = word[i] < 0x80 ? 1 : word[i] < 0xE0 ? 2 : word[i] < 0xF0 ? 3 : 4;
        uint32_t end = i + step <= size ? i + step : (uint32_t)size;
        scratch->symbols[scratch->n++] = (struct merge_symbol){ i, end, TOKEN_NONE };
        i = end;
    }
    ZP_TRY(merger_run(scratch, word, find_join, s, err));
    if (whole != TOKEN_NONE && known == WHOLE_UNKNOWN)
        vocab_set_whole(s->vocab, (uint32_t)whole, scratch->n == 1);
    for (size_t i = 0; i < scratch->n; i++) {
        struct merge_symbol piece = scratch->symbols[i];
        int32_t id = find_text(s->vocab, word + piece.begin, piece.end - piece.begin);
        if (id != TOKEN_NONE) ZP_TRY(token_list_push(out, id, err));
        else ZP_TRY(push_bytes(s, word + piece.begin, piece.end - piece.begin, out, err));
    }
    return ZP_OK;
}

zp_status spm_encode(const struct spm *s, struct merger *scratch, const uint8_t *text, size_t size,
                     struct token_list *out, zp_err *err)
{
    ZP_FAIL_IF(size > MERGER_MAX_WORD, err, ZP_BAD_INPUT,
               "a text of %zu bytes in one piece (limit %zu)", size, MERGER_MAX_WORD);
    size_t begin = 0;
    for (size_t i = 1; i < size; i++) {
        if (text[i] != space_mark[0] || !is_mark(text + i, size - i)) continue;
        if (s->crosses[text[i - 1]]) continue;
        if (i >= begin + 3 && is_mark(text + i - 3, 3)) continue;
        ZP_TRY(encode_word(s, scratch, text + begin, i - begin, out, err));
        begin = i;
    }
    return begin < size ? encode_word(s, scratch, text + begin, size - begin, out, err) : ZP_OK;
}
