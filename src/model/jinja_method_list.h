/* jinja_method_list.h: methods of Python's list, tuple and dict. The tables are in jinja_builtin.h.
 */
#ifndef MODEL_JINJA_METHOD_LIST_H
#define MODEL_JINJA_METHOD_LIST_H

#include "model/jinja_builtin.h"

#endif
