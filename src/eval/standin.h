/* standin.h: a model's position table as if all its layers were of one kind, to measure what that
 * kind costs. What such a model says is noise. */
#ifndef EVAL_STANDIN_H
#define EVAL_STANDIN_H

#include "model/position.h"

/* kind: rope (every pair of every head), none, alibi, t5 or mlp, as keys spell it. Windows stay.
 * What *out points to lives in the arena, and in *p. */
zp_status standin_position(struct position *out, const struct position *p, const char *kind,
                           struct arena *arena, zp_err *err);

#endif
