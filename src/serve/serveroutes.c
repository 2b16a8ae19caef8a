/* serveroutes.c: the table of routes, and the handlers that answer at once.
 * Owns: the table. Does not know: answers that are drawn. */
#include "serve/serveroutes.h"

#include <string.h>

#include "model/text.h"
#include "obs/metrics.h"
#include "serve/api_anthropic.h"
#include "serve/api_plain.h"
#include "serve/apiprompt.h"
#include "serve/serveadmin.h"
#include "serve/servedistance.h"
#include "serve/serveguard.h"
#include "serve/servejobs.h"
#include "serve/servepage.h"
#include "serve/servereply.h"
#include "serve/servestat.h"

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

/* ---- texts and tokens ------------------------------------------------------------------------ */

/* One reader for all of them: what is wrong is in the fault, else the answer in the body. */
static void answer(struct http_exchange *x, enum api api, struct apifault *fault, zp_status status,
                   struct buffer *body, const zp_err *err)
{
    if (fault->status == 0) {
        servereply_json(x, api, status, body, err);
        return;
    }
    servereply_fault(x, api, fault);
    buffer_free(body);
}

static zp_status write_ids(const struct zp_model *m, const struct token_list *ids, bool pieces,
                           struct buffer *out, zp_err *err)
{
    const char **texts = NULL;
    size_t *sizes = NULL;
    if (!pieces) return plain_write_tokens(ids->ids, ids->count, NULL, NULL, out, err);
    texts = mem_array(MEM_SERVE, ids->count + 1, sizeof *texts);
    sizes = mem_array(MEM_SERVE, ids->count + 1, sizeof *sizes);
    zp_status status = ZP_NO_MEMORY;
    if (texts == NULL || sizes == NULL)
        (void)status_fail(err, status, __FILE__, __LINE__, "not enough memory for the tokens");
    else {
        for (size_t i = 0; i < ids->count; i++)
            texts[i] = (const char *)tokenizer_token_bytes(m->tokenizer, ids->ids[i], &sizes[i]);
        status = plain_write_tokens(ids->ids, ids->count, texts, sizes, out, err);
    }
    mem_free(texts);
    mem_free(sizes);
    return status;
}

static zp_status tokenize_text(const struct zp_model *m, const struct plain_request *p,
                               struct buffer *out, zp_err *err)
{
    struct token_list ids = { 0 };
    const struct api_prompt *text = &p->prompts[0];
    zp_status status = tokenizer_encode(m->tokenizer, text->text, text->size,
                                        p->parse_special ? TOKENIZE_SPECIAL : 0, &ids, err);
    if (status == ZP_OK && p->add_special) status = text_add_bos(m, &ids, err);
    if (status == ZP_OK) status = write_ids(m, &ids, p->with_pieces, out, err);
    token_list_free(&ids);
    return status;
}

static void tokenize(const struct servecall *c)
{
    struct buffer body = buffer_with_max(MEM_SERVE, SERVEREPLY_MOST);
    struct apifault fault = { 0 };
    struct plain_request p;
    zp_err err = { 0 };
    zp_status status = plain_read_tokenize(&p, (const char *)c->r->body, c->r->body_size,
                                           &c->s->api_limits, &fault);
    if (status == ZP_OK)
        status = tokenize_text(c->s->variants[VARIANT_BASELINE]->model, &p, &body, &err);
    answer(c->x, API_OPENAI, &fault, status, &body, &err);
    plain_free(&p);
}

static zp_status detokenize_ids(const struct zp_model *m, const struct plain_request *p,
                                struct buffer *out, zp_err *err)
{
    struct buffer text = buffer_with_max(MEM_SERVE, SERVEREPLY_MOST);
    zp_status status = buffer_append(&text, "", 0, err);
    if (status == ZP_OK && p->n_prompts != 0)
        status = tokenizer_decode(m->tokenizer, p->prompts[0].ids, p->prompts[0].n_ids,
                                  DETOKENIZE_SPECIAL, &text, err);
    if (status == ZP_OK)
        status = plain_write_text("content", (const char *)text.data, text.size, out, err);
    buffer_free(&text);
    return status;
}

static void detokenize(const struct servecall *c)
{
    struct buffer body = buffer_with_max(MEM_SERVE, SERVEREPLY_MOST);
    struct apifault fault = { 0 };
    struct plain_request p;
    zp_err err = { 0 };
    zp_status status = plain_read_detokenize(&p, (const char *)c->r->body, c->r->body_size,
                                             &c->s->api_limits, &fault);
    if (status == ZP_OK)
        status = detokenize_ids(c->s->variants[VARIANT_BASELINE]->model, &p, &body, &err);
    answer(c->x, API_OPENAI, &fault, status, &body, &err);
    plain_free(&p);
}

typedef zp_status (*chat_reader)(struct api_request *r, const char *body, size_t size,
                                 const struct api_limits *limits, struct apifault *fault);

/* What a chat's prompt is, without an answer to it. */
static void show_prompt(const struct servecall *c, chat_reader read, bool count)
{
    enum api api = count ? API_ANTHROPIC : API_OPENAI;
    const struct zp_model *m = c->s->variants[VARIANT_BASELINE]->model;
    struct buffer body = buffer_with_max(MEM_SERVE, SERVEREPLY_MOST);
    struct apifault fault = { 0 };
    struct apiprompt p = { 0 };
    struct api_request a;
    zp_err err = { 0 };
    zp_status status =
        read(&a, (const char *)c->r->body, c->r->body_size, &c->s->api_limits, &fault);
    if (status == ZP_OK) status = apiprompt_open_chat(&p, m, &a, &fault);
    if (status == ZP_OK)
        status = count ? anthropic_write_count(p.ids.count, &body, &err)
                       : plain_write_text("prompt", (const char *)p.text.data, p.text.size, &body,
                                          &err);
    answer(c->x, api, &fault, status, &body, &err);
    apiprompt_free(&p);
    apirequest_free(&a);
}

static void apply_template(const struct servecall *c)
{
    show_prompt(c, openai_read_chat, false);
}

static void count_tokens(const struct servecall *c)
{
    show_prompt(c, anthropic_read_messages, true);
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
enum { SMALL = 1 << 20 };                 /* bytes of bodies that are read on the loop's thread */

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
    { "POST", "/v1/messages/count_tokens", count_tokens, BODY, SMALL, 0 },
    { "GET", "/v1/models", models, 0, 0, 0 },
    { "GET", "/v1/models/", model, 0, 0, 0 },
    { "POST", "/tokenize", tokenize, BODY, SMALL, 0 },
    { "POST", "/detokenize", detokenize, BODY, SMALL, 0 },
    { "POST", "/apply-template", apply_template, BODY, SMALL, 0 },
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
