/* scan.c: measures importance.
 * Owns: which single changes are measured, and how they combine into one number a gate. Does not
 * know: plans, files.
 *
 * importance(l, h, i) = local error of gate i  x  KL of closing head (l, h) / local error of
 * closing head (l, h)
 *                       x  sqrt(KL of pair index i everywhere / sum of the estimates of its gates)
 *
 * The first factor ranks pairs inside a head, the second says what an error of this head is worth
 * to the whole model, the third corrects what all heads' estimates of a pair index have in common
 * (square root: half-way, both are noisy). What gradients say (fisher.h) stands beside it. */
#include "evap/scan.h"

#include <math.h>
#include <string.h>

#include "evap/probes.h"
#include "train/fisher.h"

static const double no_rise = 0.005; /* nats a token of the answer */

zp_status scan_place(struct scan *s, uint32_t n_layer, uint32_t n_kv, uint32_t n_pair, zp_err *err)
{
    size_t heads = (size_t)n_layer * n_kv;
    s->n_layer = n_layer, s->n_kv = n_kv, s->n_pair = n_pair;
    s->arena.tag = MEM_EVAP;
    ZP_TRY(local_errors_open(&s->local, n_layer, n_kv, n_pair, err));
    ZP_TAKE(s->kl_layer, &s->arena, n_layer, err, "the scan");
    ZP_TAKE(s->kl_head, &s->arena, heads, err, "the scan");
    ZP_TAKE(s->kl_pair, &s->arena, n_pair, err, "the scan");
    ZP_TAKE(s->importance, &s->arena, heads * n_pair, err, "the scan");
    ZP_TAKE(s->kl_local, &s->arena, heads, err, "the scan");
    ZP_TAKE(s->nll_rise, &s->arena, heads, err, "the scan");
    return ZP_OK;
}

zp_status scan_place_gradients(struct scan *s, zp_err *err)
{
    size_t gates = (size_t)s->n_layer * s->n_kv * s->n_pair;
    ZP_TAKE(s->fisher, &s->arena, gates, err, "the scan");
    ZP_TAKE(s->first_order, &s->arena, gates, err, "the scan");
    return ZP_OK;
}

void scan_free(struct scan *s)
{
    local_errors_free(&s->local);
    arena_free(&s->arena);
    memset(s, 0, sizeof *s);
}

/* ---- exact one-at-a-time KL ------------------------------------------------------------------ */

/* Closes gates of a box of (layers, heads, pairs); false if nothing in it was open. */
static bool close_box(struct gateset *g, uint32_t l0, uint32_t l1, uint32_t k0, uint32_t k1,
                      uint32_t i0, uint32_t i1)
{
    bool any = false;
    for (uint32_t l = l0; l < l1; l++)
        for (uint32_t k = k0; k < k1; k++)
            for (uint32_t i = i0; i < i1; i++) {
                uint8_t *open = &g->open[gateset_at(g, l, k, i)];
                any = any || *open;
                *open = 0;
            }
    return any;
}

/* Never below 0: a rounded -1e-9 would say that there is nothing to close, which -1 says. */
static zp_status kl_of_change(struct calib *c, const struct gateset *g, uint32_t from,
                              uint32_t n_windows, double *kl, zp_err *err)
{
    ZP_TRY(calib_kl(c, g, from, n_windows, kl, err));
    *kl = fmax(*kl, 0.0);
    return ZP_OK;
}

static zp_status kl_of_box(const struct scan *s, struct calib *c, const struct gateset *file,
                           const uint32_t box[6], double *kl, zp_err *err)
{
    struct gateset g;
    ZP_TRY(gateset_copy(&g, file, err));
    zp_status status = ZP_OK;
    *kl = -1.0;
    if (close_box(&g, box[0], box[1], box[2], box[3], box[4], box[5]))
        status = kl_of_change(c, &g, box[0], s->n_windows_kl, kl, err);
    gateset_free(&g);
    return status;
}

static zp_status measure_boxes(struct scan *s, struct calib *c, const struct gateset *file,
                               zp_err *err)
{
    uint32_t L = s->n_layer, K = s->n_kv, P = s->n_pair;
    uint64_t total = L * K + (K > 1 ? L : 0) + P, done = 0;
    for (uint32_t l = 0; l < L; l++)
        for (uint32_t k = 0; k < K; k++) {
            ZP_TRY(kl_of_box(s, c, file, (uint32_t[]){ l, l + 1, k, k + 1, 0, P },
                             &s->kl_head[l * K + k], err));
            ZP_TRY(calib_step(c, "KL of heads, layers, pairs", ++done, total, err));
        }
    for (uint32_t l = 0; l < L; l++) {
        if (K == 1) {
            s->kl_layer[l] = s->kl_head[l];
            continue;
        }
        ZP_TRY(kl_of_box(s, c, file, (uint32_t[]){ l, l + 1, 0, K, 0, P }, &s->kl_layer[l], err));
        ZP_TRY(calib_step(c, "KL of heads, layers, pairs", ++done, total, err));
    }
    for (uint32_t i = 0; i < P; i++) {
        ZP_TRY(kl_of_box(s, c, file, (uint32_t[]){ 0, L, 0, K, i, i + 1 }, &s->kl_pair[i], err));
        ZP_TRY(calib_step(c, "KL of heads, layers, pairs", ++done, total, err));
    }
    return ZP_OK;
}

/* ---- local heads ----------------------------------------------------------------------------- */

static zp_status measure_local(struct scan *s, struct calib *c, const struct gateset *file,
                               struct probes *probes, zp_err *err)
{
    uint32_t heads = s->n_layer * s->n_kv;
    for (uint32_t i = 0; i < heads; i++) {
        struct gateset g;
        uint32_t layer = i / s->n_kv;
        uint32_t has = file->window[i]; /* nothing to shorten: windowed layer, or local already */
        if (c->model->position.window[layer] || (has && has <= s->local_window)) {
            s->kl_local[i] = s->nll_rise[i] = -1.0;
            continue;
        }
        ZP_TRY(gateset_copy(&g, file, err));
        g.window[i] = s->local_window;
        g.n_sink = SCAN_SINKS;
        zp_status status = kl_of_change(c, &g, layer, c->n_restart, &s->kl_local[i], err);
        if (status == ZP_OK) /* nine heads of ten show nothing at all */
            status = probes_rise(probes, c, &g, layer, no_rise, &s->nll_rise[i], err);
        gateset_free(&g);
        ZP_TRY(status);
        ZP_TRY(calib_step(c, "local heads", i + 1, heads, err));
    }
    return ZP_OK;
}

static zp_status scan_local_heads(struct scan *s, struct calib *c, const struct gateset *file,
                                  uint64_t seed, zp_err *err)
{
    struct probes p;
    ZP_TRY(probes_open(&p, c, SCAN_PROBES, seed, true, err));
    zp_status status = measure_local(s, c, file, &p, err);
    probes_free(&p);
    return status;
}

/* ---- gradients ------------------------------------------------------------------------------- */

/* At the positions whose KL counts: a window's square has one degree of freedom however many they
 * are, so leaving the others out costs no certainty. */
static zp_status measure_gradients(struct scan *s, struct calib *c, const zp_scan_options *o,
                                   zp_err *err)
{
    struct fisher *f;
    struct fisher_options fo = { .n_ctx = c->n_ctx, .begin = c->range.begin,
                                 .n_threads = o->n_threads, .seed = o->seed };
    zp_status status = ZP_OK;
    ZP_TRY(scan_place_gradients(s, err));
    ZP_TRY(fisher_open(&f, c->model, &fo, err));
    for (uint32_t i = 0; i < c->windows.n && status == ZP_OK; i++) {
        fisher_add(f, c->windows.at[i].ids);
        status = calib_step(c, "gradients of gates", i + 1, c->windows.n, err);
    }
    fisher_values(f, s->fisher, s->first_order);
    fisher_close(f);
    return status;
}

/* ---- importance ------------------------------------------------------------------------------ */

/* KL of the head for each unit of its local error. */
static double worth_of(const struct scan *s, size_t head)
{
    double all = (double)s->local.all[head];
    return all > 0.0 && s->kl_head[head] > 0.0 ? s->kl_head[head] / all : 0.0;
}

void scan_importance(const struct scan *s, const struct local_errors *now,
                     const struct gateset *set, double *out)
{
    size_t heads = (size_t)s->n_layer * s->n_kv;
    for (size_t h = 0; h < heads; h++) {
        double worth = worth_of(s, h);
        for (uint32_t i = 0; i < s->n_pair; i++) {
            size_t at = h * s->n_pair + i;
            double rise = (double)now->gate[at] - (double)now->now[h];
            out[at] = set->open[at] ? fmax(rise, 1e-3 * (double)now->gate[at]) * worth : 0.0;
        }
    }
    for (uint32_t i = 0; i < s->n_pair; i++) {
        double sum = 0.0;
        for (size_t h = 0; h < heads; h++)
            sum += (double)s->local.gate[h * s->n_pair + i] * worth_of(s, h);
        double factor = sum > 0.0 && s->kl_pair[i] > 0.0 ? sqrt(s->kl_pair[i] / sum) : 1.0;
        for (size_t h = 0; h < heads; h++) out[h * s->n_pair + i] *= factor;
    }
}

static zp_status measure(struct scan *s, struct calib *c, const zp_scan_options *o,
                         const struct gateset *file, zp_err *err)
{
    struct scanlocal *local;
    if (o->fisher) ZP_TRY(measure_gradients(s, c, o, err)); /* first: it refuses some models */
    ZP_TRY(scanlocal_open(&local, c, err));
    zp_status status = scanlocal_run(local, file, s->n_windows_local, &s->local, err);
    scanlocal_close(local);
    ZP_TRY(status);
    ZP_TRY(measure_boxes(s, c, file, err));
    scan_importance(s, &s->local, file, s->importance);
    return o->local_window ? scan_local_heads(s, c, file, o->seed, err) : ZP_OK;
}

static zp_status copy_text(struct scan *s, char **out, const char *text, zp_err *err)
{
    *out = arena_strndup(&s->arena, text, strlen(text));
    ZP_FAIL_IF(!*out, err, ZP_NO_MEMORY, "not enough memory for the scan");
    return ZP_OK;
}

static zp_status measure_all(struct scan *s, struct calib *c, const zp_scan_options *o, zp_err *err)
{
    struct gateset file;
    const struct position *p = &c->model->position;
    if (o->local_window) ZP_TRY(probes_check(c, SCAN_PROBES, o->seed, err));
    ZP_TRY(scan_place(s, p->n_layer, p->n_kv, p->n_pair, err));
    s->n_ctx = c->n_ctx;
    s->local_window = o->local_window;
    s->n_windows_local = (uint32_t)c->windows.n;
    s->n_windows_kl = o->n_windows_kl < c->n_restart ? o->n_windows_kl : c->n_restart;
    ZP_TRY(copy_text(s, &s->model_sha256, zp_model_sha256(c->model), err));
    ZP_TRY(gateset_open(&file, &c->model->position, err));
    zp_status status = measure(s, c, o, &file, err);
    gateset_free(&file);
    ZP_TRY(status);
    return docs_seen(&c->docs, &s->arena, &s->seen, &s->n_seen, err);
}

zp_status scan_measure(struct scan *s, struct calib *c, const zp_scan_options *o, zp_err *err)
{
    memset(s, 0, sizeof *s);
    zp_status status = measure_all(s, c, o, err);
    if (status != ZP_OK) scan_free(s);
    return status;
}
