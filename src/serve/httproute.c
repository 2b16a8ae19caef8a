/* httproute.c: which route a method and a path lead to, and whose pages may use it. The table is
 * short, so it is searched from its beginning. */
#include "httproute.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* "https://a.example:8080": what browsers send; neither a path nor a "/" at the end. */
static bool is_origin(const char *text)
{
    const char *authority = strstr(text, "://");
    return strcmp(text, "*") == 0 || (authority != NULL && authority != text &&
                                      authority[3] != '\0' && strchr(authority + 3, '/') == NULL);
}

zp_status httproute_check(const struct http_options *o, zp_err *err)
{
    const char *prefix = o->prefix == NULL ? "" : o->prefix;
    size_t size = strlen(prefix);
    ZP_FAIL_IF(size != 0 && (prefix[0] != '/' || prefix[size - 1] == '/'), err, ZP_USAGE,
               "\"%s\" is no prefix of paths: it begins with \"/\" and does not end with one",
               prefix);
    for (size_t i = 0; i < o->n_origins; i++)
        ZP_FAIL_IF(!is_origin(o->origins[i]), err, ZP_USAGE,
                   "\"%s\" is no origin: it is `https://host`, with a port or without, or `*`",
                   o->origins[i]);
    for (size_t i = 0; i < o->n_routes; i++)
        ZP_FAIL_IF(o->routes[i].path[0] != '/', err, ZP_USAGE,
                   "route \"%s\" does not begin with \"/\"", o->routes[i].path);
    return ZP_OK;
}

static bool is_exact(const struct http_route *r, const char *path)
{
    return strcmp(r->path, path) == 0;
}

/* "/v1/models/": all below it. */
static bool is_above(const struct http_route *r, const char *path)
{
    size_t size = strlen(r->path);
    return size > 1 && r->path[size - 1] == '/' && strncmp(r->path, path, size) == 0 &&
           path[size] != '\0';
}

static bool serves(const struct http_route *r, const char *method)
{
    return strcmp(r->method, method) == 0 ||
           (strcmp(method, "HEAD") == 0 && strcmp(r->method, "GET") == 0);
}

static void add_method(struct httproute *out, const char *method)
{
    size_t used = strlen(out->allow);
    (void)snprintf(out->allow + used, sizeof out->allow - used, "%s%s", used == 0 ? "" : ", ",
                   method);
}

static void search(const struct http_route *routes, size_t n, const char *method, const char *path,
                   bool (*fits)(const struct http_route *r, const char *path),
                   struct httproute *out)
{
    for (size_t i = 0; i < n; i++) {
        if (!fits(&routes[i], path)) continue;
        out->path_known = true;
        add_method(out, routes[i].method);
        if (strcmp(routes[i].method, "GET") == 0) add_method(out, "HEAD");
        if (out->route == NULL && serves(&routes[i], method)) out->route = &routes[i];
    }
}

void httproute_find(const struct http_route *routes, size_t n, const char *method, const char *path,
                    struct httproute *out)
{
    *out = (struct httproute){ .path_known = strcmp(path, "*") == 0 };
    search(routes, n, method, path, is_exact, out);
    if (!out->path_known) search(routes, n, method, path, is_above, out);
    add_method(out, "OPTIONS");
}

const char *httproute_strip(const char *prefix, const char *path)
{
    size_t size = prefix == NULL ? 0 : strlen(prefix);
    if (size == 0 || strcmp(path, "*") == 0) return path;
    if (strncmp(prefix, path, size) != 0) return NULL;
    if (path[size] == '\0') return "/";
    return path[size] == '/' ? path + size : NULL;
}

enum httporigin httproute_origin(const struct http_options *o, const char *origin, const char *host,
                                 const char **allow)
{
    *allow = NULL;
    if (origin == NULL) return HTTPORIGIN_OWN;
    const char *authority = strstr(origin, "://");
    if (authority != NULL && strcasecmp(authority + 3, host) == 0) return HTTPORIGIN_OWN;
    for (size_t i = 0; i < o->n_origins && *allow == NULL; i++)
        if (strcmp(o->origins[i], "*") == 0 || strcasecmp(o->origins[i], origin) == 0)
            *allow = o->origins[i];
    return *allow != NULL ? HTTPORIGIN_ALLOWED : HTTPORIGIN_REFUSED;
}
