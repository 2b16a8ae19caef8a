/* serveadmin.c: what an admin decides, and the documents about the whole server.
 * A1 what is decided here is in the log of decisions, under the name of the key.
 * A2 nothing of /admin shows what users or models say. */
#include "serve/serveadmin.h"

#include <math.h>
#include <string.h>

#include "base/os.h"
#include "serve/servejobs.h"
#include "serve/servemodels.h"
#include "serve/servereply.h"
#include "serve/servestatus.h"

/* ---- documents ------------------------------------------------------------------------------- */

static void reply(const struct servecall *c, void (*write)(zp_serve *s, struct json_build *w))
{
    struct buffer body = buffer_with_max(MEM_SERVE, SERVEREPLY_MOST);
    struct json_build w;
    zp_err err = { 0 };
    json_build_append(&w, &body, &err);
    write(c->s, &w);
    servereply_json(c->x, API_OPENAI, w.status, &body, &err);
}

void serveadmin_public(const struct servecall *c)
{
    reply(c, servestatus_write_public);
}

void serveadmin_status(const struct servecall *c)
{
    reply(c, servestatus_write);
}

static void write_requests(zp_serve *s, struct json_build *w)
{
    json_build_object(w, NULL);
    servejobs_write(s, "requests", w);
    json_build_object_end(w);
}

void serveadmin_requests(const struct servecall *c)
{
    reply(c, write_requests);
}

static void write_audit(zp_serve *s, struct json_build *w)
{
    const struct audit *a = &s->rollout->audit;
    const char *line;
    json_build_object(w, NULL);
    json_build_array(w, "lines");
    for (size_t i = 0; (line = audit_line(a, i)) != NULL; i++)
        json_build_raw(w, NULL, line, strlen(line));
    json_build_array_end(w);
    json_build_object_end(w);
}

void serveadmin_audit(const struct servecall *c)
{
    reply(c, write_audit);
}

void serveadmin_gates(const struct servecall *c)
{
    reply(c, servestatus_write_gates);
}

/* ---- decisions ------------------------------------------------------------------------------- */

/* A body, and what it asks for. */
struct decision {
    const struct servecall *c;
    json_t *body;
    const char *action, *why;
    double now;
    struct apifault fault;
    zp_err err;
};

/* actions: those there are, NULL at the end; NULL: none is asked for. */
static bool begin(struct decision *d, const struct servecall *c, const char *const *actions)
{
    const struct http_request *r = c->r;
    *d = (struct decision){ .c = c, .now = os_now() };
    if (apirequest_parse(&d->body, (const char *)r->body, r->body_size, &c->s->api_limits,
                         &d->fault) != ZP_OK)
        return false;
    d->action = json_string_value(json_object_get(d->body, "action"));
    d->why = json_string_value(json_object_get(d->body, "why"));
    if (actions == NULL) return true;
    for (size_t i = 0; d->action != NULL && actions[i] != NULL; i++)
        if (strcmp(actions[i], d->action) == 0) return true;
    (void)apifault_expected(&d->fault, "action", json_object_get(d->body, "action"),
                            "one that docs/SERVER.md lists for this path");
    return false;
}

static bool is(const struct decision *d, const char *action)
{
    return strcmp(d->action, action) == 0;
}

/* Of its own failure, or what the server is now. */
static void end(struct decision *d, zp_status status)
{
    if (status != ZP_OK && d->fault.status == 0) (void)apifault_of_err(&d->fault, NULL, &d->err);
    if (d->fault.status == 0) serveadmin_status(d->c);
    else servereply_fault(d->c->x, API_OPENAI, &d->fault);
    json_decref(d->body);
}

/* percent in 1/100. */
static zp_status read_share(struct decision *d, uint32_t *share)
{
    const json_t *value = json_object_get(d->body, "percent");
    double percent = json_number_value(value);
    if (!json_is_number(value) || !(percent >= 0 && percent <= 100))
        return apifault_expected(&d->fault, "percent", value, "a number from 0 to 100");
    *share = (uint32_t)lround(percent * 100);
    return ZP_OK;
}

static zp_status change_canary(struct decision *d)
{
    struct rollout *r = d->c->s->rollout;
    const char *actor = d->c->actor;
    bool cut = json_is_true(json_object_get(d->body, "cut"));
    uint32_t share = 0;
    if (is(d, "hold")) return canary_hold(&r->canary, actor, d->why, d->now, &d->err);
    if (is(d, "resume")) return canary_resume(&r->canary, actor, d->why, d->now, &d->err);
    if (is(d, "roll-back")) return rollout_roll_back(r, cut, actor, d->why, d->now, &d->err);
    ZP_TRY(read_share(d, &share));
    return canary_set_share(&r->canary, share, actor, d->why, d->now, &d->err);
}

void serveadmin_canary(const struct servecall *c)
{
    static const char *const actions[] = { "set", "hold", "resume", "roll-back", NULL };
    struct decision d;
    zp_status status = begin(&d, c, actions) ? change_canary(&d) : ZP_BAD_INPUT;
    c->s->cuts = true;
    servejobs_move_cut(c->s);
    end(&d, status);
}

void serveadmin_breaker(const struct servecall *c)
{
    static const char *const actions[] = { "open", "close", NULL };
    struct rollout *r = c->s->rollout;
    struct decision d;
    if (!begin(&d, c, actions)) {
        end(&d, ZP_BAD_INPUT);
        return;
    }
    if (is(&d, "open")) breaker_open(&r->breaker, c->actor, d.why, d.now);
    else rollout_close_breaker(r, c->actor, d.why, d.now);
    end(&d, ZP_OK);
}

static zp_status change_models(struct decision *d)
{
    zp_serve *s = d->c->s;
    const char *actor = d->c->actor;
    const json_t *path = json_object_get(d->body, "path");
    bool cut = json_is_true(json_object_get(d->body, "cut"));
    if (is(d, "promote")) return servemodels_promote(s, actor, d->why, &d->err);
    if (is(d, "unload-candidate")) return servemodels_unload(s, cut, actor, d->why, &d->err);
    if (json_string_length(path) == 0)
        return apifault_expected(&d->fault, "path", path, "the path of a model");
    enum variant v = is(d, "load-candidate") ? VARIANT_CANDIDATE : VARIANT_BASELINE;
    return servemodels_load(s, v, json_string_value(path), actor, &d->err);
}

void serveadmin_models(const struct servecall *c)
{
    static const char *const actions[] = { "load-candidate", "unload-candidate", "promote",
                                           "load-baseline", NULL };
    struct decision d;
    end(&d, begin(&d, c, actions) ? change_models(&d) : ZP_BAD_INPUT);
}

static void note(const struct decision *d, const char *what)
{
    struct audit_note n = audit_note(d->c->actor, what, d->why, d->now);
    audit_add(&d->c->s->rollout->audit, &n); // A1
}

void serveadmin_cache(const struct servecall *c)
{
    static const char *const actions[] = { "drop", NULL };
    struct decision d;
    bool good = begin(&d, c, actions);
    if (good) {
        note(&d, "cache_dropped");
        sched_drop_cache(c->s->sched);
    }
    end(&d, good ? ZP_OK : ZP_BAD_INPUT);
}

void serveadmin_drain(const struct servecall *c)
{
    struct decision d;
    bool good = begin(&d, c, NULL);
    const json_t *value = json_object_get(d.body, "seconds");
    double seconds = value != NULL ? json_number_value(value) : c->s->o.drain_timeout;
    if (good && !(seconds >= 0 && seconds <= 86400))
        (void)apifault_expected(&d.fault, "seconds", value, "a number from 0 to 86400");
    else if (good) {
        note(&d, "drained");
        service_drain(c->s, seconds);
    }
    end(&d, ZP_OK);
}

void serveadmin_cancel(const struct servecall *c)
{
    struct decision d;
    bool good = begin(&d, c, NULL);
    const json_t *id = json_object_get(d.body, "id");
    if (good && json_string_length(id) == 0)
        (void)apifault_expected(&d.fault, "id", id, "the id of a request");
    else if (good && servejobs_cancel(c->s, json_string_value(id)) == 0)
        (void)apifault_set(&d.fault, 404, "not_found", "id", "no request of that id is under way");
    else if (good) note(&d, "request_cancelled");
    end(&d, ZP_OK);
}
