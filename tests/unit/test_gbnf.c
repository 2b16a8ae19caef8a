/* test_gbnf.c: grammars in llama.cpp's notation: what they accept, and where errors are seen. */
#include "grammar_fixture.h"

static void test_texts_choices_and_groups(void **state)
{
    (void)state;
    check(gbnf_rules, "root ::= \"yes\" | \"no\" [.!]? | (\"a\" | \"b\") \"c\"",
          TEXTS("yes", "no", "no.", "no!", "ac", "bc"), TEXTS("", "y", "yes.", "no?", "abc", "c"));
    check(gbnf_rules, "root ::= \"a\" (\"b\" \"c\")* | ", TEXTS("", "a", "abcbc"),
          TEXTS("ab", "bc"));
}

static void test_rules_and_lines(void **state)
{
    (void)state;
    check(gbnf_rules,
          "# a comment\n"
          "root ::= item (\",\" item)*   # list\n"
          "\r\n"
          "item-1_a ::= [0-9]+\n"
          "item ::= item-1_a |\n"
          "  \"x\" (\n"
          "    \"y\"   # inside\n"
          "    | \"z\"\n"
          "  )",
          TEXTS("1", "12,xy", "xz,3,4"), TEXTS("", "x", "1,", ",1", "xyz"));
    check(gbnf_rules, "a ::= \"(\" root \")\"\nroot ::= a | \"x\"", TEXTS("x", "((x))"),
          TEXTS("(x", "()", "x)"));
}

static void test_quantifiers(void **state)
{
    (void)state;
    check(gbnf_rules, "root ::= \"a\"* \"b\"+ \"c\"?", TEXTS("b", "aabb", "bc"),
          TEXTS("", "a", "bcc"));
    check(gbnf_rules, "root ::= [ab]{2} \"c\"{1,3} \"d\"{2,} \"e\"{,2}",
          TEXTS("abcdd", "aacccdddde", "bbcddee"), TEXTS("acdd", "abccccdd", "abcd", "abcddeee"));
    check(gbnf_rules, "root ::= [ab]{ 20 , 21 }",
          TEXTS("aaaaaaaaaabbbbbbbbbb", "aaaaaaaaaabbbbbbbbbba"),
          TEXTS("aaaaaaaaaabbbbbbbbb", "aaaaaaaaaabbbbbbbbbbab"));
    check(gbnf_rules, "root ::= (\"a\" \"b\"?)+ \"a\"{0}", TEXTS("a", "abaab"),
          TEXTS("", "b", "abb"));
}

static void test_characters_are_of_utf8(void **state)
{
    (void)state;
    check(gbnf_rules, "root ::= \"\xc3\xa9\\u4E2D\\U0001F980\\x41\\n\\t\\r\\\\\\\"\\[\\]\"",
          TEXTS("\xc3\xa9\xe4\xb8\xad\xf0\x9f\xa6\x80"
                "A\n\t\r\\\"[]"),
          TEXTS("\xc3\xa9", "A"));
    check(gbnf_rules, "root ::= [a\xc3\xa9-\xc3\xab\\-\\]^]+",
          TEXTS("a", "\xc3\xa9\xc3\xaa", "-]^"), TEXTS("b", "\xc3", "\xc3\xac", "\xa9"));
    check(gbnf_rules, "root ::= [^\"\\\\\\x00-\\x1F]*", TEXTS("", "a\xf0\x9f\xa6\x80", "\x7f"),
          TEXTS("\"", "\\", "\n", "\xff", "\xed\xa0\x80"));
    check(gbnf_rules, "root ::= .", TEXTS("a", "\n", "\xf4\x8f\xbf\xbf"),
          TEXTS("", "ab", "\xf4\x90\x80\x80", "\xc0\x80"));
}

static const char json_grammar[] =
    "root   ::= object\n"
    "value  ::= object | array | string | number | (\"true\" | \"false\" | \"null\") ws\n"
    "object ::=\n"
    "  \"{\" ws (\n"
    "            string \":\" ws value\n"
    "    (\",\" ws string \":\" ws value)*\n"
    "  )? \"}\" ws\n"
    "array  ::= \"[\" ws ( value (\",\" ws value)* )? \"]\" ws\n"
    "string ::= \"\\\"\" ( [^\"\\\\\\x7F\\x00-\\x1F] | \"\\\\\" ([\"\\\\bfnrt] | \"u\" "
    "[0-9a-fA-F]{4}) )* \"\\\"\" ws\n"
    "number ::= (\"-\"? ([0-9] | [1-9] [0-9]{0,15})) (\".\" [0-9]+)? ([eE] [-+]? [0-9] "
    "[1-9]{0,15})? ws\n"
    "ws ::= | \" \" | \"\\n\" [ \\t]{0,20}\n";

static void test_a_grammar_of_json(void **state)
{
    (void)state;
    check(gbnf_rules, json_grammar,
          TEXTS("{}", "{\"a\": [1, -2.5e3, \"\\u00e9\\n\"]}", "{\n\t\"a\":{\"b\":null}}\n"),
          TEXTS("", "[]", "{\"a\"}", "{\"a\":01}", "{\"a\":1,}", "{\"a\":\"\n\"}"));
}

static void expect_error(const char *text, const char *part)
{
    expect_refused(gbnf_rules, text, strlen(text), ZP_BAD_INPUT, part);
}

static void test_errors_say_where(void **state)
{
    (void)state;
    expect_error("root = \"a\"", "line 1, column 6: expected ::=");
    expect_error("root ::= \"a\"\n\n  b ::= )", "line 3, column 9: expected the end of the rule");
    expect_error("root ::= (\"a\"\nb ::= \"c\"", "line 2, column 3: expected )");
    expect_error("root ::= \"a", "column 12: the grammar ends inside a text");
    expect_error("root ::= [a", "the grammar ends inside");
    expect_error("root ::= \"\\q\"", "column 13: an unknown escape");
    expect_error("root ::= \"\\xZZ\"", "hexadecimal");
    expect_error("root ::= \"\\uD800\"", "no character");
    expect_error("root ::= [b-a]", "column 14: a range without order");
    expect_error("root ::= \"a\"{x}", "expected a number");
    expect_error("root ::= \"a\"{3,2}", "bounds without order");
    expect_error("root ::= \"a\"{1", "expected }");
    expect_error("root ::= \"a\"{9999999999}", "billion");
    expect_error("root ::= *", "column 10: expected the end of the rule");
    expect_error("root ::= \"a\"\nroot ::= \"b\"",
                 "line 2, column 10: this rule was defined before");
    expect_error("root ::= b", "b is called, but not defined");
    expect_error("a ::= \"b\"", "root is called, but not defined");
    expect_error("", "root is called, but not defined");
    expect_error("root ::= a\na ::= root \"x\" | \"y\"", "begins with itself");
    expect_error("root ::= \"a\" root", "nothing can satisfy");
    expect_error("\xff", "not UTF-8 at offset 0");
    expect_error("::= \"a\"", "expected the name of a rule");
    expect_error("root ::= <[1]>", "expected the end of the rule");
}

static void test_large_grammars_are_refused(void **state)
{
    enum { SIZE = 3 << 20 };
    char *text = malloc(SIZE);
    (void)state;
    assert_non_null(text);
    memset(text, ' ', SIZE);
    expect_refused(gbnf_rules, text, SIZE, ZP_BAD_INPUT, "at most 1048576");
    memset(text, '(', SIZE);
    memcpy(text, "root ::=", 8);
    expect_refused(gbnf_rules, text, 1000, ZP_BAD_INPUT, "64 groups");
    memcpy(text, "root ::= ", 9);
    memset(text + 9, 'r', 200);
    expect_refused(gbnf_rules, text, 209, ZP_BAD_INPUT, "127 characters");
    memset(text + 9, '.', 40000);
    expect_refused(gbnf_rules, text, 40009, ZP_BAD_INPUT, "too large");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts_choices_and_groups),
        cmocka_unit_test(test_rules_and_lines),
        cmocka_unit_test(test_quantifiers),
        cmocka_unit_test(test_characters_are_of_utf8),
        cmocka_unit_test(test_a_grammar_of_json),
        cmocka_unit_test(test_errors_say_where),
        cmocka_unit_test(test_large_grammars_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
