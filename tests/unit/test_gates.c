/* test_gates.c: policies of position gates as functions of the step and of gradients that the test
 * makes: what closes, when, why, and that a restored state goes on alike. */
#include "golden.h"
#include "in_folder.h"

#include "train/gates.h"

enum { STEPS = 100 };

static zp_model *model;

static struct gates open_gates(struct gates_options o)
{
    struct gates g;
    o.steps = STEPS, o.seed = 5;
    GOLDEN_OK(gates_open(&g, &model->position, &o, err));
    return g;
}

/* Runs steps [from, to): the gradient of unit i is d(i) each time. */
static void run(struct gates *g, uint64_t from, uint64_t to, float (*d)(size_t unit))
{
    for (uint64_t step = from; step < to; step++) {
        gates_begin(g, step);
        for (size_t i = 0; d && gates_learn(g, step) && i < g->n; i++) g->d[i] = d(i);
        gates_end(g, step, 1);
    }
}

/* Every second unit is needed: its loss falls as the gate grows. */
static float needed(size_t unit)
{
    return unit % 2 ? -1.0f : 0.001f;
}

/* What a run of gradients d tells, if anything. */
static enum gates_pace pace_of(struct gates_options o, float (*d)(size_t unit))
{
    struct gates g = open_gates(o);
    enum gates_pace found = GATES_PACE_FINE;
    for (uint64_t step = 0; step < STEPS; step++) {
        run(&g, step, step + 1, d);
        if (g.pace != GATES_PACE_FINE) found = g.pace;
    }
    gates_free(&g);
    return found;
}

static float all_needed(size_t unit)
{
    (void)unit;
    return -1;
}

static void test_a_penalty_outside_of_where_it_works_shows(void **state)
{
    (void)state;
    static const enum gates_policy policies[] = { GATES_L1, GATES_L0 };
    for (int i = 0; i < 2; i++) {
        struct gates_options o = { .policy = policies[i], .ramp = 0.8 };
        o.lambda = 1e9;
        assert_int_equal(pace_of(o, all_needed), GATES_PACE_FAST);
        o.lambda = 1e-9;
        assert_int_equal(pace_of(o, all_needed), GATES_PACE_SLOW);
    }
    assert_int_equal(pace_of((struct gates_options){ .policy = GATES_ABRUPT }, NULL),
                     GATES_PACE_FINE);
}

static size_t n_open_now(const struct gates *g)
{
    size_t n = 0;
    for (size_t i = 0; i < g->n_pairs; i++) n += g->open[i];
    return n;
}

static void test_abrupt_closes_all_before_the_first_step(void **state)
{
    (void)state;
    struct gates g = open_gates((struct gates_options){ .policy = GATES_ABRUPT });
    const struct net_gates *view = gates_begin(&g, 0);
    assert_null(view->mix);
    assert_int_equal(n_open_now(&g), 0);
    gates_end(&g, 0, 1);
    assert_int_equal(g.n_closings, g.n_open);
    assert_int_equal(g.n_closed, g.n_open);
    gates_end(&g, 1, 1);
    assert_int_equal(g.n_closings, 0);
    gates_free(&g);
}

static void test_a_share_closes_slow_pairs_first(void **state)
{
    (void)state;
    struct gates g = open_gates((struct gates_options){ .policy = GATES_ABRUPT, .share = 0.25 });
    run(&g, 0, 1, NULL);
    assert_int_equal(g.n_closed, g.n_close);
    assert_int_equal(g.n_close, (g.n_open + 2) / 4);
    uint32_t slowest_open = 0, fastest_closed = model->position.n_pair;
    for (size_t i = 0; i < g.n_pairs; i++) {
        uint32_t pair = gates_place_of(&g, i).pair;
        if (g.closed[i] && pair < fastest_closed) fastest_closed = pair;
        if (g.exists[i] && !g.closed[i] && pair > slowest_open) slowest_open = pair;
    }
    assert_true(fastest_closed >= slowest_open);
    gates_free(&g);
}

static void test_dropout_draws_on_the_way_and_ends_closed(void **state)
{
    (void)state;
    struct gates g = open_gates((struct gates_options){ .policy = GATES_DROPOUT, .ramp = 0.5 });
    size_t before = g.n_open, closed = 0;
    gates_begin(&g, 0);
    assert_int_equal(n_open_now(&g), g.n_open);
    for (uint64_t step = 0; step < STEPS; step++) {
        run(&g, step, step + 1, NULL);
        assert_true(g.n_closed >= closed); // A1
        closed = g.n_closed;
        if (step == 24) before = n_open_now(&g);
        if (step >= 50) assert_int_equal(n_open_now(&g), 0);
    }
    assert_true(before > g.n_open / 4 && before < g.n_open * 3 / 4);
    assert_int_equal(g.n_closed, g.n_open);
    gates_free(&g);
}

static void test_stages_close_groups_evenly(void **state)
{
    (void)state;
    struct gates g = open_gates((struct gates_options){ .policy = GATES_STAGED, .ramp = 0.4,
                                                        .stages = 4 });
    for (uint64_t step = 0; step < STEPS; step++) {
        size_t want = g.n_open * (step < 40 ? step / 10 + 1 : 4) / 4;
        gates_begin(&g, step);
        assert_int_equal(n_open_now(&g), g.n_open - want);
        gates_end(&g, step, 1);
        assert_int_equal(g.n_closed, want);
        assert_int_equal(g.n_closings > 0, step < 40 && step % 10 == 0);
    }
    gates_free(&g);
}

static void test_an_order_says_who_may_close(void **state)
{
    (void)state;
    for (int policy = GATES_ABRUPT; policy < GATES_POLICIES; policy++) {
        uint32_t order[5] = { 7, 3, 11, 2, 5 };
        struct gates g = open_gates((struct gates_options){ .policy = (enum gates_policy)policy,
                                                            .order = order, .n_order = 5 });
        run(&g, 0, STEPS, needed);
        assert_int_equal(g.n_closed, 5);
        for (size_t i = 0; i < 5; i++) assert_true(g.closed[order[i]]);
        gates_free(&g);
    }
}

static void test_rotation_dropout_closes_nothing(void **state)
{
    (void)state;
    struct gates g = open_gates((struct gates_options){ .policy = GATES_KEEP, .rate = 0.25 });
    size_t left_out = 0;
    for (uint64_t step = 0; step < STEPS; step++) {
        gates_begin(&g, step);
        left_out += g.n_open - n_open_now(&g);
        gates_end(&g, step, 1);
    }
    double share = (double)left_out / (double)(g.n_open * STEPS);
    assert_true(share > 0.2 && share < 0.3);
    assert_int_equal(g.n_closed, 0);
    assert_non_null(gates_now(&g, STEPS)->open);
    assert_int_equal(n_open_now(&g), g.n_open);
    gates_free(&g);
}

static void test_l1_closes_what_is_not_needed(void **state)
{
    (void)state;
    struct gates g = open_gates((struct gates_options){ .policy = GATES_L1, .share = 0.5,
                                                        .lambda = 1 });
    assert_non_null(gates_begin(&g, 0)->mix);
    run(&g, 0, 60, needed);
    assert_int_equal(g.n_closed, g.n_close);
    for (size_t i = 0; i < g.n_pairs; i++)
        if (g.exists[i]) assert_int_equal(g.closed[i], i % 2 == 0);
    const struct net_gates *view = gates_begin(&g, 60);
    assert_null(view->mix); // A3
    for (size_t i = 0; i < g.n_pairs; i++)
        if (g.exists[i]) assert_int_equal(view->open[i], i % 2);
    gates_free(&g);
}

static float nothing(size_t unit)
{
    (void)unit;
    return 0.0f;
}

static float asleep_later(size_t unit)
{
    return gates_place_of(&(struct gates){ .position = &model->position, .n_pairs = SIZE_MAX },
                          unit).layer == 0 ? 1e-9f : -1.0f;
}

static void test_l0_closes_what_is_not_needed(void **state)
{
    (void)state;
    struct gates g = open_gates((struct gates_options){ .policy = GATES_L0, .share = 0.5,
                                                        .lambda = 100, .ramp = 1 });
    size_t between = 0, at_zero = 0;
    for (uint64_t step = 0; step < STEPS; step++) {
        const struct net_gates *view = gates_begin(&g, step);
        for (size_t i = 0; i < g.n_pairs; i++) {
            assert_true(view->mix[i] >= 0 && view->mix[i] <= 1);
            between += view->mix[i] > 0 && view->mix[i] < 1;
            g.d[i] = needed(i) * 0.01f;
        }
        gates_end(&g, step, 1);
        for (size_t i = 0; i < g.n_closings; i++)
            at_zero += strcmp(g.closings[i].reason, "at zero") == 0;
    }
    assert_true(between > 0); /* draws */
    assert_true(at_zero > g.n_close / 2);
    for (size_t i = 0; i < g.n_pairs; i++)
        if (g.closed[i]) assert_int_equal(i % 2, 0);
    gates_free(&g);
}

static void test_what_cost_too_much_opens_again_and_stays(void **state)
{
    (void)state;
    struct gates g = open_gates((struct gates_options){ .policy = GATES_L1, .lambda = 1e4,
                                                        .ramp = 1 });
    for (int time = 0; time < 2; time++) {
        uint64_t from = time ? 60 : 0;
        run(&g, from, time ? 99 : 60, needed);
        size_t closed = g.n_closed;
        assert_int_equal(closed, g.n_open);
        assert_int_equal(gates_open_again(&g, from), closed);
        assert_int_equal(g.n_closings, closed); /* for the record */
        assert_int_equal(g.n_closed, 0);
    }
    run(&g, 60, STEPS - 1, needed);
    assert_int_equal(g.n_closed, 0);
    run(&g, STEPS - 1, STEPS, needed);
    assert_int_equal(g.n_closed, g.n_open); /* the end of the ramp */
    assert_int_equal(gates_open_again(&g, STEPS), 0);
    gates_free(&g);
}

static void test_l1_closes_heads_without_gradient(void **state)
{
    (void)state;
    struct gates g = open_gates((struct gates_options){ .policy = GATES_L1, .lambda = 1e-6,
                                                        .t_cool = 3 });
    run(&g, 0, 9, asleep_later); /* eight steps of calibration */
    assert_int_equal(g.n_closed, 0);
    run(&g, 9, 11, asleep_later);
    assert_true(g.n_closed > 0);
    for (size_t i = 0; i < g.n_closings; i++) {
        assert_int_equal(gates_place_of(&g, g.closings[i].unit).layer, 0);
        assert_string_equal(g.closings[i].reason, "no gradient");
    }
    gates_free(&g);
}

static void test_ramp_ends_with_all_that_shall_close(void **state)
{
    (void)state;
    struct gates g = open_gates((struct gates_options){ .policy = GATES_L1, .lambda = 1e-3 });
    run(&g, 0, 59, needed);
    assert_true(g.n_closed < g.n_open);
    run(&g, 59, 60, needed);
    assert_int_equal(g.n_closed, g.n_open);
    run(&g, 60, STEPS, nothing);
    gates_free(&g);
}

static void test_restored_state_goes_on_alike(void **state)
{
    (void)state;
    struct gates_options o = { .policy = GATES_L1, .lambda = 0.3, .share = 0.7 };
    struct gates a = open_gates(o), b = open_gates(o);
    struct checkpoint_part parts[GATES_PARTS];
    struct checkpoint c;
    const char *path = in_folder("gates.zpck");
    run(&a, 0, 33, needed);
    gates_parts(&a, parts);
    GOLDEN_OK(checkpoint_write(path, 33, &(struct checkpoint_key){ 0 }, parts, GATES_PARTS, err));
    GOLDEN_OK(checkpoint_open(&c, path, NULL, err));
    GOLDEN_OK(gates_restore(&b, &c, err));
    checkpoint_close(&c);
    assert_int_equal(a.n_closed, b.n_closed);
    run(&a, 33, STEPS, needed);
    run(&b, 33, STEPS, needed);
    assert_memory_equal(a.closed, b.closed, a.n);
    assert_memory_equal(a.learned, b.learned, a.n * sizeof *a.learned);
    gates_free(&a);
    gates_free(&b);
}

static void test_biases_are_units_of_their_own(void **state)
{
    (void)state;
    zp_model *mixed = golden_small("zerope-mixed"), *before = model;
    model = mixed;
    struct gates g = open_gates((struct gates_options){ .policy = GATES_ABRUPT });
    size_t n_bias = 0, n_pair = 0;
    for (size_t i = 0; i < g.n; i++) {
        struct gates_place at = gates_place_of(&g, i);
        if (!g.exists[i]) continue;
        assert_int_equal(at.is_bias, position_layer_has_bias(&mixed->position, at.layer));
        n_bias += at.is_bias, n_pair += !at.is_bias;
    }
    assert_true(n_bias > 0 && n_pair > 0);
    const struct net_gates *view = gates_begin(&g, 0);
    for (size_t i = 0; i < g.n - g.n_pairs; i++) assert_true(view->bias[i] == 0.0f);
    gates_free(&g);
    model = before;
    zp_model_close(mixed);
}

static void refused(struct gates_options o, const char *part)
{
    struct gates g;
    zp_err err = { 0 };
    assert_int_not_equal(gates_open(&g, &model->position, &o, &err), ZP_OK);
    if (!strstr(err.message, part)) fail_msg("'%s' does not say '%s'", err.message, part);
}

static void test_wrong_wishes_are_refused(void **state)
{
    (void)state;
    enum gates_policy policy;
    zp_err err = { 0 };
    uint32_t order[4096];
    memset(order, 0xff, sizeof order);
    refused((struct gates_options){ .policy = GATES_ABRUPT }, "no steps");
    refused((struct gates_options){ .steps = 1, .share = 1.5 }, "1.5 of the gates");
    refused((struct gates_options){ .steps = 1, .ramp = -1 }, "-1 of the steps");
    refused((struct gates_options){ .steps = 1, .rate = 1 }, "left out");
    refused((struct gates_options){ .steps = 1, .lambda = (double)NAN }, "lambda");
    refused((struct gates_options){ .steps = 1, .order = order, .n_order = 1 }, "order of closing");
    assert_int_equal(gates_find("sudden", &policy, &err), ZP_USAGE);
    assert_non_null(strstr(err.message, "abrupt"));
}

static int open_model(void **state)
{
    model = golden_small("gguf-llama-yarn");
    return make_folder(state);
}

static int close_model(void **state)
{
    zp_model_close(model);
    return remove_folder(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_abrupt_closes_all_before_the_first_step),
        cmocka_unit_test(test_a_penalty_outside_of_where_it_works_shows),
        cmocka_unit_test(test_a_share_closes_slow_pairs_first),
        cmocka_unit_test(test_dropout_draws_on_the_way_and_ends_closed),
        cmocka_unit_test(test_stages_close_groups_evenly),
        cmocka_unit_test(test_an_order_says_who_may_close),
        cmocka_unit_test(test_rotation_dropout_closes_nothing),
        cmocka_unit_test(test_l1_closes_what_is_not_needed),
        cmocka_unit_test(test_l0_closes_what_is_not_needed),
        cmocka_unit_test(test_what_cost_too_much_opens_again_and_stays),
        cmocka_unit_test(test_l1_closes_heads_without_gradient),
        cmocka_unit_test(test_ramp_ends_with_all_that_shall_close),
        cmocka_unit_test(test_restored_state_goes_on_alike),
        cmocka_unit_test(test_biases_are_units_of_their_own),
        cmocka_unit_test(test_wrong_wishes_are_refused),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
