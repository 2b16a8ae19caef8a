/* jinja_builtin.h: the tables of filters, tests, methods and functions that templates may use, and
 * how they are called. One row each: name, function, parameter names, how many are required. */
#ifndef MODEL_JINJA_BUILTIN_H
#define MODEL_JINJA_BUILTIN_H

#include "model/jinja_value.h"

/* NULL when there is none of that name. */
const struct jbuiltin *jinja_find_filter(const char *name, size_t size);
const struct jbuiltin *jinja_find_test(const char *name, size_t size);
const struct jbuiltin *jinja_find_method(enum jkind kind, const char *name, size_t size);
const struct jbuiltin *jinja_find_global(const char *name, size_t size);

/* Binds arguments to parameters and calls. what = "filter", "test", "function" for messages. */
zp_status jinja_call_builtin(struct jinja *c, const struct jbuiltin *b, const char *what,
                             struct jv self, const struct jargs *args, struct jv *out);

/* Reading bound arguments; name is for the message. Absent ones leave *out as it was. */
zp_status jarg_int(struct jinja *c, struct jv v, const char *name, int64_t *out);
zp_status jarg_str(struct jinja *c, struct jv v, const char *name, const struct jstr **out);
ZP_INLINE bool jarg_truth(struct jv v, bool otherwise)
{
    return v.kind == J_MISSING ? otherwise : jv_truth(v);
}

/* The tables, one a file. */
struct jbuiltin_table {
    const struct jbuiltin *rows;
    size_t n;
};
extern const struct jbuiltin_table jinja_text_filters, jinja_list_filters, jinja_tests,
    jinja_str_methods, jinja_list_methods, jinja_dict_methods, jinja_tuple_methods,
    jinja_cycler_methods, jinja_loop_methods, jinja_globals;

#endif
