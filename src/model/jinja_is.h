/* jinja_is.h: the tests of chat templates ("x is string"). The table is jinja_tests of
 * jinja_builtin.h. */
#ifndef MODEL_JINJA_IS_H
#define MODEL_JINJA_IS_H

#include "model/jinja_builtin.h"

#endif
