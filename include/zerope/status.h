/* status.h: status codes and the error record that every fallible call of zerope fills.
 * A call returns ZP_OK or a negative code; on failure the caller's zp_err holds the first failure's
 * place and text.
 * A record must be zero (zp_err err = { 0 };) before the first call it is given to. It keeps the
 * first failure: a call that succeeds leaves it as it is, and one that fails does not write to a
 * record whose code is not ZP_OK, so that the cause can be read after several calls. To use it
 * again after a failure, set its code to ZP_OK. What a call returns is its own status in any
 * case. */
#ifndef ZEROPE_STATUS_H
#define ZEROPE_STATUS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef ZP_API
#if defined(__GNUC__)
#define ZP_API __attribute__((visibility("default")))
#else
#define ZP_API
#endif
#endif

/* X(name, value, process exit code, text): one list makes the enum, the names and the exit
 * codes. */
#define ZP_STATUS_LIST(X)                                                                          \
    X(ZP_OK, 0, 0, "ok")                                                                           \
    X(ZP_RUN, -1, 1, "run error")                                                                  \
    X(ZP_IO, -2, 1, "input/output error")                                                          \
    X(ZP_USAGE, -3, 2, "usage error")                                                              \
    X(ZP_BAD_FILE, -4, 3, "invalid model file")                                                    \
    X(ZP_BAD_INPUT, -5, 3, "invalid input")                                                        \
    X(ZP_UNSUPPORTED, -6, 3, "unsupported")                                                        \
    X(ZP_NO_MEMORY, -7, 4, "not enough memory")                                                    \
    X(ZP_NO_SPACE, -8, 4, "not enough disk space")                                                 \
    X(ZP_VERIFY, -9, 5, "verification failed")                                                     \
    X(ZP_INTERRUPTED, -10, 130, "interrupted")

typedef enum zp_status {
#define ZP_STATUS_ENUM(name, value, exit_code, text) name = (value),
    ZP_STATUS_LIST(ZP_STATUS_ENUM)
#undef ZP_STATUS_ENUM
} zp_status;

typedef struct zp_err {
    zp_status code;   /* ZP_OK while nothing failed; set it so to use the record again */
    const char *file; /* source file of the first failure, static string */
    int line;
    char message[512]; /* UTF-8: what was found, what was expected, a hint */
} zp_err;

ZP_API const char *zp_status_name(zp_status status); /* "ZP_BAD_FILE"; never NULL */
ZP_API const char *zp_status_text(zp_status status); /* "invalid model file"; never NULL */
/* Process exit code: 0, 1, 2, 3, 4, 5 or 130. */
ZP_API int zp_status_exit_code(zp_status status);

#ifdef __cplusplus
}
#endif

#endif
