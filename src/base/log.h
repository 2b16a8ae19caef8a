/* log.h: levels and one sink; the library has no stdio of its own (I6). Default sink: none. */
#ifndef BASE_LOG_H
#define BASE_LOG_H
#include "compiler.h"

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };
typedef void (*log_sink)(void *arg, enum log_level level, const char *text);
void log_set_sink(log_sink sink, void *arg, enum log_level max_level);
void log_write(enum log_level level, const char *fmt, ...) ZP_PRINTF(2, 3);
#define log_warn(...) log_write(LOG_WARN, __VA_ARGS__)
#define log_info(...) log_write(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_write(LOG_DEBUG, __VA_ARGS__)

#endif
