/* status.h (base): macros that fill and pass on zp_err. Public types are in
 * include/zerope/status.h. */
#ifndef BASE_STATUS_H
#define BASE_STATUS_H

#include <stddef.h>
#include <zerope/status.h>
#include "compiler.h"

/* Records the failure unless err already holds one (the first failure wins) or is NULL. Returns
 * code. */
zp_status status_fail(zp_err *err, zp_status code, const char *file, int line, const char *fmt, ...)
    ZP_PRINTF(5, 6);

/* Puts "path: " before the text of a failure that does not name its file; err may be NULL. */
void status_add_path(zp_err *err, const char *path);
/* Puts "job 3: " before the text of a failure; err may be NULL. */
void status_add_index(zp_err *err, const char *what, size_t index);

/* Puts the text behind that of a failure; err may be NULL. */
void status_add_hint(zp_err *err, const char *text);

/* The code is returned here, not through the call: the compiler then sees that a failure is never
 * ZP_OK, and that what a successful call fills is filled. */
#define ZP_FAIL(err, code, ...)                                               \
    do {                                                                      \
        zp_status zp_fail_code = (code);                                      \
        (void)status_fail((err), zp_fail_code, __FILE__, __LINE__, __VA_ARGS__); \
        return zp_fail_code == ZP_OK ? ZP_RUN : zp_fail_code;                 \
    } while (0)
#define ZP_FAIL_IF(cond, err, code, ...)                                      \
    do {                                                                      \
        if (cond) ZP_FAIL(err, code, __VA_ARGS__);                            \
    } while (0)
#define ZP_TRY(expr)                                       \
    do {                                                   \
        zp_status zp_try_status = (expr);                  \
        if (zp_try_status != ZP_OK) return zp_try_status;  \
    } while (0)

#endif
