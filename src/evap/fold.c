/* fold.c: least-squares stand-ins for closed pairs.
 * Owns: the factors. Does not know: which gates should close, files.
 *
 * A pair's logit is Re(q conj(k) e^{i theta d}), q and k its two channels as complex numbers, d the
 * distance. Closed, it is Re(w q conj(k)) with w = 1; the best w is found by least squares over the
 * keys of each query, weighted by the original's attention and centred a query (softmax ignores a
 * shift), all closed pairs of a head together:
 *
 *   features of pair s at key j:  Re(q_s conj(k_s)),  -Im(q_s conj(k_s));   target: sum_s Re(q_s
 *   conj(k_s) e^{i theta d})
 *
 * with a ridge towards w = 1. O1 pairs that stay open are not touched. */
#include "evap/fold.h"

#include <assert.h>
#include <math.h>
#include <string.h>

static const double ridge = 0.02;        /* of the features' mean square */
static const float least_weight = 1e-4f; /* keys with less attention are left out */

bool fold_is_possible(const struct calib *c)
{
    return !c->model->h.arch->qk_norm;
}

zp_status fold_open(struct fold *f, struct calib *c, zp_err *err)
{
    const struct hparams *h = &c->model->h;
    memset(f, 0, sizeof *f);
    f->n_layer = h->n_layer, f->n_head = h->n_head, f->n_pair = c->model->position.n_pair;
    size_t factors = (size_t)f->n_layer * f->n_head * f->n_pair,
           rows = (size_t)h->n_layer * h->n_head * h->d_head;
    f->w = mem_array(MEM_EVAP, factors * 2, sizeof *f->w);
    f->backup = mem_array(MEM_EVAP, rows * h->d_model, sizeof *f->backup);
    f->bias_backup = mem_zalloc(MEM_EVAP, rows * sizeof *f->bias_backup);
    f->mixed = mem_array(MEM_EVAP, 2 * (size_t)h->d_model, sizeof *f->mixed);
    if (!f->w || !f->backup || !f->bias_backup || !f->mixed) {
        fold_free(f);
        ZP_FAIL(err, ZP_NO_MEMORY, "not enough memory for the fold of closed pairs");
    }
    for (size_t i = 0; i < factors; i++) f->w[2 * i] = 1.0f, f->w[2 * i + 1] = 0.0f;
    for (size_t r = 0; r < rows; r++) {
        const struct layer_weights *lw = &c->engine->weights.layers[r / (h->n_head * h->d_head)];
        kern_mat_unpack_row(&lw->mat[W_Q], r % (h->n_head * h->d_head), f->backup + r * h->d_model);
        if (lw->q_bias) f->bias_backup[r] = lw->q_bias[r % (h->n_head * h->d_head)];
    }
    return ZP_OK;
}

void fold_free(struct fold *f)
{
    mem_free(f->w);
    mem_free(f->backup);
    mem_free(f->bias_backup);
    mem_free(f->mixed);
    memset(f, 0, sizeof *f);
}

/* ---- installing ------------------------------------------------------------------------------ */

static void write_bias(const struct fold *f, struct calib *c, uint32_t layer, size_t row, float wr,
                       float wi)
{
    const struct hparams *h = &c->model->h;
    const float *old = f->bias_backup + (size_t)layer * h->n_head * h->d_head + row;
    float *bias = (float *)(uintptr_t)c->engine->weights.layers[layer]
                      .q_bias; /* the calibration engine is ours */
    if (!bias) return;
    bias[row] = wr * old[0] - wi * old[1];
    bias[row + 1] = wi * old[0] + wr * old[1];
}

static void write_rows(const struct fold *f, struct calib *c, bool folded)
{
    const struct hparams *h = &c->model->h;
    const struct position *p = &c->model->position;
    size_t d = h->d_model;
    float *mixed = f->mixed;
    assert(!c->engine->weights.from_side_file); /* W7: a mapping is read-only */
    for (uint32_t l = 0; l < h->n_layer; l++)
        for (uint32_t head = 0; head < h->n_head; head++)
            for (uint32_t s = 0; s < p->n_pair; s++) {
                uint32_t kv = head / (h->n_head / h->n_kv),
                         pair = p->heads[l * h->n_kv + kv].pair[s];
                const float *w = f->w + (((size_t)l * f->n_head + head) * f->n_pair + pair) * 2;
                size_t row = (size_t)head * h->d_head + 2 * s;
                const float *a = f->backup + ((size_t)l * h->n_head * h->d_head + row) * d,
                            *b = a + d;
                float wr = folded ? w[0] : 1.0f, wi = folded ? w[1] : 0.0f;
                if (w[0] == 1.0f && w[1] == 0.0f) continue;
                for (size_t i = 0; i < d; i++)
                    mixed[i] = wr * a[i] - wi * b[i], mixed[d + i] = wi * a[i] + wr * b[i];
                kern_mat_set_row_f32(&c->engine->weights.layers[l].mat[W_Q], row, mixed);
                kern_mat_set_row_f32(&c->engine->weights.layers[l].mat[W_Q], row + 1, mixed + d);
                write_bias(f, c, l, row, wr, wi);
            }
}

void fold_install(const struct fold *f, struct calib *c)
{
    write_rows(f, c, true);
}

void fold_remove(const struct fold *f, struct calib *c)
{
    write_rows(f, c, false);
}

/* ---- fitting --------------------------------------------------------------------------------- */

struct room {       /* of one worker */
    double *a, *b;  /* normal matrix (n, n) and right side (n) of the head in work */
    float *mean;    /* (n + 1) of one query */
    float *part;    /* (n + 1, n + 1) of one query, lower triangle */
    float *feature; /* (n + 1): features, then the target */
    float *p;       /* (n_ctx) attention of one query */
    float *cs;      /* (n_pair, 2) */
    double *matrix; /* (n, n) solver copy */
};

struct fit {
    struct calib *c;
    struct fold *f;
    const struct gateset *set;
    uint32_t n_queries, layer, n_tok, n_windows;
    float *q, *k, *k_rot; /* (n_windows, n_ctx, heads, d): raw q, raw and rotated k of one layer */
    struct room *rooms;
    struct arena arena;
};

static uint32_t closed_slots(const struct fit *t, uint32_t kv, uint16_t *slots)
{
    const struct position_head *ph = &t->c->model->position.heads[t->layer * t->set->n_kv + kv];
    uint32_t n = 0;
    for (uint32_t s = 0; s < ph->n_open; s++)
        if (!t->set->open[gateset_at(t->set, t->layer, kv, ph->pair[s])]) slots[n++] = (uint16_t)s;
    return n;
}

/* Attention of the original at one query: p (at + 1), 0 where it does not look. */
static void original_attention(const struct fit *t, const float *q_rot, const float *k_rot,
                               uint32_t head, uint32_t at, float *p)
{
    const struct hparams *h = &t->c->model->h;
    uint32_t kv = head / (h->n_head / h->n_kv);
    const struct position *pos = &t->c->model->position;
    struct position_seen seen = position_seen(position_head_sight(pos, t->layer, kv), at);
    float max = -INFINITY, sum = 0.0f,
          scale = position_query_scale(pos, t->layer, head, position_count_seen(seen, at)) *
                  position_gate_factor(pos, t->layer, head, at);
    for (uint32_t j = 0; j <= at; j++) {
        p[j] = 0.0f;
        if (j >= seen.n_sinks && j < seen.first) continue;
        const float *k = k_rot + ((size_t)j * h->n_kv + kv) * h->d_head;
        float dot = 0.0f;
        for (uint32_t c = 0; c < h->d_head; c++) dot += q_rot[c] * k[c];
        p[j] = dot * scale;
        max = p[j] > max ? p[j] : max;
    }
    for (uint32_t j = 0; j <= at; j++)
        if (j < seen.n_sinks || j >= seen.first) sum += p[j] = expf(p[j] - max);
    for (uint32_t j = 0; j <= at; j++) p[j] /= sum;
}

/* Features and target of key j: feature (n + 1), the target last. */
static void key_features(const float *q, const float *q_rot, const float *k, const float *k_rot,
                         const uint16_t *slots, uint32_t n_slots, float *feature)
{
    float y = 0.0f;
    for (uint32_t i = 0; i < n_slots; i++) {
        uint32_t c = 2u * slots[i];
        feature[2 * i] = q[c] * k[c] + q[c + 1] * k[c + 1];
        feature[2 * i + 1] = q[c] * k[c + 1] - q[c + 1] * k[c];
        y += q_rot[c] * k_rot[c] + q_rot[c + 1] * k_rot[c + 1];
    }
    feature[2 * n_slots] = y;
}

/* Adds one query's weighted, centred products to the head's normal equations. One query's sums fit
 * float; those of all queries are kept in double. */
static void add_query(const struct fit *t, struct room *r, const float *q, const float *q_rot,
                      const float *k, const float *k_rot, uint32_t head, uint32_t at,
                      const uint16_t *slots, uint32_t n_slots)
{
    const struct hparams *h = &t->c->model->h;
    uint32_t kv = head / (h->n_head / h->n_kv), n = 2 * n_slots, m = n + 1;
    original_attention(t, q_rot, k_rot, head, at, r->p);
    memset(r->mean, 0, m * sizeof *r->mean);
    memset(r->part, 0, (size_t)m * m * sizeof *r->part);
    float total = 0.0f;
    for (uint32_t j = 0; j <= at; j++) {
        float w = r->p[j];
        if (w < least_weight) continue;
        size_t key = ((size_t)j * h->n_kv + kv) * h->d_head;
        key_features(q, q_rot, k + key, k_rot + key, slots, n_slots, r->feature);
        total += w;
        for (uint32_t a = 0; a < m; a++) {
            float wa = w * r->feature[a], *row = r->part + a * m;
            r->mean[a] += wa;
            for (uint32_t b = 0; b <= a; b++) row[b] += wa * r->feature[b];
        }
    }
    if (!(total > 0.0f)) return;
    const float *target = r->part + n * m; /* last row: products with the target */
    for (uint32_t a = 0; a < n; a++) {
        double mean = (double)r->mean[a] / (double)total;
        r->b[a] += (double)target[a] - mean * (double)r->mean[n];
        for (uint32_t b = 0; b <= a; b++)
            r->a[a * n + b] += (double)r->part[a * m + b] - mean * (double)r->mean[b];
    }
}

/* Cholesky solution of (A + ridge D) x = b + ridge D x0, x0 = (1, 0, 1, 0, ...). False if A is not
 * positive. */
static bool solve(struct room *r, uint32_t n)
{
    double trace = 0.0, *m = r->matrix;
    for (uint32_t i = 0; i < n; i++) trace += r->a[i * n + i];
    double add = ridge * trace / n;
    if (!(add > 0.0)) return false;
    for (uint32_t i = 0; i < n; i++) {
        memcpy(m + (size_t)i * n, r->a + (size_t)i * n, (i + 1) * sizeof *m);
        m[i * n + i] += add;
        if (i % 2 == 0) r->b[i] += add;
    }
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = 0; j <= i; j++) {
            double sum = m[i * n + j];
            for (uint32_t k = 0; k < j; k++) sum -= m[i * n + k] * m[j * n + k];
            if (i == j && !(sum > 0.0)) return false;
            m[i * n + j] = i == j ? sqrt(sum) : sum / m[j * n + j];
        }
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < i; k++) r->b[i] -= m[i * n + k] * r->b[k];
        r->b[i] /= m[i * n + i];
    }
    for (uint32_t i = n; i-- > 0;) {
        for (uint32_t k = i + 1; k < n; k++) r->b[i] -= m[k * n + i] * r->b[k];
        r->b[i] /= m[i * n + i];
    }
    return true;
}

static void fit_head(struct fit *t, struct room *r, uint32_t head)
{
    const struct hparams *h = &t->c->model->h;
    uint32_t kv = head / (h->n_head / h->n_kv);
    uint16_t slots[512];
    uint32_t n_slots = closed_slots(t, kv, slots), n = 2 * n_slots;
    if (n_slots == 0) return;
    memset(r->a, 0, (size_t)n * n * sizeof *r->a);
    memset(r->b, 0, n * sizeof *r->b);
    for (uint32_t w = 0; w < t->n_windows; w++) {
        size_t nq = (size_t)h->n_head * h->d_head, nkv = (size_t)h->n_kv * h->d_head;
        const float *q = t->q + w * t->n_tok * nq, *k = t->k + w * t->n_tok * nkv,
                    *kr = t->k_rot + w * t->n_tok * nkv;
        for (uint32_t i = 0; i < t->n_queries; i++) {
            uint32_t at =
                t->n_tok / 8 + (uint32_t)((uint64_t)(t->n_tok * 7 / 8) * i / t->n_queries);
            const float *qh = q + (size_t)at * nq + (size_t)head * h->d_head;
            float q_rot[1024], room[1024];
            memcpy(q_rot, qh, h->d_head * sizeof *q_rot);
            calib_rotate(t->c, t->layer, kv, at, q_rot, r->cs, room);
            add_query(t, r, qh, q_rot, k, kr, head, at, slots, n_slots);
        }
    }
    bool solved = solve(r, n);
    const struct position_head *ph = &t->c->model->position.heads[t->layer * h->n_kv + kv];
    for (uint32_t i = 0; i < n_slots; i++) {
        float *w =
            t->f->w +
            (((size_t)t->layer * t->f->n_head + head) * t->f->n_pair + ph->pair[slots[i]]) * 2;
        w[0] = solved ? (float)r->b[2 * i] : 1.0f;
        w[1] = solved ? (float)r->b[2 * i + 1] : 0.0f;
    }
}

static void fit_worker(void *arg, uint32_t thread, uint32_t n_threads)
{
    struct fit *t = arg;
    for (uint32_t head = thread; head < t->f->n_head; head += n_threads)
        fit_head(t, &t->rooms[thread], head);
}

static void rotate_worker(void *arg, uint32_t thread, uint32_t n_threads)
{
    struct fit *t = arg;
    const struct hparams *h = &t->c->model->h;
    size_t begin, end, total = (size_t)t->n_windows * t->n_tok;
    float room[1024];
    pool_share(total, 1, thread, n_threads, &begin, &end);
    for (size_t i = begin; i < end; i++)
        for (uint32_t kv = 0; kv < h->n_kv; kv++) {
            size_t at = (i * h->n_kv + kv) * h->d_head;
            memcpy(t->k_rot + at, t->k + at, h->d_head * sizeof *t->k);
            calib_rotate(t->c, t->layer, kv, (uint32_t)(i % t->n_tok), t->k_rot + at,
                         t->rooms[thread].cs, room);
        }
}

/* ---- layers ---------------------------------------------------------------------------------- */

struct copy {
    struct fit *t;
    uint32_t window;
};

static void copy_qk(void *arg, uint32_t layer, size_t n_tok, const float *q, const float *k,
                    const float *v)
{
    struct copy *c = arg;
    const struct hparams *h = &c->t->c->model->h;
    size_t nq = n_tok * h->n_head * h->d_head, nkv = n_tok * h->n_kv * h->d_head;
    (void)layer, (void)v;
    memcpy(c->t->q + c->window * nq, q, nq * sizeof *q);
    memcpy(c->t->k + c->window * nkv, k, nkv * sizeof *k);
}

/* Original q and k of one layer in every window, from the stream kept before the layer. */
static zp_status layer_qk(struct fit *t, zp_err *err)
{
    const struct hparams *h = &t->c->model->h;
    size_t row = (size_t)t->c->n_ctx * h->d_model;
    for (uint32_t w = 0; w < t->n_windows; w++) {
        struct copy copy = { t, w };
        struct forward_hooks hooks = { .arg = &copy, .at_qkv = copy_qk };
        const float *x_in = t->c->at_layer + ((size_t)w * h->n_layer + t->layer) * row;
        ZP_TRY(score_layers(t->c->engine, &t->c->windows.at[w], t->layer, t->layer + 1, x_in, NULL,
                            &hooks, err));
    }
    return ZP_OK;
}

static zp_status fit_layers(struct fit *t, zp_err *err)
{
    const struct hparams *h = &t->c->model->h;
    size_t n = 2 * (size_t)t->f->n_pair, tokens = (size_t)t->n_windows * t->n_tok;
    ZP_TAKE(t->q, &t->arena, tokens * h->n_head * h->d_head, err, "the fold of closed pairs");
    ZP_TAKE(t->k, &t->arena, tokens * h->n_kv * h->d_head, err, "the fold of closed pairs");
    ZP_TAKE(t->k_rot, &t->arena, tokens * h->n_kv * h->d_head, err, "the fold of closed pairs");
    uint32_t threads = pool_threads(t->c->engine->pool);
    ZP_TAKE(t->rooms, &t->arena, threads, err, "the fold of closed pairs");
    for (uint32_t i = 0; i < threads; i++) {
        struct room *r = &t->rooms[i];
        ZP_TAKE(r->a, &t->arena, n * n, err, "the fold of closed pairs");
        ZP_TAKE(r->matrix, &t->arena, n * n, err, "the fold of closed pairs");
        ZP_TAKE(r->b, &t->arena, n, err, "the fold of closed pairs");
        ZP_TAKE(r->mean, &t->arena, n + 1, err, "the fold of closed pairs");
        ZP_TAKE(r->part, &t->arena, (n + 1) * (n + 1), err, "the fold of closed pairs");
        ZP_TAKE(r->feature, &t->arena, n + 1, err, "the fold of closed pairs");
        ZP_TAKE(r->p, &t->arena, t->n_tok, err, "the fold of closed pairs");
        ZP_TAKE(r->cs, &t->arena, n, err, "the fold of closed pairs");
    }
    for (t->layer = 0; t->layer < h->n_layer; t->layer++) {
        ZP_TRY(layer_qk(t, err));
        pool_run(t->c->engine->pool, rotate_worker, t);
        pool_run(t->c->engine->pool, fit_worker, t);
        ZP_TRY(calib_step(t->c, "folding closed pairs", t->layer + 1, h->n_layer, err));
    }
    return ZP_OK;
}

zp_status fold_fit(struct fold *f, struct calib *c, const struct gateset *set, uint32_t n_windows,
                   uint32_t n_queries, zp_err *err)
{
    struct fit t = {
        .c = c, .f = f, .set = set, .n_queries = n_queries, .n_tok = c->n_ctx, .arena.tag = MEM_EVAP
    };
    t.n_windows = n_windows < c->n_restart ? n_windows : c->n_restart;
    fold_remove(f, c);
    for (size_t i = 0; i < (size_t)f->n_layer * f->n_head * f->n_pair; i++)
        f->w[2 * i] = 1.0f, f->w[2 * i + 1] = 0.0f;
    zp_status status = gateset_closed(set) ? fit_layers(&t, err) : ZP_OK;
    arena_free(&t.arena);
    return status;
}

bool fold_touches(const struct fold *f, uint32_t layer)
{
    if (!f) return false;
    const float *w = f->w + (size_t)layer * f->n_head * f->n_pair * 2;
    for (size_t i = 0; i < (size_t)f->n_head * f->n_pair; i++)
        if (w[2 * i] != 1.0f || w[2 * i + 1] != 0.0f) return true;
    return false;
}

bool fold_is_used(const struct fold *f)
{
    for (uint32_t layer = 0; f && layer < f->n_layer; layer++)
        if (fold_touches(f, layer)) return true;
    return false;
}
