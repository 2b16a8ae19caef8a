/* test_servekeys.c: keys from a text: what is a line, who is found, what is left of a minute; and
 * the server's options that are texts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <string.h>

#include "live_bytes.h"
#include "serve/servekeys.h"
#include "serve/serveoptions.h"

#define HASH_OF_TEST "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"

static zp_status parse(struct servekeys *k, const char *text, zp_err *err)
{
    return servekeys_parse(k, text, strlen(text), "keys", err);
}

static void test_lines(void **state)
{
    struct servekeys k = { 0 };
    zp_err err = { 0 };
    (void)state;
    uint64_t before = live_bytes();
    assert_int_equal(parse(&k, "# a comment\n\n  ann\tann-secret requests=60 \r\nlone-secret\n"
                               "bob sha256:" HASH_OF_TEST " tokens=0.5", &err), ZP_OK);
    assert_int_equal(k.n, 3);
    struct servekey *ann = servekeys_find(&k, "ann-secret");
    assert_string_equal(ann->name, "ann");
    assert_true(ann->requests.most == 60 && ann->tokens.most == 0);
    assert_string_equal(servekeys_find(&k, "lone-secret")->name, "key-4");
    assert_true(servekeys_find(&k, "test")->tokens.most == 0.5);
    assert_null(servekeys_find(&k, ""));
    assert_null(servekeys_find(&k, "ann-secre"));
    assert_null(servekeys_find(&k, "ann-secret "));
    assert_null(servekeys_find(&k, HASH_OF_TEST));
    assert_true(ann->salt != 0 && ann->salt != servekeys_find(&k, "test")->salt);
    servekeys_free(&k);
    assert_int_equal(live_bytes(), before);
}

static void test_wrong_lines_name_their_number_and_change_nothing(void **state)
{
    static const char *const wrong[] = {
        "good good-secret\nshort",           "good good-secret\na b c d e",
        "good good-secret\na a-secret x=1",  "good good-secret\na a-secret requests=0",
        "good good-secret\na a-secret tokens=1e999", "good good-secret\na a-secret requests=6x",
        "good good-secret\na sha256:12",     "good good-secret\nagain good-secret",
        "good good-secret\na sha256:" HASH_OF_TEST "0",
        ("good good-secret\n"
         "a-name-of-more-than-sixty-three-bytes-which-is-longer-than-any-name-may-be the-secret"),
    };
    struct servekeys k = { 0 };
    (void)state;
    assert_int_equal(parse(&k, "first first-secret", NULL), ZP_OK);
    for (size_t i = 0; i < ZP_COUNT(wrong); i++) {
        zp_err err = { 0 };
        assert_int_equal(parse(&k, wrong[i], &err), ZP_BAD_INPUT);
        if (strncmp(err.message, "keys, line 2: ", 14) != 0) fail_msg("%s", err.message);
        assert_null(strstr(err.message, "-secret")); /* never the line itself */
        assert_non_null(servekeys_find(&k, "first-secret"));
        assert_null(servekeys_find(&k, "good-secret"));
    }
    assert_int_equal(parse(&k, "\n# nothing\n", NULL), ZP_BAD_INPUT);
    servekeys_free(&k);
}

/* What was used stays used; who is gone stays in memory, but is not found. */
static void test_reading_again(void **state)
{
    struct servekeys k = { 0 };
    double wait;
    (void)state;
    assert_int_equal(parse(&k, "ann ann-secret requests=2\nbob bob-secret", NULL), ZP_OK);
    struct servekey *ann = servekeys_find(&k, "ann-secret"),
                    *bob = servekeys_find(&k, "bob-secret");
    assert_true(servekeys_take(&ann->requests, 1, 10, &wait));
    assert_true(servekeys_take(&ann->requests, 1, 10, &wait));
    assert_int_equal(parse(&k, "anna ann-secret requests=2\neve eve-secret", NULL), ZP_OK);
    assert_ptr_equal(servekeys_find(&k, "ann-secret"), ann);
    assert_string_equal(ann->name, "anna");
    assert_false(servekeys_take(&ann->requests, 1, 10, &wait));
    assert_null(servekeys_find(&k, "bob-secret"));
    assert_string_equal(bob->name, "bob");
    assert_int_equal(k.n, 2);
    servekeys_free(&k);
}

static void test_limits_flow_in(void **state)
{
    struct servekeys_limit l = { .most = 60, .left = 60 }, none = { 0 };
    double wait;
    (void)state;
    assert_true(servekeys_take(&none, 1e9, 1, &wait));
    assert_true(servekeys_take(&l, 100, 1, &wait)); /* below 0, and then nothing */
    assert_false(servekeys_take(&l, 1, 1, &wait));
    assert_true(wait > 40.9 && wait < 41.1);
    assert_true(servekeys_left(&l, 1) == 0);
    assert_false(servekeys_take(&l, 1, 41, &wait));
    assert_true(servekeys_take(&l, 1, 42.5, &wait));
    assert_true(servekeys_left(&l, 1000) == 60);
}

/* ---- options --------------------------------------------------------------------------------- */

static void test_stages(void **state)
{
    static const char *const wrong[] = { "", ",", "1,", "1;2", "x", "-1", "101", "nan", "1 2",
                                         "1,2,3,4,5,6,7,8,9" };
    struct canary_options o = { 0 };
    (void)state;
    assert_int_equal(serveoptions_stages("0.5,5,100", &o, NULL), ZP_OK);
    assert_int_equal(o.n_stages, 3);
    assert_true(o.stages[0] == 50 && o.stages[1] == 500 && o.stages[2] == 10000);
    for (size_t i = 0; i < ZP_COUNT(wrong); i++)
        assert_int_equal(serveoptions_stages(wrong[i], &o, NULL), ZP_USAGE);
}

static void test_promises(void **state)
{
    static const char *const wrong[] = { "", "short", "short:", "short::", "tall:1:2", "short:1",
                                         "short:x:2", "short:1:2:3", "short:1:-2", "short:0:0" };
    struct sla_options o = { 0 };
    (void)state;
    assert_int_equal(serveoptions_sla("short:300:2000", &o, NULL), ZP_OK);
    assert_int_equal(serveoptions_sla("medium:300:", &o, NULL), ZP_OK);
    assert_int_equal(serveoptions_sla("long::60000", &o, NULL), ZP_OK);
    assert_true(o.limits[LENGTH_SHORT].first_p95 == 0.3 && o.limits[LENGTH_SHORT].total_p90 == 2);
    assert_true(o.limits[LENGTH_MEDIUM].first_p95 == 0.3 && o.limits[LENGTH_MEDIUM].total_p90 == 0);
    assert_true(o.limits[LENGTH_LONG].first_p95 == 0 && o.limits[LENGTH_LONG].total_p90 == 60);
    for (size_t i = 0; i < ZP_COUNT(wrong); i++)
        assert_int_equal(serveoptions_sla(wrong[i], &o, NULL), ZP_USAGE);
}

/* Replicas with one salt agree; without one nobody can foresee it. */
static void test_salts(void **state)
{
    static const uint8_t zero[16];
    zp_serve_options a = { .canary_salt = "a" }, b = { .canary_salt = "b" }, none = { 0 };
    struct rollout_options x, y;
    (void)state;
    assert_int_equal(serveoptions_rollout(&a, &x, NULL), ZP_OK);
    assert_int_equal(serveoptions_rollout(&a, &y, NULL), ZP_OK);
    assert_memory_equal(x.canary.salt, y.canary.salt, 16);
    assert_int_equal(serveoptions_rollout(&b, &y, NULL), ZP_OK);
    assert_memory_not_equal(x.canary.salt, y.canary.salt, 16);
    assert_int_equal(serveoptions_rollout(&none, &x, NULL), ZP_OK);
    assert_int_equal(serveoptions_rollout(&none, &y, NULL), ZP_OK);
    assert_memory_not_equal(x.canary.salt, y.canary.salt, 16);
    assert_memory_not_equal(x.canary.salt, zero, 16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_wrong_lines_name_their_number_and_change_nothing),
        cmocka_unit_test(test_reading_again),
        cmocka_unit_test(test_limits_flow_in),
        cmocka_unit_test(test_stages),
        cmocka_unit_test(test_promises),
        cmocka_unit_test(test_salts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
