/* test_numrange.c: numbers between bounds, digit by digit, against arithmetic: all whole numbers
 * and all numbers of three decimal places around the bounds. */
#include "grammar_fixture.h"

#include "model/numrange.h"

static struct numrange wanted; /* of the rule being made */

static uint32_t range_rules(struct grammar *g, const char *text, size_t size)
{
    (void)text, (void)size;
    return grammar_rule(g, numrange_nodes(g, &wanted, GRAMMAR_END));
}

/* Thousandths as a bound. */
static struct decimal bound(int thousandths, bool excluded)
{
    struct decimal d;
    json_t *number = thousandths % 1000 ? json_real(thousandths / 1000.0)
                                        : json_integer(thousandths / 1000);
    assert_true(decimal_read(number, &d));
    d.excluded = excluded;
    json_decref(number);
    return d;
}

/* places: digits behind the point to write. */
static size_t write_number(char *out, int thousandths, int places)
{
    int size = abs(thousandths), whole = size / 1000, rest = size % 1000;
    const char *sign = thousandths < 0 ? "-" : "";
    if (places == 0) return (size_t)sprintf(out, "%s%d", sign, whole);
    return (size_t)sprintf(out, "%s%d.%0*d", sign, whole, places,
                           places == 1 ? rest / 100 : places == 2 ? rest / 10 : rest);
}

static void check_number(struct reader *r, int low, int high, bool open_low, bool open_high,
                         int thousandths, int places)
{
    char text[32];
    int step = places == 0 ? 1000 : places == 1 ? 100 : places == 2 ? 10 : 1;
    if (thousandths % step != 0) return;
    size_t n = write_number(text, thousandths, places);
    bool above = open_low ? thousandths > low : thousandths >= low;
    bool below = open_high ? thousandths < high : thousandths <= high;
    bool good = above && below && places <= (int)wanted.max_fraction;
    if (accepts(r, text, n) != good)
        fail_msg("%s is %s by %d/1000 %s x %s %d/1000", text, good ? "refused" : "accepted", low,
                 open_low ? "<" : "<=", open_high ? "<" : "<=", high);
}

/* No number of so many places lies in the range. */
static bool is_empty(int low, int high, bool open_low, bool open_high, uint32_t places)
{
    if (places > 3 && low < high) return false; /* thousandths are not all */
    for (int x = low; x <= high; x++) {
        bool inside = !(open_low && x == low) && !(open_high && x == high);
        if (inside && (places > 0 || x % 1000 == 0)) return false;
    }
    return true;
}

static void check_range(int low, int high, bool open_low, bool open_high, uint32_t max_fraction)
{
    struct reader r;
    zp_err why = { 0 };
    wanted = (struct numrange){ bound(low, open_low), bound(high, open_high), max_fraction };
    bool empty = is_empty(low, high, open_low, open_high, max_fraction);
    assert_int_equal(try_reader(&r, range_rules, "", 0, &why), empty ? ZP_BAD_INPUT : ZP_OK);
    for (int places = 0; places <= 3 && !empty; places++)
        for (int x = low - 3000; x <= high + 3000; x++)
            check_number(&r, low, high, open_low, open_high, x, places);
    close_reader(&r);
}

static void test_all_numbers_around_the_bounds(void **state)
{
    static const int ends[] = { -12345, -10000, -1001, -1000, -999, -10, 0,
                                1,      250,    999,   1000,  1500, 9990, 10010 };
    (void)state;
    for (size_t i = 0; i < ZP_COUNT(ends); i++)
        for (size_t k = i; k < ZP_COUNT(ends); k++)
            for (unsigned open = 0; open < 4; open++)
                check_range(ends[i], ends[k], open & 1, open & 2, (i + k) % 2 ? 3 : 0);
}

static void test_random_ranges(void **state)
{
    struct rng rng = rng_stream(11, 1);
    (void)state;
    for (int round = 0; round < 60; round++) {
        int a = (int)rng_below(&rng, 40000) - 20000, size = (int)rng_below(&rng, 9000);
        unsigned open = (unsigned)rng_below(&rng, 4);
        check_range(a, a + size, open & 1, open & 2, (uint32_t)rng_below(&rng, 2) * 5);
    }
}

static void check_texts(const char *low, const char *high, const char *const *good,
                        const char *const *bad)
{
    struct reader r;
    json_t *a = json_loads(low, JSON_DECODE_ANY, NULL);
    json_t *b = json_loads(high, JSON_DECODE_ANY, NULL);
    wanted = (struct numrange){ .max_fraction = 20 };
    assert_true(decimal_read(a, &wanted.low) && decimal_read(b, &wanted.high));
    open_reader(&r, range_rules, "");
    for (; *good; good++) check_text(&r, low, *good, strlen(*good), true);
    for (; *bad; bad++) check_text(&r, low, *bad, strlen(*bad), false);
    close_reader(&r);
    json_decref(a);
    json_decref(b);
}

static void test_bounds_of_many_digits(void **state)
{
    (void)state;
    check_texts("-9007199254740993", "999999999999999999",
                TEXTS("-9007199254740993", "999999999999999999", "0"),
                TEXTS("-9007199254740994", "1000000000000000000", "-9007199254740993.1"));
    check_texts("1e-7", "0.0000012", TEXTS("0.0000001", "0.0000012", "0.00000119"),
                TEXTS("0", "0.00000009", "0.00000121"));
    check_texts("1e17", "1e300", TEXTS("100000000000000000", "999999999999999999"),
                TEXTS("99999999999999999", "1000000000000000000"));
    check_texts("-1e300", "-1e17", TEXTS("-100000000000000000", "-999999999999999999"),
                TEXTS("-99999999999999999", "-1000000000000000000", "0", "1"));
}

static void test_bounds_of_too_many_digits_are_told(void **state)
{
    struct decimal d;
    json_t *tiny = json_real(1e-300);
    (void)state;
    assert_false(decimal_read(tiny, &d));
    json_decref(tiny);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_numbers_around_the_bounds),
        cmocka_unit_test(test_random_ranges),
        cmocka_unit_test(test_bounds_of_many_digits),
        cmocka_unit_test(test_bounds_of_too_many_digits_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
