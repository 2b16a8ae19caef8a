/* quant_fit.h: weighted least squares fits of one group of weights to a quantiser's grid.
 * Internal to kern/quant*.c. All work is on a copy divided by the group's largest magnitude, so
 * that squares neither overflow nor vanish; scales and mins here are in those units. */
#ifndef KERN_QUANT_FIT_H
#define KERN_QUANT_FIT_H

#include <stdbool.h>
#include <stdint.h>
#include "base/compiler.h"

#define FIT_MAX 32

struct fit_group {
    float x[FIT_MAX]; /* source / amax, in [-1, 1] */
    float w[FIT_MAX]; /* of each squared error: 3 mean(x^2) + x^2. Flat weights cut off outliers,
                       * x^2 alone neglects the rest; with 3 both measures are below ggml's */
    int n;            /* 16 or 32 */
    float amax;       /* largest magnitude; 0 when the group is too small for any half to tell it
                       * from 0, and all x are then 0 */
    float low, high;  /* smallest and largest x */
    /* An affine grid must hit 0 exactly (Q3): inside, as there are negative weights too; or with
     * min 0, as zero is the smallest weight. */
    bool zero_inside, zero_lowest;
};
void fit_load(struct fit_group *g, const float *src, int n);

/* A grid: value = scale * q + min, q = 0..top. */
struct fit_grid {
    float scale, min;
    int top;
};

/* Nearest codes (floats holding integers) and their weighted squared error. A scale of 0 gives
 * code 0, so the value min. */
void fit_assign(const struct fit_group *g, struct fit_grid grid, float *restrict q);
float fit_error(const struct fit_group *g, struct fit_grid grid);

/* Best grid with min = -zero * scale. If both signs are allowed, scale may be negative. */
struct fit_grid fit_symmetric(const struct fit_group *g, int top, int zero, bool both_signs);
/* Best grid with any min; max_min = 0: with min <= 0. */
struct fit_grid fit_affine(const struct fit_group *g, int top, float max_min);
/* The code nearest to where an unconstrained grid has its zero, 0..top. */
int fit_zero_code(const struct fit_group *g, int top);

#endif
