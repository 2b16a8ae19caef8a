/* logline.h: log records as one line each, JSON for machines or plain text for terminals.
 *
 *     LOGLINE(&log, LOG_INFO, "request_done", request_id,
 *             logline_uint("tokens", 12), logline_text("model", name));
 *
 * A JSON line: {"time":"2031-05-04T03:02:01.250Z","level":"info","event":"request_done",
 * "request_id":"req-1","tokens":12,"model":"a"}; the same as text:
 * 2031-05-04T03:02:01.250Z info  request_done request_id=req-1 tokens=12 model=a
 *
 * Fields have kinds: a secret is never written, only a hash of it, what users say only where the
 * log was opened for it. Nothing is allocated. Any thread may write; the sink must bear that. */
#ifndef OBS_LOGLINE_H
#define OBS_LOGLINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/compiler.h"
#include "base/log.h"

enum logline_kind {
    LOGLINE_TEXT,
    LOGLINE_INT,
    LOGLINE_UINT,
    LOGLINE_REAL,
    LOGLINE_BOOL,
    LOGLINE_SECRET,
    LOGLINE_CONTENT
};
struct logline_field {
    const char *name;
    enum logline_kind kind;
    union {
        const char *text;
        int64_t i;
        uint64_t u;
        double x;
        bool yes;
    };
};

/* name: lower_snake, none of time, level, event, request_id, truncated, nor that of another field
 * of the record. A text that is NULL, and a number that is not finite, is null. */
#define LOGLINE_MAKER(stem, KIND, type, member)                                                    \
    static inline struct logline_field logline_##stem(const char *name, type value)                \
    {                                                                                              \
        return (struct logline_field){ .name = name, .kind = LOGLINE_##KIND, .member = value };    \
    }
LOGLINE_MAKER(text, TEXT, const char *, text)
LOGLINE_MAKER(int, INT, int64_t, i)
LOGLINE_MAKER(uint, UINT, uint64_t, u)
LOGLINE_MAKER(real, REAL, double, x)
LOGLINE_MAKER(bool, BOOL, bool, yes)
/* Keys and the like: "sha256:" and 16 digits of that of salt, NUL, text. */
LOGLINE_MAKER(secret, SECRET, const char *, text)
/* What users or models say: without log->content only its size in bytes. */
LOGLINE_MAKER(content, CONTENT, const char *, text)
#undef LOGLINE_MAKER

/* Bytes of a line, its end among them: what a write to a pipe takes as a whole (PIPE_BUF). */
enum { LOGLINE_ROOM = 4096 };

enum logline_style { LOGLINE_JSON, LOGLINE_PLAIN };

struct logline_log {
    enum log_level most; /* records of higher levels are left out */
    enum logline_style style;
    bool content;
    const char *salt; /* of hashes of secrets; NULL: "" */
    /* One whole line, "\n" at its end. */
    void (*sink)(void *arg, enum log_level level, const char *line, size_t size);
    void *arg;
};

/* request_id may be NULL. The time is now. The first field without room
 * is cut if it is a text, those behind it are left out, and "truncated": true follows. */
void logline_write(const struct logline_log *log, enum log_level level, const char *event,
                   const char *request_id, const struct logline_field *fields, size_t n);
#define LOGLINE(log, level, event, id, ...)                                                        \
    logline_write((log), (level), (event), (id), (const struct logline_field[]){ __VA_ARGS__ },    \
                  sizeof((const struct logline_field[]){ __VA_ARGS__ }) /                          \
                      sizeof(struct logline_field))

/* The line alone; returns its size. unix_ns: nanoseconds since 1970. */
size_t logline_form(const struct logline_log *log, int64_t unix_ns, enum log_level level,
                    const char *event, const char *request_id, const struct logline_field *fields,
                    size_t n, char out[LOGLINE_ROOM]);

/* RFC 3339 in UTC with milliseconds: "2031-05-04T03:02:01.250Z". */
struct logline_time {
    char text[25];
};
const char *logline_time(int64_t unix_ns, struct logline_time *room);

#endif
