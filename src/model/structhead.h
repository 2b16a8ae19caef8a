/* structhead.h: the structure head: eight detectors of what a token is in a document's structure,
 * and how much each query head listens to them. A key's detectors p follow from its token alone;
 * the logit of a query of head h with it gets struct_bias[h] . p on top, at any distance.
 *   u = x / sqrt(mean(x^2) + eps), x the token's embedding as it enters the first layer
 *   p = sigmoid(gate . u) sigmoid(weight u) */
#ifndef MODEL_STRUCTHEAD_H
#define MODEL_STRUCTHEAD_H

#include "model/arch.h"

/* What detectors detect, in the order of their rows. */
enum struct_type {
    STRUCT_HEADING,   /* Markdown's # and underlines */
    STRUCT_XML_TAG,   /* <name ...>, </name>, <!-- -->  */
    STRUCT_NUMBERING, /* 1. 1) (a) 2.3.1 before an item or a heading */
    STRUCT_TABLE,     /* bars and rules of tables */
    STRUCT_CODE_FENCE,
    STRUCT_LIST,      /* bullets */
    STRUCT_SECTION,   /* [SECTION:x], [PARA:x] */
    STRUCT_BREAK,     /* page and column breaks, rules across the page */
    STRUCT_TYPES
};
const char *structhead_type_name(enum struct_type type);

struct structhead {
    const float *weight; /* (STRUCT_TYPES, d_model); NULL: the model has no structure head */
    const float *gate;   /* (d_model) */
    const float **bias;  /* (n_layer) each (n_head, STRUCT_TYPES), or NULL: the layer has none */
    uint32_t n_layer, n_head, d_model;
    float eps, embed_scale;
};

/* Names of its tensors; of the last one the layer's number in place of %u. */
#define STRUCTHEAD_WEIGHT "struct_head.weight"
#define STRUCTHEAD_GATE "struct_head.gate"
#define STRUCTHEAD_BIAS "blk.%u.struct_bias"

/* ZP_BAD_FILE: a tensor of another shape or type, half a head, a head that no layer listens to. */
zp_status structhead_read(struct structhead *s, const struct gguf *g, const struct hparams *h,
                          struct arena *arena, zp_err *err);
/* (n_head, STRUCT_TYPES) of the layer, or NULL. */
static inline const float *structhead_bias(const struct structhead *s, uint32_t layer)
{
    return s->weight && s->bias ? s->bias[layer] : NULL;
}
uint64_t structhead_count(const struct structhead *s); /* its parameters */

/* z: of the eight detectors, then of the gate, from x (n), an embedding already scaled. Returns
 * 1 / sqrt(mean(x^2) + eps). Sums in double, in ascending channels. */
enum { STRUCT_LOGITS = STRUCT_TYPES + 1 };
double structhead_logits(const float *weight, const float *gate, float eps, const float *x,
                         size_t n, double *z /* (STRUCT_LOGITS) */);
/* p[k step] of the eight detectors from their logits. */
void structhead_detect(const double *z, float *p, size_t step);

#endif
