/* gateset.c: closed gates and local heads.
 * Owns: the two arrays. Does not know: importance, text.
 * Invariant: a gate that the file has closed is closed in every set made from it. */
#include "evap/gateset.h"

#include <string.h>

#include "base/json_tree.h"

zp_status gateset_open(struct gateset *g, const struct position *p, zp_err *err)
{
    *g = (struct gateset){
        .n_layer = p->n_layer, .n_kv = p->n_kv, .n_pair = p->n_pair, .n_sink = p->n_sink
    };
    g->open = mem_zalloc(MEM_EVAP, gateset_total(g));
    g->window = mem_zalloc(MEM_EVAP, (size_t)g->n_layer * g->n_kv * sizeof *g->window);
    if (!g->open || !g->window) {
        gateset_free(g);
        ZP_FAIL(err, ZP_NO_MEMORY, "not enough memory for a set of gates");
    }
    for (uint32_t i = 0; i < p->n_layer * p->n_kv; i++) {
        g->window[i] = p->heads[i].window;
        for (uint32_t s = 0; s < p->heads[i].n_open; s++)
            g->open[(size_t)i * p->n_pair + p->heads[i].pair[s]] = 1;
    }
    return ZP_OK;
}

zp_status gateset_copy(struct gateset *to, const struct gateset *from, zp_err *err)
{
    size_t heads = (size_t)from->n_layer * from->n_kv;
    *to = *from;
    to->open = mem_alloc(MEM_EVAP, gateset_total(from));
    to->window = mem_alloc(MEM_EVAP, heads * sizeof *to->window);
    if (!to->open || !to->window) {
        gateset_free(to);
        ZP_FAIL(err, ZP_NO_MEMORY, "not enough memory for a set of gates");
    }
    memcpy(to->open, from->open, gateset_total(from));
    memcpy(to->window, from->window, heads * sizeof *to->window);
    return ZP_OK;
}

void gateset_free(struct gateset *g)
{
    mem_free(g->open);
    mem_free(g->window);
    memset(g, 0, sizeof *g);
}

void gateset_apply(const struct gateset *g, struct zp_engine *e)
{
    e->forward.gates = g->open;
    e->forward.windows = g->window;
    e->forward.n_sink = g->n_sink;
}

void gateset_release(struct zp_engine *e)
{
    e->forward.gates = NULL;
    e->forward.windows = NULL;
    e->forward.n_sink = 0;
}

size_t gateset_closed(const struct gateset *g)
{
    size_t n = 0;
    for (size_t i = 0; i < gateset_total(g); i++) n += !g->open[i];
    return n;
}

uint32_t gateset_heads_local(const struct gateset *g)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->n_layer * g->n_kv; i++) n += g->window[i] != 0;
    return n;
}

struct gate_counts gateset_count(const struct gateset *g, const struct position *p)
{
    struct gate_counts n;
    position_gates(p, &n.total, &n.closed, &n.layers_none, &n.heads_none, &n.heads_local);
    n.layers_none = n.heads_none = 0;
    n.heads_local = gateset_heads_local(g);
    for (uint32_t l = 0; l < g->n_layer; l++) {
        uint32_t none = 0;
        /* its gates are no pairs: as the file has them */
        if (position_layer_has_bias(p, l)) continue;
        for (uint32_t h = l * g->n_kv; h < (l + 1) * g->n_kv; h++) {
            uint32_t open = 0;
            for (uint32_t i = 0; i < g->n_pair; i++) open += g->open[(size_t)h * g->n_pair + i];
            n.closed += p->heads[h].n_open - open;
            none += open == 0;
        }
        n.heads_none += none;
        n.layers_none += none == g->n_kv;
    }
    return n;
}

zp_status gateset_to_json(const struct gateset *g, const struct position *p, json_t **out,
                          zp_err *err)
{
    json_t *closed = json_array(), *local = json_array();
    for (uint32_t l = 0; l < g->n_layer; l++)
        for (uint32_t k = 0; k < g->n_kv; k++) {
            uint32_t w = g->window[l * g->n_kv + k];
            if (w) local = json_tree_add(local, json_pack("[iii]", (int)l, (int)k, (int)w));
            for (uint32_t i = 0; i < g->n_pair && !position_layer_has_bias(p, l); i++)
                if (!g->open[gateset_at(g, l, k, i)])
                    closed = json_tree_add(closed, json_pack("[iii]", (int)l, (int)k, (int)i));
        }
    *out = json_pack("{sosos:i}", "closed_gates", closed, "local_heads", local, "sinks",
                     (int)g->n_sink);
    ZP_FAIL_IF(!*out, err, ZP_NO_MEMORY, "not enough memory for the plan document");
    return ZP_OK;
}

static zp_status read_triple(const json_t *item, uint32_t n[3], const char *what, zp_err *err)
{
    for (size_t i = 0; i < 3; i++) {
        const json_t *v = json_array_get(item, i);
        ZP_FAIL_IF(!json_is_integer(v) || json_integer_value(v) < 0 ||
                       json_integer_value(v) > INT32_MAX,
                   err, ZP_BAD_INPUT, "%s: each item must be three numbers", what);
        n[i] = (uint32_t)json_integer_value(v);
    }
    return ZP_OK;
}

zp_status gateset_from_json(struct gateset *g, const json_t *closed, const json_t *local,
                            zp_err *err)
{
    for (size_t i = 0; i < json_array_size(closed); i++) {
        uint32_t n[3];
        ZP_TRY(read_triple(json_array_get(closed, i), n, "closed_gates", err));
        ZP_FAIL_IF(n[0] >= g->n_layer || n[1] >= g->n_kv || n[2] >= g->n_pair, err, ZP_BAD_INPUT,
                   "the plan closes gate [%u, %u, %u]; the model has %u x %u x %u", n[0], n[1],
                   n[2], g->n_layer, g->n_kv, g->n_pair);
        g->open[gateset_at(g, n[0], n[1], n[2])] = 0;
    }
    for (size_t i = 0; i < json_array_size(local); i++) {
        uint32_t n[3];
        ZP_TRY(read_triple(json_array_get(local, i), n, "local_heads", err));
        ZP_FAIL_IF(n[0] >= g->n_layer || n[1] >= g->n_kv, err, ZP_BAD_INPUT,
                   "the plan shortens head [%u, %u]; the model has %u x %u", n[0], n[1], g->n_layer,
                   g->n_kv);
        g->window[n[0] * g->n_kv + n[1]] = n[2];
    }
    return ZP_OK;
}
