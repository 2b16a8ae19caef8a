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
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
