/* schedule.h: what changes with the step: the learning rate, gates on their way to zero, the weight
 * of a penalty. Pure functions of the step, so that a resumed run goes on as it would have. */
#ifndef TRAIN_SCHEDULE_H
#define TRAIN_SCHEDULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/status.h"

/* wsd: warmup, stable, decay by 1 - sqrt. All but constant have a floor; all have a warmup. */
enum schedule_kind { SCHEDULE_CONSTANT, SCHEDULE_COSINE, SCHEDULE_WSD, SCHEDULE_KINDS };
struct schedule {
    enum schedule_kind kind;
    double peak;        /* learning rate */
    double floor;       /* share of the peak that is left at the last step, 0 to 1 */
    uint64_t steps;     /* 0 .. steps-1 */
    uint64_t warmup;    /* steps of a linear rise; step 0 has peak / warmup */
    double decay_share; /* wsd: share of the steps that the decay takes, 0 to 1 */
};
/* "constant", "cosine", "wsd"; ZP_USAGE for another name. */
zp_status schedule_find(const char *name, enum schedule_kind *out, zp_err *err);
const char *schedule_name(enum schedule_kind kind);
/* Numbers outside their ranges, or a warmup and a decay that overlap: ZP_USAGE. */
zp_status schedule_check(const struct schedule *s, zp_err *err);
/* Of a schedule that was checked. Steps beyond the end have the last one's. */
double schedule_rate(const struct schedule *s, uint64_t step);

/* Gates that close one after the other in a given order. */
struct gate_ramp {
    uint64_t begin;  /* first step with a gate below 1 */
    uint64_t steps;  /* at step begin + steps all n_close gates are 0 */
    size_t n_close;  /* gates in the order that close; those behind stay 1 */
    double overlap;  /* share of the ramp that each gate takes: 1: all fall together; 0: one falls
                      * after the other. In between the next begin while some are on their way. */
};
/* A ramp over a share of `steps` that closes a share of n gates; shares from 0 to 1, else
 * ZP_USAGE. */
zp_status gate_ramp_make(struct gate_ramp *r, uint64_t begin, uint64_t steps, double share_of_steps,
                         size_t n, double share_of_gates, double overlap, zp_err *err);
/* The gate at a place of the order: 1 to 0. The mean over the n_close gates falls linearly where
 * overlap is 0 or 1. */
double gate_ramp_value(const struct gate_ramp *r, size_t place, uint64_t step);
/* How many gates, from the front of the order, are exactly 0 at the step. */
size_t gate_ramp_closed(const struct gate_ramp *r, uint64_t step);

/* From `from` at step 0 to `to` at step `steps` and beyond, by equal factors; both above 0. */
double schedule_geometric(double from, double to, uint64_t steps, uint64_t step);

#endif
