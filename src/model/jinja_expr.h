/* jinja_expr.h: the expressions of a chat template: the half of the parser that statements call. */
#ifndef MODEL_JINJA_EXPR_H
#define MODEL_JINJA_EXPR_H

#include "model/jinja_parse.h"

enum jtuple_flags { TUPLE_SIMPLE = 1, TUPLE_NO_COND = 2, TUPLE_PARENS = 4, TUPLE_NAMESPACE = 8 };
zp_status jparse_expression(struct jparser *p, struct jnode **out);
/* end_name: a name that ends the tuple ("in", "recursive"), or NULL */
zp_status jparse_tuple(struct jparser *p, unsigned flags, const char *end_name, struct jnode **out);
zp_status jparse_target(struct jparser *p, unsigned flags, const char *end_name,
                        struct jnode **out);
zp_status jparse_name_target(struct jparser *p, struct jnode **out);
/* Filters behind `input` (NULL: the text of a block). inline_first: the first name has no '|' in
 * front. */
zp_status jparse_filters(struct jparser *p, struct jnode *input, bool inline_first,
                         struct jnode **out);

#endif
