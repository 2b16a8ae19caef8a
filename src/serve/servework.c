/* servework.c: a queue of tasks, some threads, and a queue of what they have done.
 * W1 a task is in one place at a time: waiting, with a thread, or done.
 * W2 done is called on the loop's thread alone, also in servework_close. */
#include "serve/servework.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>

#include "base/mem.h"

enum { MOST_THREADS = 8 };

struct queue {
    struct servetask *first, *last;
};

struct servework {
    pthread_mutex_t mutex;
    pthread_cond_t news;
    struct queue waiting, finished; /* under the mutex, as `closing` */
    bool closing;
    struct evwake *wake;
    pthread_t threads[MOST_THREADS];
    uint32_t n_threads;
};

static void put(struct queue *q, struct servetask *t)
{
    t->next = NULL;
    if (q->last != NULL) q->last->next = t;
    else q->first = t;
    q->last = t;
}

static struct servetask *take(struct queue *q)
{
    struct servetask *t = q->first;
    if (t == NULL) return NULL;
    q->first = t->next;
    if (q->first == NULL) q->last = NULL;
    return t;
}

static void *work(void *arg)
{
    struct servework *w = arg;
    pthread_mutex_lock(&w->mutex);
    while (!w->closing) {
        struct servetask *t = take(&w->waiting);
        if (t == NULL) {
            pthread_cond_wait(&w->news, &w->mutex);
            continue;
        }
        pthread_mutex_unlock(&w->mutex);
        t->run(t);
        pthread_mutex_lock(&w->mutex);
        put(&w->finished, t);
        evwake_send(w->wake);
    }
    pthread_mutex_unlock(&w->mutex);
    return NULL;
}

static void finish(void *arg)
{
    struct servework *w = arg;
    pthread_mutex_lock(&w->mutex);
    struct queue q = w->finished;
    w->finished = (struct queue){ 0 };
    pthread_mutex_unlock(&w->mutex);
    for (struct servetask *t; (t = take(&q)) != NULL;) t->done(t); // W2
}

/* Signals are for the thread that runs the loop. */
static zp_status start(struct servework *w, uint32_t n, zp_err *err)
{
    sigset_t all, before;
    int code = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (w->n_threads < n && code == 0) {
        code = pthread_create(&w->threads[w->n_threads], NULL, work, w);
        w->n_threads += code == 0;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    ZP_FAIL_IF(code != 0, err, ZP_RUN, "a thread cannot start: %s", strerror(code));
    return ZP_OK;
}

zp_status servework_open(struct servework **out, struct evloop *loop, uint32_t n_threads,
                         zp_err *err)
{
    *out = NULL;
    struct servework *w = mem_zalloc(MEM_SERVE, sizeof *w);
    ZP_FAIL_IF(w == NULL, err, ZP_NO_MEMORY, "not enough memory for a queue of tasks");
    pthread_mutex_init(&w->mutex, NULL);
    pthread_cond_init(&w->news, NULL);
    zp_status status = evwake_open(&w->wake, loop, finish, w, err);
    if (status == ZP_OK)
        status = start(w, n_threads < MOST_THREADS ? n_threads : MOST_THREADS, err);
    if (status == ZP_OK) *out = w;
    else servework_close(w);
    return status;
}

void servework_give(struct servework *w, struct servetask *t)
{
    pthread_mutex_lock(&w->mutex);
    put(&w->waiting, t);
    pthread_cond_signal(&w->news);
    pthread_mutex_unlock(&w->mutex);
}

void servework_close(struct servework *w)
{
    if (w == NULL) return;
    pthread_mutex_lock(&w->mutex);
    w->closing = true;
    pthread_cond_broadcast(&w->news);
    pthread_mutex_unlock(&w->mutex);
    for (uint32_t i = 0; i < w->n_threads; i++) pthread_join(w->threads[i], NULL);
    for (struct servetask *t; (t = take(&w->waiting)) != NULL;) put(&w->finished, t);
    finish(w);
    evwake_close(w->wake);
    pthread_cond_destroy(&w->news);
    pthread_mutex_destroy(&w->mutex);
    mem_free(w);
}
