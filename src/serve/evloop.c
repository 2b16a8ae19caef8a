/* evloop.c: libuv's loop, timers, polls and asyncs behind objects that are closed at once.
 * L1 a closed object's function is not called again; libuv gives its memory back some rounds later,
 *    at the latest in evloop_close.
 * L2 the handle is the first member of its object, so that either leads to the other. */
#include "evloop.h"

#include <assert.h>
#include <stddef.h>
#include <uv.h>

#include "base/mem.h"

struct evloop {
    uv_loop_t uv;
};

struct evtimer {
    uv_timer_t uv; // L2
    void (*call)(void *arg);
    void *arg;
};

struct evpoll {
    uv_poll_t uv; // L2
    void (*call)(void *arg, int events);
    void *arg;
};

struct evwake {
    uv_async_t uv; // L2
    void (*call)(void *arg);
    void *arg;
};

_Static_assert(EV_READ == (int)UV_READABLE && EV_WRITE == (int)UV_WRITABLE &&
                   EV_HANGUP == (int)UV_DISCONNECT,
               "events have libuv's numbers");

static void release(uv_handle_t *handle)
{
    mem_free(handle);
}

static void close_handle(void *object)
{
    uv_handle_t *handle = object;
    if (handle != NULL && !uv_is_closing(handle)) uv_close(handle, release); // L1
}

/* ---- loop ---- */

zp_status evloop_open(struct evloop **out, zp_err *err)
{
    *out = NULL;
    struct evloop *l;
    ZP_ALLOC(l, MEM_SERVE, 1, err, "the event loop");
    int code = uv_loop_init(&l->uv);
    if (code != 0) mem_free(l);
    ZP_FAIL_IF(code != 0, err, ZP_RUN, "the event loop cannot start: %s", uv_strerror(code));
    *out = l;
    return ZP_OK;
}

void evloop_run(struct evloop *l)
{
    (void)uv_run(&l->uv, UV_RUN_DEFAULT);
}

void evloop_stop(struct evloop *l)
{
    uv_stop(&l->uv);
}

static void close_left(uv_handle_t *handle, void *arg)
{
    (void)arg;
    close_handle(handle);
}

void evloop_close(struct evloop *l)
{
    if (l == NULL) return;
    uv_walk(&l->uv, close_left, NULL);
    int code = UV_EBUSY;
    while (code == UV_EBUSY) {
        (void)uv_run(&l->uv, UV_RUN_DEFAULT);
        code = uv_loop_close(&l->uv);
    }
    assert(code == 0); // L1: nothing is open any more
    mem_free(l);
}

uint64_t evloop_now(const struct evloop *l)
{
    return uv_now(&l->uv);
}

/* ---- timers ---- */

static void timer_is_due(uv_timer_t *handle)
{
    struct evtimer *t = (struct evtimer *)handle;
    t->call(t->arg);
}

zp_status evtimer_open(struct evtimer **out, struct evloop *l, void (*call)(void *arg), void *arg,
                       zp_err *err)
{
    *out = NULL;
    struct evtimer *t;
    ZP_ALLOC(t, MEM_SERVE, 1, err, "a timer");
    t->call = call;
    t->arg = arg;
    (void)uv_timer_init(&l->uv, &t->uv); /* cannot fail */
    *out = t;
    return ZP_OK;
}

void evtimer_start(struct evtimer *t, uint64_t ms, uint64_t repeat_ms)
{
    (void)uv_timer_start(&t->uv, timer_is_due, ms, repeat_ms);
}

void evtimer_stop(struct evtimer *t)
{
    (void)uv_timer_stop(&t->uv);
}

bool evtimer_runs(const struct evtimer *t)
{
    return uv_is_active((const uv_handle_t *)&t->uv) != 0;
}

void evtimer_close(struct evtimer *t)
{
    close_handle(t);
}

/* ---- descriptors ---- */

static void poll_tells(uv_poll_t *handle, int status, int events)
{
    struct evpoll *p = (struct evpoll *)handle;
    p->call(p->arg, status < 0 ? EV_BROKEN : events);
}

zp_status evpoll_open(struct evpoll **out, struct evloop *l, int fd,
                      void (*call)(void *arg, int events), void *arg, zp_err *err)
{
    *out = NULL;
    struct evpoll *p;
    ZP_ALLOC(p, MEM_SERVE, 1, err, "a watched descriptor");
    p->call = call;
    p->arg = arg;
    int code = uv_poll_init(&l->uv, &p->uv, fd);
    if (code != 0) mem_free(p);
    ZP_FAIL_IF(code != 0, err, ZP_RUN, "descriptor %d cannot be watched: %s", fd,
               uv_strerror(code));
    *out = p;
    return ZP_OK;
}

zp_status evpoll_watch(struct evpoll *p, int events, zp_err *err)
{
    int code = events == 0 ? uv_poll_stop(&p->uv) : uv_poll_start(&p->uv, events, poll_tells);
    ZP_FAIL_IF(code != 0, err, ZP_RUN, "a descriptor cannot be watched: %s", uv_strerror(code));
    return ZP_OK;
}

void evpoll_close(struct evpoll *p)
{
    close_handle(p);
}

/* ---- from other threads ---- */

static void wake_arrives(uv_async_t *handle)
{
    struct evwake *w = (struct evwake *)handle;
    w->call(w->arg);
}

zp_status evwake_open(struct evwake **out, struct evloop *l, void (*call)(void *arg), void *arg,
                      zp_err *err)
{
    *out = NULL;
    struct evwake *w;
    ZP_ALLOC(w, MEM_SERVE, 1, err, "a wake-up");
    w->call = call;
    w->arg = arg;
    int code = uv_async_init(&l->uv, &w->uv, wake_arrives);
    if (code != 0) mem_free(w);
    ZP_FAIL_IF(code != 0, err, ZP_RUN, "the event loop cannot be woken: %s", uv_strerror(code));
    *out = w;
    return ZP_OK;
}

void evwake_send(struct evwake *w)
{
    (void)uv_async_send(&w->uv); /* fails only on what is no async handle */
}

void evwake_close(struct evwake *w)
{
    close_handle(w);
}
