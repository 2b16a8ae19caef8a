/* servemodels.c: which models are served: loading beside those in use, taking their place, going.
 * L1 a model is closed when the scheduler has given its engine back and no request holds it.
 * L2 one at a time is loaded; what is served changes when it is there and fits, or not at all.
 * L3 baseline and candidate share tokens and template, so that prompts and grammars hold for both.
 * L4 the candidate's place in the scheduler becomes the baseline's when it is promoted: nothing
 *    that is under way is touched. */
#include "serve/servemodels.h"

#include <stdio.h>
#include <string.h>

#include "base/os.h"
#include "serve/servejobs.h"

struct loading {
    struct servetask task;
    zp_serve *s;
    char *path, actor[AUDIT_ACTOR];
    enum variant variant;
    struct servemodel *beside[VARIANTS]; /* held; NULL: none */
    struct servemodel *model;
    zp_status status;
    zp_err err;
};

/* ---- on the loader's thread ------------------------------------------------------------------ */

static zp_status check_alike(struct loading *l)
{
    enum variant other = l->variant == VARIANT_BASELINE ? VARIANT_CANDIDATE : VARIANT_BASELINE;
    zp_err ignored = { 0 };
    if (l->beside[other] != NULL)
        return servemodel_check_alike(l->beside[other], l->model, &l->err);
    /* One that takes another's place may be of another kind; of the same kind, prompts that are
     * read already hold for it. */
    if (l->beside[VARIANT_BASELINE] != NULL)
        (void)servemodel_check_alike(l->beside[VARIANT_BASELINE], l->model, &ignored);
    return ZP_OK;
}

static void load(struct servetask *t)
{
    struct loading *l = (struct loading *)t;
    zp_serve_options o = l->s->o;
    if (l->variant == VARIANT_CANDIDATE) o.engine.n_ctx = l->beside[VARIANT_BASELINE]->n_ctx;
    l->status = servemodel_open(&l->model, l->path, &o, &l->err);
    if (l->status == ZP_OK) l->status = check_alike(l);
    /* Its engine is nobody else's yet. */
    if (l->status == ZP_OK)
        halfgain_measure(l->model->engine, &l->s->rollout->sla.o, &l->model->half);
}

/* ---- on the loop's --------------------------------------------------------------------------- */

void servemodels_settle(zp_serve *s, struct servemodel *m)
{
    if (m->placed || m->n_jobs != 0) return; // L1
    struct servemodel **at = &s->models;
    while (*at != m) at = &(*at)->next;
    *at = m->next;
    servemodel_close(m);
}

void servemodels_released(zp_serve *s, const zp_engine *e)
{
    struct servemodel *m = s->models;
    while (m->engine != e) m = m->next;
    m->placed = false;
    LOGLINE(&s->log, LOG_INFO, "model_released", NULL, logline_text("model", m->name));
    servemodels_settle(s, m);
}

void servemodels_close(zp_serve *s)
{
    while (s->models != NULL) {
        struct servemodel *m = s->models;
        s->models = m->next;
        servemodel_close(m);
    }
}

static void decided(zp_serve *s, const char *actor, const char *what, const char *why)
{
    struct audit_note n = audit_note(actor, what, why, os_now());
    audit_add(&s->rollout->audit, &n);
}

static void hold_by_hand(zp_serve *s, double now)
{
    if (s->o.canary_manual && s->rollout->canary.state == CANARY_WAITING)
        (void)canary_hold(&s->rollout->canary, AUDIT_RULE, "shares change by hand alone", now,
                          NULL);
}

/* The SLA may use mode half where all that are served gain by it: the least of them. */
static void set_half_gains(zp_serve *s)
{
    for (int l = 0; l < LENGTHS; l++) {
        double least = s->variants[VARIANT_BASELINE]->half.gain[l];
        const struct servemodel *candidate = s->variants[VARIANT_CANDIDATE];
        if (candidate != NULL && candidate->half.gain[l] < least) least = candidate->half.gain[l];
        sla_set_half_gain(&s->rollout->sla, (enum length_class)l, least);
    }
}

static void say_half_gain(zp_serve *s, const struct servemodel *m, const char *actor)
{
    static const char *const names[LENGTHS] = { "short", "medium", "long" };
    struct audit_note n = audit_note(actor, "half_gain_measured", m->half.why, os_now());
    if (!sla_is_on(&s->rollout->sla)) return;
    for (int l = 0; l < LENGTHS; l++)
        if (m->half.gain[l] > 0) audit_number(&n, names[l], m->half.gain[l]);
    LOGLINE(&s->log, LOG_INFO, "half_gain", NULL, logline_text("model", m->name),
            logline_real("short", m->half.gain[LENGTH_SHORT]),
            logline_real("medium", m->half.gain[LENGTH_MEDIUM]),
            logline_real("long", m->half.gain[LENGTH_LONG]), logline_text("why", m->half.why));
    audit_add(&s->rollout->audit, &n);
}

/* The engine's jobs of before finish where they are. */
static zp_status place(zp_serve *s, enum variant v, struct servemodel *m, zp_err *err)
{
    double now = os_now();
    if (s->name == NULL)
        s->name = mem_strdup(MEM_SERVE, s->o.alias != NULL ? s->o.alias : m->name);
    ZP_FAIL_IF(s->name == NULL, err, ZP_NO_MEMORY, "not enough memory for a name");
    ZP_TRY(sched_set_engine(s->sched, s->slots[v], m->engine, err));
    m->placed = true;
    m->next = s->models;
    s->models = m;
    s->variants[v] = m;
    if (v == VARIANT_CANDIDATE) rollout_set_candidate(s->rollout, true, now);
    else {
        s->api_limits.n_vocab = m->info.n_vocab;
        rollout_set_baseline(s->rollout, now);
    }
    set_half_gains(s);
    hold_by_hand(s, now);
    return ZP_OK;
}

static void say_loaded(zp_serve *s, const struct loading *l)
{
    const struct servemodel *m = l->model;
    struct servemodel_share zeroed;
    LOGLINE(&s->log, LOG_INFO, "model_loaded", NULL,
            logline_text("variant", variant_name(l->variant)), logline_text("model", m->name),
            logline_text("arch", m->info.arch), logline_uint("n_ctx", m->n_ctx),
            logline_uint("weights_bytes", m->stats.weights_bytes),
            logline_uint("kv_bytes", m->stats.kv_bytes),
            logline_text("layer_zeroed", servemodel_zeroed(m, ZP_MODE_FULL, &zeroed)),
            logline_text("rope_theta", m->theta));
    decided(s, l->actor, l->variant == VARIANT_BASELINE ? "baseline_loaded" : "candidate_loaded",
            m->name);
    say_half_gain(s, m, l->actor);
}

static void say_failed(zp_serve *s, const struct loading *l)
{
    (void)snprintf(s->load_error, sizeof s->load_error, "%s", l->err.message);
    LOGLINE(&s->log, LOG_ERROR, "model_failed", NULL,
            logline_text("variant", variant_name(l->variant)), logline_text("path", l->path),
            logline_text("error", l->err.message));
    decided(s, l->actor, "model_failed", l->err.message);
}

/* What it was checked against is still served. */
static zp_status check_beside(struct loading *l)
{
    for (int v = 0; v < VARIANTS; v++)
        ZP_FAIL_IF(l->beside[v] != l->s->variants[v], &l->err, ZP_RUN,
                   "the models changed while %s was loaded; load it again", l->path);
    return ZP_OK;
}

static void take_model(struct loading *l)
{
    zp_serve *s = l->s;
    bool first = s->variants[VARIANT_BASELINE] == NULL;
    if (l->status == ZP_OK) l->status = check_beside(l);
    if (l->status == ZP_OK) l->status = place(s, l->variant, l->model, &l->err);
    if (l->status == ZP_OK) {
        say_loaded(s, l);
        if (first) service_ready(s);
        return;
    }
    servemodel_close(l->model);
    say_failed(s, l);
    if (first) service_end(s, l->status, &l->err);
}

static void end_loading(struct loading *l)
{
    zp_serve *s = l->s;
    for (int v = 0; v < VARIANTS; v++) {
        if (l->beside[v] == NULL) continue;
        l->beside[v]->n_jobs--;
        if (s->running) servemodels_settle(s, l->beside[v]);
    }
    mem_free(s->loading);
    s->loading = NULL;
    mem_free(l->path);
    mem_free(l);
}

static void loaded(struct servetask *t)
{
    struct loading *l = (struct loading *)t;
    zp_serve *s = l->s;
    bool candidate_next = s->variants[VARIANT_BASELINE] == NULL && s->o.candidate != NULL;
    if (s->running) take_model(l);
    else servemodel_close(l->model);
    end_loading(l);
    if (candidate_next && s->state == LABEL_SERVER_READY)
        (void)servemodels_load(s, VARIANT_CANDIDATE, s->o.candidate, AUDIT_RULE, NULL);
}

zp_status servemodels_load(zp_serve *s, enum variant v, const char *path, const char *actor,
                       zp_err *err)
{
    ZP_FAIL_IF(s->loading != NULL, err, ZP_BAD_INPUT, "%s is being loaded; wait for it",
               s->loading); // L2
    struct loading *l = mem_zalloc(MEM_SERVE, sizeof *l);
    char *copy = mem_strdup(MEM_SERVE, path);
    s->loading = mem_strdup(MEM_SERVE, path);
    if (l == NULL || copy == NULL || s->loading == NULL) {
        mem_free(l);
        mem_free(copy);
        mem_free(s->loading);
        s->loading = NULL;
        ZP_FAIL(err, ZP_NO_MEMORY, "not enough memory to load a model");
    }
    *l = (struct loading){ .task = { .run = load, .done = loaded }, .s = s, .path = copy,
                           .variant = v };
    (void)snprintf(l->actor, sizeof l->actor, "%s", actor);
    for (int i = 0; i < VARIANTS; i++) {
        l->beside[i] = s->variants[i];
        if (l->beside[i] != NULL) l->beside[i]->n_jobs++;
    }
    s->load_error[0] = '\0';
    servework_give(s->loader, &l->task);
    return ZP_OK;
}

/* ---- changes --------------------------------------------------------------------------------- */

static zp_status find_candidate(const zp_serve *s, zp_err *err)
{
    ZP_FAIL_IF(s->variants[VARIANT_CANDIDATE] == NULL, err, ZP_BAD_INPUT, "there is no candidate");
    return ZP_OK;
}

zp_status servemodels_promote(zp_serve *s, const char *actor, const char *why, zp_err *err)
{
    uint32_t slot = s->slots[VARIANT_BASELINE];
    double now = os_now();
    ZP_TRY(find_candidate(s, err));
    ZP_TRY(sched_set_engine(s->sched, slot, NULL, err));
    s->slots[VARIANT_BASELINE] = s->slots[VARIANT_CANDIDATE]; // L4
    s->slots[VARIANT_CANDIDATE] = slot;
    s->variants[VARIANT_BASELINE] = s->variants[VARIANT_CANDIDATE];
    s->variants[VARIANT_CANDIDATE] = NULL;
    set_half_gains(s);
    decided(s, actor, "candidate_promoted", why);
    rollout_set_candidate(s->rollout, false, now);
    rollout_set_baseline(s->rollout, now);
    return ZP_OK;
}

zp_status servemodels_unload(zp_serve *s, bool cut, const char *actor, const char *why, zp_err *err)
{
    ZP_TRY(find_candidate(s, err));
    ZP_TRY(sched_set_engine(s->sched, s->slots[VARIANT_CANDIDATE], NULL, err));
    decided(s, actor, "candidate_unloaded", why);
    s->variants[VARIANT_CANDIDATE] = NULL;
    set_half_gains(s);
    if (cut) {
        breaker_cut(&s->rollout->breaker);
        s->cuts = true;
        servejobs_move_cut(s);
    }
    rollout_set_candidate(s->rollout, false, os_now());
    return ZP_OK;
}
