/* test_status.c: names, exit codes, and the record of the first failure. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/bytes.h"
#include "base/log.h"
#include "base/status.h"

static zp_status fail_with(zp_err *err, zp_status code, const char *text)
{
    ZP_FAIL_IF(strlen(text) > 1, err, code, "found %s, expected nothing", text);
    return ZP_OK;
}

static zp_status pass_on(zp_err *err, const char *text)
{
    ZP_TRY(fail_with(err, ZP_BAD_FILE, text));
    ZP_FAIL(err, ZP_RUN, "reached the end");
}

static void test_exit_codes_are_those_of_the_manual(void **state)
{
    (void)state;
    assert_int_equal(zp_status_exit_code(ZP_OK), 0);
    assert_int_equal(zp_status_exit_code(ZP_RUN), 1);
    assert_int_equal(zp_status_exit_code(ZP_IO), 1);
    assert_int_equal(zp_status_exit_code(ZP_USAGE), 2);
    assert_int_equal(zp_status_exit_code(ZP_BAD_FILE), 3);
    assert_int_equal(zp_status_exit_code(ZP_BAD_INPUT), 3);
    assert_int_equal(zp_status_exit_code(ZP_UNSUPPORTED), 3);
    assert_int_equal(zp_status_exit_code(ZP_NO_MEMORY), 4);
    assert_int_equal(zp_status_exit_code(ZP_NO_SPACE), 4);
    assert_int_equal(zp_status_exit_code(ZP_VERIFY), 5);
    assert_int_equal(zp_status_exit_code(ZP_INTERRUPTED), 130);
}

static void test_every_status_has_its_name_and_text(void **state)
{
    (void)state;
#define CHECK(name, value, exit_code, text)                                                        \
    assert_string_equal(zp_status_name(name), #name);                                              \
    assert_string_equal(zp_status_text(name), text);                                               \
    assert_int_equal(name, value);
    ZP_STATUS_LIST(CHECK)
#undef CHECK
    int unknown = -99;
    assert_string_equal(zp_status_name((zp_status)unknown), "ZP_UNKNOWN");
    assert_non_null(zp_status_text((zp_status)unknown));
    assert_int_equal(zp_status_exit_code((zp_status)unknown), 1);
}

static void test_first_failure_wins(void **state)
{
    (void)state;
    zp_err err = { 0 };
    assert_int_equal(pass_on(&err, "seven"), ZP_BAD_FILE);
    assert_int_equal(err.code, ZP_BAD_FILE);
    assert_string_equal(err.message, "found seven, expected nothing");
    assert_true(err.line > 0);
    assert_non_null(strstr(err.file, "test_status.c"));
    assert_int_equal(pass_on(&err, ""), ZP_RUN);
    assert_string_equal(err.message, "found seven, expected nothing");
}

/* What a caller may rely on who makes several calls with one record. */
static void test_used_record_keeps_its_failure_until_its_code_is_ok(void **state)
{
    (void)state;
    zp_err err = { 0 };
    assert_int_equal(fail_with(&err, ZP_IO, "a"), ZP_OK);
    assert_int_equal(err.code, ZP_OK);
    assert_int_equal(fail_with(&err, ZP_IO, "seven"), ZP_IO);
    assert_int_equal(fail_with(&err, ZP_USAGE, "eight"), ZP_USAGE); /* its own status */
    assert_int_equal(fail_with(&err, ZP_USAGE, "a"), ZP_OK);
    assert_int_equal(err.code, ZP_IO);
    assert_string_equal(err.message, "found seven, expected nothing");
    err.code = ZP_OK;
    assert_int_equal(fail_with(&err, ZP_USAGE, "eight"), ZP_USAGE);
    assert_int_equal(err.code, ZP_USAGE);
    assert_string_equal(err.message, "found eight, expected nothing");
}

static void test_places_stand_before_the_text(void **state)
{
    (void)state;
    zp_err err = { 0 };
    status_add_index(&err, "job", 3);
    status_add_index(NULL, "job", 3);
    assert_string_equal(err.message, "");
    fail_with(&err, ZP_IO, "seven");
    status_add_index(&err, "job", 3);
    status_add_path(&err, "a.gguf");
    status_add_path(&err, "a.gguf");
    assert_string_equal(err.message, "a.gguf: job 3: found seven, expected nothing");
}

static void test_error_record_may_be_absent(void **state)
{
    (void)state;
    assert_int_equal(pass_on(NULL, "seven"), ZP_BAD_FILE);
    assert_int_equal(pass_on(NULL, ""), ZP_RUN);
}

static void test_long_message_is_cut_between_characters(void **state)
{
    (void)state;
    char text[1024];
    for (size_t pad = 0; pad < 4; pad++) {
        memset(text, 'x', pad);
        for (size_t i = pad; i + 4 < sizeof text; i += 4) memcpy(text + i, "\xf0\x9f\x9a\x80", 5);
        zp_err err = { 0 };
        fail_with(&err, ZP_BAD_INPUT, text);
        assert_true(strlen(err.message) >= sizeof err.message - 4);
        assert_true(utf8_is_valid(err.message, strlen(err.message), NULL));
    }
}

static void collect(void *arg, enum log_level level, const char *text)
{
    char *line = arg;
    size_t used = strlen(line);
    snprintf(line + used, 256 - used, "%d:%s;", (int)level, text);
}

static void test_log_reaches_the_sink_up_to_its_level(void **state)
{
    (void)state;
    char lines[256] = "";
    log_warn("before %d", 0);
    log_set_sink(collect, lines, LOG_INFO);
    log_warn("a%d", 1);
    log_info("b%d", 2);
    log_debug("c%d", 3);
    log_set_sink(NULL, NULL, LOG_DEBUG);
    log_warn("after");
    assert_string_equal(lines, "1:a1;2:b2;");
}

static void test_a_path_is_put_before_once_and_cut_at_a_character(void **state)
{
    (void)state;
    zp_err err = { 0 };
    status_add_path(NULL, "m.gguf");
    status_add_path(&err, "m.gguf"); /* nothing failed: nothing to name */
    assert_string_equal(err.message, "");
    fail_with(&err, ZP_BAD_FILE, "abc");
    status_add_path(&err, "m.gguf");
    status_add_path(&err, "m.gguf");
    assert_string_equal(err.message, "m.gguf: found abc, expected nothing");
    assert_int_equal(err.code, ZP_BAD_FILE);
    memset(err.message, 'x', sizeof err.message - 3);
    memcpy(err.message + sizeof err.message - 3, "\xc3\xa4", 3);
    for (int i = 1; i < 4; i++) {
        char path[8] = "abc";
        path[i] = '\0';
        zp_err cut = err;
        status_add_path(&cut, path);
        assert_true(utf8_is_valid(cut.message, strlen(cut.message), &(size_t){ 0 }));
    }
}

static void test_a_hint_is_put_behind_and_cut_at_a_character(void **state)
{
    (void)state;
    zp_err err = { 0 };
    status_add_hint(NULL, ": try again");
    status_add_hint(&err, ": try again"); /* nothing failed */
    assert_string_equal(err.message, "");
    fail_with(&err, ZP_BAD_FILE, "abc");
    status_add_hint(&err, ": try again");
    assert_string_equal(err.message, "found abc, expected nothing: try again");
    assert_int_equal(err.code, ZP_BAD_FILE);
    memset(err.message, 'x', sizeof err.message - 2);
    err.message[sizeof err.message - 2] = '\0';
    status_add_hint(&err, "\xc3\xa4");
    assert_int_equal(strlen(err.message), sizeof err.message - 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_path_is_put_before_once_and_cut_at_a_character),
        cmocka_unit_test(test_a_hint_is_put_behind_and_cut_at_a_character),
        cmocka_unit_test(test_exit_codes_are_those_of_the_manual),
        cmocka_unit_test(test_every_status_has_its_name_and_text),
        cmocka_unit_test(test_first_failure_wins),
        cmocka_unit_test(test_used_record_keeps_its_failure_until_its_code_is_ok),
        cmocka_unit_test(test_places_stand_before_the_text),
        cmocka_unit_test(test_error_record_may_be_absent),
        cmocka_unit_test(test_long_message_is_cut_between_characters),
        cmocka_unit_test(test_log_reaches_the_sink_up_to_its_level),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
