/* guard.h: what a training step's numbers say about going on: numbers that are not finite, losses
 * that jump, queries and keys that grow. Nothing but arithmetic; the loop acts on it. */
#ifndef TRAIN_GUARD_H
#define TRAIN_GUARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/compiler.h"

/* In order of weight. */
enum guard_verdict {
    GUARD_GO,
    GUARD_SKIP,      /* the step must not be taken */
    GUARD_ROLL_BACK, /* so many in a row: go back to the last checkpoint */
    GUARD_STOP       /* rolled back too often: it does not help */
};

struct guard_options {
    uint32_t bad_in_a_row; /* that ask for a roll-back; 0: 3 */
    uint32_t roll_backs;   /* asked for before the verdict is to stop; 0: 3 */
    double growth;         /* of a norm, that stops; 0: 4 */
    double spike_sigmas;   /* above the running mean; 0: 6 */
    double memory;         /* steps that the running mean looks back, at least 2; 0: 100 */
};

/* Plain numbers: a checkpoint holds it as it is. Zero-initialise, then set the options. */
struct guard {
    struct guard_options options;
    uint32_t in_a_row, roll_backs;
    uint64_t bad, spikes; /* ever */
    uint64_t n_loss;      /* losses in mean and variance */
    uint64_t in_spike;    /* spikes in a row */
    double mean, variance;
};

/* Of a step's loss and gradient norm, before the step is taken. */
enum guard_verdict guard_step(struct guard *g, double loss, double grad_norm);
/* Whether the loss jumps out of what the last ones were; then it is counted and not taken into the
 * mean, unless jumps go on for as long as the mean looks back: then that is where the loss is now.
 * Losses that are not finite are guard_step's. */
bool guard_is_spike(struct guard *g, double loss);

/* Largest norms of a layer's queries and keys. */
struct guard_norms {
    double q, k;
};
/* What grew beyond its measure. */
struct guard_growth {
    size_t layer; /* n_layer: nothing did */
    bool of_keys;
    double factor;
};
/* The largest growth of all layers since the start, (n_layer) each; layer = n_layer while it is
 * within the limit. Where q times k was less than `harmless` at the start, growth counts from
 * there: a fresh model's queries and keys have to grow many times over before softmax sees any
 * difference between their scores. A norm that is not finite is beyond any. Norms that were 0 at
 * the start are not compared. */
struct guard_growth guard_compare_norms(const struct guard *g, const struct guard_norms *start,
                                        const struct guard_norms *now, size_t n_layer,
                                        double harmless);
/* What to do about it, for the message. */
#define GUARD_ADVICE "normalise queries (q norm) or lower the learning rate"

#endif
