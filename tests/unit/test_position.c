/* test_position.c: questions to the position table, against their definitions. */
#include "golden.h"

#include "model/engine.h"

/* ---- what a query sees ----------------------------------------------------------------------- */

/* By the words of position.h, position by position. */
static bool sees(uint32_t layer_window, uint32_t head_window, uint32_t sinks, uint32_t at,
                 uint32_t j)
{
    bool local = head_window != 0;
    if (j > at) return false;
    if (local && j < sinks) return true;
    return (layer_window == 0 || at - j < layer_window) && (!local || at - j < head_window);
}

static void check_seen(struct position_sight sight, uint32_t layer_window, uint32_t head_window,
                       uint32_t sinks, uint32_t at)
{
    struct position_seen s = position_seen(sight, at);
    uint32_t n = 0;
    assert_true(s.n_sinks <= s.first && s.first <= at);
    for (uint32_t j = 0; j <= at; j++) {
        bool expected = sees(layer_window, head_window, sinks, at, j);
        if (expected != (j < s.n_sinks || j >= s.first))
            fail_msg("layer window %u, head window %u, %u sinks: query %u and position %u",
                     layer_window, head_window, sinks, at, j);
        n += expected;
    }
    assert_int_equal(n, s.n_sinks + at + 1 - s.first);
}

static void test_query_sees_sinks_and_the_narrower_window(void **state)
{
    (void)state;
    static const uint32_t windows[] = { 0, 1, 2, 7, 16, 40 }, sinks[] = { 0, 1, 4, 64 };
    uint32_t layer_window = 0;
    const struct position p = { .window = &layer_window };
    for (size_t a = 0; a < ZP_COUNT(windows); a++)
        for (size_t b = 0; b < ZP_COUNT(windows); b++)
            for (size_t s = 0; s < ZP_COUNT(sinks); s++)
                for (uint32_t at = 0; at < 80; at++) {
                    layer_window = windows[a];
                    struct position_sight sight = position_try_sight(&p, 0, windows[b], sinks[s]);
                    check_seen(sight, windows[a], windows[b], sinks[s], at);
                }
}

static void test_sight_of_a_head_is_that_of_its_file(void **state)
{
    (void)state;
    static const char *const models[] = { "zerope-local", "zerope-local-scaled", "gguf-gemma3",
                                          "zerope-gemma3", "gguf-qwen2" };
    for (size_t i = 0; i < ZP_COUNT(models); i++) {
        zp_model *m = golden_small(models[i]);
        const struct position *p = &m->position;
        for (uint32_t h = 0; h < p->n_layer * p->n_kv; h++)
            for (uint32_t at = 0; at < 200; at += 13) {
                uint32_t layer = h / p->n_kv, kv = h % p->n_kv;
                check_seen(position_head_sight(p, layer, kv), p->window[layer], p->heads[h].window,
                           p->n_sink, at);
            }
        zp_model_close(m);
    }
}

static void test_modes_have_the_names_of_keys(void **state)
{
    (void)state;
    assert_string_equal(position_mode_name(ZP_MODE_FULL), "full");
    assert_string_equal(position_mode_name(ZP_MODE_ZERO), "zero");
    assert_string_equal(position_mode_name(ZP_MODE_HALF), "half");
    assert_string_equal(position_mode_name(ZP_MODE_AUTO), "auto");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_query_sees_sinks_and_the_narrower_window),
        cmocka_unit_test(test_sight_of_a_head_is_that_of_its_file),
        cmocka_unit_test(test_modes_have_the_names_of_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
