/* net_back.c: a model's gradients, from the hidden rows back to parameters and gates.
 * Owns: nothing; net.c has the memory. A layer's kept rows are used up on the way: dgate and dup
 * take the places of gate and up.
 * With y = x W^T: dx = dy W, dW += dy^T x. */
#include "train/net_parts.h"

#include <assert.h>
#include <string.h>

#include "train/rowops.h"

/* One step back through a layer. */
struct back {
    struct net *n;
    const float *w;
    const struct net_gates *gates;
    const struct net_gradients *out;
    size_t n_rows;
    uint32_t layer;
    const struct net_layer *t;
    struct net_kept *kept;
};

static bool is_wanted(const struct back *b, const struct netparam_tensor *t)
{
    return t && !(b->out->frozen && b->out->frozen[t - b->n->p->tensors]);
}

/* Where a tensor's gradient goes; NULL: it is not wanted, or has no place. */
static float *gradient_of(const struct back *b, const struct netparam_tensor *t)
{
    bool place = b->out->w && is_wanted(b, t) && !t->in_file;
    return place ? b->out->w + t->at : NULL;
}

/* dw of a matrix and its bias, from dy (rows, n_out) and x (rows, n_in). */
static void add_weights(const struct back *b, const struct netparam_tensor *t,
                        const struct netparam_tensor *bias, const float *dy, const float *x)
{
    float *dw = gradient_of(b, t), *dbias = gradient_of(b, bias);
    bool handed = t->in_file && b->out->take && is_wanted(b, t);
    if (handed) dw = memset(b->n->room, 0, t->n * sizeof *dw);
    if (dw)
        gemm_tn(b->n->g, t->n_out, t->n_in, b->n_rows, dy, t->n_out, x, t->n_in, dw, t->n_in,
                true);
    if (handed) b->out->take(b->out->arg, t, dw);
    if (dbias) rowops_sum_bias(b->n->pool, b->n_rows, t->n_out, dy, dbias);
}

/* dx (rows, n_in) = dy W, or += with `add`. */
static void add_inputs(const struct back *b, const struct netparam_tensor *t, const float *dy,
                       bool add, float *dx)
{
    gemm_nn(b->n->g, b->n_rows, t->n_in, t->n_out, dy, t->n_out, net_matrix(b->n, b->w, t),
            t->n_in, dx, t->n_in, add);
}

/* Through a norm of the stream: dx is set, or added to; may be dy. */
static void norm_back(const struct back *b, const struct netparam_tensor *gain, const float *x,
                      float *inverse, const float *dy, float *dx, bool add)
{
    struct rownorm a = { .n_rows = b->n_rows, .n = b->n->h->d_model, .x = x,
                         .gain = b->w + gain->at, .eps = b->n->h->norm_eps, .inverse = inverse };
    rownorm_backward(b->n->pool, &b->n->kern, &a, dy, dx, add, gradient_of(b, gain),
                     b->n->scratch);
}

/* dsum: the gradient of what a block adds, before the norm behind it, from that of the stream. */
static void enter_block(const struct back *b, bool bridged, const struct netparam_tensor *post_norm,
                        const float *before_norm, float *inverse)
{
    struct net *n = b->n;
    rowops_scale(n->pool, &n->kern, b->n_rows * n->h->d_model, n->dx, n->h->residual_scale,
                 n->dsum);
    if (bridged && n->bridge.add)
        n->bridge.back(n->bridge.arg, b->layer, b->n_rows, n->position, n->dsum);
    if (post_norm) norm_back(b, post_norm, before_norm, inverse, n->dsum, n->dsum, false);
}

static void feed_forward_back(const struct back *b)
{
    struct net *n = b->n;
    struct net_kept *k = b->kept;
    const struct net_layer *t = b->t;
    enum gatedact_kind kind = n->h->arch->act == ARCH_GELU ? GATEDACT_GELU : GATEDACT_SILU;
    enter_block(b, true, t->post_ffn_norm, k->widened, k->inverse_widened);
    add_weights(b, t->down, NULL, n->dsum, k->act);
    add_inputs(b, t->down, n->dsum, false, n->dact);
    gatedact_backward(n->pool, &n->kern, kind, b->n_rows * n->h->d_ff, k->gate, k->up, n->dact,
                      k->gate, k->up);
    add_weights(b, t->gate, NULL, k->gate, k->ffn_normed);
    add_weights(b, t->up, NULL, k->up, k->ffn_normed);
    add_inputs(b, t->gate, k->gate, false, n->dnormed);
    add_inputs(b, t->up, k->up, true, n->dnormed);
    norm_back(b, t->ffn_norm, k->middle, k->inverse_ffn, n->dnormed, n->dx, true);
}

/* Gradients of a bias table's parameters and of its heads' gates. */
static void bias_back(const struct back *b)
{
    struct net *n = b->n;
    struct distbias a = net_bias_of(n, b->w, b->layer);
    const struct net_layer *t = b->t;
    struct distbias_gradients to = {
        .slope = gradient_of(b, t->alibi), .table = gradient_of(b, t->t5),
        .in_weight = gradient_of(b, t->mlp[0]), .in_bias = gradient_of(b, t->mlp[1]),
        .out_weight = gradient_of(b, t->mlp[2]), .out_bias = gradient_of(b, t->mlp[3]),
        .gate = n->dbias_gate
    };
    memset(n->dbias_gate, 0, n->h->n_head * sizeof *n->dbias_gate);
    distbias_backward(n->pool, &a, n->dbias_table, &to, n->bias_room);
    const float *file = n->p->model->position.bias_gate;
    for (size_t i = 0, at = (size_t)b->layer * n->h->n_head; b->out->bias && i < a.n_head; i++)
        b->out->bias[at + i] += (file ? file[at + i] : 1.0f) * n->dbias_gate[i];
}

/* Through the layer's position gate: q as attention took it, dq its gradient. */
static void gate_back(const struct back *b, float *dq)
{
    if (!b->t->pos_gate) return;
    struct gaterows gate = net_gate_of(b->n, b->w, b->layer, b->n_rows);
    gaterows_back(b->n->pool, &gate, b->kept->q, dq, gradient_of(b, b->t->pos_gate),
                  b->n->scratch);
}

/* dq, dk (as products gave q and k) and dv, from d_o. *dq, *dk: where they are. */
static void attend_back(const struct back *b, float **dq, float **dk)
{
    struct net *n = b->n;
    struct net_kept *k = b->kept;
    struct net_sight s;
    net_see(n, b->w, b->gates, b->layer, b->n_rows, &s);
    s.b.q = k->q, s.b.k = k->k, s.b.v = k->v;
    if (s.mix) {
        rotary_mix(n->pool, &s.turn, s.mix, k->q, k->k, n->wide_q, n->wide_k);
        s.b.q = n->wide_q, s.b.k = n->wide_k;
    }
    size_t n_bias = (size_t)n->h->n_head * n->options.n_ctx;
    if (s.b.bias) memset(n->dbias_table, 0, n_bias * sizeof *n->dbias_table);
    selfattend_backward(s.mix ? n->attend_wide : n->attend, &s.b, k->o, k->lse, n->d_o, n->dq,
                        n->dk, n->dv, s.b.bias ? n->dbias_table : NULL,
                        s.b.key_bias ? n->dkey_bias : NULL);
    if (s.b.bias) bias_back(b);
    if (s.b.key_bias)
        structrows_bias_back(n->pool, n->h->n_head, b->n_rows, b->w + b->t->struct_bias->at,
                             n->heard, n->dkey_bias, gradient_of(b, b->t->struct_bias), n->dheard);
    *dq = n->dq, *dk = n->dk;
    if (s.mix) {
        size_t at = (size_t)b->layer * s.turn.n_kv * s.turn.n_pair;
        rotary_mix_back(n->pool, &s.turn, s.mix, k->q, n->dq, n->dk, n->plain_dq, n->plain_dk,
                        b->out->mix ? b->out->mix + at : NULL, n->scratch);
        *dq = n->plain_dq, *dk = n->plain_dk;
    }
    gate_back(b, *dq);
    if (!s.mix && s.open) {
        rotary_turn(n->pool, &n->kern, &s.turn, n->h->n_head, s.open, true, n->dq);
        rotary_turn(n->pool, &n->kern, &s.turn, n->h->n_kv, s.open, true, n->dk);
    }
}

/* Through the norm of queries or keys, in place. */
static void head_norm_back(const struct back *b, bool of_keys, float *d)
{
    const struct netparam_tensor *gain = of_keys ? b->t->k_norm : b->t->q_norm;
    if (!gain) return;
    struct rownorm a = net_head_norm(b->n, b->w, b->n_rows, b->kept, of_keys, gain);
    rownorm_backward(b->n->pool, &b->n->kern, &a, d, d, false, gradient_of(b, gain),
                     b->n->scratch);
}

/* From n->dsum, the gradient of what attention adds before the norm behind it, to parameters and,
 * with `inward`, to n->dnormed. */
static void attention_back(const struct back *b, bool inward)
{
    struct net *n = b->n;
    const struct net_layer *t = b->t;
    float *dq, *dk;
    add_weights(b, t->o, t->o_bias, n->dsum, b->kept->o);
    add_inputs(b, t->o, n->dsum, false, n->d_o);
    attend_back(b, &dq, &dk);
    net_scale_heads(n, b->layer, b->n_rows, dq);
    head_norm_back(b, false, dq);
    head_norm_back(b, true, dk);
    add_weights(b, t->q, t->q_bias, dq, b->kept->normed);
    add_weights(b, t->k, t->k_bias, dk, b->kept->normed);
    add_weights(b, t->v, t->v_bias, n->dv, b->kept->normed);
    if (!inward) return;
    add_inputs(b, t->q, dq, false, n->dnormed);
    add_inputs(b, t->k, dk, true, n->dnormed);
    add_inputs(b, t->v, n->dv, true, n->dnormed);
}

static void layer_back(struct back *b, uint32_t layer, bool is_kept)
{
    struct net *n = b->n;
    b->layer = layer, b->t = &n->layers[layer], b->kept = &n->kept[layer % n->n_kept];
    if (!is_kept) net_run_layer(n, b->w, b->gates, layer, b->n_rows, n->x[layer], NULL);
    feed_forward_back(b);
    enter_block(b, false, b->t->post_attn_norm, b->kept->attended, b->kept->inverse_attended);
    attention_back(b, true);
    norm_back(b, b->t->attn_norm, n->x[layer], b->kept->inverse, n->dnormed, n->dx, true);
}

void net_backward(struct net *n, const float *w, const struct net_gates *gates,
                  const struct packed *batch, const float *dhidden,
                  const struct net_gradients *out)
{
    assert(!n->options.forward_only);
    struct back b = { .n = n, .w = w, .gates = gates, .out = out, .n_rows = net_rows(batch) };
    uint32_t n_layer = n->h->n_layer;
    if (n->struct_weight) memset(n->dheard, 0, STRUCT_TYPES * b.n_rows * sizeof *n->dheard);
    rowops_scale(n->pool, &n->kern, b.n_rows * n->h->d_model, dhidden, n->h->logit_scale, n->dsum);
    norm_back(&b, n->output_norm, n->x[n_layer], n->inverse_out, n->dsum, n->dx, false);
    for (uint32_t l = n_layer; l-- > 0;)
        layer_back(&b, l, n->n_kept > 1 || l + 1 == n_layer);
    if (n->struct_weight) {
        struct structrows s = net_structure_of(n, w, batch);
        structrows_back(n->pool, &s, n->dheard, gradient_of(&b, n->struct_weight),
                        gradient_of(&b, n->struct_gate), n->dx, n->struct_room);
    }
    float *dtable = gradient_of(&b, n->embedding);
    if (dtable)
        rowops_embed_back(n->pool, b.n_rows, n->h->d_model, batch->ids, n->dx, n->h->embed_scale,
                          dtable);
}

void net_match_attention(struct net *n, const float *w, const struct net_gates *gates,
                         uint32_t layer, size_t n_rows, const float *x, const float *target,
                         float scale, const struct net_gradients *out, struct net_match *match)
{
    struct net_kept *kept = &n->kept[layer % n->n_kept];
    struct back b = { .n = n, .w = w, .gates = gates, .out = out, .n_rows = n_rows,
                      .layer = layer, .t = &n->layers[layer], .kept = kept };
    net_attention(n, w, gates, layer, n_rows, x, kept);
    rowops_differ(n->pool, n_rows, n->h->d_model, n->sum, target, 2 * scale, n->dsum, n->row_sums);
    *match = (struct net_match){ 0 };
    for (size_t r = 0; r < n_rows; r++)
        match->off += n->row_sums[2 * r], match->size += n->row_sums[2 * r + 1];
    if (b.t->post_attn_norm)
        norm_back(&b, b.t->post_attn_norm, kept->attended, kept->inverse_attended, n->dsum,
                  n->dsum, false);
    attention_back(&b, false);
}
