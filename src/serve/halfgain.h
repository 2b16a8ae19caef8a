/* halfgain.h: how many times as fast position mode half is, measured on this machine. */
#ifndef SERVE_HALFGAIN_H
#define SERVE_HALFGAIN_H

#include <zerope/zerope.h>
#include "serve/sla.h"

struct halfgain {
    double gain[LENGTHS];     /* median of the rounds; 0: not measured */
    uint32_t n_prompt[LENGTHS]; /* tokens of the prompts it was measured with */
    char why[160];            /* why not, where none is; "": there is one, or nobody asked */
};

/* For the length classes that have a limit: short prompts of the class and a few tokens behind, in
 * mode full and half by turns, on an engine that nobody else uses. Takes seconds; a class that
 * would take longer than HALFGAIN_MOST is not measured. A model without a plan or without evidence
 * for it has no gain. */
#define HALFGAIN_MOST 20.0
void halfgain_measure(zp_engine *e, const struct sla_options *sla, struct halfgain *out);

#endif
