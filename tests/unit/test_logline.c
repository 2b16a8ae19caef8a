/* test_logline.c: log lines to the last byte; secrets and content stay out of them; bounds hold. */
#include "golden.h"

#include "base/bytes.h"
#include "base/json_tree.h"
#include "base/rng.h"
#include "obs/logline.h"

#define TIME_NS 1935630121250999999 /* 2031-05-04T03:02:01.250999999Z */

static char line[LOGLINE_ROOM + 1];

static void form(const struct logline_log *log, const struct logline_field *fields, size_t n)
{
    size_t size = logline_form(log, TIME_NS, LOG_WARN, "an_event", "req-1", fields, n, line);
    assert_true(size <= LOGLINE_ROOM);
    line[size] = '\0';
}
#define FORM(log, ...)                                                                             \
    form((log), (const struct logline_field[]){ __VA_ARGS__ },                                     \
         sizeof((const struct logline_field[]){ __VA_ARGS__ }) / sizeof(struct logline_field))

/* ---- the two forms --------------------------------------------------------------------------- */

static void test_json_of_every_kind(void **state)
{
    (void)state;
    const struct logline_log log = { .salt = "salt" };
    FORM(&log, logline_text("text", "a \"b\"\n\x1b[1m"), logline_text("none", NULL),
         logline_int("int", INT64_MIN), logline_uint("uint", UINT64_MAX),
         logline_real("real", 0.1), logline_real("nan", NAN),
         logline_bool("yes", true), logline_bool("no", false),
         logline_secret("key", "secret"),
         logline_content("prompt", "private"));
    assert_string_equal(
        line, "{\"time\":\"2031-05-04T03:02:01.250Z\",\"level\":\"warn\",\"event\":\"an_event\","
              "\"request_id\":\"req-1\",\"text\":\"a \\\"b\\\"\\n\\u001b[1m\",\"none\":null,"
              "\"int\":-9223372036854775808,\"uint\":18446744073709551615,\"real\":0.1,"
              "\"nan\":null,\"yes\":true,\"no\":false,\"key\":\"sha256:0c2397579e13eace\","
              "\"prompt\":{\"bytes\":7}}\n");
}

static void test_plain_text_of_every_kind(void **state)
{
    (void)state;
    const struct logline_log log = { .style = LOGLINE_PLAIN, .salt = "salt" };
    FORM(&log, logline_text("word", "v1/chat-2.gguf"), logline_text("text", "a b"),
         logline_text("empty", ""), logline_text("none", NULL),
         logline_text("fake", "x level=error"),
         logline_text("csi", "\xc2\x9b"
                             "1m"),
         logline_int("int", -1), logline_real("real", 1e30), logline_bool("yes", true),
         logline_secret("key", "secret"), logline_content("prompt", "private"));
    assert_string_equal(line, "2031-05-04T03:02:01.250Z warn  an_event request_id=req-1 "
                              "word=v1/chat-2.gguf text=\"a b\" empty=\"\" none=null "
                              "fake=\"x level=error\" csi=\"\\u009b1m\" int=-1 real=1e+30 yes=true "
                              "key=sha256:0c2397579e13eace prompt=7_bytes\n");
}

static void test_content_is_shown_where_it_was_asked_for(void **state)
{
    (void)state;
    const struct logline_log log = { .content = true };
    FORM(&log, logline_content("prompt", "private"));
    assert_non_null(strstr(line, ",\"prompt\":\"private\"}\n"));
}

static void test_hashes_of_secrets_depend_on_the_salt(void **state)
{
    (void)state;
    char first[LOGLINE_ROOM + 1];
    FORM(&(struct logline_log){ .salt = "a" }, logline_secret("key", "secret"));
    memcpy(first, line, sizeof first);
    FORM(&(struct logline_log){ .salt = "b" }, logline_secret("key", "secret"));
    assert_string_not_equal(line, first);
    FORM(&(struct logline_log){ .salt = "a" }, logline_secret("key", "secret"));
    assert_string_equal(line, first);
    /* What is salt and what is text is not in doubt. */
    FORM(&(struct logline_log){ .salt = "as" }, logline_secret("key", "ecret"));
    assert_string_not_equal(line, first);
    FORM(&(struct logline_log){ .salt = NULL }, logline_secret("key", NULL));
    assert_non_null(strstr(line, "\"key\":null}"));
}

/* ---- bounds ---------------------------------------------------------------------------------- */

static void test_long_texts_are_cut_between_characters(void **state)
{
    (void)state;
    static char text[3 * LOGLINE_ROOM];
    for (size_t i = 0; i + 3 < sizeof text; i += 3) memcpy(text + i, "\xe2\x82\xac", 3);
    for (size_t shift = 0; shift < 3; shift++) {
        size_t bad;
        char name[] = "aaaa";
        name[1 + shift] = '\0';
        const struct logline_log log = { 0 };
        FORM(&log, logline_text(name, text), logline_bool("after", false));
        assert_true(strlen(line) > LOGLINE_ROOM - 8);
        assert_true(utf8_is_valid(line, strlen(line), &bad));
        assert_null(strstr(line, "after"));
        assert_non_null(strstr(line, "\xe2\x82\xac\",\"truncated\":true}\n"));
    }
}

static void test_what_has_no_room_is_left_out_whole(void **state)
{
    (void)state;
    static char text[LOGLINE_ROOM];
    const struct logline_log json = { 0 }, plain = { .style = LOGLINE_PLAIN };
    bool whole = false, cut = false;
    for (size_t size = LOGLINE_ROOM - 200; size < LOGLINE_ROOM; size++) {
        json_t *doc;
        memset(text, 'x', size);
        text[size] = '\0';
        FORM(&json, logline_text("text", text), logline_uint("number", 123456789));
        assert_int_equal(json_tree_read(line, strlen(line), "x", ZP_RUN, &doc, NULL), ZP_OK);
        json_t *number = json_object_get(doc, "number");
        assert_true((number == NULL) == json_is_true(json_object_get(doc, "truncated")));
        if (number != NULL) assert_int_equal(json_integer_value(number), 123456789);
        whole |= number != NULL, cut |= number == NULL;
        json_decref(doc);
        FORM(&plain, logline_text("text", text), logline_uint("number", 123456789));
        assert_true((strstr(line, " number=123456789\n") == NULL) ==
                    (strstr(line, " truncated=true\n") != NULL));
    }
    assert_true(whole && cut);
}

/* Any bytes in any field: one JSON object a line, with the fields in it. */
static void test_any_bytes_make_one_line(void **state)
{
    (void)state;
    struct rng r = rng_stream(0x106, 1);
    print_message("seed 0x106\n");
    for (int round = 0; round < 2000; round++) {
        char texts[3][3000];
        for (int t = 0; t < 3; t++) {
            size_t size = rng_below(&r, rng_below(&r, 2) ? 20 : 3000);
            for (size_t i = 0; i < size; i++)
                texts[t][i] = (char)(1 + rng_below(&r, rng_below(&r, 3) ? 255 : 40));
            texts[t][size] = '\0';
        }
        const struct logline_log log = { .content = true,
                                         .style = rng_below(&r, 4) ? LOGLINE_JSON : LOGLINE_PLAIN };
        struct logline_field fields[] = { logline_text("x", texts[1]),
                                          logline_content("y", texts[2]) };
        size_t size = logline_form(&log, TIME_NS, LOG_INFO, texts[0], texts[1], fields, 2, line);
        size_t bad;
        assert_true(size <= LOGLINE_ROOM && line[size - 1] == '\n');
        assert_null(memchr(line, '\n', size - 1));
        assert_true(utf8_is_valid(line, size, &bad));
        for (size_t i = 0; i + 1 < size; i++)
            assert_true((unsigned char)line[i] >= 0x20 && line[i] != 0x7f);
        json_t *doc;
        if (log.style == LOGLINE_PLAIN) continue;
        zp_err err = { 0 };
        if (json_tree_read(line, size, "x", ZP_BAD_INPUT, &doc, &err) != ZP_OK)
            fail_msg("%s", err.message);
        assert_true(json_object_get(doc, "y") != NULL ||
                    json_is_true(json_object_get(doc, "truncated")));
        json_decref(doc);
    }
}

/* ---- levels, time ---------------------------------------------------------------------------- */

struct seen {
    int n;
    enum log_level level;
    char last[LOGLINE_ROOM + 1];
};

static void see(void *arg, enum log_level level, const char *text, size_t size)
{
    struct seen *s = arg;
    s->n++;
    s->level = level;
    memcpy(s->last, text, size);
    s->last[size] = '\0';
}

static void test_the_sink_gets_lines_up_to_its_level(void **state)
{
    (void)state;
    struct seen seen = { 0 };
    const struct logline_log log = { .most = LOG_INFO, .sink = see, .arg = &seen };
    struct mem_stats before, after;
    mem_stats_read(&before);
    LOGLINE(&log, LOG_DEBUG, "hidden", NULL, logline_uint("n", 1));
    assert_int_equal(seen.n, 0);
    LOGLINE(&log, LOG_INFO, "shown", NULL, logline_uint("n", 1));
    assert_int_equal(seen.n, 1);
    assert_int_equal(seen.level, LOG_INFO);
    assert_non_null(strstr(seen.last, "\"level\":\"info\",\"event\":\"shown\",\"n\":1}\n"));
    logline_write(&log, LOG_ERROR, "bare", NULL, NULL, 0);
    assert_non_null(strstr(seen.last, "\"event\":\"bare\"}\n"));
    mem_stats_read(&after);
    assert_int_equal(after.allocations, before.allocations);
}

static void test_times_are_those_of_the_calendar(void **state)
{
    (void)state;
    static const struct {
        int64_t ns;
        const char *text;
    } cases[] = { { 0, "1970-01-01T00:00:00.000Z" },
                  { -1, "1969-12-31T23:59:59.999Z" },
                  { 951782400000000000, "2000-02-29T00:00:00.000Z" },
                  { 4107542399999000000, "2100-02-28T23:59:59.999Z" },
                  { INT64_MAX, "2262-04-11T23:47:16.854Z" },
                  { INT64_MIN, "1677-09-21T00:12:43.145Z" } };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct logline_time room;
        assert_string_equal(logline_time(cases[i].ns, &room), cases[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json_of_every_kind),
        cmocka_unit_test(test_plain_text_of_every_kind),
        cmocka_unit_test(test_content_is_shown_where_it_was_asked_for),
        cmocka_unit_test(test_hashes_of_secrets_depend_on_the_salt),
        cmocka_unit_test(test_long_texts_are_cut_between_characters),
        cmocka_unit_test(test_what_has_no_room_is_left_out_whole),
        cmocka_unit_test(test_any_bytes_make_one_line),
        cmocka_unit_test(test_the_sink_gets_lines_up_to_its_level),
        cmocka_unit_test(test_times_are_those_of_the_calendar),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
