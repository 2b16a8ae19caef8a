/* outbox.h: events on their way from the scheduler's thread to the caller's. */
#ifndef SERVE_OUTBOX_H
#define SERVE_OUTBOX_H

#include <semaphore.h>

#include "serve/ring.h"
#include "serve/scheduler.h"

struct outbox {
    struct ring ring;
    sem_t *signal; /* where the scheduler's thread waits: for room, too */
    _Atomic bool wants_room, closing;
    bool news; /* the scheduler's: since the last call of wake */
    void (*wake)(void *arg);
    void *wake_arg;
};

zp_status outbox_open(struct outbox *b, const struct sched_options *o, sem_t *signal, zp_err *err);
void outbox_free(struct outbox *b);

/* The scheduler's thread. Copies the event and all it points to, but for `ended.reason`; waits for
 * a reader who is late, unless it closes: then the event is lost. Fails where one is too large. */
zp_status outbox_put(struct outbox *b, const struct sched_event *e, zp_err *err);
/* Wakes the reader if there are events since the last time. */
void outbox_tell(struct outbox *b);

/* The caller's: the oldest event, or NULL; it stays until it is released. */
const struct sched_event *outbox_front(struct outbox *b);
void outbox_release(struct outbox *b);
/* Nobody reads any more. */
void outbox_close(struct outbox *b);

#endif
