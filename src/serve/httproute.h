/* httproute.h: which handler a method and a path lead to, and what pages of other origins may
 * do. */
#ifndef SERVE_HTTPROUTE_H
#define SERVE_HTTPROUTE_H

#include "http.h"

/* Whether prefix, paths and origins are such that they can ever fit. */
zp_status httproute_check(const struct http_options *o, zp_err *err);

struct httproute {
    const struct http_route *route; /* NULL: none for this method */
    bool path_known;                /* the path has a route, or is "*" */
    char allow[96];                 /* "GET, HEAD, OPTIONS": methods that the path takes */
};
/* path without the prefix. */
void httproute_find(const struct http_route *routes, size_t n, const char *method, const char *path,
                    struct httproute *out);
/* The path behind the prefix; NULL: it does not begin with it. "*" stays. */
const char *httproute_strip(const char *prefix, const char *path);

enum httporigin {
    HTTPORIGIN_OWN,     /* no page, or one of this server */
    HTTPORIGIN_ALLOWED,
    HTTPORIGIN_REFUSED,
};
/* origin: the request's header, NULL: none. *allow: for HTTPORIGIN_ALLOWED the value of
 * access-control-allow-origin, of the options. */
enum httporigin httproute_origin(const struct http_options *o, const char *origin, const char *host,
                                 const char **allow);

#endif
