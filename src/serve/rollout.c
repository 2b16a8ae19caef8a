/* rollout.c: a request's way past the SLA, the canary and the breaker, and its outcome's way back.
 * Owns: the parts. Does not know: engines, streams, HTTP.
 * Threads: one.
 * R1 the candidate gets a request only if the canary picks it and the breaker lets it pass; in
 *    every doubt it is the baseline's.  R2 every ticket ends once; begun = ended + those under way.
 * R3 the canary judges no stage while the breaker keeps requests away. */
#include "serve/rollout.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"

zp_status rollout_open(struct rollout **out, const struct rollout_options *options, double now,
                       double unix_seconds, zp_err *err)
{
    struct rollout_options o = *options;
    struct rollout *r = mem_zalloc(MEM_SERVE, sizeof *r);
    *out = NULL;
    ZP_FAIL_IF(r == NULL, err, ZP_NO_MEMORY, "not enough memory for the roll-out (%zu bytes)",
               sizeof *r);
    o.canary.audit = o.breaker.audit = o.sla.audit = &r->audit;
    zp_status status = audit_open(&r->audit, &o.audit, err);
    if (status == ZP_OK) status = canary_init(&r->canary, &o.canary, err);
    if (status == ZP_OK) status = sla_init(&r->sla, &o.sla, err);
    if (status == ZP_OK) breaker_init(&r->breaker, &o.breaker);
    audit_set_clock(&r->audit, now, unix_seconds);
    if (status == ZP_OK) *out = r;
    else rollout_close(r);
    return status;
}

void rollout_close(struct rollout *r)
{
    if (r == NULL) return;
    audit_free(&r->audit);
    mem_free(r);
}

bool rollout_begin(struct rollout *r, const struct rollout_ask *ask, double now,
                   struct rollout_ticket *ticket)
{
    const char *key = r->canary.o.sticky && ask->user && *ask->user ? ask->user : ask->request_id;
    *ticket = (struct rollout_ticket){ .length = sla_length(&r->sla, ask->n_prompt),
                                       .canary_epoch = r->canary.epoch,
                                       .baseline = r->baselines };
    /* Before the breaker: a probe is not wasted on a request that is refused. */
    if (!sla_admit(&r->sla, ticket->length, ask->mode_is_open, &ticket->half, &ticket->sla_epoch))
        return false;
    if (canary_picks(&r->canary, key, strlen(key))
        && breaker_admit(&r->breaker, now, &ticket->pass))
        ticket->variant = VARIANT_CANDIDATE; // R1
    r->begun[ticket->variant]++;
    return true;
}

bool rollout_admits(struct rollout *r, uint64_t n_prompt, struct rollout_ticket *ticket)
{
    *ticket = (struct rollout_ticket){ .length = sla_length(&r->sla, n_prompt),
                                       .baseline = r->baselines };
    return sla_admit(&r->sla, ticket->length, false, &ticket->half, &ticket->sla_epoch);
}

static void end_at_candidate(struct rollout *r, const struct rollout_ticket *ticket,
                             const struct outcome *o, double now)
{
    if (!breaker_ended(&r->breaker, &ticket->pass, ticket->length, o, now)) return;
    if (r->breaker.state == BREAKER_CLOSED) canary_restart(&r->canary, now); // R3
    else canary_tripped(&r->canary, now);
}

void rollout_end(struct rollout *r, const struct rollout_ticket *ticket,
                 const struct outcome *outcome, double now)
{
    struct outcome o = outcome_checked(outcome);
    r->ended[ticket->variant][o.end]++; // R2
    if (ticket->moved) return;
    sla_ended(&r->sla, ticket->length, ticket->sla_epoch, &o, now);
    canary_ended(&r->canary, ticket->canary_epoch, ticket->variant, &o);
    if (ticket->variant == VARIANT_CANDIDATE) end_at_candidate(r, ticket, &o, now);
    else if (ticket->baseline == r->baselines)
        breaker_baseline_ended(&r->breaker, ticket->length, &o, now);
}

bool rollout_is_cut(const struct rollout *r, const struct rollout_ticket *ticket)
{
    return ticket->variant == VARIANT_CANDIDATE && breaker_cuts(&r->breaker, &ticket->pass);
}

bool rollout_may_move(const struct rollout_ticket *ticket, enum outcome_end end)
{
    return ticket->variant == VARIANT_CANDIDATE
           && (end == OUTCOME_FAILED || end == OUTCOME_NONFINITE);
}

void rollout_move(struct rollout *r, struct rollout_ticket *ticket)
{
    assert(ticket->variant == VARIANT_CANDIDATE);
    ticket->variant = VARIANT_BASELINE;
    ticket->moved = true;
    r->begun[VARIANT_BASELINE]++;
    r->moved++;
}

void rollout_tick(struct rollout *r, double now, double unix_seconds)
{
    audit_set_clock(&r->audit, now, unix_seconds);
    if (breaker_is_ready(&r->breaker)) canary_begin(&r->canary, now);
    if (r->breaker.state == BREAKER_CLOSED) canary_tick(&r->canary, now); // R3
    sla_tick(&r->sla, now);
}

void rollout_set_baseline(struct rollout *r, double now)
{
    r->baselines++;
    breaker_new_baseline(&r->breaker);
    if (r->canary.state != CANARY_OFF) rollout_set_candidate(r, true, now);
}

void rollout_set_candidate(struct rollout *r, bool present, double now)
{
    breaker_new_candidate(&r->breaker, now);
    if (present) canary_load(&r->canary, now);
    else canary_unload(&r->canary, now);
}

zp_status rollout_roll_back(struct rollout *r, bool cut, const char *actor, const char *why,
                            double now, zp_err *err)
{
    ZP_TRY(canary_roll_back(&r->canary, actor, why, now, err));
    if (cut) breaker_cut(&r->breaker);
    return ZP_OK;
}

void rollout_close_breaker(struct rollout *r, const char *actor, const char *why, double now)
{
    breaker_close(&r->breaker, actor, why, now);
    canary_restart(&r->canary, now);
}

/* ---- the document ---- */

static void write_requests(const struct rollout *r, struct json_build *w)
{
    json_build_object(w, "requests");
    for (int v = 0; v < VARIANTS; v++) {
        json_build_object(w, variant_name((enum variant)v));
        json_build_uint(w, "begun", r->begun[v]);
        for (int e = 0; e < OUTCOME_ENDS; e++)
            json_build_uint(w, outcome_name((enum outcome_end)e), r->ended[v][e]);
        json_build_object_end(w);
    }
    json_build_uint(w, "begun_again", r->moved);
    json_build_object_end(w);
}

void rollout_write(const struct rollout *r, double now, const char *key, struct json_build *w)
{
    json_build_object(w, key);
    canary_write(&r->canary, now, "canary", w);
    breaker_write(&r->breaker, now, "breaker", w);
    sla_write(&r->sla, "sla", w);
    write_requests(r, w);
    json_build_object(w, "audit");
    json_build_uint(w, "decisions", r->audit.seq);
    json_build_uint(w, "lines", r->audit.n);
    json_build_uint(w, "lost", r->audit.lost);
    json_build_text(w, "last_hash", r->audit.last);
    json_build_object_end(w);
    json_build_object_end(w);
}
