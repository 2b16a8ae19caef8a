/* serveguard.c: who may use what: keys, their limits, and the door of /admin.
 * D1 without a file of admin keys, /admin is open only if the server was told so, and then to this
 *    machine alone, by a name of this machine: pages of other sites cannot reach it through a name
 *    of theirs that leads here.
 * D2 what is refused says nothing of the keys that there are. */
#include "serve/serveguard.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/os.h"

/* "Authorization: Bearer SECRET", or "x-api-key: SECRET", of either API. NULL: none. */
static const char *secret_of(const struct http_request *r)
{
    const char *bearer = http_header(r, "authorization");
    if (bearer != NULL && strncasecmp(bearer, "bearer ", 7) == 0) return bearer + 7;
    return http_header(r, "x-api-key");
}

static struct servekey *find(const struct servekeys *keys, const struct http_request *r,
                             struct apifault *fault)
{
    const char *secret = secret_of(r);
    struct servekey *key = secret != NULL ? servekeys_find(keys, secret) : NULL;
    if (key == NULL)
        (void)apifault_set(fault, 401, "invalid_api_key", NULL, // D2
                           secret == NULL ? "a key is needed: Authorization: Bearer KEY"
                                          : "the key is not known here");
    return key;
}

bool serveguard_client(struct servecall *c, struct apifault *fault)
{
    if (c->s->o.api_keys == NULL) return true;
    c->key = find(&c->s->keys, c->r, fault);
    return c->key != NULL;
}

/* ---- /admin ---------------------------------------------------------------------------------- */

static bool is_loopback(const char *peer)
{
    return strcmp(peer, "unix") == 0 || strncmp(peer, "127.", 4) == 0 ||
           strncmp(peer, "[::1]:", 6) == 0 || strncmp(peer, "[::ffff:127.", 12) == 0;
}

/* The Host of a request, its port aside. */
static bool is_own_name(const char *host)
{
    static const char *const names[] = { "localhost", "127.0.0.1", "[::1]" };
    for (size_t i = 0; i < ZP_COUNT(names); i++) {
        size_t size = strlen(names[i]);
        if (strncasecmp(host, names[i], size) == 0 && (host[size] == ':' || host[size] == '\0'))
            return true;
    }
    return false;
}

bool serveguard_admin(struct servecall *c, struct apifault *fault)
{
    const struct http_request *r = c->r;
    if (c->s->o.admin_keys != NULL) {
        const struct servekey *key = find(&c->s->admin_keys, r, fault);
        c->actor = key != NULL ? key->name : NULL;
        return key != NULL;
    }
    bool unix_socket = strcmp(r->peer, "unix") == 0;
    if (c->s->o.admin_open && is_loopback(r->peer) && (unix_socket || is_own_name(r->host))) {
        c->actor = "local";
        return true; // D1
    }
    (void)apifault_set(fault, 403, "admin_closed", NULL,
                       "/admin is closed: start the server with --admin-key-file, or with "
                       "--admin-open for this machine");
    return false;
}

/* ---- limits ---------------------------------------------------------------------------------- */

static void too_much(struct apifault *fault, const char *what, double most, double wait)
{
    (void)apifault_set(fault, 429, "rate_limit_exceeded", NULL,
                       "the key's limit of %.0f %s a minute is reached", most, what);
    fault->retry_seconds = wait > 1 ? wait : 1;
}

bool serveguard_take_request(const struct servecall *c, struct apifault *fault)
{
    double wait;
    struct servekey *key = c->key;
    if (key == NULL || servekeys_take(&key->requests, 1, os_now(), &wait)) return true;
    too_much(fault, "requests", key->requests.most, wait);
    return false;
}

bool serveguard_take_tokens(struct servekey *key, uint64_t n, struct apifault *fault)
{
    double wait;
    if (key == NULL || servekeys_take(&key->tokens, (double)n, os_now(), &wait)) return true;
    too_much(fault, "tokens", key->tokens.most, wait);
    return false;
}

void serveguard_charge(struct servekey *key, uint64_t n_tokens)
{
    if (key != NULL && key->tokens.most != 0) key->tokens.left -= (double)n_tokens;
}
