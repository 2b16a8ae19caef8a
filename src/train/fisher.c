/* fisher.c: first order and Fisher information of gates, window by window.
 * Owns: a net of one row with recomputation, and sums over windows. Does not know: documents, what
 * the numbers are for.
 * Sums over windows are taken in double, in the order in which windows come (F2). */
#include "train/fisher.h"

#include <math.h>
#include <string.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "base/os.h"
#include "train/loss.h"
#include "train/net.h"

struct fisher {
    struct fisher_options options;
    struct netparam param;
    struct pool *pool;
    struct gemm *gemm;
    struct net *net;
    struct loss *loss;
    struct packed batch; /* one row */
    float *w, *hidden, *dhidden;
    float *mix, *d; /* (n_gates) 1 where a gate is open; the gradients of a pass */
    size_t n_gates;
    double *sum, *square; /* (n_gates) of G_w with the text's labels; of G_w^2 with drawn ones */
    uint32_t n_windows;
};

/* ---- opening --------------------------------------------------------------------------------- */

static zp_status check_room(const struct fisher *f, const struct net_options *o, zp_err *err)
{
    uint64_t need, have = os_memory_available();
    struct bytes_text text[2];
    ZP_TRY(net_plan(&f->param, f->options.n_threads, o, &need, err));
    need += f->param.n * sizeof(float) + f->param.file_bytes;
    ZP_FAIL_IF(have && need > have, err, ZP_NO_MEMORY,
               "not enough memory: %s needed for gradients of gates at %u tokens, %s available; "
               "a smaller -c needs less", bytes_in_words(need, &text[0]), o->n_ctx,
               bytes_in_words(have, &text[1]));
    return ZP_OK;
}

static void fill_mix(struct fisher *f)
{
    const struct position *p = &f->param.model->position;
    memset(f->mix, 0, f->n_gates * sizeof *f->mix);
    for (size_t h = 0; h < (size_t)p->n_layer * p->n_kv; h++)
        for (uint32_t s = 0; s < p->heads[h].n_open; s++)
            f->mix[h * p->n_pair + p->heads[h].pair[s]] = 1.0f;
}

static zp_status take(struct fisher *f, const struct zp_model *m, zp_err *err)
{
    const struct position *p = &m->position;
    size_t rows = (size_t)f->options.n_ctx * m->h.d_model;
    f->n_gates = (size_t)p->n_layer * p->n_kv * p->n_pair;
    ZP_ALLOC(f->w, MEM_PARAMETER, f->param.n, err, "the parameters");
    ZP_ALLOC(f->hidden, MEM_TRAIN, rows, err, "hidden rows");
    ZP_ALLOC(f->dhidden, MEM_TRAIN, rows, err, "hidden rows");
    ZP_ALLOC(f->mix, MEM_TRAIN, f->n_gates + 1, err, "gates");
    ZP_ALLOC(f->d, MEM_TRAIN, f->n_gates + 1, err, "gradients of gates");
    ZP_ALLOC(f->sum, MEM_TRAIN, f->n_gates + 1, err, "gradients of gates");
    ZP_ALLOC(f->square, MEM_TRAIN, f->n_gates + 1, err, "gradients of gates");
    return packed_open(&f->batch, 1, f->options.n_ctx, err);
}

static void begin(struct fisher *f)
{
    for (uint32_t t = 0; t < f->options.n_ctx; t++)
        f->batch.start[t] = 0, f->batch.position[t] = t;
    memset(f->sum, 0, f->n_gates * sizeof *f->sum);
    memset(f->square, 0, f->n_gates * sizeof *f->square);
    fill_mix(f);
}

static zp_status fill(struct fisher *f, const struct zp_model *m, zp_err *err)
{
    struct fisher_options *o = &f->options;
    struct net_options n = { .n_rows = 1, .n_ctx = o->n_ctx, .recompute = true, .mix = true };
    ZP_FAIL_IF(o->n_ctx < 2 || o->begin >= o->n_ctx - 1, err, ZP_USAGE,
               "no position from %u on has a next one among %u", o->begin, o->n_ctx);
    if (o->n_threads == 0) o->n_threads = os_core_count();
    ZP_TRY(netparam_open(&f->param, m, err));
    netparam_leave(&f->param, NULL, NULL);
    ZP_TRY(check_room(f, &n, err));
    ZP_TRY(pool_open(&f->pool, o->n_threads, err));
    ZP_TRY(gemm_open(&f->gemm, f->pool, GEMM_F32, err));
    ZP_TRY(net_open(&f->net, &f->param, f->gemm, &n, err));
    struct loss_shape shape = { .n_vocab = m->h.n_vocab, .d = m->h.d_model, .in_pieces = true };
    ZP_TRY(loss_open(&f->loss, f->gemm, &shape, err));
    ZP_TRY(take(f, m, err));
    begin(f);
    return netparam_read(&f->param, f->w, err);
}

zp_status fisher_open(struct fisher **out, const struct zp_model *m,
                      const struct fisher_options *o, zp_err *err)
{
    *out = NULL;
    struct fisher *f = mem_zalloc(MEM_TRAIN, sizeof *f);
    ZP_FAIL_IF(!f, err, ZP_NO_MEMORY, "not enough memory for gradients of gates");
    f->options = *o;
    zp_status status = fill(f, m, err);
    if (status == ZP_OK) *out = f;
    else fisher_close(f);
    return status;
}

void fisher_close(struct fisher *f)
{
    if (!f) return;
    loss_close(f->loss);
    net_close(f->net);
    gemm_close(f->gemm);
    pool_close(f->pool);
    netparam_close(&f->param);
    packed_close(&f->batch);
    mem_free(f->w);
    mem_free(f->hidden);
    mem_free(f->dhidden);
    mem_free(f->mix);
    mem_free(f->d);
    mem_free(f->sum);
    mem_free(f->square);
    mem_free(f);
}

/* ---- measuring ------------------------------------------------------------------------------- */

/* f->d: G_w of the window at hand. The forward pass comes anew each time, since a backward pass
 * uses up what it kept. */
static void run_pass(struct fisher *f, const struct loss_draw *draw)
{
    const struct netparam_tensor *out = net_output(f->net);
    const struct net_gates gates = { .mix = f->mix };
    struct loss_sums sums;
    struct loss_batch b = { .n_rows = f->options.n_ctx, .d = out->n_in, .hidden = f->hidden,
                            .w_out = { .rows = net_output_rows, .arg = f->net },
                            .target = f->batch.targets, .draw = draw,
                            .ce_weight = 1, .grad_scale = 1, .dhidden = f->dhidden };
    net_forward(f->net, f->w, &gates, &f->batch, f->hidden);
    loss_run(f->loss, &b, &sums);
    memset(f->d, 0, f->n_gates * sizeof *f->d);
    net_backward(f->net, f->w, &gates, &f->batch, f->dhidden,
                 &(struct net_gradients){ .mix = f->d });
}

void fisher_add(struct fisher *f, const int32_t *ids)
{
    const struct fisher_options *o = &f->options;
    struct loss_draw draw = { o->seed, FISHER_STREAM + f->n_windows, NULL }; // F1
    memcpy(f->batch.ids, ids, o->n_ctx * sizeof *ids);
    for (uint32_t t = 0; t < o->n_ctx; t++)
        f->batch.targets[t] = t >= o->begin && t + 1 < o->n_ctx ? ids[t + 1] : -1;
    run_pass(f, NULL);
    for (size_t i = 0; i < f->n_gates; i++) f->sum[i] += (double)f->d[i];
    run_pass(f, &draw);
    for (size_t i = 0; i < f->n_gates; i++) f->square[i] += (double)f->d[i] * (double)f->d[i];
    f->n_windows++;
}

void fisher_values(const struct fisher *f, double *fisher, double *first_order)
{
    double n = (double)f->n_windows * (double)(f->options.n_ctx - 1 - f->options.begin);
    for (size_t i = 0; i < f->n_gates; i++) {
        bool open = f->mix[i] != 0.0f; // F3
        fisher[i] = open ? f->square[i] / n : 0.0;
        first_order[i] = open ? fabs(f->sum[i]) / n : 0.0;
    }
}
