/* paces.h: how fast the baseline is for requests of each kind, and whether a request of the
 * candidate's is slow for its kind.
 *
 * A kind is a length class, and how many tokens were computed (of the prompt) or waited for (of the
 * answer): a request of one token is all overhead and chance, one of a thousand has a pace. A time
 * is judged by the distribution of its own kind, or where too little of that is known, of the next
 * smaller one, whose pace is no better. It is slow if it is `ratio` times beyond the 95th
 * percentile and if that makes more than `least_excess` seconds, which the scheduling of a busy
 * machine does not. While the baseline itself is slow by that measure, nothing is. */
#ifndef SERVE_PACES_H
#define SERVE_PACES_H

#include "serve/latency.h"
#include "serve/outcome.h"

struct pace_options {
    double ratio, seconds; /* seconds: that the baseline's times look back */
    double least_excess;   /* seconds of a whole request */
    uint32_t sample;       /* times of a kind before they count */
};

enum { PACE_KINDS = 4 };

/* Zero-initialise. Large. */
struct paces {
    /* bits, the newest lowest: requests of the baseline that were slow themselves */
    uint64_t beyond;
    struct latency_window prompt[LENGTHS][PACE_KINDS], token[LENGTHS][PACE_KINDS];
};

struct pace_verdict {
    bool known, slow;
    double seconds, limit; /* a token; limit NAN: without the baseline, by its deadline alone */
};

/* A request of the baseline has ended. */
void paces_add(struct paces *p, const struct pace_options *o, enum length_class length,
               const struct outcome *one, double now);
struct pace_verdict paces_judge(struct paces *p, const struct pace_options *o,
                                enum length_class length, const struct outcome *one, double now);
/* The baseline is slow itself, against what it was. */
bool paces_have_shifted(const struct paces *p);

#endif
