/* unigram.c: Viterbi over byte positions. Sums are double, as in SentencePiece and HF tokenizers,
 * and on equal sums the first found (the longest last token) stays. */
#include "model/unigram.h"
#include <float.h>
#include <math.h>
#include "base/mem.h"

#define UNKNOWN_PENALTY 10.0
#define MAX_TOKEN_SIZE 1024 /* bounds the time per character of text */

zp_status unigram_init(struct unigram *u, const struct vocab *vocab, int32_t unk, zp_err *err)
{
    *u = (struct unigram){ .vocab = vocab, .unk = unk, .byte_fallback = true };
    double lowest = DBL_MAX;
    for (int i = 0; i < 256; i++) u->byte_token[i] = TOKEN_NONE;
    for (uint32_t id = 0; id < vocab->n; id++) {
        const struct vocab_token *token = &vocab->tokens[id];
        size_t size;
        const uint8_t *text = vocab_get(vocab, VOCAB_TEXT, id, &size);
        ZP_FAIL_IF(!(fabs(token->score) <= FLT_MAX), err, ZP_BAD_FILE,
                   "the score of token %u is not a finite f32", id); /* so sums stay finite */
        ZP_FAIL_IF(size > MAX_TOKEN_SIZE, err, ZP_UNSUPPORTED,
                   "token %u is %zu bytes long (limit %d)", id, size, MAX_TOKEN_SIZE);
        int value = vocab_byte_value(text, size);
        if (token->kind == TOKEN_BYTE && value >= 0) u->byte_token[value] = (int32_t)id;
        if (token->kind == TOKEN_NORMAL && token->score < lowest) lowest = token->score;
        bool wanted = token->kind == TOKEN_NORMAL || token->kind == TOKEN_USER_DEFINED ||
                      token->kind == TOKEN_UNUSED;
        if (wanted && size > 0) ZP_TRY(trie_add(&u->trie, text, size, (int32_t)id, err));
    }
    for (int i = 0; i < 256; i++) u->byte_fallback &= u->byte_token[i] != TOKEN_NONE;
    u->unknown_score = (lowest == DBL_MAX ? 0.0 : lowest) - UNKNOWN_PENALTY;
    return ZP_OK;
}

void unigram_free(struct unigram *u)
{
    trie_free(&u->trie);
}

struct best {
    double score;
    uint32_t begin; /* of the last token of the best segmentation that ends here */
    int32_t id;     /* that token; TOKEN_NONE: a character without token */
};

static void improve(struct best *b, double score, size_t begin, int32_t id)
{
    if (score > b->score) *b = (struct best){ score, (uint32_t)begin, id };
}

static double token_score(const struct unigram *u, int32_t id)
{
    const struct vocab_token *token = &u->vocab->tokens[id];
    return token->kind == TOKEN_USER_DEFINED ? 0.0 : token->score;
}

static void fill_best(const struct unigram *u, const uint8_t *text, size_t size, struct best *best)
{
    for (size_t i = 1; i <= size; i++) best[i] = (struct best){ -DBL_MAX, 0, TOKEN_NONE };
    best[0] = (struct best){ 0.0, 0, TOKEN_NONE };
    for (size_t at = 0; at < size;) {
        size_t step = text[at] < 0x80 ? 1 : text[at] < 0xE0 ? 2 : text[at] < 0xF0 ? 3 : 4;
        step = step < size - at ? step : size - at;
        bool covered = false;
        uint32_t node = 0;
        for (size_t end = at + 1; end <= size; end++) {
            node = trie_step(&u->trie, node, text[end - 1]);
            if (node == 0) break;
            int32_t id = u->trie.values[node];
            if (id == TRIE_NO_VALUE) continue;
            covered |= end - at == step;
            improve(&best[end], best[at].score + token_score(u, id), at, id);
        }
        if (!covered) improve(&best[at + step], best[at].score + u->unknown_score, at, TOKEN_NONE);
        at += step;
    }
}

static zp_status push_unknown(const struct unigram *u, const uint8_t *text, size_t size, bool first,
                              struct token_list *out, zp_err *err)
{
    for (size_t i = 0; u->byte_fallback && i < size; i++)
        ZP_TRY(token_list_push(out, u->byte_token[text[i]], err));
    if (u->byte_fallback || !first) return ZP_OK;
    ZP_FAIL_IF(u->unk == TOKEN_NONE, err, ZP_BAD_INPUT,
               "the vocabulary has no token for byte 0x%02X and no unknown token", text[0]);
    return token_list_push(out, u->unk, err);
}

/* Follows the chain back to the beginning, turning `begin` into a link forward. */
static zp_status push_best(const struct unigram *u, const uint8_t *text, size_t size,
                           struct best *best, struct token_list *out, zp_err *err)
{
    for (size_t end = size, next = size; end > 0;) {
        size_t begin = best[end].begin;
        best[end].begin = (uint32_t)next; /* now: end of the token after */
        next = end;
        end = begin;
        if (end == 0) best[0].begin = (uint32_t)next;
    }
    bool was_unknown = false;
    for (size_t at = 0, end; at < size; at = end) {
        end = best[at].begin;
        if (best[end].id != TOKEN_NONE) ZP_TRY(token_list_push(out, best[end].id, err));
        else ZP_TRY(push_unknown(u, text + at, end - at, !was_unknown, out, err));
        was_unknown = best[end].id == TOKEN_NONE;
    }
    return ZP_OK;
}

zp_status unigram_encode(const struct unigram *u, const uint8_t *text, size_t size,
                         struct token_list *out, zp_err *err)
{
    ZP_FAIL_IF(size >= UINT32_MAX, err, ZP_BAD_INPUT, "a text of %zu bytes in one piece", size);
    struct best *best;
    ZP_ALLOC(best, MEM_SCRATCH, size + 1, err, "the segmentation of a text");
    fill_best(u, text, size, best);
    zp_status status = push_best(u, text, size, best, out, err);
    mem_free(best);
    return status;
}
