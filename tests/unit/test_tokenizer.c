/* test_tokenizer.c: byte-level BPE, special tokens, roles and errors, on small made-up
 * vocabularies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>
#include "base/pool.h"
#include "base/rng.h"
#include "model/bpe.h"
#include "tokenizer_fixture.h"

enum {
    HE = BYTE_LEVEL_ASCII,
    LL,
    HELL,
    HELLO,
    SPACE_W,
    AA,
    AAA,
    BOS,
    EOS,
    TURN,
    TURN_LONG,
    TOOL,
    HTML,
    N_TOKENS
};

static struct test_token tokens[N_TOKENS];
static char ascii[BYTE_LEVEL_ASCII][3];
static const char *const merges[] = { "h e",        "l l", "he ll", "hell o",
                                      "\xC4\xA0 w", "a a", "aa a",  NULL };

static struct test_vocab byte_level(void)
{
    static const struct test_token words[] = {
        { "he", TOKEN_NORMAL, 0 },
        { "ll", TOKEN_NORMAL, 0 },
        { "hell", TOKEN_NORMAL, 0 },
        { "hello", TOKEN_NORMAL, 0 },
        { "\xC4\xA0w", TOKEN_NORMAL, 0 },
        { "aa", TOKEN_NORMAL, 0 },
        { "aaa", TOKEN_NORMAL, 0 },
        { "<s>", TOKEN_CONTROL, 0 },
        { "</s>", TOKEN_CONTROL, 0 },
        { "<turn>", TOKEN_CONTROL, 0 },
        { "<turn><long>", TOKEN_CONTROL, 0 },
        { "<tool>", TOKEN_USER_DEFINED, 0 },
        { "<b>", TOKEN_USER_DEFINED, 0 },
    };
    memcpy(tokens + fill_ascii_tokens(tokens, ascii), words, sizeof words);
    return (struct test_vocab){ .model = "gpt2",
                                .pre = "gpt-2",
                                .tokens = tokens,
                                .n_tokens = N_TOKENS,
                                .merges = merges,
                                .bos = BOS,
                                .eos = EOS,
                                .unk = -1,
                                .add_bos = -1,
                                .add_space_prefix = -1,
                                .merge_spaces = -1 };
}

static struct tokenizer *open_or_fail(const struct test_vocab *v, const char *pre)
{
    struct tokenizer *t;
    zp_err err = { 0 };
    if (open_vocab(&t, v, pre, &err) != ZP_OK) fail_msg("%s", err.message);
    return t;
}

static void expect_error(const struct test_vocab *v, const char *pre, zp_status code,
                         const char *text)
{
    struct tokenizer *t;
    zp_err err = { 0 };
    assert_int_equal(open_vocab(&t, v, pre, &err), code);
    assert_null(t);
    if (strstr(err.message, text) == NULL) fail_msg("'%s' does not say '%s'", err.message, text);
}

static void expect_list(const struct token_list *got, const int32_t *want, size_t n)
{
    for (size_t i = 0; i < n && i < got->count; i++)
        if (got->ids[i] != want[i]) fail_msg("id %zu is %d, expected %d", i, got->ids[i], want[i]);
    assert_int_equal(got->count, n);
}

#define EXPECT(t, text, flags, ...)                                                                \
    do {                                                                                           \
        const int32_t want_[] = { -9, __VA_ARGS__ };                                               \
        struct token_list got_ = { 0 };                                                            \
        zp_err err_ = { 0 };                                                                       \
        if (tokenizer_encode((t), (text), strlen(text), (flags), &got_, &err_) != ZP_OK)           \
            fail_msg("%s", err_.message);                                                          \
        expect_list(&got_, want_ + 1, sizeof want_ / sizeof *want_ - 1);                           \
        token_list_free(&got_);                                                                    \
    } while (0)

#define CH(c) ((c) == ' ' ? 94 : (c)-33)

static void test_lowest_rank_goes_first(void **state)
{
    (void)state;
    struct test_vocab v = byte_level();
    struct tokenizer *t = open_or_fail(&v, NULL);
    EXPECT(t, "hello", 0, HELLO);
    EXPECT(t, "hell", 0, HELL);
    EXPECT(t, "shell who", 0, CH('s'), HELL, SPACE_W, CH('h'), CH('o'));
    EXPECT(t, "hhee", 0, CH('h'), HE, CH('e'));
    tokenizer_close(t);
}

static void test_equal_ranks_go_left_to_right(void **state)
{
    (void)state;
    struct test_vocab v = byte_level();
    struct tokenizer *t = open_or_fail(&v, NULL);
    EXPECT(t, "aaaa", 0, AA, AA);
    EXPECT(t, "aaa", 0, AAA);
    EXPECT(t, "aaaaa", 0, AA, AAA); /* aa aa a: then the right pair joins */
    tokenizer_close(t);
}

static void test_ignore_merges_takes_whole_words(void **state)
{
    (void)state;
    struct test_vocab v = byte_level();
    static const char *const none[] = { "h e", NULL };
    v.merges = none;
    struct tokenizer *plain = open_or_fail(&v, NULL), *whole = open_or_fail(&v, "llama-bpe");
    for (int pass = 0; pass < 2; pass++) {
        EXPECT(plain, "hello", 0, HE, CH('l'), CH('l'), CH('o'));
        EXPECT(whole, "hello", 0, HELLO);
        EXPECT(whole, "hellos", 0, HE, CH('l'), CH('l'), CH('o'), CH('s'));
    }
    assert_true(tokenizer_get_info(whole)->add_bos); /* this pre-tokeniser's default */
    tokenizer_close(plain);
    tokenizer_close(whole);
}

static void test_unknown_pre_tokeniser_names_the_flag(void **state)
{
    (void)state;
    struct test_vocab v = byte_level();
    v.pre = "nonsense-9";
    expect_error(&v, NULL, ZP_UNSUPPORTED, "nonsense-9");
    expect_error(&v, NULL, ZP_UNSUPPORTED, "--pre NAME");
    expect_error(&v, "also-unknown", ZP_UNSUPPORTED, "also-unknown");
    v.pre = NULL;
    expect_error(&v, NULL, ZP_UNSUPPORTED, "--pre NAME");
    struct tokenizer *t = open_or_fail(&v, "qwen2");
    assert_string_equal(tokenizer_get_info(t)->pre, "qwen2");
    tokenizer_close(t);
}

static void test_invalid_utf8_is_refused_with_its_offset(void **state)
{
    (void)state;
    struct test_vocab v = byte_level();
    struct tokenizer *t = open_or_fail(&v, NULL);
    static const struct {
        const char *text;
        const char *offset;
    } bad[] = {
        { "ab\xFF", "offset 2" },        { "\xC3", "offset 0" },
        { "a\xED\xA0\x80", "offset 1" }, { "abc\xF4\x90\x80\x80", "offset 3" },
        { "\xC0\x80", "offset 0" },
    };
    for (size_t i = 0; i < ZP_COUNT(bad); i++) {
        struct token_list ids = { 0 };
        zp_err err = { 0 };
        assert_int_equal(token_list_push(&ids, 77, &err), ZP_OK);
        assert_int_equal(
            tokenizer_encode(t, bad[i].text, strlen(bad[i].text), TOKENIZE_BOS, &ids, &err),
            ZP_BAD_INPUT);
        assert_non_null(strstr(err.message, bad[i].offset));
        expect_list(&ids, (const int32_t[]){ 77 }, 1); // T3
        token_list_free(&ids);
    }
    tokenizer_close(t);
}

static void test_empty_text_gives_only_what_is_asked_for(void **state)
{
    (void)state;
    struct test_vocab v = byte_level();
    struct tokenizer *t = open_or_fail(&v, NULL);
    struct token_list ids = { 0 };
    zp_err err = { 0 };
    assert_int_equal(tokenizer_encode(t, NULL, 0, TOKENIZE_AUTO, &ids, &err), ZP_OK);
    assert_int_equal(ids.count, 0); /* the file does not ask for BOS */
    assert_int_equal(tokenizer_encode(t, "", 0, TOKENIZE_BOS | TOKENIZE_EOS, &ids, &err), ZP_OK);
    expect_list(&ids, (const int32_t[]){ BOS, EOS }, 2);
    token_list_free(&ids);
    tokenizer_close(t);
}

static void test_bos_follows_the_file_and_must_exist(void **state)
{
    (void)state;
    struct test_vocab v = byte_level();
    v.add_bos = 1;
    struct tokenizer *t = open_or_fail(&v, NULL);
    EXPECT(t, "he", TOKENIZE_AUTO, BOS, HE);
    EXPECT(t, "he", 0, HE);
    EXPECT(t, "he", TOKENIZE_AUTO | TOKENIZE_BOS, BOS, HE);
    tokenizer_close(t);
    v.bos = -1;
    expect_error(&v, NULL, ZP_BAD_FILE, "bos_token_id");
    v.add_bos = 0;
    t = open_or_fail(&v, NULL);
    struct token_list ids = { 0 };
    zp_err err = { 0 };
    assert_int_equal(tokenizer_encode(t, "he", 2, TOKENIZE_BOS, &ids, &err), ZP_BAD_INPUT);
    assert_int_equal(ids.count, 0);
    token_list_free(&ids);
    tokenizer_close(t);
}

static void test_control_tokens_need_the_flag_user_defined_do_not(void **state)
{
    (void)state;
    struct test_vocab v = byte_level();
    struct tokenizer *t = open_or_fail(&v, NULL);
    EXPECT(t, "<s>he", TOKENIZE_SPECIAL, BOS, HE);
    EXPECT(t, "<s>", 0, CH('<'), CH('s'), CH('>'));
    EXPECT(t, "he<tool>he", 0, HE, TOOL, HE);
    EXPECT(t, "<<b>>", 0, CH('<'), HTML, CH('>'));
    tokenizer_close(t);
}

static void test_longer_special_tokens_win_wherever_they_are(void **state)
{
    (void)state;
    struct test_vocab v = byte_level();
    struct tokenizer *t = open_or_fail(&v, NULL);
    EXPECT(t, "<turn><long>", TOKENIZE_SPECIAL, TURN_LONG);
    EXPECT(t, "<turn><turn><long><turn>", TOKENIZE_SPECIAL, TURN, TURN_LONG, TURN);
    tokenizer_close(t);
    static struct test_token overlap[N_TOKENS];
    memcpy(overlap, tokens, sizeof overlap);
    overlap[TURN].text = "ab";
    overlap[TURN_LONG].text = "bcd";
    v.tokens = overlap;
    t = open_or_fail(&v, NULL);
    EXPECT(t, "abcd", TOKENIZE_SPECIAL, CH('a'), TURN_LONG);
    EXPECT(t, "abab", TOKENIZE_SPECIAL, TURN, TURN);
    tokenizer_close(t);
}

static void test_segments_parse_special_tokens_of_the_template_only(void **state)
{
    (void)state;
    struct test_vocab v = byte_level();
    struct tokenizer *t = open_or_fail(&v, NULL);
    struct token_list ids = { 0 };
    zp_err err = { 0 };
    const struct text_segment chat[] = {
        { "<turn>", 6, true }, { "<s>", 3, false }, { "</s>", 4, true },
        { "<tu", 3, true },    { "rn>", 3, false }, { "<tu", 3, true },
        { "rn>he", 5, true },  { "llo", 3, false }, { "", 0, true },
    };
    assert_int_equal(
        tokenizer_encode_segments(t, chat, ZP_COUNT(chat), TOKENIZE_SPECIAL, &ids, &err), ZP_OK);
    const int32_t want[] = { TURN,    CH('<'), CH('s'), CH('>'), EOS,  CH('<'), CH('t'),
                             CH('u'), CH('r'), CH('n'), CH('>'), TURN, HELLO };
    expect_list(&ids, want, ZP_COUNT(want));
    token_list_clear(&ids);
    assert_int_equal(tokenizer_encode_segments(t, NULL, 0, TOKENIZE_BOS, &ids, &err), ZP_OK);
    expect_list(&ids, (const int32_t[]){ BOS }, 1);
    const struct text_segment broken[] = { { "a\xC3", 2, true },
                                           { "\xA9", 1, false },
                                           { "\xFF", 1, false } };
    assert_int_equal(tokenizer_encode_segments(t, broken, 3, 0, &ids, &err), ZP_BAD_INPUT);
    assert_non_null(strstr(err.message, "offset 3")); /* the border inside a character is fine */
    token_list_free(&ids);
    tokenizer_close(t);
}

static void test_phi3_special_tokens_take_white_space_along(void **state)
{
    (void)state;
    struct test_vocab v = byte_level();
    v.name = "My Phi-3 mini";
    struct tokenizer *t = open_or_fail(&v, NULL);
    EXPECT(t, "<turn> \n he", TOKENIZE_SPECIAL, TURN, HE);
    EXPECT(t, "<turn> ", TOKENIZE_SPECIAL, TURN);
    EXPECT(t, "<s> w", TOKENIZE_SPECIAL, BOS, SPACE_W);
    tokenizer_close(t);
}

static void test_decode_hides_control_tokens_and_checks_ids(void **state)
{
    (void)state;
    struct test_vocab v = byte_level();
    struct tokenizer *t = open_or_fail(&v, NULL);
    struct buffer text = buffer_with_max(MEM_SCRATCH, 1000);
    zp_err err = { 0 };
    const int32_t ids[] = { BOS, HELLO, SPACE_W, TOOL, EOS };
    assert_int_equal(tokenizer_decode(t, ids, ZP_COUNT(ids), 0, &text, &err), ZP_OK);
    assert_string_equal(text.data, "hello w<tool>");
    assert_int_equal(tokenizer_decode(t, ids, ZP_COUNT(ids), DETOKENIZE_SPECIAL, &text, &err),
                     ZP_OK);
    assert_string_equal(text.data, "hello w<tool><s>hello w<tool></s>");
    const int32_t bad[] = { HELLO, N_TOKENS }, negative[] = { -1 };
    assert_int_equal(tokenizer_decode(t, bad, 2, 0, &text, &err), ZP_BAD_INPUT);
    assert_string_equal(text.data, "hello w<tool><s>hello w<tool></s>"); // T3
    assert_int_equal(tokenizer_decode(t, negative, 1, 0, &text, &err), ZP_BAD_INPUT);
    assert_false(tokenizer_is_eog(t, N_TOKENS));
    assert_false(tokenizer_is_special(t, -5));
    buffer_free(&text);
    tokenizer_close(t);
}

static void test_byte_tokens_join_to_characters(void **state)
{
    (void)state;
    struct test_vocab v = byte_level();
    static struct test_token more[N_TOKENS];
    memcpy(more, tokens, sizeof more);
    more[AA].text = "\xC3\x83";  /* byte 0xC3 */
    more[AAA].text = "\xC2\xA9"; /* byte 0xA9 */
    static const char *const none[] = { NULL };
    v.tokens = more;
    v.merges = none;
    struct tokenizer *t = open_or_fail(&v, NULL);
    struct buffer text = buffer_with_max(MEM_SCRATCH, 1000);
    zp_err err = { 0 };
    EXPECT(t, "\xC3\xA9", 0, AA, AAA);
    assert_int_equal(tokenizer_decode(t, (const int32_t[]){ AA, AAA }, 2, 0, &text, &err), ZP_OK);
    assert_string_equal(text.data, "\xC3\xA9");
    struct token_list ids = { 0 };
    assert_int_equal(tokenizer_encode(t, "\xC3\xA8", 2, 0, &ids, &err),
                     ZP_BAD_INPUT); /* no 0xA8, no unk */
    assert_non_null(strstr(err.message, "0xA8"));
    token_list_free(&ids);
    buffer_free(&text);
    tokenizer_close(t);
}

static void test_ends_of_generation_by_role_and_name(void **state)
{
    (void)state;
    struct test_vocab v = byte_level();
    static struct test_token named[N_TOKENS];
    memcpy(named, tokens, sizeof named);
    named[TURN].text = "<|im_end|>";
    named[TURN_LONG] =
        (struct test_token){ "<|eom_id|>", TOKEN_NORMAL, 0 }; /* wrongly called normal */
    named[HTML].text = "</s>b";                               /* not a known name */
    v.tokens = named;
    struct tokenizer *t = open_or_fail(&v, NULL);
    const struct tokenizer_info *info = tokenizer_get_info(t);
    assert_true(tokenizer_is_eog(t, EOS));
    assert_true(tokenizer_is_eog(t, TURN));
    assert_true(tokenizer_is_eog(t, TURN_LONG));
    assert_true(tokenizer_is_special(t, TURN_LONG)); /* so plain text cannot give it */
    assert_false(tokenizer_is_eog(t, HTML));
    assert_false(tokenizer_is_eog(t, BOS));
    assert_int_equal(info->eot, TURN);
    assert_int_equal(info->eom, TURN_LONG);
    tokenizer_close(t);
}

static void test_hostile_vocabularies_are_refused(void **state)
{
    (void)state;
    struct test_vocab v = byte_level();
    static struct test_token twin[N_TOKENS];
    memcpy(twin, tokens, sizeof twin);
    twin[AA].text = "hello";
    v.tokens = twin;
    expect_error(&v, NULL, ZP_BAD_FILE, "same text 'hello'");
    v = byte_level();
    static const char *const no_space[] = { "h e", "hello", NULL };
    v.merges = no_space;
    expect_error(&v, NULL, ZP_BAD_FILE, "merge 1 is 'hello'");
    static const char *const empty_part[] = { "h ", NULL };
    v.merges = empty_part;
    expect_error(&v, NULL, ZP_BAD_FILE, "merge 0");
    v.merges = NULL;
    expect_error(&v, NULL, ZP_BAD_FILE, "tokenizer.ggml.merges");
    v = byte_level();
    v.eos = N_TOKENS;
    expect_error(&v, NULL, ZP_BAD_FILE, "eos_token_id");
    v = byte_level();
    v.model = "bert";
    expect_error(&v, NULL, ZP_UNSUPPORTED, "'bert'");
    v.model = NULL;
    expect_error(&v, NULL, ZP_BAD_FILE, "tokenizer.ggml.model");
    v = byte_level();
    v.n_tokens = 0;
    expect_error(&v, NULL, ZP_BAD_FILE, "0 items");
    static char endless[1200];
    memset(endless, 'x', sizeof endless - 1);
    v = byte_level();
    memcpy(twin, tokens, sizeof twin);
    twin[TURN].text = endless;
    v.tokens = twin;
    expect_error(&v, NULL, ZP_UNSUPPORTED, "1199 bytes");
}

/* ---- the merge loops against a plain definition */

struct toy_rules {
    uint8_t rank[6][6], joined[6][6];
}; /* rank 0 = no rule */

static bool find_toy(const void *rules, const uint8_t *word, const struct merge_symbol *left,
                     const struct merge_symbol *right, struct merge_pair *out)
{
    const struct toy_rules *r = rules;
    (void)word;
    *out = (struct merge_pair){ r->rank[left->id][right->id], r->joined[left->id][right->id] };
    return out->rank != 0;
}

static size_t join_plainly(const struct toy_rules *r, struct merge_symbol *s, size_t n)
{
    for (;;) {
        size_t best = n;
        for (size_t i = 0; i + 1 < n; i++) {
            unsigned rank = r->rank[s[i].id][s[i + 1].id];
            if (rank != 0 && (best == n || rank < r->rank[s[best].id][s[best + 1].id])) best = i;
        }
        if (best == n) return n;
        s[best] = (struct merge_symbol){ s[best].begin, s[best + 1].end,
                                         r->joined[s[best].id][s[best + 1].id] };
        memmove(&s[best + 1], &s[best + 2], (n - best - 2) * sizeof *s);
        n--;
    }
}

static void test_short_and_long_words_follow_the_same_rule(void **state)
{
    (void)state;
    const uint64_t seed = 20240607;
    struct rng rng = rng_stream(seed, 1);
    struct merger m = { 0 };
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int round = 0; round < 3000; round++) {
        struct toy_rules rules = { 0 };
        struct merge_symbol plain[200];
        zp_err err = { 0 };
        size_t n = 1 + rng_below(&rng, round % 3 == 0 ? 200 : 48); /* both sides of the border */
        for (int i = 0; i < 36; i++)
            if (rng_below(&rng, 3) != 0) {
                rules.rank[i / 6][i % 6] = (uint8_t)(1 + rng_below(&rng, 12)); /* ties happen */
                rules.joined[i / 6][i % 6] = (uint8_t)rng_below(&rng, 6);
            }
        assert_int_equal(merger_reserve(&m, n, &err), ZP_OK);
        for (uint32_t i = 0; i < n; i++)
            m.symbols[i] = plain[i] =
                (struct merge_symbol){ i, i + 1, (int32_t)rng_below(&rng, 6) };
        m.n = n;
        assert_int_equal(merger_run(&m, NULL, find_toy, &rules, &err), ZP_OK);
        n = join_plainly(&rules, plain, n);
        assert_int_equal(m.n, n);
        assert_memory_equal(m.symbols, plain, n * sizeof *plain);
    }
    merger_free(&m);
}

static void test_giant_words_come_back(void **state)
{
    (void)state;
    struct test_vocab v = byte_level();
    struct tokenizer *t = open_or_fail(&v, NULL);
    enum { SIZE = 3 << 20 };
    char *text = malloc(SIZE);
    struct buffer back = buffer_with_max(MEM_SCRATCH, SIZE + 1);
    struct token_list ids = { 0 };
    zp_err err = { 0 };
    for (size_t i = 0; i < SIZE; i++) text[i] = "hello"[i % 5];
    memset(text + 4096, 'a', SIZE / 4); /* one word of 3 MiB, a quarter of it one letter */
    assert_int_equal(tokenizer_encode(t, text, SIZE, 0, &ids, &err), ZP_OK);
    assert_int_equal(tokenizer_decode(t, ids.ids, ids.count, 0, &back, &err), ZP_OK);
    assert_int_equal(back.size, SIZE);
    assert_memory_equal(back.data, text, SIZE);
    buffer_free(&back);
    token_list_free(&ids);
    free(text);
    tokenizer_close(t);
}

/* ---- threads */

struct shared {
    const struct tokenizer *t;
    int wrong[4];
};

static void encode_often(void *arg, uint32_t thread, uint32_t n_threads)
{
    struct shared *s = arg;
    (void)n_threads;
    static const int32_t want[] = { HELLO, SPACE_W, HELL, CH('s'), AAA };
    for (int i = 0; i < 200; i++) {
        struct token_list ids = { 0 };
        zp_err err = { 0 };
        zp_status status = tokenizer_encode(s->t, "hello whellsaaa", 15, 0, &ids, &err);
        if (status != ZP_OK || ids.count != 5 || memcmp(ids.ids, want, sizeof want) != 0)
            s->wrong[thread]++;
        token_list_free(&ids);
    }
}

static void test_threads_share_one_tokenizer(void **state)
{
    (void)state;
    struct test_vocab v = byte_level();
    struct shared s = { open_or_fail(&v, NULL), { 0 } };
    struct pool *pool;
    zp_err err = { 0 };
    assert_int_equal(pool_open(&pool, 4, &err), ZP_OK);
    pool_run(pool, encode_often, &s);
    pool_close(pool);
    for (int i = 0; i < 4; i++) assert_int_equal(s.wrong[i], 0);
    tokenizer_close((struct tokenizer *)s.t);
}

static void test_byte_alphabet_is_a_bijection(void **state)
{
    (void)state;
    for (int i = 0; i < 256; i++) {
        char text[2];
        uint8_t back[2];
        size_t n, size = bpe_byte_text((uint8_t)i, text);
        assert_true(bpe_text_bytes(text, size, back, &n));
        assert_int_equal(n, 1);
        assert_int_equal(back[0], i);
    }
    uint8_t back[8];
    size_t n;
    char space[2];
    bpe_byte_text(' ', space);
    assert_memory_equal(space, "\xC4\xA0", 2);
    assert_false(bpe_text_bytes(" ", 1, back, &n));
    assert_false(bpe_text_bytes("\xE2\x96\x81", 3, back, &n));
    assert_false(bpe_text_bytes("\xC5\x84", 2, back, &n)); /* U+0144, one beyond the alphabet */
    assert_false(bpe_text_bytes("\xC4", 1, back, &n));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lowest_rank_goes_first),
        cmocka_unit_test(test_equal_ranks_go_left_to_right),
        cmocka_unit_test(test_ignore_merges_takes_whole_words),
        cmocka_unit_test(test_unknown_pre_tokeniser_names_the_flag),
        cmocka_unit_test(test_invalid_utf8_is_refused_with_its_offset),
        cmocka_unit_test(test_empty_text_gives_only_what_is_asked_for),
        cmocka_unit_test(test_bos_follows_the_file_and_must_exist),
        cmocka_unit_test(test_control_tokens_need_the_flag_user_defined_do_not),
        cmocka_unit_test(test_longer_special_tokens_win_wherever_they_are),
        cmocka_unit_test(test_segments_parse_special_tokens_of_the_template_only),
        cmocka_unit_test(test_phi3_special_tokens_take_white_space_along),
        cmocka_unit_test(test_decode_hides_control_tokens_and_checks_ids),
        cmocka_unit_test(test_byte_tokens_join_to_characters),
        cmocka_unit_test(test_ends_of_generation_by_role_and_name),
        cmocka_unit_test(test_hostile_vocabularies_are_refused),
        cmocka_unit_test(test_short_and_long_words_follow_the_same_rule),
        cmocka_unit_test(test_giant_words_come_back),
        cmocka_unit_test(test_threads_share_one_tokenizer),
        cmocka_unit_test(test_byte_alphabet_is_a_bijection),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
