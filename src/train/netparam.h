/* netparam.h: a model's parameters as one array of floats, and back into a file.
 * P1 every tensor of the model's file is one tensor here, but for what tells angles (rope_freqs,
 *    attn_rot_embd): the position table has read it.
 * P2 rows of q and k, their biases and norms, stand by original pair: pair i in rows 2i and 2i + 1
 *    of each head, whatever the file's order.
 *    Gains shared by heads of different orders become one row a head, here and when written.
 * P3 tensors begin at multiples of 16 floats; what lies between them is 0 and stays 0. */
#ifndef TRAIN_NETPARAM_H
#define TRAIN_NETPARAM_H

#include "model/model.h"

/* Whose channels a tensor's rows are. */
enum netparam_rows { NETPARAM_PLAIN, NETPARAM_QUERY_HEADS, NETPARAM_KEY_HEADS };

struct netparam_tensor {
    const char *name; /* as in the file */
    size_t at, n;     /* floats [at, at + n) of the array */
    size_t n_in;      /* row length; 1 for vectors */
    size_t n_out;     /* rows */
    uint32_t layer;   /* of "blk.N.": N; else n_layer */
    enum netparam_rows rows;
    bool matrix;      /* what weight decay acts on: all but gains, biases, scales */
};

struct netparam {
    const struct zp_model *model; /* stays open as long as this */
    struct netparam_tensor *tensors;
    size_t n_tensors;
    size_t n; /* floats of the array, gaps included */
    struct arena arena;
};

/* The layout alone. ZP_UNSUPPORTED: a tensor that no code reads; ZP_BAD_FILE: q or k with other
 * rows than the heads have. */
zp_status netparam_open(struct netparam *p, const struct zp_model *m, zp_err *err);
void netparam_close(struct netparam *p);
/* The file's values, as floats: w (n). ZP_BAD_FILE: one is not finite. */
zp_status netparam_read(const struct netparam *p, float *w, zp_err *err);
/* The model's file with these values: matrices in `type` (one that can be written; F32 where rows
 * do not fit its blocks), vectors and position tensors as f32. Evidence of the old values is left
 * out. Atomic; path may be the model's own. recipe: JSON text for zerope.recipe, or NULL.
 * ZP_BAD_INPUT: a value is not finite, or too large for the type. */
zp_status netparam_write(const struct netparam *p, const float *w, uint32_t type,
                         const char *recipe, const char *path, zp_err *err);
/* By name, the layer's number in place of %u: "blk.%u.attn_q.weight"; NULL if there is none. */
const struct netparam_tensor *netparam_find(const struct netparam *p, const char *format,
                                            uint32_t layer);

#endif
