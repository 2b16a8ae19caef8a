/* audit.h: what was decided, when, by whom and why, as lines of JSON that are chained by their
 * hashes: one that is missing or changed is seen.
 *
 * A line:
 *     {"seq": 12, "time": "2031-05-04T03:02:01.250Z", "actor": "rule", "what": "canary_promoted",
 *      "why": "...", "numbers": {"from_percent": 1, ...}, "prev": HASH, "hash": HASH}
 * hash is the SHA-256 of the line without its last member, prev the hash of the line before, or 64
 * zeros in the first one of a process. */
#ifndef SERVE_AUDIT_H
#define SERVE_AUDIT_H

#include <stddef.h>
#include <stdint.h>

#include "base/json_build.h"
#include "base/status.h"

enum { AUDIT_ACTOR = 64, AUDIT_WHY = 200, AUDIT_MOST_NUMBERS = 16 };
#define AUDIT_RULE "rule" /* the actor of what no person did */

/* A decision. Texts are copied, but what and the numbers' names, which are constants. */
struct audit_note {
    const char *what; /* NULL: none yet */
    char actor[AUDIT_ACTOR]; /* AUDIT_RULE, or the id of an admin's key, never the key */
    char why[AUDIT_WHY];
    double now;
    size_t n_numbers;
    struct {
        const char *name;
        double value;
    } numbers[AUDIT_MOST_NUMBERS];
};
/* What is too long is cut. why NULL: none was given. */
struct audit_note audit_note(const char *actor, const char *what, const char *why, double now);
void audit_number(struct audit_note *note, const char *name, double value);
/* As a member of a document: null if there was none. */
void audit_write_note(const struct audit_note *note, const char *key, struct json_build *w);

struct audit_options {
    size_t most_lines; /* kept in memory, the newest; default 1024 */
    /* Each new line, without its end; may be NULL. Must not call back. */
    void (*sink)(void *arg, const char *line, size_t size);
    void *sink_arg;
};

struct audit {
    struct audit_options o;
    char **lines; /* (most_lines), a ring */
    size_t first, n;
    uint64_t seq;  /* decisions so far */
    uint64_t lost; /* of them, lines for which there was no memory; their numbers are missing */
    char last[65]; /* hash of the last line */
    double unix_zero; /* seconds since 1970 when the caller's clock was 0 */
};

zp_status audit_open(struct audit *a, const struct audit_options *options, zp_err *err);
void audit_free(struct audit *a);
/* What the caller's clock (`now`) means in seconds since 1970; to be told again now and then. */
void audit_set_clock(struct audit *a, double now, double unix_seconds);
/* Never fails: a decision is not undone because it cannot be written. a may be NULL. */
void audit_add(struct audit *a, const struct audit_note *note);
/* Line i of those kept, the oldest first; NULL beyond. Valid until the next audit_add. */
const char *audit_line(const struct audit *a, size_t i);

#endif
