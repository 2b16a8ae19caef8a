/* net.h: a model as training runs it: from tokens to the hidden rows before the output matrix, and
 * back to the gradients of all parameters (netparam.h) and gates.
 * N1 same bits for any number of threads, and with or without `recompute`.
 * N2 hidden rows are those of the engine's exact path but for rounding: the same operations.
 * N3 what net_plan says is what net_open takes. */
#ifndef TRAIN_NET_H
#define TRAIN_NET_H

#include "train/gemm.h"
#include "train/guard.h"
#include "train/netparam.h"
#include "train/packer.h"

struct net;

struct net_options {
    uint32_t n_rows, n_ctx; /* most rows of a batch, most tokens of a row */
    bool forward_only;      /* a teacher: nothing is kept */
    bool recompute; /* keep the input of each layer alone, compute the rest again going back */
    bool mix;       /* gates between 0 and 1 (score mix) will be used: heads of twice the width */
};

/* How much position counts; NULL: as in the model's file. */
struct net_gates {
    const uint8_t *open; /* (n_layer, n_kv, n_pair) by original pair; 1: it turns, 0: it does not */
    const float *mix;    /* the same shape, instead of `open`: score mix, 0 to 1 */
    const float *bias;   /* (n_layer, n_head) factor of a head's bias */
    const uint32_t *window; /* (n_layer, n_kv) reach of local heads, 0: unlimited; with n_sink */
    uint32_t n_sink;
};

/* How a structure head is trained; all zero: as it runs. */
struct net_structure {
    const uint8_t *keep; /* (rows of the batch) bit k: its detector k is heard; NULL: all are */
    float kept;          /* times so much */
    float tag_weight;    /* of the detectors' loss against the batch's tags; 0: none */
};

struct net_gradients {
    float *w;              /* (n of netparam), added to; NULL: not wanted */
    const uint8_t *frozen; /* (n_tensors of netparam) 1: not wanted; NULL: all are */
    float *mix, *bias;     /* like the gates; added to; NULL: not wanted */
    /* Gets the gradient (n_out, n_in) of each matrix that stays in the file and is not frozen;
     * NULL: they are not wanted. */
    void (*take)(void *arg, const struct netparam_tensor *t, const float *dw);
    void *arg;
};

/* Bytes that net_open takes under MEM_ACTIVATION with that many threads. */
zp_status net_plan(const struct netparam *p, uint32_t n_threads, const struct net_options *o,
                   uint64_t *bytes, zp_err *err);
/* Most numbers that a product's operands have together: what net_open reserves of g (gemm.h). */
size_t net_operands(const struct netparam *p, const struct net_options *o);
/* p and g must outlive the net. Logit scales by head (attn_head_scale) are applied as the file has
 * them and get no gradient. ZP_UNSUPPORTED: what is not built names itself. */
zp_status net_open(struct net **out, const struct netparam *p, struct gemm *g,
                   const struct net_options *o, zp_err *err);
void net_close(struct net *n); /* NULL is fine */

/* hidden (rows of the batch, d_model): what the output matrix multiplies, the scale of logits
 * included. w: values of the parameters. */
void net_forward(struct net *n, const float *w, const struct net_gates *gates,
                 const struct packed *batch, float *hidden);
/* Of the last net_forward's batch, with the same w and gates: adds the gradients that follow from
 * dhidden. */
void net_backward(struct net *n, const float *w, const struct net_gates *gates,
                  const struct packed *batch, const float *dhidden,
                  const struct net_gradients *out);

/* Called by net_forward after each layer's attention: x (n_rows, d_model), the stream before the
 * layer; sum, what attention adds to it (before the residual's scale). fn NULL: no more. */
typedef void (*net_attention_fn)(void *arg, uint32_t layer, size_t n_rows, const float *x,
                                 const float *sum);
void net_hook_attention(struct net *n, net_attention_fn fn, void *arg);

/* What is added to each layer's feed-forward, and gets its gradient (pic.h): sum and dsum (n_rows,
 * d_model), index: the rows' positions. add NULL: nothing is. */
struct net_bridge {
    void (*add)(void *arg, uint32_t layer, size_t n_rows, const int32_t *index, float *sum);
    void (*back)(void *arg, uint32_t layer, size_t n_rows, const int32_t *index,
                 const float *dsum);
    void *arg;
};
void net_set_bridge(struct net *n, const struct net_bridge *bridge);
/* For the next net_forward or net_begin, and what goes back through it. keep must outlive both. */
void net_set_structure(struct net *n, const struct net_structure *structure);
/* Of the last forward: cross entropy of the detectors against the tags, summed over tokens that are
 * targets' and over detectors; 0 without tags or a structure head. */
double net_tag_loss(const struct net *n);

/* One layer's attention made to match another's: with x the stream before the layer, out gets the
 * gradients of scale * sum of squares of (what attention adds - target) by its parameters and
 * gates; x's own gradient is not taken, nor those of a structure head's detectors. The net must
 * have begun the batch, with the same w. Sums of squares over rows, in ascending order: */
struct net_match {
    double off, size; /* of the difference; of the target */
};
void net_begin(struct net *n, const float *w, const struct packed *batch);
void net_match_attention(struct net *n, const float *w, const struct net_gates *gates,
                         uint32_t layer, size_t n_rows, const float *x, const float *target,
                         float scale, const struct net_gradients *out, struct net_match *match);

const struct netparam_tensor *net_output(const struct net *n);
/* Its rows where it stays in the file, of a net: loss.h's loss_matrix.rows. */
const float *net_output_rows(void *net, size_t first, size_t n_rows, float *room);
/* From now on net_forward notes the largest norms of queries and keys: norms (n_layer); NULL: no
 * more. */
void net_watch(struct net *n, struct guard_norms *norms);

#endif
