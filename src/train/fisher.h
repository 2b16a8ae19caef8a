/* fisher.h: what gates are worth by gradients: how the loss changes with each gate, and its Fisher
 * information, of a model whose open gates all stand at 1 in the score mix (rotary.h).
 * With labels y_t at the positions t that count, and
 *   G_w(g) = sum over t of window w of  d -ln p(y_t | tokens up to t) / dg
 * the T positions of all windows give, in nats a token,
 *   first order = | sum over w of G_w | / T     y_t: the text's own next token
 *   fisher      =   sum over w of G_w^2 / T     y_t: drawn from p, once a position
 * Of drawn labels the terms of G_w have mean 0 and are independent, so the expectation of G_w^2 is
 * the sum of the expected squares of its terms: one backward pass a window is enough. A gate that
 * closes alone costs a KL of about fisher / 2, as far as the second order reaches.
 * F1 the label at position t of window w, the first window being 0, comes from draw t of stream
 *    FISHER_STREAM + w of the seed (loss_draw), whatever was measured before.
 * F2 same bits for any number of threads.
 * F3 what is closed in the model's file is worth 0. */
#ifndef TRAIN_FISHER_H
#define TRAIN_FISHER_H

#include "model/model.h"

#define FISHER_STREAM 0x6669736865720000u

struct fisher;
struct fisher_options {
    uint32_t n_ctx;     /* tokens of a window */
    uint32_t begin;     /* the first position that counts; below n_ctx - 1 */
    uint32_t n_threads; /* 0: one a core */
    uint64_t seed;
};

/* The model's parameters as f32, the stream before each layer and all rows of one layer, of one
 * window. The model must stay open. ZP_NO_MEMORY says what is needed; ZP_UNSUPPORTED: net.h. */
zp_status fisher_open(struct fisher **out, const struct zp_model *m,
                      const struct fisher_options *o, zp_err *err);
void fisher_close(struct fisher *f); /* NULL is fine */

/* The next window: ids (n_ctx). Takes two forward and two backward passes. */
void fisher_add(struct fisher *f, const int32_t *ids);
/* Of the windows so far, at least one: (n_layer, n_kv, n_pair) by original pair. */
void fisher_values(const struct fisher *f, double *fisher, double *first_order);

#endif
