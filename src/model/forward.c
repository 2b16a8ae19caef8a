/* forward.c: the layer program: norm + qkv, rotate + append + attend, out + residual, norm + gate +
 * up, down + residual.
 * Owns: scratch of one micro-batch. Does not know: sequences' lengths, requests, files.
 * Threads: every worker runs the same program; rows or tokens are owned statically, phases end with
 * a barrier.
 * F1 a row's bits depend on its own tokens only (I1): no reduction crosses rows, none depends on a
 *    split.
 * F2 no allocation after forward_open (I5).
 * F3 logits of a quantised output matrix take activations in two int8 parts (15 bits) where that is
 *    cheap: a quarter of the default path's KL came from there, and reading the weights, which is
 *    what decode waits for, is not doubled. */
#include "model/forward.h"

#include "model/attend.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

/* ---- scratch --------------------------------------------------------------------------------- */

static zp_status take(struct forward *f, void *out, size_t count, size_t size, enum mem_tag tag,
                      zp_err *err)
{
    void *p = mem_array(tag, count, size);
    ZP_FAIL_IF(!p, err, ZP_NO_MEMORY, "not enough memory for %zu x %zu bytes of engine scratch",
               count, size);
    memset(p, 0, count * size);
    f->blocks[f->n_blocks++] = p;
    *(tag == MEM_POSITION ? &f->position_bytes : &f->scratch_bytes) += count * size;
    memcpy(out, &p, sizeof p);
    return ZP_OK;
}

static zp_status take_act(struct forward *f, struct kern_act *a, const float *f32, size_t n_in,
                          zp_err *err)
{
    void *memory;
    if (!f->exact) {
        ZP_TRY(take(f, &memory, 1, kern_act_bytes(f->micro_batch, n_in), MEM_SCRATCH, err));
        kern_act_place(a, memory, f->micro_batch, n_in);
    }
    a->n_in = a->f32_stride = n_in;
    a->f32 = f32;
    return ZP_OK;
}

/* Whether the output matrix takes pairs (F3): where it is at most a third of all multiplications.
 * In a large batch pairs cost twice the time; small models with huge vocabularies keep to int8. */
static bool wants_pairs(const struct hparams *h, bool exact)
{
    uint64_t heads = 2ull * h->d_head * (h->n_head + h->n_kv), ff = 3ull * h->d_ff;
    uint64_t layers = h->n_layer * (heads + ff) * h->d_model;
    return !exact && (uint64_t)h->n_vocab * h->d_model <= layers / 2;
}

/* Room for logits with 15-bit activations (F3). */
static zp_status take_pairs(struct forward *f, zp_err *err)
{
    size_t rows = 2 * (size_t)f->micro_batch, d = f->h->d_model;
    void *memory;
    if (!wants_pairs(f->h, f->exact)) return ZP_OK;
    ZP_TRY(take(f, &f->pairs, rows * d, sizeof(float), MEM_SCRATCH, err));
    ZP_TRY(take(f, &f->pair_tiles, pool_threads(f->pool) * rows, PAIR_TILE * sizeof(float),
                MEM_SCRATCH, err));
    ZP_TRY(take(f, &memory, 1, kern_act_bytes(rows, d), MEM_SCRATCH, err));
    kern_act_place(&f->act_pairs, memory, rows, d);
    f->act_pairs.f32 = f->pairs;
    f->act_pairs.f32_stride = d;
    return ZP_OK;
}

static zp_status take_bias_tables(struct forward *f, zp_err *err)
{
    const struct position *p = f->position;
    enum { PAD = KERN_TILE }; /* whole tiles are read at both ends */
    for (uint32_t l = 0; l < p->n_layer; l++) {
        if (!position_layer_has_bias(p, l)) continue;
        if (!f->bias)
            ZP_TRY(take(f, &f->bias, (size_t)p->n_layer * p->n_head, sizeof *f->bias, MEM_POSITION,
                        err));
        for (uint32_t i = 0; i < p->n_head; i++) {
            size_t n = (size_t)f->n_ctx + 2 * PAD;
            float *table = mem_zalloc(MEM_POSITION, n * sizeof *table);
            ZP_FAIL_IF(!table, err, ZP_NO_MEMORY,
                       "not enough memory for the bias table of layer %u", l);
            f->position_bytes += n * sizeof *table;
            position_bias_fill(p, l, i, f->n_ctx, table + PAD);
            f->bias[l * p->n_head + i] = table;
        }
    }
    return ZP_OK;
}

static zp_status fill(struct forward *f, zp_err *err)
{
    const struct hparams *h = f->h;
    size_t m = f->micro_batch, nq = (size_t)h->n_head * h->d_head,
           nkv = (size_t)h->n_kv * h->d_head;
    size_t wide = nq > h->d_model ? nq : h->d_model;
    struct {
        float **out;
        size_t width;
    } rows[] = { { &f->x, h->d_model }, { &f->normed, h->d_model },
                 { &f->q, nq },         { &f->k, nkv },
                 { &f->v, nkv },        { &f->heads, nq },
                 { &f->gate, h->d_ff }, { &f->up, h->d_ff },
                 { &f->sum, wide } };
    for (size_t i = 0; i < ZP_COUNT(rows); i++)
        ZP_TRY(take(f, rows[i].out, m * rows[i].width, sizeof(float), MEM_SCRATCH, err));
    for (uint32_t set = 0; set < 2; set++)
        if (position_uses_set(f->position, set))
            ZP_TRY(take(f, &f->cs[set], m * f->position->n_pair * 2, sizeof(float), MEM_POSITION,
                        err));
    ZP_TRY(take(f, &f->token_run, m, sizeof(uint32_t), MEM_SCRATCH, err));
    ZP_TRY(take(f, &f->token_at, m, sizeof(uint32_t), MEM_SCRATCH, err));
    ZP_TRY(take_act(f, &f->act_model, f->normed, h->d_model, err));
    ZP_TRY(take_act(f, &f->act_heads, f->heads, nq, err));
    ZP_TRY(take_act(f, &f->act_ff, f->gate, h->d_ff, err));
    ZP_TRY(take_pairs(f, err));
    ZP_TRY(take_bias_tables(f, err));
    return attend_open(f, err);
}

zp_status forward_open(struct forward *f, zp_err *err)
{
    zp_status status = fill(f, err);
    if (status != ZP_OK) forward_free(f);
    return status;
}

void forward_free(struct forward *f)
{
    attend_free(f);
    for (size_t i = 0; f->bias && i < (size_t)f->h->n_layer * f->h->n_head; i++)
        mem_free(f->bias[i]);
    for (uint32_t i = 0; i < f->n_blocks; i++) mem_free(f->blocks[i]);
    f->n_blocks = 0;
    f->bias = NULL;
}

void forward_plan(const struct hparams *h, const struct position *p, uint32_t micro_batch,
                  uint32_t n_ctx, bool exact, uint32_t n_threads, uint64_t *scratch,
                  uint64_t *position)
{
    uint64_t m = micro_batch, nq = (uint64_t)h->n_head * h->d_head,
             nkv = (uint64_t)h->n_kv * h->d_head;
    uint64_t wide = nq > h->d_model ? nq : h->d_model;
    *scratch = m * (2ull * h->d_model + 2 * nq + 2 * nkv + 2ull * h->d_ff + wide) * 4 + m * 8;
    if (!exact)
        *scratch += kern_act_bytes(micro_batch, h->d_model) + kern_act_bytes(micro_batch, nq) +
                    kern_act_bytes(micro_batch, h->d_ff);
    if (wants_pairs(h, exact))
        *scratch += kern_act_bytes(2 * (size_t)micro_batch, h->d_model) +
                    2 * m * (h->d_model + (uint64_t)n_threads * PAIR_TILE) * sizeof(float);
    *scratch += attend_plan(h, micro_batch, n_ctx, n_threads);
    *position = 0;
    for (uint32_t set = 0; set < 2; set++)
        if (position_uses_set(p, set)) *position += m * p->n_pair * 8;
    bool any = false;
    for (uint32_t l = 0; l < p->n_layer; l++)
        if (position_layer_has_bias(p, l))
            any = true, *position += ((uint64_t)n_ctx + 2 * KERN_TILE) * 4 * p->n_head;
    if (any) *position += (uint64_t)p->n_layer * p->n_head * sizeof(float *);
}

/* ---- phases ---------------------------------------------------------------------------------- */

struct worker {
    struct forward *f;
    uint32_t thread, n;
    uint64_t n_rotated; /* by this worker */
};

static void wait_all(const struct worker *w)
{
    pool_barrier(w->f->pool, w->thread);
}

static kern_gemm_fn gemm_of(const struct kern_table *t, const struct kern_mat *m)
{
    switch (m->form) {
    case KERN_F32: return t->gemm_f32;
    case KERN_F16: return t->gemm_f16;
    case KERN_BF16: return t->gemm_bf16;
    case KERN_Q4: return t->gemm_q4;
    default: return t->gemm_q8;
    }
}

/* This worker's rows of y = W x for n_tok tokens. */
static void multiply(const struct worker *w, const struct kern_mat *m, const struct kern_act *x,
                     size_t n_tok, float *y)
{
    size_t begin, end;
    pool_share(m->n_out, n_tok > 1 ? 64 : 16, w->thread, w->n, &begin, &end);
    if (begin < end) gemm_of(w->f->kern, m)(m, begin, end, x, n_tok, y, m->n_out);
}

/* Makes rows [t0, t1) of a->f32 the input of the next multiplication. */
static void set_input(const struct worker *w, struct kern_act *a, size_t t0, size_t t1)
{
    if (!w->f->exact && t0 < t1) w->f->kern->act_quantize(a, t0, t1);
}

static void share_tokens(const struct worker *w, size_t *t0, size_t *t1)
{
    pool_share(w->f->n_tok, 1, w->thread, w->n, t0, t1);
}

static void norm_rows(const struct worker *w, const float *gain, size_t t0, size_t t1)
{
    struct forward *f = w->f;
    size_t d = f->h->d_model;
    for (size_t t = t0; t < t1; t++)
        f->kern->rmsnorm(f->x + t * d, gain, f->h->norm_eps, d, f->normed + t * d);
}

static void add_bias(float *x, const float *bias, size_t n)
{
    for (size_t i = 0; bias && i < n; i++) x[i] += bias[i];
}

static void norm_heads(const struct forward *f, float *x, const float *gains, uint32_t n_heads)
{
    size_t d = f->h->d_head;
    for (uint32_t i = 0; gains && i < n_heads; i++)
        f->kern->rmsnorm(x + i * d, gains + i * d, f->h->norm_eps, d, x + i * d);
}

/* Biases and head norms of q, k, v. */
static void finish_qkv(const struct worker *w, const struct layer_weights *lw, size_t t0, size_t t1)
{
    struct forward *f = w->f;
    size_t nq = (size_t)f->h->n_head * f->h->d_head, nkv = (size_t)f->h->n_kv * f->h->d_head;
    for (size_t t = t0; t < t1; t++) {
        add_bias(f->q + t * nq, lw->q_bias, nq);
        add_bias(f->k + t * nkv, lw->k_bias, nkv);
        add_bias(f->v + t * nkv, lw->v_bias, nkv);
        norm_heads(f, f->q + t * nq, lw->q_norm, f->h->n_head);
        norm_heads(f, f->k + t * nkv, lw->k_norm, f->h->n_kv);
    }
}

/* Rotation of one token's q and k, head by head; a closed layer costs nothing here but the loop.
 * Returns the pairs rotated, summed over KV heads. */
static uint32_t rotate_token(struct forward *f, uint32_t layer, size_t t, struct position_view view)
{
    const struct position *p = f->position;
    const float *table = f->cs[p->angle_set[layer]], *cs;
    float room[1024];
    uint32_t d = p->d_head, group = p->n_head / p->n_kv, n_rotated = 0;
    if (table) table += t * p->n_pair * 2;
    else if (!view.identity) return 0; /* no pair of this angle set is open: I2 */
    for (uint32_t kv = 0; kv < p->n_kv; kv++) {
        uint32_t n = position_head_cs(p, view, layer, kv, table, room, &cs);
        if (n == 0) continue;
        f->kern->rotate(f->k + (t * p->n_kv + kv) * d, cs, n);
        for (uint32_t i = 0; i < group; i++)
            f->kern->rotate(f->q + (t * p->n_head + kv * group + i) * d, cs, n);
        n_rotated += n;
    }
    return n_rotated;
}

static void append_token(struct forward *f, uint32_t layer, size_t t)
{
    const struct position *p = f->position;
    const struct kv_table *kv = f->runs[f->token_run[t]].kv;
    uint32_t at = f->token_at[t], tile = at / KERN_TILE;
    kern_kv_append_fn append = f->element == 4 ? f->kern->kv_append_f32 : f->kern->kv_append_bf16;
    for (uint32_t i = 0; i < p->n_kv; i++) {
        size_t page = ((size_t)layer * p->n_kv + i) * kv->n_tiles + tile,
               head = (t * p->n_kv + i) * p->d_head;
        /* the table's pages are owned by this sequence (K1), so writing through the const view is
         * legal */
        append((void *)(uintptr_t)kv->k[page], (void *)(uintptr_t)kv->v[page], at % KERN_TILE,
               f->k + head, f->v + head, p->d_head);
    }
}

static void rotate_and_append(struct worker *w, uint32_t layer, size_t t0, size_t t1)
{
    struct forward *f = w->f;
    for (size_t t = t0; t < t1; t++) {
        struct position_view view = { f->runs[f->token_run[t]].mode, f->gates, f->identity };
        w->n_rotated += rotate_token(f, layer, t, view);
        append_token(f, layer, t);
    }
}

/* x += scale * norm(sum), the norm only where the architecture has one. */
static void add_residual(const struct worker *w, const float *post_norm, size_t t0, size_t t1)
{
    struct forward *f = w->f;
    size_t d = f->h->d_model;
    for (size_t t = t0; t < t1; t++) {
        float *sum = f->sum + t * d;
        if (post_norm) f->kern->rmsnorm(sum, post_norm, f->h->norm_eps, d, sum);
        f->kern->add_scaled(f->x + t * d, sum, f->h->residual_scale, d);
    }
}

static void attention(struct worker *w, uint32_t l, const struct layer_weights *lw)
{
    struct forward *f = w->f;
    size_t t0, t1;
    share_tokens(w, &t0, &t1);
    norm_rows(w, lw->attn_norm, t0, t1);
    set_input(w, &f->act_model, t0, t1);
    wait_all(w);
    multiply(w, &lw->mat[W_Q], &f->act_model, f->n_tok, f->q);
    multiply(w, &lw->mat[W_K], &f->act_model, f->n_tok, f->k);
    multiply(w, &lw->mat[W_V], &f->act_model, f->n_tok, f->v);
    wait_all(w);
    finish_qkv(w, lw, t0, t1);
    if (f->hooks.at_qkv) {
        wait_all(w);
        if (w->thread == 0) f->hooks.at_qkv(f->hooks.arg, l, f->n_tok, f->q, f->k, f->v);
        wait_all(w);
    }
    rotate_and_append(w, l, t0, t1);
    if (w->thread == 0) attend_prepare(f);
    wait_all(w);
    attend_work(f, l, w->thread);
    wait_all(w);
    attend_merge(f, l, w->thread);
    wait_all(w);
    set_input(w, &f->act_heads, t0, t1);
    wait_all(w);
    multiply(w, &lw->mat[W_O], &f->act_heads, f->n_tok, f->sum);
    wait_all(w);
    for (size_t t = t0; t < t1; t++)
        add_bias(f->sum + t * f->h->d_model, lw->o_bias, f->h->d_model);
    add_residual(w, lw->post_attn_norm, t0, t1);
}

static void feed_forward(const struct worker *w, const struct layer_weights *lw)
{
    struct forward *f = w->f;
    size_t t0, t1, d = f->h->d_ff;
    kern_gated_act_fn act = f->h->arch->act == ARCH_GELU ? f->kern->gelu_mul : f->kern->silu_mul;
    share_tokens(w, &t0, &t1);
    norm_rows(w, lw->ffn_norm, t0, t1);
    set_input(w, &f->act_model, t0, t1);
    wait_all(w);
    multiply(w, &lw->mat[W_GATE], &f->act_model, f->n_tok, f->gate);
    multiply(w, &lw->mat[W_UP], &f->act_model, f->n_tok, f->up);
    wait_all(w);
    for (size_t t = t0; t < t1; t++) act(f->gate + t * d, f->up + t * d, f->gate + t * d, d);
    set_input(w, &f->act_ff, t0, t1);
    wait_all(w);
    multiply(w, &lw->mat[W_DOWN], &f->act_ff, f->n_tok, f->sum);
    wait_all(w);
    add_residual(w, lw->post_ffn_norm, t0, t1);
}

/* Embeddings and the tokens' angles. */
static void begin_tokens(const struct worker *w, const float *x_in)
{
    struct forward *f = w->f;
    const struct position *p = f->position;
    size_t t0, t1, d = f->h->d_model;
    share_tokens(w, &t0, &t1);
    for (size_t t = t0; t < t1; t++) {
        const struct forward_run *run = &f->runs[f->token_run[t]];
        uint32_t at = f->token_at[t];
        float *x = f->x + t * d;
        if (x_in) memcpy(x, x_in + t * d, d * sizeof *x);
        else weights_embed(f->weights, (uint32_t)run->ids[at - run->first], x);
        for (size_t i = 0; !x_in && f->h->embed_scale != 1.0f && i < d; i++)
            x[i] *= f->h->embed_scale;
        for (uint32_t set = 0; set < 2; set++)
            if (f->cs[set])
                position_angles(p, set, (double)(run->offset + at), f->cs[set] + t * p->n_pair * 2);
    }
}

struct layers_job {
    struct forward *f;
    const float *x_in;
    _Atomic uint64_t n_rotated;
};

static void layers_worker(void *arg, uint32_t thread, uint32_t n_threads)
{
    struct layers_job *job = arg;
    struct forward *f = job->f;
    struct worker w = { f, thread, n_threads, 0 };
    begin_tokens(&w, job->x_in);
    for (uint32_t l = f->layer_begin; l < f->layer_end; l++) {
        if (f->hooks.at_layer) {
            wait_all(&w);
            if (thread == 0) f->hooks.at_layer(f->hooks.arg, l, f->n_tok, f->x);
            wait_all(&w);
        }
        attention(&w, l, &f->weights->layers[l]);
        feed_forward(&w, &f->weights->layers[l]);
    }
    atomic_fetch_add(&job->n_rotated, w.n_rotated);
}

void forward_layers(struct forward *f, const struct forward_run *runs, size_t n_runs,
                    uint32_t layer_begin, uint32_t layer_end, const float *x_in)
{
    f->runs = runs, f->n_runs = n_runs, f->n_tok = 0;
    for (size_t i = 0; i < n_runs; i++)
        for (uint32_t t = 0; t < runs[i].n; t++) {
            f->token_run[f->n_tok] = (uint32_t)i;
            f->token_at[f->n_tok++] = runs[i].first + t;
        }
    f->layer_begin = layer_begin, f->layer_end = layer_end;
    struct layers_job job = { .f = f, .x_in = x_in };
    pool_run(f->pool, layers_worker, &job);
    f->n_rotated = atomic_load(&job.n_rotated);
}

/* ---- logits ---------------------------------------------------------------------------------- */

struct logits_job {
    struct forward *f;
    const float *x;
    size_t n;
    float *logits;
};

/* Row t of the output matrix's input as two rows: int8, and int8 of what that left over. */
static void split_row(struct forward *f, size_t t)
{
    struct kern_act *a = &f->act_pairs;
    size_t d = f->h->d_model, groups = a->stride / 32;
    const float *x = f->pairs + 2 * t * d, *scale = a->scale + 2 * t * groups;
    const int8_t *q = a->q + 2 * t * a->stride;
    float *rest = f->pairs + (2 * t + 1) * d;
    f->kern->act_quantize(a, 2 * t, 2 * t + 1);
    for (size_t i = 0; i < d; i++) rest[i] = x[i] - scale[i / 32] * (float)q[i];
    f->kern->act_quantize(a, 2 * t + 1, 2 * t + 2);
}

/* This worker's part of n rows of logits: both rows of a pair pass over the same weights in one
 * call, a panel at a time. */
static void multiply_pairs(const struct worker *w, size_t n, float *logits)
{
    const struct kern_mat *m = &w->f->weights->output;
    float *tile = w->f->pair_tiles + (size_t)w->thread * 2 * w->f->micro_batch * PAIR_TILE;
    size_t begin, end;
    pool_share(m->n_out, PAIR_TILE, w->thread, w->n, &begin, &end);
    for (size_t r = begin; r < end; r += PAIR_TILE) {
        struct kern_mat part = *m;
        part.data += r / PACK_ROWS * m->row_group_bytes;
        part.n_out = end - r < PAIR_TILE ? end - r : PAIR_TILE;
        gemm_of(w->f->kern, m)(&part, 0, part.n_out, &w->f->act_pairs, 2 * n, tile, PAIR_TILE);
        for (size_t t = 0; t < n; t++)
            for (size_t i = 0; i < part.n_out; i++)
                logits[t * m->n_out + r + i] =
                    tile[2 * t * PAIR_TILE + i] + tile[(2 * t + 1) * PAIR_TILE + i];
    }
}

static void logits_worker(void *arg, uint32_t thread, uint32_t n_threads)
{
    struct logits_job *job = arg;
    struct forward *f = job->f;
    struct worker w = { f, thread, n_threads, 0 };
    const struct kern_mat *m = &f->weights->output;
    bool pairs = f->pairs && (m->form == KERN_Q8 || m->form == KERN_Q4);
    size_t t0, t1, d = f->h->d_model;
    pool_share(job->n, 1, thread, n_threads, &t0, &t1);
    for (size_t t = t0; t < t1; t++) {
        float *row = pairs ? f->pairs + 2 * t * d : f->normed + t * d;
        f->kern->rmsnorm(job->x + t * d, f->weights->output_norm, f->h->norm_eps, d, row);
        if (pairs) split_row(f, t);
    }
    if (!pairs) set_input(&w, &f->act_model, t0, t1);
    wait_all(&w);
    if (pairs) multiply_pairs(&w, job->n, job->logits);
    else multiply(&w, m, &f->act_model, job->n, job->logits);
    if (f->h->logit_scale == 1.0f) return;
    wait_all(&w);
    for (size_t i = t0 * m->n_out; i < t1 * m->n_out; i++) job->logits[i] *= f->h->logit_scale;
}

void forward_logits(struct forward *f, const float *x, size_t n, float *logits)
{
    struct logits_job job = { f, x, n, logits };
    pool_run(f->pool, logits_worker, &job);
}
