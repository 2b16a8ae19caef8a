/* gates.h: position gates on their way to zero: how much each counts at a step, what its gradient
 * does to it, when it closes for good. A unit is a pair of a KV head or, in layers with a distance
 * bias, the bias of a head.
 * A1 closed is for ever: a closed unit counts 0 in every later step.
 * A2 what a step uses is a function of (options, state, step): processes that hold the same state
 *    and add the same gradients close the same units.
 * A3 from the end of the ramp every unit is 0 or 1. */
#ifndef TRAIN_GATES_H
#define TRAIN_GATES_H

#include "train/checkpoint.h"
#include "train/net.h"

enum gates_policy {
    GATES_KEEP,
    GATES_ABRUPT,
    GATES_STAGED,
    GATES_DROPOUT,
    GATES_L1,
    GATES_L0,
    GATES_POLICIES
};

struct gates_options {
    enum gates_policy policy;
    uint64_t steps; /* of the run */
    uint64_t seed;
    double share;   /* of the units that may close; 0: all */
    uint64_t begin; /* first step at which gates may close */
    double ramp;    /* share of the steps from then on until the last has closed; 0: 0.6; abrupt:
                     * none */
    double overlap; /* dropout: schedule.h; 0: 0.5 */
    uint32_t stages; /* staged: groups, one after the other over the ramp; 0: 8 */
    double rate;    /* KEEP: in each step a unit is left out with this probability */
    /* l1 and l0, in units of the mean |dL/dg| over the units and the first steps: lambda grows by
     * equal factors from lambda / 100 to lambda; a head closes when the mean |dL/dg| of its units
     * stays below eps for t_cool steps. 0: the defaults. */
    double lambda, eps_first, eps_rest;
    uint32_t t_cool;
    double tolerance; /* l1 and l0: nats that a measurement may rise before what closed since the
                       * last one opens again; 0: 0.05 */
    const uint32_t *order; /* (n_order) units in the order that they close: those alone may; NULL:
                            * all, slow pairs first, the first and last layers last */
    size_t n_order;
    const uint32_t *window; /* (n_layer, n_kv) reach of local heads from the first step on, with
                             * n_sink; NULL: as in the file */
    uint32_t n_sink;
};
/* "keep", "abrupt", "staged", "dropout", "l1", "l0"; ZP_USAGE for another name. */
zp_status gates_find(const char *name, enum gates_policy *out, zp_err *err);
const char *gates_policy_name(enum gates_policy policy);

struct gates_closing {
    uint32_t unit;
    const char *reason; /* static */
};

/* Of a learned policy: how its penalty works. */
enum gates_pace {
    GATES_PACE_FINE,
    GATES_PACE_SLOW, /* the ramp ended now, and under a tenth had closed by themselves */
    GATES_PACE_FAST  /* the last has closed now, in the ramp's first tenth or as fast as can be */
};

struct gates {
    const struct position *position;
    struct gates_options options; /* resolved */
    size_t n_pairs, n;   /* units: pairs (n_layer, n_kv, n_pair), then biases (n_layer, n_head) */
    size_t n_open, n_order, n_close; /* open in the model's file; that may close; that shall */
    uint32_t *order;     /* (n_order) */
    uint8_t *exists;     /* (n) open in the file */
    uint8_t *may;        /* (n) in the order */
    uint8_t *closed;     /* (n) */
    float *value;        /* (n) of the step at hand */
    uint8_t *open;       /* (n_pairs) the same as hard gates */
    float *d;            /* (n) gradient of the step, added to by the caller */
    float *learned, *mean, *square; /* (n) l1: the gate; l0: log alpha; and its moments */
    uint32_t *closed_at; /* (n) step at which it closed */
    uint8_t *reopened;   /* (n) how often; twice: it closes at the ramp's end only */
    uint32_t *idle;      /* (n) steps that it was 0, or its head's gradient nearly so */
    double *scale;       /* [0] sum, [1] number of steps: of the mean |dL/dg| */
    struct gates_closing *closings; /* (n_closings) of the last gates_end or gates_open_again */
    size_t n_closings, n_closed;
    enum gates_pace pace; /* of the last gates_end */
    size_t n_self;        /* closed before the ramp's end closed the rest */
    struct net_gates view;
};

zp_status gates_open(struct gates *g, const struct position *p, const struct gates_options *o,
                     zp_err *err);
void gates_free(struct gates *g); /* accepts a half-built or zeroed object */

/* Whether a step of the run may need a net with a mix. */
bool gates_need_mix(const struct gates_options *o);
/* What the step computes with; zeroes d. Valid until the next call. */
const struct net_gates *gates_begin(struct gates *g, uint64_t step);
/* What a measurement between steps computes with: closed units are closed, units that are learned
 * count as they do now, all others are open. Valid until the next call; the step's d stays. */
const struct net_gates *gates_now(struct gates *g, uint64_t step);
/* Whether gradients of gates are of use in this step. */
bool gates_learn(const struct gates *g, uint64_t step);
/* After the step, d complete and multiplied by d_scale: moves, closes; closings has what closed. */
void gates_end(struct gates *g, uint64_t step, double d_scale);
/* Opens again what a learned policy closed at `since` or later; how many. closings has them. */
size_t gates_open_again(struct gates *g, uint64_t since);
/* Layer, KV head (or head of a bias) and pair (0 for a bias) of a unit. */
struct gates_place {
    uint32_t layer, head, pair;
    bool is_bias;
};
struct gates_place gates_place_of(const struct gates *g, size_t unit);

/* State as parts of a checkpoint, in out (GATES_PARTS); reading back. */
enum { GATES_PARTS = 8 };
void gates_parts(const struct gates *g, struct checkpoint_part out[GATES_PARTS]);
zp_status gates_restore(struct gates *g, const struct checkpoint *c, zp_err *err);

#endif
