/* outbox.c: events on their way to the caller, each a record that holds all it points to.
 * Owns: the ring. Does not know: jobs.
 * O1 nothing is allocated for an event.
 * O2 who waits for room has said so before it looked once more; who makes room looks afterwards:
 *    one of them sees the other (both sequentially consistent). */
#include "serve/outbox.h"

#include <string.h>

zp_status outbox_open(struct outbox *b, const struct sched_options *o, sem_t *signal, zp_err *err)
{
    *b = (struct outbox){ .signal = signal, .wake = o->wake, .wake_arg = o->wake_arg };
    return ring_open(&b->ring, o->event_bytes, err);
}

void outbox_free(struct outbox *b)
{
    ring_free(&b->ring);
}

void outbox_tell(struct outbox *b)
{
    if (b->news && b->wake) b->wake(b->wake_arg);
    b->news = false;
}

static void *wait_for_room(struct outbox *b, size_t size)
{
    void *record = ring_reserve(&b->ring, size);
    while (!record && !atomic_load(&b->closing)) {
        atomic_store(&b->wants_room, true);
        record = ring_reserve(&b->ring, size); /* O2 */
        if (record) break;
        outbox_tell(b);
        sem_wait(b->signal);
    }
    return record;
}

/* Copies bytes to *to and moves it behind them. */
static const char *put_bytes(char **to, const char *bytes, size_t size)
{
    char *copy = *to;
    if (size) memcpy(copy, bytes, size);
    *to += size;
    return copy;
}

static bool has_token(const struct sched_event *e)
{
    return e->kind == SCHED_TOKEN || e->kind == SCHED_PROMPT_TOKEN;
}

static size_t size_of(const struct sched_event *e)
{
    size_t size = sizeof *e + (e->err ? sizeof *e->err : 0);
    if (!has_token(e)) return size;
    const struct sched_token *t = &e->token;
    size += t->size + t->own.n_bytes + t->n_top * sizeof *t->top;
    for (uint32_t i = 0; i < t->n_top; i++) size += t->top[i].n_bytes;
    return size;
}

/* *t points into the writer's memory, and then behind `room`. */
static void put_token(struct sched_token *t, void *room)
{
    struct sched_logprob *top = room;
    char *bytes = (char *)(top + t->n_top);
    if (t->n_top) memcpy(top, t->top, t->n_top * sizeof *top);
    t->top = top;
    t->text = put_bytes(&bytes, t->text, t->size);
    if (t->own.bytes) t->own.bytes = put_bytes(&bytes, t->own.bytes, t->own.n_bytes);
    for (uint32_t i = 0; i < t->n_top; i++)
        if (top[i].bytes) top[i].bytes = put_bytes(&bytes, top[i].bytes, top[i].n_bytes);
}

zp_status outbox_put(struct outbox *b, const struct sched_event *e, zp_err *err)
{
    size_t size = size_of(e);
    ZP_FAIL_IF(size > ring_most(&b->ring), err, ZP_RUN,
               "an event of %zu bytes is too large for messages between threads: at most %zu", size,
               ring_most(&b->ring));
    struct sched_event *copy = wait_for_room(b, size);
    if (!copy) return ZP_OK;
    *copy = *e;
    if (e->err) copy->err = memcpy(copy + 1, e->err, sizeof *e->err);
    if (has_token(e)) put_token(&copy->token, copy + 1);
    ring_commit(&b->ring);
    b->news = true;
    return ZP_OK;
}

const struct sched_event *outbox_front(struct outbox *b)
{
    return ring_front(&b->ring);
}

void outbox_release(struct outbox *b)
{
    ring_release(&b->ring);
    if (atomic_exchange(&b->wants_room, false)) sem_post(b->signal); /* O2 */
}

void outbox_close(struct outbox *b)
{
    atomic_store(&b->closing, true);
    sem_post(b->signal);
}
