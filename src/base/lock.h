/* lock.h: a mutex, for what several threads share and hold for a moment (POSIX). */
#ifndef BASE_LOCK_H
#define BASE_LOCK_H

#include <pthread.h>

#define LOCK_INIT PTHREAD_MUTEX_INITIALIZER
struct lock {
    pthread_mutex_t mutex;
};

static inline void lock_take(struct lock *l)
{
    pthread_mutex_lock(&l->mutex);
}
static inline void lock_give(struct lock *l)
{
    pthread_mutex_unlock(&l->mutex);
}

#endif
