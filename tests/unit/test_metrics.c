/* test_metrics.c: the table of metrics keeps the rules of names, what is recorded is read back, and
 * the sums of a request's metrics are equal (M4). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/mem.h"
#include "base/os.h"
#include "base/rng.h"
#include "live_bytes.h"
#include "obs/metrics.h"

static struct metrics *open_metrics(void)
{
    struct metrics *m;
    zp_err err = { 0 };
    if (metrics_open(&m, &err) != ZP_OK) fail_msg("%s", err.message);
    return m;
}

/* ---- the table ------------------------------------------------------------------------------- */

static bool ends_with(const char *text, const char *end)
{
    size_t size = strlen(text), tail = strlen(end);
    return size >= tail && strcmp(text + size - tail, end) == 0;
}

/* Without what the format itself appends. */
static void family_of(const struct metric_row *row, char out[128])
{
    snprintf(out, 128, "%s", row->name);
    if (row->kind == METRIC_KIND_COUNTER) out[strlen(out) - strlen("_total")] = '\0';
}

static void test_names_follow_the_rules(void **state)
{
    (void)state;
    static const char *const units[] = { "", "_seconds", "_bytes", "_ratio" };
    for (size_t i = 0; i < METRIC_COUNT; i++) {
        const struct metric_row *row = &metric_rows[i];
        char family[128];
        assert_true(ends_with(row->name, "_total") == (row->kind == METRIC_KIND_COUNTER));
        assert_true(ends_with(row->name, "_info") == (row->kind == METRIC_KIND_INFO));
        assert_true((row->scale != METRIC_SCALE_NONE) == (row->kind == METRIC_KIND_HISTOGRAM));
        family_of(row, family);
        for (const char *c = family; *c != '\0'; c++)
            assert_true(islower((unsigned char)*c) || isdigit((unsigned char)*c) || *c == '_');
        assert_true(strncmp(family, "zerope_", 7) == 0 || strncmp(family, "process_", 8) == 0);
        assert_true(ends_with(family, units[row->unit]));
        for (size_t u = 1; u < 4 && row->unit == METRIC_UNIT_NONE; u++)
            assert_false(ends_with(family, units[u]));
        for (size_t j = 0; j < i; j++) {
            char other[128];
            family_of(&metric_rows[j], other);
            assert_string_not_equal(family, other);
        }
    }
}

/* The writer relies on it: no help needs an escape, in any of the formats. */
static void test_helps_are_sentences_without_escapes(void **state)
{
    (void)state;
    for (size_t i = 0; i < METRIC_COUNT; i++) {
        const char *help = metric_rows[i].help;
        assert_true(isupper((unsigned char)help[0]) || isdigit((unsigned char)help[0]) ||
                    strncmp(help, "p9", 2) == 0);
        assert_true(ends_with(help, "."));
        assert_null(strpbrk(help, "\\\"\n"));
    }
}

static void test_labels_are_closed_and_distinct(void **state)
{
    (void)state;
    for (size_t l = LABELS_NONE + 1; l < LABELS_COUNT; l++) {
        const struct metric_label *set = &metric_label_sets[l];
        assert_true(strspn(set->name, "abcdefghijklmnopqrstuvwxyz0123456789") == strlen(set->name));
        for (size_t v = 0; set->values != NULL && v < set->n; v++)
            for (size_t w = 0; w < v; w++) assert_string_not_equal(set->values[v], set->values[w]);
    }
    for (size_t i = 0; i < METRIC_COUNT; i++) {
        const enum metric_labels *labels = metric_rows[i].labels;
        for (size_t a = 0; a < METRIC_MOST_LABELS; a++)
            for (size_t b = 0; b < a && labels[a] != LABELS_NONE; b++)
                assert_string_not_equal(metric_label_sets[labels[a]].name,
                                        metric_label_sets[labels[b]].name);
    }
    assert_string_equal(metric_label_sets[LABELS_TAG].values[MEM_SERVE], mem_tag_name(MEM_SERVE));
}

static bool has_bound(enum metric_scale s, double wanted)
{
    size_t n;
    const double *bounds = metric_bounds(s, &n);
    for (size_t i = 0; i < n; i++)
        if (bounds[i] == wanted) return true;
    return false;
}

/* What dashboards made for vLLM ask for, and the objective of 300 ms. */
static void test_buckets_hold_those_of_vllm(void **state)
{
    (void)state;
    static const double first[] = { .001, .005, .01, .02, .04, .06, .08, .1,  .25, .5,  .75,
                                    1,    2.5,  5,   7.5, 10,  20,  40,  80,  160, 640, 2560 };
    static const double gap[] = { .01, .025, .05, .075, .1,  .15, .2,  .3, .4, .5,
                                  .75, 1,    2.5, 5,    7.5, 10,  20,  40, 80 };
    static const double whole[] = { .01, .05, .1, .2, .3, .5, .8, 1,   1.5, 2,   2.5, 5,
                                    10,  15,  20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680 };
    for (size_t i = 0; i < ZP_COUNT(first); i++)
        assert_true(has_bound(METRIC_SCALE_FIRST, first[i]));
    for (size_t i = 0; i < ZP_COUNT(gap); i++) assert_true(has_bound(METRIC_SCALE_GAP, gap[i]));
    for (size_t i = 0; i < ZP_COUNT(whole); i++)
        assert_true(has_bound(METRIC_SCALE_WHOLE, whole[i]));
}

/* ---- recording ------------------------------------------------------------------------------- */

static void test_what_is_recorded_is_read_back(void **state)
{
    (void)state;
    struct metrics *m = open_metrics();
    struct metric_at trip = METRIC_AT(LABEL_TRIP_SLOW), none = METRIC_AT(0);
    assert_int_equal(metrics_count(m, METRIC_TRIPS, trip), 0);
    metrics_add(m, METRIC_TRIPS, trip, 2);
    metrics_add(m, METRIC_TRIPS, trip, 3);
    assert_int_equal(metrics_count(m, METRIC_TRIPS, trip), 5);
    assert_int_equal(metrics_count(m, METRIC_TRIPS, METRIC_AT(LABEL_TRIP_STD)), 0);
    metrics_set_count(m, METRIC_TRIPS, trip, 70);
    assert_int_equal(metrics_count(m, METRIC_TRIPS, trip), 70);

    assert_true(isnan(metrics_gauge(m, METRIC_RUNNING, none)));
    metrics_set(m, METRIC_RUNNING, none, 2.5);
    assert_true(metrics_gauge(m, METRIC_RUNNING, none) == 2.5);

    metrics_set_state(m, METRIC_CANARY_STATE, LABEL_CANARY_HELD);
    assert_int_equal(metrics_count(m, METRIC_CANARY_STATE, none), LABEL_CANARY_HELD);
    metrics_close(m);
}

/* Each series has cells of its own: a series counted up is the only one that changes. */
static void test_series_do_not_share_cells(void **state)
{
    (void)state;
    struct metrics *m = open_metrics();
    uint64_t n = 0;
    for (unsigned e = 0; e < LABEL_ENDPOINT_COUNT; e++)
        for (unsigned v = 0; v < LABEL_VARIANT_COUNT; v++)
            for (unsigned o = 0; o < LABEL_OUTCOME_COUNT; o++)
                metrics_add(m, METRIC_REQUESTS, METRIC_AT(e, v, o), ++n);
    n = 0;
    for (unsigned e = 0; e < LABEL_ENDPOINT_COUNT; e++)
        for (unsigned v = 0; v < LABEL_VARIANT_COUNT; v++)
            for (unsigned o = 0; o < LABEL_OUTCOME_COUNT; o++)
                assert_int_equal(metrics_count(m, METRIC_REQUESTS, METRIC_AT(e, v, o)), ++n);
    metrics_close(m);
}

static void test_histograms_take_any_value(void **state)
{
    (void)state;
    struct metrics *m = open_metrics();
    struct metric_at at = METRIC_AT(LABEL_VARIANT_CANDIDATE);
    const double values[] = { 0.25, NAN, -1, 0, INFINITY, 1e300 };
    for (size_t i = 0; i < ZP_COUNT(values); i++) metrics_observe(m, METRIC_GAP, at, values[i]);
    assert_int_equal(metrics_observed(m, METRIC_GAP, at), 6);
    assert_true(fabs(metrics_sum(m, METRIC_GAP, at) - (2e9 + 0.25)) < 1e-3);
    assert_true(metrics_quantile(m, METRIC_GAP, at, 0.5) == 0.0005); /* half of the first bound */
    assert_true(isinf(metrics_quantile(m, METRIC_GAP, at, 1)));
    assert_true(fabs(metrics_quantile(m, METRIC_GAP, at, 4.0 / 6) / 0.25 - 1) < 0.031);
    assert_int_equal(metrics_observed(m, METRIC_GAP, METRIC_AT(LABEL_VARIANT_BASELINE)), 0);
    assert_true(isnan(metrics_quantile(m, METRIC_GAP, METRIC_AT(0), 0.5)));
    metrics_close(m);
}

static void test_statuses_have_their_class_and_number(void **state)
{
    (void)state;
    struct metrics *m = open_metrics();
    static const struct {
        int status;
        unsigned class, error;
    } cases[] = { { 200, LABEL_STATUS_2XX, LABEL_ERROR_COUNT },
                  { 204, LABEL_STATUS_2XX, LABEL_ERROR_COUNT },
                  { 304, LABEL_STATUS_3XX, LABEL_ERROR_COUNT },
                  { 400, LABEL_STATUS_4XX, LABEL_ERROR_400 },
                  { 429, LABEL_STATUS_4XX, LABEL_ERROR_429 },
                  { 418, LABEL_STATUS_4XX, LABEL_ERROR_OTHER },
                  { 499, LABEL_STATUS_GONE, LABEL_ERROR_499 },
                  { 500, LABEL_STATUS_5XX, LABEL_ERROR_500 },
                  { 529, LABEL_STATUS_5XX, LABEL_ERROR_529 },
                  { 599, LABEL_STATUS_5XX, LABEL_ERROR_OTHER } };
    for (size_t i = 0; i < ZP_COUNT(cases); i++) {
        struct metric_at class = METRIC_AT(LABEL_ROUTE_MODELS, cases[i].class);
        struct metric_at error = METRIC_AT(cases[i].error % LABEL_ERROR_COUNT);
        uint64_t before = metrics_count(m, METRIC_HTTP_REQUESTS, class);
        uint64_t errors = metrics_count(m, METRIC_HTTP_ERRORS, error);
        metrics_http(m, &(struct metrics_http){ LABEL_ROUTE_MODELS, cases[i].status, 0.5, 3, 5 });
        assert_int_equal(metrics_count(m, METRIC_HTTP_REQUESTS, class), before + 1);
        assert_int_equal(metrics_count(m, METRIC_HTTP_ERRORS, error),
                         errors + (cases[i].error != LABEL_ERROR_COUNT));
    }
    assert_int_equal(metrics_observed(m, METRIC_HTTP_SECONDS, METRIC_AT(LABEL_ROUTE_MODELS)),
                     ZP_COUNT(cases));
    assert_int_equal(metrics_count(m, METRIC_HTTP_RECEIVED, METRIC_AT(0)), 3 * ZP_COUNT(cases));
    assert_int_equal(metrics_count(m, METRIC_HTTP_SENT, METRIC_AT(0)), 5 * ZP_COUNT(cases));
    metrics_close(m);
}

/* ---- requests: sums -------------------------------------------------------------------------- */

/* Over all values of the labels from `first` on; the labels before are as in `at`. */
static uint64_t sum_from(const struct metrics *m, enum metric id, struct metric_at at, size_t first)
{
    const struct metric_row *row = &metric_rows[id];
    bool observed = row->kind == METRIC_KIND_HISTOGRAM;
    if (first == METRIC_MOST_LABELS || row->labels[first] == LABELS_NONE)
        return observed ? metrics_observed(m, id, at) : metrics_count(m, id, at);
    uint64_t sum = 0;
    for (unsigned v = 0; v < metric_label_sets[row->labels[first]].n; v++) {
        at.value[first] = v;
        sum += sum_from(m, id, at, first + 1);
    }
    return sum;
}

static uint64_t count_outcome(const struct metrics *m, unsigned variant, unsigned outcome)
{
    uint64_t sum = 0;
    for (unsigned e = 0; e < LABEL_ENDPOINT_COUNT; e++)
        sum += metrics_count(m, METRIC_REQUESTS, METRIC_AT(e, variant, outcome));
    return sum;
}

static uint64_t count_accepted(const struct metrics *m, unsigned variant)
{
    uint64_t sum = 0;
    for (unsigned e = 0; e < LABEL_ENDPOINT_COUNT; e++)
        sum += metrics_count(m, METRIC_ACCEPTED, METRIC_AT(e, variant));
    return sum;
}

/* M4, for a variant that has nothing under way. */
static void expect_equal_sums(const struct metrics *m, unsigned v)
{
    uint64_t completed = count_outcome(m, v, LABEL_OUTCOME_COMPLETED);
    uint64_t cancelled = count_outcome(m, v, LABEL_OUTCOME_CANCELLED);
    uint64_t failed = count_outcome(m, v, LABEL_OUTCOME_FAILED), decoded = 0, left_queue = 0;
    struct metric_at at = METRIC_AT(v);
    assert_int_equal(count_accepted(m, v), completed + cancelled + failed);
    for (unsigned o = 0; o < LABEL_OUTCOME_COUNT; o++) {
        assert_int_equal(sum_from(m, METRIC_PHASES, METRIC_AT(v, o), 2), count_outcome(m, v, o));
        decoded += metrics_count(m, METRIC_PHASES, METRIC_AT(v, o, LABEL_PHASE_DECODE));
        left_queue += metrics_count(m, METRIC_PHASES, METRIC_AT(v, o, LABEL_PHASE_DECODE)) +
                      metrics_count(m, METRIC_PHASES, METRIC_AT(v, o, LABEL_PHASE_PREFILL));
    }
    assert_int_equal(sum_from(m, METRIC_FAILURES, at, 1), failed);
    assert_int_equal(sum_from(m, METRIC_FINISHED, at, 1), completed);
    assert_int_equal(sum_from(m, METRIC_MODES, at, 1), completed + cancelled + failed);
    assert_int_equal(sum_from(m, METRIC_LOOKUPS, at, 1), left_queue);
    assert_int_equal(sum_from(m, METRIC_FIRST_TOKEN, at, 1), decoded);
    static const enum metric of_completed[] = { METRIC_PROMPT_TOKENS,  METRIC_GENERATED_TOKENS,
                                                METRIC_CONTEXT_TOKENS, METRIC_LIMIT_TOKENS,
                                                METRIC_DURATION,       METRIC_QUEUE,
                                                METRIC_PREFILL };
    for (size_t i = 0; i < ZP_COUNT(of_completed); i++)
        assert_int_equal(sum_from(m, of_completed[i], at, 1), completed);
    assert_int_equal(metrics_observed(m, METRIC_DECODE, at),
                     metrics_count(m, METRIC_PHASES,
                                   METRIC_AT(v, LABEL_OUTCOME_COMPLETED, LABEL_PHASE_DECODE)));
    assert_int_equal(metrics_observed(m, METRIC_TOP1_MEAN, at),
                     metrics_observed(m, METRIC_TOP1_STD, at));
}

/* One request of random fate, as the server tells it. Its drawn tokens. */
static uint64_t run_request(struct metrics *m, struct rng *r)
{
    struct metrics_request q = { .endpoint = (unsigned)rng_below(r, LABEL_ENDPOINT_COUNT),
                                 .variant = (unsigned)rng_below(r, LABEL_VARIANT_COUNT),
                                 .outcome = (unsigned)rng_below(r, LABEL_OUTCOME_COUNT),
                                 .phase = (unsigned)rng_below(r, LABEL_PHASE_COUNT),
                                 .length = (unsigned)rng_below(r, LABEL_LENGTH_COUNT),
                                 .mode = (unsigned)rng_below(r, LABEL_MODE_COUNT),
                                 .failure = (unsigned)rng_below(r, LABEL_FAILURE_COUNT),
                                 .finish = (unsigned)rng_below(r, LABEL_FINISH_COUNT),
                                 .n_computed = rng_below(r, 1000),
                                 .n_reused = rng_below(r, 2) * rng_below(r, 1000),
                                 .n_recomputed = rng_below(r, 50) / 49,
                                 .n_limit = 1000,
                                 .total_seconds = 10 * rng_unit(r),
                                 .top1_mean = rng_below(r, 2) ? NAN : rng_unit(r),
                                 .top1_std = rng_unit(r) / 2,
                                 .looped = rng_below(r, 10) == 0 };
    if (q.outcome == LABEL_OUTCOME_COMPLETED && q.phase == LABEL_PHASE_QUEUE)
        q.phase = LABEL_PHASE_DECODE;
    metrics_accepted(m, q.endpoint, q.variant);
    if (q.phase == LABEL_PHASE_DECODE) {
        q.n_generated = 1 + rng_below(r, 20);
        metrics_first_token(m, q.variant, q.length, 0.1);
        for (uint64_t i = 0; i < q.n_generated; i++)
            metrics_token(m, q.variant, i == 0 ? -1 : 0.02);
    }
    metrics_ended(m, &q);
    return q.n_generated;
}

static void test_sums_of_requests_are_equal(void **state)
{
    (void)state;
    struct metrics *m = open_metrics();
    struct rng r = rng_stream(0x5a5, 1);
    uint64_t drawn = 0, generated = 0, gaps = 0, first = 0;
    print_message("seed 0x5a5\n");
    for (int i = 0; i < 2000; i++) {
        drawn += run_request(m, &r);
        if (i % 100 == 0) expect_equal_sums(m, LABEL_VARIANT_BASELINE);
    }
    for (unsigned v = 0; v < LABEL_VARIANT_COUNT; v++) {
        expect_equal_sums(m, v);
        generated += metrics_count(m, METRIC_TOKENS, METRIC_AT(v, LABEL_TOKEN_GENERATED));
        gaps += metrics_observed(m, METRIC_GAP, METRIC_AT(v));
        first += sum_from(m, METRIC_FIRST_TOKEN, METRIC_AT(v), 1);
        assert_true(count_accepted(m, v) > 500);
    }
    assert_int_equal(generated, drawn);
    assert_int_equal(gaps, drawn - first);
    metrics_close(m);
}

static void test_tokens_are_counted_by_kind(void **state)
{
    (void)state;
    struct metrics *m = open_metrics();
    struct metrics_request r = { .outcome = LABEL_OUTCOME_COMPLETED, .phase = LABEL_PHASE_DECODE,
                                 .n_computed = 30, .n_reused = 64, .n_recomputed = 7,
                                 .n_generated = 2, .top1_mean = NAN };
    metrics_ended(m, &r);
    static const uint64_t wanted[] = { 30, 64, 7, 0 };
    for (unsigned k = 0; k < LABEL_TOKEN_COUNT; k++)
        assert_int_equal(metrics_count(m, METRIC_TOKENS, METRIC_AT(0, k)), wanted[k]);
    assert_int_equal(metrics_count(m, METRIC_LOOKUPS, METRIC_AT(0, LABEL_LOOKUP_HIT)), 1);
    assert_true(metrics_sum(m, METRIC_PROMPT_TOKENS, METRIC_AT(0)) == 94);
    assert_true(metrics_sum(m, METRIC_CONTEXT_TOKENS, METRIC_AT(0)) == 96);
    assert_int_equal(metrics_observed(m, METRIC_TOP1_MEAN, METRIC_AT(0)), 0);
    metrics_close(m);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void test_recording_takes_no_memory(void **state)
{
    (void)state;
    struct metrics *m = open_metrics();
    struct rng r = rng_stream(1, 1);
    struct mem_stats before, after;
    mem_stats_read(&before);
    for (int i = 0; i < 50; i++) (void)run_request(m, &r);
    metrics_http(m, &(struct metrics_http){ .status = 200 });
    metrics_step(m, 0.01, 17, 3);
    metrics_set(m, METRIC_BUSY, METRIC_AT(0), 1);
    mem_stats_read(&after);
    assert_int_equal(after.allocations, before.allocations);
    metrics_close(m);
}

static void test_opening_survives_each_lack_of_memory(void **state)
{
    (void)state;
    uint64_t before = live_bytes(), n = 1;
    for (;; n++) {
        struct metrics *m;
        zp_err err = { 0 };
        mem_fail_at(n, false);
        zp_status status = metrics_open(&m, &err);
        bool failed = mem_fail_count() != 0;
        mem_fail_at(0, false);
        if (!failed) {
            assert_int_equal(status, ZP_OK);
            metrics_close(m);
            break;
        }
        assert_int_equal(status, ZP_NO_MEMORY);
        assert_null(m);
        assert_int_equal(live_bytes(), before);
    }
    assert_true(n > 5);
    assert_int_equal(live_bytes(), before);
    metrics_close(NULL);
}

static void test_the_process_is_sampled(void **state)
{
    (void)state;
    struct metrics *m = open_metrics();
    struct metric_at none = METRIC_AT(0), serve = METRIC_AT(MEM_SERVE);
    metrics_sample_process(m);
    double start = metrics_gauge(m, METRIC_PROCESS_START, none);
    assert_true(start > 1e9 && start <= 1e-9 * (double)os_unix_now() + 0.02);
    assert_true(metrics_gauge(m, METRIC_PROCESS_RESIDENT, none) > 1e5);
    assert_true(metrics_gauge(m, METRIC_PROCESS_FDS, none) > 0);
    double live = metrics_gauge(m, METRIC_MEMORY, serve);
    assert_true(live > 10000); /* the metrics themselves */
    assert_true(metrics_gauge(m, METRIC_MEMORY_PEAK, serve) >= live);
    void *more = mem_alloc(MEM_SERVE, 12345);
    metrics_sample_process(m);
    assert_true(metrics_gauge(m, METRIC_MEMORY, serve) == live + 12345);
    assert_true(metrics_gauge(m, METRIC_PROCESS_START, none) == start);
    mem_free(more);
    metrics_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_follow_the_rules),
        cmocka_unit_test(test_helps_are_sentences_without_escapes),
        cmocka_unit_test(test_labels_are_closed_and_distinct),
        cmocka_unit_test(test_buckets_hold_those_of_vllm),
        cmocka_unit_test(test_what_is_recorded_is_read_back),
        cmocka_unit_test(test_series_do_not_share_cells),
        cmocka_unit_test(test_histograms_take_any_value),
        cmocka_unit_test(test_statuses_have_their_class_and_number),
        cmocka_unit_test(test_sums_of_requests_are_equal),
        cmocka_unit_test(test_tokens_are_counted_by_kind),
        cmocka_unit_test(test_recording_takes_no_memory),
        cmocka_unit_test(test_opening_survives_each_lack_of_memory),
        cmocka_unit_test(test_the_process_is_sampled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
