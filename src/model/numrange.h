/* numrange.h: decimal numbers between two bounds, digit by digit and exact.
 * Numbers are written as jsonrules.h writes them, without exponents: at most 18 digits before the
 * point, no needless zeros in front, no -0. */
#ifndef MODEL_NUMRANGE_H
#define MODEL_NUMRANGE_H

#include <jansson.h>
#include "model/grammar.h"

#define NUMRANGE_DIGITS 40 /* of a bound on either side of the point */

/* A decimal number: digits without zeros in front of the whole part and behind the fraction. */
struct decimal {
    bool negative, is_set, excluded; /* of a bound: there is one; the number itself is beyond it */
    uint8_t whole[NUMRANGE_DIGITS], fraction[NUMRANGE_DIGITS]; /* 0..9 */
    uint32_t n_whole, n_fraction;
};

/* Exact for integers; of reals what jsonrules_number writes. False: a bound that needs more
 * than NUMRANGE_DIGITS behind the point. One of 10^18 or more, or -10^18 or less, becomes that and
 * is excluded: such numbers are not written. */
bool decimal_read(const json_t *number, struct decimal *out);
/* -1, 0, 1 */
int decimal_compare(const struct decimal *a, const struct decimal *b);

struct numrange {
    struct decimal low, high;
    uint32_t max_fraction; /* digits behind the point, up to NUMRANGE_DIGITS; 0: whole numbers */
};
/* A number of the range, then next. */
uint32_t numrange_nodes(struct grammar *g, const struct numrange *range, uint32_t next);

#endif
