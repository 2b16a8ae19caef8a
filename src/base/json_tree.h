/* json_tree.h: JSON text read into jansson's values, and values put together, such that memory that
 * runs out is never silent: jansson 2.14's own reader and a list with an item missing both are. */
#ifndef BASE_JSON_TREE_H
#define BASE_JSON_TREE_H

#include <jansson.h>
#include "compiler.h"
#include "status.h"

/* RFC 8259, minus \u0000, duplicate names, more than 2048 levels, and a value that is neither
 * object nor array. Objects keep the order of the text; numbers with a fraction or an exponent are
 * reals. name: for messages ("NAME: not valid JSON at line 1, column 2: ..."); wrong: the status of
 * wrong text. *out must be given to json_decref; NULL on failure. */
zp_status json_tree_read(const char *text, size_t size, const char *name, zp_status wrong,
                         json_t **out, zp_err *err);

/* The container with the value in it, which it takes; NULL, with both given back, when either is
 * NULL or memory runs out. A chain of calls can be checked by its last result:
 *     list = json_tree_add(list, json_integer(1));
 *     if (!json_pack("{s:o}", "list", list)) no memory at any of these places */
json_t *json_tree_add(json_t *list, json_t *item);
json_t *json_tree_put(json_t *object, const char *key, json_t *value);
/* An object with the same members (jansson's json_copy leaves out those it has no memory for).
 * NULL: no memory. */
json_t *json_tree_copy(const json_t *object);
/* Values whatever the number or the bytes are: null where x is not finite, U+FFFD in place of bytes
 * that are not UTF-8 (paths are bytes). NULL: no memory. */
json_t *json_tree_real(double x);
json_t *json_tree_text(const char *text);
/* A formatted text with a point in every locale. NULL: no memory, or not UTF-8. */
json_t *json_tree_printf(const char *fmt, ...) ZP_PRINTF(1, 2);

#endif
