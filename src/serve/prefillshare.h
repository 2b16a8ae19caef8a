/* prefillshare.h: which prompts a step goes on with, and how far. */
#ifndef SERVE_PREFILLSHARE_H
#define SERVE_PREFILLSHARE_H

#include <stddef.h>

/* left (n): tokens that each prompt may take, the oldest first; share (n): what it gets of the
 * budget. Half goes to the oldest, so that it ends however many short ones come; the rest to those
 * that have the least left, so that a short one need not wait for the long; what they leave goes to
 * the next. The sum is the budget, or all that is left. */
void prefill_share(const size_t *left, size_t *share, size_t n, size_t budget);

#endif
