/* gatedact.h: y = act(gate) * up for training, and its gradients; element by element. */
#ifndef TRAIN_GATEDACT_H
#define TRAIN_GATEDACT_H

#include "base/pool.h"
#include "kern/kern.h"

enum gatedact_kind { GATEDACT_SILU, GATEDACT_GELU }; /* GELU in its tanh form, as the engine's */

/* The engine's kernels of the table; y may be gate. */
void gatedact_forward(struct pool *pool, const struct kern_table *t, enum gatedact_kind kind,
                      size_t n, const float *gate, const float *up, float *y);

/* dgate = dy up act'(gate), dup = dy act(gate): set. Each may be any of gate, up and dy, but not
 * the other. */
void gatedact_backward(struct pool *pool, const struct kern_table *t, enum gatedact_kind kind,
                       size_t n, const float *gate, const float *up, const float *dy,
                       float *dgate, float *dup);

#endif
