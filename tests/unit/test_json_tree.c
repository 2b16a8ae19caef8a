/* test_json_tree.c: JSON text becomes what jansson makes of it, wrong text is refused with its
 * place, and memory that runs out is always told. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/json_tree.h"
#include "base/mem.h"
#include "base/rng.h"

static void *take(size_t size)
{
    return mem_alloc(MEM_META, size);
}

static json_t *read_ok(const char *text)
{
    json_t *value;
    zp_err err = { 0 };
    if (json_tree_read(text, strlen(text), "t", ZP_BAD_INPUT, &value, &err) != ZP_OK)
        fail_msg("%s: %s", text, err.message);
    return value;
}

/* Every kind of value, escape and nesting. */
static const char *const whole =
    " {\"a\": [1, -0, 9223372036854775807, -9223372036854775808, 0.5, -1.25e-3, 1E+2, 1e-400],\n"
    "\t\"b\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\u20AC\\ud83e\\udd80\": {\"\": null, \"x\": {}},\r\n"
    " \"gr\xc3\xbc\xc3\x9f\": \"\xf0\x9f\xa6\x80 of many words, longer than any first buffer "
    "is\",\n"
    " \"a long name with an escape \\u0041 in it\": [true, false, [], [[]], \"\"]} ";

static void test_values_are_what_jansson_makes_of_them(void **state)
{
    (void)state;
    json_t *got = read_ok(whole), *want = json_loads(whole, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(want);
    assert_true(json_equal(got, want));
    char *a = json_dumps(got, JSON_PRESERVE_ORDER), *b = json_dumps(want, JSON_PRESERVE_ORDER);
    assert_string_equal(a, b);
    mem_free(a);
    mem_free(b);
    json_decref(got);
    json_decref(want);
}

static void test_wrong_text_is_refused_with_its_place(void **state)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        { "", "line 1, column 1: expected { or [" },
        { "1", "line 1, column 1: expected { or [" },
        { "\xef\xbb\xbf{}", "line 1, column 1: expected { or [" },
        { "{", "line 1, column 2: expected a string" },
        { "[1,", "line 1, column 4: the text ends where a value is expected" },
        { "[1,]", "line 1, column 4: expected a value" },
        { "[1 2]", "line 1, column 4: expected , or ]" },
        { "{\"a\" 1}", "line 1, column 6: expected :" },
        { "{\"a\": 1,}", "line 1, column 9: expected a string" },
        { "{\"a\": 1]", "line 1, column 8: expected , or }" },
        { "[\n \"\xc3\xbc\",\n nul]", "line 3, column 2: expected a value" },
        { "[\"\xc3\xbc\" x]", "line 1, column 6: expected , or ]" },
        { "[\"a", "the text ends inside a string" },
        { "[\"a\nb\"]", "a control character in a string" },
        { "[\"\\x\"]", "unknown escape" },
        { "[\"\\u12g4\"]", "expected four hexadecimal digits" },
        { "[\"\\ud800\"]", "half of a pair" },
        { "[\"\\ud800\\u0041\"]", "half of a pair" },
        { "[\"\\udc00\"]", "half of a pair" },
        { "[\"\\u0000\"]", "\\u0000" },
        { "[01]", "begins with 0" },
        { "[-]", "expected a digit" },
        { "[1.]", "expected a digit" },
        { "[1e]", "expected a digit" },
        { "[.5]", "expected a value" },
        { "[9223372036854775808]", "beyond 64 bits" },
        { "[1e400]", "too large for a double" },
        { "[NaN]", "expected a value" },
        { "[\"\xff\"]", "line 1, column 3: not UTF-8" },
        { "{\"a\": 1, \"\\u0061\": 2}", "a duplicate name in an object" },
        { "[1\v]", "expected , or ]" },
        { "[] []", "line 1, column 4: expected the end" },
    };
    (void)state;
    for (size_t i = 0; i < ZP_COUNT(cases); i++) {
        zp_err err = { 0 };
        json_t *value = json_null();
        size_t size = strlen(cases[i].text);
        zp_status status =
            json_tree_read(cases[i].text, size, "f.json", ZP_BAD_INPUT, &value, &err);
        if (status != ZP_BAD_INPUT || value != NULL) fail_msg("%s is read", cases[i].text);
        if (!strstr(err.message, cases[i].message) || strncmp(err.message, "f.json: ", 8) != 0)
            fail_msg("%s: %s, expected %s", cases[i].text, err.message, cases[i].message);
    }
}

static void test_nesting_has_a_limit(void **state)
{
    static char text[4097];
    json_t *value;
    (void)state;
    for (size_t depth = 2048; depth <= 2049; depth++) {
        memset(text, '[', depth);
        memset(text + depth, ']', depth > 2048 ? 2047 : depth);
        zp_status status =
            json_tree_read(text, strlen(text), "t", ZP_BAD_FILE, &value, NULL);
        assert_int_equal(status, depth <= 2048 ? ZP_OK : ZP_BAD_FILE);
        json_decref(value);
    }
}

/* Random damage: both readers accept the same texts and read the same values. Not with a NUL, which
 * jansson passes over behind a number. */
static void test_damaged_text_is_judged_as_jansson_does(void **state)
{
    enum { SEED = 4, ROUNDS = 20000 };
    static const char bits[] = "{}[]\",:\\u0019eE+-.tfn \n\x01\x80\xc3";
    struct rng r = rng_stream(SEED, 0);
    size_t size = strlen(whole), n_read = 0;
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        char text[512];
        json_t *got;
        memcpy(text, whole, size);
        for (uint64_t n = rng_below(&r, 3); n-- > 0;)
            text[rng_below(&r, size)] = bits[rng_below(&r, sizeof bits - 1)];
        size_t cut = rng_below(&r, 4) ? size : rng_below(&r, size);
        zp_status status = json_tree_read(text, cut, "t", ZP_BAD_FILE, &got, NULL);
        json_t *want = json_loadb(text, cut, JSON_REJECT_DUPLICATES, NULL);
        if ((want != NULL) != (status == ZP_OK) || (want && !json_equal(got, want)))
            fail_msg("seed %d, round %d: judged otherwise: %.*s", SEED, round, (int)cut, text);
        n_read += want != NULL;
        json_decref(got);
        json_decref(want);
    }
    assert_true(n_read > ROUNDS / 10 && n_read < ROUNDS);
}

static void test_each_failed_allocation_is_told(void **state)
{
    struct mem_stats before, after;
    size_t n = 0;
    (void)state;
    for (bool failed = true; failed;) {
        json_t *value;
        zp_err err = { 0 };
        mem_stats_read(&before);
        mem_fail_at(++n, false);
        zp_status status = json_tree_read(whole, strlen(whole), "t", ZP_BAD_FILE, &value, &err);
        failed = mem_fail_count() != 0;
        mem_fail_at(0, false);
        assert_int_equal(status, failed ? ZP_NO_MEMORY : ZP_OK);
        assert_true(!failed || value == NULL);
        json_decref(value);
        mem_stats_read(&after);
        assert_int_equal(after.live[MEM_META], before.live[MEM_META]);
    }
    assert_true(n > 30);
}

static void test_what_is_missing_ends_a_chain(void **state)
{
    (void)state;
    json_t *list = json_tree_add(json_tree_add(json_array(), json_integer(1)), json_true());
    assert_int_equal(json_array_size(list), 2);
    list = json_tree_add(list, NULL);
    assert_null(list);
    assert_null(json_tree_add(list, json_integer(1)));
    json_t *object = json_tree_put(json_object(), "a", json_tree_real(0.5));
    assert_true(json_real_value(json_object_get(object, "a")) == 0.5);
    assert_null(json_tree_put(object, "b", NULL));
    assert_null(json_tree_put(NULL, "b", json_integer(1)));
    assert_null(json_pack("{s:o, s:o}", "list", list, "more", json_integer(1)));
}

/* All members, or none for want of memory. */
static void test_copy_is_whole(void **state)
{
    json_t *object = json_pack("{s:i, s:[i], s:s, s:n, s:b, s:f, s:{}, s:i, s:i}", "a", 1, "b", 2,
                               "c", "x", "d", "e", 1, "f", 0.5, "g", "h", 3, "i", 4);
    size_t n = 0;
    (void)state;
    for (bool failed = true; failed;) {
        mem_fail_at(++n, false);
        json_t *copy = json_tree_copy(object);
        failed = mem_fail_count() != 0;
        mem_fail_at(0, false);
        assert_int_equal(copy == NULL, failed);
        assert_true(failed || (json_equal(copy, object) && copy != object));
        json_decref(copy);
    }
    assert_true(n > 8);
    assert_null(json_tree_copy(NULL));
    json_decref(object);
}

static void test_any_number_and_any_bytes_become_values(void **state)
{
    (void)state;
    assert_true(json_is_null(json_tree_real(NAN)) && json_is_null(json_tree_real(-INFINITY)));
    static const char *const texts[][2] = {
        { "", "" },
        { "/t/gr\xc3\xbc\xc3\x9f", "/t/gr\xc3\xbc\xc3\x9f" },
        { "\xff/a\xc3", "\xef\xbf\xbd/a\xef\xbf\xbd" },
    };
    for (size_t i = 0; i < ZP_COUNT(texts); i++) {
        json_t *value = json_tree_text(texts[i][0]);
        assert_string_equal(json_string_value(value), texts[i][1]);
        json_decref(value);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_are_what_jansson_makes_of_them),
        cmocka_unit_test(test_wrong_text_is_refused_with_its_place),
        cmocka_unit_test(test_nesting_has_a_limit),
        cmocka_unit_test(test_damaged_text_is_judged_as_jansson_does),
        cmocka_unit_test(test_each_failed_allocation_is_told),
        cmocka_unit_test(test_what_is_missing_ends_a_chain),
        cmocka_unit_test(test_copy_is_whole),
        cmocka_unit_test(test_any_number_and_any_bytes_become_values),
    };
    json_set_alloc_funcs(take, mem_free);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
