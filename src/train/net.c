/* net.c: a model forward as training runs it: memory, what rows see, layers.
 * Owns: all memory of a net, in one block. Does not know: losses, steps, files.
 * Rows of a batch are those of all its documents: R = n_rows * n_ctx. Positions count from the
 * beginning of each document. */
#include "train/net_parts.h"

#include <math.h>
#include <string.h>

#include "model/posgate.h"
#include "train/rowops.h"

/* ---- memory ---------------------------------------------------------------------------------- */

/* Takes places from a block, or only counts them. */
struct place {
    char *memory; /* NULL: count */
    size_t used;
};

static void *take_bytes(struct place *p, size_t bytes)
{
    enum { LINE = 64 };
    void *at = p->memory ? p->memory + p->used : NULL;
    p->used += (bytes + LINE - 1) / LINE * LINE;
    return at;
}

static float *take(struct place *p, size_t n)
{
    return take_bytes(p, n * sizeof(float));
}

static size_t most_rows(const struct net *n)
{
    return (size_t)n->options.n_rows * n->options.n_ctx;
}

static void place_kept(const struct net *n, struct place *at, struct net_kept *k)
{
    const struct hparams *h = n->h;
    size_t rows = most_rows(n), d = h->d_model, q = h->n_head * (size_t)h->d_head;
    size_t kv = h->n_kv * (size_t)h->d_head;
    k->normed = take(at, rows * d), k->inverse = take(at, rows);
    if (n->has_head_norm) {
        k->raw_q = take(at, rows * q), k->raw_k = take(at, rows * kv);
        k->inverse_q = take(at, rows * h->n_head), k->inverse_k = take(at, rows * h->n_kv);
    }
    k->q = take(at, rows * q), k->k = take(at, rows * kv), k->v = take(at, rows * kv);
    k->o = take(at, rows * q), k->lse = take(at, rows * h->n_head);
    k->middle = take(at, rows * d);
    k->ffn_normed = take(at, rows * d), k->inverse_ffn = take(at, rows);
    k->gate = take(at, rows * h->d_ff), k->up = take(at, rows * h->d_ff);
    k->act = take(at, rows * h->d_ff);
    if (!n->has_post) return;
    k->attended = take(at, rows * d), k->inverse_attended = take(at, rows);
    k->widened = take(at, rows * d), k->inverse_widened = take(at, rows);
}

static size_t largest(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Floats that norms, mixes and position gates use for sums over rows. */
static size_t scratch_floats(const struct net *n)
{
    const struct hparams *h = n->h;
    size_t rows = most_rows(n);
    struct rownorm model = { .n_rows = rows, .n = h->d_model };
    struct rownorm heads = { .n_rows = rows * h->n_head, .n = h->d_head, .n_gains = h->n_head };
    struct rotary turn = { .n_rows = rows, .n_head = h->n_head, .n_kv = h->n_kv,
                           .d_head = h->d_head, .n_pair = n->p->model->position.n_pair };
    size_t most = rownorm_scratch(&model);
    if (n->has_head_norm) most = largest(most, rownorm_scratch(&heads));
    if (n->has_gate) most = largest(most, rows * h->n_head);
    return n->options.mix ? largest(most, rotary_mix_scratch(&turn)) : most;
}

static void place_backward(struct net *n, struct place *at)
{
    const struct hparams *h = n->h;
    size_t rows = most_rows(n), d = h->d_model, q = h->n_head * (size_t)h->d_head;
    size_t kv = h->n_kv * (size_t)h->d_head, wide = n->options.mix ? 2 : 1;
    n->dx = take(at, rows * d), n->dsum = take(at, rows * d), n->dnormed = take(at, rows * d);
    n->dq = take(at, rows * q * wide), n->dk = take(at, rows * kv * wide);
    n->dv = take(at, rows * kv), n->d_o = take(at, rows * q);
    if (n->options.mix) n->plain_dq = take(at, rows * q), n->plain_dk = take(at, rows * kv);
    n->dact = take(at, rows * h->d_ff);
    n->scratch = take(at, scratch_floats(n));
    if (n->struct_weight)
        n->dheard = take(at, rows * STRUCT_TYPES), n->dkey_bias = take(at, rows * h->n_head);
    n->row_sums = take_bytes(at, 2 * rows * sizeof *n->row_sums);
    if (!n->has_bias) return;
    n->dbias_table = take(at, (size_t)h->n_head * n->options.n_ctx);
    n->dbias_gate = take(at, h->n_head);
}

static void place_all(struct net *n, struct place *at)
{
    const struct hparams *h = n->h;
    size_t rows = most_rows(n), pairs = n->p->model->position.n_pair, d = h->d_model;
    size_t q = h->n_head * (size_t)h->d_head, kv = h->n_kv * (size_t)h->d_head;
    n->x = take_bytes(at, n->n_x * sizeof *n->x);
    n->kept = take_bytes(at, n->n_kept * sizeof *n->kept);
    n->layers = take_bytes(at, h->n_layer * sizeof *n->layers);
    n->open = take_bytes(at, (size_t)h->n_layer * h->n_kv * pairs);
    n->bias_gate = take(at, h->n_head);
    struct net_kept none = { 0 };
    for (size_t i = 0; i < n->n_x; i++) {
        float *x = take(at, rows * d);
        if (at->memory) n->x[i] = x;
    }
    for (size_t i = 0; i < n->n_kept; i++) place_kept(n, at, at->memory ? &n->kept[i] : &none);
    n->inverse_out = take(at, rows);
    for (int set = 0; set < 2; set++) {
        n->turns[set] = take(at, (size_t)n->options.n_ctx * pairs * 2);
        n->cs[set] = take(at, rows * pairs * 2);
    }
    if (n->has_gate) {
        n->steps = take(at, (size_t)n->options.n_ctx * POSGATE_STEPS);
        n->phi = take(at, rows * POSGATE_STEPS);
    }
    n->row_scale = take(at, rows);
    n->sum = take(at, rows * d);
    n->room = take(at, netparam_room(n->p));
    n->first = take_bytes(at, h->n_kv * rows * sizeof *n->first);
    n->doc_start = take_bytes(at, rows * sizeof *n->doc_start);
    n->position = take_bytes(at, rows * sizeof *n->position);
    n->n_sink = take_bytes(at, h->n_kv * sizeof *n->n_sink);
    if (n->options.mix) n->wide_q = take(at, 2 * rows * q), n->wide_k = take(at, 2 * rows * kv);
    if (n->struct_weight) {
        n->detected = take(at, rows * STRUCT_TYPES), n->heard = take(at, rows * STRUCT_TYPES);
        n->key_bias = take(at, rows * h->n_head);
        n->struct_room = take_bytes(at, rows * (STRUCT_LOGITS + 1) * sizeof *n->struct_room);
    }
    if (n->has_bias) {
        struct distbias b = { .kind = DISTBIAS_MLP, .n_head = h->n_head,
                              .n_dist = n->options.n_ctx };
        n->bias_table = take(at, (size_t)h->n_head * n->options.n_ctx);
        n->bias_room = take_bytes(at, distbias_scratch(&b) * sizeof *n->bias_room);
    }
    if (!n->options.forward_only) place_backward(n, at);
}

static struct selfattend_shape shape_of(const struct net *n, bool wide)
{
    size_t d = n->h->d_head;
    return (struct selfattend_shape){ .most_rows = most_rows(n), .n_head = n->h->n_head,
                                      .n_kv = n->h->n_kv, .dk = wide ? 2 * d : d,
                                      .dv = d, .n_bias = n->has_bias ? n->options.n_ctx : 0 };
}

/* ---- tensors --------------------------------------------------------------------------------- */

static void find_layer(const struct netparam *p, uint32_t l, struct net_layer *out)
{
    *out = (struct net_layer){
        .q = netparam_find(p, "blk.%u.attn_q.weight", l),
        .k = netparam_find(p, "blk.%u.attn_k.weight", l),
        .v = netparam_find(p, "blk.%u.attn_v.weight", l),
        .o = netparam_find(p, "blk.%u.attn_output.weight", l),
        .gate = netparam_find(p, "blk.%u.ffn_gate.weight", l),
        .up = netparam_find(p, "blk.%u.ffn_up.weight", l),
        .down = netparam_find(p, "blk.%u.ffn_down.weight", l),
        .attn_norm = netparam_find(p, "blk.%u.attn_norm.weight", l),
        .ffn_norm = netparam_find(p, "blk.%u.ffn_norm.weight", l),
        .post_attn_norm = netparam_find(p, "blk.%u.post_attention_norm.weight", l),
        .post_ffn_norm = netparam_find(p, "blk.%u.post_ffw_norm.weight", l),
        .q_norm = netparam_find(p, "blk.%u.attn_q_norm.weight", l),
        .k_norm = netparam_find(p, "blk.%u.attn_k_norm.weight", l),
        .q_bias = netparam_find(p, "blk.%u.attn_q.bias", l),
        .k_bias = netparam_find(p, "blk.%u.attn_k.bias", l),
        .v_bias = netparam_find(p, "blk.%u.attn_v.bias", l),
        .o_bias = netparam_find(p, "blk.%u.attn_output.bias", l),
        .alibi = netparam_find(p, "blk.%u.pos_alibi.slope", l),
        .t5 = netparam_find(p, "blk.%u.pos_t5.weight", l),
        .mlp = { netparam_find(p, "blk.%u.pos_mlp.0.weight", l),
                 netparam_find(p, "blk.%u.pos_mlp.0.bias", l),
                 netparam_find(p, "blk.%u.pos_mlp.1.weight", l),
                 netparam_find(p, "blk.%u.pos_mlp.1.bias", l) },
        .pos_gate = netparam_find(p, "blk.%u.pos_gate.weight", l),
        .struct_bias = netparam_find(p, STRUCTHEAD_BIAS, l),
    };
}

/* A name that is missing or has other sizes than the hyper-parameters say. */
static zp_status check_tensor(const struct netparam *p, const char *format, uint32_t layer,
                              size_t n_out, size_t n_in, zp_err *err)
{
    const struct netparam_tensor *t = netparam_find(p, format, layer);
    ZP_FAIL_IF(!t || t->n != n_out * n_in, err, ZP_BAD_FILE,
               "training needs the tensor %s of layer %u with %zu x %zu values", format, layer,
               n_in, n_out);
    return ZP_OK;
}

static zp_status check_optional(const struct netparam *p, const char *format, uint32_t layer,
                                bool required, size_t n, size_t shared, zp_err *err)
{
    const struct netparam_tensor *t = netparam_find(p, format, layer);
    if (t && shared && t->n == shared) return ZP_OK;
    return t || required ? check_tensor(p, format, layer, n, 1, err) : ZP_OK;
}

static zp_status check_layer(const struct netparam *p, uint32_t l, zp_err *err)
{
    const struct hparams *h = &p->model->h;
    size_t d = h->d_model, q = (size_t)h->n_head * h->d_head, kv = (size_t)h->n_kv * h->d_head;
    bool post = h->arch->post_norms, bias = h->arch->qkv_bias, qk = h->arch->qk_norm;
    ZP_TRY(check_tensor(p, "blk.%u.attn_q.weight", l, q, d, err));
    ZP_TRY(check_tensor(p, "blk.%u.attn_k.weight", l, kv, d, err));
    ZP_TRY(check_tensor(p, "blk.%u.attn_v.weight", l, kv, d, err));
    ZP_TRY(check_tensor(p, "blk.%u.attn_output.weight", l, d, q, err));
    ZP_TRY(check_tensor(p, "blk.%u.ffn_gate.weight", l, h->d_ff, d, err));
    ZP_TRY(check_tensor(p, "blk.%u.ffn_up.weight", l, h->d_ff, d, err));
    ZP_TRY(check_tensor(p, "blk.%u.ffn_down.weight", l, d, h->d_ff, err));
    ZP_TRY(check_tensor(p, "blk.%u.attn_norm.weight", l, d, 1, err));
    ZP_TRY(check_tensor(p, "blk.%u.ffn_norm.weight", l, d, 1, err));
    ZP_TRY(check_optional(p, "blk.%u.post_attention_norm.weight", l, post, d, 0, err));
    ZP_TRY(check_optional(p, "blk.%u.post_ffw_norm.weight", l, post, d, 0, err));
    ZP_TRY(check_optional(p, "blk.%u.attn_q_norm.weight", l, qk, q, h->d_head, err));
    ZP_TRY(check_optional(p, "blk.%u.attn_k_norm.weight", l, qk, kv, h->d_head, err));
    ZP_TRY(check_optional(p, "blk.%u.attn_q.bias", l, bias, q, 0, err));
    ZP_TRY(check_optional(p, "blk.%u.attn_k.bias", l, bias, kv, 0, err));
    ZP_TRY(check_optional(p, "blk.%u.attn_v.bias", l, bias, kv, 0, err));
    return check_optional(p, "blk.%u.attn_output.bias", l, false, d, 0, err);
}

static zp_status check_model(const struct netparam *p, const struct net_options *o, zp_err *err)
{
    const struct hparams *h = &p->model->h;
    const struct position *position = &p->model->position;
    ZP_FAIL_IF(o->n_rows == 0 || o->n_ctx == 0, err, ZP_USAGE, "a batch without rows");
    ZP_FAIL_IF(position->n_pair > ROTARY_MOST_PAIRS, err, ZP_UNSUPPORTED,
               "heads of %u pairs cannot be trained", position->n_pair);
    for (uint32_t l = 0; l < h->n_layer; l++) {
        bool local = false;
        for (uint32_t kv = 0; kv < h->n_kv; kv++)
            local |= position->heads[l * h->n_kv + kv].window != 0;
        ZP_FAIL_IF(local && position->scale_c && position->scale_c[l] != 0.0f, err, ZP_UNSUPPORTED,
                   "layer %u has local heads and a logit scale that grows with what a query sees: "
                   "such a model cannot be trained yet", l);
        ZP_TRY(check_layer(p, l, err));
    }
    ZP_TRY(check_tensor(p, "output_norm.weight", 0, h->d_model, 1, err));
    ZP_TRY(check_tensor(p, "token_embd.weight", 0, h->n_vocab, h->d_model, err));
    return check_optional(p, "output.weight", 0, false, (size_t)h->n_vocab * h->d_model, 0, err);
}

/* ---- opening --------------------------------------------------------------------------------- */

static zp_status describe(struct net *n, const struct netparam *p, const struct net_options *o,
                          zp_err *err)
{
    ZP_TRY(check_model(p, o, err));
    *n = (struct net){ .p = p, .h = &p->model->h, .options = *o };
    n->struct_weight = netparam_find(p, STRUCTHEAD_WEIGHT, 0);
    n->struct_gate = netparam_find(p, STRUCTHEAD_GATE, 0);
    n->has_post = n->h->arch->post_norms;
    n->has_head_norm = n->h->arch->qk_norm;
    for (uint32_t l = 0; l < n->h->n_layer; l++) {
        struct net_layer layer;
        find_layer(p, l, &layer);
        n->has_bias |= layer.alibi || layer.t5 || layer.mlp[0];
        n->has_gate |= layer.pos_gate != NULL;
        n->has_post |= layer.post_attn_norm || layer.post_ffn_norm;
        n->has_head_norm |= layer.q_norm || layer.k_norm;
    }
    n->n_x = o->forward_only ? 2 : n->h->n_layer + (size_t)1;
    n->n_kept = o->forward_only || o->recompute ? 1 : n->h->n_layer;
    return ZP_OK;
}

zp_status net_plan(const struct netparam *p, uint32_t n_threads, const struct net_options *o,
                   uint64_t *bytes, zp_err *err)
{
    struct net n;
    struct place count = { 0 };
    ZP_TRY(describe(&n, p, o, err));
    place_all(&n, &count);
    *bytes = sizeof n + count.used;
    for (int wide = 0; wide <= o->mix; wide++) {
        struct selfattend_shape shape = shape_of(&n, wide);
        *bytes += selfattend_bytes(&shape, n_threads);
    }
    return ZP_OK;
}

size_t net_operands(const struct netparam *p, const struct net_options *o)
{
    size_t rows = (size_t)o->n_rows * o->n_ctx, most = 0;
    for (size_t i = 0; i < p->n_tensors; i++) {
        const struct netparam_tensor *t = &p->tensors[i];
        if (!t->matrix || t->layer == p->model->h.n_layer) continue;
        most = largest(most, rows * t->n_in + t->n);
        if (o->forward_only) continue;
        most = largest(most, rows * t->n_out + t->n);
        most = largest(most, rows * (t->n_in + t->n_out));
    }
    return most;
}

static void fill_open(struct net *n)
{
    const struct position *position = &n->p->model->position;
    size_t pairs = position->n_pair;
    memset(n->open, 0, (size_t)position->n_layer * position->n_kv * pairs);
    for (size_t i = 0; i < (size_t)position->n_layer * position->n_kv; i++)
        for (uint32_t s = 0; s < position->heads[i].n_open; s++)
            n->open[i * pairs + position->heads[i].pair[s]] = 1;
}

static zp_status fill(struct net *n, struct gemm *g, zp_err *err)
{
    const struct position *position = &n->p->model->position;
    struct place place = { 0 };
    place_all(n, &place);
    n->memory = mem_zalloc(MEM_ACTIVATION, place.used);
    ZP_FAIL_IF(!n->memory, err, ZP_NO_MEMORY, "not enough memory to train (%zu bytes)",
               place.used);
    place = (struct place){ .memory = (char *)n->memory };
    place_all(n, &place);
    n->g = g, n->pool = gemm_pool(g);
    kern_table_init(&n->kern, KERN_LEVEL_COUNT - 1);
    for (uint32_t l = 0; l < n->h->n_layer; l++) find_layer(n->p, l, &n->layers[l]);
    n->embedding = netparam_find(n->p, "token_embd.weight", 0);
    n->output = netparam_output(n->p);
    n->output_norm = netparam_find(n->p, "output_norm.weight", 0);
    fill_open(n);
    for (uint32_t i = 0; i < n->options.n_ctx; i++)
        for (uint32_t set = 0; set < 2; set++)
            position_angles(position, set, i, n->turns[set] + (size_t)i * position->n_pair * 2);
    for (uint32_t i = 0; n->has_gate && i < n->options.n_ctx; i++)
        posgate_features(i, n->steps + (size_t)i * POSGATE_STEPS);
    struct selfattend_shape shape = shape_of(n, false), wide = shape_of(n, true);
    ZP_TRY(gemm_reserve(g, net_operands(n->p, &n->options), err));
    ZP_TRY(selfattend_open(&n->attend, g, &shape, err));
    return n->options.mix ? selfattend_open(&n->attend_wide, g, &wide, err) : ZP_OK;
}

zp_status net_open(struct net **out, const struct netparam *p, struct gemm *g,
                   const struct net_options *o, zp_err *err)
{
    *out = NULL;
    struct net *n = mem_zalloc(MEM_ACTIVATION, sizeof *n);
    ZP_FAIL_IF(!n, err, ZP_NO_MEMORY, "not enough memory to train");
    zp_status status = describe(n, p, o, err);
    if (status == ZP_OK) status = fill(n, g, err);
    if (status == ZP_OK) *out = n;
    else net_close(n);
    return status;
}

void net_close(struct net *n)
{
    if (!n) return;
    selfattend_close(n->attend);
    selfattend_close(n->attend_wide);
    mem_free(n->memory);
    mem_free(n);
}

const struct netparam_tensor *net_output(const struct net *n)
{
    return n->output;
}

const float *net_output_rows(void *net, size_t first, size_t n_rows, float *room)
{
    const struct net *n = net;
    return netparam_rows(n->p, NULL, n->output, n->pool, first, n_rows, room);
}

void net_watch(struct net *n, struct guard_norms *norms)
{
    n->norms = norms;
}

void net_hook_attention(struct net *n, net_attention_fn fn, void *arg)
{
    n->at_attention = fn;
    n->at_attention_arg = arg;
}

void net_set_bridge(struct net *n, const struct net_bridge *bridge)
{
    n->bridge = *bridge;
}

void net_set_structure(struct net *n, const struct net_structure *structure)
{
    n->structure = *structure;
}

double net_tag_loss(const struct net *n)
{
    return n->tag_loss;
}

/* ---- what rows see --------------------------------------------------------------------------- */

struct structrows net_structure_of(const struct net *n, const float *w, const struct packed *batch)
{
    const struct net_structure *s = &n->structure;
    return (struct structrows){ .n_rows = net_rows(batch), .d = n->h->d_model,
                                .eps = n->h->norm_eps, .weight = w + n->struct_weight->at,
                                .gate = w + n->struct_gate->at, .x = n->x[0], .keep = s->keep,
                                .kept = s->kept, .tags = s->tag_weight > 0 ? batch->tags : NULL,
                                .target = batch->targets, .tag_weight = s->tag_weight };
}

static void embed(struct net *n, const float *w, size_t n_rows, const int32_t *ids, float *x)
{
    const struct netparam_tensor *t = n->embedding;
    size_t d = n->h->d_model;
    if (!t->in_file) {
        rowops_embed(n->pool, n_rows, d, ids, w + t->at, n->h->embed_scale, x);
        return;
    }
    netparam_gather(n->p, t, n->pool, n_rows, ids, x);
    rowops_scale(n->pool, &n->kern, n_rows * d, x, n->h->embed_scale, x);
}

static void begin_rows(struct net *n, const float *w, const struct packed *batch)
{
    embed(n, w, net_rows(batch), batch->ids, n->x[0]);
    n->tag_loss = 0;
    if (!n->struct_weight) return;
    struct structrows s = net_structure_of(n, w, batch);
    n->tag_loss = structrows_detect(n->pool, &s, n->detected, n->heard, n->struct_room);
}

void net_begin(struct net *n, const float *w, const struct packed *batch)
{
    const struct position *position = &n->p->model->position;
    size_t rows = net_rows(batch), floats = (size_t)position->n_pair * 2;
    for (size_t i = 0; i < rows; i++) {
        n->doc_start[i] = (uint32_t)(i / batch->n_ctx * batch->n_ctx) + batch->start[i];
        n->position[i] = (int32_t)batch->position[i];
        for (uint32_t set = 0; set < 2; set++)
            memcpy(n->cs[set] + i * floats, n->turns[set] + batch->position[i] * floats,
                   floats * sizeof(float));
        if (n->has_gate)
            memcpy(n->phi + i * POSGATE_STEPS, n->steps + batch->position[i] * POSGATE_STEPS,
                   POSGATE_STEPS * sizeof(float));
    }
    begin_rows(n, w, batch);
}

struct distbias net_bias_of(const struct net *n, const float *w, uint32_t layer)
{
    const struct net_layer *t = &n->layers[layer];
    const struct position *position = &n->p->model->position;
    struct distbias b = { .n_head = n->h->n_head, .n_dist = n->options.n_ctx,
                          .gate = n->bias_gate };
    if (t->alibi) b.kind = DISTBIAS_ALIBI, b.slope = w + t->alibi->at;
    if (t->t5) {
        b.kind = DISTBIAS_T5, b.table = w + t->t5->at;
        b.buckets = position->t5_buckets, b.most = position->t5_max;
    }
    if (t->mlp[0]) {
        b.kind = DISTBIAS_MLP;
        b.in_weight = w + t->mlp[0]->at, b.in_bias = w + t->mlp[1]->at;
        b.out_weight = w + t->mlp[2]->at, b.out_bias = w + t->mlp[3]->at;
    }
    return b;
}

static void fill_bias(struct net *n, const float *w, const struct net_gates *gates, uint32_t layer)
{
    const float *file = n->p->model->position.bias_gate;
    for (size_t i = 0, at = (size_t)layer * n->h->n_head; i < n->h->n_head; i++)
        n->bias_gate[i] = (file ? file[at + i] : 1.0f) *
                          (gates && gates->bias ? gates->bias[at + i] : 1.0f);
    struct distbias b = net_bias_of(n, w, layer);
    distbias_fill(n->pool, &b, n->bias_table, n->bias_room);
}

static struct position_sight sight_of(const struct net *n, const struct net_gates *gates,
                                      uint32_t layer, uint32_t kv)
{
    const struct position *p = &n->p->model->position;
    if (!gates || !gates->window) return position_head_sight(p, layer, kv);
    return position_try_sight(p, layer, gates->window[layer * n->h->n_kv + kv], gates->n_sink);
}

/* First rows that are seen, by KV head where their windows differ. */
static void fill_first(struct net *n, const struct net_gates *gates, uint32_t layer, size_t n_rows,
                       struct selfattend_batch *b)
{
    uint32_t first_window = sight_of(n, gates, layer, 0).window, n_lists = 1;
    for (uint32_t kv = 0; kv < n->h->n_kv; kv++) {
        struct position_sight s = sight_of(n, gates, layer, kv);
        if (s.window != first_window) n_lists = n->h->n_kv;
        n->n_sink[kv] = s.window ? s.n_sink : 0;
        if (n->n_sink[kv]) b->n_sink = n->n_sink, b->doc_start = n->doc_start;
    }
    for (uint32_t kv = 0; kv < n_lists; kv++)
        for (size_t i = 0; i < n_rows; i++) {
            struct position_sight s = sight_of(n, gates, layer, kv);
            struct position_seen seen = position_seen(s, (uint32_t)n->position[i]);
            n->first[kv * n_rows + i] = n->doc_start[i] + seen.first;
        }
    b->first = n->first;
    b->first_stride = n_lists == 1 ? 0 : n_rows;
}

/* The logit scale of each row, where it grows with what the row sees. */
static void fill_scale(struct net *n, uint32_t layer, size_t n_rows, struct selfattend_batch *b)
{
    const struct position *position = &n->p->model->position;
    b->scale = position->attn_scale;
    if (!position->scale_c || position->scale_c[layer] == 0.0f) return;
    struct position plain = *position;
    plain.head_scale = NULL; /* net_scale_heads */
    struct position_sight s = position_head_sight(position, layer, 0);
    for (size_t i = 0; i < n_rows; i++) {
        uint32_t at = (uint32_t)n->position[i];
        uint32_t seen = position_count_seen(position_seen(s, at), at);
        n->row_scale[i] = position_query_scale(&plain, layer, 0, seen) / b->scale;
    }
    b->row_scale = n->row_scale;
}

void net_see(struct net *n, const float *w, const struct net_gates *gates, uint32_t layer,
             size_t n_rows, struct net_sight *out)
{
    const struct position *position = &n->p->model->position;
    const struct hparams *h = n->h;
    size_t at = (size_t)layer * h->n_kv * position->n_pair;
    *out = (struct net_sight){ .b = { .n_rows = n_rows } };
    out->turn = (struct rotary){ n_rows, h->n_head, h->n_kv, h->d_head, position->n_pair,
                                 n->cs[position->angle_set[layer]] };
    fill_first(n, gates, layer, n_rows, &out->b);
    fill_scale(n, layer, n_rows, &out->b);
    if (position_layer_has_bias(position, layer)) {
        fill_bias(n, w, gates, layer);
        out->b.bias = n->bias_table;
    }
    if (n->layers[layer].struct_bias) {
        structrows_bias(n->pool, &n->kern, h->n_head, n_rows,
                        w + n->layers[layer].struct_bias->at, n->heard, n->key_bias);
        out->b.key_bias = n->key_bias;
    }
    const uint8_t *open = (gates && gates->open ? gates->open : n->open) + at;
    if (gates && gates->mix) out->mix = gates->mix + at;
    else if (memchr(open, 1, (size_t)h->n_kv * position->n_pair)) out->open = open; /* I2 */
}

/* ---- a layer --------------------------------------------------------------------------------- */

/* y (n_rows, t->n_out) = x t^T + bias. */
static void multiply(struct net *n, const float *w, size_t n_rows, const float *x,
                     const struct netparam_tensor *t, const struct netparam_tensor *bias, float *y)
{
    gemm_nt(n->g, n_rows, t->n_out, t->n_in, x, t->n_in, net_matrix(n, w, t), t->n_in, y, t->n_out,
            false);
    if (bias) rowops_add_bias(n->pool, n_rows, t->n_out, w + bias->at, y);
}

static void norm(struct net *n, const float *w, size_t n_rows, const float *x,
                 const struct netparam_tensor *gain, float *inverse, float *y)
{
    struct rownorm a = { .n_rows = n_rows, .n = n->h->d_model, .x = x, .gain = w + gain->at,
                         .eps = n->h->norm_eps, .inverse = inverse };
    rownorm_forward(n->pool, &n->kern, &a, y);
}

/* q or k of n_heads heads: product, bias, norm. */
static void project(struct net *n, const float *w, size_t n_rows, const struct net_kept *kept,
                    bool of_keys, const struct net_layer *t)
{
    const struct netparam_tensor *gain = of_keys ? t->k_norm : t->q_norm;
    float *out = of_keys ? kept->k : kept->q, *raw = of_keys ? kept->raw_k : kept->raw_q;
    multiply(n, w, n_rows, kept->normed, of_keys ? t->k : t->q, of_keys ? t->k_bias : t->q_bias,
             gain ? raw : out);
    if (!gain) return;
    struct rownorm a = net_head_norm(n, w, n_rows, kept, of_keys, gain);
    rownorm_forward(n->pool, &n->kern, &a, out);
}

struct rownorm net_head_norm(const struct net *n, const float *w, size_t n_rows,
                             const struct net_kept *kept, bool of_keys,
                             const struct netparam_tensor *gain)
{
    size_t n_heads = of_keys ? n->h->n_kv : n->h->n_head;
    return (struct rownorm){ .n_rows = n_rows * n_heads, .n = n->h->d_head,
                             .x = of_keys ? kept->raw_k : kept->raw_q, .gain = w + gain->at,
                             .eps = n->h->norm_eps,
                             .inverse = of_keys ? kept->inverse_k : kept->inverse_q,
                             .n_gains = gain->n == n->h->d_head ? 1 : n_heads };
}

void net_scale_heads(const struct net *n, uint32_t layer, size_t n_rows, float *q)
{
    const float **scale = n->p->model->position.head_scale;
    if (scale && scale[layer])
        rowops_scale_heads(n->pool, n_rows, n->h->n_head, n->h->d_head, scale[layer], q);
}

struct gaterows net_gate_of(const struct net *n, const float *w, uint32_t layer, size_t n_rows)
{
    return (struct gaterows){ n_rows, n->h->n_head, n->h->d_head, n->phi,
                              w + n->layers[layer].pos_gate->at };
}

static void watch(struct net *n, uint32_t layer, size_t n_rows, const struct net_kept *kept)
{
    if (!n->norms) return;
    size_t d = n->h->d_head;
    n->norms[layer].q = rowops_largest_norm(n->pool, n_rows * n->h->n_head, d, kept->q);
    n->norms[layer].k = rowops_largest_norm(n->pool, n_rows * n->h->n_kv, d, kept->k);
}

void net_attention(struct net *n, const float *w, const struct net_gates *gates, uint32_t layer,
                   size_t n_rows, const float *x, struct net_kept *kept)
{
    const struct net_layer *t = &n->layers[layer];
    struct net_sight sight;
    norm(n, w, n_rows, x, t->attn_norm, kept->inverse, kept->normed);
    project(n, w, n_rows, kept, false, t);
    project(n, w, n_rows, kept, true, t);
    multiply(n, w, n_rows, kept->normed, t->v, t->v_bias, kept->v);
    watch(n, layer, n_rows, kept);
    net_scale_heads(n, layer, n_rows, kept->q);
    if (t->pos_gate) {
        struct gaterows gate = net_gate_of(n, w, layer, n_rows);
        gaterows_scale(n->pool, &gate, kept->q);
    }
    net_see(n, w, gates, layer, n_rows, &sight);
    sight.b.q = kept->q, sight.b.k = kept->k, sight.b.v = kept->v;
    if (sight.mix) {
        rotary_mix(n->pool, &sight.turn, sight.mix, kept->q, kept->k, n->wide_q, n->wide_k);
        sight.b.q = n->wide_q, sight.b.k = n->wide_k;
    } else if (sight.open) {
        rotary_turn(n->pool, &n->kern, &sight.turn, n->h->n_head, sight.open, false, kept->q);
        rotary_turn(n->pool, &n->kern, &sight.turn, n->h->n_kv, sight.open, false, kept->k);
    }
    selfattend_forward(sight.mix ? n->attend_wide : n->attend, &sight.b, kept->o, kept->lse);
    float *sum = t->post_attn_norm ? kept->attended : n->sum;
    multiply(n, w, n_rows, kept->o, t->o, t->o_bias, sum);
    if (t->post_attn_norm)
        norm(n, w, n_rows, sum, t->post_attn_norm, kept->inverse_attended, n->sum);
}

static void feed_forward(struct net *n, const float *w, const struct net_layer *t, size_t n_rows,
                         struct net_kept *kept)
{
    enum gatedact_kind kind = n->h->arch->act == ARCH_GELU ? GATEDACT_GELU : GATEDACT_SILU;
    norm(n, w, n_rows, kept->middle, t->ffn_norm, kept->inverse_ffn, kept->ffn_normed);
    multiply(n, w, n_rows, kept->ffn_normed, t->gate, NULL, kept->gate);
    multiply(n, w, n_rows, kept->ffn_normed, t->up, NULL, kept->up);
    gatedact_forward(n->pool, &n->kern, kind, n_rows * n->h->d_ff, kept->gate, kept->up,
                     kept->act);
    float *sum = t->post_ffn_norm ? kept->widened : n->sum;
    multiply(n, w, n_rows, kept->act, t->down, NULL, sum);
    if (t->post_ffn_norm)
        norm(n, w, n_rows, sum, t->post_ffn_norm, kept->inverse_widened, n->sum);
}

/* out = x + scale n->sum. */
static void add_sum(struct net *n, size_t n_rows, const float *x, float *out)
{
    rowops_add(n->pool, &n->kern, n_rows * n->h->d_model, x, n->sum, n->h->residual_scale, out);
}

void net_run_layer(struct net *n, const float *w, const struct net_gates *gates, uint32_t layer,
                   size_t n_rows, const float *x, float *next)
{
    struct net_kept *kept = &n->kept[layer % n->n_kept];
    net_attention(n, w, gates, layer, n_rows, x, kept);
    if (n->at_attention) n->at_attention(n->at_attention_arg, layer, n_rows, x, n->sum);
    add_sum(n, n_rows, x, kept->middle);
    feed_forward(n, w, &n->layers[layer], n_rows, kept);
    if (n->bridge.add) n->bridge.add(n->bridge.arg, layer, n_rows, n->position, n->sum);
    if (next) add_sum(n, n_rows, kept->middle, next);
}

void net_forward(struct net *n, const float *w, const struct net_gates *gates,
                 const struct packed *batch, float *hidden)
{
    size_t n_rows = net_rows(batch), d = n->h->d_model;
    uint32_t n_layer = n->h->n_layer;
    net_begin(n, w, batch);
    for (uint32_t l = 0; l < n_layer; l++)
        net_run_layer(n, w, gates, l, n_rows, n->x[l % n->n_x], n->x[(l + 1) % n->n_x]);
    norm(n, w, n_rows, n->x[n_layer % n->n_x], n->output_norm, n->inverse_out, hidden);
    if (n->h->logit_scale != 1.0f)
        rowops_scale(n->pool, &n->kern, n_rows * d, hidden, n->h->logit_scale, hidden);
}
