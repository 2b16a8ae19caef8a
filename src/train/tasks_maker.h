/* tasks_maker.h: what the kinds of tasks are put together with; for tasks.c and tasks_text.c
 * only. */
#ifndef TRAIN_TASKS_MAKER_H
#define TRAIN_TASKS_MAKER_H

#include "base/rng.h"
#include "train/tasks.h"

struct maker {
    const struct tasks *t;
    struct rng r;
    struct task *out;
    uint32_t room;
    double level;
};

uint32_t maker_left(const struct maker *m); /* tokens of room */
void maker_put(struct maker *m, const int32_t *ids, size_t n, bool learn);
/* n tokens of prose. */
void maker_prose(struct maker *m, uint32_t n);
void maker_answer(struct maker *m, uint32_t at, uint32_t n, uint32_t asked_at);
/* lo to hi, hi by level. */
uint32_t maker_size(struct maker *m, uint32_t lo, uint32_t hi);
/* 0 to most: as far as the level allows, short ones as likely as long ones. */
uint32_t maker_gap(struct maker *m, uint32_t most);

/* The kinds in words. *fits = false: room is too small, and nothing was put. */
zp_status tasks_make_text(struct maker *m, enum task_kind kind, bool *fits, zp_err *err);

#endif
