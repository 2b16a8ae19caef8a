/* test_evaporate_options.c: of what both halves of zp_evaporate_options hold, one counts, as evap.h
 * says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

#include <zerope/evap.h>

#define MODEL ZP_TEST_DATA "/arch/gguf/gguf-qwen2.gguf"
#define TEXT ZP_TEST_DATA "/prose.txt"

static bool count(void *arg, const char *what, uint64_t done, uint64_t total)
{
    (void)what, (void)done, (void)total;
    ++*(int *)arg;
    return true;
}

static bool stop(void *arg, const char *what, uint64_t done, uint64_t total)
{
    (void)what, (void)done, (void)total;
    ++*(int *)arg;
    return false;
}

static char out[] = "/tmp/zerope-options-XXXXXX";

static zp_status evaporate(const zp_evaporate_options *o, char **json, zp_err *err)
{
    return zp_evaporate_run(MODEL, TEXT, o, out, json, err);
}

static void what_plan_repeats_is_not_looked_at(void **state)
{
    (void)state;
    int steps = 0, plan_steps = 0;
    char *json = NULL;
    zp_err err = { 0 };
    zp_evaporate_options o = {
        .scan = { .n_ctx = 64, .n_windows_local = 2, .n_windows_kl = 1, .n_threads = 1,
                  .local_window = 32, /* 64 tokens are too few for it: would fail */
                  .progress = { count, &steps } },
        .plan = { .budget_kl = 1.0, .n_threads = 1u << 30, .progress = { stop, &plan_steps },
                  .model = "/nowhere", .text = "/nowhere" },
        .n_windows_check = 2,
    };
    if (evaporate(&o, &json, &err) != ZP_OK) fail_msg("%s", err.message);
    zp_free(json);
    assert_true(steps > 0);
    assert_int_equal(plan_steps, 0);
    o.scan.local_window = 0, o.plan.local_window = 32;
    assert_int_equal(evaporate(&o, &json, &err), ZP_BAD_INPUT);
}

static int make_file(void **state)
{
    (void)state;
    int fd = mkstemp(out);
    return fd < 0 || close(fd) != 0;
}

static int remove_file(void **state)
{
    (void)state;
    return remove(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(what_plan_repeats_is_not_looked_at) };
    return cmocka_run_group_tests(tests, make_file, remove_file);
}
