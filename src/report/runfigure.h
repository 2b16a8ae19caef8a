/* runfigure.h: the picture of a training run: its curves, and which layers close when. */
#ifndef REPORT_RUNFIGURE_H
#define REPORT_RUNFIGURE_H

#include <jansson.h>
#include "report/canvas.h"
#include "report/closemap.h"
#include "report/curve.h"

enum { RUNFIGURE_MAX_PANELS = 7 };

struct runfigure {
    struct curve *panels; /* (n_panels) */
    size_t n_panels;
    struct closemap map;
    char title[192], subtitle[192];
};

/* doc: of zp_train_run_json. Series of other names than training writes are passed over. */
zp_status runfigure_read(struct runfigure *r, const json_t *doc, zp_err *err);
void runfigure_free(struct runfigure *r);
void runfigure_size(const struct runfigure *r, double *width, double *height);
void runfigure_draw(const struct runfigure *r, struct canvas *c);

#endif
