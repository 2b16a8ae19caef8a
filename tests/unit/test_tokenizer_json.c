/* test_tokenizer_json.c: tokenizer.json files made in the test: components, added tokens, roles,
 * errors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>
#include "base/os.h"
#include "model/tokenizer.h"
#include "tokenizer_fixture.h"

#define MARK "\xE2\x96\x81" /* U+2581 */

static zp_status open_json(struct tokenizer **t, const char *json, const char *config, zp_err *err)
{
    struct gguf_str settings = { config, config ? strlen(config) : 0 };
    return tokenizer_open_json(t, (struct gguf_str){ json, strlen(json) }, settings, "test", err);
}

static struct tokenizer *open_or_fail(const char *json, const char *config)
{
    struct tokenizer *t;
    zp_err err = { 0 };
    if (open_json(&t, json, config, &err) != ZP_OK) fail_msg("%s", err.message);
    return t;
}

static void expect_error(const char *json, zp_status code, const char *text)
{
    struct tokenizer *t;
    zp_err err = { 0 };
    assert_int_equal(open_json(&t, json, NULL, &err), code);
    assert_null(t);
    if (strstr(err.message, text) == NULL) fail_msg("'%s' does not say '%s'", err.message, text);
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

static void expect_text(const struct tokenizer *t, const int32_t *ids, size_t n, const char *want)
{
    struct buffer text = buffer_with_max(MEM_SCRATCH, 1000);
    zp_err err = { 0 };
    assert_int_equal(tokenizer_decode(t, ids, n, 0, &text, &err), ZP_OK);
    assert_string_equal(text.data == NULL ? "" : (const char *)text.data, want);
    buffer_free(&text);
}

#define BYTE_MODEL                                                                                 \
    "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"c\":2,\"1\":3,\"2\":4,\"\xC4\xA0\":" \
    "5,"                                                                                           \
    "\"ab\":6,\"\xC4\xA0"                                                                          \
    "a\":7,\"12\":8,\".\":9},\"merges\":[\"a b\",[\"\xC4\xA0\",\"a\"],\"1 2\"]}"
#define BYTE_LEVEL "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":true}"
#define ADDED                                                                                      \
    "\"added_tokens\":[{\"id\":10,\"content\":\"<s>\",\"special\":true},"                          \
    "{\"id\":11,\"content\":\"</"                                                                  \
    "s>\",\"special\":true},{\"id\":12,\"content\":\"<t>\",\"special\":false,"                     \
    "\"normalized\":false},{\"id\":13,\"content\":\"<t><u>\",\"special\":true,\"rstrip\":true}]"

static void test_byte_level_follows_the_file(void **state)
{
    (void)state;
    struct tokenizer *t =
        open_or_fail("{" ADDED ",\"pre_tokenizer\":" BYTE_LEVEL "," BYTE_MODEL "}", NULL);
    EXPECT(t, "ab a", 0, 6, 7);
    EXPECT(t, "12 12", 0, 8, 5, 8);
    EXPECT(t, "<s>", TOKENIZE_SPECIAL, 10);
    EXPECT(t, "a<t>b", 0, 0, 12, 1);
    EXPECT(t, "<t><u>  a", TOKENIZE_SPECIAL, 13, 0); /* longest at the leftmost place; rstrip */
    expect_text(t, (const int32_t[]){ 10, 6, 7, 11 }, 4, "ab a");
    assert_string_equal(tokenizer_get_info(t)->model, "tokenizer.json");
    assert_int_equal(tokenizer_get_info(t)->n_vocab, 14);
    tokenizer_close(t);
}

static void test_split_steps_run_in_order(void **state)
{
    (void)state;
    struct tokenizer *t = open_or_fail(
        "{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":["
        "{\"type\":\"Digits\",\"individual_digits\":true}," BYTE_LEVEL "]}," BYTE_MODEL "}",
        NULL);
    EXPECT(t, "12", 0, 3, 4);
    tokenizer_close(t);
    t = open_or_fail("{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":["
                     "{\"type\":\"Split\",\"pattern\":{\"String\":\".\"},\"behavior\":\"Removed\","
                     "\"invert\":false}," BYTE_LEVEL "]}," BYTE_MODEL "}",
                     NULL);
    EXPECT(t, "a.b", 0, 0, 1); /* a dot, not any character */
    tokenizer_close(t);
    t = open_or_fail("{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":["
                     "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a(?=b)\"},\"behavior\":"
                     "\"Isolated\",\"invert\":false}," BYTE_LEVEL "]}," BYTE_MODEL "}",
                     NULL);
    EXPECT(t, "ab", 0, 0, 1);
    tokenizer_close(t);
}

#define CHAR_MODEL                                                                                 \
    "\"model\":{\"type\":\"BPE\",\"unk_token\":\"<unk>\",\"fuse_unk\":true,\"byte_fallback\":%s,"  \
    "\"vocab\":{\"<unk>\":0,\"" MARK "\":1,\"a\":2,\"b\":3,\"" MARK                                \
    "a\":4,\"<0xC3>\":5,\"<0xA9>\":6,"                                                             \
    "\"<0x7A>\":7},\"merges\":[[\"" MARK "\",\"a\"]]}"
#define CHAR_DECODER                                                                               \
    "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{"         \
    "\"String\":\"" MARK "\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}," \
    "{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]}"
#define PREFIX_NORMALIZER                                                                          \
    "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":"    \
    "\"" MARK "\"},{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"" MARK       \
    "\"}]}"

static void test_characters_with_byte_fallback(void **state)
{
    (void)state;
    char json[2000];
    snprintf(json, sizeof json, "{" PREFIX_NORMALIZER "," CHAR_DECODER "," CHAR_MODEL "}", "true");
    struct tokenizer *t = open_or_fail(json, NULL);
    EXPECT(t, "a a", 0, 4, 4);
    EXPECT(t, "\xC3\xA9z", 0, 1, 5, 6, 7);
    EXPECT(t, "a\xC3\xA8zq", 0, 4, 0, 7, 0); /* 0xA8 and q have no byte token */
    expect_text(t, (const int32_t[]){ 4, 4, 5, 6 }, 4, "a a\xC3\xA9");
    tokenizer_close(t);
    snprintf(json, sizeof json, "{" PREFIX_NORMALIZER "," CHAR_DECODER "," CHAR_MODEL "}", "false");
    t = open_or_fail(json, NULL);
    EXPECT(t, "a\xC3\xA8zqb", 0, 4, 0, 3); /* fused */
    tokenizer_close(t);
}

static void test_metaspace_prefix_by_scheme(void **state)
{
    (void)state;
    char json[2000];
    static const char *const schemes[] = { "always", "first", "never" };
    for (int i = 0; i < 3; i++) {
        snprintf(json, sizeof json,
                 "{\"added_tokens\":[{\"id\":8,\"content\":\"<t>\",\"special\":false}],"
                 "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"" MARK
                 "\",\"prepend_scheme\":\"%s\","
                 "\"split\":true}," CHAR_MODEL "}",
                 schemes[i], "false");
        struct tokenizer *t = open_or_fail(json, NULL);
        if (i == 0) EXPECT(t, "a<t>a", 0, 4, 8, 4);
        if (i == 1) EXPECT(t, "a<t>a", 0, 4, 8, 2);
        if (i == 2) EXPECT(t, "a<t>a", 0, 2, 8, 2);
        EXPECT(t, " a a", 0, 4, 4); /* never twice */
        tokenizer_close(t);
    }
}

static void test_unigram_of_a_file(void **state)
{
    (void)state;
    struct tokenizer *t =
        open_or_fail("{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFKC\"},"
                     "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\" {2,}\"},\"content\":\" "
                     "\"}]},\"pre_tokenizer\":"
                     "{\"type\":\"Metaspace\",\"replacement\":\"" MARK
                     "\",\"add_prefix_space\":true},\"model\":{\"type\":\"Unigram\","
                     "\"unk_id\":0,\"vocab\":[[\"<unk>\",0.0],[\"" MARK "a\",-2.0],[\"" MARK
                     "\",-3],[\"a\",-3.0],[\"b\",-3.5],"
                     "[\"ab\",-4.25]]}}",
                     NULL);
    EXPECT(t, "a", 0, 1);
    EXPECT(t,
           "a   \xEF\xBD\x81"
           "b",
           0, 1, 1, 4); /* runs of spaces and a full-width letter */
    EXPECT(t, "\xC2\xA1\xC2\xA1", 0, 2, 0);
    tokenizer_close(t);
}

static void test_roles_come_from_config_and_post_processor(void **state)
{
    (void)state;
    static const char json[] =
        "{" ADDED ",\"pre_tokenizer\":" BYTE_LEVEL ",\"post_processor\":{\"type\":"
        "\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}},{"
        "\"Sequence\":"
        "{\"id\":\"A\",\"type_id\":0}}]}," BYTE_MODEL "}";
    struct tokenizer *t = open_or_fail(json, NULL);
    EXPECT(t, "a", TOKENIZE_AUTO, 10, 0);
    assert_int_equal(tokenizer_get_info(t)->eos, TOKEN_NONE);
    tokenizer_close(t);
    t = open_or_fail(
        json, "{\"bos_token\":{\"content\":\"<s>\"},\"eos_token\":\"</s>\",\"add_bos_token\":false,"
              "\"add_eos_token\":true}");
    EXPECT(t, "a", TOKENIZE_AUTO, 0, 11);
    assert_int_equal(tokenizer_get_info(t)->bos, 10);
    assert_true(tokenizer_is_eog(t, 11));
    tokenizer_close(t);
}

static void test_unknown_components_are_named(void **state)
{
    (void)state;
    expect_error("{\"normalizer\":{\"type\":\"BertNormalizer\"}," BYTE_MODEL "}", ZP_UNSUPPORTED,
                 "BertNormalizer");
    expect_error("{\"pre_tokenizer\":{\"type\":\"UnicodeScripts\"}," BYTE_MODEL "}", ZP_UNSUPPORTED,
                 "UnicodeScripts");
    expect_error("{\"decoder\":{\"type\":\"CTC\"}," BYTE_MODEL "}", ZP_UNSUPPORTED, "CTC");
    expect_error("{\"post_processor\":{\"type\":\"Odd\"}," BYTE_MODEL "}", ZP_UNSUPPORTED, "Odd");
    expect_error("{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"a\":0}}}", ZP_UNSUPPORTED,
                 "WordPiece");
    expect_error("{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[a&&b]\"},"
                 "\"behavior\":\"Isolated\"}," BYTE_MODEL "}",
                 ZP_UNSUPPORTED, "&&");
    expect_error("{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a\"},"
                 "\"behavior\":\"Shuffled\"}," BYTE_MODEL "}",
                 ZP_UNSUPPORTED, "Shuffled");
    expect_error("{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[" BYTE_LEVEL
                 ",{\"type\":\"Digits\"}]}," BYTE_MODEL "}",
                 ZP_UNSUPPORTED, "after ByteLevel");
}

static void test_broken_files_are_refused(void **state)
{
    (void)state;
    expect_error("{\"model\":", ZP_BAD_FILE, "line 1");
    expect_error("{}", ZP_BAD_FILE, "no model");
    expect_error("{\"model\":{\"type\":\"BPE\",\"vocab\":{}}}", ZP_BAD_FILE, "empty");
    expect_error("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0}}}", ZP_BAD_FILE, "merges");
    expect_error("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}}",
                 ZP_BAD_FILE, "same id 0");
    expect_error("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":900000},\"merges\":[]}}",
                 ZP_BAD_FILE, "900000");
    expect_error("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":-1},\"merges\":[]}}", ZP_BAD_FILE,
                 "-1");
    expect_error("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[7]}}", ZP_BAD_FILE,
                 "merge 0");
    expect_error(
        "{\"model\":{\"type\":\"BPE\",\"unk_token\":\"u\",\"vocab\":{\"a\":0},\"merges\":[]}}",
        ZP_BAD_FILE, "unknown token");
    expect_error("{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",\"b\"]]}}", ZP_BAD_FILE,
                 "[text, score]");
    expect_error("{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(\"},"
                 "\"behavior\":\"Isolated\"}," BYTE_MODEL "}",
                 ZP_BAD_FILE, "'('");
    expect_error(
        "{\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"A*\"}," BYTE_MODEL
        "}",
        ZP_BAD_FILE, "base64");
}

/* An expression that would need exponential time ends with an error. */
static void test_costly_expressions_end_with_an_error(void **state)
{
    (void)state;
    struct tokenizer *t =
        open_or_fail("{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":["
                     "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(a+)+\\\\d\"},\"behavior\":"
                     "\"Isolated\",\"invert\":false}," BYTE_LEVEL "]}," BYTE_MODEL "}",
                     NULL);
    struct token_list ids = { 0 };
    zp_err err = { 0 };
    char text[60];
    memset(text, 'a', sizeof text);
    text[59] = 'b';
    assert_int_equal(tokenizer_encode(t, text, sizeof text, 0, &ids, &err), ZP_BAD_INPUT);
    assert_non_null(strstr(err.message, "gave up"));
    token_list_free(&ids);
    tokenizer_close(t);
}

static void test_long_runs_of_combining_marks_are_refused(void **state)
{
    (void)state;
    struct tokenizer *t = open_or_fail(
        "{\"normalizer\":{\"type\":\"NFC\"},\"pre_tokenizer\":" BYTE_LEVEL "," BYTE_MODEL "}",
        NULL);
    enum { N = 100000 };
    char *text = malloc(2 * N);
    struct token_list ids = { 0 };
    zp_err err = { 0 };
    for (int i = 0; i < N; i++)
        memcpy(text + 2 * i, i % 2 ? "\xCC\x81" : "\xCC\xA3", 2); /* above, below */
    assert_int_equal(tokenizer_encode(t, text, 2 * N, 0, &ids, &err), ZP_BAD_INPUT);
    assert_non_null(strstr(err.message, "combining marks"));
    EXPECT(t, "ab", 0, 6);
    token_list_free(&ids);
    free(text);
    tokenizer_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_byte_level_follows_the_file),
        cmocka_unit_test(test_split_steps_run_in_order),
        cmocka_unit_test(test_characters_with_byte_fallback),
        cmocka_unit_test(test_metaspace_prefix_by_scheme),
        cmocka_unit_test(test_unigram_of_a_file),
        cmocka_unit_test(test_roles_come_from_config_and_post_processor),
        cmocka_unit_test(test_unknown_components_are_named),
        cmocka_unit_test(test_broken_files_are_refused),
        cmocka_unit_test(test_costly_expressions_end_with_an_error),
        cmocka_unit_test(test_long_runs_of_combining_marks_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
