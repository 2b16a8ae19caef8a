/* test_canary.c: shares are right and only grow; a stage is left upwards by its rule alone,
 * downwards at once. */
#include "outcomes.h"

#include "base/compiler.h"
#include "base/json_tree.h"
#include "serve/canary.h"

enum { SEED = 61, N_IDS = 100000, LEAST = 16 };

static struct canary the; /* large */

static void begin(const struct canary_options *o, double now)
{
    zp_err err = { 0 };
    if (canary_init(&the, o, &err) != ZP_OK) fail_msg("%s", err.message);
    canary_load(&the, now);
    canary_begin(&the, now);
}

/* `n` requests of each variant that end now. */
static void serve(struct rng *r, enum fault base, enum fault candidate, int n)
{
    for (int i = 0; i < n; i++)
        for (int v = 0; v < VARIANTS; v++) {
            struct outcome o = draw_outcome(r, v ? candidate : base, LEAST);
            canary_ended(&the, the.epoch, (enum variant)v, &o);
        }
}

/* ---- shares ---- */

static size_t make_id(char *id, size_t room, int kind, uint32_t i)
{
    uint32_t b[4];
    rng_block(SEED, 1, i, b);
    if (kind == 0) return (size_t)snprintf(id, room, "req-%u", i);
    if (kind == 1)
        return (size_t)snprintf(id, room, "%08x-%04x-4%03x-a%03x-%08x%04x", b[0], b[1] >> 16,
                                b[1] & 0xfff, b[2] & 0xfff, b[3], b[2] >> 16);
    return (size_t)snprintf(id, room, "user%u@example.org", i * 7919);
}

static void test_shares_are_right_and_only_grow(void **state)
{
    static const uint32_t shares[] = { 0, 100, 500, 2000, CANARY_WHOLE };
    static uint8_t stage[N_IDS]; /* first one that an id is in */
    (void)state;
    for (int kind = 0; kind < 3; kind++)
        for (uint8_t salt = 0; salt < 3; salt++) {
            uint8_t key[16] = { salt, 1, 2, 3 };
            memset(stage, 0xff, sizeof stage);
            for (uint8_t s = 0; s < ZP_COUNT(shares); s++) {
                uint32_t inside = 0;
                for (uint32_t i = 0; i < N_IDS; i++) {
                    char id[64];
                    size_t size = make_id(id, sizeof id, kind, i);
                    bool in = canary_in_share(key, id, size, shares[s]);
                    assert_true(in || stage[i] > s); /* none ever leaves */
                    if (in && stage[i] > s) stage[i] = s;
                    inside += in;
                }
                double off = 100.0 * inside / N_IDS - shares[s] / 100.0;
                if (salt == 0)
                    printf("ids %d, %u of 10000: off by %+.3f points\n", kind, shares[s], off);
                assert_true(fabs(off) <= 0.3);
                if (shares[s] % CANARY_WHOLE == 0) assert_true(off == 0);
            }
        }
}

static void test_another_salt_takes_other_ids(void **state)
{
    uint8_t a[16] = { 1 }, b[16] = { 2 };
    int both = 0;
    (void)state;
    for (uint32_t i = 0; i < N_IDS; i++) {
        char id[64];
        size_t size = make_id(id, sizeof id, 0, i);
        both += canary_in_share(a, id, size, 2000) && canary_in_share(b, id, size, 2000);
    }
    assert_true(both > 3500 && both < 4500); /* 20 % of 20 % */
}

/* ---- rules ---- */

static void test_a_healthy_candidate_goes_through_all_stages(void **state)
{
    static const uint32_t stages[] = { 100, 500, 2000, CANARY_WHOLE };
    struct rng r = rng_stream(SEED, 2);
    double now = 10;
    (void)state;
    begin(&(struct canary_options){ 0 }, now);
    for (size_t s = 0; s < ZP_COUNT(stages); s++) {
        assert_int_equal(the.state, CANARY_RAMPING);
        assert_int_equal(the.share, stages[s]);
        serve(&r, HEALTHY, HEALTHY, 400);
        canary_tick(&the, now + 599.9);
        assert_int_equal(the.share, stages[s]);
        canary_tick(&the, now += 600);
    }
    assert_int_equal(the.share, CANARY_WHOLE);
    assert_int_equal(the.promotions, 3);
    assert_string_equal(the.last.what, "canary_promoted");
    assert_true(note_number(&the.last, "from_percent") == 20);
    assert_true(note_number(&the.last, "to_percent") == 100);
    assert_true(note_number(&the.last, "requests") == 400);
    assert_true(note_number(&the.last, "top1_std_shift") <= 0.5);
}

/* Each rule broken alone, all others met, for ever: no promotion. */
static void break_rule(enum canary_rule rule, struct rng *r)
{
    enum fault f = rule == CANARY_RULE_ERRORS  ? FAILING
                   : rule == CANARY_RULE_LOOPS ? LOOPING
                                               : HEALTHY;
    for (int i = 0; i < 1000; i++)
        for (int v = 0; v < VARIANTS; v++) {
            struct outcome o = draw_outcome(r, v && i % 30 == 0 ? f : HEALTHY, LEAST);
            double pace = o.total_seconds - o.first_seconds;
            if (v && rule == CANARY_RULE_PROMPT)
                o.first_seconds += o.first_seconds - o.queue_seconds;
            if (v && rule == CANARY_RULE_TOKEN) pace *= 2;
            o.total_seconds = o.first_seconds + pace;
            if (v && rule == CANARY_RULE_MEAN) o.top1_mean += 0.1;
            if (v && rule == CANARY_RULE_STD) o.top1_std -= 0.05;
            if (v && rule == CANARY_RULE_REQUESTS && i >= 199) continue;
            if (!v && rule == CANARY_RULE_BASELINE && i >= 199) continue;
            canary_ended(&the, the.epoch, (enum variant)v, &o);
        }
}

static void test_each_rule_alone_prevents_promotion(void **state)
{
    (void)state;
    for (int rule = 0; rule < CANARY_RULE_COUNT; rule++) {
        struct canary_check checks[CANARY_RULE_COUNT];
        struct rng r = rng_stream(SEED, 3);
        double later = rule == CANARY_RULE_SECONDS ? 599 : 100000;
        begin(&(struct canary_options){ 0 }, 0);
        break_rule((enum canary_rule)rule, &r);
        for (double now = 0; now <= later; now += later / 50) canary_tick(&the, now);
        canary_judge(&the, later, checks);
        for (int i = 0; i < CANARY_RULE_COUNT; i++)
            if (checks[i].met != (i != rule))
                fail_msg("rule %d broken: rule %d is %g, limit %g", rule, i, checks[i].value,
                         checks[i].limit);
        assert_int_equal(the.promotions, 0);
        assert_int_equal(the.share, 100);
        assert_int_equal(the.state, CANARY_RAMPING);
    }
}

/* A rule that is off does not prevent anything; one about which too little is known does. */
static void test_unknown_is_not_met_and_off_is(void **state)
{
    (void)state;
    for (int off = 0; off < 2; off++) {
        struct outcome brief = { .n_drawn = 2, .n_computed = 40, .first_seconds = 1,
                                 .total_seconds = 2 };
        struct canary_options o = { .most_quality_shift = off ? -1 : 0,
                                    .most_loop_rise = off ? -1 : 0 };
        begin(&o, 0);
        for (int i = 0; i < 1000; i++)
            for (int v = 0; v < VARIANTS; v++)
                canary_ended(&the, the.epoch, (enum variant)v, &brief);
        canary_tick(&the, 1000);
        assert_int_equal(the.promotions, off);
    }
}

/* Random requests, faults, times and admins: whenever the share rises by rule, the rules are met by
 * books that are kept here. */
static void test_promotion_never_happens_without_its_rule(void **state)
{
    struct rng r = rng_stream(SEED, 4);
    (void)state;
    uint64_t promotions = 0, others = 0;
    for (int run = 0; run < 60; run++) {
        double now = 0, since = 0, error_share = 0.02 * rng_unit(&r);
        uint64_t n[VARIANTS] = { 0 }, bad[VARIANTS] = { 0 };
        begin(&(struct canary_options){ .least_requests = 50, .least_seconds = 100 }, 0);
        for (int step = 0; step < 400; step++) {
            for (int i = 0; i < 4; i++) {
                enum variant v = (enum variant)rng_below(&r, 2);
                bool fails = rng_unit(&r) < error_share * (v ? 2 : 1);
                struct outcome o = draw_outcome(&r, fails ? FAILING : HEALTHY, LEAST);
                bool old = rng_below(&r, 10) == 0; /* of the stage before */
                canary_ended(&the, the.epoch - old, v, &o);
                if (!old) n[v]++, bad[v] += fails;
            }
            uint32_t share = the.share;
            uint64_t epoch = the.epoch;
            if (rng_below(&r, 100) == 0) canary_hold(&the, "k", NULL, now, NULL), others++;
            if (rng_below(&r, 50) == 0) canary_resume(&the, "k", NULL, now, NULL), others++;
            if (the.epoch != epoch)
                since = now, memset(n, 0, sizeof n), memset(bad, 0, sizeof bad);
            bool ramping = the.state == CANARY_RAMPING;
            epoch = the.epoch;
            canary_tick(&the, now += 10 * rng_unit(&r));
            if (the.share > share) {
                promotions++;
                assert_true(ramping && now - since >= 100);
                assert_true(n[0] >= 50 && n[1] >= 50);
                assert_true((double)bad[1] / (double)n[1] - (double)bad[0] / (double)n[0] <= 0.01);
                assert_string_equal(the.last.what, "canary_promoted");
                assert_true(note_number(&the.last, "requests") == (double)n[1]);
                assert_true(note_number(&the.last, "seconds") == now - since);
            }
            if (the.epoch != epoch)
                since = now, memset(n, 0, sizeof n), memset(bad, 0, sizeof bad);
        }
    }
    printf("%d promotions, %d changes by hand\n", (int)promotions, (int)others);
    assert_true(promotions > 50 && others > 100);
}

static void test_a_much_worse_candidate_is_rolled_back(void **state)
{
    static const struct {
        enum fault fault;
        enum canary_cause cause;
    } worst[] = { { FAILING, CANARY_BY_ERRORS }, { LOOPING, CANARY_BY_LOOPS },
                  { SLOW_PROMPT, CANARY_BY_PROMPT }, { SLOW_TOKEN, CANARY_BY_TOKEN },
                  { STUCK, CANARY_BY_ERRORS } };
    (void)state;
    for (size_t i = 0; i < ZP_COUNT(worst); i++)
        for (int held = 0; held < 2; held++) {
            struct rng r = rng_stream(SEED, i);
            begin(&(struct canary_options){ .hold_at = held ? 500 : 0 }, 0);
            serve(&r, HEALTHY, worst[i].fault, 199);
            canary_tick(&the, 1);
            assert_int_equal(the.share, held ? 500 : 100); /* too few to say so */
            serve(&r, HEALTHY, worst[i].fault, 1);
            canary_tick(&the, 2);
            assert_int_equal(the.state, CANARY_ROLLED_BACK);
            assert_int_equal(the.share, 0);
            assert_int_equal(the.rollbacks[worst[i].cause], 1);
            assert_true(note_number(&the.last, "value") > note_number(&the.last, "limit"));
            serve(&r, HEALTHY, HEALTHY, 400);
            canary_tick(&the, 10000);
            assert_int_equal(the.share, 0); /* for good */
        }
}

static void test_trips_of_the_breaker_roll_back(void **state)
{
    (void)state;
    begin(&(struct canary_options){ 0 }, 0);
    canary_tripped(&the, 1);
    canary_tripped(&the, 2);
    assert_int_equal(the.share, 100);
    canary_tripped(&the, 3);
    assert_int_equal(the.state, CANARY_ROLLED_BACK);
    assert_int_equal(the.rollbacks[CANARY_BY_BREAKER], 1);
    canary_tripped(&the, 4);
    assert_int_equal(the.rollbacks[CANARY_BY_BREAKER], 1);
}

/* Requests of a stage that is over, and those that say nothing. */
static void test_only_requests_of_the_stage_count(void **state)
{
    struct rng r = rng_stream(SEED, 6);
    (void)state;
    begin(&(struct canary_options){ 0 }, 0);
    struct outcome good = draw_outcome(&r, HEALTHY, LEAST), moved = good, gone = good;
    moved.end = OUTCOME_MOVED;
    gone.end = OUTCOME_CANCELLED;
    canary_ended(&the, the.epoch - 1, VARIANT_CANDIDATE, &good);
    canary_ended(&the, the.epoch, VARIANT_CANDIDATE, &moved);
    canary_ended(&the, the.epoch, VARIANT_CANDIDATE, &gone);
    assert_int_equal(the.windows[VARIANT_CANDIDATE].requests, 0);
    assert_int_equal(the.windows[VARIANT_CANDIDATE].answers, 1); /* its tokens were drawn */
    canary_ended(&the, the.epoch, VARIANT_CANDIDATE, &good);
    assert_int_equal(the.windows[VARIANT_CANDIDATE].requests, 1);
    canary_restart(&the, 5);
    assert_int_equal(the.windows[VARIANT_CANDIDATE].requests, 0);
}

/* ---- by hand ---- */

static void check_last(const char *what, const char *actor, const char *why, double to)
{
    assert_string_equal(the.last.what, what);
    assert_string_equal(the.last.actor, actor);
    assert_string_equal(the.last.why, why);
    assert_true(note_number(&the.last, "to_percent") == to);
}

static void test_an_admin_sets_holds_resumes_and_rolls_back(void **state)
{
    struct rng r = rng_stream(SEED, 7);
    zp_err err = { 0 };
    (void)state;
    assert_int_equal(canary_init(&the, &(struct canary_options){ 0 }, &err), ZP_OK);
    assert_int_equal(canary_set_share(&the, 500, "k", NULL, 0, &err), ZP_BAD_INPUT);
    assert_non_null(strstr(err.message, "no candidate"));
    assert_int_equal(canary_roll_back(&the, "k", NULL, 0, NULL), ZP_BAD_INPUT);
    begin(&(struct canary_options){ 0 }, 0);
    assert_int_equal(canary_set_share(&the, 1234, "key-1", "try more", 1, NULL), ZP_OK);
    check_last("canary_set", "key-1", "try more", 12.34);
    assert_int_equal(canary_set_share(&the, CANARY_WHOLE + 1, "key-1", NULL, 1, NULL),
                     ZP_BAD_INPUT);
    serve(&r, HEALTHY, HEALTHY, 400);
    canary_tick(&the, 5000);
    assert_int_equal(the.share, 1234); /* held */
    assert_int_equal(canary_resume(&the, "key-2", NULL, 5000, NULL), ZP_OK);
    check_last("canary_resumed", "key-2", "no reason given", 12.34);
    canary_tick(&the, 9999);
    assert_int_equal(the.share, 1234); /* the stage has begun anew */
    serve(&r, HEALTHY, HEALTHY, 400);
    canary_tick(&the, 9999);
    assert_int_equal(the.share, 2000);
    assert_int_equal(canary_hold(&the, "key-1", "night", 9999, NULL), ZP_OK);
    serve(&r, HEALTHY, HEALTHY, 400);
    canary_tick(&the, 99999);
    assert_int_equal(the.share, 2000);
    assert_int_equal(canary_roll_back(&the, "key-1", "bad answers", 99999, NULL), ZP_OK);
    check_last("canary_rolled_back", "key-1", "bad answers", 0);
    assert_false(canary_picks(&the, "any", 3));
    assert_int_equal(the.rollbacks[CANARY_BY_ADMIN], 1);
    assert_int_equal(canary_resume(&the, "key-1", NULL, 99999, NULL), ZP_OK);
    assert_int_equal(the.state, CANARY_WAITING);
    canary_begin(&the, 99999);
    assert_int_equal(the.share, 100);
    canary_unload(&the, 99999);
    assert_int_equal(the.share, 0);
    assert_int_equal(canary_hold(&the, "k", NULL, 0, NULL), ZP_BAD_INPUT);
}

static void test_it_waits_for_the_calibration(void **state)
{
    zp_err err = { 0 };
    (void)state;
    assert_int_equal(canary_init(&the, &(struct canary_options){ .hold_at = 700 }, &err), ZP_OK);
    canary_begin(&the, 1);
    assert_int_equal(the.state, CANARY_OFF);
    canary_load(&the, 2);
    assert_int_equal(the.state, CANARY_WAITING);
    canary_tick(&the, 1e6);
    assert_int_equal(the.share, 0);
    canary_begin(&the, 3);
    assert_int_equal(the.state, CANARY_HELD);
    assert_int_equal(the.share, 700);
}

static void test_options_that_make_no_sense_are_refused(void **state)
{
    static const struct canary_options bad[] = {
        { .stages = { 100, 100 }, .n_stages = 2 }, { .stages = { 500, 100 }, .n_stages = 2 },
        { .stages = { 0 }, .n_stages = 1 },        { .stages = { 10001 }, .n_stages = 1 },
        { .n_stages = 9 },                         { .hold_at = 10001 },
    };
    (void)state;
    for (size_t i = 0; i < ZP_COUNT(bad); i++) {
        zp_err err = { 0 };
        assert_int_equal(canary_init(&the, &bad[i], &err), ZP_USAGE);
        assert_non_null(strstr(err.message, "canary"));
    }
}

static void test_the_document_tells_what_is_still_missing(void **state)
{
    struct rng r = rng_stream(SEED, 8);
    struct json_build w;
    char *text;
    zp_err err = { 0 };
    json_t *j;
    int met = 0;
    (void)state;
    begin(&(struct canary_options){ 0 }, 0);
    serve(&r, HEALTHY, HEALTHY, 100);
    json_build_open(&w, &err);
    canary_write(&the, 50, NULL, &w);
    assert_int_equal(json_build_finish(&w, &text), ZP_OK);
    assert_int_equal(json_tree_read(text, strlen(text), "doc", ZP_BAD_INPUT, &j, &err), ZP_OK);
    const json_t *rules = json_object_get(j, "rules"), *cand = json_object_get(j, "candidate");
    assert_int_equal(json_array_size(rules), CANARY_RULE_COUNT);
    for (size_t i = 0; i < CANARY_RULE_COUNT; i++)
        met += json_is_true(json_object_get(json_array_get(rules, i), "met"));
    assert_true(met <= CANARY_RULE_COUNT - 3); /* time, requests of both */
    assert_int_equal(json_integer_value(json_object_get(cand, "requests")), 100);
    assert_true(json_is_real(json_object_get(json_object_get(cand, "first_token_seconds"), "p99")));
    assert_true(json_number_value(json_object_get(j, "share_percent")) == 1);
    json_decref(j);
    mem_free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shares_are_right_and_only_grow),
        cmocka_unit_test(test_another_salt_takes_other_ids),
        cmocka_unit_test(test_a_healthy_candidate_goes_through_all_stages),
        cmocka_unit_test(test_each_rule_alone_prevents_promotion),
        cmocka_unit_test(test_unknown_is_not_met_and_off_is),
        cmocka_unit_test(test_promotion_never_happens_without_its_rule),
        cmocka_unit_test(test_a_much_worse_candidate_is_rolled_back),
        cmocka_unit_test(test_trips_of_the_breaker_roll_back),
        cmocka_unit_test(test_only_requests_of_the_stage_count),
        cmocka_unit_test(test_an_admin_sets_holds_resumes_and_rolls_back),
        cmocka_unit_test(test_it_waits_for_the_calibration),
        cmocka_unit_test(test_options_that_make_no_sense_are_refused),
        cmocka_unit_test(test_the_document_tells_what_is_still_missing),
    };
    printf("seed %d\n", SEED);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
