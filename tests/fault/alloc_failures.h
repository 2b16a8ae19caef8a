/* alloc_failures.h: one call made again and again while allocation number n fails, once or from
 * then on: the status is ZP_NO_MEMORY and says why, no byte stays behind, the files beside are as
 * they were, and the call works afterwards. jansson's allocations count as ours. */
#ifndef TESTS_ALLOC_FAILURES_H
#define TESTS_ALLOC_FAILURES_H

#include "golden.h"

#include "base/mem.h"
#include "base/os.h"
#include "base/rng.h"
#include "live_bytes.h"

struct fail_call {
    const char *what;
    zp_status (*run)(void *arg, zp_err *why);
    void *arg;
    void (*undo)(void *arg);  /* NULL, or: takes back what a failed call left in its objects */
    void (*reset)(void *arg); /* NULL, or: puts the files as they are before a call */
    uint64_t may_do_without;  /* so many allocations are a convenience: the call works without, and
                               * gives the same files and the same result */
    uint64_t (*result)(void *arg); /* NULL, or: a hash of what else the last call gave */
    const char *folder;       /* NULL, or: its files must be as before after each failure */
    /* Allocations 1 .. all fail one after the other, then `sample` of the rest, the last few among
     * them. all = 0: every one. */
    uint64_t all, sample;
};

enum { FAIL_SEED = 20, FAIL_TAIL = 10, FAIL_MOST = 20000 };

static inline void *fail_take(size_t size)
{
    return mem_alloc(MEM_META, size);
}

/* Before anything else of jansson is called: what it made earlier could not be given back. */
static inline void fail_watch_jansson(void)
{
    json_set_alloc_funcs(fail_take, mem_free);
}

/* Names and bytes of all files of a folder. */
static inline uint64_t fail_folder_hash(const char *folder)
{
    char **names;
    size_t n;
    uint64_t hash = FAIL_SEED;
    if (folder == NULL) return 0;
    GOLDEN_OK(os_list_files(folder, &names, &n, err));
    for (size_t i = 0; i < n; i++) {
        struct buffer b = buffer_with_max(MEM_META, 64 << 20);
        GOLDEN_OK(os_read_file(names[i], &b, err));
        hash = hash_bytes(b.data, b.size, hash_bytes(names[i], strlen(names[i]), hash));
        buffer_free(&b);
    }
    os_list_free(names, n);
    return hash;
}

static inline uint64_t fail_result(const struct fail_call *f)
{
    return fail_folder_hash(f->folder) ^ (f->result ? f->result(f->arg) : 0);
}

/* What a call is compared with. */
struct fail_state {
    uint64_t total;   /* allocations of a call that works */
    uint64_t good;    /* fail_result of it */
    uint64_t old;     /* fail_folder_hash before a call */
    uint64_t without; /* calls that worked although an allocation failed */
};

static inline void fail_check_without(const struct fail_call *f, uint64_t n, struct fail_state *s)
{
    if (++s->without > f->may_do_without || fail_result(f) != s->good)
        fail_msg("%s, allocation %llu: works without, %s", f->what, (unsigned long long)n,
                 fail_result(f) == s->good ? "too often" : "but gives something else");
    if (f->reset) f->reset(f->arg);
}

/* One failure; false when the call has fewer allocations than n. */
static inline bool fail_once(const struct fail_call *f, uint64_t n, bool for_ever,
                             struct fail_state *s)
{
    zp_err why = { 0 };
    uint64_t before = live_bytes();
    mem_fail_at(n, for_ever);
    zp_status status = f->run(f->arg, &why);
    uint64_t failed = mem_fail_count();
    mem_fail_at(0, false);
    int64_t left = (int64_t)(live_bytes() - before);
    if (left != 0)
        fail_msg("%s, allocation %llu: %lld bytes stay behind", f->what, (unsigned long long)n,
                 (long long)left);
    if (failed == 0) {
        if (status != ZP_OK) fail_msg("%s: %s", f->what, why.message);
        return false;
    }
    if (status == ZP_OK) {
        fail_check_without(f, n, s);
        return true;
    }
    if (status != ZP_NO_MEMORY || why.code != ZP_NO_MEMORY || why.message[0] == '\0')
        fail_msg("%s, allocation %llu: %s: %s", f->what, (unsigned long long)n,
                 zp_status_name(status), why.message);
    if (fail_folder_hash(f->folder) != s->old)
        fail_msg("%s, allocation %llu: the files have changed", f->what, (unsigned long long)n);
    if (f->undo) f->undo(f->arg);
    return true;
}

/* Which allocation is number i of those to fail, of `total`: a pseudo-random one in each of equal
 * parts of the middle, then the last few. */
static inline uint64_t fail_number(const struct fail_call *f, uint64_t i, uint64_t total)
{
    uint64_t rest = total > f->all ? total - f->all : 0;
    if (f->all == 0 || i < f->all || rest <= f->sample) return i + 1;
    uint64_t at = i - f->all, tail = f->sample < FAIL_TAIL ? f->sample : FAIL_TAIL;
    uint64_t parts = f->sample - tail, middle = rest - tail;
    if (at >= parts) return total - (f->sample - 1 - at);
    struct rng r = rng_stream(FAIL_SEED, at);
    uint64_t from = middle * at / parts, to = middle * (at + 1) / parts;
    return f->all + 1 + from + rng_below(&r, to > from ? to - from : 1);
}

/* A call that works: allocations it makes. */
static inline uint64_t fail_none(const struct fail_call *f)
{
    struct mem_stats before, after;
    zp_err why = { 0 };
    uint64_t live = live_bytes();
    if (f->reset) f->reset(f->arg);
    mem_stats_read(&before);
    if (f->run(f->arg, &why) != ZP_OK) fail_msg("%s: %s", f->what, why.message);
    mem_stats_read(&after);
    if (live_bytes() != live) fail_msg("%s: bytes stay behind without any failure", f->what);
    return after.allocations - before.allocations;
}

static inline uint64_t fail_pass(const struct fail_call *f, bool for_ever, struct fail_state *s)
{
    uint64_t i = 0, most = f->all ? f->all + f->sample : FAIL_MOST;
    if (f->reset) f->reset(f->arg);
    s->old = fail_folder_hash(f->folder);
    s->without = 0;
    while (i < most && fail_once(f, fail_number(f, i, s->total), for_ever, s)) i++;
    if (i == FAIL_MOST) fail_msg("%s: still allocating after %d", f->what, FAIL_MOST);
    return i;
}

/* Fails as many allocations as there are, at least `least`. */
static inline void fail_each(const struct fail_call *f, uint64_t least)
{
    double begin = os_now();
    struct fail_state s = { .total = fail_none(f), .good = fail_result(f) };
    uint64_t n = fail_pass(f, false, &s), again = fail_pass(f, true, &s);
    printf("  %-32s %llu of %llu allocations failed, %.1f s\n", f->what, (unsigned long long)n,
           (unsigned long long)s.total, os_now() - begin);
    assert_int_equal(n, again);
    assert_true(n >= least);
    assert_int_equal(fail_none(f), s.total);
    if (fail_result(f) != s.good) fail_msg("%s: something else than before", f->what);
}

#endif
