/* scratch.h: the memory of the layer program. */
#ifndef MODEL_SCRATCH_H
#define MODEL_SCRATCH_H

#include "model/forward.h"

/* What stands before "scratch" in struct forward is set by the caller, the rest is zero. */
zp_status scratch_open(struct forward *f, zp_err *err);
void scratch_free(struct forward *f);
/* Bytes that scratch_open will take for a forward whose h, position, micro_batch, n_ctx, n_threads
 * and reads are set. */
void scratch_plan(const struct forward *f, uint64_t *scratch, uint64_t *position);
/* The next `bytes` of the scratch block, at a cache line; NULL while they are only counted. */
void *scratch_take(struct forward *f, uint64_t bytes);
/* Whether attention's output is quantised head by head: groups of 32 must not cross heads. */
bool scratch_quantises_heads(const struct forward *f);

#endif
