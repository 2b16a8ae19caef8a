/* attend.h: the attention phase of the layer program: rotated q and appended KV -> heads.
 * Called by forward.c and scratch.c only. */
#ifndef MODEL_ATTEND_H
#define MODEL_ATTEND_H

#include "model/forward.h"

void attend_place(struct forward *f); /* takes its scratch by scratch_take */
/* Tasks of a layer's attention: their number follows the batch, not n_ctx. */
size_t attend_tasks(const struct forward *f);
/* Whether the batch in work is computed in parts, which attend_merge puts together. */
bool attend_is_split(const struct forward *f);
void attend_begin(struct forward *f); /* once a batch, by the caller's thread */
/* All workers: states of the batch's rows; what one worker can finish goes to `heads`. */
void attend_work(struct forward *f, uint32_t layer, uint32_t thread, struct forward_rows *heads);
/* After a barrier: finishes every step-th block that attend_work left in parts, from worker 0 on,
 * or all of them (step 1), into `heads`. Worker 0 makes ready for the next layer. */
void attend_merge(struct forward *f, uint32_t thread, uint32_t step, struct forward_rows *heads);

#endif
