/* closemap.h: how many gates of each layer are closed, by step, as a picture. */
#ifndef REPORT_CLOSEMAP_H
#define REPORT_CLOSEMAP_H

#include <jansson.h>
#include "report/canvas.h"

enum { CLOSEMAP_COLUMNS = 120, CLOSEMAP_MAX_LAYERS = 1024 };

struct closemap {
    uint32_t n_layer; /* 0: no event; else up to the last one with an event */
    size_t n_columns; /* each as many steps */
    double last_step, most;
    double *closed;   /* (n_layer, n_columns) at the end of the column */
};

/* events: [{"event", "layer", "step", "count"}, ...], checked; those that are neither "gate" nor
 * "bias" with "closed" or "opened" are passed over. */
zp_status closemap_read(struct closemap *m, const json_t *events, double last_step, zp_err *err);
void closemap_free(struct closemap *m);
double closemap_height(const struct closemap *m);
/* (x, y): corner; takes `width` pixels from there. */
void closemap_draw(const struct closemap *m, struct canvas *c, double x, double y, double width);

#endif
