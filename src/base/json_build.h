/* json_build.h: builds one JSON document piece by piece in a counted buffer, without a tree. Calls
 * never fail on their own: the first failure is kept and json_build_finish reports it. Text that is
 * not UTF-8 is written with U+FFFD in place of the bad bytes, numbers that are not finite as
 * null. */
#ifndef BASE_JSON_BUILD_H
#define BASE_JSON_BUILD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "bytes.h"

struct json_build {
    struct buffer out;
    struct buffer *to; /* NULL: out */
    zp_err *err;
    zp_status status;
    bool comma;   /* a value stands before the next one */
    bool compact; /* no blanks between values */
};

void json_build_open(struct json_build *w, zp_err *err);
/* *out: the document, NUL-terminated, released with mem_free; NULL on failure. out may be NULL. The
 * builder is gone in both cases. */
zp_status json_build_finish(struct json_build *w, char **out);

/* The same behind what is in a buffer, compact. Nothing is to be released: in place of
 * json_build_finish, w->status tells whether all of it is there. */
void json_build_append(struct json_build *w, struct buffer *to, zp_err *err);

/* key: the member's name inside an object, NULL inside an array. */
void json_build_object(struct json_build *w, const char *key);
void json_build_object_end(struct json_build *w);
void json_build_array(struct json_build *w, const char *key);
void json_build_array_end(struct json_build *w);
void json_build_text(struct json_build *w, const char *key, const char *text); /* NULL: null */
void json_build_bytes(struct json_build *w, const char *key, const char *text, size_t size);
void json_build_int(struct json_build *w, const char *key, int64_t x);
void json_build_uint(struct json_build *w, const char *key, uint64_t x);
/* digits: significant ones, at most 17 (17 gives the same double back). */
void json_build_real(struct json_build *w, const char *key, double x, int digits);
void json_build_bool(struct json_build *w, const char *key, bool x);
void json_build_null(struct json_build *w, const char *key);
/* The name alone, of any bytes; its value follows with key NULL. */
void json_build_key(struct json_build *w, const char *key, size_t size);
/* A value, or several with commas between them, that is JSON already. */
void json_build_raw(struct json_build *w, const char *key, const char *json, size_t size);

#endif
