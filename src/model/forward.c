/* forward.c: the layer program. A layer is five phases, each ending with a barrier:
 *   norm, q k v, rotate, append | attention | heads, out | residual, norm, gate and up | down
 * Threads: every worker runs the same program. Rows of a product are owned statically; steps
 * between products belong to tokens: a worker computes its share of them and waits for the others,
 * or all of them where the batch is lone (forward.h), and then waits for nobody.
 * Owns: nothing; scratch.c has the memory. Does not know: sequences' lengths, requests, files.
 * F1 a row's bits depend on its own tokens only (I1): no reduction crosses rows, none depends on a
 *    split.
 * F3 logits of a quantised output matrix take activations in two int8 parts (15 bits) where that is
 *    cheap: a quarter of the default path's KL came from there, and reading the weights, which is
 *    what decode waits for, is not doubled. */
#include "model/forward.h"

#include "model/attend.h"
#include "model/posgate.h"
#include "model/scratch.h"

#include <stdatomic.h>
#include <string.h>

/* ---- workers --------------------------------------------------------------------------------- */

struct worker {
    struct forward *f;
    struct forward_rows *rows;
    uint32_t thread, n;
    size_t t0, t1;      /* tokens whose steps between products it computes */
    uint64_t n_rotated; /* by this worker */
};

static struct worker worker_of(struct forward *f, uint32_t thread, uint32_t n, size_t n_tok)
{
    struct worker w = { f, &f->rows[f->lone ? thread : 0], thread, n, 0, n_tok, 0 };
    if (!f->lone) pool_share(n_tok, 1, thread, n, &w.t0, &w.t1);
    return w;
}

static void wait_all(const struct worker *w)
{
    pool_barrier(w->f->pool, w->thread);
}

/* Steps of all tokens are done. */
static void wait_tokens(const struct worker *w)
{
    if (!w->f->lone) wait_all(w);
}

/* Rows of a product: in units that keep heads whole, kernels' tiles full and groups of 32 columns
 * of the next product together. */
static void share_rows(const struct worker *w, size_t n_out, size_t *begin, size_t *end)
{
    pool_share(n_out, 32, w->thread, w->n, begin, end);
}

/* A barrier after which this worker reads its rows of `next`. In a lone batch memory is what all
 * wait for: their beginning is fetched while the others arrive. */
static void wait_for(const struct worker *w, const struct kern_mat *next)
{
    enum { AHEAD = 32 << 10 };
    size_t begin, end;
    if (!w->f->lone || !next) {
        wait_all(w);
        return;
    }
    share_rows(w, next->n_out, &begin, &end);
    const uint8_t *from = next->data + begin / PACK_ROWS * next->row_group_bytes;
    size_t bytes = (end - begin) / PACK_ROWS * next->row_group_bytes;
    pool_arrive(w->f->pool, w->thread);
    for (size_t i = 0; i < AHEAD && i < bytes; i += ZP_CACHE_LINE) ZP_PREFETCH(from + i);
    pool_wait(w->f->pool, w->thread);
}

/* ---- products -------------------------------------------------------------------------------- */

/* y = rows [begin, end) of m times x, all tokens of the batch. */
static void multiply_rows(const struct worker *w, const struct kern_mat *m, size_t begin,
                          size_t end, const struct kern_act *x, size_t n_tok, float *y)
{
    if (begin < end) kern_gemm_of(w->f->kern, m->form)(m, begin, end, x, n_tok, y, m->n_out);
}

/* This worker's rows of y = W x for n_tok tokens. */
static void multiply(const struct worker *w, const struct kern_mat *m, const struct kern_act *x,
                     size_t n_tok, float *y)
{
    size_t begin, end;
    share_rows(w, m->n_out, &begin, &end);
    multiply_rows(w, m, begin, end, x, n_tok, y);
}

/* Rows [begin, end) of m as a matrix of their own; begin is a multiple of 16. */
static struct kern_mat slice(const struct kern_mat *m, size_t begin, size_t end)
{
    struct kern_mat part = *m;
    part.data += begin / PACK_ROWS * m->row_group_bytes;
    part.n_out = end - begin;
    return part;
}

/* Room for one row of the stream: token t's own where products read f32. */
static float *row_of(const struct worker *w, size_t t)
{
    const struct forward *f = w->f;
    return f->reads.f32 ? w->rows->normed + t * f->h->d_model : f->rows[w->thread].normed;
}

/* Makes norm(x) of this worker's tokens the input of the next product; x (n, d_model). */
static void norm_tokens(const struct worker *w, const float *x, const float *gain)
{
    const struct forward *f = w->f;
    size_t d = f->h->d_model;
    for (size_t t = w->t0; t < w->t1; t++) {
        float *row = row_of(w, t);
        f->kern->rmsnorm(x + t * d, gain, f->h->norm_eps, d, row);
        if (f->reads.q8)
            f->kern->act_quantize(&w->rows->act_model, (struct kern_part){ t, t + 1, 0, d }, row,
                                  d);
    }
}

/* x += scale * norm(sum + bias) for this worker's tokens; bias and norm only where the architecture
 * has them. */
static void add_residual(const struct worker *w, const float *bias, const float *post_norm)
{
    const struct forward *f = w->f;
    size_t d = f->h->d_model;
    for (size_t t = w->t0; t < w->t1; t++) {
        const float *sum = f->sum + t * d;
        float *row = row_of(w, t);
        for (size_t i = 0; bias && i < d; i++) row[i] = sum[i] + bias[i];
        if (bias) sum = row;
        if (post_norm) f->kern->rmsnorm(sum, post_norm, f->h->norm_eps, d, row), sum = row;
        float *x = w->rows->x + t * d;
        f->kern->add_scaled(x, sum, f->h->residual_scale, x, d);
    }
}

/* ---- q, k, v --------------------------------------------------------------------------------- */

/* The heads of q, and those of k and v together, whose rows a worker computes: one head of q counts
 * one, k and v of a head two. */
struct head_share {
    size_t q0, q1, kv0, kv1;
};

/* Heads a product can be split at: their rows begin at a multiple of 16. */
static size_t head_grain(size_t d_head)
{
    size_t grain = 1;
    while (grain * d_head % PACK_ROWS != 0) grain *= 2;
    return grain;
}

static struct head_share share_heads(const struct worker *w)
{
    const struct hparams *h = w->f->h;
    size_t units = (size_t)h->n_head + 2 * h->n_kv, grain = head_grain(h->d_head), at[2][2];
    for (uint32_t i = 0; i < 2; i++) {
        size_t unit = units * (w->thread + i) / w->n;
        size_t q = unit < h->n_head ? unit : h->n_head, kv = (unit - q) / 2;
        at[i][0] = q == h->n_head ? q : q / grain * grain;
        at[i][1] = kv == h->n_kv ? kv : kv / grain * grain;
    }
    return (struct head_share){ at[0][0], at[1][0], at[0][1], at[1][1] };
}

/* Bias and norm of heads [h0, h1) of token t; x (n, n_heads, d_head). */
static void finish_heads(const struct forward *f, float *x, const float *bias, const float *gains,
                         size_t h0, size_t h1)
{
    size_t d = f->h->d_head;
    for (size_t i = h0 * d; bias && i < h1 * d; i++) x[i] += bias[i];
    for (size_t i = h0; gains && i < h1; i++)
        f->kern->rmsnorm(x + i * d, gains + i * d, f->h->norm_eps, d, x + i * d);
}

/* Rotation of the worker's heads of one token; a closed layer costs nothing here but the loop.
 * Returns the pairs rotated, summed over KV heads. */
static uint32_t rotate_token(const struct forward *f, uint32_t layer, size_t t,
                             const struct head_share *own)
{
    const struct position *p = f->position;
    struct position_view view = { f->batch->runs[f->token_run[t]].mode, f->gates, f->identity };
    const float *table = f->cs[p->angle_set[layer]], *cs;
    float room[1024];
    uint32_t d = p->d_head, group = p->n_head / p->n_kv, n_rotated = 0;
    if (table) table += t * p->n_pair * 2;
    else if (!view.identity) return 0; /* no pair of this angle set is open: I2 */
    for (uint32_t kv = 0; kv < p->n_kv; kv++) {
        size_t q0 = (size_t)kv * group, q1 = q0 + group;
        bool has_k = own->kv0 <= kv && kv < own->kv1;
        if (!has_k && (q1 <= own->q0 || own->q1 <= q0)) continue;
        uint32_t n = position_head_cs(p, view, layer, kv, table, room, &cs);
        for (size_t i = q0 > own->q0 ? q0 : own->q0; n && i < q1 && i < own->q1; i++)
            f->kern->rotate(f->q + (t * p->n_head + i) * d, cs, n);
        if (n && has_k) f->kern->rotate(f->k + (t * p->n_kv + kv) * d, cs, n), n_rotated += n;
    }
    return n_rotated;
}

/* ---- keys and values ------------------------------------------------------------------------- */

size_t forward_tile_bytes(const struct forward *f)
{
    return 2 * (size_t)KERN_TILE * f->h->d_head * (f->form == KV_F32 ? 4 : 2);
}

/* Tiles of a run: the one that is open before it or, if none is, the one that stays open holds the
 * sequence's open page; the others are staged. */
struct run_tiles {
    uint32_t first, end; /* touched */
    bool was_open, stays_open;
};

static struct run_tiles tiles_of(const struct forward_run *run)
{
    uint32_t end = run->first + run->n;
    return (struct run_tiles){ run->first / KERN_TILE, (end + KERN_TILE - 1) / KERN_TILE,
                               run->first % KERN_TILE != 0, end % KERN_TILE != 0 };
}

static uint32_t staged_tiles(const struct forward_run *run)
{
    struct run_tiles t = tiles_of(run);
    return t.end - t.first - (t.was_open || t.stays_open);
}

uint8_t *forward_tile(const struct forward *f, const struct forward_run *run, uint32_t layer,
                      uint32_t kv, uint32_t tile)
{
    size_t head = (size_t)layer * f->h->n_kv + kv;
    struct run_tiles t = tiles_of(run);
    uint32_t open = t.was_open ? t.first : t.end - 1;
    /* the table's pages are owned by this sequence (K1): writing through the const view is legal */
    if (f->form != KV_Q8) return (void *)(uintptr_t)run->kv->k[head * run->kv->n_tiles + tile];
    if (tile == open && (t.was_open || t.stays_open)) return (void *)(uintptr_t)run->kv->open[head];
    uint32_t at = run->staged + tile - t.first - t.was_open;
    return f->staged + ((size_t)at * f->h->n_kv + kv) * forward_tile_bytes(f);
}

static void append_token(const struct forward *f, uint32_t layer, size_t t, size_t kv0, size_t kv1)
{
    const struct forward_run *run = &f->batch->runs[f->token_run[t]];
    uint32_t at = f->token_at[t], d = f->h->d_head;
    kern_kv_append_fn append =
        f->form == KV_F32 ? f->kern->kv_append_f32 : f->kern->kv_append_bf16;
    for (size_t i = kv0; i < kv1; i++) {
        uint8_t *k = forward_tile(f, run, layer, (uint32_t)i, at / KERN_TILE);
        size_t head = (t * f->h->n_kv + i) * d;
        append(k, k + forward_tile_bytes(f) / 2, at % KERN_TILE, f->k + head, f->v + head, d);
    }
}

/* Tiles that have become full go into 8-bit pages, for all to read but the queries inside them. */
static void close_tiles(const struct forward *f, uint32_t layer, size_t kv0, size_t kv1)
{
    size_t half = forward_tile_bytes(f) / 2;
    for (size_t i = 0; f->form == KV_Q8 && i < f->batch->n_runs; i++) {
        const struct forward_run *run = &f->batch->runs[i];
        for (uint32_t tile = run->first / KERN_TILE; tile < (run->first + run->n) / KERN_TILE;
             tile++)
            for (size_t kv = kv0; kv < kv1; kv++) {
                size_t at = ((size_t)layer * f->h->n_kv + kv) * run->kv->n_tiles + tile;
                const uint8_t *k = forward_tile(f, run, layer, (uint32_t)kv, tile);
                f->kern->kv_close(k, k + half, (void *)(uintptr_t)run->kv->k[at],
                                  (void *)(uintptr_t)run->kv->v[at], f->h->d_head);
            }
    }
}

/* After attention the open page, whose tile is full, takes the tile that is open now. */
static void keep_open_tiles(const struct forward *f, uint32_t layer, size_t kv0, size_t kv1)
{
    for (size_t i = 0; f->form == KV_Q8 && i < f->batch->n_runs; i++) {
        const struct forward_run *run = &f->batch->runs[i];
        struct run_tiles t = tiles_of(run);
        if (!t.was_open || !t.stays_open || t.end - t.first == 1) continue;
        for (size_t kv = kv0; kv < kv1; kv++)
            memcpy(forward_tile(f, run, layer, (uint32_t)kv, t.first),
                   forward_tile(f, run, layer, (uint32_t)kv, t.end - 1), forward_tile_bytes(f));
    }
}

/* q, k and v of heads of all tokens: product, bias, norm, rotation, append. */
static void project(struct worker *w, uint32_t l, const struct layer_weights *lw,
                    struct head_share own)
{
    struct forward *f = w->f;
    size_t d = f->h->d_head, nq = f->h->n_head * d, nkv = f->h->n_kv * d;
    const struct kern_act *x = &w->rows->act_model;
    multiply_rows(w, &lw->mat[W_Q], own.q0 * d, own.q1 * d, x, f->n_tok, f->q);
    multiply_rows(w, &lw->mat[W_K], own.kv0 * d, own.kv1 * d, x, f->n_tok, f->k);
    multiply_rows(w, &lw->mat[W_V], own.kv0 * d, own.kv1 * d, x, f->n_tok, f->v);
    for (size_t t = 0; t < f->n_tok; t++) {
        finish_heads(f, f->q + t * nq, lw->q_bias, lw->q_norm, own.q0, own.q1);
        finish_heads(f, f->k + t * nkv, lw->k_bias, lw->k_norm, own.kv0, own.kv1);
        finish_heads(f, f->v + t * nkv, lw->v_bias, NULL, own.kv0, own.kv1);
    }
    if (f->hooks.at_qkv) {
        wait_all(w);
        if (w->thread == 0) f->hooks.at_qkv(f->hooks.arg, l, f->n_tok, f->q, f->k, f->v);
        wait_all(w);
    }
    for (size_t t = 0; t < f->n_tok; t++) {
        w->n_rotated += rotate_token(f, l, t, &own);
        append_token(f, l, t, own.kv0, own.kv1);
    }
    if (own.kv0 < own.kv1) close_tiles(f, l, own.kv0, own.kv1);
}

/* ---- rows nobody asks for -------------------------------------------------------------------- */

static void copy_floats(float *rows, size_t to, size_t from, size_t n)
{
    if (rows && to != from) memcpy(rows + to * n, rows + from * n, n * sizeof *rows);
}

/* The batch goes on with its wanted tokens alone; what they have so far moves to the front. */
static void narrow(struct forward *f)
{
    struct forward_rows *r = &f->rows[0];
    size_t d = f->h->d_model, n_cs = (size_t)f->position->n_pair * 2;
    uint32_t n = 0;
    for (uint32_t t = 0; t < f->n_tok; t++) {
        const struct forward_run *run = &f->batch->runs[f->token_run[t]];
        if (f->token_at[t] + run->n_wanted < run->first + run->n) continue;
        copy_floats(r->x, n, t, d);
        if (f->reads.f32) copy_floats(r->normed, n, t, d);
        if (f->reads.q8 && n != t) kern_act_copy_row(&r->act_model, n, &r->act_model, t);
        for (uint32_t set = 0; set < 2; set++) copy_floats(f->cs[set], n, t, n_cs);
        copy_floats(f->phi, n, t, POSGATE_STEPS);
        f->token_run[n] = f->token_run[t];
        f->token_at[n++] = f->token_at[t];
    }
    f->n_tok = n;
}

static uint32_t count_wanted(const struct forward_batch *b)
{
    uint32_t n = 0;
    for (size_t i = 0; i < b->n_runs; i++) n += b->runs[i].n_wanted;
    return n;
}

/* In the last layer keys and values are needed of all tokens, queries and all that follows of the
 * wanted ones only. Returns whether there are any. */
static bool project_wanted(struct worker *w, uint32_t l, const struct layer_weights *lw,
                           struct head_share own)
{
    struct forward *f = w->f;
    struct head_share no_q = { 0, 0, own.kv0, own.kv1 }, no_kv = { own.q0, own.q1, 0, 0 };
    project(w, l, lw, no_q);
    wait_all(w);
    if (w->thread == 0) {
        narrow(f);
        f->lone = f->n_tok <= FORWARD_LONE;
        attend_begin(f);
    }
    wait_all(w);
    uint64_t n_rotated = w->n_rotated;
    *w = worker_of(f, w->thread, w->n, f->n_tok);
    w->n_rotated = n_rotated;
    const struct forward_rows *from = &f->rows[0];
    size_t d = f->h->d_model;
    for (size_t t = 0; w->rows != from && t < f->n_tok; t++) {
        memcpy(w->rows->x + t * d, from->x + t * d, d * sizeof(float));
        if (f->reads.f32) memcpy(w->rows->normed + t * d, from->normed + t * d, d * sizeof(float));
        if (f->reads.q8) kern_act_copy_row(&w->rows->act_model, t, &from->act_model, t);
    }
    if (f->n_tok) project(w, l, lw, no_kv);
    return f->n_tok != 0;
}

/* ---- layers ---------------------------------------------------------------------------------- */

/* Attention's output becomes the next product's input, where attention has not done it. */
static void gather_heads(const struct worker *w)
{
    struct forward *f = w->f;
    attend_merge(f, w->thread, f->lone ? 1 : w->n, w->rows);
    if (attend_is_split(f)) wait_tokens(w);
    if (!f->reads.q8 || scratch_quantises_heads(f)) return;
    kern_act_quantize_rows(f->kern->act_quantize, &w->rows->act_heads, w->t0, w->t1);
    wait_tokens(w);
}

/* Gate and up, panel by panel while their products are in this core's cache; the result is the
 * down product's input. */
static void widen(const struct worker *w, const struct layer_weights *lw)
{
    struct forward *f = w->f;
    kern_gated_act_fn act = f->h->arch->act == ARCH_GELU ? f->kern->gelu_mul : f->kern->silu_mul;
    float *gate = f->panel[w->thread], *up = f->panel[w->n + w->thread];
    size_t begin, end, step, n_tok = f->n_tok, d_ff = f->h->d_ff;
    share_rows(w, d_ff, &begin, &end);
    step = f->lone ? end - begin : FORWARD_PANEL;
    for (size_t r = begin, n; r < end; r += n) {
        n = end - r < step ? end - r : step;
        struct kern_mat g = slice(&lw->mat[W_GATE], r, r + n), u = slice(&lw->mat[W_UP], r, r + n);
        multiply_rows(w, &g, 0, n, &w->rows->act_model, n_tok, gate);
        multiply_rows(w, &u, 0, n, &w->rows->act_model, n_tok, up);
        float *out = f->reads.f32 ? f->ff + r : gate;
        size_t out_step = f->reads.f32 ? d_ff : n;
        for (size_t t = 0; t < n_tok; t++) act(gate + t * n, up + t * n, out + t * out_step, n);
        if (f->reads.q8)
            f->kern->act_quantize(&f->act_ff, (struct kern_part){ 0, n_tok, r, r + n }, out,
                                  out_step);
    }
}

static void layer(struct worker *w, uint32_t l, bool narrows, const struct kern_mat *next)
{
    struct forward *f = w->f;
    const struct layer_weights *lw = &f->weights->layers[l];
    struct head_share own = share_heads(w);
    norm_tokens(w, w->rows->x, lw->attn_norm);
    wait_tokens(w);
    if (!narrows) project(w, l, lw, own);
    else if (!project_wanted(w, l, lw, own)) {
        keep_open_tiles(f, l, own.kv0, own.kv1);
        return;
    }
    wait_for(w, &lw->mat[W_O]);
    attend_work(f, l, w->thread, w->rows);
    wait_all(w);
    keep_open_tiles(f, l, own.kv0, own.kv1);
    gather_heads(w);
    multiply(w, &lw->mat[W_O], &w->rows->act_heads, f->n_tok, f->sum);
    wait_for(w, &lw->mat[W_GATE]);
    add_residual(w, lw->o_bias, lw->post_attn_norm);
    norm_tokens(w, w->rows->x, lw->ffn_norm);
    wait_tokens(w);
    widen(w, lw);
    wait_for(w, &lw->mat[W_DOWN]);
    multiply(w, &lw->mat[W_DOWN], &f->act_ff, f->n_tok, f->sum);
    wait_for(w, next);
    add_residual(w, NULL, lw->post_ffn_norm);
}

/* This worker's share of a run's tokens whose detectors are not there yet. */
static void detect_tokens(const struct worker *w, const struct forward_run *run)
{
    const struct forward *f = w->f;
    const struct structhead *s = f->structure;
    size_t begin, end, d = f->h->d_model, step = forward_detected_step(f->n_ctx);
    float *x = f->rows[w->thread].normed; /* not in use yet */
    double z[STRUCT_LOGITS];
    pool_share(run->first + run->n - run->n_detected, KERN_TILE, w->thread, w->n, &begin, &end);
    for (size_t t = run->n_detected + begin; t < run->n_detected + end; t++) {
        int32_t id = t < run->first ? run->past[t] : run->ids[t - run->first];
        weights_embed(f->weights, (uint32_t)id, x);
        for (size_t i = 0; f->h->embed_scale != 1.0f && i < d; i++) x[i] *= f->h->embed_scale;
        (void)structhead_logits(s->weight, s->gate, s->eps, x, d, z);
        structhead_detect(z, run->detected + t, step);
    }
}

/* Position of a token as gates see it: counted from the last anchor before it. */
static uint64_t gate_position(const struct forward_run *run, uint32_t index)
{
    size_t from = 0, to = run->n_anchors;
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if (run->anchors[middle].token <= index) from = middle + 1;
        else to = middle;
    }
    if (from == 0) return run->offset + index;
    return run->anchors[from - 1].position + (index - run->anchors[from - 1].token);
}

/* Embeddings; angles, gate features and detectors of this worker's share of tokens. */
static void begin_tokens(const struct worker *w, const float *x_in)
{
    const struct forward *f = w->f;
    const struct position *p = f->position;
    size_t d = f->h->d_model, t0, t1;
    for (size_t t = w->t0; t < w->t1; t++) {
        const struct forward_run *run = &f->batch->runs[f->token_run[t]];
        float *x = w->rows->x + t * d;
        if (x_in) memcpy(x, x_in + t * d, d * sizeof *x);
        else weights_embed(f->weights, (uint32_t)run->ids[f->token_at[t] - run->first], x);
        for (size_t i = 0; !x_in && f->h->embed_scale != 1.0f && i < d; i++)
            x[i] *= f->h->embed_scale;
    }
    pool_share(f->n_tok, 1, w->thread, w->n, &t0, &t1);
    for (size_t t = t0; t < t1; t++) {
        const struct forward_run *run = &f->batch->runs[f->token_run[t]];
        uint64_t at = run->offset + f->token_at[t];
        for (uint32_t set = 0; set < 2; set++)
            if (f->cs[set])
                position_angles(p, set, (double)at, f->cs[set] + t * p->n_pair * 2);
        if (f->phi)
            posgate_features(gate_position(run, f->token_at[t]), f->phi + t * POSGATE_STEPS);
    }
    for (size_t i = 0; f->structure->weight && i < f->batch->n_runs; i++)
        detect_tokens(w, &f->batch->runs[i]);
}

struct layers_job {
    struct forward *f;
    bool narrows; /* the last layer */
    _Atomic uint64_t n_rotated;
};

static void layers_worker(void *arg, uint32_t thread, uint32_t n_threads)
{
    struct layers_job *job = arg;
    struct forward *f = job->f;
    uint32_t end = f->batch->layer_end;
    struct worker w = worker_of(f, thread, n_threads, f->n_tok);
    begin_tokens(&w, f->batch->x_in);
    wait_all(&w);
    for (uint32_t l = f->batch->layer_begin; l < end; l++) {
        if (f->hooks.at_layer) {
            wait_all(&w);
            if (thread == 0) f->hooks.at_layer(f->hooks.arg, l, f->n_tok, f->rows[0].x);
            wait_all(&w);
        }
        bool last = l + 1 == end;
        layer(&w, l, last && job->narrows, last ? NULL : &f->weights->layers[l + 1].mat[W_Q]);
    }
    atomic_fetch_add(&job->n_rotated, w.n_rotated);
}

size_t forward_layers(struct forward *f, const struct forward_batch *batch)
{
    uint32_t staged = 0;
    f->batch = batch, f->n_tok = 0;
    for (size_t i = 0; i < batch->n_runs; i++) {
        batch->runs[i].staged = staged;
        staged += staged_tiles(&batch->runs[i]);
        for (uint32_t t = 0; t < batch->runs[i].n; t++) {
            f->token_run[f->n_tok] = (uint32_t)i;
            f->token_at[f->n_tok++] = batch->runs[i].first + t;
        }
    }
    f->lone = f->n_tok <= FORWARD_LONE;
    attend_begin(f);
    bool fewer = !batch->all && count_wanted(batch) < f->n_tok;
    bool hooked = f->hooks.at_layer || f->hooks.at_qkv; /* hooks see all rows */
    struct layers_job job = { .f = f, .narrows = fewer && !hooked };
    pool_run(f->pool, layers_worker, &job);
    if (fewer && hooked) narrow(f);
    f->n_rotated = atomic_load(&job.n_rotated);
    return f->n_tok;
}

/* ---- logits ---------------------------------------------------------------------------------- */

struct logits_job {
    struct forward *f;
    const float *x;
    size_t n;
    float *logits;
};

/* The output matrix's input as two rows a token: int8, and int8 of what that left over. */
static void split_rows(const struct worker *w, const float *x)
{
    const struct forward *f = w->f;
    struct kern_act *a = &w->rows->act_pairs;
    size_t d = f->h->d_model, groups = a->stride / 32;
    for (size_t t = w->t0; t < w->t1; t++) {
        float *whole = w->rows->pairs + 2 * t * d, *rest = whole + d;
        const int8_t *q = a->q + 2 * t * a->stride;
        const float *scale = a->scale + 2 * t * groups;
        f->kern->rmsnorm(x + t * d, f->weights->output_norm, f->h->norm_eps, d, whole);
        kern_act_quantize_rows(f->kern->act_quantize, a, 2 * t, 2 * t + 1);
        for (size_t i = 0; i < d; i++) rest[i] = whole[i] - scale[i / 32] * (float)q[i];
        kern_act_quantize_rows(f->kern->act_quantize, a, 2 * t + 1, 2 * t + 2);
    }
}

/* This worker's part of n rows of logits: both rows of a pair pass over the same weights in one
 * call, a panel at a time. */
static void multiply_pairs(const struct worker *w, size_t n, float *logits)
{
    const struct kern_mat *m = &w->f->weights->output;
    float *tile = w->f->tile[w->thread];
    size_t begin, end;
    share_rows(w, m->n_out, &begin, &end);
    for (size_t r = begin, width; r < end; r += width) {
        width = end - r < FORWARD_PANEL ? end - r : FORWARD_PANEL;
        struct kern_mat part = slice(m, r, r + width);
        multiply_rows(w, &part, 0, width, &w->rows->act_pairs, 2 * n, tile);
        for (size_t t = 0; t < n; t++)
            for (size_t i = 0; i < width; i++)
                logits[t * m->n_out + r + i] =
                    tile[2 * t * width + i] + tile[(2 * t + 1) * width + i];
    }
}

static void logits_worker(void *arg, uint32_t thread, uint32_t n_threads)
{
    struct logits_job *job = arg;
    struct forward *f = job->f;
    struct worker w = worker_of(f, thread, n_threads, job->n);
    const struct kern_mat *m = &f->weights->output;
    bool pairs = w.rows->pairs && kern_mat_is_quantised(m);
    if (pairs) split_rows(&w, job->x);
    else norm_tokens(&w, job->x, f->weights->output_norm);
    wait_tokens(&w);
    if (pairs) multiply_pairs(&w, job->n, job->logits);
    else multiply(&w, m, &w.rows->act_model, job->n, job->logits);
    if (f->h->logit_scale == 1.0f) return;
    wait_all(&w);
    size_t begin, end;
    pool_share(job->n * m->n_out, 1, thread, n_threads, &begin, &end);
    for (size_t i = begin; i < end; i++) job->logits[i] *= f->h->logit_scale;
}

void forward_norm(const struct forward *f, float *x)
{
    f->kern->rmsnorm(x, f->weights->output_norm, f->h->norm_eps, f->h->d_model, x);
}

void forward_logits(struct forward *f, const float *x, size_t n, float *logits)
{
    struct logits_job job = { f, x, n, logits };
    f->lone = n <= FORWARD_LONE;
    pool_run(f->pool, logits_worker, &job);
}
