/* test_outputs.c: no call writes over what it reads, whatever the paths look like; an export goes
 * into a folder without a model only and leaves nothing behind when it fails. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include <zerope/evap.h>

#include "base/os.h"

#define MODEL ZP_TEST_DATA "/arch/gguf/gguf-llama-linear.gguf"
#define TEXT ZP_TEST_DATA "/prose.txt"

static char folder[64];

static void put(const char *path, const char *text)
{
    assert_int_equal(os_write_file(path, text, strlen(text), NULL), ZP_OK);
}

static void copy(const char *from, const char *to)
{
    struct buffer b = buffer_with_max(MEM_SCRATCH, (size_t)1 << 24);
    assert_int_equal(os_read_file(from, &b, NULL), ZP_OK);
    assert_int_equal(os_write_file(to, b.data, b.size, NULL), ZP_OK);
    buffer_free(&b);
}

/* A copy of model and text in a fresh working folder. */
static int enter_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/zerope-outputs-XXXXXX");
    if (mkdtemp(folder) == NULL || chdir(folder) != 0) return 1;
    copy(MODEL, "m.gguf");
    copy(TEXT, "t.txt");
    return symlink("m.gguf", "link.gguf");
}

static int leave_folder(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return chdir("/") != 0 || system(command) != 0;
}

static void parts_and_folders_are_inputs(void **state)
{
    (void)state;
    static const char *const folders[] = { "docs", "docs/deep", "hf", "split" };
    static const char *const files[] = { "docs/a.txt",     "docs/deep/b.txt",
                                         "hf/config.json", "hf/model-00002-of-00002.safetensors",
                                         "hf/notes.txt",   "split/m-00001-of-00003.gguf",
                                         "split/m-00002-of-00003.gguf" };
    static const struct {
        const char *output, *input;
        bool over;
    } cases[] = {
        { "docs/a.txt", "docs", true },
        { "./docs/deep/b.txt", "docs/", true },
        { "docs/new.txt", "docs", true }, /* a document of the next call */
        { "docs/deep/new.txt", "docs/", true },
        { "docs/new.txt/", "docs", true },
        { "./docs//new.txt", "docs", true },
        { "split/../docs/new.txt", "docs", true },
        { "docs/../new.txt", "docs", false },
        { "docs/../new.txt", ".", true },
        { "new.txt", ".", true },
        { "new.txt", "./docs/..", true },
        { "new.txt", "docs", false },
        { "docs2", "docs", false },
        { "linked/new.txt", "docs", true },
        { "docs/deep/new.txt", "linked", true },
        { "docs/out/new.txt", "docs", false }, /* a link that leads out of it */
        { "docs/dangling", "docs", true }, /* a file takes the link's place */
        { "docs/none/new", "docs", true },
        { "docs", "docs", true },
        { "docs", "docs/a.txt", false },
        { "hf/model-00002-of-00002.safetensors", "hf", true },
        { "hf/notes.txt", "hf", false },
        { "hf/new.txt", "hf", false },
        { "hf/new.json", "hf", true },
        { "split/../hf/model-00003-of-00003.safetensors", "hf/", true },
        { "split/m-00002-of-00003.gguf", "split/m-00001-of-00003.gguf", true },
        { "split/../split/m-00003-of-00003.gguf", "split/m-00001-of-00003.gguf", true },
        { "part", "split/m-00001-of-00003.gguf", true },
        { "split/m-00002-of-00004.gguf", "split/m-00001-of-00003.gguf", false },
        { "m-00002-of-00003.gguf", "split/m-00001-of-00003.gguf", false },
    };
    for (size_t i = 0; i < ZP_COUNT(folders); i++) assert_int_equal(mkdir(folders[i], 0777), 0);
    for (size_t i = 0; i < ZP_COUNT(files); i++) put(files[i], "x");
    assert_int_equal(symlink("split/m-00002-of-00003.gguf", "part"), 0);
    assert_int_equal(symlink("docs", "linked"), 0);
    assert_int_equal(symlink("../split", "docs/out"), 0);
    assert_int_equal(symlink("nowhere", "docs/dangling"), 0);
    for (size_t i = 0; i < ZP_COUNT(cases); i++)
        if (zp_writes_over(cases[i].output, cases[i].input) != cases[i].over)
            fail_msg("%s over %s", cases[i].output, cases[i].input);
    char absolute[96];
    snprintf(absolute, sizeof absolute, "%s/docs/new.txt", folder);
    assert_true(zp_writes_over(absolute, "docs") && zp_writes_over("/docs/new.txt", "/"));
    assert_false(zp_writes_over("/new.txt", "docs"));
}

static void refuse(zp_status status, const zp_err *err)
{
    if (status != ZP_USAGE) fail_msg("%s: %s", zp_status_name(status), err->message);
}

static void calls_refuse_their_inputs_as_outputs(void **state)
{
    (void)state;
    static const char *const models[] = { "m.gguf", "./m.gguf", "link.gguf" };
    zp_plan_options plan = { .budget_kl = 1.0, .model = "m.gguf", .text = "t.txt" };
    zp_scan_options scan = { .n_ctx = 64, .n_windows_local = 2, .n_windows_kl = 1 };
    zp_err ok = { 0 };
    assert_int_equal(zp_scan_run("m.gguf", "t.txt", &scan, "s.json", &ok), ZP_OK);
    for (size_t i = 0; i < ZP_COUNT(models); i++) {
        zp_evaporate_options e = { .scan = scan, .plan = plan };
        zp_err err[8] = { 0 };
        char *json = NULL;
        refuse(zp_scan_run("m.gguf", "t.txt", &scan, models[i], &err[0]), &err[0]);
        refuse(zp_plan_run("s.json", &plan, models[i], &err[1]), &err[1]);
        refuse(zp_evaporate_run("m.gguf", "t.txt", &e, models[i], &json, &err[2]), &err[2]);
        refuse(zp_quantize("m.gguf", models[i], "Q8_0", NULL, &json, &err[3]), &err[3]);
        refuse(zp_export_run("m.gguf", "stock-gguf", models[i], NULL, &json, &err[4]), &err[4]);
        e.scan_out = models[i];
        refuse(zp_evaporate_run("m.gguf", "t.txt", &e, "o.gguf", &json, &err[5]), &err[5]);
        e.scan_out = NULL, e.plan_out = "././o.gguf";
        refuse(zp_evaporate_run("m.gguf", "t.txt", &e, "o.gguf", &json, &err[6]), &err[6]);
        e.plan_out = "./t.txt";
        refuse(zp_evaporate_run("m.gguf", "t.txt", &e, "o.gguf", &json, &err[7]), &err[7]);
        assert_null(json);
    }
    zp_err err[4] = { 0 };
    refuse(zp_scan_run("m.gguf", "t.txt", &scan, "./t.txt", &err[0]), &err[0]);
    refuse(zp_plan_run("s.json", &plan, "./s.json", &err[1]), &err[1]);
    plan.model = plan.text = NULL; /* the paths in the scan count as well */
    refuse(zp_plan_run("s.json", &plan, "./t.txt", &err[2]), &err[2]);
    refuse(zp_scan_run("m.gguf", ".", &scan, "new.json", &err[3]), &err[3]);
    assert_false(os_exists("new.json"));
    assert_false(os_exists("o.gguf"));
}

/* Such a file would be read together with others that are not there. */
static void names_of_parts_are_refused(void **state)
{
    (void)state;
    static const char *const names[] = { "o-00001-of-00002.gguf", "o-00002-of-00002.gguf",
                                         "./o-00003-of-00002.gguf", "o-00000-of-00000.gguf" };
    zp_evaporate_options o = { .scan = { .n_ctx = 64, .n_windows_local = 2, .n_windows_kl = 1 },
                               .plan = { .budget_kl = 1.0 },
                               .n_windows_check = 2 };
    for (size_t i = 0; i < ZP_COUNT(names); i++) {
        zp_err err[3] = { 0 };
        char *json = NULL;
        /* before any work: neither these inputs nor these documents exist */
        refuse(zp_quantize("none.gguf", names[i], "Q8_0", NULL, &json, &err[0]), &err[0]);
        refuse(zp_export_run("none.gguf", "stock-gguf", names[i], NULL, &json, &err[1]), &err[1]);
        refuse(zp_evaporate_run("none.gguf", "no.txt", &o, names[i], &json, &err[2]), &err[2]);
        for (int k = 0; k < 3; k++)
            if (!strstr(err[k].message, names[i])) fail_msg("%s", err[k].message);
        assert_null(json);
        assert_false(os_exists(names[i]));
    }
    static const char *const usual[] = { "o-00001-of-00001.gguf", "o-1-of-2.gguf",
                                         "o-00001-of-00002.gguf.bak" };
    for (size_t i = 0; i < ZP_COUNT(usual); i++) {
        zp_err err = { 0 };
        zp_model *m = NULL;
        if (zp_quantize("m.gguf", usual[i], "Q8_0", NULL, NULL, &err) != ZP_OK ||
            zp_model_open(&m, usual[i], NULL, &err) != ZP_OK)
            fail_msg("%s: %s", usual[i], err.message);
        zp_model_close(m);
    }
}

static size_t count_files(void)
{
    char **names;
    size_t count;
    assert_int_equal(os_list_files(".", &names, &count, NULL), ZP_OK);
    os_list_free(names, count);
    return count;
}

static zp_status export_hf(const char *out, zp_err *err)
{
    char *json = NULL;
    zp_status status = zp_export_run(ZP_TEST_DATA "/arch/qwen2", "hf", out, NULL, &json, err);
    zp_free(json);
    return status;
}

static void folders_with_a_model_are_refused(void **state)
{
    (void)state;
    static const char *const files[] = {
        "config.json", "chat_template.jinja", "generation_config.json", "tokenizer.model",
        "model.safetensors.index.json", "model-00001-of-00002.safetensors", "pytorch_model.bin",
        "merges.txt",
    };
    assert_int_equal(mkdir("out", 0777), 0);
    put("out/README.md", "mine");
    for (size_t i = 0; i < ZP_COUNT(files); i++) {
        char path[96];
        zp_err err = { 0 };
        snprintf(path, sizeof path, "out/%s", files[i]);
        put(path, "old");
        size_t before = count_files();
        refuse(export_hf("out", &err), &err);
        if (!strstr(err.message, files[i])) fail_msg("'%s' lacks %s", err.message, files[i]);
        assert_int_equal(count_files(), before);
        assert_int_equal(remove(path), 0);
    }
    zp_err err = { 0 };
    if (export_hf("out", &err) != ZP_OK) fail_msg("%s", err.message);
    assert_true(os_exists("out/README.md") && os_exists("out/config.json"));
    refuse(export_hf("out/", &(zp_err){ 0 }), &err);
}

static void failed_exports_leave_no_folder(void **state)
{
    (void)state;
    static const char *const outs[] = { "new", "a/b/c", "a//b/c/", "old", "old/new" };
    assert_int_equal(mkdir("old", 0777), 0);
    put("old/notes.txt", "mine");
    size_t before = count_files();
    for (size_t i = 0; i < ZP_COUNT(outs); i++)
        for (uint64_t bytes = 0; bytes < 200000; bytes = bytes * 3 + 100) {
            zp_err err = { 0 };
            os_fail_writes_after(bytes);
            zp_status status = export_hf(outs[i], &err);
            os_fail_writes_after(UINT64_MAX);
            if (status == ZP_OK) fail_msg("%s: %llu bytes", outs[i], (unsigned long long)bytes);
            assert_int_equal(status, ZP_NO_SPACE);
            assert_int_equal(count_files(), before);
            assert_false(os_exists("new") || os_exists("a") || os_exists("old/new"));
            assert_true(os_is_folder("old"));
        }
    char *json;
    zp_err err = { 0 };
    assert_int_equal(zp_export_run("none.gguf", "hf", "new", NULL, &json, &err), ZP_BAD_INPUT);
    assert_false(os_exists("new"));
}

static void other_files_beside_the_output_stay(void **state)
{
    (void)state;
    char name[256] = "", *json = NULL;
    zp_err err = { 0 };
    zp_evaporate_options o = { .scan = { .n_ctx = 64, .n_windows_local = 2, .n_windows_kl = 1 },
                               .plan = { .budget_kl = 1.0 },
                               .n_windows_check = 2 };
    memset(name, 'n', 250); /* no room for a suffix */
    strcpy(name + 250, ".gguf");
    put("o.gguf.trial", "mine");
    size_t before = count_files();
    if (zp_evaporate_run("m.gguf", "t.txt", &o, "o.gguf", &json, &err) != ZP_OK)
        fail_msg("%s", err.message);
    zp_free(json);
    if (zp_evaporate_run("m.gguf", "t.txt", &o, name, &json, &err) != ZP_OK)
        fail_msg("%s", err.message);
    zp_free(json);
    assert_int_equal(count_files(), before + 2);
    struct buffer b = buffer_with_max(MEM_SCRATCH, 64);
    assert_int_equal(os_read_file("o.gguf.trial", &b, NULL), ZP_OK);
    assert_string_equal((const char *)b.data, "mine");
    buffer_free(&b);
}

#define FS_TEST(f) cmocka_unit_test_setup_teardown(f, enter_folder, leave_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FS_TEST(parts_and_folders_are_inputs),
        FS_TEST(calls_refuse_their_inputs_as_outputs),
        FS_TEST(names_of_parts_are_refused),
        FS_TEST(folders_with_a_model_are_refused),
        FS_TEST(failed_exports_leave_no_folder),
        FS_TEST(other_files_beside_the_output_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
