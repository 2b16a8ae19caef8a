/* test_apply_golden.c: files with closed gates compute what the open file computes with the same
 * gates closed in place; they rewrite to the same bytes, close further, and carry no position once
 * all is closed. Real models: pairs in halves with q/k norms (Gemma) and interleaved (SmolLM2). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/os.h"
#include "base/rng.h"
#include "evap/apply.h"
#include "model/gguf_write.h"
#include "models.h"

enum { N = 40, SEED = 7 };

#define OK(call)                                                                                   \
    do {                                                                                           \
        zp_err e_ = { 0 }, *err = &e_;                                                             \
        if ((call) != ZP_OK) fail_msg("%s", e_.message);                                           \
    } while (0)

static const char *const models[] = { SMOLLM2_FILE, GEMMA3_FILE };
static const char out_path[] = "apply-test.gguf", again_path[] = "apply-test-again.gguf";

static zp_model *open_model(const char *path)
{
    zp_model *m = NULL;
    OK(zp_model_open(&m, path, NULL, err));
    return m;
}

/* Logits after N fixed ids on the exact path, with gates (NULL: as the file has them). */
static float *logits_of(const zp_model *m, const struct gateset *gates, uint64_t offset,
                        zp_engine_stats *stats)
{
    zp_engine_options o = { .n_ctx = N, .exact = true };
    zp_seq_options so = { .position_offset = offset };
    zp_engine *e = NULL;
    zp_seq *s = NULL;
    int32_t ids[N];
    for (int i = 0; i < N; i++) ids[i] = 100 + 37 * i;
    float *logits = malloc(m->h.n_vocab * sizeof *logits);
    assert_non_null(logits);
    OK(zp_engine_open(&e, m, &o, err));
    if (gates) gateset_apply(gates, e);
    OK(zp_seq_open(&s, e, &so, err));
    zp_item item = { s, ids, N, ZP_WANT_LAST };
    OK(zp_engine_run(e, &item, 1, logits, 1, NULL, err));
    if (stats) zp_engine_describe(e, stats);
    zp_seq_close(s);
    zp_engine_close(e);
    return logits;
}

static double largest_gap(const float *a, const float *b, size_t n)
{
    double gap = 0.0, most = 0.0;
    for (size_t i = 0; i < n; i++) {
        double d = (double)a[i] - (double)b[i], x = (double)b[i];
        gap = d * d > gap * gap ? (d < 0 ? -d : d) : gap;
        most = x * x > most * most ? (x < 0 ? -x : x) : most;
    }
    return gap / most;
}

/* About half of the gates, by a fixed draw; one head wholly closed, one local. */
static struct gateset some_gates(const zp_model *m)
{
    struct gateset g;
    struct rng r = rng_stream(SEED, 3);
    OK(gateset_open(&g, &m->position, err));
    for (size_t i = 0; i < gateset_total(&g); i++)
        if (rng_below(&r, 2)) g.open[i] = 0;
    memset(g.open, 0, g.n_pair);
    uint32_t last = g.n_layer * g.n_kv - 1;
    while (m->position.window[last / g.n_kv] != 0) last--;
    g.window[last] = 16;
    g.n_sink = 4;
    return g;
}

static void test_written_file_computes_what_closed_gates_compute(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        zp_model *m = open_model(test_model_path(models[k]));
        struct gateset g = some_gates(m);
        struct apply_info info = { .n_ctx_validated = 64, .recipe = "{}" };
        OK(apply_write(m, &g, NULL, &info, out_path, err));
        zp_model *written = open_model(out_path);
        float *want = logits_of(m, &g, 0, NULL), *got = logits_of(written, NULL, 0, NULL);
        double gap = largest_gap(got, want, m->h.n_vocab);
        print_message("%s: %zu of %zu closed, gap %.2g (seed %d)\n", models[k], gateset_closed(&g),
                      gateset_total(&g), gap, SEED);
        assert_true(gap < 1e-5); /* only the order of channels inside a head differs */
        float *open = logits_of(m, NULL, 0, NULL);
        assert_true(largest_gap(open, want, m->h.n_vocab) > 1e-2); /* the gates matter */
        zp_model_info info_out;
        zp_model_describe(written, &info_out);
        assert_int_equal(info_out.gates_closed, gateset_closed(&g));
        assert_int_equal(info_out.heads_local, 1);
        free(open), free(want), free(got);
        gateset_free(&g);
        zp_model_close(written);
        zp_model_close(m);
    }
}

static void assert_same_files(const char *a, const char *b)
{
    struct buffer x = buffer_with_max(MEM_META, 1u << 30), y = buffer_with_max(MEM_META, 1u << 30);
    OK(os_read_file(a, &x, err));
    OK(os_read_file(b, &y, err));
    assert_int_equal(x.size, y.size);
    assert_memory_equal(x.data, y.data, x.size);
    buffer_free(&x);
    buffer_free(&y);
}

static void test_rewriting_a_written_file_gives_the_same_bytes(void **state)
{
    (void)state;
    struct gguf f;
    struct gguf_edit e;
    zp_model *m = open_model(test_model_path(SMOLLM2_FILE));
    struct gateset g = some_gates(m);
    struct apply_info info = { .recipe = "{}" };
    OK(apply_write(m, &g, NULL, &info, out_path, err));
    OK(gguf_open(&f, out_path, err));
    OK(gguf_edit_init(&e, &f, err));
    OK(gguf_edit_write(&e, again_path, err));
    gguf_edit_free(&e);
    gguf_close(&f);
    assert_same_files(out_path, again_path);
    /* writing the file's own gates once more changes nothing either */
    zp_model *written = open_model(out_path);
    struct gateset own;
    OK(gateset_open(&own, &written->position, err));
    OK(apply_write(written, &own, NULL, &info, again_path, err));
    assert_same_files(out_path, again_path);
    gateset_free(&own);
    zp_model_close(written);
    gateset_free(&g);
    zp_model_close(m);
}

static void test_closing_the_rest_leaves_no_position_anywhere(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        zp_model *m = open_model(test_model_path(models[k]));
        struct gateset g = some_gates(m), all;
        struct apply_info info = { 0 };
        g.window[g.n_layer * g.n_kv - 1] = 0;
        memset(g.window, 0, g.n_layer * g.n_kv * sizeof *g.window);
        OK(apply_write(m, &g, NULL, &info, out_path, err));
        zp_model *half = open_model(out_path);
        OK(gateset_open(&all, &half->position, err));
        memset(all.open, 0, gateset_total(&all));
        OK(apply_write(half, &all, NULL, &info, again_path, err));
        zp_model *none = open_model(again_path);
        zp_engine_stats stats;
        float *want = logits_of(m, &all, 0, NULL), *got = logits_of(none, NULL, 0, &stats);
        assert_true(largest_gap(got, want, m->h.n_vocab) < 1e-5);
        assert_int_equal(stats.position_bytes, 0); /* I2 */
        assert_int_equal(stats.position_done, 0);
        float *moved = logits_of(none, NULL, 1000000, NULL);
        assert_memory_equal(got, moved, m->h.n_vocab * sizeof *got); /* I3 */
        free(want), free(got), free(moved);
        gateset_free(&all), gateset_free(&g);
        zp_model_close(none), zp_model_close(half), zp_model_close(m);
    }
}

static int remove_files(void **state)
{
    (void)state;
    remove(out_path);
    remove(again_path);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_written_file_computes_what_closed_gates_compute),
        cmocka_unit_test(test_rewriting_a_written_file_gives_the_same_bytes),
        cmocka_unit_test(test_closing_the_rest_leaves_no_position_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, remove_files);
}
