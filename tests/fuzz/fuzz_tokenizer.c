/* fuzz_tokenizer.c: texts against small fixed vocabularies of every kind, and hostile vocabularies,
 * merges, maps, expressions and tokenizer.json against fixed
 * texts. Byte 0 chooses. Checks besides
 * "no crash": ids are in range, plain text gives no control token, and byte-complete vocabularies
 * give every text back. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "model/charsmap.h"
#include "model/textstream.h"
#include "model/tokenizer_parts.h"
#include "model/tokjson.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MAX_INPUT 4096

static void check(int good, const char *what)
{
    if (good) return;
    fprintf(stderr, "fuzz_tokenizer: %s\n", what);
    abort();
}

/* ---- vocabularies, built through the same calls as the openers use */

static void add_token(struct tokenizer *t, const char *text, enum token_kind kind, double score)
{
    vocab_add(&t->vocab, text, strlen(text), kind, score, NULL);
}

static void add_bytes(struct tokenizer *t, enum tokenizer_model model)
{
    for (int i = 0; i < 256; i++) {
        char text[8];
        if (model == TOKENIZER_BPE) text[bpe_byte_text((uint8_t)i, text)] = '\0';
        else snprintf(text, sizeof text, "<0x%02X>", i);
        add_token(t, text, model == TOKENIZER_BPE ? TOKEN_NORMAL : TOKEN_BYTE, 0.0);
    }
}

#define MARK "\xE2\x96\x81"
/* clang-format off */
static const char *const words[] = {
    "a", "b", "c", "ab", "bc", "abc", "aa", "aaa", "aaaa", "the", "th", "he", "in", MARK,
    (MARK "a"), (MARK "the"), ("c" MARK), "\xC3\xA9", "\n\n",
};
/* clang-format on */
static const char *const merges[] = { "a b",  "ab c", "a a", "aa a", "aa aa", "t h",
                                      "th e", "h e",  "i n", "x y",  "xy z" };

static void add_common(struct tokenizer *t, enum tokenizer_model model)
{
    t->model = model;
    t->info.unk = 0;
    t->info.bos = 1;
    add_token(t, "<unk>", TOKEN_UNKNOWN, 0.0);
    add_token(t, "<s>", TOKEN_CONTROL, 0.0);
    add_token(t, "<|im_end|>", TOKEN_CONTROL, 0.0);
    add_token(t, "<tool>", TOKEN_USER_DEFINED, 0.0);
    add_token(t, "  ", TOKEN_USER_DEFINED, 0.0);
    add_token(t, "<to", TOKEN_USER_DEFINED, 0.0);
    add_bytes(t, model);
}

static zp_status finish(struct tokenizer *t, const char *pre)
{
    struct bpe_options options = { .unit = BPE_BYTES, .unk = 0 };
    ZP_TRY(vocab_seal(&t->vocab, NULL));
    ZP_TRY(tokenizer_set_bytes(t, t->model == TOKENIZER_BPE ? TOKEN_BYTES_LEVEL : TOKEN_BYTES_MARKS,
                               NULL));
    if (t->model == TOKENIZER_SPM) ZP_TRY(spm_init(&t->spm, &t->vocab, 0, NULL));
    if (t->model == TOKENIZER_UNIGRAM) ZP_TRY(unigram_init(&t->unigram, &t->vocab, 0, NULL));
    if (t->model != TOKENIZER_BPE) {
        ZP_TRY(textnorm_add(&t->normalize, NORM_REPLACE, " ", 1, "\xE2\x96\x81", 3, NULL, NULL));
        return tokenizer_finish(t, SPECIAL_LONGEST, NULL);
    }
    ZP_TRY(pretok_open_row(&t->pretok, pretok_find(pre, strlen(pre)), pre, NULL));
    ZP_TRY(bpe_init(&t->bpe, &t->vocab, options, ZP_COUNT(merges), NULL));
    for (uint32_t i = 0; i < ZP_COUNT(merges); i++)
        ZP_TRY(bpe_add_merge_line(&t->bpe, merges[i], strlen(merges[i]), i, NULL));
    return tokenizer_finish(t, SPECIAL_LEFTMOST, NULL);
}

static struct tokenizer *fixed_tokenizer(size_t kind)
{
    static struct tokenizer *made[5];
    static const enum tokenizer_model models[5] = { TOKENIZER_BPE, TOKENIZER_BPE, TOKENIZER_BPE,
                                                    TOKENIZER_SPM, TOKENIZER_UNIGRAM };
    static const char *const pres[5] = { "smollm", "gpt-4o", "deepseek-llm", "", "" };
    if (made[kind] != NULL) return made[kind];
    struct tokenizer *t = calloc(1, sizeof *t);
    add_common(t, models[kind]);
    for (size_t i = 0; i < ZP_COUNT(words); i++)
        if (vocab_find(&t->vocab, words[i], strlen(words[i])) == TOKEN_NONE)
            add_token(t, words[i], TOKEN_NORMAL, -1.0 - (double)(i * 7 % 5));
    check(finish(t, pres[kind]) == ZP_OK, "a fixed vocabulary does not open");
    return made[kind] = t;
}

/* ---- checks */

static void check_ids(const struct tokenizer *t, const struct token_list *ids, int plain)
{
    for (size_t i = 0; i < ids->count; i++) {
        check(ids->ids[i] >= 0 && (uint32_t)ids->ids[i] < t->vocab.n, "id out of range");
        if (plain)
            check(ids->ids[i] == t->info.unk || !tokenizer_is_special(t, ids->ids[i]),
                  "control from plain text");
    }
}

static void check_stream(const struct tokenizer *t, const struct token_list *ids)
{
    static const char *const stops[] = { "ab\n", "the", "\xC3\xA9" };
    struct textstream s;
    struct buffer out = buffer_with_max(MEM_SCRATCH, MAX_INPUT * 64);
    bool stopped = false;
    size_t bad;
    check(textstream_init(&s, t, 0, stops, 3, NULL) == ZP_OK, "a stream does not open");
    for (size_t i = 0; i < ids->count; i++)
        check(textstream_push(&s, ids->ids[i], &out, &stopped, NULL) == ZP_OK, "a stream fails");
    check(textstream_flush(&s, &out, NULL) == ZP_OK, "a stream does not flush");
    check(out.size == 0 || utf8_is_valid((const char *)out.data, out.size, &bad),
          "a stream gives invalid UTF-8");
    textstream_free(&s);
    buffer_free(&out);
}

/* exact: the vocabulary can spell every byte, so the text must come back. */
static void check_text(const struct tokenizer *t, const char *text, size_t size, unsigned flags,
                       int exact)
{
    struct token_list ids = { 0 };
    struct buffer back = buffer_with_max(MEM_SCRATCH, MAX_INPUT * 64);
    zp_err err = { 0 };
    size_t bad;
    zp_status status = tokenizer_encode(t, text, size, flags, &ids, &err);
    int valid = size == 0 || utf8_is_valid(text, size, &bad);
    if (exact) check((status == ZP_OK) == valid, valid ? err.message : "invalid UTF-8 was taken");
    if (status == ZP_OK) {
        check_ids(t, &ids, (flags & TOKENIZE_SPECIAL) == 0);
        check(tokenizer_decode(t, ids.ids, ids.count, DETOKENIZE_SPECIAL, &back, &err) == ZP_OK,
              "decode fails");
        /* A literal U+2581 is a space to SentencePiece: the one text that does not come back. */
        int ambiguous = t->model != TOKENIZER_BPE && memmem(text, size, MARK, 3) != NULL;
        if (exact && !ambiguous)
            check(back.size == size && (size == 0 || memcmp(back.data, text, size) == 0),
                  "text differs");
        check_stream(t, &ids);
    }
    token_list_free(&ids);
    buffer_free(&back);
}

static void check_segments(const struct tokenizer *t, const char *text, size_t size)
{
    struct text_segment parts[3];
    size_t a = size / 3, b = size - size / 4;
    struct token_list ids = { 0 };
    parts[0] = (struct text_segment){ text, a, true };
    parts[1] = (struct text_segment){ text + a, b - a, false };
    parts[2] = (struct text_segment){ text + b, size - b, true };
    if (tokenizer_encode_segments(t, parts, 3, TOKENIZE_AUTO, &ids, NULL) == ZP_OK)
        check_ids(t, &ids, 0);
    token_list_free(&ids);
}

/* ---- hostile parts */

/* The input is cut at NULs: token texts (first byte: kind) until an empty one, then merges. */
static void hostile_vocabulary(enum tokenizer_model model, const char *data, size_t size)
{
    static const char text[] =
        "the abc <s> <tool> aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa \xC3\xA9 1a2b";
    struct tokenizer *t = calloc(1, sizeof *t);
    size_t at = 0;
    int merging = 0;
    uint32_t rank = 0;
    zp_status status = ZP_OK;
    add_common(t, model);
    while (at < size && status == ZP_OK) {
        size_t n = strnlen(data + at, size - at);
        if (n == 0 && !merging) {
            status = finish(t, "llama-bpe");
            merging = 1;
        } else if (n > 1 && !merging) {
            uint8_t first = (uint8_t)data[at];
            vocab_add(&t->vocab, data + at + 1, n - 1, (enum token_kind)(first % 7),
                      (double)(first / 7) - 18.0, NULL);
        } else if (n > 0 && merging && model == TOKENIZER_BPE && rank < 32) {
            status = bpe_add_merge_line(&t->bpe, data + at, n, rank++, NULL);
        }
        at += n + 1;
    }
    if (!merging && status == ZP_OK) status = finish(t, "llama-bpe");
    if (status == ZP_OK) {
        check_text(t, text, sizeof text - 1, 0, 0);
        check_text(t, text, sizeof text - 1, TOKENIZE_SPECIAL, 0);
        check_segments(t, text, sizeof text - 1);
    }
    tokenizer_close_parts(t);
    free(t);
}

static void hostile_map(const uint8_t *data, size_t size)
{
    struct charsmap m;
    zp_err err = { 0 };
    static const char text[] = "A\xC3\xA9\xEF\xBC\xA1 abc";
    if (charsmap_init(&m, data, size, &err) == ZP_OK)
        for (size_t i = 0; i < sizeof text - 1; i++) {
            size_t consumed = 0, n = 0;
            const char *found =
                charsmap_find(&m, (const uint8_t *)text + i, sizeof text - 1 - i, &consumed, &n);
            check(found == NULL || (consumed > 0 && consumed <= sizeof text - 1 - i),
                  "map consumes too much");
        }
    charsmap_free(&m);
}

static void hostile_json(const char *data, size_t size)
{
    struct tokenizer *t = calloc(1, sizeof *t);
    zp_err err = { 0 };
    t->info.unk = t->info.bos = t->info.eos = TOKEN_NONE;
    static const char text[] = "The abc 12\xC3\xA9  <s>\n";
    if (tokjson_fill(t, (struct gguf_str){ (const char *)data, size }, (struct gguf_str){ 0 },
                     "fuzz", &err) == ZP_OK) {
        check_text(t, text, sizeof text - 1, 0, 0);
        check_text(t, text, sizeof text - 1, TOKENIZE_SPECIAL | TOKENIZE_AUTO, 0);
        check_segments(t, text, sizeof text - 1);
    }
    tokenizer_close_parts(t);
    free(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0 || size > MAX_INPUT) return 0;
    const char *rest = (const char *)data + 1;
    size_t n = size - 1;
    switch (data[0] % 10) {
    case 5: hostile_vocabulary(TOKENIZER_BPE, rest, n); break;
    case 6: hostile_vocabulary(TOKENIZER_SPM, rest, n); break;
    case 7: hostile_vocabulary(TOKENIZER_UNIGRAM, rest, n); break;
    case 8: hostile_map(data + 1, n); break;
    case 9: hostile_json(rest, n); break;
    default: {
        const struct tokenizer *t = fixed_tokenizer(data[0] % 10);
        check_text(t, rest, n, 0, 1);
        check_text(t, rest, n, TOKENIZE_SPECIAL, 1);
        check_segments(t, rest, n);
    }
    }
    return 0;
}
