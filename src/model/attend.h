/* attend.h: the attention phase of the layer program: rotated q and appended KV -> heads.
 * Called by forward.c only; work and merge by every worker between barriers. */
#ifndef MODEL_ATTEND_H
#define MODEL_ATTEND_H

#include "model/forward.h"

zp_status attend_open(struct forward *f, zp_err *err);
void attend_free(struct forward *f);
uint64_t attend_plan(const struct hparams *h, uint32_t micro_batch, uint32_t n_ctx,
                     uint32_t n_threads);
/* Tasks of the layer's attention last prepared: their number follows the batch, not n_ctx. */
size_t attend_tasks(const struct forward *f);
void attend_prepare(struct forward *f); /* worker 0, before a barrier */
void attend_work(struct forward *f, uint32_t layer, uint32_t thread);  /* all workers */
void attend_merge(struct forward *f, uint32_t layer, uint32_t thread); /* all, after a barrier */

#endif
