/* pool.c: worker threads that run one function together. Owns: the threads and their signals. With
 * os.c and os_write.c the only POSIX.
 * A signal is a value on its own cache line with one writer; waiters watch it for about 30 us, then
 * sleep in the kernel.
 * P1 a signal's value only grows (modulo 2^32): whoever waits for a value may find a later one, as
 *    a worker can be one barrier ahead of another that has not looked yet.
 * P2 the writer stores the value before it reads `sleepers`, a waiter counts itself before it
 *    re-reads the value
 *    (both sequentially consistent): either the writer sees the sleeper, or the sleeper sees the
 *    value.
 * P3 nobody spins where the thread waited for may need the core: with more threads than
 *    processors, and while other processes crowd them. Whoever spins there keeps the one it waits
 *    for from running, or is put on the same core with it; who sleeps makes room. The kernel tells:
 *    it counts how often it took a core away from a thread. One core busy, decode: 0.6 to 0.7 of
 *    the idle speed (`accept engine busy`), with spinning alone 0.32. */
#include "pool.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "mem.h"
#include "os.h"

#define MAX_THREADS 1024
#define SPIN_NS 30000
#define SPIN_CHECK 32 /* pauses between two looks at the clock */
/* Crowded: so many cores taken away in a row of runs, each run before counting half. */
#define CROWDED 3
/* Runs without spinning, twice as many each time it turns out to have been too early to stop. */
#define REST_LEAST 32
#define REST_MOST 8192

struct event {
    _Atomic uint32_t value;
    _Atomic uint32_t sleepers;
} ZP_ALIGN(ZP_CACHE_LINE);

struct worker {
    struct event arrived; /* phase this worker has reached; written by it alone */
    struct pool *pool;
    pthread_t handle;
    uint32_t index, phase; /* phase: own count of barriers and ends of runs */
    long taken; /* how often the kernel took its core away in this run */
    bool started;
} ZP_ALIGN(ZP_CACHE_LINE);

struct pool {
    struct event go;      /* number of the current run */
    pool_fn fn;           /* valid while a run is on; NULL tells workers to end */
    void *arg;
    uint32_t n_threads, runs;
    _Atomic int64_t spin_ns;
    bool may_spin;
    uint32_t rest, rested; /* runs to go without spinning; as many were set the last time */
    uint32_t calm;         /* runs with it since */
    double crowd;
    cpu_set_t caller_cpus;
    bool pinned;
    struct worker workers[];
};

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void relax(void)
{
#if ZP_X86
    __builtin_ia32_pause();
#endif
}

static bool is_past(uint32_t seen, uint32_t value)
{
    return (int32_t)(seen - value) >= 0; // P1
}

static bool reached(struct event *e, uint32_t value)
{
    return is_past(atomic_load_explicit(&e->value, memory_order_acquire), value);
}

static bool spin_until(struct event *e, uint32_t value, int64_t spin_ns)
{
    if (reached(e, value)) return true;
    if (spin_ns == 0) return false;
    int64_t end = now_ns() + spin_ns;
    do {
        for (int i = 0; i < SPIN_CHECK; i++) {
            if (reached(e, value)) return true;
            relax();
        }
    } while (now_ns() < end);
    return false;
}

static void event_wait(struct event *e, uint32_t value, int64_t spin_ns)
{
    if (spin_until(e, value, spin_ns)) return;
    atomic_fetch_add(&e->sleepers, 1); // P2
    for (;;) {
        uint32_t seen = atomic_load(&e->value);
        if (is_past(seen, value)) break;
        /* Returns at once if the value is no longer `seen`; spurious wake-ups only loop. */
        syscall(SYS_futex, &e->value, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
    }
    atomic_fetch_sub(&e->sleepers, 1);
}

static void event_post(struct event *e, uint32_t value)
{
    atomic_store(&e->value, value);
    if (atomic_load(&e->sleepers) != 0) // P2
        syscall(SYS_futex, &e->value, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static int64_t spin_of(struct pool *p)
{
    return atomic_load_explicit(&p->spin_ns, memory_order_relaxed);
}

/* How often the kernel has taken a core away from this thread, ever. */
static long cores_taken(void)
{
    struct rusage used;
    return getrusage(RUSAGE_THREAD, &used) == 0 ? used.ru_nivcsw : 0;
}

/* After a run, all workers having counted: whether the next one spins (P3). */
static void choose_spin(struct pool *p)
{
    p->crowd /= 2;
    for (uint32_t t = 0; t < p->n_threads; t++) p->crowd += (double)p->workers[t].taken;
    if (p->rest > 0 && --p->rest == 0) p->crowd = 0, p->calm = 0;
    else if (p->rest == 0 && p->crowd >= CROWDED) {
        p->rested = p->calm > p->rested || p->rested == 0 ? REST_LEAST : 2 * p->rested;
        if (p->rested > REST_MOST) p->rested = REST_MOST;
        p->rest = p->rested;
    } else if (p->rest == 0) p->calm++;
    atomic_store_explicit(&p->spin_ns, p->rest ? 0 : SPIN_NS, memory_order_relaxed);
}

static void *work(void *arg)
{
    struct worker *w = arg;
    struct pool *p = w->pool;
    for (uint32_t run = 1;; run++) {
        event_wait(&p->go, run, spin_of(p));
        if (p->fn == NULL) return NULL;
        long before = cores_taken();
        p->fn(p->arg, w->index, p->n_threads);
        w->taken = cores_taken() - before;
        event_post(&w->arrived, ++w->phase);
    }
}

void pool_arrive(struct pool *p, uint32_t thread)
{
    if (p->n_threads > 1) event_post(&p->workers[thread].arrived, ++p->workers[thread].phase);
}

void pool_wait(struct pool *p, uint32_t thread)
{
    for (uint32_t t = 0; t < p->n_threads; t++)
        if (t != thread) event_wait(&p->workers[t].arrived, p->workers[thread].phase, spin_of(p));
}

void pool_barrier(struct pool *p, uint32_t thread)
{
    pool_arrive(p, thread);
    pool_wait(p, thread);
}

void pool_run(struct pool *p, pool_fn fn, void *arg)
{
    if (p->n_threads == 1) {
        fn(arg, 0, 1);
        return;
    }
    long before = cores_taken(); /* of any thread that calls, which has a past of its own */
    p->fn = fn;
    p->arg = arg;
    event_post(&p->go, ++p->runs);
    fn(arg, 0, p->n_threads);
    p->workers[0].phase++;
    pool_wait(p, 0);
    if (!p->may_spin) return;
    p->workers[0].taken = cores_taken() - before;
    choose_spin(p);
}

uint32_t pool_threads(const struct pool *p)
{
    return p->n_threads;
}

static int start_worker(struct worker *w)
{
    /* Signals belong to the caller's thread. Faults are a thread's own: blocked, they would kill
     * without the handler (a mapped file that shrank). */
    static const int faults[] = { SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP };
    sigset_t blocked, before;
    sigfillset(&blocked);
    for (size_t i = 0; i < ZP_COUNT(faults); i++) sigdelset(&blocked, faults[i]);
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    int code = pthread_create(&w->handle, NULL, work, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    w->started = code == 0;
    return code;
}

zp_status pool_open(struct pool **out, uint32_t n_threads, zp_err *err)
{
    *out = NULL;
    ZP_FAIL_IF(n_threads < 1 || n_threads > MAX_THREADS, err, ZP_USAGE,
               "%u threads asked for, expected 1 to %d", n_threads, MAX_THREADS);
    struct pool *p = mem_zalloc(MEM_META, sizeof *p + n_threads * sizeof p->workers[0]);
    ZP_FAIL_IF(p == NULL, err, ZP_NO_MEMORY, "not enough memory for a pool of %u threads",
               n_threads);
    p->n_threads = n_threads;
    p->may_spin = n_threads <= os_cpu_count(); // P3
    atomic_init(&p->spin_ns, p->may_spin ? SPIN_NS : 0);
    for (uint32_t t = 0; t < n_threads; t++) {
        p->workers[t].pool = p;
        p->workers[t].index = t;
    }
    for (uint32_t t = 1; t < n_threads; t++) {
        int code = start_worker(&p->workers[t]);
        if (code == 0) continue;
        pool_close(p);
        ZP_FAIL(err, ZP_RUN, "thread %u of %u cannot start: %s; ask for fewer threads", t,
                n_threads, strerror(code));
    }
    *out = p;
    return ZP_OK;
}

/* Fills order[] with the allowed processors, one hardware thread of each core first; returns how
 * many. */
static uint32_t order_cpus(const cpu_set_t *allowed, size_t order[CPU_SETSIZE])
{
    uint32_t n = 0;
    for (int pass = 0; pass < 2; pass++)
        for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++)
            if (CPU_ISSET(cpu, allowed) && os_cpu_leads_core(cpu) == (pass == 0)) order[n++] = cpu;
    return n;
}

zp_status pool_pin(struct pool *p, zp_err *err)
{
    size_t order[CPU_SETSIZE];
    cpu_set_t allowed;
    ZP_FAIL_IF(sched_getaffinity(0, sizeof allowed, &allowed) != 0, err, ZP_RUN,
               "the processors of this process cannot be read: %s", strerror(errno));
    if (p->pinned) allowed = p->caller_cpus; /* the caller itself is down to one by now */
    uint32_t n = order_cpus(&allowed, order);
    ZP_FAIL_IF(n < p->n_threads, err, ZP_USAGE,
               "%u threads cannot be pinned: this process may use %u processors", p->n_threads, n);
    p->caller_cpus = allowed;
    p->pinned = true;
    for (uint32_t t = 0; t < p->n_threads; t++) {
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(order[t], &one);
        int code = pthread_setaffinity_np(t == 0 ? pthread_self() : p->workers[t].handle,
                                          sizeof one, &one);
        ZP_FAIL_IF(code != 0, err, ZP_RUN, "thread %u cannot be pinned to processor %zu: %s", t,
                   order[t], strerror(code));
    }
    return ZP_OK;
}

void pool_close(struct pool *p)
{
    if (p == NULL) return;
    p->fn = NULL;
    event_post(&p->go, ++p->runs);
    for (uint32_t t = 1; t < p->n_threads; t++)
        if (p->workers[t].started) pthread_join(p->workers[t].handle, NULL);
    if (p->pinned) pthread_setaffinity_np(pthread_self(), sizeof p->caller_cpus, &p->caller_cpus);
    mem_free(p);
}
