/* jinja_expr.h: the expressions of a chat template: the half of the parser that statements call. */
#ifndef MODEL_JINJA_EXPR_H
#define MODEL_JINJA_EXPR_H

#include "model/jinja_parse.h"

enum tuple_flags { TUPLE_SIMPLE = 1, TUPLE_NO_COND = 2, TUPLE_PARENS = 4, TUPLE_NAMESPACE = 8 };
zp_status parse_expression(struct parser *p, struct node **out);
/* end_name: a name that ends the tuple ("in", "recursive"), or NULL */
zp_status parse_tuple(struct parser *p, unsigned flags, const char *end_name, struct node **out);
zp_status parse_target(struct parser *p, unsigned flags, const char *end_name, struct node **out);
zp_status parse_name_target(struct parser *p, struct node **out);
/* Filters behind `input` (NULL: the text of a block). inline_first: the first name has no '|' in
 * front. */
zp_status parse_filters(struct parser *p, struct node *input, bool inline_first, struct node **out);

#endif
