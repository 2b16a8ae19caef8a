/* servekeys.h: who may use the server, and how much: keys from a file.
 *
 * A line of it: NAME SECRET, then maybe requests=N and tokens=N a minute. A line of one word is a
 * secret whose name is its number ("key-3"). In place of a secret: sha256: and its hash in hex.
 * Empty lines and those that begin with # count for nothing. */
#ifndef SERVE_SERVEKEYS_H
#define SERVE_SERVEKEYS_H

#include <stdbool.h>
#include <stdint.h>
#include "base/bytes.h"

enum { SERVEKEYS_NAME = 64, SERVEKEYS_MOST = 10000 };

/* So much a minute; as much at once after a minute of rest. most 0: no limit. */
struct servekeys_limit {
    double most, left, at;
};

struct servekey {
    char name[SERVEKEYS_NAME];
    char hash[65];
    uint64_t salt; /* of what it may share in caches: not 0 */
    struct servekeys_limit requests, tokens;
    bool gone; /* not in the file any more */
    struct servekey *next;
};

/* A key stays where it is until servekeys_free, also when a later reading does not find it. */
struct servekeys {
    struct servekey *first;
    size_t n; /* not gone */
};

/* On failure nothing has changed. The message has the line's number, never its text. */
zp_status servekeys_read(struct servekeys *k, const char *path, zp_err *err);
zp_status servekeys_parse(struct servekeys *k, const char *text, size_t size, const char *name,
                          zp_err *err);
void servekeys_free(struct servekeys *k);

/* The key of that secret; NULL: none. All are compared, whole. */
struct servekey *servekeys_find(const struct servekeys *k, const char *secret);

/* Takes so much of what is left, also below 0; false, and nothing taken, if nothing is left. *wait:
 * seconds until there is. */
bool servekeys_take(struct servekeys_limit *l, double n, double now, double *wait);
/* What is left now, at least 0. */
double servekeys_left(struct servekeys_limit *l, double now);

#endif
