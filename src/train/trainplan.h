/* trainplan.h: the memory of a training run by tag (base/mem.h), before it is taken: what model,
 * tokenizer and corpus hold by then, and what trainer_open and steps will take on top.
 *   weights      matrices that stay in their files, mapped
 *   parameters   floats that learn or stand beside them, adapters, the original's vectors
 *   gradients    of a micro-batch and their sum
 *   optimiser    moments
 *   activations  what going forward and back keeps of a micro-batch, one widened matrix
 *   products     scratch of matrix products, logits, panels of an output matrix
 *   train        rows of a batch, gates, lists of the corpus
 *   meta         among others, files of checkpoints while they are written
 * Measurements use the same memory; no engine is opened.
 * T1 of the first six tags the peak is what is planned, to the byte; but products in bf16 take what
 *    oneDNN asks for as they come. Of all tags together it is at most TRAINPLAN_REST more: names of
 *    files, checkpoints' tables, numbers that are not yet on disk, texts of made-up tasks. */
#ifndef TRAIN_TRAINPLAN_H
#define TRAIN_TRAINPLAN_H

#include "base/mem.h"

enum { TRAINPLAN_REST = 1 << 20 };

struct trainer;
struct trainplan {
    uint64_t bytes[MEM_TAG_COUNT];
    uint64_t held; /* of them, already there when the plan was made; mapped files not among them */
};

/* t: described, nothing of it taken yet. Tells the log. */
zp_status trainplan_make(const struct trainer *t, struct trainplan *out, zp_err *err);
uint64_t trainplan_total(const struct trainplan *p);
/* ZP_NO_MEMORY: more than t's options grant, or than the machine has left; both numbers are named.
 * With plan_only the machine is not asked. */
zp_status trainplan_check(const struct trainer *t, zp_err *err);

#endif
