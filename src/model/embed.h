/* embed.h: one vector of a text: which of its hidden rows count, and what is made of them.
 *
 * Hidden rows are those behind the last layer and the final norm, which logits are made from. The
 * engine adds them to the pool of an item (struct engine_job) in the order of the tokens. */
#ifndef MODEL_EMBED_H
#define MODEL_EMBED_H

#include <zerope/zerope.h>

struct embed {
    zp_pooling pooling; /* never the default */
    bool raw;           /* not scaled to length 1 */
    size_t width;       /* d_model */
    uint64_t n;         /* rows that were added */
    double *sum;        /* (width) */
};

/* The pooling that is meant: that of the model's file where none is named. */
zp_status embed_resolve(const zp_model *m, zp_pooling asked, zp_pooling *pooling, zp_err *err);
/* What can be refused before anything is computed. */
zp_status embed_check(const zp_engine *e, const int32_t *ids, size_t n, zp_err *err);
/* Whether it can do without the rows of tokens that a prefix cache holds. */
bool embed_may_reuse(zp_pooling pooling);
/* The rows it wants of the next tokens; last: they end the text. */
zp_want embed_want(const struct embed *m, bool last);
void embed_add(struct embed *m, const float *row);
/* The vector, out (width), once all rows were added. ZP_RUN: it is not finite. */
zp_status embed_finish(const struct embed *m, float *out, zp_err *err);

#endif
