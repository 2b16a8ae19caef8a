/* test_evloop.c: timers, descriptors and wake-ups of the event loop, and objects that are closed at
 * once, wherever that happens. */
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "live_bytes.h"
#include "serve/evloop.h"

struct stage {
    struct evloop *loop;
    struct evtimer *timer;
    struct evpoll *poll;
    struct evwake *wake;
    int fd[2];
    int n, events;
    atomic_int work;
    int64_t sum;
};

static void count_to_three(void *arg)
{
    struct stage *s = arg;
    if (++s->n == 3) evtimer_stop(s->timer); /* then nothing is left to wait for */
}

static void test_timers_repeat_until_stopped(void **state)
{
    (void)state;
    uint64_t live = live_bytes();
    struct stage s = { 0 };
    assert_int_equal(evloop_open(&s.loop, NULL), ZP_OK);
    assert_int_equal(evtimer_open(&s.timer, s.loop, count_to_three, &s, NULL), ZP_OK);
    uint64_t begin = evloop_now(s.loop);
    evtimer_start(s.timer, 0, 5);
    assert_true(evtimer_runs(s.timer));
    evloop_run(s.loop);
    assert_int_equal(s.n, 3);
    assert_true(evloop_now(s.loop) - begin >= 10);
    assert_false(evtimer_runs(s.timer));
    evtimer_close(s.timer);
    evloop_close(s.loop);
    assert_int_equal(live_bytes(), live);
}

static void close_itself(void *arg)
{
    struct stage *s = arg;
    s->n++;
    evtimer_close(s->timer);
}

static void test_objects_close_inside_their_own_function(void **state)
{
    (void)state;
    uint64_t live = live_bytes();
    struct stage s = { 0 };
    assert_int_equal(evloop_open(&s.loop, NULL), ZP_OK);
    assert_int_equal(evtimer_open(&s.timer, s.loop, close_itself, &s, NULL), ZP_OK);
    evtimer_start(s.timer, 0, 1);
    evloop_run(s.loop);
    assert_int_equal(s.n, 1);
    evloop_close(s.loop);
    assert_int_equal(live_bytes(), live);
}

static void note(void *arg, int events)
{
    struct stage *s = arg;
    s->events |= events;
    s->n++;
    evloop_stop(s->loop);
}

static void test_descriptors_tell_what_is_watched(void **state)
{
    (void)state;
    uint64_t live = live_bytes();
    struct stage s = { 0 };
    assert_int_equal(evloop_open(&s.loop, NULL), ZP_OK);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, s.fd), 0);
    assert_int_equal(evpoll_open(&s.poll, s.loop, s.fd[0], note, &s, NULL), ZP_OK);
    assert_true(fcntl(s.fd[0], F_GETFL) & O_NONBLOCK);
    assert_int_equal(evpoll_watch(s.poll, EV_READ | EV_WRITE, NULL), ZP_OK);
    evloop_run(s.loop);
    assert_int_equal(s.events, EV_WRITE);
    assert_int_equal(write(s.fd[1], "x", 1), 1);
    s.events = 0;
    assert_int_equal(evpoll_watch(s.poll, EV_READ, NULL), ZP_OK);
    evloop_run(s.loop);
    assert_int_equal(s.events, EV_READ);
    /* The other side's end, behind a byte that nobody reads. */
    s.events = 0;
    assert_int_equal(evpoll_watch(s.poll, EV_HANGUP, NULL), ZP_OK);
    assert_int_equal(shutdown(s.fd[1], SHUT_WR), 0);
    evloop_run(s.loop);
    assert_int_equal(s.events, EV_HANGUP);
    int n = s.n;
    assert_int_equal(evpoll_watch(s.poll, 0, NULL), ZP_OK);
    evloop_run(s.loop); /* nothing is watched */
    assert_int_equal(s.n, n);
    evpoll_close(s.poll);
    close(s.fd[0]);
    close(s.fd[1]);
    evloop_close(s.loop);
    assert_int_equal(live_bytes(), live);
    zp_err err = { 0 };
    assert_int_equal(evloop_open(&s.loop, NULL), ZP_OK);
    assert_int_equal(evpoll_open(&s.poll, s.loop, -1, note, &s, &err), ZP_RUN);
    assert_null(s.poll);
    evloop_close(s.loop);
}

static void add_up(void *arg)
{
    struct stage *s = arg;
    int some = atomic_exchange(&s->work, 0);
    s->sum += some;
    if (s->sum == 3 * 10000) evloop_stop(s->loop);
}

static void *send_many(void *arg)
{
    struct stage *s = arg;
    for (int i = 0; i < 10000; i++) {
        atomic_fetch_add(&s->work, 1);
        evwake_send(s->wake);
    }
    return NULL;
}

static void test_wakes_from_other_threads_are_not_lost(void **state)
{
    (void)state;
    uint64_t live = live_bytes();
    struct stage s = { 0 };
    pthread_t threads[3];
    assert_int_equal(evloop_open(&s.loop, NULL), ZP_OK);
    assert_int_equal(evwake_open(&s.wake, s.loop, add_up, &s, NULL), ZP_OK);
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, send_many, &s), 0);
    evloop_run(s.loop);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    assert_int_equal(s.sum, 30000);
    evwake_close(s.wake);
    evloop_close(s.loop);
    assert_int_equal(live_bytes(), live);
}

static void test_loop_closes_what_is_left(void **state)
{
    (void)state;
    uint64_t live = live_bytes();
    struct stage s = { 0 };
    assert_int_equal(evloop_open(&s.loop, NULL), ZP_OK);
    assert_int_equal(evtimer_open(&s.timer, s.loop, count_to_three, &s, NULL), ZP_OK);
    assert_int_equal(evwake_open(&s.wake, s.loop, add_up, &s, NULL), ZP_OK);
    evtimer_start(s.timer, 1000000, 0);
    evloop_close(s.loop);
    assert_int_equal(s.n, 0);
    assert_int_equal(live_bytes(), live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_timers_repeat_until_stopped),
        cmocka_unit_test(test_objects_close_inside_their_own_function),
        cmocka_unit_test(test_descriptors_tell_what_is_watched),
        cmocka_unit_test(test_wakes_from_other_threads_are_not_lost),
        cmocka_unit_test(test_loop_closes_what_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
