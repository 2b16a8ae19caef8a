/* service.c: the server as a whole: its parts are opened, run and ended in order here.
 * Owns: all of struct zp_serve. Does not know: what requests say.
 * S1 the end: listeners close, the scheduler takes no jobs, requests under way end or are cut; when
 *    no connection and no request is left the loop stops. A model that cannot be loaded at the
 *    start ends it at once.
 * S2 stops and reloads are noted by whoever calls, and obeyed by the loop. */
#include "serve/service.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/hash.h"
#include "base/os.h"
#include "serve/servejobs.h"
#include "serve/servemodels.h"
#include "serve/serveoptions.h"
#include "serve/serveroutes.h"
#include "serve/servestat.h"
#include "serve/servetrace.h"
#include "serve/servewatch.h"

#define DRAIN_SECONDS 30.0
#define CUT_SECONDS 1.0 /* that connections get beyond the scheduler's, for the last event */
#define READERS 2
#define TICK_SECONDS 1.0

/* ---- events ---------------------------------------------------------------------------------- */

static void try_end(zp_serve *s)
{
    if (s->http_ended && s->jobs == NULL) evloop_stop(s->loop); // S1
}

void service_end(zp_serve *s, zp_status status, const zp_err *why)
{
    s->status = status;
    (void)status_fail(s->err, status, why->file, why->line, "%s", why->message);
    evloop_stop(s->loop);
}

void service_ready(zp_serve *s)
{
    if (s->state == LABEL_SERVER_LOADING) s->state = LABEL_SERVER_READY;
    LOGLINE(&s->log, LOG_INFO, "ready", NULL, logline_text("url", s->url),
            logline_text("model", s->name));
    servewatch_tell(s, NOTIFY_READY);
    if (s->o.ready != NULL) s->o.ready(s->o.ready_arg, s->url);
}

void service_jobs_ended(zp_serve *s)
{
    try_end(s);
}

static void on_news(void *arg)
{
    zp_serve *s = arg;
    const struct sched_event *e;
    http_turn(s->http);
    while ((e = sched_next(s->sched)) != NULL) {
        if (e->id != 0) servejobs_take(e);
        else if (e->kind == SCHED_RELEASED) servemodels_released(s, e->engine);
    }
}

static void wake(void *arg)
{
    evwake_send(((zp_serve *)arg)->news);
}

/* Any thread may count. */
static void stepped(void *arg, double seconds, size_t tokens, size_t sequences)
{
    metrics_step(((zp_serve *)arg)->metrics, seconds, tokens, sequences);
}

static void on_tick(void *arg)
{
    zp_serve *s = arg;
    double now = os_now();
    rollout_tick(s->rollout, now, (double)os_unix_now() * 1e-9);
    s->cuts = true;
    servejobs_move_cut(s);
    servejobs_tick(s, now);
    servewatch_tick(s, now);
    servetrace_tick(s->trace);
}

/* ---- the end --------------------------------------------------------------------------------- */

static void http_drained(void *arg)
{
    zp_serve *s = arg;
    s->http_ended = true;
    try_end(s);
}

void service_drain(zp_serve *s, double seconds)
{
    s->state = LABEL_SERVER_DRAINING;
    servewatch_tell(s, NOTIFY_STOPPING);
    LOGLINE(&s->log, LOG_INFO, "draining", NULL, logline_uint("requests", s->n_jobs),
            logline_real("seconds", seconds));
    sched_drain(s->sched, os_now() + seconds);
    http_drain(s->http, (uint64_t)((seconds + CUT_SECONDS) * 1e3), http_drained, s);
}

static void say_reload(zp_serve *s, const char *what, zp_status status, const zp_err *err)
{
    LOGLINE(&s->log, status == ZP_OK ? LOG_INFO : LOG_ERROR, "reload", NULL,
            logline_text("what", what), logline_bool("done", status == ZP_OK),
            logline_text("error", status == ZP_OK ? NULL : err->message));
}

static void reload_keys(zp_serve *s, struct servekeys *keys, const char *path, const char *what)
{
    zp_err err = { 0 };
    if (path != NULL) say_reload(s, what, servekeys_read(keys, path, &err), &err);
}

/* What cannot be read stays as it was. */
static void reload(zp_serve *s)
{
    zp_err err = { 0 };
    servewatch_tell(s, NOTIFY_RELOADING);
    reload_keys(s, &s->keys, s->o.api_keys, "api keys");
    reload_keys(s, &s->admin_keys, s->o.admin_keys, "admin keys");
    if (s->o.tls_certificate != NULL)
        say_reload(s, "certificate", http_reload_tls(s->http, &err), &err);
    if (s->state == LABEL_SERVER_READY) servewatch_tell(s, NOTIFY_READY);
}

static void on_orders(void *arg)
{
    zp_serve *s = arg;
    unsigned stops = atomic_load(&s->stops);
    double seconds = s->o.drain_timeout > 0 ? s->o.drain_timeout : DRAIN_SECONDS;
    if (atomic_exchange(&s->reloads, false)) reload(s);
    if (stops > s->n_stops) service_drain(s, stops > 1 ? 0 : seconds); // S2
    s->n_stops = stops;
}

void zp_serve_stop(zp_serve *s)
{
    atomic_fetch_add(&s->stops, 1);
    evwake_send(s->orders);
}

void zp_serve_reload(zp_serve *s)
{
    atomic_store(&s->reloads, true);
    evwake_send(s->orders);
}

/* ---- opening --------------------------------------------------------------------------------- */

static zp_status set_url(zp_serve *s, uint16_t port, zp_err *err)
{
    const char *scheme = s->o.tls_certificate != NULL ? "https" : "http";
    const char *host = s->o.host, *prefix = s->o.prefix != NULL ? s->o.prefix : "";
    char text[1024];
    if (strchr(host, ':') != NULL)
        (void)snprintf(text, sizeof text, "%s://[%s]:%u%s", scheme, host, port, prefix);
    else if (host[0] != '\0')
        (void)snprintf(text, sizeof text, "%s://%s:%u%s", scheme, host, port, prefix);
    else (void)snprintf(text, sizeof text, "unix:%s", s->o.unix_path ? s->o.unix_path : "");
    s->url = mem_strdup(MEM_SERVE, text);
    ZP_FAIL_IF(s->url == NULL, err, ZP_NO_MEMORY, "not enough memory for an address");
    return ZP_OK;
}

static zp_status listen_all(zp_serve *s, zp_err *err)
{
    const zp_serve_options *o = &s->o;
    bool tls = o->tls_certificate != NULL;
    size_t n = 0;
    uint16_t port = 0;
    ZP_TRY(http_listen_systemd(s->http, o->listen_pid, o->listen_fds, tls, &n, err));
    if (n == 0 && o->host[0] != '\0')
        ZP_TRY(http_listen_tcp(s->http, o->host, o->port, tls, &port, err));
    if (o->unix_path != NULL)
        ZP_TRY(http_listen_unix(s->http, o->unix_path, o->unix_mode, err));
    return set_url(s, port, err);
}

static zp_status open_http(zp_serve *s, zp_err *err)
{
    const zp_serve_options *o = &s->o;
    struct http_options h = { .prefix = o->prefix, .origins = o->origins.at,
                              .n_origins = o->origins.n,
                              .limits = { .body_bytes = (size_t)o->most_body,
                                          .n_connections = o->most_connections },
                              .write_error = serveroutes_write_error,
                              .on_access = servestat_on_access, .arg = s,
                              .certificate = o->tls_certificate, .key = o->tls_key };
    ZP_TRY(serveroutes_open(s, &h.n_routes, err));
    h.routes = s->routes;
    ZP_TRY(http_open(&s->http, s->loop, &h, err));
    return listen_all(s, err);
}

static void keep_decision(void *arg, const char *line, size_t size)
{
    zp_serve *s = arg;
    LOGLINE(&s->log, LOG_INFO, "audit", NULL, logline_text("decision", line));
    if (s->o.audit != NULL) s->o.audit(s->o.log_arg, line, size);
}

static zp_status open_rollout(zp_serve *s, zp_err *err)
{
    struct rollout_options o;
    ZP_TRY(serveoptions_rollout(&s->o, &o, err));
    o.audit.sink = keep_decision;
    o.audit.sink_arg = s;
    return rollout_open(&s->rollout, &o, os_now(), (double)os_unix_now() * 1e-9, err);
}

static zp_status open_sched(zp_serve *s, zp_err *err)
{
    const struct sched_options o = { .most_waiting = s->o.most_waiting,
                                     .most_waiting_tokens = s->o.most_waiting_tokens,
                                     .wake = wake, .wake_arg = s, .stepped = stepped };
    ZP_TRY(evwake_open(&s->news, s->loop, on_news, s, err));
    return sched_open(&s->sched, &o, err);
}

static void drop_line(void *arg, enum log_level level, const char *line, size_t size)
{
    zp_serve *s = arg;
    metrics_add(s->metrics, METRIC_LOG_RECORDS, METRIC_AT((unsigned)level), 1);
    if (s->o.log != NULL) s->o.log(s->o.log_arg, (int)level, line, size);
}

static void open_log(zp_serve *s)
{
    s->log = (struct logline_log){
        .most = s->o.log == NULL ? LOG_ERROR
                : s->o.log_level > 0 ? (enum log_level)(s->o.log_level - 1) : LOG_INFO,
        .style = s->o.log_json ? LOGLINE_JSON : LOGLINE_PLAIN, .content = s->o.log_content,
        .sink = drop_line, .arg = s
    };
}

static zp_status fill(zp_serve *s, zp_err *err)
{
    if (s->o.host == NULL) s->o.host = "127.0.0.1";
    s->api_limits = (struct api_limits){ .tokens = s->o.most_tokens, .mode = s->o.mode,
                                          .anchors = s->o.anchors };
    ZP_FAIL_IF(getrandom(s->secret, sizeof s->secret, 0) != sizeof s->secret, err, ZP_RUN,
               "the system gives no random bytes");
    ZP_TRY(metrics_compat_of(s->o.metrics_compat ? s->o.metrics_compat : "", &s->compat, err));
    ZP_TRY(metrics_open(&s->metrics, err));
    open_log(s);
    ZP_TRY(evloop_open(&s->loop, err));
    ZP_TRY(evwake_open(&s->orders, s->loop, on_orders, s, err));
    ZP_TRY(evtimer_open(&s->tick, s->loop, on_tick, s, err));
    ZP_TRY(servework_open(&s->readers, s->loop, READERS, err));
    ZP_TRY(servework_open(&s->loader, s->loop, 1, err));
    if (s->o.api_keys != NULL) ZP_TRY(servekeys_read(&s->keys, s->o.api_keys, err));
    if (s->o.admin_keys != NULL) ZP_TRY(servekeys_read(&s->admin_keys, s->o.admin_keys, err));
    if (s->o.otlp != NULL) ZP_TRY(servetrace_open(&s->trace, s, s->o.otlp, err));
    ZP_TRY(open_rollout(s, err));
    ZP_TRY(open_sched(s, err));
    return open_http(s, err);
}

zp_status zp_serve_open(zp_serve **out, const zp_serve_options *options, zp_err *err)
{
    *out = NULL;
    zp_serve *s = mem_zalloc(MEM_SERVE, sizeof *s);
    ZP_FAIL_IF(s == NULL, err, ZP_NO_MEMORY, "not enough memory for a server");
    s->o = *options;
    zp_status status = fill(s, err);
    if (status == ZP_OK) *out = s;
    else zp_serve_close(s);
    return status;
}

zp_status zp_serve_run(zp_serve *s, zp_err *err)
{
    s->err = err;
    s->running = true;
    s->slots[VARIANT_CANDIDATE] = 1;
    s->started = os_now();
    uint64_t period = (uint64_t)(servewatch_period(s, TICK_SECONDS) * 1e3);
    evtimer_start(s->tick, period, period);
    if (servemodels_load(s, VARIANT_BASELINE, s->o.model, AUDIT_RULE, err) != ZP_OK)
        return err->code;
    if (atomic_load(&s->stops) != 0) evwake_send(s->orders);
    evloop_run(s->loop);
    s->running = false;
    LOGLINE(&s->log, LOG_INFO, "stopped", NULL, logline_uint("requests", s->n_jobs));
    return s->status;
}

/* The scheduler before the models that it uses, what calls the loop before the loop. */
void zp_serve_close(zp_serve *s)
{
    if (s == NULL) return;
    servework_close(s->loader);
    servework_close(s->readers);
    servetrace_close(s->trace);
    s->trace = NULL;
    if (s->http != NULL) http_close(s->http);
    sched_close(s->sched);
    servejobs_close(s);
    evwake_close(s->news);
    servemodels_close(s);
    rollout_close(s->rollout);
    servekeys_free(&s->keys);
    servekeys_free(&s->admin_keys);
    evwake_close(s->orders);
    evtimer_close(s->tick);
    evloop_close(s->loop);
    metrics_close(s->metrics);
    mem_free(s->routes);
    mem_free(s->route_args);
    mem_free(s->url);
    mem_free(s->name);
    mem_free(s->loading);
    mem_free(s->measured);
    mem_free(s);
}

/* ---- small ones ------------------------------------------------------------------------------ */

bool service_is_ready(const zp_serve *s, struct apifault *fault)
{
    if (s->state == LABEL_SERVER_READY) return true;
    if (s->state == LABEL_SERVER_DRAINING)
        (void)apifault_set(fault, 503, "draining", NULL,
                           "the server is shutting down and takes no new requests");
    else (void)apifault_set(fault, 503, "model_not_loaded", NULL, "Loading model");
    fault->retry_seconds = 1;
    return false;
}

uint64_t service_random(zp_serve *s)
{
    uint64_t n = s->n_made++;
    return hash_siphash(&n, sizeof n, (const uint8_t *)s->secret);
}
