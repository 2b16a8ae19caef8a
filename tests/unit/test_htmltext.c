/* test_htmltext.c: what remains of web pages: text, paragraphs, items, characters of entities; any
 * bytes give valid UTF-8. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "train/htmltext.h"

static void check(const char *html, const char *text)
{
    struct buffer out = buffer_with_max(MEM_META, 1 << 20);
    zp_err err = { 0 };
    if (htmltext_strip(html, strlen(html), &out, &err) != ZP_OK) fail_msg("%s", err.message);
    const char *found = out.data ? (const char *)out.data : "";
    if (strcmp(found, text) != 0) fail_msg("%s\ngives\n%s\nexpected\n%s", html, found, text);
    buffer_free(&out);
}

static void test_pages_become_text(void **state)
{
    (void)state;
    check("", "");
    check("just text", "just text\n");
    check("<p>One\n  two</p><p>three</p>", "One two\n\nthree\n");
    check("<!DOCTYPE html><?xml v?><html><head><title>T</title></head><body>\n<h1>A</h1>b</body>",
          "A\n\nb\n");
    check("a<b>b</b>c <i>d</i>", "abc d\n");
    check("one<br>two<br/>three", "one\ntwo\nthree\n");
    check("<ul><li>x</li>\n<li>y <p>z</p></li><li></li></ul>end", "- x\n- y\n\nz\n\nend\n");
    check("<table><tr><td>1</td><td>2</td></tr><tr><td>3</td></tr></table>", "1 2\n3\n");
    check("x<pre>  a\n    b\r\n</pre>y", "x\n\n  a\n    b\n\n\ny\n");
    check("<PRE>1<BR>2</PRE>", "1\n2\n");
    check("  \n <p> </p> <div></div> ", "");
}

static void test_what_is_no_text_goes(void **state)
{
    (void)state;
    check("a<script>if (a < b) x = '</p>';</SCRIPT>b", "ab\n");
    check("a<style>p > q {}</style>b", "ab\n");
    check("a<!-- <p> -- > -->b", "ab\n");
    check("a<nav><ul><li>x</li></ul><nav>y</nav>z</nav>b", "ab\n");
    check("a<svg/>b", "ab\n");
    check("a<img alt='x > y' title=\">\">b", "ab\n");
    check("a<script>never closed", "a\n");
    check("a<!-- never closed", "a\n");
    check("a<p class='never closed", "a\n");
    check("a<", "a<\n");
    check("a</", "a</\n");
    check("a < b and c<3", "a < b and c<3\n");
    check("</p></nav></script></li>a", "a\n");
    check("<heading>a</heading><pree>b  c</pree>", "ab c\n");
}

static void test_entities_become_characters(void **state)
{
    (void)state;
    check("&lt;p&gt; &amp;amp; &quot;&apos;", "<p> &amp; \"'\n");
    check("&auml;&Ouml;&szlig; &mdash; &hellip; &euro;", "\xC3\xA4\xC3\x96\xC3\x9F \xE2\x80\x94 "
                                                         "\xE2\x80\xA6 \xE2\x82\xAC\n");
    check("&#65;&#x42;&#X1F980;&#67", "AB\xF0\x9F\xA6\x80" "C\n");
    check("a&nbsp;b&#160;c &nbsp; d", "a b c d\n");
    check("&#146;&#x80;", "\xE2\x80\x99\xE2\x82\xAC\n");
    check("&#0;&#xD800;&#x110000;&#99999999999999;", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"
                                                     "\xEF\xBF\xBD\n");
    check("AT&T &unknown; &; &# &#x &amp", "AT&T &unknown; &; &# &#x &amp\n");
    /* first, last and neighbours of the table */
    check("&Agrave;&yen;&agrave;&uuml;", "\xC3\x80\xC2\xA5\xC3\xA0\xC3\xBC\n");
}

/* Any pieces in any order, cut anywhere: no byte beyond is read, and the result is text. */
static void test_any_bytes_give_text(void **state)
{
    (void)state;
    static const char *const pieces[] = {
        "<", ">", "</", "<p", "<pre>", "</pre>", "<script", "</script>", "<!--", "-->", "&", "&#",
        "&#x", "&amp", ";", "'", "\"", " ", "\n", "a", "\xC3\xA4", "12", "<li>", "<nav>", "</nav>",
        "/>", "<br/>", "=", "<svg", "-", "!", "?", "x"
    };
    const uint64_t seed = 17;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (uint64_t k = 0; k < 20000; k++) {
        struct rng r = rng_stream(seed, k);
        struct buffer in = buffer_with_max(MEM_META, 4096), out = in;
        size_t n = rng_below(&r, 24), bad;
        for (size_t i = 0; i < n; i++)
            buffer_append_text(&in, pieces[rng_below(&r, ZP_COUNT(pieces))], NULL);
        char *exact = malloc(in.size + 1);
        if (in.size) memcpy(exact, in.data, in.size);
        assert_int_equal(htmltext_strip(exact, in.size, &out, NULL), ZP_OK);
        assert_true(utf8_is_valid((const char *)out.data, out.size, &bad));
        assert_true(out.size <= 3 * in.size + 1);
        free(exact);
        buffer_free(&in);
        buffer_free(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pages_become_text),
        cmocka_unit_test(test_what_is_no_text_goes),
        cmocka_unit_test(test_entities_become_characters),
        cmocka_unit_test(test_any_bytes_give_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
