/* test_metrics_text.c: expositions to the last byte, and what they are whatever the labels hold. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/mem.h"
#include "live_bytes.h"
#include "obs/metrics.h"

static const struct metrics_texts texts = {
    .version = "0.1.0", .compiler = "gcc", .kernels = "avx2", .variants = { { .model = "m" } }
};

static struct metrics *open_metrics(void)
{
    struct metrics *m;
    assert_int_equal(metrics_open(&m, NULL), ZP_OK);
    return m;
}

/* ---- families out of a text ------------------------------------------------------------------ */

/* Whether the line is one of the family's: its head, or a sample of it. */
static bool is_of(const char *line, const char *family)
{
    size_t size = strlen(family);
    if (strncmp(line, "# ", 2) == 0 && strchr(line + 2, ' ') != NULL)
        line = strchr(line + 2, ' ') + 1;
    static const char *const ends[] = { "", "_total", "_bucket", "_sum", "_count" };
    if (strncmp(line, family, size) != 0) return false;
    for (size_t i = 0; i < 5; i++) {
        size_t tail = strlen(ends[i]);
        if (strncmp(line + size, ends[i], tail) == 0 && strchr(" {", line[size + tail]) != NULL)
            return true;
    }
    return false;
}

static void expect_family(const struct metrics *m, const struct metrics_texts *t,
                          enum metrics_format format, unsigned compat, const char *family,
                          const char *wanted)
{
    zp_err err = { 0 };
    struct buffer all = buffer_with_max(MEM_SERVE, 1 << 24), own = all;
    if (metrics_write(m, t, format, compat, &all, &err) != ZP_OK) fail_msg("%s", err.message);
    for (char *line = (char *)all.data; *line != '\0';) {
        size_t size = strcspn(line, "\n") + 1;
        if (is_of(line, family)) assert_int_equal(buffer_append(&own, line, size, NULL), ZP_OK);
        line += size;
    }
    assert_string_equal(own.data == NULL ? "" : (char *)own.data, wanted);
    buffer_free(&all);
    buffer_free(&own);
}
#define EXPECT(m, family, wanted) expect_family(m, &texts, METRICS_PROMETHEUS, 0, family, wanted)
#define EXPECT_OPEN(m, family, wanted)                                                             \
    expect_family(m, &texts, METRICS_OPENMETRICS, 0, family, wanted)

/* ---- kinds ----------------------------------------------------------------------------------- */

static void test_counters(void **state)
{
    (void)state;
    struct metrics *m = open_metrics();
    metrics_set_count(m, METRIC_PROMOTIONS, METRIC_AT(0), UINT64_MAX);
    metrics_set_count(m, METRIC_PROCESS_CPU, METRIC_AT(0), 12340000001);
    metrics_add(m, METRIC_SLA_BREACHES, METRIC_AT(LABEL_LENGTH_LONG), 3);
    EXPECT(m, "zerope_canary_promotions",
           "# HELP zerope_canary_promotions_total Times the share grew by rule.\n"
           "# TYPE zerope_canary_promotions_total counter\n"
           "zerope_canary_promotions_total 18446744073709551615\n");
    EXPECT(m, "zerope_sla_breaches",
           "# HELP zerope_sla_breaches_total Times a limit of the SLA was found exceeded.\n"
           "# TYPE zerope_sla_breaches_total counter\n"
           "zerope_sla_breaches_total{length=\"short\"} 0\n"
           "zerope_sla_breaches_total{length=\"medium\"} 0\n"
           "zerope_sla_breaches_total{length=\"long\"} 3\n");
    EXPECT_OPEN(m, "process_cpu_seconds",
                "# HELP process_cpu_seconds User and system time of the process.\n"
                "# TYPE process_cpu_seconds counter\n"
                "# UNIT process_cpu_seconds seconds\n"
                "process_cpu_seconds_total 12.340000001\n");
    metrics_close(m);
}

/* Times that a double cannot hold beside their fractions are exact. */
static void test_times_are_exact(void **state)
{
    (void)state;
    static const struct {
        uint64_t ns;
        const char *text;
    } cases[] = { { 0, "0" },
                  { 1, "0.000000001" },
                  { 1000000000, "1" },
                  { 1500000000, "1.5" },
                  { 123456789012345678, "123456789.012345678" },
                  { UINT64_MAX, "18446744073.709551615" } };
    struct metrics *m = open_metrics();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char wanted[256];
        metrics_set_count(m, METRIC_PROCESS_CPU, METRIC_AT(0), cases[i].ns);
        snprintf(wanted, sizeof wanted,
                 "# HELP process_cpu_seconds_total User and system time of the process.\n"
                 "# TYPE process_cpu_seconds_total counter\nprocess_cpu_seconds_total %s\n",
                 cases[i].text);
        EXPECT(m, "process_cpu_seconds", wanted);
    }
    metrics_close(m);
}

static void test_gauges_that_nobody_set_are_absent(void **state)
{
    (void)state;
    static const char head[] = "# HELP zerope_sequences Sequences that are open.\n"
                               "# TYPE zerope_sequences gauge\n";
    char wanted[512];
    struct metrics *m = open_metrics();
    EXPECT(m, "zerope_sequences", "");
    const struct {
        double x;
        const char *text;
    } cases[] = { { 0, "0" }, { -0.1, "-0.1" }, { 1e300, "1e+300" }, { INFINITY, "+Inf" },
                  { -INFINITY, "-Inf" } };
    for (size_t i = 0; i < 5; i++) {
        metrics_set(m, METRIC_SEQUENCES, METRIC_AT(LABEL_VARIANT_CANDIDATE), cases[i].x);
        snprintf(wanted, sizeof wanted, "%szerope_sequences{variant=\"candidate\"} %s\n", head,
                 cases[i].text);
        EXPECT(m, "zerope_sequences", wanted);
    }
    metrics_set(m, METRIC_SEQUENCES, METRIC_AT(LABEL_VARIANT_CANDIDATE), NAN);
    EXPECT(m, "zerope_sequences", "");
    metrics_close(m);
}

static void test_one_value_of_a_state_is_1(void **state)
{
    (void)state;
    struct metrics *m = open_metrics();
    metrics_set_state(m, METRIC_BREAKER_STATE, LABEL_BREAKER_HALF_OPEN);
    EXPECT(m, "zerope_breaker_state",
           "# HELP zerope_breaker_state 1 for the state of the breaker, 0 for the others.\n"
           "# TYPE zerope_breaker_state gauge\n"
           "zerope_breaker_state{state=\"closed\"} 0\n"
           "zerope_breaker_state{state=\"open\"} 0\n"
           "zerope_breaker_state{state=\"half_open\"} 1\n");
    metrics_close(m);
}

#define BUCKET(variant, le, n)                                                                     \
    "zerope_request_top1_std_ratio_bucket{variant=\"" variant "\",le=\"" le "\"} " n "\n"
#define BUCKETS(v, a, b, c, d, e)                                                                  \
    BUCKET(v, "0.01", a) BUCKET(v, "0.02", b) BUCKET(v, "0.05", b) BUCKET(v, "0.1", b)             \
    BUCKET(v, "0.2", b) BUCKET(v, "0.3", b) BUCKET(v, "0.4", b) BUCKET(v, "0.5", b)                \
    BUCKET(v, "0.6", b) BUCKET(v, "0.7", b) BUCKET(v, "0.8", b) BUCKET(v, "0.9", b)                \
    BUCKET(v, "0.95", c) BUCKET(v, "1.0", d) BUCKET(v, "+Inf", e)
static void test_histograms(void **state)
{
    (void)state;
    struct metrics *m = open_metrics();
    const double values[] = { 0.01, 0.0100001, 0.95, 1, 7 };
    for (size_t i = 0; i < 5; i++)
        metrics_observe(m, METRIC_TOP1_STD, METRIC_AT(LABEL_VARIANT_BASELINE), values[i]);
    EXPECT_OPEN(
        m, "zerope_request_top1_std_ratio",
        "# HELP zerope_request_top1_std_ratio Standard deviation of the largest probability over "
        "an answer's tokens, of the same requests.\n"
        "# TYPE zerope_request_top1_std_ratio histogram\n"
        "# UNIT zerope_request_top1_std_ratio ratio\n"
        BUCKETS("baseline", "1", "2", "3", "4", "5")
        "zerope_request_top1_std_ratio_sum{variant=\"baseline\"} 8.9700001\n"
        "zerope_request_top1_std_ratio_count{variant=\"baseline\"} 5\n"
        BUCKETS("candidate", "0", "0", "0", "0", "0")
        "zerope_request_top1_std_ratio_sum{variant=\"candidate\"} 0\n"
        "zerope_request_top1_std_ratio_count{variant=\"candidate\"} 0\n");
    metrics_close(m);
}

/* Without labels, whole numbers: braces hold le alone, and the format of 0.0.4 writes "1". */
static void test_histogram_without_labels(void **state)
{
    (void)state;
    struct metrics *m = open_metrics();
    char *wanted = calloc(1, 8192);
    static const char *const bounds[] = { "1",      "2",      "5",      "10",      "20",
                                          "50",     "100",    "200",    "500",     "1000",
                                          "2000",   "5000",   "10000",  "20000",   "50000",
                                          "100000", "200000", "500000", "1000000", "+Inf" };
    strcpy(wanted, "# HELP zerope_step_tokens Tokens computed in a step, of prompts and answers.\n"
                   "# TYPE zerope_step_tokens histogram\n");
    for (size_t i = 0; i < 20; i++)
        sprintf(wanted + strlen(wanted), "zerope_step_tokens_bucket{le=\"%s\"} %d\n", bounds[i],
                i < 1 ? 0 : i < 6 ? 1 : 2);
    strcat(wanted, "zerope_step_tokens_sum 102\nzerope_step_tokens_count 2\n");
    metrics_step(m, 0.5, 2, 1);
    metrics_step(m, 0.5, 100, 1);
    EXPECT(m, "zerope_step_tokens", wanted);
    free(wanted);
    metrics_close(m);
}

/* ---- labels that come from elsewhere --------------------------------------------------------- */

static void test_open_labels_are_escaped(void **state)
{
    (void)state;
    char longer[400], wanted[1024];
    struct metrics *m = open_metrics();
    memset(longer, 'x', sizeof longer);
    memcpy(longer + 255, "\xc3\xa9", 2); /* the cut does not split it */
    longer[399] = '\0';
    const struct metrics_texts hostile = {
        .variants = { { "a\"b\\c\nd\re\x7f\xc3\xa9\xff", NULL, longer }, { .model = NULL } }
    };
    snprintf(wanted, sizeof wanted,
             "# HELP zerope_model_info A model that is served: 1, with its name, architecture and "
             "the hash of its header.\n# TYPE zerope_model_info gauge\n"
             "zerope_model_info{variant=\"baseline\",model=\"a\\\"b\\\\c\\nd\xef\xbf\xbd"
             "e\xef\xbf\xbd\xc3\xa9\xef\xbf\xbd\",arch=\"\",sha256=\"%.255s\"} 1\n",
             longer);
    expect_family(m, &hostile, METRICS_PROMETHEUS, 0, "zerope_model_info", wanted);
    const struct metrics_texts nothing = { 0 };
    expect_family(m, &nothing, METRICS_PROMETHEUS, 0, "zerope_model_info", "");
    metrics_close(m);
}

/* ---- names of others ------------------------------------------------------------------------- */

static struct metrics *open_with_two_models(void)
{
    struct metrics *m = open_metrics();
    for (unsigned v = 0; v < LABEL_VARIANT_COUNT; v++) {
        for (uint64_t i = 0; i <= v; i++)
            metrics_ended(m, &(struct metrics_request){ .variant = v, .phase = LABEL_PHASE_DECODE,
                                                        .finish = LABEL_FINISH_LENGTH,
                                                        .n_computed = 10, .n_reused = 64,
                                                        .prefill_seconds = 0.5, .top1_mean = NAN });
        metrics_set(m, METRIC_KV_PAGES, METRIC_AT(v, LABEL_PAGE_USED), 3);
        metrics_set(m, METRIC_KV_PAGES, METRIC_AT(v, LABEL_PAGE_KEPT), 1);
        metrics_set(m, METRIC_KV_PAGES, METRIC_AT(v, LABEL_PAGE_FREE), v == 0 ? 4 : 8);
        metrics_add(m, METRIC_REQUESTS, METRIC_AT(2, v, LABEL_OUTCOME_CANCELLED), 5 + v);
    }
    metrics_set(m, METRIC_RUNNING, METRIC_AT(0), 2);
    metrics_step(m, 0.1, 30, 4);
    metrics_step(m, 0.1, 10, 1);
    return m;
}

static void test_names_of_vllm(void **state)
{
    (void)state;
    static const struct metrics_texts two = { .variants = { { .model = "a" }, { .model = "b" } } };
    struct metrics *m = open_with_two_models();
#define VLLM(family, wanted)                                                                       \
    expect_family(m, &two, METRICS_PROMETHEUS, METRICS_VLLM, family, wanted)
    VLLM("vllm:num_requests_running",
         "# HELP vllm:num_requests_running Requests being computed.\n"
         "# TYPE vllm:num_requests_running gauge\n"
         "vllm:num_requests_running{model_name=\"a\",engine=\"0\"} 2\n");
    VLLM("vllm:kv_cache_usage_perc",
         "# HELP vllm:kv_cache_usage_perc Share of the KV pages in use: 0 to 1.\n"
         "# TYPE vllm:kv_cache_usage_perc gauge\n"
         "vllm:kv_cache_usage_perc{model_name=\"a\",engine=\"0\"} 0.375\n"
         "vllm:kv_cache_usage_perc{model_name=\"b\",engine=\"1\"} 0.25\n");
    VLLM("vllm:prompt_tokens",
         "# HELP vllm:prompt_tokens_total Prompt tokens, those reused among them.\n"
         "# TYPE vllm:prompt_tokens_total counter\n"
         "vllm:prompt_tokens_total{model_name=\"a\",engine=\"0\"} 74\n"
         "vllm:prompt_tokens_total{model_name=\"b\",engine=\"1\"} 148\n");
#define SUCCESS(reason, a, b)                                                                      \
    "vllm:request_success_total{model_name=\"a\",engine=\"0\",finished_reason=\"" reason "\"} " a  \
    "\nvllm:request_success_total{model_name=\"b\",engine=\"1\",finished_reason=\"" reason         \
    "\"} " b "\n"
    VLLM("vllm:request_success",
         "# HELP vllm:request_success_total Requests by how they ended.\n"
         "# TYPE vllm:request_success_total counter\n"
         SUCCESS("stop", "0", "0") SUCCESS("length", "1", "2") SUCCESS("abort", "5", "6")
         SUCCESS("error", "0", "0"));
    VLLM("llamacpp:n_decode", "");
    metrics_close(m);
}

/* A model that is not there has no samples, and a histogram sums what ours splits. */
static void test_histograms_of_vllm_sum_ours(void **state)
{
    (void)state;
    struct metrics *m = open_metrics();
    for (unsigned length = 0; length < LABEL_LENGTH_COUNT; length++)
        metrics_first_token(m, LABEL_VARIANT_BASELINE, length, 0.5);
    metrics_first_token(m, LABEL_VARIANT_CANDIDATE, 0, 0.5);
    struct buffer out = buffer_with_max(MEM_SERVE, 1 << 24);
    assert_int_equal(metrics_write(m, &texts, METRICS_PROMETHEUS, METRICS_VLLM, &out, NULL), ZP_OK);
    static const char *const lines[] = {
        "\nvllm:time_to_first_token_seconds_bucket{model_name=\"m\",engine=\"0\",le=\"0.25\"} 0\n",
        "\nvllm:time_to_first_token_seconds_bucket{model_name=\"m\",engine=\"0\",le=\"0.5\"} 3\n",
        "\nvllm:time_to_first_token_seconds_sum{model_name=\"m\",engine=\"0\"} 1.5\n",
        "\nvllm:time_to_first_token_seconds_count{model_name=\"m\",engine=\"0\"} 3\n",
    };
    for (size_t i = 0; i < 4; i++) assert_non_null(strstr((char *)out.data, lines[i]));
    assert_null(strstr((char *)out.data, "engine=\"1\""));
    buffer_free(&out);
    metrics_close(m);
}

static void test_names_of_llamacpp(void **state)
{
    (void)state;
    struct metrics *m = open_with_two_models();
#define LLAMACPP(family, wanted)                                                                   \
    expect_family(m, &texts, METRICS_PROMETHEUS, METRICS_LLAMACPP, family, wanted)
    LLAMACPP("llamacpp:prompt_tokens",
             "# HELP llamacpp:prompt_tokens_total Prompt tokens computed.\n"
             "# TYPE llamacpp:prompt_tokens_total counter\nllamacpp:prompt_tokens_total 30\n");
    LLAMACPP("llamacpp:prompt_seconds",
             "# HELP llamacpp:prompt_seconds_total Time of prompts, of completed requests.\n"
             "# TYPE llamacpp:prompt_seconds_total counter\nllamacpp:prompt_seconds_total 1.5\n");
    LLAMACPP("llamacpp:n_busy_slots_per_decode",
             "# HELP llamacpp:n_busy_slots_per_decode Sequences of a step, mean since the start.\n"
             "# TYPE llamacpp:n_busy_slots_per_decode gauge\n"
             "llamacpp:n_busy_slots_per_decode 2.5\n");
    LLAMACPP("llamacpp:predicted_tokens_seconds", /* nothing over nothing */
             "# HELP llamacpp:predicted_tokens_seconds Generated tokens a second, mean since the "
             "start; better: a rate of the counters.\n"
             "# TYPE llamacpp:predicted_tokens_seconds gauge\n"
             "llamacpp:predicted_tokens_seconds 0\n");
    LLAMACPP("vllm:num_requests_running", "");
    metrics_close(m);
}

static void test_names_of_others_are_asked_for_by_name(void **state)
{
    (void)state;
    unsigned bits;
    zp_err err = { 0 };
    assert_int_equal(metrics_compat_of("", &bits, &err), ZP_OK);
    assert_int_equal(bits, 0);
    assert_int_equal(metrics_compat_of("vllm", &bits, &err), ZP_OK);
    assert_int_equal(bits, METRICS_VLLM);
    assert_int_equal(metrics_compat_of("llamacpp,vllm", &bits, &err), ZP_OK);
    assert_int_equal(bits, METRICS_VLLM | METRICS_LLAMACPP);
    static const char *const wrong[] = { "vll", "vllm,,", "vllmx", " vllm", "tgi", "," };
    for (size_t i = 0; i < 6; i++) {
        err.code = ZP_OK;
        assert_int_equal(metrics_compat_of(wrong[i], &bits, &err), ZP_USAGE);
        assert_non_null(strstr(err.message, "vllm and llamacpp"));
    }
}

/* ---- the whole ------------------------------------------------------------------------------- */

static void test_the_format_is_the_clients_choice(void **state)
{
    (void)state;
    assert_int_equal(metrics_format_of(NULL), METRICS_PROMETHEUS);
    assert_int_equal(metrics_format_of("text/plain, */*;q=0.1"), METRICS_PROMETHEUS);
    assert_int_equal(metrics_format_of("application/openmetrics-text;version=1.0.0;q=0.8,"
                                       "text/plain;version=0.0.4;q=0.7"),
                     METRICS_OPENMETRICS);
    assert_string_equal(metrics_content_type(METRICS_PROMETHEUS),
                        "text/plain; version=0.0.4; charset=utf-8");
    assert_string_equal(metrics_content_type(METRICS_OPENMETRICS),
                        "application/openmetrics-text; version=1.0.0; charset=utf-8");
}

static void test_writing_fails_cleanly(void **state)
{
    (void)state;
    struct metrics *m = open_metrics();
    uint64_t before = live_bytes();
    struct buffer out = buffer_with_max(MEM_SERVE, 1000);
    zp_err err = { 0 };
    assert_int_equal(metrics_write(m, &texts, METRICS_PROMETHEUS, 0, &out, &err), ZP_BAD_INPUT);
    buffer_free(&out);
    for (uint64_t n = 1;; n++) {
        out = buffer_with_max(MEM_SERVE, 1 << 24);
        err.code = ZP_OK;
        mem_fail_at(n, false);
        zp_status status = metrics_write(m, &texts, METRICS_OPENMETRICS, METRICS_VLLM, &out, &err);
        bool failed = mem_fail_count() != 0;
        mem_fail_at(0, false);
        buffer_free(&out);
        assert_int_equal(status, failed ? ZP_NO_MEMORY : ZP_OK);
        assert_int_equal(live_bytes(), before);
        if (!failed) break;
    }
    metrics_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counters),
        cmocka_unit_test(test_times_are_exact),
        cmocka_unit_test(test_gauges_that_nobody_set_are_absent),
        cmocka_unit_test(test_one_value_of_a_state_is_1),
        cmocka_unit_test(test_histograms),
        cmocka_unit_test(test_histogram_without_labels),
        cmocka_unit_test(test_open_labels_are_escaped),
        cmocka_unit_test(test_names_of_vllm),
        cmocka_unit_test(test_histograms_of_vllm_sum_ours),
        cmocka_unit_test(test_names_of_llamacpp),
        cmocka_unit_test(test_names_of_others_are_asked_for_by_name),
        cmocka_unit_test(test_the_format_is_the_clients_choice),
        cmocka_unit_test(test_writing_fails_cleanly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
