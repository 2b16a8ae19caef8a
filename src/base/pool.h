/* pool.h: worker pool: the same function on every thread, static ownership of ranges,
 * spin-then-futex barrier.
 * One caller at a time; the caller's thread is worker 0. No allocation after pool_open (I5). */
#ifndef BASE_POOL_H
#define BASE_POOL_H

#include <stddef.h>
#include <stdint.h>
#include "status.h"

struct pool;
typedef void (*pool_fn)(void *arg, uint32_t thread, uint32_t n_threads);

/* n_threads >= 1; no pinning unless asked */
zp_status pool_open(struct pool **out, uint32_t n_threads, zp_err *err);
/* one core each, if cores suffice */
zp_status pool_pin(struct pool *p, zp_err *err);
void pool_close(struct pool *p);
uint32_t pool_threads(const struct pool *p);
/* Runs fn(arg, thread, n) on every worker and returns when all are done. */
void pool_run(struct pool *p, pool_fn fn, void *arg);
/* Inside fn: all workers wait for each other. The same in two steps: between them a worker may do
 * what others do not wait for, such as fetching what it will read next. */
void pool_barrier(struct pool *p, uint32_t thread);
void pool_arrive(struct pool *p, uint32_t thread);
void pool_wait(struct pool *p, uint32_t thread);

/* Static split of [0, n) in multiples of `grain`: worker `thread` of `n_threads` owns [*begin,
 * *end). */
ZP_INLINE void pool_share(size_t n, size_t grain, uint32_t thread, uint32_t n_threads,
                          size_t *begin, size_t *end)
{
    size_t units = (n + grain - 1) / grain;
    size_t b = units * thread / n_threads * grain, e = units * (thread + 1) / n_threads * grain;
    *begin = b < n ? b : n;
    *end = e < n ? e : n;
}

#endif
