/* servework.h: threads for what would hold the event loop up: long prompts, loading of models. */
#ifndef SERVE_SERVEWORK_H
#define SERVE_SERVEWORK_H

#include "serve/evloop.h"

/* A task is the caller's memory. run: on one of the threads; done: on the loop's thread afterwards,
 * once for every task that was given; it may release the task. */
struct servetask {
    void (*run)(struct servetask *t);
    void (*done)(struct servetask *t);
    struct servetask *next;
};

struct servework;
zp_status servework_open(struct servework **out, struct evloop *loop, uint32_t n_threads,
                         zp_err *err);
/* On the loop's thread. Tasks begin in the order they came. */
void servework_give(struct servework *w, struct servetask *t);
/* Waits for what runs; what has not begun is not run, but done. NULL is fine. */
void servework_close(struct servework *w);

#endif
