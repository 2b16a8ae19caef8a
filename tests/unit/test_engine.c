/* test_engine.c: sequences of an engine: modes, forks, and what a run leaves behind. */
#include "half_plan.h"

#include "model/attend.h"
#include "model/engine.h"
#include "in_folder.h"

/* ---- modes ----------------------------------------------------------------------------------- */

static void test_fork_keeps_a_mode_that_is_not_the_default(void **state)
{
    (void)state;
    static const int32_t ids[] = { 1, 2, 3, 4, 5 };
    zp_model *m = half_plan_model(in_folder("model.gguf"), "half", "zero", 0);
    zp_engine *e = golden_engine(m, (zp_engine_options){ .n_ctx = 32, .n_seq = 2, .n_threads = 1 });
    zp_seq *s = NULL, *fork = NULL;
    assert_int_equal(zp_seq_open(&s, e, NULL, NULL), ZP_BAD_INPUT);
    GOLDEN_OK(
        zp_seq_open(&s, e, &(zp_seq_options){ .mode = ZP_MODE_ZERO, .position_offset = 7 }, err));
    GOLDEN_OK(zp_engine_run(e, &(zp_item){ s, ids, 5, ZP_WANT_NONE }, 1, NULL, 0, NULL, err));
    GOLDEN_OK(zp_seq_fork(&fork, s, 3, err));
    assert_int_equal(fork->mode, ZP_MODE_ZERO);
    assert_int_equal(fork->offset, 7);
    assert_int_equal(zp_seq_length(fork), 3);
    zp_seq_close(fork);
    zp_seq_close(s);
    zp_engine_close(e);
    zp_model_close(m);
}

/* A fork writes into its last page only: the others cost nothing. */
static void test_fork_needs_room_for_its_last_pages_only(void **state)
{
    (void)state;
    enum { LENGTH = 1100, CTX = 2048 };
    int32_t ids[LENGTH];
    for (int i = 0; i < LENGTH; i++) ids[i] = i % 100;
    zp_model *m = golden_small("gguf-llama-linear");
    zp_engine *e =
        golden_engine(m, (zp_engine_options){ .n_ctx = CTX, .n_seq = 1, .n_threads = 1 });
    zp_seq *s, *fork;
    GOLDEN_OK(zp_seq_open(&s, e, NULL, err));
    GOLDEN_OK(zp_engine_run(e, &(zp_item){ s, ids, LENGTH, ZP_WANT_NONE }, 1, NULL, 0, NULL, err));
    GOLDEN_OK(zp_seq_fork(&fork, s, LENGTH, err));
    size_t free_before = e->kv.pages.n_free;
    GOLDEN_OK(zp_engine_run(e, &(zp_item){ fork, ids, 1, ZP_WANT_NONE }, 1, NULL, 0, NULL, err));
    assert_int_equal(free_before - e->kv.pages.n_free, e->kv.n_heads);
    zp_seq_close(fork);
    zp_seq_close(s);
    zp_engine_close(e);
    zp_model_close(m);
}

/* ---- work follows the sequence, not the room for it ------------------------------------------ */

enum { SHORT = 512, LONG = 1 << 17 };

/* A prompt, then a token in two sequences of different length: tasks of the last attention. */
static size_t tasks_with(const zp_model *m, uint32_t n_ctx, uint32_t n_threads)
{
    static int32_t ids[300];
    uint64_t room = 2ull * SHORT * m->h.n_layer * m->h.n_kv * m->h.d_head * 2 * 4;
    zp_engine *e = golden_engine(m, (zp_engine_options){ .n_ctx = n_ctx,
                                                         .n_seq = 2,
                                                         .n_threads = n_threads,
                                                         .micro_batch = 64,
                                                         .kv_bytes = room });
    zp_seq *s[2] = { NULL };
    for (int i = 0; i < 2; i++) GOLDEN_OK(zp_seq_open(&s[i], e, NULL, err));
    zp_item items[] = { { s[0], ids, 300, ZP_WANT_NONE }, { s[1], ids, 30, ZP_WANT_NONE } };
    GOLDEN_OK(zp_engine_run(e, items, 2, NULL, 0, NULL, err));
    items[0].n = items[1].n = 1;
    items[0].want = items[1].want = ZP_WANT_LAST;
    float *logits = mem_array(MEM_SCRATCH, 2 * m->h.n_vocab, sizeof *logits);
    GOLDEN_OK(zp_engine_run(e, items, 2, logits, 2, NULL, err));
    mem_free(logits);
    size_t tasks = attend_tasks(&e->forward);
    for (int i = 0; i < 2; i++) zp_seq_close(s[i]);
    zp_engine_close(e);
    return tasks;
}

static void test_attention_tasks_do_not_grow_with_the_context(void **state)
{
    (void)state;
    zp_model *m = golden_small("gguf-llama-yarn");
    for (uint32_t threads = 1; threads <= 2; threads++) {
        size_t tasks = tasks_with(m, SHORT, threads);
        assert_int_equal(tasks, 2 * m->h.n_kv); /* one segment for each sequence and head */
        assert_int_equal(tasks_with(m, LONG, threads), tasks);
    }
    zp_model_close(m);
}

/* Pages put where no position is yet must not be looked at: a walk over the whole table would
 * count them as held. */
static void test_pages_wanted_look_at_the_positions_in_use_only(void **state)
{
    (void)state;
    static int32_t ids[100];
    zp_model *m = golden_small("gguf-llama-yarn");
    zp_engine *e = golden_engine(m, (zp_engine_options){ .n_ctx = 4096, .n_threads = 1 });
    zp_seq *s = NULL;
    GOLDEN_OK(zp_seq_open(&s, e, NULL, err));
    GOLDEN_OK(zp_engine_run(e, &(zp_item){ s, ids, 100, ZP_WANT_NONE }, 1, NULL, 0, NULL, err));
    size_t wanted = kv_table_pages_wanted(&s->kv, &e->kv, 100);
    assert_int_equal(wanted, 2 * e->kv.n_heads); /* 100 positions in 2 tiles, 200 in 4 */
    for (uint32_t i = 4; i < s->kv.n_tiles; i++) s->kv.k[i] = s->kv.k[0];
    assert_int_equal(kv_table_pages_wanted(&s->kv, &e->kv, 100), wanted);
    for (uint32_t i = 4; i < s->kv.n_tiles; i++) s->kv.k[i] = NULL;
    zp_seq_close(s);
    zp_engine_close(e);
    zp_model_close(m);
}

/* Heads with windows too, whoever shares what they see: a step needs pages for the tiles it writes,
 * not for all that a head may come to hold. */
static void test_steps_want_pages_for_what_they_write_only(void **state)
{
    (void)state;
    static int32_t ids[1000];
    static const char *const names[] = { "gguf-llama-yarn", "gguf-gemma3", "zerope-local" };
    for (size_t i = 0; i < ZP_COUNT(names); i++) {
        zp_model *m = golden_small(names[i]);
        zp_engine_options o = { .n_ctx = 1100, .n_seq = 2, .n_threads = 1, .micro_batch = 64 };
        zp_engine *e = golden_engine(m, o);
        zp_seq *s = NULL, *fork = NULL;
        size_t n_heads = e->kv.n_heads;
        GOLDEN_OK(zp_seq_open(&s, e, NULL, err));
        GOLDEN_OK(zp_engine_run(e, &(zp_item){ s, ids, 1000, ZP_WANT_NONE }, 1, NULL, 0, NULL,
                                err));
        GOLDEN_OK(zp_seq_fork(&fork, s, 1000, err)); /* 40 positions of the last tile */
        assert_int_equal(kv_table_pages_wanted(&s->kv, &e->kv, 1), n_heads); /* a copy */
        zp_seq_close(fork);
        assert_int_equal(kv_table_pages_wanted(&s->kv, &e->kv, 24), 0);
        assert_int_equal(kv_table_pages_wanted(&s->kv, &e->kv, 25), n_heads);
        zp_seq_close(s);
        zp_engine_close(e);
        zp_model_close(m);
    }
}

/* ---- rotations are counted where they run ---------------------------------------------------- */

static uint64_t done_of(const zp_engine *e)
{
    zp_engine_stats stats;
    zp_engine_describe(e, &stats);
    return stats.position_done;
}

/* A prompt in micro-batches, a fork that goes on, a cut, then the two together. */
static void run_forked(zp_engine *e, zp_mode mode)
{
    static int32_t ids[40];
    zp_seq *s = NULL, *fork = NULL;
    GOLDEN_OK(zp_seq_open(&s, e, &(zp_seq_options){ .mode = mode }, err));
    GOLDEN_OK(zp_engine_run(e, &(zp_item){ s, ids, 40, ZP_WANT_NONE }, 1, NULL, 0, NULL, err));
    GOLDEN_OK(zp_seq_fork(&fork, s, 30, err));
    GOLDEN_OK(zp_seq_truncate(s, 35, err));
    zp_item items[] = { { s, ids, 3, ZP_WANT_NONE }, { fork, ids, 11, ZP_WANT_NONE } };
    GOLDEN_OK(zp_engine_run(e, items, 2, NULL, 0, NULL, err));
    zp_seq_close(fork);
    zp_seq_close(s);
}

enum { FORKED_TOKENS = 40 + 3 + 11 }; /* computed, not held */

static void check_count(const char *name, const zp_model *m, zp_mode mode, bool identity)
{
    uint64_t rotated, skipped;
    zp_engine_stats stats;
    zp_engine *e = golden_engine(m, (zp_engine_options){ .n_ctx = 64,
                                                         .n_seq = 3,
                                                         .n_threads = 2,
                                                         .micro_batch = 7,
                                                         .allow_unverified_mode = true,
                                                         .identity_rotation = identity });
    run_forked(e, mode);
    zp_engine_describe(e, &stats);
    position_count(&m->position, (struct position_view){ mode, NULL, identity }, &rotated,
                   &skipped);
    if (stats.tokens != FORKED_TOKENS || stats.position_done != rotated * FORKED_TOKENS ||
        stats.position_skipped != skipped * FORKED_TOKENS)
        fail_msg("%s, mode %s: %llu done and %llu skipped; the table says %llu and %llu a token",
                 name, position_mode_name(mode), (unsigned long long)stats.position_done,
                 (unsigned long long)stats.position_skipped, (unsigned long long)rotated,
                 (unsigned long long)skipped);
    zp_engine_close(e);
}

static void test_rotations_done_are_those_of_the_tokens_computed(void **state)
{
    (void)state;
    static const char *const models[] = { "gguf-llama-yarn", "gguf-gemma3",      "gguf-smollm3",
                                          "zerope-partial",  "zerope-mixed",     "zerope-qwen3",
                                          "zerope-alibi",    "gguf-granite-none" };
    for (size_t i = 0; i < ZP_COUNT(models); i++) {
        zp_model *m = golden_small(models[i]);
        check_count(models[i], m, ZP_MODE_FULL, false);
        check_count(models[i], m, ZP_MODE_ZERO, false);
        check_count(models[i], m, ZP_MODE_FULL, true);
        zp_model_close(m);
    }
    zp_model *m = half_plan_model(in_folder("model.gguf"), "half", "zero", 0);
    check_count("half plan", m, ZP_MODE_HALF, false);
    zp_model_close(m);
}

/* The table the engine works with is made to differ from the model's: the count must follow the
 * work. */
static void test_count_tells_of_rotations_that_did_not_run(void **state)
{
    (void)state;
    struct position_head heads[64];
    zp_model *m = golden_small("gguf-llama-yarn");
    const struct position *p = &m->position;
    zp_engine *e = golden_engine(m, (zp_engine_options){ .n_ctx = 64, .n_seq = 3, .n_threads = 2 });
    assert_true(p->n_layer * p->n_kv <= ZP_COUNT(heads));
    memcpy(heads, p->heads, p->n_layer * p->n_kv * sizeof *heads);
    heads[1].n_open -= 1; /* one pair of one head is forgotten */
    e->position.heads = heads;
    run_forked(e, ZP_MODE_FULL);
    uint64_t pairs = (uint64_t)p->n_layer * p->n_kv * p->n_pair;
    assert_int_equal(done_of(e), (pairs - 1) * FORKED_TOKENS);
    zp_engine_close(e);
    zp_model_close(m);
}

/* A run over one layer counts that layer, not its share of all. */
static void test_run_over_one_layer_counts_that_layer(void **state)
{
    (void)state;
    static const int32_t ids[] = { 1, 2, 3 };
    zp_model *m = golden_small("zerope-mixed");
    const struct position *p = &m->position;
    zp_engine *e = golden_engine(m, (zp_engine_options){ .n_ctx = 64, .n_threads = 1 });
    float *x = calloc(3 * m->h.d_model, sizeof *x);
    assert_non_null(x);
    for (uint32_t l = 0; l < p->n_layer; l++) {
        uint64_t before = done_of(e), open = 0;
        zp_seq *s = NULL;
        GOLDEN_OK(zp_seq_open(&s, e, NULL, err));
        zp_item item = { s, ids, 3, ZP_WANT_NONE };
        struct engine_job job = {
            .items = &item, .n_items = 1, .layer_begin = l, .layer_end = l + 1, .x_in = x
        };
        GOLDEN_OK(engine_run(e, &job, err));
        for (uint32_t k = 0; k < p->n_kv; k++) open += p->heads[l * p->n_kv + k].n_open;
        assert_int_equal(done_of(e) - before, 3 * open);
        zp_seq_close(s);
    }
    free(x);
    zp_engine_close(e);
    zp_model_close(m);
}

/* ---- interrupted runs (E3) ------------------------------------------------------------------- */

enum { PROMPT = 100, MORE = 640, BATCH = 64 };

static bool stop_at(void *arg, const char *what, uint64_t done, uint64_t total)
{
    (void)what, (void)total;
    return done < *(const uint64_t *)arg;
}

static void append(zp_engine *e, zp_seq *s, const int32_t *ids, size_t n, float *logits)
{
    zp_item item = { s, ids, n, logits ? ZP_WANT_LAST : ZP_WANT_NONE };
    GOLDEN_OK(zp_engine_run(e, &item, 1, logits, logits != NULL, NULL, err));
}

/* A run stopped after `stop` of MORE tokens, then the rest: which length is left, and whether the
 * last logits are those of a run without a stop. */
static void check_stop(const zp_model *m, const int32_t *ids, uint64_t stop, bool kept,
                       const float *expected)
{
    zp_engine *e = golden_engine(
        m, (zp_engine_options){ .n_ctx = PROMPT + MORE, .n_threads = 2, .micro_batch = BATCH });
    float *logits = malloc(m->h.n_vocab * sizeof *logits);
    zp_progress progress = { stop_at, &stop };
    zp_seq *s = NULL;
    assert_non_null(logits);
    GOLDEN_OK(zp_seq_open(&s, e, NULL, err));
    append(e, s, ids, PROMPT, NULL);
    zp_item item = { s, ids + PROMPT, MORE, ZP_WANT_NONE };
    assert_int_equal(zp_engine_run(e, &item, 1, NULL, 0, &progress, NULL), ZP_INTERRUPTED);
    uint32_t length = zp_seq_length(s);
    assert_int_equal(length, PROMPT + (kept ? stop : 0));
    append(e, s, ids + length, PROMPT + MORE - length, logits);
    assert_memory_equal(logits, expected, m->h.n_vocab * sizeof *logits);
    free(logits);
    zp_seq_close(s);
    zp_engine_close(e);
}

static void check_stops(const char *name, bool windowed)
{
    zp_model *m = golden_small(name);
    zp_engine *e = golden_engine(m, (zp_engine_options){ .n_ctx = PROMPT + MORE, .n_threads = 2 });
    float *expected = malloc(m->h.n_vocab * sizeof *expected);
    int32_t ids[PROMPT + MORE];
    zp_seq *s = NULL;
    assert_non_null(expected);
    for (int i = 0; i < PROMPT + MORE; i++) ids[i] = i * 37 % (int)m->h.n_vocab;
    GOLDEN_OK(zp_seq_open(&s, e, NULL, err));
    append(e, s, ids, PROMPT + MORE, expected);
    zp_seq_close(s);
    zp_engine_close(e);
    check_stop(m, ids, BATCH, false, expected); /* 256 positions stay behind a window */
    check_stop(m, ids, 4 * BATCH, false, expected);
    check_stop(m, ids, 8 * BATCH, windowed, expected);
    check_stop(m, ids, MORE - BATCH, windowed, expected);
    free(expected);
    zp_model_close(m);
}

static void test_interrupted_run_is_taken_back_or_kept_whole(void **state)
{
    (void)state;
    check_stops("gguf-llama-yarn", false);
    check_stops("gguf-gemma3", true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fork_keeps_a_mode_that_is_not_the_default),
        cmocka_unit_test(test_fork_needs_room_for_its_last_pages_only),
        cmocka_unit_test(test_attention_tasks_do_not_grow_with_the_context),
        cmocka_unit_test(test_pages_wanted_look_at_the_positions_in_use_only),
        cmocka_unit_test(test_steps_want_pages_for_what_they_write_only),
        cmocka_unit_test(test_rotations_done_are_those_of_the_tokens_computed),
        cmocka_unit_test(test_count_tells_of_rotations_that_did_not_run),
        cmocka_unit_test(test_run_over_one_layer_counts_that_layer),
        cmocka_unit_test(test_interrupted_run_is_taken_back_or_kept_whole),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
