/* quality.c: mean and deviation of the top probability, and repeated tokens.
 * Q1 sums are those of Welford's and Chan's methods: no digits are lost over long answers.
 * Q2 a token repeats with period p if the one p before it is the same; `loop` counts tokens that do
 *    so in a row, with any period up to QUALITY_MOST_PERIOD. */
#include "serve/quality.h"

#include <math.h>
#include <stdbool.h>

void quality_add(struct quality *q, double top1, const int32_t *before, size_t n_before,
                 int32_t id)
{
    double off = top1 - q->mean;
    q->n++;
    q->mean += off / (double)q->n;
    q->spread += off * (top1 - q->mean);
    for (size_t p = 1; p <= QUALITY_MOST_PERIOD; p++) {
        bool repeats = p <= n_before && before[n_before - p] == id;
        q->runs[p] = repeats ? q->runs[p] + 1 : 0;
        if (q->runs[p] > q->loop) q->loop = q->runs[p];
    }
}

void quality_merge(struct quality *q, const struct quality *other)
{
    if (other->n == 0) return;
    double n = (double)(q->n + other->n), off = other->mean - q->mean;
    double share = (double)other->n / n;
    q->spread += other->spread + off * off * (double)q->n * share;
    q->mean += off * share;
    q->n += other->n;
    if (other->loop > q->loop) q->loop = other->loop;
}

double quality_std(const struct quality *q)
{
    return q->n ? sqrt(q->spread / (double)q->n) : 0;
}
