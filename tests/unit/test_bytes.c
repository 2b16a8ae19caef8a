/* test_bytes.c: buffers, cursors, checked sizes, UTF-8, hashes. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/bytes.h"
#include "base/rng.h"

static void test_buffer_grows_up_to_its_maximum(void **state)
{
    (void)state;
    struct buffer b = buffer_with_max(MEM_SCRATCH, 1000);
    zp_err err = { 0 };
    for (int i = 0; i < 100; i++)
        assert_int_equal(buffer_append(&b, "0123456789", 10, &err), ZP_OK);
    assert_int_equal(b.size, 1000);
    assert_int_equal(b.data[1000], 0);
    assert_true(b.room <= 1001);
    assert_int_equal(buffer_append(&b, "x", 1, &err), ZP_BAD_INPUT);
    assert_non_null(strstr(err.message, "1000"));
    assert_int_equal(b.size, 1000);
    assert_int_equal(buffer_append(&b, NULL, 0, NULL), ZP_OK);
    assert_int_equal(buffer_append(&b, "x", SIZE_MAX, NULL), ZP_BAD_INPUT);
    buffer_free(&b);
}

static void test_buffer_is_text_from_the_first_append(void **state)
{
    (void)state;
    struct buffer b = buffer_with_max(MEM_SCRATCH, SIZE_MAX);
    assert_int_equal(buffer_append(&b, "", 0, NULL), ZP_OK);
    assert_string_equal((char *)b.data, "");
    assert_int_equal(buffer_append_text(&b, "one", NULL), ZP_OK);
    assert_int_equal(buffer_printf(&b, NULL, " %s %d", "two", 3), ZP_OK);
    assert_string_equal((char *)b.data, "one two 3");
    assert_int_equal(b.size, 9);
    buffer_clear(&b);
    assert_string_equal((char *)b.data, "");
    char wide[3000];
    memset(wide, 'w', sizeof wide - 1);
    wide[sizeof wide - 1] = '\0';
    assert_int_equal(buffer_printf(&b, NULL, "<%s>", wide), ZP_OK);
    assert_int_equal(b.size, sizeof wide + 1);
    buffer_free(&b);
    buffer_free(&b);
}

static void test_buffer_survives_lack_of_memory(void **state)
{
    (void)state;
    struct buffer b = buffer_with_max(MEM_SCRATCH, 1 << 20);
    assert_int_equal(buffer_append_text(&b, "kept", NULL), ZP_OK);
    static const char big[5000];
    zp_err err = { 0 };
    mem_fail_at(1, false);
    assert_int_equal(buffer_append(&b, big, sizeof big, &err), ZP_NO_MEMORY);
    mem_fail_at(1, false);
    assert_int_equal(buffer_printf(&b, &err, "%5000d", 1), ZP_NO_MEMORY);
    mem_fail_at(0, false);
    assert_string_equal((char *)b.data, "kept");
    buffer_free(&b);
}

static void test_cursor_reads_little_endian(void **state)
{
    (void)state;
    static const uint8_t bytes[] = { 'G', 'G', 1, 2, 1,    0,    0, 0x80, 8, 7, 6, 5, 4,    3,
                                     2,   1,   0, 0, 0xc0, 0x3f, 0, 0,    0, 0, 0, 0, 0xf8, 0xbf };
    struct cursor c = cursor_over(bytes, sizeof bytes, "made.bin");
    uint8_t a;
    uint16_t b;
    uint32_t d;
    uint64_t e;
    float f;
    double g;
    assert_false(cursor_match(&c, "GGU", 3));
    assert_true(cursor_match(&c, "GG", 2));
    assert_int_equal(cursor_u8(&c, &a, "byte", NULL), ZP_OK);
    assert_int_equal(a, 1);
    assert_int_equal(cursor_u16(&c, &b, "pair", NULL), ZP_OK);
    assert_int_equal(b, 0x0102);
    assert_int_equal(cursor_skip(&c, 0, "nothing", NULL), ZP_OK);
    c.at = 4;
    assert_int_equal(cursor_u32(&c, &d, "word", NULL), ZP_OK);
    assert_int_equal(d, 0x80000001u);
    assert_int_equal(cursor_u64(&c, &e, "long", NULL), ZP_OK);
    assert_true(e == 0x0102030405060708u);
    assert_int_equal(cursor_f32(&c, &f, "float", NULL), ZP_OK);
    assert_true(f == 1.5f);
    assert_int_equal(cursor_f64(&c, &g, "double", NULL), ZP_OK);
    assert_true(g == -1.5);
    assert_int_equal(cursor_left(&c), 0);
}

static void test_short_read_names_the_item_and_does_not_move(void **state)
{
    (void)state;
    static const uint8_t bytes[7] = { 1, 2, 3, 4, 5, 6, 7 };
    for (size_t size = 0; size < 7; size++) {
        struct cursor c = cursor_over(bytes, size, "made.bin");
        zp_err err = { 0 };
        uint64_t value = 42;
        c.at = size / 2;
        assert_int_equal(cursor_u64(&c, &value, "tensor count", &err), ZP_BAD_FILE);
        assert_int_equal(c.at, size / 2);
        assert_int_equal(value, 42);
        assert_non_null(strstr(err.message, "made.bin"));
        assert_non_null(strstr(err.message, "tensor count"));
        const uint8_t *view = NULL;
        assert_int_equal(cursor_view(&c, SIZE_MAX, &view, "name", NULL), ZP_BAD_FILE);
        assert_int_equal(cursor_skip(&c, SIZE_MAX - 1, "name", NULL), ZP_BAD_FILE);
        assert_false(cursor_match(&c, bytes, SIZE_MAX));
        assert_int_equal(c.at, size / 2);
    }
    struct cursor empty = cursor_over(NULL, 0, "nothing");
    const uint8_t *view;
    assert_int_equal(cursor_view(&empty, 0, &view, "rest", NULL), ZP_OK);
    assert_non_null(view);
}

static void test_sizes_overflow_is_seen(void **state)
{
    (void)state;
    size_t out;
    assert_true(size_add(3, 4, &out) && out == 7);
    assert_true(size_add(SIZE_MAX, 0, &out) && out == SIZE_MAX);
    assert_false(size_add(SIZE_MAX, 1, &out));
    assert_true(size_mul(1 << 20, 1 << 20, &out) && out == (size_t)1 << 40);
    assert_false(size_mul((size_t)1 << 40, (size_t)1 << 40, &out));
    assert_true(size_mul(SIZE_MAX, 0, &out) && out == 0);
}

static void test_utf8_accepts_and_rejects_by_the_standard(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int bad; /* offset of the first bad byte, -1: valid */
    } rows[] = {
        { "", -1 },
        { "plain", -1 },
        { "\x7f", -1 },
        { "\xc2\x80", -1 },
        { "\xdf\xbf", -1 },
        { "\xe0\xa0\x80", -1 },
        { "\xed\x9f\xbf", -1 },
        { "\xee\x80\x80", -1 },
        { "\xef\xbf\xbf", -1 },
        { "\xf0\x90\x80\x80", -1 },
        { "\xf4\x8f\xbf\xbf", -1 },
        { "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z", -1 },
        { "\x80", 0 }, /* continuation without a lead */
        { "a\xbf", 1 },
        { "\xc0\x80", 0 }, /* overlong */
        { "\xc1\xbf", 0 },
        { "\xe0\x9f\xbf", 0 },
        { "\xf0\x8f\xbf\xbf", 0 },
        { "\xed\xa0\x80", 0 }, /* surrogates */
        { "\xed\xbf\xbf", 0 },
        { "\xf4\x90\x80\x80", 0 }, /* past U+10FFFF */
        { "\xf5\x80\x80\x80", 0 },
        { "\xff", 0 },
        { "\xfe", 0 },
        { "ab\xc3", 2 }, /* cut */
        { "ab\xe2\x82", 2 },
        { "ab\xf0\x9f\x98", 2 },
        { "\xc3(", 0 },
        { "\xe2\x82(", 0 },
        { "ok\xe2(\xa1", 2 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        size_t bad = 99, size = strlen(rows[i].text);
        assert_int_equal(utf8_is_valid(rows[i].text, size, &bad), rows[i].bad < 0);
        if (rows[i].bad >= 0) assert_int_equal(bad, rows[i].bad);
    }
    assert_true(utf8_is_valid("a\0b", 3, NULL)); /* NUL is a character */
}

static void test_every_scalar_value_is_valid_and_its_cuts_are_held_back(void **state)
{
    (void)state;
    for (uint32_t u = 0; u < 0x110000; u += u < 0x3000 ? 1 : 61) {
        if (u >= 0xd800 && u < 0xe000) continue;
        char t[5] = "z";
        size_t n = u < 0x80 ? 1 : u < 0x800 ? 2 : u < 0x10000 ? 3 : 4;
        static const uint8_t leads[] = { 0, 0, 0xc0, 0xe0, 0xf0 };
        for (size_t k = n; k > 1; k--) t[k] = (char)(0x80 | (u >> 6 * (n - k) & 0x3f));
        t[1] = (char)(leads[n] | u >> 6 * (n - 1));
        assert_true(utf8_is_valid(t, n + 1, NULL));
        assert_int_equal(utf8_complete_prefix(t, n + 1), n + 1);
        for (size_t cut = 1; cut < n; cut++) assert_int_equal(utf8_complete_prefix(t, cut + 1), 1);
    }
}

static void test_hopeless_bytes_are_not_held_back(void **state)
{
    (void)state;
    assert_int_equal(utf8_complete_prefix("", 0), 0);
    assert_int_equal(utf8_complete_prefix("a\x80", 2), 2);
    assert_int_equal(utf8_complete_prefix("\x80\x80\x80\x80", 4), 4);
    assert_int_equal(utf8_complete_prefix("a\xc0", 2), 2);
    assert_int_equal(utf8_complete_prefix("a\xe0\x80", 3), 3);
    assert_int_equal(utf8_complete_prefix("a\xed\xa0", 3), 3);
    assert_int_equal(utf8_complete_prefix("a\xff", 2), 2);
    assert_int_equal(utf8_complete_prefix("\xf0\x9f", 2), 0);
}

static void check_sha(const void *data, size_t size, const char *expected)
{
    char hex[65];
    struct sha256 s;
    for (size_t step = 1; step < 200; step += 13) {
        sha256_init(&s);
        for (size_t at = 0; at < size; at += step)
            sha256_update(&s, (const char *)data + at, size - at < step ? size - at : step);
        sha256_final(&s, hex);
        assert_string_equal(hex, expected);
    }
}

/* FIPS 180-4 examples, and a million times `a`; the padding rows were checked with coreutils'
 * sha256sum. */
static void test_sha256_equals_the_standard(void **state)
{
    (void)state;
    check_sha("", 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    check_sha("abc", 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    check_sha("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56,
              "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    char *many = malloc(1000000);
    memset(many, 'a', 1000000);
    check_sha(many, 55, "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318");
    check_sha(many, 64, "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb");
    char hex[65];
    struct sha256 s;
    sha256_init(&s);
    sha256_update(&s, many, 1000000);
    sha256_final(&s, hex);
    assert_string_equal(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    free(many);
}

static void test_hash_separates_near_inputs(void **state)
{
    (void)state;
    uint8_t data[40] = { 0 };
    uint64_t seen[40 * 8 + 41];
    size_t n = 0;
    for (size_t size = 0; size <= 40; size++) seen[n++] = hash_bytes(data, size, 1);
    for (size_t bit = 0; bit < 320; bit++) {
        data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        seen[n++] = hash_bytes(data, 40, 1);
        data[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < i; k++) assert_true(seen[i] != seen[k]);
    assert_true(hash_bytes("x", 1, 1) != hash_bytes("x", 1, 2));
    /* Low bits index tables: 4096 consecutive numbers must not crowd a few of 4096 slots. */
    unsigned slots[4096] = { 0 }, worst = 0;
    for (uint32_t i = 0; i < 4096; i++) {
        unsigned *slot = &slots[hash_bytes(&i, sizeof i, 0) % 4096];
        if (++*slot > worst) worst = *slot;
    }
    assert_true(worst <= 10);
}

static void test_sizes_are_told_in_binary_units(void **state)
{
    (void)state;
    const struct { uint64_t bytes; const char *text; } cases[] = {
        { 0, "0 bytes" }, { 1023, "1023 bytes" }, { 1024, "1.0 KiB" },
        { 388324577768, "361.7 GiB" }, { UINT64_MAX, "16.0 EiB" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct bytes_text room;
        assert_string_equal(bytes_in_words(cases[i].bytes, &room), cases[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes_are_told_in_binary_units),
        cmocka_unit_test(test_buffer_grows_up_to_its_maximum),
        cmocka_unit_test(test_buffer_is_text_from_the_first_append),
        cmocka_unit_test(test_buffer_survives_lack_of_memory),
        cmocka_unit_test(test_cursor_reads_little_endian),
        cmocka_unit_test(test_short_read_names_the_item_and_does_not_move),
        cmocka_unit_test(test_sizes_overflow_is_seen),
        cmocka_unit_test(test_utf8_accepts_and_rejects_by_the_standard),
        cmocka_unit_test(test_every_scalar_value_is_valid_and_its_cuts_are_held_back),
        cmocka_unit_test(test_hopeless_bytes_are_not_held_back),
        cmocka_unit_test(test_sha256_equals_the_standard),
        cmocka_unit_test(test_hash_separates_near_inputs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
