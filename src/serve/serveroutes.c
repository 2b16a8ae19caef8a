/* serveroutes.c: the table of routes, and the handlers that answer at once.
 * Owns: the table. Does not know: answers that are drawn. */
#include "serve/serveroutes.h"

#include <string.h>

#include "obs/metrics.h"
#include "serve/api_plain.h"
#include "serve/serveadmin.h"
#include "serve/servedistance.h"
#include "serve/serveguard.h"
#include "serve/servejobs.h"
#include "serve/servepage.h"
#include "serve/servereply.h"
#include "serve/servestat.h"
#include "serve/servetexts.h"

/* ---- models ---------------------------------------------------------------------------------- */

/* The one that answers bear, with what the baseline is. */
static struct plain_model listed(const zp_serve *s)
{
    struct plain_model m = s->variants[VARIANT_BASELINE]->listing;
    m.id = s->name;
    return m;
}

static void models(const struct servecall *c)
{
    struct buffer body = buffer_with_max(MEM_SERVE, SERVEREPLY_MOST);
    struct plain_model m = listed(c->s);
    zp_err err = { 0 };
    zp_status status = plain_write_models(&m, 1, &body, &err);
    servereply_json(c->x, API_OPENAI, status, &body, &err);
}

static void model(const struct servecall *c)
{
    const char *asked = c->r->path + strlen("/v1/models/");
    struct buffer body = buffer_with_max(MEM_SERVE, SERVEREPLY_MOST);
    struct plain_model m = listed(c->s);
    struct apifault fault = { 0 };
    zp_err err = { 0 };
    if (strcmp(asked, c->s->name) != 0) {
        (void)apifault_set(&fault, 404, "model_not_found", "model",
                           "the model '%.200s' is not served here; '%.200s' is", asked, c->s->name);
        servereply_fault(c->x, API_OPENAI, &fault);
        return;
    }
    zp_status status = plain_write_model(&m, &body, &err);
    servereply_json(c->x, API_OPENAI, status, &body, &err);
}

/* ---- health ---------------------------------------------------------------------------------- */

static void say(struct http_exchange *x, int status, const char *text)
{
    http_reply(x, &(struct http_reply){ .status = status, .type = "application/json", .body = text,
                                        .size = strlen(text) });
}

static void healthz(const struct servecall *c)
{
    if (servestat_is_alive(c->s)) say(c->x, 200, "{\"status\":\"ok\"}");
    else say(c->x, 503, "{\"status\":\"stalled\"}");
}

static void readyz(const struct servecall *c)
{
    struct apifault fault = { 0 };
    if (!service_is_ready(c->s, &fault)) servereply_fault(c->x, API_OPENAI, &fault);
    else healthz(c);
}

static void metrics(const struct servecall *c)
{
    enum metrics_format format = metrics_format_of(http_header(c->r, "accept"));
    struct buffer body = buffer_with_max(MEM_SERVE, SERVEREPLY_MOST);
    zp_err err = { 0 };
    zp_status status = servestat_write(c->s, format, &body, &err);
    if (status != ZP_OK) {
        servereply_json(c->x, API_OPENAI, status, &body, &err);
        return;
    }
    http_reply(c->x, &(struct http_reply){ .status = 200, .type = metrics_content_type(format),
                                        .body = body.data, .size = body.size });
    buffer_free(&body);
}

/* ---- the table ------------------------------------------------------------------------------- */

enum { PUBLIC = 1, EARLY = 2, BODY = 4, ADMIN = 8 }; /* without a key; before there is a model */
enum { SMALL = 1 << 20 }; /* bytes of bodies that are no prompts */

static const struct row {
    const char *method, *path;
    void (*handle)(const struct servecall *c); /* NULL: an answer is drawn */
    unsigned flags;
    size_t body_bytes;
    enum serve_endpoint endpoint; /* of those */
} rows[] = {
    { "POST", "/v1/chat/completions", NULL, BODY, 0, SERVE_CHAT },
    { "POST", "/v1/completions", NULL, BODY, 0, SERVE_COMPLETIONS },
    { "POST", "/v1/messages", NULL, BODY, 0, SERVE_MESSAGES },
    { "POST", "/v1/embeddings", NULL, BODY, 0, SERVE_EMBEDDINGS },
    { "POST", "/embeddings", NULL, BODY, 0, SERVE_EMBEDDINGS },
    { "POST", "/embedding", NULL, BODY, 0, SERVE_EMBEDDINGS },
    { "POST", "/v1/messages/count_tokens", servetexts_count, BODY, SMALL, 0 },
    { "GET", "/v1/models", models, 0, 0, 0 },
    { "GET", "/v1/models/", model, 0, 0, 0 },
    { "POST", "/tokenize", servetexts_tokenize, BODY, SMALL, 0 },
    { "POST", "/detokenize", servetexts_detokenize, BODY, SMALL, 0 },
    { "POST", "/apply-template", servetexts_template, BODY, SMALL, 0 },
    { "GET", "/healthz", healthz, PUBLIC | EARLY, 0, 0 },
    { "GET", "/readyz", readyz, PUBLIC | EARLY, 0, 0 },
    { "GET", "/health", readyz, PUBLIC | EARLY, 0, 0 },
    { "GET", "/metrics", metrics, PUBLIC | EARLY, 0, 0 },
    { "GET", "/status", serveadmin_public, PUBLIC | EARLY, 0, 0 },
    { "GET", "/", servepage, PUBLIC | EARLY, 0, 0 },
    { "GET", "/dashboard.js", servepage, PUBLIC | EARLY, 0, 0 },
    { "GET", "/dashboard.css", servepage, PUBLIC | EARLY, 0, 0 },
    { "GET", "/admin/status", serveadmin_status, ADMIN, 0, 0 },
    { "GET", "/admin/requests", serveadmin_requests, ADMIN, 0, 0 },
    { "POST", "/admin/requests/cancel", serveadmin_cancel, ADMIN | BODY, SMALL, 0 },
    { "GET", "/admin/audit", serveadmin_audit, ADMIN, 0, 0 },
    { "GET", "/admin/gates", serveadmin_gates, ADMIN, 0, 0 },
    { "GET", "/admin/distance", servedistance_last, ADMIN, 0, 0 },
    { "POST", "/admin/distance", servedistance_measure, ADMIN | BODY, SMALL, 0 },
    { "POST", "/admin/canary", serveadmin_canary, ADMIN | BODY, SMALL, 0 },
    { "POST", "/admin/breaker", serveadmin_breaker, ADMIN | BODY, SMALL, 0 },
    { "POST", "/admin/models", serveadmin_models, ADMIN | BODY, SMALL, 0 },
    { "POST", "/admin/cache", serveadmin_cache, ADMIN | BODY, SMALL, 0 },
    { "POST", "/admin/drain", serveadmin_drain, ADMIN | BODY, SMALL, 0 },
};

struct serveroute {
    zp_serve *s;
    const struct row *row;
};

static bool may_pass(const struct row *row, struct servecall *c, struct apifault *fault)
{
    if (row->flags & ADMIN) return serveguard_admin(c, fault);
    if (!(row->flags & PUBLIC) && !serveguard_client(c, fault)) return false;
    return (row->flags & EARLY) || service_is_ready(c->s, fault);
}

static void handle(void *arg, const struct http_request *r, struct http_exchange *x)
{
    const struct serveroute *route = arg;
    struct servecall c = { .s = route->s, .r = r, .x = x };
    struct apifault fault = { 0 };
    const struct row *row = route->row;
    bool passes = may_pass(row, &c, &fault);
    if (passes && row->handle != NULL) row->handle(&c);
    else if (passes) servejobs_begin(&c, row->endpoint);
    else {
        if (row->handle == NULL) servejob_count_refusal(c.s, row->endpoint, &fault);
        servereply_fault(x, servereply_api_of(r->path), &fault);
    }
}

zp_status serveroutes_open(zp_serve *s, size_t *n, zp_err *err)
{
    ZP_ALLOC(s->routes, MEM_SERVE, ZP_COUNT(rows), err, "the routes");
    ZP_ALLOC(s->route_args, MEM_SERVE, ZP_COUNT(rows), err, "the routes");
    for (size_t i = 0; i < ZP_COUNT(rows); i++) {
        s->route_args[i] = (struct serveroute){ s, &rows[i] };
        s->routes[i] = (struct http_route){ .method = rows[i].method, .path = rows[i].path,
                                            .handle = handle, .arg = &s->route_args[i],
                                            .body_bytes = rows[i].body_bytes,
                                            .needs_body = (rows[i].flags & BODY) != 0 };
    }
    *n = ZP_COUNT(rows);
    return ZP_OK;
}

zp_status serveroutes_write_error(void *arg, const struct http_error *e, struct buffer *body,
                                  const char **type, zp_err *err)
{
    struct apifault fault = { 0 };
    ZP_UNUSED(arg);
    ZP_UNUSED(type);
    (void)apifault_set(&fault, e->status, e->code, NULL, "%s", e->message);
    return apifault_write(&fault, servereply_api_of(e->path), e->id, body, err);
}
