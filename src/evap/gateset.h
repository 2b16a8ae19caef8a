/* gateset.h: which gates are closed and which heads are local: the state that plans move
 * through. */
#ifndef EVAP_GATESET_H
#define EVAP_GATESET_H

#include <jansson.h>
#include "model/engine.h"

struct gateset {
    uint32_t n_layer, n_kv, n_pair;
    uint8_t *open;    /* (n_layer, n_kv, n_pair) by original pair: 1 open, 0 closed */
    uint32_t *window; /* (n_layer, n_kv) reach of local heads, 0 = unlimited */
    uint32_t n_sink;
};

/* As the model's file has it. */
zp_status gateset_open(struct gateset *g, const struct position *p, zp_err *err);
zp_status gateset_copy(struct gateset *to, const struct gateset *from, zp_err *err);
void gateset_free(struct gateset *g);
void gateset_apply(const struct gateset *g, struct zp_engine *e); /* until gateset_release */
void gateset_release(struct zp_engine *e);

static inline size_t gateset_at(const struct gateset *g, uint32_t layer, uint32_t kv, uint32_t pair)
{
    return ((size_t)layer * g->n_kv + kv) * g->n_pair + pair;
}
static inline size_t gateset_total(const struct gateset *g)
{
    return (size_t)g->n_layer * g->n_kv * g->n_pair;
}
size_t gateset_closed(const struct gateset *g);
uint32_t gateset_heads_local(const struct gateset *g);

/* As zp_model_describe will count them in a file written from the set; p: of the model it is
 * for. */
struct gate_counts {
    uint32_t total, closed, layers_none, heads_none, heads_local;
};
struct gate_counts gateset_count(const struct gateset *g, const struct position *p);

/* Closed gates as [[layer, kv, pair], ...], local heads as [[layer, kv, window], ...]. Layers with
 * a distance bias have no pairs. */
zp_status gateset_to_json(const struct gateset *g, const struct position *p, json_t **out,
                          zp_err *err);
zp_status gateset_from_json(struct gateset *g, const json_t *closed, const json_t *local,
                            zp_err *err);

#endif
