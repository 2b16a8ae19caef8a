/* test_same_bits_models.c: I1, I2 and I3 on the two real models: beyond a segment (1024) on
 * SmolLM2, beyond the window (512) on Gemma 3. The small models: test_same_bits.c. */
#include "same_bits.h"

#include "base/rng.h"
#include "in_folder.h"

enum { N_SMOLLM2 = 1120, N_GEMMA3 = 640, SEED = 21 };

static int32_t *prose_ids(const zp_model *m, size_t n)
{
    static char text[20000];
    FILE *f = fopen(ZP_TEST_DATA "/prose.txt", "rb");
    int32_t *ids = NULL, *copy = malloc(n * sizeof *copy);
    size_t count = 0;
    assert_true(f != NULL && copy != NULL);
    size_t size = fread(text, 1, sizeof text, f);
    fclose(f);
    GOLDEN_OK(zp_tokenize(m, text, size, ZP_TOKENS_BOS, &ids, &count, err));
    assert_true(count >= n);
    memcpy(copy, ids, n * sizeof *ids);
    zp_free(ids);
    return copy;
}

static void open_bits(struct same_bits *b, const zp_model *m, const char *name, size_t n,
                      zp_kv_type kv)
{
    zp_engine_options o = {
        .n_ctx = (uint32_t)n, .n_threads = 2, .exact = kv == ZP_KV_F32, .kv_type = kv
    };
    bits_open(b, m, name, prose_ids(m, n), n, o);
}

static void test_smollm2_default_path(void **state)
{
    static const uint32_t small[] = { 1, 3 }, large[] = { 7, 16, 64, 100 };
    static const size_t points[] = { 63, 1025, 1060 };
    struct same_bits b;
    (void)state;
    zp_model *m = golden_model(SMOLLM2_FILE);
    open_bits(&b, m, "smollm2", N_SMOLLM2, ZP_KV_BF16);
    bits_micro_batches(&b, small, 2, 70);
    bits_micro_batches(&b, large, 2, 200);
    bits_micro_batches(&b, large + 2, 2, N_SMOLLM2);
    bits_threads(&b, 300);
    bits_one_by_one(&b, 40);
    bits_batches(&b, 60, 2);
    bits_forks(&b, points, 3, 20);
    bits_truncate(&b, points, 3, 20);
    bits_free(&b);
    zp_model_close(m);
}

static void test_smollm2_exact_path(void **state)
{
    static const uint32_t sizes[] = { 100 };
    static const size_t points[] = { 1025 };
    struct same_bits b;
    (void)state;
    zp_model *m = golden_model(SMOLLM2_FILE);
    open_bits(&b, m, "smollm2 exact", N_SMOLLM2, ZP_KV_F32);
    bits_micro_batches(&b, sizes, 1, N_SMOLLM2);
    bits_one_by_one(&b, 5);
    bits_forks(&b, points, 1, 5);
    bits_free(&b);
    zp_model_close(m);
}

static void test_smollm2_8_bit_pages(void **state)
{
    static const uint32_t small[] = { 1, 3 }, large[] = { 65, 100 };
    static const size_t points[] = { 63, 100, 1025 };
    struct same_bits b;
    (void)state;
    zp_model *m = golden_model(SMOLLM2_FILE);
    open_bits(&b, m, "smollm2 q8", N_SMOLLM2, ZP_KV_Q8);
    bits_micro_batches(&b, small, 2, 130);
    bits_micro_batches(&b, large, 2, N_SMOLLM2);
    bits_one_by_one(&b, 70);
    bits_batches(&b, 70, 2);
    bits_forks(&b, points, 3, 70);
    bits_truncate(&b, points, 3, 20);
    bits_reuse(&b, points + 1, 2, 20);
    bits_restore(&b, in_folder("saved"), points + 1, 2, 20);
    bits_free(&b);
    zp_model_close(m);
}

static void test_gemma3_beyond_its_window(void **state)
{
    static const uint32_t sizes[] = { 64, 96 };
    static const size_t points[] = { 100, 570 };
    struct same_bits b;
    (void)state;
    zp_model *m = golden_model(GEMMA3_FILE);
    assert_int_equal(m->position.window[0], 512);
    open_bits(&b, m, "gemma3", N_GEMMA3, ZP_KV_BF16);
    bits_micro_batches(&b, sizes, 2, N_GEMMA3);
    bits_one_by_one(&b, 40);
    bits_batches(&b, 40, 2);
    bits_forks(&b, points, 2, 20);
    bits_truncate(&b, points, 2, 20);
    bits_reuse(&b, points, 2, 20);
    bits_restore(&b, in_folder("saved"), points, 2, 20);
    bits_free(&b);
    zp_model_close(m);
}

/* Logit rows: of one row alone, of many, by any number of threads. */
static void check_logits(const char *file)
{
    enum { ROWS = 17 };
    zp_model *m = golden_model(file);
    size_t v = m->h.n_vocab, d = m->h.d_model;
    float *want = malloc(ROWS * v * sizeof *want), *got = malloc(ROWS * v * sizeof *got);
    float *x = malloc(ROWS * d * sizeof *x);
    struct rng r = rng_stream(SEED, 3);
    assert_true(want && got && x);
    for (size_t i = 0; i < ROWS * d; i++) x[i] = rng_normal(&r);
    for (uint32_t threads = 1; threads <= 3; threads++) {
        zp_engine_options o = { .n_ctx = 64,
                                .n_threads = threads,
                                .micro_batch = threads == 2 ? 5 : 64 };
        zp_engine *e = golden_engine(m, o);
        for (size_t i = 0; threads == 1 && i < ROWS; i++)
            engine_logits(e, x + i * d, 1, want + i * v);
        for (size_t n = 2; n <= ROWS; n += 5) {
            engine_logits(e, x, n, got);
            assert_memory_equal(got, want, n * v * sizeof *got);
        }
        zp_engine_close(e);
    }
    free(want), free(got), free(x);
    zp_model_close(m);
}

static void test_logits_of_a_row_alone_and_among_others(void **state)
{
    (void)state;
    check_logits(SMOLLM2_FILE);
    check_logits(GEMMA3_FILE);
}

static void run_with(const zp_model *m, zp_engine_options o, const uint8_t *gates,
                     const zp_seq_options *so, const int32_t *ids, size_t n, float *x)
{
    zp_engine *e = golden_engine(m, o);
    zp_seq *s = NULL;
    e->forward.gates = gates;
    GOLDEN_OK(zp_seq_open(&s, e, so, err));
    bits_append(e, s, ids, n, x);
    zp_seq_close(s);
    zp_engine_close(e);
}

/* I2 on a partly closed view, I3 on a wholly closed one. */
static void check_positions(const char *file)
{
    static const uint64_t offsets[] = { 1, 1000, 1000000 };
    zp_model *m = golden_model(file);
    const struct position *p = &m->position;
    size_t n = 80, row = n * m->h.d_model, n_gates = (size_t)p->n_layer * p->n_kv * p->n_pair;
    float *x = malloc(3 * row * sizeof *x);
    uint8_t *gates = malloc(n_gates);
    int32_t *ids = prose_ids(m, n);
    struct rng r = rng_stream(SEED, 4);
    assert_true(x && gates);
    for (size_t i = 0; i < n_gates; i++) gates[i] = rng_below(&r, 2) != 0;
    zp_engine_options o = { .n_ctx = 80, .allow_unverified_mode = true };
    run_with(m, o, gates, NULL, ids, n, x);
    o.identity_rotation = true;
    run_with(m, o, gates, NULL, ids, n, x + row);
    assert_memory_equal(x, x + row, row * sizeof *x);
    o.identity_rotation = false;
    zp_seq_options zero = { .mode = ZP_MODE_ZERO };
    run_with(m, o, NULL, &zero, ids, n, x);
    for (size_t i = 0; i < 3; i++) {
        zero.position_offset = offsets[i];
        run_with(m, o, NULL, &zero, ids, n, x + row);
        assert_memory_equal(x, x + row, row * sizeof *x);
    }
    zp_seq_options full = { .position_offset = 1000 };
    run_with(m, o, NULL, NULL, ids, n, x);
    run_with(m, o, NULL, &full, ids, n, x + row);
    assert_memory_not_equal(x, x + row, row * sizeof *x); /* full positions do depend on it */
    free(x), free(gates), free(ids);
    zp_model_close(m);
}

static void test_skips_and_offsets_on_both_models(void **state)
{
    (void)state;
    check_positions(SMOLLM2_FILE);
    check_positions(GEMMA3_FILE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_smollm2_default_path),
        cmocka_unit_test(test_smollm2_exact_path),
        cmocka_unit_test(test_smollm2_8_bit_pages),
        cmocka_unit_test(test_gemma3_beyond_its_window),
        cmocka_unit_test(test_logits_of_a_row_alone_and_among_others),
        cmocka_unit_test(test_skips_and_offsets_on_both_models),
    };
    printf("seed %d\n", SEED);
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
