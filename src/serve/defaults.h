/* defaults.h: an option of 0 means its default. */
#ifndef SERVE_DEFAULTS_H
#define SERVE_DEFAULTS_H

#include <stdint.h>

static inline void default_real(double *x, double otherwise)
{
    if (*x == 0) *x = otherwise;
}

static inline void default_count(uint32_t *x, uint32_t otherwise)
{
    if (*x == 0) *x = otherwise;
}

#endif
