/* jinja_method_str.h: methods of Python's str. The table is jinja_str_methods of jinja_builtin.h.
 */
#ifndef MODEL_JINJA_METHOD_STR_H
#define MODEL_JINJA_METHOD_STR_H

#include "model/jinja_builtin.h"

#endif
