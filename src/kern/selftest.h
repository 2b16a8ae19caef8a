/* selftest.h: every chosen kernel against the reference on a small seeded case: what `doctor` runs
 * to see that this processor computes as it should. The full sweep is tests/kern. */
#ifndef KERN_SELFTEST_H
#define KERN_SELFTEST_H

#include "kern/kern.h"

struct selftest_result {
    const char *op, *chosen, *contract;
    bool ok;
    double worst; /* largest error / what the contract allows; EXACT: numbers that differ; where
                   * ref and the others must give the same bits: 0, or infinity */
};

/* results: (kern_op_count()), in that order. Fails only for want of memory: a kernel that computes
 * wrongly has ok = false. */
zp_status selftest_run(const struct kern_table *t, struct selftest_result *results, zp_err *err);

#endif
