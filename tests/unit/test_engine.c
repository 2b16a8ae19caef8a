/* test_engine.c: sequences of an engine: modes, forks, and what a run leaves behind. */
#include "golden.h"

#include <unistd.h>

#include "model/engine.h"
#include "model/gguf_write.h"

static char file[] = "/tmp/zerope-engine-XXXXXX";

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
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
