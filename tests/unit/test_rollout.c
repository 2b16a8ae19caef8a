/* test_rollout.c: the parts of a roll-out together, as the server uses them: many requests under
 * way, bad candidates of every kind, streams that go on at the baseline, books that balance. */
#include "outcomes.h"

#include <stdlib.h>

#include "base/compiler.h"
#include "base/json_tree.h"
#include "live_bytes.h"
#include "serve/rollout.h"

enum { SEED = 81, UNDER_WAY = 12, LEAST = 32 };

/* A server of made-up requests, UNDER_WAY of which run at a time. */
struct world {
    struct rollout *r;
    struct rng rng;
    enum fault candidate;
    double now;
    uint64_t asked, refused;
    struct rollout_ticket tickets[UNDER_WAY];
    size_t n;
    uint64_t cut; /* streams that were told to leave the candidate */
};

static void open_world(struct world *w, uint64_t stream, struct rollout_options o)
{
    zp_err err = { 0 };
    *w = (struct world){ .rng = rng_stream(SEED, stream), .now = 1000 };
    if (rollout_open(&w->r, &o, w->now, 1.7e9, &err) != ZP_OK) fail_msg("%s", err.message);
    rollout_set_candidate(w->r, true, w->now);
}

static void end_at(struct world *w, size_t i, const struct outcome *o)
{
    rollout_end(w->r, &w->tickets[i], o, w->now);
    if (rollout_may_move(&w->tickets[i], o->end) || o->end == OUTCOME_MOVED)
        rollout_move(w->r, &w->tickets[i]);
    else
        w->tickets[i] = w->tickets[--w->n];
}

/* One of those under way ends; then those that a trip cuts go on at the baseline. */
static void end_one(struct world *w)
{
    size_t at = (size_t)rng_below(&w->rng, w->n);
    const struct rollout_ticket *t = &w->tickets[at];
    struct outcome o = draw_outcome(&w->rng, t->variant ? w->candidate : HEALTHY, LEAST);
    struct outcome moved = { .end = OUTCOME_MOVED, .n_drawn = 20, .top1_std = 0.4, .loop = 40 };
    end_at(w, at, &o);
    for (size_t i = 0; i < w->n; i++)
        if (rollout_is_cut(w->r, &w->tickets[i])) {
            w->cut++;
            end_at(w, i, &moved);
        }
}

static void ask_one(struct world *w)
{
    char id[32];
    snprintf(id, sizeof id, "req-%llu", (unsigned long long)w->asked++);
    struct rollout_ask ask = { .request_id = id, .n_prompt = 100, .mode_is_open = true };
    while (w->n >= UNDER_WAY) end_one(w);
    w->now += 0.1;
    rollout_tick(w->r, w->now, 1.7e9 - 1000 + w->now);
    if (!rollout_begin(w->r, &ask, w->now, &w->tickets[w->n])) w->refused++;
    else w->n++;
}

static uint64_t sum_ended(const struct rollout *r, int v)
{
    uint64_t sum = 0;
    for (int e = 0; e < OUTCOME_ENDS; e++) sum += r->ended[v][e];
    return sum;
}

/* R2: each request is counted once, as one of the variant it ended on. */
static void check_books(struct world *w)
{
    const struct rollout *r = w->r;
    while (w->n) end_one(w);
    for (int v = 0; v < VARIANTS; v++) assert_int_equal(sum_ended(r, v), r->begun[v]);
    assert_int_equal(w->asked, w->refused + r->begun[0] + r->begun[1] - r->moved);
    assert_int_equal(r->ended[VARIANT_CANDIDATE][OUTCOME_MOVED], w->cut);
}

static void close_world(struct world *w)
{
    check_books(w);
    rollout_close(w->r);
}

/* Lines of the log with this `what`. */
static size_t count_lines(const struct rollout *r, const char *what)
{
    char key[64];
    size_t n = 0;
    snprintf(key, sizeof key, "\"what\": \"%s\"", what);
    for (size_t i = 0; audit_line(&r->audit, i); i++)
        n += strstr(audit_line(&r->audit, i), key) != NULL;
    return n;
}

static void test_a_healthy_candidate_comes_to_all_requests(void **state)
{
    struct world w;
    uint64_t at_share = 0, asked = 0;
    (void)state;
    open_world(&w, 0, (struct rollout_options){ 0 });
    while (w.r->canary.state == CANARY_WAITING) ask_one(&w);
    assert_int_equal(w.r->begun[VARIANT_CANDIDATE], 0);
    assert_true(w.r->breaker.spread.n >= 100);
    while (w.r->canary.share < CANARY_WHOLE && w.asked < 200000) {
        uint32_t share = w.r->canary.share;
        uint64_t before = w.r->begun[VARIANT_CANDIDATE];
        ask_one(&w);
        if (share == 2000) asked++, at_share += w.r->begun[VARIANT_CANDIDATE] - before;
    }
    assert_int_equal(w.r->canary.share, CANARY_WHOLE);
    printf("at 20 %%: %.2f %% of %d requests; all after %d\n",
           100.0 * (double)at_share / (double)asked, (int)asked, (int)w.asked);
    assert_int_equal(count_lines(w.r, "canary_promoted"), 3);
    assert_int_equal(count_lines(w.r, "baseline_calibrated"), 1);
    assert_int_equal(count_lines(w.r, "breaker_opened"), 0);
    uint64_t baseline = w.r->begun[VARIANT_BASELINE];
    for (int i = 0; i < 1000; i++) ask_one(&w);
    assert_int_equal(w.r->begun[VARIANT_BASELINE], baseline);
    close_world(&w);
}

/* Whatever is wrong with it, five of its requests end before it is off; then new requests go to the
 * baseline alone, and after three trips for good. The log tells why, each time. */
static void test_a_bad_candidate_is_off_within_five_requests(void **state)
{
    (void)state;
    for (int f = NONFINITE; f < FAULTS; f++) {
        struct world w;
        open_world(&w, (uint64_t)f, (struct rollout_options){ .canary.hold_at = 2000 });
        w.candidate = (enum fault)f;
        while (w.r->breaker.state == BREAKER_CLOSED && w.asked < 20000) ask_one(&w);
        assert_int_equal(w.r->breaker.state, BREAKER_OPEN);
        uint64_t judged = sum_ended(w.r, VARIANT_CANDIDATE) - w.cut;
        if (judged > 5) fail_msg("%s: off after %d requests", fault_name(w.candidate), (int)judged);
        printf("%s: off after %d, %d cut\n", fault_name(w.candidate), (int)judged, (int)w.cut);
        uint64_t begun = w.r->begun[VARIANT_CANDIDATE];
        while (w.now < w.r->breaker.until - 1) {
            ask_one(&w);
            assert_int_equal(w.r->begun[VARIANT_CANDIDATE], begun);
        }
        for (int i = 0; i < 5000; i++) ask_one(&w);
        assert_int_equal(w.r->canary.state, CANARY_ROLLED_BACK);
        assert_int_equal(w.r->canary.rollbacks[CANARY_BY_BREAKER], 1);
        assert_int_equal(count_lines(w.r, "breaker_opened"), 3);
        assert_int_equal(count_lines(w.r, "canary_rolled_back"), 1);
        assert_true(w.r->begun[VARIANT_CANDIDATE] <= begun + 2); /* probes */
        close_world(&w);
    }
}

/* All streams of a candidate that writes nonsense leave it; those of a slow one end there. */
static void test_streams_under_way_go_on_at_the_baseline(void **state)
{
    (void)state;
    for (int slow = 0; slow < 2; slow++) {
        struct world w;
        open_world(&w, 30, (struct rollout_options){ .canary.hold_at = 9000 });
        w.candidate = slow ? SLOW_TOKEN : FLAT;
        while (w.r->breaker.state == BREAKER_CLOSED && w.asked < 20000) ask_one(&w);
        uint64_t left = 0;
        for (size_t i = 0; i < w.n; i++) left += w.tickets[i].variant == VARIANT_CANDIDATE;
        if (slow) assert_true(w.cut == 0 && left > 0);
        else assert_true(w.cut > 0 && left == 0);
        assert_int_equal(w.r->moved, w.cut);
        close_world(&w);
    }
}

/* The request that fails goes on itself, and what it does there is not held for the baseline's. */
static void test_a_failed_stream_goes_on_itself(void **state)
{
    struct world w;
    struct outcome nan = { .top1_std = NAN }, good = { .n_drawn = 300, .top1_std = 0.2 };
    (void)state;
    open_world(&w, 31, (struct rollout_options){ .canary.hold_at = CANARY_WHOLE });
    while (w.r->canary.state == CANARY_WAITING) ask_one(&w);
    while (w.n) end_one(&w);
    uint64_t known = w.r->breaker.spread.n;
    ask_one(&w);
    assert_int_equal(w.tickets[0].variant, VARIANT_CANDIDATE);
    rollout_end(w.r, &w.tickets[0], &nan, w.now);
    assert_int_equal(w.r->breaker.trips[BREAKER_BY_NONFINITE], 1);
    assert_int_equal(w.r->ended[VARIANT_CANDIDATE][OUTCOME_NONFINITE], 1);
    assert_true(rollout_may_move(&w.tickets[0], OUTCOME_NONFINITE));
    assert_true(rollout_is_cut(w.r, &w.tickets[0]));
    rollout_move(w.r, &w.tickets[0]);
    assert_false(rollout_is_cut(w.r, &w.tickets[0]));
    assert_false(rollout_may_move(&w.tickets[0], OUTCOME_NONFINITE));
    rollout_end(w.r, &w.tickets[0], &good, w.now);
    w.n = 0;
    assert_int_equal(w.r->breaker.spread.n, known);
    close_world(&w);
}

static void test_a_candidate_that_recovers_comes_back(void **state)
{
    struct world w;
    (void)state;
    open_world(&w, 32, (struct rollout_options){ .canary.hold_at = 2000 });
    w.candidate = FLAT;
    while (w.r->breaker.state == BREAKER_CLOSED) ask_one(&w);
    w.candidate = HEALTHY;
    uint64_t epoch = w.r->canary.epoch;
    while (w.r->breaker.state != BREAKER_CLOSED && w.asked < 50000) ask_one(&w);
    assert_int_equal(w.r->breaker.state, BREAKER_CLOSED);
    assert_int_equal(w.r->canary.epoch, epoch + 1); /* its stage begins anew */
    uint64_t begun = w.r->begun[VARIANT_CANDIDATE];
    for (int i = 0; i < 5000; i++) ask_one(&w);
    assert_true(w.r->begun[VARIANT_CANDIDATE] - begun > 800);
    assert_int_equal(count_lines(w.r, "breaker_half_open"), 1);
    assert_int_equal(count_lines(w.r, "breaker_closed"), 1);
    close_world(&w);
}

/* Nothing is promoted while the breaker is not closed, however good the figures before were. */
static void test_an_open_breaker_stops_the_stages(void **state)
{
    struct world w;
    (void)state;
    open_world(&w, 33, (struct rollout_options){ .canary.least_seconds = 1e6 });
    while (w.r->canary.windows[VARIANT_CANDIDATE].requests < 250) ask_one(&w);
    breaker_open(&w.r->breaker, "key-1", "a look at it", w.now);
    rollout_tick(w.r, w.now + 2e6, 0);
    assert_int_equal(w.r->canary.promotions, 0);
    rollout_close_breaker(w.r, "key-1", NULL, w.now + 2e6);
    rollout_tick(w.r, w.now + 4e6, 0);
    assert_int_equal(w.r->canary.promotions, 0); /* the stage has begun anew */
    w.now += 4e6;
    close_world(&w);
}

static void test_users_stay_with_their_variant(void **state)
{
    struct world w;
    (void)state;
    open_world(&w, 34, (struct rollout_options){ .canary = { .sticky = true, .hold_at = 3000 },
                                                 .breaker.most_std = 0.4 });
    rollout_tick(w.r, w.now, 0); /* a fixed limit: nothing to wait for */
    uint64_t candidates = 0, anonymous = 0;
    for (int user = 0; user < 300; user++) {
        enum variant first = VARIANT_BASELINE;
        for (int i = 0; i < 20; i++) {
            char id[32], name[32];
            struct rollout_ticket t;
            struct outcome gone = { .end = OUTCOME_CANCELLED };
            snprintf(id, sizeof id, "%d-%d", user, i);
            snprintf(name, sizeof name, "user-%d", user);
            struct rollout_ask ask = { .request_id = id,
                                       .user = i < 10   ? name
                                               : i < 15 ? ""
                                                        : NULL };
            assert_true(rollout_begin(w.r, &ask, w.now, &t));
            if (i == 0) first = t.variant;
            if (i < 10) assert_int_equal(t.variant, first);
            else anonymous += t.variant;
            rollout_end(w.r, &t, &gone, w.now);
            w.asked++;
        }
        candidates += first;
    }
    assert_true(candidates > 60 && candidates < 120);
    assert_true(anonymous > 700 && anonymous < 1100); /* by their requests */
    close_world(&w);
}

/* What the SLA refuses takes no probe, and is no request of a variant. */
static void test_refused_requests_are_nobodys(void **state)
{
    struct world w;
    (void)state;
    open_world(&w, 35,
               (struct rollout_options){ .canary.hold_at = CANARY_WHOLE,
                                         .sla.limits[LENGTH_SHORT].first_p95 = 1e-3 });
    for (int i = 0; i < 5000; i++) ask_one(&w);
    assert_true(w.refused > 1000);
    assert_int_equal(w.r->sla.classes[LENGTH_SHORT].refused, w.refused);
    breaker_open(&w.r->breaker, "k", NULL, w.now);
    w.now = w.r->breaker.until + 1;
    while (w.n) end_one(&w);
    w.r->sla.classes[LENGTH_SHORT].owed = 1; /* the next one is refused */
    ask_one(&w);
    assert_int_equal(w.n, 0);
    assert_int_equal(w.r->breaker.state, BREAKER_OPEN);
    close_world(&w);
}

static void test_a_roll_back_by_hand_is_instant(void **state)
{
    (void)state;
    for (int cut = 0; cut < 2; cut++) {
        struct world w;
        open_world(&w, 36, (struct rollout_options){ .canary.hold_at = 5000 });
        for (int i = 0; i < 400; i++) ask_one(&w);
        uint64_t begun = w.r->begun[VARIANT_CANDIDATE], at_candidate = 0, must_leave = 0;
        assert_int_equal(rollout_roll_back(w.r, cut, "key-1", "bad answers", w.now, NULL), ZP_OK);
        for (size_t i = 0; i < w.n; i++) {
            at_candidate += w.tickets[i].variant;
            must_leave += rollout_is_cut(w.r, &w.tickets[i]);
        }
        assert_true(at_candidate > 0);
        assert_int_equal(must_leave, cut ? at_candidate : 0);
        for (int i = 0; i < 400; i++) ask_one(&w);
        assert_int_equal(w.r->begun[VARIANT_CANDIDATE], begun);
        const char *last = audit_line(&w.r->audit, w.r->audit.n - 1);
        assert_non_null(strstr(last, "\"actor\": \"key-1\""));
        assert_non_null(strstr(last, "\"why\": \"bad answers\""));
        close_world(&w);
    }
}

static void test_another_baseline_is_calibrated_first(void **state)
{
    struct world w;
    (void)state;
    open_world(&w, 37, (struct rollout_options){ 0 });
    while (w.r->canary.state == CANARY_WAITING) ask_one(&w);
    assert_int_equal(w.n, UNDER_WAY);
    rollout_set_baseline(w.r, w.now);
    assert_int_equal(w.r->canary.state, CANARY_WAITING);
    while (w.n) end_one(&w);
    assert_int_equal(w.r->breaker.spread.n, 0); /* they were the old one's */
    for (int i = 0; i < 300; i++) ask_one(&w);
    assert_int_equal(w.r->canary.state, CANARY_RAMPING);
    rollout_set_candidate(w.r, false, w.now);
    for (int i = 0; i < 300; i++) ask_one(&w);
    assert_int_equal(w.r->canary.share, 0);
    rollout_set_baseline(w.r, w.now);
    assert_int_equal(w.r->canary.state, CANARY_OFF);
    assert_true(breaker_is_ready(&w.r->breaker) == false);
    close_world(&w);
}

static void test_the_document_and_the_log_agree(void **state)
{
    struct world w;
    struct json_build b;
    zp_err err = { 0 };
    char *text;
    json_t *j;
    (void)state;
    open_world(&w, 38, (struct rollout_options){ .canary.hold_at = 2000 });
    w.candidate = LOOPING;
    for (int i = 0; i < 3000; i++) ask_one(&w);
    json_build_open(&b, &err);
    rollout_write(w.r, w.now, NULL, &b);
    assert_int_equal(json_build_finish(&b, &text), ZP_OK);
    assert_int_equal(json_tree_read(text, strlen(text), "doc", ZP_BAD_INPUT, &j, &err), ZP_OK);
    static const char *const parts[] = { "canary", "breaker", "sla", "requests", "audit" };
    for (size_t i = 0; i < ZP_COUNT(parts); i++)
        assert_true(json_is_object(json_object_get(j, parts[i])));
    json_t *log = json_object_get(j, "audit");
    assert_int_equal(json_integer_value(json_object_get(log, "decisions")), w.r->audit.seq);
    assert_int_equal(json_integer_value(json_object_get(log, "lost")), 0);
    assert_string_equal(json_string_value(json_object_get(log, "last_hash")), w.r->audit.last);
    for (size_t i = 0; audit_line(&w.r->audit, i); i++) { /* why, for each */
        json_t *line;
        const char *one = audit_line(&w.r->audit, i);
        assert_int_equal(json_tree_read(one, strlen(one), "line", ZP_BAD_INPUT, &line, &err),
                         ZP_OK);
        assert_true(json_string_length(json_object_get(line, "why")) > 10);
        assert_string_equal(json_string_value(json_object_get(line, "actor")), "rule");
        assert_memory_equal(json_string_value(json_object_get(line, "time")), "2023-11-1", 9);
        json_decref(line);
    }
    json_decref(j);
    mem_free(text);
    close_world(&w);
}

static void test_it_opens_whole_or_not_at_all(void **state)
{
    struct rollout *r;
    uint64_t before = live_bytes(), n = 1;
    (void)state;
    for (;; n++) {
        zp_err err = { 0 };
        mem_fail_at(n, false);
        zp_status status = rollout_open(&r, &(struct rollout_options){ 0 }, 0, 0, &err);
        mem_fail_at(0, false);
        if (status == ZP_OK) break;
        assert_int_equal(status, ZP_NO_MEMORY);
        assert_null(r);
        assert_int_equal(live_bytes(), before);
    }
    assert_int_equal(n, 3);
    rollout_close(r);
    static const struct rollout_options bad[] = { { .canary.hold_at = 20000 },
                                                  { .sla.most_shed = 2 } };
    for (size_t i = 0; i < ZP_COUNT(bad); i++) {
        zp_err err = { 0 };
        assert_int_equal(rollout_open(&r, &bad[i], 0, 0, &err), ZP_USAGE);
        assert_int_equal(live_bytes(), before);
    }
    rollout_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_healthy_candidate_comes_to_all_requests),
        cmocka_unit_test(test_a_bad_candidate_is_off_within_five_requests),
        cmocka_unit_test(test_streams_under_way_go_on_at_the_baseline),
        cmocka_unit_test(test_a_failed_stream_goes_on_itself),
        cmocka_unit_test(test_a_candidate_that_recovers_comes_back),
        cmocka_unit_test(test_an_open_breaker_stops_the_stages),
        cmocka_unit_test(test_users_stay_with_their_variant),
        cmocka_unit_test(test_refused_requests_are_nobodys),
        cmocka_unit_test(test_a_roll_back_by_hand_is_instant),
        cmocka_unit_test(test_another_baseline_is_calibrated_first),
        cmocka_unit_test(test_the_document_and_the_log_agree),
        cmocka_unit_test(test_it_opens_whole_or_not_at_all),
    };
    printf("seed %d\n", SEED);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
