/* export_route.h: which stock format can say what a position table says, and how. */
#ifndef EVAP_EXPORT_ROUTE_H
#define EVAP_EXPORT_ROUTE_H

#include "model/model.h"

enum export_kind { EXPORT_STOCK_GGUF, EXPORT_HF };

/* How positions are said in the written file. */
enum export_way {
    EXPORT_AS_IS,     /* nothing is closed that the architecture does not close by itself */
    EXPORT_DIVISORS,  /* rope_freqs.weight, 1e30 at closed pairs (HF: llama3 scaling) */
    EXPORT_LINEAR,    /* linear scaling by 1e30 */
    EXPORT_PATTERN    /* layers with and without rotation: granite_swa, HF: smollm3 */
};

/* What a position table amounts to, pair numbers as in the original. */
struct export_shape {
    uint32_t n_layer, n_pair;
    uint32_t n_none;            /* layers that rotate nothing */
    uint32_t n_closed;          /* pairs closed in every rotating layer and head alike */
    bool none[1024];            /* (n_layer) */
    bool closed[512];           /* (n_pair) of the rotating layers; all where no layer rotates */
    bool is_free;               /* no layer rotates */
    bool closed_are_slowest;    /* the closed pairs are the last n_closed ones */
};

struct export_route {
    enum export_kind kind;
    enum export_way way;
    const char *arch;           /* general.architecture of the file, before it becomes a folder */
    enum arch_pairing pairing;  /* row order of that architecture */
    bool drops_scaling;         /* rope.scaling.* keys have no meaning any more */
    /* YaRN's factor on the logits, where the engine will not apply it: */
    float magnitude;
    bool magnitude_everywhere;  /* in all layers, else in those without rotation; to fold into q */
    struct export_shape shape;
};

/* ZP_UNSUPPORTED names the layer and head that prevent it and what to evaporate with instead. */
zp_status export_route_find(struct export_route *r, enum export_kind kind, const struct zp_model *m,
                            zp_err *err);
const char *export_way_name(enum export_way way);

#endif
