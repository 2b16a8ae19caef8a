/* test_sample.c: samplers: each option by itself and in order, distributions, ties, bad logits,
 * log-probabilities. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <math.h>
#include <cmocka.h>

#include "base/mem.h"
#include "model/sample.h"

#define SEED 20240607u

static const float slope[8] = { 0.0f, 1.0f, 2.0f, 3.0f, 4.0f, 5.0f, 6.0f, 7.0f };

static zp_sampler *open_sampler(uint32_t n, zp_sampler_options o)
{
    zp_sampler *s;
    zp_err err = { 0 };
    if (sample_open(&s, n, &o, &err) != ZP_OK) fail_msg("%s", err.message);
    return s;
}

static int32_t draw_with(zp_sampler *s, const float *logits, const int32_t *history, size_t n,
                         uint64_t index)
{
    int32_t id = -1;
    zp_err err = { 0 };
    if (zp_sampler_draw(s, logits, history, n, index, &id, &err) != ZP_OK)
        fail_msg("%s", err.message);
    return id;
}

static int32_t one_draw(zp_sampler_options o, const float *logits, uint32_t n,
                        const int32_t *history, size_t n_history, uint64_t index)
{
    zp_sampler *s = open_sampler(n, o);
    int32_t id = draw_with(s, logits, history, n_history, index);
    zp_sampler_close(s);
    return id;
}

/* Bit set of the ids that 4000 draws give: what truncation keeps, as tokens at hand are likely
 * enough. */
static unsigned kept_set(zp_sampler_options o, const float *logits, uint32_t n)
{
    unsigned set = 0;
    o.seed = SEED;
    zp_sampler *s = open_sampler(n, o);
    for (uint64_t i = 0; i < 4000; i++) set |= 1u << draw_with(s, logits, NULL, 0, i);
    zp_sampler_close(s);
    return set;
}

static void test_greedy_takes_the_lowest_id_of_ties(void **state)
{
    (void)state;
    const float logits[5] = { 1, 3, 3, -2, 3 };
    zp_bias bias = { .id = 3, .value = 0 };
    assert_int_equal(one_draw((zp_sampler_options){ 0 }, logits, 5, NULL, 0, 9), 1);
    /* the path with bias and the path with truncation agree */
    assert_int_equal(
        one_draw((zp_sampler_options){ .bias = &bias, .n_bias = 1 }, logits, 5, NULL, 0, 9), 1);
    assert_int_equal(
        one_draw((zp_sampler_options){ .temperature = 1, .top_k = 1 }, logits, 5, NULL, 0, 9), 1);
}

static void test_draw_depends_on_seed_and_index_only(void **state)
{
    (void)state;
    zp_sampler_options o = { .temperature = 2, .seed = SEED };
    zp_sampler *a = open_sampler(8, o), *b = open_sampler(8, o);
    int32_t forward[200];
    unsigned differ = 0;
    for (uint64_t i = 0; i < 200; i++) forward[i] = draw_with(a, slope, NULL, 0, i);
    for (uint64_t i = 200; i-- > 0;) assert_int_equal(draw_with(b, slope, NULL, 0, i), forward[i]);
    o.seed = SEED + 1;
    zp_sampler *c = open_sampler(8, o);
    for (uint64_t i = 0; i < 200; i++) differ += draw_with(c, slope, NULL, 0, i) != forward[i];
    assert_true(differ > 20);
    zp_sampler_close(a);
    zp_sampler_close(b);
    zp_sampler_close(c);
}

/* Pearson's chi-square of 40000 draws against softmax(logits / t) over the kept ids. */
static double chi_square(zp_sampler_options o, const float *logits, uint32_t n, unsigned kept)
{
    double p[16] = { 0 }, total = 0, chi = 0;
    unsigned counts[16] = { 0 }, draws = 40000;
    for (uint32_t i = 0; i < n; i++)
        if (kept >> i & 1) total += p[i] = exp(logits[i] / (double)o.temperature);
    zp_sampler *s = open_sampler(n, o);
    for (unsigned i = 0; i < draws; i++) counts[draw_with(s, logits, NULL, 0, i)]++;
    zp_sampler_close(s);
    for (uint32_t i = 0; i < n; i++) {
        double expected = draws * p[i] / total;
        if (p[i] == 0) assert_int_equal(counts[i], 0);
        else chi += (counts[i] - expected) * (counts[i] - expected) / expected;
    }
    return chi;
}

static void test_frequencies_follow_the_softmax(void **state)
{
    (void)state;
    const float logits[8] = { 0.5f, -1, 2, 0, 1.5f, -0.5f, 1, 0.25f };
    print_message("seed %u\n", SEED);
    /* 7 degrees of freedom: 40 is exceeded once in 10^6 */
    for (unsigned k = 0; k < 4; k++) {
        zp_sampler_options o = { .temperature = 0.5f + 0.5f * (float)k, .seed = SEED + k };
        assert_true(chi_square(o, logits, 8, 0xFF) < 40);
    }
    zp_sampler_options o = { .temperature = 1.5f, .top_k = 4, .seed = SEED };
    assert_true(chi_square(o, logits, 8, 1 << 2 | 1 << 4 | 1 << 6 | 1 << 0) < 30);
}

static void test_top_k_keeps_the_best_and_may_exceed_the_vocabulary(void **state)
{
    (void)state;
    const float ties[6] = { 1, 2, 2, 2, 0, 2 };
    assert_int_equal(kept_set((zp_sampler_options){ .temperature = 3, .top_k = 3 }, slope, 8),
                     0xE0);
    assert_int_equal(kept_set((zp_sampler_options){ .temperature = 9, .top_k = 8 }, slope, 8),
                     0xFF);
    assert_int_equal(kept_set((zp_sampler_options){ .temperature = 9, .top_k = 1000 }, slope, 8),
                     0xFF);
    /* of equal logits the lower ids stay */
    assert_int_equal(kept_set((zp_sampler_options){ .temperature = 1, .top_k = 2 }, ties, 6),
                     1 << 1 | 1 << 2);
}

static void test_top_p_keeps_the_smallest_set_that_reaches_it(void **state)
{
    (void)state;
    const float halves[4] = { logf(0.5f), logf(0.25f), logf(0.125f), logf(0.125f) };
    const struct {
        float p;
        unsigned kept;
    } cases[] = {
        { 0, 0xF },   { 1, 0xF },   { 1e-6f, 1 }, { 0.49f, 1 },
        { 0.51f, 3 }, { 0.74f, 3 }, { 0.76f, 7 }, { 0.9f, 0xF },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        zp_sampler_options o = { .temperature = 1, .top_p = cases[i].p };
        assert_int_equal(kept_set(o, halves, 4), cases[i].kept);
    }
    /* a share of what top_k leaves: of 0.5 and 0.25, the first is two thirds */
    assert_int_equal(
        kept_set((zp_sampler_options){ .temperature = 1, .top_k = 2, .top_p = 0.6f }, halves, 4),
        1);
    assert_int_equal(
        kept_set((zp_sampler_options){ .temperature = 1, .top_k = 2, .top_p = 0.7f }, halves, 4),
        3);
    /* min_p comes last: it does not make top_p's share smaller (0.5 / 0.875 < 0.6 < 0.5 / 0.75) */
    assert_int_equal(
        kept_set((zp_sampler_options){ .temperature = 1, .top_k = 3, .top_p = 0.6f, .min_p = 0.4f },
                 halves, 4),
        3);
    /* before the temperature: heat does not widen it */
    assert_int_equal(
        kept_set((zp_sampler_options){ .temperature = 100, .top_p = 0.49f }, halves, 4), 1);
}

static void test_min_p_is_a_share_of_the_best(void **state)
{
    (void)state;
    const float halves[4] = { logf(0.125f), logf(0.5f), logf(0.25f), logf(0.125f) };
    assert_int_equal(kept_set((zp_sampler_options){ .temperature = 1, .min_p = 0.4f }, halves, 4),
                     1 << 1 | 1 << 2);
    assert_int_equal(kept_set((zp_sampler_options){ .temperature = 50, .min_p = 0.6f }, halves, 4),
                     1 << 1);
    assert_int_equal(kept_set((zp_sampler_options){ .temperature = 1, .min_p = 1 }, halves, 4),
                     1 << 1);
    assert_int_equal(kept_set((zp_sampler_options){ .temperature = 1, .min_p = 0.2f }, halves, 4),
                     0xF);
}

static void test_bias_moves_and_bans(void **state)
{
    (void)state;
    zp_bias up = { .id = 0, .value = 8 }, ban[7];
    for (int32_t i = 0; i < 7; i++) ban[i] = (zp_bias){ .id = i == 3 ? 7 : i, .value = -INFINITY };
    assert_int_equal(
        one_draw((zp_sampler_options){ .bias = &up, .n_bias = 1 }, slope, 8, NULL, 0, 0), 0);
    /* all but one banned: every sampler must give that one */
    zp_sampler_options all[] = { { 0 },
                                 { .temperature = 1 },
                                 { .temperature = 1, .top_k = 5 },
                                 { .temperature = 1, .top_p = 0.5f },
                                 { .temperature = 0.01f, .min_p = 0.5f } };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        all[i].bias = ban;
        all[i].n_bias = 7;
        for (uint64_t k = 0; k < 50; k++)
            assert_int_equal(one_draw(all[i], slope, 8, NULL, 0, k), 3);
    }
}

static void test_everything_banned_is_an_error(void **state)
{
    (void)state;
    const float logits[2] = { 1, 2 };
    zp_bias ban[2] = { { .id = 0, .value = -INFINITY }, { .id = 1, .value = -INFINITY } };
    zp_sampler *s =
        open_sampler(2, (zp_sampler_options){ .temperature = 1, .bias = ban, .n_bias = 2 });
    int32_t id = -1;
    zp_err err = { 0 };
    assert_int_equal(zp_sampler_draw(s, logits, NULL, 0, 0, &id, &err), ZP_BAD_INPUT);
    assert_non_null(strstr(err.message, "bans all 2 tokens"));
    assert_int_equal(id, -1);
    zp_sampler_close(s);
}

static void test_penalties_act_inside_their_window(void **state)
{
    (void)state;
    const float logits[4] = { 4.0f, 3.0f, -1.0f, -3.0f };
    const int32_t once[1] = { 0 }, thrice[3] = { 0, 0, 0 }, far[5] = { 0, 2, 2, 2, 2 };
    /* repeat: 4 / 2 = 2 < 3, however often it occurred */
    zp_sampler_options repeat = { .repeat_penalty = 2 };
    assert_int_equal(one_draw(repeat, logits, 4, once, 1, 0), 1);
    repeat.repeat_penalty = 1.2f; /* 4 / 1.2 > 3, also for three occurrences */
    assert_int_equal(one_draw(repeat, logits, 4, thrice, 3, 0), 0);
    /* frequency grows with the count, presence does not */
    assert_int_equal(
        one_draw((zp_sampler_options){ .frequency_penalty = 0.5f }, logits, 4, once, 1, 0), 0);
    assert_int_equal(
        one_draw((zp_sampler_options){ .frequency_penalty = 0.5f }, logits, 4, thrice, 3, 0), 1);
    assert_int_equal(
        one_draw((zp_sampler_options){ .presence_penalty = 0.5f }, logits, 4, thrice, 3, 0), 0);
    assert_int_equal(
        one_draw((zp_sampler_options){ .presence_penalty = 1.5f }, logits, 4, once, 1, 0), 1);
    /* out of the window */
    zp_sampler_options window = { .presence_penalty = 1.5f, .penalty_last_n = 4 };
    assert_int_equal(one_draw(window, logits, 4, far, 5, 0), 0);
    window.penalty_last_n = 5;
    assert_int_equal(one_draw(window, logits, 4, far, 5, 0), 1);
    /* a negative logit is multiplied: -1 * 4 falls below -3 */
    const float negative[2] = { -1.0f, -3.0f };
    assert_int_equal(one_draw((zp_sampler_options){ .repeat_penalty = 4 }, negative, 2, once, 1, 0),
                     1);
}

static void test_one_draw_leaves_no_trace_in_the_next(void **state)
{
    (void)state;
    const int32_t history[3] = { 7, 7, 6 };
    zp_sampler *s = open_sampler(8, (zp_sampler_options){ .frequency_penalty = 3 });
    assert_int_equal(draw_with(s, slope, history, 3, 0), 5);
    assert_int_equal(draw_with(s, slope, NULL, 0, 1), 7);
    assert_int_equal(draw_with(s, slope, history, 3, 2), 5);
    zp_sampler_close(s);
}

static void test_bad_logits_name_the_token(void **state)
{
    (void)state;
    const float bad[3] = { NAN, INFINITY, -INFINITY };
    const zp_sampler_options all[3] = { { 0 },
                                        { .temperature = 1 },
                                        { .temperature = 1, .top_k = 2, .repeat_penalty = 2 } };
    for (size_t i = 0; i < 9; i++) {
        float logits[8];
        int32_t id = -7;
        zp_err err = { 0 };
        zp_sampler *s = open_sampler(8, all[i / 3]);
        memcpy(logits, slope, sizeof logits);
        logits[5] = bad[i % 3];
        assert_int_equal(zp_sampler_draw(s, logits, NULL, 0, 0, &id, &err), ZP_RUN);
        assert_non_null(strstr(err.message, "token 5"));
        assert_int_equal(id, -7);
        zp_sampler_close(s);
    }
}

static void assert_refused(zp_sampler_options o, const char *part)
{
    zp_sampler *s;
    zp_err err = { 0 };
    assert_int_equal(sample_open(&s, 8, &o, &err), ZP_USAGE);
    if (strstr(err.message, part) == NULL) fail_msg("\"%s\" lacks \"%s\"", err.message, part);
    assert_null(s);
}

static void test_options_out_of_range_are_refused(void **state)
{
    (void)state;
    zp_bias outside = { .id = 8, .value = 1 }, nan_bias = { .id = 1, .value = NAN },
            up = { .id = 1, .value = INFINITY };
    assert_refused((zp_sampler_options){ .temperature = -1 }, "temperature is -1");
    assert_refused((zp_sampler_options){ .temperature = NAN }, "temperature is");
    assert_refused((zp_sampler_options){ .top_p = 1.5f }, "top_p is 1.5");
    assert_refused((zp_sampler_options){ .min_p = -0.1f }, "min_p is -0.1");
    assert_refused((zp_sampler_options){ .repeat_penalty = -2 }, "repeat penalty is -2");
    assert_refused((zp_sampler_options){ .frequency_penalty = INFINITY }, "frequency penalty");
    assert_refused((zp_sampler_options){ .presence_penalty = NAN }, "presence penalty");
    assert_refused((zp_sampler_options){ .bias = &outside, .n_bias = 1 },
                   "token 8, the vocabulary has 8");
    assert_refused((zp_sampler_options){ .bias = &nan_bias, .n_bias = 1 }, "bias of token 1");
    assert_refused((zp_sampler_options){ .bias = &up, .n_bias = 1 }, "bias of token 1");
}

static void test_history_outside_the_vocabulary_is_an_error(void **state)
{
    (void)state;
    const int32_t history[2] = { 1, 8 };
    zp_sampler *s = open_sampler(8, (zp_sampler_options){ .repeat_penalty = 2 });
    int32_t id;
    zp_err err = { 0 };
    assert_int_equal(zp_sampler_draw(s, slope, history, 2, 0, &id, &err), ZP_BAD_INPUT);
    assert_non_null(strstr(err.message, "token 8 at 1"));
    assert_int_equal(draw_with(s, slope, history, 1, 0), 7); /* and the counts are clean */
    zp_sampler_close(s);
}

/* Against sorting: a large vocabulary with many ties, all truncations at once. */
static void test_truncation_equals_sorting(void **state)
{
    (void)state;
    enum { N = 3000 };
    static float logits[N];
    static unsigned seen[N];
    uint64_t r = SEED;
    print_message("seed %u\n", SEED);
    for (int i = 0; i < N; i++) {
        r = r * 6364136223846793005u + 1442695040888963407u;
        logits[i] = (float)(r >> 40 & 63) / 8; /* 64 different values */
    }
    zp_sampler_options o = { .temperature = 5, .top_k = 60, .seed = SEED };
    zp_sampler *s = open_sampler(N, o);
    for (uint64_t i = 0; i < 6000; i++) seen[draw_with(s, logits, NULL, 0, i)]++;
    zp_sampler_close(s);
    for (int i = 0; i < N; i++) {
        int before = 0; /* tokens that come before i in the order */
        for (int k = 0; k < N; k++)
            before += logits[k] > logits[i] || (logits[k] == logits[i] && k < i);
        if (before < 60) assert_true(seen[i] > 0);
        else assert_int_equal(seen[i], 0);
    }
}

static void test_logprobs_are_the_log_softmax(void **state)
{
    (void)state;
    const float logits[6] = { 1, 3, -20, 3, 500, 499 };
    struct sample_logprob top[6];
    double one;
    zp_err err = { 0 };
    assert_int_equal(sample_top(logits, 6, 6, top, &err), ZP_OK);
    const int32_t order[6] = { 4, 5, 1, 3, 0, 2 };
    double norm = 500 + log(1 + exp(-1.0));
    for (int i = 0; i < 6; i++) {
        assert_int_equal(top[i].id, order[i]);
        assert_true(fabs(top[i].logprob - (logits[order[i]] - norm)) < 1e-12 * 500);
        assert_int_equal(sample_logprob_of(logits, 6, order[i], &one, &err), ZP_OK);
        assert_true(one == top[i].logprob);
    }
    assert_int_equal(sample_top(logits, 6, 2, top, &err), ZP_OK);
    assert_int_equal(top[1].id, 5);
    assert_int_equal(sample_top(logits, 6, 0, top, &err), ZP_OK);
    assert_int_equal(sample_top(logits, 6, 7, top, &err), ZP_USAGE);
    err = (zp_err){ 0 };
    assert_int_equal(sample_logprob_of(logits, 6, 6, &one, &err), ZP_BAD_INPUT);
    err = (zp_err){ 0 };
    const float bad[2] = { 1, NAN };
    assert_int_equal(sample_top(bad, 2, 1, top, &err), ZP_RUN);
    assert_non_null(strstr(err.message, "token 1"));
}

static uint64_t allocations(void)
{
    struct mem_stats stats;
    mem_stats_read(&stats);
    return stats.allocations;
}

static void test_draws_allocate_nothing(void **state)
{
    (void)state;
    const int32_t history[2] = { 1, 2 };
    zp_sampler_options o = {
        .temperature = 1, .top_k = 5, .top_p = 0.9f, .min_p = 0.01f, .repeat_penalty = 1.1f
    };
    zp_sampler *s = open_sampler(8, o);
    uint64_t before = allocations();
    for (uint64_t i = 0; i < 100; i++) draw_with(s, slope, history, 2, i);
    assert_int_equal(allocations(), before);
    zp_sampler_close(s);
}

static void test_each_failed_allocation_is_reported(void **state)
{
    (void)state;
    zp_bias bias = { .id = 1, .value = 1 };
    zp_sampler_options o = { .bias = &bias, .n_bias = 1 };
    struct mem_stats stats;
    for (uint64_t n = 1;; n++) {
        zp_sampler *s;
        zp_err err = { 0 };
        mem_fail_at(n, false);
        zp_status status = sample_open(&s, 100, &o, &err);
        mem_fail_at(0, false);
        if (status == ZP_OK) {
            assert_true(n > 5);
            zp_sampler_close(s);
            break;
        }
        assert_int_equal(status, ZP_NO_MEMORY);
        assert_null(s);
    }
    mem_stats_read(&stats);
    assert_int_equal(stats.live[MEM_SCRATCH], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_greedy_takes_the_lowest_id_of_ties),
        cmocka_unit_test(test_draw_depends_on_seed_and_index_only),
        cmocka_unit_test(test_frequencies_follow_the_softmax),
        cmocka_unit_test(test_top_k_keeps_the_best_and_may_exceed_the_vocabulary),
        cmocka_unit_test(test_top_p_keeps_the_smallest_set_that_reaches_it),
        cmocka_unit_test(test_min_p_is_a_share_of_the_best),
        cmocka_unit_test(test_bias_moves_and_bans),
        cmocka_unit_test(test_everything_banned_is_an_error),
        cmocka_unit_test(test_penalties_act_inside_their_window),
        cmocka_unit_test(test_one_draw_leaves_no_trace_in_the_next),
        cmocka_unit_test(test_bad_logits_name_the_token),
        cmocka_unit_test(test_options_out_of_range_are_refused),
        cmocka_unit_test(test_history_outside_the_vocabulary_is_an_error),
        cmocka_unit_test(test_truncation_equals_sorting),
        cmocka_unit_test(test_logprobs_are_the_log_softmax),
        cmocka_unit_test(test_draws_allocate_nothing),
        cmocka_unit_test(test_each_failed_allocation_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
