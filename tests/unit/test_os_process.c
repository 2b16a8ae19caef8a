/* test_os_process.c: what the process is and has, as its monitors ask: clock, start, descriptors,
 * address space. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/os.h"

static void test_wall_clock_counts_nanoseconds_since_1970(void **state)
{
    (void)state;
    int64_t before = (int64_t)time(NULL) - 1, now = os_unix_now();
    assert_true(now >= before * 1000000000);
    assert_true(now <= ((int64_t)time(NULL) + 1) * 1000000000);
    assert_true(os_seconds_since(now) >= 0);
}

/* A child begins later than its parent and before it looks; names of programs do not confuse. */
static void test_start_is_between_parent_and_now(void **state)
{
    (void)state;
    double own = os_start_seconds(), now = 1e-9 * (double)os_unix_now();
    assert_true(own > 0 && own <= now + 0.02);
    pid_t child = fork();
    if (child == 0) {
        double start = os_start_seconds();
        _exit(start >= own - 0.02 && start <= 1e-9 * (double)os_unix_now() + 0.02 ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void test_open_files_are_counted(void **state)
{
    (void)state;
    int ends[2];
    uint64_t before = os_open_files();
    assert_true(before > 0);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(os_open_files(), before + 2);
    close(ends[0]);
    close(ends[1]);
    assert_int_equal(os_open_files(), before);
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    if (limit.rlim_cur == RLIM_INFINITY) assert_true(os_most_files() == UINT64_MAX);
    else assert_true(os_most_files() == limit.rlim_cur);
}

static void test_address_space_grows_with_mappings(void **state)
{
    (void)state;
    const size_t size = (size_t)64 << 20;
    uint64_t before = os_virtual_bytes();
    void *p = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(p != MAP_FAILED);
    assert_true(os_virtual_bytes() >= before + size);
    assert_true(os_virtual_bytes() >= os_rss_bytes());
    munmap(p, size);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wall_clock_counts_nanoseconds_since_1970),
        cmocka_unit_test(test_start_is_between_parent_and_now),
        cmocka_unit_test(test_open_files_are_counted),
        cmocka_unit_test(test_address_space_grows_with_mappings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
