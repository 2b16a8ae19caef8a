/* battery_detect.c: the detectors of a structure head beside the structure of held-out documents.
 * A detector knows a token and nothing around it: what it says of one is computed once. */
#include <string.h>

#include "evap/battery.h"
#include "evap/heldwin.h"

/* Bits of the detectors that say yes to a token. x: room for its embedding. */
static uint8_t bits_of(const struct battery *b, int32_t id, float *x)
{
    const struct structhead *s = &b->m->structure;
    double z[STRUCT_LOGITS];
    float p[STRUCT_TYPES];
    uint8_t bits = 0;
    weights_embed(&b->side.e->weights, (uint32_t)id, x);
    for (uint32_t i = 0; i < s->d_model; i++) x[i] *= s->embed_scale;
    (void)structhead_logits(s->weight, s->gate, s->eps, x, s->d_model, z);
    structhead_detect(z, p, 1);
    for (int k = 0; k < STRUCT_TYPES; k++) bits |= (uint8_t)((p[k] > 0.5f) << k);
    return bits;
}

static void count(struct battery *b, uint16_t tag, uint8_t bits)
{
    for (int k = 0; k < STRUCT_TYPES; k++) {
        b->detectors[k].n_tagged += tag >> k & 1;
        b->detectors[k].n_found += bits >> k & 1;
        b->detectors[k].n_both += tag >> k & bits >> k & 1;
    }
}

zp_status battery_detect(struct battery *b, const struct heldwin_set *w, zp_err *err)
{
    uint16_t *known; /* (n_vocab) bits and one above them: they are known */
    float *x;
    if (!b->m->structure.weight) return ZP_OK;
    ZP_ALLOC(known, MEM_EVAP, b->m->h.n_vocab, err, "what detectors say");
    x = mem_array(MEM_EVAP, b->m->h.d_model, sizeof *x);
    if (x) memset(known, 0, b->m->h.n_vocab * sizeof *known);
    for (uint32_t i = 0; x && i < w->n; i++)
        for (uint32_t p = 0; p < w->length; p++) {
            int32_t id = w->at[i].tokens[1 + p];
            if (w->at[i].place[p] == HELDWIN_SEPARATOR) continue;
            if (!known[id]) known[id] = (uint16_t)(bits_of(b, id, x) | 1u << STRUCT_TYPES);
            count(b, b->tagger.tags[w->at[i].place[p]], (uint8_t)known[id]);
        }
    mem_free(known);
    ZP_FAIL_IF(!x, err, ZP_NO_MEMORY, "not enough memory for a token's embedding");
    mem_free(x);
    return ZP_OK;
}
