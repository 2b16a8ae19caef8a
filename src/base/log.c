/* log.c: one process-wide sink. Owns: the sink pointer and its level. Never touches stdio.
 * Threads: any thread may log; the sink is set before threads start or between runs, and must
 * itself be thread safe. */
#include "log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>

#include "bytes.h"
#include "numtext.h"

#define LOG_LINE 1024

static _Atomic(log_sink) sink_fn;
static _Atomic(void *) sink_arg;
static atomic_int sink_level = -1;

void log_set_sink(log_sink sink, void *arg, enum log_level max_level)
{
    atomic_store(&sink_level, -1);
    atomic_store(&sink_arg, arg);
    atomic_store(&sink_fn, sink);
    if (sink != NULL) atomic_store(&sink_level, (int)max_level);
}

void log_write(enum log_level level, const char *fmt, ...)
{
    if ((int)level > atomic_load(&sink_level)) return;
    log_sink sink = atomic_load(&sink_fn);
    if (sink == NULL) return;
    char text[LOG_LINE];
    va_list args;
    va_start(args, fmt);
    int wanted = numtext_vprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (wanted < 0) return;
    if (wanted >= (int)sizeof text) text[utf8_complete_prefix(text, sizeof text - 1)] = '\0';
    sink(atomic_load(&sink_arg), level, text);
}
