/* test_evapfile.c: SCAN and PLAN documents: what is no such document is refused by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/os.h"
#include "evap/evapfile.h"

#define MODEL ZP_TEST_DATA "/arch/gguf/gguf-llama-linear.gguf"

static char file[] = "/tmp/zerope-evapfile-XXXXXX";
static struct zp_model *model;

static void write_text(const char *text)
{
    assert_int_equal(os_write_file(file, text, strlen(text), NULL), ZP_OK);
}

static void refuse(zp_status status, const zp_err *err, const json_t *root, const char *part)
{
    assert_int_equal(status, ZP_BAD_INPUT);
    assert_null(root);
    if (!strstr(err->message, part)) fail_msg("'%s' lacks '%s'", err->message, part);
}

static void refuse_scan(const char *part)
{
    struct scan s;
    struct evapfile_paths paths;
    json_t *root = NULL;
    zp_err err = { 0 };
    refuse(evapfile_read_scan(&s, file, &root, &paths, &err), &err, root, part);
}

static void refuse_plan(const char *part)
{
    struct plan p;
    json_t *root = NULL;
    zp_err err = { 0 };
    refuse(evapfile_read_plan(&p, file, model, &root, &err), &err, root, part);
}

/* The name of the wrong format is part of the message, and belongs to the document. */
static void other_documents_are_named(void **state)
{
    (void)state;
    write_text("{\"format\": \"zerope-plan\", \"version\": 1}");
    refuse_scan("not a zerope-scan document (format is zerope-plan)");
    write_text("{\"format\": \"zerope-scan\", \"version\": 1}");
    refuse_plan("not a zerope-plan document (format is zerope-scan)");
    static const char *const nameless[] = { "{}", "[]", "{\"format\": 5}", "{\"format\": null}" };
    for (size_t i = 0; i < ZP_COUNT(nameless); i++) {
        write_text(nameless[i]);
        refuse_scan("(format is missing)");
        refuse_plan("(format is missing)");
    }
}

static void other_versions_are_refused(void **state)
{
    (void)state;
    static const char *const versions[] = { "2", "0", "-1", "\"1\"", "1.0", "null" };
    for (size_t i = 0; i < ZP_COUNT(versions); i++) {
        char text[128];
        snprintf(text, sizeof text, "{\"format\": \"zerope-scan\", \"version\": %s}",
                 versions[i]);
        write_text(text);
        refuse_scan("version of the zerope-scan document must be 1");
    }
    write_text("{\"format\": \"zerope-plan\"}");
    refuse_plan("version of the zerope-plan document must be 1");
}

/* A plan of MODEL with these parts; ZP_OK or the refusal that holds `part`. */
static void try_plan(const char *order, int used, const char *closed, const char *local,
                     const char *part)
{
    char text[1024];
    snprintf(text, sizeof text,
             "{\"format\": \"zerope-plan\", \"version\": 1, \"model_sha256\": \"%s\", \"ctx\": 64, "
             "\"local_window\": 16, \"order\": %s, \"used\": %d, \"closed_gates\": %s, "
             "\"local_heads\": %s}", model->sha256, order, used, closed, local);
    write_text(text);
    if (part) {
        refuse_plan(part);
        return;
    }
    struct plan p;
    json_t *root;
    zp_err err = { 0 };
    if (evapfile_read_plan(&p, file, model, &root, &err) != ZP_OK) fail_msg("%s", err.message);
    assert_int_equal(p.n_used, used);
    plan_free(&p);
    json_decref(root);
}

static void plans_that_contradict_themselves_are_refused(void **state)
{
    (void)state;
    static const char order[] = "[[\"gate\", 0, 1, 2], [\"local\", 1, 0, 0], [\"pair\", 0, 0, 3]]";
    static const char gates[] = "closed_gates contradicts", heads[] = "local_heads contradicts";
    try_plan("[]", 0, "[]", "[]", NULL);
    try_plan(order, 1, "[[0, 1, 2]]", "[]", NULL);
    try_plan(order, 2, "[[0, 1, 2]]", "[[1, 0, 16]]", NULL);
    try_plan(order, 0, "[[0, 1, 2]]", "[]", gates);
    try_plan("[]", 0, "[[1, 1, 3]]", "[]", gates);
    try_plan(order, 1, "[]", "[]", gates);
    try_plan(order, 1, "[[0, 1, 3]]", "[]", gates);
    try_plan(order, 2, "[[0, 1, 2]]", "[]", heads);
    try_plan(order, 2, "[[0, 1, 2]]", "[[1, 0, 17]]", heads);
    try_plan(order, 1, "[[0, 1, 2]]", "[[1, 0, 16]]", heads);
    try_plan(order, 3, "[[0, 1, 2]]", "[[1, 0, 16]]", gates);
    try_plan(order, 4, "[]", "[]", "used must be");
    try_plan("5", 0, "[]", "[]", "order must be a list");
    try_plan(order, 0, "5", "[]", "must be lists");
    try_plan(order, 0, "[]", "null", "must be lists");
    try_plan(order, 1, "[[0, 9, 2]]", "[]", "the model has");
}

static int setup(void **state)
{
    (void)state;
    int fd = mkstemp(file);
    if (fd < 0) return -1;
    close(fd);
    return zp_model_open(&model, MODEL, NULL, NULL) == ZP_OK ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    zp_model_close(model);
    return remove(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_documents_are_named),
        cmocka_unit_test(other_versions_are_refused),
        cmocka_unit_test(plans_that_contradict_themselves_are_refused),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
