/* test_scanlocal.c: the local scan's picture of a head is the model's: its "original" row gives the
 * attention output computed here position by position, with windows, sinks and length scales. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "evap/scanlocal.h"
#include "golden.h"

enum { CTX = 128, QUERIES = 32 };

struct qkv {
    float *q, *k, *v;
    const struct hparams *h;
};

static void keep(void *arg, uint32_t layer, size_t n_tok, const float *q, const float *k,
                 const float *v)
{
    struct qkv *x = arg;
    (void)layer;
    memcpy(x->q, q, n_tok * x->h->n_head * x->h->d_head * sizeof *q);
    memcpy(x->k, k, n_tok * x->h->n_kv * x->h->d_head * sizeof *k);
    memcpy(x->v, v, n_tok * x->h->n_kv * x->h->d_head * sizeof *v);
}

static void rotate(struct calib *c, uint32_t layer, uint32_t kv, uint32_t at, float *x)
{
    const struct position *p = &c->model->position;
    float all[512], room[512];
    const float *cs;
    position_angles(p, p->angle_set[layer], at, all);
    uint32_t n = position_head_cs(p, (struct position_view){ ZP_MODE_FULL, NULL, false }, layer,
                                  kv, all, room, &cs);
    if (n) c->engine->kern.rotate(x, cs, n);
}

/* o of one query head, in double. */
static void attend(struct calib *c, const struct qkv *x, uint32_t layer, uint32_t head, uint32_t at,
                   double *o)
{
    const struct hparams *h = x->h;
    const struct position *p = &c->model->position;
    uint32_t kv = head / (h->n_head / h->n_kv), d = h->d_head;
    struct position_seen seen = position_seen(position_head_sight(p, layer, kv), at);
    float q[256], k[256];
    double scale = (double)position_query_scale(p, layer, head, position_count_seen(seen, at));
    double logit[CTX], sum = 0.0;
    memcpy(q, x->q + ((size_t)at * h->n_head + head) * d, d * sizeof *q);
    rotate(c, layer, kv, at, q);
    memset(o, 0, d * sizeof *o);
    for (uint32_t j = 0; j <= at; j++) {
        logit[j] = -INFINITY;
        if (j >= seen.n_sinks && j < seen.first) continue;
        memcpy(k, x->k + ((size_t)j * h->n_kv + kv) * d, d * sizeof *k);
        rotate(c, layer, kv, j, k);
        double dot = 0.0;
        for (uint32_t i = 0; i < d; i++) dot += (double)q[i] * (double)k[i];
        sum += exp(logit[j] = dot * scale);
    }
    for (uint32_t j = 0; j <= at; j++)
        for (uint32_t i = 0; i < d; i++)
            o[i] += exp(logit[j]) / sum * (double)x->v[((size_t)j * h->n_kv + kv) * d + i];
}

/* |W_o o|^2 of one head. */
static double through_output(struct calib *c, uint32_t layer, uint32_t head, const double *o)
{
    const struct hparams *h = &c->model->h;
    float row[1024];
    double sum = 0.0;
    for (uint32_t r = 0; r < h->d_model; r++) {
        double y = 0.0;
        kern_mat_unpack_row(&c->engine->weights.layers[layer].mat[W_O], r, row);
        for (uint32_t i = 0; i < h->d_head; i++) y += (double)row[head * h->d_head + i] * o[i];
        sum += y * y;
    }
    return sum;
}

static double expected(struct calib *c, uint32_t layer, struct qkv *x)
{
    const struct hparams *h = &c->model->h;
    struct forward_hooks hooks = { .arg = x, .at_qkv = keep };
    const float *in = c->at_layer + (size_t)layer * CTX * h->d_model;
    double sum = 0.0, o[256];
    GOLDEN_OK(score_layers(c->engine, &c->windows.at[0], layer, layer + 1, in, NULL, &hooks, err));
    for (uint32_t i = 0; i < QUERIES; i++) {
        uint32_t begin = CTX / 8, at = begin + (CTX - 1 - begin) * (2 * i + 1) / (2 * QUERIES);
        for (uint32_t head = 0; head < h->n_head; head++) {
            attend(c, x, layer, head, at, o);
            sum += through_output(c, layer, head, o);
        }
    }
    return sum / QUERIES;
}

static void check(const char *name)
{
    struct calib c;
    struct gateset file;
    struct scanlocal *s;
    struct local_errors e;
    char path[256];
    snprintf(path, sizeof path, "%s/arch/gguf/%s", ZP_TEST_DATA, name);
    GOLDEN_OK(calib_open(&c, path, ZP_TEST_DATA "/prose.txt", CTX, err));
    c.n_restart = 2;
    GOLDEN_OK(calib_start(&c, 2, 1, err));
    const struct hparams *h = &c.model->h;
    GOLDEN_OK(gateset_open(&file, &c.model->position, err));
    GOLDEN_OK(local_errors_open(&e, h->n_layer, h->n_kv, c.model->position.n_pair, err));
    GOLDEN_OK(scanlocal_open(&s, &c, err));
    GOLDEN_OK(scanlocal_run(s, &file, 1, &e, err));
    struct qkv x = { .h = h };
    x.q = calloc((size_t)CTX * h->n_head * h->d_head, sizeof *x.q);
    x.k = calloc((size_t)CTX * h->n_kv * h->d_head, sizeof *x.k);
    x.v = calloc((size_t)CTX * h->n_kv * h->d_head, sizeof *x.v);
    for (uint32_t l = 0; l < h->n_layer; l++) {
        bool rotates = false;
        for (uint32_t k = 0; k < h->n_kv; k++)
            rotates = rotates || c.model->position.heads[l * h->n_kv + k].n_open != 0;
        if (!rotates) continue; /* nothing to close: not scanned */
        double want = expected(&c, l, &x), got = (double)e.output[l];
        if (!(fabs(got - want) <= 1e-4 * want))
            fail_msg("%s, layer %u: %g, expected %g", name, l, got, want);
        for (uint32_t k = 0; k < h->n_kv; k++) /* the file's own set changes nothing */
            assert_true((double)e.now[l * h->n_kv + k] <= 1e-9 * want);
    }
    free(x.q), free(x.k), free(x.v);
    scanlocal_close(s);
    local_errors_free(&e);
    gateset_free(&file);
    calib_close(&c);
}

static void test_original_row_is_the_models_attention(void **state)
{
    (void)state;
    check("gguf-llama-linear.gguf");
    check("gguf-gemma3.gguf");       /* windowed layers */
    check("zerope-local.gguf");      /* local heads with sinks */
    check("zerope-local-scaled.gguf"); /* scales that depend on the positions seen */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_original_row_is_the_models_attention),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
