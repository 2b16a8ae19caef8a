/* posgate.c: the position gate's features and factor.
 * Owns: its formula, for the engine and for training. */
#include "model/posgate.h"

#include <math.h>

void posgate_features(uint64_t at, float *phi)
{
    double octave = log2(1.0 + (double)at);
    for (int i = 0; i < POSGATE_STEPS; i++)
        phi[i] = (float)(1.0 / (1.0 + exp(2.0 * (i + 1) - octave)));
}

float posgate_factor(const float *w, const float *phi)
{
    double sum = 0;
    for (int i = 0; i < POSGATE_STEPS; i++) sum += (double)w[i] * (double)phi[i];
    return (float)exp(sum);
}
