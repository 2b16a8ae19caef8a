/* test_doctags.c: structure marks of documents, written as text with a line of signs below each
 * line: H heading, X tag, N numbering, T table, C fence, L bullet, S section, B break, . none;
 * ! before a line: a block begins there. Any bytes are text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "train/doctags.h"

static const char signs[] = "HXNTCLSB";

/* What a byte's tags are shown as: the last type of several. */
static char sign_of(uint16_t tags)
{
    char sign = '.';
    for (int k = 0; k < STRUCT_TYPES; k++)
        if (tags >> k & 1) sign = signs[k];
    return sign;
}

/* pairs: the text's lines, each followed by its signs ("" for none). */
static void check(const char *const *pairs, size_t n_lines)
{
    char text[4096] = "";
    uint16_t tags[4096];
    for (size_t i = 0; i < n_lines; i++) strcat(text, pairs[2 * i]), strcat(text, "\n");
    doctags_mark(text, strlen(text), tags);
    for (size_t i = 0, at = 0; i < n_lines; i++) {
        const char *line = pairs[2 * i], *want = pairs[2 * i + 1];
        char got[300] = "";
        bool begins = false;
        size_t n = strlen(line);
        for (size_t k = 0; k < n; k++) begins |= (tags[at + k] & DOCTAGS_BEGINS) != 0;
        for (size_t k = 0; k < n; k++) got[k] = sign_of(tags[at + k]);
        while (n > 0 && got[n - 1] == '.') got[--n] = '\0';
        if (begins != (*want == '!') || strcmp(got, want + begins) != 0)
            fail_msg("line %zu '%s': '%s%s', expected '%s'", i, line, begins ? "!" : "", got, want);
        at += strlen(line) + 1;
    }
}
#define CHECK(...)                                                                 \
    do {                                                                           \
        static const char *const pairs_[] = { __VA_ARGS__ };                       \
        check(pairs_, sizeof pairs_ / sizeof *pairs_ / 2);                         \
    } while (0)

static void test_headings(void **state)
{
    (void)state;
    CHECK("# Title", "!H",
          "Text of it,", "!",
          "two lines.", "",
          "## 2.3. Part", "!HH.NNNN",
          "#hash is none", "!",
          "    # nor is code", "",
          "", "",
          "Setext", "!",
          "------", "HHHHHH",
          "Short", "!",
          "=====", "HHHHH",
          "", "",
          "========", "!HHHHHHHH",
          "Over", "",
          "========", "HHHHHHHH",
          "Text", "!");
}

static void test_underlines_are_as_long_as_titles(void **state)
{
    (void)state;
    CHECK("A long title", "!", "^^^^", "", "", "", "Title", "!", "^^^^^", "HHHHH", "More", "!",
          "", "", "Name", "!", "~~~~", "HHHH", "Longer", "!", "~~~", "!CCC");
}

static void test_fences_hide_what_they_hold(void **state)
{
    (void)state;
    CHECK("```c", "!CCC", "# define X <b>", "", "- no item", "", "", "", "```", "CCC",
          "- item", "!L", "~~~~", "!CCCC", "```", "", "~~~", "", "~~~~", "CCCC",
          "Text", "!", "`` `a` ``", "", "```not a` fence", "");
}

static void test_literal_blocks_hide_what_they_hold(void **state)
{
    (void)state;
    CHECK("Like this::", "!.........CC", "", "", "   # no heading", "!", "   - no item", "", "", "",
          "      deeper", "!", "", "", "# Heading", "!H", "", "", ".. code-block:: c",
          "!CC.CCCCCCCCCCCC", "", "", "   <b>", "!", "Text", "!");
}

static void test_items(void **state)
{
    (void)state;
    CHECK("- one", "!L", "  goes on", "", "* two", "!L", "   + deeper", "!...L",
          "\xe2\x80\xa2 dot", "!LLL", "-5 degrees", "", "1. first", "!NN", "2) second", "!NN",
          "(a) third", "!NNN", "(iv) fourth", "!NNNN", "b) fifth", "!NN", "#. sixth", "!NN",
          "2.3.1 Part", "!NNNNN", "10 apples", "", "(see there)", "", "3.", "", "e.g. this", "");
}

static void test_tables(void **state)
{
    (void)state;
    CHECK("| a | b |", "!T...T...T", "|---|---|", "TTTTTTTTT", "| 1 | 2", "T...T", "", "",
          "+---+---+", "!TTTTTTTTT", "| x | y |", "T...T...T", "+===+===+", "TTTTTTTTT",
          "Text | with a bar", "!", "", "", "====  ===", "!TTTT..TTT", "one   two", "!",
          "| a line of verse", "");
}

static void test_tags_and_sections(void **state)
{
    (void)state;
    CHECK("See <b>this</b>.", "!....XXX....XXXX", "<br/> <a href=\"x\">", "XXXXX.XX.XXXXXXXXX",
          "a < b and c > d", "", "<http://example.org>", "", "<me@example.org>", "",
          "<!-- note -->", "XXXX.XXXX.XXX", "<unfinished", "",
          "[SECTION:one] text [PARA:2]", "SSSSSSSSSSSSS......SSSSSSSS", "[SECTION:one", "");
}

static void test_breaks(void **state)
{
    (void)state;
    CHECK("One", "!", "", "", "---", "!BBB", "Two", "!", "\fThree", "!B", "", "", "*****", "!BBBBB",
          "", "", "......", "!", "", "");
}

/* Marks stand on bytes that are seen, but for the form feed; any bytes at all end. */
static void test_any_bytes_are_text(void **state)
{
    (void)state;
    struct rng r = rng_stream(20260101, 7);
    static const char likely[] = "#-=~`|+*<>/![]():.0129aivx \n\n\t\f";
    for (int turn = 0; turn < 300; turn++) {
        size_t n = rng_below(&r, 400);
        char *text = malloc(n + 1);
        uint16_t *tags = malloc((n + 1) * sizeof *tags);
        assert_true(text && tags);
        for (size_t i = 0; i < n; i++)
            text[i] = turn % 3 == 0 ? (char)rng_below(&r, 256)
                                    : likely[rng_below(&r, sizeof likely - 1)];
        doctags_mark(text, n, tags);
        for (size_t i = 0; i < n; i++)
            if (text[i] == ' ' || text[i] == '\n' || text[i] == '\t')
                assert_int_equal(tags[i], 0);
            else assert_true(tags[i] < 1u << (STRUCT_TYPES + 1));
        free(text);
        free(tags);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_headings),
        cmocka_unit_test(test_underlines_are_as_long_as_titles),
        cmocka_unit_test(test_fences_hide_what_they_hold),
        cmocka_unit_test(test_literal_blocks_hide_what_they_hold),
        cmocka_unit_test(test_items),
        cmocka_unit_test(test_tables),
        cmocka_unit_test(test_tags_and_sections),
        cmocka_unit_test(test_breaks),
        cmocka_unit_test(test_any_bytes_are_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
