/* test_metrics_threads.c: many threads record while another reads: nothing is lost, and no copy
 * shows an effect without its cause (M3). */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <cmocka.h>

#include "obs/metrics_parts.h"

enum { RECORDERS = 3, REQUESTS = 3000 };

static struct metrics *metrics;
static atomic_int recording;

static void *record(void *arg)
{
    unsigned variant = *(const unsigned *)arg % LABEL_VARIANT_COUNT;
    struct metrics_request r = { .variant = variant, .outcome = LABEL_OUTCOME_COMPLETED,
                                 .phase = LABEL_PHASE_DECODE, .n_computed = 5, .n_generated = 2,
                                 .total_seconds = 0.25, .top1_mean = NAN };
    for (int i = 0; i < REQUESTS; i++) {
        metrics_accepted(metrics, r.endpoint, variant);
        metrics_first_token(metrics, variant, r.length, 0.0625);
        metrics_token(metrics, variant, -1);
        metrics_token(metrics, variant, 0.125);
        metrics_ended(metrics, &r);
        metrics_set(metrics, METRIC_RUNNING, METRIC_AT(0), i % 2 == 0 ? 1 : 1e300);
        metrics_set_state(metrics, METRIC_SERVER_STATE, (unsigned)i % LABEL_SERVER_COUNT);
    }
    atomic_fetch_sub(&recording, 1);
    return NULL;
}

static uint64_t count(const uint64_t *cells, enum metric id, struct metric_at at)
{
    return cells[metrics_place(metrics, id, metrics_series(metrics, id, at))];
}

static uint64_t observed(const uint64_t *cells, enum metric id, struct metric_at at)
{
    size_t place = metrics_place(metrics, id, metrics_series(metrics, id, at));
    return histogram_total(&metrics->scales[metric_rows[id].scale], cells + place);
}

static void expect_causes(const uint64_t *cells, unsigned v)
{
    uint64_t accepted = count(cells, METRIC_ACCEPTED, METRIC_AT(0, v));
    uint64_t ended = count(cells, METRIC_REQUESTS, METRIC_AT(0, v, LABEL_OUTCOME_COMPLETED));
    uint64_t finished = count(cells, METRIC_FINISHED, METRIC_AT(v, LABEL_FINISH_END));
    uint64_t durations = observed(cells, METRIC_DURATION, METRIC_AT(v));
    assert_true(accepted >= ended);
    assert_true(ended >= finished);
    assert_true(finished >= durations);
    assert_true(durations >= observed(cells, METRIC_DECODE, METRIC_AT(v)));
    assert_true(accepted >= observed(cells, METRIC_FIRST_TOKEN, METRIC_AT(v)));
    assert_true(count(cells, METRIC_TOKENS, METRIC_AT(v, LABEL_TOKEN_GENERATED)) >=
                observed(cells, METRIC_GAP, METRIC_AT(v)));
}

static void test_copies_show_no_effect_without_its_cause(void **state)
{
    (void)state;
    static const unsigned names[RECORDERS] = { 0, 1, 2 };
    pthread_t threads[RECORDERS];
    zp_err err = { 0 };
    int copies = 0;
    assert_int_equal(metrics_open(&metrics, &err), ZP_OK);
    uint64_t *cells = malloc(metrics->n_cells * sizeof *cells);
    atomic_store(&recording, RECORDERS);
    for (size_t i = 0; i < RECORDERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, record, (void *)&names[i]), 0);
    bool more;
    do {
        more = atomic_load(&recording) != 0; /* one copy follows the last record */
        metrics_copy(metrics, cells);
        for (unsigned v = 0; v < LABEL_VARIANT_COUNT; v++) expect_causes(cells, v);
        double running = metrics_real(count(cells, METRIC_RUNNING, METRIC_AT(0)));
        assert_true(isnan(running) || running == 1 || running == 1e300); /* never half of each */
        copies++;
    } while (more);
    for (size_t i = 0; i < RECORDERS; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    print_message("%d copies\n", copies);

    uint64_t ended = 0, tokens = 0, gaps = 0;
    double seconds = 0;
    for (unsigned v = 0; v < LABEL_VARIANT_COUNT; v++) {
        ended += observed(cells, METRIC_DURATION, METRIC_AT(v));
        tokens += count(cells, METRIC_TOKENS, METRIC_AT(v, LABEL_TOKEN_GENERATED));
        gaps += observed(cells, METRIC_GAP, METRIC_AT(v));
        seconds += metrics_sum(metrics, METRIC_DURATION, METRIC_AT(v));
    }
    assert_int_equal(ended, RECORDERS * REQUESTS);
    assert_int_equal(tokens, 2 * RECORDERS * REQUESTS);
    assert_int_equal(gaps, RECORDERS * REQUESTS);
    assert_true(seconds == 0.25 * RECORDERS * REQUESTS);
    free(cells);
    metrics_close(metrics);
}

/* The whole exposition, by two threads at once. */
static void *write_often(void *arg)
{
    struct metrics_texts texts = { .version = "1" };
    zp_status *status = arg;
    do {
        struct buffer out = buffer_with_max(MEM_SERVE, 1 << 24);
        *status = metrics_write(metrics, &texts, METRICS_PROMETHEUS, METRICS_VLLM, &out, NULL);
        buffer_free(&out);
    } while (*status == ZP_OK && atomic_load(&recording) != 0);
    return NULL;
}

static void test_writing_goes_beside_recording(void **state)
{
    (void)state;
    static const unsigned name = 0;
    pthread_t recorder, writers[2];
    zp_status statuses[2];
    zp_err err = { 0 };
    assert_int_equal(metrics_open(&metrics, &err), ZP_OK);
    atomic_store(&recording, 1);
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&writers[i], NULL, write_often, &statuses[i]), 0);
    assert_int_equal(pthread_create(&recorder, NULL, record, (void *)&name), 0);
    pthread_join(recorder, NULL);
    for (size_t i = 0; i < 2; i++) {
        pthread_join(writers[i], NULL);
        assert_int_equal(statuses[i], ZP_OK);
    }
    assert_int_equal(metrics_count(metrics, METRIC_ACCEPTED, METRIC_AT(0, 0)), REQUESTS);
    metrics_close(metrics);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_copies_show_no_effect_without_its_cause),
        cmocka_unit_test(test_writing_goes_beside_recording),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
