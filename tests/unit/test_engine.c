/* test_engine.c: sequences of an engine: modes, forks, and what a run leaves behind. */
#include "golden.h"

#include <unistd.h>

#include "model/attend.h"
#include "model/engine.h"
#include "model/gguf_write.h"

static char file[] = "/tmp/zerope-engine-XXXXXX";

static zp_model *open_small(const char *name)
{
    char path[1024];
    zp_model *m = NULL;
    snprintf(path, sizeof path, ZP_TEST_DATA "/arch/gguf/%s.gguf", name);
    GOLDEN_OK(zp_model_open(&m, path, NULL, err));
    return m;
}

/* ---- modes ----------------------------------------------------------------------------------- */

/* A small model whose default mode has no evidence, while `zero` has. */
static zp_model *open_half_by_default(void)
{
    struct gguf g;
    struct gguf_edit e;
    zp_model *m = NULL;
    GOLDEN_OK(gguf_open(&g, ZP_TEST_DATA "/arch/gguf/zerope-partial.gguf", err));
    GOLDEN_OK(gguf_edit_init(&e, &g, err));
    GOLDEN_OK(gguf_edit_set_str(&e, "zerope.position.mode_default", "half", err));
    GOLDEN_OK(gguf_edit_set_str(&e, "zerope.evidence", "{\"verified_modes\":[\"zero\"]}", err));
    GOLDEN_OK(gguf_edit_write(&e, file, err));
    gguf_edit_free(&e);
    gguf_close(&g);
    GOLDEN_OK(zp_model_open(&m, file, NULL, err));
    return m;
}

static void test_fork_keeps_a_mode_that_is_not_the_default(void **state)
{
    (void)state;
    static const int32_t ids[] = { 1, 2, 3, 4, 5 };
    zp_model *m = open_half_by_default();
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
    GOLDEN_OK(zp_engine_run(e, items, 2, NULL, 0, NULL, err));
    size_t tasks = attend_tasks(&e->forward);
    for (int i = 0; i < 2; i++) zp_seq_close(s[i]);
    zp_engine_close(e);
    return tasks;
}

static void test_attention_tasks_do_not_grow_with_the_context(void **state)
{
    (void)state;
    zp_model *m = open_small("gguf-llama-yarn");
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
    zp_model *m = open_small("gguf-llama-yarn");
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

static int setup(void **state)
{
    (void)state;
    int fd = mkstemp(file);
    return fd < 0 ? -1 : close(fd);
}

static int teardown(void **state)
{
    (void)state;
    return remove(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fork_keeps_a_mode_that_is_not_the_default),
        cmocka_unit_test(test_attention_tasks_do_not_grow_with_the_context),
        cmocka_unit_test(test_pages_wanted_look_at_the_positions_in_use_only),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
