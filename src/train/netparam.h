/* netparam.h: a model's parameters as one array of floats, or, of matrices that do not learn, as
 * the file has them; and back into a file.
 * P1 every tensor of the model's file is one tensor here, but for what tells angles (rope_freqs,
 *    attn_rot_embd): the position table has read it.
 * P2 rows of q and k, their biases and norms, stand by original pair: pair i in rows 2i and 2i + 1
 *    of each head, whatever the file's order.
 *    Gains shared by heads of different orders become one row a head, here and when written.
 * P3 tensors begin at multiples of 16 floats; what lies between them is 0 and stays 0.
 * P4 a matrix that stays in the file has no place in the array: netparam_rows and netparam_matrix
 *    widen it, to the same floats that netparam_read would have put there. */
#ifndef TRAIN_NETPARAM_H
#define TRAIN_NETPARAM_H

#include "base/pool.h"
#include "model/model.h"

/* Whose channels a tensor's rows are. */
enum netparam_rows { NETPARAM_PLAIN, NETPARAM_QUERY_HEADS, NETPARAM_KEY_HEADS };

struct netparam_tensor {
    const char *name; /* as in the file */
    const struct gguf_tensor *file;
    size_t at, n;     /* floats [at, at + n) of the array; in_file: at says nothing */
    size_t n_in;      /* row length; 1 for vectors */
    size_t n_out;     /* rows */
    uint32_t layer;   /* of "blk.N.": N; else n_layer */
    enum netparam_rows rows;
    bool matrix;      /* what weight decay acts on: all but gains, biases, scales */
    bool in_file;     /* P4 */
};

/* Called with a matrix (n_out, n_in) that was widened as a whole: adapters add to it. */
typedef void (*netparam_change_fn)(void *arg, const struct netparam_tensor *t, float *w);

struct netparam {
    const struct zp_model *model; /* stays open as long as this */
    struct netparam_tensor *tensors;
    size_t n_tensors;
    size_t n; /* floats of the array, gaps included */
    uint64_t file_bytes; /* of what stays in the file, counted under MEM_WEIGHTS */
    netparam_change_fn change;
    void *change_arg;
    struct arena arena;
};

/* The layout alone. ZP_UNSUPPORTED: a tensor that no code reads; ZP_BAD_FILE: q or k with other
 * rows than the heads have. */
zp_status netparam_open(struct netparam *p, const struct zp_model *m, zp_err *err);
void netparam_close(struct netparam *p);
/* Matrices of layers, embedding and output that `learns` says no to stay in the file, all of them
 * where it is NULL. Comes before everything that is laid out like the array. */
typedef bool (*netparam_learns_fn)(void *arg, const struct netparam_tensor *t);
void netparam_leave(struct netparam *p, netparam_learns_fn learns, void *arg);
void netparam_set_change(struct netparam *p, netparam_change_fn change, void *arg);
/* The file's values, as floats: w (n). ZP_BAD_FILE: one is not finite, here or of what stays in the
 * file. */
zp_status netparam_read(const struct netparam *p, float *w, zp_err *err);
/* Rows [first, first + n) of a matrix: in w, or widened into room (n, n_in); without what `change`
 * makes of them. */
const float *netparam_rows(const struct netparam *p, const float *w,
                           const struct netparam_tensor *t, struct pool *pool, size_t first,
                           size_t n, float *room);
/* All of a layer's matrix: in w, or in room, changed. */
const float *netparam_matrix(const struct netparam *p, const float *w,
                             const struct netparam_tensor *t, struct pool *pool, float *room);
/* Floats of the largest matrix of a layer that stays in the file; 0: none does. */
size_t netparam_room(const struct netparam *p);
/* out (n, n_in): the rows of these numbers, of a matrix that stays in the file. */
void netparam_gather(const struct netparam *p, const struct netparam_tensor *t, struct pool *pool,
                     size_t n, const int32_t *ids, float *out);
/* The model's file with these values; what stays in the file has its own, changed. Matrices in
 * `type` (one that can be written; F32 where rows do not fit its blocks), vectors and position
 * tensors as f32. Evidence of the old values is left out. Atomic; path may be the model's own.
 * recipe: JSON text for zerope.recipe, or NULL.
 * ZP_BAD_INPUT: a value is not finite, or too large for the type. */
zp_status netparam_write(const struct netparam *p, const float *w, uint32_t type,
                         const char *recipe, const char *path, zp_err *err);
/* By name, the layer's number in place of %u: "blk.%u.attn_q.weight"; NULL if there is none. */
const struct netparam_tensor *netparam_find(const struct netparam *p, const char *format,
                                            uint32_t layer);
/* The output matrix (n_vocab, d_model): the embedding where they are one. */
const struct netparam_tensor *netparam_output(const struct netparam *p);

#endif
