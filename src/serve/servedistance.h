/* servedistance.h: /admin/distance: attention by distance and positional strength of the models
 * that are served, measured beside serving. docs/SERVER.md shows the documents. */
#ifndef SERVE_SERVEDISTANCE_H
#define SERVE_SERVEDISTANCE_H

#include "serve/service.h"

/* GET: the last measurement. */
void servedistance_last(const struct servecall *c);
/* POST: measures, and answers when it is done. */
void servedistance_measure(const struct servecall *c);

#endif
