/* logline.c: log records as lines, JSON or plain text.
 * L1 a line is one JSON object (or one line of plain text) of at most LOGLINE_ROOM bytes, UTF-8,
 * without control characters but its end, whatever its fields hold.  L2 of a secret no byte is
 * written, of content none unless the log was opened for it.  L3 nothing is allocated. */
#include "logline.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/bytes.h"
#include "base/jsontext.h"
#include "base/numtext.h"
#include "base/os.h"

/* What may still come behind the fields. */
#define JSON_END ",\"truncated\":true}\n"
#define PLAIN_END " truncated=true\n"
#define FIELDS_ROOM (LOGLINE_ROOM - sizeof JSON_END)

static const char *const levels[] = { "error", "warn", "info", "debug" };

struct line {
    char *out; /* (LOGLINE_ROOM) */
    size_t size, most;
    bool plain, cut;
};

static bool put(struct line *l, const char *text, size_t size)
{
    if (size > l->most - l->size) return false;
    memcpy(l->out + l->size, text, size);
    l->size += size;
    return true;
}

static bool put_text(struct line *l, const char *text)
{
    return put(l, text, strlen(text));
}

/* ---- values ---------------------------------------------------------------------------------- */

/* In quotes. A text that is too long ends in the middle, but not of a character. */
static bool put_quoted(struct line *l, const char *text)
{
    struct jsontext pieces = jsontext_of(text, strlen(text));
    const char *piece;
    size_t size;
    if (l->most - l->size < 2) return false;
    put(l, "\"", 1);
    l->most--; /* for the other quote */
    while (!l->cut && jsontext_next(&pieces, &piece, &size)) {
        if (put(l, piece, size)) continue;
        l->cut = true;
        if (*piece != '\\') put(l, piece, utf8_complete_prefix(piece, l->most - l->size));
    }
    l->most++;
    return put(l, "\"", 1);
}

static bool is_word(const char *text)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "0123456789_.:/@+-";
    return text[0] != '\0' && text[strspn(text, letters)] == '\0';
}

static bool put_string(struct line *l, const char *text)
{
    if (text == NULL) return put_text(l, "null");
    return l->plain && is_word(text) ? put_text(l, text) : put_quoted(l, text);
}

static bool put_secret(struct line *l, const char *salt, const char *text)
{
    char hex[65], hash[] = "sha256:0123456789abcdef";
    struct sha256 s;
    if (text == NULL) return put_text(l, "null");
    if (salt == NULL) salt = "";
    sha256_init(&s);
    sha256_update(&s, salt, strlen(salt) + 1);
    sha256_update(&s, text, strlen(text));
    sha256_final(&s, hex);
    memcpy(hash + strlen("sha256:"), hex, 16);
    return put_string(l, hash);
}

static bool put_content(struct line *l, bool content, const char *text)
{
    char size[48];
    if (content || text == NULL) return put_string(l, text);
    (void)snprintf(size, sizeof size, l->plain ? "%zu_bytes" : "{\"bytes\":%zu}", strlen(text));
    return put_text(l, size);
}

static bool put_value(struct line *l, const struct logline_log *log, const struct logline_field *f)
{
    char digits[32];
    struct numtext room;
    switch (f->kind) {
    case LOGLINE_TEXT: return put_string(l, f->text);
    case LOGLINE_SECRET: return put_secret(l, log->salt, f->text); // L2
    case LOGLINE_CONTENT: return put_content(l, log->content, f->text);
    case LOGLINE_INT: (void)snprintf(digits, sizeof digits, "%" PRId64, f->i); break;
    case LOGLINE_UINT: (void)snprintf(digits, sizeof digits, "%" PRIu64, f->u); break;
    case LOGLINE_REAL: return put_text(l, isfinite(f->x) ? numtext_shortest(f->x, &room) : "null");
    case LOGLINE_BOOL: return put_text(l, f->yes ? "true" : "false");
    }
    return put_text(l, digits);
}

/* ---- lines ----------------------------------------------------------------------------------- */

static bool put_name(struct line *l, const char *name)
{
    if (l->plain) return put(l, " ", 1) && put_text(l, name) && put(l, "=", 1);
    return (l->size == 1 || put(l, ",", 1)) && put(l, "\"", 1) && put_text(l, name) &&
           put(l, "\":", 2);
}

/* All of it, the beginning of a text, or nothing; once something was cut, nothing follows. */
static void put_field(struct line *l, const struct logline_log *log, struct logline_field f)
{
    size_t before = l->size;
    if (l->cut || (put_name(l, f.name) && put_value(l, log, &f))) return;
    l->size = before;
    l->cut = true;
}

static void put_head(struct line *l, const struct logline_log *log, int64_t unix_ns,
                     enum log_level level, const char *event)
{
    struct logline_time room;
    const char *time = logline_time(unix_ns, &room);
    if (!l->plain) {
        put(l, "{", 1);
        put_field(l, log, logline_text("time", time));
        put_field(l, log, logline_text("level", levels[level]));
        put_field(l, log, logline_text("event", event));
        return;
    }
    char head[48];
    (void)snprintf(head, sizeof head, "%s %-5s ", time, levels[level]);
    put_text(l, head);
    put_string(l, event);
}

size_t logline_form(const struct logline_log *log, int64_t unix_ns, enum log_level level,
                    const char *event, const char *request_id, const struct logline_field *fields,
                    size_t n, char out[LOGLINE_ROOM])
{
    struct line l = { .out = out, .most = FIELDS_ROOM, .plain = log->style == LOGLINE_PLAIN };
    put_head(&l, log, unix_ns, level, event);
    if (request_id != NULL)
        put_field(&l, log, logline_text("request_id", request_id));
    for (size_t i = 0; i < n; i++) put_field(&l, log, fields[i]);
    l.most = LOGLINE_ROOM;
    if (l.plain) put_text(&l, l.cut ? PLAIN_END : "\n");
    else put_text(&l, l.cut ? JSON_END : "}\n");
    return l.size;
}

void logline_write(const struct logline_log *log, enum log_level level, const char *event,
                   const char *request_id, const struct logline_field *fields, size_t n)
{
    char line[LOGLINE_ROOM];
    if (level > log->most) return;
    size_t size = logline_form(log, os_unix_now(), level, event, request_id, fields, n, line);
    log->sink(log->arg, level, line, size);
}

const char *logline_time(int64_t unix_ns, struct logline_time *room)
{
    struct tm tm;
    int64_t ns = unix_ns % 1000000000;
    time_t seconds = unix_ns / 1000000000;
    if (ns < 0) ns += 1000000000, seconds--;
    (void)gmtime_r(&seconds, &tm);
    size_t size = strftime(room->text, sizeof room->text, "%Y-%m-%dT%H:%M:%S", &tm);
    (void)snprintf(room->text + size, sizeof room->text - size, ".%03dZ", (int)(ns / 1000000));
    return room->text;
}
