/* posgate.h: the position gate: a head's queries times exp(w . phi(at)), at = their position, phi =
 * eight smooth steps of its logarithm. Keys stay as they are. */
#ifndef MODEL_POSGATE_H
#define MODEL_POSGATE_H

#include <stdint.h>

enum { POSGATE_STEPS = 8 };

/* phi[i] goes from 0 to 1 around position 4^(i + 1): 1 / (1 + exp(2 (i + 1) - log2(1 + at))).
 * Beyond the positions that were trained the steps have settled, and so has the gate. */
void posgate_features(uint64_t at, float *phi /* (8) */);
/* The factor of one head, w and phi (8). */
float posgate_factor(const float *w, const float *phi);

#endif
