/* test_dist.c: one process alone: sums in order, maxima, what it sends to itself; modules that are
 * none. Several processes: tests/dist. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/os.h"
#include "dist/dist.h"
#include "in_folder.h"
#include "live_bytes.h"

static struct dist *open_single(void)
{
    struct dist *d;
    zp_err err = { 0 };
    if (dist_open(&d, "single", NULL, &err) != ZP_OK) fail_msg("%s", err.message);
    return d;
}

static void test_one_process_adds_to_what_is_there(void **state)
{
    (void)state;
    enum { N = 300001 }; /* more than a piece */
    static float sum[N], x[N];
    static double wide[N], y[N];
    uint64_t live = live_bytes();
    struct dist *d = open_single();
    assert_int_equal(dist_rank(d), 0);
    assert_int_equal(dist_size(d), 1);
    for (int i = 0; i < N; i++) sum[i] = 1, x[i] = (float)i / 3, wide[i] = 2, y[i] = i / 7.0;
    assert_int_equal(dist_add_f32(d, sum, x, N, 1, NULL), ZP_OK);
    assert_int_equal(dist_add_f64(d, wide, y, N, 1, NULL), ZP_OK);
    for (int i = 0; i < N; i++) assert_true(sum[i] == 1 + x[i] && wide[i] == 2 + y[i]);
    assert_int_equal(dist_add_f32(d, sum, NULL, N, 0, NULL), ZP_OK); /* nobody has one */
    for (int i = 0; i < N; i++) assert_true(sum[i] == 1 + x[i]);
    zp_err err = { 0 };
    assert_int_equal(dist_add_f32(d, sum, x, N, 2, &err), ZP_USAGE);
    assert_non_null(strstr(err.message, "2 processes of 1"));
    assert_int_equal(dist_add_f32(d, sum, x, 0, 1, NULL), ZP_OK);
    dist_close(d);
    assert_int_equal(live_bytes(), live);
}

static void test_one_process_has_what_it_sends(void **state)
{
    (void)state;
    struct dist *d = open_single();
    char mine[] = "mine", all[sizeof mine] = "";
    double most[] = { 1, NAN, -INFINITY };
    zp_err err = { 0 };
    assert_int_equal(dist_all_gather(d, mine, sizeof mine, all, NULL), ZP_OK);
    assert_string_equal(all, "mine");
    assert_int_equal(dist_all_gather(d, mine, sizeof mine, mine, NULL), ZP_OK);
    assert_int_equal(dist_all_gather(d, NULL, 0, NULL, NULL), ZP_OK);
    assert_int_equal(dist_broadcast(d, mine, sizeof mine, 0, NULL), ZP_OK);
    assert_string_equal(mine, "mine");
    assert_int_equal(dist_broadcast(d, mine, sizeof mine, 1, &err), ZP_USAGE);
    assert_int_equal(dist_max(d, most, 3, NULL), ZP_OK);
    assert_true(most[0] == 1 && isnan(most[1]) && most[2] == -INFINITY);
    dist_set_timeout(d, 0.1);
    assert_int_equal(dist_barrier(d, NULL), ZP_OK);
    dist_close(d);
    dist_close(NULL);
}

static void test_an_aborted_run_goes_on_with_nothing(void **state)
{
    (void)state;
    struct dist *d = open_single();
    zp_err err = { 0 };
    dist_abort(d, 1); /* one process: nobody else to end */
    assert_int_equal(dist_barrier(d, &err), ZP_RUN);
    assert_non_null(strstr(err.message, "barrier is not possible"));
    dist_close(d);
}

static void refuse(const char *kind, const char *path, zp_status code, const char *part)
{
    struct dist *d;
    zp_err err = { 0 };
    uint64_t live = live_bytes();
    zp_status status = dist_open(&d, kind, path, &err);
    if (status != code || !strstr(err.message, part))
        fail_msg("%s: '%s' lacks '%s'", zp_status_name(status), err.message, part);
    assert_null(d);
    assert_int_equal(live_bytes(), live);
}

static void test_modules_that_are_none_are_refused(void **state)
{
    (void)state;
    const char *text = in_folder("text.so");
    assert_int_equal(os_write_file(text, "text", 4, NULL), ZP_OK);
    refuse("threads", NULL, ZP_USAGE, "'threads' are unknown");
    refuse("mpi", "/nowhere/libzerope_mpi.so", ZP_UNSUPPORTED, "no such module");
    refuse("mpi", "libm.so.6", ZP_UNSUPPORTED, "no such module"); /* not searched for */
    refuse("mpi", text, ZP_UNSUPPORTED, "cannot be loaded");
    refuse("mpi", folder, ZP_UNSUPPORTED, "cannot be loaded");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_process_adds_to_what_is_there),
        cmocka_unit_test(test_one_process_has_what_it_sends),
        cmocka_unit_test(test_an_aborted_run_goes_on_with_nothing),
        cmocka_unit_test(test_modules_that_are_none_are_refused),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
