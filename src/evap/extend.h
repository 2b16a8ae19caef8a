/* extend.h: parts that learn what taking positions out costs, added to a model: position gates and
 * a structure head. The public call is zp_model_extend. */
#ifndef EVAP_EXTEND_H
#define EVAP_EXTEND_H

#include <zerope/evap.h>

#include "model/model.h"

/* How many layers listen to a structure head of that size (zp_extend_options.head_size; NULL:
 * auto). ZP_USAGE: no such size. */
zp_status extend_head_layers(const struct zp_model *m, const char *size, uint32_t *n, zp_err *err);

#endif
