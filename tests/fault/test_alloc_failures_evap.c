/* test_alloc_failures_evap.c: the calls that measure and write files, on a small random model, when
 * an allocation fails: nothing stays in memory or beside the output, and an old output stays. Calls
 * with very many allocations: the first few hundred, and a sample of the rest with a fixed seed. */
#include "alloc_failures.h"

#include <unistd.h>
#include <zerope/evap.h>
#include <zerope/report.h>
#include <zerope/train.h>

/* Read by the leak sanitizer where there is one: fontconfig, under cairo, keeps its caches. */
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libfontconfig";
}

#define MODEL ZP_TEST_DATA "/arch/gguf/gguf-qwen2.gguf"
#define PROSE ZP_TEST_DATA "/prose.txt"

/* PCRE2's allocations for machine code of the tokenizer's expressions: 14 a model that is
 * opened. */
enum { EXPRESSIONS = 200 };
enum { CTX = 32, LONG_CTX = 256, REACH = 8 }; /* retrieval prompts need the long one */

static char folder[] = "/tmp/zerope-fault-XXXXXX";

/* The path of "in/NAME", "out/NAME" or "side/NAME"; valid for good, the same for the same name. */
static const char *at(const char *name)
{
    static char paths[32][128];
    size_t i = 0, begin = strlen(folder) + 1;
    while (paths[i][0] && strcmp(paths[i] + begin, name) != 0) i++;
    assert_true(i + 1 < ZP_COUNT(paths));
    snprintf(paths[i], sizeof paths[i], "%s/%s", folder, name);
    return paths[i];
}

static struct buffer read_whole(const char *path)
{
    struct buffer b = buffer_with_max(MEM_META, 64 << 20);
    GOLDEN_OK(os_read_file(path, &b, err));
    return b;
}

static void write_whole(const char *path, const void *data, size_t size)
{
    GOLDEN_OK(os_write_file(path, data, size, err));
}

static void copy_file(const char *from, const char *to)
{
    struct buffer b = read_whole(from);
    write_whole(to, b.data, b.size);
    buffer_free(&b);
}

/* ---- one case -------------------------------------------------------------------------------- */

typedef zp_status (*evap_call)(zp_err *why);

struct job {
    evap_call call;
    const char *out; /* what the call writes, "out/..." */
    const char *old; /* NULL, or: the file that is there before */
};

/* What documents consist of, numbers aside (some are times): a lost part would show. */
static uint64_t shape;

static void note_shape(const char *json)
{
    for (size_t n; *json; json += n ? n : 1) {
        n = strcspn(json, "0123456789.e+-");
        if (n) shape = hash_bytes(json, n, shape);
    }
}

static uint64_t last_shape(void *arg)
{
    (void)arg;
    return shape;
}

static zp_status run_job(void *arg, zp_err *why)
{
    shape = 0;
    return ((const struct job *)arg)->call(why);
}

static void reset_job(void *arg)
{
    const struct job *j = arg;
    if (j->old) copy_file(at(j->old), at(j->out));
    else if (j->out) write_whole(at(j->out), "old\n", 4);
}

static void check_case(const char *what, evap_call call, const char *out, const char *old,
                       uint64_t all, uint64_t sample)
{
    struct job j = { call, out, old };
    struct fail_call c = { .what = what,
                           .run = run_job,
                           .arg = &j,
                           .reset = reset_job,
                           .folder = at("out"),
                           .result = last_shape,
                           .may_do_without = EXPRESSIONS,
                           .all = all,
                           .sample = ZP_ASAN ? sample / 3 : sample }; /* six times as slow there */
    fail_each(&c, 3);
    if (out) unlink(at(out));
}

static zp_status give_back(zp_status status, char **json)
{
    if (status != ZP_OK) assert_null(*json);
    else note_shape(*json);
    zp_free(*json);
    return status;
}

/* ---- measuring ------------------------------------------------------------------------------- */

static zp_scan_options scan_options(uint32_t n_ctx)
{
    return (zp_scan_options){
        .n_ctx = n_ctx, .n_windows_local = 2, .n_windows_kl = 1, .n_threads = 1
    };
}

static zp_status call_scan(zp_err *why)
{
    zp_scan_options o = scan_options(CTX);
    return zp_scan_run(MODEL, at("in/text.txt"), &o, at("out/scan.json"), why);
}

static zp_status call_scan_local(zp_err *why)
{
    zp_scan_options o = scan_options(LONG_CTX);
    o.local_window = REACH;
    return zp_scan_run(MODEL, PROSE, &o, at("out/scan.json"), why);
}

static zp_status call_scan_fisher(zp_err *why)
{
    zp_scan_options o = scan_options(CTX);
    o.fisher = true;
    return zp_scan_run(MODEL, at("in/text.txt"), &o, at("out/scan.json"), why);
}

static zp_status call_plan_by_sum(zp_err *why)
{
    zp_plan_options o = { .budget_kl = 1e-5, .rank = "sum", .n_threads = 1 };
    return zp_plan_run(at("in/scan.json"), &o, at("out/plan.json"), why);
}

static zp_status call_plan(zp_err *why)
{
    zp_plan_options o = { .budget_kl = 1e-5, .n_threads = 1 };
    return zp_plan_run(at("in/scan.json"), &o, at("out/plan.json"), why);
}

static zp_status call_ppl(zp_err *why)
{
    char *json = NULL;
    zp_model *m = NULL, *base = NULL;
    zp_ppl_options o = { .n_ctx = CTX,
                         .max_windows = 2,
                         .engine = { .n_threads = 1 },
                         .base_engine = { .n_threads = 1, .exact = true } };
    zp_status status = zp_model_open(&m, at("in/file.gguf"), NULL, why);
    if (status == ZP_OK) status = zp_model_open(&base, MODEL, NULL, why);
    if (status == ZP_OK) status = zp_ppl_json(m, base, at("in/text.txt"), &o, &json, why);
    zp_model_close(base);
    zp_model_close(m);
    return give_back(status, &json);
}

static zp_status call_probe(zp_err *why)
{
    static const uint32_t lengths[] = { 64, 128 };
    static const char *const kinds[] = { "copy", "order" };
    char *json = NULL;
    zp_model *m = NULL, *base = NULL;
    zp_model_options stretched = { .rope_scaling = "ntk:4" };
    zp_probe_options o = { .lengths = lengths,
                           .n_lengths = 2,
                           .n_windows = 2,
                           .kinds = kinds,
                           .n_kinds = 2,
                           .n_cases = 2,
                           .structure = true,
                           .engine = { .n_threads = 1, .n_seq = 1 } };
    zp_status status = zp_model_open(&m, MODEL, &stretched, why);
    if (status == ZP_OK) status = zp_model_open(&base, MODEL, NULL, why);
    if (status == ZP_OK) status = zp_probe_json(m, base, at("in/held.tokens"), &o, &json, why);
    zp_model_close(base);
    zp_model_close(m);
    return give_back(status, &json);
}

static zp_status call_verify(zp_err *why)
{
    char *json = NULL;
    zp_verify_options o = { .n_ctx = CTX, .n_threads = 1, .write_evidence = true };
    zp_status status =
        zp_verify_run(at("out/file.gguf"), MODEL, at("in/text.txt"), &o, &json, why);
    if (status == ZP_OK) {
        assert_non_null(strstr(json, "\"status\": \"pass\""));
        return give_back(status, &json);
    }
    if (json) assert_non_null(strstr(json, "\"evidence_written\": false")); /* only that failed */
    zp_free(json);
    return status;
}

static zp_status call_verify_long(zp_err *why)
{
    char *json = NULL;
    zp_verify_options o = { .n_threads = 1, .quick = true }; /* as long as the recipe */
    return give_back(zp_verify_run(at("in/long.gguf"), MODEL, PROSE, &o, &json, why), &json);
}

/* ---- writing models -------------------------------------------------------------------------- */

static zp_evaporate_options evaporate_options(uint32_t n_ctx)
{
    return (zp_evaporate_options){ .scan = scan_options(n_ctx),
                                   .plan = { .budget_kl = 3e-6, .n_threads = 1 },
                                   .n_windows_check = 2 };
}

static zp_status evaporate(const zp_evaporate_options *o, const char *text, const char *out,
                           zp_err *why)
{
    char *json = NULL;
    return give_back(zp_evaporate_run(MODEL, text, o, out, &json, why), &json);
}

static zp_status call_evaporate(zp_err *why)
{
    zp_evaporate_options o = evaporate_options(CTX);
    o.scan_out = at("side/scan.json"); /* results of their own, written as soon as they are there */
    o.plan_out = at("side/plan.json");
    return evaporate(&o, at("in/text.txt"), at("out/file.gguf"), why);
}

static zp_status call_evaporate_from_scan(zp_err *why)
{
    zp_evaporate_options o = evaporate_options(CTX);
    o.scan_in = at("in/scan.json");
    o.plan.layers = true;
    return evaporate(&o, at("in/text.txt"), at("out/file.gguf"), why);
}

static zp_status call_evaporate_from_plan(zp_err *why)
{
    zp_evaporate_options o = evaporate_options(CTX);
    o.plan_in = at("in/plan.json");
    return evaporate(&o, at("in/text.txt"), at("out/file.gguf"), why);
}

static zp_status call_evaporate_local(zp_err *why)
{
    zp_evaporate_options o = evaporate_options(LONG_CTX);
    o.plan.local_window = REACH;
    return evaporate(&o, PROSE, at("out/file.gguf"), why);
}

static zp_status call_quantize(zp_err *why)
{
    char *json = NULL;
    return give_back(zp_quantize(MODEL, at("out/q8.gguf"), "Q8_0", NULL, &json, why), &json);
}

static zp_status call_extend(zp_err *why)
{
    const zp_extend_options o = { .position_gate = true, .structure_head = true };
    return zp_model_extend(MODEL, at("out/more.gguf"), &o, why);
}

static zp_status call_export_own(zp_err *why)
{
    char *json = NULL;
    return give_back(
        zp_export_run(at("in/file.gguf"), "gguf", at("out/own.gguf"), NULL, &json, why), &json);
}

static zp_status call_export_stock(zp_err *why)
{
    char *json = NULL;
    return give_back(
        zp_export_run(at("in/file.gguf"), "stock-gguf", at("out/stock.gguf"), NULL, &json, why),
        &json);
}

static zp_status call_export_hf(zp_err *why)
{
    char *json = NULL;
    return give_back(zp_export_run(at("in/file.gguf"), "hf", at("hf"), NULL, &json, why), &json);
}

/* ---- pictures and pages ---------------------------------------------------------------------- */

static struct buffer scan_text, verify_text;

static zp_status call_svg(zp_err *why)
{
    return zp_report_heatmap((const char *)scan_text.data, at("out/map.svg"), why);
}

static zp_status call_png(zp_err *why)
{
    return zp_report_heatmap((const char *)scan_text.data, at("out/map.png"), why);
}

static zp_status call_speed(zp_err *why)
{
    static const char doc[] =
        "{\"model\": \"m\", \"rows\": [{\"test\": \"decode\", \"depth\": 0, \"batch\": 1, "
        "\"tps_median\": 3, \"tps_min\": 2, \"tps_max\": 4}]}";
    return zp_report_speed(doc, at("out/speed.svg"), why);
}

static zp_status call_html(zp_err *why)
{
    return zp_report_verify_html((const char *)verify_text.data, at("out/page.html"), why);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void test_scan_and_plan(void **state)
{
    (void)state;
    check_case("zp_scan_run", call_scan, "out/scan.json", NULL, 300, 100);
    check_case("zp_scan_run, local heads", call_scan_local, "out/scan.json", NULL, 10, 50);
    check_case("zp_scan_run, fisher", call_scan_fisher, "out/scan.json", NULL, 300, 100);
    check_case("zp_plan_run", call_plan, "out/plan.json", NULL, 300, 100);
    check_case("zp_plan_run, sum of ranks", call_plan_by_sum, "out/plan.json", NULL, 10, 50);
}

static void test_evaporate(void **state)
{
    (void)state;
    check_case("zp_evaporate_run", call_evaporate, "out/file.gguf", NULL, 200, 200);
    check_case("zp_evaporate_run, scan_in", call_evaporate_from_scan, "out/file.gguf", NULL, 10,
               100);
    check_case("zp_evaporate_run, plan_in", call_evaporate_from_plan, "out/file.gguf", NULL, 10,
               100);
    check_case("zp_evaporate_run, local heads", call_evaporate_local, "out/file.gguf", NULL, 1, 30);
}

static void test_verify(void **state)
{
    (void)state;
    check_case("zp_verify_run", call_verify, "out/file.gguf", "in/file.gguf", 200, 200);
    check_case("zp_verify_run, retrieval", call_verify_long, NULL, NULL, 1, 20);
    check_case("zp_ppl_json", call_ppl, NULL, NULL, 0, 0);
    check_case("zp_probe_json", call_probe, NULL, NULL, 200, 150);
}

static void test_other_types_and_engines(void **state)
{
    (void)state;
    check_case("zp_quantize", call_quantize, "out/q8.gguf", NULL, 0, 0);
    check_case("zp_model_extend", call_extend, "out/more.gguf", NULL, 0, 0);
    check_case("zp_export_run gguf", call_export_own, "out/own.gguf", NULL, 0, 0);
    check_case("zp_export_run stock-gguf", call_export_stock, "out/stock.gguf", NULL, 0, 0);
}

static void check_no_folder(void *arg)
{
    (void)arg;
    if (os_exists(at("hf"))) fail_msg("%s was left", at("hf"));
}

static void remove_hf(void *arg)
{
    char **names;
    size_t n;
    (void)arg;
    if (!os_exists(at("hf"))) return;
    GOLDEN_OK(os_list_files(at("hf"), &names, &n, err));
    for (size_t i = 0; i < n; i++) unlink(names[i]);
    os_list_free(names, n);
    rmdir(at("hf"));
}

/* A failed export takes away what it made. */
static void test_folder(void **state)
{
    struct job j = { .call = call_export_hf };
    struct fail_call c = {
        .what = "zp_export_run hf", .run = run_job, .arg = &j, .undo = check_no_folder,
        .reset = remove_hf,
        .result = last_shape, .may_do_without = EXPRESSIONS, .all = 100, .sample = 200
    };
    (void)state;
    fail_each(&c, 10);
}

static void test_reports(void **state)
{
    (void)state;
    check_case("zp_report_heatmap svg", call_svg, "out/map.svg", NULL, 0, 0);
    check_case("zp_report_heatmap png", call_png, "out/map.png", NULL, 0, 0);
    check_case("zp_report_speed", call_speed, "out/speed.svg", NULL, 0, 0);
    check_case("zp_report_verify_html", call_html, "out/page.html", NULL, 0, 0);
}

static int make_inputs(void **state)
{
    char *json = NULL;
    zp_evaporate_options o = evaporate_options(CTX);
    zp_verify_options v = { .n_ctx = CTX, .n_threads = 1 };
    (void)state;
    static const char *const folders[] = { "in", "out", "side" };
    for (size_t i = 0; i < ZP_COUNT(folders); i++) GOLDEN_OK(os_make_folders(at(folders[i]), err));
    struct buffer prose = read_whole(PROSE);
    write_whole(at("in/text.txt"), prose.data, 12000);
    buffer_free(&prose);
    const char *const texts[] = { at("in/text.txt"), PROSE };
    zp_corpus_options tokens = { .tokenizer = MODEL };
    GOLDEN_OK(zp_corpus_make(texts, 2, at("in/held.tokens"), &tokens, NULL, err));
    o.scan.fisher = true;
    o.scan_out = at("in/scan.json");
    o.plan_out = at("in/plan.json");
    o.plan.uniform_slow = true; /* so that other engines can run it */
    GOLDEN_OK(evaporate(&o, at("in/text.txt"), at("in/file.gguf"), err));
    zp_evaporate_options long_one = evaporate_options(LONG_CTX);
    GOLDEN_OK(evaporate(&long_one, PROSE, at("in/long.gguf"), err));
    GOLDEN_OK(zp_verify_run(at("in/file.gguf"), MODEL, at("in/text.txt"), &v, &json, err));
    buffer_append_text(&verify_text, json, NULL);
    zp_free(json);
    scan_text = read_whole(at("in/scan.json"));
    printf("seed %d\n", FAIL_SEED);
    return 0;
}

static int free_inputs(void **state)
{
    (void)state;
    buffer_free(&scan_text);
    buffer_free(&verify_text);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reports),
        cmocka_unit_test(test_other_types_and_engines),
        cmocka_unit_test(test_folder),
        cmocka_unit_test(test_verify),
        cmocka_unit_test(test_scan_and_plan),
        cmocka_unit_test(test_evaporate),
    };
    fail_watch_jansson();
    verify_text = buffer_with_max(MEM_META, 64 << 20);
    if (!mkdtemp(folder)) return 1;
    return cmocka_run_group_tests(tests, make_inputs, free_inputs);
}
