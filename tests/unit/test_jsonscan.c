/* test_jsonscan.c: JSON byte by byte accepts what the reader of whole texts accepts, and sees the
 * first byte that is wrong. */
#include "golden.h"

#include "base/json_tree.h"
#include "base/rng.h"
#include "serve/jsonscan.h"

enum { SEED = 6002 };

/* Bytes taken up to the end or the first wrong one; *done: the end was reached. */
static size_t scan(const char *text, size_t size, bool *done)
{
    struct jsonscan s = { 0 };
    *done = false;
    for (size_t i = 0; i < size; i++) {
        enum jsonscan_state state = jsonscan_byte(&s, text[i]);
        if (state == SCAN_BAD) return i;
        *done = state == SCAN_DONE;
        if (*done) return i + 1;
    }
    return size;
}

static void test_whole_texts(void **state)
{
    static const char *const good[] = {
        "{}",
        "[]",
        "[[[]]]",
        "{\"\": null}",
        " \n{\"a\": [1, -0, 0.5, -1.25e+3, 1E9, 10]}",
        "[true, false, null]",
        "[\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00fF\"]",
        "{\"a\":{\"b\":{}},\"c\":0}",
        "[\"\xc3\xa4 \n\t\"]",
        "[0]",
        "[-1]",
        "[1 ]",
        "[ ]",
        "{ }",
    };
    (void)state;
    for (size_t i = 0; i < ZP_COUNT(good); i++) {
        bool done;
        assert_int_equal(scan(good[i], strlen(good[i]), &done), strlen(good[i]));
        if (!done) fail_msg("%s: not seen as whole", good[i]);
    }
}

static void test_first_wrong_byte(void **state)
{
    static const struct {
        const char *text;
        size_t at;
    } bad[] = {
        { "1", 0 },         { "\"a\"", 0 },     { "[1,]", 3 },      { "[,", 1 },
        { "{,", 1 },        { "{\"a\":1,}", 7 }, { "{\"a\" 1}", 5 }, { "{\"a\"}", 4 },
        { "{a", 1 },        { "[01", 2 },       { "[1.]", 3 },      { "[.5", 1 },
        { "[-]", 2 },       { "[1e]", 3 },      { "[1e+]", 4 },     { "[+1", 1 },
        { "[1}", 2 },       { "{\"a\":1]", 6 }, { "[trua", 4 },     { "[nul]", 4 },
        { "[\"\\x", 3 },    { "[\"\\u00g", 6 }, { "[1 2", 3 },      { "[\"a\" \"", 5 },
        { "{\"a\":}", 5 },  { "[1.5.", 4 },     { "[1e5e", 4 },     { "{1", 1 },
    };
    (void)state;
    for (size_t i = 0; i < ZP_COUNT(bad); i++) {
        bool done;
        size_t at = scan(bad[i].text, strlen(bad[i].text), &done);
        if (done || at != bad[i].at)
            fail_msg("%s: wrong at %zu, expected %zu", bad[i].text, at, bad[i].at);
    }
}

static void test_depth_is_bounded(void **state)
{
    char text[JSONSCAN_DEPTH + 2];
    bool done;
    (void)state;
    memset(text, '[', sizeof text);
    assert_int_equal(scan(text, JSONSCAN_DEPTH, &done), JSONSCAN_DEPTH);
    assert_int_equal(scan(text, JSONSCAN_DEPTH + 1, &done), JSONSCAN_DEPTH);
}

static void test_end_and_error_are_left_by_nothing(void **state)
{
    (void)state;
    for (int c = 0; c < 256; c++) {
        struct jsonscan end = { .state = SCAN_DONE }, bad = { .state = SCAN_BAD };
        assert_int_equal(jsonscan_byte(&end, (char)c), SCAN_DONE);
        assert_int_equal(jsonscan_byte(&bad, (char)c), SCAN_BAD);
    }
}

/* Random texts over the characters of JSON: whole ones, and only they, are whole for both. Names
 * are such that none comes twice, for which the reader of whole texts looks as well. */
static void test_same_as_the_reader_of_whole_texts(void **state)
{
    static const char *const words[] = { "{",    "}",    "[",    "]", ",", ":", "\"\\n\"",
                                         "1",    "-",    "0",    ".", "5", "e", "+",
                                         "true", "null", "fals", "e", " ", "\"" };
    struct rng r = rng_stream(SEED, 0);
    size_t n_whole = 0;
    (void)state;
    print_message("seed %d\n", SEED);
    for (int round = 0; round < 400000; round++) {
        char text[64] = "[";
        size_t size = 1, n = rng_below(&r, 7);
        for (size_t i = 0; i < n; i++) {
            const char *word = words[rng_below(&r, ZP_COUNT(words))];
            size += (size_t)snprintf(text + size, sizeof text - size, "%s", word);
        }
        bool done;
        json_t *value;
        size_t at = scan(text, size, &done);
        bool whole = done && text[at + strspn(text + at, " ")] == '\0';
        bool good = json_tree_read(text, size, "", ZP_BAD_INPUT, &value, NULL) == ZP_OK;
        json_decref(value);
        if (whole != good) fail_msg("%s: %d, expected %d", text, whole, good);
        n_whole += whole;
    }
    assert_true(n_whole > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole_texts),
        cmocka_unit_test(test_first_wrong_byte),
        cmocka_unit_test(test_depth_is_bounded),
        cmocka_unit_test(test_end_and_error_are_left_by_nothing),
        cmocka_unit_test(test_same_as_the_reader_of_whole_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
