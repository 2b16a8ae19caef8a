/* inspect.h: a model as one JSON document: zp_inspect_json, and the parts that other documents
 * share. */
#ifndef MODEL_INSPECT_H
#define MODEL_INSPECT_H

#include "kern/kern.h"
#include "base/json_build.h"
#include "model/model.h"

/* Members closed_gates [[layer, kv, pair]], local_heads [[layer, kv, reach]] and sinks, as plans
 * have them. */
void inspect_write_gates(struct json_build *w, const struct position *p);
/* Member "kernels": {level, features, operation: implementation, ...}. */
void inspect_write_kernels(struct json_build *w, const struct kern_table *t);

#endif
