/* trainrun.h: a training run from its first step, or from its last checkpoint, to its end: what is
 * recorded, when it is measured and saved, what a guard's verdict leads to. */
#ifndef TRAIN_TRAINRUN_H
#define TRAIN_TRAINRUN_H

#include <zerope/train.h>

#include "train/series.h"
#include "train/trainer.h"

struct trainrun_options {
    const char *folder;      /* of run.json, numbers and checkpoints; NULL: nothing is recorded */
    bool resume;             /* go on from the folder's last checkpoint */
    uint64_t save_every, eval_every; /* steps; 0: only at the end */
    uint32_t eval_windows;   /* 0: all */
    size_t keep;             /* checkpoints */
    struct series_info info; /* of run.json */
    zp_progress progress;
    zp_train_report_fn on_report; /* NULL: none */
    void *report_arg;
};

struct trainrun_result {
    /* held-out windows at the first and behind the last step */
    struct trainer_quality before, after;
    struct trainer_step last;
    uint64_t first_step, skipped, roll_backs, spikes;
    uint64_t reopened; /* gates, by measurements that found their closing too dear */
    double seconds; /* of this call's steps, measurements and checkpoints not counted */
};

/* ZP_RUN: the guard stopped it; the last good state is in the folder. ZP_INTERRUPTED: likewise. */
zp_status trainrun(struct trainer *t, const struct trainrun_options *o,
                   struct trainrun_result *out, zp_err *err);

#endif
