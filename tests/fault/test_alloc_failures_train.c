/* test_alloc_failures_train.c: saving and opening checkpoints when allocation number n fails, for
 * all n: ZP_NO_MEMORY, no byte stays behind, the folder is as it was, and it works afterwards. */
#include "alloc_failures.h"

#include "in_folder.h"
#include "train/checkpoint.h"

static const float weights[100] = { 1, 2, 3 };
static const struct checkpoint_part parts[] = { { "weights", CHECKPOINT_F32, weights, 100 },
                                                { "m", CHECKPOINT_F32, weights, 50 } };
static const struct checkpoint_key key = { 1, 2, 3 };

static zp_status save(void *arg, zp_err *why)
{
    return checkpoint_save(arg, 20, &key, parts, ZP_COUNT(parts), 3, why);
}

static zp_status open_last(void *arg, zp_err *why)
{
    struct checkpoint c;
    ZP_TRY(checkpoint_open_last(&c, arg, &key, why));
    checkpoint_close(&c);
    return ZP_OK;
}

static void test_checkpoints(void **state)
{
    (void)state;
    char path[128];
    snprintf(path, sizeof path, "%s", in_folder("run"));
    for (uint64_t step = 0; step < 40; step += 10) /* 30 is what a roll-back gives up */
        GOLDEN_OK(checkpoint_save(path, step, &key, parts, ZP_COUNT(parts), 0, err));
    struct fail_call calls[] = {
        { .what = "checkpoint_save", .run = save, .arg = path, .folder = path },
        { .what = "checkpoint_open_last", .run = open_last, .arg = path, .folder = path },
    };
    GOLDEN_OK(save(path, err));
    fail_each(&calls[0], 6);
    fail_each(&calls[1], 2);
}

int main(void)
{
    fail_watch_jansson();
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_checkpoints) };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
