/* net_parts.h: what going forward and going back through a model share (net.c, net_back.c). */
#ifndef TRAIN_NET_PARTS_H
#define TRAIN_NET_PARTS_H

#include "train/distbias.h"
#include "train/gatedact.h"
#include "train/gaterows.h"
#include "train/net.h"
#include "train/rotary.h"
#include "train/rownorm.h"
#include "train/selfattend.h"
#include "train/structrows.h"

/* A layer's tensors; NULL where the model has none. */
struct net_layer {
    const struct netparam_tensor *q, *k, *v, *o, *gate, *up, *down;
    const struct netparam_tensor *attn_norm, *ffn_norm, *post_attn_norm, *post_ffn_norm;
    const struct netparam_tensor *q_norm, *k_norm, *q_bias, *k_bias, *v_bias, *o_bias;
    const struct netparam_tensor *alibi, *t5, *mlp[4], *pos_gate, *struct_bias;
};

/* What a layer's gradients need of its forward pass; R rows. */
struct net_kept {
    float *normed, *inverse;            /* (R, d_model), (R) */
    float *raw_q, *raw_k;               /* before their norms; NULL without */
    float *inverse_q, *inverse_k;       /* (R, n_head), (R, n_kv) */
    float *q, *k, *v;                   /* (R, n_head or n_kv, d_head); turned, but with a mix */
    float *o, *lse;                     /* (R, n_head, d_head), (n_head, R) */
    float *attended, *inverse_attended; /* before the norm behind attention; NULL without */
    float *middle;                      /* (R, d_model): the stream between attention and FFN */
    float *ffn_normed, *inverse_ffn;
    float *gate, *up, *act;             /* (R, d_ff) */
    float *widened, *inverse_widened;   /* before the norm behind the FFN; NULL without */
};

struct net {
    const struct netparam *p;
    const struct hparams *h;
    struct gemm *g;
    struct pool *pool;
    struct kern_table kern;
    struct net_options options;
    struct net_layer *layers; /* (n_layer) */
    const struct netparam_tensor *embedding, *output, *output_norm;
    const struct netparam_tensor *struct_weight, *struct_gate; /* NULL: no structure head */
    struct selfattend *attend, *attend_wide; /* heads of d_head; of a mix */
    uint8_t *open; /* (n_layer, n_kv, n_pair) of the model's file */
    float *bias_gate; /* (n_head) of the layer at hand: the file's times the caller's */
    bool has_bias, has_post, has_head_norm, has_gate;
    struct guard_norms *norms;
    net_attention_fn at_attention;
    void *at_attention_arg;
    struct net_bridge bridge;
    struct net_structure structure;
    double tag_loss;

    size_t n_x, n_kept;     /* of the lists below: layer l uses number l % n */
    float **x;              /* each (R, d_model): the stream before layer l; behind the last */
    struct net_kept *kept;
    float *inverse_out;     /* (R) */
    float *turns[2];        /* (n_ctx, n_pair, 2) cos and sin by position, of both angle sets */
    float *cs[2];           /* (R, n_pair, 2) of the batch's rows */
    float *steps, *phi;     /* (n_ctx, 8) position gates' features by position, (R, 8) of rows */
    float *row_scale;       /* (R) */
    float *bias_table, *dbias_table; /* (n_head, n_ctx) */
    float *dbias_gate;      /* (n_head) */
    double *bias_room;      /* distbias_scratch */
    float *wide_q, *wide_k; /* (R, heads, 2 d_head) of a mix */
    float *detected, *heard, *dheard; /* (STRUCT_TYPES, R) of a structure head */
    float *key_bias, *dkey_bias;      /* (n_head, R) */
    double *struct_room;              /* (R, STRUCT_LOGITS + 1) */
    float *sum;             /* (R, d_model) */
    float *room;            /* netparam_room floats: a matrix that stays in the file, or its dw */
    /* going back */
    float *dx, *dsum, *dnormed;     /* (R, d_model) */
    float *dq, *dk, *dv, *d_o;      /* like q, k, v, o; dq and dk wide with a mix */
    float *plain_dq, *plain_dk;     /* of a mix */
    float *dact;                    /* (R, d_ff) */
    float *scratch;                 /* of norms and mixes */
    double *row_sums;               /* (R, 2) */
    uint32_t *first;        /* (n_kv, R) first row that is seen */
    uint32_t *doc_start;    /* (R) */
    uint32_t *n_sink;       /* (n_kv) */
    int32_t *position;      /* (R) */
    float *memory;          /* all of the above */
};

static inline size_t net_rows(const struct packed *batch)
{
    return (size_t)batch->n_rows * batch->n_ctx;
}

/* The structure head on the batch's rows. */
struct structrows net_structure_of(const struct net *n, const float *w, const struct packed *batch);

/* How a layer's rows see each other, of the batch that net_forward began; b is complete but for q,
 * k and v. */
struct net_sight {
    struct selfattend_batch b;
    struct rotary turn;
    const uint8_t *open; /* (n_kv, n_pair); NULL: nothing turns */
    const float *mix;    /* (n_kv, n_pair); then open is not looked at; NULL: no mix */
};
void net_see(struct net *n, const float *w, const struct net_gates *gates, uint32_t layer,
             size_t n_rows, struct net_sight *out);
/* The norm of the heads' queries or keys. */
struct rownorm net_head_norm(const struct net *n, const float *w, size_t n_rows,
                             const struct net_kept *kept, bool of_keys,
                             const struct netparam_tensor *gain);
/* Queries, or their gradients, times the file's logit scales by head. */
void net_scale_heads(const struct net *n, uint32_t layer, size_t n_rows, float *q);
/* The layer's position gate, where it has one. */
struct gaterows net_gate_of(const struct net *n, const float *w, uint32_t layer, size_t n_rows);
/* bias_table's description. */
struct distbias net_bias_of(const struct net *n, const float *w, uint32_t layer);

/* A layer's matrix as floats, until the next one is asked for. */
static inline const float *net_matrix(struct net *n, const float *w,
                                      const struct netparam_tensor *t)
{
    return netparam_matrix(n->p, w, t, n->pool, n->room);
}

/* From x (R, d_model), the stream before it, to n->sum, what attention adds (norms included). */
void net_attention(struct net *n, const float *w, const struct net_gates *gates, uint32_t layer,
                   size_t n_rows, const float *x, struct net_kept *kept);
/* One layer: from x to what stands before the next; next NULL: its sum is not needed. */
void net_run_layer(struct net *n, const float *w, const struct net_gates *gates, uint32_t layer,
                   size_t n_rows, const float *x, float *next);

#endif
