/* test_same_bits.c: I1, I2 and I3 on the small models of tests/data/arch, over more positions than
 * a tile (64) and a segment (1024) hold: every position kind, windows, local heads, q/k norms; and
 * kernel levels among each other.
 * Seeds are fixed. The real models: test_same_bits_models.c. */
#include "same_bits.h"

#include "base/rng.h"
#include "in_folder.h"

enum { N = 1180, SEED = 20 };
/* Sanitizers slow this ten times down; they look for races and overruns, which every sixth model
 * shows as well. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { STEP = 6 };
#else
enum { STEP = 1 };
#endif

static const char *const models[] = {
    "gguf-llama-yarn", "gguf-granite", "gguf-gemma3",    "gguf-qwen2",   "gguf-qwen3",
    "gguf-smollm3",    "zerope-alibi", "zerope-gemma3",  "zerope-local", "zerope-local-scaled",
    "zerope-mixed",    "zerope-mlp",   "zerope-partial", "zerope-qwen3", "zerope-t5",
    "zerope-gate",     "zerope-struct", "zerope-alibi-struct",
};

static int32_t *random_ids(size_t n, uint32_t n_vocab)
{
    struct rng r = rng_stream(SEED, 1);
    int32_t *ids = malloc(n * sizeof *ids);
    assert_non_null(ids);
    for (size_t i = 0; i < n; i++) ids[i] = (int32_t)rng_below(&r, n_vocab);
    return ids;
}

static void open_bits(struct same_bits *b, const zp_model *m, const char *name, zp_kv_type kv)
{
    zp_engine_options o = {
        .n_ctx = N, .n_threads = 2, .micro_batch = 512, .exact = kv == ZP_KV_F32, .kv_type = kv
    };
    bits_open(b, m, name, random_ids(N, m->h.n_vocab), N, o);
}

static void check_small(const char *name, zp_kv_type kv)
{
    static const uint32_t small[] = { 1, 3 }, large[] = { 7, 16, 64, 500 };
    static const size_t points[] = { 1, 63, 64, 65, 100, 1023, 1024, 1025, 1100 };
    struct same_bits b;
    zp_model *m = golden_small(name);
    open_bits(&b, m, name, kv);
    bits_micro_batches(&b, small, 2, 150);
    bits_micro_batches(&b, large, 4, N);
    bits_threads(&b, N);
    bits_one_by_one(&b, 80);
    bits_batches(&b, 90, 3);
    bits_forks(&b, points, 9, 70);
    bits_truncate(&b, points, 9, 70);
    bits_reuse(&b, points, 9, 70);
    bits_restore(&b, in_folder("saved"), points, 9, 70);
    bits_free(&b);
    zp_model_close(m);
}

static void test_default_path_gives_same_bits_in_any_company(void **state)
{
    (void)state;
    for (size_t i = 0; i < ZP_COUNT(models); i += STEP) check_small(models[i], ZP_KV_BF16);
}

static void test_exact_path_gives_same_bits_in_any_company(void **state)
{
    (void)state;
    for (size_t i = 1; i < ZP_COUNT(models); i += 3 * STEP) check_small(models[i], ZP_KV_F32);
}

static void test_8_bit_pages_give_same_bits_in_any_company(void **state)
{
    (void)state;
    for (size_t i = 0; i < ZP_COUNT(models); i += STEP) check_small(models[i], ZP_KV_Q8);
}

/* ---- levels ---------------------------------------------------------------------------------- */

/* A quantised copy. *wholly: no matrix stayed float, for want of width. */
static zp_model *quantised_model(const char *name, const char *type, bool *wholly)
{
    char from[1024], *json = NULL;
    zp_model *m = NULL;
    snprintf(from, sizeof from, ZP_TEST_DATA "/arch/gguf/%s.gguf", name);
    GOLDEN_OK(zp_quantize(from, in_folder("quantised.gguf"), type, NULL, &json, err));
    GOLDEN_OK(zp_model_open(&m, in_folder("quantised.gguf"), NULL, err));
    json_t *doc = json_loads(json, 0, NULL);
    *wholly = json_object_get(json_object_get(doc, "types"), "F16") == NULL;
    json_decref(doc);
    zp_free(json);
    return m;
}

/* Level ref is one of them where nothing is float: products of float matrices round twice there. */
static void test_levels_give_same_bits_on_the_default_path(void **state)
{
    static const char *const types[] = { "Q8_0", "Q4_1", "Q5_0" };
    size_t n_whole = 0;
    (void)state;
    for (size_t i = 0; i < ZP_COUNT(models); i += STEP) {
        bool wholly;
        zp_model *m = quantised_model(models[i], types[i % 3], &wholly);
        n_whole += wholly;
        struct same_bits b;
        open_bits(&b, m, models[i], i % 2 ? ZP_KV_BF16 : ZP_KV_Q8);
        bits_levels(&b, wholly ? ZP_LEVEL_REF : ZP_LEVEL_AVX2, N);
        bits_free(&b);
        zp_model_close(m);
    }
    assert_true(n_whole >= 9 / STEP);
    print_message("level ref: %zu models\n", n_whole);
}

/* ---- wanted rows ----------------------------------------------------------------------------- */

enum { WANTED = 70, SEQUENCES = 3 };

/* Logits of the last tokens of three sequences, `first` of each appended before: of all their
 * tokens at once, or of those that `want` names; rows (SEQUENCES, n_vocab). */
static void last_logits(const zp_model *m, zp_engine_options o, const int32_t *ids, size_t first,
                        bool all, float *rows)
{
    size_t v = m->h.n_vocab, n = WANTED - first;
    zp_engine *e = golden_engine(m, o);
    zp_item items[SEQUENCES];
    float *logits = malloc(SEQUENCES * WANTED * v * sizeof *logits);
    assert_non_null(logits);
    for (size_t i = 0; i < SEQUENCES; i++) {
        items[i] = (zp_item){ NULL, ids + i * 7, first, ZP_WANT_NONE };
        GOLDEN_OK(zp_seq_open(&items[i].seq, e, NULL, err));
    }
    GOLDEN_OK(zp_engine_run(e, items, SEQUENCES, NULL, 0, NULL, err));
    for (size_t i = 0; i < SEQUENCES; i++) {
        items[i].ids += first, items[i].n = n;
        items[i].want = all || i == 1 ? ZP_WANT_ALL : ZP_WANT_LAST;
    }
    size_t room = all ? SEQUENCES * n : n + 2;
    GOLDEN_OK(zp_engine_run(e, items, SEQUENCES, logits, room, NULL, err));
    for (size_t i = 0; i < SEQUENCES; i++) {
        size_t at = all ? (i + 1) * n - 1 : i == 0 ? 0 : i == 1 ? n : n + 1;
        memcpy(rows + i * v, logits + at * v, v * sizeof *rows);
        zp_seq_close(items[i].seq);
    }
    free(logits);
    zp_engine_close(e);
}

/* The last layer leaves out what only unwanted rows need: the others must not notice. */
static void test_logits_do_not_depend_on_what_else_is_wanted(void **state)
{
    static const uint32_t sizes[] = { 512, 33, 2, 1 };
    (void)state;
    for (size_t k = 0; k < ZP_COUNT(models); k += STEP) {
        zp_model *m = golden_small(models[k]);
        size_t bytes = SEQUENCES * m->h.n_vocab * sizeof(float);
        int32_t *ids = random_ids(WANTED + 21, m->h.n_vocab);
        float *want = malloc(bytes), *got = malloc(bytes);
        assert_true(want && got);
        for (size_t i = 0; i < 4 * 2 * 3; i++) {
            zp_engine_options o = { .n_ctx = 128,
                                    .n_seq = SEQUENCES,
                                    .n_threads = 1 + (uint32_t)i / 4 % 2,
                                    .micro_batch = sizes[i % 4],
                                    .kv_type = (zp_kv_type)(ZP_KV_F32 + i / 8) };
            size_t first = i % 3 == 0 ? 0 : i % 3 == 1 ? 30 : WANTED - 1;
            last_logits(m, o, ids, first, true, want);
            last_logits(m, o, ids, first, false, got);
            if (memcmp(want, got, bytes) != 0) fail_msg("%s, case %zu", models[k], i);
        }
        free(want), free(got), free(ids);
        zp_model_close(m);
    }
}

/* ---- modes, offsets, identity ---------------------------------------------------------------- */

static void run_mode(zp_engine *e, zp_mode mode, uint64_t offset, const int32_t *ids, size_t n,
                     float *x)
{
    zp_seq *s = NULL;
    zp_seq_options o = { .mode = mode, .position_offset = offset };
    GOLDEN_OK(zp_seq_open(&s, e, &o, err));
    bits_append(e, s, ids, n, x);
    zp_seq_close(s);
}

/* I3, and that offsets do matter where positions are used. */
static void test_offsets_change_nothing_without_positions(void **state)
{
    static const uint64_t offsets[] = { 1, 1000, 1000000 };
    (void)state;
    for (size_t k = 0; k < 3; k++) {
        const char *name = (const char *[]){ "gguf-llama-yarn", "gguf-gemma3", "gguf-qwen3" }[k];
        zp_model *m = golden_small(name);
        zp_engine *e = golden_engine(
            m, (zp_engine_options){ .n_ctx = 200, .n_threads = 2, .allow_unverified_mode = true });
        size_t n = 200, bytes = n * m->h.d_model * sizeof(float);
        int32_t *ids = random_ids(n, m->h.n_vocab);
        float *zero = malloc(bytes), *full = malloc(bytes), *x = malloc(bytes);
        assert_true(zero && full && x);
        run_mode(e, ZP_MODE_ZERO, 0, ids, n, zero);
        run_mode(e, ZP_MODE_FULL, 0, ids, n, full);
        assert_memory_not_equal(zero, full, bytes);
        for (size_t i = 0; i < 3; i++) {
            run_mode(e, ZP_MODE_ZERO, offsets[i], ids, n, x);
            assert_memory_equal(x, zero, bytes);
            run_mode(e, ZP_MODE_FULL, offsets[i], ids, n, x);
            assert_memory_not_equal(x, full, bytes);
        }
        free(zero), free(full), free(x), free(ids);
        zp_engine_close(e);
        zp_model_close(m);
    }
}

static void test_modes_share_a_batch(void **state)
{
    (void)state;
    zp_model *m = golden_small("gguf-llama-yarn");
    zp_engine_options o = { .n_ctx = 90, .n_seq = 4, .allow_unverified_mode = true };
    zp_engine *e = golden_engine(m, o);
    size_t n = 40, row = n * m->h.d_model;
    int32_t *ids = random_ids(n, m->h.n_vocab);
    float *alone = malloc(2 * row * sizeof *alone), *x = malloc(4 * row * sizeof *x);
    assert_true(alone && x);
    run_mode(e, ZP_MODE_FULL, 0, ids, n, alone);
    run_mode(e, ZP_MODE_ZERO, 0, ids, n, alone + row);
    zp_item items[4];
    for (size_t i = 0; i < 4; i++) {
        zp_seq_options so = { .mode = i % 2 ? ZP_MODE_ZERO : ZP_MODE_FULL };
        items[i] = (zp_item){ NULL, ids, n, ZP_WANT_NONE };
        GOLDEN_OK(zp_seq_open(&items[i].seq, e, &so, err));
    }
    struct engine_job job = { .items = items, .n_items = 4, .x_out = x };
    GOLDEN_OK(engine_run(e, &job, err));
    for (size_t i = 0; i < 4; i++)
        assert_memory_equal(x + i * row, alone + i % 2 * row, row * sizeof *x);
    for (size_t i = 0; i < 4; i++) zp_seq_close(items[i].seq);
    free(alone), free(x), free(ids);
    zp_engine_close(e);
    zp_model_close(m);
}

/* I2: rotating closed pairs by angle 0 gives the bits of not touching them. Gates close as a scan
 * closes them, a third of them; the zerope files come with closed pairs of their own. */
static void test_skipping_equals_rotating_by_nothing(void **state)
{
    (void)state;
    for (size_t k = 0; k < ZP_COUNT(models); k++) {
        zp_model *m = golden_small(models[k]);
        const struct position *p = &m->position;
        size_t n = 150, bytes = n * m->h.d_model * sizeof(float);
        size_t n_gates = (size_t)p->n_layer * p->n_kv * p->n_pair;
        uint8_t *gates = malloc(n_gates);
        float *x[3];
        int32_t *ids = random_ids(n, m->h.n_vocab);
        struct rng r = rng_stream(SEED, 2);
        assert_non_null(gates);
        for (size_t i = 0; i < n_gates; i++) gates[i] = rng_below(&r, 3) != 0;
        for (int i = 0; i < 3; i++) { /* skip, identity, all open */
            zp_engine *e =
                golden_engine(m, (zp_engine_options){ .n_ctx = 150, .identity_rotation = i == 1 });
            assert_non_null(x[i] = malloc(bytes));
            e->forward.gates = i < 2 ? gates : NULL;
            run_mode(e, ZP_MODE_FULL, 0, ids, n, x[i]);
            zp_engine_close(e);
        }
        if (memcmp(x[0], x[1], bytes) != 0) fail_msg("%s: skipped and rotated differ", models[k]);
        bool rotates = position_uses_set(p, 0) || position_uses_set(p, 1);
        if (rotates) assert_memory_not_equal(x[0], x[2], bytes);
        for (int i = 0; i < 3; i++) free(x[i]);
        free(gates), free(ids);
        zp_model_close(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_default_path_gives_same_bits_in_any_company),
        cmocka_unit_test(test_exact_path_gives_same_bits_in_any_company),
        cmocka_unit_test(test_8_bit_pages_give_same_bits_in_any_company),
        cmocka_unit_test(test_levels_give_same_bits_on_the_default_path),
        cmocka_unit_test(test_logits_do_not_depend_on_what_else_is_wanted),
        cmocka_unit_test(test_offsets_change_nothing_without_positions),
        cmocka_unit_test(test_modes_share_a_batch),
        cmocka_unit_test(test_skipping_equals_rotating_by_nothing),
    };
    printf("seed %d\n", SEED);
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
