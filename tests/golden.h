/* golden.h: what the golden tests share: JSON of tests/data, ids, models and engines that must
 * open, and distances between distributions. */
#ifndef TESTS_GOLDEN_H
#define TESTS_GOLDEN_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>
#include <zerope/zerope.h>

#include "models.h"

static inline json_t *golden_load(const char *name)
{
    char path[2048];
    json_error_t error;
    snprintf(path, sizeof path, "%s/%s", ZP_TEST_DATA, name);
    json_t *root = json_load_file(path, JSON_ALLOW_NUL, &error);
    if (root == NULL) fail_msg("%s: %s (line %d)", path, error.text, error.line);
    return root;
}

#define GOLDEN_OK(call)                                                                            \
    do {                                                                                           \
        zp_err golden_err_ = { 0 }, *err = &golden_err_;                                           \
        zp_status golden_status_ = (call);                                                         \
        if (golden_status_ != ZP_OK)                                                               \
            fail_msg("%s: %s: %s", #call, zp_status_name(golden_status_), golden_err_.message);    \
    } while (0)

/* Released with free(). */
static inline int32_t *golden_ids(const json_t *list, size_t *n)
{
    *n = json_array_size(list);
    int32_t *ids = malloc((*n + 1) * sizeof *ids);
    assert_non_null(ids);
    for (size_t i = 0; i < *n; i++) ids[i] = (int32_t)json_integer_value(json_array_get(list, i));
    return ids;
}

static inline zp_model *golden_model(const char *file)
{
    zp_model *m = NULL;
    GOLDEN_OK(zp_model_open(&m, test_model_path(file), NULL, err));
    return m;
}

/* A small random model of tests/data/arch: gguf/NAME.gguf, or else the folder NAME. */
static inline zp_model *golden_small(const char *name)
{
    char path[1024];
    zp_model *m = NULL;
    snprintf(path, sizeof path, ZP_TEST_DATA "/arch/gguf/%s.gguf", name);
    if (access(path, F_OK) != 0) snprintf(path, sizeof path, ZP_TEST_DATA "/arch/%s", name);
    GOLDEN_OK(zp_model_open(&m, path, NULL, err));
    return m;
}

static inline zp_engine *golden_engine(const zp_model *m, zp_engine_options options)
{
    zp_engine *e = NULL;
    GOLDEN_OK(zp_engine_open(&e, m, &options, err));
    return e;
}

/* Logits of all ids of one fresh sequence: (n, n_vocab), released with free(). */
static inline float *golden_logits(zp_engine *e, const zp_model *m, const int32_t *ids, size_t n)
{
    zp_model_info info;
    zp_seq *seq = NULL;
    zp_model_describe(m, &info);
    float *logits = malloc(n * info.n_vocab * sizeof *logits);
    assert_non_null(logits);
    GOLDEN_OK(zp_seq_open(&seq, e, NULL, err));
    zp_item item = { seq, ids, n, ZP_WANT_ALL };
    GOLDEN_OK(zp_engine_run(e, &item, 1, logits, n, NULL, err));
    zp_seq_close(seq);
    return logits;
}

static inline double golden_log_sum(const float *x, size_t n)
{
    double max = -INFINITY, sum = 0;
    for (size_t i = 0; i < n; i++) max = (double)x[i] > max ? (double)x[i] : max;
    for (size_t i = 0; i < n; i++) sum += exp((double)x[i] - max);
    return max + log(sum);
}

/* KL(p || q) of two logit rows. */
static inline double golden_kl(const float *p, const float *q, size_t n)
{
    double lp = golden_log_sum(p, n), lq = golden_log_sum(q, n), kl = 0;
    for (size_t i = 0; i < n; i++) {
        double a = (double)p[i] - lp, b = (double)q[i] - lq;
        kl += exp(a) * (a - b);
    }
    return kl;
}

/* KL on the listed tokens [id, ln p] and one bucket for the rest; ours: ln q of each listed id.
 * *worst: largest |d ln p|. */
static inline double golden_top_kl(const json_t *top, const double *ours, double *worst)
{
    double kl = 0, rest_p = 1, rest_q = 1;
    *worst = 0;
    for (size_t i = 0; i < json_array_size(top); i++) {
        double p = json_number_value(json_array_get(json_array_get(top, i), 1)), q = ours[i];
        kl += exp(p) * (p - q);
        rest_p -= exp(p);
        rest_q -= exp(q);
        *worst = fmax(*worst, fabs(p - q));
    }
    if (rest_p > 1e-12 && rest_q > 0) kl += rest_p * log(rest_p / rest_q);
    return kl;
}

#endif
