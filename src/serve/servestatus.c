/* servestatus.c: /admin/status and /admin/gates: figures of the parts, put together. No state. */
#include "serve/servestatus.h"

#include <math.h>

#include "base/os.h"
#include "model/engine.h"
#include "serve/servestat.h"

#define DIGITS 6

/* ---- models ---------------------------------------------------------------------------------- */

static void write_half(const struct halfgain *h, struct json_build *w)
{
    json_build_object(w, "half_gain");
    for (int l = 0; l < LENGTHS; l++)
        json_build_real(w, length_name((enum length_class)l), h->gain[l] > 0 ? h->gain[l] : NAN,
                        DIGITS);
    json_build_text(w, "why", h->why[0] != '\0' ? h->why : NULL);
    json_build_object_end(w);
}

static void write_model(const struct servemodel *m, const char *key, struct json_build *w)
{
    if (m == NULL) {
        json_build_null(w, key);
        return;
    }
    json_build_object(w, key);
    json_build_text(w, "name", m->name);
    json_build_text(w, "path", m->path);
    json_build_text(w, "arch", m->info.arch);
    json_build_text(w, "sha256", zp_model_sha256(m->model));
    json_build_uint(w, "n_params", m->info.n_params);
    json_build_uint(w, "n_layer", m->info.n_layer);
    json_build_uint(w, "layer_zeroed", m->zeroed[ZP_MODE_FULL]);
    json_build_uint(w, "layer_zeroed_half", m->zeroed[ZP_MODE_HALF]);
    json_build_bool(w, "has_half", m->model->position.has_half);
    write_half(&m->half, w);
    json_build_text(w, "rope_theta", m->theta);
    json_build_uint(w, "gates", m->info.gates_total);
    json_build_uint(w, "gates_closed", m->info.gates_closed);
    json_build_real(w, "positional_strength", m->strength, DIGITS);
    json_build_uint(w, "n_ctx", m->n_ctx);
    json_build_uint(w, "n_ctx_train", m->info.n_ctx_train);
    json_build_uint(w, "kv_bytes", m->stats.kv_bytes);
    json_build_uint(w, "kv_bytes_per_token", m->stats.kv_bytes_per_token);
    json_build_uint(w, "weights_bytes", m->stats.weights_bytes);
    json_build_text(w, "kernels", m->stats.level);
    json_build_uint(w, "requests", m->n_jobs);
    json_build_object_end(w);
}

static void write_models(const zp_serve *s, struct json_build *w)
{
    json_build_object(w, "models");
    for (unsigned v = 0; v < VARIANTS; v++)
        write_model(s->variants[v], variant_name((enum variant)v), w);
    json_build_text(w, "loading", s->loading);
    json_build_text(w, "load_error", s->load_error[0] != '\0' ? s->load_error : NULL);
    json_build_object_end(w);
}

/* ---- figures --------------------------------------------------------------------------------- */

static void write_slot(const zp_serve *s, unsigned v, const struct sched_figures *f,
                       struct json_build *w)
{
    const struct sched_slot *slot = &f->slots[s->slots[v]];
    uint64_t done = slot->position_done, skipped = slot->position_skipped;
    double total = (double)done + (double)skipped;
    if (s->variants[v] == NULL) return;
    json_build_object(w, variant_name((enum variant)v));
    json_build_uint(w, "sequences", slot->sequences);
    json_build_uint(w, "kv_pages", slot->kv_pages);
    json_build_uint(w, "kv_pages_used", slot->kv_pages_used);
    json_build_uint(w, "kv_pages_kept", slot->kv_pages_kept);
    json_build_uint(w, "position_done", done);
    json_build_uint(w, "position_skipped", skipped);
    json_build_real(w, "skip_ratio", total > 0 ? (double)skipped / total : NAN, DIGITS);
    json_build_object_end(w);
}

static void write_scheduler(const zp_serve *s, double now, struct json_build *w)
{
    struct sched_figures f;
    struct sched_beat beat;
    sched_read_figures(s->sched, &f);
    sched_read_beat(s->sched, &beat);
    json_build_object(w, "scheduler");
#define WRITE_FIGURE(name) json_build_uint(w, #name, f.name);
    SCHED_FIGURES(WRITE_FIGURE)
#undef WRITE_FIGURE
    json_build_bool(w, "busy", beat.busy);
    json_build_real(w, "heartbeat_seconds", now - beat.at, DIGITS);
    for (unsigned v = 0; v < VARIANTS; v++) write_slot(s, v, &f, w);
    json_build_object_end(w);
}

static void write_quantiles(const zp_serve *s, const char *key, enum metric id, struct metric_at at,
                            struct json_build *w)
{
    static const struct {
        const char *name;
        double q;
    } quantiles[] = { { "p50", 0.5 }, { "p90", 0.9 }, { "p95", 0.95 }, { "p99", 0.99 } };
    json_build_object(w, key);
    json_build_uint(w, "count", metrics_observed(s->metrics, id, at));
    for (size_t i = 0; i < ZP_COUNT(quantiles); i++)
        json_build_real(w, quantiles[i].name, metrics_quantile(s->metrics, id, at, quantiles[i].q),
                        DIGITS);
    json_build_object_end(w);
}

/* Since the start, of all that were served. */
static void write_latency(const zp_serve *s, struct json_build *w)
{
    json_build_object(w, "latency");
    for (unsigned v = 0; v < VARIANTS; v++) {
        json_build_object(w, variant_name((enum variant)v));
        json_build_object(w, "first_token_seconds");
        for (unsigned l = 0; l < LENGTHS; l++)
            write_quantiles(s, length_name((enum length_class)l), METRIC_FIRST_TOKEN,
                            METRIC_AT(v, l), w);
        json_build_object_end(w);
        json_build_object(w, "request_seconds");
        for (unsigned l = 0; l < LENGTHS; l++)
            write_quantiles(s, length_name((enum length_class)l), METRIC_DURATION, METRIC_AT(v, l),
                            w);
        json_build_object_end(w);
        write_quantiles(s, "inter_token_seconds", METRIC_GAP, METRIC_AT(v), w);
        json_build_object_end(w);
    }
    write_quantiles(s, "step_seconds", METRIC_STEP_SECONDS, METRIC_AT(0), w);
    json_build_object_end(w);
}

static uint64_t sum_requests(const zp_serve *s, enum metric id, unsigned outcome)
{
    uint64_t n = 0;
    for (unsigned e = 0; e < LABEL_ENDPOINT_COUNT; e++)
        for (unsigned v = 0; v < VARIANTS; v++)
            n += metrics_count(s->metrics, id, METRIC_AT(e, v, outcome));
    return n;
}

static void write_requests(const zp_serve *s, struct json_build *w)
{
    json_build_object(w, "requests");
    json_build_uint(w, "under_way", s->n_jobs);
    json_build_uint(w, "accepted", sum_requests(s, METRIC_ACCEPTED, 0));
    json_build_uint(w, "completed", sum_requests(s, METRIC_REQUESTS, LABEL_OUTCOME_COMPLETED));
    json_build_uint(w, "cancelled", sum_requests(s, METRIC_REQUESTS, LABEL_OUTCOME_CANCELLED));
    json_build_uint(w, "failed", sum_requests(s, METRIC_REQUESTS, LABEL_OUTCOME_FAILED));
    json_build_object_end(w);
}

static const char *state_name(const zp_serve *s)
{
    static const char *const states[] = { [LABEL_SERVER_LOADING] = "loading",
                                          [LABEL_SERVER_READY] = "ready",
                                          [LABEL_SERVER_DRAINING] = "draining" };
    return states[s->state];
}

static void write_server(zp_serve *s, double now, struct json_build *w)
{
    const struct http_counts *c = http_counts(s->http);
    json_build_object(w, "server");
    json_build_text(w, "version", ZEROPE_VERSION);
    json_build_text(w, "state", state_name(s));
    json_build_text(w, "model", s->name);
    json_build_text(w, "url", s->url);
    json_build_real(w, "uptime_seconds", now - s->started, DIGITS);
    json_build_uint(w, "connections", c->open);
    json_build_uint(w, "resident_bytes", os_rss_bytes());
    json_build_bool(w, "alive", servestat_is_alive(s));
    json_build_object_end(w);
}

/* admin: what opens the rest. */
void servestatus_write_public(zp_serve *s, struct json_build *w)
{
    double now = os_now();
    struct sched_beat beat;
    sched_read_beat(s->sched, &beat);
    json_build_object(w, NULL);
    json_build_text(w, "version", ZEROPE_VERSION);
    json_build_text(w, "state", state_name(s));
    json_build_text(w, "model", s->name);
    json_build_real(w, "uptime_seconds", now - s->started, DIGITS);
    json_build_bool(w, "alive", servestat_is_alive(s));
    json_build_bool(w, "busy", beat.busy);
    json_build_real(w, "heartbeat_seconds", now - beat.at, DIGITS);
    json_build_uint(w, "resident_bytes", os_rss_bytes());
    json_build_text(w, "admin",
                    s->o.admin_keys != NULL ? "key" : s->o.admin_open ? "open" : "closed");
    json_build_object_end(w);
}

void servestatus_write(zp_serve *s, struct json_build *w)
{
    double now = os_now();
    json_build_object(w, NULL);
    write_server(s, now, w);
    write_requests(s, w);
    write_models(s, w);
    write_scheduler(s, now, w);
    write_latency(s, w);
    rollout_write(s->rollout, now, "rollout", w);
    json_build_object_end(w);
}

/* ---- gates ----------------------------------------------------------------------------------- */

/* Pairs of a head that rotate. */
static uint32_t count_open(const struct position_head *h, bool half)
{
    uint32_t n = 0;
    for (uint32_t s = 0; s < h->n_open; s++)
        n += !half || h->half_open == NULL || h->half_open[h->pair[s]];
    return n;
}

static void write_heads(const struct position *p, uint32_t layer, const char *key, bool half,
                        struct json_build *w)
{
    json_build_array(w, key);
    for (uint32_t kv = 0; kv < p->n_kv; kv++)
        json_build_uint(w, NULL, count_open(&p->heads[layer * p->n_kv + kv], half));
    json_build_array_end(w);
}

static void write_layer(const struct position *p, uint32_t layer, struct json_build *w)
{
    json_build_object(w, NULL);
    json_build_text(w, "kind", position_kind_name(p->kind[layer]));
    write_heads(p, layer, "open_pairs", false, w);
    if (p->has_half) write_heads(p, layer, "open_pairs_half", true, w);
    json_build_array(w, "window"); /* positions in sight; 0: all */
    for (uint32_t kv = 0; kv < p->n_kv; kv++)
        json_build_uint(w, NULL, position_head_sight(p, layer, kv).window);
    json_build_array_end(w);
    json_build_object_end(w);
}

static void write_map(const struct servemodel *m, const char *key, struct json_build *w)
{
    if (m == NULL) {
        json_build_null(w, key);
        return;
    }
    const struct position *p = &m->model->position;
    json_build_object(w, key);
    json_build_text(w, "name", m->name);
    json_build_uint(w, "n_layer", p->n_layer);
    json_build_uint(w, "n_kv", p->n_kv);
    json_build_uint(w, "n_pair", p->n_pair);
    json_build_array(w, "layers");
    for (uint32_t l = 0; l < p->n_layer; l++) write_layer(p, l, w);
    json_build_array_end(w);
    json_build_object_end(w);
}

void servestatus_write_gates(zp_serve *s, struct json_build *w)
{
    json_build_object(w, NULL);
    for (unsigned v = 0; v < VARIANTS; v++)
        write_map(s->variants[v], variant_name((enum variant)v), w);
    json_build_object_end(w);
}

/* ---- one answer ------------------------------------------------------------------------------ */

static void write_open_pairs(const struct position *p, zp_mode mode, struct json_build *w)
{
    json_build_array(w, "open_pairs"); /* of all KV heads of a layer */
    for (uint32_t l = 0; l < p->n_layer; l++) {
        uint32_t n = 0;
        for (uint32_t kv = 0; kv < p->n_kv && mode != ZP_MODE_ZERO; kv++)
            n += count_open(&p->heads[l * p->n_kv + kv], mode == ZP_MODE_HALF);
        json_build_uint(w, NULL, n);
    }
    json_build_array_end(w);
}

void servestatus_write_architecture(const struct servemodel *m, zp_mode mode,
                                    const struct sched_slot *slot, struct json_build *w)
{
    static const char *const types[] = { [ZP_KV_F32] = "f32", [ZP_KV_BF16] = "bf16",
                                         [ZP_KV_Q8] = "q8" };
    const struct position *p = &m->model->position;
    double done = (double)slot->position_done, skipped = (double)slot->position_skipped;
    json_build_object(w, NULL);
    json_build_text(w, "arch", m->info.arch);
    json_build_text(w, "position_mode", position_mode_name(mode));
    json_build_array(w, "kinds");
    for (uint32_t l = 0; l < p->n_layer; l++)
        json_build_text(w, NULL, position_kind_name(p->kind[l]));
    json_build_array_end(w);
    write_open_pairs(p, mode, w);
    json_build_uint(w, "pairs", (uint64_t)p->n_kv * p->n_pair);
    json_build_text(w, "rope_theta", m->theta);
    json_build_text(w, "kv_type", types[m->engine->options.kv_type]);
    json_build_real(w, "skip_ratio", done + skipped > 0 ? skipped / (done + skipped) : NAN, DIGITS);
    json_build_object_end(w);
}
