/* optimiser.h: AdamW over one flat array of parameters in segments. */
#ifndef TRAIN_OPTIMISER_H
#define TRAIN_OPTIMISER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/pool.h"
#include "base/status.h"

/* A range of the flat array that is treated alike; offset and size in elements. */
struct opt_segment {
    size_t offset, size;
    float rate_factor; /* times the learning rate */
    bool decays;       /* weight decay applies */
    bool frozen;       /* parameters stay as they are; its gradients are not looked at */
};

struct opt_options {
    double beta1, beta2, eps; /* 0: 0.9, 0.95, 1e-8 */
    double weight_decay;      /* decoupled; 0: none */
    double clip_norm;         /* most of the gradient's global norm; 0: no limit */
};

struct optimiser {
    size_t n, n_segments, n_blocks;
    struct opt_segment *segments;
    struct opt_options options;
    /* What a checkpoint holds; may be written to between steps. */
    float *m, *v;   /* (n) running means of the gradient and of its square */
    uint64_t steps; /* taken, without those skipped */
    struct opt_block *blocks;
    double *sums;   /* (n_blocks) */
};

struct opt_report {
    double grad_norm;   /* of all segments that are not frozen, before clipping, after scaling */
    double clip_factor; /* what the gradient was multiplied with; 1 where it was not clipped */
    bool skipped;       /* the norm is not finite: nothing was changed */
    size_t bad_segment; /* the first segment with such a gradient, n_segments if there is none */
};

/* Segments in ascending order, not overlapping, inside n: ZP_USAGE otherwise. What no segment
 * covers is left alone. m and v are zero. */
zp_status opt_open(struct optimiser *o, size_t n, const struct opt_segment *segments,
                   size_t n_segments, const struct opt_options *options, zp_err *err);
/* Bytes that opt_open takes under MEM_OPTIMISER. */
uint64_t opt_bytes(size_t n, const struct opt_segment *segments, size_t n_segments);
void opt_free(struct optimiser *o); /* accepts a half-built object */

/* One step of x (n) along dx (n) * scale. scale: 1 / count where dx is a sum. pool may be NULL. The
 * bits do not depend on the number of threads. */
void opt_step(struct optimiser *o, struct pool *pool, float *x, const float *dx, double rate,
              double scale, struct opt_report *out);
/* From now on the segment is frozen, and its m and v are zero. */
void opt_freeze(struct optimiser *o, size_t segment);

#endif
