/* test_service_page.c: the dashboard's files with their headers, what everybody may know, and
 * measurements of attention by distance as an admin gets them. */
#include "golden.h"

#include "in_folder.h"
#include "service_fixture.h"

static struct reply ask(const struct live *l, const char *method, const char *path,
                        const char *headers, int status)
{
    struct reply r = live_ask(l, method, path, headers, NULL);
    if (r.status != status) fail_msg("%s: %d instead of %d: %s", path, r.status, status, r.body);
    return r;
}

static bool has(const struct reply *r, const char *line)
{
    return strstr(r->head, line) != NULL;
}

static void check_headers(const struct reply *r, const char *path)
{
    static const char *const lines[] = {
        "\r\ncontent-security-policy: default-src 'none'; script-src 'self'; style-src 'self'; "
        "connect-src 'self'; img-src data:; base-uri 'self'; form-action 'none'; "
        "frame-ancestors 'none'; require-trusted-types-for 'script'\r\n",
        "\r\nx-content-type-options: nosniff\r\n", "\r\nreferrer-policy: no-referrer\r\n",
        "\r\ncache-control: no-cache\r\n", "\r\netag: \""
    };
    for (size_t i = 0; i < ZP_COUNT(lines); i++)
        if (!has(r, lines[i])) fail_msg("%s has no %s: %s", path, lines[i], r->head);
}

/* "If-None-Match: TAG", of an answer's etag. */
static void condition(const struct reply *r, const char *before, char *out, size_t room)
{
    const char *tag = strstr(r->head, "\r\netag: ") + 8;
    snprintf(out, room, "If-None-Match: %s%.*s\r\n", before, (int)strcspn(tag, "\r"), tag);
}

static const struct {
    const char *path, *type, *begins;
} files[] = {
    { "/", "\r\ncontent-type: text/html; charset=utf-8\r\n", "<!doctype html>\n" },
    { "/dashboard.js", "\r\ncontent-type: text/javascript; charset=utf-8\r\n",
      "/* dashboard.js: " },
    { "/dashboard.css", "\r\ncontent-type: text/css; charset=utf-8\r\n", "/* dashboard.css: " },
};

static void test_files_and_their_headers(void **state)
{
    zp_serve_options o = live_options();
    struct live l;
    char line[128], tags[ZP_COUNT(files)][128];
    (void)state;
    o.api_keys = in_folder("keys"); /* of requests: not needed here */
    FILE *f = fopen(o.api_keys, "w");
    assert_non_null(f);
    fputs("ann first-secret\n", f);
    fclose(f);
    live_begin(&l, o);
    for (size_t i = 0; i < ZP_COUNT(files); i++) {
        struct reply r = ask(&l, "GET", files[i].path, "", 200);
        check_headers(&r, files[i].path);
        assert_true(has(&r, files[i].type));
        assert_memory_equal(r.body, files[i].begins, strlen(files[i].begins));
        snprintf(line, sizeof line, "\r\ncontent-length: %zu\r\n", r.size);
        assert_true(has(&r, line));
        condition(&r, "", tags[i], sizeof tags[i]);
        struct reply head = ask(&l, "HEAD", files[i].path, "", 200);
        assert_int_equal(head.size, 0);
        assert_true(has(&head, line));
        check_headers(&head, files[i].path);
        reply_free(&head);
        head = ask(&l, "GET", files[i].path, tags[i], 304);
        assert_int_equal(head.size, 0);
        check_headers(&head, files[i].path);
        reply_free(&head);
        condition(&r, "\"other\", W/", line, sizeof line);
        head = ask(&l, "GET", files[i].path, line, 304);
        reply_free(&head);
        head = ask(&l, "GET", files[i].path, "If-None-Match: \"0000000000000000\"\r\n", 200);
        assert_int_equal(head.size, r.size);
        reply_free(&head);
        reply_free(&r);
    }
    struct reply r = ask(&l, "GET", files[1].path, tags[0], 200); /* another file's tag */
    reply_free(&r);
    r = ask(&l, "POST", "/", "", 405);
    reply_free(&r);
    static const char *const unknown[] = { "/dashboard.html", "/dashboard.js/", "/x",
                                           "/page/dashboard.js", "/favicon.ico" };
    for (size_t i = 0; i < ZP_COUNT(unknown); i++) {
        r = ask(&l, "GET", unknown[i], "", 404);
        json_t *j = reply_json(&r);
        assert_string_equal(text_in(j, "error.code"), "not_found");
        json_decref(j);
        reply_free(&r);
    }
    live_end(&l);
}

/* Nothing in the page is to be loaded from anywhere else, and nothing in it acts by itself. */
static void test_the_page_stands_alone(void **state)
{
    struct live l;
    (void)state;
    live_begin(&l, live_options());
    for (size_t i = 0; i < ZP_COUNT(files); i++) {
        struct reply r = ask(&l, "GET", files[i].path, "", 200);
        const char *at = r.body;
        while ((at = strstr(at, "://")) != NULL) {
            at += 3; /* names of SVG, which nobody loads */
            assert_memory_equal(at, "www.w3.org/2000/svg", 19);
        }
        static const char *const banned[] = { "<style", " style=", " onclick=", "<script>",
                                              "javascript:", "innerHTML", "@import", "eval(" };
        for (size_t k = 0; k < ZP_COUNT(banned); k++)
            if (strstr(r.body, banned[k]) != NULL)
                fail_msg("%s has %s", files[i].path, banned[k]);
        reply_free(&r);
    }
    live_end(&l);
}

static void test_below_a_prefix(void **state)
{
    zp_serve_options o = live_options();
    struct live l;
    char tag[128];
    (void)state;
    o.prefix = "/a'<b";
    live_begin(&l, o);
    struct reply r = ask(&l, "GET", "/a'<b", "", 200), slash = ask(&l, "GET", "/a'<b/", "", 200);
    assert_non_null(strstr(r.body, "<head>\n<base href=\"/a&#39;&#60;b/\">\n<meta charset"));
    assert_string_equal(r.body, slash.body);
    condition(&r, "", tag, sizeof tag);
    struct reply again = ask(&l, "GET", "/a'<b/", tag, 304);
    reply_free(&again);
    reply_free(&slash);
    reply_free(&r);
    r = ask(&l, "GET", "/a'<b/dashboard.js", "", 200);
    assert_null(strstr(r.body, "<base"));
    reply_free(&r);
    r = ask(&l, "GET", "/dashboard.js", "", 404);
    reply_free(&r);
    live_end(&l);
}

static void check_door(bool open, const char *keys, const char *expected)
{
    zp_serve_options o = live_options();
    struct live l;
    o.admin_open = open;
    o.admin_keys = keys;
    live_begin(&l, o);
    json_t *j = live_get(&l, "/status");
    assert_string_equal(text_in(j, "state"), "ready");
    assert_string_equal(text_in(j, "model"), "llama");
    assert_string_equal(text_in(j, "admin"), expected);
    assert_true(json_is_true(json_in(j, "alive")));
    assert_true(number_in(j, "uptime_seconds") >= 0 && number_in(j, "resident_bytes") > 0);
    assert_int_equal(json_object_size(j), 9); /* and no more */
    json_decref(j);
    live_end(&l);
}

static void test_what_everybody_may_know(void **state)
{
    const char *keys = in_folder("admin");
    FILE *f = fopen(keys, "w");
    (void)state;
    assert_non_null(f);
    fputs("chief admin-secret\n", f);
    fclose(f);
    check_door(false, NULL, "closed");
    check_door(true, NULL, "open");
    check_door(true, keys, "key");
}

/* ---- /admin/distance ------------------------------------------------------------------------- */

static void check_map(const json_t *j, const char *variant)
{
    char path[64];
    snprintf(path, sizeof path, "measured.%s.layers", variant);
    const json_t *layers = json_in(j, path), *buckets = json_in(j, "measured.buckets");
    assert_int_equal(json_array_size(layers), 4);
    double strength = 0;
    for (size_t l = 0; l < 4; l++) {
        const json_t *layer = json_array_get(layers, l), *x;
        double sum = number_in(layer, "first");
        size_t b;
        assert_int_equal(json_array_size(json_in(layer, "share")), json_array_size(buckets));
        assert_int_equal(json_array_size(json_in(layer, "weight")), json_array_size(buckets));
        json_array_foreach(json_in(layer, "share"), b, x) {
            sum += json_number_value(x);
            double pairs = number_in(json_array_get(buckets, b), "pairs"),
                   rows = number_in(j, "measured.tokens") - 1,
                   weight = json_number_value(json_array_get(json_in(layer, "weight"), b));
            assert_true(fabs(weight * pairs / rows - json_number_value(x)) < 1e-4);
        }
        assert_true(fabs(sum - 1) < 1e-4);
        strength += number_in(layer, "strength") / 4;
    }
    snprintf(path, sizeof path, "measured.%s.strength", variant);
    assert_true(strength > 0 && fabs(number_in(j, path) - strength) < 1e-6);
}

static void test_measurements(void **state)
{
    zp_serve_options o = live_options();
    struct live l;
    (void)state;
    o.candidate = SMALL_MODEL;
    live_begin(&l, o);
    while (live_logged(&l, "\"variant\":\"candidate\",\"model\"") == 0)
        json_decref(live_get(&l, "/healthz"));
    json_t *j = live_get(&l, "/admin/distance");
    assert_true(json_is_null(json_in(j, "measured")) && json_is_false(json_in(j, "running")));
    json_decref(j);
    j = live_get(&l, "/admin/status");
    assert_true(json_is_null(json_in(j, "models.baseline.positional_strength")));
    json_decref(j);
    j = live_post(&l, "/admin/distance", "{}");
    assert_string_equal(text_in(j, "measured.text"), "built-in");
    assert_int_equal(number_in(j, "measured.tokens"), 256);
    check_map(j, "baseline");
    check_map(j, "candidate");
    double strength = number_in(j, "measured.baseline.strength");
    json_t *again = live_get(&l, "/admin/distance");
    assert_true(json_equal(again, j)); /* it is kept */
    json_decref(again);
    json_decref(j);
    assert_true(live_figure(&l, "models.baseline.positional_strength") == strength);
    assert_true(live_figure(&l, "models.baseline.requests") == 0); /* and nothing held */
    struct reply r = live_ask(&l, "GET", "/metrics", "", NULL);
    assert_non_null(strstr(r.body, "zerope_positional_strength{variant=\"baseline\"} 0.0"));
    assert_non_null(strstr(r.body, "zerope_positional_strength{variant=\"candidate\"} 0.0"));
    reply_free(&r);
    /* A text of one's own, of which nothing is told, cut to what was asked for. */
    j = live_post(&l, "/admin/distance",
                  "{\"text\":\"zanzibar, an island, and what is beyond\",\"tokens\":20}");
    assert_string_equal(text_in(j, "measured.text"), "given");
    assert_int_equal(number_in(j, "measured.tokens"), 20);
    assert_true(number_in(j, "measured.text_tokens") > 20);
    char *text = json_dumps(j, 0);
    assert_null(strstr(text, "zanzibar"));
    free(text);
    json_decref(j);
    live_end(&l);
}

static void test_measurements_that_are_refused(void **state)
{
    static const struct {
        const char *body, *param;
    } wrong[] = {
        { "{\"text\":7}", "text" }, { "{\"text\":\"\"}", "text" }, { "{\"tokens\":15}", "tokens" },
        { "{\"tokens\":2049}", "tokens" }, { "{\"mode\":\"all\"}", "mode" },
        { "{\"text\":\"short\"}", NULL }, { "{\"mode\":\"half\"}", NULL }, { "[]", NULL },
    };
    struct live l;
    (void)state;
    live_begin(&l, live_options());
    for (size_t i = 0; i < ZP_COUNT(wrong); i++) {
        json_t *j = live_json(&l, "POST", "/admin/distance", "", wrong[i].body, 400);
        const char *param = json_string_value(json_object_get(json_in(j, "error"), "param"));
        if (wrong[i].param != NULL) assert_string_equal(param, wrong[i].param);
        json_decref(j);
    }
    json_t *j = live_get(&l, "/admin/distance");
    assert_true(json_is_null(json_in(j, "measured")) && json_is_false(json_in(j, "running")));
    json_decref(j);
    assert_true(live_figure(&l, "models.baseline.requests") == 0);
    live_end(&l);
    zp_serve_options o = live_options();
    o.admin_open = false;
    live_begin(&l, o);
    json_decref(live_json(&l, "POST", "/admin/distance", "", "{}", 403));
    live_end(&l);
}

static void until_one_runs(const struct live *l)
{
    for (bool runs = false; !runs;) {
        json_t *j = live_get(l, "/admin/distance");
        runs = json_is_true(json_in(j, "running"));
        assert_true(json_is_null(json_in(j, "measured"))); /* else it was too short for this test */
        json_decref(j);
    }
}

/* One at a time; one that nobody waits for ends, and so does one that is under way at the end. */
static void test_measurements_end(void **state)
{
    static const char longest[] = "{\"tokens\":1024}";
    struct live l;
    zp_serve_options o = live_options();
    (void)state;
    o.engine.n_ctx = 2048;
    live_begin(&l, o);
    int fd = live_begin_ask(&l, "POST", "/admin/distance", "", longest);
    until_one_runs(&l);
    json_t *j = live_json(&l, "POST", "/admin/distance", "", "{}", 409);
    assert_string_equal(text_in(j, "error.code"), "busy");
    json_decref(j);
    close(fd); /* nobody waits */
    for (bool runs = true; runs;) {
        j = live_get(&l, "/admin/distance");
        runs = json_is_true(json_in(j, "running"));
        assert_true(json_is_null(json_in(j, "measured")));
        json_decref(j);
    }
    assert_true(live_figure(&l, "models.baseline.requests") == 0);
    fd = live_begin_ask(&l, "POST", "/admin/distance", "", longest);
    until_one_runs(&l);
    live_end(&l);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files_and_their_headers),
        cmocka_unit_test(test_the_page_stands_alone),
        cmocka_unit_test(test_below_a_prefix),
        cmocka_unit_test(test_what_everybody_may_know),
        cmocka_unit_test(test_measurements),
        cmocka_unit_test(test_measurements_that_are_refused),
        cmocka_unit_test(test_measurements_end),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
