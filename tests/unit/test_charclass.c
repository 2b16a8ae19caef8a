/* test_charclass.c: classes of characters as bytes: every scalar in them is read, and nothing else,
 * as UTF-8 and inside a JSON string. */
#include "grammar_fixture.h"

#include "model/charclass.h"

static const struct charclass *wanted; /* of the rule being made */

static uint32_t class_rules(struct grammar *g, const char *kind, size_t size)
{
    struct charclass c = *wanted;
    uint32_t start = *kind == 'j' ? charclass_json(g, &c, GRAMMAR_END)
                                  : charclass_utf8(g, &c, GRAMMAR_END);
    (void)size;
    return grammar_rule(g, start);
}

static bool has(const struct charclass *c, uint32_t ch)
{
    for (uint32_t i = 0; i < c->n; i++)
        if (ch >= c->ranges[i].low && ch <= c->ranges[i].high) return true;
    return false;
}

/* All scalars near the ends of ranges and of UTF-8's lengths, and every 17th. */
static bool is_looked_at(const struct charclass *c, uint32_t ch)
{
    static const uint32_t ends[] = { 0x80, 0x800, 0xD800, 0xE000, 0x10000, 0x40000, 0x10FFFF };
    if (ch < 0x100 || ch % 17 == 0) return true;
    for (size_t i = 0; i < ZP_COUNT(ends); i++)
        if (ch + 3 > ends[i] && ch < ends[i] + 3) return true;
    for (uint32_t i = 0; i < c->n; i++)
        if ((ch + 3 > c->ranges[i].low && ch < c->ranges[i].low + 3) ||
            (ch + 3 > c->ranges[i].high && ch < c->ranges[i].high + 3))
            return true;
    return false;
}

static void check_class(const struct charclass *c)
{
    struct reader utf8, json;
    wanted = c;
    open_reader(&utf8, class_rules, "utf8");
    open_reader(&json, class_rules, "json");
    for (uint32_t ch = 0; ch <= CHARCLASS_LAST; ch++) {
        char text[8];
        if (!is_looked_at(c, ch)) continue;
        bool scalar = ch < 0xD800 || ch > 0xDFFF;
        size_t n = charclass_utf8_text(ch, text);
        if (accepts(&utf8, text, n) != (has(c, ch) && scalar)) fail_msg("UTF-8 of U+%04X", ch);
        n = charclass_json_text(ch, text);
        if (accepts(&json, text, n) != (has(c, ch) && scalar && ch != 0))
            fail_msg("JSON of U+%04X", ch);
    }
    close_reader(&utf8);
    close_reader(&json);
}

static void test_ranges_of_every_length(void **state)
{
    static const struct charclass classes[] = {
        { .ranges = { { 'a', 'z' } }, .n = 1 },
        { .ranges = { { 0, CHARCLASS_LAST } }, .n = 1 },
        { .ranges = { { 0x7F, 0x80 }, { 0x7FF, 0x800 }, { 0xFFFF, 0x10000 } }, .n = 3 },
        { .ranges = { { 0xD7FE, 0xE001 }, { '"', '\\' }, { 3, 14 } }, .n = 3 },
        { .ranges = { { 0x912, 0x10F7F }, { 0x12345, 0x12345 } }, .n = 2 },
        { .ranges = { { 0x1000, 0x1FFF }, { 0x3F000, 0x101234 } }, .n = 2 },
    };
    (void)state;
    for (size_t i = 0; i < ZP_COUNT(classes); i++) check_class(&classes[i]);
}

static void test_random_classes_and_their_opposites(void **state)
{
    struct rng rng = rng_stream(97, 1);
    (void)state;
    for (int round = 0; round < 12; round++) {
        struct charclass c = { .n = 0 };
        uint32_t n = (uint32_t)rng_below(&rng, 6);
        for (uint32_t i = 0; i < n; i++) {
            uint32_t low = (uint32_t)rng_below(&rng, rng_below(&rng, 2) ? 0x300 : 0x110000);
            uint32_t size = (uint32_t)rng_below(&rng, rng_below(&rng, 2) ? 5 : 0x9000);
            uint32_t high = low + size > CHARCLASS_LAST ? CHARCLASS_LAST : low + size;
            assert_true(charclass_add(&c, low, high));
        }
        charclass_sort(&c);
        struct charclass other = c;
        assert_true(charclass_invert(&other));
        for (uint32_t ch = 0; ch <= CHARCLASS_LAST; ch += ch < 0x400 ? 1 : 37)
            assert_true(has(&c, ch) != has(&other, ch));
        if (c.n > 0) check_class(&c); /* else nothing can satisfy it */
        check_class(&other);
    }
}

static void test_room_for_ranges_is_bounded(void **state)
{
    struct charclass c = { .n = 0 };
    (void)state;
    for (uint32_t i = 0; i < 10000; i++) /* neighbours join */
        assert_true(charclass_add(&c, 2 * i, 2 * i + 1));
    charclass_sort(&c);
    assert_int_equal(c.n, 1);
    uint32_t added = 0;
    while (charclass_add(&c, 0x10000 + 2 * added, 0x10000 + 2 * added)) added++;
    assert_int_equal(added, CHARCLASS_MAX - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranges_of_every_length),
        cmocka_unit_test(test_random_classes_and_their_opposites),
        cmocka_unit_test(test_room_for_ranges_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
