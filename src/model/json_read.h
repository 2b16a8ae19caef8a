/* json_read.h: JSON from files into jansson values, with our limits and errors (file, line,
 * column). What is accepted: base/json_tree.h. */
#ifndef MODEL_JSON_READ_H
#define MODEL_JSON_READ_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/status.h"

/* name is for messages. *out must be given to json_decref; NULL on failure. */
zp_status json_read_text(const char *text, size_t size, const char *name, json_t **out,
                         zp_err *err);
/* For documents inside a file, which say nothing where they do not parse: *out = NULL and ZP_OK
 * when text is NULL or not valid JSON. Fails for memory only. */
zp_status json_read_or_null(const char *text, size_t size, json_t **out, zp_err *err);
/* A longer file than max bytes is refused. */
zp_status json_read_file(const char *path, size_t max, json_t **out, zp_err *err);

/* Members of an object. A member that is null counts as absent: *found = false, *out untouched.
 * where: the file, for messages. A value of another type or out of range is an error. */
zp_status json_read_u32(const json_t *object, const char *key, const char *where, uint32_t *out,
                        bool *found, zp_err *err);
zp_status json_read_number(const json_t *object, const char *key, const char *where, double *out,
                           bool *found, zp_err *err);
zp_status json_read_bool(const json_t *object, const char *key, const char *where, bool *out,
                         bool *found, zp_err *err);
/* The text lives as long as the object. */
zp_status json_read_string(const json_t *object, const char *key, const char *where,
                           const char **out, bool *found, zp_err *err);
/* *out = NULL when absent or null. */
zp_status json_read_object(const json_t *object, const char *key, const char *where,
                           const json_t **out, zp_err *err);
zp_status json_read_array(const json_t *object, const char *key, const char *where,
                          const json_t **out, zp_err *err);

#endif
