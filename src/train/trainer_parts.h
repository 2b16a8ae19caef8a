/* trainer_parts.h: sizes that taking a trainer's memory and planning it share (trainer.c,
 * trainplan.c). */
#ifndef TRAIN_TRAINER_PARTS_H
#define TRAIN_TRAINER_PARTS_H

#include "train/trainer.h"

struct net_options trainer_net_options(const struct trainer *t);
struct net_options trainer_teacher_options(const struct trainer *t);
struct loss_shape trainer_loss_shape(const struct trainer *t);
size_t trainer_rows(const struct trainer *t); /* of a micro-batch */
size_t trainer_marks_count(const struct trainer *t);

static inline size_t trainer_most_segments(const struct trainer *t)
{
    return t->adapter.n ? 2 * t->adapter.n_matrices : t->param.n_tensors;
}
/* segments (trainer_most_segments): what learns. Returns how many there are. */
size_t trainer_segments(const struct trainer *t, struct opt_segment *segments);

#endif
