/* test_sla.c: an objective that is missed leads to mode half where that is known to help, else to
 * refusals; both go back, no sooner than they can; every step is counted and logged. */
#include "outcomes.h"

#include "base/compiler.h"
#include "base/json_tree.h"
#include "serve/sla.h"

enum { SEED = 71 };

static struct sla the; /* large */
static struct audit audit;

static void begin(struct sla_options o)
{
    zp_err err = { 0 };
    audit_free(&audit);
    if (audit_open(&audit, &(struct audit_options){ 0 }, &err) != ZP_OK)
        fail_msg("%s", err.message);
    o.audit = &audit;
    if (sla_init(&the, &o, &err) != ZP_OK) fail_msg("%s", err.message);
}

static const struct sla_options short_first = { .limits[LENGTH_SHORT].first_p95 = 0.3 };

/* A machine whose latency grows with its load, and the requests of a second. */
struct machine {
    struct rng r;
    double now, load; /* load: of all requests in mode full; 1: all it can do */
    double gain;      /* of mode half */
    int explicit_mode; /* of 10 requests, those that name their mode */
    uint64_t asked, halved;
};

static void second(struct machine *m)
{
    enum { RATE = 20 };
    double work = 0;
    struct { uint64_t epoch; } in[RATE];
    size_t n = 0;
    for (int i = 0; i < RATE; i++) {
        bool half, open = i % 10 >= m->explicit_mode;
        m->asked++;
        if (!sla_admit(&the, LENGTH_SHORT, open, &half, &in[n].epoch)) continue;
        assert_false(half && !open);
        m->halved += half;
        work += m->load / RATE / (half ? m->gain : 1);
        n++;
    }
    m->now += 1;
    for (size_t i = 0; i < n; i++) {
        double base = work < 0.97 ? 0.1 / (1 - work) : 5;
        struct outcome o = { .n_drawn = 20,
                             .first_seconds = base * (0.95 + 0.1 * rng_unit(&m->r)) };
        o.total_seconds = 2 * o.first_seconds;
        sla_ended(&the, LENGTH_SHORT, in[i].epoch, &o, m->now);
    }
    sla_tick(&the, m->now);
}

static void run(struct machine *m, double load, int seconds)
{
    m->load = load;
    for (int i = 0; i < seconds; i++) second(m);
}

static uint64_t steps(void)
{
    const struct sla_class *c = &the.classes[LENGTH_SHORT];
    return c->to_half + c->from_half + c->shed_more + c->shed_less;
}

static void test_off_by_default_and_for_classes_without_limit(void **state)
{
    struct machine m = { .r = rng_stream(SEED, 0), .gain = 1.5 };
    (void)state;
    begin((struct sla_options){ 0 });
    assert_false(sla_is_on(&the));
    sla_set_half_gain(&the, LENGTH_SHORT, 1.5);
    run(&m, 5, 300);
    begin((struct sla_options){ .limits[LENGTH_LONG].total_p90 = 1 });
    assert_true(sla_is_on(&the));
    run(&m, 5, 300);
    assert_int_equal(steps(), 0);
    assert_int_equal(audit.seq, 0);
}

static void test_classes_are_by_tokens_of_the_prompt(void **state)
{
    (void)state;
    begin((struct sla_options){ 0 });
    assert_int_equal(sla_length(&the, 0), LENGTH_SHORT);
    assert_int_equal(sla_length(&the, 511), LENGTH_SHORT);
    assert_int_equal(sla_length(&the, 512), LENGTH_MEDIUM);
    assert_int_equal(sla_length(&the, 4095), LENGTH_MEDIUM);
    assert_int_equal(sla_length(&the, 4096), LENGTH_LONG);
    assert_int_equal(sla_length(&the, UINT64_MAX), LENGTH_LONG);
}

static void test_within_its_limit_nothing_happens(void **state)
{
    struct machine m = { .r = rng_stream(SEED, 1), .gain = 1.5 };
    (void)state;
    begin(short_first);
    sla_set_half_gain(&the, LENGTH_SHORT, 1.5);
    run(&m, 0.6, 3600); /* 0.25 s of 0.3 */
    assert_int_equal(steps(), 0);
}

/* Load that half alone can bear: one step there, and one back once the load is low enough for
 * full. */
static void test_mode_half_first_and_back_with_hysteresis(void **state)
{
    struct machine m = { .r = rng_stream(SEED, 2), .gain = 1.5 };
    const struct sla_class *c = &the.classes[LENGTH_SHORT];
    (void)state;
    begin(short_first);
    sla_set_half_gain(&the, LENGTH_SHORT, 1.5);
    /* full: 0.5 s, half: 0.21 s: below 0.8 of the limit, but not 1.5 times that */
    run(&m, 0.8, 1800);
    assert_true(c->half && c->shed == 0);
    assert_int_equal(steps(), 1);
    assert_string_equal(c->last.what, "sla_mode_half");
    assert_memory_equal(c->last.why, "short prompts: ", 15);
    assert_true(note_number(&c->last, "first_p95_seconds") > 0.3);
    assert_true(note_number(&c->last, "half_gain") == 1.5);
    assert_int_equal(m.halved, c->halved);
    assert_true(c->refused == 0 && c->halved > 30000);
    run(&m, 0.4, 300); /* full: 0.17 s */
    assert_false(c->half);
    assert_int_equal(steps(), 2);
    assert_string_equal(c->last.what, "sla_mode_back");
    assert_int_equal(audit.seq, 2);
}

/* Without a measured gain nothing goes to half; some are refused, as many as needed, never all. */
static void test_without_a_gain_a_share_is_refused(void **state)
{
    struct machine m = { .r = rng_stream(SEED, 3), .gain = 1 };
    const struct sla_class *c = &the.classes[LENGTH_SHORT];
    (void)state;
    begin(short_first);
    sla_set_half_gain(&the, LENGTH_SHORT, 1.04);
    run(&m, 1.2, 600);
    assert_int_equal(c->to_half, 0);
    assert_true(c->shed >= 0.3 && c->shed < 0.7);
    uint64_t settled = steps(), refused = c->refused, asked = m.asked;
    run(&m, 1.2, 3600);
    assert_int_equal(steps(), settled); /* no to and fro */
    double share = (double)(c->refused - refused) / (double)(m.asked - asked);
    assert_true(fabs(share - c->shed) < 0.01);
    assert_true(c->first_p95 <= 0.31);
    run(&m, 50, 1200); /* far too much */
    assert_true(c->shed == the.o.most_shed);
    run(&m, 0.3, 1200);
    assert_true(c->shed == 0);
    assert_string_equal(c->last.what, "sla_shed_less");
    assert_int_equal(audit.seq, steps());
}

static void test_half_that_does_not_suffice_is_followed_by_refusals(void **state)
{
    struct machine m = { .r = rng_stream(SEED, 4), .gain = 1.2 };
    const struct sla_class *c = &the.classes[LENGTH_SHORT];
    (void)state;
    begin(short_first);
    sla_set_half_gain(&the, LENGTH_SHORT, 1.2);
    run(&m, 2, 1200);
    assert_true(c->half && c->shed > 0);
    assert_true(c->first_p95 <= 0.31);
    run(&m, 0.3, 1200);
    assert_true(!c->half && c->shed == 0);
    assert_int_equal(c->to_half, 1);
    assert_int_equal(c->from_half, 1);
}

static void test_requests_that_name_their_mode_keep_it(void **state)
{
    struct machine m = { .r = rng_stream(SEED, 5), .gain = 1.5, .explicit_mode = 10 };
    (void)state;
    begin(short_first);
    sla_set_half_gain(&the, LENGTH_SHORT, 1.5);
    run(&m, 0.8, 60);
    assert_true(the.classes[LENGTH_SHORT].half);
    assert_int_equal(m.halved, 0); /* second() asserts it for each */
    m.explicit_mode = 5;
    run(&m, 0.8, 60);
    assert_true(m.halved > 0);
}

/* Another model without evidence comes while half is on. */
static void test_a_gain_that_goes_ends_the_mode_at_once(void **state)
{
    struct machine m = { .r = rng_stream(SEED, 6), .gain = 1.5 };
    bool half;
    uint64_t epoch;
    (void)state;
    begin(short_first);
    sla_set_half_gain(&the, LENGTH_SHORT, 1.5);
    run(&m, 0.8, 60);
    sla_set_half_gain(&the, LENGTH_SHORT, 0);
    assert_true(sla_admit(&the, LENGTH_SHORT, true, &half, &epoch));
    assert_false(half);
}

/* The whole answer counts as well, late ones as longer than any limit; a few say nothing. */
static void test_whole_answers_and_late_ones_are_judged(void **state)
{
    (void)state;
    for (int n = 19; n <= 20; n++) {
        begin((struct sla_options){ .limits[LENGTH_MEDIUM] = { 0.3, 2 } });
        for (int i = 0; i < n; i++) {
            struct outcome o = { .first_seconds = 0.1, .total_seconds = 1,
                                 .end = i < 3 ? OUTCOME_LATE : OUTCOME_DONE };
            sla_ended(&the, LENGTH_MEDIUM, 0, &o, 100);
        }
        sla_tick(&the, 101);
        assert_int_equal(the.classes[LENGTH_MEDIUM].shed_more, n == 20);
    }
}

/* What began before a step does not judge it: the next step waits for requests that began after. */
static void test_a_step_is_judged_by_later_requests(void **state)
{
    struct outcome slow = { .first_seconds = 9, .total_seconds = 9 };
    const struct sla_class *c = &the.classes[LENGTH_SHORT];
    double now = 1000;
    (void)state;
    begin(short_first);
    for (int i = 0; i < 30; i++) sla_ended(&the, LENGTH_SHORT, 0, &slow, now);
    sla_tick(&the, now);
    assert_true(fabs(c->shed - 0.2) < 1e-12);
    for (int i = 0; i < 30; i++) sla_ended(&the, LENGTH_SHORT, 0, &slow, now);
    sla_tick(&the, now += 20);
    assert_true(fabs(c->shed - 0.2) < 1e-12);
    for (int i = 0; i < 30; i++) sla_ended(&the, LENGTH_SHORT, c->epoch, &slow, now);
    sla_tick(&the, now + 5); /* looked at a moment ago */
    assert_true(fabs(c->shed - 0.2) < 1e-12);
    sla_tick(&the, now += 10);
    assert_true(fabs(c->shed - 0.4) < 1e-12);
    for (int i = 1; i <= 4; i++) { /* nobody comes any more */
        sla_tick(&the, now += 59);
        assert_true(fabs(c->shed - 0.4 + 0.1 * (i - 1)) < 1e-9);
        sla_tick(&the, now += 11);
        assert_true(fabs(c->shed - 0.4 + 0.1 * i) < 1e-9);
    }
    assert_true(c->shed == 0);
}

static void test_options_that_make_no_sense_are_refused(void **state)
{
    static const struct sla_options bad[] = {
        { .limits[LENGTH_LONG].first_p95 = -1 }, { .limits[LENGTH_SHORT].total_p90 = NAN },
        { .medium_from = 100, .long_from = 100 }, { .most_shed = 1 }, { .window = -1 },
    };
    (void)state;
    for (size_t i = 0; i < ZP_COUNT(bad); i++) {
        zp_err err = { 0 };
        assert_int_equal(sla_init(&the, &bad[i], &err), ZP_USAGE);
        assert_true(strlen(err.message) > 20);
    }
}

static void test_the_document_tells_each_class(void **state)
{
    struct machine m = { .r = rng_stream(SEED, 8), .gain = 1.5 };
    struct json_build w;
    char *text;
    zp_err err = { 0 };
    json_t *j;
    (void)state;
    begin(short_first);
    sla_set_half_gain(&the, LENGTH_SHORT, 1.5);
    run(&m, 0.8, 60);
    json_build_open(&w, &err);
    sla_write(&the, NULL, &w);
    assert_int_equal(json_build_finish(&w, &text), ZP_OK);
    assert_int_equal(json_tree_read(text, strlen(text), "doc", ZP_BAD_INPUT, &j, &err), ZP_OK);
    const json_t *brief = json_object_get(j, "short"), *lengthy = json_object_get(j, "long");
    assert_true(json_is_true(json_object_get(j, "on")));
    assert_string_equal(json_string_value(json_object_get(brief, "mode")), "half");
    assert_int_equal(json_integer_value(json_object_get(brief, "to_half")), 1);
    assert_true(json_is_null(json_object_get(lengthy, "first_limit_seconds")));
    json_decref(j);
    mem_free(text);
    audit_free(&audit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_off_by_default_and_for_classes_without_limit),
        cmocka_unit_test(test_classes_are_by_tokens_of_the_prompt),
        cmocka_unit_test(test_within_its_limit_nothing_happens),
        cmocka_unit_test(test_mode_half_first_and_back_with_hysteresis),
        cmocka_unit_test(test_without_a_gain_a_share_is_refused),
        cmocka_unit_test(test_half_that_does_not_suffice_is_followed_by_refusals),
        cmocka_unit_test(test_requests_that_name_their_mode_keep_it),
        cmocka_unit_test(test_a_gain_that_goes_ends_the_mode_at_once),
        cmocka_unit_test(test_whole_answers_and_late_ones_are_judged),
        cmocka_unit_test(test_a_step_is_judged_by_later_requests),
        cmocka_unit_test(test_options_that_make_no_sense_are_refused),
        cmocka_unit_test(test_the_document_tells_each_class),
    };
    printf("seed %d\n", SEED);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
