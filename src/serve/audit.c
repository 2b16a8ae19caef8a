/* audit.c: a ring of lines, each with the hash of the one before.
 * Owns: the lines. Does not know: files, what is decided.
 * Threads: one.
 * A1 seq counts decisions, with or without a line: a lost line leaves a gap in seq, not in the
 *    chain.
 * A2 a line's hash covers all of it but itself, the hash before it among that. Without a secret, so
 *    it shows gaps and changes to those who hold a later line, not to those who hold none. */
#include "serve/audit.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/bytes.h"

#define NO_HASH "0000000000000000000000000000000000000000000000000000000000000000"

struct audit_note audit_note(const char *actor, const char *what, const char *why, double now)
{
    struct audit_note note = { .what = what, .now = now };
    snprintf(note.actor, sizeof note.actor, "%s", actor);
    snprintf(note.why, sizeof note.why, "%s", why && *why ? why : "no reason given");
    note.actor[utf8_complete_prefix(note.actor, strlen(note.actor))] = '\0';
    note.why[utf8_complete_prefix(note.why, strlen(note.why))] = '\0';
    return note;
}

void audit_number(struct audit_note *note, const char *name, double value)
{
    if (note->n_numbers == AUDIT_MOST_NUMBERS) return;
    note->numbers[note->n_numbers].name = name;
    note->numbers[note->n_numbers++].value = value;
}

/* The members that tell of it. */
static void write_members(const struct audit_note *note, struct json_build *w)
{
    json_build_text(w, "actor", note->actor);
    json_build_text(w, "what", note->what);
    json_build_text(w, "why", note->why);
    json_build_object(w, "numbers");
    for (size_t i = 0; i < note->n_numbers; i++)
        json_build_real(w, note->numbers[i].name, note->numbers[i].value, 9);
    json_build_object_end(w);
}

void audit_write_note(const struct audit_note *note, const char *key, struct json_build *w)
{
    if (note->what == NULL) {
        json_build_null(w, key);
        return;
    }
    json_build_object(w, key);
    write_members(note, w);
    json_build_object_end(w);
}

zp_status audit_open(struct audit *a, const struct audit_options *options, zp_err *err)
{
    *a = (struct audit){ .o = *options, .last = NO_HASH };
    if (a->o.most_lines == 0) a->o.most_lines = 1024;
    ZP_ALLOC(a->lines, MEM_SERVE, a->o.most_lines, err, "the audit log");
    memset(a->lines, 0, a->o.most_lines * sizeof *a->lines);
    return ZP_OK;
}

void audit_free(struct audit *a)
{
    for (size_t i = 0; a->lines && i < a->o.most_lines; i++) mem_free(a->lines[i]);
    mem_free(a->lines);
    *a = (struct audit){ 0 };
}

void audit_set_clock(struct audit *a, double now, double unix_seconds)
{
    a->unix_zero = unix_seconds - now;
}

/* RFC 3339, to the millisecond. */
static void write_time(double unix_seconds, struct json_build *w)
{
    char day[32], text[64];
    struct tm parts;
    int64_t ms = (int64_t)floor(unix_seconds * 1000);
    int64_t rest = (ms % 1000 + 1000) % 1000;
    time_t seconds = (time_t)((ms - rest) / 1000);
    if (!gmtime_r(&seconds, &parts) || !strftime(day, sizeof day, "%Y-%m-%dT%H:%M:%S", &parts)) {
        json_build_null(w, "time");
        return;
    }
    snprintf(text, sizeof text, "%s.%03dZ", day, (int)rest);
    json_build_text(w, "time", text);
}

static void hash_of(const char *text, char hex[65])
{
    struct sha256 s;
    sha256_init(&s);
    sha256_update(&s, text, strlen(text));
    sha256_final(&s, hex);
}

/* NULL: no memory. hash: of the line. */
static char *make_line(const struct audit *a, const struct audit_note *note, char hash[65])
{
    char *body = NULL, *line = NULL;
    struct json_build w;
    json_build_open(&w, NULL);
    json_build_object(&w, NULL);
    json_build_uint(&w, "seq", a->seq);
    write_time(a->unix_zero + note->now, &w);
    write_members(note, &w);
    json_build_text(&w, "prev", a->last);
    json_build_object_end(&w);
    if (json_build_finish(&w, &body) != ZP_OK) return NULL;
    hash_of(body, hash);
    size_t size = strlen(body), room = size + sizeof ", \"hash\": \"\"" + 64;
    if ((line = mem_alloc(MEM_SERVE, room)) != NULL)
        snprintf(line, room, "%.*s, \"hash\": \"%s\"}", (int)(size - 1), body, hash);
    mem_free(body);
    return line;
}

void audit_add(struct audit *a, const struct audit_note *note)
{
    char hash[65];
    if (a == NULL) return;
    a->seq++;
    char *line = make_line(a, note, hash);
    if (line == NULL) {
        a->lost++; // A1
        return;
    }
    memcpy(a->last, hash, sizeof hash);
    size_t at = (a->first + a->n) % a->o.most_lines;
    if (a->n < a->o.most_lines) a->n++;
    else a->first = (a->first + 1) % a->o.most_lines;
    mem_free(a->lines[at]);
    a->lines[at] = line;
    if (a->o.sink) a->o.sink(a->o.sink_arg, line, strlen(line));
}

const char *audit_line(const struct audit *a, size_t i)
{
    return i < a->n ? a->lines[(a->first + i) % a->o.most_lines] : NULL;
}
