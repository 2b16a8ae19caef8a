/* quality.h: what the tokens of an answer tell of the model that drew them, in numbers that cost
 * next to nothing: how sure it was, and whether it goes in circles. */
#ifndef SERVE_QUALITY_H
#define SERVE_QUALITY_H

#include <stddef.h>
#include <stdint.h>

enum { QUALITY_MOST_PERIOD = 16 };

struct quality {
    uint64_t n;        /* tokens */
    double mean, spread; /* of the largest probability; spread: sum of squares around the mean */
    uint32_t runs[QUALITY_MOST_PERIOD + 1]; /* by period: tokens in a row that repeat */
    uint32_t loop;     /* the longest of them ever */
};

/* The next token, with the largest probability of its distribution. before: the n_before tokens
 * drawn before it. */
void quality_add(struct quality *q, double top1, const int32_t *before, size_t n_before,
                 int32_t id);
/* Both together, as if one answer had followed the other. */
void quality_merge(struct quality *q, const struct quality *other);
double quality_std(const struct quality *q);

#endif
