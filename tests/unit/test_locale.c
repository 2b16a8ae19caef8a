/* test_locale.c: numbers in a process whose locale writes a decimal comma: templates, documents,
 * pages and messages are those of the C locale.
 * The locale is made by localedef (package locales) in a folder of the test. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <locale.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include <zerope/report.h>
#include <zerope/zerope.h>

#include "base/bytes.h"
#include "base/json_tree.h"
#include "base/numtext.h"
#include "base/os.h"
#include "base/json_build.h"
#include "model/json_write.h"

static char folder[] = "/tmp/zerope-locale-XXXXXX";

/* ---- numtext, json_tree, json_build, json_write --------------------------------------------- */

static void test_numbers_have_a_point(void **state)
{
    char text[64], *end;
    (void)state;
    assert_int_equal(numtext_printf(text, sizeof text, "%g %.2f %.1e", 0.5, 2.5, 1e9), 16);
    assert_string_equal(text, "0.5 2.50 1.0e+09");
    assert_true(numtext_double("2.5e-3x", &end) == 2.5e-3);
    assert_string_equal(end, "x");
    assert_true(numtext_float("0.1", NULL) == 0.1f);
    struct numtext room;
    assert_string_equal(numtext_shortest(0.1, &room), "0.1");
    assert_string_equal(numtext_shortest(0.1 + 0.2, &room), "0.30000000000000004");
    assert_string_equal(numtext_shortest(1e6, &room), "1000000");
    assert_string_equal(numtext_shortest(-2.2250738585072014e-308, &room),
                        "-2.2250738585072014e-308"); /* the longest */
    snprintf(text, sizeof text, "%.1f", 0.5); /* the program's own locale is as it was */
    assert_string_equal(text, "0,5");
}

static void test_json_has_a_point(void **state)
{
    static const char source[] = "{\"a\": 2.5, \"b\": -1.25e-3}";
    zp_err err = { 0 };
    json_t *root;
    struct buffer out = buffer_with_max(MEM_META, 1000);
    (void)state;
    assert_int_equal(json_tree_read(source, strlen(source), "x", ZP_BAD_FILE, &root, &err), ZP_OK);
    assert_true(json_real_value(json_object_get(root, "b")) == -1.25e-3);
    root = json_tree_put(root, "c", json_tree_printf("<= %g, %.2f", 0.02, 1.5));
    assert_int_equal(json_write_text(root, 0, &out, &err), ZP_OK);
    assert_string_equal(out.data, "{\"a\": 2.5, \"b\": -0.00125, \"c\": \"<= 0.02, 1.50\"}");
    buffer_free(&out);
    json_decref(root);

    struct json_build w;
    char *text;
    json_build_open(&w, &err);
    json_build_array(&w, NULL);
    json_build_real(&w, NULL, 0.5, 6);
    json_build_real(&w, NULL, 2, 6);
    json_build_array_end(&w);
    assert_int_equal(json_build_finish(&w, &text), ZP_OK);
    assert_string_equal(text, "[0.5, 2.0]");
    mem_free(text);
}

/* ---- through the public calls ---------------------------------------------------------------- */

static const char source[] =
    "{{ 0.5 }} {{ 1.5 + 1 }} {{ '2.5'|float }} {{ [0.5]|tojson }} "
    "{{ 'yes' if 0.9 > 0.5 else 'no' }} {{ 2.675|round(2) }} "
    "{{ '%.2f %g'|format(0.5, 1.5) }} {{ '3.7'|int }} {{ 1e22 }} {{ 7 / 2 }}";
static const char rendered[] = "0.5 2.5 2.5 [0.5] yes 2.67 0.50 1.5 3 1e+22 3.5";
static const char turn[] = "[{\"role\":\"user\",\"content\":\"x\"}]";

static void test_templates_compute_the_same(void **state)
{
    char *text = NULL;
    zp_err err = { 0 };
    (void)state;
    if (zp_template_render_text(source, turn, NULL, &text, &err) != ZP_OK)
        fail_msg("%s", err.message);
    assert_string_equal(text, rendered);
    zp_free(text);
}

static void *render_many(void *arg)
{
    size_t *right = arg;
    for (int i = 0; i < 200; i++) {
        char *text = NULL;
        if (zp_template_render_text(source, turn, NULL, &text, NULL) == ZP_OK)
            *right += strcmp(text, rendered) == 0;
        zp_free(text);
    }
    return NULL;
}

static void test_threads_do_not_see_each_other(void **state)
{
    pthread_t threads[4];
    size_t right[4] = { 0 };
    (void)state;
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, render_many, &right[i]), 0);
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(right[i], 200);
    }
    assert_string_equal(localeconv()->decimal_point, ",");
}

static void test_messages_have_a_point(void **state)
{
    zp_err err = { 0 };
    struct bytes_text size;
    (void)state;
    status_fail(&err, ZP_USAGE, __FILE__, __LINE__, "the bias is %g", -0.5);
    assert_string_equal(err.message, "the bias is -0.5");
    assert_string_equal(bytes_in_words(2560, &size), "2.5 KiB");
}

static void test_pictures_have_a_point(void **state)
{
    static const char plan[] =
        "{\"format\": \"zerope-plan\", \"n_layer\": 1, \"n_kv\": 1, \"n_pair\": 3, \"ctx\": 64, "
        "\"budget_kl\": 0.025, \"closed_gates\": [[0, 0, 1]], \"local_heads\": []}";
    char path[80];
    zp_err err = { 0 };
    struct buffer b = buffer_with_max(MEM_META, 1 << 20);
    (void)state;
    snprintf(path, sizeof path, "%s/plan.svg", folder);
    if (zp_report_heatmap(plan, path, &err) != ZP_OK) fail_msg("%s", err.message);
    assert_int_equal(os_read_file(path, &b, &err), ZP_OK);
    assert_non_null(strstr((char *)b.data, "(33.3 %)"));
    assert_non_null(strstr((char *)b.data, "budget KL 0.025"));
    buffer_free(&b);
    unlink(path);
}

/* ---- the locale ------------------------------------------------------------------------------ */

static int run(char *const argv[])
{
    int status = -1;
    pid_t child = fork();
    if (child == 0) {
        execvp(argv[0], argv);
        _exit(127);
    }
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status)
               ? WEXITSTATUS(status)
               : -1;
}

static int make_locale(void **state)
{
    char target[64];
    (void)state;
    if (!mkdtemp(folder)) return -1;
    snprintf(target, sizeof target, "%s/de_DE.UTF-8", folder);
    int code = run((char *[]){ "localedef", "-i", "de_DE", "-f", "UTF-8", target, NULL });
    if (code > 1) print_error("localedef ended with %d: install the package locales\n", code);
    setenv("LOCPATH", folder, 1);
    return code <= 1 && setlocale(LC_ALL, "de_DE.UTF-8") &&
                   strcmp(localeconv()->decimal_point, ",") == 0
               ? 0
               : -1;
}

static int remove_locale(void **state)
{
    (void)state;
    return run((char *[]){ "rm", "-r", folder, NULL });
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers_have_a_point),
        cmocka_unit_test(test_json_has_a_point),
        cmocka_unit_test(test_templates_compute_the_same),
        cmocka_unit_test(test_threads_do_not_see_each_other),
        cmocka_unit_test(test_messages_have_a_point),
        cmocka_unit_test(test_pictures_have_a_point),
    };
    return cmocka_run_group_tests(tests, make_locale, remove_locale);
}
