/* sla.c: windows of latencies by length class, and steps up and down a ladder:
 * nothing - mode half (where it helps) - a share refused - more refused.
 * Owns: the windows. Does not know: modes of a model, HTTP.
 * Threads: one.
 * S1 a step is judged by requests that began after it.  S2 never all are refused: without requests
 * nothing would be known.  S3 mode half only where a gain is known, and back only when the latency
 * without that gain would still be below the limit.  S4 every step is in the audit log. */
#include "serve/sla.h"

#include <math.h>
#include <stdio.h>

#include "serve/defaults.h"

#define LEAST_GAIN 1.05

/* ---- options ---- */

zp_status sla_init(struct sla *s, const struct sla_options *options, zp_err *err)
{
    *s = (struct sla){ .o = *options };
    struct sla_options *o = &s->o;
    default_count(&o->medium_from, 512);
    default_count(&o->long_from, 4096);
    default_real(&o->window, 60);
    default_count(&o->least_requests, 20);
    default_real(&o->recovered, 0.8);
    default_count(&o->calm, 3);
    default_real(&o->shed_step, 0.2);
    default_real(&o->most_shed, 0.9);
    for (int l = 0; l < LENGTHS; l++)
        ZP_FAIL_IF(!(o->limits[l].first_p95 >= 0 && o->limits[l].total_p90 >= 0), err, ZP_USAGE,
                   "limits of the %s class must be seconds, 0 for none",
                   length_name((enum length_class)l));
    ZP_FAIL_IF(o->medium_from >= o->long_from, err, ZP_USAGE,
               "medium prompts begin at %u tokens and long ones at %u, expected more",
               o->medium_from, o->long_from);
    ZP_FAIL_IF(!(o->most_shed < 1 && o->shed_step > 0 && o->recovered < 1 && o->window > 0), err,
               ZP_USAGE, "an SLA needs shares below 1 and a window above 0 s"); // S2
    return ZP_OK;
}

enum length_class sla_length(const struct sla *s, uint64_t n_prompt)
{
    return n_prompt < s->o.medium_from ? LENGTH_SHORT
           : n_prompt < s->o.long_from ? LENGTH_MEDIUM
                                       : LENGTH_LONG;
}

static bool has_limit(const struct sla *s, int l)
{
    return s->o.limits[l].first_p95 > 0 || s->o.limits[l].total_p90 > 0;
}

bool sla_is_on(const struct sla *s)
{
    bool on = false;
    for (int l = 0; l < LENGTHS; l++) on |= has_limit(s, l);
    return on;
}

void sla_set_half_gain(struct sla *s, enum length_class l, double gain)
{
    s->classes[l].half_gain = gain >= LEAST_GAIN ? gain : 0;
}

double sla_retry_seconds(const struct sla *s)
{
    return s->o.window / LATENCY_PARTS;
}

/* ---- requests ---- */

bool sla_admit(struct sla *s, enum length_class l, bool mode_is_open, bool *half, uint64_t *epoch)
{
    struct sla_class *c = &s->classes[l];
    *half = c->half && c->half_gain > 0 && mode_is_open; // S3
    *epoch = c->epoch;
    c->owed += c->shed;
    if (c->owed >= 1) {
        c->owed -= 1;
        c->refused++;
        return false;
    }
    c->halved += *half;
    return true;
}

void sla_ended(struct sla *s, enum length_class l, uint64_t epoch, const struct outcome *o,
               double now)
{
    struct sla_class *c = &s->classes[l];
    double first = outcome_first(o), total = outcome_total(o);
    if (epoch != c->epoch || !has_limit(s, l)) return; // S1
    if (first > 0) latency_window_add(&c->first, s->o.window, now, first);
    if (total > 0) latency_window_add(&c->total, s->o.window, now, total);
}

/* ---- steps ---- */

/* The one place where mode and share change (S4). */
static void change(struct sla *s, int l, bool half, double shed, const char *why, double now)
{
    struct sla_class *c = &s->classes[l];
    bool other_mode = half != c->half;
    const char *what = other_mode ? (half ? "sla_mode_half" : "sla_mode_back")
                                  : (shed > c->shed ? "sla_shed_more" : "sla_shed_less");
    struct audit_note note = audit_note(AUDIT_RULE, what, why, now);
    snprintf(note.why, sizeof note.why, "%s prompts: %s", length_name((enum length_class)l), why);
    audit_number(&note, "first_p95_seconds", c->first_p95);
    audit_number(&note, "first_limit_seconds", s->o.limits[l].first_p95);
    audit_number(&note, "total_p90_seconds", c->total_p90);
    audit_number(&note, "total_limit_seconds", s->o.limits[l].total_p90);
    audit_number(&note, "shed_share", shed);
    if (other_mode) audit_number(&note, "half_gain", c->half_gain);
    c->to_half += other_mode && half;
    c->from_half += other_mode && !half;
    c->shed_more += shed > c->shed;
    c->shed_less += shed < c->shed;
    c->half = half;
    c->shed = shed;
    c->owed = 0;
    c->calm = 0;
    c->epoch++;
    c->since = now;
    c->first = c->total = (struct latency_window){ 0 }; // S1
    c->last = note;
    audit_add(s->o.audit, &note);
}

static void step_up(struct sla *s, int l, double now)
{
    struct sla_class *c = &s->classes[l];
    double shed = fmin(c->shed + s->o.shed_step, s->o.most_shed);
    c->breaches++;
    c->calm = 0;
    if (!c->half && c->shed == 0 && c->half_gain > 0)
        change(s, l, true, 0, "a latency is above its limit: mode half is faster", now);
    else if (shed > c->shed)
        change(s, l, c->half, shed, "a latency is above its limit", now);
}

static void step_down(struct sla *s, int l, const char *why, double now)
{
    struct sla_class *c = &s->classes[l];
    double shed = c->shed - s->o.shed_step / 2;
    if (c->shed > 0) change(s, l, c->half, shed > 1e-9 ? shed : 0, why, now);
    else if (c->half) change(s, l, false, 0, why, now);
}

/* The larger of the two latencies, as shares of their limits. 0: too few requests. */
static double load_of(struct sla *s, int l, double now)
{
    struct sla_class *c = &s->classes[l];
    const struct sla_limit *limit = &s->o.limits[l];
    struct latency first, total;
    latency_window_sum(&c->first, s->o.window, now, &first);
    latency_window_sum(&c->total, s->o.window, now, &total);
    bool first_known = first.n >= s->o.least_requests, total_known = total.n >= s->o.least_requests;
    c->first_p95 = first_known ? latency_quantile(&first, 0.95) : 0;
    c->total_p90 = total_known ? latency_quantile(&total, 0.9) : 0;
    return fmax(limit->first_p95 > 0 ? c->first_p95 / limit->first_p95 : 0,
                limit->total_p90 > 0 ? c->total_p90 / limit->total_p90 : 0);
}

static void look_at(struct sla *s, int l, double now)
{
    struct sla_class *c = &s->classes[l];
    double load = load_of(s, l, now);
    bool raised = c->half || c->shed > 0;
    if (load > 1) {
        step_up(s, l, now);
    } else if (load == 0) { /* the window began anew with the last step: wait until it is full */
        if (raised && now - c->since >= s->o.window)
            step_down(s, l, "there are too few requests to protect", now);
    } else {
        bool leaves_half = c->half && c->shed == 0;
        double margin = leaves_half && c->half_gain > 0 ? c->half_gain : 1; // S3
        c->calm = load * margin < s->o.recovered ? c->calm + 1 : 0;
        if (raised && c->calm >= s->o.calm)
            step_down(s, l, "latencies are well below their limits", now);
    }
}

void sla_tick(struct sla *s, double now)
{
    if (now - s->looked < sla_retry_seconds(s)) return;
    s->looked = now;
    for (int l = 0; l < LENGTHS; l++)
        if (has_limit(s, l)) look_at(s, l, now);
}

/* ---- the document ---- */

static void write_class(const struct sla *s, int l, struct json_build *w)
{
    const struct sla_class *c = &s->classes[l];
    const struct sla_limit *limit = &s->o.limits[l];
    json_build_object(w, length_name((enum length_class)l));
    json_build_real(w, "first_limit_seconds", limit->first_p95 > 0 ? limit->first_p95 : NAN, 6);
    json_build_real(w, "total_limit_seconds", limit->total_p90 > 0 ? limit->total_p90 : NAN, 6);
    json_build_real(w, "first_p95_seconds", c->first_p95 > 0 ? c->first_p95 : NAN, 4);
    json_build_real(w, "total_p90_seconds", c->total_p90 > 0 ? c->total_p90 : NAN, 4);
    json_build_text(w, "mode", c->half ? "half" : "as_asked");
    json_build_real(w, "half_gain", c->half_gain > 0 ? c->half_gain : NAN, 4);
    json_build_real(w, "shed_share", c->shed, 4);
    json_build_uint(w, "breaches", c->breaches);
    json_build_uint(w, "to_half", c->to_half);
    json_build_uint(w, "from_half", c->from_half);
    json_build_uint(w, "shed_more", c->shed_more);
    json_build_uint(w, "shed_less", c->shed_less);
    json_build_uint(w, "requests_refused", c->refused);
    json_build_uint(w, "requests_in_half", c->halved);
    audit_write_note(&c->last, "last", w);
    json_build_object_end(w);
}

void sla_write(const struct sla *s, const char *key, struct json_build *w)
{
    json_build_object(w, key);
    json_build_bool(w, "on", sla_is_on(s));
    json_build_uint(w, "medium_from_tokens", s->o.medium_from);
    json_build_uint(w, "long_from_tokens", s->o.long_from);
    for (int l = 0; l < LENGTHS; l++) write_class(s, l, w);
    json_build_object_end(w);
}
