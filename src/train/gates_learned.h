/* gates_learned.h: the policies whose gates learn, as gates.c asks them. */
#ifndef TRAIN_GATES_LEARNED_H
#define TRAIN_GATES_LEARNED_H

#include "train/gates.h"

/* Of `learned` at the beginning, and when a unit opens again. */
float gates_learned_start(enum gates_policy policy);
/* How much an open unit counts in a step; in a measurement. */
float gates_learned_value(const struct gates *g, uint64_t step, size_t unit);
float gates_learned_mean(const struct gates *g, size_t unit);
/* Moves open units along d * d_scale and the penalty; closes. step and ramp count from the ramp's
 * first step. */
void gates_learned_step(struct gates *g, uint64_t step, uint64_t ramp, double d_scale);

/* Steps of a ramp in which a gate that nothing holds back has closed. */
uint64_t gates_learned_fastest(const struct gates_options *o);

/* gates.c: uniform over [0, 1) for each step and unit; closing. */
double gates_draw(const struct gates *g, uint64_t step, size_t unit);
void gates_close_unit(struct gates *g, uint64_t step, size_t unit, const char *reason);

#endif
