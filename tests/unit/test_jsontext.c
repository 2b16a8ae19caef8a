/* test_jsontext.c: strings of any bytes become the inside of a JSON string without anything that
 * could act on a reader or a terminal. */
#include "golden.h"

#include "base/bytes.h"
#include "base/json_tree.h"
#include "base/jsontext.h"
#include "base/rng.h"

/* The pieces joined, in quotes and brackets: one JSON document. */
static struct buffer document_of(const char *text, size_t size)
{
    struct buffer out = buffer_with_max(MEM_META, 1 << 16);
    struct jsontext pieces = jsontext_of(text, size);
    const char *piece;
    assert_int_equal(buffer_append_text(&out, "[\"", NULL), ZP_OK);
    while (jsontext_next(&pieces, &piece, &size)) {
        assert_true(size > 0);
        assert_int_equal(buffer_append(&out, piece, size, NULL), ZP_OK);
    }
    assert_int_equal(buffer_append_text(&out, "\"]", NULL), ZP_OK);
    return out;
}

static void expect(const char *text, size_t size, const char *wanted)
{
    struct buffer out = document_of(text, size);
    assert_string_equal(out.data, wanted);
    buffer_free(&out);
}
#define EXPECT(text, wanted) expect(text, sizeof(text) - 1, wanted)

static void test_exact_bytes(void **state)
{
    (void)state;
    EXPECT("", "[\"\"]");
    EXPECT("plain text", "[\"plain text\"]");
    EXPECT("\"\\/\b\f\n\r\t", "[\"\\\"\\\\/\\b\\f\\n\\r\\t\"]");
    EXPECT("\0\x1f\x7f", "[\"\\u0000\\u001f\\u007f\"]");
    EXPECT("\xc2\x80\xc2\x9b\xc2\x9f\xc2\xa0\xc3\x80",
           "[\"\\u0080\\u009b\\u009f\xc2\xa0\xc3\x80\"]");
    EXPECT("a\xff\xc3(\xe2\x82", "[\"a\xef\xbf\xbd\xef\xbf\xbd(\xef\xbf\xbd\xef\xbf\xbd\"]");
    EXPECT("\xed\xa0\x80", "[\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"]"); /* a surrogate */
    EXPECT("\xf0\x9f\xa6\x80\"", "[\"\xf0\x9f\xa6\x80\\\"\"]");
}

static void test_a_text_ends_at_its_size(void **state)
{
    (void)state;
    expect("\xc2\x80", 1, "[\"\xef\xbf\xbd\"]");
    expect("abc", 2, "[\"ab\"]");
}

/* Readers get back what is UTF-8, and the document has no control character, in any spelling of
 * which the bytes would act. */
static void test_any_bytes_are_read_back(void **state)
{
    (void)state;
    struct rng r = rng_stream(0x0b5, 1);
    print_message("seed 0x0b5\n");
    for (int round = 0; round < 2000; round++) {
        static const char bytes[] =
            "\"\\\n\x1b\x7f\xc2\x80\x9b\xa0\xe2\x82\xac\xf0\x9f\xa6\x80\xffz";
        char text[40];
        size_t size = rng_below(&r, sizeof text), bad;
        for (size_t i = 0; i < size; i++) {
            text[i] = bytes[rng_below(&r, sizeof bytes - 1)];
            if (rng_below(&r, 4) == 0) text[i] = (char)(1 + rng_below(&r, 255));
        }
        struct buffer out = document_of(text, size);
        assert_true(utf8_is_valid((char *)out.data, out.size, &bad));
        for (size_t i = 0; i < out.size; i++) {
            assert_true(out.data[i] >= 0x20 && out.data[i] != 0x7f);
            assert_false(out.data[i] == 0xc2 && out.data[i + 1] < 0xa0);
        }
        json_t *doc;
        zp_err err = { 0 };
        if (json_tree_read((char *)out.data, out.size, "x", ZP_BAD_INPUT, &doc, &err) != ZP_OK)
            fail_msg("%s: %s", err.message, (char *)out.data);
        if (utf8_is_valid(text, size, &bad)) {
            json_t *value = json_array_get(doc, 0);
            assert_int_equal(json_string_length(value), size);
            assert_memory_equal(json_string_value(value), text, size);
        }
        json_decref(doc);
        buffer_free(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact_bytes),
        cmocka_unit_test(test_a_text_ends_at_its_size),
        cmocka_unit_test(test_any_bytes_are_read_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
