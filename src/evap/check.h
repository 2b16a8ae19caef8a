/* check.h: the measured promise: KL(original || new) on held-out windows, exact path on both
 * sides. */
#ifndef EVAP_CHECK_H
#define EVAP_CHECK_H

#include "eval/score.h"
#include "evap/gateset.h"

struct check {
    struct zp_engine *base; /* exact engine of the original; not owned */
    struct windows windows; /* held-out */
    struct hidden original;
    struct score_range range;
    uint32_t n_threads;
    zp_progress progress;
};

struct check_result {
    uint32_t n_windows, n_ctx;
    uint64_t n_positions, kv_bytes_per_token;
    double kl_mean, kl_hi, kl_p99, kl_max, kl_last200, nll_before, nll_after, top1;
    struct score_mean bucket[24], bucket_base[24];
    struct gate_counts gates; /* of the file */
};

/* n_windows from documents of the held-out part; at least 32 unless `least` says otherwise. */
zp_status check_open(struct check *k, struct zp_engine *base, struct docs *docs, uint32_t n_ctx,
                     uint32_t n_windows, uint32_t least, zp_progress progress, zp_err *err);
void check_close(struct check *k);
/* Compares on the exact path. */
zp_status check_model(const struct check *k, const struct zp_model *m, struct check_result *out,
                      zp_err *err);
zp_status check_file(const struct check *k, const char *path, struct check_result *out,
                     zp_err *err);

#endif
