/* prefillshare.c: the tokens of a step among prompts.
 * Owns: nothing.
 * F1 the oldest prompt of n tokens is computed after 2 n / budget steps at most.
 * F2 the other half makes the mean time to a first token short: least left first. */
#include "serve/prefillshare.h"

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* The prompt that wants more and has the least left, the older of equals; n if none does. */
static size_t shortest(const size_t *left, const size_t *share, size_t n)
{
    size_t best = n;
    for (size_t i = 0; i < n; i++)
        if (share[i] < left[i] && (best == n || left[i] < left[best])) best = i;
    return best;
}

void prefill_share(const size_t *left, size_t *share, size_t n, size_t budget)
{
    for (size_t i = 0; i < n; i++) share[i] = 0;
    if (n == 0) return;
    share[0] = least(left[0], budget - budget / 2); /* F1 */
    budget -= share[0];
    for (size_t i; budget && (i = shortest(left, share, n)) < n;) {
        size_t more = least(left[i] - share[i], budget);
        share[i] += more;
        budget -= more;
    }
}
