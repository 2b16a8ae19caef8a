/* servestat.c: figures of the whole server: what is read from its parts before a scrape, and what
 * each exchange of HTTP adds. */
#include "serve/servestat.h"

#include <math.h>
#include <string.h>

#include "base/os.h"

#define MOST_STEP_SECONDS 60.0 /* without a step while there is work: stalled */

bool servestat_is_alive(const zp_serve *s)
{
    struct sched_beat beat;
    sched_read_beat(s->sched, &beat);
    return !beat.busy || os_now() - beat.at < MOST_STEP_SECONDS;
}

/* ---- HTTP ------------------------------------------------------------------------------------ */

static unsigned route_of(const char *path)
{
    static const struct {
        const char *path;
        unsigned label;
    } routes[] = {
        { "/v1/chat/completions", LABEL_ROUTE_CHAT },
        { "/v1/completions", LABEL_ROUTE_COMPLETIONS },
        { "/v1/messages/count_tokens", LABEL_ROUTE_COUNT_TOKENS },
        { "/v1/messages", LABEL_ROUTE_MESSAGES },
        { "/v1/embeddings", LABEL_ROUTE_EMBEDDINGS },
        { "/embeddings", LABEL_ROUTE_EMBEDDINGS },
        { "/embedding", LABEL_ROUTE_EMBEDDINGS },
        { "/v1/models", LABEL_ROUTE_MODELS },
        { "/tokenize", LABEL_ROUTE_TOKENIZE },
        { "/detokenize", LABEL_ROUTE_DETOKENIZE },
        { "/apply-template", LABEL_ROUTE_TEMPLATE },
        { "/health", LABEL_ROUTE_HEALTH },
        { "/healthz", LABEL_ROUTE_HEALTH },
        { "/readyz", LABEL_ROUTE_HEALTH },
        { "/status", LABEL_ROUTE_HEALTH },
        { "/metrics", LABEL_ROUTE_METRICS },
        { "/", LABEL_ROUTE_DASHBOARD },
        { "/dashboard.js", LABEL_ROUTE_DASHBOARD },
        { "/dashboard.css", LABEL_ROUTE_DASHBOARD },
    };
    for (size_t i = 0; i < ZP_COUNT(routes); i++)
        if (strcmp(path, routes[i].path) == 0) return routes[i].label;
    if (strncmp(path, "/admin/", 7) == 0) return LABEL_ROUTE_ADMIN;
    return strncmp(path, "/v1/models/", 11) == 0 ? LABEL_ROUTE_MODELS : LABEL_ROUTE_OTHER;
}

void servestat_on_access(void *arg, const struct http_access *a)
{
    zp_serve *s = arg;
    const struct metrics_http h = { .route = route_of(a->path), .status = a->status,
                                    .seconds = (double)a->ms * 1e-3, .bytes_in = a->bytes_in,
                                    .bytes_out = a->bytes_out };
    bool watched = h.route == LABEL_ROUTE_HEALTH || h.route == LABEL_ROUTE_METRICS ||
                   strcmp(a->path, "/admin/status") == 0; /* asked for again and again */
    metrics_http(s->metrics, &h);
    LOGLINE(&s->log, watched ? LOG_DEBUG : LOG_INFO, "http", a->id,
            logline_text("method", a->method), logline_text("path", a->path),
            logline_int("status", a->status), logline_bool("cut", a->cut),
            logline_uint("bytes_in", a->bytes_in), logline_uint("bytes_out", a->bytes_out),
            logline_uint("ms", a->ms), logline_text("peer", a->peer));
}

static void refresh_http(zp_serve *s)
{
    const struct http_counts *c = http_counts(s->http);
    struct metrics *m = s->metrics;
    metrics_set(m, METRIC_HTTP_OPEN, METRIC_AT(0), (double)c->open);
    metrics_set_count(m, METRIC_HTTP_CONNECTIONS, METRIC_AT(LABEL_CONNECTION_SERVED),
                      c->accepted - c->refused);
    metrics_set_count(m, METRIC_HTTP_CONNECTIONS, METRIC_AT(LABEL_CONNECTION_REFUSED), c->refused);
    metrics_set_count(m, METRIC_HTTP_SLOW, METRIC_AT(0), c->cut_slow);
    metrics_set_count(m, METRIC_TLS_ERRORS, METRIC_AT(0), c->tls_errors);
}

/* ---- the scheduler --------------------------------------------------------------------------- */

static void refresh_variant(zp_serve *s, unsigned v, const struct sched_figures *f)
{
    struct metrics *m = s->metrics;
    const struct servemodel *model = s->variants[v];
    const struct sched_slot *slot = &f->slots[s->slots[v]];
    if (model == NULL) return;
    uint64_t used = slot->kv_pages_used, kept = slot->kv_pages_kept;
    double done = (double)slot->position_done, skipped = (double)slot->position_skipped;
    uint32_t n = model->info.n_layer, zeroed = model->zeroed[ZP_MODE_FULL];
    metrics_set(m, METRIC_SEQUENCES, METRIC_AT(v), (double)slot->sequences);
    metrics_set(m, METRIC_KV_PAGES, METRIC_AT(v, LABEL_PAGE_USED), (double)used);
    metrics_set(m, METRIC_KV_PAGES, METRIC_AT(v, LABEL_PAGE_KEPT), (double)kept);
    metrics_set(m, METRIC_KV_PAGES, METRIC_AT(v, LABEL_PAGE_FREE),
                (double)(slot->kv_pages - used - kept));
    metrics_set(m, METRIC_ROPE_LAYERS, METRIC_AT(v), (double)(n - zeroed));
    metrics_set(m, METRIC_NOPE_LAYERS, METRIC_AT(v), (double)zeroed);
    metrics_set(m, METRIC_ECR, METRIC_AT(v), (double)zeroed / n);
    metrics_set(m, METRIC_PES, METRIC_AT(v), model->strength);
    metrics_set(m, METRIC_PSR, METRIC_AT(v), done + skipped > 0 ? skipped / (done + skipped) : NAN);
    metrics_set_count(m, METRIC_POSITIONS, METRIC_AT(v, LABEL_POSITION_DONE), slot->position_done);
    metrics_set_count(m, METRIC_POSITIONS, METRIC_AT(v, LABEL_POSITION_SKIPPED),
                      slot->position_skipped);
}

static void refresh_sched(zp_serve *s)
{
    struct sched_figures f;
    struct sched_beat beat;
    struct metrics *m = s->metrics;
    sched_read_figures(s->sched, &f);
    sched_read_beat(s->sched, &beat);
    metrics_set(m, METRIC_RUNNING, METRIC_AT(0), (double)f.running);
    metrics_set(m, METRIC_WAITING, METRIC_AT(0), (double)f.waiting);
    metrics_set(m, METRIC_WAITING_TOKENS, METRIC_AT(0), (double)f.waiting_tokens);
    metrics_set(m, METRIC_HEARTBEAT, METRIC_AT(0), os_now() - beat.at);
    metrics_set(m, METRIC_BUSY, METRIC_AT(0), beat.busy);
    for (unsigned v = 0; v < VARIANTS; v++) refresh_variant(s, v, &f);
}

/* ---- the roll-out ---------------------------------------------------------------------------- */

static void refresh_rollout(zp_serve *s)
{
    struct metrics *m = s->metrics;
    const struct rollout *r = s->rollout;
    metrics_set_state(m, METRIC_CANARY_STATE, r->canary.state);
    metrics_set(m, METRIC_CANARY_SHARE, METRIC_AT(0), (double)r->canary.share / CANARY_WHOLE);
    metrics_set_count(m, METRIC_PROMOTIONS, METRIC_AT(0), r->canary.promotions);
    for (unsigned i = 0; i < CANARY_CAUSE_COUNT; i++)
        metrics_set_count(m, METRIC_ROLLBACKS, METRIC_AT(i), r->canary.rollbacks[i]);
    metrics_set_state(m, METRIC_BREAKER_STATE, r->breaker.state);
    for (unsigned i = 0; i < BREAKER_CAUSE_COUNT; i++)
        metrics_set_count(m, METRIC_TRIPS, METRIC_AT(i), r->breaker.trips[i]);
    for (unsigned l = 0; l < LENGTHS && sla_is_on(&r->sla); l++) {
        const struct sla_class *c = &r->sla.classes[l];
        if (c->first_p95 > 0) metrics_set(m, METRIC_SLA_FIRST, METRIC_AT(l), c->first_p95);
        if (c->total_p90 > 0) metrics_set(m, METRIC_SLA_WHOLE, METRIC_AT(l), c->total_p90);
        metrics_set_count(m, METRIC_SLA_BREACHES, METRIC_AT(l), c->breaches);
        metrics_set(m, METRIC_SLA_HALF, METRIC_AT(l), c->half);
        metrics_set_count(m, METRIC_SLA_SWITCHES, METRIC_AT(l, LABEL_SWITCH_HALF), c->to_half);
        metrics_set_count(m, METRIC_SLA_SWITCHES, METRIC_AT(l, LABEL_SWITCH_FULL), c->from_half);
        metrics_set(m, METRIC_SLA_SHED, METRIC_AT(l), c->shed);
    }
}

/* ---- a scrape -------------------------------------------------------------------------------- */

void servestat_refresh(zp_serve *s)
{
    metrics_set_state(s->metrics, METRIC_SERVER_STATE, s->state);
    refresh_http(s);
    refresh_sched(s);
    refresh_rollout(s);
    metrics_sample_process(s->metrics);
}

zp_status servestat_write(zp_serve *s, enum metrics_format format, struct buffer *out, zp_err *err)
{
    struct metrics_texts texts = { .version = ZEROPE_VERSION, .compiler = __VERSION__ };
    for (unsigned v = 0; v < VARIANTS; v++) {
        const struct servemodel *m = s->variants[v];
        if (m == NULL) continue;
        texts.variants[v].model = m->name;
        texts.variants[v].arch = m->info.arch;
        texts.variants[v].sha256 = zp_model_sha256(m->model);
        texts.kernels = m->stats.level;
    }
    servestat_refresh(s);
    return metrics_write(s->metrics, &texts, format, s->compat, out, err);
}
