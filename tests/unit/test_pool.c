/* test_pool.c: every worker runs once, barriers order memory, sleeping workers wake, pinning is
 * undone. */
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/mem.h"
#include "base/os.h"
#include "base/pool.h"

#define MANY 16

static void nap(long us)
{
    nanosleep(&(struct timespec){ .tv_nsec = us * 1000 }, NULL);
}

struct tally {
    uint32_t calls[MANY]; /* plain on purpose: the pool must order them, tsan watches */
    uint32_t n_threads;
};

static void count(void *arg, uint32_t thread, uint32_t n_threads)
{
    struct tally *t = arg;
    t->calls[thread]++;
    if (thread == 0) t->n_threads = n_threads;
}

static void test_every_worker_runs_once_a_run(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 5; n++) {
        struct pool *p;
        zp_err err = { 0 };
        assert_int_equal(pool_open(&p, n, &err), ZP_OK);
        assert_int_equal(pool_threads(p), n);
        struct tally t = { { 0 }, 0 };
        for (uint32_t run = 1; run <= 500; run++) {
            pool_run(p, count, &t);
            assert_int_equal(t.n_threads, n);
            for (uint32_t i = 0; i < MANY; i++) assert_int_equal(t.calls[i], i < n ? run : 0);
            if (run % 100 == 0) nap(3000); /* long enough for all to fall asleep */
        }
        pool_close(p);
    }
}

struct phases {
    struct pool *pool;
    uint32_t value[MANY];
    atomic_uint wrong;
    uint32_t rounds;
};

/* Each round: write the own cell, wait, check all cells, wait. */
static void step(void *arg, uint32_t thread, uint32_t n_threads)
{
    struct phases *s = arg;
    for (uint32_t round = 1; round <= s->rounds; round++) {
        s->value[thread] = round * 1000 + thread;
        if (round % 256 == thread * 16) nap(200); /* now and then somebody is late */
        pool_barrier(s->pool, thread);
        for (uint32_t i = 0; i < n_threads; i++)
            if (s->value[i] != round * 1000 + i) atomic_fetch_add(&s->wrong, 1);
        pool_barrier(s->pool, thread);
    }
}

static void stress(uint32_t n_threads, uint32_t rounds)
{
    struct phases s = { .rounds = rounds };
    assert_int_equal(pool_open(&s.pool, n_threads, NULL), ZP_OK);
    for (int run = 0; run < 3; run++) pool_run(s.pool, step, &s);
    assert_int_equal(atomic_load(&s.wrong), 0);
    pool_close(s.pool);
}

static void test_barrier_shows_what_others_wrote(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 5; n++) stress(n, 1000);
}

static void test_many_more_threads_than_processors_finish(void **state)
{
    (void)state;
    stress(MANY, 200);
}

static void test_run_takes_no_memory(void **state)
{
    (void)state;
    struct phases s = { .rounds = 10 };
    struct mem_stats before, after, closed, opened;
    mem_stats_read(&opened);
    assert_int_equal(pool_open(&s.pool, 3, NULL), ZP_OK);
    mem_stats_read(&before);
    for (int run = 0; run < 10; run++) pool_run(s.pool, step, &s);
    mem_stats_read(&after);
    pool_close(s.pool);
    mem_stats_read(&closed);
    assert_int_equal(before.allocations, after.allocations);
    assert_int_equal(opened.live[MEM_META], closed.live[MEM_META]);
}

static void test_shares_cover_everything_once(void **state)
{
    (void)state;
    for (size_t n = 0; n <= 100; n++)
        for (size_t grain = 1; grain <= 17; grain += 4)
            for (uint32_t threads = 1; threads <= 7; threads++) {
                size_t at = 0;
                for (uint32_t t = 0; t < threads; t++) {
                    size_t begin, end;
                    pool_share(n, grain, t, threads, &begin, &end);
                    assert_int_equal(begin, at);
                    assert_true(begin % grain == 0 || begin == n);
                    assert_true(end >= begin);
                    at = end;
                }
                assert_int_equal(at, n);
            }
}

static void test_wrong_thread_counts_are_refused(void **state)
{
    (void)state;
    struct pool *p = (struct pool *)state;
    zp_err err = { 0 };
    assert_int_equal(pool_open(&p, 0, &err), ZP_USAGE);
    assert_null(p);
    assert_non_null(strstr(err.message, "expected 1 to"));
    assert_int_equal(pool_open(&p, 100000, NULL), ZP_USAGE);
    pool_close(p);
}

static void test_lack_of_memory_is_reported(void **state)
{
    (void)state;
    struct pool *p;
    zp_err err = { 0 };
    mem_fail_at(1, false);
    assert_int_equal(pool_open(&p, 2, &err), ZP_NO_MEMORY);
    mem_fail_at(0, false);
    assert_null(p);
}

static void read_mask(void *arg, uint32_t thread, uint32_t n_threads)
{
    (void)n_threads;
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    ((int *)arg)[thread] = sigismember(&mask, SIGINT);
}

static void test_signals_stay_with_the_caller(void **state)
{
    (void)state;
    struct pool *p;
    int blocked[3] = { -1, -1, -1 };
    assert_int_equal(pool_open(&p, 3, NULL), ZP_OK);
    pool_run(p, read_mask, blocked);
    assert_int_equal(blocked[0], 0);
    assert_int_equal(blocked[1], 1);
    assert_int_equal(blocked[2], 1);
    pool_close(p);
}

static void count_own_cpus(void *arg, uint32_t thread, uint32_t n_threads)
{
    (void)n_threads;
    cpu_set_t set;
    sched_getaffinity(0, sizeof set, &set);
    ((cpu_set_t *)arg)[thread] = set;
}

static void leave(int number)
{
    (void)number;
    _exit(3);
}

static void touch_page(void *arg, uint32_t thread, uint32_t n_threads)
{
    volatile const uint8_t *page = arg;
    if (thread == n_threads - 1) (void)*page;
}

/* A fault of a worker reaches the handler: blocked, it would kill without a word. */
static void test_faults_of_workers_reach_their_handler(void **state)
{
    (void)state;
    pid_t child = fork();
    if (child == 0) {
        struct pool *p = NULL;
        FILE *file = tmpfile();
        signal(SIGBUS, leave);
        if (!file || ftruncate(fileno(file), 4096) || pool_open(&p, 2, NULL) != ZP_OK) _exit(1);
        void *page = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fileno(file), 0);
        if (page == MAP_FAILED || ftruncate(fileno(file), 0)) _exit(1);
        pool_run(p, touch_page, page);
        _exit(0);
    }
    int how = 0;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how));
    assert_int_equal(WEXITSTATUS(how), 3);
}

static void test_pinning_is_one_processor_each_and_undone(void **state)
{
    (void)state;
    cpu_set_t before, after, own[MANY];
    sched_getaffinity(0, sizeof before, &before);
    uint32_t n = (uint32_t)CPU_COUNT(&before);
    if (n > MANY) n = MANY;
    struct pool *p;
    assert_int_equal(pool_open(&p, n, NULL), ZP_OK);
    for (int again = 0; again < 2; again++) {
        assert_int_equal(pool_pin(p, NULL), ZP_OK);
        pool_run(p, count_own_cpus, own);
        for (uint32_t i = 0; i < n; i++) {
            assert_int_equal(CPU_COUNT(&own[i]), 1);
            for (uint32_t k = 0; k < i; k++) assert_false(CPU_EQUAL(&own[i], &own[k]));
        }
    }
    assert_true(os_cpu_count() <= (uint32_t)CPU_COUNT(&before)); /* not the pinned caller's 1 */
    pool_close(p);
    sched_getaffinity(0, sizeof after, &after);
    assert_true(CPU_EQUAL(&before, &after));
}

static void test_pinning_more_threads_than_processors_is_refused(void **state)
{
    (void)state;
    cpu_set_t set;
    sched_getaffinity(0, sizeof set, &set);
    struct pool *p;
    zp_err err = { 0 };
    assert_int_equal(pool_open(&p, (uint32_t)CPU_COUNT(&set) + 1, NULL), ZP_OK);
    assert_int_equal(pool_pin(p, &err), ZP_USAGE);
    assert_non_null(strstr(err.message, "cannot be pinned"));
    pool_close(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_worker_runs_once_a_run),
        cmocka_unit_test(test_barrier_shows_what_others_wrote),
        cmocka_unit_test(test_many_more_threads_than_processors_finish),
        cmocka_unit_test(test_run_takes_no_memory),
        cmocka_unit_test(test_shares_cover_everything_once),
        cmocka_unit_test(test_wrong_thread_counts_are_refused),
        cmocka_unit_test(test_lack_of_memory_is_reported),
        cmocka_unit_test(test_signals_stay_with_the_caller),
        cmocka_unit_test(test_faults_of_workers_reach_their_handler),
        cmocka_unit_test(test_pinning_is_one_processor_each_and_undone),
        cmocka_unit_test(test_pinning_more_threads_than_processors_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
