/* netpost.h: a POST over HTTP or HTTPS whose answer is read as it comes, by libcurl, which is
 * opened when it is needed. Certificates and names are checked; nothing is redirected. */
#ifndef CLIENT_NETPOST_H
#define CLIENT_NETPOST_H

#include <stdbool.h>
#include <stddef.h>
#include "base/status.h"

enum { NETPOST_MOST_HEAD = 64 << 10, NETPOST_TYPE = 64 };

struct netpost;

struct netpost_head {
    int status;
    char type[NETPOST_TYPE]; /* of the content, lower case, without parameters; "": none */
};

struct netpost_request {
    const char *url, *key, *ca_file; /* key, ca_file: may be NULL */
    const char *body;
    size_t size;
    double patience; /* seconds until the head is there, then between signs of life */
    /* A piece of the body. alive: it was a sign of life. ended: what follows is not wanted. What it
     * returns ends the answer, unless it is ZP_OK. */
    zp_status (*take)(void *arg, const struct netpost_head *head, const void *bytes, size_t size,
                      bool *alive, bool *ended, zp_err *err);
    bool (*goes_on)(void *arg); /* asked ten times a second; NULL: always */
    void *arg;
};

/* ZP_UNSUPPORTED where libcurl is not there, or the library was built without its headers. */
zp_status netpost_open(struct netpost **out, zp_err *err);
/* The connection stays open for the next one where the answer was read to its end. */
zp_status netpost_run(struct netpost *n, const struct netpost_request *r, struct netpost_head *head,
                      zp_err *err);
void netpost_close(struct netpost *n);

#endif
