/* test_tokenizer_spm.c: SentencePiece BPE and unigram, spaces, byte fallback, precompiled
 * map. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <math.h>
#include <cmocka.h>
#include "model/charsmap.h"
#include "tokenizer_fixture.h"

#define MARK "\xE2\x96\x81" /* U+2581 */

enum { UNK, BOS, EOS, BYTE0, WORDS = BYTE0 + 256 };
static char byte_texts[256][8];

/* unk, bos, eos, the 256 byte tokens, then the words of the test. */
static size_t fill_tokens(struct test_token *tokens, const struct test_token *words, size_t n)
{
    tokens[UNK] = (struct test_token){ "<unk>", TOKEN_UNKNOWN, 0 };
    tokens[BOS] = (struct test_token){ "<s>", TOKEN_CONTROL, 0 };
    tokens[EOS] = (struct test_token){ "</s>", TOKEN_CONTROL, 0 };
    for (int i = 0; i < 256; i++) {
        snprintf(byte_texts[i], sizeof byte_texts[i], "<0x%02X>", i);
        tokens[BYTE0 + i] = (struct test_token){ byte_texts[i], TOKEN_BYTE, 0 };
    }
    memcpy(tokens + WORDS, words, n * sizeof *words);
    return WORDS + n;
}

static struct test_vocab vocab_of(const char *model, struct test_token *tokens, size_t n)
{
    return (struct test_vocab){ .model = model,
                                .tokens = tokens,
                                .n_tokens = n,
                                .bos = -1,
                                .eos = -1,
                                .unk = -1,
                                .add_bos = -1,
                                .add_space_prefix = -1,
                                .merge_spaces = -1 };
}

static struct tokenizer *open_or_fail(const struct test_vocab *v)
{
    struct tokenizer *t;
    zp_err err = { 0 };
    if (open_vocab(&t, v, NULL, &err) != ZP_OK) fail_msg("%s", err.message);
    return t;
}

static void expect_ids(const struct tokenizer *t, const char *text, unsigned flags,
                       const int32_t *want, size_t n)
{
    struct token_list got = { 0 };
    zp_err err = { 0 };
    if (tokenizer_encode(t, text, strlen(text), flags, &got, &err) != ZP_OK)
        fail_msg("%s", err.message);
    for (size_t i = 0; i < n && i < got.count; i++)
        if (got.ids[i] != want[i])
            fail_msg("'%s': id %zu is %d, expected %d", text, i, got.ids[i], want[i]);
    assert_int_equal(got.count, n);
    token_list_free(&got);
}

#define EXPECT(t, text, flags, ...)                                                                \
    do {                                                                                           \
        const int32_t want_[] = { -9, __VA_ARGS__ };                                               \
        expect_ids(t, text, flags, want_ + 1, sizeof want_ / sizeof *want_ - 1);                   \
    } while (0)

/* ---- BPE by score */

enum { M = WORDS, A, B, C, AB, BC, MA, S, LT, GT, SGT, SPACES, TOOL, M_AB };
static const struct test_token spm_words[] = {
    { MARK, TOKEN_NORMAL, -50 },         { "a", TOKEN_NORMAL, -20 },
    { "b", TOKEN_NORMAL, -21 },          { "c", TOKEN_NORMAL, -22 },
    { "ab", TOKEN_NORMAL, -3 },          { "bc", TOKEN_NORMAL, -2 },
    { MARK "a", TOKEN_NORMAL, -4 },      { "s", TOKEN_NORMAL, -9 },
    { "<", TOKEN_NORMAL, -9 },           { ">", TOKEN_NORMAL, -9 },
    { "s>", TOKEN_NORMAL, -1 },          { "   ", TOKEN_USER_DEFINED, 0 },
    { "<tool>", TOKEN_USER_DEFINED, 0 }, { MARK "ab", TOKEN_NORMAL, -10 },
};
static struct test_token spm_tokens[WORDS + ZP_COUNT(spm_words)];

static struct test_vocab spm_vocab(int add_space_prefix)
{
    size_t n = fill_tokens(spm_tokens, spm_words, ZP_COUNT(spm_words));
    struct test_vocab v = vocab_of("llama", spm_tokens, n);
    v.add_space_prefix = add_space_prefix;
    return v;
}

static void test_highest_score_joins_first(void **state)
{
    (void)state;
    struct test_vocab v = spm_vocab(0);
    struct tokenizer *t = open_or_fail(&v);
    for (int pass = 0; pass < 2; pass++) {
        EXPECT(t, "abc", 0, A, BC); /* bc scores above ab */
        EXPECT(t, "ab", 0, AB);
        EXPECT(t, "ab ab", 0, AB, M_AB); /* ab first, then the mark joins it */
        EXPECT(t, " a", 0, MA);
    }
    tokenizer_close(t);
}

static void test_space_prefix_follows_the_file(void **state)
{
    (void)state;
    struct test_vocab v = spm_vocab(1);
    struct tokenizer *with = open_or_fail(&v);
    EXPECT(with, "a", 0, MA);
    EXPECT(with, "a", TOKENIZE_AUTO, BOS, MA); /* SentencePiece adds BOS unless told otherwise */
    EXPECT(with, "", TOKENIZE_AUTO, BOS);
    EXPECT(with, "a<tool>a", 0, MA, TOOL, MA); /* again after each special token */
    tokenizer_close(with);
    v = spm_vocab(0);
    struct tokenizer *without = open_or_fail(&v);
    EXPECT(without, "a<tool>a", 0, A, TOOL, A);
    tokenizer_close(without);
}

static void test_unknown_characters_fall_back_to_bytes(void **state)
{
    (void)state;
    struct test_vocab v = spm_vocab(0);
    struct tokenizer *t = open_or_fail(&v);
    EXPECT(t,
           "a\xC3\xA9"
           "b\n",
           0, A, BYTE0 + 0xC3, BYTE0 + 0xA9, B, BYTE0 + '\n');
    struct buffer text = buffer_with_max(MEM_SCRATCH, 100);
    zp_err err = { 0 };
    const int32_t ids[] = { BYTE0 + 0xC3, BYTE0 + 0xA9, MA };
    assert_int_equal(tokenizer_decode(t, ids, 3, 0, &text, &err), ZP_OK);
    assert_string_equal(text.data, "\xC3\xA9 a");
    buffer_free(&text);
    tokenizer_close(t);
    spm_tokens[BYTE0 + 0xA9].text = "no byte";
    spm_tokens[BYTE0 + 0xA9].kind = TOKEN_NORMAL;
    t = open_or_fail(&v);
    EXPECT(t,
           "a\xC3\xA9"
           "b",
           0, A, UNK, B); /* a fallback that cannot be complete is not begun */
    tokenizer_close(t);
}

static void test_text_never_joins_into_control_or_byte_tokens(void **state)
{
    (void)state;
    struct test_vocab v = spm_vocab(0);
    struct tokenizer *t = open_or_fail(&v);
    EXPECT(t, "<s>", 0, LT, SGT); /* though "<" and "s>" would join into "<s>" */
    EXPECT(t, "<s>", TOKENIZE_SPECIAL, BOS);
    tokenizer_close(t);
}

static void test_user_defined_runs_match_longest_first(void **state)
{
    (void)state;
    struct test_vocab v = spm_vocab(0);
    struct tokenizer *t = open_or_fail(&v);
    EXPECT(t, "       a", 0, SPACES, SPACES, MA); /* 3 + 3 + 1 */
    EXPECT(t, "a     ", 0, A, SPACES, M, M);
    tokenizer_close(t);
}

static void test_leading_space_is_dropped_once(void **state)
{
    (void)state;
    struct test_vocab v = spm_vocab(1);
    struct tokenizer *t = open_or_fail(&v);
    struct buffer text = buffer_with_max(MEM_SCRATCH, 100);
    zp_err err = { 0 };
    const int32_t ids[] = { BOS, MA, MA };
    assert_int_equal(tokenizer_decode(t, ids, 3, 0, &text, &err), ZP_OK);
    assert_string_equal(text.data, "a a");
    assert_int_equal(tokenizer_decode(t, ids, 3, DETOKENIZE_CONTINUES, &text, &err), ZP_OK);
    assert_string_equal(text.data, "a a a a");
    buffer_clear(&text);
    assert_int_equal(tokenizer_decode_token(t, MA, 0, &text, &err), ZP_OK);
    assert_string_equal(text.data, " a");
    buffer_free(&text);
    tokenizer_close(t);
}

/* A token with the mark inside forbids cutting words apart before that mark, and only there. */
static void test_tokens_across_words_are_found(void **state)
{
    (void)state;
    struct test_vocab v = spm_vocab(0);
    spm_tokens[M_AB] = (struct test_token){ "c" MARK, TOKEN_NORMAL, -1 };
    struct tokenizer *t = open_or_fail(&v);
    EXPECT(t, "c a", 0, M_AB, A);
    EXPECT(t, "b a", 0, B, MA);
    EXPECT(t, "bc ab", 0, B, M_AB, AB);
    tokenizer_close(t);
}

static void test_scores_must_be_there_and_finite(void **state)
{
    (void)state;
    struct test_vocab v = spm_vocab(0);
    struct tokenizer *t;
    zp_err err = { 0 };
    spm_tokens[A].score = NAN;
    assert_int_equal(open_vocab(&t, &v, NULL, &err), ZP_BAD_FILE);
    assert_non_null(strstr(err.message, "score of token"));
    v.model = "t5";
    err = (zp_err){ 0 };
    assert_int_equal(open_vocab(&t, &v, NULL, &err), ZP_BAD_FILE);
    v.model = "llama";
    err = (zp_err){ 0 };
    assert_int_equal(open_vocab(&t, &v, "gpt-2", &err), ZP_USAGE); /* --pre means nothing here */
}

/* ---- unigram */

enum { UM = WORDS, UA, UB, UAB, UABC, UC, UMA };
static const struct test_token unigram_words[] = {
    { MARK, TOKEN_NORMAL, -2 },     { "a", TOKEN_NORMAL, -3 },    { "b", TOKEN_NORMAL, -3 },
    { "ab", TOKEN_NORMAL, -5 },     { "abc", TOKEN_NORMAL, -20 }, { "c", TOKEN_NORMAL, -1 },
    { MARK "a", TOKEN_NORMAL, -4 },
};
static struct test_token unigram_tokens[WORDS + ZP_COUNT(unigram_words)];

static struct test_vocab unigram_vocab(void)
{
    size_t n = fill_tokens(unigram_tokens, unigram_words, ZP_COUNT(unigram_words));
    struct test_vocab v = vocab_of("t5", unigram_tokens, n);
    v.bos = BOS;
    v.eos = EOS;
    v.unk = UNK;
    v.add_bos = 0;
    return v;
}

static void test_unigram_takes_the_best_total(void **state)
{
    (void)state;
    struct test_vocab v = unigram_vocab();
    struct tokenizer *t = open_or_fail(&v);
    EXPECT(t, "ab", 0, UAB);                  /* -5 beats -6 */
    EXPECT(t, "abc", 0, UAB, UC);             /* -6 beats -20 */
    EXPECT(t, "b a", 0, UB, UMA);             /* -4 beats -5 */
    EXPECT(t, "ab", TOKENIZE_AUTO, UAB, EOS); /* this kind adds EOS unless told otherwise */
    EXPECT(t, "a\xC3\xA9", 0, UA, BYTE0 + 0xC3, BYTE0 + 0xA9);
    tokenizer_close(t);
}

static void test_unigram_fuses_unknown_characters(void **state)
{
    (void)state;
    struct test_vocab v = unigram_vocab();
    unigram_tokens[BYTE0 + 7] =
        (struct test_token){ "x7", TOKEN_NORMAL, -9 }; /* bytes incomplete */
    struct tokenizer *t = open_or_fail(&v);
    EXPECT(t, "a\xC3\xA9zza", 0, UA, UNK, UA);
    EXPECT(t, "zaz", 0, UNK, UA, UNK);
    tokenizer_close(t);
}

static void test_unigram_spaces_follow_the_file(void **state)
{
    (void)state;
    struct test_vocab v = unigram_vocab();
    v.add_space_prefix = 1;
    v.merge_spaces = 1;
    struct tokenizer *t = open_or_fail(&v);
    EXPECT(t, "  a   b ", 0, UMA, UM, UB);
    tokenizer_close(t);
    v.merge_spaces = 0;
    v.add_space_prefix = 0;
    t = open_or_fail(&v);
    EXPECT(t, "a  b", 0, UA, UM, UM, UB);
    tokenizer_close(t);
}

/* ---- precompiled map: a double array for {"A" -> "a", "AB" -> "c"} written by hand.
 * Unit u: bits 0-7 label, 8 has value, 9 shift, 10-30 offset. Child of node n by byte c: n ^
 * offset(n) ^ c. */
static size_t make_charsmap(uint8_t *out)
{
    enum { N = 1024 };
    static uint32_t units[N];
    memset(units, 0, sizeof units);
    uint32_t root = 0x100, a_base = 0x200, ab_base = 0x300;
    units[0] = root << 10;
    uint32_t a = root ^ 'A';
    units[a] = 'A' | 1u << 8 | (a ^ a_base) << 10;
    units[a_base] = 1u << 31 | 0; /* value: text at 0 */
    uint32_t ab = a_base ^ 'B';
    units[ab] = 'B' | 1u << 8 | (ab ^ ab_base) << 10;
    units[ab_base] = 1u << 31 | 2; /* value: text at 2 */
    uint32_t size = N * 4;
    memcpy(out, &size, 4);
    memcpy(out + 4, units, size);
    memcpy(out + 4 + size, "a\0c", 4);
    return 4 + size + 4;
}

static void test_precompiled_map_replaces_the_longest_match(void **state)
{
    (void)state;
    static uint8_t blob[5000];
    struct test_vocab v = unigram_vocab();
    v.charsmap = blob;
    v.charsmap_size = make_charsmap(blob);
    struct tokenizer *t = open_or_fail(&v);
    EXPECT(t, "A", 0, UA);
    EXPECT(t, "AB", 0, UC);
    EXPECT(t, "AAb", 0, UA, UAB);
    tokenizer_close(t);
    unigram_tokens[UC] =
        (struct test_token){ "AB", TOKEN_USER_DEFINED, 0 }; /* the map leaves it alone */
    t = open_or_fail(&v);
    EXPECT(t, "ABA", 0, UC, UA);
    tokenizer_close(t);
}

static void test_hostile_maps_are_refused_or_harmless(void **state)
{
    (void)state;
    static uint8_t blob[5000], wild[5000];
    size_t size = make_charsmap(blob), consumed, text_size;
    struct charsmap m;
    zp_err err = { 0 };
    assert_int_equal(charsmap_init(&m, blob, 3, &err), ZP_BAD_FILE);
    charsmap_free(&m);
    assert_int_equal(charsmap_init(&m, blob, 4 + 4096, &err), ZP_BAD_FILE); /* no texts */
    charsmap_free(&m);
    assert_int_equal(charsmap_init(&m, blob, size - 1, &err), ZP_BAD_FILE); /* text without end */
    charsmap_free(&m);
    for (uint32_t fill = 0; fill < 64; fill++) { /* units that point anywhere */
        memcpy(wild, blob, size);
        for (size_t i = 4; i < 4100; i++) wild[i] = (uint8_t)(i * 37 * (fill + 1) >> (fill & 7));
        assert_int_equal(charsmap_init(&m, wild, size, &err), ZP_OK);
        for (int c = 0; c < 256; c++) {
            const uint8_t text[3] = { (uint8_t)c, 'A', 'B' };
            const char *found = charsmap_find(&m, text, 3, &consumed, &text_size);
            if (found != NULL) assert_true(consumed >= 1 && consumed <= 3 && text_size <= 1);
        }
        charsmap_free(&m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_highest_score_joins_first),
        cmocka_unit_test(test_space_prefix_follows_the_file),
        cmocka_unit_test(test_unknown_characters_fall_back_to_bytes),
        cmocka_unit_test(test_text_never_joins_into_control_or_byte_tokens),
        cmocka_unit_test(test_user_defined_runs_match_longest_first),
        cmocka_unit_test(test_leading_space_is_dropped_once),
        cmocka_unit_test(test_tokens_across_words_are_found),
        cmocka_unit_test(test_scores_must_be_there_and_finite),
        cmocka_unit_test(test_unigram_takes_the_best_total),
        cmocka_unit_test(test_unigram_fuses_unknown_characters),
        cmocka_unit_test(test_unigram_spaces_follow_the_file),
        cmocka_unit_test(test_precompiled_map_replaces_the_longest_match),
        cmocka_unit_test(test_hostile_maps_are_refused_or_harmless),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
