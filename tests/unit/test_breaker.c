/* test_breaker.c: a bad candidate is out within five requests and for a stated reason; a healthy
 * one, odd traffic and bad traffic leave it in; it comes back through the half-open state. */
#include "outcomes.h"

#include "base/compiler.h"
#include "base/json_tree.h"
#include "serve/breaker.h"

enum { SEED = 41, LEAST = 16 };

static struct breaker the; /* large */

/* Closed, with a baseline of `n` requests of one fault. now: when they have ended. */
static void begin_with(const struct breaker_options *o, struct rng *r, enum fault f, int n,
                       double *now)
{
    breaker_init(&the, o);
    breaker_new_candidate(&the, *now);
    for (int i = 0; i < n; i++) {
        struct outcome one = draw_outcome(r, f, LEAST);
        breaker_baseline_ended(&the, LENGTH_SHORT, &one, *now += 0.1);
    }
}

/* A request of the candidate, from its pass to its end. True: the state has changed. */
static bool serve(const struct outcome *o, double *now)
{
    struct breaker_pass pass;
    assert_true(breaker_admit(&the, *now, &pass));
    return breaker_ended(&the, &pass, LENGTH_SHORT, o, *now += 0.1);
}

static bool serve_one(struct rng *r, enum fault f, double *now)
{
    struct outcome o = draw_outcome(r, f, OUTCOME_LOOP_TOKENS);
    return serve(&o, now);
}

/* Requests until it opens; `most` and no more. */
static int requests_until_open(struct rng *r, enum fault f, int most, double *now)
{
    for (int n = 1; n <= most; n++)
        if (serve_one(r, f, now)) {
            assert_int_equal(the.state, BREAKER_OPEN);
            return n;
        }
    return most + 1;
}

static const struct {
    enum fault fault;
    enum breaker_cause cause;
    int most; /* requests */
    const char *number;
    bool cuts;
} bads[] = {
    { NONFINITE, BREAKER_BY_NONFINITE, 1, "tokens_before", true },
    { FLAT, BREAKER_BY_STD, 5, "sigmas_off", true },
    { SURE, BREAKER_BY_STD, 5, "baseline_sigma", true },
    { LOOPING, BREAKER_BY_LOOPS, 5, "repeated_tokens", true },
    { FAILING, BREAKER_BY_ERRORS, 5, "failed", true },
    { SLOW_PROMPT, BREAKER_BY_SLOW, 5, "limit_seconds", false },
    { SLOW_TOKEN, BREAKER_BY_SLOW, 5, "seconds_per_token", false },
    { STUCK, BREAKER_BY_SLOW, 5, "in_a_row", false },
};

static void test_a_bad_candidate_is_off_within_five_requests(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 50; seed++)
        for (size_t i = 0; i < ZP_COUNT(bads); i++) {
            struct rng r = rng_stream(SEED + seed, i);
            struct breaker_pass pass, before;
            double now = 50;
            begin_with(&(struct breaker_options){ 0 }, &r, HEALTHY, 300, &now);
            for (int good = 0; good < 30; good++) assert_false(serve_one(&r, HEALTHY, &now));
            assert_true(breaker_admit(&the, now, &before));
            int n = requests_until_open(&r, bads[i].fault, bads[i].most, &now);
            if (n > bads[i].most)
                fail_msg("%s, seed %d: still on after %d", fault_name(bads[i].fault),
                         (int)seed + SEED, n - 1);
            assert_int_equal(the.trips[bads[i].cause], 1);
            assert_string_equal(the.last.what, "breaker_opened");
            (void)note_number(&the.last, bads[i].number);
            assert_true(note_number(&the.last, "back_off_seconds") == 30);
            assert_false(breaker_admit(&the, now, &pass));
            assert_int_equal(breaker_cuts(&the, &before), bads[i].cuts);
        }
}

/* The rule is five in a row: what says nothing changes no run, and one good one ends it. */
static void test_runs_are_of_requests_that_say_something(void **state)
{
    static const enum fault runs[] = { FLAT, SLOW_TOKEN };
    (void)state;
    for (size_t i = 0; i < ZP_COUNT(runs); i++) {
        struct rng r = rng_stream(SEED, i);
        struct outcome cancelled = { .end = OUTCOME_CANCELLED, .n_drawn = 3 },
                       moved = { .end = OUTCOME_MOVED, .n_drawn = 300, .top1_std = 0.5 };
        double now = 50;
        begin_with(&(struct breaker_options){ 0 }, &r, HEALTHY, 300, &now);
        for (int round = 0; round < 3; round++) {
            for (int n = 0; n < 4; n++) assert_false(serve_one(&r, runs[i], &now));
            assert_false(serve_one(&r, HEALTHY, &now));
        }
        for (int n = 0; n < 4; n++) {
            assert_false(serve_one(&r, runs[i], &now));
            assert_false(serve(&cancelled, &now));
            assert_false(serve(&moved, &now));
        }
        assert_true(serve_one(&r, runs[i], &now));
    }
}

/* The rule as it is stated: more than 4 sigma off trips, less does not, on both sides. */
static void test_four_sigma_are_those_of_the_baseline(void **state)
{
    (void)state;
    for (int side = -1; side <= 1; side += 2)
        for (int beyond = 0; beyond < 2; beyond++) {
            struct rng r = rng_stream(SEED, 7);
            struct moments by_hand = { 0 };
            struct outcome o = { .n_drawn = LEAST };
            double now = 50;
            breaker_init(&the, &(struct breaker_options){ 0 });
            for (int i = 0; i < 500; i++) {
                o.top1_std = 0.28 + 0.02 * rng_normal(&r);
                moments_add(&by_hand, o.top1_std, 0);
                breaker_baseline_ended(&the, LENGTH_SHORT, &o, now);
            }
            double sigma = moments_std(&by_hand);
            o.top1_std = by_hand.mean + side * sigma * (beyond ? 4.01 : 3.99);
            for (int n = 1; n <= 20; n++) {
                bool tripped = serve(&o, &now);
                assert_int_equal(tripped, beyond && n == 5);
                if (!tripped) continue;
                assert_true(fabs(note_number(&the.last, "sigmas_off") - side * 4.01) < 1e-6);
                break;
            }
        }
}

static void test_a_fixed_limit_needs_no_calibration(void **state)
{
    struct outcome low = { .n_drawn = LEAST, .top1_std = 0.149 },
                   high = { .n_drawn = LEAST, .top1_std = 0.151 };
    double now = 1;
    (void)state;
    breaker_init(&the, &(struct breaker_options){ .most_std = 0.15 });
    assert_true(breaker_is_ready(&the));
    for (int n = 0; n < 20; n++) breaker_baseline_ended(&the, LENGTH_SHORT, &high, now);
    for (int n = 0; n < 20; n++) assert_false(serve(&low, &now));
    for (int n = 1; n <= 5; n++) assert_int_equal(serve(&high, &now), n == 5);
    assert_true(note_number(&the.last, "limit") == 0.15);
}

static void test_until_calibrated_only_the_spread_is_not_judged(void **state)
{
    (void)state;
    for (size_t i = 0; i < ZP_COUNT(bads); i++) {
        struct rng r = rng_stream(SEED, i);
        double now = 50;
        bool judged = bads[i].cause != BREAKER_BY_STD
                      && (bads[i].cause != BREAKER_BY_SLOW || bads[i].fault == STUCK);
        begin_with(&(struct breaker_options){ 0 }, &r, HEALTHY, 0, &now);
        assert_false(breaker_is_ready(&the));
        assert_int_equal(requests_until_open(&r, bads[i].fault, 5, &now) <= 5, judged);
    }
    struct rng r = rng_stream(SEED, 99);
    double now = 50;
    begin_with(&(struct breaker_options){ 0 }, &r, HEALTHY, 99, &now);
    assert_false(breaker_is_ready(&the));
    struct outcome brief = { .n_drawn = LEAST - 1, .top1_std = 0.2 };
    breaker_baseline_ended(&the, LENGTH_SHORT, &brief, now);
    assert_false(breaker_is_ready(&the));
    begin_with(&(struct breaker_options){ 0 }, &r, HEALTHY, 100, &now);
    assert_true(breaker_is_ready(&the));
    assert_string_equal(the.last.what, "baseline_calibrated");
    breaker_new_baseline(&the);
    assert_false(breaker_is_ready(&the));
}

/* What the baseline does as well is no fault of the candidate. */
static void test_faults_of_both_models_do_not_trip(void **state)
{
    static const enum fault both[] = { LOOPING, SLOW_TOKEN, SLOW_PROMPT, STUCK };
    (void)state;
    for (size_t i = 0; i < ZP_COUNT(both); i++) {
        struct rng r = rng_stream(SEED, i);
        double now = 50;
        begin_with(&(struct breaker_options){ 0 }, &r, both[i], 300, &now);
        for (int n = 0; n < 20; n++)
            if (serve_one(&r, both[i], &now))
                fail_msg("%s: off after %d", fault_name(both[i]), n + 1);
    }
    struct rng r = rng_stream(SEED, 9);
    double now = 50;
    begin_with(&(struct breaker_options){ 0 }, &r, HEALTHY, 300, &now);
    for (int i = 0; i < 2000; i++) { /* three of ten requests fail */
        struct outcome one = draw_outcome(&r, i % 10 < 3 ? FAILING : HEALTHY, LEAST);
        breaker_baseline_ended(&the, LENGTH_SHORT, &one, now);
    }
    for (int n = 0; n < 200; n++)
        assert_false(serve_one(&r, n % 10 < 3 ? FAILING : HEALTHY, &now));
    for (int n = 0; n < 20 && the.state == BREAKER_CLOSED; n++) serve_one(&r, FAILING, &now);
    assert_int_equal(the.trips[BREAKER_BY_ERRORS], 1);
    assert_true(note_number(&the.last, "failed") == 11); /* 25 % of 20 beyond 30 % */
}

/* Other questions come, whose answers are all surer; the baseline's are so too. */
static void test_a_change_of_traffic_does_not_trip(void **state)
{
    struct rng r = rng_stream(SEED, 3);
    double now = 50;
    (void)state;
    begin_with(&(struct breaker_options){ 0 }, &r, HEALTHY, 1000, &now);
    for (int i = 0; i < 8; i++) {
        struct outcome o = draw_outcome(&r, SURE, LEAST);
        breaker_baseline_ended(&the, LENGTH_SHORT, &o, now);
    }
    for (int n = 0; n < 20; n++) assert_false(serve_one(&r, SURE, &now));
    for (int i = 0; i < 16; i++) { /* it was a short one */
        struct outcome o = draw_outcome(&r, HEALTHY, LEAST);
        breaker_baseline_ended(&the, LENGTH_SHORT, &o, now);
    }
    assert_int_equal(requests_until_open(&r, SURE, 5, &now), 5);
}

static void test_half_open_lets_one_at_a_time_through(void **state)
{
    struct rng r = rng_stream(SEED, 4);
    struct breaker_pass probe, other;
    double now = 50;
    (void)state;
    begin_with(&(struct breaker_options){ 0 }, &r, HEALTHY, 300, &now);
    assert_int_equal(requests_until_open(&r, FLAT, 5, &now), 5);
    assert_false(breaker_admit(&the, now + 29.9, &other));
    assert_int_equal(the.state, BREAKER_OPEN);
    now += 30.1;
    for (uint32_t n = 0; n < the.o.probes; n++) {
        struct outcome cancelled = { .end = OUTCOME_CANCELLED };
        struct outcome good = draw_outcome(&r, HEALTHY, OUTCOME_LOOP_TOKENS);
        assert_int_equal(n ? the.state : BREAKER_HALF_OPEN, BREAKER_HALF_OPEN);
        assert_true(breaker_admit(&the, now, &probe));
        assert_true(probe.probe);
        assert_false(breaker_admit(&the, now, &other));
        assert_false(breaker_ended(&the, &probe, LENGTH_SHORT, &cancelled, now)); /* no proof */
        assert_true(breaker_admit(&the, now, &probe));
        assert_int_equal(breaker_ended(&the, &probe, LENGTH_SHORT, &good, now), n == 4);
    }
    assert_int_equal(the.state, BREAKER_CLOSED);
    assert_string_equal(the.last.what, "breaker_closed");
    assert_true(note_number(&the.last, "good_requests") == 5);
    for (int n = 0; n < 100; n++) assert_false(serve_one(&r, HEALTHY, &now));
}

/* A bad one of any kind is enough there, and each time the wait is twice as long. */
static void test_failed_probes_wait_longer_and_longer(void **state)
{
    static const enum fault kinds[] = {
        FLAT, NONFINITE, LOOPING, FAILING, SLOW_PROMPT, SLOW_TOKEN
    };
    struct rng r = rng_stream(SEED, 5);
    struct breaker_pass pass;
    double now = 50, wait = 30;
    (void)state;
    begin_with(&(struct breaker_options){ 0 }, &r, HEALTHY, 300, &now);
    assert_int_equal(requests_until_open(&r, FLAT, 5, &now), 5);
    for (size_t i = 0; i < ZP_COUNT(kinds); i++) {
        assert_true(fabs(the.until - now - wait) < 1e-9);
        assert_false(breaker_admit(&the, the.until - 0.01, &pass));
        now = the.until;
        /* The baseline's times are not forgotten meanwhile. */
        for (int n = 0; n < 150; n++) {
            struct outcome o = draw_outcome(&r, HEALTHY, LEAST);
            breaker_baseline_ended(&the, LENGTH_SHORT, &o, now);
        }
        assert_true(serve_one(&r, kinds[i], &now));
        assert_int_equal(the.state, BREAKER_OPEN);
        assert_true(note_number(&the.last, "probe") == 1);
        wait = fmin(2 * wait, 960);
    }
    for (now = the.until; the.state != BREAKER_CLOSED;) serve_one(&r, HEALTHY, &now);
    assert_int_equal(requests_until_open(&r, FLAT, 5, &now), 5); /* at once again */
    assert_true(fabs(the.until - now - 960) < 1e-9);
    for (now = the.until; the.state != BREAKER_CLOSED;) serve_one(&r, HEALTHY, &now);
    now += the.o.calm;
    assert_int_equal(requests_until_open(&r, FLAT, 5, &now), 5);
    assert_true(fabs(the.until - now - 30) < 1e-9);
}

/* Answers that began before a trip say nothing of the time after it. */
static void test_requests_of_an_earlier_state_do_not_count(void **state)
{
    struct rng r = rng_stream(SEED, 6);
    struct breaker_pass early[20], probe;
    double now = 50;
    (void)state;
    begin_with(&(struct breaker_options){ 0 }, &r, HEALTHY, 300, &now);
    for (size_t i = 0; i < ZP_COUNT(early); i++) assert_true(breaker_admit(&the, now, &early[i]));
    assert_int_equal(requests_until_open(&r, FLAT, 5, &now), 5);
    now = the.until;
    assert_true(breaker_admit(&the, now, &probe));
    for (size_t i = 0; i < ZP_COUNT(early); i++) {
        struct outcome o = draw_outcome(&r, i % 2 ? HEALTHY : NONFINITE, LEAST);
        assert_true(breaker_cuts(&the, &early[i]));
        assert_false(breaker_ended(&the, &early[i], LENGTH_SHORT, &o, now));
    }
    assert_int_equal(the.state, BREAKER_HALF_OPEN);
    assert_int_equal(the.good, 0);
    assert_false(breaker_cuts(&the, &probe));
}

static void test_by_hand_it_opens_and_closes(void **state)
{
    struct rng r = rng_stream(SEED, 8);
    struct breaker_pass pass, cut;
    double now = 50;
    (void)state;
    begin_with(&(struct breaker_options){ 0 }, &r, HEALTHY, 300, &now);
    assert_true(breaker_admit(&the, now, &pass));
    breaker_open(&the, "key-1", "a look at it", now);
    assert_false(breaker_cuts(&the, &pass));
    assert_false(breaker_admit(&the, now, &pass));
    assert_string_equal(the.last.actor, "key-1");
    breaker_close(&the, "key-2", NULL, now);
    assert_string_equal(the.last.why, "no reason given");
    assert_true(breaker_admit(&the, now, &pass));
    breaker_open(&the, "key-1", NULL, now);
    now = the.until;
    assert_true(breaker_admit(&the, now, &cut)); /* a probe that is cut leaves its place */
    breaker_cut(&the);
    assert_true(breaker_cuts(&the, &cut) && breaker_cuts(&the, &pass));
    assert_true(breaker_admit(&the, now, &pass));
    assert_false(breaker_cuts(&the, &pass));
}

/* 10^5 healthy requests of the candidate, as many of the baseline. odd: this share of them have
 * any deviation at all, a distribution with far heavier tails than the calibrated one would
 * have. */
static void simulate(uint64_t seed, double odd, uint64_t *off, uint32_t *longest)
{
    struct rng r = rng_stream(seed, 0);
    double now = 0;
    begin_with(&(struct breaker_options){ 0 }, &r, HEALTHY, 1000, &now);
    for (int n = 0; n < 100000; n++) {
        for (int i = 0; i < 2; i++) {
            struct outcome o = draw_outcome(&r, HEALTHY, LEAST);
            if (rng_unit(&r) < odd) o.top1_std = 0.5 * rng_unit(&r);
            if (i < 1) breaker_baseline_ended(&the, LENGTH_SHORT, &o, now += 0.05);
            else if (serve(&o, &now)) fail_msg("seed %d: off at request %d", (int)seed, n);
        }
        *off += the.off > 0;
        if (the.off > *longest) *longest = the.off;
    }
}

static void test_healthy_text_does_not_trip_in_100000_requests(void **state)
{
    static const double odd[] = { 0, 0.02 };
    (void)state;
    for (size_t i = 0; i < ZP_COUNT(odd); i++) {
        uint64_t off = 0;
        uint32_t longest = 0;
        simulate(SEED, odd[i], &off, &longest);
        double share = (double)off / 100000;
        printf("odd answers %.0f %%: beyond 4 sigma %.5f of 100000, longest run %u, trips 0; "
               "five in a row by chance: %.1e\n",
               100 * odd[i], share, longest, pow(share, 5));
        assert_true(odd[i] == 0 || off > 100); /* the odd ones are seen */
    }
}

static void test_the_document_tells_the_state(void **state)
{
    struct rng r = rng_stream(SEED, 12);
    struct json_build w;
    char *text;
    zp_err err = { 0 };
    json_t *j;
    double now = 50;
    (void)state;
    begin_with(&(struct breaker_options){ 0 }, &r, HEALTHY, 300, &now);
    requests_until_open(&r, FLAT, 5, &now);
    json_build_open(&w, &err);
    breaker_write(&the, now + 10, NULL, &w);
    assert_int_equal(json_build_finish(&w, &text), ZP_OK);
    assert_int_equal(json_tree_read(text, strlen(text), "doc", ZP_BAD_INPUT, &j, &err), ZP_OK);
    assert_string_equal(json_string_value(json_object_get(j, "state")), "open");
    assert_true(json_real_value(json_object_get(j, "retry_seconds")) == 20);
    const json_t *last = json_object_get(j, "last");
    assert_string_equal(json_string_value(json_object_get(last, "what")), "breaker_opened");
    assert_true(json_is_number(json_object_get(json_object_get(last, "numbers"), "sigmas_off")));
    json_decref(j);
    mem_free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_bad_candidate_is_off_within_five_requests),
        cmocka_unit_test(test_runs_are_of_requests_that_say_something),
        cmocka_unit_test(test_four_sigma_are_those_of_the_baseline),
        cmocka_unit_test(test_a_fixed_limit_needs_no_calibration),
        cmocka_unit_test(test_until_calibrated_only_the_spread_is_not_judged),
        cmocka_unit_test(test_faults_of_both_models_do_not_trip),
        cmocka_unit_test(test_a_change_of_traffic_does_not_trip),
        cmocka_unit_test(test_half_open_lets_one_at_a_time_through),
        cmocka_unit_test(test_failed_probes_wait_longer_and_longer),
        cmocka_unit_test(test_requests_of_an_earlier_state_do_not_count),
        cmocka_unit_test(test_by_hand_it_opens_and_closes),
        cmocka_unit_test(test_healthy_text_does_not_trip_in_100000_requests),
        cmocka_unit_test(test_the_document_tells_the_state),
    };
    printf("seed %d\n", SEED);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
