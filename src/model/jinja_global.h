/* jinja_global.h: functions every chat template may call: raise_exception, namespace, range,
 * strftime_now and others. The table is jinja_globals of jinja_builtin.h. */
#ifndef MODEL_JINJA_GLOBAL_H
#define MODEL_JINJA_GLOBAL_H

#include "model/jinja_builtin.h"

zp_status jinja_call_joiner(struct jinja *c, struct jv joiner, struct jv *out);

#endif
