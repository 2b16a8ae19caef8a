/* heatmap.h: gates as a picture: layer and KV head downwards, RoPE pair to the right. */
#ifndef REPORT_HEATMAP_H
#define REPORT_HEATMAP_H

#include <jansson.h>
#include "report/canvas.h"

enum heat_state { HEAT_OPEN, HEAT_CLOSED };

struct heatmap {
    uint32_t n_layer, n_kv, n_pair;
    double *value;        /* (n_layer, n_kv, n_pair) importance, or NULL */
    uint8_t *state;       /* (n_layer, n_kv, n_pair) enum heat_state */
    uint32_t *reach;      /* (n_layer, n_kv) of local heads, 0 = unlimited */
    double low, high;     /* ends of the colour scale, both > 0; value only */
    size_t n_closed, n_local;
    char title[96], subtitle[256];
};

/* doc: a SCAN ("gates"), a PLAN, an inspect document or the "position" of a verify document
 * ("closed_gates", "local_heads"). Whatever it holds is checked. */
zp_status heatmap_read(struct heatmap *h, const json_t *doc, zp_err *err);
void heatmap_free(struct heatmap *h);
void heatmap_size(const struct heatmap *h, double *width, double *height);
void heatmap_draw(const struct heatmap *h, struct canvas *c);

#endif
