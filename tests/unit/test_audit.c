/* test_audit.c: the log of decisions: whole lines of JSON, chained; what is missing or changed is
 * seen; bounded, and never in the way of a decision. */
#include "outcomes.h"

#include <stdlib.h>

#include "base/bytes.h"
#include "base/json_tree.h"
#include "live_bytes.h"

#define ZEROS "0000000000000000000000000000000000000000000000000000000000000000"

static void open_log(struct audit *a, size_t most_lines)
{
    zp_err err = { 0 };
    if (audit_open(a, &(struct audit_options){ .most_lines = most_lines }, &err) != ZP_OK)
        fail_msg("%s", err.message);
    audit_set_clock(a, 100, 1700000000.25);
}

static void add(struct audit *a, const char *actor, const char *why, double now)
{
    struct audit_note note = audit_note(actor, "canary_set", why, now);
    audit_number(&note, "from_percent", 1);
    audit_number(&note, "to_percent", 5.5);
    audit_add(a, &note);
}

static json_t *parse(const char *line)
{
    zp_err err = { 0 };
    json_t *j;
    assert_null(strchr(line, '\n'));
    if (json_tree_read(line, strlen(line), "line", ZP_BAD_INPUT, &j, &err) != ZP_OK)
        fail_msg("%s: %s", err.message, line);
    return j;
}

static const char *text_of(const json_t *j, const char *key)
{
    return json_string_value(json_object_get(j, key));
}

/* By what docs/SERVER.md says of a line, without the code that wrote it. */
static bool follows(const char *line, char last[65])
{
    char hash[65], *end;
    json_t *j = parse(line);
    struct sha256 s;
    sha256_init(&s);
    assert_non_null(end = strstr(line, ", \"hash\": \""));
    sha256_update(&s, line, (size_t)(end - line));
    sha256_update(&s, "}", 1);
    sha256_final(&s, hash);
    bool good = !strcmp(hash, text_of(j, "hash")) && !strcmp(text_of(j, "prev"), last);
    snprintf(last, 65, "%s", text_of(j, "hash"));
    json_decref(j);
    return good;
}

static void test_a_line_tells_when_who_what_and_why(void **state)
{
    struct audit a;
    (void)state;
    open_log(&a, 0);
    add(&a, "key-7", "looks \"good\"\n", 101.5);
    json_t *j = parse(audit_line(&a, 0));
    assert_int_equal(json_integer_value(json_object_get(j, "seq")), 1);
    assert_string_equal(text_of(j, "time"), "2023-11-14T22:13:21.750Z");
    assert_string_equal(text_of(j, "actor"), "key-7");
    assert_string_equal(text_of(j, "what"), "canary_set");
    assert_string_equal(text_of(j, "why"), "looks \"good\"\n");
    assert_string_equal(text_of(j, "prev"), ZEROS);
    const json_t *numbers = json_object_get(j, "numbers");
    assert_int_equal(json_object_size(numbers), 2);
    assert_true(json_real_value(json_object_get(numbers, "to_percent")) == 5.5);
    json_decref(j);
    assert_null(audit_line(&a, 1));
    audit_free(&a);
}

static void test_missing_and_changed_lines_are_seen(void **state)
{
    enum { N = 20 };
    struct audit a;
    char last[65] = ZEROS;
    (void)state;
    open_log(&a, 0);
    for (int i = 0; i < N; i++) add(&a, AUDIT_RULE, "every rule is met", 100 + i);
    for (size_t i = 0; i < N; i++) assert_true(follows(audit_line(&a, i), last));
    assert_string_equal(last, a.last);
    for (size_t missing = 1; missing + 1 < N; missing++) {
        snprintf(last, sizeof last, ZEROS);
        for (size_t i = 0; i < missing; i++) assert_true(follows(audit_line(&a, i), last));
        assert_false(follows(audit_line(&a, missing + 1), last));
    }
    char changed[1024];
    snprintf(changed, sizeof changed, "%s", audit_line(&a, 0));
    *strstr(changed, "5.5") = '6';
    snprintf(last, sizeof last, ZEROS);
    assert_false(follows(changed, last));
    audit_free(&a);
}

struct sink {
    char first[1024];
    size_t n;
};

static void take(void *arg, const char *line, size_t size)
{
    struct sink *s = arg;
    assert_int_equal(strlen(line), size);
    if (s->n++ == 0) snprintf(s->first, sizeof s->first, "%s", line);
}

static void test_the_ring_is_bounded_and_the_sink_gets_all(void **state)
{
    struct sink s = { .n = 0 };
    struct audit a;
    zp_err err = { 0 };
    uint64_t before = live_bytes(), bound = 0;
    (void)state;
    assert_int_equal(audit_open(&a, &(struct audit_options){ .most_lines = 8, .sink = take,
                                                             .sink_arg = &s }, &err), ZP_OK);
    for (int i = 0; i < 1000; i++) {
        add(&a, AUDIT_RULE, "every rule is met", i);
        if (i == 20) bound = live_bytes() - before + 8 * 64; /* seq and hours get longer */
        if (i > 20) assert_true(live_bytes() - before <= bound);
    }
    assert_int_equal(s.n, 1000);
    assert_int_equal(a.n, 8);
    char last[65];
    json_t *j = parse(audit_line(&a, 0));
    assert_int_equal(json_integer_value(json_object_get(j, "seq")), 993);
    snprintf(last, sizeof last, "%s", text_of(j, "prev"));
    json_decref(j);
    for (size_t i = 0; i < 8; i++) assert_true(follows(audit_line(&a, i), last));
    assert_null(audit_line(&a, 8));
    snprintf(last, sizeof last, ZEROS);
    assert_true(follows(s.first, last));
    audit_free(&a);
    assert_int_equal(live_bytes(), before);
}

static void test_texts_of_any_bytes_and_length(void **state)
{
    struct audit a;
    char text[1000], last[65] = ZEROS;
    (void)state;
    open_log(&a, 0);
    for (size_t i = 0; i + 2 < sizeof text; i += 2) memcpy(text + i, "\xc3\xa9", 2); /* e acute */
    text[998] = text[999] = '\0';
    add(&a, text, text, 1);
    add(&a, text + 1, "\xff\x01\"\\", 2);
    add(&a, "k", NULL, 3);
    struct audit_note many = audit_note("k", "w", "", 4);
    static const char letters[] = "a\0b\0c\0d\0e\0f\0g\0h\0i\0j\0k\0l\0m\0n\0o\0p\0q\0r\0s\0t";
    for (int i = 0; i < 20; i++) audit_number(&many, letters + 2 * i, i % 2 ? NAN : INFINITY);
    assert_int_equal(many.n_numbers, AUDIT_MOST_NUMBERS);
    audit_add(&a, &many);
    for (size_t i = 0; i < 4; i++) assert_true(follows(audit_line(&a, i), last));
    json_t *j = parse(audit_line(&a, 0));
    assert_int_equal(strlen(text_of(j, "why")), AUDIT_WHY - 2); /* whole characters */
    json_decref(j);
    j = parse(audit_line(&a, 2));
    assert_string_equal(text_of(j, "why"), "no reason given");
    json_decref(j);
    audit_free(&a);
}

/* A decision for whose line there is no memory leaves a gap in seq, and the chain goes on. */
static void test_without_memory_a_gap_is_seen(void **state)
{
    struct audit a;
    char last[65] = ZEROS;
    (void)state;
    open_log(&a, 0);
    uint64_t before = live_bytes();
    for (uint64_t n = 1;; n++) {
        mem_fail_at(n, false);
        add(&a, AUDIT_RULE, "every rule is met", 100);
        bool failed = mem_fail_count() > 0;
        mem_fail_at(0, false);
        assert_int_equal(a.seq, n);
        if (!failed) break;
        assert_int_equal(a.lost, n);
        assert_int_equal(a.n, 0);
        assert_int_equal(live_bytes(), before);
    }
    assert_true(a.lost >= 2);
    assert_true(follows(audit_line(&a, 0), last));
    audit_free(&a);
    zp_err err = { 0 };
    mem_fail_at(1, false);
    assert_int_equal(audit_open(&a, &(struct audit_options){ 0 }, &err), ZP_NO_MEMORY);
    mem_fail_at(0, false);
    audit_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_line_tells_when_who_what_and_why),
        cmocka_unit_test(test_missing_and_changed_lines_are_seen),
        cmocka_unit_test(test_the_ring_is_bounded_and_the_sink_gets_all),
        cmocka_unit_test(test_texts_of_any_bytes_and_length),
        cmocka_unit_test(test_without_memory_a_gap_is_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
