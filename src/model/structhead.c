/* structhead.c: the structure head's tensors and its formula.
 * Owns: nothing; tensors lie in the file. Does not know: sequences, attention, how it learns. */
#include "model/structhead.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MOST_BIAS 1e6f /* beyond it a softmax sees nothing else */

const char *structhead_type_name(enum struct_type type)
{
    static const char *const names[STRUCT_TYPES] = { "heading", "xml_tag", "numbering", "table",
                                                     "code_fence", "list", "section", "break" };
    return names[type];
}

/* ---- reading --------------------------------------------------------------------------------- */

static zp_status read_bias(struct structhead *s, const struct gguf *g, uint32_t layer,
                           struct arena *arena, zp_err *err)
{
    char name[GGUF_MAX_NAME];
    const float *bias;
    snprintf(name, sizeof name, STRUCTHEAD_BIAS, layer);
    ZP_TRY(gguf_find_f32(g, name, STRUCT_TYPES, s->n_head, &bias, err));
    if (!bias) return ZP_OK;
    for (uint32_t i = 0; i < s->n_head * STRUCT_TYPES; i++)
        ZP_FAIL_IF(!(fabsf(bias[i]) <= MOST_BIAS), err, ZP_BAD_FILE,
                   "tensor %s holds %g at %u; expected -%g to %g", name, (double)bias[i], i,
                   (double)MOST_BIAS, (double)MOST_BIAS);
    if (!s->bias) s->bias = arena_array(arena, s->n_layer, sizeof *s->bias);
    ZP_FAIL_IF(!s->bias, err, ZP_NO_MEMORY, "not enough memory for the structure head");
    s->bias[layer] = bias;
    return ZP_OK;
}

zp_status structhead_read(struct structhead *s, const struct gguf *g, const struct hparams *h,
                          struct arena *arena, zp_err *err)
{
    *s = (struct structhead){ .n_layer = h->n_layer, .n_head = h->n_head, .d_model = h->d_model,
                              .eps = h->norm_eps, .embed_scale = h->embed_scale };
    ZP_TRY(gguf_find_f32(g, STRUCTHEAD_WEIGHT, h->d_model, STRUCT_TYPES, &s->weight, err));
    ZP_TRY(gguf_find_f32(g, STRUCTHEAD_GATE, h->d_model, 1, &s->gate, err));
    for (uint32_t l = 0; l < h->n_layer; l++) ZP_TRY(read_bias(s, g, l, arena, err));
    bool whole = s->weight && s->gate && s->bias, none = !s->weight && !s->gate && !s->bias;
    ZP_FAIL_IF(!whole && !none, err, ZP_BAD_FILE,
               "half a structure head: %s is %s, %s is %s, %s is %s; all of them or none",
               STRUCTHEAD_WEIGHT, s->weight ? "there" : "missing", STRUCTHEAD_GATE,
               s->gate ? "there" : "missing", "blk.N.struct_bias",
               s->bias ? "there" : "in no layer");
    return ZP_OK;
}

uint64_t structhead_count(const struct structhead *s)
{
    uint64_t n = s->weight ? (uint64_t)STRUCT_LOGITS * s->d_model : 0;
    for (uint32_t l = 0; l < s->n_layer; l++)
        if (structhead_bias(s, l)) n += (uint64_t)s->n_head * STRUCT_TYPES;
    return n;
}

/* ---- detecting ------------------------------------------------------------------------------- */

double structhead_logits(const float *weight, const float *gate, float eps, const float *x,
                         size_t n, double *z)
{
    double sum[STRUCT_LOGITS] = { 0 }, square = 0;
    for (size_t i = 0; i < n; i++) {
        double v = (double)x[i];
        square += v * v;
        for (size_t k = 0; k < STRUCT_TYPES; k++) sum[k] += (double)weight[k * n + i] * v;
        sum[STRUCT_TYPES] += (double)gate[i] * v;
    }
    double inverse = 1.0 / sqrt(square / (double)n + (double)eps);
    for (size_t k = 0; k < STRUCT_LOGITS; k++) z[k] = sum[k] * inverse;
    return inverse;
}

static double sigmoid(double z)
{
    return 1.0 / (1.0 + exp(-z));
}

void structhead_detect(const double *z, float *p, size_t step)
{
    double gate = sigmoid(z[STRUCT_TYPES]);
    for (size_t k = 0; k < STRUCT_TYPES; k++) p[k * step] = (float)(gate * sigmoid(z[k]));
}
